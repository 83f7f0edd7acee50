"""Progress of a run on standard error: one line per step, or a bar on a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from zerochat.terminal_text import printable_line

BAR_CELLS = 20
TEXT_CELLS_MAX = 100


class Progress:
    """`total`: expected steps; `quiet`: print nothing; `out`: stream instead of standard error."""

    def __init__(self, total: int, quiet: bool = False, out: TextIO | None = None) -> None:
        self._total, self._quiet, self._out = total, quiet, out or sys.stderr
        self._done = 0
        self._alive = not quiet and self._out.isatty()
        self.took_s: dict[str, float] = {}
        """Duration of each step by title."""

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        if self._alive:
            full = BAR_CELLS * self._done // max(self._total, 1)
            bar = "#" * full + "." * (BAR_CELLS - full)
            self._out.write(f"\r\x1b[K[{bar}] {title}")
            self._out.flush()
        begun = time.monotonic()
        yield
        took = time.monotonic() - begun
        self._done += 1
        self.took_s[title] = self.took_s.get(title, 0.0) + took
        self.line(f"[{self._done:2}/{self._total}] {title}: {took:.1f} s")

    def restart(self) -> None:
        """Count the steps from zero again."""
        self._done = 0

    def line(self, text: str) -> None:
        """Print a permanent line."""
        if not self._quiet:
            self._out.write(("\r\x1b[K" if self._alive else "") + str(printable_line(text, TEXT_CELLS_MAX)) + "\n")
            self._out.flush()
