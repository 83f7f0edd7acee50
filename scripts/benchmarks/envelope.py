"""Envelopes: messages packed and unpacked per second on one core, from one sender to one recipient.

Ours, other libraries and the bare primitives run in turn. The primitives are the floor: one ephemeral key, one
agreement with it, the key derivation, the key wrap and the content, with the agreement of the two static keys cached,
through the same bindings as ours. All libraries have the same keys, names and texts, cache whatever they can, and
unpack zerochat's envelopes.

A library in a tight loop has the core's clock and caches to itself. The paced figures are for one message every 20 ms,
as in a chat.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import interop_environment
from benchmarks import Figure, Report, Row, take_turns
from benchmarks.peers.envelope import time_hot, time_paced
from environment import Trouble
from zerochat.crypto import nacl_boxes
from zerochat.crypto.content_encryption import CBC_HS512
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey, SecretKey, public_of
from zerochat.crypto.primitives import (
    ed25519_to_x25519_secret,
    key_unwrap,
    key_wrap,
    sha256,
    x25519,
    x25519_public,
)
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import Document, Identity, new_peer4, resolve
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer

PEERS_SCRIPT = Path(__file__).parent / "peers" / "envelope.py"
PEERS_PYTHON = "ZEROCHAT_BENCH_PEERS"
"""An environment variable: a Python that has the peers already, in place of the one that scripts/ would make."""

SIZES = {"100 B": 100, "1 kB": 1000}
TYPE = "https://example.org/chat/1.0/post"
BURST = 25
PACED_BURST = 6
PAUSE_S = 0.02
FLOOR_IS = "the primitives alone"

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Work:
    """One case: our functions, the primitives for the floor, and the peers with their inputs."""

    case: str
    ours: Call
    floor: Call | None
    peers: Mapping[str, tuple[str, str]]
    goal: Mapping[str, float]
    """The required ratio to each peer; `floor` is one of them."""


class Pair:
    """Alice, the sender, and Bob, the recipient, in one wire format."""

    def __init__(self, packer: Packer, alice: Identity, bob: Identity) -> None:
        self.packer, self.alice, self.bob = packer, alice, bob
        self.sender, self.own = packer.own_key(alice, alice.short), packer.own_key(bob, bob.short)
        self.recipient = packer.their_key(resolve(bob.did), bob.short)
        self.secrets: dict[str, SecretKey] = {self.own.kid: self.own.key}
        self.publics: dict[str, PublicKey] = {self.sender.kid: public_of(self.sender.key)}
        self.documents: dict[str, Document] = {alice.short: resolve(alice.did)}

    def pack(self, plain: bytes) -> bytes:
        return self.packer.authcrypt(plain, sender=self.sender, recipient=self.recipient, random=os.urandom)

    def unpack(self, envelope: bytes) -> bytes:
        unpacked = self.packer.unpack(envelope, secret_of=self.secrets.get, public_of=self.publics.__getitem__)
        return unpacked.plain

    def write(self, message: Message) -> bytes:
        return self.pack(self.packer.dump(message))

    def read(self, envelope: bytes) -> Message:
        unpacked = self.packer.unpack(envelope, secret_of=self.secrets.get, public_of=self.publics.__getitem__)
        message = self.packer.parse(unpacked.plain)
        self.packer.check_sender(message, unpacked, self.documents.__getitem__)
        return message


# --- the floor --------------------------------------------------------------------------------------------------------


def floor_v2(pair: Pair, plain: bytes) -> tuple[Call, Call]:
    envelope = json.loads(pair.pack(plain))
    aad, info, static = envelope["protected"].encode(), bytes(300), os.urandom(32)
    secret, public = pair.own.key.data, pair.recipient.key.data
    ephemeral_public = x25519_public(os.urandom(32))
    key, iv, kek = os.urandom(64), os.urandom(16), os.urandom(32)
    wrapped, (ciphertext, tag) = key_wrap(kek, key), CBC_HS512.seal(key, iv, plain, aad)

    def pack() -> None:
        ephemeral, key, iv = os.urandom(32), os.urandom(64), os.urandom(16)
        x25519_public(ephemeral)
        CBC_HS512.seal(key, iv, plain, aad)
        key_wrap(sha256(x25519(ephemeral, public) + static + info), key)

    def unpack() -> None:
        sha256(x25519(secret, ephemeral_public) + static + info)
        CBC_HS512.open(key_unwrap(kek, wrapped), iv, ciphertext, tag, aad)

    return pack, unpack


def floor_v1(pair: Pair, plain: bytes) -> tuple[Call, Call]:
    aad, name = json.loads(pair.pack(plain))["protected"].encode(), pair.sender.kid.encode()
    alice, bob = (ed25519_to_x25519_secret(who.signing_seed) for who in (pair.alice, pair.bob))
    alice_public, bob_public = x25519_public(alice), x25519_public(bob)
    key, iv, nonce = os.urandom(32), os.urandom(12), os.urandom(24)
    boxed = nacl_boxes.box(key, nonce, bob_public, alice)
    sender = nacl_boxes.seal(name, bob_public, os.urandom(32))
    sealed = nacl_boxes.chacha20_poly1305_seal(key, iv, plain, aad)

    def pack() -> None:
        key, iv, nonce = os.urandom(32), os.urandom(12), os.urandom(24)
        nacl_boxes.box(key, nonce, bob_public, alice)
        nacl_boxes.seal(name, bob_public, os.urandom(32))
        nacl_boxes.chacha20_poly1305_seal(key, iv, plain, aad)

    def unpack() -> None:
        nacl_boxes.seal_open(sender, bob_public, bob)
        nacl_boxes.chacha20_poly1305_open(nacl_boxes.box_open(boxed, nonce, alice_public, bob), iv, sealed, aad)

    return pack, unpack


FLOORS = {"didcomm/v2": floor_v2, "didcomm/v1": floor_v1}
PEERS_OF = {"didcomm/v2": ["aries-askar v2"], "didcomm/v1": ["aries-askar v1", "didcomm-messaging"]}
GOALS = {
    "didcomm/v2": {"floor": 1 / 1.4, "aries-askar v2": 2.5},
    "didcomm/v1": {"floor": 1 / 1.4, "aries-askar v1": 2.0, "didcomm-messaging": 2.0},
}


# --- the peers --------------------------------------------------------------------------------------------------------


class Peers:
    """Other people's libraries, in a process of their own that times itself."""

    def __init__(self, process: "subprocess.Popen[str] | None", alice: Identity, bob: Identity) -> None:
        self._process = process
        self.names: list[str] = []
        if process is not None:
            self.names = self._ask(ask="meet", alice=described(alice), bob=described(bob))

    def call(self, peer: str, does: str, text: str) -> str:
        answer: str = self._ask(ask="call", peer=peer, does=does, text=text)
        return answer

    def hot(self, peer: str, does: str, text: str, count: int) -> float:
        answer: float = self._ask(ask="hot", peer=peer, does=does, text=text, count=count)
        return answer

    def paced(self, peer: str, does: str, text: str, count: int) -> list[float]:
        answer: list[float] = self._ask(ask="paced", peer=peer, does=does, text=text, count=count, pause_s=PAUSE_S)
        return answer

    def _ask(self, **question: object) -> Any:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"The peers' process ended when it was asked: {json.dumps(question)[:200]}")
        return json.loads(answer)


@contextlib.contextmanager
def peers_between(alice: Identity, bob: Identity) -> Iterator[Peers]:
    """The peers that can be had here; none of them when their environment cannot be made."""
    try:
        python = os.environ.get(PEERS_PYTHON) or str(interop_environment.interpreter("interop"))
    except (Trouble, OSError) as error:
        print(f"(No peers: {error})", file=sys.stderr)
        yield Peers(None, alice, bob)
        return
    command = [python, "-I", str(PEERS_SCRIPT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Peers(process, alice, bob)
        finally:
            process.kill()


def described(who: Identity) -> dict[str, str]:
    """A party in the format of the peers' process."""
    return {
        "did": who.short,
        "kid": who.kid_short,
        "x": b64url(who.agreement_public),
        "d": b64url(who.agreement_secret),
        "seed": b64url(who.signing_seed),
        "verkey": PACKERS["didcomm/v1"].own_key(who, who.short).kid,
    }


# --- the cases --------------------------------------------------------------------------------------------------------


def works(alice: Identity, bob: Identity, peers: Peers) -> list[Work]:
    """Every case, after each peer has shown that it reads ours and that ours reads it."""
    found = []
    for profile, floor_of in FLOORS.items():
        pair = Pair(PACKERS[profile], alice, bob)
        names = [name for name in PEERS_OF[profile] if name in peers.names]
        for label, size in SIZES.items():
            plain = (b"See you at eight? " * size)[:size]
            envelope = pair.pack(plain)
            for name in names:
                assert pair.unpack(peers.call(name, "pack", plain.decode()).encode()) == plain, name
                assert peers.call(name, "unpack", envelope.decode()) == plain.decode(), name
            pack_floor, unpack_floor = floor_of(pair, plain)
            goal = {name: times for name, times in GOALS[profile].items() if name == "floor" or name in names}
            packing = {name: ("pack", plain.decode()) for name in names}
            unpacking = {name: ("unpack", envelope.decode()) for name in names}
            found += [
                Work(f"{profile}, pack {label}", partial(pair.pack, plain), pack_floor, packing, goal),
                Work(f"{profile}, unpack {label}", partial(pair.unpack, envelope), unpack_floor, unpacking, goal),
            ]
    pair = Pair(PACKERS["didcomm/v2"], alice, bob)
    names = ["didcomm"] if "didcomm" in peers.names else []
    for label, size in SIZES.items():
        body = {"text": ("See you at eight? " * size)[:size]}
        message = Message(TYPE, "c4f1", body, from_=alice.short, to=(bob.short,))
        text, envelope = json.dumps({"id": "c4f1", "type": TYPE, "body": body}), pair.write(message)
        for name in names:
            assert pair.read(peers.call(name, "pack", text).encode()).body == body
            assert json.loads(peers.call(name, "unpack", envelope.decode()))["body"] == body
        goal, whole = dict.fromkeys(names, 3.5), f"whole message with {label} of text"
        packing, unpacking = (
            dict.fromkeys(names, (does, given)) for does, given in (("pack", text), ("unpack", envelope.decode()))
        )
        found += [
            Work(f"didcomm/v2, pack a {whole}", partial(pair.write, message), None, packing, goal),
            Work(f"didcomm/v2, unpack a {whole}", partial(pair.read, envelope), None, unpacking, goal),
        ]
    return found


def measure(quick: bool) -> Report:
    alice, bob = (new_peer4(os.urandom, []) for _ in range(2))
    hot_rows, paced_rows = [], []
    with peers_between(alice, bob) as peers:
        for work in works(alice, bob, peers):
            hot = measure_hot(work, peers, 31 if quick else 151)
            hot_rows.append(row(work, hot))
            paced_rows.append(paced_row(work, hot["ours"], measure_paced(work, peers, 2 if quick else 6)))
        missing = {"didcomm", *(name for names in PEERS_OF.values() for name in names)} - set(peers.names)
    return Report([*hot_rows, *paced_rows], sorted(missing))


def measure_hot(work: Work, peers: Peers, rounds: int) -> dict[str, Figure]:
    """Microseconds. Bursts are short and many, so that the median is of those that nothing interrupted."""
    runs: dict[str, Callable[[], float]] = {name: partial(time_hot, call, BURST) for name, call in own_calls(work)}
    runs |= {name: partial(peers.hot, name, *asked, BURST) for name, asked in work.peers.items()}
    return {name: Figure.of(values) for name, values in take_turns(runs, rounds).items()}


def measure_paced(work: Work, peers: Peers, rounds: int) -> dict[str, Figure]:
    """Microseconds. The first of each burst is left out: its caches hold the data of the previous round."""
    runs: dict[str, Callable[[], list[float]]] = {
        name: partial(time_paced, call, PACED_BURST, PAUSE_S) for name, call in own_calls(work)
    }
    runs |= {name: partial(peers.paced, name, *asked, PACED_BURST) for name, asked in work.peers.items()}
    turns = take_turns(runs, rounds)
    return {name: Figure.of([us for times in values for us in times[1:]]) for name, values in turns.items()}


def own_calls(work: Work) -> list[tuple[str, Call]]:
    return [("ours", work.ours), *([("floor", work.floor)] if work.floor else [])]


def row(work: Work, us: Mapping[str, Figure]) -> Row:
    """Messages per second, in a tight loop."""
    rates = {name: Figure(1e6 / took.median, 1e6 / took.high, 1e6 / took.low) for name, took in us.items()}
    goal = max((rates[name].median * times for name, times in work.goal.items()), default=None)
    peers = {name: rates[name] for name in work.peers}
    return Row(work.case, "messages/s", "higher", rates["ours"], rates.get("floor"), FLOOR_IS, peers, goal)


def paced_row(work: Work, hot: Figure, cold: Mapping[str, Figure]) -> Row:
    """Microseconds, with a pause before every message; ours in the tight loop beside it."""
    case = f"{work.case}, one every {PAUSE_S * 1000:.0f} ms"
    peers = {"ours, in a tight loop": hot} | {name: cold[name] for name in work.peers}
    return Row(case, "us", "lower", cold["ours"], cold.get("floor"), FLOOR_IS, peers)
