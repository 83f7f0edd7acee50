"""How a verb comes to its agent: the running one, or one of its own for as long as the verb takes."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerochat.agent.places import places
from zerochat.cli.exits import ExitCode
from zerochat.cli.parser import Options
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.agent.attach import Attached
    from zerochat.agent.places import Places

PASSPHRASE_BYTES_MAX = 4_096
TRIES_MAX = 3
"""How often a new passphrase may be typed differently the second time."""


class BadPassphrase(LocalError):
    """The passphrase cannot be used: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class PassphraseFileUnreadable(LocalError):
    """The passphrase file {path} (ZEROCHAT_PASSPHRASE_FILE) cannot be read: {why}."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


class NobodyToAsk(LocalError):
    """A passphrase is needed, and there is no terminal to ask for it. Put it into a file that only you can read, and
    name that file in ZEROCHAT_PASSPHRASE_FILE."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


def places_of(options: Options) -> "Places":
    return places(options.profile, os.environ)


def attached(options: Options, name: str = "cli") -> "Attached":
    """A context with a client of the profile's agent."""
    from zerochat.agent.attach import attach

    return attach(
        places_of(options), passphrase_source(), listen=options.listen, advertise=options.advertise, name=name
    )


def passphrase_source() -> Callable[[], bytes] | None:
    """Where the profile's passphrase would come from; None: from nowhere, there is no file and nobody to ask."""
    return passphrase_file() or (_ask if _has_terminal() else None)


def passphrase_file() -> Callable[[], bytes] | None:
    """The file that ZEROCHAT_PASSPHRASE_FILE names, if it names one."""
    path = os.environ.get("ZEROCHAT_PASSPHRASE_FILE")
    return (lambda: _from_file(Path(path))) if path else None


def new_passphrase() -> bytes:
    """The passphrase for a new profile: from the file, or typed twice."""
    source = passphrase_source()
    if source is None:
        raise NobodyToAsk
    if source is not _ask:
        return source()
    from getpass import getpass

    for _ in range(TRIES_MAX):
        first = getpass("New passphrase: ")
        if not first:
            raise BadPassphrase(why="it is empty")
        if getpass("The same again: ") == first:
            return first.encode()
        print("They differ. Once more.", file=sys.stderr)
    raise BadPassphrase(why="the two entries differ")


def _ask() -> bytes:
    from getpass import getpass

    return getpass("Passphrase: ").encode()


def _from_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(PASSPHRASE_BYTES_MAX + 1)
    except OSError as error:
        raise PassphraseFileUnreadable(path=path, why=(error.strerror or str(error)).lower()) from error
    text = text.removesuffix(b"\n").removesuffix(b"\r")
    if not text or len(text) > PASSPHRASE_BYTES_MAX:
        raise BadPassphrase(
            why=f"{path} is empty" if not text else f"{path} has more than {PASSPHRASE_BYTES_MAX} bytes"
        )
    return text


def _has_terminal() -> bool:
    """Whether a question would be seen and could be answered. Standard input may be a pipe all the same."""
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
