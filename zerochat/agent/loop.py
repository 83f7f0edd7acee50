"""The agent's main loop: wait for inputs, step the core, commit the batch, execute its effects.

Nothing leaves this machine before the commit: what a peer or client receives is on disk. One `fsync` serves a whole
batch. A batch that cannot be committed is rolled back, and its peers retransmit.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import Call, ControlServer, Interest
from zerochat.agent.clock import Clock, Timers
from zerochat.agent.deferred_inputs import RETRY_MS, Connectivity, DeferredConnectivity
from zerochat.agent.disputes.monitor import DisputeMonitor
from zerochat.agent.effects import EffectExecutor
from zerochat.agent.fair_queue import FairQueue
from zerochat.agent.files.worker import FileWorker
from zerochat.agent.input_sources import OWN, link_of, source_of
from zerochat.agent.loop_control import IDLE_MS, LoopControl
from zerochat.agent.nearby.switch import Nearby
from zerochat.agent.network.web_adapter import WebAdapter
from zerochat.agent.network.zmq.bans import HASTY, strike_weight
from zerochat.agent.network.zmq.transport import INPUTS_MAX, POLL_BYTES_MAX, Transport
from zerochat.agent.service.crash_log import contained
from zerochat.agent.service.hook_feed import HookFeed
from zerochat.agent.settings.reader import Settings
from zerochat.agent.settings.reload import read_changes, with_core_rules
from zerochat.agent.settings.values import ALWAYS
from zerochat.agent.storage.erasure import Eraser
from zerochat.agent.storage.erasure_key import ErasureKeyTimer
from zerochat.agent.storage.history_reader import HistoryReader
from zerochat.agent.storage.integrity_scan import IntegrityScan
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import RESTORED_AT
from zerochat.agent.telemetry.switch import Recording
from zerochat.agent.views.attention import Attention
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import InternalFault, LocalError
from zerochat.group.effects import CommandFailed, Effect, JournalEffect, Rejected, SetTimer
from zerochat.group.engine import step
from zerochat.group.inputs import (
    BatchEnded,
    ClockSet,
    CommandInput,
    Input,
    IoInput,
    MediatedOnly,
    Received,
    Started,
    StepContext,
    TimerFired,
    WebReceived,
)
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Agent
from zerochat.group.sync.acknowledgements import has_unacknowledged, is_ack_timer
from zerochat.group.timer_kinds import TimerKind

DISPUTE_REVIEW_S: Final = 2.0
"""However busy the agent is, it reviews disputes this often."""
TURN_S: Final = 0.05
"""After this time a batch is committed, and clients are served, before the next input is processed."""
SHARE_S: Final = 0.005
"""A peer's share of a batch that serves others too. So often, a longer batch looks for inputs of others."""
READ_MIN: Final = 16
"""However many inputs wait, so many more are read at once, as they may be of other sources; up to `QUEUE_MAX`."""
QUEUE_MAX, QUEUE_BYTES_MAX = 4 * INPUTS_MAX, 2 * POLL_BYTES_MAX
"""With more inputs waiting, or more bytes in envelopes, the senders wait."""
POLL_FAULTS_MAX: Final = 200
POLL_FAULT_S: Final = 0.05
"""So many polls in a row may fail with an internal error, with a pause after each; then the agent ends."""


@dataclass
class AgentLoop:
    """One profile's agent: its state and the I/O components. `startup.py` builds it."""

    agent: Agent
    paths: ProfilePaths
    control: LoopControl
    settings: Settings
    journal: Journal
    history: HistoryReader
    transport: Transport
    web: WebAdapter
    files: FileWorker
    nearby: Nearby
    hooks: HookFeed
    server: ControlServer
    handlers: RequestHandlers
    disputes: DisputeMonitor
    integrity: IntegrityScan
    eraser: Eraser
    erasure_key: ErasureKeyTimer
    recording: Recording
    executor: EffectExecutor
    attention: Attention
    clock: Clock
    timers: Timers
    log: logging.Logger
    pair: Endpoint
    queue: Endpoint
    restored: bool
    """The profile was restored from a backup, and the core does not know yet."""
    unused_s: float | None = None
    """End after this time without a client; None: never."""
    deferred: DeferredConnectivity = field(default_factory=DeferredConnectivity)
    _queue: FairQueue[Input] = field(default_factory=FairQueue)
    """Inputs that wait for their turn."""
    _suspects: deque[Input] = field(default_factory=deque)
    """Inputs that are processed one by one, before all others (`_isolate`)."""
    _poll_faults: int = 0
    """Consecutive polls that have failed."""
    _watched: dict[int, Interest] = field(default_factory=dict)
    _review_at: float = 0.0
    _erase_at: float | None = None
    """When the next slice of an erasure is due, on the monotonic clock; None: nothing is to be erased."""
    _renew_at: float | None = None
    """The same of the erasure key."""
    _used_at: float = field(default_factory=time.monotonic)

    def run(self, first: list[Input]) -> None:
        """Process the first batch, then loop until the agent is stopped, drained or unneeded."""
        self._process(first)
        self.recording.reload(self.agent, self.control.heartbeat)
        self._watch_clients()
        self.log.info("ready at %s", self.pair)
        self.control.ready.set()
        while not (self._is_ending() or self.handlers.stopped or self._is_unneeded()):
            self._process(self._wait())
            if self.control.reload.is_set():
                self._reload()
            with contained(self.log, "running hooks"):
                self.hooks.run(self.agent)
            self._review_disputes()
            with contained(self.log, "checking the journal"):
                self.integrity.run_if_due()
            with contained(self.log, "erasing expired content"):
                self._erase_at = self.eraser.run_if_due()
            with contained(self.log, "erasing used keys"):
                self._renew_at = self.erasure_key.run_if_due()
        if self.control.drain.is_set():
            self._drain()
        else:
            self.handlers.begin_shutdown(0, self.agent)
        self.recording.reload(self.agent, self.control.heartbeat, end=True)
        self.log.info("stopped")

    def _is_ending(self) -> bool:
        return self.control.stop.is_set() or self.control.drain.is_set()

    def _is_unneeded(self) -> bool:
        """Whether no client was connected for `unused_s`."""
        now = time.monotonic()
        if self.unused_s is None or self.server.clients:
            self._used_at = now
            return False
        self.control.unneeded = now - self._used_at > self.unused_s
        return self.control.unneeded

    # --- wait -------------------------------------------------------------------------------------------------------

    def _wait(self, most_ms: int = IDLE_MS) -> list[Input]:
        """Sleep until there is something to do. Queues the inputs that are there then; returns those that precede all
        others."""
        self.control.heartbeat = time.monotonic()
        fed, deadlines = False, [self.timers.next_deadline, self._erase_at, self._renew_at]
        with contained(self.log, "feeding subscribers"):
            fed = self.handlers.feed(self.agent)
        with contained(self.log, "reviewing requests"):
            deadlines.append(self.handlers.review(self.agent))
        timeout = 0 if self._suspects or self._queue or self.executor.busy or fed else min(IDLE_MS, most_ms)
        for deadline in deadlines:
            if deadline is not None:
                timeout = min(timeout, max(0, int((deadline - time.monotonic()) * 1000) + 1))
        with contained(self.log, "looking for members nearby"):
            self.nearby.run(self.agent)
        with contained(self.log, "writing to clients"):
            self._watch_clients()
        self.recording.before_wait(self.agent, self.control.heartbeat)
        received, ready = self._poll(timeout)
        self.recording.woke()
        first: list[Input] = [ClockSet(by_ms)] if (by_ms := self.clock.step_ms()) else []
        self._read_journal()
        self._put(self.executor.take())
        mail: list[Input] = []
        with contained(self.log, "taking mail"):
            mail = self.web.take()
        self._put(self.deferred.replace_older([*received, *mail]))
        with contained(self.log, "taking results of files"):
            self._put([*self.files.take(), *self.handlers.take_file_posts()])
        self._put(self._take_calls(ready))
        now = time.monotonic()
        self._put([*self.deferred.pop_due(now), *(TimerFired(name) for name in self.timers.pop_due(now))])
        # Until `Started` is committed the core uses the clock of an earlier process, so nothing is processed before it.
        return [*self.deferred.pop_start(now, needed=bool(first or self._queue)), *first]

    def _poll(self, timeout_ms: int) -> tuple[list[IoInput], list[int]]:
        """Read from the sockets as much as the queue has room for; always a little, for sources that it has nothing
        of. An internal error, as while a peer's message is read, leaves the rest for the next poll. Many in a row have
        another cause, and are raised."""
        count, size = len(self._queue), self._queue.size
        count_max = 0 if count >= QUEUE_MAX or size >= QUEUE_BYTES_MAX else max(INPUTS_MAX - count, READ_MIN)
        bytes_max = max(POLL_BYTES_MAX - size, READ_MIN * ENVELOPE_BYTES_MAX)
        try:
            found = self.transport.poll(timeout_ms, count_max, bytes_max)
        except Exception:
            self._poll_faults += 1
            if self._poll_faults > POLL_FAULTS_MAX:
                raise
            self.log.exception("internal error while reading from the network")
            time.sleep(POLL_FAULT_S)
            return [], []
        self._poll_faults = 0
        return found

    def _put(self, inputs: Iterable[Input]) -> None:
        """Queue inputs by their sources."""
        for each in inputs:
            size = len(each.envelope) if isinstance(each, Received | WebReceived) else 0
            self._queue.put(source_of(self.agent, each), each, size)

    def _read_journal(self) -> None:
        """Perform journal reads, at the expense of the members that caused them."""
        for owner, result, took_s in self.executor.read(lambda owner: link_of(self.agent, *owner) in self._queue):
            if result is not None:
                self._put([result])
            self._queue.charge(link_of(self.agent, *owner), took_s)

    def _take_calls(self, ready: Iterable[int]) -> Iterator[CommandInput]:
        """Serve the descriptors that are ready; the commands among the requests of clients."""
        for fd in ready:
            if fd == self.control.wakeup.fileno():
                self.control.wakeup.drain()
                continue
            calls: list[Call] = []
            with contained(self.log, "reading from a client"):
                calls = self.server.ready(fd)
            for call in calls:
                if (command := self._handle(call)) is not None:
                    yield command

    def _handle(self, call: Call) -> CommandInput | None:
        try:
            return self.handlers.handle(call, self.agent)
        except Exception:  # an internal error: report it to this client and serve the others
            self.log.exception("internal error while serving %s", call.method)
            self.server.refuse_error(call, InternalFault(what=call.method))
            return None

    def _watch_clients(self) -> None:
        """Send what waits for clients, and update the descriptors to poll."""
        self.server.flush()
        wanted = self.server.fds()
        for fd in self.server.take_closed():
            self.transport.unwatch(fd)
            self._watched.pop(fd, None)
        for fd, (reading, writing) in wanted.items():
            if self._watched.get(fd) != (reading, writing):
                self.transport.watch(fd, reading, writing)
        self._watched = wanted

    # --- step, commit, send -----------------------------------------------------------------------------------------

    def _process(self, first: list[Input]) -> None:
        """Process one batch: `first`, and what the queue has for this turn; or one suspect input alone."""
        if not (first or self._suspects or self._queue or self.handlers.subscriptions.pending):
            return
        alone = bool(self._suspects)
        if alone:
            self._suspects.extendleft(reversed(first))
            first = [self._suspects.popleft()]
        before = self.agent
        inputs: list[Input] = []
        effects: list[Effect] = []
        steps: list[tuple[Input, list[Effect]]] = []
        step_once = self._recorded_step if self.recording.on else self._step
        for each in first if alone else self._turn(first):
            inputs.append(each)
            steps.append((each, step_once(each)))
            effects += steps[-1][1]
        ended = BatchEnded()
        steps.append((ended, step_once(ended)))
        effects += steps[-1][1]
        if self._may_wait(inputs, effects):
            self.executor.execute(effects, self.agent)
            self.recording.committed()
            self.web.acknowledge(inputs, kept=True)
            return
        stored = [effect for effect in effects if isinstance(effect, JournalEffect)]
        clock_changed = any(isinstance(each, Started | ClockSet) for each in inputs)
        meta = {"clock": self.clock.mark} if clock_changed else None
        try:
            records = self.handlers.prepare_commit(effects, before, self.agent)
            self.journal.commit(self.agent, stored, records, meta)
        except LocalError as error:
            self._roll_back(before, inputs, error)
            return
        except Exception:
            self.log.exception("internal error while committing a batch")
            self._isolate(before, inputs)
            return
        with contained(self.log, "noting a commit"):
            self.handlers.committed(records, stored)
            self.history.note_stored(stored)
        if stored or self.agent is not before:
            self.attention.fault = ""  # the disk works
        if self.restored and any(isinstance(each, Started) for each in inputs):
            self._forget_restore()
        with contained(self.log, "counting what links carry"):
            self.handlers.counters.observe(before, self.agent, steps, self.clock.now())
        with contained(self.log, "observing disputes"):
            self.disputes.observe(effects)
        self.executor.execute(effects, self.agent)
        self.recording.committed()
        self.web.acknowledge(inputs, kept=True)

    def _may_wait(self, inputs: list[Input], effects: list[Effect]) -> bool:
        """Whether a batch needs no commit of its own: every input was rejected, and only rate limits have changed,
        which the next commit writes. Otherwise each refused envelope would cost its recipient an `fsync`."""
        rejected = len(effects) == len(inputs) and all(isinstance(one, Rejected) for one in effects)
        return rejected and bool(inputs) and not self.handlers.subscriptions.pending

    def _turn(self, first: list[Input]) -> Iterator[Input]:
        """The inputs of one batch; the processor time that the caller takes for each is charged to its source.

        A batch ends after `TURN_S`, when a client waits, or when a peer has had its share and others were served too:
        they do not wait until all of that peer's inputs are done.
        """
        yield from first
        now, used = time.monotonic(), time.thread_time()
        until, look = now + TURN_S, now + SHARE_S
        taken: dict[object, float] = {}
        while self._queue and now < until:
            source = self._queue.next_source()
            if source != OWN and len(taken) > 1 and taken.get(source, 0.0) >= SHARE_S:
                return
            each = self._queue.take()
            self.deferred.supersede(each)
            yield each
            before, now, used = used, time.monotonic(), time.thread_time()
            self._queue.charge(source, used - before)
            taken[source] = taken.get(source, 0.0) + used - before
            if look <= now < until:
                received, ready = self._poll(0)
                self._put(self.deferred.replace_older(received))
                look = now + SHARE_S
                if ready:
                    return

    def _step(self, each: Input) -> list[Effect]:
        """Step the core with one input; an internal error of the core drops this input only."""
        try:
            self.agent, effects = step(self.agent, each, StepContext(self.clock.now(), os.urandom))
        except Exception:  # the core is pure, so its state is as before this input
            self.log.exception("internal error in the core while processing %s", type(each).__name__)
            if isinstance(each, CommandInput):
                return [CommandFailed(each.ticket, InternalFault(what=type(each.command).__name__))]
            if isinstance(each, Received):
                self._count_strike(each.link, HASTY)  # an honest peer may cause it, but not without limit
            return [SetTimer(each.key, RETRY_MS)] if isinstance(each, TimerFired) else []
        if isinstance(each, Received) and (weight := strike_weight(self.agent, each, effects)):
            self._count_strike(each.link, weight)
        return effects

    def _recorded_step(self, each: Input) -> list[Effect]:
        before, started_ns = self.agent, time.time_ns()
        effects = self._step(each)
        self.recording.observe_step(each, before, self.agent, effects, started_ns, time.time_ns())
        return effects

    def _count_strike(self, link: bytes, weight: float) -> None:
        if self.transport.strike(link, weight):
            self.log.warning("a peer that sent too many refused envelopes is banned for a while")

    def _isolate(self, before: Agent, inputs: list[Input]) -> None:
        """A batch cannot be committed because of an internal error, which one of its inputs may have caused: process
        them again, each in a batch of its own, and drop those that fail alone."""
        if len(inputs) > 1:
            self.agent = before
            self.recording.rolled_back()
            self._suspects.extendleft(reversed(inputs))
            return
        self._roll_back(before, inputs, InternalFault(what="commit"))
        for each in inputs:
            if isinstance(each, Received):
                self._count_strike(each.link, HASTY)

    def _roll_back(self, before: Agent, inputs: list[Input], error: LocalError) -> None:
        """Restore the state before a batch that could not be committed."""
        self.agent = before
        self.recording.rolled_back()
        self.attention.failed(error.sentence())
        self.log.error("a batch could not be committed: %s", error.code)
        self.web.acknowledge(inputs, kept=False)
        self.handlers.subscriptions.rolled_back(error)
        for each in inputs:
            if isinstance(each, CommandInput):
                self.disputes.rolled_back(each)
                self.handlers.fail(each, error, before)
            elif isinstance(each, TimerFired):
                self.timers.set(each.key, RETRY_MS)
            elif isinstance(each, ClockSet):
                self.clock.undo_step(each.by_ms)
            elif isinstance(each, Connectivity):
                self.deferred.put(each)
            elif isinstance(each, MediatedOnly):
                self.executor.pending.append(each)

    def _forget_restore(self) -> None:
        """The core knows of the restore now. Where this cannot be written, the next start reports it again."""
        self.restored = False
        try:
            self.journal.meta_set(RESTORED_AT, b"")
        except LocalError as error:
            self.log.error("cannot write %s: %s", RESTORED_AT, error.code)

    # --- periodic work ----------------------------------------------------------------------------------------------

    def _review_disputes(self) -> None:
        """Review disputes when idle, and every `DISPUTE_REVIEW_S`: a false accuser must not delay our defence past its
        deadline by keeping the agent busy."""
        now = time.monotonic()
        if not self.executor.busy or now >= self._review_at:
            self._review_at = now + DISPUTE_REVIEW_S
            try:
                self.executor.pending += self.disputes.review(self.agent, self.clock.now() - self.agent.clock_offset_ms)
            except Exception:  # no case may end the agent
                self.log.exception("internal error while reviewing disputes")

    def _reload(self) -> None:
        """Read the settings again and apply those that need no restart."""
        self.control.reload.clear()
        settings, result = read_changes(self.paths, self.settings, self.log)
        self.control.reloaded.append(result)
        if settings is None:
            return
        if settings.hidden == ALWAYS and not self.agent.mediated_only:
            self.transport.stop_listening()
            self.web.seclude()
            self.agent = replace(self.agent, mediated_only=True)  # nothing leaves otherwise, whatever fails below
            self._process([MediatedOnly()])
        self.apply(settings)
        self.hooks.set(settings)
        self.recording.reload(self.agent, self.control.heartbeat)
        keep_ms, self.agent = self.agent.keep_ms, with_core_rules(self.agent, settings)
        if self.agent.keep_ms != keep_ms:
            self.handlers.notify([ViewChanged(name) for name in self.agent.groups], self.agent)
        self.executor.pending.append(TimerFired(f"{TimerKind.RETENTION} "))

    def apply(self, settings: Settings) -> None:
        """Apply the settings that no open socket depends on."""
        self.settings = settings
        self.log.setLevel(settings.log_level.upper())
        self.control.drain_s = float(settings.drain)

    # --- shutdown ---------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Process the last batches: send owed acknowledgements at once, and wait until connected peers have
        acknowledged everything, for at most `drain_s`."""
        limit_s = self.control.drain_s
        deadline = time.monotonic() + limit_s
        self.log.info("stopping, within %d s", limit_s)
        self.handlers.begin_shutdown(limit_s, self.agent)
        while not self.control.stop.is_set() and (left_s := deadline - time.monotonic()) > 0:
            self._process([TimerFired(name) for name in self.timers.pop_matching(is_ack_timer)])
            if not (
                has_unacknowledged(self.agent) or self.web.busy or self.executor.busy or self._suspects or self._queue
            ):
                break
            self._process(self._wait(int(left_s * 1000) + 1))
        else:
            self.log.info("stopped before everything was acknowledged")
        self.handlers.review(self.agent)  # the last batch may have answered a waiting request
        self.handlers.feed(self.agent)
        self.handlers.refuse_pending(self.agent)
