"""Dispatcher: queues items per group, calls handlers, acknowledges.

Items of one group are handled in order, one at a time; groups run concurrently. A handler is retried until it succeeds
or the event becomes a dead letter.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot.acknowledgement import AckTracker
from zerochat.bot.agent_link import AgentLinkLost
from zerochat.bot.api import key_scope
from zerochat.bot.arguments import BadArguments, MemberWord
from zerochat.bot.connection import INTERNAL_TYPES, Connection, ConsumerReplaced
from zerochat.bot.cpu_watchdog import CpuLimitExceeded, CpuWatchdog, interruptible
from zerochat.bot.dead_letters import DeadLetterQueue, EventRefuted, event_in_log
from zerochat.bot.events import Event, Left, event_from
from zerochat.bot.failures import Failures
from zerochat.bot.handlers import BotSpec, Call, Command, Handler
from zerochat.bot.invoke import HandlerStuck, Invoker, format_failure
from zerochat.bot.loops import HOPS_LIMIT
from zerochat.bot.members import find_member, members_of
from zerochat.bot.queues import QueuedItem, Queues
from zerochat.bot.store import BadValue, Store
from zerochat.bot.sync import blocking_member
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import Item
from zerochat.terminal_text import printable_line

STARTS_MAX: Final = 5
"""How often the process may end while handling an item before the item becomes a dead letter."""
AGENT_RETRY_S: Final = 1.0
"""Delay before a request that a busy agent rejected is repeated, seconds."""
REFUTED_CHECK_S: Final = 60.0
REFUTED_CHECKED_MAX: Final = 32
"""Interval (seconds) and batch size of looking up refuted events again."""
SPILL_DELAY_S: Final = 0.25
"""How long a slow group may exhaust the credit before its items are spilled to disk, seconds."""


class EventSkipped(LocalError):
    """The handler was not called: {why}."""


class Dispatcher:
    """The dispatcher of one run."""

    def __init__(
        self,
        spec: BotSpec,
        connection: Connection,
        store: Store,
        now: Callable[[], float],
        invoker: Invoker,
        failures: Failures,
        spawn: Callable[[Any], None],
        log: logging.Logger,
    ) -> None:
        """`now`: UTC, seconds. `spawn`: runs a coroutine as a task."""
        self._spec, self._connection, self._store, self._now = spec, connection, store, now
        self._invoker, self._failures, self._spawn, self._log = invoker, failures, spawn, log
        self.dead_letters = DeadLetterQueue(store, connection, now, log)
        self.acks = AckTracker()
        self.watchdog = CpuWatchdog()
        self._queues = Queues(store, self.acks, spec.credit)
        self._ack_due = asyncio.Event()
        self._credit_warning = asyncio.Event()
        self._acknowledging = False
        self._stopping = False
        self._loops = set[str]()
        """The groups for which the log has a warning."""
        self.handled = 0
        """Items that every handler has finished with in this run."""

    @property
    def idle(self) -> bool:
        """Whether every received item is handled and acknowledged."""
        return self.acks.idle and self._queues.idle and not self._acknowledging

    # --- inbound ----------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Start with the items that the previous process spilled to disk."""
        for group in self._queues.groups:
            self._spawn(self._run_group(group))

    def receive(self, item: Item) -> None:
        """Queue an item for its group."""
        if not self.acks.received(item.seq):
            self._ack_due.set()  # already handled over an earlier connection
            return
        if item.type == "dropped":
            self._log.error("%s events were not handled in time and are lost", item.body.get("count", "some"))
        if self._stopping:
            self.acks.mark_dropped(item.seq)
        elif self._queues.has(item.group) or item.type in INTERNAL_TYPES or self._is_wanted(item):
            idle = not self._queues.has(item.group)
            if not self._queues.add(item):
                self._finish(item)
            elif idle:
                self._spawn(self._run_group(item.group))
        else:
            self._finish(item)
        if self._credit_low():
            self._credit_warning.set()

    def _is_wanted(self, item: Item) -> bool:
        return any(item.type in one.types for one in self._spec.handlers)

    def _credit_low(self) -> bool:
        return self.acks.unacknowledged * 2 >= self._spec.credit

    def _finish(self, item: Item) -> None:
        self.handled += 1
        self.acks.mark_handled(item.seq)
        self._ack_due.set()

    async def handle_local(self, event: Event) -> bool:
        """Call the handlers of an event that the bot has stored itself; False: not now, as the bot is stopping."""
        if self._stopping:
            return False
        await self._handle(event)
        return True

    # --- outbound ---------------------------------------------------------------------------------------------------

    async def run_acknowledgements(self) -> None:
        """Send acknowledgements until cancelled."""
        while True:
            await self._ack_due.wait()
            self._ack_due.clear()
            self._queues.purge_finished()
            if (upto := self.acks.take_ackable()) is None:
                continue
            self._acknowledging = True
            try:
                await self._connection.acknowledge(upto)
                self.acks.mark_acknowledged(upto)
            except AgentLinkLost:
                pass  # the agent redelivers it, and it is known to be handled
            finally:
                self._acknowledging = False

    async def run_spilling(self) -> None:
        """Spill queued items to disk when a slow group would block the others, until cancelled."""
        while True:
            await self._credit_warning.wait()
            self._credit_warning.clear()
            _, latest = self.acks.span
            await asyncio.sleep(SPILL_DELAY_S)
            if not self._credit_low():
                continue
            if self.acks.span[0] > latest:  # the first item was handled meanwhile
                self._credit_warning.set()
            elif await self._connection.has_several_groups() and (kept := self._queues.spill()):
                self._log.info("%d queued events were spilled to disk", kept)
                self._ack_due.set()

    async def run_refuted_check(self) -> None:
        """Handle spilled events that were refuted and later reinstated, until cancelled."""
        await self._connection.connected.wait()
        last = ""
        while not self._stopping:
            await asyncio.sleep(REFUTED_CHECK_S)
            waiting = self._queues.refuted
            names = list(waiting)
            begin = names.index(last) + 1 if last in waiting else 0
            for name in (names[begin:] + names[:begin])[:REFUTED_CHECKED_MAX]:
                last, group = name, waiting[name]
                try:
                    there = await self._spilled_event(group, name) is not None
                except EventRefuted:
                    continue
                if name not in self._queues.refuted:
                    continue  # it was redelivered meanwhile
                if not there:
                    self._queues.forget_refuted(name)
                    continue
                idle = not self._queues.has(group)
                self._queues.requeue(name)
                if idle:
                    self._spawn(self._run_group(group))

    def stop(self) -> None:
        """Accept no more items and start no more handlers."""
        self._stopping = True

    async def acknowledge_rest(self, within_s: float) -> None:
        """Send the last acknowledgement."""
        self._queues.purge_finished()
        if (upto := self.acks.take_ackable()) is not None and self._connection.connected.is_set():
            try:
                await self._connection.acknowledge(upto, within_s)
            except (AgentLinkLost, AgentError, ConsumerReplaced):
                self._log.info("the last events could not be acknowledged and will be redelivered")

    # --- handling ---------------------------------------------------------------------------------------------------

    async def _run_group(self, group: str) -> None:
        """Handle the queued items of one group in order until the queue is empty."""
        while not self._stopping and (first := self._queues.head(group)) is not None:
            try:
                event = await self._event(group, first)
            except EventRefuted:
                self._log.info("%s was spilled to disk and has been refuted since", first.id)
                self._queues.refute(group)
                continue
            if event is not None:
                await self._handle(event)
            self._queues.pop_handled(group)
            self.handled += 1
            self._ack_due.set()

    async def _event(self, group: str, waiting: QueuedItem) -> Event | None:
        """The event of a queued item; None if the log no longer has it. Raises EventRefuted."""
        await self._connection.load_bots(group)
        if waiting.item is not None:
            item, here = waiting.item, await self._connection.group(group)
            bots = self._connection.known.bots
            if item.type == "commands_announced" and item.author is not None:
                self._note_bot(group, item.author.did, item.body.get("bot") is True)
            return event_from(item, here, self._connection.api, bots.get(group, ()))
        event = await self._spilled_event(group, waiting.id)
        if event is not None and event.type == "commands_announced":
            self._note_bot(group, event.author.did, event.body.get("bot") is True)
        return event

    async def _spilled_event(self, group: str, name: str) -> Event | None:
        """A spilled event, read from the log, retried while the agent is busy: it is acknowledged, so the agent does
        not redeliver it. Raises EventRefuted."""
        while True:
            try:
                return await event_in_log(self._connection, group, name)
            except AgentError as error:
                if error.retry == "never":
                    self._log.warning("%s was spilled to disk and is no longer in the log (%s)", name, error.code)
                    return None
                self._log.warning("%s was spilled to disk and cannot be read now (%s)", name, error.code)
                await asyncio.sleep(max(error.retry_after_s or 0.0, AGENT_RETRY_S))

    def _note_bot(self, group: str, did: str, bot: bool) -> None:
        known = self._connection.known.bots.setdefault(group, set())
        (known.add if bot else known.discard)(did)

    async def _handle(self, event: Event) -> None:
        group = event.group.id
        if event.type == "member_joined" and group in self._connection.known.groups:
            with suppress(AgentLinkLost):  # every new connection announces
                await self._connection.announce(group)
        if event.type == "removed" or (isinstance(event, Left) and event.own):
            self._connection.known.present.discard(group)
        if event.ignored or (group and not self._connection.serves(event.group)):
            return
        handlers = (one for one in self._spec.handlers if not one.too_old(event, self._now()))
        concerned = [one for one in handlers if one.may_match(event)]
        if not concerned:
            return
        if event.hops >= HOPS_LIMIT:
            if group not in self._loops:
                self._loops.add(group)
                name = printable_line(event.group.name)
                self._log.warning("bots answer each other in %s: %s and what follows is not handled", name, event.id)
            return
        # Pattern matching counts too: on some expressions a hostile text takes forever.
        starts = self._store.count_start(event.id)
        if starts > STARTS_MAX:
            skipped = EventSkipped(why=f"the process ended {STARTS_MAX} times while handling it")
            for handler in concerned:
                await self._bury(handler, event, skipped)
        else:
            event = replace(event, redelivered=event.redelivered or starts > 1)
            for handler in concerned:
                try:
                    call = self._match(handler, event)
                except CpuLimitExceeded as error:
                    await self._bury(handler, event, EventSkipped(why=f"its pattern: {error}"))
                    continue
                if call is not None:
                    await self.attempt(handler, call)
        self._store.clear_starts(event.id)

    @interruptible
    def _match(self, handler: Handler, event: Event) -> Call | None:
        """The call to make. Raises CpuLimitExceeded."""
        with self.watchdog.pattern_limit():
            return handler.match(event)

    async def _bury(self, handler: Handler, event: Event, error: EventSkipped) -> None:
        """Store a dead letter for an event that the handler is not called for."""
        self._log.error("%s is not called for %s: %s", handler.name, event.id, error.sentence())
        self.dead_letters.add(event, handler.name, error.sentence(), 0)
        await self._failures.report(handler.name, error, event, 0, True)

    async def attempt(self, handler: Handler, call: Call) -> bool:
        """Call a handler until it succeeds (True) or has failed for good and a dead letter is stored (False)."""
        event, waits = call.event, (*self._spec.retries_s, None)
        for wait_s in waits:
            attempt = self._store.count_start(event.id, handler.name)
            try:
                with key_scope(f"{event.id}:{handler.name}", event.hops + 1):
                    await self._call(handler, replace(call, event=replace(event, attempt=attempt)))
                return True
            except ConsumerReplaced:
                raise  # the other process handles the event
            except Exception as error:  # noqa: BLE001  # a handler may raise any exception
                self._log.error("%s failed on %s:\n%s", handler.name, event.id, format_failure(error))
                final = wait_s is None or _is_permanent(error)
                if final:
                    self.dead_letters.add(event, handler.name, f"{type(error).__name__}: {error}", attempt)
                await self._failures.report(handler.name, error, event, attempt, final)
                if final or wait_s is None:
                    return False
                after_s = error.retry_after_s if isinstance(error, AgentError) else None
            await asyncio.sleep(max(wait_s, after_s or 0.0))
        raise AssertionError("the last attempt has no other end")

    async def _call(self, handler: Handler, call: Call) -> None:
        if isinstance(handler, Command):
            if call.event.void:
                return  # the author was not allowed to post
            refusal: str | None = call.refusal or None
            if refusal is None:
                roles = await self._roles(call.event.group.id) if handler.role is not None else {}
                refusal = handler.refusal(call.event, roles, self._now())
            if refusal is None:
                try:
                    call = await self._with_members(handler, call)
                except BadArguments as error:
                    refusal = handler.explain(error)
            if refusal is not None:
                if refusal:
                    await self._connection.api.send(call.event.group.id, refusal, reply_to=call.event.id)
                return
        await self._invoker.call(handler, call.event, call.args, call.kwargs)

    async def _with_members(self, handler: Command, call: Call) -> Call:
        """The call with the members that its words name. Raises BadArguments."""
        if all(one.kind is not MemberWord for one in handler.parameters):
            return call
        api, group = self._connection.api, call.event.group
        members = members_of(group, await api.members(group.id), api)

        def looked_up(value: object) -> object:
            if isinstance(value, list):
                return [looked_up(one) for one in value]
            if not isinstance(value, MemberWord):
                return value
            found = find_member(value, members)
            return blocking_member(found) if handler.blocking else found

        return replace(call, args=tuple(map(looked_up, call.args)))

    async def _roles(self, group: str) -> dict[str, str]:
        """The current roles of the members by DID, queried each time because they can change."""
        return {one.did: one.role for one in await self._connection.api.members(group)}


def _is_permanent(error: Exception) -> bool:
    """Whether a retry would fail again, or the call is still running."""
    return isinstance(error, HandlerStuck | CpuLimitExceeded | BadValue) or (
        isinstance(error, AgentError) and error.retry == "never"
    )
