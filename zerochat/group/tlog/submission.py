"""Submitting our entries to the log: kept, and resubmitted until they are in it.

A message of our stream must be in the log if a subscriber has not signed for it in time; once for all subscribers. The
journal knows the valid signatures (`queries.OverdueMessages`). Messages owed under a replaced subscription are still
owed.
"""

from collections.abc import Iterator
from itertools import accumulate

from msgspec.structs import replace

from zerochat.errors import LocalError, NotAMember
from zerochat.evidence.case import DEFENCE_BYTES_MAX
from zerochat.evidence.messages import TIME_BYTES, TIME_MAX
from zerochat.evidence.witness import ENTRY_BYTES_MAX, entry_of, parse_entry
from zerochat.group.backoff import Backoff
from zerochat.group.effects import GroupChanged, QueryTlog
from zerochat.group.inputs import SubmitTlogEntry
from zerochat.group.lookup import find_group
from zerochat.group.state import Group, TransparencyLog
from zerochat.group.tlog import operator
from zerochat.group.tlog.adoption import current_tlog, is_current
from zerochat.group.tlog.messages import can_send, send_tlog_message, update_tlog
from zerochat.group.tlog.pending_entries import PENDING_MAX, add_pending, keep_pending
from zerochat.group.tlog.queries import BlobQuery, Messages, OverdueMessages, Owed
from zerochat.group.tlog.terms import NoTlog
from zerochat.group.transaction import Transaction
from zerochat.group.wire.tlog import TLOG_SUBMIT, TlogEntryBody, TlogSubmitBody, entry_batches, fits_message

DUE_MAX = 64
"""Entries submitted at once: an operator accepts no more of one member."""
BYTES_MAX = 384 * 1024
"""Bytes of blobs submitted at once, one in any case: as many as one answer of the journal has."""
RETRY = Backoff(15_000, 600_000)
"""Exponential backoff of a submission."""
SUBMIT_EARLY_MS = 30_000
"""How much early a message is submitted, since the check is periodic."""


class NoTlogTerms(LocalError):
    """{group} is not accountable yet: it needs at least three members to witness, and terms that name them."""


class TlogFull(LocalError):
    """Too many entries wait for a place in the log of {group}, so nothing more can be submitted. Try again when its
    witnesses are online."""

    retry = "later"


class InvalidTlogEntry(LocalError):
    """This entry cannot be submitted: {why}."""


def submit_entry(tx: Transaction, command: SubmitTlogEntry) -> GroupChanged:
    """Keep an entry that a client submits, and send it. Raises LocalError."""
    group = find_group(tx.agent, command.group)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if not group.view.has_tlog:
        raise NoTlog(group=group.name)
    now = current_tlog(group)
    origin = command.origin or (now.rules.origin if now is not None else "")
    if origin not in group.tlogs.by_name:
        raise NoTlogTerms(group=group.name)
    if not 0 < len(command.blob) <= DEFENCE_BYTES_MAX:
        raise InvalidTlogEntry(why=f"it has {len(command.blob)} bytes, but the limit is {DEFENCE_BYTES_MAX}")
    if not fits_message(command.blob):
        raise InvalidTlogEntry(why="it does not fit into a message")
    entry = entry_of(command.kind, group.me, command.blob, command.about)
    if command.kind == "defence":
        entry = entry.signed(group.seed)
    if len(entry.record()) > ENTRY_BYTES_MAX:
        raise InvalidTlogEntry(why="its subject is too long")
    if not add_pending(tx, group.id, origin, entry, command.blob):
        raise TlogFull(group=group.name)
    return GroupChanged(group.id)


# --- overdue messages -----------------------------------------------------------------------------------------------


def query_overdue(tx: Transaction, name: str, origin: str) -> None:
    """Query which messages of our stream must be in this log by now."""
    group = tx.group(name)
    log, own = group.tlogs.by_name[origin], group.streams.own
    if own is None or not own.time or log.split is not None:
        return
    if log.alias != own.alias:
        log = update_tlog(tx, name, origin, alias=own.alias, submitted_until=0)
    rules = log.rules
    upto = min(own.time, tx.now - (rules.ack_ms - rules.margin_ms) + SUBMIT_EARLY_MS)
    owed = tuple(_owed(group, log))
    if upto > log.submitted_until and owed and len(log.pending) < PENDING_MAX:
        tx.emit(QueryTlog(name, origin, OverdueMessages(group.me, own.alias, log.submitted_until, upto, owed)))


def _owed(group: Group, log: TransparencyLog) -> Iterator[Owed]:
    """To whom our stream is owed under this log: under the current one to all subscribers, under an earlier one to
    those that have not renewed since."""
    now = is_current(group, log)
    digest = log.rules.digest
    for member, one in group.streams.subscribers.items():
        if member in group.view.members and (now or one.rules == digest):
            yield Owed(member, one.begun, TIME_MAX)
    for ended in group.tlogs.ended_subscriptions:
        if now or ended.rules == digest:
            yield Owed(ended.member, ended.begun, TIME_MAX if ended.close_key in log.pending else ended.until)


def submit_overdue(tx: Transaction, name: str, origin: str, what: OverdueMessages, found: Messages) -> None:
    """These messages must be in the log."""
    log = tx.group(name).tlogs.by_name[origin]
    if (what.alias, what.after) != (log.alias, log.submitted_until):
        return  # an outdated answer
    upto, me = log.submitted_until, tx.group(name).me
    for written in found.found:
        if not keep_pending(tx, name, origin, entry_of("message", me, written)):
            update_tlog(tx, name, origin, submitted_until=upto)
            return
        upto = int.from_bytes(written[:TIME_BYTES], "big")
    update_tlog(tx, name, origin, submitted_until=found.upto)
    if found.upto < what.upto:
        query_overdue(tx, name, origin)


def drop_ended_subscriptions(tx: Transaction, name: str) -> None:
    """Forget ended subscriptions once all owed messages are in the logs or pending."""
    group = tx.group(name)
    own = group.streams.own
    if not group.tlogs.ended_subscriptions:
        return
    done = [
        log.submitted_until if own is not None and log.alias == own.alias else 0 for log in group.tlogs.by_name.values()
    ]
    waits = {key for log in group.tlogs.by_name.values() for key in log.pending}
    left = tuple(
        one for one in group.tlogs.ended_subscriptions if one.until > min(done, default=0) or one.close_key in waits
    )
    left = left if own is not None else ()
    if left != group.tlogs.ended_subscriptions:
        tx.update_tlogs(name, ended_subscriptions=left)


# --- pending entries ------------------------------------------------------------------------------------------------


def resubmit_pending(tx: Transaction, name: str, origin: str) -> None:
    """Resubmit pending entries that are due: entries to the operator, and their blobs to it and all witnesses, within
    the limits; the rest follows in the next round."""
    group = tx.group(name)
    log = group.tlogs.by_name[origin]
    if log.split is not None:
        return
    due = {
        key: one
        for key, one in log.pending.items()
        if one.retry_at <= tx.now or one.retry_at > tx.now + RETRY.ceiling_ms
    }
    due = dict(list(due.items())[:DUE_MAX])
    if not due:
        return
    records = tuple(one.record for one in due.values())
    if log.rules.operator == group.me:
        operator.receive_entries(tx, name, origin, group.me, records)
    else:
        for portion in entry_batches(TlogEntryBody(record.decode()) for record in records):
            send_tlog_message(tx, name, log.rules.operator, TLOG_SUBMIT, TlogSubmitBody(name, origin, portion))
    all_ = dict.fromkeys((log.rules.operator, *log.rules.witnesses))
    keepers = tuple(did for did in all_ if did != group.me and can_send(tx, name, did))
    sizes = accumulate(parse_entry(record).size for record in records)
    due = dict(list(due.items())[: max(1, sum(size <= BYTES_MAX for size in sizes))])
    if keepers:
        tx.emit(QueryTlog(name, origin, BlobQuery(keepers, tuple(one.record for one in due.values()), submitted=True)))
    again = {
        key: replace(one, tries=one.tries + 1, retry_at=tx.now + RETRY.delay_ms(one.tries)) for key, one in due.items()
    }
    update_tlog(tx, name, origin, pending={**log.pending, **again})
