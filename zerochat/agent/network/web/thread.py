"""The web thread: one event loop with the server, the POSTs and the sessions, and periodic timeout checks.

The owner calls `do`; events go to the event queue. The two threads share nothing else.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

from msgspec import Struct

from zerochat.agent.network.web.event_loop import WebLoop
from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.events import OutboundEnvelope, SendFinished
from zerochat.agent.network.web.http_client import HttpClients
from zerochat.agent.network.web.http_post import HttpPoster
from zerochat.agent.network.web.http_server import REFUSED, PendingPost, ReplyChannel, Server
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.short_links import ShortLinks
from zerochat.agent.network.web.websocket_dialer import WebSocketDialer
from zerochat.agent.network.web.websocket_session import WebSocketSession

CHECK_S = 0.5
"""Time between two timeout checks."""


class WebConfig(Struct, frozen=True):
    """The options of a `Web`."""

    listen: tuple[str, int] | None
    server_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext
    proxy: tuple[str, int] | None
    limits: Limits


class WebThread:
    """Made by the owner; `run` is the thread's function."""

    def __init__(self, plan: WebConfig, events: EventQueue) -> None:
        self._plan, self._events = plan, events
        self._loop = WebLoop(plan.proxy)
        self._end = asyncio.Event()
        self.ready: Future[int] = Future()
        """The listening port (0: none), or the exception of a failed start."""

    # --- from the owner's thread ------------------------------------------------------------------------------------

    def do(self, work: Callable[..., object], *arguments: Any) -> bool:
        """Call this in the web thread; False: the thread has ended."""
        try:
            self._loop.call_soon_threadsafe(work, *arguments)
        except RuntimeError:
            return False
        return True

    # --- the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._loop.set_exception_handler(self._fault)
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception as error:  # noqa: BLE001  # `ready` reports it to the owner
            self._events.counts["web.died"] += 1
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            self._loop.close()

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count failed handshakes and lost peers, which asyncio would print to the terminal."""
        self._events.counts["web.fault"] += 1

    async def _serve(self) -> None:
        plan = self._plan
        self._now = self._loop.time
        self._links = ShortLinks()
        self._channels: dict[int, ReplyChannel] = {}
        handles = count(1)
        self._server = Server(self._events, plan.limits, self._links, self._channels, lambda: next(handles))
        clients = HttpClients(plan.client_tls, plan.limits)
        session_clients = HttpClients(plan.client_tls, plan.limits, sessions=True)
        async with AsyncExitStack() as open_:
            open_.push_async_callback(clients.close)
            open_.push_async_callback(session_clients.close)
            self._http_poster = HttpPoster(clients, self._events)
            self._dialer = WebSocketDialer(
                session_clients, self._events, plan.limits, self._channels, lambda: next(handles)
            )
            port = await self._server.listen(*plan.listen, plan.server_tls) if plan.listen is not None else 0
            self.ready.set_result(port)
            try:
                await self._check_sessions()
            finally:
                await self._close()

    async def _check_sessions(self) -> None:
        """Check the sessions' time limits periodically until the end."""
        while not self._end.is_set():
            now = self._now()
            for session in self._sessions():
                session.check(now)
            for session in self._dialer.check(now):
                session.used = now  # close it only once
                await session.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._end.wait()

    async def _close(self) -> None:
        closing = [asyncio.create_task(session.close()) for session in self._sessions()]
        if closing:
            await asyncio.wait(closing, timeout=self._plan.limits.stop_s)
        for session in self._sessions():
            session.cut()
        ends = (self._dialer.close(), self._http_poster.close(), self._server.close())
        for result in await asyncio.gather(*ends, return_exceptions=True):
            self._events.counts["web.fault"] += result is not None

    def _sessions(self) -> list[WebSocketSession]:
        return [channel for channel in self._channels.values() if isinstance(channel, WebSocketSession)]

    # --- called by the owner through `do` ---------------------------------------------------------------------------

    def end(self) -> None:
        self._end.set()

    def send(self, envelope: OutboundEnvelope) -> None:
        if self._end.is_set():
            self._events.put(SendFinished(envelope.serial, "stopped"))
        elif envelope.uri.lower().startswith("ws"):
            self._dialer.send(envelope)
        else:
            self._http_poster.post(envelope)

    def hold(self, uri: str) -> None:
        if not self._end.is_set():
            self._dialer.hold(uri)

    def release(self, uri: str) -> None:
        self._dialer.release(uri)

    def taken(self, messages: int, size: int) -> None:
        self._events.taken(messages, size)

    def accept(self, handle: int, messages: int) -> None:
        channel = self._channels.get(handle)
        if channel is not None:
            channel.accepted(messages)

    def refuse(self, handle: int) -> None:
        channel = self._channels.get(handle)
        if isinstance(channel, PendingPost):
            channel.respond(REFUSED)
        elif channel is not None:
            channel.cut()

    def keep(self, handle: int) -> None:
        if self._server is not None:
            self._server.keep(handle)

    def push(self, handle: int, envelope: OutboundEnvelope) -> None:
        channel = self._channels.get(handle)
        if channel is not None:
            channel.push(envelope)
        elif envelope.serial:
            self._events.put(SendFinished(envelope.serial, "lost"))

    def publish(self, oobid: str, url: str, for_s: float, uses: int | None) -> None:
        self._links.publish(oobid, url, self._now() + for_s, uses, self._now())

    def publish_document(self, oobid: str, document: bytes, for_s: float) -> None:
        self._links.publish_document(oobid, document, self._now() + for_s, self._now())

    def withdraw(self, oobid: str) -> None:
        self._links.withdraw(oobid)
