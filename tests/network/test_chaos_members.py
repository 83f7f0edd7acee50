"""The cost of a member that breaks every rule, for an agent and the other members.

Alice and Bob are agents in processes of their own; Mallory's agent sleeps, and this test sends arbitrary messages with
its keys over raw connections that never wait for an answer. The figures are printed (`pytest -m chaos -rP`).
"""

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from tests.support.agents import Person
from tests.support.load_gauge import MEMBER_MB_MAX, WARM, Gauge, ears, p99, ports_of, server_key_of, word
from tests.support.machines import GROUP, machines, meet, until
from tests.support.raw_curve import RawMember, framed
from tests.support.rogue import ROGUE_KEYS, Rogue
from tests.support.sockets import strangers
from zerochat.crypto.compression import compress
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.wire.messages import EVENTS

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure, and TCP_INFO to defend"),
]

PART, LARGE = 60_000, 500_000
BOMB_BYTES = 256 << 20


class Mallory:
    """All that she can say, and how much of it was taken."""

    def __init__(self, rogue, server_key, ports):
        self.rogue, self.server_key, self.ports = rogue, server_key, ports
        self.connections = self.bytes = 0
        self.ended = False
        self.member: RawMember | None = None
        bomb = compress(bytes(BOMB_BYTES))
        event = rogue.event(body={"text": "x" * 30_000})
        self.words = {
            "posts": [rogue.packed(EVENTS, rogue.events([event])) for _ in range(20)],
            "states": [rogue.sync_envelope() for _ in range(50)],
            "bombs": [rogue.frame(b"\1" + bomb) for _ in range(5)],
            "junk": [os.urandom(LARGE)],
        }

    def dial(self, door, kind):
        self.connections += 1
        self.member = RawMember(self.ports[door], self.rogue.group.own_place.secret, self.server_key, kind, 2)
        return self.member

    def pour(self, member, data):
        """As much of this as is taken, until the connection is cut."""
        while not self.ended:
            member.socket.sendall(data)
            self.bytes += len(data)

    def attack(self, kind):
        while not self.ended:
            with suppress(OSError, EOFError, AssertionError):  # cut in the middle of it, or not let in
                getattr(self, kind.replace(" ", "_"))()
            if self.member is not None:
                self.member.close()
            time.sleep(0.001)

    def unfinished(self):
        member = self.dial(0, b"DEALER")
        member.send(b"")
        while not self.ended:
            self.pour(member, b"".join(member.frame(bytes(PART), True) for _ in range(4)))

    def small_parts(self):
        member = self.dial(0, b"DEALER")
        member.send(b"")
        while not self.ended:
            self.bytes += member.push(b"", 1_000_000)

    def subscriptions(self):
        member = self.dial(1, b"SUB")
        while not self.ended:
            questions = b"".join(member.frame(b"\1" + os.urandom(250)) for _ in range(100))
            member.socket.sendall(questions)
            self.bytes += len(questions)

    def long_topics(self):
        member = self.dial(1, b"SUB")
        member.send(b"\1" + bytes(200_000))
        self.bytes += 200_000
        member.socket.recv(100)

    def pings(self):
        member = self.dial(0, b"DEALER")
        member.send(b"")
        while not self.ended:
            ping = b"\x07MESSAGE" + member.seal(member.nonce_prefix, b"\2\4PING\0\x64" + bytes(16))
            member.socket.sendall(framed(0, ping))
            self.bytes += len(ping)

    def say(self, kind):
        member = self.dial(0, b"DEALER")
        member.send(b"")
        while not self.ended:
            for envelope in self.words[kind]:
                member.send(envelope)
                self.bytes += len(envelope)

    def posts(self):
        self.say("posts")

    def states(self):
        self.say("states")

    def bombs(self):
        self.say("bombs")

    def junk(self):
        self.say("junk")


KINDS = (
    "unfinished", "small parts", "subscriptions", "long topics", "pings", "posts", "states", "bombs",
    "junk",  # last, because she is shut out for it
)  # fmt: skip


@pytest.fixture(scope="module")
def village(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    with machines(folder, ("alice", "bob"), gauged=True) as (alice, bob), strangers() as make:
        meet(alice, bob, keys=ROGUE_KEYS)
        person = Person(folder, "mallory").wake()
        try:
            person.client.join_group(alice.client.create_invitation(GROUP).url)
            until(lambda: alice.group().connected == 2 and bob.group().connected == 2, "meeting Mallory")
            assert person.client.wait_for_delivery(GROUP, person.client.send_message(GROUP, "hello").id).complete
        finally:
            person.sleep()
        group = next(iter(person.thread.loop.agent.groups.values()))
        her = next(did for did, member in group.view.members.items() if member.label == "alice")
        ports, server_key = ports_of(alice), server_key_of(alice)
        pair, queue = (Endpoint("127.0.0.1", port) for port in ports)
        seen = SimpleNamespace(
            group=SimpleNamespace(id=group.id, me=her, view=group.view, control=group.control, log=group.log),
            transport=SimpleNamespace(server_key=server_key),
            thread=SimpleNamespace(loop=SimpleNamespace(pair=pair, queue=queue)),
        )
        rogue = Rogue(person, seen, make)  # type: ignore[arg-type]  # what Mallory's own agent has seen of her
        rogue.dealer.close()
        with ears(alice) as ear:
            for _ in range(WARM):
                word(bob, ear)
        yield alice, bob, Mallory(rogue, server_key, ports)


@contextmanager
def at_work(mallory, kind):
    mallory.ended, mallory.connections, mallory.bytes = False, 0, 0
    attack = threading.Thread(target=mallory.attack, args=(kind,))
    attack.start()
    try:
        yield
    finally:
        mallory.ended = True
        attack.join(20)
        assert not attack.is_alive()


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_breaks_the_rules_costs_little(village, kind, budget):
    alice, bob, mallory = village
    gauge = Gauge(alice)
    with ears(alice) as ear:
        quiet_s = p99(gauge.deliver_words(bob, ear, lambda: False))
        with at_work(mallory, kind):
            until(lambda: mallory.bytes, "that she is let in again")
            until_s = time.monotonic() + budget(2)
            times = gauge.deliver_words(bob, ear, lambda: time.monotonic() < until_s)
    grown_mb = gauge.look()
    print(f"{kind}: {mallory.connections} connections, {mallory.bytes / 2**20:.0f} MB taken; {len(times)} words,")
    print(f"p99 {p99(times) * 1000:.0f} ms, in peace {quiet_s * 1000:.0f} ms; grown by {grown_mb:.1f} MB")
    assert grown_mb < MEMBER_MB_MAX
    gauge.nothing_is_left()


def test_afterwards_every_member_has_everything(village):
    alice, bob, _ = village

    def bobs(machine):
        return [text for text in machine.texts() if text.startswith("word ")]

    until(lambda: bobs(alice) == bobs(bob) == bob.said, "that both have the same")
    assert not alice.client.get_status().closed and alice.group().members == 3
