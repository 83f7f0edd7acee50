"""A daily byte quota for each member and group: a token bucket of what it has had stored here.

A member's rate limit lets through far more in a day than its messages should take of a disk. So what is stored is
charged to the member that sent it: posts to their author, relayed events and earlier history to the member that sent
those. The bucket holds half of the daily quota and is refilled by the other half, so a day never takes more than the
quota.

- *Posts* of a member without room are refused, as those from the future are: not acknowledged, so their author sends
  them again. Our `sync` says when to try again, and they count as missing here until then. Room is back when a part of
  the bucket is free, so that not every refilled byte costs a retransmission.
- *History* comes at our own request only, so it is not refused: a member is asked for none while half of its bucket is
  used. So a newcomer's backfill leaves a member room for its own posts.

Membership events have quotas of their own (`membership/quota.py`), as have files (`FileRules`).
"""

from typing import Final

from zerochat.group.settings import DAY_MS
from zerochat.group.state.peers import StoredBytes
from zerochat.group.transaction import Transaction

EVENT_BYTES = 640
RESUME_PART: Final = 16
"""This part of the bucket must be free again before more is accepted."""
HISTORY_PART: Final = 2


def disk_bytes(size: int, records: int = 1) -> int:
    """About what records of so many bytes together take in the journal, with their rows, indexes and words to search
    for: as measured, 0.7 to 1.1 times this."""
    return size * 3 // 2 + records * EVENT_BYTES


def charge(tx: Transaction, name: str, member: str, size: int, records: int = 1) -> None:
    """Charge a member for records of so many bytes together that it sent and that are stored; this may overdraw."""
    peer = tx.payer(name, member)
    if peer is not None and records and tx.agent.storage_rules.daily_max:
        is_full = peer.stored.is_full and not _has_room(tx, peer.stored)
        used = _used(tx, peer.stored) + disk_bytes(size, records)
        tx.update_payer(name, member, stored=StoredBytes(used, tx.now, is_full, peer.stored.refused_upto))


def has_room(tx: Transaction, name: str, member: str) -> bool:
    """Whether a member may have more stored now."""
    peer = tx.payer(name, member)
    return peer is None or _has_room(tx, peer.stored)


def has_room_for_history(tx: Transaction, name: str, member: str) -> bool:
    """Whether a member may be asked for relayed events or earlier history now."""
    peer, capacity = tx.payer(name, member), _capacity(tx)
    return peer is None or not capacity or _used(tx, peer.stored) < capacity // HISTORY_PART


def refuse(tx: Transaction, name: str, member: str, upto: int) -> None:
    """Note that a post of this member at this place of its chain is not stored for lack of room."""
    payer = tx.payer(name, member)
    if payer is None:
        return
    stored = payer.stored
    place = max(upto, stored.refused_upto)
    if not stored.is_full or stored.at > tx.now or place > stored.refused_upto:  # else nothing has changed
        tx.update_payer(name, member, stored=StoredBytes(_used(tx, stored), tx.now, True, place))
        tx.mark_ahead(name, member)


def wait_ms(tx: Transaction, name: str, member: str) -> int:
    """The time until a member without room has room again, ms; 0: it has room."""
    peer, capacity = tx.payer(name, member), _capacity(tx)
    if peer is None or _has_room(tx, peer.stored):
        return 0
    return -(-(_used(tx, peer.stored) - _resume_at(capacity)) * DAY_MS // capacity)


def _capacity(tx: Transaction) -> int:
    """Half of the daily quota: the size of the bucket, and what is refilled in a day; 0: there is no quota."""
    return tx.agent.storage_rules.daily_max // 2


def _used(tx: Transaction, stored: StoredBytes) -> int:
    passed = max(0, tx.now - stored.at)  # a clock may have been set back
    return max(0, stored.used - passed * _capacity(tx) // DAY_MS)


def _resume_at(capacity: int) -> int:
    return capacity - capacity // RESUME_PART


def _has_room(tx: Transaction, stored: StoredBytes) -> bool:
    capacity = _capacity(tx)
    if not capacity:
        return True
    used = _used(tx, stored)
    return used <= _resume_at(capacity) if stored.is_full else used < capacity
