"""Real agents for the benchmarks: one process each, with profiles in a temporary folder, joined over loopback.

Only the product's commands and its control socket are used. A message counts as delivered when the member's agent has
notified its client.
"""

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from benchmarks import ROOT
from benchmarks.peers.rooms import QUIET_S, Burst
from benchmarks.peers.tcp import bytes_sent
from zerochat.agent.api.client import Client, connect
from zerochat.agent.api.client_protocol import ClientProtocol, Reply
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.errors import LocalError
from zerochat.rpc import GroupInfo, JoinStatus

GROUP = "bench"
STEP_S_MAX = 120.0
"""How long one wave of joins, or one burst, may take before it counts as failed."""
SILENCE_S_MAX = 30.0
"""A burst is over when nothing has arrived for this long, which exceeds the members' retransmission delay."""
LOOK_S = 0.2
WAVE = 8
"""Members that join at once: all dial each other, and a handshake has a time limit."""
TRIES_MAX, TRY_S_MAX = 4, 150.0
"""Of a join. An agent gives up after 60 s without an answer, and 60 more without a connected member."""
OUTPUT = "output"
"""The file of an agent's output, in its folder."""
READ_BYTES = 1 << 18
ZEROCHAT = ("-m", "zerochat")
"""The arguments for Python."""


class NotReady(Exception):
    """The agents did not reach this state in time; the text says which one they reached."""


@dataclass(slots=True)
class Member:
    """One agent: its process, its client, and its stream of notifications."""

    process: "subprocess.Popen[bytes]"
    places: ProfilePaths
    client: Client
    news: Client
    """A subscription that only counts, so that the measurement takes little time from the agents."""


class Agents:
    """A publisher and the members of its group. `grow` has more of them join; everything ends with the context."""

    def __init__(
        self, folder: Path, keys: str | None, say: Callable[[str], None], program: Sequence[str] = ZEROCHAT
    ) -> None:
        """`keys`: as for `zerochat new --keys`; None: the default. `program`: the arguments for Python that start an
        agent."""
        self._folder, self._say, self._program = folder, say, program
        self.kind = ["--keys", keys] if keys else []
        """The options of `zerochat new`."""
        self._stack = contextlib.ExitStack()
        self._members: list[Member] = []
        self._bursts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.process.kill()  # all at once; the folder is deleted with all unsent output
        self._stack.close()

    @property
    def publisher(self) -> Member:
        return self._members[0]

    @property
    def listeners(self) -> list[Member]:
        return self._members[1:]

    @property
    def members(self) -> list[Member]:
        return self._members

    @property
    def inviter(self) -> Member:
        """The member through which the next ones join."""
        return self.publisher

    def pids(self) -> list[int]:
        return [member.process.pid for member in self._members]

    def grow(self, count: int) -> None:
        """Grow the group to this many recipients, all connected with each other. Raises NotReady."""
        if not self._members:
            self._start(1)
            zerochat(["new", GROUP, *self.kind], self.publisher.places)
        while (here := len(self._members)) <= count:
            began = time.monotonic()
            wave = min(WAVE, count + 1 - here)
            self._start(wave)
            self._join(self._members[here:])
            self._settle()
            self._say(f"{len(self._members) - 1} members, {time.monotonic() - began:.1f} s for the last {wave}")

    def add(self) -> None:
        """Have one more member join, whatever the others are doing. Raises NotReady."""
        here = len(self._members)
        self._start(1)
        self._join(self._members[here:])

    def restart(self, member: Member) -> None:
        """Kill a member's agent, as `kill -9` does, and start it again. Raises NotReady."""
        member.process.kill()
        member.process.wait()
        for client in (member.client, member.news):
            client.close()
        verb = ["agent", "--listen", "127.0.0.1"]
        member.process = self._stack.enter_context(running(verb, member.places, self._program))
        member.client = self._stack.enter_context(connected(member.process, member.places))
        member.news = self._stack.enter_context(connect(member.places, "benchmark"))

    def burst(self, batch: int, text_bytes: int, *, singly: bool = False) -> Burst:
        """Send this many messages at the publisher, and wait until all members have them or no more arrive. All at
        once, as a busy bot does; or `singly`, each after the previous one was accepted, so that no two share an
        envelope."""
        self._bursts += 1
        text = f"{self._bursts:0{text_bytes}d}"
        marker = f'"{text}"'.encode()
        listeners = self._members[1:]
        wanted = batch * len(listeners)
        dialogue = ClientProtocol()
        asked = [dialogue.request("send_message", {"group": GROUP, "text": text})[1] for _ in range(batch)]
        answered = came = 0
        tails = [b""] * len(listeners)
        before = bytes_sent(self.publisher.process.pid)
        own = socket.socket(fileno=os.dup(self.publisher.client.fileno()))
        with own as connection, selectors.DefaultSelector() as selector:
            for number, member in enumerate(listeners):
                selector.register(member.news, selectors.EVENT_READ, number)
            selector.register(connection, selectors.EVENT_READ, -1)
            begun = time.monotonic()
            connection.settimeout(STEP_S_MAX)
            connection.sendall(asked[0] if singly else b"".join(asked))
            last = begun
            while (came < wanted or answered < batch) and time.monotonic() < begun + STEP_S_MAX:
                ready = selector.select(SILENCE_S_MAX)
                if not ready:
                    break
                for key, _ in ready:
                    number = key.data
                    if number < 0:
                        accepted = sum(_sent(said) for said in dialogue.receive(connection.recv(READ_BYTES)))
                        answered += accepted
                        if singly and accepted and answered < batch:
                            connection.sendall(asked[answered])
                        continue
                    heard = tails[number] + os.read(key.fd, READ_BYTES)
                    came += heard.count(marker)
                    tails[number] = heard[heard.rfind(b"\n") + 1 :]
                    came -= tails[number].count(marker)
                    last = time.monotonic()
        after = bytes_sent(self.publisher.process.pid)
        sent = None if before is None or after is None else after - before
        return Burst((last - begun) * 1000, came, wanted, sent)

    def rest(self) -> None:
        """Wait until all members have acknowledged everything, so that no burst pays for the previous one."""
        deadline = time.monotonic() + SILENCE_S_MAX
        while _group(self.publisher).unacknowledged and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(QUIET_S)

    def is_linked(self, member: Member, group: GroupInfo) -> bool:
        """Whether a member is connected with all others."""
        return group.connected == group.members - 1

    # --- setting up -----------------------------------------------------------------------------------------------

    def _start(self, count: int) -> None:
        """Start so many agents, all at once because most of a start is waiting for a core."""
        started: list[tuple[subprocess.Popen[bytes], ProfilePaths]] = []
        for number in range(len(self._members), len(self._members) + count):
            home = profile_paths(f"a{number}", {"ZEROCHAT_HOME": str(self._folder / f"{number}")})
            create_profile(home, f"a{number}", None)
            started.append(
                (self._stack.enter_context(running(["agent", "--listen", "127.0.0.1"], home, self._program)), home)
            )
        for process, home in started:
            client = self._stack.enter_context(connected(process, home))
            news = self._stack.enter_context(connect(home, "benchmark"))
            self._members.append(Member(process, home, client, news))

    def _join(self, joiners: list[Member]) -> None:
        """A join that times out while many others dial is tried again, as a user would: with the same invitation, of
        which a joiner that was admitted too late, and has left, needs another use."""
        invitation = self.inviter.client.create_invitation(GROUP, uses=TRIES_MAX * len(joiners))
        for joiner in joiners:
            joiner.news.subscribe()
            joiner.client.join_group(invitation.code)
        for joiner in joiners:
            for left in reversed(range(TRIES_MAX)):
                status = _outcome(joiner.news, time.monotonic() + TRY_S_MAX)
                if status.phase == "joined":
                    break
                if not left:
                    raise NotReady(status.text)
                self._say(f"a join failed and is begun again: {status.text}")
                joiner.client.join_group(invitation.code)

    def _settle(self) -> None:
        """Wait until all members are connected with each other and see the same members.

        Agents are polled one after the other, to take little time from them."""
        deadline = time.monotonic() + STEP_S_MAX
        count, met, view = len(self._members), 0, ""
        while met < count:
            group = _group(self._members[met])
            agrees = not met or group.view == view
            if agrees and group.members == count and self.is_linked(self._members[met], group):
                met, view = met + 1, group.view
                continue
            if time.monotonic() > deadline:
                raise NotReady(f"{count - met} of {count} agents have not met everybody")
            met = met if agrees else 0
            time.sleep(LOOK_S)
        for member in self._members:
            _drain(member.news)


def _outcome(news: Client, deadline: float) -> JoinStatus:
    """How a join ends. Raises NotReady when it does not."""
    while (item := news.next_notification(max(0.0, deadline - time.monotonic()))) is not None:
        if isinstance(item.params, JoinStatus) and item.params.phase in ("joined", "failed"):
            return item.params
    raise NotReady("a join did not end in time")


def _sent(said: object) -> bool:
    if isinstance(said, Reply) and isinstance(said.result, LocalError):
        raise said.result
    return isinstance(said, Reply)


def _group(member: Member) -> GroupInfo:
    return next(group for group in member.client.list_groups() if group.name == GROUP)


def _drain(client: Client) -> None:
    while client.next_notification(0.0) is not None:
        pass


def connected(process: "subprocess.Popen[bytes]", home: ProfilePaths) -> Client:
    """A client of an agent that is still starting."""
    deadline = time.monotonic() + STEP_S_MAX
    while True:
        try:
            return connect(home, "benchmark")
        except LocalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotReady(f"an agent did not start: {(home.data / OUTPUT).read_text()[-500:]}") from None
            time.sleep(0.02)


@contextlib.contextmanager
def running(
    verb: list[str], home: ProfilePaths, program: Sequence[str] = ZEROCHAT
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of zerochat's, killed in the end."""
    with (home.data / OUTPUT).open("wb") as output, _open([*program, *verb], home, output) as process:
        try:
            yield process
        finally:
            process.kill()


def _open(words: list[str], home: ProfilePaths, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, *words],
        env=_environment(home),
        cwd=home.data,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )


def zerochat(verb: list[str], home: ProfilePaths) -> str:
    """Run a verb to its end, and give its output. Raises CalledProcessError."""
    done = subprocess.run(
        [sys.executable, *ZEROCHAT, *verb],
        env=_environment(home),
        cwd=home.data,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=STEP_S_MAX,
        check=True,
    )
    return done.stdout.decode()


def _environment(home: ProfilePaths) -> dict[str, str]:
    return {
        "HOME": str(home.data),
        "ZEROCHAT_HOME": str(home.data.parent.parent),
        "ZEROCHAT_PROFILE": home.profile,
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "ZEROCHAT_AGENT__PROTECT_MEMORY": "false",  # its sockets are counted from /proc
    }
