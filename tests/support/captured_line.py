"""Hosts in network namespaces, on a line of which every packet is captured: by the host that gets it."""

import os
import select
import socket
import threading
from collections import defaultdict

import pytest

from benchmarks.wide.line import Host

PACKET_BYTES_MAX = 65_536


class CapturedLine:
    """Carries IP packets between the hosts, and keeps what each of them gets."""

    def __init__(self, *names):
        """Raises OSError where no namespaces can be made."""
        self.hosts = {name: Host(name, number, 0.0) for number, name in enumerate(names, 2)}
        self.got = defaultdict(list)
        """The packets that arrived, by the host's name."""
        self._stop, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        names = {socket.inet_aton(host.address): name for name, host in self.hosts.items()}
        devices = [host.device for host in self.hosts.values()]
        while self._stop not in (ready := select.select([*devices, self._stop], [], [])[0]):
            for device in ready:
                packet = os.read(device, PACKET_BYTES_MAX)
                name = names.get(packet[16:20]) if packet[0] >> 4 == 4 else None
                if name is not None:
                    self.got[name].append(packet)
                    os.write(self.hosts[name].device, packet)

    def seen(self, at, whose):
        """How many packets at one host name the address of another, in their headers or anywhere in them."""
        address = self.hosts[whose].address
        forms = (socket.inet_aton(address), address.encode())
        return sum(any(form in packet for form in forms) for packet in self.got[at])

    def sent(self, name):
        """The hosts that got a packet from this one."""
        source = socket.inet_aton(self.hosts[name].address)
        return {at for at, packets in self.got.items() if any(packet[12:16] == source for packet in packets)}

    def close(self):
        os.write(self._wake, b"x")
        self._thread.join(10)
        for host in self.hosts.values():
            host.close()
        os.close(self._stop)
        os.close(self._wake)


@pytest.fixture
def line():
    """Alice and her mediator, Bob and his, and Carol, who shares Bob's."""
    try:
        made = CapturedLine("alice", "near", "bob", "carol", "far")
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error.strerror}")
    yield made
    made.close()
