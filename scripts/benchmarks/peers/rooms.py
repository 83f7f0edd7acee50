"""Alternative transports for a group, each as a program on loopback that reports the time of a burst.

`room.py` is one publisher and its members in processes of their own; `tox.c` is a whole Tox network in one. A transport
that is not installed raises `NotHere`, and the benchmark continues without it.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

import interop_environment
from benchmarks import ROOT
from benchmarks.envelope import PEERS_PYTHON, TYPE, described
from benchmarks.peers.cpu import cpu_ms, session
from benchmarks.peers.tcp import bytes_sent
from environment import Trouble
from zerochat.didcomm.did import new_peer4

HERE = Path(__file__).parent
START_S_MAX, BURST_S_MAX = 180.0, 150.0
QUIET_S = 0.4
"""After a burst, until its processor time is read: longer than our members wait for something that their
acknowledgements could ride on."""


class NotHere(Exception):
    """This transport is not installed or does not work here; the text says why."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Milliseconds until the last member had the last message, and how many of the wanted copies came."""

    ms: float
    came: int
    wanted: int
    sent: int | None = None
    """Bytes that the publisher (or the server) has sent meanwhile; None where that cannot be known."""
    cpu_ms: float | None = None
    """Processor time of all processes until all is quiet again, ms; None where that cannot be known."""


@dataclass(slots=True)
class Room:
    """A program that prints `ready`, and then answers one line with one line."""

    process: "subprocess.Popen[str]"
    name: str
    counted: int | None
    """The process that sends everything over TCP; None: there is none."""
    pids: Sequence[int]
    """All processes."""
    bursts: int = 0

    def burst(self, members: int, batch: int, text_bytes: int, *, sized: bool = False) -> Burst:
        """`sized`: the program has groups of several sizes, and the request names one."""
        self.bursts += 1
        text = f"{self.bursts:0{text_bytes}d}"
        before, busy = self._sent(), cpu_ms(self.pids)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{members} {batch} {text}\n" if sized else f"{batch} {text}\n")
        self.process.stdin.flush()
        ms, came = self.line(BURST_S_MAX).split()
        after = self._sent()
        sent = None if before is None or after is None else after - before
        time.sleep(QUIET_S)
        used = cpu_ms(self.pids)
        spent = None if busy is None or used is None else used - busy
        return Burst(float(ms), int(came), members * batch, sent, spent)

    def line(self, within_s: float) -> str:
        """Its next line. Raises NotHere if there is none."""
        assert self.process.stdout is not None
        heard = select.select([self.process.stdout], [], [], within_s)[0]
        line = self.process.stdout.readline() if heard else ""
        if not line:
            raise NotHere(f"{self.name} {'has ended' if heard else 'does not answer'}")
        return line.strip()

    def _sent(self) -> int | None:
        return None if self.counted is None else bytes_sent(self.counted)


@contextlib.contextmanager
def program(name: str, command: Sequence[str], needs: str = "", counted: int | None = 0) -> Iterator[Room]:
    """Start a program, wait until it is ready, and end it with all that it has started.

    `counted`: as in `Room`; 0: the program itself. Raises NotHere.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        try:
            room = Room(process, name, process.pid if counted == 0 else counted, [process.pid])
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(needs)
                process.stdin.flush()
            if room.line(START_S_MAX) != "ready":
                raise NotHere(f"{name} does not get ready")
            room.pids = [*session(process.pid), *([counted] if counted else [])]
            yield room
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def room(
    way: str, members: int, needs: dict[str, Any], python: str = sys.executable, counted: int | None = 0
) -> contextlib.AbstractContextManager[Room]:
    """One way of `room.py`'s."""
    command = [python, "-I", str(HERE / "room.py"), way, str(members)]
    return program(way, command, json.dumps(needs) + "\n", counted)


def curve(way: str, members: int, frame_bytes: int) -> contextlib.AbstractContextManager[Room]:
    """The floor and the lean form, for groups with one queue (`-single`) or with one for each member."""
    return room(way, members, {"bytes": frame_bytes, "path": [str(ROOT), str(ROOT / "scripts")]})


@contextlib.contextmanager
def didcomm(members: int) -> Iterator[Room]:
    """SICPA's envelopes over the same sockets. Raises NotHere."""
    try:
        python = os.environ.get(PEERS_PYTHON) or str(interop_environment.interpreter("interop"))
    except (Trouble, OSError) as error:
        raise NotHere(str(error)) from None
    if subprocess.run([python, "-I", "-c", "import didcomm"], capture_output=True, timeout=60).returncode:
        raise NotHere("didcomm is not installed")
    publisher, *others = (described(new_peer4(os.urandom, [])) for _ in range(members + 1))
    site = str(Path(zmq.__file__).parent.parent)
    needs = {"publisher": publisher, "members": others, "type": TYPE, "path": [site], "here": str(HERE)}
    with room("didcomm", members, needs, python) as found:
        yield found


@contextlib.contextmanager
def irc(members: int, folder: Path) -> Iterator[Room]:
    """ngIRCd without its brakes, and plain clients. Raises NotHere."""
    server = shutil.which("ngircd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if server is None:
        raise NotHere("ngircd is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = folder / f"ngircd-{port}.conf"
    settings.write_text(
        f"[Global]\nName = irc.example\nInfo = benchmark\nListen = 127.0.0.1\nPorts = {port}\n"
        "[Limits]\nMaxConnections = 0\nMaxConnectionsIP = 0\nMaxJoins = 0\nMaxPenaltyTime = 0\nPingTimeout = 3600\n"
        "[Options]\nDNS = no\nIdent = no\nPAM = no\n"
    )
    command = [server, "--nodaemon", "--config", str(settings)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for_port(port, process)
            with room("irc", members, {"port": port}, counted=process.pid) as found:
                yield found
        finally:
            process.kill()


def wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 10.0
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise NotHere("ngircd does not start")
        time.sleep(0.05)


@contextlib.contextmanager
def tox(sizes: Sequence[int], folder: Path) -> Iterator[Room]:
    """Tox conferences of all these sizes; the program is built here and now. Raises NotHere."""
    compiler, built = shutil.which("cc"), folder / "tox"
    if compiler is None:
        raise NotHere("no C compiler is installed")
    command = [compiler, "-O2", "-o", str(built), str(HERE / "tox.c"), "-ltoxcore", "-lpthread"]
    if subprocess.run(command, capture_output=True, timeout=60).returncode:
        raise NotHere("toxcore is not installed")
    largest_first = [str(size) for size in sorted(sizes, reverse=True)]
    with program("tox", [str(built), *largest_first], counted=None) as found:
        yield found
