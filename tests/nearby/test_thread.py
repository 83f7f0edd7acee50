"""The nearby thread over real sockets, on the loopback network."""

import os
import socket
import time

import pytest

from tests.support import multicast
from tests.support.agents import until
from zerochat.agent.nearby import thread as module
from zerochat.agent.nearby.announcement import Announcement, decode
from zerochat.agent.nearby.multicast import MulticastSockets
from zerochat.agent.nearby.networks import networks
from zerochat.agent.nearby.session import Ports, token
from zerochat.agent.nearby.thread import SESSIONS_PER_MINUTE, NearbyThread
from zerochat.crypto.primitives import x25519_public

pytestmark = pytest.mark.usefixtures("own_port")
own_port = multicast.own_port

LOOPBACK = next(one for one in networks() if one.is_loopback)


class Host:
    def __init__(self, number):
        self.secret = os.urandom(32)
        self.key = x25519_public(self.secret)
        self.ports = Ports(number, number + 1)

    def start(self, *others):
        hosts = {other.key: token(self.secret, other.key) for other in others}
        self.thread = NearbyThread(self.ports, hosts, lambda network: network.is_loopback, lambda: None)
        self.thread.start()
        self.found = {}
        return self

    def look(self):
        for one in self.thread.take():
            self.found[one.host] = [(place.address, place.ports) for place in one.places]
        return self.found


@pytest.fixture
def hosts():
    started = [Host(1000 * number) for number in range(1, 5)]
    yield started
    for one in started:
        if hasattr(one, "thread"):
            one.thread.stop()
            assert not one.thread.is_alive and not one.thread.counts["nearby.died"]


def test_two_of_three_find_each_other_and_then_all(hosts):
    alice, bob, carol, _ = hosts
    alice.start(bob)
    bob.start(alice)
    carol.start(alice)
    until(lambda: alice.look() == {bob.key: [("127.0.0.1", bob.ports)]}, "bob")
    until(lambda: bob.look() == {alice.key: [("127.0.0.1", alice.ports)]}, "alice")
    until(lambda: alice.thread.announcers == 2, "that carol is heard")
    assert carol.look() == {}
    alice.thread.set_hosts({one.key: token(alice.secret, one.key) for one in (bob, carol)})
    until(lambda: carol.look() == {alice.key: [("127.0.0.1", alice.ports)]}, "alice for carol")
    assert set(until(lambda: len(alice.look()) == 2 and alice.found, "both")) == {bob.key, carol.key}
    alice.thread.set_hosts({})
    until(lambda: list(alice.look().values()) == [[], []], "that none counts")


def test_a_host_that_stops_is_no_longer_nearby(hosts, monkeypatch):
    monkeypatch.setattr(module, "EXPIRES_S", 1.0)
    monkeypatch.setattr("zerochat.agent.nearby.discovery.EXPIRES_S", 1.0)
    monkeypatch.setattr(module, "ANNOUNCE_S", 0.2)
    alice, bob, *_ = hosts
    alice.start(bob)
    bob.start(alice)
    until(lambda: alice.look().get(bob.key), "bob")
    bob.thread.stop()
    until(lambda: alice.look() == {bob.key: []}, "his end")


def test_junk_on_every_socket_changes_nothing(hosts):
    alice, bob, *_ = hosts
    alice.start(bob)
    with MulticastSockets(LOOPBACK) as sockets:
        heard: dict[bytes, Announcement] = {}

        def announced():
            for packet, _ in (one for receiver in sockets.receivers for one in sockets.receive(receiver)):
                one = decode(packet)
                heard[one.key] = one
            return heard

        until(announced, "alice's announcement")
        port = next(iter(heard.values())).port
        for size in (0, 1, 37, 38, 39, 1_000):
            sockets.send(os.urandom(size), socket.AF_INET)
        until(lambda: alice.thread.counts["nearby.malformed"], "that junk is counted")
    for text in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(32), os.urandom(32) + b"\xff\xff" + os.urandom(100)):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
            assert len(answer) <= 32 + 2 + 16 * 16 + 16
    bob.start(alice)
    until(lambda: alice.look().get(bob.key), "bob")


def test_sessions_of_one_address_are_limited(monkeypatch):
    """Each address has its own bucket; a flood of addresses fills a table that has an end."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one = NearbyThread(Ports(1, 2), {}, lambda network: False, lambda: None)
    assert sum(one._may_open("192.0.2.1") for _ in range(100)) == SESSIONS_PER_MINUTE
    assert one._may_open("192.0.2.2")
    now[0] = 61.0
    assert one._may_open("192.0.2.1")
    opened = sum(one._may_open(f"host {number}") for number in range(3 * module.SOURCES_MAX))
    assert opened <= module.SOURCES_MAX and len(one._sources) <= module.SOURCES_MAX
    one._loop.close()


def test_an_announced_key_at_a_dead_port_is_tried_ever_less(hosts):
    alice, bob, *_ = hosts
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        alice.start(bob)
        packet = Announcement(unused.getsockname()[1], x25519_public(os.urandom(32))).encode()
        with MulticastSockets(LOOPBACK) as sockets:
            until(lambda: sockets.send(packet, socket.AF_INET) and alice.thread.counts["nearby.failed"], "a failure")
        assert alice.thread.counts["nearby.dialled"] == 1
