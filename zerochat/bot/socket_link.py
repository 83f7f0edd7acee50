"""A line over the profile's control socket, in an event loop. Where no agent runs, one is started in this process."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from zerochat.agent.api.attach import Attached, attach
from zerochat.agent.api.client import (
    CONNECT_S_MAX,
    READ_BYTES_MAX,
    AgentError,
    AgentGone,
    AgentUnclear,
    AgentUnreachable,
    Dialogue,
    News,
)
from zerochat.agent.storage.paths import Places
from zerochat.bot.agent_link import ANSWER_S_MAX, LineLost
from zerochat.errors import LocalError
from zerochat.rpc import PROTOCOL

WAITING_BYTES_MAX = 4 << 20
"""What is said to an agent that does not read; then whoever says more waits."""


class SocketLine:
    """The control socket of a profile. See `line.Line`."""

    def __init__(self, places: Places, name: str, passphrase: Callable[[], bytes] | None = None) -> None:
        """`name`: who calls. `passphrase`: asked only where an agent must be started and the profile has one."""
        self.profile = places.profile
        self._places, self._name, self._passphrase = places, name, passphrase
        self._attached: Attached | None = None
        """The agent that this process has started, if it had to."""
        self._begun = False
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._dialogue = Dialogue()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._news: deque[News] = deque()
        self._heard = asyncio.Event()
        self._end: LocalError | None = None

    def now(self) -> float:
        return time.time()

    async def open(self) -> None:
        await self._hang_up()
        if not self._begun:
            attached = await asyncio.to_thread(attach, self._places, self._passphrase, name=self._name)
            self._begun = True
            if attached.own:
                self._attached = attached
            else:
                attached.close()
        elif self._attached is not None:
            error = AgentGone()
            await asyncio.to_thread(self._attached.__exit__, AgentGone, error, None)  # raises why it has ended
            raise error
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                reader, self._writer = await asyncio.open_unix_connection(str(self._places.socket))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, TimeoutError) as error:
            raise LineLost(why="no agent answers") from error
        except OSError as error:
            raise AgentUnreachable(path=self._places.socket, why=(error.strerror or str(error)).lower()) from error
        self._writer.transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)
        self._dialogue, self._end = Dialogue(), None
        self._news.clear()
        self._heard.clear()
        self._reading = asyncio.create_task(self._read(reader))
        hello = await self.call("hello", {"protocol": PROTOCOL, "client": self._name}, CONNECT_S_MAX)
        if hello.protocol != PROTOCOL:
            raise AgentUnclear(why=f"it speaks protocol {hello.protocol}, and this program {PROTOCOL}")

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        if self._writer is None or self._end is not None:
            raise self._end or LineLost(why="it was never there")
        number, line = self._dialogue.ask(method, dict(params))
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within_s):
                self._writer.write(line)
                await self._writer.drain()
                return await answer
        except TimeoutError:
            # Whoever does not answer may be stuck, or the answer lost: over a new connection it is asked again.
            self._writer.transport.abort()
            raise LineLost(why=f"there was no answer to {method} for {within_s:.0f} seconds") from None
        except OSError as error:
            raise LineLost(why=(error.strerror or "it was cut").lower()) from error
        finally:
            self._open.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # it was asked for, or nobody waits any more

    async def news(self) -> News:
        while not self._news:
            if self._end is not None:
                raise self._end
            self._heard.clear()
            await self._heard.wait()
        return self._news.popleft()

    async def close(self) -> None:
        await self._hang_up()
        if self._attached is not None:
            await asyncio.to_thread(self._attached.close)
            self._attached = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        end: LocalError = LineLost(why="it has hung up")
        try:
            while data := await reader.read(READ_BYTES_MAX):
                for said in self._dialogue.hear(data):
                    if isinstance(said, News):
                        self._news.append(said)
                        continue
                    answer = self._open.get(said.id)
                    if answer is None or answer.done():
                        continue
                    if isinstance(said.result, AgentError):
                        answer.set_exception(said.result)
                    else:
                        answer.set_result(said.result)
                if self._news:
                    self._heard.set()
        except OSError as error:
            end = LineLost(why=(error.strerror or "it was cut").lower())
        except AgentError as error:  # about the connection, and not about one request
            end = LineLost(why=error.sentence().rstrip("."))
        except AgentUnclear as error:
            end = error
        finally:
            self._end = end
            self._heard.set()
            for answer in self._open.values():
                if not answer.done():
                    answer.set_exception(end)

    async def _hang_up(self) -> None:
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
