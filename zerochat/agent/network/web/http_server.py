"""What our HTTP listener does: takes envelopes by POST, opens sessions, and leads short links to their invitation.

DIDComm v2.1, "Transports": a POST is answered with 202 and nothing in it, and only when the owner has accepted the
envelope. Any path will do, because an endpoint may stand behind a reverse proxy that has its own.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from aiohttp import ClientError, web

from zerochat.agent.network.web.events import ENVELOPE_TYPES, Arrived, Closed, Lapsed, Opened
from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.listener import BareResponse, BareWebSocket, Doorstep, Guest, GuestBook, bare
from zerochat.agent.network.web.reply_channel import REFUSED, Exchange, Partner
from zerochat.agent.network.web.short_links import ShortLinks
from zerochat.agent.network.web.websocket_session import MESSAGE_BYTES_LIMIT, Session
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

PLAIN = "application/didcomm-plain+json"
JSON_TYPES = (PLAIN, "application/json")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PRIVATE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


class Server:
    """The listener. `partners` gets everybody who can be answered, by handle."""

    def __init__(
        self,
        inbox: Inbox,
        limits: Limits,
        links: ShortLinks,
        partners: dict[int, Partner],
        new_handle: Callable[[], int],
    ) -> None:
        self._inbox, self._limits, self._links = inbox, limits, links
        self._partners, self._new_handle = partners, new_handle
        self._now = asyncio.get_running_loop().time
        self._book = GuestBook(self._handle, inbox, limits)
        self._doorstep: Doorstep | None = None
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Open the door; give its port. Raises OSError."""
        self._doorstep = Doorstep(host, port, self._inbox, self._limits)
        self._listener = await asyncio.get_running_loop().create_server(
            self._book,
            sock=self._doorstep,
            ssl=context,
            ssl_handshake_timeout=self._limits.handshake_s if context is not None else None,
            ssl_shutdown_timeout=self._limits.stop_s if context is not None else None,
        )
        return int(self._doorstep.getsockname()[1])

    async def close(self) -> None:
        """Let nobody in, give what is under way a moment, and cut the rest."""
        if self._listener is None or self._doorstep is None:
            return
        self._listener.close()
        for partner in self._partners.values():
            if isinstance(partner, Exchange):
                partner.decide(REFUSED)
        await self._book.shutdown(self._limits.stop_s / 4)
        for guest in self._doorstep.guests():
            with suppress(OSError):
                guest.shutdown(2)
        until = self._now() + self._limits.stop_s
        while self._doorstep.guests() and self._now() < until:
            await asyncio.sleep(0.01)

    # --- one request ------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            return await self._post(request)
        if request.method != "GET":
            return bare(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, POST"})
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._session(request)
        return self._short_link(request)

    async def _post(self, request: web.BaseRequest) -> web.StreamResponse:
        media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media_type not in ENVELOPE_TYPES or "Content-Encoding" in request.headers:
            return self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if (request.content_length or 0) > ENVELOPE_BYTES_MAX:
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not self._inbox.has_room() or not self._inbox.may_read():
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
            self._inbox.grow(-len(body))
        if status is not None:
            return self._refuse(status)
        return await self._ask(bytes(body), media_type)

    async def _read(self, request: web.BaseRequest, body: bytearray) -> HTTPStatus | None:
        """Read the body into `body`, as far as it may go; give what is wrong with it."""
        while chunk := await request.content.readany():
            body += chunk
            self._inbox.grow(len(chunk))
            if len(body) > ENVELOPE_BYTES_MAX:
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            if not self._inbox.may_read():
                return HTTPStatus.SERVICE_UNAVAILABLE
        if not self._inbox.has_room():
            return HTTPStatus.SERVICE_UNAVAILABLE
        return None if body else HTTPStatus.BAD_REQUEST

    async def _ask(self, envelope: bytes, media_type: str) -> web.StreamResponse:
        """Hand it to the owner, and answer what the owner says."""
        handle, exchange = self._new_handle(), Exchange()
        self._partners[handle] = exchange
        self._inbox.tell(Arrived(handle, envelope, media_type, "post", None))
        try:
            async with asyncio.timeout(self._limits.accept_s):
                verdict = await exchange.verdict
        except TimeoutError:
            self._inbox.counts["web.unaccepted"] += 1
            self._inbox.tell(Lapsed(handle))
            verdict = REFUSED
        finally:
            del self._partners[handle]
        if verdict.body:
            headers = {"Content-Type": verdict.media_type}
            return BareResponse(status=verdict.status, body=verdict.body, headers=headers)
        return bare(verdict.status, last=verdict.status != HTTPStatus.ACCEPTED)

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
        if not self._inbox.has_room():
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        await websocket.prepare(request)
        guest = request.protocol
        assert isinstance(guest, Guest)
        session = GuestSession(websocket, guest, self._new_handle(), self._inbox, limits)
        self._partners[session.handle] = session
        self._inbox.tell(Opened(session.handle, None))
        try:
            await session.run()
        finally:
            del self._partners[session.handle]
            self._inbox.tell(Closed(session.handle, None))
        return websocket

    def _short_link(self, request: web.BaseRequest) -> web.StreamResponse:
        ids = request.rel_url.query.getall("_oobid", [])
        link = self._links.find(ids[0], self._now()) if len(ids) == 1 else None
        if link is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        accept = request.headers.get("Accept", "").lower()
        asked = next((media_type for media_type in JSON_TYPES if media_type in accept), None)
        if link.document is not None and asked is not None:
            return BareResponse(body=link.document, headers={"Content-Type": asked, **PRIVATE})
        return bare(HTTPStatus.FOUND, {"Location": link.url, **PRIVATE}, last=False)

    def _refuse(self, status: HTTPStatus) -> BareResponse:
        self._inbox.counts[f"web.{status.value}"] += 1
        busy = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return bare(status, busy)


class GuestSession(Session):
    """A session that the peer has dialled: it may not draw one message out."""

    def __init__(
        self, websocket: web.WebSocketResponse[bool], guest: Guest, handle: int, inbox: Inbox, limits: Limits
    ) -> None:
        super().__init__(websocket, handle, None, inbox, limits)
        self._guest = guest

    def unfinished_since(self) -> float | None:
        return self._guest.unfinished_since

    def finished(self) -> None:
        self._guest.unfinished_since = None

    def is_quiet(self, now: float) -> bool:
        return self.idle(now) > self._limits.quiet_s
