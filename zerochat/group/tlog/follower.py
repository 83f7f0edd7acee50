"""Following the log from one complete checkpoint to the next, and fetching missing blobs from witnesses.

A member fetches messages that it missed, from a witness if their author is gone. Every member stores the blobs of
accusations and defences: they are needed to judge.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.errors import Unauthentic
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.witness import ENTRIES_MAX, SplitView, is_kind, parse_entry
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Notify, QueryTlog, StoreCheckpoint, StoreTlogEntries
from zerochat.group.notifications import TlogExtended
from zerochat.group.signed_streams import receiver
from zerochat.group.state import Group, TransparencyLog, WantedEntry
from zerochat.group.tlog import pending_entries, witness
from zerochat.group.tlog.messages import can_send, send_tlog_message, update_tlog
from zerochat.group.tlog.queries import ExtensionQuery, MissingEntries, UnreadEntries
from zerochat.group.transaction import Transaction
from zerochat.group.wire.tlog import REQUEST_ENTRIES_MAX, TLOG_REQUEST, TlogRequestBody, TlogSubmitBody, unpacked_blob

WANTED_MAX = 512
"""Entries whose blobs are fetched at once; later entries wait."""
TRIES_MAX = 8
"""After so many tries an entry may be displaced by others."""
RETRY = Backoff(10_000, 600_000)
"""Exponential backoff of a blob request; each try goes to another member."""
REQUEST_INTERVAL_MS = 2_000
"""At most one request for an extension of a log in this time."""
SLACK_MS = 60_000
"""How long after the defence period the clocks of nearly all witnesses have passed its end too."""


def follow_own_checkpoint(tx: Transaction, name: str, origin: str, note: Note) -> None:
    """A quorum has cosigned a log that we operate: follow it like all others. The journal has its entries."""
    log = tx.group(name).tlogs.by_name[origin]
    size = parse_checkpoint(note.text).size
    if size == log.followed.frontier.size:
        accept_checkpoint(tx, name, origin, tx.group(name).me, size, (), note)
        return
    tx.emit(StoreCheckpoint(name, origin, size, log.rules.quorum.complete_until_ms(note), note.serialize()))
    tx.emit(QueryTlog(name, origin, ExtensionQuery(tx.group(name).me, log.followed.frontier.size, ENTRIES_MAX)))


def accept_checkpoint(
    tx: Transaction, name: str, origin: str, sender: str, old: int, records: Sequence[bytes], note: Note
) -> bool:
    """Extend the log to a checkpoint that a quorum has cosigned; returns whether it was new. Raises RemoteError.

    Also where the operator is convicted of a split view: at most one branch has a quorum, and others may have posted in
    it for members that were offline.
    """
    log = tx.group(name).tlogs.by_name[origin]
    at = log.rules.quorum.complete_until_ms(note)
    here, checkpoint = log.followed.frontier.size, parse_checkpoint(note.text)
    if checkpoint.origin != origin:
        raise Unauthentic()
    if old > here:
        request_extension(tx, name, origin, sender)
        return False
    try:
        followed = log.followed.follow(tuple(records[here - old :]), note)
    except SplitView as split:
        witness.record_split(tx, name, origin, split)
        return False
    if followed is log.followed:
        if checkpoint.size != here or at <= log.proven_at or log.proven_at >= log.refresh_at:
            return False
        tx.emit(StoreCheckpoint(name, origin, here, at, note.serialize()))
        update_tlog(tx, name, origin, followed=replace(followed, note=note), proven_at=at)
        tx.emit(Notify(TlogExtended(name, origin, (), here)))
        return True
    fresh, group = tuple(records[here - old :]), tx.group(name)
    me = group.view.known(group.me)
    before = me is not None and log.rules.quorum.posted_by_ms(note) <= me.joined
    _store_extension(tx, name, origin, checkpoint.size, fresh)
    pending_entries.handle_placed(
        tx, name, {b64url(sha256(record)) for record in fresh}, log.rules.quorum.posted_by_ms(note)
    )
    filed = any(is_kind(record, "accusation") for record in fresh)
    window = log.rules.quorum.posted_by_ms(note) + log.rules.window_ms if filed else 0
    update_tlog(tx, name, origin, followed=followed, proven_at=at, refresh_at=max(log.refresh_at, window))
    if before:
        update_tlog(tx, name, origin, size_at_join=checkpoint.size)
    tx.emit(StoreCheckpoint(name, origin, checkpoint.size, at, note.serialize()))
    query_unread(tx, name, origin)
    return True


def _store_extension(tx: Transaction, name: str, origin: str, size: int, records: tuple[bytes, ...]) -> None:
    """Store new entries of the log, and drop our pending entries among them."""
    log = tx.group(name).tlogs.by_name[origin]
    here = log.followed.frontier.size
    placed = {b64url(sha256(record)) for record in records}
    waits = {key: one for key, one in log.pending.items() if key not in placed}
    update_tlog(tx, name, origin, pending=waits, stall_notified_at=log.stall_notified_at if waits else 0)
    if tx.group(name).tlogs.stalled_terms:
        tx.update_tlogs(name, stalled_terms=0)
    tx.emit(StoreTlogEntries(name, origin, here, records))
    tx.emit(Notify(TlogExtended(name, origin, tuple(enumerate(records, here)), size)))


def request_extension(tx: Transaction, name: str, origin: str, member: str) -> None:
    """Request from a member the entries after ours."""
    log = tx.group(name).tlogs.by_name[origin]
    if 0 <= tx.now - log.requested_at < REQUEST_INTERVAL_MS:
        return
    body = TlogRequestBody(name, origin, log.followed.frontier.size, log.proven_at)
    if send_tlog_message(tx, name, member, TLOG_REQUEST, body):
        update_tlog(tx, name, origin, requested_at=tx.now)


def handle_reported_size(tx: Transaction, name: str, member: str, size: int) -> None:
    """A member reports the size of the current log."""
    terms = tx.group(name).view.terms
    log = tx.group(name).tlogs.by_name.get(terms.rules.origin) if terms is not None else None
    if log is not None and size > log.followed.frontier.size:
        request_extension(tx, name, log.rules.origin, member)


def choose_source(tx: Transaction, name: str, log: TransparencyLog, but: str = "") -> str | None:
    """A random member to request from: the operator or a witness that is reachable, else any member."""
    group = tx.group(name)
    keepers = dict.fromkeys((log.rules.operator, *log.rules.witnesses))
    for among in (keepers, group.view.members):
        able = [did for did in among if did not in (group.me, but) and can_send(tx, name, did)]
        if able:
            return able[tx.context.random(1)[0] % len(able)]
    return None


# --- missing blobs --------------------------------------------------------------------------------------------------


def query_unread(tx: Transaction, name: str, origin: str) -> None:
    """Query the journal for blobs that the next entries miss, if there is room."""
    log = tx.group(name).tlogs.by_name[origin]
    hoped = sum(one.tries < TRIES_MAX for one in log.wanted.values())
    if log.read < log.followed.frontier.size and hoped + ENTRIES_MAX <= WANTED_MAX:
        tx.emit(QueryTlog(name, origin, UnreadEntries(tx.group(name).me, log.read, ENTRIES_MAX)))


def handle_lacking(tx: Transaction, name: str, origin: str, found: MissingEntries) -> None:
    """The entries whose blobs are missing here."""
    group = tx.group(name)
    log = group.tlogs.by_name[origin]
    if found.upto <= log.read:
        return
    update_tlog(tx, name, origin, read=found.upto)
    old = found.upto <= log.size_at_join
    want_blobs(tx, name, origin, [record for record in found.records if _is_useful(group, record, old=old)])
    query_unread(tx, name, origin)


def _is_useful(group: Group, record: bytes, *, old: bool) -> bool:
    """Whether we could use an entry's blob: not a message that we cannot decrypt."""
    entry = parse_entry(record)
    return witness.may_be_held(entry) and (
        entry.kind != "message" or (entry.author in group.streams.followed and not old)
    )


def want_blobs(tx: Transaction, name: str, origin: str, records: Sequence[bytes]) -> None:
    """Add these entries to the wanted ones, and request their blobs."""
    log = tx.group(name).tlogs.by_name[origin]
    hashes = {parse_entry(record).hash: record for record in records}
    wanted = {**log.wanted, **{hash_: WantedEntry(one) for hash_, one in hashes.items() if hash_ not in log.wanted}}
    for hash_ in [one for one in wanted if wanted[one].tries >= TRIES_MAX]:
        if len(wanted) <= WANTED_MAX:
            break
        del wanted[hash_]
    wanted = dict(list(wanted.items())[: WANTED_MAX + ENTRIES_MAX])
    if wanted != log.wanted:
        update_tlog(tx, name, origin, wanted=wanted)
    request_blobs(tx, name, origin)


def request_blobs(tx: Transaction, name: str, origin: str) -> None:
    """Request the blobs that are due: accusations first, since the accused has limited time, then in log order."""
    log = tx.group(name).tlogs.by_name[origin]
    due = [
        hash_ for hash_, one in log.wanted.items() if one.retry_at <= tx.now or one.retry_at > tx.now + RETRY.ceiling_ms
    ]
    due = sorted(due, key=lambda hash_: not is_kind(log.wanted[hash_].record, "accusation"))[:REQUEST_ENTRIES_MAX]
    source = choose_source(tx, name, log) if due else None
    if source is None:
        return
    first = parse_entry(log.wanted[due[0]].record).author
    if log.wanted[due[0]].tries % 4 == 3 and can_send(tx, name, first):
        source = first
    body = TlogRequestBody(name, origin, records=[log.wanted[hash_].record.decode() for hash_ in due])
    if send_tlog_message(tx, name, source, TLOG_REQUEST, body):
        asked = {hash_: _requested(tx, log.wanted[hash_]) for hash_ in due}
        update_tlog(tx, name, origin, wanted={**log.wanted, **asked})


def _requested(tx: Transaction, one: WantedEntry) -> WantedEntry:
    return replace(one, tries=one.tries + 1, retry_at=tx.now + RETRY.delay_ms(one.tries))


def receive_blobs(tx: Transaction, name: str, sender: str, body: TlogSubmitBody) -> None:
    """Requested blobs; others are ignored. Raises Malformed."""
    for received in body.entries:
        group = tx.group(name)
        log = group.tlogs.by_name[body.origin]
        record = received.record.encode()
        entry = parse_entry(record)
        if entry.hash not in log.wanted or log.wanted[entry.hash].record != record:
            continue
        blob = unpacked_blob(received.blob)
        if not entry.matches(blob):
            continue
        update_tlog(tx, name, body.origin, wanted={one: it for one, it in log.wanted.items() if one != entry.hash})
        if log.watched is not None or entry.kind != "message":
            witness.hold_blob(tx, name, entry, blob, asked=True)
        if entry.kind == "message" and entry.author != group.me:
            _accept_message(tx, name, entry.author, blob)
        elif entry.kind != "message":
            tx.emit(Notify(TlogExtended(name, body.origin, (), log.followed.frontier.size)))
    log = tx.group(name).tlogs.by_name[body.origin]
    request_blobs(tx, name, body.origin)
    query_unread(tx, name, body.origin)
    if not log.wanted:
        witness.report_size(tx, name, body.origin, full=False)


def _accept_message(tx: Transaction, name: str, author: str, written: bytes) -> None:
    """Accept a stream message that a witness stored."""
    with tx.attempt():
        receiver.receive_from_tlog(tx, name, author, written)
