"""One publisher and its members as separate processes on loopback, for the benchmark `group`: alternative transports.

`room.py WAY MEMBERS` reads one JSON object (the parameters of the way), prints `ready` when all members are connected,
and then answers each `BATCH TEXT` with a line `MS CAME`: milliseconds until the last member had the last message, and
the number of copies. This process is the publisher; the members are its forks and report through shared memory. It ends
when its standard input does, and the members with it.

`floor` and `floor-single` are bare CURVE XPUB and SUB, with a queue for each member and with one for all. `lean`,
`lean-single` and `lean-signed` seal and open as zerochat does, and do nothing else. `didcomm` are SICPA's envelopes.
`irc` is a client's end of an IRC server. It runs in the peers' Python too, so imports for one way stay in that way.
"""

import json
import mmap
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

Tree = dict[str, Any]
Seal = Callable[[str], list[bytes]]
"""The frames of one message, one for each queue."""
Open = Callable[[int, bytes], object]
"""The processing of a frame by the member with this number."""

START_S_MAX = 60.0
BURST_S_MAX, SILENCE_S_MAX = 120.0, 15.0
"""The time limit of a burst, and the silence after which it is over."""
LOOK_S = 0.0005
"""The interval of polling for completion. The members report the times themselves."""
SLOT = struct.Struct("=Qd")
HEAD_BYTES = 16
CHANNEL = b"#bench"


class Board:
    """Memory that all processes share: the publisher's port, and for each member how many came and when the last did
    (seconds, monotonic: one clock for the whole machine)."""

    def __init__(self, members: int) -> None:
        self.members = members
        self._memory = mmap.mmap(-1, HEAD_BYTES + SLOT.size * members)

    @property
    def port(self) -> int:
        return int.from_bytes(self._memory[:8], "little")

    @port.setter
    def port(self, port: int) -> None:
        self._memory[:8] = port.to_bytes(8, "little")

    def wait_for_port(self) -> bool:
        """False: the publisher has ended before it had one."""
        parent = os.getppid()
        while not self.port and os.getppid() == parent:
            time.sleep(0.01)
        return self.port > 0

    def note(self, member: int, came: int) -> None:
        SLOT.pack_into(self._memory, HEAD_BYTES + SLOT.size * member, came, time.monotonic())

    def look(self) -> list[tuple[int, float]]:
        return [SLOT.unpack_from(self._memory, HEAD_BYTES + SLOT.size * member) for member in range(self.members)]


class CurveRoom:
    """CURVE XPUB and SUB. With a queue for each member, or one queue for all."""

    def __init__(self, board: Board, seal: Seal, open_: Open, *, shared: bool) -> None:
        self.zmq = import_module("zmq")
        self.board, self.seal, self.open = board, seal, open_
        self.topics = [os.urandom(32)] * board.members if shared else [os.urandom(32) for _ in range(board.members)]
        self.queues = self.topics[:1] if shared else self.topics
        self.server, self.client = self.zmq.curve_keypair(), self.zmq.curve_keypair()

    def lead(self) -> None:
        self.publisher = self.zmq.Context().socket(self.zmq.XPUB)
        self.publisher.sndhwm = 0
        self.publisher.linger = 0
        self.publisher.setsockopt(self.zmq.XPUB_VERBOSE, 1)
        self.publisher.curve_publickey, self.publisher.curve_secretkey = self.server
        self.publisher.curve_server = 1
        self.publisher.rcvtimeo = int(START_S_MAX * 1000)
        self.board.port = self.publisher.bind_to_random_port("tcp://127.0.0.1")
        for _ in range(self.board.members):
            self.publisher.recv()  # a subscription; raises if one does not arrive

    def say(self, text: str) -> None:
        for queue, frame in zip(self.queues, self.seal(text), strict=True):
            self.publisher.send_multipart((queue, frame))

    def attend(self, member: int) -> None:
        subscriber = self.zmq.Context().socket(self.zmq.SUB)
        subscriber.rcvhwm = 0
        subscriber.rcvtimeo = 1000
        subscriber.curve_publickey, subscriber.curve_secretkey = self.client
        subscriber.curve_serverkey = self.server[0]
        subscriber.subscribe(self.topics[member])
        subscriber.connect(f"tcp://127.0.0.1:{self.board.port}")
        came, parent = 0, os.getppid()
        while os.getppid() == parent:
            with suppress(self.zmq.Again):
                _, frame = subscriber.recv_multipart()
                self.open(member, frame)
                came += 1
                self.board.note(member, came)


class IrcRoom:
    """Plain-text clients of an IRC server that runs already."""

    def __init__(self, board: Board, port: int) -> None:
        self.board, self.server = board, port

    def lead(self) -> None:
        self.publisher = self._enter("publisher")
        self.board.port = self.server
        names, deadline = 0, time.monotonic() + START_S_MAX
        while names < self.board.members + 1:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{names} of {self.board.members + 1} are in the channel")
            time.sleep(0.02)
            self.publisher.sendall(b"NAMES " + CHANNEL + b"\r\n")
            heard = b""
            while b" 366 " not in heard:
                heard += self._read(self.publisher)
            listed = [line.partition(b" :")[2] for line in heard.split(b"\r\n") if b" 353 " in line]
            names = sum(len(line.split()) for line in listed)
        self.publisher.setblocking(False)

    def say(self, text: str) -> None:
        line = b"PRIVMSG " + CHANNEL + b" :" + text.encode() + b"\r\n"
        self.publisher.setblocking(True)
        self.publisher.sendall(line)

    def attend(self, member: int) -> None:
        parent = os.getppid()
        connection = self._enter(f"m{member}")
        connection.settimeout(1.0)
        came, rest = 0, b""
        while os.getppid() == parent:
            with suppress(TimeoutError):
                *lines, rest = (rest + self._read(connection)).split(b"\r\n")
                if fresh := sum(b" PRIVMSG " in line for line in lines):
                    came += fresh
                    self.board.note(member, came)

    def _enter(self, nick: str) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.server), START_S_MAX)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"NICK {nick}\r\nUSER {nick} 0 * :{nick}\r\n".encode())
        heard = b""
        while b" 001 " not in heard:
            heard += self._read(connection)
        connection.sendall(b"JOIN " + CHANNEL + b"\r\n")
        while b" 366 " not in heard:
            heard += self._read(connection)
        return connection

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        data = connection.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        for line in data.split(b"\r\n"):
            if line.startswith(b"PING"):
                connection.sendall(b"PONG" + line[4:] + b"\r\n")
        return data


# --- the ways ---------------------------------------------------------------------------------------------------------


def floor(board: Board, needs: Tree, *, shared: bool) -> CurveRoom:
    """Frames of `bytes` bytes, and nothing done with them."""
    frames = [os.urandom(needs["bytes"])] * (1 if shared else board.members)
    return CurveRoom(board, lambda _: frames, lambda _member, frame: frame, shared=shared)


def lean(board: Board, needs: Tree, keys: str) -> CurveRoom:
    """zerochat's own keys and envelopes alone."""
    sys.path[:0] = needs["path"]
    made = getattr(import_module("benchmarks.ours.core"), keys)(board.members)
    return CurveRoom(board, made.seal, made.open, shared=keys != "lean_multi")


def didcomm(board: Board, needs: Tree) -> CurveRoom:
    """SICPA's library, one envelope for each member."""
    sys.path += needs["path"]  # last: only what is missing here
    warnings.showwarning = lambda *_, **__: None  # what other people's code is warned of is not our news
    sys.path.insert(0, needs["here"])
    library = import_module("envelope")
    pairs = [library.Sicpa(needs["publisher"], member) for member in needs["members"]]

    def seal(text: str) -> list[bytes]:
        plain = json.dumps({"id": "c4f1", "type": needs["type"], "body": {"text": text}})
        return [pair.pack(plain).encode() for pair in pairs]

    return CurveRoom(board, seal, lambda member, frame: pairs[member].unpack(frame.decode()), shared=False)


WAYS: dict[str, Callable[[Board, Tree], Any]] = {
    "floor": lambda board, needs: floor(board, needs, shared=False),
    "floor-single": lambda board, needs: floor(board, needs, shared=True),
    "lean": lambda board, needs: lean(board, needs, "lean_multi"),
    "lean-single": lambda board, needs: lean(board, needs, "lean_single"),
    "lean-signed": lambda board, needs: lean(board, needs, "lean_signed"),
    "didcomm": didcomm,
    "irc": lambda board, needs: IrcRoom(board, needs["port"]),
}


def burst(room: Any, board: Board, batch: int, text: str) -> tuple[float, int]:
    before = [came for came, _ in board.look()]
    begun = time.monotonic()
    for _ in range(batch):
        room.say(text)
    deadline = time.monotonic() + BURST_S_MAX
    said = time.monotonic()
    while True:
        now = board.look()
        came = [count - had for (count, _), had in zip(now, before, strict=True)]
        last = max(when for _, when in now)
        if min(came) >= batch or time.monotonic() > min(deadline, max(last, said) + SILENCE_S_MAX):
            return (last - begun) * 1000, sum(came)
        time.sleep(LOOK_S)


def main() -> None:
    way, members = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    board = Board(members)
    room = WAYS[way](board, json.loads(sys.stdin.readline()))
    children = []
    try:
        for member in range(members):
            child = os.fork()
            if child == 0:
                sys.stdin.close()
                try:
                    if board.wait_for_port():
                        room.attend(member)
                finally:
                    os._exit(0)
            children.append(child)
        room.lead()
        print("ready", flush=True)
        for line in sys.stdin:
            batch, text = line.split()
            ms, came = burst(room, board, int(batch), text)
            print(ms, came, flush=True)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
