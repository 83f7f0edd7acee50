"""Outgoing WebSocket sessions: one per URI, and nearest address, that is held or has a send queue.

A held session is reconnected with exponential backoff and jitter, so that a mediator that comes back is not overrun.
Any other session stays open for some seconds after its last message.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.events import Closed, Opened, OutboundEnvelope, SendFinished
from zerochat.agent.network.web.http_client import CLIENT_FAILURES, HttpClients, callable_url, reason
from zerochat.agent.network.web.http_server import ReplyChannel
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.websocket_session import MESSAGE_BYTES_LIMIT, WebSocketSession
from zerochat.didcomm.address_kinds import AddressKind

NUDGE_S = 1.0
"""A new envelope ends a longer backoff delay, but not before this minimum."""
STEADY_S = 20.0
"""A session that lasted so long resets the backoff."""


class DialTarget:
    """One URI, and the task that keeps its session."""

    def __init__(self, uri: str, nearest: AddressKind) -> None:
        self.uri, self.nearest = uri, nearest
        self.held = False
        self.session: WebSocketSession | None = None
        self.waiting: deque[OutboundEnvelope] = deque()
        """The send queue while there is no session."""
        self.nudge = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.is_leaving = False
        """Whether it was cut to make room for another one."""


class WebSocketDialer:
    """The outgoing sessions. `channels` gets each by its handle."""

    def __init__(
        self,
        clients: HttpClients,
        events: EventQueue,
        limits: Limits,
        channels: dict[int, ReplyChannel],
        new_handle: Callable[[], int],
    ) -> None:
        self._clients, self._events, self._limits = clients, events, limits
        self._channels, self._new_handle = channels, new_handle
        self._now = asyncio.get_running_loop().time
        self._targets: dict[tuple[str, AddressKind], DialTarget] = {}

    def send(self, envelope: OutboundEnvelope) -> None:
        held = self._targets.get((envelope.uri, AddressKind.LOOPBACK))
        nearest = AddressKind.LOOPBACK if held is not None and held.held else envelope.nearest
        if (envelope.uri, nearest) not in self._targets and not self._has_room():
            self._events.put(SendFinished(envelope.serial, "busy"))
            return
        target = self._target(envelope.uri, nearest)
        if target.session is not None:
            target.session.push(envelope)
        else:
            target.waiting.append(envelope)
            target.nudge.set()

    def hold(self, uri: str) -> None:
        self._target(uri, AddressKind.LOOPBACK).held = True

    def release(self, uri: str) -> None:
        target = self._targets.get((uri, AddressKind.LOOPBACK))
        if target is not None:
            target.held = False
            target.nudge.set()

    def check(self, now: float) -> list[WebSocketSession]:
        """The idle sessions that are not held."""
        return [
            target.session
            for target in self._targets.values()
            if target.session is not None and not target.held and target.session.idle(now) > self._limits.linger_s
        ]

    async def close(self) -> None:
        tasks = [target.task for target in self._targets.values() if target.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _has_room(self) -> bool:
        """Whether one more session may be dialled; the one idle for longest is cut if necessary."""
        targets = [target for target in self._targets.values() if not target.held and not target.is_leaving]
        if len(targets) < self._limits.sessions_out:
            return True
        now = self._now()
        quiet = [
            (target.session.idle(now), target)
            for target in targets
            if target.session is not None and not target.waiting
        ]
        longest, target = max(quiet, key=lambda pair: pair[0], default=(0.0, None))
        if target is None or target.session is None or not longest:
            return False
        target.is_leaving = True
        target.session.cut()
        return True

    # --- one line ---------------------------------------------------------------------------------------------------

    def _target(self, uri: str, nearest: AddressKind) -> DialTarget:
        target = self._targets.get((uri, nearest))
        if target is None:
            target = self._targets[uri, nearest] = DialTarget(uri, nearest)
            target.task = asyncio.create_task(self._run(target))
        return target

    async def _run(self, target: DialTarget) -> None:
        failures = 0
        why = "stopped"
        try:
            while target.held or target.waiting:
                begun = self._now()
                why = "stopped"
                why = await self._connect(target)
                failures = 0 if self._now() - begun > STEADY_S else failures + 1
                if target.held or target.waiting:
                    await self._back_off(target, failures)
        finally:
            del self._targets[target.uri, target.nearest]
            self._fail(target, why)

    async def _connect(self, target: DialTarget) -> str:
        """Dial, and run the session until it ends; the reason of its end."""
        url = callable_url(target.uri, ("ws", "wss"))
        if url is None:
            target.held = False
            self._fail(target, "uri")
            return "uri"
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                websocket = await self._clients[target.nearest].ws_connect(
                    url,
                    timeout=aiohttp.ClientWSTimeout(ws_close=self._limits.stop_s / 2),
                    autoping=False,
                    heartbeat=self._limits.ping_s,
                    max_msg_size=MESSAGE_BYTES_LIMIT,
                    decode_text=False,
                )
        except CLIENT_FAILURES as error:
            self._fail(target, reason(error))
            return reason(error)
        target.is_leaving = False
        session = WebSocketSession(websocket, self._new_handle(), target.uri, self._events, self._limits)
        self._channels[session.handle] = target.session = session
        self._events.put(Opened(session.handle, target.uri))
        while target.waiting:
            session.push(target.waiting.popleft())
        try:
            await session.run()
        finally:
            target.session = None
            del self._channels[session.handle]
            self._events.put(Closed(session.handle, target.uri))
            await session.close()
        return "lost"

    async def _back_off(self, target: DialTarget, failures: int) -> None:
        delay = min(self._limits.redial_s_max, self._limits.redial_s * 2.0 ** min(failures, 16))
        delay *= random.uniform(0.5, 1.0)  # noqa: S311  # only to spread the load
        minimum = min(NUDGE_S, delay)
        if not target.waiting:
            target.nudge.clear()
        await asyncio.sleep(minimum)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay - minimum):
                await target.nudge.wait()

    def _fail(self, target: DialTarget, why: str) -> None:
        while target.waiting:
            self._events.put(SendFinished(target.waiting.popleft().serial, why))
