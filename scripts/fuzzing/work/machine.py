"""An agent without sockets: the real core, with the real journal and its readers, in virtual time."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from fuzzing.work.meters import Meter
from zerochat.agent.storage.history_reader import HistoryReader
from zerochat.agent.storage.journal import Journal
from zerochat.group import effects as core
from zerochat.group.effects import Effect, JournalEffect
from zerochat.group.engine import step
from zerochat.group.files.hash_tree import path_in
from zerochat.group.inputs import BatchEnded, Input, OwnEventsRead, PartsRead, StepContext, TimerFired, TlogQueried
from zerochat.group.state import Agent

BATCH = 5
"""Inputs of one commit: what comes at the permitted rate within a turn of the loop."""


class StoredFile(Struct, frozen=True):
    """A file on disk, and the levels of its hash tree."""

    parts: Sequence[bytes]
    levels: Sequence[Sequence[bytes]]


class Machine:
    """The agent of one profile."""

    def __init__(
        self, folder: Path, agent: Agent, stored: Iterable[JournalEffect], files: Mapping[str, StoredFile], now: int
    ) -> None:
        """`stored`: what this agent has stored so far."""
        path = folder / "journal.db"
        Journal.create(path, bytes(32)).close()
        self.journal = Journal.open(path, bytes(32))
        self.journal._db.pragma("synchronous", "OFF")  # how long the disk takes is not measured
        self.journal.commit(agent, list(stored))
        self.history = HistoryReader(self.journal)
        self.agent, self.files, self.now = agent, files, now
        self.timers: dict[str, int] = {}
        self.dropped: Counter[str] = Counter()
        """Why messages were refused, by the code of the error."""
        self.meter = Meter()
        self.meter.watch_database(self.journal._db)
        self._random = Random("machine").randbytes
        self._pending: deque[Input] = deque()
        self._effects: list[Effect] = []

    def close(self) -> None:
        self.journal.close()

    def process(self, inputs: Iterable[Input]) -> None:
        """Process some inputs as one batch, and then what they lead to at once."""
        with self.meter.running():
            self._batch(inputs)
            while self._pending:
                self._batch([self._pending.popleft() for _ in range(min(BATCH, len(self._pending)))])

    def advance(self, now: int) -> None:
        """Time passes, and timers fire."""
        while True:
            due = sorted((at, key) for key, at in self.timers.items() if at <= now)[:BATCH]
            if not due:
                break
            for _, key in due:
                del self.timers[key]
            self.now = max(self.now, due[0][0])
            self.process([TimerFired(key) for _, key in due])
        self.now = now

    def _batch(self, inputs: Iterable[Input]) -> None:
        for each in inputs:
            self._step(each)
        self._step(BatchEnded())
        effects, self._effects = self._effects, []
        stored = [effect for effect in effects if isinstance(effect, JournalEffect)]
        self.journal.commit(self.agent, stored)
        self.history.note_stored(stored)
        for effect in effects:
            self._perform(effect)

    def _step(self, each: Input) -> None:
        self.agent, effects = step(self.agent, each, StepContext(self.now, self._random))
        self._effects += effects

    def _perform(self, effect: Effect) -> None:
        total = self.meter.total
        match effect:
            case core.SetTimer(key, delay_ms, keep):
                if not (keep and key in self.timers):
                    self.timers[key] = self.now + delay_ms
            case core.Notify():
                total.notices += 1
            case core.Measure("dropped", why):
                total.refused += 1
                self.dropped[why] += 1
            case core.Publish(links=links, envelope=envelope):
                total.sent += len(envelope) * max(1, len(links))
            case core.SendEnvelope() | core.Reply() | core.WebPost() | core.WebReply():
                total.sent += len(effect.envelope)
            case core.QueryTlog(group, origin, what):
                self._pending.append(TlogQueried(group, origin, what, self.journal.tlog.answer(group, origin, what)))
            case core.ReadHistory():
                self._pending.append(self.history.answer_pull(effect))
            case core.Reconcile():
                self._pending.append(self.history.compare(effect))
            case core.ReadOwnEvents(group, member, author, after, limit):
                records = self.journal.chain(group, author, after, limit)
                messages: list[tuple[int, bytes]] = []
                if effect.alias:
                    messages = self.journal.signed_messages.recall(group, author, effect.alias, effect.time, limit)
                self._pending.append(OwnEventsRead(group, member, tuple(records), tuple(messages)))
            case core.ReadParts(group, member, file, _, first, count):
                kept = self.files[file]
                read = tuple((kept.parts[at], path_in(kept.levels, at)) for at in range(first, first + count))
                self._pending.append(PartsRead(group, member, file, first, read))
