"""Output of the command line: data on standard output, messages to the user on standard error.

Data is JSON lines in ASCII, or text. Text of other members passes the terminal sanitiser when it is formatted, and once
more with the whole line.
"""

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import ClassVar, TextIO

from msgspec import Struct, to_builtins

from zerochat.agent.storage.paths import DEFAULT_PROFILE
from zerochat.cli.exit_codes import ExitCode
from zerochat.errors import LocalError
from zerochat.terminal_text import printable

WIDTH = 79
"""Columns of a terminal that does not report its width."""


_narrated = ContextVar("_narrated", default="")
"""The last message to the user."""


class OutputFailed(LocalError):
    """Standard output cannot be written: {why}. Only the output is lost: what the command changes has been changed."""

    exit_code: ClassVar[int] = ExitCode.OUTPUT


class Output:
    """Standard output as text or as JSON lines. The methods raise OutputFailed, and BrokenPipeError once the reader of
    a pipe has closed it."""

    def __init__(self, format_: str) -> None:
        self.jsonl = format_ in ("json", "jsonl")
        self.failure: OutputFailed | BrokenPipeError | None = None
        """Why the output of `report` is lost."""

    def report(self, value: Struct | dict[str, object], text: Iterable[str]) -> None:
        """Print what a verb has done that goes on afterwards; if it cannot be written, the verb goes on too."""
        try:
            self.data(value, text)
        except (OutputFailed, BrokenPipeError) as error:
            self.failure = error
            discard_output(sys.stdout)

    def data(self, value: Struct | dict[str, object], text: Iterable[str]) -> None:
        """Print one item: as one line of JSON, or as these lines of text."""
        self.data_list([value], text)

    def data_list(self, values: Sequence[Struct | dict[str, object]], text: Iterable[str]) -> None:
        """Print several items: one line of JSON each, or together these lines of text."""
        if self.jsonl:
            import json

            for value in values:
                self._write(json.dumps(to_builtins(value), ensure_ascii=True, separators=(",", ":")))
        else:
            for line in text:
                self._write(printable(line))
        self.flush()

    def exactly(self, text: str) -> None:
        """Print trusted text unchanged: an invitation, a QR code, a path."""
        self._write(text)
        self.flush()

    def error(self, message: str, details: Mapping[str, object]) -> None:
        """Print an error on standard error: as a line of JSON, or as text."""
        if self.jsonl:
            print_error(message, details)
        else:
            narrate(f"zerochat: {message}")

    def end(self, code: int) -> None:
        """Print the reason of an exit code other than 0 for which no error was raised, where programs read it."""
        ended = next((each for each in ExitCode if each == code), ExitCode.OK)
        if self.jsonl and ended is not ExitCode.OK:
            print_error(_narrated.get() or ended.sentence, {"code": ended.name.title(), "exit_code": ended.value})

    def _write(self, line: str) -> None:
        with _failures():
            print(line)

    def flush(self) -> None:
        with _failures():
            sys.stdout.flush()


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output(sys.stdout)  # Python would write it again at its end, and report that too
        raise OutputFailed(why=(error.strerror or str(error)).lower()) from error


def narrate(text: str) -> None:
    """Print a message to the user on standard error, with `--profile` in its commands where necessary.

    A closed terminal or a full disk behind standard error is ignored.
    """
    shown = printable(_COMMAND.sub(_with_profile, text))
    _narrated.set(shown)
    _print("\n".join(wrapped(shown, _width())) if sys.stderr.isatty() else shown)


def print_error(message: str, details: Mapping[str, object]) -> None:
    """Print an error for programs on standard error: one line of JSON. `details`: at least `code` and `exit_code`."""
    import json

    _print(json.dumps({"error": {"message": _COMMAND.sub(_with_profile, message), **details}}, separators=(",", ":")))


def _print(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard_output(sys.stderr)


def discard_output(stream: TextIO) -> None:
    """Redirect a broken stream to /dev/null: the interpreter flushes it at exit and would fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, broken between words but not inside a command in backquotes."""
    joined = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), text)
    lines: list[str] = []
    for line in joined.split("\n"):
        lines += textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace("\0", " ") for line in lines]


def _width() -> int:
    """Columns of the terminal behind standard error."""
    try:
        return int(os.environ["COLUMNS"]) or WIDTH
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


# --- commands in messages ---------------------------------------------------------------------------------------------


_COMMAND = re.compile(
    r"`zerochat(?! --help| demo| help| invite GROUP`| agent` running)(?: --profile (?P<profile>[^\s`]+))?(?=[ `])"
)
"""A command in a message. Excluded are commands that need no profile, and those that the inviter has to type."""
_profiles = ContextVar("_profiles", default=(DEFAULT_PROFILE, DEFAULT_PROFILE))
"""The profile of this command line, and the default profile."""


def set_hint_profile(profile: str | None, default: str | None) -> None:
    """Make the commands in all later messages refer to this profile. `profile`: the value of `--profile`; `default`:
    that of ZEROCHAT_PROFILE. Messages come from all layers, most of which do not know how the profile was selected."""
    default = default or DEFAULT_PROFILE
    _profiles.set((profile or default, default))


def _with_profile(command: re.Match[str]) -> str:
    """The command with `--profile` if it needs one; a command that names another profile stays as it is."""
    ours, default = _profiles.get()
    if command["profile"] not in (None, ours):
        return command[0]
    return "`zerochat" if ours == default else f"`zerochat --profile {ours}"
