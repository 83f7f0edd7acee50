"""Start-time fair queueing of inputs."""

import random

import pytest

from zerochat.agent.fair_queue import FairQueue


def drained(queue, cost):
    order = []
    while queue:
        source = queue.next_source()
        order.append((source, queue.take()))
        queue.charge(source, cost(source))
    return order


def test_a_source_keeps_its_order():
    queue = FairQueue[int]()
    for number in range(5):
        queue.put("one", number)
    assert drained(queue, lambda _: 1.0) == [("one", number) for number in range(5)]
    assert not queue and not queue.size


def test_a_newcomer_is_served_after_one_item_of_a_flood():
    queue = FairQueue[int]()
    for number in range(1_000):
        queue.put("flood", number)
    for _ in range(100):
        queue.take()
        queue.charge("flood", 3.0)
    queue.put("member", 7)
    assert queue.next_source() == "member" and queue.take() == 7


def test_sources_share_by_cost_not_by_number():
    queue = FairQueue[int]()
    for number in range(100):
        queue.put("dear", number)
        queue.put("cheap", number)
    order = [source for source, _ in drained(queue, lambda source: 10.0 if source == "dear" else 1.0)]
    assert order[:55].count("dear") == pytest.approx(5, abs=1)


def test_idle_time_earns_no_credit():
    queue = FairQueue[int]()
    queue.put("late", 0)
    drained(queue, lambda _: 1.0)
    for number in range(50):
        queue.put("early", number)
    for _ in range(40):
        queue.take()
        queue.charge("early", 1.0)
    for number in range(50):
        queue.put("late", number)
    assert [source for source, _ in drained(queue, lambda _: 1.0)][:10].count("late") <= 6


def test_sources_are_forgotten_when_nothing_waits():
    queue = FairQueue[int]()
    for number in range(100):
        queue.put(number, number, size=3)
        assert queue.size == 3 and number in queue
        drained(queue, lambda _: 1.0)
    assert not queue._tags


@pytest.mark.parametrize("seed", range(20))
def test_nobody_waits_for_more_than_its_share(seed):
    """Between two items of a source that always waits, each other one has at most its cost and one item more."""
    dice = random.Random(seed)
    sources: list[object] = list("abcd")
    costs = dict[object, float]()
    queue = FairQueue[int]()
    for source in sources:
        costs[source] = dice.uniform(0.1, 10.0)
        for number in range(400):
            queue.put(source, number)
    had = dict[object, float].fromkeys(sources, 0.0)
    for _ in range(400):
        source = queue.next_source()
        queue.take()
        queue.charge(source, costs[source])
        had[source] += costs[source]
        assert max(had.values()) - min(had.values()) <= 2 * max(costs.values())
