"""Prompts on the terminal: passphrases and confirmations."""

import os
import sys
from collections.abc import Callable
from typing import ClassVar, TypeVar

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.output import narrate
from zerochat.errors import LocalError

_T = TypeVar("_T")
TRIES_MAX = 3
"""Attempts to type a passphrase, or the same new passphrase twice."""


class NoPassphrase(LocalError):
    """A passphrase is required, and there is no terminal to prompt for it. Store it in a file that only you can read,
    and set ZEROCHAT_PASSPHRASE_FILE to its path."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


class NotConfirmed(LocalError):
    """{doing} {group} requires confirmation, and there is no terminal: add --yes."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def with_passphrase(attempt: Callable[[Callable[[], bytes] | None], _T]) -> _T:
    """The result of `attempt`, which gets the source of the passphrase. A wrong passphrase is prompted for again,
    unless it came from a file."""
    source = passphrase_source()
    for left in reversed(range(TRIES_MAX)):
        try:
            return attempt(source)
        except LocalError as error:
            if error.code != "WrongPassphrase" or source is not _prompt or not left:
                raise
            narrate("Wrong passphrase. Try again.")
    raise AssertionError


def passphrase_source() -> Callable[[], bytes] | None:
    """The source of the profile's passphrase; None if there is neither a file nor a terminal."""
    return passphrase_file() or (_prompt if _has_terminal() else None)


def passphrase_file() -> Callable[[], bytes] | None:
    """Reads the file named by ZEROCHAT_PASSPHRASE_FILE, when called; None if the variable is not set. A running agent
    needs no passphrase."""
    if not os.environ.get("ZEROCHAT_PASSPHRASE_FILE"):
        return None

    def read() -> bytes:
        from zerochat.agent.storage import profiles

        source = profiles.passphrase_source(os.environ)
        assert source is not None
        return source()

    return read


def new_passphrase(*, typed: bool = False) -> bytes:
    """The passphrase for a new profile: from the file, or typed twice. `typed`: ignore the file, it has the old one."""
    if not typed and (from_file := passphrase_file()) is not None:
        return from_file()
    if not _has_terminal():
        raise NoPassphrase
    from getpass import getpass

    from zerochat.agent.storage.profiles import BadPassphrase

    for left in reversed(range(TRIES_MAX)):
        first = getpass("New passphrase: ")
        if not first:
            raise BadPassphrase(why="it is empty")
        if getpass("Repeat passphrase: ") == first:
            return first.encode()
        if left:
            narrate("The passphrases do not match. Try again.")
    raise BadPassphrase(why="the two entries do not match")


def _prompt() -> bytes:
    from getpass import getpass

    return getpass("Passphrase: ").encode()


def _has_terminal() -> bool:
    """Whether a prompt can be shown and answered, also when standard input is a pipe."""
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def confirmed(question: str, otherwise: LocalError) -> bool:
    """Whether the user answers yes. Ask last: what is impossible needs no answer. Raises `otherwise` without a
    terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise otherwise
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
