"""HTTP listening socket with connection limits, and aiohttp request handling without identifying output.

Limits apply at accept, before anything is read or decrypted: the newcomer is accepted, and the connection that has
finished no request for longest is evicted. So clients that finish nothing keep out no client that does. Errors are
answered by a bare status without a page, a server name or a reason.
"""

import asyncio
import errno
import logging
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from msgspec import Struct

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


class AcceptedConnection(Struct, eq=False):
    """An accepted connection."""

    prefix: str
    provider: str
    socket: socket.socket
    since: float
    """Since when (monotonic seconds) it has finished no request."""
    is_answered: bool = False
    """Whether a whole request waits for the owner: then it is not evicted."""
    is_kept: bool = False
    """Whether the owner keeps this session: then it counts separately and is not evicted."""
    is_evicted: bool = False

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0

    def finish(self) -> None:
        """A whole request was processed."""
        self.since, self.is_answered = time.monotonic(), False

    def evict(self) -> None:
        """End the connection; its owner in asyncio closes it soon."""
        self.is_evicted = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class ListeningSocket(socket.socket):
    """A listening socket for asyncio that keeps connections within the limits."""

    def __init__(self, host: str, port: int, events: EventQueue, limits: Limits) -> None:
        """Listen on a literal address (:: includes IPv4); port 0 means any. Raises OSError."""
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self._events, self._limits = events, limits
        self._connections: dict[int, AcceptedConnection] = {}
        """By file descriptor; the system reuses that of a closed connection."""
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
            self._connections = {number: known for number, known in self._connections.items() if known.is_open}
            accepted = AcceptedConnection(prefix, provider_prefix(prefix), connection, time.monotonic())
            if self._make_room(accepted):
                self._connections[connection.fileno()] = accepted
                return connection, address
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, SO_LINGER_NOW)
            connection.close()
        raise BlockingIOError(errno.EAGAIN, "too many refusals at once")

    def _make_room(self, newcomer: AcceptedConnection) -> bool:
        """Whether a connection may be accepted, after evicting others: of the prefix with most connections, the
        one that has finished no request for longest."""
        limits = self._limits
        strangers = [known for known in self._connections.values() if not known.is_kept and not known.is_evicted]
        same = [known for known in strangers if known.prefix == newcomer.prefix]
        near = [known for known in strangers if known.provider == newcomer.provider]
        rules = [("web.connections", strangers, limits.connections)]
        if limits.loopback_counts or newcomer.prefix not in LOOPBACK:
            rules.insert(0, ("web.provider_limit", near, limits.connections_per_provider))
            rules.insert(0, ("web.prefix_limit", same, limits.connections_per_prefix))
        crowds = Counter(known.prefix for known in strangers)
        for name, known, limit in rules:
            present = [one for one in known if not one.is_evicted]
            if len(present) < limit:
                continue
            self._events.counts[name] += 1
            evictable = [one for one in present if not one.is_answered]
            if not evictable:
                return False
            min(evictable, key=lambda one: (-crowds[one.prefix], one.since)).evict()
        return True

    def connections(self) -> list[socket.socket]:
        """The connections that are open."""
        return [known.socket for known in self._connections.values() if known.is_open]

    def connection_of(self, transport: asyncio.BaseTransport | None) -> AcceptedConnection | None:
        """The connection with this transport; None: it is closed."""
        own = None if transport is None else transport.get_extra_info("socket")
        found = None if own is None else self._connections.get(own.fileno())
        return found if found is not None and found.is_open else None

    def keep(self, connection: AcceptedConnection) -> None:
        """Keep a session, as long as the limit allows."""
        kept = sum(known.is_kept and known.is_open for known in self._connections.values())
        connection.is_kept = connection.is_kept or kept < self._limits.kept_sessions


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
