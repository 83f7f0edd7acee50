"""Distant hosts on one machine: network namespaces joined by a line that delays IP packets.

The delay applies to packets. A proxy of byte streams would terminate TCP, and hide the main cost of short messages over
a wide area: the kernel's slow start. So each host has a TUN device, and one process (`carry.c`, built here with the
system's compiler, because at n = 16 it must carry thousands of packets a second without adding to their delay) delivers
each packet after the sum of both hosts' one-way delays.

The namespaces are anonymous. Each belongs to one thread of this process, which starts everything on that host
(`Host.call`, `Host.start`); so two runs never meet, nothing outside changes, and the kernel removes all of it when this
process ends.
"""

import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU, SIOCSIFTXQLEN = 0x8914, 0x8916, 0x891C, 0x8922, 0x8943
IFF_UP, IFF_RUNNING = 0x1, 0x40
MTU, QUEUE_PACKETS = 1500, 10_000
NETWORK = "10.99"

TCP = {
    "tcp_congestion_control": "reno",
    "tcp_slow_start_after_idle": "1",
    "tcp_no_metrics_save": "1",
}
"""The TCP settings of every host beyond the kernel's defaults: a plain congestion control, so that runs compare; slow
start after idling; and no metrics cached between connections."""


class NoLine(Exception):
    """No such line can be built here; the text says why."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Statistics of the line: packets, and their excess delay."""

    carried: int
    dropped: int
    late_us_p99: int
    late_us_max: int


class Host:
    """One network namespace, and the thread that lives in it."""

    def __init__(self, name: str, number: int, one_way_ms: float) -> None:
        """`one_way_ms`: this host's share of the way to any other. Raises OSError."""
        self.name, self.number, self.one_way_ms = name, number, one_way_ms
        self.address = f"{NETWORK}.{number >> 8}.{number & 255}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"host-{name}")
        try:
            self.device = self.call(self._settle)
        except BaseException:
            self._thread.shutdown()
            raise

    def call(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do this on the host. Sockets, threads and processes that it makes belong there for as long as they live."""
        return self._thread.submit(work, *arguments, **named).result()

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process on the host, as Popen does; it is killed when this thread ends."""

        def popen() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)

        return self.call(popen)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.device)
        self._thread.shutdown()

    def _settle(self) -> int:
        """Go into a namespace of our own and furnish it; gives the descriptor of its device."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"no network namespace: {os.strerror(number)}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            name = b"wide"
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name, IFF_TUN | IFF_NO_PI))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                up = struct.pack("16sH", b"lo", IFF_UP | IFF_RUNNING)
                fcntl.ioctl(control, SIOCSIFFLAGS, up)
                fcntl.ioctl(control, SIOCSIFADDR, _with_address(name, self.address))
                fcntl.ioctl(control, SIOCSIFNETMASK, _with_address(name, "255.255.0.0"))
                fcntl.ioctl(control, SIOCSIFMTU, struct.pack("16si", name, MTU))
                fcntl.ioctl(control, SIOCSIFTXQLEN, struct.pack("16si", name, QUEUE_PACKETS))
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH", name, IFF_UP | IFF_RUNNING))
            for key, value in TCP.items():
                Path(f"/proc/sys/net/ipv4/{key}").write_text(value)
        except BaseException:
            os.close(device)
            raise
        return device


def _with_address(name: bytes, address: str) -> bytes:
    """`struct ifreq` with a `sockaddr_in`."""
    return struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))


class Line:
    """The hosts and the process that carries their packets; a context that removes them."""

    def __init__(self, one_way_ms: Mapping[str, float]) -> None:
        """Names of hosts, and each one's share of the way in ms. Raises NoLine."""
        self.hosts: dict[str, Host] = {}
        self.carried: Carried | None = None
        """The statistics, once the line is closed."""
        self._carrier: subprocess.Popen[bytes] | None = None
        if fault := why_not():
            raise NoLine(fault)
        try:
            for number, (name, delay_ms) in enumerate(one_way_ms.items(), 1):
                self.hosts[name] = Host(name, number, delay_ms)
            self._carrier = self._carry()
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            raise NoLine(str(error)) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def rtt_ms(self, one: str, other: str) -> float:
        return 2 * (self.hosts[one].one_way_ms + self.hosts[other].one_way_ms)

    def close(self) -> None:
        if self._carrier is not None:
            try:
                said, _ = self._carrier.communicate(timeout=5)
                self.carried = Carried(**json.loads(said))
            except (ValueError, TypeError, subprocess.TimeoutExpired):
                self._carrier.kill()
                self._carrier.wait()
            self._carrier = None
        for host in self.hosts.values():
            host.close()

    def _carry(self) -> "subprocess.Popen[bytes]":
        with tempfile.TemporaryDirectory(prefix="zerochat-line-") as folder:
            program = Path(folder) / "carry"
            source = Path(__file__).with_name("carry.c")
            subprocess.run(["cc", "-O2", "-o", program, source], check=True, capture_output=True, timeout=60)
            hosts = self.hosts.values()
            return subprocess.Popen(
                [program, *(f"{host.device}:{host.number}:{round(host.one_way_ms * 1000)}" for host in hosts)],
                pass_fds=[host.device for host in hosts],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )


def why_not() -> str:
    """Why no line can be made here, or nothing."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    for program in ("cc", "setpriv"):
        if shutil.which(program) is None:
            return f"there is no `{program}`"
    return ""


def ping_ms(host: Host, address: str, count: int = 5, pause_s: float = 0.05) -> list[float]:
    """Round trips of ICMP echoes, which the far kernel answers by itself. Raises TimeoutError."""

    def ping() -> list[float]:
        times = []
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as wire:
            wire.settimeout(5)
            for number in range(count):
                begun = time.monotonic()
                wire.sendto(_echo(number), (address, 0))
                while True:
                    packet = wire.recv(1500)
                    if packet[20] == 0 and struct.unpack_from("!H", packet, 26)[0] == number:
                        break
                times.append((time.monotonic() - begun) * 1000)
                time.sleep(pause_s)
        return times

    return host.call(ping)


def _echo(number: int) -> bytes:
    """An ICMP echo request (RFC 792)."""
    body = struct.pack("!HH", os.getpid() & 0xFFFF, number)
    total = 0x0800 + sum(struct.unpack("!HH", body))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!BBH", 8, 0, ~total & 0xFFFF) + body
