"""Real agents on the hosts of a line, and clients that timestamp every notification.

Each agent is a process of its own (`zerochat agent`), with a profile in a temporary folder, listening on and
advertising its host's address. Control sockets are files, so this one process is every agent's client, and all times
are of one clock: the monotonic one, in seconds.
"""

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import ROOT
from benchmarks.wide.line import Line
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_connection import NoAgent
from zerochat.agent.api.client_protocol import AgentError, ClientProtocol, Notification, Reply
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.rpc import JoinStatus

START_S_MAX, STOP_S_MAX = 60.0, 10.0
GROUP_S_MAX = 90.0
"""The time limit until the agent is connected with all members."""
POLL_S = 0.1


class Stuck(Exception):
    """A state was not reached in its time."""


class Face:
    """A second client of an agent, for timing: it sends requests without waiting, and timestamps what arrives."""

    def __init__(self, home: ProfilePaths) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(home.socket))
        self._dialogue = ClientProtocol()
        self.heard: list[tuple[float, Reply | Notification]] = []
        self.ask([("hello", {"protocol": 1, "client": "bench"}), ("subscribe", {})])

    def ask(self, questions: Iterable[tuple[str, dict[str, object]]]) -> float:
        """Send all these requests at once; returns when."""
        lines = b"".join(self._dialogue.request(method, params)[1] for method, params in questions)
        begun = time.monotonic()
        self._socket.sendall(lines)
        return begun

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> None:
        """Receive what is there; its arrival is no later than now."""
        data = self._socket.recv(1 << 18)
        now = time.monotonic()
        if not data:
            raise Stuck("an agent has closed its control socket")
        self.heard += [(now, said) for said in self._dialogue.receive(data)]

    def close(self) -> None:
        self._socket.close()


class Seat:
    """One agent: its process, its host's name, its client, and its client for timing."""

    def __init__(self, host: str, home: ProfilePaths, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.host, self.home, self.process, self._output = host, home, process, output
        self._client: Client | None = None
        self._face: Face | None = None

    @property
    def client(self) -> Client:
        """Waits until the agent is there. Raises Stuck."""
        deadline = time.monotonic() + START_S_MAX
        while self._client is None:
            try:
                self._client = connect(self.home, "bench")
            except NoAgent:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Stuck(f"the agent on {self.host} did not start: {self._output.read_text()[-500:]}") from None
                time.sleep(0.05)
        return self._client

    @property
    def face(self) -> Face:
        if self._face is None:
            self.client.get_status()  # it is there
            self._face = Face(self.home)
        return self._face

    def connected(self, group: str) -> int:
        return next((info.connected for info in self.client.list_groups() if info.id == group), 0)

    def members(self, group: str) -> int:
        return next((info.members for info in self.client.list_groups() if info.id == group), 0)

    def close(self) -> None:
        for end in (self._client, self._face):
            if end is not None:
                end.close()
        if self.process.poll() is None:
            self.process.terminate()


class Agents:
    """All agents of one measurement; a context that ends them all and deletes their folder."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._folder = tempfile.TemporaryDirectory(prefix="zcw-", dir="/tmp")  # short: a socket's path has 107 bytes
        self._seats: list[Seat] = []
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for seat in self._seats:
            seat.close()
        for seat in self._seats:
            _reap(seat.process)
        self._folder.cleanup()

    def start(self, host: str, name: str = "") -> Seat:
        """Start an agent on this host; it may not be ready yet. `name`: the member's display name, if not the host."""
        folder = Path(self._folder.name) / str(next(self._numbers))
        folder.mkdir()
        home = profile_paths(None, {"ZEROCHAT_HOME": str(folder)})
        create_profile(home, name or host, None)
        environment = {
            "HOME": str(folder),
            "ZEROCHAT_HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
            "ZEROCHAT_AGENT__PROTECT_MEMORY": "false",  # its sockets are counted from /proc
        }
        address = self._line.hosts[host].address
        command = [sys.executable, "-m", "zerochat", "agent", "--listen", address, "--advertise", address]
        with (folder / "output").open("wb") as output:
            process = self._line.hosts[host].start(
                command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        seat = Seat(host, home, process, folder / "output")
        self._seats.append(seat)
        return seat

    def stop(self, seat: Seat) -> None:
        seat.close()
        _reap(seat.process)
        self._seats.remove(seat)


def _reap(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def listen(faces: Sequence[Face], done: Callable[[], bool], within_s: float) -> bool:
    """Receive from all these clients until `done` is true, or the time is over (False)."""
    deadline = time.monotonic() + within_s
    with selectors.DefaultSelector() as selector:
        for face in faces:
            selector.register(face, selectors.EVENT_READ, face)
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(left):
                key.data.read()
    return True


def drain(faces: Sequence[Face], quiet_s: float) -> None:
    """Receive and discard until nothing more arrives."""
    listen(faces, lambda: False, quiet_s)
    for face in faces:
        face.heard.clear()


def until(what: str, done: Callable[[], bool], within_s: float = GROUP_S_MAX) -> None:
    """Look again and again until it is so. Raises Stuck."""
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            raise Stuck(f"{what}: not within {within_s:.0f} s")
        time.sleep(POLL_S)


def grow(group: str, inviter: Seat, newcomers: Sequence[Seat], size: int) -> None:
    """Have all newcomers join at once, and wait until the inviter has `size` members in its view. Untimed, but over
    the same line. Raises Stuck."""
    if newcomers:
        invitation = inviter.client.create_invitation(group, uses=len(newcomers)).url
        for seat in newcomers:
            with suppress(AgentError):
                seat.client.subscribe()
            seat.client.join_group(invitation)
        for seat in newcomers:
            _seated(seat.client, seat.host)
    until(f"{size} members at {inviter.host}", lambda: inviter.members(group) == size)


def _seated(client: Client, name: str) -> None:
    deadline = time.monotonic() + GROUP_S_MAX
    while (news := client.next_notification(max(0.0, deadline - time.monotonic()))) is not None:
        if isinstance(news.params, JoinStatus) and news.params.phase == "failed":
            raise Stuck(f"{name} could not join: {news.params.text}")
        if isinstance(news.params, JoinStatus) and news.params.phase == "joined":
            return
    raise Stuck(f"{name} did not join")
