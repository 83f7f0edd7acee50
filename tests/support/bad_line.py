"""Bad lines between hosts: kernel TCP over lossy, duplicating, reordering IP links.

The hosts are those of the wide-area benchmarks (`benchmarks/wide/line.py`), each a network namespace with a TUN device.
A thread of the test carries their packets, so that faults can change at any moment; it has its own random generator.
"""

import heapq
import os
import random
import select
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import pytest

from benchmarks.wide.line import Host, why_not

PACKET_BYTES, BITE = 65_536, 64
NAP_S = 0.05
DESTINATION = 16
"""Offset of the destination in an IPv4 header (RFC 791)."""

needs_line = pytest.mark.skipif(bool(why_not()), reason=why_not() or "a line can be made")


class BadLine:
    """The hosts, and what the line does to their packets; a context, at the end of which nothing of it is left."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        """Needs what `needs_line` asks for. Raises OSError."""
        self.loss = self.twice = 0.0
        """How many of all packets are lost on each way, and how many of the others come twice."""
        self.delay_s = self.jitter_s = 0.0
        """How late each packet is at least, and by up to how much more: those that overtake others come first."""
        self.gone: set[str] = set()
        """Hosts that nothing leaves and nothing reaches."""
        self.packets = self.lost = self.doubled = 0
        self.failures: list[BaseException] = []
        self._dice = random.Random(seed)
        self._ended = False
        self.hosts: dict[str, Host] = {}
        try:
            for number, name in enumerate(names, 1):
                self.hosts[name] = Host(name, number, 0.0)
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, name="badline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join(10)
        self._close()
        assert not self.failures, self.failures

    def heal(self) -> None:
        self.loss = self.twice = self.delay_s = self.jitter_s = 0.0
        self.gone.clear()

    def _close(self) -> None:
        for host in self.hosts.values():
            host.close()

    def _run(self) -> None:
        try:
            self._carry()
        except Exception as error:  # noqa: BLE001  # the test is told
            self.failures.append(error)

    def _carry(self) -> None:
        owners = {host.device: host for host in self.hosts.values()}
        by_address = {bytes(map(int, host.address.split("."))): host for host in self.hosts.values()}
        waiting: list[tuple[float, int, int, bytes]] = []
        while not self._ended:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(waiting)
                with suppress(BlockingIOError):  # a full queue drops, as a router does
                    os.write(device, packet)
            nap = min(NAP_S, max(0.0, waiting[0][0] - now)) if waiting else NAP_S
            for device in select.select(list(owners), [], [], nap)[0]:
                for packet in _packets(device):
                    to = by_address.get(packet[DESTINATION : DESTINATION + 4])
                    if to is None or {to.name, owners[device].name} & self.gone:
                        continue
                    self._meet(waiting, to.device, packet)

    def _meet(self, waiting: list[tuple[float, int, int, bytes]], device: int, packet: bytes) -> None:
        """Draw one packet's fate."""
        self.packets += 1
        if self._dice.random() < self.loss:
            self.lost += 1
            return
        copies = 1 + (self._dice.random() < self.twice)
        self.doubled += copies - 1
        for _ in range(copies):
            due = time.monotonic() + self.delay_s + self._dice.random() * self.jitter_s
            heapq.heappush(waiting, (due, self.packets * 2 + copies, device, packet))


def _packets(device: int) -> list[bytes]:
    """What a device has to send just now; IPv4 alone."""
    found = []
    with suppress(BlockingIOError):
        for _ in range(BITE):
            packet = os.read(device, PACKET_BYTES)
            if struct.unpack_from("B", packet)[0] >> 4 == 4:
                found.append(packet)
    return found
