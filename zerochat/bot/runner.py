"""A bot at work: items come in, handlers are called, and what is handled is acknowledged.

An item is acknowledged when every handler that wants it has ended, or has failed so often that a dead letter is kept of
it. Whatever happens in between (a handler raises, the process is killed, the agent starts again) the item comes again.
Items of one group are handled one after the other, in order; groups go on side by side.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from zerochat.agent import schema
from zerochat.agent.client import AgentError, News
from zerochat.agent.schema.stream import Item
from zerochat.bot.events import Event, Group, event_of
from zerochat.bot.faults import told
from zerochat.bot.handlers import Call, Command, Handler, Start, Timer
from zerochat.bot.intake import Intake
from zerochat.bot.line import ANSWER_S_MAX, Line, LineLost
from zerochat.bot.store import DeadLetter, Store
from zerochat.bot.timekeeper import Timekeeper
from zerochat.bot.voice import Voice, doing
from zerochat.errors import LocalError
from zerochat.terminal import printable, printable_line

STOPPING: Final = "AgentStopping"
"""What an agent says that does nothing new any more, because it is about to end."""
BACKOFF_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""How long it waits before it connects again, the first time, the second time, and so on."""
BUSY_S = 10.0
"""How long a consumer may still be taken by a process that has just ended."""
DRAIN_S = 10.0
"""How long handlers may take to end when the bot is told to."""
BEGUN_MAX = 5
"""An item with which the process has ended so often is what ends it: it becomes a dead letter."""
LOOK_S = 2.0
"""How often it is looked whether somebody wants a dead letter to be tried again."""
SLOW_S = 60.0
"""After so long it is said that a handler is still at work."""
ALWAYS: Final = ("member_joined", "commands_announced", "taken", "overflow", "dropped")
"""What every bot hears of, whatever its handlers want."""


class ConsumerTaken(LocalError):
    """Another program has taken over what {consumer} is told. One bot of a name runs at a time: end the other one, or
    give this one another name (`Bot(name=…)`)."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """What a bot is, for whoever runs it."""

    consumer: str
    groups: Sequence[str] | None
    handlers: Sequence[Handler]
    timers: Sequence[Timer]
    starts: Sequence[Start]
    retries_s: Sequence[float]
    credit: int
    from_start: bool
    announced: Sequence[schema.AnnouncedCommand]
    arguments: Callable[[Handler | Timer | Start, Event | None], tuple[object, ...]]
    """What a handler is given first: the event, or a view of it that blocks."""


class Runner:
    """One run of a bot, from `serve` until `stop`."""

    def __init__(self, plan: Plan, line: Line, store: Store, voice: Callable[["Runner"], Voice]) -> None:
        self._plan, self._line, self._store = plan, line, store
        self.voice = voice(self)
        self._log = logging.getLogger(f"zerochat.bot.{plan.consumer}")
        self._timekeeper = Timekeeper(line.now, store, plan.retries_s, self._call_timer, self._log)
        self._intake = Intake()
        self._waiting: dict[str, deque[Item]] = {}
        """Of each group that is worked for: what comes after the item that is at work."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._bots: dict[str, set[str]] = {}
        """By group, the DIDs of members that say that they are bots."""
        self._lasting: set[asyncio.Task[None]] = set()
        """What was called once, and may last as long as the bot."""
        self._groups: dict[str, Group] = {}
        self._connected = asyncio.Event()
        self._ack_wanted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._acking = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resumed: set[str] = set()
        """The groups of which this process has handled something."""
        self.handled = 0
        """Items that every handler has ended with, in this run."""

    # --- from outside -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take nothing more, let the handlers that are at work end, and end."""
        self._stopping.set()

    @property
    def idle(self) -> bool:
        """Everything that was told is handled and acknowledged."""
        return self._connected.is_set() and self._intake.idle and not self._acking and not self._waiting

    def now(self) -> float:
        return self._line.now()

    async def ready(self) -> None:
        """Until the bot hears its groups for the first time."""
        await self._connected.wait()

    async def serve(self) -> None:
        """Run until `stop`, or until something has failed for good. Raises LocalError then."""
        work = [
            asyncio.create_task(self._listen(), name="listen"),
            asyncio.create_task(self._acknowledge(), name="acknowledge"),
            asyncio.create_task(self._revive(), name="revive"),
            *(asyncio.create_task(self._keep_time(timer), name=timer.name) for timer in self._plan.timers),
        ]
        ending = asyncio.create_task(self._stopping.wait(), name="stop")
        parts: list[asyncio.Future[Any]] = [*work, ending, self._failed]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()  # but for `ending`: it has failed for good
            await self._drain()
        finally:
            parts += [*self._tasks, *self._lasting]
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self._line.close()

    async def _drain(self) -> None:
        """Let those who are at work end, and acknowledge what they have handled."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=DRAIN_S)
        if (upto := self._intake.ready()) is not None and self._connected.is_set():
            try:
                await self._line.call("ack", {"consumer": self._plan.consumer, "seq": upto}, DRAIN_S)
            except (LineLost, AgentError):
                self._log.info("what was handled last is not acknowledged, and comes again")

    # --- the connection ---------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        """Ask the agent; where the connection ends before it has answered, ask again as soon as there is one. So only
        what may be asked twice is asked here: questions, and what has an idempotency key."""
        while True:
            await self._connected.wait()
            try:
                return await self._line.call(method, params, within_s)
            except LineLost:
                await asyncio.sleep(BACKOFF_S[0])  # whoever listens has noticed it too, or is about to
            except AgentError as error:
                if error.code != STOPPING:
                    raise
                await asyncio.sleep(BACKOFF_S[2])

    async def _listen(self) -> None:
        """Connect, hear, and connect again."""
        tries, first = 0, True
        while True:
            try:
                await self._line.open()
                await self._subscribe()
                self._connected.set()
                names = ", ".join(sorted(printable_line(one.name) for one in self._groups.values()))
                self._log.info("%s, in %s", "listening" if first else "connected again", names or "no group yet")
                if first:
                    for start in self._plan.starts:
                        self._begin(self._start(start))
                tries, first = 0, False
                await self._announce(*self._groups)
                while True:
                    self._hear(await self._line.news())
            except LineLost as error:
                self._connected.clear()
                if not tries:
                    self._log.warning("%s", error.sentence())
                await asyncio.sleep(BACKOFF_S[min(tries, len(BACKOFF_S) - 1)])
                tries += 1

    async def _subscribe(self) -> None:
        plan, line = self._plan, self._line
        types = sorted({*ALWAYS, *(kind for one in plan.handlers for kind in one.types)})
        await self._know_groups()
        wanted: dict[str, object] = {"consumer": plan.consumer, "types": types, "credit": plan.credit}
        wanted["groups"] = None if plan.groups is None else list(plan.groups)
        wanted["since"] = "last_acked"
        if plan.from_start and all(one.consumer != plan.consumer for one in await line.call("consumers", {})):
            wanted["since"] = "start"
        deadline = asyncio.get_running_loop().time() + BUSY_S
        self._intake.reconnected()
        while True:
            try:
                await line.call("subscribe", wanted)
                return
            except AgentError as error:
                if error.code != "ConsumerBusy" or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(BACKOFF_S[2])

    async def _know_groups(self) -> None:
        for info in await self._line.call("groups", {}):
            self._groups[info.id] = Group(info.id, info.name, self.voice)

    async def _know_bots(self, group: str) -> None:
        """Who is a bot there now; from here on `commands_announced` tells."""
        with suppress(AgentError):  # it is forgotten, and nothing of it comes any more
            found = await self.voice.members(group)
            self._bots[group] = {one.did for one in found if one.bot}

    async def _announce(self, *groups: str) -> None:
        """Say that this is a bot, and what it can be asked. The same again costs nothing."""
        wanted = self._plan.groups
        for name in groups:
            here = self._groups[name]
            if wanted is not None and here.name not in wanted and not any(name.startswith(one) for one in wanted):
                continue
            commands = list(self._plan.announced)
            try:
                await self._line.call("announce", {"group": name, "bot": True, "commands": commands})
            except AgentError as error:  # it is no member any more, or may not say anything there
                self._log.info("%s: nothing was announced (%s)", printable_line(here.name), error.code)

    # --- items ------------------------------------------------------------------------------------------------------

    def _hear(self, news: News) -> None:
        match news.item:
            case Item() as item if self._intake.told(item.seq):
                self._give(item)
            case Item():
                self._ack_wanted.set()  # handled before, over another connection
            case schema.Taken(consumer):
                raise ConsumerTaken(consumer=consumer)
            case schema.Overflow() as warning:
                self._log.warning(
                    "%d things are not handled yet, and after %d more the oldest is lost", warning.unread, warning.left
                )

    def _give(self, item: Item) -> None:
        """To whoever works for its group."""
        if item.type == "dropped":
            self._log.error("%s things were not handled in time and are lost", item.body.get("count", "some"))
        if self._stopping.is_set():
            self._intake.dropped(item.seq)
        elif item.group in self._waiting:
            self._waiting[item.group].append(item)
        elif item.type not in ALWAYS and not any(item.type in one.types for one in self._plan.handlers):
            self._done(item)
        else:
            self._waiting[item.group] = deque([item])
            self._begin(self._work(item.group))

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

    async def _work(self, group: str) -> None:
        """Handle the items of one group, in order, until there are none."""
        items = self._waiting[group]
        try:
            while items and not self._stopping.is_set():
                await self._handle(items[0])
                self._done(items.popleft())
        finally:
            del self._waiting[group]

    def _done(self, item: Item) -> None:
        self.handled += 1
        self._intake.handled(item.seq)
        self._ack_wanted.set()

    async def _acknowledge(self) -> None:
        while True:
            await self._ack_wanted.wait()
            self._ack_wanted.clear()
            if (upto := self._intake.ready()) is None:
                continue
            self._acking = True
            try:
                await self._line.call("ack", {"consumer": self._plan.consumer, "seq": upto})
                self._intake.acknowledged(upto)
            except LineLost:
                pass  # it comes again, and is known to be handled
            finally:
                self._acking = False

    async def _group(self, name: str) -> Group:
        if name not in self._groups and name:
            for info in await self.ask("groups", {}):
                self._groups[info.id] = Group(info.id, info.name, self.voice)
        return self._groups.get(name) or Group(name, name, self.voice)

    async def _handle(self, item: Item) -> None:
        group = await self._group(item.group)
        if item.group and item.group not in self._bots:
            await self._know_bots(item.group)
        if item.type == "commands_announced" and item.author is not None:
            known = self._bots.setdefault(item.group, set())
            (known.add if item.body.get("bot") else known.discard)(item.author.did)
        event = event_of(item, group, self.voice, self._bots.get(item.group, ()))
        if event.type == "member_joined" and item.group in self._groups:
            with suppress(LineLost):  # whoever connects again announces again
                await self._announce(item.group)
        concerned = [one for one in self._plan.handlers if one.concerns(event)]
        if not concerned:
            return
        # The process before this one can only have ended while it was at the first item of a group. To look for a
        # pattern may be what has ended it: with some expressions a hostile text takes for ever.
        suspect = item.redelivered and item.group not in self._resumed
        self._resumed.add(item.group)
        if suspect and self._store.beginning(item.id) > BEGUN_MAX:
            for handler in concerned:
                self._bury(event, handler.name, f"the process has ended {BEGUN_MAX} times while it was handled", 0)
        else:
            for handler in concerned:
                if (call := handler.match(event)) is not None:
                    await self._try(handler, call)
        if suspect:
            self._store.ended(item.id)

    async def _try(self, handler: Handler, call: Call) -> bool:
        """Call a handler until it ends well (True), or has failed too often and there is a dead letter."""
        event, waits = call.event, (*self._plan.retries_s, None)
        for attempt, wait_s in enumerate(waits, 1):
            try:
                with doing(f"{event.id}:{handler.name}"):
                    await self._call(handler, replace(call, event=replace(event, attempt=attempt)))
                return True
            except Exception as error:  # noqa: BLE001  # whatever a handler raises
                self._log.error("%s has failed with %s:\n%s", handler.name, event.id, told(error))
                hopeless = isinstance(error, AgentError) and error.retry == "never"
                if wait_s is None or hopeless:
                    self._bury(event, handler.name, f"{type(error).__name__}: {error}", attempt)
                    return False
                after_s = error.retry_after_s if isinstance(error, AgentError) else None
            await asyncio.sleep(max(wait_s, after_s or 0.0))
        raise AssertionError("the last attempt has no other end")

    async def _call(self, handler: Handler, call: Call) -> None:
        if isinstance(handler, Command):
            refusal: str | None = call.answer or None
            if refusal is None:
                role = await self._role(call.event) if handler.role is not None else ""
                refusal = handler.refused(call.event, role, self._line.now())
            if refusal is not None:
                if refusal:
                    await self.voice.say(call.event.group.id, refusal, reply_to=call.event.id)
                return
        await self._run(handler, call.event, call.args, call.named)

    async def _run(
        self, handler: Handler | Timer | Start, event: Event | None, args: Sequence[object], named: Mapping[str, object]
    ) -> None:
        loop = asyncio.get_running_loop()
        slow = loop.call_later(SLOW_S, self._log.info, "%s is still at work", handler.name)
        first = self._plan.arguments(handler, event)
        try:
            if handler.blocking:
                await asyncio.to_thread(handler.call, *first, *args, **named)
            else:
                await handler.call(*first, *args, **named)
        finally:
            slow.cancel()

    async def _role(self, event: Event) -> str:
        """What the author is in the group now; asked each time, as it can change at any time."""
        found = await self.voice.members(event.group.id)
        return next((one.role for one in found if one.did == event.author.did), "")

    # --- dead letters -----------------------------------------------------------------------------------------------

    def _bury(self, event: Event, handler: str, error: str, attempts: int) -> None:
        self._log.error("%s has not handled %s: it is a dead letter now (`zerochat bot dead`)", handler, event.id)
        body = "" if event.author.did else json.dumps({"seq": event.seq, "body": dict(event.body)}, default=str)
        now = self._line.now()
        self._store.bury(
            DeadLetter(0, event.id, event.group.id, event.type, handler, printable(error), attempts, now, body)
        )

    async def _revive(self) -> None:
        """Try the dead letters again that somebody wants to be tried again."""
        await self._connected.wait()
        by_name = {one.name: one for one in self._plan.handlers}
        while True:
            for letter in self._store.dead(again=True):
                handler = by_name.get(letter.handler)
                try:
                    event = await self._event(letter)
                    call = handler.match(event) if handler is not None else None
                except AgentError as error:
                    self._store.bury(replace(letter, error=f"{error.code}: {error}"))
                    continue
                if handler is None or call is None:
                    self._store.bury(replace(letter, error=f"{letter.handler} is no handler of it any more"))
                elif await self._try(handler, call):
                    self._store.forget(letter.id)
            await asyncio.sleep(LOOK_S)

    async def _event(self, letter: DeadLetter) -> Event:
        """What a dead letter is about: an event out of the log as it stands now, or what was kept of a happening."""
        group = await self._group(letter.group)
        if letter.body:
            kept = json.loads(letter.body)
            item = Item(
                seq=kept["seq"],
                type=letter.type,
                group=letter.group,
                id=letter.event,
                body=kept["body"],
                received_at="1970-01-01T00:00:00Z",
            )
            return event_of(item, group, self.voice)
        page = await self.ask("history", {"group": letter.group, "around": letter.event, "limit": 1})
        found = next((one for one in page.events if one.id == letter.event), None)
        if found is None:
            raise AgentError("NoSuchEvent", "it is not in the log any more", 0)
        return event_of(found, group, self.voice, self._bots.get(letter.group, ()))

    # --- starts and timers ------------------------------------------------------------------------------------------

    async def _start(self, start: Start) -> None:
        """Call what is to be called once. What it raises ends the bot."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)  # nobody waits for it when the bot ends
        self._lasting.add(task)
        try:
            with doing(f"{start.name}:{self._line.now():.6f}"):
                await self._run(start, None, (), {})
        finally:
            self._lasting.discard(task)

    async def _keep_time(self, timer: Timer) -> None:
        await self._connected.wait()
        await self._timekeeper.keep(timer)

    async def _call_timer(self, timer: Timer) -> None:
        await self._run(timer, None, (), {})
