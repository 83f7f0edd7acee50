"""The witness of a transparency log: it stores blobs, and cosigns extensions of the log it cosigned before.

The blobs are in the journal, which is queried before each cosignature (`queries.MissingBlobs`). The cosigned state is
on disk before the cosignature leaves.
"""

from msgspec import Struct

from zerochat.errors import Refused, RemoteError
from zerochat.evidence.case import DEFENCE_BYTES_MAX
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX
from zerochat.evidence.messages import DATA_BYTES_MAX
from zerochat.evidence.note import Note, check_signature, parse_checkpoint, parse_note
from zerochat.evidence.witness import Entry, SizeMismatch, SplitView, is_split_view
from zerochat.group.effects import Measure, Notify, QueryTlog, StoreBlob
from zerochat.group.notifications import TlogSplit
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog.messages import send_tlog_message, update_tlog
from zerochat.group.tlog.queries import Hashes, MissingBlobs
from zerochat.group.transaction import Transaction
from zerochat.group.wire.tlog import TLOG_COSIGNATURE, TlogCosignatureBody

HOLD_MS = 15 * 24 * 3_600_000
"""How long a witness stores blobs after they came: two weeks, and the time until they are in the log."""


_SIZES = {
    "message": DATA_BYTES_MAX,
    "accusation": STATEMENT_BYTES_MAX,
    "defence": DEFENCE_BYTES_MAX,
    "close": STATEMENT_BYTES_MAX,
}
"""Larger blobs have no effect, and would keep others from fetching those that do."""


class Cosignature(Struct, frozen=True):
    """A witness' signature line below a checkpoint."""

    size: int
    text: str


def may_be_held(entry: Entry) -> bool:
    """Whether an entry's blob has an acceptable size."""
    return entry.size <= _SIZES[entry.kind]


def hold_blob(tx: Transaction, name: str, entry: Entry, blob: bytes, *, asked: bool) -> None:
    """Store an entry's blob, whichever member sent it. Raises Refused for another blob."""
    if not may_be_held(entry) or not entry.matches(blob):
        raise Refused(why="a blob that does not match its entry")
    tx.emit(StoreBlob(name, entry.hash, entry.author, blob, tx.now, asked))


def review_extension(
    tx: Transaction, name: str, origin: str, sender: str, old: int, records: tuple[bytes, ...], note: Note
) -> None:
    """We are asked to cosign an extension: query whether we store its blobs. Raises RemoteError."""
    log = tx.group(name).tlogs.by_name[origin]
    state, checkpoint = log.watched, parse_checkpoint(note.text)
    if state is None or log.split is not None:
        return
    check_signature(note, log.rules.operator)
    if state.last is not None and is_split_view(state.last, note, log.rules.operator):
        record_split(tx, name, origin, SplitView(state.last, note))
    elif old == state.frontier.size:
        tx.emit(QueryTlog(name, origin, MissingBlobs(sender, old, records, note.serialize())))
    elif sender == log.rules.operator and (checkpoint.size > state.frontier.size or old != checkpoint.size):
        report_size(tx, name, origin, full=False)


def report_size(tx: Transaction, name: str, origin: str, *, full: bool) -> None:
    """Report the size of the log that we have to the operator."""
    log = tx.group(name).tlogs.by_name[origin]
    if log.watched is not None:
        size = log.watched.frontier.size
        send_tlog_message(
            tx, name, log.rules.operator, TLOG_COSIGNATURE, TlogCosignatureBody(name, origin, size, full=full)
        )


def cosign(tx: Transaction, name: str, origin: str, what: MissingBlobs, found: Hashes) -> Cosignature | None:
    """Cosign an extension, if we store all its blobs. The cosignature goes to the operator, or is returned if that is
    us."""
    group = tx.group(name)
    log = group.tlogs.by_name[origin]
    if log.watched is None or log.split is not None:
        return None
    if found.hashes:
        if found.full:
            report_size(tx, name, origin, full=True)
        return None
    note = parse_note(what.note.encode())
    try:
        state, text = log.watched.cosign(what.old, what.records, note, may_be_held, group.seed, max(1, tx.now // 1000))
    except SizeMismatch:
        if what.sender == log.rules.operator:
            report_size(tx, name, origin, full=False)
        return None
    except SplitView as split:
        record_split(tx, name, origin, split)
        return None
    except RemoteError as error:
        tx.emit(Measure("dropped", error.code))
        return None
    update_tlog(tx, name, origin, watched=state)
    size = state.frontier.size
    if log.rules.operator == group.me:
        return Cosignature(size, text)
    send_tlog_message(tx, name, log.rules.operator, TLOG_COSIGNATURE, TlogCosignatureBody(name, origin, size, text))
    return None


def record_split(tx: Transaction, name: str, origin: str, split: SplitView) -> None:
    """The operator has signed two logs (split view): store the proof, notify, and neither post nor cosign there any
    more. Quorum checkpoints are still accepted (`follower.accept_checkpoint`)."""
    log = tx.group(name).tlogs.by_name[origin]
    if log.split is None:
        one, other = split.one.serialize(), split.other.serialize()
        update_tlog(tx, name, origin, split=(one, other))
        tx.emit(Notify(TlogSplit(name, origin, log.rules.operator, one, other)))
        tx.set_timer(TimerKind.TLOG, name, 1)
