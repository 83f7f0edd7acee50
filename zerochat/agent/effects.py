"""Executes the core's effects after the commit: network, files, timers, journal reads, answers and notifications."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.clock import Timers
from zerochat.agent.disputes.monitor import DisputeMonitor
from zerochat.agent.files.worker import FileWorker
from zerochat.agent.network.web_adapter import WebAdapter
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.service.crash_log import contained
from zerochat.agent.storage.history_reader import HistoryReader
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.attention import Attention
from zerochat.errors import ZerochatError
from zerochat.group import effects as core
from zerochat.group.event_log.lamport import AheadOfTime
from zerochat.group.inputs import Input, OwnEventsRead, TlogQueried
from zerochat.group.notifications import ForkDetected, Notification
from zerochat.group.state import Agent

JournalRead: TypeAlias = core.QueryTlog | core.ReadOwnEvents | core.ReadHistory | core.Reconcile

READ_S = 0.005
"""The longest time that a turn of the loop spends on journal reads, apart from the last one."""

Owner: TypeAlias = tuple[str, str]
"""The group and the member that caused a journal read; no member: we ourselves."""


@dataclass
class EffectExecutor:
    """Performs the effects of committed batches. Owned by the agent loop."""

    journal: Journal
    history: HistoryReader
    transport: Transport
    web: WebAdapter
    files: FileWorker
    handlers: RequestHandlers
    disputes: DisputeMonitor
    timers: Timers
    attention: Attention
    log: logging.Logger
    pending: list[Input] = field(default_factory=list)
    """Inputs of the next batch."""
    _reads: dict[Owner, deque[JournalRead]] = field(default_factory=dict)
    """Journal reads that are due, by who caused them."""

    @property
    def busy(self) -> bool:
        """Whether there are inputs for the next batch, or reads that lead to some."""
        return bool(self.pending or self._reads)

    def take(self) -> list[Input]:
        """The inputs that wait for the next batch."""
        inputs, self.pending = self.pending, []
        return inputs

    def read(self, is_busy: Callable[[Owner], bool]) -> Iterator[tuple[Owner, Input | None, float]]:
        """Perform journal reads, one for each member in turn, for at most `READ_S`: who caused each, its result (None:
        it failed), and the processor time that it took, in seconds. `is_busy`: whether earlier results for a member
        still wait; then its next reads wait too."""
        free = deque(owner for owner in self._reads if not is_busy(owner))
        until, used = time.monotonic() + READ_S, time.thread_time()
        while free:
            owner = free.popleft()
            reads, result = self._reads[owner], None
            with self._reading():
                result = self._read(reads[0])
            reads.popleft()
            del self._reads[owner]
            if reads:
                self._reads[owner] = reads  # behind the others
                free.append(owner)
            before, used = used, time.thread_time()
            yield owner, result, used - before
            if time.monotonic() >= until:
                return

    def execute(self, effects: Iterable[core.Effect], agent: Agent) -> None:
        """Perform the effects: messages to peers first, which travel further, then answers and notifications.

        They are on disk, so an internal error in one of them is logged, and stops none of the others: what does not
        reach a peer is sent again, what does not reach a client it can read.
        """
        answers: list[core.CommandDone | core.CommandFailed] = []
        notifications: list[Notification] = []
        for effect in effects:
            match effect:
                case core.CommandDone() | core.CommandFailed() if self.disputes.owns(effect.ticket):
                    with contained(self.log, "settling a dispute"):
                        self.disputes.settle(effect)
                case core.CommandDone() | core.CommandFailed():
                    answers.append(effect)
                case core.Notify(notification):
                    notifications.append(notification)
                    if isinstance(notification, ForkDetected):
                        self.log.warning("two events claim position %d of one author's chain", notification.seq)
                case _:
                    try:
                        self._perform(effect)
                    except Exception:
                        self.log.exception("internal error while performing %s", type(effect).__name__)
        with contained(self.log, "sending"):
            self.transport.flush()
        for answer in answers:
            with contained(self.log, "answering a client"):
                self.handlers.complete(answer, agent)
        with contained(self.log, "notifying clients"):
            self.handlers.notify(notifications, agent)

    def _perform(self, effect: core.Effect) -> None:
        match effect:
            case core.DeleteLog(group):
                self.files.forget(group)
            case core.SetTimer(name, delay_ms, keep):
                self.timers.set(name, delay_ms, keep=keep)
            case core.QueryTlog() | core.ReadOwnEvents() | core.ReadHistory() | core.Reconcile():
                member = "" if isinstance(effect, core.QueryTlog) else effect.member
                self._reads.setdefault((effect.group, member), deque()).append(effect)
            case core.ReadParts() | core.StoreParts() | core.VerifyFile() | core.DeleteFileData():
                self.files.perform(effect)
            case core.Measure(name, detail):
                self.log.info("%s %s", name, detail)
                if detail == AheadOfTime.__name__:
                    self.attention.clocks_differ()
            case core.WebPost() | core.WebReply() | core.OpenWebSocket() | core.CloseWebSocket():
                self.web.perform(effect)
            case _ if isinstance(effect, core.JournalEffect):
                pass  # performed by the commit
            case core.DuplicateEvent():
                pass  # only telemetry uses it
            case _:
                self.transport.perform(effect)  # type: ignore[arg-type]  # all that is left

    def _read(self, effect: JournalRead) -> Input:
        """Read from the journal; the input that reports the result to the core."""
        match effect:
            case core.QueryTlog(group, origin, what):
                return TlogQueried(group, origin, what, self.journal.tlog.answer(group, origin, what))
            case core.ReadHistory():
                return self.history.answer_pull(effect)
            case core.Reconcile():
                return self.history.compare(effect)
            case core.ReadOwnEvents(group, member, author, after, limit):
                records = self.journal.chain(group, author, after, limit)
                messages: list[tuple[int, bytes]] = []
                if effect.alias:
                    messages = self.journal.signed_messages.recall(group, author, effect.alias, effect.time, limit)
                return OwnEventsRead(group, member, tuple(records), tuple(messages))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Log a failed read: the peer or timer that caused it requests it again, and no request ends the agent."""
        try:
            yield
        except ZerochatError as error:
            self.log.error("cannot read the journal: %s", error.code)
        except Exception:
            self.log.exception("internal error while reading the journal")
