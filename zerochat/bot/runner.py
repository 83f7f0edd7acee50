"""One run of a bot: its concurrent tasks and its shutdown.

An item is acknowledged when every matching handler has ended, when a dead letter is stored, or when it is spilled to
the bot's database. In any other case (an exception, a killed process, a restarted agent) it is redelivered.
`dispatcher.py` handles the items.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from zerochat import rpc
from zerochat.agent.api.client_protocol import Notification
from zerochat.bot.agent_link import AgentLink
from zerochat.bot.api import BotApi, key_scope
from zerochat.bot.connection import Connection, ConsumerReplaced
from zerochat.bot.dispatcher import Dispatcher
from zerochat.bot.events import Group
from zerochat.bot.failures import Failures
from zerochat.bot.handlers import BotSpec, StartHandler, Timer
from zerochat.bot.invoke import HandlerStuck, Invoker
from zerochat.bot.local_events import LocalEventRunner
from zerochat.bot.store import Store
from zerochat.bot.timers import TimerRunner
from zerochat.rpc.subscriptions import Item

DRAIN_S_MAX: Final = 10.0
"""Time limit for running handlers to end on shutdown, seconds."""


class Runner:
    """One run of a bot, from `serve` until `stop`."""

    def __init__(self, spec: BotSpec, link: AgentLink, store: Store, make_api: Callable[[Connection], BotApi]) -> None:
        self._spec, self._link = spec, link
        self._log = logging.getLogger(f"zerochat.bot.{spec.consumer}")
        self._connection = Connection(spec, link, make_api, self._log)
        self.api, self.request = self._connection.api, self._connection.request
        self._invoker = Invoker(spec.arguments, self._log, self._on_stuck)
        failures = Failures(spec.failure_handlers, self._invoker, self._log)
        self._dispatcher = Dispatcher(
            spec, self._connection, store, link.now, self._invoker, failures, self._spawn, self._log
        )
        self._timers = TimerRunner(link, store, spec.retries_s, self._invoker.call, failures)
        self.local_events = LocalEventRunner(link, store, self._connection, self._dispatcher.handle_local, self._spawn)
        self._tasks: set[asyncio.Task[None]] = set()
        """Running tasks that shutdown waits for."""
        self._start_tasks: set[asyncio.Task[None]] = set()
        """Tasks of start handlers, which may run as long as the bot."""
        self._stopping, self._subscribed = asyncio.Event(), asyncio.Event()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stuck: HandlerStuck | None = None

    # --- control ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Accept no more items, wait for the running handlers, and end."""
        self._stopping.set()
        self._dispatcher.stop()

    @property
    def idle(self) -> bool:
        """Whether every received item is handled and acknowledged."""
        return self._connection.connected.is_set() and self._dispatcher.idle

    @property
    def groups(self) -> list[Group]:
        return self._connection.served_groups()

    def now(self) -> float:
        return self._link.now()

    async def ready(self) -> None:
        """Wait until the bot is subscribed for the first time."""
        await self._subscribed.wait()

    async def serve(self, *, watched: bool = False) -> None:
        """Run until `stop`, or until a permanent failure. Raises LocalError then. `watched`: interrupt handlers that
        block the event loop (`cpu_watchdog.py`)."""
        connection, work = self._connection, self._dispatcher
        running = [
            asyncio.create_task(
                connection.run(work.acks.reset, self._on_connected, self._on_notification), name="listen"
            ),
            asyncio.create_task(work.run_acknowledgements(), name="acknowledge"),
            asyncio.create_task(work.run_spilling(), name="relieve"),
            asyncio.create_task(work.run_refuted_check(), name="recall"),
            asyncio.create_task(self.local_events.run(), name="local events"),
            asyncio.create_task(work.dead_letters.run_redelivery(self._spec.handlers, work.attempt), name="revive"),
            *(asyncio.create_task(self._run_timer(timer), name=timer.name) for timer in self._spec.timers),
        ]
        ending = asyncio.create_task(self._stopping.wait(), name="stop")
        parts: list[asyncio.Future[Any]] = [*running, ending, self._failed]
        try:
            if watched:
                work.watchdog.start()
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()  # every task except `ending` ends with an exception only
            await self._drain()
            if self._stuck is not None:
                raise self._stuck
        finally:
            work.watchdog.stop()
            self._connection.end()
            parts += [*self._tasks, *self._start_tasks]
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self._link.close()

    async def _drain(self) -> None:
        """Wait for the running handlers and acknowledge their events."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=DRAIN_S_MAX)
        await self._dispatcher.acknowledge_rest(DRAIN_S_MAX)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _on_notification(self, news: Notification) -> None:
        match news.params:
            case Item() as item:
                self._dispatcher.receive(item)
            case rpc.ConsumerTakenNotification(consumer):
                raise ConsumerReplaced(consumer=consumer)
            case rpc.OverflowNotification() as warning:
                self._log.warning(
                    "%d events are not handled yet; after %d more the oldest is lost", warning.unread, warning.left
                )

    def _on_connected(self) -> None:
        self._subscribed.set()
        self._dispatcher.resume()
        for start in self._spec.start_handlers:
            self._spawn(self._run_start_handler(start))

    def _on_stuck(self, stuck: HandlerStuck) -> None:
        """Stop the bot: only the end of the process ends this handler."""
        self._log.error("%s", stuck.sentence())
        self._stuck = self._stuck or stuck
        self.stop()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Fail on an unexpected exception: handlers' exceptions are caught, so this is a bug or a disk error."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _run_start_handler(self, start: StartHandler) -> None:
        """Call a start handler. Its exception ends the bot."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)  # shutdown does not wait for it
        self._start_tasks.add(task)
        try:
            with key_scope(f"{start.name}:{self._link.now():.6f}"):
                await self._invoker.call(start)
        finally:
            self._start_tasks.discard(task)

    async def _run_timer(self, timer: Timer) -> None:
        await self._connection.connected.wait()
        await self._timers.run(timer)
