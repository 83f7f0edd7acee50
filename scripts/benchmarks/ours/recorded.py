"""A group of cores that the product's own recorder of telemetry looks at, as if they were agents."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.ours.core import GROUP, HUB, MULTI, Star, published
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.telemetry.export import Subject
from zerochat.agent.telemetry.observation import RawStep
from zerochat.agent.telemetry.recorder import QueueProbes, Recorder, RetentionLimits
from zerochat.agent.telemetry.schema import Record, unpack_rows
from zerochat.group.effects import Effect
from zerochat.group.engine import step
from zerochat.group.inputs import BatchEnded, Input, SendPost, StepContext
from zerochat.sim.node import Node
from zerochat.sim.world import SIMULATED_PACKERS

FIRST = "n1"
"""The first to join, which receives everything that the founder sends."""
PAGE = 1_000_000


class RecordedStar(Star):
    """A Star whose founder and first member record; a context, after which nothing is recorded any more."""

    def __init__(self, members: int, keys: str = MULTI) -> None:
        self._stack = contextlib.ExitStack()
        self._recorders: dict[str, tuple[Recorder, Journal]] = {}
        super().__init__(members, keys)

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="zerochat-bench-")))
        for name in (HUB, FIRST):
            home = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
            create_profile(home, name, None)
            journal = self._stack.enter_context(Journal.open(home.journal, unlock(home, None)))
            outside = QueueProbes(client_backlog_b=lambda: 0, dropped_envelopes=lambda: 0)
            agent = self.nodes[name].agent
            # The recorder reads the real clock; an event dated years before would count as a retransmission.
            self.now = max(self.now, int(time.time() * 1000))
            self._recorders[name] = (
                Recorder(journal.telemetry(), agent, name, RetentionLimits(64, 30), outside),
                journal,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorders.clear()
        self._stack.close()

    def post(self, text: str) -> int:
        """Post at the founder and wait until it has arrived; returns the bytes for all recipients."""
        self.run_command(HUB, SendPost(GROUP, text))
        sent = published(self._said_last)
        self.run(for_ms=50)
        return sent

    def recorded(self) -> Iterator[tuple[str, list[Sequence[Record]], Mapping[int, Subject]]]:
        """For each recording member: its name, all records, and the names for their numbers."""
        for name, (recorder, journal) in self._recorders.items():
            recorder.close(self.nodes[name].agent)
            store = journal.telemetry()
            names = {number: Subject(group, did) for number, group, did in store.names(0, PAGE)}
            yield name, [unpack_rows(batch.data) for batch in store.batches(0, PAGE)], names

    # --- of the simulated machine room --------------------------------------------------------------------------------

    def _step(self, node: Node, stimulus: Input) -> list[Effect]:
        if node.name not in self._recorders:
            return super()._step(node, stimulus)
        recorder, _ = self._recorders[node.name]
        moment, effects, steps = StepContext(self._clock(node), self.rng.randbytes), list[Effect](), list[RawStep]()
        woke_ns = time.time_ns()
        for heard in (stimulus, BatchEnded()):
            before, begun_ns = node.agent, time.time_ns()
            node.agent, said = step(before, heard, moment, SIMULATED_PACKERS)
            steps.append((heard, before, node.agent, said, begun_ns, time.time_ns(), None))
            effects += said
        recorder.observe(node.agent, [(steps, woke_ns, time.time_ns())], time.monotonic(), clients=False)
        if node.name == HUB and isinstance(getattr(stimulus, "command", None), SendPost):
            self._said_last = effects
        return effects
