"""Two-sample Kolmogorov-Smirnov comparison of hop distributions, by permutation of whole messages.

The textbook p-value does not hold here: the hops of one message depend on each other, since its first few copies decide
how far it is everywhere, and hops are whole numbers. So the statistic is the usual one, and its distribution is found
by dealing the messages, each with all of its hops, to the two samples at random.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

ROUNDS = 999
"""Permutations: the least p is one thousandth."""
TOLERANCE = 1e-12
"""Statistics that differ by rounding are equal."""


class HopComparison(NamedTuple):
    statistic: float
    """The largest distance of the two distribution functions, 0 to 1."""
    p: float
    """How often a random deal of the messages has as large a one, if both samples have one distribution."""


def ks_statistic(one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """The Kolmogorov-Smirnov statistic of two samples, each as how often it has a value. Raises ValueError if one of
    them is empty."""
    if not any(one.values()) or not any(other.values()):
        raise ValueError("an empty sample has no distribution")
    values = sorted({*one, *other})
    first, second = (_distribution(sample, values) for sample in (one, other))
    return max(abs(here - there) for here, there in zip(first, second, strict=True))


def _distribution(sample: Mapping[int, int], values: Iterable[int]) -> list[float]:
    """The part of a sample up to each of these values."""
    total = sum(sample.values())
    return [count / total for count in accumulate(sample.get(value, 0) for value in values)]


def compare_hops(
    one: Sequence[Mapping[int, int]], other: Sequence[Mapping[int, int]], rng: random.Random, rounds: int = ROUNDS
) -> HopComparison:
    """Compare two samples of messages; a message is how many members its first copy reached over so many hops. The
    least p is 1 / (rounds + 1). Raises ValueError if one of them is empty."""
    found = ks_statistic(pooled(one), pooled(other))
    messages, as_large = [*one, *other], 0
    for _ in range(rounds):
        rng.shuffle(messages)
        dealt = ks_statistic(pooled(messages[: len(one)]), pooled(messages[len(one) :]))
        as_large += dealt >= found - TOLERANCE
    return HopComparison(found, (as_large + 1) / (rounds + 1))


def pooled(messages: Iterable[Mapping[int, int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for message in messages:
        total.update(message)
    return total
