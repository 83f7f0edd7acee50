"""Liveness: a vanished member is shown as disconnected, and reconnects by itself.

No test asserts a time. Each waits for an event, within bounds, and prints the duration (`pytest -rP`).
"""

import random
import time
from contextlib import contextmanager

import pytest

from tests.support.chaos_proxy import Chaos
from tests.support.machines import acknowledged, check, everybody_has, machines, meet, until
from tests.support.sockets import peers
from tests.support.sockets import until as pumped_until
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.client_session import ClientSession
from zerochat.agent.network.zmq.socket_options import public_key
from zerochat.group.effects import AllowClient

NOTICED_S_MAX = 20.0
GROWTH_MB_MAX = 64.0


@pytest.fixture
def chaos():
    with Chaos() as chaos:
        yield chaos


@contextmanager
def taking(what):
    begun = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begun:.2f} s")


def shown_as(looker, other, *states):
    return lambda: looker.member(other).connection in states


def gone(looker, other):
    return shown_as(looker, other, "unreachable", "connecting")


def there(looker, other):
    return shown_as(looker, other, "connected")


@pytest.mark.slow
def test_a_frozen_machine_and_its_return_are_noticed(tmp_path):
    with machines(tmp_path, ("alice", "bob", "carol")) as everybody:
        alice, bob, carol = everybody
        meet(*everybody)
        bob.stop()
        with taking("noticed"):
            until(gone(alice, bob), "noticing", NOTICED_S_MAX, 0.01)
        until(gone(carol, bob), "noticing", NOTICED_S_MAX)
        assert there(alice, carol)() and there(carol, alice)(), "nobody else is gone"
        alice.say("while you were away")
        everybody_has([alice, carol], 1, 30)
        bob.go_on()
        with taking("back"):
            until(there(alice, bob), "the return", every_s=0.01)
        until(there(bob, alice), "the return")
        everybody_has(everybody, 1, 60)
        check(everybody)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "both"),
    [
        pytest.param("lost", True, id="lost both ways"),
        pytest.param("frozen", False, id="frozen one way"),
        pytest.param("lost", False, id="lost one way", marks=pytest.mark.chaos),
        pytest.param("frozen", True, id="frozen both ways", marks=pytest.mark.chaos),
    ],
)
def test_a_silent_network_is_noticed_by_both_ends(tmp_path, chaos, what, both):
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(*everybody)
        for way in chaos.ways("alice", "bob") if both else [chaos.way("alice", "bob")]:
            setattr(way, what, True)
        with taking("noticed by the one"):
            until(gone(bob, alice), "noticing", NOTICED_S_MAX, 0.01)
        with taking("and after that by the other"):
            until(gone(alice, bob), "noticing", NOTICED_S_MAX, 0.01)
        alice.say("into the void")
        bob.say("and back")
        chaos.heal()
        with taking("back"):
            until(lambda: there(alice, bob)() and there(bob, alice)(), "the return", every_s=0.01)
        everybody_has(everybody, 2, 60)
        check(everybody)


@pytest.mark.slow
def test_a_long_disconnected_member_uses_no_memory(tmp_path, chaos):
    cut_off(tmp_path, chaos, 150)


@pytest.mark.chaos
def test_a_busy_disconnected_member_uses_no_memory(tmp_path, chaos, budget):
    """With `--budget 25` these are 5,000 long messages."""
    cut_off(tmp_path, chaos, budget(200))


def cut_off(folder, chaos, count):
    dice = random.Random(5)
    with machines(folder, ("alice", "bob", "carol"), chaos) as everybody:
        alice, *others = everybody
        meet(*everybody)
        for other in others:
            chaos.part("alice", other.name)
        for other in others:
            until(gone(alice, other), "noticing", NOTICED_S_MAX)
        before_mb = alice.rss_mb()
        for _ in range(count):
            alice.say(dice.randbytes(1500).hex())
        after_mb = alice.rss_mb()
        print(f"{count} messages, {before_mb:.0f} to {after_mb:.0f} MB")
        assert alice.group().unacknowledged >= count, "it is all still to be said"
        assert after_mb - before_mb < GROWTH_MB_MAX
        chaos.heal()
        everybody_has(everybody, count, 300)
        check(everybody)
        acknowledged(everybody)


def test_a_peer_that_answered_is_pinged_again_when_due(monkeypatch):
    """And not only when it would have been given up without an answer: it would be seen to be gone too late."""
    monkeypatch.setattr(socket_options, "HEARTBEAT_MS", 50)
    monkeypatch.setattr(socket_options, "HEARTBEAT_TIMEOUT_MS", 3_600_000)
    asked, ping = [], ClientSession.ping
    monkeypatch.setattr(ClientSession, "ping", lambda *arguments: (asked.append(arguments), ping(*arguments)))
    with peers(2) as (a, b):
        a.do(AllowClient(b"l" * 16, public_key(b"k" * 32)))
        b.dial(b"l" * 16, a, b"k" * 32)
        pumped_until(lambda: len(asked) > 5, a, b)
        assert b.is_up(b"l" * 16)
