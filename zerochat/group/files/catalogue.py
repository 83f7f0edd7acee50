"""The catalogue of posted files: which are known, which are stored here, and their disk quota.

An offered file costs an entry in a bounded list; disk space is set by the user's settings alone. Automatic downloads
get a fraction of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.errors import LocalError
from zerochat.group.effects import DeleteFileData, Notify
from zerochat.group.event_log.event import Event
from zerochat.group.files.descriptor import File, files_in
from zerochat.group.notifications import FileProgress
from zerochat.group.state import Agent, FileEntry, Group
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

OFFERED_MAX = 1024
"""Known files of one group that are not stored here; beyond this the oldest entries are dropped. Their posts stay."""
KEPT_MAX = 4096
"""Files of one group that are stored or being fetched, whatever their size."""
AUTO_SHARE = 4
"""Automatic downloads take at most this fraction of the quota, in bytes and in number, so that no member can fill
it."""
NO_DOWNLOAD: Mapping[str, Any] = {
    "download": None,
    "tried": (),
    "absent": (),
    "slow_sources": (),
    "revived": (),
    "error": "",
    "corrupt_count": 0,
}
"""The download state of a file that was not requested yet."""
_MIN_CHARGE_BYTES = 64 * 1024
"""The minimum that a file counts against the quota."""


class FileTooLarge(LocalError):
    """{name} has {size} bytes; the limit is {limit} (`[files] size_max` in the settings)."""


class NoRoomForFile(LocalError):
    """{name} does not fit: {used} of {limit} bytes are used (`[files] total_max` in the settings). Remove a file first:
    `zerochat files remove GROUP FILE`."""


class TooManyFiles(LocalError):
    """This group already has {limit} files here, which is the limit. Remove one first: `zerochat files remove GROUP
    FILE`."""


class MayNotSend(LocalError):
    """You are read-only in {group}, so you cannot send files. `zerochat role {group} writer` changes that, if you may
    set your own role."""


class NoSuchFile(LocalError):
    """There is no file {file} in this group. `zerochat files list GROUP` lists them."""


# --- known files ----------------------------------------------------------------------------------------------------


def used_bytes(agent: Agent, *, auto: bool = False) -> int:
    """The bytes of all files that are stored or being fetched; `automatic`: of automatic downloads."""
    kept = (one for group in agent.groups.values() for one in group.files.values() if _takes_room(one))
    return sum(max(one.file.size, _MIN_CHARGE_BYTES) for one in kept if one.automatic or not auto)


def _takes_room(one: FileEntry) -> bool:
    return one.state in ("getting", "here") or one.stored_parts > 0


def check_room(agent: Agent, group: Group, files: Sequence[File]) -> None:
    """Raise FileTooLarge, NoRoomForFile or TooManyFiles unless these fit as well."""
    rules = agent.file_rules
    more = [file for file in files if (known := group.files.get(file.id)) is None or not _takes_room(known)]
    for file in more:
        if file.size > rules.size_max:
            raise FileTooLarge(name=ascii(file.name), size=file.size, limit=rules.size_max)
    here = used_bytes(agent)
    if more and here + sum(max(file.size, _MIN_CHARGE_BYTES) for file in more) > rules.total_max:
        raise NoRoomForFile(name=ascii(more[0].name), used=here, limit=rules.total_max)
    if more and sum(map(_takes_room, group.files.values())) + len(more) > KEPT_MAX:
        raise TooManyFiles(limit=KEPT_MAX)


def add_posted(tx: Transaction, name: str, event: Event) -> None:
    """A post names files: add them, and fetch small ones."""
    group, named = tx.group(name), files_in(event.body)
    fresh = {
        file.id: FileEntry(file, event.author, event.id, tx.now, event.lamport)
        for file in named
        if file.id not in group.files
    }
    if not fresh:
        return
    # A file that is named again is not dropped to make room for the others.
    again = {file.id: group.files[file.id] for file in named if file.id not in fresh}
    rest = {key: one for key, one in group.files.items() if key not in again}
    tx.update_group(name, files=_pruned({**rest, **again, **fresh}))
    if event.author == group.me:
        return
    for key in fresh:
        if (one := tx.group(name).files.get(key)) is not None and _is_automatic(tx, name, one):
            update_file(tx, name, key, state="getting", automatic=True)
            tx.set_timer(TimerKind.DOWNLOAD, name, 1, if_unset=True)


def _pruned(files: dict[str, FileEntry]) -> dict[str, FileEntry]:
    """The files without the oldest offered ones, if there are too many."""
    offered = [key for key, one in files.items() if not _takes_room(one)]
    if len(offered) <= OFFERED_MAX:
        return files
    gone = set(offered[: len(offered) - OFFERED_MAX])
    return {key: one for key, one in files.items() if key not in gone}


def _is_automatic(tx: Transaction, name: str, one: FileEntry) -> bool:
    """Whether to fetch a file that the user has not asked for."""
    group, rules = tx.group(name), tx.agent.file_rules
    if one.file.size > min(rules.auto_max, rules.size_max):
        return False
    if sum(other.automatic and _takes_room(other) for other in group.files.values()) >= KEPT_MAX // AUTO_SHARE:
        return False
    if not _has_room(tx, name, one):
        return False
    return used_bytes(tx.agent, auto=True) + max(one.file.size, _MIN_CHARGE_BYTES) <= rules.total_max // AUTO_SHARE


def update_file(tx: Transaction, name: str, key: str, **fields: Any) -> FileEntry:
    """Change fields of a file, and notify the client."""
    group = tx.group(name)
    one = replace(group.files[key], **fields)
    tx.update_group(name, files={**group.files, key: one})
    tx.emit(Notify(FileProgress(name, key)))
    return one


# --- requested files ------------------------------------------------------------------------------------------------


def fetch_file(tx: Transaction, group: Group, file: File, author: str, event: str) -> None:
    """The user wants this file. Raises FileTooLarge, NoRoomForFile or TooManyFiles."""
    known = group.files.get(file.id)
    if known is None:
        known = FileEntry(file, author, event, tx.now)
        tx.update_group(group.id, files=_pruned({**group.files, file.id: known}))
    if known.state in ("here", "getting") and not known.error:
        update_file(tx, group.id, file.id, automatic=False)
        return
    check_room(tx.agent, tx.group(group.id), [file])
    update_file(tx, group.id, file.id, state="getting", corrupt_sources=(), automatic=False, **NO_DOWNLOAD)
    tx.set_timer(TimerKind.DOWNLOAD, group.id, 1)


def resume_wanted(tx: Transaction, name: str, key: str) -> FileEntry:
    """A file without holders has one again: fetch it if it was wanted and fits."""
    one = tx.group(name).files[key]
    comes = _is_automatic(tx, name, one) if one.automatic else _has_room(tx, name, one)
    return update_file(tx, name, key, state="getting" if comes else "offered")


def _has_room(tx: Transaction, name: str, one: FileEntry) -> bool:
    try:
        check_room(tx.agent, tx.group(name), [one.file])
    except LocalError:
        return False
    return True


def remove_file(tx: Transaction, group: Group, key: str) -> None:
    """Delete the local copy; it can be fetched again. Raises NoSuchFile."""
    if key not in group.files:
        raise NoSuchFile(file=ascii(key[:64]))
    update_file(
        tx,
        group.id,
        key,
        state="offered",
        stored_parts=0,
        download=None,
        tried=(),
        absent=(),
        error="",
        automatic=False,
    )
    tx.emit(DeleteFileData(group.id, key))


def remove_files_of(tx: Transaction, name: str, author: str, post: str) -> None:
    """A post was deleted by its author: delete its files."""
    for key, one in list(tx.group(name).files.items()):
        if (one.event, one.author) == (post, author):
            forget_file(tx, name, key)


def forget_file(tx: Transaction, name: str, key: str) -> None:
    """Delete the local copy and the entry."""
    remove_file(tx, tx.group(name), key)
    files = tx.group(name).files
    tx.update_group(name, files={each: other for each, other in files.items() if each != key})


def mark_deletion_relayed(tx: Transaction, name: str, author: str, post: str, seq: int) -> None:
    """Another member relays that the author deleted a post, at position `seq` of its chain. The files are deleted once
    the author confirms it (`confirm_deletions`)."""
    for key, one in tx.group(name).files.items():
        if (one.event, one.author, one.deleted_at) == (post, author, 0):
            update_file(tx, name, key, deleted_at=seq)


def confirm_deletions(tx: Transaction, name: str, author: str, after: int, upto: int) -> None:
    """The author has confirmed relayed events of its chain after `after`, up to `upto`."""
    for post in _relayed_deletions(tx.group(name), author, after, upto).values():
        remove_files_of(tx, name, author, post)


def refute_deletions(tx: Transaction, name: str, author: str, after: int, upto: int) -> None:
    """Relayed events of this chain were refuted."""
    for key in _relayed_deletions(tx.group(name), author, after, upto):
        update_file(tx, name, key, deleted_at=0)


def _relayed_deletions(group: Group, author: str, after: int, upto: int) -> dict[str, str]:
    """The files whose posts are deleted in this range of a chain, with the ids of the posts."""
    files = group.files.items()
    return {key: one.event for key, one in files if one.author == author and after < one.deleted_at <= upto}


def add_own(tx: Transaction, group: Group, event: str, files: Sequence[File]) -> None:
    """A post of ours names these files, which are on disk."""
    now = {
        file.id: FileEntry(file, group.me, event, tx.now, state="here", stored_parts=file.parts)
        if (known := group.files.get(file.id)) is None or known.author == group.me
        else replace(known, state="here", stored_parts=file.parts, download=None, error="")
        for file in files
    }
    tx.update_group(group.id, files={**tx.group(group.id).files, **now})
