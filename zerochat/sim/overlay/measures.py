"""What a simulated dissemination counts, and the figures made of it."""

from collections import Counter
from collections.abc import Sequence
from math import ceil

from msgspec import Struct

from zerochat.sim.world import Violation


def percentile(values: Sequence[float], part: float) -> float:
    """The nearest-rank percentile of sorted values: the least that `part` (0 to 1) of them do not exceed; 0 of none."""
    return values[max(0, ceil(part * len(values)) - 1)] if values else 0.0


class Figures(Struct, frozen=True):
    """The figures of one run, as they are usually defined.

    `hit_ratio`: deliveries per live member and message, without the authors. `copies`: payloads sent per delivery, and
    `control`: other messages sent per delivery. Hops are those of the first copy. Latencies in ms."""

    deliveries: int
    hit_ratio: float
    copies: float
    control: float
    hops_mean: float
    hops_p99: int
    hops_max: int
    latency_p50: float
    latency_p95: float
    latency_p99: float
    latency_max: float


class Measures:
    """Counts of one run. `copies_max`: more copies than this raise Violation, since a protocol that does not recognise
    duplicates would not end."""

    def __init__(self, copies_max: int) -> None:
        self.copies = self.control = self.due = 0
        self.hops: dict[str, Counter[int]] = {}
        """By message: how many members its first copy reached over so many hops."""
        self.latencies: list[float] = []
        self._copies_max = copies_max
        self._published_at: dict[str, float] = {}

    @property
    def deliveries(self) -> int:
        return len(self.latencies)

    def publish(self, message: str, now: float, due: int) -> None:
        """A message is on its way to `due` live members other than its author."""
        self._published_at[message] = now
        self.hops[message] = Counter()
        self.due += due

    def send(self) -> None:
        """One copy is sent."""
        self.copies += 1
        if self.copies > self._copies_max:
            raise Violation(f"more than {self._copies_max:,} copies: duplicates are forwarded")

    def deliver(self, message: str, now: float, hops: int) -> None:
        """The first copy has reached a live member."""
        self.hops[message][hops] += 1
        self.latencies.append(now - self._published_at[message])

    def figures(self) -> Figures:
        hops = sum(self.hops.values(), Counter())
        by_member, latencies = sorted(hops.elements()), sorted(self.latencies)
        each = max(1, self.deliveries)
        return Figures(
            deliveries=self.deliveries,
            hit_ratio=self.deliveries / max(1, self.due),
            copies=self.copies / each,
            control=self.control / each,
            hops_mean=sum(by_member) / each,
            hops_p99=int(percentile(by_member, 0.99)),
            hops_max=max(hops, default=0),
            latency_p50=percentile(latencies, 0.5),
            latency_p95=percentile(latencies, 0.95),
            latency_p99=percentile(latencies, 0.99),
            latency_max=latencies[-1] if latencies else 0.0,
        )
