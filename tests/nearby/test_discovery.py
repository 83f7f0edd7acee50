"""The table of announcers: bounds on what strangers cause, turns, backoff."""

import random

from zerochat.agent.nearby.announcement import Announcement
from zerochat.agent.nearby.discovery import (
    ADDRESS_MAX,
    ANNOUNCERS_MAX,
    DIALS_PER_MINUTE,
    EXPIRES_S,
    LISTENER_FIRST_S,
    RETRY_S,
    Announcers,
    State,
)

LOW, HIGH = bytes(32), b"\xff" * 32


def announced(number, port=1):
    return Announcement(port, number.to_bytes(32, "big"))


def heard(count, *, addresses=None, own=LOW, now=0.0):
    table = Announcers()
    for number in range(count):
        table.hear(f"192.0.2.{number % (addresses or count)}", announced(number + 1), own, now)
    return table


def test_a_thousand_keys_cost_a_bound():
    """Of one address, and of forged ones: the table, and the sessions of an hour."""
    assert len(heard(1_000, addresses=1)) == ADDRESS_MAX
    table = heard(1_000, addresses=1_000)
    assert len(table) == ANNOUNCERS_MAX
    dice, opened, key = random.Random(1), 0, 2_000
    for second in range(3_600):
        key += 1
        table.hear(f"198.51.100.{dice.randrange(250)}:{dice.randrange(9)}", announced(key), LOW, second)
        while (one := table.take_due(second)) is not None:
            table.failed(one, second)
            opened += 1
    assert 0 < opened <= 61 * DIALS_PER_MINUTE and len(table) <= ANNOUNCERS_MAX


def test_a_flood_from_one_address_leaves_a_turn_for_the_others():
    table = heard(ADDRESS_MAX, addresses=1)
    table.hear("192.0.2.99", announced(500), LOW, 0)
    first, second = table.take_due(0), table.take_due(0)
    assert {first.address, second.address} == {"192.0.2.0", "192.0.2.99"}
    assert table.take_due(0) is None, "one session at a time for each address"


def test_of_two_agents_the_one_with_the_smaller_key_dials_first():
    table = heard(1, own=HIGH)
    assert table.take_due(0) is None and table.take_due(LISTENER_FIRST_S) is not None
    assert heard(1, own=LOW).take_due(0) is not None


def test_failures_back_off_and_strangers_are_left_alone():
    table = heard(1)
    waits, now = [], 0.0
    for _ in range(8):
        table.hear("192.0.2.0", announced(1), LOW, now)
        one = table.take_due(now)
        table.failed(one, now)
        waits.append(one.due - now)
        now = one.due
    assert waits[:4] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 8 * RETRY_S] and waits[-1] == waits[-2] == 300
    table.ended(table.take_due(now), None)
    assert table.take_due(now + 1_000) is None
    table.start_anew(now + 1_000)
    assert table.take_due(now + 1_000).state is State.IN_SESSION


def test_what_is_no_longer_heard_is_forgotten():
    table = heard(3)
    table.hear("192.0.2.1", announced(2), LOW, EXPIRES_S)
    assert {one.address for one in table.expire(EXPIRES_S + 1)} == {"192.0.2.0", "192.0.2.2"} and len(table) == 1


def test_a_session_that_the_other_side_opened_spares_ours():
    """Also of an announcer that was a stranger: it has learned of us since."""
    table = heard(2, addresses=1)
    first = table.take_due(0)
    table.ended(first, None)
    for one in table.all:
        table.accepted(one.address, one.announcement.key, HIGH)
    table.accepted("192.0.2.0", HIGH, HIGH)
    assert table.take_due(0) is None
    assert [(one.state, one.host) for one in table.all] == [(State.FOUND, HIGH)] * 2
