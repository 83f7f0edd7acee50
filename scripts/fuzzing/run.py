"""Executions: which case a number stands for, how long it took, what counts as a finding, and how to have it again.

Case number N of a parser under a seed is always the same bytes, on however many processes and however long it runs: the
dice are thrown anew for every block of cases. (The seeds' own bytes come from the writers, so a change to those changes
the cases; a finding that is worth keeping is kept as bytes.)

What a parser may do with bytes of a stranger is return something or raise an error of zerochat's family. Any other
exception is a finding, and so is more CPU time than the limit, if three repetitions with empty caches need it too.
"""

import base64
import functools
import gc
import json
import multiprocessing
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Protocol

from fuzzing.mutations import Mutator
from fuzzing.nodes import as_text, dissect, utf8
from zerochat.errors import LocalError, RemoteError

BLOCK = 256
SLOW_NS = 50_000_000
"""50 ms of CPU: whoever sends such texts stops an agent with twenty of them a second."""
HANG_S = 5
ALIKE_MAX = 2
"""Findings of one kind from one process: they are one fault."""
REPORT_S = 2.0


class Target(Protocol):
    """A parser with what it takes to fuzz it."""

    name: str
    size_max: int
    """The most bytes that the parser looks at. Cases have up to four times as many: whoever calls it has limits too."""

    def seeds(self) -> list[bytes]:
        """Texts that the parser accepts, made by our own writers, the same ones at every start."""
        ...

    def seal(self, tree: Any, dice: Random) -> Any:
        """The tree with its checksums, tags and signatures right again, most of the time."""
        ...

    def parse(self, data: bytes) -> object:
        """The parser, and whatever else an agent does at once with what it returns."""
        ...


class Hang(BaseException):
    """The parser has not come back for seconds. No parser may catch this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes on which a parser did what it may not."""

    parser: str
    case: int
    why: str
    data: bytes = field(repr=False)

    def as_json(self) -> str:
        data = base64.b64encode(self.data).decode()
        return json.dumps({"parser": self.parser, "why": self.why, "data": data}, indent=1)


@dataclass(slots=True)
class Report:
    """What a run has come to so far."""

    executions: int = 0
    accepted: int = 0
    """How many of them the parser took; the others it refused as it should."""
    cpu_ns: int = 0
    slowest_ns: int = 0
    slowest_case: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        self.executions += other.executions
        self.accepted += other.accepted
        self.cpu_ns += other.cpu_ns
        if other.slowest_ns > self.slowest_ns:
            self.slowest_ns, self.slowest_case = other.slowest_ns, other.slowest_case
        self.findings += other.findings


# --- cases ----------------------------------------------------------------------------------------------------------


class Cases:
    """The cases of a target under a seed, by number."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target, self.seed = target, seed
        trees = [dissect(data.decode()) for data in target.seeds()]
        self.mutator = Mutator(trees, target.size_max)

    def block(self, number: int) -> Iterator[bytes]:
        dice = Random(f"{self.seed}/{self.target.name}/{number}")
        for _ in range(BLOCK):
            tree = self.target.seal(self.mutator.tree(dice), dice)
            yield self.mutator.bytes(utf8(as_text(tree)), dice)[: 4 * self.target.size_max]

    def case(self, number: int) -> bytes:
        """One case. Those before it in its block are made too, because they throw the same dice."""
        for at, data in enumerate(self.block(number // BLOCK)):
            if at == number % BLOCK:
                return data
        raise AssertionError("a block ended early")


# --- executions -----------------------------------------------------------------------------------------------------


def attempt(target: Target, data: bytes) -> tuple[bool, str | None]:
    """Whether the parser took the bytes, and what is wrong with how it refused them."""
    try:
        target.parse(data)
    except (RemoteError, LocalError):
        return False, None
    except Hang:
        return False, f"no end after {HANG_S} s"
    except Exception as error:  # noqa: BLE001 (any other exception is what this looks for)
        place = traceback.extract_tb(error.__traceback__)[-1]
        return False, f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno}, {place.name})"[
            :500
        ]
    return True, None


def is_slow(target: Target, data: bytes, slow_ns: int = SLOW_NS) -> bool:
    """Whether the bytes take too long every time, nothing being remembered of the time before."""
    for _ in range(3):
        forget()
        gc.collect()
        start = time.thread_time_ns()
        attempt(target, data)
        if time.thread_time_ns() - start <= slow_ns:
            return False
    return True


@functools.cache
def _memories() -> list[Callable[[], None]]:
    found = [thing for thing in gc.get_objects() if isinstance(thing, functools._lru_cache_wrapper)]
    return [thing.cache_clear for thing in found if str(thing.__module__).startswith("zerochat")]


def forget() -> None:
    """Empty every cache of the core."""
    for clear in _memories():
        clear()


def run(
    cases: Cases,
    numbers: range,
    slow_ns: int = SLOW_NS,
    tell: Callable[[Report], bool] = lambda report: True,
) -> Report:
    """Execute blocks of cases. `tell` gets every so often what is new, and says whether to go on; the rest is
    returned."""
    target, report, last = cases.target, Report(), time.monotonic()
    known: Counter[str] = Counter()
    watch = _Watch()
    try:
        for number in numbers:
            for at, data in enumerate(cases.block(number)):
                watch.begin()
                start = time.thread_time_ns()
                accepted, why = attempt(target, data)
                spent = time.thread_time_ns() - start
                watch.pause()
                report.executions += 1
                report.accepted += accepted
                report.cpu_ns += spent
                if why is None and spent > slow_ns and is_slow(target, data, slow_ns):
                    why = f"{spent / 1e6:.0f} ms of CPU"
                if why is not None:
                    kind = re.sub(r".*[(]|[0-9. ]+ms", "", why)
                    known[kind] += 1
                    if known[kind] <= ALIKE_MAX:
                        report.findings.append(Finding(target.name, number * BLOCK + at, why, data))
                if spent > report.slowest_ns and (spent < slow_ns // 20 or _takes(target, data, spent // 2)):
                    report.slowest_ns, report.slowest_case = spent, number * BLOCK + at
            if time.monotonic() - last > REPORT_S:
                if not tell(report):
                    return Report()
                report, last = Report(), time.monotonic()
    finally:
        watch.end()
    return report


def _takes(target: Target, data: bytes, spent: int) -> bool:
    """Whether so long a time is the case's own, and not the machine's."""
    forget()
    start = time.thread_time_ns()
    attempt(target, data)
    return time.thread_time_ns() - start >= spent


class _Watch:
    """Raises Hang in an execution that has used HANG_S seconds of CPU, at no cost for all the others."""

    def __init__(self) -> None:
        self._turn, self._seen, self._ticks, self._on = 0, -1, 0, False
        self._before = signal.signal(signal.SIGVTALRM, self._tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, 1, 1)

    def begin(self) -> None:
        self._turn += 1
        self._on = True

    def pause(self) -> None:
        self._on = False

    def _tick(self, number: int, frame: FrameType | None) -> None:
        self._ticks = self._ticks + 1 if self._on and self._turn == self._seen else 0
        self._seen = self._turn
        if self._ticks >= HANG_S:
            self._ticks = 0
            raise Hang

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)


# --- processes ------------------------------------------------------------------------------------------------------


def spread(
    target: Target, seed: int, executions: int, seconds: float, processes: int, news: Callable[[Report], None]
) -> Report:
    """Execute cases 0 to `executions` (whole blocks) on several processes, for at most `seconds`; `news` is called with
    the sum every so often."""
    total, blocks = Report(), -(-executions // BLOCK)
    context = multiprocessing.get_context("fork")
    workers, pipes = [], []
    for number in range(processes):
        mine, theirs = context.Pipe()
        share = range(number, blocks, processes)
        worker = context.Process(target=_work, args=(target, seed, share, seconds, theirs), daemon=True)
        worker.start()
        theirs.close()
        workers.append(worker)
        pipes.append(mine)
    try:
        while pipes:
            for pipe in wait(pipes):
                assert isinstance(pipe, Connection)
                try:
                    total.add(pipe.recv())
                except EOFError:
                    pipes.remove(pipe)
            news(total)
    finally:
        for worker in workers:
            if pipes:
                worker.terminate()
            worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(
            "a process of the fuzzer has died: its parser brought the interpreter down, or it was killed"
        )
    return total


def _work(target: Target, seed: int, numbers: range, seconds: float, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = time.monotonic() + seconds

    def tell(report: Report) -> bool:
        pipe.send(report)
        return time.monotonic() < end

    gc.freeze()
    pipe.send(run(Cases(target, seed), numbers, tell=tell))
    pipe.close()
