"""Executions: cases, their CPU time, the definition of a finding, and learning.

The cases of a parser under a seed are the same bytes on every machine: the randomness is seeded for every block of
cases. With branch coverage (`branches.py`), a case that takes a new branch is learned: later cases in the same process
are made from it too. (The seeds' own bytes come from the writers, so a change to those changes the cases; a finding
worth keeping is stored as bytes.)

A parser of untrusted bytes may return a value or raise an error of zerochat's family. Any other exception is a finding,
and so is more CPU time than the limit, if three repetitions with empty caches need it too, and more memory.
"""

import base64
import functools
import gc
import json
import multiprocessing
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from fuzzing import branches
from fuzzing.mutations import Mutator, bytes_changed, spliced
from fuzzing.nodes import Part, as_text, dissect, utf8
from zerochat.errors import LocalError, RemoteError

BLOCK = 256
SLOW_NS = 50_000_000
"""50 ms of CPU: twenty such texts a second would stop an agent."""
GROWTH_BYTES_MAX = 64 << 20
"""The memory that one case may add to the maximum of its process: a hundred times the largest envelope."""
LEARNED_BYTES_MAX = 8 * 1024
"""Longer cases are executed and not learned: their mutants would be as long, and as slow. A tar file has at least 10
KiB, so the size of its source text counts where there is one."""
SEALED_BYTES_MAX = 16 * 1024
HANG_S = 5
ALIKE_MAX = 2
"""Findings of one kind from one process: they are one fault."""
REPORT_S = 2.0


Form: TypeAlias = Literal["text", "sealed", "raw"]
"""The source of cases. `text`: trees that can be recovered from their text. `sealed`: trees that cannot, because their
text is compressed or encrypted. `raw`: bytes without such a form."""


class Target(Protocol):
    """A parser with its seeds, repairs and invariants."""

    name: str
    form: Form
    size_max: int
    """The parser's limit in bytes. Cases have up to four times as many, since callers have limits too."""

    def seeds(self) -> list[bytes]:
        """Texts that the parser accepts, made by our own writers, the same ones at every start."""
        ...

    def seal(self, tree: Any, dice: Random) -> Any:
        """The tree with its checksums, tags and signatures right again, most of the time; or the bytes made of it."""
        ...

    def parse(self, data: bytes) -> object:
        """The parser, with everything that an agent does at once with its result."""
        ...


class Hang(BaseException):
    """The parser has not returned for seconds. No parser may catch this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: bytes on which a parser broke a rule."""

    parser: str
    case: int
    why: str
    data: bytes = field(repr=False)

    def as_json(self) -> str:
        data = base64.b64encode(self.data).decode()
        return json.dumps({"parser": self.parser, "why": self.why, "data": data}, indent=1)


@dataclass(slots=True)
class Report:
    """The state of a run."""

    executions: int = 0
    accepted: int = 0
    """How many of them the parser took; the others it refused as it should."""
    cpu_ns: int = 0
    slowest_ns: int = 0
    slowest_case: int = 0
    memory_bytes: int = 0
    """The maximum of one process."""
    findings: list[Finding] = field(default_factory=list)
    learned: list["Case"] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        self.executions += other.executions
        self.accepted += other.accepted
        self.cpu_ns += other.cpu_ns
        if other.slowest_ns > self.slowest_ns:
            self.slowest_ns, self.slowest_case = other.slowest_ns, other.slowest_case
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.findings += other.findings
        self.learned += other.learned


# --- cases ----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """An executed case, and the text it was made from unless the data shows it."""

    data: bytes
    source: bytes = b""

    @property
    def is_learnable(self) -> bool:
        return len(self.source or self.data) <= LEARNED_BYTES_MAX and len(self.data) <= SEALED_BYTES_MAX


class Cases:
    """The cases of a target under a seed, by number; made of its own seeds, and of a corpus."""

    def __init__(self, target: Target, seed: int, corpus: Iterable[Case] = ()) -> None:
        self.target, self.seed = target, seed
        seeds = target.seeds()
        self.raw = list(seeds) if target.form != "sealed" else []
        """Input for byte mutations; the target's own seeds first."""
        self._first = len(self.raw)
        self.before = [*map(Case, self.raw), *corpus]
        """The original seeds, as far as they can be executed."""
        trees = [_tree(data) for data in seeds] if target.form != "raw" else []
        self.mutator = Mutator(trees, target.size_max)
        for case in self.before[self._first :]:
            self.learn(case)

    def learn(self, case: Case) -> None:
        """Make later cases of this one too."""
        if self.target.form != "sealed":
            self.raw.append(case.data)
        if self.target.form != "raw":
            self.mutator.learn(_tree(case.source or case.data))

    def block(self, number: int) -> Iterator[bytes]:
        return (case.data for case in self.cases(number))

    def cases(self, number: int) -> Iterator[Case]:
        """The cases of a block, each made when the ones before it may have been learned."""
        dice = Random(f"{self.seed}/{self.target.name}/{number}")
        for _ in range(BLOCK):
            made = self._spliced(dice) if self.target.form == "raw" or self._bare(dice) else self._grown(dice)
            yield made._replace(data=made.data[: 4 * self.target.size_max])

    def _bare(self, dice: Random) -> bool:
        """Now and then there is no grammar for texts either."""
        return self.target.form == "text" and dice.random() < 0.3

    def _spliced(self, dice: Random) -> Case:
        data = self.raw[dice.randrange(self._first if dice.random() < 0.5 else len(self.raw))]
        if dice.random() < 0.15:
            data = spliced(data, dice.choice(self.raw), dice)
        for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 5))):
            data = bytes_changed(data, dice)
        return Case(data)

    def _grown(self, dice: Random) -> Case:
        tree = self.mutator.tree(dice)
        sealed = self.target.seal(tree, dice)
        data = self.mutator.bytes(sealed if isinstance(sealed, bytes) else utf8(as_text(sealed)), dice)
        return Case(data, utf8(as_text(tree)) if self.target.form == "sealed" else b"")

    def case(self, number: int) -> bytes:
        """One case, where nothing was learned. Those before it in its block are made too, because they throw the same
        dice."""
        for at, data in enumerate(self.block(number // BLOCK)):
            if at == number % BLOCK:
                return data
        raise AssertionError("a block ended early")


def _tree(data: bytes) -> Part:
    return dissect(data.decode(errors="surrogateescape"))


# --- executions -----------------------------------------------------------------------------------------------------


def attempt(target: Target, data: bytes) -> tuple[bool, str | None]:
    """Whether the parser accepted the bytes, and any fault in how it refused them."""
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


def limit_of(target: Target) -> int:
    """The CPU time limit for a case of this parser: SLOW_NS, unless no caller waits for it."""
    limit: int = getattr(target, "slow_ns", SLOW_NS)
    return limit


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
    slow_ns: int | None = None,
    tell: Callable[[Report], bool] | None = None,
    *,
    guided: bool = False,
) -> Report:
    """Execute blocks of cases. `tell`, if given, receives new results now and then and returns whether to continue; the
    rest is returned. `guided`: learn cases that take a new branch."""
    target, report, last = cases.target, Report(), time.monotonic()
    slow_ns = limit_of(target) if slow_ns is None else slow_ns
    known: Counter[str] = Counter()
    if guided:
        set_up(target)
    taken = seen_by(target, cases.before) if guided else set()
    watch, most = _Watch(), memory_bytes()
    try:
        for number in numbers:
            for at, case in enumerate(cases.cases(number)):
                data = case.data
                branches.taken.clear()
                before = memory_bytes()  # now, so that making the case is not counted
                watch.begin()
                start = time.thread_time_ns()
                accepted, why = attempt(target, data)
                spent = time.thread_time_ns() - start
                watch.pause()
                if guided and not branches.taken <= taken:
                    taken |= branches.taken
                    if case.is_learnable:
                        cases.learn(case)
                        report.learned.append(case)
                report.executions += 1
                report.accepted += accepted
                report.cpu_ns += spent
                most = memory_bytes()
                if why is None and spent > slow_ns and is_slow(target, data, slow_ns):
                    why = f"{spent / 1e6:.0f} ms of CPU"
                if why is None and most - before > GROWTH_BYTES_MAX:
                    why = f"{(most - before) >> 20} MiB of memory"
                if why is not None:
                    kind = re.sub(r".*[(]|[0-9. ]+M?[im][sB]", "", why)
                    known[kind] += 1
                    if known[kind] <= ALIKE_MAX:
                        report.findings.append(Finding(target.name, number * BLOCK + at, why, data))
                if spent > report.slowest_ns and (spent < slow_ns // 20 or _takes(target, data, spent // 2)):
                    report.slowest_ns, report.slowest_case = spent, number * BLOCK + at
            report.memory_bytes = most
            if tell is not None and time.monotonic() - last > REPORT_S:
                if not tell(report):
                    return Report()
                report, last = Report(), time.monotonic()
    finally:
        watch.end()
    return report


def memory_bytes() -> int:
    """The most memory that this process has ever had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def set_up(target: Target) -> None:
    """Execute a block of cases, so that a group or a file that all cases of the parser share is built before any branch
    is counted. Otherwise the first case would be credited with its branches, and no later case that takes them."""
    watch = _Watch()
    try:
        for data in Cases(target, seed=0).block(0):
            watch.begin()
            attempt(target, data)
            watch.pause()
    finally:
        watch.end()


def seen_by(target: Target, cases: Iterable[Case]) -> set[int]:
    """The branches that these take together."""
    taken: set[int] = set()
    for case in cases:
        taken |= branches_of(target, case)
    return taken


def branches_of(target: Target, case: Case) -> set[int]:
    """The branches that a case takes by itself."""
    forget()
    branches.taken.clear()
    attempt(target, case.data)
    return set(branches.taken)


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
    target: Target,
    seed: int,
    executions: int,
    seconds: float,
    processes: int,
    news: Callable[[Report], None],
    corpus: Sequence[Case] = (),
    *,
    guided: bool = False,
) -> Report:
    """Execute cases 0 to `executions` (whole blocks) on several processes, for at most `seconds`; `news` is called with
    the sum every so often. Each process learns for itself."""
    total, blocks = Report(), -(-executions // BLOCK)
    context = multiprocessing.get_context("fork")
    workers, pipes = [], []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a handler at a fork would swallow Ctrl+C
    for number in range(processes):
        mine, theirs = context.Pipe()
        share = range(number, blocks, processes)
        worker = context.Process(target=_work, args=(target, seed, share, seconds, theirs, corpus, guided), daemon=True)
        worker.start()
        theirs.close()
        workers.append(worker)
        pipes.append(mine)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
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


def _work(
    target: Target,
    seed: int,
    numbers: range,
    seconds: float,
    pipe: Connection,
    corpus: Sequence[Case],
    guided: bool,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = time.monotonic() + seconds

    def tell(report: Report) -> bool:
        pipe.send(report)
        return time.monotonic() < end

    cases = Cases(target, seed, corpus)
    gc.freeze()
    pipe.send(run(cases, numbers, tell=tell, guided=guided))
    pipe.close()
