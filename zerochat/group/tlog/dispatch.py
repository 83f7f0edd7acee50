"""Dispatch of members' messages about a transparency log and of the journal's query results."""

from typing import TypeAlias

from zerochat.didcomm.message import Message
from zerochat.errors import Refused, RemoteError
from zerochat.evidence.note import parse_note
from zerochat.evidence.witness import ENTRIES_MAX, parse_entry
from zerochat.group.effects import Measure, QueryTlog
from zerochat.group.inputs import TlogQueried
from zerochat.group.links import rate_limits
from zerochat.group.tlog import follower, operator, submission, witness
from zerochat.group.tlog.messages import can_send, send_tlog_message
from zerochat.group.tlog.queries import (
    BlobQuery,
    Blobs,
    Extension,
    ExtensionQuery,
    Hashes,
    Messages,
    MissingBlobs,
    MissingEntries,
    OverdueMessages,
    Records,
    UnplacedEntries,
    UnreadEntries,
)
from zerochat.group.transaction import Transaction
from zerochat.group.wire import tlog
from zerochat.group.wire.messages import read_body
from zerochat.group.wire.tlog import (
    TLOG_BLOBS,
    TLOG_SUBMIT,
    TlogCosignatureBody,
    TlogEntryBody,
    TlogExtensionBody,
    TlogRequestBody,
    TlogSubmitBody,
    entry_batches,
    pack_blob,
    unpacked_blob,
)

TlogBody: TypeAlias = TlogSubmitBody | TlogExtensionBody | TlogCosignatureBody | TlogRequestBody

ENTRY_WORK_US, BLOB_WORK_US = 150, 500
"""The work of decoding an entry and finding it in the log, and of its blob; us."""
LINE_WORK_US, COSIGNATURE_WORK_US = 300, 5_000
"""The work of a signature line of a checkpoint, which is verified three times, and of one more line: the others are
verified again."""
EXTENSION_WORK_US = 4_000
"""The work of reading an extension and sending it."""


def receive_tlog_message(tx: Transaction, name: str, sender: str, message: Message) -> None:
    """A member's message about a log, charged to it before it is processed. Raises RemoteError, and then nothing has
    changed."""
    group = tx.group(name)
    if not group.view.has_tlog or sender not in group.view.members or sender in group.trust.quarantine:
        raise Refused(why="a tlog message in a group without a log, or by a non-member")

    match message.type:
        case tlog.TLOG_SUBMIT:
            posts = read_body(message, TlogSubmitBody)
            if _charge(tx, name, sender, posts, _entries_work_us(posts)):
                _receive_submission(tx, name, sender, posts)
        case tlog.TLOG_EXTENSION:
            piece = read_body(message, TlogExtensionBody)
            work_us = ENTRY_WORK_US * len(piece.records) + LINE_WORK_US * piece.note.count("\n")
            if _charge(tx, name, sender, piece, work_us):
                _receive_extension(tx, name, sender, piece)
        case tlog.TLOG_COSIGNATURE:
            line = read_body(message, TlogCosignatureBody)
            if _charge(tx, name, sender, line, COSIGNATURE_WORK_US if line.cosignature else EXTENSION_WORK_US):
                whole = operator.receive_cosignature(tx, name, sender, line)
                if whole is not None:
                    follower.follow_own_checkpoint(tx, name, line.origin, whole)
        case tlog.TLOG_BLOBS:
            blobs = read_body(message, TlogSubmitBody)
            if _charge(tx, name, sender, blobs, _entries_work_us(blobs)):
                follower.receive_blobs(tx, name, sender, blobs)
        case _:
            want = read_body(message, TlogRequestBody)
            work_us = EXTENSION_WORK_US * (want.after >= 0) + BLOB_WORK_US * len(want.records)
            if _charge(tx, name, sender, want, work_us):
                _receive_request(tx, name, sender, want)


def _charge(tx: Transaction, name: str, sender: str, body: TlogBody, work_us: int) -> bool:
    """Charge a message before it is processed; False: it is about a log that we do not have. Raises Refused."""
    if not _is_known(tx, name, body):
        return False
    rate_limits.charge_work(tx, name, sender, work_us)
    return True


def _entries_work_us(body: TlogSubmitBody) -> int:
    return sum(ENTRY_WORK_US + BLOB_WORK_US * bool(entry.blob) for entry in body.entries)


def _is_known(tx: Transaction, name: str, body: TlogBody) -> bool:
    """Whether we have this log; a member that got its terms before us repeats the message."""
    if body.group != name:
        raise Refused(why="a tlog message for another group")
    if body.origin not in tx.group(name).tlogs.by_name:
        tx.emit(Measure("dropped", "UnknownLog"))
        return False
    return True


def _receive_submission(tx: Transaction, name: str, sender: str, body: TlogSubmitBody) -> None:
    log = tx.group(name).tlogs.by_name[body.origin]
    records = []
    for submitted in body.entries:
        record = submitted.record.encode()
        entry = parse_entry(record)
        if entry.author != sender:
            raise Refused(why="an entry of another author")
        records.append(record)
        if submitted.blob and (log.watched is not None or log.operated is not None):
            blob = unpacked_blob(submitted.blob)
            rate_limits.charge_bytes(tx, name, sender, len(blob))
            witness.hold_blob(tx, name, entry, blob, asked=False)
    operator.receive_entries(tx, name, body.origin, sender, tuple(records))


def _receive_extension(tx: Transaction, name: str, sender: str, body: TlogExtensionBody) -> None:
    log = tx.group(name).tlogs.by_name[body.origin]
    note = parse_note(body.note.encode())
    records = tuple(text.encode() for text in body.records)
    witness.review_extension(tx, name, body.origin, sender, body.old, records, note)
    if log.rules.quorum.is_complete(note):
        follower.accept_checkpoint(tx, name, body.origin, sender, body.old, records, note)


def _receive_request(tx: Transaction, name: str, sender: str, body: TlogRequestBody) -> None:
    log = tx.group(name).tlogs.by_name[body.origin]
    here = log.followed.frontier.size
    if 0 <= body.after < here:
        tx.emit(QueryTlog(name, body.origin, ExtensionQuery(sender, body.after, ENTRIES_MAX)))
    elif body.after == here and log.followed.note is not None and log.proven_at > body.known_at:
        operator.send_extension(tx, name, body.origin, sender, here, (), log.followed.note.serialize())
    if body.records:
        records = tuple(text.encode() for text in body.records)
        for record in records:
            parse_entry(record)
        tx.emit(QueryTlog(name, body.origin, BlobQuery((sender,), records)))


# --- query results --------------------------------------------------------------------------------------------------


def handle_query_result(tx: Transaction, answer: TlogQueried) -> None:
    """An answer of the journal; its query may be obsolete."""
    name, origin = answer.group, answer.origin
    group = tx.agent.groups.get(name)
    if group is None or group.state != "active" or origin not in group.tlogs.by_name:
        return
    match answer.query, answer.result:
        case UnplacedEntries(by), Records(records):
            operator.enqueue_entries(tx, name, origin, by, records)
        case MissingBlobs() as what, Hashes() as hashes:
            _handle_unheld(tx, name, origin, what, hashes)
        case ExtensionQuery() as what, Extension() as stretch:
            _handle_piece(tx, name, origin, what, stretch)
        case BlobQuery() as what, Blobs(found):
            _send_blobs(tx, name, origin, what, found)
        case UnreadEntries(), MissingEntries() as lacking:
            follower.handle_lacking(tx, name, origin, lacking)
        case OverdueMessages() as what, Messages() as messages:
            submission.submit_overdue(tx, name, origin, what, messages)


def _handle_unheld(tx: Transaction, name: str, origin: str, what: MissingBlobs, found: Hashes) -> None:
    line = witness.cosign(tx, name, origin, what, found)
    if line is not None:
        whole = operator.add_cosignature(tx, name, origin, tx.group(name).me, line.size, line.text)
        if whole is not None:
            follower.follow_own_checkpoint(tx, name, origin, whole)
    elif found.hashes and not found.full:
        lacking = [record for record in what.records if parse_entry(record).hash in found.hashes]
        follower.want_blobs(tx, name, origin, lacking)


def _handle_piece(tx: Transaction, name: str, origin: str, what: ExtensionQuery, found: Extension) -> None:
    """Send an extension of the log to the member that requested it; with an incomplete checkpoint only to a witness."""
    group = tx.group(name)
    log, note = group.tlogs.by_name[origin], found.note
    is_witness = what.member in log.rules.witnesses
    if not note and is_witness and log.operated is not None:
        asked = operator.checkpoint_after(log.operated, what.after, found.records)
        note = asked.serialize() if asked is not None else ""
    if not note:
        return
    if what.member != group.me:
        if can_send(tx, name, what.member):
            operator.send_extension(tx, name, origin, what.member, what.after, found.records, note)
        return
    parsed = parse_note(note.encode())
    try:
        witness.review_extension(tx, name, origin, group.me, what.after, found.records, parsed)
        grown = bool(found.note) and follower.accept_checkpoint(
            tx, name, origin, group.me, what.after, found.records, parsed
        )
    except RemoteError as error:  # a disk that returns other data than was written
        tx.emit(Measure("dropped", error.code))
        return
    if grown and log.operated is not None:
        send_extension_to_all(tx, name, origin, what.after, found.records, note)


def send_extension_to_all(
    tx: Transaction, name: str, origin: str, old: int, records: tuple[bytes, ...], note: str
) -> None:
    """Send a completed extension to all other members; those that miss it request it."""
    for member in tx.group(name).others:
        operator.send_extension(tx, name, origin, member, old, records, note)


def _send_blobs(
    tx: Transaction, name: str, origin: str, what: BlobQuery, found: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Send the blobs behind entries to those who store or have requested them; requested ones count against the
    requester."""
    posts = [TlogEntryBody(record.decode(), pack_blob(blob)) for record, blob in found]
    for member in what.members:
        for portion in entry_batches(posts):
            sent = send_tlog_message(
                tx, name, member, TLOG_SUBMIT if what.submitted else TLOG_BLOBS, TlogSubmitBody(name, origin, portion)
            )
            if sent and not what.submitted:
                rate_limits.charge_bytes(tx, name, member, sum(len(one.blob) for one in portion))
