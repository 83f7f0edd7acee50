"""Of two who have just met one dials first, and the queues of a crowd wait: what can wait, and that it comes."""

import os
import time

import pytest

from tests.support.sockets import Peer, peers, pump, until
from zerochat.agent.network.zmq import connection_scheduler
from zerochat.agent.network.zmq.connection_scheduler import CROWD, CROWD_S, QUEUES_S_MAX, Patience
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.group.effects import Admit, Dial, Dispatch, Publish

LINK = b"l" * 16


def meet(first: Peer, second: Peer, *, both: bool = True) -> tuple[bytes, bytes]:
    """Two who meet; gives their queues. Not `both`: the one who is to dial first has not heard of the other yet."""
    keys, queues = (os.urandom(32), os.urandom(32)), (os.urandom(32), os.urandom(32))
    first.do(Admit(LINK, public_key(keys[1]), (queues[0],)))
    second.do(Admit(LINK, public_key(keys[0]), (queues[1],)))
    if both:
        first.dial(LINK, second, keys[0], queues[1])
    second.do(Dial(LINK, first.pair, first.transport.server_key, keys[1], first.queue, (queues[0],), second=True))
    return queues


def pair_line(peer: Peer):
    return peer.transport._links[LINK].pair


def test_one_connection_serves_both_and_each_hears_the_others_queue():
    with peers(2) as (first, second):
        queues = meet(first, second)
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        first.do(Dispatch(LINK, b"there"))
        second.do(Dispatch(LINK, b"and back"))
        until(lambda: b"there" in second.envelopes() and b"and back" in first.envelopes(), first, second)
        subscribed = [first.transport._queue.has_subscriber, second.transport._queue.has_subscriber]
        until(lambda: subscribed[0](queues[0], LINK) and subscribed[1](queues[1], LINK), first, second)
        first.do(Publish(queues[0], b"to all", (LINK,)))
        second.do(Publish(queues[1], b"to all", (LINK,)))
        until(lambda: b"to all" in second.envelopes() and b"to all" in first.envelopes(), first, second)
        assert pair_line(second) is None


def test_whoever_is_to_dial_second_dials_when_the_other_does_not_come(monkeypatch):
    monkeypatch.setattr("zerochat.agent.network.zmq.transport.FIRST_S", 0.2)
    with peers(2) as (first, second):
        meet(first, second, both=False)
        for _ in range(5):
            pump(first, second)
        assert pair_line(second) is None
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        assert pair_line(second) is not None and pair_line(second).up


def test_it_dials_at_once_when_the_one_connection_is_lost():
    with peers(2) as (first, second):
        meet(first, second)
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        first.transport._drop_lines(first.transport._links[LINK])
        until(lambda: pair_line(second) is not None and pair_line(second).up, first, second)
        assert second.is_up(LINK)


def test_the_second_connection_comes_later(monkeypatch):
    monkeypatch.setattr("zerochat.agent.network.zmq.transport.SECOND_S", 0.3)
    with peers(2) as (first, second):
        meet(first, second)
        until(lambda: second.is_up(LINK), first, second)
        until(lambda: pair_line(second) is not None and pair_line(second).up, first, second)


def test_whoever_is_dialled_otherwise_later_waits_no_more():
    with peers(2) as (first, second):
        meet(first, second, both=False)
        dial = second.transport._links[LINK].dial
        assert pair_line(second) is None
        second.do(Dial(dial.link, dial.pair, dial.server_key, dial.client_secret, dial.queue_at, dial.queues))
        assert pair_line(second) is not None
        until(lambda: second.is_up(LINK), first, second)


# --- a crowd --------------------------------------------------------------------------------------------------------


def test_few_wait_for_nothing():
    waits = Patience()
    for number in range(CROWD):
        waits.met(100.0 + number)
        assert waits.crowd_is_over(b"%d" % number, 100.0 + number)
    assert waits.due == float("inf")


def test_the_queues_of_a_crowd_wait_until_it_is_over():
    waits = Patience()
    for _ in range(CROWD + 1):
        waits.met(100.0)
    assert not waits.crowd_is_over(LINK, 100.5) and waits.due == 100.0 + CROWD_S
    assert waits.over(100.6) == [] and waits.over(100.0 + CROWD_S) == [LINK]
    assert waits.crowd_is_over(LINK, 100.0 + CROWD_S) and waits.due == float("inf")


def test_no_queue_waits_for_ever_for_a_crowd_without_an_end():
    waits, now = Patience(), 100.0
    while now < 100.0 + QUEUES_S_MAX:
        for _ in range(CROWD + 1):
            waits.met(now)
        assert not waits.crowd_is_over(LINK, now)
        assert waits.due <= 100.0 + QUEUES_S_MAX
        now += 1.0
        waits.over(now)
    assert waits.crowd_is_over(LINK, now)


def test_what_is_forgotten_is_not_due():
    waits = Patience()
    waits.put_off(LINK, 5.0)
    waits.put_off(LINK, 7.0)
    assert waits.due == 5.0
    waits.forget(LINK)
    assert waits.due == float("inf") and waits.over(10.0) == []


@pytest.mark.parametrize("crowd", [False, True])
def test_in_a_crowd_what_is_published_comes_over_the_link(monkeypatch, crowd):
    monkeypatch.setattr(connection_scheduler, "CROWD_S", 3600.0)
    with peers(2) as (first, second):
        for _ in range(CROWD + 1 if crowd else 0):
            second.transport._patience.met(time.monotonic())
        queues = meet(first, second)
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        first.do(Publish(queues[0], b"to all", (LINK,)))
        until(lambda: b"to all" in second.envelopes(), first, second)
        assert any(line.queues for line in second.transport._links[LINK].lines) is not crowd
