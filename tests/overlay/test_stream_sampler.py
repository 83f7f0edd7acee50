"""The stream sampler: a fair share for attackers that inject half of the stream, with the non-zero minimum only."""

import random
from collections import Counter

import pytest

from tests.support.samplers import AlwaysEnters, LeastOfAllCells
from zerochat.overlay.stream_sampler import COUNT_MAX, MEMORY, StreamSampler

HONEST, HOSTILE, INJECTED = 300, 6, 0.5
FAIR = HOSTILE / (HONEST + HOSTILE)
SHARE_MAX = 2 * FAIR
STREAM, SKETCH = 20_000, {"rows": 5, "columns": 256}


def share(kind, seed, injected=INJECTED, stream=STREAM):
    """The attackers' part of the samples, after a quarter of the stream."""
    rng = random.Random(f"stream {seed}")
    sampler, found = kind(rng.randbytes(32), rng.randbytes, **SKETCH), Counter()
    for at in range(stream):
        hostile = rng.random() < injected
        sampler.observe(f"a{rng.randrange(HOSTILE)}" if hostile else f"h{rng.randrange(HONEST)}")
        if at > stream // 4 and at % 20 == 0:
            found.update(peer[0] for peer in sampler.peers)
    return found["a"] / found.total()


@pytest.mark.parametrize("injected", [0.5, 0.9])
def test_attackers_that_inject_much_have_a_fair_share(injected):
    shares = [share(StreamSampler, seed, injected) for seed in range(2)]
    assert max(shares) <= SHARE_MAX, shares


@pytest.mark.parametrize("kind", [LeastOfAllCells, AlwaysEnters])
def test_the_paper_s_minimum_and_no_sketch_exceed_the_share(kind):
    """With the least of all cells the first ids stay for ever: of a large sketch some cell is always zero."""
    shares = [share(kind, seed, stream=5_000) for seed in range(3)]
    assert sum(shares) / 3 > 5 * SHARE_MAX, shares


@pytest.mark.slow
def test_the_default_sketch_is_fair_among_a_thousand(figures):
    rng = random.Random(1)
    sampler, found = StreamSampler(rng.randbytes(32), rng.randbytes), Counter()
    for at in range(100_000):
        sampler.observe(f"a{rng.randrange(10)}" if rng.random() < 0.5 else f"h{rng.randrange(1_000)}")
        if at > 25_000 and at % 20 == 0:
            found.update(peer[0] for peer in sampler.peers)
    figures(f"stream sampler: attackers inject half and have {found['a'] / found.total():.2%} (fair {10 / 1010:.2%})")
    assert found["a"] / found.total() <= 2 * 10 / 1010


def test_honest_ids_are_sampled_alike():
    """Though some occur ten times as often."""
    rng, found = random.Random(2), Counter()
    sampler = StreamSampler(rng.randbytes(32), rng.randbytes, columns=128)
    ids = [f"rare{at}" for at in range(50)] + [f"often{at}" for at in range(50)] * 10
    for at in range(30_000):
        sampler.observe(rng.choice(ids))
        if at > 5_000 and at % 10 == 0:
            found.update(peer.rstrip("0123456789") for peer in sampler.peers)
    assert 0.8 < found["rare"] / found["often"] < 1.25


def test_the_sample_is_bounded_and_without_repetition():
    rng = random.Random(3)
    sampler = StreamSampler(rng.randbytes(32), rng.randbytes)
    assert sampler.sample() is None and sampler.least == 0
    for at in range(500):
        sampler.observe(f"p{at % 77}")
        assert len(set(sampler.peers)) == len(sampler.peers) <= MEMORY
    assert sampler.sample() in sampler.peers


def test_a_forgotten_peer_leaves_and_may_return():
    rng = random.Random(4)
    sampler = StreamSampler(rng.randbytes(32), rng.randbytes)
    assert sampler.observe("a") and not sampler.observe("a")
    sampler.forget("a")
    sampler.forget("a")
    assert sampler.peers == [] and sampler.observe("a")


def test_the_least_count_is_that_of_the_cells():
    rng = random.Random(5)
    sampler = StreamSampler(rng.randbytes(32), rng.randbytes, rows=4, columns=16)
    for at in range(2_000):
        sampler.observe(f"p{min(rng.randrange(40), rng.randrange(40))}")
        if at % 500 == 499:
            sampler.decay()
        assert sampler.least == min(filter(None, sampler._cells))


def test_counters_never_overflow():
    rng = random.Random(6)
    sampler = StreamSampler(rng.randbytes(32), rng.randbytes, rows=2, columns=1)
    sampler.observe("a")
    for cell in range(2):
        sampler._cells[cell] = COUNT_MAX - 1
    sampler.observe("a")
    assert max(sampler._cells) == COUNT_MAX // 2
