"""The cost of unadmitted invitation holders: no more than of a stranger.

Alice and Bob are agents in processes of their own. The attacker is a thread of this one, with an invitation of
Alice's for one use or many, valid or used up. It requests admission with a new key each time, as fast as the line
allows, and reads the answers or ignores them. The figures are printed (`pytest -m chaos -rP`).
"""

import os
import sys
import threading
import time
from contextlib import suppress

import pytest

from tests.support.load_gauge import GUESTS_MB_MAX, WARM, Gauge, ears, p99, ports_of, word
from tests.support.machines import GROUP, acknowledged, check, machines, until
from tests.support.raw_curve import RawMember
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.invitation import parse_invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import exchange
from zerochat.group.inputs import StepContext
from zerochat.group.joining.claims import CLAIMS_MAX
from zerochat.group.links.contact import Reach, new_identity
from zerochat.group.wire.envelope import pack_first

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure, and TCP_INFO to defend"),
]

REQUESTS = 200
TOGETHER = 20
"""Requests that are made into one piece for the line, so that this process is no slower than the agent."""
LONG = 150_000
MANY = 16
ATTACK = 500
"""Requests of an attack: kept, they would be more than a gauge lets pass."""
CLAIM_BYTES = 10 * 1024
"""What the agent keeps of a request that an open invitation allows: two identities and the answer."""


def requests_for(invitation):
    """Valid requests, by as many strangers."""
    packer = PACKERS[invitation.envelope]
    for number in range(REQUESTS):
        identity = new_identity(os.urandom, Reach(b"", None, None), invitation.envelope)
        member = did_key(ed25519_public(os.urandom(32)))
        body = {"goal_code": "org.zerochat.join", "member": member, "label": f"x{number}"}
        name = new_id(os.urandom)
        request = Message(type=exchange.REQUEST, id=name, thid=name, pthid=invitation.pthid, body=body)
        yield pack_first(identity, invitation.did, request, packer, StepContext(int(time.time() * 1000), os.urandom))


class Knocker:
    """A context, in which it knocks without end."""

    def __init__(self, machine, url, *, reads, junk=False):
        self.ports = ports_of(machine)
        self.invitation = parse_invitation(url, int(time.time()))
        self.words = [os.urandom(LONG)] if junk else list(requests_for(self.invitation))
        self.reads, self.ended = reads, False
        self.connections = self.said = self.turned_away = self.answered = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self):
        while not self.ended:
            try:
                key, server_key = self.invitation.join_secret_key(), self.invitation.server_key
                one = RawMember(self.ports[0], key, server_key, b"DEALER", 2)
            except (OSError, EOFError, AssertionError):
                self.turned_away += 1
                time.sleep(0.05)
                continue
            self.connections += 1
            reader = threading.Thread(target=self._read, args=(one,))
            with suppress(OSError):
                one.send(b"")
                if self.reads:
                    reader.start()
                self._knock(one)
            with suppress(OSError):
                one.socket.shutdown(2)
            if reader.ident is not None:
                reader.join(20)
            one.close()

    def _knock(self, one):
        while not self.ended:
            for begin in range(0, len(self.words), TOGETHER):
                some = self.words[begin : begin + TOGETHER]
                one.socket.sendall(b"".join(one.frame(word) for word in some))
                self.said += len(some)

    def _read(self, one):
        while not self.ended:
            try:
                data = one.socket.recv(1 << 16)
            except TimeoutError:
                continue  # it is kept waiting
            except OSError:
                return
            if not data:
                return
            self.answered += len(data)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Alice and Bob in one group, and the invitation that Bob has come with."""
    with machines(tmp_path_factory.mktemp("knocks"), ("alice", "bob", "carol"), gauged=True) as (alice, bob, carol):
        alice.client.create_group(GROUP)
        used = alice.client.create_invitation(GROUP).url
        bob.client.join_group(used)
        until(lambda: alice.group().connected == 1 and bob.group().connected == 1, "meeting Bob")
        with ears(alice) as ear:
            for _ in range(WARM):
                word(bob, ear)
        with ears(alice) as ear, Knocker(alice, alice.client.create_invitation(GROUP).url, reads=True) as knocker:
            until(lambda: knocker.said >= ATTACK and word(bob, ear), "an attack that loads what is loaded once")
        yield alice, bob, carol, used


def measure(alice, bob, knocker, seconds, requests, kept_mb):
    """Words of Bob's in peace, and while an attacker knocks. `kept_mb`: what the agent is meant to keep."""
    gauge = Gauge(alice)
    with ears(alice) as ear:
        quiet_s = p99(gauge.deliver_words(bob, ear, lambda: False))
        with knocker:
            until_s = time.monotonic() + seconds
            times = gauge.deliver_words(bob, ear, lambda: knocker.said < requests or time.monotonic() < until_s)
    grown_mb = gauge.look()
    times.sort()
    print(f"{knocker.connections} connections, {knocker.said} said, {knocker.answered >> 10} KiB of answers read,")
    print(f"{knocker.turned_away} times turned away; {len(times)} words, in peace p99 {quiet_s * 1000:.0f} ms,")
    print(f"then median {times[len(times) // 2] * 1000:.0f} ms, p99 {p99(times) * 1000:.0f} ms;")
    print(f"grown by {grown_mb:.1f} MB (at most {GUESTS_MB_MAX:.1f}),")
    assert grown_mb < GUESTS_MB_MAX
    gauge.nothing_is_left(kept_mb)


@pytest.mark.parametrize(
    ("kind", "answers"),
    [("used up", "read"), ("for one", "left"), ("for many", "read"), ("for many", "left"), ("junk", "left")],
)
def test_an_invitation_holder_costs_no_more_than_a_stranger(house, kind, answers, budget):
    alice, bob, _, used = house
    url = (
        used if kind == "used up" else alice.client.create_invitation(GROUP, uses=MANY if kind == "for many" else 1).url
    )
    knocker = Knocker(alice, url, reads=answers == "read", junk=kind == "junk")
    kept_mb = CLAIMS_MAX * CLAIM_BYTES / 2**20 if kind.startswith("for") else 0.0
    measure(alice, bob, knocker, budget(4), 1 if kind == "junk" else ATTACK, kept_mb)


def test_a_joiner_with_another_invitation_is_admitted_meanwhile(house, budget):
    alice, bob, carol, _ = house
    with Knocker(alice, alice.client.create_invitation(GROUP, uses=MANY).url, reads=False) as knocker:
        until(lambda: knocker.said > REQUESTS, "that somebody knocks")
        carol.client.join_group(alice.client.create_invitation(GROUP).url)
        until(lambda: alice.group().connected == 2 and bob.group().connected == 2, "coming in among them")
    everybody = (alice, bob)
    acknowledged(everybody)
    check(everybody)
