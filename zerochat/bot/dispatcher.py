"""The work of a bot: what is told comes into queues, handlers are called, and what is handled is acknowledged.

Items of one group are handled one after the other, in order; groups go on side by side. A handler is tried until it
ends well, or has failed so often that a dead letter is kept.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from zerochat.agent.api.client import AgentError
from zerochat.bot.acknowledgement import Intake
from zerochat.bot.agent_link import LineLost
from zerochat.bot.connection import ALWAYS, Connection
from zerochat.bot.cpu_watchdog import HeldUp, Watch, interruptible
from zerochat.bot.dead_letters import Letters, Refuted, event_in_log
from zerochat.bot.events import Event, event_of
from zerochat.bot.failures import told
from zerochat.bot.handlers import Call, Command, Handler
from zerochat.bot.invoke import Caller, HandlerStuck
from zerochat.bot.outgoing import doing
from zerochat.bot.plan import Plan
from zerochat.bot.queues import Queues, Waiting
from zerochat.bot.store import Store
from zerochat.rpc.subscriptions import Item

BEGUN_MAX: Final = 5
"""An item with which the process has ended so often is what ends it: it becomes a dead letter."""
AGAIN_S: Final = 1.0
"""How long an agent that has no time is left alone."""
RECALL_S: Final = 60.0
RECALLED_MAX: Final = 32
"""How often it is looked whether what was refuted has come anew, and for how much of it at a time."""
RELIEF_S: Final = 0.25
"""How long something may hold up whatever else is to be told, before it is put aside."""


class Work:
    """What one run of a bot has to do."""

    def __init__(
        self,
        plan: Plan,
        connection: Connection,
        store: Store,
        now: Callable[[], float],
        caller: Caller,
        begin: Callable[[Any], None],
        log: logging.Logger,
    ) -> None:
        """`now`: UTC seconds. `begin`: has a coroutine run beside everything else."""
        self._plan, self._connection, self._store, self._now = plan, connection, store, now
        self._caller, self._begin, self._log = caller, begin, log
        self.letters = Letters(store, connection, now, log)
        self.intake = Intake()
        self.watch = Watch()
        self._queues = Queues(store, self.intake, plan.credit)
        self._ack_wanted = asyncio.Event()
        self._crowded = asyncio.Event()
        self._acking = False
        self._stopping = False
        self._resumed: set[str] = set()
        """The groups of which this process has handled something."""
        self.handled = 0
        """Items that every handler has ended with, in this run."""

    @property
    def idle(self) -> bool:
        """Everything that was told is handled and acknowledged."""
        return self.intake.idle and self._queues.idle and not self._acking

    # --- what comes in ----------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Begin with what the process before this one has put aside."""
        for group in self._queues.groups:
            self._begin(self._work(group))

    def give(self, item: Item) -> None:
        """To whoever works for its group."""
        if not self.intake.told(item.seq):
            self._ack_wanted.set()  # handled before, over another connection
            return
        if item.type == "dropped":
            self._log.error("%s things were not handled in time and are lost", item.body.get("count", "some"))
        if self._stopping:
            self.intake.dropped(item.seq)
        elif self._queues.has(item.group) or item.type in ALWAYS or self._is_wanted(item):
            idle = not self._queues.has(item.group)
            if not self._queues.add(item):
                self._done(item)
            elif idle:
                self._begin(self._work(item.group))
        else:
            self._done(item)
        if self._is_crowded():
            self._crowded.set()

    def _is_wanted(self, item: Item) -> bool:
        return any(item.type in one.types for one in self._plan.handlers)

    def _is_crowded(self) -> bool:
        return self.intake.held * 2 >= self._plan.credit

    def _done(self, item: Item) -> None:
        self.handled += 1
        self.intake.handled(item.seq)
        self._ack_wanted.set()

    # --- what goes out ----------------------------------------------------------------------------------------------

    async def acknowledge(self) -> None:
        """Say what is handled, for as long as the bot runs."""
        while True:
            await self._ack_wanted.wait()
            self._ack_wanted.clear()
            self._queues.settle()
            if (upto := self.intake.ready()) is None:
                continue
            self._acking = True
            try:
                await self._connection.acknowledge(upto)
                self.intake.acknowledged(upto)
            except LineLost:
                pass  # it comes again, and is known to be handled
            finally:
                self._acking = False

    async def relieve(self) -> None:
        """Put aside what waits, where a slow group would hold all others up."""
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            _, latest = self.intake.span
            await asyncio.sleep(RELIEF_S)
            if not self._is_crowded():
                continue
            if self.intake.span[0] > latest:  # it goes on
                self._crowded.set()
            elif await self._connection.in_several() and (kept := self._queues.put_aside()):
                self._log.info("%d things wait: they are put aside", kept)
                self._ack_wanted.set()

    async def recall(self) -> None:
        """Have what was put aside and refuted handled when it has come anew, for as long as the bot runs."""
        await self._connection.connected.wait()
        last = ""
        while not self._stopping:
            await asyncio.sleep(RECALL_S)
            waiting = self._queues.refuted
            names = list(waiting)
            begin = names.index(last) + 1 if last in waiting else 0
            for name in (names[begin:] + names[:begin])[:RECALLED_MAX]:
                last, group = name, waiting[name]
                try:
                    there = await self._put_aside(group, name) is not None
                except Refuted:
                    continue
                if name not in self._queues.refuted:
                    continue  # it was told meanwhile
                if not there:
                    self._queues.gone(name)
                    continue
                idle = not self._queues.has(group)
                self._queues.put_back(name)
                if idle:
                    self._begin(self._work(group))

    def stop(self) -> None:
        """Take nothing more, and begin with nothing more."""
        self._stopping = True

    async def end(self, within_s: float) -> None:
        """Say what was handled last."""
        self._queues.settle()
        if (upto := self.intake.ready()) is not None and self._connection.connected.is_set():
            try:
                await self._connection.acknowledge(upto, within_s)
            except (LineLost, AgentError):
                self._log.info("what was handled last is not acknowledged, and comes again")

    # --- handling ---------------------------------------------------------------------------------------------------

    async def _work(self, group: str) -> None:
        """Handle what waits for one group, in order, until there is nothing."""
        while not self._stopping and (first := self._queues.first(group)) is not None:
            try:
                event = await self._event(group, first)
            except Refuted:
                self._log.info("%s was put aside, and is refuted by now", first.id)
                self._queues.refute(group)
                continue
            if event is not None:
                await self._handle(event, again=first.aside or event.redelivered)
            self._queues.handled(group)
            self.handled += 1
            self._ack_wanted.set()

    async def _event(self, group: str, waiting: Waiting) -> Event | None:
        """None: it is nowhere any more. Raises Refuted."""
        await self._connection.know_bots(group)
        if waiting.item is not None:
            item, here = waiting.item, await self._connection.group(group)
            bots = self._connection.known.bots
            if item.type == "commands_announced" and item.author is not None:
                self._note_bot(group, item.author.did, item.body.get("bot") is True)
            return event_of(item, here, self._connection.voice, bots.get(group, ()))
        event = await self._put_aside(group, waiting.id)
        if event is not None and event.type == "commands_announced":
            self._note_bot(group, event.author.did, event.body.get("bot") is True)
        return event

    async def _put_aside(self, group: str, name: str) -> Event | None:
        """Out of the log again, as often as the agent only has no time: it is acknowledged, and comes no other way.
        Raises Refuted."""
        while True:
            try:
                return await event_in_log(self._connection, group, name)
            except AgentError as error:
                if error.retry == "never":
                    self._log.warning("%s was put aside and is not there any more (%s)", name, error.code)
                    return None
                self._log.warning("%s was put aside and cannot be read just now (%s)", name, error.code)
                await asyncio.sleep(max(error.retry_after_s or 0.0, AGAIN_S))

    def _note_bot(self, group: str, did: str, bot: bool) -> None:
        known = self._connection.known.bots.setdefault(group, set())
        (known.add if bot else known.discard)(did)

    async def _handle(self, event: Event, *, again: bool) -> None:
        """`again`: the process before this one may have begun with it."""
        group = event.group.id
        # Another bot of this profile that was retired has taken back what all of them have announced.
        withdrawn = event.type == "commands_announced" and event.own and event.body.get("bot") is not True
        if (event.type == "member_joined" or withdrawn) and group in self._connection.known.groups:
            with suppress(LineLost):  # whoever connects again announces again
                await self._connection.announce(group)
        concerned = [one for one in self._plan.handlers if one.concerns(event)]
        if not concerned:
            return
        # The process before this one can only have ended while it was at the first item of a group. To look for a
        # pattern may be what has ended it: with some expressions a hostile text takes for ever.
        suspect = again and group not in self._resumed
        self._resumed.add(group)
        if suspect and self._store.beginning(event.id) > BEGUN_MAX:
            for handler in concerned:
                why = f"the process has ended {BEGUN_MAX} times while it was handled"
                self.letters.bury(event, handler.name, why, 0)
        else:
            event = replace(event, redelivered=event.redelivered or suspect)
            for handler in concerned:
                if (call := self._match(handler, event)) is not None:
                    await self.attempt(handler, call)
        if suspect:
            self._store.ended(event.id)

    @interruptible
    def _match(self, handler: Handler, event: Event) -> Call | None:
        """What to call a handler with; a dead letter where its pattern finds no end in this text."""
        try:
            with self.watch.pattern():
                return handler.match(event)
        except HeldUp as error:
            self._log.error("%s: its pattern finds no end with %s", handler.name, event.id)
            self.letters.bury(event, handler.name, f"its pattern: {error}", 1)
            return None

    async def attempt(self, handler: Handler, call: Call) -> bool:
        """Call a handler until it ends well (True), or has failed too often and there is a dead letter."""
        event, waits = call.event, (*self._plan.retries_s, None)
        for attempt, wait_s in enumerate(waits, 1):
            try:
                with doing(f"{event.id}:{handler.name}"):
                    await self._call(handler, replace(call, event=replace(event, attempt=attempt)))
                return True
            except Exception as error:  # noqa: BLE001  # whatever a handler raises
                self._log.error("%s has failed with %s:\n%s", handler.name, event.id, told(error))
                if wait_s is None or _is_hopeless(error):
                    self.letters.bury(event, handler.name, f"{type(error).__name__}: {error}", attempt)
                    return False
                after_s = error.retry_after_s if isinstance(error, AgentError) else None
            await asyncio.sleep(max(wait_s, after_s or 0.0))
        raise AssertionError("the last attempt has no other end")

    async def _call(self, handler: Handler, call: Call) -> None:
        if isinstance(handler, Command):
            if call.event.void:
                return  # whoever could not write has asked for nothing
            refusal: str | None = call.answer or None
            if refusal is None:
                role = await self._role(call.event) if handler.role is not None else ""
                refusal = handler.refused(call.event, role, self._now())
            if refusal is not None:
                if refusal:
                    await self._connection.voice.say(call.event.group.id, refusal, reply_to=call.event.id)
                return
        await self._caller.call(handler, call.event, call.args, call.named)

    async def _role(self, event: Event) -> str:
        """What the author is in the group now; asked each time, as it can change at any time."""
        found = await self._connection.voice.members(event.group.id)
        return next((one.role for one in found if one.did == event.author.did), "")


def _is_hopeless(error: Exception) -> bool:
    """It would fail again, or it is still at work."""
    return isinstance(error, HandlerStuck | HeldUp) or (isinstance(error, AgentError) and error.retry == "never")
