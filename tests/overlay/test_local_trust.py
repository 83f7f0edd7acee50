"""Local trust: acquaintance counts, strangers stay, verdicts exclude; and weighted sampling."""

import random
from collections import Counter

import pytest

from zerochat.overlay.local_trust import (
    DECAY,
    SAME_GROUP,
    STRANGER,
    TRUST_MIN,
    VERIFIED,
    Acquaintance,
    introduced,
    own_trust,
    weighted_sample,
)


def test_trust_grows_with_acquaintance_and_falls_with_verdicts():
    steps = [Acquaintance(), Acquaintance(friends=3), Acquaintance(groups=1), Acquaintance(verified=True, groups=2)]
    found = [own_trust(one) for one in steps]
    assert found == sorted(set(found)) == [0.1, 0.4, 0.6, 1.0]
    assert own_trust(Acquaintance(verified=True, verdicts=1)) == 0.5
    assert own_trust(Acquaintance(groups=1, verdicts=1)) < TRUST_MIN
    assert own_trust(Acquaintance(verdicts=9)) == 0.0


@pytest.mark.parametrize(
    ("own", "source", "expected"),
    [
        (STRANGER, STRANGER, STRANGER),
        (STRANGER, VERIFIED, VERIFIED * DECAY),
        (STRANGER, SAME_GROUP, SAME_GROUP * DECAY),
        (SAME_GROUP, VERIFIED, SAME_GROUP),
        (SAME_GROUP, STRANGER, SAME_GROUP),
        (0.0, VERIFIED, 0.0),
    ],
)
def test_a_source_lends_its_trust_to_strangers_only(own, source, expected):
    assert introduced(own, source) == pytest.approx(expected)


def test_the_paper_s_product_would_drop_every_stranger():
    """The ablation: among strangers no entry reaches the limit."""
    assert STRANGER * STRANGER * DECAY < TRUST_MIN <= introduced(STRANGER, STRANGER)


def test_a_weighted_sample_follows_the_weights():
    weights, rng, found = {"a": 1.0, "b": 0.1, "c": 0.1, "d": 0.0}, random.Random(1).randbytes, Counter()
    for _ in range(3_000):
        found.update(weighted_sample(weights, 1, rng))
    assert abs(found["a"] / 3_000 - 1 / 1.2) < 0.03 and found["d"] == 0
    assert abs(found["b"] - found["c"]) < 80


def test_a_weighted_sample_is_without_replacement_and_bounded():
    weights, rng = {str(at): 0.1 + at % 3 for at in range(30)}, random.Random(2).randbytes
    for count in (0, 1, 20, 30, 40):
        found = weighted_sample(weights, count, rng)
        assert len(set(found)) == len(found) == min(count, 30)
    assert weighted_sample({"a": 0.0}, 3, rng) == []
