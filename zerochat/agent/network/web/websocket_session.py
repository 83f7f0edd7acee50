"""A session: one WebSocket connection, dialled by us or by the peer, that carries one envelope in each message.

WebSocket has no receipts, but every implementation answers a ping with a pong in its turn (RFC 6455, 5.5.3). So after
what was pushed goes a ping, and its pong is the word that the peer has read everything before it. Between two zerochat
nodes it is more: our own pongs wait until the owner has accepted what came before the ping, so that "delivered" means
on disk.

A peer that reads slowly fills its own queue and is cut when it stands still; one that writes faster than the owner
accepts is not read until the owner has caught up.
"""

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import TypeAlias

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from aiohttp.web import WebSocketResponse

from zerochat.agent.network.web.events import ENCRYPTED, Arrived, Parcel, Pushed, Settled
from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import Limits
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX

MESSAGE_BYTES_LIMIT = ENVELOPE_BYTES_MAX + 1
"""For aiohttp, which refuses what has this length, not only what is longer."""
CONFIRM_EVERY = 32
"""A ping goes out at the latest after so many messages, so that a long queue is confirmed bit by bit."""
PINGS_MAX = 4_096
"""With so much still to be written, a ping needs no pong of its own (RFC 6455, 5.5.3), and a flood gets none."""

Socket: TypeAlias = "WebSocketResponse[bool] | ClientWebSocketResponse[bool]"


class Session:
    """Made when the handshake is over; `run` returns when the connection has ended."""

    def __init__(self, websocket: Socket, handle: int, uri: str | None, inbox: Inbox, limits: Limits) -> None:
        self.handle, self.uri = handle, uri
        self._socket, self._inbox, self._limits = websocket, inbox, limits
        self._now = asyncio.get_running_loop().time
        self.used = self._now()
        """When the last envelope went either way."""
        self._outbox: deque[Parcel | bytes] = deque()
        """Envelopes, and pongs as their bytes."""
        self._work = asyncio.Event()
        self._writing_since: float | None = None
        self._unconfirmed: deque[tuple[int, int, float]] = deque()
        """What was sent and not confirmed: the count below, the parcel's serial (0: nobody asks), and when."""
        self._sent = self._pinged = 0
        """How many envelopes have been sent, and how many of them a ping has followed."""
        self._unaccepted: deque[float | bytes] = deque()
        """In the order in which they came: when an envelope arrived, or the bytes of a ping that waits for it."""
        self._caught_up = asyncio.Event()
        self._hearing = False

    # --- from the owner ---------------------------------------------------------------------------------------------

    def push(self, parcel: Parcel) -> None:
        """Send this after what has been pushed before; the owner bounds how much that is."""
        self._outbox.append(parcel)
        self._work.set()

    def accepted(self, count: int) -> None:
        """The owner has the first `count` of those not accepted yet."""
        while self._unaccepted and (count or isinstance(self._unaccepted[0], bytes)):
            first = self._unaccepted.popleft()
            if isinstance(first, bytes):
                self._outbox.append(first)
                self._work.set()
            else:
                count -= 1
        self._caught_up.set()

    def idle(self, now: float) -> float:
        """Seconds for which nothing has been said and nothing is waiting."""
        return 0.0 if self._outbox or self._unconfirmed or self._unaccepted else now - self.used

    # --- its life ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read and write until either side ends it. What was not confirmed by then has failed."""
        writer = asyncio.create_task(self._write())
        try:
            await self._read()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            for parcel in self._outbox:
                if isinstance(parcel, Parcel):
                    self._gone(parcel)
                    self._settle(parcel.serial, "lost")
            for _, serial, _ in self._unconfirmed:
                self._settle(serial, "lost")
            self._outbox.clear()
            self._unconfirmed.clear()

    async def close(self) -> None:
        """End it politely; `run` returns soon after."""
        with suppress(ClientError, OSError, RuntimeError):
            await self._socket.close(code=1001)

    def cut(self) -> None:
        """End it at once, whatever the peer does."""
        with suppress(OSError, AttributeError):  # it has been closed already, or is half gone
            self._socket.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def check(self, now: float) -> None:
        """Cut it if something has taken too long. Call this every second or so."""
        limits = self._limits
        first = self._unaccepted[0] if self._unaccepted else None
        partial = self.unfinished_since() if self._hearing else None
        late = {
            "web.unaccepted": isinstance(first, float) and now - first > limits.accept_s,
            "web.unconfirmed": bool(self._unconfirmed) and now - self._unconfirmed[0][2] > limits.confirm_s,
            "web.slow_reader": self._writing_since is not None and now - self._writing_since > limits.confirm_s,
            "web.slow_writer": partial is not None and now - partial > limits.body_s,
            "web.quiet": self.is_quiet(now),
        }
        for name, too_late in late.items():
            if too_late:
                self._inbox.counts[name] += 1
                self.cut()
                return

    def unfinished_since(self) -> float | None:
        """When (loop time) the peer began to send something that is no whole message yet. For listeners."""
        return None

    def finished(self) -> None:
        """A whole message has been read."""

    def is_quiet(self, now: float) -> bool:
        """Whether it holds a place for nothing. For listeners; whoever has dialled a session ends it."""
        return False

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            self._hearing = True
            message = await self._socket.receive()
            self._hearing = False
            self.finished()
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    await self._heard(bytes(message.data))
                case WSMsgType.PING:
                    if self._unaccepted:
                        self._unaccepted.append(bytes(message.data))
                        await self._patience()
                    elif len(self._outbox) < PINGS_MAX:
                        self._outbox.append(bytes(message.data))
                        self._work.set()
                case WSMsgType.PONG:
                    self._confirmed(bytes(message.data))
                case _:
                    return

    async def _heard(self, envelope: bytes) -> None:
        if not 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            self._inbox.counts["web.shape"] += 1
            return
        await self._inbox.room()
        self.used = self._now()
        self._unaccepted.append(self.used)
        self._inbox.tell(Arrived(self.handle, envelope, ENCRYPTED, "session", self.uri))
        await self._patience()

    async def _patience(self) -> None:
        """Read no further while the owner has too much of this session to accept."""
        while len(self._unaccepted) >= self._limits.unaccepted:
            self._caught_up.clear()
            await self._caught_up.wait()

    def _confirmed(self, pong: bytes) -> None:
        """The pong's bytes say how many envelopes the peer has read. A pong that is no answer to ours says nothing."""
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
            self.cut()  # the reader notices

    async def _next(self, item: Parcel | bytes) -> None:
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
                self._gone(item)
            if not self._outbox or self._sent - self._pinged >= CONFIRM_EVERY:
                self._pinged = self._sent
                await self._socket.ping(self._sent.to_bytes(8, "big"))
        self._writing_since = None

    def _gone(self, parcel: Parcel) -> None:
        """It has left the queue, one way or the other."""
        if not parcel.uri:
            self._inbox.tell(Pushed(self.handle, len(parcel.envelope)))

    def _settle(self, serial: int, why: str | None) -> None:
        if serial:
            self._inbox.tell(Settled(serial, why))
