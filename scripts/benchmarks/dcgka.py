"""Keys that heal (DCGKA): update, adoption, removal and message, for their author, the network and one member.

The goals are the figures of the paper's implementation (Weidner et al. 2021; Java, means of 25 runs, from its published
data), or less; they are not measured here, so compare the bytes, and the times by their order only. The floor is the
least for one secret to each member by X25519: two key pairs, an agreement and an AEAD for each. Beside an update stand
what sender keys and pairwise keys can do for a new secret, which heals less: a new chain key of one author in a frame
for all, and an envelope to each. All times are processor time, without disk and network; the author signs, the member
verifies.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings as sodium

from benchmarks import Figure, Report, Row, scaled, take_turns
from benchmarks.keys import FLOOR_OPEN, FLOOR_SEAL, Floor, Pairwise, SenderKeys, timed
from benchmarks.ours.core import HUB, MULTI, SIGNED, relationships, sample_text
from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url, compact_msgpack, did_key
from zerochat.crypto.primitives import ed25519_public, sha256, x25519_public
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement.key_event import KeyEvent
from zerochat.group.key_agreement.key_schedule import KEY_BYTES, next_message
from zerochat.group.key_agreement.production import Produced, due, produce
from zerochat.group.key_agreement.reception import process
from zerochat.group.key_agreement.state import Keys, Membership
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes, parse_direct, parse_key_event
from zerochat.group.key_modes.dcgka import Place, open_, place_of, seal
from zerochat.group.key_modes.sender_key import wrap_key
from zerochat.group.wire.event_runs import read_runs, with_bytes, without_bytes, write_runs
from zerochat.group.wire.frame import SECTIONS_MAX, seal_frame
from zerochat.group.wire.messages import EventsBody
from zerochat.group.wire.padding import encode_payload

MEMBERS, MEMBERS_QUICK, MEMBERS_LEAST = (8, 64, 128, 1000), (8, 64, 128), (4,)
ROUNDS, ROUNDS_QUICK = 15, 5
GROUP = b64url(sha256(b"group"))
HEADS = (b64url(sha256(b"heads")),)
UPDATE_MS_GOALS = {64: 25.0, 128: 60.0, 1000: 250.0}
UPDATE_BYTES_GOALS = {8: 2_389, 64: 20_198, 128: 25_600}
OWN_BYTES_GOAL = 717
REMOVAL_MEMBERS, REMOVAL_GOAL = 100, 100
PAPER = "the paper's, as published"
PAPER_AUTHOR_MS, PAPER_MEMBER_MS = {8: 2.4, 64: 25.3, 128: 63.0}, {8: 3.0, 64: 26.6, 128: 67.0}
PAPER_BYTES = {8: 2_389, 64: 20_198, 128: 40_553}
PAPER_MESSAGE_US, PAPER_MESSAGE_BYTES = (80, 500), 171
"""Of a message to 128 members, for its author and a member, and of one with this text."""
TEXT_BYTES = 32
OVERHEAD_GOAL = PAPER_MESSAGE_BYTES - TEXT_BYTES
SENDER_KEY, ENVELOPES = "sender keys: one author's new key", "pairwise keys: an envelope to each"


def measure(quick: bool) -> Report:
    members = scaled(quick, MEMBERS, MEMBERS_QUICK, MEMBERS_LEAST)
    rounds = scaled(quick, ROUNDS, ROUNDS_QUICK, 1)
    rows = [row for count in members for row in update_rows(Circle(count), rounds)]
    rows += removal_rows(scaled(quick, REMOVAL_MEMBERS, REMOVAL_MEMBERS, 4))
    rows += message_rows(rounds)
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


def published(value: float | None) -> dict[str, Figure]:
    """A figure of the paper's, as a peer."""
    return {} if value is None else {PAPER: Figure.of([value])}


def other_keys(members: int) -> dict[str, Callable[[], Sequence[bytes]]]:
    """A new secret for all others under keys of other kinds, in groups of a size that these can have."""
    if members - 1 > SECTIONS_MAX:
        return {}
    to, secret = [mine for mine, _ in relationships(members - 1)], os.urandom(KEY_BYTES)
    moment = StepContext(0, os.urandom)
    envelopes = Pairwise(MULTI, members - 1, {"key": b64url(secret)})
    return {SENDER_KEY: lambda: [wrap_key(seal_frame(secret, GROUP, HUB, to, moment))], ENVELOPES: envelopes.seal}


def update_rows(circle: Circle, rounds: int) -> Iterator[Row]:
    count = len(circle.names)
    sent = circle.send(0, update=True)
    calls = {
        "author": milliseconds(lambda: circle.make(0, update=True)),
        "member": milliseconds(lambda: circle.follow(1, sent)),
        "floor": floor_of(count),
    }
    others = other_keys(count)
    calls |= {name: milliseconds(call) for name, call in others.items()}
    found = {name: Figure.of(values) for name, values in take_turns(calls, rounds).items()}
    floor_is, goal = "bare primitives", UPDATE_MS_GOALS.get(count)
    peers = published(PAPER_AUTHOR_MS.get(count)) | {name: found[name] for name in others}
    yield Row(f"update of {count}: author", "ms", "lower", found["author"], found["floor"], floor_is, peers, goal)
    peers = published(PAPER_MEMBER_MS.get(count))
    yield Row(f"update of {count}: one member", "ms", "lower", found["member"], peers=peers)
    sizes = sizes_of(circle)
    bytes_goal = UPDATE_BYTES_GOALS.get(count)
    peers = published(PAPER_BYTES.get(count))
    peers |= {name: Figure.of([sum(map(len, call()))]) for name, call in others.items()}
    everything = Figure.of([sizes.everything])
    yield Row(f"update of {count}: for all", "B", "lower", everything, peers=peers, goal=bytes_goal)
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


class Message:
    """A signed post of the first of these members, sealed for all."""

    def __init__(self, text: str) -> None:
        self._seed, self._chain = sha256(b"author"), os.urandom(KEY_BYTES)
        self._author = did_key(ed25519_public(self._seed))
        self._place = Place(b64url(os.urandom(32)), 7)
        before, time_ms = b64url(os.urandom(32)), 10**12
        self._event = Event(GROUP, POST, self._author, 1000, before, (), (), time_ms, time_ms, {"text": text})

    def body(self, event: Event | None = None) -> dict[str, Any]:
        """Without a signature, unless the event has one."""
        runs = write_runs([event or self._event], self._author)
        return {"runs": runs, "view": b64url(bytes(16)), "have": [1000, 2000]}

    def seal(self) -> list[bytes]:
        key, _ = next_message(self._chain)
        return [seal(key, self._place, GROUP, self._author, self._signed_body())]

    def _signed_body(self) -> dict[str, Any]:
        return with_bytes(self.body(self._event.signed(self._seed)))

    def open(self, envelopes: Sequence[bytes]) -> object:
        key, _ = next_message(self._chain)
        place = place_of(envelopes[0], [self._place.epoch])
        assert place is not None
        body = msgspec.convert(without_bytes(open_(key, place, envelopes[0], GROUP, self._author)), EventsBody)
        for event in self.read(body):
            event.check_signature()
        return body

    def read(self, body: object) -> Sequence[Event]:
        assert isinstance(body, EventsBody)
        return list(read_runs(GROUP, body.runs, self._author))

    def overhead(self) -> int:
        """Bytes beside the content without a signature, before padding."""
        return unpadded(self.seal()[0], self._signed_body()) - len(compact_msgpack(with_bytes(self.body())))


def unpadded(envelope: bytes, body: Mapping[str, Any]) -> int:
    """The size that an envelope with this body would have without padding."""
    padded = encode_payload(compact_msgpack(dict(body)))
    return len(envelope) - len(padded) + len(padded.rstrip(b"\0"))


def message_rows(rounds: int) -> Iterator[Row]:
    """A message, whatever the number of members; sender keys beside it."""
    ours = Message(sample_text(TEXT_BYTES))
    body = ours.body()
    theirs, floor = SenderKeys(body), Floor(body)
    sealed = ours.seal(), theirs.seal()
    saying = {"ours": ours.seal, SIGNED: lambda: (ours.body(), theirs.seal()), "floor": floor.seal}
    reading = partial(ours.open, sealed[0]), lambda: ours.read(theirs.open(sealed[1]))
    said = timed(dict(saying), rounds)
    heard = timed({"ours": reading[0], SIGNED: reading[1], "floor": floor.open}, rounds)
    for who, found, floor_is, paper in zip(
        ("author", "one member"), (said, heard), (FLOOR_SEAL, FLOOR_OPEN), PAPER_MESSAGE_US, strict=True
    ):
        peers = published(paper) | {SIGNED: found[SIGNED]}
        yield Row(f"message: {who}", "us", "lower", found["ours"], found["floor"], floor_is, peers)
    beside = unpadded(theirs.seal()[0], body) - len(compact_msgpack(body))
    peers = published(OVERHEAD_GOAL) | {SIGNED: Figure.of([beside])}
    overhead = Figure.of([ours.overhead()])
    yield Row("message: overhead before padding", "B", "lower", overhead, peers=peers, goal=OVERHEAD_GOAL)
