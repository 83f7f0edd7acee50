"""Signed stream messages: decrypting them, and keeping rejected ones as evidence of withholding.

Rejected messages matter where a group keeps a transparency log. The journal bounds how many it keeps per author
(`agent/storage/signed_messages.py`); an author that exceeds the bound has signed a message for each of them, and owes
their predecessors.
"""

from collections.abc import Collection, Iterator

import msgspec

from zerochat.errors import Malformed
from zerochat.evidence.messages import ALIAS, SIGNATURE, TIME, Data
from zerochat.group.effects import StoreRejectedMessage
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.sender_key import open_content
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import read_runs, runs_of
from zerochat.group.wire.messages import EventsBody

KEPT_WHOLE_MAX = 16
"""Of the messages dropped at once, how many are kept with their content."""


def body_of(key: bytes, message: Data) -> EventsBody:
    """The events in a message, and its author's acknowledgements. Raises Malformed, and Unauthentic for another key."""
    value = open_content(key, message)
    try:
        return msgspec.convert(value, EventsBody)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a signed message of another form ({error})") from None


def events_in(key: bytes, message: Data, group: str, author: str) -> Iterator[Event]:
    """The events in a message, with recomputed ids. Raises as `body_of`."""
    body = body_of(key, message)
    yield from read_runs(group, runs_of(body.runs, body.packed), author)


def record_received(tx: Transaction, name: str, author: str, written: bytes) -> None:
    """Record that this message was received and not accepted, so it was not withheld."""
    _store_orphan(tx, name, author, written, b"")


def record_dropped(tx: Transaction, name: str, author: str, messages: Collection[bytes]) -> None:
    """Keep these buffered messages, whose predecessors have not come, for an accusation of their author."""
    for number, written in enumerate(sorted(messages)):  # in order of time
        _store_orphan(tx, name, author, written, written if number < KEPT_WHOLE_MAX else b"")


def _store_orphan(tx: Transaction, name: str, author: str, written: bytes, message: bytes) -> None:
    if tx.group(name).view.has_tlog:
        place = written[ALIAS], int.from_bytes(written[TIME], "big"), written[SIGNATURE]
        tx.emit(StoreRejectedMessage(name, author, *place, message, tx.now))
