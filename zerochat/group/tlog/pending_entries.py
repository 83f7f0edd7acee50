"""Our entries that wait for their place in a log, and the ends of subscriptions, which are entries too."""

from collections.abc import Collection

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.evidence.handshake import Close
from zerochat.evidence.witness import Entry, entry_of
from zerochat.group.effects import StoreBlob, StoreStatement
from zerochat.group.state import EndedSubscription, PendingEntry
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog.adoption import ENDED_MAX, FIRST_ROUND_MS, TLOGS_MAX, digest_of, is_current, record_ended
from zerochat.group.tlog.messages import update_tlog
from zerochat.group.transaction import Transaction

PENDING_MAX = 256
"""Pending entries of one log. Further ones wait in the journal."""
CLOSES_MAX = 64
"""Additional room for entries that end a subscription, which have no substitute."""


def add_pending(tx: Transaction, name: str, origin: str, entry: Entry, blob: bytes) -> bool:
    """Keep an entry of ours with its blob until it is in the log; False: too many are pending."""
    if not keep_pending(tx, name, origin, entry):
        return False
    tx.emit(StoreBlob(name, entry.hash, tx.group(name).me, blob, tx.now, requested=True))
    return True


def keep_pending(tx: Transaction, name: str, origin: str, entry: Entry, most: int = PENDING_MAX) -> bool:
    """Keep an entry whose blob is stored already."""
    log, record = tx.group(name).tlogs.by_name[origin], entry.record()
    key = b64url(sha256(record))
    if key not in log.pending:
        if len(log.pending) >= most:
            return False
        update_tlog(tx, name, origin, pending={**log.pending, key: PendingEntry(record, tx.now)})
        tx.set_timer(TimerKind.TLOG, name, FIRST_ROUND_MS)
    return True


def end_subscription(tx: Transaction, name: str, member: str) -> bool:
    """End a member's subscription: it ends when the log has the entry; messages until then are still owed. False: too
    many entries are pending."""
    group = tx.group(name)
    one = group.streams.subscribers.get(member)
    origin = next(
        (origin for origin, log in group.tlogs.by_name.items() if one and digest_of(log.rules) == one.rules), None
    )
    if one is None or origin is None:
        return False
    record_ended(tx, name, member, one)
    group = tx.group(name)
    statement = Close(time=max(1, tx.now), accept=one.digest, author=group.me).signed(group.seed)
    entry = entry_of("close", group.me, statement.serialize())
    kept = keep_pending(tx, name, origin, entry, PENDING_MAX + CLOSES_MAX)
    if kept:
        until = group.streams.own.time if group.streams.own is not None else 0
        ended = EndedSubscription(member, one.rules, one.begun, until, b64url(sha256(entry.record())))
        rest = [
            other
            for other in tx.group(name).tlogs.ended_subscriptions
            if (other.member, other.begun) != (member, one.begun)
        ]
        tx.update_tlogs(name, ended_subscriptions=(*rest, ended)[-ENDED_MAX:])
        tx.emit(StoreStatement(name, member, "close", statement.digest, statement.serialize(), tx.now))
        tx.emit(StoreBlob(name, entry.hash, group.me, statement.serialize(), tx.now, requested=True))
    return kept


def end_oldest_subscriptions(tx: Transaction, name: str) -> None:
    """End the subscriptions under the oldest log, which the next terms displace: those of members that were offline all
    the time; they subscribe again. Messages owed under a dropped log could not be posted."""
    group = tx.group(name)
    if len(group.tlogs.by_name) < TLOGS_MAX:
        return
    oldest = min(group.tlogs.by_name.values(), key=lambda log: (log.lamport, log.rules.origin))
    if is_current(group, oldest):
        return
    digest = digest_of(oldest.rules)
    for member in [did for did, one in group.streams.subscribers.items() if one.rules == digest][:CLOSES_MAX]:
        if not end_subscription(tx, name, member):
            return
        rest = {did: one for did, one in tx.group(name).streams.subscribers.items() if did != member}
        tx.update_streams(name, subscribers=rest)


def handle_placed(tx: Transaction, name: str, keys: Collection[str], at: int) -> None:
    """These entries of ours are in a log since `at` (UTC ms, by the witnesses). Where they end a subscription, only
    messages until then are owed."""
    group = tx.group(name)
    if any(one.close_key in keys for one in group.tlogs.ended_subscriptions):
        until = max(at, group.streams.own.time if group.streams.own is not None else 0)
        ended = [
            replace(one, until=until, close_key="") if one.close_key in keys else one
            for one in group.tlogs.ended_subscriptions
        ]
        tx.update_tlogs(name, ended_subscriptions=tuple(ended))
