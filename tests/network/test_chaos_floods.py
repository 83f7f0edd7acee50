"""Floods by a genuine member at its full allowance, over real sockets, one kind of message each.

Alice and Bob are ordinary agents; Mallory is a member whose own agent sleeps. She sends the burst that the rate limits
allow at once, and goes on at the sustained rate, while Alice and Bob talk. Nothing is judged by time: the work that is
charged to her, how many of her messages precede one of Bob's that has been read, and that all of theirs arrive
(`scripts/bench.py attacks` measures how soon).
"""

import itertools
import os
import time
from contextlib import suppress
from statistics import median

import pytest
import zmq

from tests.support.agents import until
from tests.support.rogue import Rogue, Watched, at_rest, texts
from tests.support.sockets import strangers
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import Measure, ReadParts, StoreStatement
from zerochat.group.inputs import HistoryRead, OwnEventsRead, PartsRead, Received, Reconciled
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.sim.floods import FLOODS, Flooder

pytestmark = pytest.mark.chaos

SUSTAINED_S = 3.0
POSTS, POST_BYTES, FILE_BYTES = 40, 8_000, 1 << 20
WORDS_MIN = 20
PATIENCE = 50
"""Rounds in which Mallory can send nothing, because her connection was cut, until she gives up."""
AHEAD_MAX = 100
"""Steps for Mallory between the moment when an envelope of Bob's was read and its own step: mostly none; where Bob's
last one was dear and hers are cheap, as many as it cost. In the order of arrival there would be a thousand."""
CAUSED = HistoryRead | OwnEventsRead | Reconciled | PartsRead


class Town:
    """Alice, Bob and a rogue with Mallory's keys in a group with signed streams, posts and a file."""

    def __init__(self, folder, make):
        self.alice, self.bob, self.mallory = (Watched(folder, name).wake() for name in ("alice", "bob", "mallory"))
        self.everyone = (self.alice, self.bob, self.mallory)
        try:
            self._meet(folder)
            self.rogue = Rogue(self.mallory, self.alice, make)
        except BaseException:
            at_rest(*self.everyone)
            raise

    def _meet(self, folder):
        alice = self.alice
        alice.client.create_group("friends", keys="sender-key")
        for guest in (self.bob, self.mallory):
            guest.client.join_group(alice.client.create_invitation("friends").url)
            until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")
        for number in range(POSTS):
            alice.client.send_message("friends", str(number).zfill(POST_BYTES))
        path = folder / "file"
        path.write_bytes(bytes(FILE_BYTES))
        alice.client.send_files("friends", [str(path)])
        mallory = self.mallory
        until(lambda: mallory.group.files and len(texts(mallory)) >= POSTS, "that Mallory has everything")
        until(lambda: alice.group.links.peers.keys() == mallory.group.view.members.keys() - {alice.group.me}, "peers")
        mallory.sleep()

    def envelopes(self, kind, count):
        mine = self.rogue.group
        by = Flooder(mine, self.alice.group.me, self.rogue.relationship, int(time.time() * 1000), os.urandom)
        return [
            pack(by.relationship, Message(type=type_, id=new_id(os.urandom), body=body), self.rogue.packer, os.urandom)
            for type_, body in itertools.islice(FLOODS[kind](by), count)
        ]


@pytest.fixture
def town(tmp_path):
    with strangers() as make:
        town = Town(tmp_path, make)
        yield town
        at_rest(*town.everyone)


class Queued:
    """Observes the queue of Alice's loop: how many steps for Mallory precede each one for Bob that is in it already."""

    def __init__(self, town, patch):
        loop, links = town.alice.thread.loop, town.alice.group.links.peers
        self.mallory, bob = links[town.rogue.me].link, links[town.bob.group.me].link
        self.ahead: list[int] = []
        steps, at = [0], dict[int, int]()
        queue, step = loop._queue, loop._step
        put = queue.put

        def putting(source, item, size=0):
            if source == bob:
                at[id(item)] = steps[0]
            put(source, item, size)

        def stepping(each):
            member = getattr(each, "member", "")
            steps[0] += getattr(each, "link", None) == self.mallory or member == town.rogue.me
            if (then := at.pop(id(each), None)) is not None:
                self.ahead.append(steps[0] - then)
            return step(each)

        patch.setattr(queue, "put", putting)
        patch.setattr(loop, "_step", stepping)


class Charged:
    """The work that Alice charges, by member, in us."""

    def __init__(self, town, patch):
        self.us = dict.fromkeys(town.alice.group.view.members, 0)
        alice, charge, settle = town.alice.group.me, rate_limits.charge_work, rate_limits.settle_work

        def charging(tx, name, member, cost_us):
            charge(tx, name, member, cost_us)
            if tx.group(name).me == alice:
                self.us[member] += cost_us

        def settling(tx, name, member, more_us):
            settle(tx, name, member, more_us)
            if tx.group(name).me == alice:
                self.us[member] += more_us

        patch.setattr(rate_limits, "charge_work", charging)
        patch.setattr(rate_limits, "settle_work", settling)


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_delays_its_sender_not_the_others(town, kind, monkeypatch, budget):
    alice, bob, rogue = town.alice, town.bob, town.rogue
    sustained = budget(SUSTAINED_S * rate_limits.ENVELOPES_PER_S)
    envelopes = town.envelopes(kind, rate_limits.ENVELOPES_MAX + sustained)
    queued, charged = Queued(town, monkeypatch), Charged(town, monkeypatch)
    alice.steps.clear()
    began_ms = time.time() * 1000
    allowed, sent, said, last = rate_limits.ENVELOPES_MAX, 0, 0, 0
    while (sent < len(envelopes) and said < last + PATIENCE) or said < WORDS_MIN:
        with suppress(zmq.Again):
            while sent < min(allowed, len(envelopes)):
                rogue.dealer.socket.send(envelopes[sent], zmq.NOBLOCK)
                sent, last = sent + 1, said
        with suppress(zmq.Again):
            while True:
                rogue.dealer.socket.recv_multipart(zmq.NOBLOCK)
        bob.client.send_message("friends", f"bob {said}")
        alice.client.send_message("friends", f"alice {said}")
        allowed, said = allowed + rate_limits.ENVELOPES_PER_S // 10, said + 1
        time.sleep(0.1)
    words = {f"{name} {number}" for name in ("alice", "bob") for number in range(said)}
    until(lambda: words <= set(texts(alice)) & set(texts(bob)), "that everything arrives")
    until(lambda: not (alice.thread.loop.executor.busy or alice.thread.loop._queue), "the end of the flood")
    allowed_us = rate_limits.WORK_US_MAX + (time.time() * 1000 - began_ms) * rate_limits.WORK_US_PER_S / 1000
    steps = list(alice.steps)
    hers = [
        (each, effects)
        for each, effects in steps
        if (isinstance(each, Received) and each.link == queued.mallory)
        or (isinstance(each, CAUSED) and each.member == rogue.me)
    ]
    dropped = sum(isinstance(effect, Measure) for _, effects in hers for effect in effects)
    print(
        f"{kind}: {len(hers)} steps for Mallory, {dropped} with something dropped,"
        f" {charged.us[rogue.me] / 1e6:.2f} s of {allowed_us / 1e6:.2f} s charged;"
        f" {sent} sent; {2 * said} honest messages, behind at most {max(queued.ahead)} steps"
    )
    assert len(hers) >= rate_limits.ENVELOPES_MAX // 4
    assert charged.us[rogue.me] <= allowed_us + rate_limits.STEP_WORK_US_MAX
    assert median(queued.ahead) <= 1 and max(queued.ahead) <= AHEAD_MAX
    parts = sum(effect.count for _, effects in hers for effect in effects if isinstance(effect, ReadParts))
    statements = sum(isinstance(effect, StoreStatement) for _, effects in hers for effect in effects)
    assert parts if kind == "file requests" else not parts
    assert statements if kind == "statements" else True
    assert statements <= 3 * rate_limits.STATEMENTS_MAX + 3
    others = [
        effects for each, effects in steps if isinstance(each, Received) and each.link not in (queued.mallory, b"")
    ]
    assert not any(effect == Measure("throttled") for effects in others for effect in effects), "no other member pays"
    assert charged.us[bob.group.me] < rate_limits.WORK_US_MAX
    assert alice.is_well() and bob.is_well()
