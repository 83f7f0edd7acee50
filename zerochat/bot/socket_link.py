"""An agent link over the profile's control socket. Starts an agent in this process if none is running."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from zerochat.agent.api.attach import Attached, attach
from zerochat.agent.api.client_connection import CONNECT_S_MAX, READ_BYTES_MAX, AgentGone, AgentUnreachable
from zerochat.agent.api.client_protocol import AgentError, AgentUnclear, ClientProtocol, Notification
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.bot.agent_link import ANSWER_S_MAX, AgentLinkLost, steady
from zerochat.errors import LocalError
from zerochat.rpc import PROTOCOL

WRITE_BUFFER_BYTES_MAX = 4 << 20
"""Bytes buffered for an agent that does not read; then writers wait."""


class SocketLink:
    """The control socket of a profile as an `AgentLink`."""

    def __init__(self, places: ProfilePaths, name: str, passphrase: Callable[[], bytes] | None = None) -> None:
        """`name`: name of this client. `passphrase`: called only if an agent must be started and the profile has a
        passphrase."""
        self.profile = places.profile
        self._places, self._name, self._passphrase = places, name, passphrase
        self._attached: Attached | None = None
        """The agent started by this process, if any."""
        self._attach_tried = False
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._dialogue = ClientProtocol()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._notifications: deque[Notification] = deque()
        self._available = asyncio.Event()
        self._end: LocalError | None = None

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return steady()

    async def open(self) -> None:
        await self._disconnect()
        if not self._attach_tried:
            attached = await asyncio.to_thread(attach, self._places, self._passphrase, name=self._name)
            self._attach_tried = not attached.owner  # of a command: it ends soon
            if attached.own:
                self._attached = attached
            else:
                attached.close()
        elif self._attached is not None:
            error = AgentGone()
            await asyncio.to_thread(self._attached.__exit__, AgentGone, error, None)  # raises the reason of its end
            raise error
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                reader, self._writer = await asyncio.open_unix_connection(str(self._places.socket))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, TimeoutError) as error:
            raise AgentLinkLost(why="no agent answers") from error
        except OSError as error:
            raise AgentUnreachable(path=self._places.socket, why=(error.strerror or str(error)).lower()) from error
        self._writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._dialogue, self._end = ClientProtocol(), None
        self._notifications.clear()
        self._available.clear()
        self._reading = asyncio.create_task(self._read(reader))
        hello = await self.call("hello", {"protocol": PROTOCOL, "client": self._name}, CONNECT_S_MAX)
        if hello.protocol != PROTOCOL:
            raise AgentUnclear(why=f"it uses protocol {hello.protocol}, this program {PROTOCOL}")

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        if self._writer is None or self._end is not None:
            raise self._end or AgentLinkLost(why="it was never opened")
        number, line = self._dialogue.request(method, dict(params))
        answer = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within_s):
                self._writer.write(line)
                await self._writer.drain()
                return await answer
        except TimeoutError:
            # The agent may be stuck or the answer lost: the request is repeated over a new connection.
            self._writer.transport.abort()
            raise AgentLinkLost(why=f"no answer to {method} within {within_s:.0f} seconds") from None
        except OSError as error:
            raise AgentLinkLost(why=(error.strerror or "connection reset").lower()) from error
        finally:
            self._pending.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # mark the exception as retrieved

    async def next_notification(self) -> Notification:
        while not self._notifications:
            if self._end is not None:
                raise self._end
            self._available.clear()
            await self._available.wait()
        return self._notifications.popleft()

    async def close(self) -> None:
        await self._disconnect()
        if self._attached is not None:
            await asyncio.to_thread(self._attached.close)
            self._attached = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        end: LocalError = AgentLinkLost(why="the agent closed it")
        try:
            while data := await reader.read(READ_BYTES_MAX):
                for said in self._dialogue.receive(data):
                    if isinstance(said, Notification):
                        self._notifications.append(said)
                        continue
                    answer = self._pending.get(said.id)
                    if answer is None or answer.done():
                        continue
                    if isinstance(said.result, AgentError):
                        answer.set_exception(said.result)
                    else:
                        answer.set_result(said.result)
                if self._notifications:
                    self._available.set()
        except OSError as error:
            end = AgentLinkLost(why=(error.strerror or "connection reset").lower())
        except AgentError as error:  # concerns the connection, not one request
            end = AgentLinkLost(why=error.sentence().rstrip("."))
        except AgentUnclear as error:
            end = error
        finally:
            self._end = end
            self._available.set()
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(end)

    async def _disconnect(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None
