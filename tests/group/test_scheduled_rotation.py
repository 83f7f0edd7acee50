"""Scheduled DID rotation: `rotate --every`, and what it erases."""

import pytest
from msgspec import msgpack

from tests.support.external_pair import ALICE, Two
from tests.support.mediated_world import Behind
from zerochat.didcomm import PACKERS
from zerochat.group import clock_changes, did_rotation
from zerochat.group.did_rotation import NotReady
from zerochat.group.inputs import EndConnection, RotateDid, SendBasicMessage, StepContext, TimerFired, WebReceived
from zerochat.group.notifications import BasicMessageReceived
from zerochat.group.state import PeerRef
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

HOUR, DAY = 3_600_000, 24 * 3_600_000
ROUND = TimerFired(f"{TimerKind.ROTATION} ")


class Pair(Two):
    """Bob's DID towards Alice, after rounds at these times."""

    def __init__(self, envelope="didcomm/v2"):
        super().__init__()
        self.connect(envelope)
        self.id = self.one("bob").id

    def after(self, ms):
        self.now += ms
        self.process("bob", ROUND)
        return self.one("bob").relationship.mine.short


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_a_did_is_rotated_at_the_interval(envelope):
    pair = Pair(envelope)
    before = pair.one("bob").relationship.mine.short
    pair.ask("bob", RotateDid(pair.id, DAY))
    first = pair.one("bob").relationship.mine.short
    assert first != before, "at once"
    assert did_rotation.interval_ms(pair.agents["bob"], PeerRef(connection=pair.id)) == DAY
    assert pair.after(DAY - 1) == first
    second = pair.after(1)
    assert second != first and pair.after(DAY - 1) == second and pair.after(1) != second
    pair.ask("bob", SendBasicMessage(pair.id, "still here"))
    assert pair.news("alice", BasicMessageReceived)[-1].text == "still here"


def test_never_ends_it_and_a_single_rotation_leaves_it():
    pair = Pair()
    pair.ask("bob", RotateDid(pair.id, DAY))
    pair.ask("bob", RotateDid(pair.id))
    here = pair.one("bob").relationship.mine.short
    assert pair.after(DAY) != here
    here = pair.one("bob").relationship.mine.short
    pair.ask("bob", RotateDid(pair.id, 0))
    assert pair.after(10 * DAY) == here and not pair.agents["bob"].rotations


def test_a_peer_that_is_away_is_rotated_towards_once_it_is_back():
    """A rotation that the peer has not confirmed blocks the next one, which is made later, and not twice."""
    pair = Pair()
    pair.ask("bob", RotateDid(pair.id, DAY))
    pair.down = {ALICE}
    pending = pair.after(DAY)
    assert pair.after(DAY) == pending == pair.after(DAY), "nothing more until it is confirmed"
    pair.down = set()
    assert pair.after(HOUR) == pending and pair.one("bob").relationship.rotation is None, "confirmed now"
    resumed = pair.after(HOUR)
    assert resumed != pending and pair.after(HOUR) == resumed


def test_a_clock_that_is_set_back_delays_no_rotation():
    pair = Pair()
    pair.ask("bob", RotateDid(pair.id, DAY))
    here = pair.one("bob").relationship.mine.short
    pair.now -= 365 * DAY
    tx = Transaction(pair.agents["bob"], StepContext(pair.now, pair.rng.randbytes), PACKERS)
    clock_changes.clamp_deadlines(tx)
    pair.agents["bob"] = tx.agent
    assert pair.after(DAY) != here


def test_a_schedule_ends_with_its_connection():
    pair = Pair()
    pair.ask("bob", RotateDid(pair.id, DAY))
    pair.ask("bob", EndConnection(pair.id))
    pair.now += DAY
    pair.process("bob", ROUND)
    assert not pair.agents["bob"].rotations


def test_later_keys_open_no_earlier_envelopes():
    """What is promised: the state after a confirmed rotation has no secret that opens what was sent before."""
    pair = Pair()
    pair.ask("alice", SendBasicMessage(pair.one("alice").id, "before"))
    recorded, old = pair.sent[-1], pair.one("bob").relationship.mine
    secrets = (old.agreement_secret, old.signing_seed)
    pair.ask("bob", RotateDid(pair.id, DAY))
    assert pair.one("bob").relationship.rotation is None, "confirmed"
    state = msgpack.encode(pair.agents["bob"].connections)
    assert not any(secret in state for secret in secrets)
    told = len(pair.told["bob"])
    pair.process("bob", WebReceived(recorded))
    assert len(pair.told["bob"]) == told


def test_members_of_a_group_are_rotated_towards_too():
    world = Behind(2, mediators=0)
    name = world.everybody()

    def mine():
        (relationship,) = world.group("n0").links.relationships.values()
        return relationship.mine.short

    first = mine()
    world.run_command("n0", RotateDid("friends/n1", DAY))
    world.settle()
    second = mine()
    world.run(for_ms=DAY + 2 * HOUR)
    assert len({first, second, mine()}) == 3
    world.post(name, "n0", "after")
    world.settle()
    assert len(world.texts("n1")) == 1


def test_only_an_established_relationship_is_rotated():
    pair = Pair()
    pair.ask("bob", EndConnection(pair.id))
    with pytest.raises(NotReady):
        pair.ask("alice", RotateDid(pair.one("alice").id, DAY))
    assert not pair.agents["alice"].rotations
