"""Acknowledgement sets: merging in any order gives the same, adds no member without a source, and stays bounded."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat.overlay.ack_sets import (
    GRIDS,
    KEPT,
    SETS_MAX,
    AckSet,
    bits_of,
    bytes_of,
    distinct,
    holders,
    merged,
    moved,
    places_of,
    reordered,
)

MEMBERS = 12
SEQS = st.one_of(st.integers(1, 40), st.integers(1, 3 * GRIDS[-1]), st.integers(0, 2**53))
REPORTS = st.lists(st.tuples(SEQS, st.integers(0, 2**MEMBERS - 1)), max_size=25)


def merge(reports, sets=()):
    for number, (seq, bits) in enumerate(reports, start=1):
        sets = merged(sets, seq, bits, number)
    return sets


def content(sets):
    return [(one.seq, one.members) for one in sets]


def known(reports, seq):
    """The members that some report has at this position or beyond."""
    found = 0
    for upto, bits in reports:
        found |= bits if upto >= seq else 0
    return found


@given(REPORTS, st.randoms())
@settings(max_examples=200)
def test_the_order_of_merging_does_not_matter(reports, random):
    shuffled = [*reports, *random.choices(reports, k=len(reports) // 2)] if reports else []
    random.shuffle(shuffled)
    assert content(merge(shuffled)) == content(merge(reports))


@given(REPORTS)
@settings(max_examples=200)
def test_each_set_is_the_union_of_the_reports_from_there_on(reports):
    for one in merge(reports):
        assert bits_of(one.members) == known(reports, one.seq)
        assert one.seq <= max(seq for seq, _ in reports)


@given(REPORTS)
def test_sets_are_few_ascending_and_contain_the_next(reports):
    sets = merge(reports)
    seqs, members = [one.seq for one in sets], [bits_of(one.members) for one in sets]
    assert len(sets) <= SETS_MAX and seqs == sorted(set(seqs)) and 0 not in seqs
    assert all(later & ~earlier == 0 for earlier, later in pairwise(members))


@given(REPORTS)
def test_the_last_position_has_a_set(reports):
    last = max((seq for seq, bits in reports if seq and bits), default=0)
    sets = merge(reports)
    assert (sets[-1].seq if sets else 0) == last


@given(REPORTS, st.tuples(SEQS, st.integers(0, 2**MEMBERS - 1)))
def test_what_says_nothing_new_changes_nothing(reports, more):
    sets = merge([*reports, more])
    seq, bits = more
    assert merged(sets, seq, bits, 1000) is sets
    for one in sets:
        assert merged(sets, one.seq, bits_of(one.members), 1000) is sets


@given(REPORTS, REPORTS)
def test_exchanging_the_sets_that_say_something_makes_two_members_agree(here, there):
    """Not on each position, since they keep different ones; but on who has the positions that either has."""
    ours, theirs = merge(here), merge(there)
    both = merge([(one.seq, bits_of(one.members)) for one in distinct(theirs)], ours)
    again = merge([(one.seq, bits_of(one.members)) for one in distinct(ours)], theirs)
    for one in both:
        if any(one.seq == other.seq for other in again):
            assert holders(again, one.seq) == bits_of(one.members)
    if both:
        assert both[-1].seq == again[-1].seq and both[-1].members == again[-1].members


@given(REPORTS)
def test_a_set_has_the_number_of_its_last_change(reports):
    sets: tuple[AckSet, ...] = ()
    for number, (seq, bits) in enumerate(reports, start=1):
        before, sets = {one.seq: one for one in sets}, merged(sets, seq, bits, number)
        for one in sets:
            is_same = one.seq in before and before[one.seq].members == one.members
            assert one.changed == (before[one.seq].changed if is_same else number)


def test_a_chain_that_goes_on_keeps_old_positions():
    """While an author posts, one set stays in place long enough to fill up."""
    sets: tuple[AckSet, ...] = ()
    for seq in range(1, 10 * GRIDS[-1]):
        sets = merged(sets, seq, 1, seq)
        if seq > KEPT * GRIDS[-1]:
            assert seq - sets[0].seq >= GRIDS[-1]


@given(REPORTS, st.permutations(range(MEMBERS)), st.integers(0, MEMBERS))
def test_members_keep_their_bits_when_the_order_changes(reports, order, gone):
    before = [f"m{place}" for place in range(MEMBERS)]
    after = {f"m{place}": at for at, place in enumerate([MEMBERS, *order[gone:]])}
    for one, other in zip(merge(reports), reordered(merge(reports), before, after), strict=True):
        assert {before[place] for place in places_of(bits_of(one.members))} & after.keys() == {
            member for member, at in after.items() if bits_of(other.members) >> at & 1
        }
        assert (one.seq, one.changed) == (other.seq, other.changed)


def test_bits_beyond_the_members_are_dropped_with_a_new_order():
    assert moved(0b1011, [1, None]) == 0b10


def test_an_order_that_keeps_all_places_changes_nothing():
    sets = merge([(3, 5)])
    assert reordered(sets, ["a", "b", "c"], {"a": 0, "b": 1, "c": 2, "d": 3}) is sets


@given(st.integers(0, 2**200))
def test_bitmaps_are_read_as_they_were_written(bits):
    assert bits_of(bytes_of(bits)) == bits
    assert sum(1 << place for place in places_of(bits)) == bits
    assert not bytes_of(bits).endswith(b"\0")


@pytest.mark.parametrize(("coarse", "fine"), [(GRIDS[2], GRIDS[1]), (GRIDS[1], GRIDS[0])])
def test_a_finer_grid_has_the_positions_of_a_coarser_one(coarse, fine):
    assert coarse % fine == 0
