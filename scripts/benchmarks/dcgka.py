"""Keys that heal (DCGKA): an update, an adoption and a removal, for their author, the network and one member.

The goals are the figures of the paper's implementation (Weidner et al. 2021; Java, means of 25 runs, from its published
data), or less; they are not measured here, so compare the bytes, and the times by their order only. The floor is the
least for one secret to each member by X25519: two key pairs, an agreement and an AEAD for each. All times are processor
time, without disk and network; the author signs, the member verifies.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings as sodium

from benchmarks import Figure, Report, Row, scaled, take_turns
from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, sha256, x25519_public
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement.key_event import KeyEvent
from zerochat.group.key_agreement.production import Produced, due, produce
from zerochat.group.key_agreement.reception import process
from zerochat.group.key_agreement.state import Keys, Membership
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes, parse_direct, parse_key_event

MEMBERS, MEMBERS_QUICK, MEMBERS_LEAST = (8, 64, 128, 1000), (8, 64, 128), (4,)
ROUNDS, ROUNDS_QUICK = 15, 5
GROUP = b64url(sha256(b"group"))
HEADS = (b64url(sha256(b"heads")),)
UPDATE_MS_GOALS = {64: 25.0, 128: 60.0, 1000: 250.0}
UPDATE_BYTES_GOALS = {8: 2_389, 64: 20_198, 128: 25_600}
OWN_BYTES_GOAL = 717
REMOVAL_MEMBERS, REMOVAL_GOAL = 100, 100


def measure(quick: bool) -> Report:
    members = scaled(quick, MEMBERS, MEMBERS_QUICK, MEMBERS_LEAST)
    rounds = scaled(quick, ROUNDS, ROUNDS_QUICK, 1)
    rows = [row for count in members for row in update_rows(Circle(count), rounds)]
    rows += removal_rows(scaled(quick, REMOVAL_MEMBERS, REMOVAL_MEMBERS, 4))
    return Report(rows)


class Circle:
    """A group in which two members are followed: the first and the second. All channels are open."""

    def __init__(self, members: int) -> None:
        self.random = random.Random(members).randbytes
        self.seeds = [sha256(b"%d" % at) for at in range(members)]
        self.names = [did_key(ed25519_public(seed)) for seed in self.seeds]
        self.view = frozenset(self.names)
        self.pairs: dict[tuple[int, int], bytes] = {}
        self.keys = {at: self._keys(at) for at in (0, 1)}
        for at, other in ((0, 1), (1, 0), (0, 1)):
            self.take(other, self.send(at, update=True))

    def _pair(self, one: int, other: int) -> bytes:
        return self.pairs.setdefault((one, other), self.random(32))

    def _keys(self, at: int) -> Keys:
        others = [other for other in range(len(self.names)) if other != at]
        channels = {
            self.names[other]: two_party.met(self._pair(at, other), x25519_public(self._pair(other, at)))
            for other in others
        }
        return Keys(GROUP, self.names[at], channels=channels)

    @property
    def membership(self) -> Membership:
        view = self.view
        return Membership(view, HEADS, lambda heads: view)

    def make(self, at: int, update: bool = False) -> tuple[Produced, KeyEvent]:
        """A signed event, without keeping the state after it."""
        made = produce(self.keys[at], self.membership, StepContext(0, self.random), update=update)
        return made, made.event.signed(self.seeds[at])

    def send(self, at: int, update: bool = False) -> tuple[bytes, bytes | None]:
        """An event, and the direct message for the other of the two, as bytes."""
        made, event = self.make(at, update)
        self.keys[at] = made.keys
        direct = made.directs.direct(self.names[1 - at])
        return event_bytes(event), None if direct is None else direct_bytes(direct)

    def follow(self, at: int, sent: tuple[bytes, bytes | None]) -> Keys:
        """The state after an event of the other of the two, which is checked."""
        event = parse_key_event(sent[0], GROUP)
        event.check_signature()
        direct = None if sent[1] is None else parse_direct(sent[1], self.names[at])
        done = process(self.keys[at], event, direct, self.membership, 0)
        assert done.follows
        return done.keys

    def take(self, at: int, sent: tuple[bytes, bytes | None]) -> None:
        self.keys[at] = self.follow(at, sent)


def milliseconds(call: Callable[[], object]) -> Callable[[], float]:
    def sample() -> float:
        begun = time.thread_time()
        call()
        return (time.thread_time() - begun) * 1e3

    return sample


def floor_of(members: int) -> Callable[[], float]:
    """One secret to each other member by bare primitives."""
    publics = [x25519_public(sha256(b"%d" % at)) for at in range(members - 1)]

    def wraps() -> None:
        for public in publics:
            secret = sha256(public)
            for _ in range(2):
                sodium.crypto_scalarmult_base(secret)
            shared = sodium.crypto_scalarmult(secret, public)
            ChaCha20Poly1305(shared).encrypt(bytes(12), bytes(100), b"")

    return milliseconds(wraps)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of an update: in all, and for one member."""

    everything: int
    own: int


def sizes_of(circle: Circle) -> Sizes:
    made, event = circle.make(0, update=True)
    head = len(event_bytes(event))
    directs = [direct for name in circle.names[1:] if (direct := made.directs.direct(name)) is not None]
    return Sizes(head + sum(len(one.message) for one in directs), head + max(len(direct_bytes(one)) for one in directs))


def update_rows(circle: Circle, rounds: int) -> Iterator[Row]:
    count = len(circle.names)
    sent = circle.send(0, update=True)
    calls = {
        "author": milliseconds(lambda: circle.make(0, update=True)),
        "member": milliseconds(lambda: circle.follow(1, sent)),
        "floor": floor_of(count),
    }
    found = {name: Figure.of(values) for name, values in take_turns(calls, rounds).items()}
    floor_is, goal = "bare primitives", UPDATE_MS_GOALS.get(count)
    yield Row(f"update of {count}: author", "ms", "lower", found["author"], found["floor"], floor_is, goal=goal)
    yield Row(f"update of {count}: one member", "ms", "lower", found["member"])
    sizes = sizes_of(circle)
    bytes_goal = UPDATE_BYTES_GOALS.get(count)
    yield Row(f"update of {count}: for all", "B", "lower", Figure.of([sizes.everything]), goal=bytes_goal)
    yield Row(f"update of {count}: what one member fetches", "B", "lower", Figure.of([sizes.own]), goal=OWN_BYTES_GOAL)
    circle.take(1, sent)
    adoption = circle.send(1)
    calls = {"author": milliseconds(lambda: circle.make(1)), "member": milliseconds(lambda: circle.follow(0, adoption))}
    found = {name: Figure.of(values) for name, values in take_turns(calls, rounds).items()}
    yield Row(f"adoption in {count}: author", "ms", "lower", found["author"])
    yield Row(f"adoption in {count}: one member", "ms", "lower", found["member"])
    yield Row(f"adoption in {count}: for all", "B", "lower", Figure.of([len(adoption[0])]))


def removal_rows(members: int) -> Sequence[Row]:
    """The secrets that travel when a member is removed and then every other one speaks."""
    circle = Circle(members)
    circle.view -= {circle.names[-1]}
    wraps = 0
    assert due(circle.keys[0], circle.membership, 0) == "update"
    made, _ = circle.make(0)
    wraps += len(made.directs.messages)
    circle.take(1, circle.send(0))
    made, _ = circle.make(1)
    wraps += (members - 2) * len(made.directs.messages)  # all others do what the second does
    sender_keys = float((members - 1) * (members - 2))
    peers = {"sender keys, by their number": Figure.of([sender_keys])}
    figure = Figure.of([wraps])
    return [Row(f"removal at {members}: secrets wrapped", "secrets", "lower", figure, peers=peers, goal=REMOVAL_GOAL)]
