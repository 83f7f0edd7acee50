"""Web adapter of the agent: translates the core's effects into calls of `Web`, and web events into inputs.

The web thread (and with it aiohttp) starts when it is first needed: when a setting makes it listen, or with the first
envelope to an http or ws URI. Received envelopes are accepted only when they are on disk.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, assert_never

from msgspec.structs import replace

from zerochat.agent.settings.reader import Settings
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError
from zerochat.group.effects import CloseWebSocket, OpenWebSocket, WebPost, WebReply
from zerochat.group.inputs import Input, WebPostDelivered, WebPostFailed, WebReceived, WebSocketDown, WebSocketUp
from zerochat.limits import MEMBERS_MAX

if TYPE_CHECKING:
    from zerochat.agent.network.web import Failed, Web

SHORT_LINK_USES = MEMBERS_MAX

WebEffect: TypeAlias = WebPost | WebReply | OpenWebSocket | CloseWebSocket


class WebAdapter:
    """HTTP and WebSocket for one agent, used by the agent thread."""

    def __init__(self, settings: Settings, wake: Callable[[], None], *, listens: bool = True) -> None:
        """`wake` is called from another thread when there are inputs to take. `listens`: whether it may listen at all.
        Raises BadCertificate."""
        self._listens = listens
        self.counts: Counter[str] = Counter()
        self._settings, self._wake = settings, wake
        self._web: Web | None = None
        self._tickets: dict[int, WebPost] = {}
        self._ticket = 0
        self._failed: list[WebPostFailed] = []
        """Replies that could not be sent, for the next `take`."""
        self.uris: tuple[str, ...] = ()

    def start(self, hidden: bool = False) -> tuple[str, ...]:
        """Listen, if the settings say so; the URIs to advertise. Raises a LocalError.

        `hidden`: this machine's address is not advertised, only a public URI from the settings.
        """
        if self._settings.web is not None and self._listens:
            bound = self._open()
            self.uris = (self._settings.web_public,) if self._settings.web_public else () if hidden else bound
        return self.uris

    def _open(self) -> tuple[str, ...]:
        from zerochat.agent.network.web import Web

        settings = self._settings
        keys = (settings.web_certificate, settings.web_key)
        self._web = Web(
            settings.web if self._listens else None,
            tls=(keys[0], keys[1]) if keys[0] is not None and keys[1] is not None else None,
            socks=settings.socks,
            ca_file=settings.web_authorities,
            wake=self._wake,
        )
        return tuple(self._web.start())

    def _ready(self) -> "Web | None":
        """The web transport, started on first use; None: it cannot start."""
        if self._web is None:
            try:
                self._open()
            except LocalError as error:
                self.counts[f"web.{error.code}"] += 1
        return self._web

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._web is not None:
            self._web.stop()

    def seclude(self) -> None:
        """Close every connection, what waits to be sent included, and listen no more. Held WebSockets are opened anew
        by the core."""
        self._listens, self.uris = False, ()
        if self._web is not None:
            self._web.stop()
        self._web = None
        self._tickets.clear()

    def perform(self, effect: WebEffect) -> None:
        """Apply it, or drop and count it. Never blocks."""
        match effect:
            case WebPost():
                self._post(effect)
            case WebReply():
                self._reply(effect)
            case OpenWebSocket(uri):
                web = self._ready()
                if web is None or not web.hold(uri):
                    self.counts["dropped.hold"] += 1
            case CloseWebSocket(uri):
                if self._web is not None:
                    self._web.release(uri)

    def _reply(self, reply: WebReply) -> None:
        ticket = None
        if reply.reference:
            self._ticket += 1
            ticket = self._ticket
            self._tickets[ticket] = WebPost("", b"", reply.media_type, reference=reply.reference)
        if self._web is None or not self._web.answer(reply.handle, reply.envelope, reply.media_type, ticket):
            self.counts["dropped.answer"] += 1
            if ticket is not None:
                del self._tickets[ticket]
                self._failed.append(WebPostFailed("", reply.reference))
                self._wake()

    @property
    def busy(self) -> bool:
        """Whether sent envelopes are still unsettled."""
        return bool(self._tickets)

    def _post(self, post: WebPost) -> None:
        web = self._ready()
        self._ticket += 1
        self._tickets[self._ticket] = replace(post, envelope=b"")
        answered = post.return_route or not self.uris
        if web is None or not web.send(
            post.uri, post.envelope, post.media_type, self._ticket, return_route=answered, nearest=post.nearest
        ):
            del self._tickets[self._ticket]
            self.counts["dropped.post"] += 1

    def take(self) -> list[Input]:
        """The inputs since the last call."""
        inputs: list[Input] = [*self._failed]
        self._failed.clear()
        if self._web is None:
            return inputs
        from zerochat.agent.network.web import Arrived, Closed, Delivered, Failed, Opened

        for event in self._web.take():
            match event:
                case Arrived(handle, envelope):
                    is_session = event.way == "session" and event.uri is None
                    inputs.append(WebReceived(envelope, handle or None, is_session))
                case Failed(ticket):
                    inputs.append(self._failure(self._tickets.pop(ticket, None), event))
                case Delivered(ticket):
                    post = self._tickets.pop(ticket, None)
                    if post is not None and post.reference:
                        inputs.append(WebPostDelivered(post.reference))
                case Opened(uri=str(uri)):
                    inputs.append(WebSocketUp(uri))
                case Closed(uri=str(uri)):
                    inputs.append(WebSocketDown(uri))
                case Opened() | Closed():
                    pass  # an inbound session: its envelopes come as Arrived
                case _:
                    assert_never(event)
        return inputs

    def _failure(self, post: WebPost | None, event: "Failed") -> WebPostFailed:
        from zerochat.agent.network.web.events import OF_ONE_ENVELOPE, http_status

        if post is None:
            return WebPostFailed("")
        rejected = http_status(event.why) in OF_ONE_ENVELOPE
        return WebPostFailed(post.uri, post.reference, rejected, event.retry_after_s)

    def acknowledge(self, inputs: Iterable[Input], *, kept: bool) -> None:
        """Confirm the envelopes of these inputs to their senders (`kept`: they are on disk), or refuse them."""
        if self._web is None:
            return
        for handle in {one.handle for one in inputs if isinstance(one, WebReceived) and one.handle is not None}:
            (self._web.accept if kept else self._web.refuse)(handle)

    def publish_short_link(self, url: str, expires: int) -> str:
        """A short link to an invitation, served until `expires` (UTC seconds) or the agent's end; empty: not reachable.

        Chat programs fetch previews of links, so it has several uses.
        """
        left_s = expires - time.time()
        if self._web is None or not self.uris or left_s <= 0:
            return ""
        oobid = b64url(os.urandom(16))
        self._web.publish_invitation(oobid, url, left_s, SHORT_LINK_USES)
        return f"{self.uris[0].rstrip('/')}/?_oobid={oobid}"
