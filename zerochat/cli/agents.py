"""How a verb comes to its agent: the running one, or one of its own for as long as the verb takes."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from zerochat.agent.storage.paths import places
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import narrate
from zerochat.cli.parser import Options
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.storage.paths import Places

_T = TypeVar("_T")

TRIES_MAX = 3
"""How often a passphrase may be typed wrong, and a new one differently the second time."""


class NobodyToAsk(LocalError):
    """A passphrase is needed, and there is no terminal to ask for it. Put it into a file that only you can read, and
    name that file in ZEROCHAT_PASSPHRASE_FILE."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


def places_of(options: Options) -> "Places":
    return places(options.profile, os.environ)


def attached(options: Options, name: str = "cli") -> "Attached":
    """A context with a client of the profile's agent."""
    from zerochat.agent.api.attach import attach

    home = places_of(options)
    agent = with_passphrase(
        lambda source: attach(home, source, listen=options.listen, advertise=options.advertise, name=name)
    )
    if agent.own:
        warn_of_settings(home)
    return agent


def warn_of_settings(home: "Places") -> None:
    """Say what in the settings file means nothing, to whoever starts an agent that goes by it."""
    from zerochat.agent.settings.reader import load_settings

    for warning in load_settings(home).warnings:
        narrate(f"{home.config}: {warning}")


def with_passphrase(attempt: Callable[[Callable[[], bytes] | None], _T]) -> _T:
    """What `attempt` gives when it is told where the passphrase would come from. Somebody who types a wrong one is
    asked again; a file would only say the same."""
    source = passphrase_source()
    for left in reversed(range(TRIES_MAX)):
        try:
            return attempt(source)
        except LocalError as error:
            if error.code != "WrongPassphrase" or source is not _ask or not left:
                raise
            narrate("This is not the passphrase. Once more.")
    raise AssertionError


def passphrase_source() -> Callable[[], bytes] | None:
    """Where the profile's passphrase would come from; None: from nowhere, there is no file and nobody to ask."""
    return passphrase_file() or (_ask if _has_terminal() else None)


def passphrase_file() -> Callable[[], bytes] | None:
    """The passphrase in the file that ZEROCHAT_PASSPHRASE_FILE names, if it names one. Nothing is read before it is
    asked for: with an agent running, nobody needs it."""
    if not os.environ.get("ZEROCHAT_PASSPHRASE_FILE"):
        return None

    def read() -> bytes:
        from zerochat.agent.storage import profiles

        source = profiles.passphrase_source(os.environ)
        assert source is not None
        return source()

    return read


def new_passphrase(*, typed: bool = False) -> bytes:
    """The passphrase for a new profile: from the file, or typed twice; `typed`: the file has another one."""
    if not typed and (from_file := passphrase_file()) is not None:
        return from_file()
    if not _has_terminal():
        raise NobodyToAsk
    from getpass import getpass

    from zerochat.agent.storage.profiles import BadPassphrase

    for left in reversed(range(TRIES_MAX)):
        first = getpass("New passphrase: ")
        if not first:
            raise BadPassphrase(why="it is empty")
        if getpass("The same again: ") == first:
            return first.encode()
        if left:
            narrate("They differ. Once more.")
    raise BadPassphrase(why="the two entries differ")


def _ask() -> bytes:
    from getpass import getpass

    return getpass("Passphrase: ").encode()


def _has_terminal() -> bool:
    """Whether a question would be seen and could be answered. Standard input may be a pipe all the same."""
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
