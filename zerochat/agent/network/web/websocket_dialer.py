"""Outgoing sessions: one for each ws(s) URI that is held, or that something has to be sent to.

A held one is dialled again and again until it is released, with a delay that doubles and is never the same for two
agents, so that a mediator that comes back is not run over. Another one stays for some seconds after its last message.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from zerochat.agent.network.web.events import Closed, Opened, Parcel, Settled
from zerochat.agent.network.web.http_client import TROUBLE, callable_url, reason
from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.reply_channel import Partner
from zerochat.agent.network.web.websocket_session import MESSAGE_BYTES_LIMIT, Session

NUDGE_S = 1.0
"""Something to send does not wait for the end of a long delay; but nobody is dialled more often than this for it."""
STEADY_S = 20.0
"""A session that lasted so long was a good one: the next delay is a short one again."""


class Line:
    """One URI, and the task that sees to it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.held = False
        self.session: Session | None = None
        self.waiting: deque[Parcel] = deque()
        """What came while there was no session."""
        self.nudge = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.is_leaving = False
        """It has been cut to make room for another one."""


class Dialler:
    """`partners` gets every session, by handle."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        inbox: Inbox,
        limits: Limits,
        partners: dict[int, Partner],
        new_handle: Callable[[], int],
    ) -> None:
        self._client, self._inbox, self._limits = client, inbox, limits
        self._partners, self._new_handle = partners, new_handle
        self._now = asyncio.get_running_loop().time
        self._lines: dict[str, Line] = {}

    def send(self, parcel: Parcel) -> None:
        if parcel.uri not in self._lines and not self._has_room():
            self._inbox.tell(Settled(parcel.serial, "busy"))
            return
        line = self._line(parcel.uri)
        if line.session is not None:
            line.session.push(parcel)
        else:
            line.waiting.append(parcel)
            line.nudge.set()

    def hold(self, uri: str) -> None:
        self._line(uri).held = True

    def release(self, uri: str) -> None:
        line = self._lines.get(uri)
        if line is not None:
            line.held = False
            line.nudge.set()

    def check(self, now: float) -> list[Session]:
        """The sessions that nobody wants any more."""
        return [
            line.session
            for line in self._lines.values()
            if line.session is not None and not line.held and line.session.idle(now) > self._limits.linger_s
        ]

    async def close(self) -> None:
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _has_room(self) -> bool:
        """Whether one more line may begin; the one that has been quiet for longest makes room for it."""
        lines = [line for line in self._lines.values() if not line.held and not line.is_leaving]
        if len(lines) < self._limits.sessions_out:
            return True
        now = self._now()
        quiet = [(line.session.idle(now), line) for line in lines if line.session is not None and not line.waiting]
        longest, line = max(quiet, key=lambda pair: pair[0], default=(0.0, None))
        if line is None or line.session is None or not longest:
            return False
        line.is_leaving = True
        line.session.cut()
        return True

    # --- one line ---------------------------------------------------------------------------------------------------

    def _line(self, uri: str) -> Line:
        line = self._lines.get(uri)
        if line is None:
            line = self._lines[uri] = Line(uri)
            line.task = asyncio.create_task(self._tend(line))
        return line

    async def _tend(self, line: Line) -> None:
        failures = 0
        why = "stopped"
        try:
            while line.held or line.waiting:
                begun = self._now()
                why = "stopped"
                why = await self._call(line)
                failures = 0 if self._now() - begun > STEADY_S else failures + 1
                if line.held or line.waiting:
                    await self._wait(line, failures)
        finally:
            del self._lines[line.uri]
            self._fail(line, why)

    async def _call(self, line: Line) -> str:
        """Dial, and talk until it ends. Give why it ended."""
        url = callable_url(line.uri, ("ws", "wss"))
        if url is None:
            line.held = False
            self._fail(line, "uri")
            return "uri"
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                websocket = await self._client.ws_connect(
                    url,
                    timeout=aiohttp.ClientWSTimeout(ws_close=self._limits.stop_s / 2),
                    autoping=False,
                    heartbeat=self._limits.ping_s,
                    max_msg_size=MESSAGE_BYTES_LIMIT,
                    decode_text=False,
                )
        except TROUBLE as error:
            self._fail(line, reason(error))
            return reason(error)
        line.is_leaving = False
        session = Session(websocket, self._new_handle(), line.uri, self._inbox, self._limits)
        self._partners[session.handle] = line.session = session
        self._inbox.tell(Opened(session.handle, line.uri))
        while line.waiting:
            session.push(line.waiting.popleft())
        try:
            await session.run()
        finally:
            line.session = None
            del self._partners[session.handle]
            self._inbox.tell(Closed(session.handle, line.uri))
            await session.close()
        return "lost"

    async def _wait(self, line: Line, failures: int) -> None:
        delay = min(self._limits.redial_s_max, self._limits.redial_s * 2.0 ** min(failures, 16))
        delay *= random.uniform(0.5, 1.0)  # noqa: S311  # only to spread the load
        patience = min(NUDGE_S, delay)
        if not line.waiting:
            line.nudge.clear()
        await asyncio.sleep(patience)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay - patience):
                await line.nudge.wait()

    def _fail(self, line: Line, why: str) -> None:
        while line.waiting:
            self._inbox.tell(Settled(line.waiting.popleft().serial, why))
