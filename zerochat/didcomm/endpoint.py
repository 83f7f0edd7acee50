"""Endpoints: literal IP addresses and TCP ports of ZeroMQ sockets, as stated by peers.

Input is untrusted: no name resolution, no IPv4 embedded in IPv6, no address with a machine-local meaning.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from msgspec import Struct

from zerochat.errors import Malformed

_ENDPOINT = re.compile(r"(?:zmq\+)?tcp://(?:([0-9.]{7,15})|\[([0-9A-Fa-f:.]{2,45})\]):([1-9][0-9]{0,4})")

_UNREACHABLE_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; the unspecified address connects to the own machine
        "169.254.0.0/16",  # link-local, where clouds keep their metadata services
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_LOOPBACK_V6 = IPv6Address("::1")
_UNREACHABLE_V6 = tuple(
    IPv6Network(network)
    for network in (
        "::/96",  # unspecified, and IPv4-compatible addresses
        "::ffff:0:0/96",  # IPv4-mapped: an IPv4 address that evades the rules above
        "::ffff:0:0:0/96",  # IPv4-translated (SIIT), likewise
        "64:ff9b::/96",  # NAT64, likewise
        "64:ff9b:1::/48",  # NAT64 with a local prefix, likewise
        "2001::/32",  # Teredo, likewise
        "2002::/16",  # 6to4, likewise
        "fe80::/10",  # link-local: meaningless without a zone, which is machine-local
        "fec0::/10",  # site-local, deprecated for the same reason
        "ff00::/8",  # multicast
    )
)


class Endpoint(Struct, frozen=True):
    """A literal IP address and TCP port. The constructor raises Malformed for an unreachable address.

    It cannot be made with an address that is not worth dialling: that raises Malformed.
    """

    host: str
    """Canonical spelling, IPv6 without brackets."""
    port: int

    def __post_init__(self) -> None:
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise Malformed(why="a port out of range")
        _check_host(self.host)

    @classmethod
    def parse(cls, uri: str) -> "Endpoint":
        """The endpoint of a `zmq+tcp://` or `tcp://` URI. Raises Malformed."""
        return _parsed(uri)

    @property
    def packed(self) -> bytes:
        """The address in network order: 4 or 16 bytes."""
        return ip_address(self.host).packed

    @property
    def tcp(self) -> str:
        """As libzmq expects it: `tcp://192.0.2.1:5000`, `tcp://[2001:db8::1]:5000`."""
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    def __str__(self) -> str:
        """As in DID documents and invitations: no scheme is registered, and `tcp` alone would mislead."""
        return "zmq+" + self.tcp


@lru_cache(maxsize=256)
def _check_host(host: str) -> None:
    """Raise Malformed for an address that cannot be dialled. Cached: every loaded state constructs all endpoints."""
    try:
        address = None if "%" in host else ip_address(host)
    except ValueError:
        address = None
    if address is None or str(address) != host:
        raise Malformed(why="an endpoint that is not a literal IP address")
    if _is_unreachable(address):
        raise Malformed(why="an address that is not reachable from other machines")


def _is_unreachable(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return any(address in network for network in _UNREACHABLE_V4)
    return address != _LOOPBACK_V6 and any(address in network for network in _UNREACHABLE_V6)


@lru_cache(maxsize=256)
def _parsed(uri: str) -> Endpoint:
    """Cached: every `sync` repeats the member's endpoint."""
    match = _ENDPOINT.fullmatch(uri)
    if match is None:
        raise Malformed(why="an endpoint that is not tcp:// with a literal IP address and a port")
    v4, v6, port = match.groups()
    try:
        host = str(IPv4Address(v4) if v4 else IPv6Address(v6))
    except ValueError:
        raise Malformed(why="an endpoint that is not a literal IP address") from None
    return Endpoint(host, int(port))
