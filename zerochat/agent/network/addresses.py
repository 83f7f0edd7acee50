"""Listening addresses, the address advertised to others, and address prefixes for rate limits."""

import ipaddress
import socket
from functools import lru_cache
from typing import Final, Protocol

from zerochat.errors import LocalError

ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104  # peers must reach us; CURVE decides who gets past the greeting
PROVIDER_PREFIX_BITS: Final = {4: 24, 6: 48}
"""Length of the prefix that a provider assigns to one customer, by IP version."""


class BadAddress(LocalError):
    """ "{text}" is not an address to listen on: {why}. Use an IP address of this machine, with a port if needed, such
    as 192.168.1.20, 192.168.1.20:5555 or [::1]:5555."""

    exit_code = 2


class MetaStore(Protocol):
    """Named values that the journal keeps for the agent."""

    def meta_get(self, key: str) -> bytes | None: ...

    def meta_set(self, key: str, value: bytes) -> None: ...


def split_address(text: str) -> tuple[str, list[int]]:
    """The IP address without brackets, and the ports behind it: `192.0.2.1`, `192.0.2.1:80`, `::1`, `[::1]`,
    `[::1]:80:81`. Raises ValueError with a sentence without its full stop."""
    host, ports = text, ""
    if text.startswith("["):
        host, bracket, ports = text[1:].partition("]")
        if not bracket or (ports and not ports.startswith(":")):
            raise ValueError("after an address in brackets comes a port, such as [::1]:5555")
        ports = ports[1:]
    elif not _is_ip(text):
        host, _, ports = text.partition(":")
    if not _is_ip(host):
        raise ValueError(f"{host!r} is not an IP address" if host else "the host is missing")
    found = ports.split(":") if ports else []
    numbers = [int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1 for port in found]
    if any(not 0 <= number <= 65535 for number in numbers):
        raise ValueError("a port is a number from 1 to 65535")
    return host, numbers


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def split_host_port(text: str) -> tuple[str, int]:
    """The IP address without brackets, and its one port from 1 on. Raises ValueError as `split_address`."""
    try:
        host, (port,) = split_address(text)
    except ValueError:
        host, port = "", 0
    if not port:
        raise ValueError("it must be an IP address and a port, such as 127.0.0.1:9050 or [::1]:9050")
    return host, port


def parse_listen(text: str) -> tuple[str, int, int]:
    """Host, pair port and queue port from HOST, HOST:PORT or HOST:PORT:PORT; a missing port is 0 (any).

    Raises BadAddress.
    """
    try:
        host, numbers = split_address(text)
    except ValueError as error:
        raise BadAddress(text=text, why=error) from None
    if len(numbers) > 2:
        raise BadAddress(text=text, why="at most two ports are allowed")
    pair, queue = [*numbers, 0, 0][:2]
    if pair and pair == queue:
        raise BadAddress(text=text, why="the two ports must differ")
    return host, pair, queue


def remembered_addresses(store: MetaStore, listen: str | None, advertise: str | None) -> tuple[str | None, str | None]:
    """The addresses to listen on and to advertise: those given now, or else the stored ones.

    A later start may come from a CLI verb that gives no address; an agent that was restricted to this machine must not
    become reachable from outside because of that. A new listening address replaces both stored values.
    """
    before, to = ((store.meta_get(name) or b"").decode() or None for name in ("listen", "advertise"))
    if listen is None and advertise is None:
        return before, to
    return listen or before, advertise


def remember_addresses(store: MetaStore, listen: str | None, advertise: str | None) -> None:
    """Store what was given, once the agent listens there."""
    if listen is not None:
        store.meta_set("listen", listen.encode())
    if listen is not None or advertise is not None:
        store.meta_set("advertise", (advertise or "").encode())


def own_address(listen: str) -> str:
    """The address to advertise: the listening address, or the source address of this machine's default route.

    Nothing is sent: connecting a datagram socket only makes the kernel look up a route (192.0.2.1 is a documentation
    address, RFC 5737).
    """
    address = ipaddress.ip_address(listen)
    if not address.is_unspecified:
        return listen
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                host: str = probe.getsockname()[0]
                from zerochat.didcomm.endpoint import Endpoint  # loads the cryptography package

                Endpoint(host, 1)
                return host
        except (OSError, ValueError, LocalError):
            continue
    return "127.0.0.1"


def source_prefix(address: str) -> str:
    """The prefix that one host or household shares: IPv4 /32 (also when mapped into IPv6), IPv6 /64; empty: invalid."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip, 64), strict=False))


@lru_cache(maxsize=4096)
def provider_prefix(prefix: str) -> str:
    """The IPv4 /24 or IPv6 /48 that contains a `source_prefix`, and may belong to one customer of a provider."""
    if not prefix:
        return ""
    network = ipaddress.ip_network(prefix)
    return str(network.supernet(new_prefix=PROVIDER_PREFIX_BITS[network.version]))
