"""A bot for scripts, without `await`:

with SyncBot(profile="ci") as bot:
    for m in bot.messages(within=60):
        m.reply("heard")
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
from zerochat.bot.store import Values
from zerochat.bot.sync import SyncMessage, SyncSent, blocking_view
from zerochat.errors import LocalError

START_S_MAX = 60.0


class NotReady(LocalError):
    """The bot was not ready after {seconds} seconds: its agent does not answer."""

    exit_code = 6


class SyncBot:
    """A bot for scripts: a context, within which messages are an iterator. It runs in a thread of its own."""

    def __init__(
        self,
        profile: str | None = None,
        name: str = "script",
        *,
        groups: Sequence[str] | None = None,
        include: Sequence[Include] = (),
    ) -> None:
        """As `Bot` has them."""
        self._bot = Bot(profile, name, groups=groups, include=include, timeout=None)
        self._bot.on_message(self._give)
        self._given: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._open: dict[str, asyncio.Future[None]] = {}
        """By the id of a message that nobody has handled yet: what its handler waits for."""
        self._up: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._live, name=f"bot {name}", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._loop = self._up.result(START_S_MAX)
        except TimeoutError:
            raise NotReady(seconds=round(START_S_MAX)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure

    @property
    def kv(self) -> Values:
        return self._bot.kv

    def messages(self, within: float | None = None) -> Iterator[SyncMessage]:
        """Messages as they come, until there has been none for `within` seconds (None: for ever). One is handled when
        the next one is asked for, or with `done`; what is not comes again the next time."""
        while True:
            try:
                message = self._given.get(timeout=within if within is not None else 1.0)
            except queue.Empty:
                if self._failure is not None:
                    raise self._failure from None
                if within is not None or not self._thread.is_alive():
                    return
                continue
            found = blocking_view(message)
            assert isinstance(found, SyncMessage)
            yield found
            self.done(found)

    def done(self, message: Message) -> None:
        """This one is handled, and is not given again."""
        handled = self._open.pop(message.id, None)
        if handled is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, handled)

    def say(
        self, group: str | Group, text: str, *, files: Sequence[str | Path] = (), key: str | None = None
    ) -> SyncSent:
        """Say something in a group."""
        return self._bot.sync.say(group, text, files=files, key=key)

    def members(self, group: str | Group) -> list[rpc.MemberInfo]:
        return self._bot.sync.members(group)

    async def _give(self, m: Message) -> None:
        handled = self._open[m.id] = asyncio.get_running_loop().create_future()
        self._given.put(m)
        await handled

    def _end(self) -> None:
        """What is not done is not handled; everything else is acknowledged."""
        for handled in self._open.values():
            handled.cancel()
        self._bot.stop()

    def _live(self) -> None:
        async def live() -> None:
            serving = asyncio.create_task(self._bot.serve())
            ready = asyncio.create_task(self._bot.ready())
            await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                self._up.set_result(asyncio.get_running_loop())
            ready.cancel()
            await serving

        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits for this thread
            self._failure = error
            if not self._up.done():
                self._up.set_exception(error)


def _settle(handled: asyncio.Future[None]) -> None:
    if not handled.done():
        handled.set_result(None)
