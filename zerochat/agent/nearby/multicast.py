"""Multicast sockets of one network: one pair to send and to receive for IPv4, and one for IPv6.

A receiving socket is bound to the group's address, so that only datagrams to the group come in; with a hop limit of 1
they stay on their network. Groups: 239.255.42.99 (administratively scoped, RFC 2365) and ff02::4242 (link-local).
"""

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from zerochat.agent.nearby.announcement import ANNOUNCEMENT_BYTES
from zerochat.agent.nearby.networks import Network
from zerochat.closing import Closing

PORT: Final = 42_042
GROUP_V4: Final = "239.255.42.99"
GROUP_V6: Final = "ff02::4242"
GROUPS: Final = {socket.AF_INET: GROUP_V4, socket.AF_INET6: GROUP_V6}
IP_MULTICAST_ALL: Final = 49
"""Linux, not named by Python: whether a socket gets what any socket of the machine has joined."""
RECEIVE_BYTES: Final = 64 * 1024


class MulticastSockets(Closing):
    """The sockets for the groups on one network. A family that the network does not have is left out.

    `receivers` are non-blocking, for a poller; `receive` reads one.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.receivers: list[socket.socket] = []
        self._senders: dict[int, socket.socket] = {}
        for open_ in (self._open_v4, self._open_v6):
            with suppress(OSError):
                open_()

    def send(self, packet: bytes, family: socket.AddressFamily) -> bool:
        """Multicast it in one family; False: the network does not have it, is going down, or its queue is full."""
        sender = self._senders.get(family)
        with suppress(OSError):
            return sender is not None and bool(sender.sendto(packet, (GROUPS[family], PORT)))
        return False

    @staticmethod
    def receive(receiver: socket.socket) -> Iterator[tuple[bytes, str]]:
        """The packets that wait, at most 32, each with its source address; an IPv6 link-local one has its zone."""
        for _ in range(32):
            try:
                packet, source = receiver.recvfrom(ANNOUNCEMENT_BYTES + 1)
            except OSError:
                return
            zone = f"%{source[3]}" if len(source) > 3 and source[3] else ""
            yield packet, source[0].partition("%")[0] + zone

    def close(self) -> None:
        for one in [*self.receivers, *self._senders.values()]:
            one.close()
        self.receivers, self._senders = [], {}

    # --- inside -----------------------------------------------------------------------------------------------------

    def _open_v4(self) -> None:
        here = struct.pack("=4s4si", bytes(4), bytes(4), self.network.index)
        joined = struct.pack("=4s4si", socket.inet_aton(GROUP_V4), bytes(4), self.network.index)
        receiver = self._receiver(socket.AF_INET)
        try:
            if sys.platform == "linux":
                receiver.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
            receiver.bind((GROUP_V4, PORT))
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError:
            receiver.close()
            raise
        self._add(receiver, sender)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        if self.network.is_loopback:
            sender.bind(("127.0.0.1", 0))  # else another address of this machine is its source

    def _open_v6(self) -> None:
        joined = socket.inet_pton(socket.AF_INET6, GROUP_V6) + struct.pack("=I", self.network.index)
        receiver = self._receiver(socket.AF_INET6)
        try:
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, joined)
            receiver.bind((GROUP_V6, PORT, 0, self.network.index))
            sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        except OSError:
            receiver.close()
            raise
        self._add(receiver, sender)
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self.network.index)
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)

    def _receiver(self, family: int) -> socket.socket:
        """Several agents of a machine may have one: each gets every datagram to the group."""
        new = socket.socket(family, socket.SOCK_DGRAM)
        new.setblocking(False)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform != "linux":
            new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        return new

    def _add(self, receiver: socket.socket, sender: socket.socket) -> None:
        sender.setblocking(False)
        self.receivers.append(receiver)
        self._senders[sender.family] = sender
