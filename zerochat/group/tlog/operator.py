"""The operator of a transparency log: pending entries are appended, and cosignatures requested until a quorum has
signed."""

from msgspec.structs import replace

from zerochat.errors import Refused, RemoteError
from zerochat.evidence.note import Note, parse_checkpoint
from zerochat.evidence.operator import OperatorLog
from zerochat.evidence.witness import ENTRIES_MAX, checkpoint, parse_entry
from zerochat.group.effects import Measure, QueryTlog, StoreTlogEntries
from zerochat.group.links import rate_limits
from zerochat.group.state import TransparencyLog
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog.messages import can_send, send_tlog_message, update_tlog
from zerochat.group.tlog.queries import ExtensionQuery, UnplacedEntries
from zerochat.group.tlog.witness import may_be_held
from zerochat.group.transaction import Transaction
from zerochat.group.wire.tlog import TLOG_EXTENSION, TlogCosignatureBody, TlogExtensionBody

BATCH_MS = 1_000
"""Entries submitted within this time are appended together."""


def receive_entries(tx: Transaction, name: str, origin: str, by: str, records: tuple[bytes, ...]) -> None:
    """A member submits these: query which of them are not in the log yet."""
    log = tx.group(name).tlogs.by_name[origin]
    if log.operated is not None and log.split is None:
        tx.emit(QueryTlog(name, origin, UnplacedEntries(by, records)))


def enqueue_entries(tx: Transaction, name: str, origin: str, by: str, records: tuple[bytes, ...]) -> None:
    """These are not in the log, and their blobs are here: enqueue them."""
    log = tx.group(name).tlogs.by_name[origin]
    state = log.operated
    if state is None:
        return
    for record in records:
        if not may_be_held(parse_entry(record)):
            continue
        try:
            state = state.post(by, record)
        except RemoteError as error:
            tx.emit(Measure("dropped", error.code))
    if state is not log.operated:
        update_tlog(tx, name, origin, operated=state)
        tx.set_timer(TimerKind.TLOG_APPEND, name, BATCH_MS, if_unset=True)


def append_entries(tx: Transaction, name: str) -> None:
    """Append the pending entries to the logs that we operate, one checkpoint at a time."""
    for origin, log in tx.group(name).tlogs.by_name.items():
        if log.operated is None or log.split is not None:
            continue
        state, placed = log.operated.propose(tx.group(name).seed)
        if placed:
            tx.emit(StoreTlogEntries(name, origin, log.operated.frontier.size, placed))
            update_tlog(tx, name, origin, operated=state)
            request_cosignatures(tx, name, origin)


def refresh_checkpoint(tx: Transaction, name: str, origin: str) -> None:
    """Have the witnesses cosign the current size again: only that proves that nothing was posted until now."""
    log = tx.group(name).tlogs.by_name[origin]
    state = log.operated
    if state is not None and state.proposed is None and not state.pending and state.frontier.size:
        asked = checkpoint(origin, state.frontier, tx.group(name).seed)
        update_tlog(tx, name, origin, operated=replace(state, proposed=asked))
        request_cosignatures(tx, name, origin)


def request_cosignatures(tx: Transaction, name: str, origin: str) -> None:
    """Send the checkpoint under way to the witnesses that have not cosigned it."""
    log = tx.group(name).tlogs.by_name[origin]
    if log.operated is None or log.operated.proposed is None:
        return
    for witness in log.rules.witnesses:
        if not any(one.name == witness for one in log.operated.proposed.signatures[1:]) and _can_request(
            tx, name, witness
        ):
            tx.emit(QueryTlog(name, origin, ExtensionQuery(witness, witness_size(log, witness), ENTRIES_MAX)))


def _can_request(tx: Transaction, name: str, witness: str) -> bool:
    return witness == tx.group(name).me or can_send(tx, name, witness)


def witness_size(log: TransparencyLog, witness: str) -> int:
    """The size of the log that a witness has, as far as we know."""
    assert log.operated is not None
    whole = log.operated.complete
    return log.witness_sizes.get(witness, parse_checkpoint(whole.text).size if whole is not None else 0)


def checkpoint_after(state: OperatorLog, after: int, records: tuple[bytes, ...]) -> Note | None:
    """The checkpoint under way, if these entries after `after` lead to it."""
    if state.proposed is None:
        return None
    return state.proposed if after + len(records) == state.frontier.size else None


def receive_cosignature(tx: Transaction, name: str, sender: str, body: TlogCosignatureBody) -> Note | None:
    """A witness cosigns, or reports its size. Returns the checkpoint that this completes. Raises RemoteError."""
    log = tx.group(name).tlogs.by_name[body.origin]
    if log.operated is None or log.split is not None:
        return None
    if sender not in log.rules.witnesses:
        raise Refused(why="a cosignature by a non-witness")
    if body.cosignature:
        return add_cosignature(tx, name, body.origin, sender, body.size, body.cosignature)
    size = min(body.size, log.operated.frontier.size)
    update_tlog(tx, name, body.origin, witness_sizes={**log.witness_sizes, sender: size})
    if body.full:
        tx.emit(Measure("WitnessFull"))
    elif log.operated.proposed is not None or size < log.operated.frontier.size:
        tx.emit(QueryTlog(name, body.origin, ExtensionQuery(sender, size, ENTRIES_MAX)))
    return None


def add_cosignature(tx: Transaction, name: str, origin: str, by: str, size: int, line: str) -> Note | None:
    """Add a witness' cosignature, perhaps our own. Returns the checkpoint that this completes. Raises RemoteError."""
    log = tx.group(name).tlogs.by_name[origin]
    assert log.operated is not None
    state = log.operated.add_cosignature(by, line)
    reached_ = {**log.witness_sizes, by: min(size, state.frontier.size)}
    update_tlog(tx, name, origin, operated=state, witness_sizes=reached_)
    return state.complete if state.proposed is None and log.operated.proposed is not None else None


def send_extension(
    tx: Transaction, name: str, origin: str, member: str, old: int, records: tuple[bytes, ...], note: str
) -> None:
    """Send a member an extension of the log. It counts against the member's rate limit: its request is much shorter."""
    texts = [record.decode() for record in records]
    if send_tlog_message(tx, name, member, TLOG_EXTENSION, TlogExtensionBody(name, origin, old, texts, note)):
        rate_limits.charge_bytes(tx, name, member, sum(map(len, texts)) + len(note))
