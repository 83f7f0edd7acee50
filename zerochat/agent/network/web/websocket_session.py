"""WebSocket session: one envelope per message, confirmed by ping and pong, with back-pressure.

WebSocket has no acknowledgements, but every implementation answers a ping with a pong in order (RFC 6455, 5.5.3). So a
ping follows the sent envelopes, and its pong confirms that the peer has read them. Between two zerochat nodes it
confirms more: our pongs wait until the owner has accepted what came before the ping, so "delivered" means on disk.

A peer that reads too slowly is cut when its send queue stalls; a peer that sends faster than the owner accepts is not
read until the owner has caught up.
"""

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import TypeAlias

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from aiohttp.web import WebSocketResponse

from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.events import ENCRYPTED, Arrived, Flushed, OutboundEnvelope, SendFinished
from zerochat.agent.network.web.limits import Limits
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

MESSAGE_BYTES_LIMIT = ENVELOPE_BYTES_MAX + 1
"""For aiohttp, which refuses messages of this length, not only longer ones."""
CONFIRM_EVERY = 32
"""Envelopes between two pings, so that a long queue is confirmed step by step."""
PINGS_MAX = 4_096
"""With a longer send queue pings are not answered individually (RFC 6455, 5.5.3), so a flood gets no pongs."""

Socket: TypeAlias = "WebSocketResponse[bool] | ClientWebSocketResponse[bool]"


class WebSocketSession:
    """Made after the handshake; `run` returns when the connection has ended."""

    def __init__(self, websocket: Socket, handle: int, uri: str | None, events: EventQueue, limits: Limits) -> None:
        self.handle, self.uri = handle, uri
        self._socket, self._events, self._limits = websocket, events, limits
        self._now = asyncio.get_running_loop().time
        self.used = self._now()
        """Time of the last envelope in either direction."""
        self._outbox: deque[OutboundEnvelope | bytes] = deque()
        """The send queue: envelopes, and pongs as bytes."""
        self._work = asyncio.Event()
        self._writing_since: float | None = None
        self._unconfirmed: deque[tuple[int, int, float]] = deque()
        """Sent and unconfirmed envelopes: the count below, the serial (0: no report wanted), and the time."""
        self._sent = self._pinged = 0
        """Number of envelopes sent, and of those followed by a ping."""
        self._unaccepted: deque[float | bytes] = deque()
        """In order of arrival: the time of an unaccepted envelope, or the bytes of a ping that waits for it."""
        self._caught_up = asyncio.Event()
        self._receiving = False

    # --- from the owner ---------------------------------------------------------------------------------------------

    def push(self, outbound: OutboundEnvelope) -> None:
        """Append to the send queue, which the owner bounds."""
        self._outbox.append(outbound)
        self._work.set()

    def accepted(self, count: int) -> None:
        """The owner has accepted the first `count` unaccepted envelopes."""
        while self._unaccepted and (count or isinstance(self._unaccepted[0], bytes)):
            first = self._unaccepted.popleft()
            if isinstance(first, bytes):
                self._outbox.append(first)
                self._work.set()
            else:
                count -= 1
        self._caught_up.set()

    def idle(self, now: float) -> float:
        """Seconds without traffic; 0 while something is pending."""
        return 0.0 if self._outbox or self._unconfirmed or self._unaccepted else now - self.used

    # --- its life ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until either side closes. Unconfirmed envelopes have then failed."""
        writer = asyncio.create_task(self._write())
        try:
            await self._read()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            for outbound in self._outbox:
                if isinstance(outbound, OutboundEnvelope):
                    self._count_flushed(outbound)
                    self._settle(outbound.serial, "lost")
            for _, serial, _ in self._unconfirmed:
                self._settle(serial, "lost")
            self._outbox.clear()
            self._unconfirmed.clear()

    async def close(self) -> None:
        """Close with a closing handshake; `run` returns soon after."""
        with suppress(ClientError, OSError, RuntimeError):
            await self._socket.close(code=1001)

    def cut(self) -> None:
        """Cut the TCP connection at once."""
        with suppress(OSError, AttributeError):  # closed, or half closed
            self._socket.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def check(self, now: float) -> None:
        """Cut the session if a time limit is exceeded. Called about every second."""
        limits = self._limits
        first = self._unaccepted[0] if self._unaccepted else None
        partial = self.unfinished_since() if self._receiving else None
        late = {
            "web.unaccepted": isinstance(first, float) and now - first > limits.accept_s,
            "web.unconfirmed": bool(self._unconfirmed) and now - self._unconfirmed[0][2] > limits.confirm_s,
            "web.slow_reader": self._writing_since is not None and now - self._writing_since > limits.confirm_s,
            "web.slow_writer": partial is not None and now - partial > limits.body_s,
            "web.quiet": self.is_quiet(now),
        }
        for name, too_late in late.items():
            if too_late:
                self._events.counts[name] += 1
                self.cut()
                return

    def unfinished_since(self) -> float | None:
        """When (loop time) the peer began an unfinished message; None: none, or not tracked."""
        return None

    def finished(self) -> None:
        """A whole message was read."""

    def is_quiet(self, now: float) -> bool:
        """Whether an inbound session is idle for too long; a dialled one is closed by its dialer."""
        return False

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            self._receiving = True
            message = await self._socket.receive()
            self._receiving = False
            self.finished()
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    await self._receive(bytes(message.data))
                case WSMsgType.PING:
                    if self._unaccepted:
                        self._unaccepted.append(bytes(message.data))
                        await self._wait_for_acceptance()
                    elif len(self._outbox) < PINGS_MAX:
                        self._outbox.append(bytes(message.data))
                        self._work.set()
                case WSMsgType.PONG:
                    self._confirmed(bytes(message.data))
                case _:
                    return

    async def _receive(self, envelope: bytes) -> None:
        if not 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            self._events.counts["web.shape"] += 1
            return
        await self._events.room()
        self.used = self._now()
        self._unaccepted.append(self.used)
        self._events.put(Arrived(self.handle, envelope, ENCRYPTED, "session", self.uri))
        await self._wait_for_acceptance()

    async def _wait_for_acceptance(self) -> None:
        """Stop reading while too many envelopes of this session are unaccepted."""
        while len(self._unaccepted) >= self._limits.unaccepted:
            self._caught_up.clear()
            await self._caught_up.wait()

    def _confirmed(self, pong: bytes) -> None:
        """Our pings carry the number of envelopes sent before them. Other pongs are ignored."""
        if len(pong) != 8:
            return
        count = int.from_bytes(pong, "big")
        while self._unconfirmed and self._unconfirmed[0][0] <= count <= self._pinged:
            _, serial, _ = self._unconfirmed.popleft()
            self._settle(serial, None)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            while True:
                while self._outbox:
                    await self._next(self._outbox.popleft())
                self._work.clear()
                await self._work.wait()
        except (ClientError, OSError, RuntimeError):
            self.cut()  # ends the reader

    async def _next(self, item: OutboundEnvelope | bytes) -> None:
        self._writing_since = self._now()
        if isinstance(item, bytes):
            await self._socket.pong(item)
        else:
            self._sent += 1
            self.used = self._now()
            self._unconfirmed.append((self._sent, item.serial, self.used))
            kind = WSMsgType.TEXT if item.envelope.isascii() else WSMsgType.BINARY
            try:
                await self._socket.send_frame(item.envelope, kind)
            finally:
                self._count_flushed(item)
            if not self._outbox or self._sent - self._pinged >= CONFIRM_EVERY:
                self._pinged = self._sent
                await self._socket.ping(self._sent.to_bytes(8, "big"))
        self._writing_since = None

    def _count_flushed(self, outbound: OutboundEnvelope) -> None:
        """It has left the send queue."""
        if not outbound.uri:
            self._events.put(Flushed(self.handle, len(outbound.envelope)))

    def _settle(self, serial: int, why: str | None) -> None:
        if serial:
            self._events.put(SendFinished(serial, why))
