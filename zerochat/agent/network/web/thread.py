"""The web thread itself: one loop with the listener, the POSTs and the sessions, and a look at them twice a second.

The owner's wishes come by `do`, what has happened goes to the inbox; the two threads share nothing else.
"""

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Any

from msgspec import Struct

from zerochat.agent.network.web.event_loop import WebLoop
from zerochat.agent.network.web.events import Parcel, Settled
from zerochat.agent.network.web.http_client import make_client
from zerochat.agent.network.web.http_post import Poster
from zerochat.agent.network.web.http_server import Server
from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.reply_channel import REFUSED, Exchange, Partner
from zerochat.agent.network.web.short_links import ShortLinks
from zerochat.agent.network.web.websocket_dialer import Dialler
from zerochat.agent.network.web.websocket_session import Session

LOOK_S = 0.5
"""Between two looks at what takes too long."""


class Plan(Struct, frozen=True):
    """What a Web was asked for."""

    listen: tuple[str, int] | None
    server_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext
    proxy: tuple[str, int] | None
    limits: Limits
    only_public: bool = False


class Engine:
    """Made by the owner; `run` is the thread."""

    def __init__(self, plan: Plan, inbox: Inbox) -> None:
        self._plan, self._inbox = plan, inbox
        self._loop = WebLoop(plan.proxy, only_public=plan.only_public)
        self._end = asyncio.Event()
        self.ready: Future[int] = Future()
        """The port that it listens on, 0 for none; or what went wrong."""

    # --- from the owner's thread ------------------------------------------------------------------------------------

    def do(self, work: Callable[..., object], *arguments: Any) -> bool:
        """Have this called in the web thread; False when that has ended."""
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
                runner.run(self._live())
        except Exception as error:  # noqa: BLE001  # whatever it was: whoever waits is told
            self._inbox.counts["web.died"] += 1
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            self._loop.close()

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A handshake that failed, a peer that hung up. asyncio would write it to the terminal."""
        self._inbox.counts["web.fault"] += 1

    async def _live(self) -> None:
        plan = self._plan
        self._now = self._loop.time
        self._links = ShortLinks()
        self._partners: dict[int, Partner] = {}
        handles = count(1)
        self._server = Server(self._inbox, plan.limits, self._links, self._partners, lambda: next(handles))
        async with (
            make_client(plan.client_tls, plan.limits) as client,
            make_client(plan.client_tls, plan.limits, sessions=True) as session_client,
        ):
            self._poster = Poster(client, self._inbox)
            self._dialler = Dialler(session_client, self._inbox, plan.limits, self._partners, lambda: next(handles))
            port = await self._server.listen(*plan.listen, plan.server_tls) if plan.listen is not None else 0
            self.ready.set_result(port)
            try:
                await self._watch()
            finally:
                await self._close()

    async def _watch(self) -> None:
        """See to what takes too long, until the end."""
        while not self._end.is_set():
            now = self._now()
            for session in self._sessions():
                session.check(now)
            for session in self._dialler.check(now):
                session.used = now  # once is enough
                await session.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._end.wait()

    async def _close(self) -> None:
        politely = [asyncio.create_task(session.close()) for session in self._sessions()]
        if politely:
            await asyncio.wait(politely, timeout=self._plan.limits.stop_s)
        for session in self._sessions():
            session.cut()
        ends = (self._dialler.close(), self._poster.close(), self._server.close())
        for result in await asyncio.gather(*ends, return_exceptions=True):
            self._inbox.counts["web.fault"] += result is not None

    def _sessions(self) -> list[Session]:
        return [partner for partner in self._partners.values() if isinstance(partner, Session)]

    # --- the owner's wishes, in this thread -------------------------------------------------------------------------

    def end(self) -> None:
        self._end.set()

    def send(self, parcel: Parcel) -> None:
        if self._end.is_set():
            self._inbox.tell(Settled(parcel.serial, "stopped"))
        elif parcel.uri.lower().startswith("ws"):
            self._dialler.send(parcel)
        else:
            self._poster.post(parcel)

    def hold(self, uri: str) -> None:
        if not self._end.is_set():
            self._dialler.hold(uri)

    def release(self, uri: str) -> None:
        self._dialler.release(uri)

    def taken(self, messages: int, size: int) -> None:
        self._inbox.taken(messages, size)

    def accept(self, handle: int, messages: int) -> None:
        partner = self._partners.get(handle)
        if partner is not None:
            partner.accepted(messages)

    def refuse(self, handle: int) -> None:
        partner = self._partners.get(handle)
        if isinstance(partner, Exchange):
            partner.decide(REFUSED)
        elif partner is not None:
            partner.cut()

    def push(self, handle: int, parcel: Parcel) -> None:
        partner = self._partners.get(handle)
        if partner is not None:
            partner.push(parcel)
        elif parcel.serial:
            self._inbox.tell(Settled(parcel.serial, "lost"))

    def publish(self, oobid: str, url: str, for_s: float, uses: int | None) -> None:
        self._links.publish(oobid, url, self._now() + for_s, uses)

    def withdraw(self, oobid: str) -> None:
        self._links.withdraw(oobid)
