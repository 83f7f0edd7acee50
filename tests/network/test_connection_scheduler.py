"""Connection scheduling: which of two peers dials first, and deferred queues in a crowd."""

import os
import time

import pytest

from tests.support.sockets import Peer, peers, pump, until
from zerochat.agent.network.zmq import connection_scheduler
from zerochat.agent.network.zmq.connection_scheduler import CROWD, CROWD_S, QUEUES_S_MAX, ConnectionScheduler
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.group.effects import AllowClient, Dial, Publish, SendEnvelope

LINK = b"l" * 16


def meet(first: Peer, second: Peer, *, both: bool = True) -> tuple[bytes, bytes]:
    """Two who meet; gives their queues. Not `both`: the one who is to dial first has not heard of the other yet."""
    keys, queues = (os.urandom(32), os.urandom(32)), (os.urandom(32), os.urandom(32))
    first.do(AllowClient(LINK, public_key(keys[1]), (queues[0],)))
    second.do(AllowClient(LINK, public_key(keys[0]), (queues[1],)))
    if both:
        first.dial(LINK, second, keys[0], queues[1])
    second.do(Dial(LINK, first.pair, first.transport.server_key, keys[1], first.queue, (queues[0],), defer=True))
    return queues


def pair_line(peer: Peer):
    return peer.transport.links.by_name[LINK].pair


def test_one_connection_serves_both_queues():
    with peers(2) as (first, second):
        queues = meet(first, second)
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        first.do(SendEnvelope(LINK, b"there"))
        second.do(SendEnvelope(LINK, b"and back"))
        until(lambda: b"there" in second.envelopes() and b"and back" in first.envelopes(), first, second)
        subscribed = [first.transport._queue.has_subscriber, second.transport._queue.has_subscriber]
        until(lambda: subscribed[0](queues[0], LINK) and subscribed[1](queues[1], LINK), first, second)
        first.do(Publish(queues[0], b"to all", (LINK,)))
        second.do(Publish(queues[1], b"to all", (LINK,)))
        until(lambda: b"to all" in second.envelopes() and b"to all" in first.envelopes(), first, second)
        assert pair_line(second) is None


def test_the_second_dialer_dials_when_the_first_does_not_come(monkeypatch):
    monkeypatch.setattr("zerochat.agent.network.zmq.links.FIRST_S", 0.2)
    with peers(2) as (first, second):
        meet(first, second, both=False)
        for _ in range(5):
            pump(first, second)
        assert pair_line(second) is None
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        assert pair_line(second) is not None and pair_line(second).up


def test_it_dials_at_once_when_its_only_connection_is_lost():
    with peers(2) as (first, second):
        meet(first, second)
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        first.transport.links.close_dialed(first.transport.links.by_name[LINK])
        until(lambda: pair_line(second) is not None and pair_line(second).up, first, second)
        assert second.is_up(LINK)


def test_the_second_connection_is_opened_later(monkeypatch):
    monkeypatch.setattr("zerochat.agent.network.zmq.links.SECOND_S", 0.3)
    with peers(2) as (first, second):
        meet(first, second)
        until(lambda: second.is_up(LINK), first, second)
        until(lambda: pair_line(second) is not None and pair_line(second).up, first, second)


def test_an_explicit_dial_ends_the_deferral():
    with peers(2) as (first, second):
        meet(first, second, both=False)
        dial = second.transport.links.by_name[LINK].dial
        assert pair_line(second) is None
        second.do(Dial(dial.link, dial.pair, dial.server_key, dial.client_secret, dial.queue_at, dial.queues))
        assert pair_line(second) is not None
        until(lambda: second.is_up(LINK), first, second)


# --- a crowd --------------------------------------------------------------------------------------------------------


def test_links_of_a_small_group_subscribe_at_once():
    waits = ConnectionScheduler()
    for number in range(CROWD):
        waits.met(100.0 + number)
        assert waits.may_subscribe(b"%d" % number, 100.0 + number)
    assert waits.due == float("inf")


def test_queues_of_a_crowd_are_deferred_until_it_is_over():
    waits = ConnectionScheduler()
    for _ in range(CROWD + 1):
        waits.met(100.0)
    assert not waits.may_subscribe(LINK, 100.5) and waits.due == 100.0 + CROWD_S
    assert waits.take_due(100.6) == [] and waits.take_due(100.0 + CROWD_S) == [LINK]
    assert waits.may_subscribe(LINK, 100.0 + CROWD_S) and waits.due == float("inf")


def test_a_deferred_queue_is_subscribed_eventually():
    waits, now = ConnectionScheduler(), 100.0
    while now < 100.0 + QUEUES_S_MAX:
        for _ in range(CROWD + 1):
            waits.met(now)
        assert not waits.may_subscribe(LINK, now)
        assert waits.due <= 100.0 + QUEUES_S_MAX
        now += 1.0
        waits.take_due(now)
    assert waits.may_subscribe(LINK, now)


def test_a_forgotten_link_is_not_due():
    waits = ConnectionScheduler()
    waits.defer(LINK, 5.0)
    waits.defer(LINK, 7.0)
    assert waits.due == 5.0
    waits.cancel(LINK)
    assert waits.due == float("inf") and waits.take_due(10.0) == []


@pytest.mark.parametrize("crowd", [False, True])
def test_in_a_crowd_published_events_come_over_the_link(monkeypatch, crowd):
    monkeypatch.setattr(connection_scheduler, "CROWD_S", 3600.0)
    with peers(2) as (first, second):
        for _ in range(CROWD + 1 if crowd else 0):
            second.transport.links.scheduler.met(time.monotonic())
        queues = meet(first, second)
        until(lambda: first.is_up(LINK) and second.is_up(LINK), first, second)
        first.do(Publish(queues[0], b"to all", (LINK,)))
        until(lambda: b"to all" in second.envelopes(), first, second)
        assert any(line.queues for line in second.transport.links.by_name[LINK].dialed) is not crowd
