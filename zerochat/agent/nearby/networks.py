"""The networks that this machine is connected to, by what makes them recognisable at the next visit.

A network is known by its interface and the hardware address of its gateway; without a gateway, by its IPv4 range: an
island of laptops has none. So `192.168.1.0/24` at home and in a café are two networks. The system tells the gateway on
Linux only; elsewhere the range has to do.
"""

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from zerochat.crypto.primitives import sha256

ID_BYTES: Final = 8
NETWORKS_MAX: Final = 16
"""Interfaces that are used at a time: a machine with containers has dozens."""
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
_GETS: Final = {"linux": (0x8913, 0x8915, 0x891B), "darwin": (0xC0206911, 0xC0206921, 0xC0206925)}
"""By system: the ioctl numbers of an interface's flags, IPv4 address and netmask."""


class Network(Struct, frozen=True):
    """A network at one interface of this machine."""

    interface: str
    index: int
    """The interface's number; it changes with the boot."""
    id: str
    """Hex digits by which it is recognised."""
    range: str = ""
    """Its IPv4 range, such as 192.168.1.0/24; empty: it has only IPv6."""
    is_loopback: bool = False

    @property
    def name(self) -> str:
        return f"{self.interface} ({self.range})" if self.range else self.interface


def networks() -> list[Network]:
    """The networks of the interfaces that are up, at most `NETWORKS_MAX`, loopback last."""
    found = list(_found())
    return sorted(found, key=lambda one: (one.is_loopback, one.index))[:NETWORKS_MAX]


def _found() -> Iterator[Network]:
    gateways = _gateways()
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for index, interface in socket.if_nameindex():
            flags, address, mask = (_get(probe, interface, number) for number in _numbers())
            bits = struct.unpack_from("=H", flags, 16)[0] if flags else 0
            if not bits & IFF_UP:
                continue
            range_ = _range(address, mask)
            mark = gateways.get(interface) or range_
            digest = sha256(f"{interface} {mark}".encode())[:ID_BYTES].hex()
            yield Network(interface, index, digest, range_, bool(bits & IFF_LOOPBACK))


def _numbers() -> tuple[int, int, int]:
    return _GETS.get(sys.platform, _GETS["linux"])


def _get(probe: socket.socket, interface: str, number: int) -> bytes:
    """The answer of an ioctl for an interface; empty: it has none."""
    import fcntl

    try:
        return fcntl.ioctl(probe, number, struct.pack("16s24x", interface.encode()[:15]))
    except OSError:
        return b""


def _range(address: bytes, mask: bytes) -> str:
    if not address or not mask:
        return ""
    host, bits = (socket.inet_ntoa(one[20:24]) for one in (address, mask))
    try:
        return str(ipaddress.ip_network(f"{host}/{bits}", strict=False))
    except ValueError:
        return ""


def _gateways() -> dict[str, str]:
    """By interface: the hardware address of its default gateway, where the kernel knows it."""
    found: dict[str, str] = {}
    try:
        routes = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
        neighbours = Path("/proc/net/arp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return found
    hardware = {(fields[0], fields[-1]): fields[3] for line in neighbours if len(fields := line.split()) >= 6}
    for line in routes:
        fields = line.split()
        if len(fields) > 2 and fields[1] == "00000000":
            gateway = socket.inet_ntoa(int(fields[2], 16).to_bytes(4, sys.byteorder))
            if (address := hardware.get((gateway, fields[0]))) is not None:
                found[fields[0]] = address
    return found
