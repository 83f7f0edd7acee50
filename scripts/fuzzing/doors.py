"""Raw TCP connections to both listeners of an agent: hostile bytes for libzmq itself.

An agent's transport runs in a process of its own, which libzmq may crash. Connections speak every version of ZMTP and
every mechanism, mostly almost right: mutated greetings and commands, lengths of any size, endless frames, and, from an
admitted peer, boxes that open with any content. In between and at the end an honest member must get through, and the
process must live and have no more memory and no more open files than at the start.
"""

import multiprocessing
import os
import resource
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.mutations import bytes_changed, spliced
from tests.support.raw_curve import RawMember, described, framed
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.transport import Transport
from zerochat.group.effects import AllowClient
from zerochat.group.inputs import Received

SLICE = 20_000
"""Connections in one slice."""
ROUND = 500
"""Connections between two looks at how the agent is."""
WAITING_MAX = 64
"""Connections that are open at once."""
GROWTH_BYTES_MAX = 48 << 20
FILES_MORE_MAX = 16
CALM_S = 30.0
"""A handshake has two seconds, silence three; then nothing of a stranger is left."""
MEMBERS = 8
LINK = b"fuzz"


@dataclass(slots=True)
class Storm:
    """The result."""

    connections: int = 0
    seconds: float = 0.0
    members: int = 0
    """How many of them got through the handshake and spoke behind it."""
    grown_bytes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """The reasons for which the transport has refused messages."""
    faults: list[str] = field(default_factory=list)


# --- the agent's side -----------------------------------------------------------------------------------------------


def _serve(pipe: Connection, secret: bytes, keys: list[bytes], queue: bytes) -> None:
    heard = 0
    with Transport(secret, "127.0.0.1", 0, 0) as transport:
        ports = transport.bind()
        for number, key in enumerate(keys):
            transport.perform(AllowClient(LINK + bytes([number]), socket_options.public_key(key), (queue,)))
        pipe.send((*ports, transport.server_key))
        while True:
            inputs, _ = transport.poll(20)
            heard += sum(isinstance(one, Received) and one.envelope.startswith(b"good") for one in inputs)
            if pipe.poll():
                if not pipe.recv():
                    return
                pipe.send((heard, _memory(), sum(1 for _ in Path("/dev/fd").iterdir()), dict(transport.counts)))


def _memory() -> int:
    """The memory of this process in bytes; its maximum where the system does not report the present value."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Agent:
    """The process, as it is seen from here."""

    def __init__(self, dice: Random) -> None:
        self.keys = [dice.randbytes(32) for _ in range(MEMBERS)]
        self.queue = dice.randbytes(32)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # A daemon: where the test is ended, it ends too.
        self.process = context.Process(
            target=_serve, args=(theirs, dice.randbytes(32), self.keys, self.queue), daemon=True
        )
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for this process, which ends that child
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()
        pair, queue, self.server_key = self._hear()
        self.ports = pair, queue

    def _hear(self) -> Any:
        if not self._pipe.poll(30):
            raise TimeoutError("the agent says nothing any more")
        return self._pipe.recv()

    def facts(self) -> tuple[int, int, int, dict[str, int]]:
        """Messages of honest members, bytes of memory, open files, and counters. Raises EOFError or TimeoutError."""
        self._pipe.send(True)
        found: tuple[int, int, int, dict[str, int]] = self._hear()
        return found

    def end(self) -> None:
        with suppress(OSError):
            self._pipe.send(False)
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


# --- hostile bytes --------------------------------------------------------------------------------------------

_SIGNATURE = b"\xff" + bytes(7) + b"\1\x7f"
_NULL, _PLAIN, _CURVE = (name.ljust(20, b"\0") for name in (b"NULL", b"PLAIN", b"CURVE"))
LENGTHS = (0, 1, 255, 256, 2048, 2**16, 2**20 - 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def _greeting(dice: Random) -> bytes:
    match dice.randrange(8):
        case 0:
            return b"\1\0"  # ZMTP 1.0: an anonymous peer
        case 1:
            return b"\x11\0" + dice.randbytes(16)
        case 2:
            return (
                _SIGNATURE + b"\1" + dice.choice((b"\5", b"\2", b"\x0a", b"\xff")) + b"\0\0"
            )  # ZMTP 2.0: ROUTER, SUB …
    mechanism = dice.choice((_NULL, _PLAIN, _CURVE, _CURVE, _CURVE, _CURVE, b"GSSAPI".ljust(20, b"\0")))
    version = dice.choice((b"\3\0", b"\3\1", b"\3\1", b"\3\1", b"\4\0", b"\xff\xff"))
    return _SIGNATURE + version + mechanism + dice.choice((b"\0", b"\0", b"\1", b"\xff")) + bytes(31)


def _frame(dice: Random) -> bytes:
    """A command or a message, right or almost."""
    match dice.randrange(9):
        case 0:
            return framed(4, b"\5READY" + described(dice.choice((b"DEALER", b"SUB", b"ROUTER", b"\xff"))))
        case 1:
            return framed(4, b"\5HELLO\1\0" + bytes(72) + dice.randbytes(32) + (1).to_bytes(8) + dice.randbytes(80))
        case 2:
            return framed(4, b"\x08INITIATE" + dice.randbytes(dice.choice((0, 96, 8 + 96 + 128, 1000))))
        case 3:
            return framed(
                4, dice.choice((b"\5HELLO\4user\4pass", b"\4PING\0\1", b"\4PONG", b"\x09SUBSCRIBE", b"\5ERROR\xff"))
            )
        case 4:
            flags = dice.choice((2, 3, 6, 7, 0xFF))
            return bytes([flags]) + dice.choice(LENGTHS).to_bytes(8) + dice.randbytes(dice.randrange(64))
        case 5:
            return framed(dice.choice((0, 1, 1, 1, 8, 0x80)), dice.randbytes(dice.randrange(400)))
        case 6:
            return framed(0, b"\x07MESSAGE" + dice.randbytes(dice.choice((0, 8, 24, 100))))
        case 7:
            return dice.choice(
                (b"", b"\0", b"\1\0" * 200, b"\2", b"\4\0", b"GET / HTTP/1.1\r\n\r\n", b"\x16\3\1\2\0\1")
            )
    return bytes([dice.randrange(256), dice.randrange(256)]) + dice.randbytes(dice.randrange(256))


def strangers_words(dice: Random) -> bytes:
    """The bytes of one connection: a greeting and some frames, mutated or cut off."""
    said = _greeting(dice) + b"".join(_frame(dice) for _ in range(dice.choice((0, 1, 1, 2, 4, 16))))
    for _ in range(dice.choice((0, 0, 1, 1, 2, 5))):
        said = bytes_changed(said, dice)
    return said if dice.random() < 0.9 else spliced(said, strangers_words(dice), dice)


def members_words(member: RawMember, dice: Random, queue: bytes) -> Iterator[bytes]:
    """The bytes of an admitted peer: boxes that mostly open, with their content."""
    for _ in range(dice.choice((1, 2, 5, 20))):
        flags = dice.choice((0, 0, 1, 1, 1, 2, 2, 3, 0xFF))
        plain = dice.choice(
            (
                dice.randbytes(dice.randrange(300)),
                b"\1" + queue,
                b"\0" + queue,
                b"\1" + dice.randbytes(dice.randrange(200)),
                b"\x09SUBSCRIBE" + queue,
                b"\x06CANCEL" + queue,
                b"\4PING" + dice.randbytes(dice.choice((0, 2, 18, 100))),
                b"\4PONG",
                b"\5ERROR\3bad",
                b"\5READY" + described(b"DEALER"),
                bytes(dice.choice((1000, 20_000))),
                b"",
            )
        )
        body = b"\x07MESSAGE" + member.seal(member.nonce_prefix, bytes([flags]) + plain)
        if dice.random() < 0.15:
            body = bytes_changed(body, dice)
        yield framed(dice.choice((0, 0, 0, 0, 4, 1)), body)


# --- the storm ------------------------------------------------------------------------------------------------------


def storm(connections: int, seed: int, seconds: float = float("inf")) -> Storm:
    """So many connections, to both doors by turns, for at most so long."""
    dice, found = Random(f"doors {seed}"), Storm()
    agent = Agent(dice)
    left: list[socket.socket] = []
    try:
        start, files, memory = time.monotonic(), agent.facts()[2] + FILES_MORE_MAX, 0
        while found.connections < connections and time.monotonic() < start + seconds and not found.faults:
            for _ in range(min(ROUND, connections - found.connections)):
                _one(agent, dice, found, left)
            while left:
                left.pop().close()
            _good_word(agent, found)
            if not memory:  # the first round allocates once; more memory after it is growth
                _calm_down(agent, files)
                memory = agent.facts()[1]
        found.seconds = time.monotonic() - start
        if not _calm_down(agent, files):
            found.faults.append(f"{agent.facts()[2]} files are open, and there should be at most {files}")
        _good_word(agent, found)
        found.grown_bytes = agent.facts()[1] - memory
        if found.grown_bytes > GROWTH_BYTES_MAX:
            found.faults.append(f"{found.grown_bytes >> 20} MiB more of memory")
        found.counts.update(agent.facts()[3])
    except (EOFError, OSError, TimeoutError) as error:
        agent.process.join(5)
        found.faults.append(f"the agent has ended ({agent.process.exitcode}): {error!r}")
    finally:
        for one in left:
            one.close()
        agent.end()
    return found


class _Member(RawMember):
    """A connection that closes its socket when it is refused."""

    def __init__(self, port: int, secret: bytes, server_key: bytes, kind: bytes) -> None:
        try:
            super().__init__(port, secret, server_key, kind)
        except (OSError, EOFError, AssertionError):
            if hasattr(self, "socket"):
                self.socket.close()
            raise


def _one(agent: Agent, dice: Random, found: Storm, left: list[socket.socket]) -> None:
    """One connection. Most stay silent for a while before they end, so that their bytes are processed."""
    found.connections += 1
    door = dice.randrange(2)
    with suppress(OSError, EOFError, AssertionError):
        if dice.random() < 0.05:
            kind = dice.choice((b"DEALER", b"SUB", b"XSUB") if door else (b"DEALER", b"REQ", b"ROUTER"))
            member = _Member(agent.ports[door], dice.choice(agent.keys[1:]), agent.server_key, kind)
            left.append(member.socket)
            found.members += 1
            for said in members_words(member, dice, agent.queue):
                member.socket.sendall(said)
        else:
            left.append(socket.create_connection(("127.0.0.1", agent.ports[door]), timeout=5))
            left[-1].sendall(strangers_words(dice))
    if left:
        # A reset in the end leaves nothing behind here, where ports would run out.
        left[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if left and dice.random() < 0.1:
        left.pop().close()
    if len(left) > WAITING_MAX:
        left.pop(dice.randrange(WAITING_MAX)).close()


def _good_word(agent: Agent, found: Storm) -> None:
    """An honest member connects and its messages arrive."""
    before, end = agent.facts()[0], time.monotonic() + CALM_S
    while time.monotonic() < end:
        with suppress(OSError, EOFError, AssertionError):
            member = _Member(agent.ports[0], agent.keys[0], agent.server_key, b"DEALER")
            try:
                member.send(b"")
                member.send(b"good " + os.urandom(8))
                while time.monotonic() < end:
                    if agent.facts()[0] > before:
                        return
            finally:
                member.close()
    found.faults.append(f"after {found.connections} connections a message of an honest member was lost")


def _calm_down(agent: Agent, files: int) -> bool:
    """Wait until at most so many files are open."""
    end = time.monotonic() + CALM_S
    while agent.facts()[2] > files:
        if time.monotonic() > end:
            return False
        agent.process.join(0.05)
    return True
