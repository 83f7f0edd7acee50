"""Verbs passphrase, backup and restore: the lock of a profile, and copies of it."""

import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of, quoted
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.cli.progress import Progress
from zerochat.cli.prompts import NoPassphrase, new_passphrase, with_passphrase
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerochat.agent.storage.paths import ProfilePaths
    from zerochat.agent.storage.profiles import JournalKey


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "passphrase",
        "set, change or remove the profile's passphrase",
        "Set or change the passphrase of the profile. Asks for the old one first; a running agent is not affected.\n"
        "Only the lock changes, not the key: an old backup with its old passphrase, or an old key file, still opens\n"
        "the data that was copied with it. Without a terminal, ZEROCHAT_PASSPHRASE_FILE names a file with the old\n"
        "passphrase and ZEROCHAT_NEW_PASSPHRASE_FILE one with the new passphrase.",
        """
zerochat passphrase
zerochat --profile work passphrase --remove
zerochat passphrase --keyring
ZEROCHAT_NEW_PASSPHRASE_FILE=~/.secret zerochat passphrase
""",
        run=passphrase,
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--remove",
        dest="no_passphrase",
        action="store_true",
        help="use no passphrase; the key is stored in a file that only your user can read",
    )
    instead.add_argument(
        "--keyring", action="store_true", help="use no passphrase; store the key in the system keyring"
    )
    parser = add_verb(
        verbs,
        "backup",
        "copy the profile to one file",
        "Copy the profile to a new file: a snapshot of its encrypted journal, and the key under the profile's\n"
        "passphrase. An agent may be running. The backup of a profile without a passphrase contains the key\n"
        "unencrypted, unless --passphrase is given. Received files are not included. Messages that are sent after\n"
        "the backup are not in it: see `zerochat restore --help`.",
        """
zerochat backup /media/stick/alice.zerochat
zerochat --profile work backup --passphrase work.zerochat
ZEROCHAT_NEW_PASSPHRASE_FILE=~/.key zerochat backup --passphrase ci.tar
""",
        run=backup,
    )
    parser.add_argument("file", metavar="FILE", help="the file to create; an existing file is not overwritten")
    parser.add_argument("--passphrase", action="store_true", help="prompt for a separate passphrase for the backup")
    parser = add_verb(
        verbs,
        "restore",
        "create a profile from a backup",
        "Create a profile from a backup, under the name given with --profile; no profile is overwritten. Restore\n"
        "only if the original is lost: two agents with the same keys contradict each other, and every member sees\n"
        "it. Messages sent since the backup, also your own, come back from the other members. Until all of them have\n"
        "answered you cannot post in a group; `zerochat resume GROUP` overrides this if a member is gone for good.",
        """
zerochat restore /media/stick/alice.zerochat
zerochat --profile work restore work.zerochat
""",
        run=restore,
    )
    parser.add_argument("file", metavar="FILE", help="a file written by `zerochat backup`")


NEW_PASSPHRASE_FILE = "ZEROCHAT_NEW_PASSPHRASE_FILE"  # noqa: S105  # the name of a variable
OWNER_S_MAX, RETRY_S = 5.0, 0.05
"""Time to wait for a profile that another process owns, and the poll interval."""


class NoNewPassphrase(LocalError):
    """A new passphrase is required, and there is no terminal to prompt for it. Store it in a file that only you can
    read, and set ZEROCHAT_NEW_PASSPHRASE_FILE to its path."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


def passphrase(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.storage.profiles import change_key_location, key_location, unlock

    paths = paths_of(options)
    before = key_location(paths)
    key = with_passphrase(lambda source: unlock(paths, source))
    wanted = None if options.no_passphrase or options.keyring else _new_passphrase(before == "passphrase")
    change_key_location(paths, key, wanted, keyring=options.keyring)
    now = key_location(paths)
    out.data({"profile": paths.profile, "was": before, "lock": now}, [])
    narrate(
        {
            "passphrase": f"The profile {paths.profile} is now locked with the new passphrase.",
            "keyring": f"The key of the profile {paths.profile} is now in the system keyring.",
            "key": f"The profile {paths.profile} no longer has a passphrase; its key is in {paths.key_file}.",
        }[now]
    )
    if before == "key":
        narrate("Copies of the old key file, for example in backups, still open the journal: delete them.")
    return ExitCode.OK


def _new_passphrase(has_one: bool) -> bytes:
    """A new passphrase: from ZEROCHAT_NEW_PASSPHRASE_FILE, or typed twice. If there was none before, also from
    ZEROCHAT_PASSPHRASE_FILE."""
    from zerochat.agent.storage.key_wrapping import passphrase_source

    if (source := passphrase_source(os.environ, NEW_PASSPHRASE_FILE)) is not None:
        return source()
    try:
        return new_passphrase(typed=has_one)
    except NoPassphrase:
        raise NoNewPassphrase from None


# --- backups ----------------------------------------------------------------------------------------------------------


def backup(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.archive.log_file import NoFolder
    from zerochat.agent.storage.backup import BackupThere, NotForMediators, write_backup
    from zerochat.agent.storage.profiles import key_location, unlock

    paths, target = paths_of(options), user_path(options.file).absolute()
    lock = key_location(paths)
    if (paths.data / "mediator.db").exists():
        raise NotForMediators(profile=paths.profile, path=paths.data)
    if os.path.lexists(target):
        raise BackupThere(path=target)
    if not target.parent.is_dir():
        raise NoFolder(folder=target.parent)

    @cache
    def key() -> "JournalKey":
        return with_passphrase(lambda source: unlock(paths, source))

    same_lock = lock == "passphrase" and not options.passphrase
    inside = None if same_lock else key()
    wanted = _new_passphrase(has_one=lock == "passphrase") if options.passphrase or lock == "keyring" else None
    write_backup(paths, target, _copy(paths, key), inside, wanted)
    locked = same_lock or wanted is not None
    facts = {"profile": paths.profile, "file": str(target), "bytes": target.stat().st_size, "passphrase": locked}
    out.data(facts, [str(target)])
    if locked:
        which = "the profile's" if same_lock else "its own"
        narrate(f"The backup is locked with {which} passphrase.")
    else:
        narrate(
            f"The backup has no passphrase, like the profile: anyone who has {target} can read everything and act as"
            " you. Use `zerochat backup --passphrase FILE` to lock it."
        )
    return ExitCode.OK


def _copy(paths: "ProfilePaths", key: "Callable[[], JournalKey]") -> Path:
    """A copy of the journal, with a line of progress."""
    line = Progress()
    try:
        return _copied(paths, key, lambda done, of: line.line(f"Copying the journal: {100 * done // of} %"))
    finally:
        line.clear()


def _copied(paths: "ProfilePaths", key: "Callable[[], JournalKey]", show: "Callable[[int, int], None]") -> Path:
    """A copy of the journal, made by the running agent, or here if none is running."""
    from zerochat.agent.api.client import connect
    from zerochat.agent.api.client_connection import NoAgent
    from zerochat.agent.storage.backup import copy_journal
    from zerochat.agent.storage.journal import Journal
    from zerochat.agent.storage.profiles import ProfileOwned, lock_profile

    deadline = time.monotonic() + OWNER_S_MAX
    while True:
        try:
            with connect(paths, "cli") as client:
                return Path(client.create_backup(lambda copy: show(copy.done, copy.of)))
        except NoAgent:
            pass
        try:
            with lock_profile(paths), Journal.open(paths.journal, key()) as journal:
                return copy_journal(journal, show)
        except ProfileOwned:  # another agent is starting or stopping
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def restore(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.storage import backup as backups

    paths, source = paths_of(options), user_path(options.file).absolute()
    found = with_passphrase(lambda ask: backups.restore(paths, source, ask))
    facts = {"profile": paths.profile, "was": found.profile, "made": found.made_at, "lock": found.key_location}
    out.data({**facts, "alone": found.groups_without_others, "data": str(paths.data)}, [str(paths.data)])
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.made_at / 1000))
    narrate(
        f"Restored the profile {paths.profile} as of {made}. Later messages come back when other members connect. "
        f"Never use"
        " the original profile again."
    )
    if len(found.groups) > len(found.groups_without_others):
        narrate(
            "You can post in a group once all its members have sent what they have from you; `zerochat resume GROUP`"
            " overrides this if some are gone for good."
        )
    if found.groups_without_others:
        names = ", ".join(name_of(name) for name in found.groups_without_others)
        alone = found.groups_without_others
        command = f"zerochat resume {quoted(alone[0]) if len(alone) == 1 else 'GROUP'}"
        narrate(
            f"You were the only member of {names} when the backup was made. If no one has joined since, use "
            f"`{command}`;"
            " otherwise create a new group."
        )
    return ExitCode.OK
