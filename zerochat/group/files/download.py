"""Downloads: which member is asked for which parts, with timeouts, adaptive windows and source selection.

Parts are requested in order, a few at a time, from one member per file: its author, then members that announced the
file, then all others. Each part is verified when it comes; parts on disk survive a restart. A member that does not
answer, lacks the file or sends a wrong part is replaced. The number of outstanding parts adapts to the throughput, so
that chat messages on a slow line do not wait long behind them.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Refused
from zerochat.group.effects import DeleteFileData, Measure, StoreParts, VerifyFile
from zerochat.group.event_log.event import Event
from zerochat.group.files import catalogue
from zerochat.group.files.catalogue import NO_DOWNLOAD, resume_wanted, update_file
from zerochat.group.files.descriptor import files_in
from zerochat.group.files.hash_tree import leads_to, part_size
from zerochat.group.links import content_keys, mediator_mail, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.state import Download, FileEntry
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.files import (
    AVAILABLE_FILES_MAX,
    FILE_REQUEST,
    FILES_AVAILABLE,
    REQUEST_PARTS_MAX,
    FilePartBody,
    FileUnavailableBody,
)

DOWNLOADS_MAX = 3
"""Concurrent downloads of one group."""
CANDIDATES_MAX = 32
"""Files for which a source is looked for at one time."""
WINDOW, WINDOW_MAIL_MAX = 2, 2
"""Outstanding parts at the beginning, and the maximum over a mediator, which has to store them."""
FAST_MS, SLOW_MS = 400, 1_500
"""The window is doubled if parts come within the first time, and halved if they take longer than the second."""
TIMEOUT_MS, TIMEOUT_MAIL_MS = 15_000, 120_000
"""How long a source may be silent before it is replaced. Halfway it is asked again, unless over a mediator: a frame may
have been lost, and it may be the only source."""
TIMEOUT_GAPS, TIMEOUT_GAPS_MS_MAX = 2, 60_000
"""The timeout is also at least so many times the longest gap between parts, up to a minute: on a slow line the part is
under way, and another request would delay it."""
RATE_WINDOW_MS, RATE_PARTS_MIN = 30_000, 16
"""A source that brings fewer parts in this time is replaced while there is another: a slow trickle must not block a
file that others have. Where all are as slow, our own line is, and the first source stays."""
PAUSE_MS = 30_000
"""When all reachable members were asked in vain, they are asked again after this."""
REVIVED_MAX = 3
"""How often a member is believed that it has a file that all members, including itself, have reported missing."""
ANNOUNCE_RETRY_MS, ANNOUNCE_RETRIES_MAX = 30_000, 4
"""The announcement of a formerly missing file is repeated with exponential backoff to members that do not ask for it,
at most so often."""
BUSY_MS, BUSY_MAX = 1_000, 20
"""A busy source is asked again after this, at most so often; then it is replaced."""
UNSTORED_MAX = 4 * REQUEST_PARTS_MAX
"""Received parts that are not on disk yet; with that many no more are requested."""
CORRUPT_MAX = 3
CORRUPT_TEXT = "The disk returned corrupt data for this file several times."
"""Shown for a file that was corrupt this often, although each part was verified when it came."""

# --- requests ---------------------------------------------------------------------------------------------------------


def start_downloads(tx: Transaction, name: str) -> None:
    """Request wanted files that have no active download."""
    if tx.group(name).state != "active":
        return
    for key, one in list(tx.group(name).files.items()):
        if one.download is not None and one.download.timeout_at <= tx.now:
            _handle_timeout(tx, name, key, one.download)
    files = tx.group(name).files
    room = DOWNLOADS_MAX - sum(one.download is not None for one in files.values())
    wanted = [key for key, one in files.items() if one.state == "getting" and one.download is None and not one.error]
    # Files that the user asked for come first; files with several failed sources do not block the others.
    for key in sorted(wanted, key=lambda key: (files[key].automatic, len(files[key].tried)))[:CANDIDATES_MAX]:
        if room <= 0:
            break
        _begin_download(tx, name, key)
        room -= tx.group(name).files[key].download is not None
    waits = [each.download.timeout_at - tx.now for each in tx.group(name).files.values() if each.download is not None]
    idle = any(one.state == "getting" and one.download is None for one in tx.group(name).files.values())
    if waits or idle:
        tx.set_timer(TimerKind.DOWNLOAD, name, max(1, min([*waits, PAUSE_MS])))


def _handle_timeout(tx: Transaction, name: str, key: str, active: Download) -> None:
    """The source was silent too long: ask it once more, or replace it."""
    if active.reminded or not _can_ask(tx, name, active.member) or mediator_mail.goes_by_mail(tx, name, active.member):
        _switch_source(tx, name, key)
        return
    request_parts(
        tx,
        name,
        key,
        replace(active, requested=active.next, window=1, timeout_at=timeout_at(tx, name, active), reminded=True),
    )


def timeout_at(tx: Transaction, name: str, active: Download) -> int:
    """When the source counts as silent if nothing comes from now on, UTC ms."""
    if mediator_mail.goes_by_mail(tx, name, active.member):
        return tx.now + TIMEOUT_MAIL_MS
    return tx.now + max(TIMEOUT_MS // 2, min(TIMEOUT_GAPS * active.gap, TIMEOUT_GAPS_MS_MAX))


def _begin_download(tx: Transaction, name: str, key: str) -> None:
    """Request a file from a source, from the first missing part on."""
    group = tx.group(name)
    one = group.files[key]
    if one.stored_parts >= one.file.parts:
        tx.emit(VerifyFile(name, key, one.file.root, one.file.size))
        update_file(
            tx, name, key, download=Download("", one.file.parts, one.file.parts, 0, tx.now + TIMEOUT_MAIL_MS, tx.now)
        )
        return
    source = _choose_source(tx, name, one)
    if source is None:
        everybody = {did for did in group.counterparts if did not in one.corrupt_sources}
        if everybody <= {*one.absent}:
            update_file(tx, name, key, state="gone", tried=(), absent=())
        elif one.tried:
            update_file(tx, name, key, tried=one.absent)  # silent members are asked again after the pause
        return
    active = Download(
        source,
        one.stored_parts,
        one.stored_parts,
        WINDOW,
        0,
        tx.now,
        since=tx.now,
        first=one.stored_parts,
        received_at=tx.now,
    )
    request_parts(tx, name, key, active)


def _choose_source(tx: Transaction, name: str, one: FileEntry) -> str | None:
    """The next source: the author, members that announced the file, then all others; slow ones and those over mediators
    last."""
    group = tx.group(name)
    rest = sorted(set(group.counterparts) - {one.author, *one.holders})
    able = [
        member
        for member in dict.fromkeys((one.author, *one.holders, *rest))
        if member not in one.tried and member not in one.corrupt_sources and _can_ask(tx, name, member)
    ]
    quick = [member for member in able if member not in one.slow_sources] or able
    near = [member for member in quick if not mediator_mail.goes_by_mail(tx, name, member)]
    return next(iter(near or quick), None)


def _can_ask(tx: Transaction, name: str, member: str) -> bool:
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    return (
        member in group.view.members
        and member != group.me
        and member not in group.trust.quarantine
        and relationship is not None
        and relationship.established
        and mediator_mail.reachable(tx, name, member)
    )


def request_parts(tx: Transaction, name: str, key: str, active: Download) -> None:
    """Request the next parts, if few enough are outstanding."""
    one = tx.group(name).files[key]
    count = min(active.window, one.file.parts - active.requested)
    unstored = active.requested - one.stored_parts
    if count > 0 and active.requested - active.next <= active.window // 2 and unstored <= UNSTORED_MAX:
        body = {"file": key, "first": active.requested, "count": count}
        _send(tx, name, active.member, FILE_REQUEST, body | content_keys.announced(tx, name, active.member))
        active = replace(
            active, requested=active.requested + count, timeout_at=timeout_at(tx, name, active), requested_at=tx.now
        )
    update_file(tx, name, key, download=active)
    tx.set_timer(TimerKind.DOWNLOAD, name, max(1, active.timeout_at - tx.now), if_unset=True)


def _send(tx: Transaction, name: str, member: str, kind: str, body: dict[str, Any]) -> None:
    message = Message(type=kind, id=new_id(tx.context.random), body={"group": name, **body})
    relationship = tx.group(name).links.relationships[member]
    mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))


def _switch_source(tx: Transaction, name: str, key: str, **fields: Any) -> None:
    """Replace the current source."""
    one = tx.group(name).files[key]
    tried = one.tried
    if one.download is not None and one.download.member and one.download.member not in tried:
        tried = (*tried, one.download.member)
    update_file(tx, name, key, download=None, tried=tried, **fields)
    tx.set_timer(TimerKind.DOWNLOAD, name, 1)


# --- responses --------------------------------------------------------------------------------------------------------


def receive_part(tx: Transaction, name: str, member: str, body: FilePartBody, size: int) -> None:
    """A part, in an envelope of `size` bytes. Raises RemoteError for one that fits no offered file."""
    group = tx.group(name)
    one = group.files.get(body.file)
    if body.group != name or one is None or member not in group.view.members:
        raise Refused(why="a part of an unknown file")
    active = one.download
    if one.state != "getting" or active is None or active.member != member:
        return  # not wanted any more, or from another source
    data, path = b64url_bytes(body.data), [b64url_bytes(each) for each in body.path]
    root, parts = b64url_bytes(one.file.root), one.file.parts
    fits = body.part < parts and len(data) == part_size(one.file.size, body.part)
    if not fits or not leads_to(root, data, body.part, parts, path):
        tx.emit(Measure("dropped", "FalsePart"))
        _switch_source(tx, name, body.file, corrupt_sources=(*one.corrupt_sources, member))
        return
    if (
        body.part > active.next and active.rerequested != active.next
    ):  # a part was lost: what follows must be sent again too
        request_parts(tx, name, body.file, replace(active, requested=active.next, window=1, rerequested=active.next))
    if body.part != active.next:
        return
    rate_limits.refund_envelope(tx, name, member, size)
    tx.emit(StoreParts(name, body.file, one.file.size, body.part, data))
    by_mail, gap = mediator_mail.goes_by_mail(tx, name, member), max(active.gap, tx.now - active.received_at)
    window = (
        _window(active, tx.now, by_mail) if active.next + 1 >= active.requested - active.window // 2 else active.window
    )
    active = replace(active, next=active.next + 1, window=window, busy=0, reminded=False, received_at=tx.now, gap=gap)
    active = replace(active, timeout_at=timeout_at(tx, name, active))
    if active.next < parts and tx.now - active.since >= RATE_WINDOW_MS:
        if _too_slow(tx, name, one, active):
            update_file(tx, name, body.file, download=None, slow_sources=(*one.slow_sources, member))
            tx.set_timer(TimerKind.DOWNLOAD, name, 1)
            return
        active = replace(active, since=tx.now, first=active.next)
    request_parts(tx, name, body.file, active)


def _too_slow(tx: Transaction, name: str, one: FileEntry, active: Download) -> bool:
    """Whether the source brought so few parts in this window that another available one is asked."""
    if active.next - active.first >= RATE_PARTS_MIN or active.member in one.slow_sources:
        return False
    other = _choose_source(tx, name, replace(one, slow_sources=(*one.slow_sources, active.member)))
    return other is not None and other not in (active.member, *one.slow_sources)


def _window(active: Download, now: int, by_mail: bool) -> int:
    """How many parts to request next, by how fast the last ones came."""
    most = WINDOW_MAIL_MAX if by_mail else REQUEST_PARTS_MAX
    if now - active.requested_at < FAST_MS:
        return min(most, active.window * 2)
    return max(1, active.window // 2) if now - active.requested_at > SLOW_MS else min(most, active.window)


def receive_unavailable(tx: Transaction, name: str, member: str, body: FileUnavailableBody) -> None:
    """The source cannot send the file."""
    one = tx.group(name).files.get(body.file)
    if body.group != name or one is None:
        raise Refused(why="an answer about an unknown file")
    if one.download is None or one.download.member != member:
        return
    if body.reason == "busy" and one.download.busy < BUSY_MAX:
        until, busy = tx.now + TIMEOUT_MS, one.download.busy + 1
        active = replace(
            one.download, requested=one.download.next, window=1, timeout_at=until, busy=busy, received_at=tx.now
        )
        update_file(tx, name, body.file, download=active)
        tx.set_timer(TimerKind.DOWNLOAD_BUSY, f"{name} {body.file}", BUSY_MS)
        return
    absent = one.absent if member in one.absent or body.reason == "busy" else (*one.absent, member)
    _switch_source(tx, name, body.file, absent=absent, holders=tuple(did for did in one.holders if did != member))


def retry_busy(tx: Transaction, name: str, key: str) -> None:
    """Ask a busy source again."""
    one = tx.group(name).files.get(key)
    if (
        one is not None
        and one.state == "getting"
        and one.download is not None
        and one.download.requested == one.download.next
    ):
        request_parts(tx, name, key, one.download)


def handle_member_up(tx: Transaction, name: str, member: str) -> None:
    """A member is reachable again: it may have wanted files, and may not know which of its files we have."""
    group = tx.group(name)
    changed = {
        key: replace(one, tried=tuple(did for did in one.tried if did != member))
        for key, one in group.files.items()
        if one.state == "getting" and member in one.tried
    }
    if changed:
        tx.update_group(name, files={**group.files, **changed})
    if any(one.state == "getting" and one.download is None for one in group.files.values()):
        tx.set_timer(TimerKind.DOWNLOAD, name, 1)
    announce_files(tx, name, member)


def handle_post(tx: Transaction, name: str, event: Event) -> None:
    """A post names files: add them, and note its author as a holder of those already known."""
    known = tx.group(name).files
    catalogue.add_posted(tx, name, event)
    for file in files_in(event.body):
        if file.id in known and event.author not in (tx.group(name).me, known[file.id].author):
            add_holder(tx, name, file.id, event.author)


def add_holder(tx: Transaction, name: str, key: str, member: str) -> None:
    """A member has this file. If it has reported it missing before, or did not answer, it is asked again."""
    one = tx.group(name).files[key]
    gone = one.state == "gone"
    if member in one.corrupt_sources or (gone and one.revived.count(member) >= REVIVED_MAX):
        return
    if member not in one.holders:
        one = update_file(tx, name, key, holders=(*one.holders, member))
    if member in one.tried or gone:
        tried, absent = (tuple(did for did in known if did != member) for known in (one.tried, one.absent))
        revived = (*one.revived, member) if gone else one.revived
        one = update_file(tx, name, key, tried=tried, absent=absent, revived=revived)
        if gone:
            one = resume_wanted(tx, name, key)
        if one.state == "getting" and one.download is None:
            tx.set_timer(TimerKind.DOWNLOAD, name, 1)


def handle_member_down(tx: Transaction, name: str, member: str) -> None:
    """A member is no longer reachable: replace it as a source."""
    for key, one in list(tx.group(name).files.items()):
        if one.download is not None and one.download.member == member:
            _switch_source(tx, name, key)


def announce_files(tx: Transaction, name: str, member: str | None = None) -> None:
    """Announce available files to members that asked for them when they were missing (or only to `member`), and to the
    authors the latest ones of theirs."""
    missed: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    for key, one in tx.group(name).files.items():
        for did in _announce_to(one) if one.state == "here" else ():
            if member in (None, did):
                (missed if did in one.waiting_members else own).setdefault(did, []).append(key)
    for did in dict.fromkeys((*missed, *own)):
        keys = [*missed.get(did, ()), *own.get(did, ())[-AVAILABLE_FILES_MAX:]]
        for start in range(0, len(keys), AVAILABLE_FILES_MAX):
            _send_available(tx, name, did, keys[start : start + AVAILABLE_FILES_MAX])


def _announce_to(one: FileEntry) -> tuple[str, ...]:
    """The members to inform that the file is here."""
    return tuple(dict.fromkeys((one.author, *one.waiting_members)))


def _send_available(tx: Transaction, name: str, member: str, keys: list[str]) -> None:
    if _can_ask(tx, name, member):
        _send(tx, name, member, FILES_AVAILABLE, {"files": keys})


# --- disk -------------------------------------------------------------------------------------------------------------


def handle_files_found(tx: Transaction, found: Iterable[tuple[str, str, int, bool]]) -> None:
    """At startup: the files found on disk (`FilesFound`)."""
    here: dict[str, dict[str, tuple[int, bool]]] = {}
    for name, key, have, is_whole in found:
        known = here.setdefault(name, {})
        if is_whole or key not in known:
            known[key] = have, is_whole
    for name in tx.agent.groups:
        _sync_with_disk(tx, name, here.pop(name, {}))
    for name, keys in here.items():
        tx.emit(*(DeleteFileData(name, key) for key in keys))


def _sync_with_disk(tx: Transaction, name: str, here: dict[str, tuple[int, bool]]) -> None:
    """Update the entries by the parts found on disk. A file that is missing, for instance after a restore, can be
    fetched again."""
    group = tx.group(name)
    files = {}
    for key, one in group.files.items():
        have, is_whole = here.get(key, (0, False))
        state = "here" if is_whole else one.state if one.state != "here" else "offered"
        have = one.file.parts if is_whole else min(have, one.file.parts) if state == "getting" else 0
        files[key] = replace(one, state=state, stored_parts=have, download=None, tried=(), absent=(), error="")
    if files != group.files:
        tx.update_group(name, files=files)
    for key, (_, is_whole) in here.items():
        if key not in files or (not is_whole and files[key].state != "getting"):
            tx.emit(DeleteFileData(name, key))
    if any(one.state == "getting" for one in files.values()):
        tx.set_timer(TimerKind.DOWNLOAD, name, 1)
    announce_files(tx, name)


def handle_stored(tx: Transaction, name: str, key: str, upto: int) -> None:
    """The parts before this one are on disk."""
    group = tx.group(name)
    one = group.files.get(key)
    if one is None or one.state != "getting":
        return
    one = update_file(tx, name, key, stored_parts=max(one.stored_parts, min(upto, one.file.parts)))
    if one.stored_parts >= one.file.parts:
        _begin_download(tx, name, key)
    elif one.download is not None:
        request_parts(tx, name, key, one.download)


def handle_verified(tx: Transaction, name: str, key: str) -> None:
    """All parts are here, and the hash of the file is correct."""
    group = tx.group(name)
    one = group.files.get(key)
    if one is None or one.state != "getting" or one.stored_parts < one.file.parts:  # it was removed meanwhile
        return
    update_file(tx, name, key, state="here", **NO_DOWNLOAD)
    for member in _announce_to(one):
        _send_available(tx, name, member, [key])
    if one.waiting_members:
        tx.set_timer(TimerKind.FILES_AVAILABLE, f"{name} {key} 1", ANNOUNCE_RETRY_MS)
    tx.set_timer(TimerKind.DOWNLOAD, name, 1)


def retry_announcement(tx: Transaction, name: str, key: str, attempt: int) -> None:
    """Repeat the announcement of a formerly missing file to members that have not asked for it. `attempt`: from 1."""
    one = tx.group(name).files.get(key)
    if one is None or one.state != "here" or not one.waiting_members:
        return
    for member in one.waiting_members:
        _send_available(tx, name, member, [key])
    if attempt < ANNOUNCE_RETRIES_MAX:
        tx.set_timer(TimerKind.FILES_AVAILABLE, f"{name} {key} {attempt + 1}", ANNOUNCE_RETRY_MS << attempt)


def handle_failure(tx: Transaction, name: str, key: str, why: str) -> None:
    """The disk rejects a part or returns corrupt data: pause the download until the user wants it again. `why` is empty
    for corrupt data: then it is fetched anew."""
    group = tx.group(name)
    one = group.files.get(key)
    if one is None or one.state == "gone":
        return
    if why:
        if one.state == "getting":
            update_file(tx, name, key, download=None, error=why)
        return
    tx.emit(DeleteFileData(name, key))
    wanted, spoilt = one.state == "getting", one.corrupt_count + 1
    fault = CORRUPT_TEXT if wanted and spoilt >= CORRUPT_MAX else ""
    state = "getting" if wanted else "offered"
    update_file(tx, name, key, stored_parts=0, download=None, tried=(), state=state, corrupt_count=spoilt, error=fault)
    if wanted:
        tx.set_timer(TimerKind.DOWNLOAD, name, PAUSE_MS)
