"""The address of a bot's webhooks: a loopback address with a port."""

import ipaddress
from typing import ClassVar

from zerochat.errors import LocalError


class BadWebhook(LocalError):
    """The webhooks of this bot cannot be served: {why}."""

    exit_code: ClassVar[int] = 2


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8090` or `[::1]:8090`. Raises BadWebhook unless it is this machine's own address."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
        if not address.is_loopback or not port.isascii() or not 0 <= int(port) <= 65_535:
            raise ValueError
    except ValueError:
        raise BadWebhook(
            why=f"{text!r} is not a loopback address with a port, such as 127.0.0.1:8090. Let a web server with TLS "
            "forward requests to it"
        ) from None
    return str(address), int(port)
