"""A bot at work: items come in, handlers are called, and what is handled is acknowledged.

An item is acknowledged when every handler that wants it has ended, or has failed so often that a dead letter is kept of
it, or when it is put aside in the bot's own file. Whatever happens in between (a handler raises, the process is killed,
the agent starts again) the item comes again. What is done with items is in `work.py`; here is what runs side by side.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from zerochat import rpc
from zerochat.agent.api.client import News
from zerochat.bot.agent_link import Line
from zerochat.bot.connection import Connection
from zerochat.bot.dispatcher import Work
from zerochat.bot.handlers import Start, Timer
from zerochat.bot.invoke import Caller, HandlerStuck
from zerochat.bot.outgoing import Voice, doing
from zerochat.bot.plan import Plan
from zerochat.bot.store import Store
from zerochat.bot.timers import Timekeeper
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import Item

DRAIN_S: Final = 10.0
"""How long handlers may take to end when the bot is told to."""


class ConsumerTaken(LocalError):
    """Another program has taken over what {consumer} is told. One bot of a name runs at a time: end the other one, or
    give this one another name (`Bot(name=…)`)."""

    exit_code = 6


class Runner:
    """One run of a bot, from `serve` until `stop`."""

    def __init__(self, plan: Plan, line: Line, store: Store, voice: Callable[[Connection], Voice]) -> None:
        self._plan, self._line = plan, line
        self._log = logging.getLogger(f"zerochat.bot.{plan.consumer}")
        self._connection = Connection(plan, line, voice, self._log)
        self.voice, self.ask = self._connection.voice, self._connection.ask
        self._caller = Caller(plan.arguments, self._log, self._give_up)
        self._work = Work(plan, self._connection, store, line.now, self._caller, self._begin, self._log)
        self._timekeeper = Timekeeper(line.now, store, plan.retries_s, self._caller.call, self._log)
        self._tasks: set[asyncio.Task[None]] = set()
        """What is at work, and is waited for in the end."""
        self._lasting: set[asyncio.Task[None]] = set()
        """What was called once, and may last as long as the bot."""
        self._stopping = asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stuck: HandlerStuck | None = None

    # --- from outside -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take nothing more, let the handlers that are at work end, and end."""
        self._stopping.set()
        self._work.stop()

    @property
    def idle(self) -> bool:
        """Everything that was told is handled and acknowledged."""
        return self._connection.connected.is_set() and self._work.idle

    def now(self) -> float:
        return self._line.now()

    async def ready(self) -> None:
        """Until the bot hears its groups for the first time."""
        await self._connection.connected.wait()

    async def serve(self, *, watched: bool = False) -> None:
        """Run until `stop`, or until something has failed for good. Raises LocalError then. `watched`: interrupt what
        holds everything up (`watch.py`)."""
        connection, work = self._connection, self._work
        running = [
            asyncio.create_task(connection.listen(work.intake.reconnected, self._began, self._hear), name="listen"),
            asyncio.create_task(work.acknowledge(), name="acknowledge"),
            asyncio.create_task(work.relieve(), name="relieve"),
            asyncio.create_task(work.recall(), name="recall"),
            asyncio.create_task(work.letters.revive(self._plan.handlers, work.attempt), name="revive"),
            *(asyncio.create_task(self._keep_time(timer), name=timer.name) for timer in self._plan.timers),
        ]
        ending = asyncio.create_task(self._stopping.wait(), name="stop")
        parts: list[asyncio.Future[Any]] = [*running, ending, self._failed]
        try:
            if watched:
                work.watch.start()
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()  # but for `ending`: it has failed for good
            await self._drain()
            if self._stuck is not None:
                raise self._stuck
        finally:
            work.watch.stop()
            parts += [*self._tasks, *self._lasting]
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self._line.close()

    async def _drain(self) -> None:
        """Let those who are at work end, and acknowledge what they have handled."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=DRAIN_S)
        await self._work.end(DRAIN_S)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _hear(self, news: News) -> None:
        match news.item:
            case Item() as item:
                self._work.give(item)
            case rpc.Taken(consumer):
                raise ConsumerTaken(consumer=consumer)
            case rpc.Overflow() as warning:
                self._log.warning(
                    "%d things are not handled yet, and after %d more the oldest is lost", warning.unread, warning.left
                )

    def _began(self) -> None:
        self._work.resume()
        for start in self._plan.starts:
            self._begin(self._start(start))

    def _give_up(self, stuck: HandlerStuck) -> None:
        """Nothing can end this handler but the end of the process."""
        self._log.error("%s", stuck.sentence())
        self._stuck = self._stuck or stuck
        self.stop()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whatever a handler raises is caught; what is not is a fault of ours or of the disk, and nothing goes on."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _start(self, start: Start) -> None:
        """Call what is to be called once. What it raises ends the bot."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)  # nobody waits for it when the bot ends
        self._lasting.add(task)
        try:
            with doing(f"{start.name}:{self._line.now():.6f}"):
                await self._caller.call(start)
        finally:
            self._lasting.discard(task)

    async def _keep_time(self, timer: Timer) -> None:
        await self._connection.connected.wait()
        await self._timekeeper.keep(timer)
