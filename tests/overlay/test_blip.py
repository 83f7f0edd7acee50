"""BLIP filters: they rank by common subscriptions, and hide the filter only while the noise stays the same."""

import random

import pytest

from zerochat.overlay.blip import BITS, FLIPPED, HASHES, bits_of, blip, bloom, is_plausible, matches, similarity

SECRET = bytes(32)
EXCHANGES = 100


def tags_of(rng, count):
    return [rng.randbytes(8) for _ in range(count)]


def ranked(subscriptions, trials, seed, *, both=False):
    """How often a filter with a quarter of our subscriptions ranks above one with none."""
    rng, found = random.Random(f"blip {seed}"), 0
    for _ in range(trials):
        tags = tags_of(rng, subscriptions)
        own = blip(tags, rng.randbytes(32), 0) if both else bloom(tags)
        common = subscriptions // 4
        near = blip([*tags[:common], *tags_of(rng, subscriptions - common)], rng.randbytes(32), 0)
        far = blip(tags_of(rng, subscriptions), rng.randbytes(32), 0)
        found += similarity(own, near) > similarity(own, far)
    return found / trials


@pytest.mark.parametrize(("subscriptions", "least"), [(20, 0.96), (100, 0.99)])
def test_a_quarter_in_common_ranks_above_none(subscriptions, least):
    assert ranked(subscriptions, 150, 1) >= least


@pytest.mark.slow
@pytest.mark.parametrize(("subscriptions", "least"), [(20, 0.96), (100, 0.99)])
def test_many_rankings(subscriptions, least, figures):
    found = ranked(subscriptions, 1_000, 2)
    figures(f"BLIP, {subscriptions} subscriptions: a quarter in common ranks above none in {found:.3f}")
    assert found >= least


def test_noise_on_both_sides_loses_the_ranking():
    assert ranked(20, 200, 3, both=True) < 0.96


def majority(filters):
    """What an observer of many exchanges takes for the true filter."""
    return sum(1 << at for at in range(BITS) if sum(one >> at & 1 for one in filters) > len(filters) / 2)


def wrong_bits(filters, true):
    return (majority(filters) ^ true).bit_count() / BITS


def test_only_memoised_noise_hides_the_filter_from_many_exchanges():
    """The ablation draws the noise anew at each exchange: a majority of bits is the true filter."""
    rng = random.Random(4)
    tags = tags_of(rng, 20)
    true = bloom(tags)
    memoised = [blip(tags, SECRET, 0) for _ in range(EXCHANGES)]
    fresh = [blip(tags, rng.randbytes(32), 0) for _ in range(EXCHANGES)]
    assert abs(wrong_bits(memoised, true) - FLIPPED) < 0.04
    assert wrong_bits(fresh, true) < 0.001


def test_a_change_of_subscriptions_changes_only_their_bits():
    rng = random.Random(5)
    tags, new = tags_of(rng, 20), rng.randbytes(8)
    changed = blip(tags, SECRET, 0) ^ blip([*tags, new], SECRET, 0)
    assert changed & ~bits_of(new) == 0
    assert blip(tags, SECRET, 0) == blip(list(reversed(tags)), SECRET, 0)


def test_noise_differs_by_epoch_and_secret_and_has_its_probability():
    rng = random.Random(6)
    tags = tags_of(rng, 20)
    shown = [blip(tags, SECRET, 0), blip(tags, SECRET, 1), blip(tags, rng.randbytes(32), 0)]
    assert len(set(shown)) == 3
    flipped = [(one ^ bloom(tags)).bit_count() / BITS for one in shown]
    assert all(abs(part - FLIPPED) < 0.04 for part in flipped)


@pytest.mark.parametrize("subscriptions", [0, 1, 20, 200])
def test_honest_filters_are_plausible(subscriptions):
    rng = random.Random(7)
    assert all(is_plausible(blip(tags_of(rng, subscriptions), rng.randbytes(32), 0)) for _ in range(20))


@pytest.mark.parametrize("shown", [0, -1, (1 << BITS) - 1, 1 << BITS, sum(1 << at for at in range(0, BITS, 16))])
def test_other_filters_are_not(shown):
    assert not is_plausible(shown)


def test_similarity_is_a_correlation():
    rng = random.Random(8)
    one, other = bloom(tags_of(rng, 50)), bloom(tags_of(rng, 50))
    assert similarity(one, one) == pytest.approx(1) and abs(similarity(one, other)) < 0.1
    everything = (1 << BITS) - 1
    assert similarity(one, everything ^ one) == pytest.approx(-1)
    assert similarity(one, 0) == similarity(one, everything) == 0


def test_a_subscriber_s_filter_matches_its_tags():
    rng = random.Random(9)
    tags = tags_of(rng, 100)
    assert all(matches(bloom(tags), tag) == 1 for tag in tags)
    assert all(1 <= bits_of(tag).bit_count() <= HASHES for tag in tags)
    shown = blip(tags, SECRET, 0)
    others = [matches(shown, tag) for tag in tags_of(rng, 300)]
    assert sum(matches(shown, tag) for tag in tags) / 100 > 0.7 > 0.5 > sum(others) / 300
