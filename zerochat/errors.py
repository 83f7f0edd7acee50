"""The error family: what went wrong, whose doing it was, and what a person can do about it.

The docstring of a leaf class is the sentence that a person reads, with `{fields}` filled in from the error's own
arguments; so it names the remedy. A `LocalError` answers somebody at this machine. A `RemoteError` is about bytes that
a peer sent: it is counted, never shown in full, and never changes any state.
"""

import shlex
from collections.abc import Iterable
from typing import ClassVar, Literal, TypeAlias

Retry: TypeAlias = Literal["never", "later", "now"]
"""Whether the very same may be asked again: it will be refused again until somebody has changed something; it may well
do after a while, by itself; it may do at once."""


def quoted(*names: str) -> str:
    """Names as arguments of a command that is to be typed: as a shell wants them, and none that looks like an option
    taken for one. Options of the command stand before them."""
    words = [shlex.quote(name) for name in names]
    dashed = next((place for place, name in enumerate(names) if name.startswith("-")), None)
    if dashed is not None:
        words.insert(dashed, "--")
    return " ".join(words)


def beginnings(ids: Iterable[str], least: int = 8) -> list[str]:
    """The first letters of each of these ids, sorted: as many as tell them apart, and at least so many."""
    known = sorted(set(ids))
    length = next((n for n in range(least, 256) if len({one[:n] for one in known}) == len(known)), 256)
    return [one[:length] for one in known]


class ZerochatError(Exception):
    """Something in zerochat went wrong."""

    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = "never"
    retry_after_s: ClassVar[int] = 0
    """For `later`: after how long, where that can be said."""
    facts: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that a program gets beside the sentence."""

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        super().__init__(self.sentence())

    @property
    def code(self) -> str:
        """The stable name that programs compare: the class name."""
        return type(self).__name__

    def sentence(self) -> str:
        """The docstring with the fields filled in, on one line; in a command, as a shell wants them."""
        pieces = (type(self).__doc__ or "").split("`")
        typed = {name: quoted(value) if isinstance(value, str) else value for name, value in self.fields.items()}
        said = (piece.format(**(typed if place % 2 else self.fields)) for place, piece in enumerate(pieces))
        return " ".join("`".join(said).split())


class LocalError(ZerochatError):
    """This cannot be done."""


class RemoteError(ZerochatError):
    """A peer sent something that was refused."""


class InternalFault(LocalError):
    """zerochat itself has a fault here ({what}), and nothing was done. The agent's log has the details
    (`zerochat locate log`)."""


# --- what a peer can send wrong -------------------------------------------------------------------------------------


class Malformed(RemoteError):
    """The bytes are not what they claim to be: {why}."""


class Unauthentic(RemoteError):
    """The envelope does not open, or its sender is not who it says."""


class Refused(RemoteError):
    """The message is authentic, but its sender may not say this: {why}."""


# --- what a person can ask wrong ------------------------------------------------------------------------------------


class BadInvitation(LocalError):
    """This is not a zerochat invitation: {why}. Ask for a fresh one (`zerochat invite GROUP`) and paste the whole link,
    or the whole code that begins with ZC:."""


class InvitationExpired(LocalError):
    """This invitation expired at {when}. Ask the person who sent it for a fresh one (`zerochat invite GROUP`)."""


class UnknownGroup(LocalError):
    """There is no group called {group} in this profile. `zerochat status` lists the groups."""


class AmbiguousGroup(LocalError):
    """More than one group answers to {group}{which}. Use the first letters of its id: `zerochat status` shows them."""

    facts: ClassVar[tuple[str, ...]] = ("group", "ids")

    def __init__(self, *, group: str, ids: Iterable[str] = ()) -> None:
        """`ids`: those of the groups that answer to it, where they are known; their first letters are told."""
        short = beginnings(ids)
        super().__init__(group=group, ids=" ".join(short), which=f" ({', '.join(short)})" if short else "")


class GroupExists(LocalError):
    """This profile already has a group called {group}. Choose another name, or leave the old group first
    (`zerochat leave {group}`)."""


class BadName(LocalError):
    """{name} cannot be used as a name: {why}."""


class PostTooLong(LocalError):
    """This message has {size} bytes of text and at most {limit} fit. Split it."""


class NotAMember(LocalError):
    """You are no longer in {group}; its history stays readable. To speak there again, ask for a new invitation."""


class GroupFull(LocalError):
    """{group} has {limit} members, and no more fit."""


class Overloaded(LocalError):
    """{what} has reached its limit of {limit}. Wait until the agent has caught up, then try again."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1
