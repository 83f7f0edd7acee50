"""HTTP server: envelopes by POST, WebSocket sessions, short links to invitations, and their page for browsers.

DIDComm v2.1, "Transports": a POST is answered with an empty 202, here only after the owner has accepted the envelope.
Any path is accepted, because a reverse proxy may have paths of its own.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TypeAlias

from aiohttp import ClientError, web
from msgspec import Struct

from zerochat.agent.network.web import browser_page
from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.events import (
    ENCRYPTED,
    ENVELOPE_TYPES,
    Arrived,
    Closed,
    Opened,
    OutboundEnvelope,
    PostTimedOut,
)
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.listener import (
    AcceptedConnection,
    BareResponse,
    BareWebSocket,
    ConnectionFactory,
    InboundConnection,
    ListeningSocket,
    bare,
)
from zerochat.agent.network.web.short_links import INVITATION_PARAMETERS, ShortLinks
from zerochat.agent.network.web.websocket_session import MESSAGE_BYTES_LIMIT, WebSocketSession
from zerochat.didcomm.layers import MediaType, media_type_of
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed

JSON_TYPES = (MediaType.PLAIN.value, "application/json")
ENCRYPTED_ONLY = {"Accept": f"{ENCRYPTED}, {MediaType.ENCRYPTED_V1}"}
"""With the refusal of what is not encrypted (RFC 9110, section 15.5.16)."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HTML = "text/html"


class PostResponse(Struct, frozen=True):
    """The response to a POST: a status, and an envelope if the owner has an answer at once."""

    status: HTTPStatus
    body: bytes = b""
    media_type: str = ENCRYPTED


ACCEPTED = PostResponse(HTTPStatus.ACCEPTED)
REFUSED = PostResponse(HTTPStatus.SERVICE_UNAVAILABLE)


class PendingPost:
    """A POST that waits for its response."""

    def __init__(self) -> None:
        self.response: asyncio.Future[PostResponse] = asyncio.get_running_loop().create_future()

    def accepted(self, count: int) -> None:
        self.respond(ACCEPTED)

    def push(self, outbound: OutboundEnvelope) -> None:
        self.respond(PostResponse(HTTPStatus.OK, outbound.envelope, outbound.media_type))

    def respond(self, response: PostResponse) -> None:
        if not self.response.done():
            self.response.set_result(response)


ReplyChannel: TypeAlias = WebSocketSession | PendingPost
"""A connection over which the owner can answer."""


class Server:
    """The server. `channels` gets the open reply channels by handle."""

    def __init__(
        self,
        events: EventQueue,
        limits: Limits,
        links: ShortLinks,
        channels: dict[int, ReplyChannel],
        new_handle: Callable[[], int],
    ) -> None:
        self._events, self._limits, self._links = events, limits, links
        self._channels, self._new_handle = channels, new_handle
        self._now = asyncio.get_running_loop().time
        self._factory = ConnectionFactory(self._handle, events, limits)
        self._listening_socket: ListeningSocket | None = None
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Start listening; the port. Raises OSError."""
        self._listening_socket = ListeningSocket(host, port, self._events, self._limits)
        self._listener = await asyncio.get_running_loop().create_server(
            self._factory,
            sock=self._listening_socket,
            ssl=context,
            ssl_handshake_timeout=self._limits.handshake_s if context is not None else None,
            ssl_shutdown_timeout=self._limits.stop_s if context is not None else None,
        )
        return int(self._listening_socket.getsockname()[1])

    async def close(self) -> None:
        """Accept no connection, let requests in progress finish for a moment, and cut the rest."""
        if self._listener is None or self._listening_socket is None:
            return
        self._listener.close()
        for channel in self._channels.values():
            if isinstance(channel, PendingPost):
                channel.respond(REFUSED)
        await self._factory.shutdown(self._limits.stop_s / 4)
        for connection in self._listening_socket.connections():
            with suppress(OSError):
                connection.shutdown(2)
        until = self._now() + self._limits.stop_s
        while self._listening_socket.connections() and self._now() < until:
            await asyncio.sleep(0.01)

    # --- one request ------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            return await self._post(request)
        if request.method != "GET":
            return bare(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, POST"})
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._session(request)
        return self._invitation(request)

    async def _post(self, request: web.BaseRequest) -> web.StreamResponse:
        media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media_type not in ENVELOPE_TYPES or "Content-Encoding" in request.headers:
            return self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, ENCRYPTED_ONLY)
        if (request.content_length or 0) > ENVELOPE_BYTES_MAX:
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not self._events.has_room() or not self._events.may_read():
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(CONTINUE)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                status = await self._read(request, body)
        except TimeoutError:
            status = HTTPStatus.REQUEST_TIMEOUT
        except (ClientError, web.RequestPayloadError, OSError):
            status = HTTPStatus.BAD_REQUEST
        finally:
            self._events.grow(-len(body))
        if status is not None:
            return self._refuse(status)
        if _is_unencrypted(body):
            return self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, ENCRYPTED_ONLY)
        connection = self._accepted(request)
        if connection is not None:
            connection.is_answered = True
        try:
            return await self._await_response(bytes(body), media_type)
        finally:
            if connection is not None:
                connection.finish()

    def _accepted(self, request: web.BaseRequest) -> AcceptedConnection | None:
        return None if self._listening_socket is None else self._listening_socket.connection_of(request.transport)

    def keep(self, handle: int) -> None:
        """Keep this session: it is not evicted for newcomers."""
        session = self._channels.get(handle)
        if isinstance(session, InboundSession) and session.accepted_connection is not None and self._listening_socket:
            self._listening_socket.keep(session.accepted_connection)

    async def _read(self, request: web.BaseRequest, body: bytearray) -> HTTPStatus | None:
        """Read the body into `body`, within the limits; the error status, or None."""
        while chunk := await request.content.readany():
            body += chunk
            self._events.grow(len(chunk))
            if len(body) > ENVELOPE_BYTES_MAX:
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            if not self._events.may_read():
                return HTTPStatus.SERVICE_UNAVAILABLE
        if not self._events.has_room():
            return HTTPStatus.SERVICE_UNAVAILABLE
        return None if body else HTTPStatus.BAD_REQUEST

    async def _await_response(self, envelope: bytes, media_type: str) -> web.StreamResponse:
        """Pass the envelope to the owner, and respond with its decision."""
        handle, pending = self._new_handle(), PendingPost()
        self._channels[handle] = pending
        self._events.put(Arrived(handle, envelope, media_type, "post", None))
        try:
            async with asyncio.timeout(self._limits.accept_s):
                response = await pending.response
        except TimeoutError:
            self._events.counts["web.unaccepted"] += 1
            self._events.put(PostTimedOut(handle))
            response = REFUSED
        finally:
            del self._channels[handle]
        if response.body:
            headers = {"Content-Type": response.media_type}
            return BareResponse(status=response.status, body=response.body, headers=headers)
        return bare(response.status, last=response.status != HTTPStatus.ACCEPTED)

    async def _session(self, request: web.BaseRequest) -> web.StreamResponse:
        limits = self._limits
        websocket = BareWebSocket(
            timeout=limits.stop_s / 2,
            autoping=False,
            heartbeat=limits.ping_s,
            compress=False,
            max_msg_size=MESSAGE_BYTES_LIMIT,
            decode_text=False,
        )
        if not websocket.can_prepare(request):
            return self._refuse(HTTPStatus.BAD_REQUEST)
        if not self._events.has_room():
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        await websocket.prepare(request)
        connection = request.protocol
        assert isinstance(connection, InboundConnection)
        session = InboundSession(websocket, connection, self._new_handle(), self._events, limits)
        session.accepted_connection = self._accepted(request)
        self._channels[session.handle] = session
        self._events.put(Opened(session.handle, None))
        try:
            await session.run()
        finally:
            del self._channels[session.handle]
            self._events.put(Closed(session.handle, None))
        return websocket

    def _invitation(self, request: web.BaseRequest) -> web.StreamResponse:
        """The invitation behind a short link for an agent, and instructions for a browser, which may have a long link
        of ours as well. A browser's look counts as no use."""
        query = request.rel_url.query
        accept = request.headers.get("Accept", "").lower()
        asked = next((media_type for media_type in JSON_TYPES if media_type in accept), None)
        is_browser = HTML in accept and asked is None
        if is_browser and any(name in query for name in INVITATION_PARAMETERS):
            return BareResponse(body=browser_page.PAGE, headers=browser_page.HEADERS)
        ids = query.getall("_oobid", [])
        link = self._links.find(ids[0], self._now(), counts=not is_browser) if len(ids) == 1 else None
        if link is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        if link.document is not None and asked is not None:
            return BareResponse(body=link.document, headers={"Content-Type": asked, **browser_page.PRIVATE})
        if is_browser or not link.url:
            return BareResponse(body=browser_page.PAGE, headers=browser_page.HEADERS)
        return bare(HTTPStatus.FOUND, {"Location": link.url, **browser_page.PRIVATE}, last=False)

    def _refuse(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> BareResponse:
        self._events.counts[f"web.{status.value}"] += 1
        busy = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else headers
        return bare(status, busy)


def _is_unencrypted(body: bytearray) -> bool:
    """Whether this is a plaintext or signed message, whatever its media type says."""
    if b'"ciphertext"' in body:
        return False
    try:
        return media_type_of(bytes(body)) in (MediaType.PLAIN, MediaType.SIGNED)
    except Malformed:
        return False


class InboundSession(WebSocketSession):
    """A session dialled by the peer, with a time limit for each message."""

    def __init__(
        self,
        websocket: web.WebSocketResponse[bool],
        connection: InboundConnection,
        handle: int,
        events: EventQueue,
        limits: Limits,
    ) -> None:
        super().__init__(websocket, handle, None, events, limits)
        self._connection = connection
        self.accepted_connection: AcceptedConnection | None = None

    def accepted(self, count: int) -> None:
        super().accepted(count)
        if self.accepted_connection is not None:
            self.accepted_connection.finish()

    def unfinished_since(self) -> float | None:
        return self._connection.unfinished_since

    def finished(self) -> None:
        self._connection.unfinished_since = None

    def is_quiet(self, now: float) -> bool:
        return self.idle(now) > self._limits.quiet_s
