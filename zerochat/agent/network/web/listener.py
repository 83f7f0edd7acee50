"""The listening side of HTTP: who may connect, and the frame around every request.

Limits apply where a connection is accepted, before anything has been read from it or decrypted. What is wrong with a
request is answered by a bare status: no page, no banner, no reason.
"""

import asyncio
import errno
import ipaddress
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import HEADER_BYTES_MAX, HEADERS_MAX, Limits
from zerochat.agent.network.zmq.zap import house

BACKLOG = 128
REFUSALS_MAX = 64
"""Connections refused in one go, before the loop does something else."""
SO_LINGER_NOW = struct.pack("ii", 1, 0)
STREET_BITS: Final = {4: 24, 6: 48}
LOOPBACK: Final = frozenset({"127.0.0.1", "::/64"})
"""As `house` spells them."""

SILENT = logging.Logger("zerochat.web", logging.CRITICAL + 1)
"""aiohttp logs with it. What a stranger's bytes have caused is counted, and never written anywhere."""


class Doorstep(socket.socket):
    """A listening socket that asyncio accepts from, and that hangs up on whoever is one too many."""

    def __init__(self, host: str, port: int, inbox: Inbox, limits: Limits) -> None:
        """Listen at a literal address; :: is for IPv4 too, and port 0 is any. Raises OSError."""
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self._inbox, self._limits = inbox, limits
        self._guests: list[tuple[str, socket.socket]] = []
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if ":" in host:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
            self.bind((host, port))
            self.listen(BACKLOG)
            self.setblocking(False)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(REFUSALS_MAX):
            guest, address = super().accept()
            home = house(address[0])
            self._guests = [known for known in self._guests if known[1].fileno() >= 0]
            of_home = sum(known[0] == home for known in self._guests)
            of_street = sum(street(known[0]) == street(home) for known in self._guests)
            counted = self._limits.loopback_counts or home not in LOOPBACK
            if len(self._guests) >= self._limits.connections:
                self._inbox.counts["web.connections"] += 1
            elif counted and of_home >= self._limits.connections_per_house:
                self._inbox.counts["web.house"] += 1
            elif counted and of_street >= self._limits.connections_per_street:
                self._inbox.counts["web.street"] += 1
            else:
                self._guests.append((home, guest))
                return guest, address
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SO_LINGER_NOW)
            guest.close()
        raise BlockingIOError(errno.EAGAIN, "enough refused for now")

    def guests(self) -> list[socket.socket]:
        """The connections that are open."""
        return [guest for _, guest in self._guests if guest.fileno() >= 0]


@lru_cache(maxsize=4096)
def street(home: str) -> str:
    """The network that houses (as `house` spells them) have from the same provider, and may all be one customer's."""
    if not home:
        return ""
    network = ipaddress.ip_network(home)
    return str(network.supernet(new_prefix=STREET_BITS[network.version]))


class _Bare:
    """For responses: without the header that names the software and its version."""

    headers: Any

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # type: ignore[misc]  # of StreamResponse, which stands behind in the bases
        self.headers.pop("Server", None)


class BareResponse(_Bare, web.Response):
    """One that says nothing about us."""


class BareWebSocket(_Bare, web.WebSocketResponse[bool]):
    """One that says nothing about us."""


def bare(status: HTTPStatus, headers: dict[str, str] | None = None, *, last: bool = True) -> BareResponse:
    """A status and nothing else; `last`: the connection ends with it."""
    response = BareResponse(status=status, headers=headers)
    if last:
        response.force_close()
    return response


class Guest(web.RequestHandler):
    """One connection to us."""

    __slots__ = ("_inbox", "unfinished_since")

    def __init__(self, server: web.Server, inbox: Inbox, **settings: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._inbox = inbox
        self.unfinished_since: float | None = None
        """When the first byte came after the last whole message of a session; whoever reads those clears it."""

    def data_received(self, data: bytes) -> None:
        if self.unfinished_since is None:
            self.unfinished_since = asyncio.get_running_loop().time()
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP, or a fault of ours. aiohttp's own answer would quote what came."""
        self._inbox.counts["web.malformed" if status < 500 else "web.fault"] += 1
        if request.writer.output_size > 0:
            raise ConnectionError("half a response has been sent already")
        return bare(HTTPStatus(status))


class GuestBook(web.Server):
    """Makes a Guest for each connection that the doorstep has let in."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], inbox: Inbox, limits: Limits
    ) -> None:
        super().__init__(handler)
        self._inbox = inbox
        self._settings: dict[str, Any] = {
            "logger": SILENT,
            "access_log": None,
            "keepalive_timeout": limits.idle_s,
            "lingering_time": min(1.0, limits.stop_s),
            "auto_decompress": False,  # nobody may send us a small body that becomes a great one
            "max_line_size": HEADER_BYTES_MAX,
            "max_field_size": HEADER_BYTES_MAX,
            "max_headers": HEADERS_MAX,
            "timeout_ceil_threshold": 60.0,
        }

    def __call__(self) -> Guest:
        return Guest(self, self._inbox, **self._settings)
