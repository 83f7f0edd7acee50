"""Our side of the key agreement on the ring: key events to all members, direct messages and acknowledgements routed.

Most members are no peers. Our key event is flooded over the ring (`forwarding.py`); each member's direct message, its
acknowledgement, and resets of the channel are routed (`routing.py`). Channels are those of members that never meet
(`key_agreement/channel_reset.py`), also with neighbours: they begin with contact keys, and each member offers a pre-key
to each other one as soon as it knows it.

A direct message and a reset are sent again, with exponential backoff and over other peers, until they are acknowledged.
A key event without a direct message for a member is not: a member that notices that it lacks one says so. What is under
way is bounded: a member that has missed more follows our ratchet again once it has said so.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.did import resolve
from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed
from zerochat.group.backoff import Backoff
from zerochat.group.dcgka import channels, forwarding, routing
from zerochat.group.dcgka.channels import CLAIMED_EVENTS_MAX, keys_of
from zerochat.group.dcgka.routing import Outgoing
from zerochat.group.key_agreement import channel_reset
from zerochat.group.key_agreement.channel_reset import ChannelReset
from zerochat.group.key_agreement.erasure import erase_members
from zerochat.group.key_agreement.key_event import Directs, KeyEvent
from zerochat.group.key_agreement.key_schedule import NO_RATCHET
from zerochat.group.key_agreement.state import Keys, SendingEpoch
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes
from zerochat.group.links import mediator_mail, neighbours, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.state import Group
from zerochat.group.state.dcgka import EarlyPosts, RingChannel, SentKeyEvent
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import KEY_EVENTS
from zerochat.group.wire.routed import RoutedAck, RoutedKind

RETRY: Final = Backoff(4_000, 3_600_000)
"""Retransmission of a direct message or a reset. It begins anew once the member is heard of."""
ACK_MS: Final = 1_000
"""The delay of an acknowledgement, times 0.5 to 1.5: those of several events, and of many members, go together."""
ASK_MS: Final = 5_000
"""How long a message waits for its key event before we ask its author."""
ROUND_MS: Final = 250
"""The shortest interval between two rounds."""
DIRECTS_MAX: Final = 4
"""Direct messages that are kept for one member; a further one replaces the oldest."""
SENT_MAX: Final = 16
"""Our key events that are kept for members that ask for them."""
OFFERS_MAX: Final = 64
"""Pre-keys that are offered in one round."""
CONTACTS_CACHED: Final = 4_096


@lru_cache(maxsize=CONTACTS_CACHED)
def contact_key(did: str) -> bytes:
    """The X25519 key of a contact. Raises Malformed."""
    for method in resolve(did).agreement:
        if method.key.kind == "X25519":
            return method.key.data
    raise Malformed(why="a contact without an encryption key")


def with_channels(tx: Transaction, name: str) -> Keys:
    """Our keys, with a channel to each member of the view."""
    group, keys = tx.group(name), keys_of(tx, name)
    if lacking := group.view.members.keys() - keys.channels.keys() - {group.me}:
        contacts = {member: contact_key(group.view.members[member].contact) for member in lacking}
        keys = channel_reset.with_channels(keys, contacts)
        tx.update_dcgka(name, keys=keys)
    return keys


def _channel(group: Group, member: str) -> RingChannel:
    return group.dcgka.ring.get(member, RingChannel())


def update(tx: Transaction, name: str, member: str, channel: RingChannel) -> None:
    """Replace what is under way with a member."""
    tx.update_dcgka(name, ring={**tx.group(name).dcgka.ring, member: channel})


# --- our key events -------------------------------------------------------------------------------------------------


def distribute(tx: Transaction, name: str, keys: Keys, event: KeyEvent, directs: Directs) -> None:
    """Send a key event of ours to all members. `keys`: the state after it."""
    group, record = tx.group(name), event_bytes(event)
    sent = {**group.dcgka.sent, event.number: SentKeyEvent(record, {})}
    ring, things = dict(group.dcgka.ring), list[Outgoing]()
    for member in sorted(directs.messages):
        direct = directs.direct(member)
        assert direct is not None
        things.append(Outgoing(member, RoutedKind.DIRECT, event.number, direct_bytes(direct)))
        ring[member] = _with_direct(tx, ring.get(member, RingChannel()), event.number, things[-1].content)
    kept = sorted(sent)[-SENT_MAX:]
    tx.update_dcgka(name, keys=keys, ring=ring, sent={number: sent[number] for number in kept})
    flood(tx, name, None, [record])
    routing.send(tx, name, things)
    _schedule(tx, name, RETRY.base_ms)


def _with_direct(tx: Transaction, channel: RingChannel, number: int, message: bytes) -> RingChannel:
    directs = {**channel.directs, number: message}
    directs = {one: directs[one] for one in sorted(directs)[-DIRECTS_MAX:]}
    return replace(channel, directs=directs, tries=0, retry_at=tx.now + RETRY.delay_ms(0))


def flood(tx: Transaction, name: str, bearer: str | None, records: Sequence[bytes]) -> None:
    """Send key events on along the ring. `bearer`: the member that brought them; None: they are ours."""
    body = {"group": name, "events": [[b64url(record), ""] for record in records], "before": 0}
    for member in forwarding.next_members(tx, name, bearer):
        message = Message(type=KEY_EVENTS, id=new_id(tx.context.random), body=body)
        relationship = tx.group(name).links.relationships[member]
        mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))


# --- rounds ---------------------------------------------------------------------------------------------------------


def _schedule(tx: Transaction, name: str, delay_ms: int) -> None:
    """Run a round after this time, or before."""
    tx.set_timer(TimerKind.RING_CHANNELS, name, max(delay_ms, ROUND_MS), if_unset=delay_ms > ACK_MS)


def run(tx: Transaction, name: str) -> None:
    """Acknowledge, ask, offer and retransmit what is due, and set the next timer."""
    group = tx.group(name)
    if group.state != "active" or group.me not in group.view.members:
        return
    first, again = list[Outgoing](), list[Outgoing]()
    first += _offers(tx, name)
    group = tx.group(name)
    ring, due = dict(group.dcgka.ring), list[int]()
    for member, channel in group.dcgka.ring.items():
        if member not in group.view.members:
            continue
        if 0 < channel.ack_at <= tx.now + ROUND_MS:
            first.append(_ack(group, member))
            channel = ring[member] = replace(channel, ack_at=0)
        if _is_under_way(group, member, channel):
            if channel.retry_at <= tx.now + ROUND_MS:
                (again if channel.tries else first).extend(_retransmission(group, member, channel))
                retry_at = tx.now + RETRY.delay_ms(channel.tries + 1)
                channel = ring[member] = replace(channel, tries=channel.tries + 1, retry_at=retry_at)
            due.append(channel.retry_at)
        if channel.ack_at:
            due.append(channel.ack_at)
    tx.update_dcgka(name, ring=ring)
    routing.send(tx, name, first)
    routing.send(tx, name, again, detour=1)
    if _lacks_offers(tx.group(name)):
        due.append(tx.now + ACK_MS)
    if due:
        tx.set_timer(TimerKind.RING_CHANNELS, name, max(ROUND_MS, min(due) - tx.now))


def _ack(group: Group, member: str) -> Outgoing:
    dcgka = group.dcgka
    keys, number = dcgka.keys, dcgka.keys.numbers.get(member, 0)
    lacks = bool(dcgka.early.get(member, EarlyPosts()).messages) or member in dcgka.held
    lost = number > 0 and member not in keys.ratchets
    content = RoutedAck(lacks, lost, *channel_reset.taken(keys, member)).wire
    return Outgoing(member, RoutedKind.ACK, number, content)


def _is_under_way(group: Group, member: str, channel: RingChannel) -> bool:
    return bool(channel.directs) or channel_reset.is_pending(group.dcgka.keys, member)


def hear(tx: Transaction, name: str, member: str) -> None:
    """An item of a member has come: it is back, so what it has not acknowledged goes again soon."""
    group = tx.group(name)
    channel = _channel(group, member)
    if channel.tries > 1 and _is_under_way(group, member, channel):
        retry_at = min(channel.retry_at, tx.now + RETRY.base_ms)
        update(tx, name, member, replace(channel, tries=1, retry_at=retry_at))
        _schedule(tx, name, ACK_MS)


def _retransmission(group: Group, member: str, channel: RingChannel) -> Iterable[Outgoing]:
    reset = channel_reset.pending_reset(group.dcgka.keys, member)
    if reset is not None:
        yield Outgoing(member, RoutedKind.RESET, reset.number, reset.wire)
    for number, direct in channel.directs.items():
        if channel.tries and (sent := group.dcgka.sent.get(number)) is not None:
            yield Outgoing(member, RoutedKind.EVENT, number, sent.record)
        yield Outgoing(member, RoutedKind.DIRECT, number, direct)


# --- offers and resets ----------------------------------------------------------------------------------------------


def view_changed(tx: Transaction, name: str) -> None:
    """There may be members to which we have offered no pre-key."""
    if neighbours.is_ring(tx.group(name)) and _lacks_offers(tx.group(name)):
        _schedule(tx, name, ACK_MS)


def _unoffered(group: Group) -> Collection[str]:
    offered = {member for member, resets in group.dcgka.keys.resets.items() if resets.sent}
    return group.view.members.keys() - offered - {group.me}


def _lacks_offers(group: Group) -> bool:
    return group.mode.heals and bool(_unoffered(group))


def _offers(tx: Transaction, name: str) -> Iterable[Outgoing]:
    """Offer a pre-key to members that have none of ours: theirs are sent again until they are confirmed."""
    keys, things = with_channels(tx, name), list[Outgoing]()
    for member in sorted(_unoffered(tx.group(name)))[:OFFERS_MAX]:
        keys, made = channel_reset.offer(keys, member, tx.now, tx.context.random)
        things.append(_pending(tx, name, member, made))
    tx.update_dcgka(name, keys=keys)
    return things


def offer(tx: Transaction, name: str, member: str) -> None:
    """Offer a member a pre-key at once."""
    keys, made = channel_reset.offer(with_channels(tx, name), member, tx.now, tx.context.random)
    tx.update_dcgka(name, keys=keys)
    routing.send(tx, name, [_pending(tx, name, member, made)])


def reset(tx: Transaction, name: str, member: str, number: int, *, once: bool = False) -> None:
    """A member's direct message with its key event `number` does not open, or is not secret any more: begin its
    direction of the channel anew, unless it has caused too many resets of late. `once`: it causes this one once."""
    keys, made = channel_reset.reset(with_channels(tx, name), member, tx.now, tx.context.random, number)
    if made is None:
        tx.update_dcgka(name, keys=keys)
    elif once or rate_limits.spend_statement(tx, name, member):
        tx.update_dcgka(name, keys=keys)
        routing.send(tx, name, [_pending(tx, name, member, made)])


def _pending(tx: Transaction, name: str, member: str, made: ChannelReset) -> Outgoing:
    """A reset as it goes out; it goes again until it is confirmed."""
    channel = _channel(tx.group(name), member)
    update(tx, name, member, replace(channel, tries=0, retry_at=tx.now + RETRY.delay_ms(0)))
    _schedule(tx, name, RETRY.base_ms)
    return Outgoing(member, RoutedKind.RESET, made.number, made.wire)


def take_reset(tx: Transaction, name: str, member: str, made: ChannelReset) -> None:
    """A member offers a pre-key, or has lost its channel with us. Raises Malformed."""
    acknowledge_soon(tx, name, member)
    keys = channel_reset.receive_reset(with_channels(tx, name), member, made)
    if keys is None or (made.lost and not rate_limits.spend_statement(tx, name, member)):
        return
    tx.update_dcgka(name, keys=keys)
    if made.lost:
        update(tx, name, member, replace(_channel(tx.group(name), member), directs={}))
        offer(tx, name, member)


def begin_anew(tx: Transaction, name: str) -> None:
    """Our state is, or may be, an older copy: as `channels.begin_anew`, and on the ring every member is told."""
    channels.begin_anew(tx, name)
    group = tx.group(name)
    if not neighbours.is_ring(group):
        return
    keys, ring = with_channels(tx, name), {}
    for member in group.others:
        keys, _ = channel_reset.reset(keys, member, tx.now, tx.context.random)
        ring[member] = RingChannel(retry_at=tx.now)
    tx.update_dcgka(name, keys=keys, ring=ring)
    _schedule(tx, name, ROUND_MS)


# --- acknowledgements -----------------------------------------------------------------------------------------------


def acknowledge_soon(tx: Transaction, name: str, member: str) -> None:
    """Acknowledge a member's key events, and its reset."""
    _ack_at(tx, name, member, ACK_MS // 2 + tx.context.random(1)[0] * ACK_MS // 255)


def ask(tx: Transaction, name: str, member: str) -> None:
    """Something of a member waits for a key event of its, or does not open: if it still lacks then, say so."""
    _ack_at(tx, name, member, ASK_MS)


def _ack_at(tx: Transaction, name: str, member: str, delay_ms: int) -> None:
    channel = _channel(tx.group(name), member)
    if not channel.ack_at or channel.ack_at > tx.now + delay_ms:
        update(tx, name, member, replace(channel, ack_at=tx.now + delay_ms))
    _schedule(tx, name, min(delay_ms, ACK_MS))


def take_ack(tx: Transaction, name: str, member: str, number: int, at: int, ack: RoutedAck) -> None:
    """A member has our key events up to this number. `at`: when it said so, by its clock."""
    channel, keys = _channel(tx.group(name), member), keys_of(tx, name)
    if at <= channel.acked_at:
        return
    directs = {one: direct for one, direct in channel.directs.items() if one > number}
    tries = channel.tries if directs == channel.directs else 0
    update(tx, name, member, replace(channel, acked_at=at, directs=directs, tries=tries))
    if number > keys.number or channel_reset.is_beyond(keys, member, ack.reset):
        _go_beyond(tx, name, member, number, ack.reset)
        return
    tx.update_dcgka(name, keys=channel_reset.confirm(keys, member, ack.reset, ack.taken_at))
    is_new = ack.lost and number == keys.number and member in keys.synced
    if is_new and rate_limits.spend_statement(tx, name, member):
        keys = keys_of(tx, name)
        tx.update_dcgka(name, keys=replace(keys, synced=keys.synced - {member}))
    if ack.lacks and number < keys.number:
        _send_lacking(tx, name, member, number)


def _send_lacking(tx: Transaction, name: str, member: str, number: int) -> None:
    """Send a member our key events after this number, as far as they are kept."""
    group = tx.group(name)
    directs, things = _channel(group, member).directs, list[Outgoing]()
    for later, sent in sorted(group.dcgka.sent.items()):
        if later > number:
            things.append(Outgoing(member, RoutedKind.EVENT, later, sent.record))
            if later in directs:
                things.append(Outgoing(member, RoutedKind.DIRECT, later, directs[later]))
    routing.send(tx, name, things, detour=1)


def _go_beyond(tx: Transaction, name: str, member: str, number: int, counter: int) -> None:
    """A member has a key event or a reset of ours that we have not made: another copy of our profile has. Ours go on
    beyond it, with an update and a new channel."""
    if not rate_limits.spend_statement(tx, name, member):
        return
    keys = keys_of(tx, name)
    if number > keys.number:
        number = min(number, keys.number + CLAIMED_EVENTS_MAX)
        keys = replace(keys, number=number, ratchet=NO_RATCHET, knowers=None, synced=frozenset(), epoch=SendingEpoch())
        tx.update_dcgka(name, sent={})
    keys = channel_reset.go_beyond(keys, member, counter)
    keys, made = channel_reset.reset(keys, member, tx.now, tx.context.random)
    tx.update_dcgka(name, keys=keys)
    if made is not None:
        routing.send(tx, name, [_pending(tx, name, member, made)])


# --- former members -------------------------------------------------------------------------------------------------


def forget_former(tx: Transaction, name: str) -> None:
    """Erase the keys of members that are none any more, and what is under way with them."""
    group = tx.group(name)
    dcgka, members = group.dcgka, group.view.members
    known = dcgka.ring.keys() | dcgka.keys.channels.keys() | dcgka.keys.resets.keys() | dcgka.keys.ratchets.keys()
    if gone := known - members.keys():
        ring = {did: one for did, one in dcgka.ring.items() if did not in gone}
        tx.update_dcgka(name, keys=erase_members(dcgka.keys, gone), ring=ring)
    routing.forget(tx, name)
