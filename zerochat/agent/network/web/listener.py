"""HTTP listening socket with connection limits, and aiohttp request handling without identifying output.

Limits apply at accept, before anything is read or decrypted. Errors are answered by a bare status without a page, a
server name or a reason.
"""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from zerochat.agent.network.addresses import provider_prefix, source_prefix
from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.limits import HEADER_BYTES_MAX, HEADERS_MAX, Limits

BACKLOG = 128
REFUSALS_MAX = 64
"""Connections refused in one loop iteration."""
SO_LINGER_NOW = struct.pack("ii", 1, 0)
LOOPBACK: Final = frozenset({"127.0.0.1", "::/64"})
"""The loopback prefixes."""

SILENT = logging.Logger("zerochat.web", logging.CRITICAL + 1)
"""aiohttp's logger. Errors caused by clients are counted and not logged."""


class ListeningSocket(socket.socket):
    """A listening socket for asyncio that resets connections over the limits."""

    def __init__(self, host: str, port: int, events: EventQueue, limits: Limits) -> None:
        """Listen on a literal address (:: includes IPv4); port 0 means any. Raises OSError."""
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self._events, self._limits = events, limits
        self._connections: list[tuple[str, socket.socket]] = []
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
            connection, address = super().accept()
            prefix = source_prefix(address[0])
            self._connections = [known for known in self._connections if known[1].fileno() >= 0]
            from_prefix = sum(known[0] == prefix for known in self._connections)
            from_provider = sum(provider_prefix(known[0]) == provider_prefix(prefix) for known in self._connections)
            counted = self._limits.loopback_counts or prefix not in LOOPBACK
            if len(self._connections) >= self._limits.connections:
                self._events.counts["web.connections"] += 1
            elif counted and from_prefix >= self._limits.connections_per_prefix:
                self._events.counts["web.prefix_limit"] += 1
            elif counted and from_provider >= self._limits.connections_per_provider:
                self._events.counts["web.provider_limit"] += 1
            else:
                self._connections.append((prefix, connection))
                return connection, address
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SO_LINGER_NOW)
            connection.close()
        raise BlockingIOError(errno.EAGAIN, "too many refusals at once")

    def connections(self) -> list[socket.socket]:
        """The connections that are open."""
        return [connection for _, connection in self._connections if connection.fileno() >= 0]


class _Bare:
    """Removes the Server header, which names the software and its version."""

    headers: Any

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # type: ignore[misc]  # of StreamResponse, a later base class
        self.headers.pop("Server", None)


class BareResponse(_Bare, web.Response):
    """Without the Server header."""


class BareWebSocket(_Bare, web.WebSocketResponse[bool]):
    """Without the Server header."""


def bare(status: HTTPStatus, headers: dict[str, str] | None = None, *, last: bool = True) -> BareResponse:
    """An empty response; `last`: close the connection after it."""
    response = BareResponse(status=status, headers=headers)
    if last:
        response.force_close()
    return response


class InboundConnection(web.RequestHandler):
    """One inbound connection."""

    __slots__ = ("_events", "unfinished_since")

    def __init__(self, server: web.Server, events: EventQueue, **settings: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._events = events
        self.unfinished_since: float | None = None
        """Arrival of the first byte after the last whole message of a session, which clears it."""

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
        """Answer malformed requests and our own faults; aiohttp's answer would quote the request."""
        self._events.counts["web.malformed" if status < 500 else "web.fault"] += 1
        if request.writer.output_size > 0:
            raise ConnectionError("half a response has been sent already")
        return bare(HTTPStatus(status))


class ConnectionFactory(web.Server):
    """Makes an InboundConnection for each accepted connection."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], events: EventQueue, limits: Limits
    ) -> None:
        super().__init__(handler)
        self._events = events
        self._settings: dict[str, Any] = {
            "logger": SILENT,
            "access_log": None,
            "keepalive_timeout": limits.idle_s,
            "lingering_time": min(1.0, limits.stop_s),
            "auto_decompress": False,  # no decompression bombs
            "max_line_size": HEADER_BYTES_MAX,
            "max_field_size": HEADER_BYTES_MAX,
            "max_headers": HEADERS_MAX,
            "timeout_ceil_threshold": 60.0,
        }

    def __call__(self) -> InboundConnection:
        return InboundConnection(self, self._events, **self._settings)
