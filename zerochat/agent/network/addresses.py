"""Where this machine listens, and which address of its it tells others."""

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.agent.storage.journal import Journal

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104  # others must reach us; who gets further than the greeting, CURVE decides


class BadAddress(LocalError):
    """{text} is no address to listen at: {why}. Use an IP address of this machine, with a port if it matters, such as
    192.168.1.20 or 192.168.1.20:5555 or [::1]:5555."""

    exit_code = 2


def parse_listen(text: str) -> tuple[str, int, int]:
    """Host, pair port and queue port from HOST, HOST:PORT or HOST:PORT:PORT; a port that is not given is 0: any."""
    host, ports = text, ""
    if text.startswith("["):
        host, _, ports = text[1:].partition("]")
        ports = ports.removeprefix(":")
    elif text.count(":") in (1, 2):
        host, _, ports = text.partition(":")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise BadAddress(text=text, why=f"{host or 'nothing'} is no IP address") from None
    found = ports.split(":") if ports else []
    numbers = [int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1 for port in found]
    if len(numbers) > 2 or any(not 0 <= number <= 65535 for number in numbers):
        raise BadAddress(text=text, why="a port is a number from 1 to 65535, and there are two at most")
    pair, queue = [*numbers, 0, 0][:2]
    return host, pair, queue


def told(journal: "Journal", listen: str | None, advertise: str | None) -> tuple[str | None, str | None]:
    """Where to listen and what to tell others, as whoever starts the agent says it, or else as it was said last.

    Whoever starts it next may be a verb that cannot say so, and what was kept to this machine must not be open to
    others because of that. A new place to listen at takes the place of both.
    """
    if listen is not None or advertise is not None:
        if listen is not None:
            journal.meta_set("listen", listen.encode())
        journal.meta_set("advertise", (advertise or "").encode())
    before = ((journal.meta_get(name) or b"").decode() or None for name in ("listen", "advertise"))
    return next(before), next(before)


def own_address(listen: str) -> str:
    """The address to tell others: the one that we listen at, or this machine's own on its way to the world.

    Nothing is sent to find that out: connecting a datagram socket only asks the kernel for a route (192.0.2.1 is an
    address for documentation, RFC 5737).
    """
    address = ipaddress.ip_address(listen)
    if not address.is_unspecified:
        return listen
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                host: str = probe.getsockname()[0]
                from zerochat.didcomm.endpoint import Endpoint  # and with it all of cryptography

                Endpoint(host, 1)
                return host
        except (OSError, ValueError, LocalError):
            continue
    return "127.0.0.1"
