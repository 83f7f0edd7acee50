"""The message pane: what a long conversation costs the screen, beside Textual's `RichLog` and one widget per message.

Each program draws to a pseudo-terminal of 120x40 and is timed on its far side: from the key, or from the arrival, until
the bytes that show it are there. Ours is the whole chat over a control socket, with the journal's pages read as one
goes up; the others have the same messages in memory, and no socket. Where one of them would take minutes it has fewer
messages, as its name says. `RichLog` cannot put a late message in its place, nor wrap again for another width.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks import Figure, Report, Row
from benchmarks.ours.chatter import token
from benchmarks.ours.terminals import Terminal
from benchmarks.startup import environment_in, resident_mb

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


class Program:
    """One of them, running: how it is told to do something, and what it costs."""

    def __init__(self, name: str, command: Sequence[str], home: Path, burst: int) -> None:
        self.name, self.burst = name, burst
        self.report = home.with_suffix(".stall")
        self.terminal = Terminal([*command, str(self.report)], environment_in(home), columns=120, lines=40)
        self.next = 0
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
        self._tell("late")

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


def figures_of(programs: Sequence[Program], run: Callable[[Program], float], rounds: int) -> dict[str, Figure]:
    """In turn, there and back."""
    values: dict[str, list[float]] = {one.name: [] for one in programs}
    for turn in range(rounds):
        for one in list(programs)[:: 1 if turn % 2 == 0 else -1]:
            values[one.name].append(run(one))
    return {name: Figure.of(each) for name, each in values.items()}


def measure(quick: bool) -> Report:
    rounds = 7 if quick else 25
    with tempfile.TemporaryDirectory(prefix="zerochat-bench-") as name:
        folder = Path(name)
        ours = Ours(folder, MESSAGES, BURST)
        log = Theirs(folder, "richlog", "RichLog", 5_000 if quick else 20_000, BURST)
        statics = Theirs(folder, "statics", "a Static each", 300 if quick else 1_000, 1_000)
        programs: list[Program] = [ours, log, statics]
        try:
            return Report(_rows(ours, log, statics, rounds))
        finally:
            for one in programs:
                one.close()


def _rows(ours: Ours, log: Theirs, statics: Theirs, rounds: int) -> list[Row]:
    rows: list[Row] = []
    programs = [ours, log, statics]

    def add(case: str, unit: str, figures: dict[str, Figure], goal: float | None = None) -> None:
        peers = {name: figure for name, figure in figures.items() if name != ours.name}
        rows.append(Row(case, unit, "lower", figures[ours.name], peers=peers, goal=goal))

    add("load, until the newest messages can be read", "ms", figures_of(programs, Program.load_ms, 1))
    letters = iter("жюэщфцъшыбдлпгйияз" * 9)
    add("key to paint: a letter", "ms", figures_of([ours], lambda one: one.letter_ms(next(letters)), rounds), FRAMES_MS)
    up = figures_of(programs, lambda one: one.key_ms(b"\x1b[5~", b"\x1b[6~"), rounds)
    add("key to paint: a page up", "ms", up, FRAMES_MS)
    add("a message arrives, until it is painted", "ms", figures_of(programs, Program.append_ms, rounds))
    late = figures_of([ours, statics], Program.late_ms, rounds)
    add("a late message comes in above the last ones", "ms", late)
    width_of = {one.name: 120 for one in programs}

    def resize(one: Program) -> float:
        width_of[one.name] = 220 - width_of[one.name]
        return one.resize_ms(width_of[one.name])

    add("another width", "ms", figures_of(programs, resize, max(rounds // 3, 2) * 2))
    back = [ours.key_ms(b"\x1b[5~") for _ in range(PAGES_BACK)]
    add(
        f"{PAGES_BACK} pages up in a row, with the journal's pages: each", "ms", {ours.name: Figure.of(back)}, FRAMES_MS
    )
    slowest = sorted(back)[-1 - len(back) // 20]
    add("the same, the slowest in twenty", "ms", {ours.name: Figure(slowest, median(back), max(back))}, STALL_MS)
    ours.terminal.write(b"\x1b[1;5F")
    stalls = [(one.name, one.stall_ms()) for _ in range(1 if rounds < 10 else 3) for one in programs]
    for at, what in enumerate(("by the clock", "its own work alone")):
        figures = {one.name: Figure.of([each[at] for name, each in stalls if name == one.name]) for one in programs}
        case = f"the longest stall in a burst of {BURST:,} (a Static each: 1,000), {what}"
        add(case, "ms", figures, STALL_MS)
    add("memory that all of this has taken", "MB", figures_of(programs, Program.growth_mb, 1), GROWTH_MB)
    return rows
