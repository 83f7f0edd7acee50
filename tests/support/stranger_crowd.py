"""Strangers in a process of their own that attack an agent.

`python -m tests.support.stranger_crowd KIND SECONDS SERVER_KEY PAIR_PORT QUEUE_PORT`, with the key in hexadecimal. They
know an agent's address and public key, and are not admitted. At the end they print their counts as one JSON object.

Each kind is one attack; `Crowd` is the same from a test's side.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self

from nacl.exceptions import CryptoError

from tests.support.raw_curve import GREETING, RawMember, framed
from zerochat.agent.network.zmq.socket_options import public_key

IDLE, HANDSHAKES_PER_S = 1500, 200
SHAKERS, SHAKER_S = 10, 0.04
"""So many at a time, each of which waits so long for an answer."""
PIECE, PUSHED_BYTES = 60_000, 800_000_000
TOPIC_BYTES = 200_000
V3 = b"\xff" + bytes(8) + b"\x7f"
AS_MEMBERS = GREETING + bytes(32)
PUSHES = [
    b"",
    AS_MEMBERS + b"\x06" + (1 << 40).to_bytes(8),
    AS_MEMBERS + b"\x06" + (1 << 30).to_bytes(8),
    AS_MEMBERS + b"\x06" + (512 * 1024).to_bytes(8),
    AS_MEMBERS + b"\x06" + (1000).to_bytes(8),
]
"""What comes before an endless stream: nothing, or a frame that claims a terabyte, a gigabyte that is really sent, what
is allowed, or little."""
DIALECTS = [
    b"\x01\x00" + b"\x05\x01hey!" * 10,
    V3 + b"\x01\x02" + b"\x00\x00",
    V3 + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32) + b"\x04\x19\x05READY" + bytes(19),
    V3 + b"\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32) + b"\x04\x0a\x05HELLO" + bytes(4),
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
]
"""ZMTP 1.0, 2.0, 3.0 without keys, 3.0 with a password, and something else altogether."""


class Nuisance:
    """One crowd at work."""

    def __init__(self, seconds: float, server_key: bytes, ports: tuple[int, int]) -> None:
        self.until = time.monotonic() + seconds
        self.server_key, self.ports = server_key, ports
        self.did: Counter[str] = Counter()

    def dial(self, port: int) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", port), 5)
        one.settimeout(1)
        self.did["connections"] += 1
        return one

    def stream(self, opening: bytes, piece: bytes, bytes_max: int) -> None:
        """Push as much as is taken, at both doors in turn."""
        with suppress(OSError), self.dial(self.ports[self.did["connections"] % 2]) as one:
            one.sendall(opening)
            pushed = 0
            while pushed < bytes_max and time.monotonic() < self.until:
                size = one.send(piece)
                pushed += size
                self.did["bytes"] += size

    def turns(self, work: Callable[[int], None]) -> None:
        tx = 0
        while time.monotonic() < self.until:
            work(tx)
            tx += 1

    # --- the kinds --------------------------------------------------------------------------------------------------

    def push(self) -> None:
        self.turns(lambda tx: self.stream(PUSHES[tx // 2 % len(PUSHES)], bytes(PIECE), PUSHED_BYTES))

    def multipart(self) -> None:
        """Parts, never the last one, in plain ZMTP after a greeting that promises keys."""
        parts = framed(1, bytes(200)) * 200
        self.turns(lambda _: self.stream(AS_MEMBERS, parts, 50_000_000))

    def subscribe(self) -> None:
        """Subscriptions as of ZMTP 3.0 (messages) and 3.1 (commands), with topics up to 200 kB."""

        def one(tx: int) -> None:
            size = TOPIC_BYTES if tx // 2 % 2 else 30
            topic = os.urandom(size)
            word = framed(0, b"\1" + topic) if tx // 4 % 2 else framed(4, b"\x09SUBSCRIBE" + topic)
            self.stream(AS_MEMBERS, word * (PIECE // len(word) + 1), 10_000_000)

        self.turns(one)

    def idle(self) -> None:
        """Many connections that say nothing, or a byte now and then, until they are cut; then others."""
        held: list[socket.socket] = []

        def one(tx: int) -> None:
            with suppress(OSError):
                held.append(self.dial(self.ports[tx % 2]))
            if len(held) >= IDLE:
                held.pop(0).close()
                time.sleep(0.002)
            if tx % 7 == 0:
                with suppress(OSError):
                    held[tx % len(held)].send(AS_MEMBERS[tx % 64 : tx % 64 + 1])

        self.turns(one)
        for each in held:
            each.close()

    def dialects(self) -> None:
        def one(tx: int) -> None:
            with suppress(OSError), self.dial(self.ports[tx % 2]) as stranger:
                stranger.sendall(DIALECTS[tx // 2 % len(DIALECTS)])
                stranger.settimeout(0.02)
                with suppress(TimeoutError):
                    while answer := stranger.recv(4096):
                        self.did["answered bytes"] += len(answer)

        self.turns(one)

    def shake(self) -> None:
        """Whole handshakes under keys that nobody has admitted, or for another server, at a steady pace. Most of them
        are never answered, so several are tried at a time."""
        begun = time.monotonic()

        def one(tx: int) -> None:
            time.sleep(max(0.0, begun + tx * SHAKERS / HANDSHAKES_PER_S - time.monotonic()))
            server_key = self.server_key if tx % 4 else public_key(os.urandom(32))
            self.did["connections"] += 1
            with suppress(OSError, EOFError, AssertionError, CryptoError):
                RawMember(self.ports[tx // 2 % 2], os.urandom(32), server_key, b"DEALER", SHAKER_S).close()
                self.did["let in"] += 1

        with ThreadPoolExecutor(SHAKERS) as shakers:
            for done in [shakers.submit(self.turns, one) for _ in range(SHAKERS)]:
                done.result()


KINDS = ("push", "multipart", "subscribe", "idle", "dialects", "shake")


class Crowd:
    """A context, in which such strangers are at work; `did` holds what they have done, once they are through."""

    def __init__(self, kind: str, seconds: float, server_key: bytes, ports: tuple[int, int]) -> None:
        assert kind in KINDS
        self._words = [kind, str(seconds), server_key.hex(), *map(str, ports)]
        self.did: dict[str, int] = {}

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.stranger_crowd", *self._words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        return self

    @property
    def at_work(self) -> bool:
        return self._process.poll() is None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        said, _ = self._process.communicate(timeout=60)
        if error is None:
            self.did = json.loads(said)


if __name__ == "__main__":
    nuisance = Nuisance(float(sys.argv[2]), bytes.fromhex(sys.argv[3]), (int(sys.argv[4]), int(sys.argv[5])))
    getattr(nuisance, sys.argv[1])()
    print(json.dumps(nuisance.did))
