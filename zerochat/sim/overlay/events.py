"""Discrete events in virtual time, with a binary heap; models of latency."""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from math import exp, log
from typing import Any, TypeAlias

MEDIAN_MS, P95_MS = 50.0, 180.0
Z95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""
Latency: TypeAlias = Callable[[], float]
"""The one-way delay of one copy, in ms."""


def constant(ms: float) -> Latency:
    """Equal delays: then the first copy has come over the fewest hops, as in rounds."""
    return lambda: ms


def lognormal(rng: random.Random, median: float = MEDIAN_MS, p95: float = P95_MS) -> Latency:
    """Lognormal delays with this median and 95th percentile, in ms."""
    sigma = log(p95 / median) / Z95
    return lambda: median * exp(sigma * rng.gauss(0.0, 1.0))


class Events:
    """Calls at their time, in the order of time and then of their arrival here."""

    def __init__(self) -> None:
        self.now = 0.0
        """ms."""
        self.count = 0
        """How many calls have run."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def after(self, ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heappush(self._heap, (self.now + ms, self._number, call, arguments))

    def run(self, until: float = float("inf")) -> None:
        """Run everything up to this time, or until nothing is left."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, call, arguments = heappop(heap)
            self.count += 1
            call(*arguments)
        if until < float("inf"):
            self.now = max(self.now, until)
