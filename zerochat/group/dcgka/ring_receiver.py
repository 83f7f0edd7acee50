"""Key events on the ring, which any member may bring, and routed items of their authors.

A key event goes on to some neighbours when it is new and its author has signed it. It waits for its direct message as
for the events before it; a direct message that has overtaken its event waits, too (`receiver.py`).
"""

from typing import Final

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.errors import Malformed, Refused
from zerochat.group.dcgka import receiver, ring_channels, routing
from zerochat.group.dcgka.channels import keys_of
from zerochat.group.dcgka.membership import work_us
from zerochat.group.effects import Measure
from zerochat.group.key_agreement.channel_reset import parse_reset
from zerochat.group.key_agreement.key_event import KeyEvent
from zerochat.group.key_agreement.wire import parse_direct, parse_key_event
from zerochat.group.links import rate_limits
from zerochat.group.state.dcgka import HeldKeyEvents, RingChannel
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import KeyEventsBody, RoutedBody
from zerochat.group.wire.routed import RoutedItem, RoutedKind, parse_ack

EARLY_MAX: Final = 4
"""Direct messages of one author that wait for their events."""


def receive_key_events(tx: Transaction, name: str, bearer: str, body: KeyEventsBody) -> None:
    """Key events that a peer brings. Raises RemoteError."""
    group = tx.group(name)
    if body.group != name or bearer not in group.view.members:
        raise Refused(why="key events of another group, or by a non-member")
    new = list[bytes]()
    for text, _ in body.events:
        record = b64url_bytes(text)
        if _take_event(tx, name, record, parse_key_event(record, name)):
            new.append(record)
    if new:
        ring_channels.flood(tx, name, bearer, new)
        receiver.process_held(tx, name)


def _take_event(tx: Transaction, name: str, record: bytes, event: KeyEvent) -> bool:
    """Hold a key event until it can be processed, at its author's expense; False: it is here already, or its author is
    no member, or beyond its rate limit. Raises RemoteError."""
    group = tx.group(name)
    dcgka, author = group.dcgka, event.author
    last = keys_of(tx, name).numbers.get(author)
    is_here = last is not None and event.number <= last
    if author == group.me or is_here or event.number in dcgka.held.get(author, HeldKeyEvents()).events:
        tx.emit(Measure("duplicate", "key event"))
        return False
    if author not in group.view.members or rate_limits.is_exhausted(tx, name, author):
        tx.emit(Measure("dropped", "KeyEvent"))
        return False
    event.check_signature()
    rate_limits.charge_work(tx, name, author, receiver.EVENT_WORK_US + work_us(group, event.control))
    channel = group.dcgka.ring.get(author, RingChannel())
    direct = channel.early.get(event.number, b"")
    if channel.early:
        early = {number: one for number, one in channel.early.items() if number > event.number}
        ring_channels.update(tx, name, author, replace(channel, early=early))
    receiver.hold(tx, name, event, record, direct, event.number - 1 if last is not None else 0)
    return True


# --- routed items ---------------------------------------------------------------------------------------------------


def receive_routed(tx: Transaction, name: str, bearer: str, body: RoutedBody) -> None:
    """Items that a peer brings: those for us are handled, the others go on. Raises RemoteError."""
    if not tx.group(name).mode.heals:
        raise Refused(why="routed items in a group of other keys")
    for item in routing.receive(tx, name, bearer, body):
        with tx.attempt():
            _take(tx, name, item)
    receiver.process_held(tx, name)


def _take(tx: Transaction, name: str, item: RoutedItem) -> None:
    ring_channels.hear(tx, name, item.author)
    match item.kind:
        case RoutedKind.DIRECT:
            _take_direct(tx, name, item)
        case RoutedKind.ACK:
            ring_channels.take_ack(tx, name, item.author, item.number, item.at, parse_ack(item.content))
        case RoutedKind.RESET:
            ring_channels.take_reset(tx, name, item.author, parse_reset(item.content))
        case RoutedKind.EVENT:
            event = parse_key_event(item.content, name)
            if event.author != item.author or event.number != item.number:
                raise Malformed(why="a routed key event of another author or number")
            _take_event(tx, name, item.content, event)


def _take_direct(tx: Transaction, name: str, item: RoutedItem) -> None:
    """A direct message for us. Raises RemoteError."""
    group, author, number = tx.group(name), item.author, item.number
    direct = parse_direct(item.content, group.me)
    if number <= keys_of(tx, name).numbers.get(author, 0):
        ring_channels.acknowledge_soon(tx, name, author)
        return
    held = group.dcgka.held.get(author, HeldKeyEvents()).events.get(number)
    if held is not None:
        event = parse_key_event(held.record, name)
        direct.check(event)
        receiver.hold(tx, name, event, held.record, item.content, held.before)
        return
    channel = group.dcgka.ring.get(author, RingChannel())
    early = {**channel.early, number: item.content}
    early = {one: early[one] for one in sorted(early)[:EARLY_MAX]}
    ring_channels.update(tx, name, author, replace(channel, early=early))
    ring_channels.ask(tx, name, author)
