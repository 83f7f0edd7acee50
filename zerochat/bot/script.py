"""`SyncBot`: a blocking bot for scripts.

with SyncBot(profile="ci") as bot:
    for m in bot.messages(within=60):
        m.reply("received")
"""

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from zerochat import rpc
from zerochat.bot.bot import Bot
from zerochat.bot.events import Group, Message
from zerochat.bot.handlers import Include
from zerochat.bot.store import KeyValues
from zerochat.bot.sync import SyncMessage, SyncSent, blocking_view
from zerochat.errors import LocalError

START_S_MAX = 60.0


class BotNotReady(LocalError):
    """The bot was not ready after {seconds} seconds: the agent does not answer."""

    exit_code = 6


class SyncBot:
    """A bot for scripts: a context manager with an iterator of messages. It runs in a thread of its own."""

    def __init__(
        self,
        name: str = "script",
        *,
        profile: str | None = None,
        groups: Sequence[str] | None = None,
        include: Sequence[Include] = (),
    ) -> None:
        """The arguments of `Bot`."""
        self._bot = Bot(name, profile=profile, groups=groups, include=include, timeout=None)
        self._bot.on_message(self._enqueue)
        self._incoming: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._unhandled: dict[str, asyncio.Future[None]] = {}
        """By message id: the future that the message's handler waits for."""
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run_thread, name=f"bot {name}", daemon=True)
        self._failure: BaseException | None = None
        self._hops = 0
        """The hop count of what is sent while a message is handled."""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._loop = self._started.result(START_S_MAX)
        except TimeoutError:
            raise BotNotReady(seconds=round(START_S_MAX)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure

    @property
    def kv(self) -> KeyValues:
        return self._bot.kv

    def messages(self, within: float | None = None) -> Iterator[SyncMessage]:
        """Messages as they arrive, until none has arrived for `within` seconds (None: forever). A message is handled
        when the next one is requested, or by `done`; otherwise it is redelivered in the next run."""
        while True:
            try:
                message = self._incoming.get(timeout=within if within is not None else 1.0)
            except queue.Empty:
                if self._failure is not None:
                    raise self._failure from None
                if within is not None or not self._thread.is_alive():
                    return
                continue
            found = blocking_view(message)
            assert isinstance(found, SyncMessage)
            self._hops = found.hops + 1
            yield found
            self.done(found)

    def done(self, message: Message) -> None:
        """Mark a message as handled, so that it is not redelivered."""
        self._hops = 0
        handled = self._unhandled.pop(message.id, None)
        if handled is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_resolve, handled)

    def send(
        self, group: str | Group, text: str, *, files: Sequence[str | Path] = (), key: str | None = None
    ) -> SyncSent:
        """Send a message to a group."""
        return self._bot.sync.send(group, text, files=files, key=key, hops=self._hops)

    def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        return self._bot.sync.members(group)

    async def _enqueue(self, m: Message) -> None:
        handled = self._unhandled[m.id] = asyncio.get_running_loop().create_future()
        self._incoming.put(m)
        await handled

    def _end(self) -> None:
        """Cancel unhandled messages, acknowledge the rest, and stop."""
        for handled in self._unhandled.values():
            handled.cancel()
        self._bot.stop()

    def _run_thread(self) -> None:
        async def live() -> None:
            serving = asyncio.create_task(self._bot.serve())
            ready = asyncio.create_task(self._bot.ready())
            await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                self._started.set_result(asyncio.get_running_loop())
            ready.cancel()
            await serving

        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            self._failure = error
            if not self._started.done():
                self._started.set_exception(error)


def _resolve(handled: asyncio.Future[None]) -> None:
    if not handled.done():
        handled.set_result(None)
