"""Kinds of IP addresses by how near they are: public, private, link-local, loopback.

A peer may name any URI. A near address reaches machines that strangers cannot reach themselves, and that may trust
every request. So an address that a peer names counts only up to a nearness that the reader permits.
"""

import ipaddress
import re
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import urlsplit

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA has assigned in the internet; the rest is local in some way, such as site-local, RFC 8215 and SIIT."""
METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"))
)
"""Cloud metadata services outside the link-local range: AWS, Alibaba, Azure, Oracle."""


class AddressKind(IntEnum):
    """How near an address is; nearer is greater."""

    PUBLIC = 0
    PRIVATE = 1
    """Not routed in the internet, such as RFC 1918, unique local, carrier-grade NAT and documentation addresses."""
    LINK_LOCAL = 2
    LOOPBACK = 3


def effective_address(address: str) -> IPAddress:
    """The address that dialling this one reaches: IPv6 can embed IPv4 in several ways. Raises ValueError for a
    non-address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        within = ip.ipv4_mapped or ip.sixtofour
        if within is None and (ip in NAT64 or ip in IPV4_COMPATIBLE) and int(ip) > 1:
            within = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return within or ip
    return ip


def is_never_dialed(ip: IPAddress) -> bool:
    """Whether it is unspecified, multicast, link-local, or a cloud metadata service."""
    return ip.is_unspecified or ip.is_multicast or ip.is_link_local or ip in METADATA


def kind_of(ip: IPAddress) -> AddressKind:
    """The kind of an effective address."""
    if ip.is_loopback:
        return AddressKind.LOOPBACK
    if ip.is_link_local:
        return AddressKind.LINK_LOCAL
    is_public = ip.is_global and (ip.version == 4 or ip in GLOBAL_UNICAST)
    return AddressKind.PUBLIC if is_public else AddressKind.PRIVATE


@lru_cache(maxsize=1024)
def kind_of_host(host: str) -> AddressKind | None:
    """The kind of a literal address; None: a name, whose address is known only when it is dialled.

    `localhost` counts as literal, and what ends in a number as its nearest reading ("127.1" is 127.0.0.1 in the C
    library): a SOCKS proxy resolves names itself, where they cannot be checked.
    """
    try:
        return kind_of(effective_address(host))
    except ValueError:
        last = host.rstrip(".").rpartition(".")[2].lower()
        return AddressKind.LOOPBACK if last == "localhost" or re.fullmatch("[0-9]+|0x[0-9a-f]*", last) else None


def kind_of_uri(uri: str) -> AddressKind | None:
    """The kind of the literal address in a URI; None: a name, or no host."""
    try:
        return kind_of_host(urlsplit(uri).hostname or "")
    except ValueError:
        return None


def authority(uri: str) -> str:
    """Host and port of a web URI as written, lower case: what all paths there have in common."""
    return uri.partition("://")[2].partition("/")[0].lower()
