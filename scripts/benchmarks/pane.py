"""The message pane: the cost of a long conversation on the screen, beside Textual's `RichLog` and a widget per message.

Each program draws to a pseudo-terminal of 120x40 and is timed on its far side: from the key, or from the arrival, until
the bytes that show it are there. Ours is the whole chat over a control socket, which reads pages from the journal while
scrolling up; the others hold the same messages in memory. A peer that would take minutes has fewer messages, as its
name says. `RichLog` can neither insert a late message nor wrap again for another width.

A peer that does not paint in time is missing from that case on; so are the cases beyond the time limit of twenty
minutes. Progress is printed on standard error.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks import Figure, Report, Row, Scale, scaled
from benchmarks.ours.chatter import token
from benchmarks.ours.terminals import NotPainted, Terminal
from benchmarks.startup import environment_in, resident_mb

T = TypeVar("T")

OURS = Path(__file__).parent / "ours"
MESSAGES = 100_000
BURST = 10_000
FRAMES_MS = 33.0
STALL_MS = 100.0
GROWTH_MB = 30.0
SCREEN_BYTES = 600
"""More than a blinking cursor writes, less than any page of text."""
PAGES_BACK = 120
"""So many screens up are some 15 pages of the journal."""
WHOLE_S_MAX = 20 * 60
"""Beyond this only ours runs."""
TELL_S = 5.0


class Program:
    """One running program: how to drive it, and its costs."""

    def __init__(self, name: str, command: Sequence[str], home: Path, burst: int) -> None:
        self.name, self.burst = name, burst
        self.report = home.with_suffix(".stall")
        self.terminal = Terminal([*command, str(self.report)], environment_in(home), columns=120, lines=40)
        self.next = 0
        self.absent = ""
        """Why it is measured no more, in a few words; empty: it is."""
        self.terminal.until(lambda: None, "\x1b[?1049h")
        self.terminal.settle(1.0)
        self.before_mb = resident_mb(self.terminal.child)

    def open(self) -> None: ...

    def say(self, count: int) -> None: ...

    def late(self) -> None: ...

    def close(self) -> None:
        self.terminal.close()

    # --- figures -----------------------------------------------------------------------------------------------------

    def load_ms(self) -> float:
        self.terminal.settle()
        return self.terminal.until(self.open, token(self.next - 5))  # whatever is at the very bottom

    def key_ms(self, key: bytes, back: bytes = b"") -> float:
        self.terminal.settle()
        took = self.terminal.until(lambda: self.terminal.write(key), size=SCREEN_BYTES)
        if back:
            self.terminal.write(back)
        return took

    def letter_ms(self, letter: str) -> float:
        self.terminal.settle()
        return self.terminal.until(lambda: self.terminal.write(letter.encode()), letter)

    def append_ms(self) -> float:
        self.terminal.settle()
        self.next += 1
        return self.terminal.until(lambda: self.say(1), token(self.next - 1))

    def late_ms(self) -> float:
        self.terminal.settle()
        self.next += 1
        return self.terminal.until(self.late, token(self.next - 1))

    def resize_ms(self, columns: int) -> float:
        self.terminal.settle()
        return self.terminal.until(lambda: self.terminal.resize(columns, 40), size=2 * SCREEN_BYTES)

    def stall_ms(self) -> tuple[float, float]:
        """The longest in a burst: by the clock, and how much of the processor's time one took at most."""
        self.terminal.settle()
        self.reported()
        self.next += self.burst
        self.terminal.until(lambda: self.say(self.burst), token(self.next - 1), within_s=300)
        self.terminal.settle()
        return self.reported()

    def reported(self) -> tuple[float, float]:
        self.report.unlink(missing_ok=True)
        self.terminal.signal_user()
        deadline = time.monotonic() + 60
        while not self.report.exists() and time.monotonic() < deadline:
            self.terminal.drain(0.01)
        if not self.report.exists():
            raise NotPainted(self.terminal.command, "its longest stall", 60)
        longest, hardest = map(float, self.report.read_text().split())
        return longest, hardest

    def growth_mb(self) -> float:
        return resident_mb(self.terminal.child) - self.before_mb


class Ours(Program):
    def __init__(self, folder: Path, messages: int, burst: int) -> None:
        self.socket = folder / "agent.sock"
        self.crier = subprocess.Popen(
            [sys.executable, str(OURS / "crier.py"), str(self.socket), str(messages)],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        deadline = time.monotonic() + 60
        while not self.socket.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        command = [sys.executable, str(OURS / "screens.py"), "ours", str(self.socket)]
        super().__init__(f"ours, {messages:,}", command, folder / "ours", burst)
        self.next = messages

    def _tell(self, line: str) -> None:
        assert self.crier.stdin is not None
        self.crier.stdin.write(line.encode() + b"\n")
        self.crier.stdin.flush()

    def open(self) -> None:
        self._tell("open")

    def say(self, count: int) -> None:
        self._tell(f"say {count}")

    def late(self) -> None:
        self._tell("late_event")

    def close(self) -> None:
        super().close()
        assert self.crier.stdin is not None
        self.crier.stdin.close()
        self.crier.wait(10)


class Theirs(Program):
    def __init__(self, folder: Path, kind: str, label: str, messages: int, burst: int) -> None:
        command = [sys.executable, str(OURS / "screens.py"), kind, str(messages)]
        super().__init__(f"{label}, {messages:,}", command, folder / kind, burst)
        self.next = messages

    def open(self) -> None:
        self.terminal.write(b"o")

    def say(self, count: int) -> None:
        self.terminal.write({1: b"a", 1_000: b"c", BURST: b"b"}[count])

    def late(self) -> None:
        self.terminal.write(b"l")


class Course:
    """The programs and their cases."""

    def __init__(self, ours: Ours, others: Sequence[Theirs], rounds: int) -> None:
        self.ours, self.programs, self.rounds = ours, [ours, *others], rounds
        self.rows: list[Row] = []
        self._began = self._told = time.monotonic()

    def values_of(
        self, case: str, programs: Sequence[Program], run: Callable[[Program], T], rounds: int
    ) -> dict[str, list[T]]:
        """By program, the figure of each round; in turn, forward and backward. A program that fails gets no figure: it
        would be the figure of its better rounds alone."""
        values: dict[str, list[T]] = {one.name: [] for one in programs if not one.absent}
        for round_ in range(rounds):
            self._tell(case, round_, rounds)
            for one in list(programs)[:: 1 if round_ % 2 == 0 else -1]:
                if one is not self.ours and time.monotonic() - self._began > WHOLE_S_MAX:
                    one.absent = one.absent or f"no time left after {WHOLE_S_MAX // 60} minutes"
                if not one.absent:
                    try:
                        values[one.name].append(run(one))
                    except NotPainted as error:
                        if one is self.ours:
                            raise
                        one.absent = error.briefly
                if one.absent:
                    values.pop(one.name, None)
        return values

    def add(
        self, case: str, run: Callable[[Program], float], rounds: int, *, only: Sequence[Program] = (), **about: Any
    ) -> None:
        """Measure a case. `only`: these programs; `about`: more of its `Row`."""
        programs = only or self.programs
        values = self.values_of(case, programs, run, rounds)
        self.put(case, {name: Figure.of(each) for name, each in values.items()}, programs, **about)

    def put(
        self,
        case: str,
        figures: Mapping[str, Figure],
        programs: Sequence[Program],
        *,
        unit: str = "ms",
        goal: float | None = None,
    ) -> None:
        peers = {name: figure for name, figure in figures.items() if name != self.ours.name}
        absent = {one.name: one.absent for one in programs if one.absent}
        self.rows.append(Row(case, unit, "lower", figures[self.ours.name], peers=peers, goal=goal, absent=absent))

    def _tell(self, case: str, round_: int, rounds: int) -> None:
        now = time.monotonic()
        if round_ == 0 or now - self._told > TELL_S:
            self._told = now
            print(f"{now - self._began:6.0f} s  {case}: {round_ + 1} of {rounds}", file=sys.stderr, flush=True)


def measure(quick: bool) -> Report:
    rounds, messages, log_messages, static_messages = scaled(
        quick, (25, MESSAGES, 20_000, 1_000), (7, MESSAGES, 5_000, 300), (1, 2_000, 300, 100)
    )
    burst = 1_000 if Scale.smoke else BURST
    with tempfile.TemporaryDirectory(prefix="zerochat-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        ours = Ours(folder, messages, burst)
        stack.callback(ours.close)
        log = Theirs(folder, "richlog", "RichLog", log_messages, burst)
        stack.callback(log.close)
        statics = Theirs(folder, "statics", "a Static each", static_messages, 1_000)
        stack.callback(statics.close)
        return Report(_rows(Course(ours, [log, statics], rounds), ours, statics))


def _rows(course: Course, ours: Ours, statics: Theirs) -> list[Row]:
    rounds = course.rounds
    course.add("load, until the newest messages can be read", Program.load_ms, 1)
    letters = iter("жюэщфцъшыбдлпгйияз" * 9)
    course.add("key to paint: a letter", lambda one: one.letter_ms(next(letters)), rounds, only=[ours], goal=FRAMES_MS)
    course.add("key to paint: a page up", lambda one: one.key_ms(b"\x1b[5~", b"\x1b[6~"), rounds, goal=FRAMES_MS)
    course.add("a message arrives, until it is painted", Program.append_ms, rounds)
    course.add("a late message comes in above the last ones", Program.late_ms, rounds, only=[ours, statics])
    width_of = {one.name: 120 for one in course.programs}

    def resize(one: Program) -> float:
        width_of[one.name] = 220 - width_of[one.name]
        return one.resize_ms(width_of[one.name])

    course.add("another width", resize, max(rounds // 3, 2) * 2)
    pages = 3 if Scale.smoke else PAGES_BACK
    case = f"{pages} pages up in a row, with the journal's pages: each"
    back = course.values_of(case, [ours], lambda one: one.key_ms(b"\x1b[5~"), pages)[ours.name]
    course.put(case, {ours.name: Figure.of(back)}, [ours], goal=FRAMES_MS)
    slowest = sorted(back)[-1 - len(back) // 20]
    figure = Figure(slowest, median(back), max(back))
    course.put("the same, the slowest in twenty", {ours.name: figure}, [ours], goal=STALL_MS)
    ours.terminal.write(b"\x1b[1;5F")
    case = f"the longest stall in a burst of {ours.burst:,} (a Static each: 1,000)"
    stalls = course.values_of(case, course.programs, Program.stall_ms, 1 if rounds < 10 else 3)
    for at, what in enumerate(("by the clock", "its own work alone")):
        figures = {name: Figure.of([each[at] for each in found]) for name, found in stalls.items()}
        course.put(f"{case}, {what}", figures, course.programs, goal=STALL_MS)
    course.add("memory that all of this has taken", Program.growth_mb, 1, unit="MB", goal=GROWTH_MB)
    return course.rows
