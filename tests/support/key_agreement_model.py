"""A model of groups whose keys heal: real membership rules, random histories, and adversaries who keep everything.

Everything that members send goes to all, ex-members included, in any order that respects causes. The oracle knows each
secret that there was. The knowledge of a set of people is what their states have ever held, closed under every
derivation of the key schedule.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import msgspec
from msgspec.structs import replace

from tests.support.membership_book import ADMINS, ANYONE, FLAT, Book, did, seed
from zerochat.crypto import hpke, two_party
from zerochat.crypto.encoding import INTEGER_MAX, did_key_bytes
from zerochat.crypto.prekeys import renewed
from zerochat.crypto.primitives import blake2b_keyed, x25519_public
from zerochat.errors import Refused, RemoteError
from zerochat.group.event_log.event import ADD, Event
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement.channel_reset import (
    ChannelReset,
    confirm,
    offer,
    receive_reset,
    reset,
    taken,
    with_channels,
)
from zerochat.group.key_agreement.complaint import Complaint
from zerochat.group.key_agreement.key_event import Directs, KeyEvent, pair_context
from zerochat.group.key_agreement.key_schedule import adopted, advanced, next_message
from zerochat.group.key_agreement.member_secrets import children, secrets_of
from zerochat.group.key_agreement.message_keys import receiving_key, sending_key
from zerochat.group.key_agreement.production import due, produce
from zerochat.group.key_agreement.reception import awaited, process
from zerochat.group.key_agreement.state import Keys, Membership
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes, parse_direct, parse_key_event
from zerochat.group.membership import (
    Policy,
    add_of,
    ancestors,
    check_control,
    may_change_role,
    may_remove,
    may_vote,
    resolve_view,
    voters_for,
    votes_for,
)
from zerochat.group.membership.view import View

NOW = 1_800_000_000_000
QUORUM3 = Policy(remove="quorum", quorum=3)
POLICIES = (FLAT, ADMINS, ANYONE, QUORUM3, Policy(remove="anyone", quorum=0, roles="admins"))
BYTES = 32
ROUNDS_MAX = 20
"""Rounds after which all is said. A history has needed five at most."""


@dataclass(frozen=True)
class Message:
    """One message: its place and its key."""

    author: str
    epoch: str
    number: int
    key: bytes
    control: tuple[str, ...]
    members: frozenset[str]
    """The view of its sender."""
    at: int
    """Its place among all things sent."""


@dataclass(frozen=True)
class Sent:
    """A key event with its direct messages, and what the oracle knows of it."""

    event: KeyEvent
    directs: Directs
    seed: bytes
    ratchet: bytes
    """Its author's ratchet before it."""
    secrets: tuple[bytes, ...]
    """Of the adoptions."""
    audience: frozenset[str]


@dataclass(frozen=True)
class SentReset:
    """A reset on its way to one member."""

    author: str
    reset: ChannelReset


@dataclass
class Node:
    """One member: its events, its keys, and what has not reached it yet."""

    name: str
    did: str
    person: str
    keys: Keys
    control: dict[str, Event] = field(default_factory=dict)
    queue: list[object] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    """By author: the number of its last key event that has come, ours to process or not."""
    heard: set[str] = field(default_factory=set)
    """The ids of those events."""
    memory: set[bytes] = field(default_factory=set)
    """Every secret that the state has ever held."""
    heads: set[str] = field(default_factory=set)
    contact: bytes = b""
    """The secret of its contact key; empty: members meet."""
    thief: "Thief | None" = None
    """A copy of this node that receives what it receives."""


@dataclass
class Thief:
    """The state of a member at one moment, and all traffic before and after it."""

    keys: Keys
    memory: set[bytes]
    read: set[tuple[str, int]]
    """The messages that had been opened before, by epoch and number."""


def secrets_in(value: object) -> set[bytes]:
    """All 32-byte values in a state."""
    found: set[bytes] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, bytes):
            if len(one) == BYTES:
                found.add(one)
        elif isinstance(one, msgspec.Struct):
            todo += [getattr(one, name) for name in one.__struct_fields__]
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, tuple | list):
            todo += one
    return found


def new_secrets(before: Keys, after: Keys) -> set[bytes]:
    """The secrets in a state that were not there before, apart from the channels."""
    changed: list[object] = [after.ratchet, after.epoch.chain_key]
    for name in ("ratchets", "operations", "receiving"):
        was = getattr(before, name)
        changed += [value for key, value in getattr(after, name).items() if was.get(key) is not value]
    return secrets_in(changed)


def below(known: set[bytes], sent: Sent) -> set[bytes]:
    """What these secrets open of the tree of an update: the nodes below known ones, and the secrets of members."""
    secrets, found = secrets_of(sent.seed, sent.audience), set[bytes]()
    first, keys = 1 << (len(sent.audience) - 1).bit_length(), {1: sent.seed}
    for node in range(1, first):
        keys[2 * node], keys[2 * node + 1] = children(keys[node])
        if keys[node] in known or keys[node] in found:
            found |= {keys[2 * node], keys[2 * node + 1]}
    for at, member in enumerate(sorted(sent.audience, key=did_key_bytes)):
        if keys[first + at] in known or keys[first + at] in found:
            found.add(secrets.of(member))
    return found


def round_trip(keys: Keys) -> Keys:
    """A state after a crash and a restore."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(keys), type=Keys)


class Violation(AssertionError):
    """A broken promise."""


class Model:
    """One random history."""

    def __init__(
        self,
        number: int,
        *,
        founders: int = 4,
        policy: Policy | None = None,
        eager: bool = False,
        crashes: float = 0.2,
        own_seeds: bool = True,
        last_resort: float = 0.5,
        resets: bool = False,
        rogue: bool = False,
        meet: bool = True,
        offers: float = 0.5,
        steals_contact: bool = True,
        path: str = "mesh",
    ) -> None:
        self.random = random.Random(number)
        self.policy = policy or self.random.choice(POLICIES)
        self.eager, self.crashes, self.own_seeds, self.last_resort = eager, crashes, own_seeds, last_resort
        self.book = Book(self.policy, "n0", body={"path": path})
        self.nodes: dict[str, Node] = {}
        self.one_time: dict[tuple[str, str], bytes] = {}
        self.views: dict[tuple[str, ...], View] = {}
        self.key_events: list[Sent] = []
        self.messages: list[Message] = []
        self.names = (f"n{at}" for at in count(1))
        self.resets, self.rogue = resets, did("n1") if rogue else ""
        self.strict = not resets and not rogue
        self.offers, self.steals_contact = offers, steals_contact
        self.meet, self.replays, self.to_contact = meet, list[tuple[Node, SentReset]](), 0
        self.complaints: list[Complaint] = []
        self.checks = self.updates = self.returns = self.clock = 0
        self.read: dict[str, set[tuple[str, int]]] = {}
        self.drawn: list[bytes] = []
        founder = self._enrol("n0", "n0")
        self._learn(founder, self.book.control[self.book.id])
        for _ in range(founders - 1):
            self.add(founder)
        self.drain()

    # --- people and membership ---

    def _enrol(self, name: str, person: str) -> Node:
        keys = Keys(self.book.id, did(name), held=renewed((), NOW, self.random.randbytes))
        node = self.nodes[did(name)] = Node(name, did(name), person, keys)
        node.contact = b"" if self.meet else self.random.randbytes(BYTES)
        return node

    def _context(self) -> StepContext:
        self.clock += 1
        self.drawn = []

        def draw(size: int) -> bytes:
            self.drawn.append(self.random.randbytes(size))
            return self.drawn[-1]

        return StepContext(NOW + self.clock * 1000, draw)

    def view_at(self, heads: tuple[str, ...]) -> View:
        if heads not in self.views:
            control = self.book.control
            self.views[heads] = resolve_view({name: control[name] for name in ancestors(control, heads)})
        return self.views[heads]

    def members_at(self, heads: tuple[str, ...]) -> frozenset[str]:
        return frozenset(self.view_at(heads).members)

    def heads(self, node: Node) -> tuple[str, ...]:
        return tuple(sorted(node.heads))

    def membership(self, node: Node) -> Membership:
        heads = self.heads(node)
        exports = self.view_at(heads).path == "ring"
        return Membership(self.members_at(heads), heads, self.members_at, exports=exports)

    def view(self, node: Node) -> View:
        return self.view_at(self.heads(node))

    def is_member(self, node: Node) -> bool:
        return node.did in self.view(node).members

    def _learn(self, node: Node, event: Event) -> None:
        """A membership event comes to a node, which then has a channel with the new member."""
        former = self.view(node).former if node.control else {}
        node.control[event.id] = event
        node.heads = (node.heads - set(event.deps)) | {event.id}
        self.returns += any(one in former for one in self.view(node).members)
        for other in [add_of(event).member] if event.type == ADD else []:
            self._connect(node, other)
        if event.type == ADD and add_of(event).member == node.did:
            for member in sorted(self.members_at((event.id,))):
                self._connect(node, member)

    def _connect(self, node: Node, peer: str) -> None:
        if peer == node.did or peer not in self.nodes:
            return
        if not self.meet:
            node.keys = with_channels(node.keys, {peer: x25519_public(self.nodes[peer].contact)})
            if self.random.random() < self.offers:
                self._offer(node, peer)
            return
        channel = node.keys.channels.get(peer)
        if channel is None and self.random.random() < self.last_resort:
            channel = two_party.reached(x25519_public(self.nodes[peer].keys.held[0].secret))
        ours, theirs = (
            self.one_time.setdefault(pair, self.random.randbytes(BYTES))
            for pair in ((node.did, peer), (peer, node.did))
        )
        if channel is None or not channel.given:
            channel = two_party.met(ours, x25519_public(theirs), channel)
            node.keys = replace(node.keys, channels={**node.keys.channels, peer: channel})

    def _say(self, node: Node, kind: str, body: dict[str, object]) -> None:
        """A membership event by a node, if it may; the event goes to all."""
        seen = [self.book.control[name] for name in self.heads(node)]
        event = self.book.make(node.name, kind, body, seen)
        try:
            check_control(event, self.book.control)
        except RemoteError:
            return
        self.book.control[event.id] = event
        self._learn(node, event)
        self._broadcast(node, event)

    def _broadcast(self, sender: Node, thing: object) -> None:
        for node in self.nodes.values():
            if node is not sender:
                node.queue.append(thing)

    def add(self, node: Node, person: str = "") -> None:
        """A newcomer, or a person that returns with a new key."""
        name = next(self.names)
        newcomer = self._enrol(name, person or name)
        before = len(self.book.control)
        self._say(node, ADD, self.book.addition(node.name, name))
        if len(self.book.control) == before:
            del self.nodes[newcomer.did]
            return
        for event in node.control.values():  # the welcome: the addition with its past
            self._learn(newcomer, event)
        newcomer.queue = [event for event in self.book.control.values() if event.id not in newcomer.control]
        newcomer.queue += self.key_events
        self.speak_keys(node)

    def remove(self, node: Node, target: str) -> None:
        view = self.view(node)
        if may_vote(view, node.did, target) and node.did not in voters_for(node.control, view, target):
            self._say(node, "vote", {"member": target})
            view = self.view(node)
        if may_remove(view, node.did, target, votes_for(node.control, view, target)):
            self._say(node, "remove", {"member": target, "after": 99})
            self.speak_keys(node)

    def leave(self, node: Node) -> None:
        self._say(node, "leave", {})

    def change_role(self, node: Node, target: str, role: str) -> None:
        if may_change_role(self.view(node), node.did, target, role):
            after = self.book.seqs.get(node.name, 0) + 1 if target == node.did else 99
            self._say(node, "role", {"member": target, "role": role, "after": after})

    # --- keys and messages ---

    def speak_keys(self, node: Node, update: bool = False) -> None:
        """All key events that are due before the next message."""
        for _ in range(5):
            membership = self.membership(node)
            if node.did not in membership.members or not (update or due(node.keys, membership, NOW)):
                return
            self._produce(node, membership, update)
            update = False
        raise Violation(f"{node.name} never gets done")

    def _produce(self, node: Node, membership: Membership, update: bool, reset: bool = False) -> None:
        before, context = node.keys, self._context()
        if before.knowers is None and not self.own_seeds and before.ratchets:
            # Without H3: a newcomer's first secret comes from the ratchet that it was given.
            [given, *_] = before.ratchets.values()
            draws = iter([blake2b_keyed(given, b"welcome")])
            context = StepContext(context.now, lambda size: next(draws, None) or self.random.randbytes(size))
            self.drawn = [blake2b_keyed(given, b"welcome")]
        keys, event, directs = produce(before, membership, context, update=update, reset=reset)
        if node.did == self.rogue and directs.messages and not self.strict:
            name = event.id
            event, directs = self._misbehave(before, event, directs)
            operations = {event.id if one == name else one: kept for one, kept in keys.operations.items()}
            keys = replace(keys, epoch=replace(keys.epoch, event=event.id), operations=operations)
        event = event.signed(seed(node.name))
        event.check_signature()
        self.updates += event.is_update
        secrets = tuple(before.operations[name].secrets.of(node.did) for name in event.adopts)
        drawn = self.drawn[1 if reset else 0] if event.is_update else b""
        sent = Sent(event, directs, drawn, before.ratchet, secrets, membership.members)
        self.key_events.append(sent)
        node.heard.add(event.id)
        node.memory |= {drawn} - {b""}
        self._keep(node, keys)
        self._broadcast(node, sent)

    def _misbehave(self, before: Keys, event: KeyEvent, directs: Directs) -> tuple[KeyEvent, Directs]:
        """The same event with a direct message that is left out, or has a secret of its own."""
        victim = self.random.choice(sorted(directs.messages))
        messages = dict(directs.messages)
        if self.random.random() < 0.5 and len(messages) > 1:
            del messages[victim]
        else:
            context = pair_context(self.book.id, event.author, victim)
            other = self.random.randbytes(BYTES)
            _, messages[victim] = two_party.send(before.channels[victim], context, other, self.random.randbytes)
        directs = Directs(messages)
        return replace(event, root=directs.root), directs

    def reset(self, node: Node) -> None:
        """A member loses all its keys, and begins anew."""
        members = self.membership(node)
        if node.did not in members.members or node.did == self.rogue:
            return
        if not self.meet:
            old, others = node.keys, {*self.view(node).members, *self.view(node).former} - {node.did}
            node.keys = Keys(old.group, old.me, number=old.number, numbers=old.numbers)
            node.keys = replace(node.keys, epoch=replace(node.keys.epoch, sent=old.epoch.sent))
            for peer in sorted(others):
                node.keys = with_channels(node.keys, {peer: x25519_public(self.nodes[peer].contact)})
                self._restart(node, peer)
            self._produce(node, members, update=True)
            return
        channels = {
            peer: two_party.reached(x25519_public(self.nodes[peer].keys.held[0].secret))
            for peer in sorted({*self.view(node).members, *self.view(node).former} - {node.did})
        }
        old = node.keys
        keys = Keys(old.group, old.me, number=old.number, numbers=old.numbers, channels=channels)
        node.keys = replace(keys, epoch=replace(keys.epoch, sent=old.epoch.sent))
        self._produce(node, members, update=True, reset=True)

    def _offer(self, node: Node, peer: str) -> None:
        node.keys, made = offer(node.keys, peer, self._context().now, self.random.randbytes)
        self._send_reset(node, peer, made)

    def _restart(self, node: Node, peer: str, number: int = INTEGER_MAX) -> None:
        node.keys, made = reset(node.keys, peer, self._context().now, self.random.randbytes, number)
        if made is not None:
            self._send_reset(node, peer, made)

    def _send_reset(self, node: Node, peer: str, made: ChannelReset) -> None:
        """A reset goes to the peer; any earlier one, to any member, comes again."""
        sent = SentReset(node.did, made)
        self.replays.append((self.nodes[peer], sent))
        self.nodes[peer].queue.append(sent)
        again, replayed = self.random.choice(self.replays)
        again.queue.append(replayed)

    def _take(self, node: Node, sent: SentReset) -> None:
        author, keys = self.nodes[sent.author], receive_reset(node.keys, sent.author, sent.reset)
        if keys is not None:
            node.keys = keys
            if sent.reset.lost:
                self._offer(node, sent.author)
        author.keys = confirm(author.keys, node.did, *taken(node.keys, sent.author))

    def settle(self) -> None:
        """Rounds in which every member says what is due, until all is said."""
        for _ in range(ROUNDS_MAX):
            self.drain()
            before = len(self.key_events)
            for node in self.nodes.values():
                self.speak_keys(node)
            if len(self.key_events) == before:
                break
        else:
            raise Violation("members answer each other for ever")
        self.drain()
        self.strict = True

    def _keep(self, node: Node, keys: Keys) -> None:
        if self.random.random() < self.crashes:
            restored = round_trip(keys)
            assert restored == keys
            keys = restored
        node.memory |= new_secrets(node.keys, keys)
        node.keys = keys

    def send(self, node: Node) -> None:
        if not self.is_member(node):
            return
        self.speak_keys(node)
        sending = sending_key(node.keys)
        self._keep(node, sending.keys)
        membership = self.membership(node)
        message = Message(
            node.did,
            sending.epoch,
            sending.number,
            sending.key,
            membership.heads,
            membership.members,
            len(self.messages) + len(self.key_events),
        )
        self.messages.append(message)
        self._broadcast(node, message)

    # --- delivery ---

    def deliver(self, node: Node, at: int) -> bool:
        """Deliver one thing of the queue, if its causes are here."""
        thing = node.queue[at]
        if not self._ready(node, thing):
            return False
        del node.queue[at]
        match thing:
            case Event():
                if thing.id not in node.control:
                    self._learn(node, thing)
            case Sent():
                self._hear(node, thing)
            case Message():
                self._read(node, thing)
            case SentReset():
                self._take(node, thing)
        return True

    def _ready(self, node: Node, thing: object) -> bool:
        match thing:
            case Event():
                return all(name in node.control for name in thing.deps)
            case Sent(event=event):
                here = node.seen.get(event.author, 0) == event.number - 1
                if not here or not all(name in node.control for name in event.control):
                    return False
                return node.heard.issuperset(awaited(node.keys, event, self.membership(node)))
            case Message():
                began = next(one for one in self.key_events if one.event.id == thing.epoch).event
                known = node.seen.get(thing.author, 0) >= began.number
                return known and all(name in node.control for name in thing.control)
            case SentReset():
                return True
        raise AssertionError

    def _hear(self, node: Node, sent: Sent) -> None:
        event = parse_key_event(event_bytes(sent.event), self.book.id)
        node.seen[event.author] = event.number
        node.heard.add(event.id)
        if event.author not in node.keys.numbers and node.did not in sent.audience and not event.prekey:
            return  # from before our time
        direct = sent.directs.direct(node.did)
        if direct is not None:
            direct = parse_direct(direct_bytes(direct), node.did)
        if node.thief:
            self._overhear(node, node.thief, sent)
        done = process(node.keys, event, direct, self.membership(node), NOW, node.contact)
        self.complaints += [done.complaint] if done.complaint else []
        if (
            self.strict
            and self.rogue not in (event.author, node.did)
            and (done.broken or done.complaint or (node.did in sent.audience and not done.follows))
        ):
            raise Violation(f"{node.name} cannot follow {event.author} at {event.number}")
        if direct is not None and not done.broken and not done.complaint:
            node.memory.add(sent.seed or self._snapshot(sent))
        self._keep(node, done.keys)
        self.to_contact += done.by_contact
        if not self.meet and done.by_contact:
            self._offer(node, event.author)
        if not self.meet and done.broken:
            self._restart(node, event.author, event.number)
        if self.eager and self.is_member(node) and due(node.keys, self.membership(node), NOW) == "other":
            self.speak_keys(node)

    def _read(self, node: Node, message: Message) -> None:
        if node.did not in message.members:
            return
        try:
            keys, key = receiving_key(node.keys, message.author, message.epoch, message.number, NOW)
        except Refused as error:
            if not self.strict or self.rogue in (message.author, node.did):
                return
            raise Violation(f"{node.name} cannot read {message}: {error}") from None
        if message.author == self.rogue and key != message.key:
            return
        if key != message.key:
            raise Violation(f"{node.name} has another key of {message}")
        self.checks += 1
        self.read.setdefault(node.did, set()).add((message.epoch, message.number))
        self._keep(node, keys)

    def deliver_some(self, node: Node, most: int) -> None:
        for _ in range(most):
            if node.queue:
                self.deliver(node, self.random.randrange(len(node.queue)))

    def drain(self) -> None:
        """Deliver everything."""
        moved = True
        while moved:
            moved = False
            for node in list(self.nodes.values()):
                for at in reversed(range(len(node.queue))):
                    if at < len(node.queue):
                        moved |= self.deliver(node, at)
        if stuck := [(node.name, one) for node in self.nodes.values() for one in node.queue]:
            raise Violation(f"never delivered: {stuck[:3]}")

    # --- histories ---

    def act(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if not self.is_member(node):
            self.deliver_some(node, 5)
            return
        others = sorted(self.view(node).members.keys() - {node.did})
        target = self.random.choice(others) if others else ""
        roll = self.random.random()
        if roll < 0.40:
            self.send(node)
        elif roll < 0.46:
            self.speak_keys(node, update=True)
        elif roll < 0.52 and len(self.nodes) < 14:
            gone = [one.person for one in self.nodes.values() if one.did in self.view(node).former]
            self.add(node, self.random.choice(gone) if gone and self.random.random() < 0.4 else "")
        elif roll < 0.60 and len(others) > 1:
            self.remove(node, target)
        elif roll < 0.615 and len(others) > 2:
            self.leave(node)
        elif roll < 0.65 and self.resets:
            self.reset(node)
        elif roll < 0.64 and target:
            who = self.random.choice([target, node.did])
            self.change_role(node, who, self.random.choice(["reader", "writer", "admin", "owner"]))
        else:
            self.deliver_some(node, self.random.randrange(1, 12))

    def run(self, actions: int = 90) -> "Model":
        for _ in range(actions):
            self.act()
        if self.strict:
            self.drain()
        else:
            self.settle()
        for node in self.nodes.values():
            self.send(node)
        self.drain()
        return self

    # --- adversaries ---

    def _snapshot(self, sent: Sent) -> bytes:
        """An author's ratchet after the adoptions of an event that is no update."""
        ratchet = sent.ratchet
        for secret in sent.secrets:
            ratchet = adopted(ratchet, secret)
        return ratchet

    def readable(self, known: set[bytes]) -> Callable[[Message], bool]:
        """Which messages these secrets open, closed under every derivation."""
        known = set(known)
        epochs: dict[str, bytes] = {}
        for sent in self.key_events:
            event = sent.event
            if event.is_update:
                start = secrets_of(sent.seed, sent.audience).of(event.author)
                known |= below(known, sent)
            else:
                start = sent.ratchet
                for secret in sent.secrets:
                    both = start in known and secret in known
                    start = adopted(start, secret)
                    if both:
                        known.add(start)
            step = advanced(start, event.place)
            if start in known:
                known |= {step.epoch_key, step.ratchet}
            epochs[event.id] = step.epoch_key

        def opens(message: Message) -> bool:
            chain_key = epochs[message.epoch]
            for _ in range(message.number):
                if chain_key in known:
                    return True
                _, chain_key = next_message(chain_key)
            return chain_key in known or next_message(chain_key)[0] in known

        return opens

    def steal(self, node: Node) -> Thief:
        """Copy the whole state of a member."""
        memory = secrets_in((node.keys, node.contact if self.steals_contact else b""))
        for sent in self.key_events:
            content = sent.seed or self._snapshot(sent)
            if sent.event.number <= node.keys.numbers.get(sent.event.author, 0) and self._unseals(memory, node, sent):
                memory.add(content)
        own = {(one.epoch, one.number) for one in self.messages if one.author == node.did}
        node.thief = Thief(node.keys, memory, self.read.get(node.did, set()) | own)
        return node.thief

    def _unseals(self, secrets: set[bytes], node: Node, sent: Sent) -> bool:
        """Whether one of these secrets opens the direct message of an event for this node."""
        message = sent.directs.messages.get(node.did, b"")
        context = pair_context(node.keys.group, sent.event.author, node.did)
        for size in (1, 5) if message else ():
            for secret in secrets:
                with suppress(RemoteError):
                    hpke.seal_open(secret, context + message[:size], message[size:])
                    return True
        return False

    def _overhear(self, node: Node, thief: Thief, sent: Sent) -> None:
        """The copy of a node processes what the node does."""
        direct = sent.directs.direct(node.did)
        done = process(
            thief.keys, sent.event, direct, self.membership(node), NOW, node.contact if self.steals_contact else b""
        )
        thief.memory |= new_secrets(thief.keys, done.keys)
        if direct is not None and not done.broken:
            thief.memory.add(sent.seed or self._snapshot(sent))
        thief.keys = done.keys

    def stolen(self, thief: Thief, healed: int) -> tuple[int, int]:
        """How many messages a thief opens: of those read before the theft, and of those from this one on."""
        opens = self.readable(thief.memory)
        before = sum((one.epoch, one.number) in thief.read and opens(one) for one in self.messages)
        return before, sum(map(opens, self.messages[healed:]))

    def leaks(self) -> tuple[int, int]:
        """How many messages people read that their senders did not count as members: alone, and all together."""
        persons: dict[str, set[bytes]] = {}
        for node in self.nodes.values():
            persons.setdefault(node.person, set()).update(node.memory)
        alone = {person: self.readable(known) for person, known in persons.items()}
        coalitions: dict[frozenset[str], Callable[[Message], bool]] = {}
        single = pooled = 0
        for message in self.messages:
            outside = frozenset(persons) - {self.nodes[one].person for one in message.members}
            single += any(alone[person](message) for person in outside)
            if outside not in coalitions:
                coalitions[outside] = self.readable(set().union(*(persons[person] for person in outside)))
            pooled += coalitions[outside](message)
        return single, pooled
