"""A member that claims another's server key keeps no member from the other, and gets nothing of it."""

import pytest

from tests.support.small_world import PERFECT, Small
from zerochat.group.inputs import LeaveGroup, Received, SendPost, Started
from zerochat.group.links import hosts, rate_limits
from zerochat.group.wire.frame import VERSION
from zerochat.sim import World

LIAR, DIALER, VICTIM = "n1", "n2", "n3"
"""n0 has founded the group; DIALER cannot be dialled."""


class Claimed(Small):
    """A liar joins with the victim's server key in its contact: under its own address or under the victim's."""

    def __init__(self, *, foreign_address, victim_last=True):
        self.told = []
        World.__init__(self, 1, 4, PERFECT, "didcomm/v2", behind={DIALER: ()})
        liar, victim = self.nodes[LIAR], self.nodes[VICTIM]
        at = victim if foreign_address else liar
        self.process(LIAR, Started(at.address, at.queue_address, victim.server_key))
        self.id = self.found()
        for name in (LIAR, *((DIALER, VICTIM) if victim_last else (VICTIM, DIALER))):
            assert self.join(name, self.invite(self.id)).phase == "joined"
        self.run(for_ms=60_000)

    def link(self, of, to):
        return self.group(of).links.peers[self.group(to).me].link

    def answered_key(self, of, to):
        return self.group(of).links.peers[self.group(to).me].answered_key

    def exchange_posts(self, *names):
        """Each of these posts, and the others get it."""
        for name in names:
            self.run_command(name, SendPost(self.id, f"from {name}"))
        heads = {name: self.group(name).seq for name in names}

        def complete():
            return all(self.group(a).chain(self.group(b).me).seq == heads[b] for a in names for b in names if a != b)

        assert self.run(complete, for_ms=60_000)


@pytest.mark.parametrize("foreign_address", [False, True])
@pytest.mark.parametrize("victim_last", [False, True])
def test_a_claimed_server_key_hides_no_member(foreign_address, victim_last):
    world = Claimed(foreign_address=foreign_address, victim_last=victim_last)
    key = world.nodes[VICTIM].server_key
    assert len(hosts.claimants(world.group(DIALER), key)) == 2
    assert world.nodes[DIALER].connected.get(world.link(DIALER, VICTIM)) == VICTIM
    world.exchange_posts("n0", DIALER, VICTIM)
    assert world.answered_key(DIALER, VICTIM) == key
    assert world.link(DIALER, LIAR) not in world.nodes[DIALER].dialled, "it is shown whose key it is"


def test_messages_of_a_connection_that_the_member_dialled_prove_no_server_key():
    world = Claimed(foreign_address=False)
    relationship = world.group("n0").links.relationships[world.group(LIAR).me]
    assert relationship.established
    assert world.answered_key("n0", LIAR) == b""


@pytest.mark.parametrize("victim_last", [False, True])
def test_a_liar_without_allowance_stops_no_message_of_the_victim(monkeypatch, victim_last):
    """At the address that both announce, the victim's messages may arrive over the liar's link."""
    spend = rate_limits.spend_envelope
    monkeypatch.setattr(
        rate_limits,
        "spend_envelope",
        lambda tx, name, did, size: not is_liar(tx, name, did) and spend(tx, name, did, size),
    )
    Claimed(foreign_address=True, victim_last=victim_last).exchange_posts(DIALER, VICTIM)


def is_liar(tx, name, did):
    return tx.group(name).view.members[did].label == LIAR


def test_a_claimant_is_dialled_again_when_the_holder_of_the_key_has_gone():
    world = Claimed(foreign_address=True)
    world.exchange_posts(DIALER, VICTIM)
    assert world.link(DIALER, LIAR) not in world.nodes[DIALER].dialled
    world.run_command(VICTIM, LeaveGroup(world.id))
    world.run(for_ms=60_000)
    assert world.link(DIALER, LIAR) in world.nodes[DIALER].dialled


def test_an_envelope_that_no_claimant_pays_for_is_not_tried(monkeypatch):
    world = Claimed(foreign_address=False)
    tried = count_trials(monkeypatch)
    key, link = world.nodes[VICTIM].server_key, world.link(DIALER, VICTIM)
    monkeypatch.setattr(rate_limits, "spend_envelope", lambda tx, name, did, size: False)
    world.process(DIALER, Received(link, VERSION + bytes(500), host=key))
    assert not tried


def test_claims_of_others_make_no_message_of_the_holder_costly(monkeypatch):
    """The relationship of the member that has answered under the key is tried first, over whichever link."""
    world = Claimed(foreign_address=False)
    tried = count_trials(monkeypatch)
    world.exchange_posts(DIALER, VICTIM)
    assert {one.member for one in tried} == {world.group(VICTIM).me}


def test_trying_several_claimants_is_charged(monkeypatch):
    world = Claimed(foreign_address=False)
    key, link = world.nodes[VICTIM].server_key, world.link(DIALER, VICTIM)
    tried = count_trials(monkeypatch)
    for _ in range(10):
        world.process(DIALER, Received(link, VERSION + bytes(500), host=key))
    assert len({one.member for one in tried}) == 2
    victim = world.group(DIALER).links.peers[world.group(VICTIM).me]
    assert victim.rate_limit.work <= rate_limits.WORK_US_MAX - 10 * hosts.TRIAL_WORK_US


def count_trials(patch):
    """The relationships whose keys are tried from now on."""
    tried, whole = [], hosts._is_for
    patch.setattr(hosts, "_is_for", lambda *args: tried.append(args[2]) or whole(*args))
    return tried
