"""Exception hierarchy: LocalError for requests of this machine's user, RemoteError for input from peers.

The docstring of an error class is the message that the user reads, with `{fields}` filled in from the error's
arguments: what happened, why, and what to do. A RemoteError is counted, never shown in full, and changes no state.
"""

import re
import shlex
from collections.abc import Iterable
from functools import cache
from typing import ClassVar, Literal, TypeAlias

Retry: TypeAlias = Literal["never", "later", "now"]
"""Whether a client may retry the same request: not before something changes, after a while, or at once."""


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def quoted(*names: str) -> str:
    """Names as the last arguments of a shell command, quoted, and after `--` if one begins with a hyphen."""
    words = [shlex.quote(name) for name in names]
    dashed = next((index for index, name in enumerate(names) if name.startswith("-")), None)
    if dashed is not None:
        words.insert(dashed, "--")
    return " ".join(words)


def _typed(value: object) -> object:
    """A field inside a command."""
    return quoted(*((value,) if isinstance(value, str) else value)) if isinstance(value, str | tuple) else value


def unique_prefixes(ids: Iterable[str], least: int = 8) -> list[str]:
    """The shortest unique prefixes of these ids, sorted; at least `least` characters."""
    known = sorted(set(ids))
    length = next((n for n in range(least, 256) if len({id[:n] for id in known}) == len(known)), 256)
    return [id[:length] for id in known]


def docstring(kind: type) -> str:
    """The docstring of a class itself; under `python -OO`, which removes docstrings, that of its source."""
    return kind.__dict__.get("__doc__") or ("" if __debug__ else _docstring_in_source(kind))


@cache
def _docstring_in_source(kind: type) -> str:
    import ast
    import inspect
    from textwrap import dedent

    try:
        (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
    except OSError:  # installed without its source
        return kind.__name__
    return (ast.get_docstring(definition, clean=False) if isinstance(definition, ast.ClassDef) else None) or ""


class ZerochatError(Exception):
    """An error in zerochat."""

    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = "never"
    retry_after_s: ClassVar[int] = 0
    """For `later`: seconds to wait, if known."""
    facts: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that programs receive in addition to the message."""

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        super().__init__()

    def __str__(self) -> str:
        return self.sentence()

    def __repr__(self) -> str:
        return f"{self.code}({self.sentence()!r})"

    @property
    def code(self) -> str:
        """The stable error code for programs: the class name."""
        return type(self).__name__

    @property
    def details(self) -> dict[str, str | int]:
        """What programs receive in addition to the message."""
        found: dict[str, str | int] = {"code": self.code, "exit_code": self.exit_code, "retry": self.retry}
        if self.retry_after_s:
            found["retry_after_s"] = self.retry_after_s
        return found | {name: str(self.fields[name]) for name in self.facts if name in self.fields}

    def sentence(self) -> str:
        """The docstring with the fields filled in, on one line; inside backquotes they are quoted for a shell. A tuple
        is several words there."""
        pieces = docstring(type(self)).split("`")
        typed = {name: _typed(value) for name, value in self.fields.items()}
        filled = (piece.format(**(typed if index % 2 else self.fields)) for index, piece in enumerate(pieces))
        # Bytes of arguments and paths that are no text would fail in every log and every answer.
        return _LONE_SURROGATE.sub("\ufffd", " ".join("`".join(filled).split()))


class LocalError(ZerochatError):
    """The request failed."""


class RemoteError(ZerochatError):
    """Input from a peer was rejected."""


class InternalFault(LocalError):
    """Internal error ({what}); nothing was done. The agent's log has the details (`zerochat paths log`)."""


class ResultLost(LocalError):
    """It was done, but the result was lost by an internal error ({what}). The agent's log has the details
    (`zerochat paths log`)."""


# --- input from peers -----------------------------------------------------------------------------------------------


class Malformed(RemoteError):
    """Malformed input: {why}."""


class Unauthentic(RemoteError):
    """The envelope cannot be decrypted, or its sender is not authentic."""


class Refused(RemoteError):
    """The message is not permitted: {why}."""


# --- requests of the user -------------------------------------------------------------------------------------------


class BadInvitation(LocalError):
    """Not a zerochat invitation: {why}. Paste the complete link or code (it begins with ZC:), or ask for a new one
    (`zerochat invite GROUP`)."""


class InvitationExpired(LocalError):
    """The invitation expired on {when}. Ask its sender for a new one (`zerochat invite GROUP`)."""


class UnknownGroup(LocalError):
    """Unknown group '{group}'. `zerochat info` lists the groups of this profile."""


class AmbiguousGroup(LocalError):
    """Several groups match {group}{which}. Use a prefix of the id; `zerochat info` shows the ids."""

    facts: ClassVar[tuple[str, ...]] = ("group", "ids")

    def __init__(self, *, group: str, ids: Iterable[str] = ()) -> None:
        """`ids`: those of the matching groups, if known; the message shows their prefixes."""
        short = unique_prefixes(ids)
        super().__init__(group=group, ids=" ".join(short), which=f" ({', '.join(short)})" if short else "")


class GroupExists(LocalError):
    """This profile already has a group {group}. Choose another name, or leave that group (`zerochat leave {group}`)."""


class BadName(LocalError):
    """{name} is not a valid name: {why}."""


class PostTooLong(LocalError):
    """The message is too long: {size} bytes, the limit is {limit}. Split it."""


class NotAMember(LocalError):
    """You are no longer a member of {group}; its history stays readable. To return, ask for a new invitation."""

    exit_code: ClassVar[int] = 8


class GroupFull(LocalError):
    """{group} is full: the limit is {limit} members."""


class Overloaded(LocalError):
    """{what} has reached its limit of {limit}. Try again when the agent has caught up."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1
