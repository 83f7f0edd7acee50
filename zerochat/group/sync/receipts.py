"""Receipts of our own events: told to the clients, and stored with their time and source."""

from zerochat.group.effects import Notify, StoreReceipt
from zerochat.group.notifications import Receipt
from zerochat.group.transaction import Transaction
from zerochat.limits import RECEIPTS_GROUP_MAX, RECEIPTS_MAX


def store_receipt(tx: Transaction, name: str, member: str, after: int, upto: int, via: str) -> None:
    """A member has our own chain up to `upto`; before, it was known to have it up to `after`. `via`: as in
    `StoreReceipt`."""
    group = tx.group(name)
    kept_max = min(RECEIPTS_MAX, RECEIPTS_GROUP_MAX // len(group.view.members))
    tx.emit(Notify(Receipt(name, member, group.me, after, upto)))
    tx.emit(StoreReceipt(name, member, group.me, upto, tx.now, via, kept_max))
