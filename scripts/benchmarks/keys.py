"""Kinds of keys: the cost of one message to many members, for its author, the network and one recipient.

Two measurements. *Sealing and opening* is where the kinds of keys differ: from the events of a message to the bytes on
the queues and back, by the product's own functions and for any number of members, including more than a group
(`MEMBERS_MAX`) or a frame (`SECTIONS_MAX`) can have; the latter is reported as missing. *The whole core* runs a command
to its effects, and an envelope to its notifications, in real groups of the real core, with delivery and order; without
disk and network.

*Tags in place of signatures* (`key_modes/deniable.py`) are measured beside them: one encryption for all and a MAC for
each, with the key of the message at hand. Their floor is the encryption and the MACs alone.

The floor of the others is the minimum of signing once for all: one ChaCha20-Poly1305 of the same content under a fresh
key, and one Ed25519 signature over it and the previous signature, each by the cheapest installed binding. Texts that
are long enough to be compressed are compressed there too. All times are processor time.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import cycle
from typing import Any, Protocol

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings as sodium
from zstandard import ZstdCompressor, ZstdDecompressor

from benchmarks import Figure, Report, Row, Scale, scaled, take_turns
from benchmarks.ours.core import GROUP, HUB, MULTI, SIGNED, SINGLE, Star, relationships, sample_text
from zerochat.crypto.compression import SMALL_LEVEL
from zerochat.crypto.encoding import b64url, compact_msgpack, did_key
from zerochat.crypto.primitives import ed25519_public, x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.message import Message, new_id
from zerochat.evidence.messages import data_header, parse_data, sign_data
from zerochat.group.effects import Publish
from zerochat.group.engine import step
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import BatchEnded, Received, SendPost, StepContext
from zerochat.group.key_modes import MODES, OwnPlace, Recipient
from zerochat.group.key_modes.deniable import add_tags, check_tag
from zerochat.group.key_modes.sender_key import open_content, open_sealed, ratchet, seal_content
from zerochat.group.sync.positions import PART_MAX, WHOLE_MAX
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.frame import SECTIONS_MAX
from zerochat.group.wire.messages import EVENTS, EventsBody, read_body
from zerochat.group.wire.padding import encode_payload, is_worth_compressing
from zerochat.limits import LATEST_AUTHORS_MAX, MEMBERS_MAX

MEMBERS, MEMBERS_QUICK = (1, 2, 8, 32, 64, 256), (1, 8, 64)
SIZES = {"50 letters": 50, "1 kB": 1000}
ROUNDS, ROUNDS_QUICK = 25, 7
SAMPLE_S = 0.005
"""One figure is of as many calls as take about so long."""
POOL = 8
"""Different envelopes of one message that a member opens: its section of a frame is drawn by lot."""
SETTLE_MS = 10_000
"""Virtual time for the members' exchanges after a join."""
FLOOR_SEAL, FLOOR_OPEN = "one seal, one signature", "one open, one verification"
FLOOR_TAGS = "one seal, one digest, a keyed BLAKE2b for each"
TAGGED = "deniable"
TAGGED_PARTS = 10
"""Tags cost at most such a part of an envelope for each."""
FLOOR_PACK, FLOOR_UNPACK = f"one compression, {FLOOR_SEAL}", f"{FLOOR_OPEN}, one decompression"
GOAL_TIMES = 1.5
"""Of the floor, for sender keys; and of the least, for how many they are for."""

Call = Callable[[], object]


class Kind(Protocol):
    """One kind of keys, and a message to send with them."""

    def seal(self) -> list[bytes]:
        """The envelopes for all members."""
        ...

    def open(self, envelopes: Sequence[bytes]) -> object:
        """The content that one member reads from its copy."""
        ...


def measure(quick: bool) -> Report:
    members, rounds = scaled(quick, (MEMBERS, ROUNDS), (MEMBERS_QUICK, ROUNDS_QUICK), ((1, 2), 1))
    rows: list[Row] = []
    for what, size in SIZES.items():
        rows += sealing_rows(what, sample_text(size), members, rounds)
        rows += tagged_rows(what, sample_text(size), members, rounds)
    stars = {keys: Star(MEMBERS_MAX, keys) for keys in MODES}
    for count in sorted({min(count, MEMBERS_MAX - 1) for count in (members[:2] if quick else members)}):
        rows += core_rows(count, stars, rounds)
    return Report(rows)


def per_call(call: Call) -> Callable[[], float]:
    """Times as many calls as fit a sample: microseconds of the processor for each."""
    begun = time.thread_time()
    call()
    calls = 1 if Scale.smoke else max(1, int(SAMPLE_S / max(1e-6, time.thread_time() - begun)))

    def sample() -> float:
        begun = time.thread_time()
        for _ in range(calls):
            call()
        return (time.thread_time() - begun) / calls * 1e6

    return sample


def timed(calls: "dict[str, Call]", rounds: int) -> dict[str, Figure]:
    samples = take_turns({name: per_call(call) for name, call in calls.items()}, rounds)
    return {name: Figure.of(found) for name, found in samples.items()}


# --- sealing and opening ----------------------------------------------------------------------------------------------


def body_of(text: str, members: int) -> dict[str, Any]:
    """The message of a member with one event in a group of this many others, as `outbox.events_body` builds it."""
    author = did_key(ed25519_public(bytes(32)))
    event = Event(b64url(bytes(32)), POST, author, 1000, b64url(os.urandom(32)), (), (), 10**12, 10**12, {"text": text})
    have = [1000 + 7 * number % 8999 for number in range(members + 1)]
    positions: dict[str, Any] = {"have": have}
    if members + 1 > WHOLE_MAX:
        latest = list(enumerate(have[:LATEST_AUTHORS_MAX]))
        positions = {"have": have[:PART_MAX], "have_from": members // 2, "latest": latest}
    return {"runs": write_runs([event], author), "view": b64url(os.urandom(16)), **positions}


class Pairwise:
    """An envelope for each member, or one frame for all."""

    def __init__(self, keys: str, members: int, body: dict[str, Any]) -> None:
        self._mode, self._packer = MODES[keys], PACKERS["didcomm/v2"]
        pairs = relationships(members)
        secrets = [os.urandom(32) for _ in pairs]
        self._here = OwnPlace(GROUP, HUB, os.urandom(32))
        self._to = [Recipient(mine, x25519_public(secret)) for (mine, _), secret in zip(pairs, secrets, strict=True)]
        self._member = members // 2
        self._there = OwnPlace(GROUP, pairs[self._member][0].member, secrets[self._member])
        self._author = pairs[self._member][1]
        self._body = body

    def seal(self) -> list[bytes]:
        moment = StepContext(10**12, os.urandom)
        message = Message(EVENTS, new_id(os.urandom), self._body)
        return [one.envelope for one in self._mode.seal(self._here, message, self._to, self._packer, moment)]

    def open(self, envelopes: Sequence[bytes]) -> object:
        mine = envelopes[self._member if len(envelopes) > 1 else 0]
        _, message = self._mode.open(self._there, mine, self._author, self._packer)
        return read_body(message, EventsBody)


class SenderKeys:
    """One message for all, each of whom has received the stream up to here."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._seed, self._chain = os.urandom(32), os.urandom(32)
        self._alias, self._before = os.urandom(16), os.urandom(64)
        self._body = body

    def seal(self) -> list[bytes]:
        key, _ = ratchet(self._chain)
        head = data_header(10**12, ed25519_public(self._seed), self._alias)
        return [sign_data(self._seed, head, seal_content(key, self._body, head), self._before)]

    def open(self, envelopes: Sequence[bytes]) -> object:
        message = parse_data(envelopes[0])
        key, _ = ratchet(self._chain)
        return msgspec.convert(open_content(key, message), EventsBody)


class Tagged:
    """One sealed message for all, with a tag for each."""

    def __init__(self, members: int, body: dict[str, Any]) -> None:
        pairs = relationships(members)
        self._to = [mine for mine, _ in pairs]
        self._author, self._reader = pairs[members // 2][1], pairs[members // 2][0].member
        self._header, self._chain, self._body = b"\2" + os.urandom(36), os.urandom(32), body

    def seal(self) -> list[bytes]:
        key, _ = ratchet(self._chain)
        return [add_tags(self._header + seal_content(key, self._body, self._header), GROUP, HUB, self._to)]

    def open(self, envelopes: Sequence[bytes]) -> object:
        sealed, _ = check_tag(envelopes[0], GROUP, self._reader, self._author)
        key, _ = ratchet(self._chain)
        header, content = sealed[: len(self._header)], sealed[len(self._header) :]
        return msgspec.convert(open_sealed(key, content, header), EventsBody)


class TagFloor:
    """The primitives of that over as many bytes."""

    def __init__(self, members: int, body: dict[str, Any]) -> None:
        self._key, self._nonce, self._keys = os.urandom(32), os.urandom(12), [os.urandom(32) for _ in range(members)]
        self._content = encode_payload(compact_msgpack(body))
        self._sealed = ChaCha20Poly1305(self._key).encrypt(self._nonce, self._content, b"")

    def seal(self) -> list[bytes]:
        sealed = ChaCha20Poly1305(self._key).encrypt(self._nonce, self._content, b"")
        digest = blake2b(sealed, digest_size=32).digest()
        return [blake2b(digest, key=key, digest_size=16).digest() for key in self._keys]

    def open(self) -> bytes:
        digest = blake2b(self._sealed, digest_size=32).digest()
        blake2b(digest, key=self._keys[0], digest_size=16).digest()
        return ChaCha20Poly1305(self._key).decrypt(self._nonce, self._sealed, b"")


class Floor:
    """The primitives over as many bytes."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._key, self._nonce, self._before = os.urandom(32), os.urandom(12), os.urandom(64)
        self._public, self._secret = sodium.crypto_sign_seed_keypair(os.urandom(32))
        self._plain = compact_msgpack(body)
        self._bound, self._content = os.urandom(8 + 32 + 16), encode_payload(self._plain)
        self.tries, self.compresses = is_worth_compressing(len(self._plain)), len(self._content) < len(self._plain)
        self._squeeze = ZstdCompressor(level=SMALL_LEVEL)
        self._packed, self._unpack = self._squeeze.compress(self._plain), ZstdDecompressor()
        self._signed = self.seal()

    def seal(self) -> bytes:
        if self.tries:
            self._squeeze.compress(self._plain)
        sealed = ChaCha20Poly1305(self._key).encrypt(self._nonce, self._content, self._bound)
        return sodium.crypto_sign(self._bound + sealed + self._before, self._secret)

    def open(self) -> bytes:
        said = sodium.crypto_sign_open(self._signed, self._public)
        sealed = said[len(self._bound) : -len(self._before)]
        content = ChaCha20Poly1305(self._key).decrypt(self._nonce, sealed, self._bound)
        return self._unpack.decompress(self._packed) if self.compresses else content


def sealing_rows(what: str, text: str, members: Sequence[int], rounds: int) -> Iterator[Row]:
    for count in members:
        body = body_of(text, count)
        kinds: dict[str, Kind] = {SIGNED: SenderKeys(body), MULTI: Pairwise(MULTI, count, body)}
        absent = {}
        if count <= SECTIONS_MAX:
            kinds[SINGLE] = Pairwise(SINGLE, count, body)
        else:
            absent[SINGLE] = f"a frame has {SECTIONS_MAX} sections at most"
        floor = Floor(body)
        sealing: dict[str, Call] = {name: kind.seal for name, kind in kinds.items()}
        said = timed({**sealing, "floor": floor.seal}, rounds)
        pools = {name: [kind.seal() for _ in range(POOL)] for name, kind in kinds.items()}
        opening: dict[str, Call] = {name: reading(kind, pools[name]) for name, kind in kinds.items()}
        heard = timed({**opening, "floor": floor.open}, rounds)
        size = {name: Figure.of([sum(map(len, one)) for one in pool]) for name, pool in pools.items()}
        case = f"{what} to {count}, sealing and opening"
        floors = FLOOR_PACK if floor.tries else FLOOR_SEAL, FLOOR_UNPACK if floor.compresses else FLOOR_OPEN
        for who, found, floor_is in (("says it", said, floors[0]), ("hears it", heard, floors[1])):
            goal = GOAL_TIMES * found["floor"].median
            others = {name: found[name] for name in kinds if name != SIGNED}
            yield Row(
                f"{case}: who {who}", "us", "lower", found[SIGNED], found["floor"], floor_is, others, goal, absent
            )
        others = {name: size[name] for name in kinds if name != SIGNED}
        yield Row(f"{case}: for all", "B", "lower", size[SIGNED], peers=others, absent=absent)
    yield from flat_rows(what, text, members, rounds)


def tagged_rows(what: str, text: str, members: Sequence[int], rounds: int) -> Iterator[Row]:
    """Tags beside the other kinds."""
    for count in members:
        if count > SECTIONS_MAX:
            continue
        body = body_of(text, count)
        others: dict[str, Kind] = {SIGNED: SenderKeys(body)}
        others |= {keys: Pairwise(keys, count, body) for keys in (MULTI, SINGLE)}
        kinds, floor = {TAGGED: Tagged(count, body), **others}, TagFloor(count, body)
        sealing: dict[str, Call] = {name: kind.seal for name, kind in kinds.items()}
        pools = {name: [kind.seal() for _ in range(POOL)] for name, kind in kinds.items()}
        opening: dict[str, Call] = {name: reading(kind, pools[name]) for name, kind in kinds.items()}
        said = timed({**sealing, "floor": floor.seal}, rounds)
        heard = timed({**opening, "floor": floor.open}, rounds)
        size = {name: Figure.of([sum(map(len, one)) for one in pool]) for name, pool in pools.items()}
        case = f"{what} to {count}, tags in place of signatures"
        for who, found in (("says it", said), ("hears it", heard)):
            goal = found[MULTI].median / TAGGED_PARTS if who == "says it" and count > 1 else None
            rest = {name: found[name] for name in others}
            yield Row(f"{case}: who {who}", "us", "lower", found[TAGGED], found["floor"], FLOOR_TAGS, rest, goal)
        yield Row(f"{case}: for all", "B", "lower", size[TAGGED], peers={name: size[name] for name in others})


def flat_rows(what: str, text: str, members: Sequence[int], rounds: int) -> Iterator[Row]:
    """How much the number of members matters to sender keys; all sizes in turn, so that all have the same machine."""
    kinds = {str(count): SenderKeys(body_of(text, count)) for count in members}
    says: dict[str, Call] = {count: kind.seal for count, kind in kinds.items()}
    hears: dict[str, Call] = {count: reading(kind, [kind.seal()]) for count, kind in kinds.items()}
    for who, found in (("says it", timed(says, rounds)), ("hears it", timed(hears, rounds))):
        medians = [figure.median for figure in found.values()]
        times = max(medians) / min(medians)
        case = f"{what} to {members[0]} to {members[-1]}, sender keys: who {who}, the most beside the least"
        yield Row(case, "times", "lower", Figure.of([times]), goal=GOAL_TIMES)


def reading(kind: Kind, pool: Sequence[Sequence[bytes]]) -> Call:
    said = cycle(pool)
    return lambda: kind.open(next(said))


# --- the whole core ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """The output of a group's founder, and the notifications of one member that receives it."""

    say: Call
    hear: Call
    sent: int
    """Bytes in all."""


def core_rows(count: int, stars: "dict[str, Star]", rounds: int) -> Iterator[Row]:
    case = f"50 letters to {count}, the whole core"
    said = {keys: said_in(star, count) for keys, star in stars.items()}
    says = timed({keys: one.say for keys, one in said.items()}, rounds)
    hears = timed({keys: one.hear for keys, one in said.items()}, rounds)
    sent = {keys: Figure.of([one.sent]) for keys, one in said.items()}
    for name, unit, found in (("who says it", "us", says), ("who hears it", "us", hears), ("for all", "B", sent)):
        others = {keys: figure for keys, figure in found.items() if keys != SIGNED}
        yield Row(f"{case}: {name}", unit, "lower", found[SIGNED], peers=others)


def said_in(star: Star, count: int) -> Said:
    """A post by the founder, with this many other members connected."""
    star.grow(count + 1)
    star.run_command(HUB, SendPost(GROUP, "hello"))  # keys that heal begin with an update
    star.run(for_ms=SETTLE_MS)
    say = partial(star.would, SendPost(GROUP, sample_text(SIZES["50 letters"])))
    said = [effect for effect in say() if isinstance(effect, Publish)]
    member = star.nodes["n1"]
    group = star.group("n1")
    hub = next(did for did, one in group.view.members.items() if one.label == HUB)
    link, at_hub = group.links.peers[hub].link, star.group(HUB).links.peers[group.me].link
    mine = next(one.envelope for one in said if at_hub in one.links)
    moment = StepContext(star.now + 1, star.rng.randbytes)

    def hear() -> None:
        agent, effects = step(member.agent, Received(link, mine), moment)
        assert agent is not member.agent and effects, "it was not heard"
        step(agent, BatchEnded(), moment)

    return Said(say, hear, sum(len(one.envelope) for one in said))
