"""Replays of recorded bytes and envelopes, by the network and by a member with keys.

Every byte that two agents have exchanged is sent again to both, ten times, in the original and in any other order; so
is every envelope, over links with the right keys. The logs must be byte-identical afterwards.
"""

import random
import socket
import time
from contextlib import suppress

import pytest

from tests.support.agents import meet as meet_here
from tests.support.agents import until
from tests.support.chaos_proxy import Chaos, Tape
from tests.support.load_gauge import ports_of
from tests.support.machines import acknowledged, check, machines, meet
from tests.support.rogue import Rogue, Watched, at_rest
from tests.support.sockets import strangers
from zerochat.agent.network.zmq import bans
from zerochat.group.effects import StoreEvent
from zerochat.group.inputs import Received
from zerochat.group.links import rate_limits

TIMES = 10


@pytest.fixture
def chaos():
    with Chaos() as chaos:
        yield chaos


class Again:
    """Says recorded pieces to one agent, over a new connection whenever it is cut."""

    def __init__(self, ports, dice):
        self.ports, self.dice = ports, dice
        self.connections = self.pieces = 0
        self.one = None

    def say(self, piece):
        self.pieces += 1
        if self.one is None:
            self.connections += 1
            self.one = socket.create_connection(("127.0.0.1", self.dice.choice(self.ports)), 5)
        try:
            self.one.sendall(piece)
            self.one.settimeout(0.001)
            with suppress(TimeoutError):
                if not self.one.recv(65_536):
                    self.hang_up()
        except OSError:
            self.hang_up()

    def hang_up(self):
        if self.one is not None:
            self.one.close()
            self.one = None


def log(machine):
    """All that it has, as bytes."""
    return repr([machine.history(), machine.events()]).encode()


@pytest.mark.chaos
def test_recorded_bytes_change_nothing(tmp_path, chaos):
    dice = random.Random(11)
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        tapes = {}
        for speaker, listener in ((alice, bob), (bob, alice)):
            tapes[listener] = chaos.way(speaker.name, listener.name).garble = Tape()
        meet(alice, bob)
        for number in range(20):
            for machine in everybody:
                machine.say(f"{machine.name} says {number}")
        acknowledged(everybody)
        chaos.heal()
        recorded = {listener: list(tape.pieces) for listener, tape in tapes.items()}
        before = {machine: log(machine) for machine in everybody}
        for listener, pieces in recorded.items():
            again = Again(ports_of(listener), dice)
            for piece in pieces:  # as it was: a whole handshake, and what came after it
                again.say(piece)
            again.hang_up()
            anyhow = pieces * TIMES
            dice.shuffle(anyhow)
            begun = time.monotonic()
            for piece in anyhow:
                again.say(piece)
            again.hang_up()
            print(
                f"to {listener.name}: {len(pieces)} pieces, {again.pieces} said over {again.connections} connections"
                f" in {time.monotonic() - begun:.1f} s"
            )
            assert len(pieces) > 20
        assert {machine: log(machine) for machine in everybody} == before
        alice.say("after all that")
        acknowledged(everybody)
        check(everybody)


@pytest.mark.chaos
def test_recorded_envelopes_change_nothing(tmp_path, monkeypatch):
    """Over links of the keys that they came over, as only a member's own device could."""
    monkeypatch.setattr(bans, "STRIKES_MAX", 1_000_000)  # or it would soon not be listened to at all
    monkeypatch.setattr(rate_limits, "ENVELOPES_MAX", 1_000_000)
    dice = random.Random(12)
    alice, bob = (Watched(tmp_path, name).wake() for name in ("alice", "bob"))
    try:
        meet_here(alice, bob)
        for number in range(20):
            for one in (alice, bob):
                text = f"{one.name} says {number}"
                assert one.client.wait_for_delivery("friends", one.client.send_message("friends", text).id).complete
        before = {one: (one.ids(), one.group.view, one.group.log.chains) for one in (alice, bob)}
        with strangers() as make:
            for listener, speaker in ((alice, bob), (bob, alice)):
                heard = [stimulus.envelope for stimulus, _ in list(listener.steps) if isinstance(stimulus, Received)]
                anyhow = heard * TIMES
                dice.shuffle(anyhow)
                rogue = Rogue(speaker, listener, make)
                seen = len(listener.steps)
                for envelope in anyhow:
                    rogue.dealer.socket.send(envelope)
                assert rogue.send(b"the end") == "Malformed"
                again = [
                    effect
                    for stimulus, effects in list(listener.steps)[seen:]
                    if isinstance(stimulus, Received)
                    for effect in effects
                ]
                assert not any(isinstance(effect, StoreEvent) for effect in again)
                print(f"to {listener.name}: {len(heard)} envelopes, {len(anyhow)} said")
                assert len(heard) > 40
                rogue.dealer.close()
        until(lambda: {one: (one.ids(), one.group.view, one.group.log.chains) for one in before} == before, "the same")
        assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "after all that").id).complete
        assert alice.is_well() and bob.is_well()
    finally:
        at_rest(alice, bob)
