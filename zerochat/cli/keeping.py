"""The verbs that keep a profile safe: passphrase, backup, restore."""

import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agents import NobodyToAsk, new_passphrase, places_of, with_passphrase
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, name_of, narrate, quoted
from zerochat.cli.parser import Options
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerochat.agent.storage.paths import Places
    from zerochat.agent.storage.profiles import JournalKey

NEW_PASSPHRASE_FILE = "ZEROCHAT_NEW_PASSPHRASE_FILE"  # noqa: S105  # the name of a variable
OWNER_S_MAX, RETRY_S = 5.0, 0.05
"""How long a profile that somebody else has just taken is waited for."""


class NoNewPassphrase(LocalError):
    """A new passphrase is needed, and there is no terminal to ask for it. Put it into a file that only you can read,
    and name that file in ZEROCHAT_NEW_PASSPHRASE_FILE."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


def passphrase(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.storage.profiles import how_locked, rewrap, unlock

    home = places_of(options)
    before = how_locked(home)
    key = with_passphrase(lambda source: unlock(home, source))
    wanted = None if options.in_the_open or options.keyring else _another(before == "passphrase")
    rewrap(home, key, wanted, keyring=options.keyring)
    now = how_locked(home)
    out.data({"profile": home.profile, "was": before, "lock": now}, [])
    narrate(
        {
            "passphrase": f"The profile {home.profile} opens with the new passphrase, and never again without.",
            "keyring": f"The key of the profile {home.profile} is in the system's keyring now.",
            "key": f"The profile {home.profile} opens by itself now: its key lies in {home.key_file}.",
        }[now]
    )
    if before == "key":
        narrate("Copies of the old key file, in backups say, still open the journal: remove them.")
    return ExitCode.OK


def _another(has_one: bool) -> bytes:
    """A new passphrase: from the file for it, or typed twice. ZEROCHAT_PASSPHRASE_FILE has it where no old one is."""
    from zerochat.agent.storage.key_wrapping import passphrase_source

    if (source := passphrase_source(os.environ, NEW_PASSPHRASE_FILE)) is not None:
        return source()
    try:
        return new_passphrase(typed=has_one)
    except NobodyToAsk:
        raise NoNewPassphrase from None


# --- backups ----------------------------------------------------------------------------------------------------------


def backup(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.storage.backup import BackupThere, NotForMediators, write_backup
    from zerochat.agent.storage.profiles import how_locked, unlock

    home, target = places_of(options), Path(options.file).expanduser().absolute()
    lock = how_locked(home)
    if (home.data / "mediator.db").exists():
        raise NotForMediators(profile=home.profile, path=home.data)
    if os.path.lexists(target):
        raise BackupThere(path=target)

    @cache
    def key() -> "JournalKey":
        return with_passphrase(lambda source: unlock(home, source))

    as_it_is = lock == "passphrase" and not options.passphrase
    inside = None if as_it_is else key()
    wanted = _another(has_one=lock == "passphrase") if options.passphrase or lock == "keyring" else None
    write_backup(home, target, _copy(home, key), inside, wanted)
    locked = as_it_is or wanted is not None
    facts = {"profile": home.profile, "file": str(target), "bytes": target.stat().st_size, "passphrase": locked}
    out.data(facts, [str(target)])
    if locked:
        whose = "the profile's" if as_it_is else "its own"
        narrate(f"The backup opens with {whose} passphrase, and without it not at all.")
    else:
        narrate(
            f"This backup opens by itself, as the profile does: whoever gets {target} can read everything and speak as"
            " you. `zerochat backup --passphrase FILE` locks one."
        )
    return ExitCode.OK


def _copy(home: "Places", key: "Callable[[], JournalKey]") -> Path:
    """A copy of the journal: by the agent that has it open, or by us when nobody has."""
    from zerochat.agent.api.client import NoAgent, connect
    from zerochat.agent.storage.backup import copy_beside
    from zerochat.agent.storage.journal import Journal
    from zerochat.agent.storage.profiles import ProfileOwned, lock_profile

    deadline = time.monotonic() + OWNER_S_MAX
    while True:
        try:
            with connect(home, "cli") as client:
                return Path(client.backup())
        except NoAgent:
            pass
        try:
            with lock_profile(home), Journal.open(home.journal, key()) as journal:
                return copy_beside(journal)
        except ProfileOwned:  # somebody was faster, and will answer soon; or was about to end
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def restore(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.storage import backup as backups

    home, source = places_of(options), Path(options.file).expanduser().absolute()
    found = with_passphrase(lambda ask: backups.restore(home, source, ask))
    facts = {"profile": home.profile, "was": found.profile, "made": found.made, "lock": found.lock}
    out.data({**facts, "alone": found.alone, "data": str(home.data)}, [str(home.data)])
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.made / 1000))
    narrate(
        f"The profile {home.profile} is as it was on {made}. What was said since then comes back from the other members"
        " as soon as one of them is connected. The profile that the backup was made of must not be used any more."
    )
    if len(found.groups) > len(found.alone):
        narrate(
            "You can write in a group again when all its members have said what they have of you; `zerochat resume"
            " GROUP` goes on without those who are gone."
        )
    if found.alone:
        names = ", ".join(name_of(name) for name in found.alone)
        command = f"zerochat resume {quoted(found.alone[0]) if len(found.alone) == 1 else 'GROUP'}"
        narrate(
            f"Nobody can say that where you were alone when the backup was made: {names}. If nobody has joined since,"
            f" `{command}` goes on there; else begin a new group."
        )
    return ExitCode.OK
