"""Key events and messages of other members: held until they can be processed, within bounds.

A key event waits for the membership events that it names, for the author's events before it, and for the updates that
it adopts. After a while it is processed without the latter two, and passed over without the first (an inviter that has
forked the membership log can have made its joiner name an event that no other member accepts): then its author is not
followed until it has given us its ratchet, or makes an update. A message waits for the key event that begins its epoch.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url_bytes
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.group.dcgka import channels, complaints, forwarding, publisher, ring_channels
from zerochat.group.dcgka.channels import ROUND_MS, keys_of
from zerochat.group.dcgka.membership import knows, membership_of, work_us
from zerochat.group.effects import Measure
from zerochat.group.event_log import receiving
from zerochat.group.key_agreement import message_keys, reception
from zerochat.group.key_agreement.erasure import erase_expired
from zerochat.group.key_agreement.key_event import KeyEvent
from zerochat.group.key_agreement.wire import parse_direct, parse_key_event
from zerochat.group.key_modes.dcgka import HEADER_BYTES, Place, open_, place_of
from zerochat.group.key_modes.deniable import check_tag
from zerochat.group.links import content_keys, neighbours, pairing, rate_limits
from zerochat.group.links.shared_mailboxes import SharedBox
from zerochat.group.state.dcgka import EarlyPost, EarlyPosts, HeldKeyEvent, HeldKeyEvents
from zerochat.group.sync import acknowledgements
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import without_bytes
from zerochat.group.wire.messages import EventsBody, KeyEventsBody, SyncBody

STEP_WORK_US: Final = 2
"""The work of deriving the key of a message that has been overtaken, or that was lost."""
EVENT_WORK_US: Final = 500
"""The work of a key event: a signature, a direct message, its place on disk."""
HELD_MAX: Final = 32
"""Key events of one author that wait; the latest are dropped first, and come again."""
HOLD_MS: Final = 60_000
"""How long a key event waits for others that may not come."""
EARLY_MAX, EARLY_BYTES_MAX = 64, 1 << 20
"""Messages of one author that wait for a key event, and their bytes. More are dropped: their author retransmits."""
EARLY_MS: Final = 10 * 60_000
"""How long they wait: their author has retransmitted them by then."""


def receive_sync(tx: Transaction, name: str, sender: str, body: SyncBody) -> None:
    """A member's `sync`: its pre-key, and how far it has our key events. Raises Malformed."""
    if sender not in tx.group(name).view.members:
        return
    if neighbours.is_ring(tx.group(name)):
        settle(tx, name, sender, body.sent)
        return
    if channels.receive_prekey(tx, name, sender, body):
        acknowledgements.schedule_ack(tx, name, sender)
    if channels.on_claimed_number(tx, name, sender, body.key_events):
        acknowledgements.schedule_ack(tx, name, sender)
    publisher.record_ack(tx, name, sender, body.key_events, lost=body.keys_lost)
    settle(tx, name, sender, body.sent)


# --- key events -----------------------------------------------------------------------------------------------------


def receive_key_events(tx: Transaction, name: str, sender: str, body: KeyEventsBody) -> None:
    """Key events of a member, from itself. Raises RemoteError."""
    group = tx.group(name)
    if body.group != name or not group.mode.heals or sender not in group.view.members:
        raise Refused(why="key events of another group, or by a non-member")
    tx.update_dcgka(name, acks_due=group.dcgka.acks_due | {sender})
    content_keys.record(tx, name, sender, body.content_key)
    acknowledgements.schedule_ack(tx, name, sender)
    before = body.before
    for record, direct in body.events:
        event = parse_key_event(b64url_bytes(record), name)
        if event.author != sender:
            raise Refused(why="a key event of another member")
        if event.number > keys_of(tx, name).numbers.get(sender, 0):
            rate_limits.charge_work(tx, name, sender, EVENT_WORK_US + work_us(group, event.control))
            event.check_signature()
            if direct:
                parse_direct(b64url_bytes(direct), group.me).check(event)
            hold(tx, name, event, b64url_bytes(record), b64url_bytes(direct), before)
        before = event.number
    process_held(tx, name)


def hold(tx: Transaction, name: str, event: KeyEvent, record: bytes, direct: bytes, before: int) -> None:
    """Keep a key event until it can be processed; of too many, the latest are dropped."""
    dcgka = tx.group(name).dcgka
    known = dcgka.held.get(event.author, HeldKeyEvents()).events
    since = known[event.number].since if event.number in known else tx.now
    events = {**known, event.number: HeldKeyEvent(record, direct, before, since)}
    for number in sorted(events)[HELD_MAX:]:
        del events[number]
        tx.emit(Measure("dropped", "KeyEventsHeld"))
    tx.update_dcgka(name, held={**dcgka.held, event.author: HeldKeyEvents(events)})


def process_held(tx: Transaction, name: str) -> None:
    """Process the key events that need not wait any more."""
    while any(_process_next(tx, name, author) for author in list(tx.group(name).dcgka.held)):
        pass
    if tx.group(name).dcgka.held:
        tx.set_timer(TimerKind.KEY_EVENTS, name, HOLD_MS, if_unset=True)


def _process_next(tx: Transaction, name: str, author: str) -> bool:
    """Process the author's first key event that waits; False: it has to wait, or there is none."""
    dcgka = tx.group(name).dcgka
    if author not in dcgka.held:
        return False
    events = dcgka.held[author].events
    number = min(events)
    one, numbers = events[number], keys_of(tx, name).numbers
    if number > numbers.get(author, 0):
        event = parse_key_event(one.record, name)
        if not _is_ready(tx, name, event, one):
            return False
        if knows(tx.group(name), event.control):
            with tx.attempt():
                _process(tx, name, event, one.direct)
        else:
            tx.update_dcgka(name, keys=reception.skip(keys_of(tx, name), event, tx.now))
            tx.emit(Measure("dropped", "KeyEventsSkipped"))
    rest = {later: held for later, held in events.items() if later != number}
    others = {did: held for did, held in dcgka.held.items() if did != author}
    tx.update_dcgka(name, held={**others, author: HeldKeyEvents(rest)} if rest else others)
    return True


def _is_ready(tx: Transaction, name: str, event: KeyEvent, held: HeldKeyEvent) -> bool:
    group, keys = tx.group(name), keys_of(tx, name)
    is_due = not 0 <= tx.now - held.since < HOLD_MS
    if not knows(group, event.control):
        acknowledgements.request_missing(tx, name, event.author)
        return is_due
    if is_due:
        return True
    if held.before > keys.numbers.get(event.author, 0):
        return False
    membership = membership_of(group)
    if neighbours.is_ring(group) and not held.direct and reception.is_sent(keys, event, membership):
        ring_channels.ask(tx, group.id, event.author)
        return False
    return not reception.awaited(keys, event, membership)


def _process(tx: Transaction, name: str, event: KeyEvent, written: bytes) -> None:
    group, keys = tx.group(name), keys_of(tx, name)
    direct = parse_direct(written, group.me) if written else None
    is_ring, membership = neighbours.is_ring(group), membership_of(group)
    contact = group.contact.agreement_secret if is_ring else b""
    done = reception.process(keys, event, direct, membership, tx.now, contact)
    tx.update_dcgka(name, keys=done.keys)
    complaints.reject(tx, name, event)
    if done.complaint is not None:
        complaints.publish(tx, name, done.complaint)
    if is_ring:
        _answer_on_ring(tx, name, event, done, wanted=reception.is_sent(keys, event, membership))
    elif done.broken and channels.renew(tx, name, event.author):
        acknowledgements.send_sync(tx, name, event.author)
    _open_early(tx, name, event.author)


def _answer_on_ring(tx: Transaction, name: str, event: KeyEvent, done: reception.Processed, *, wanted: bool) -> None:
    """What a key event causes there. `wanted`: it had a direct message for us."""
    if done.broken:
        ring_channels.reset(tx, name, event.author, event.number)
    elif done.by_contact:
        ring_channels.offer(tx, name, event.author)
    if wanted or not done.follows:
        ring_channels.acknowledge_soon(tx, name, event.author)


# --- messages -------------------------------------------------------------------------------------------------------


def receive_sealed(tx: Transaction, name: str, sender: str, envelope: bytes, end: int = 0) -> None:
    """A message of a member under its key ratchet. `end`: the place of its last event, if that is signed. Raises
    RemoteError, and then nothing has changed."""
    if not tx.group(name).mode.heals:
        raise Refused(why="a sealed message in a group of other keys")
    if not tx.group(name).mode.signs_events:
        envelope = _checked(tx, name, sender, envelope)
    if (place := _place_of(tx, name, sender, envelope)) is not None:
        _open(tx, name, sender, place, envelope)
        return
    if neighbours.is_ring(tx.group(name)):
        ring_channels.ask(tx, name, sender)
    else:
        acknowledgements.schedule_ack(tx, name, sender)
    dcgka = tx.group(name).dcgka
    early = dcgka.early.get(sender, EarlyPosts())
    if len(early.messages) >= EARLY_MAX or early.size + len(envelope) > EARLY_BYTES_MAX:
        tx.emit(Measure("dropped", "EarlyFull"))
        return
    early = EarlyPosts({**early.messages, envelope[:HEADER_BYTES]: EarlyPost(envelope, tx.now, end)})
    tx.update_dcgka(name, early={**dcgka.early, sender: early})
    if end:  # others may have opened it
        tx.set_timer(TimerKind.GAPS, name, acknowledgements.GAP_DELAY_MS, if_unset=True)


def receive_forwarded(
    tx: Transaction, name: str, bearer: str, envelope: bytes, shared: SharedBox | None = None
) -> None:
    """A message of any member that a peer brings; it goes on to others. `shared`: it came out of this shared mailbox,
    and we are the bearer. Raises RemoteError for a fault of the bearer, and then nothing has changed."""
    one = forwarding.checked(tx, name, bearer, envelope)
    if one is None:
        return
    before, spent_us = tx.agent, tx.work_us
    with tx.attempt():  # what is wrong from here on is the author's fault
        receive_sealed(tx, name, one.author, one.sealed, one.end)
        forwarding.forward(tx, name, bearer, envelope, one, shared)
    if tx.agent is before:
        rate_limits.settle_work(tx, name, one.author, tx.work_us - spent_us)
    elif (peer := before.groups[name].links.peers.get(one.author)) is not None:
        # It does not show that the relationship with its author works (`pairing.check_silence`).
        tx.update_peer(name, one.author, last_received_at=peer.last_received_at)


def _checked(tx: Transaction, name: str, sender: str, envelope: bytes) -> bytes:
    """The message without its tags, one of which is ours. Raises Malformed or Unauthentic."""
    group = tx.group(name)
    if sender not in group.links.relationships:
        raise Unauthentic()
    sealed, relationship = check_tag(envelope, name, group.me, group.links.relationships[sender])
    pairing.update_relationship(tx, name, relationship)
    return sealed


def _place_of(tx: Transaction, name: str, author: str, envelope: bytes) -> Place | None:
    """Which key opens a message; None: its epoch has not begun here. Raises Malformed."""
    return place_of(envelope, message_keys.known_epochs(keys_of(tx, name), author))


def _open(tx: Transaction, name: str, sender: str, place: Place, envelope: bytes) -> None:
    _charge_steps(tx, name, sender, place.epoch, place.number)
    keys, key = message_keys.receiving_key(keys_of(tx, name), sender, place.epoch, place.number, tx.now)
    try:
        value = open_(key, place, envelope, name, sender)
    except Unauthentic:
        # The author has given us another ratchet than others, or two copies of its profile have made one epoch.
        tx.emit(Measure("dropped", "KeysDiffer"))
        channels.lose(tx, name, sender)
        if neighbours.is_ring(tx.group(name)):
            ring_channels.acknowledge_soon(tx, name, sender)
        else:
            acknowledgements.schedule_ack(tx, name, sender)
        return
    try:
        body = msgspec.convert(without_bytes(value), EventsBody)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a sealed message of another form ({error})") from None
    tx.update_dcgka(name, keys=keys)
    receiving.receive_events(tx, name, sender, body)
    group = tx.group(name)
    if sender not in group.log.reorder_buffers:  # what came before is here, too
        settle(tx, name, sender, (place.epoch, place.number + 1, group.chain(sender).seq))


def _charge_steps(tx: Transaction, name: str, author: str, epoch: str, number: int) -> None:
    """Charge the author for the keys before that of its message with this number. Raises TooMuchWork."""
    if steps := message_keys.steps(tx.group(name).dcgka.keys.receiving.get(author, ()), epoch, number):
        rate_limits.charge_work(tx, name, author, STEP_WORK_US * steps)


def settle(tx: Transaction, name: str, author: str, sent: tuple[str, int, int] | None) -> None:
    """An author says that its first messages in an epoch, so many, and those before have its events up to a place: if
    we have these, erase the keys of messages that were lost."""
    group = tx.group(name)
    if sent is None or not group.mode.heals or group.chain(author).seq < sent[2]:
        return
    _charge_steps(tx, name, author, *sent[:2])
    receiving = group.dcgka.keys.receiving
    epochs = receiving.get(author, ())
    after = message_keys.settled(epochs, *sent[:2])
    if after is not epochs:
        tx.update_dcgka(name, keys=replace(group.dcgka.keys, receiving={**receiving, author: after}))


def _open_early(tx: Transaction, name: str, author: str) -> None:
    """Open the messages that have waited for a key event of this author."""
    dcgka = tx.group(name).dcgka
    if author not in dcgka.early:
        return
    waiting = dcgka.early[author].messages
    places = {header: _place_of(tx, name, author, one.envelope) for header, one in waiting.items()}
    known = {header: place for header, place in places.items() if place is not None}
    rest = {header: one for header, one in waiting.items() if header not in known}
    others = {did: early for did, early in dcgka.early.items() if did != author}
    tx.update_dcgka(name, early={**others, author: EarlyPosts(rest)} if rest else others)
    for header, place in sorted(known.items()):
        with tx.attempt():
            _open(tx, name, author, place, waiting[header].envelope)


# --- timers ---------------------------------------------------------------------------------------------------------


def erase(tx: Transaction, name: str) -> None:
    """Erase keys and messages whose time is over."""
    if not tx.group(name).mode.heals:
        return
    dcgka = tx.group(name).dcgka
    early = {}
    for author, posts in dcgka.early.items():
        left = {header: one for header, one in posts.messages.items() if 0 <= tx.now - one.since < EARLY_MS}
        if left:
            early[author] = EarlyPosts(left) if len(left) < len(posts.messages) else posts
    tx.update_dcgka(name, keys=erase_expired(keys_of(tx, name), tx.now), early=early)
    if neighbours.is_ring(tx.group(name)):
        ring_channels.forget_former(tx, name)
    tx.set_timer(TimerKind.KEY_ERASURE, name, ROUND_MS)
