"""A member that breaks the rules: the others keep communicating and agree."""

from itertools import islice

import pytest

from tests.support.hostile_world import Hostile
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.event_log.event import DEPS_MAX, LABEL, LEAVE
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.inputs import SendPost, StepContext
from zerochat.group.links import peers, rate_limits
from zerochat.group.membership import AUTHOR_CONTROL_MAX, check_all, heads_of, log, missing
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Agent
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, FORK_PROOF, HEADS_MAX, SYNC
from zerochat.sim import floods, play_history
from zerochat.sim.world import Node


@pytest.mark.parametrize("leaves", [DEPS_MAX + 1, HEADS_MAX + 2])
def test_any_number_of_heads_is_handled(leaves):
    world = Hostile()
    deps = heads_of(world.group("n0").control)
    for n in range(leaves):
        forked = world.event(type=LEAVE, deps=deps, lamport=world.group("n0").log.lamport + 1, time=n + 1, body={})
        for name in ("n0", "n1"):
            world.utter_event(name, forked.signed(world.mallory.seed))
    assert len(heads_of(world.group("n0").control)) == leaves
    assert sorted(world.disagreements) == ["n0", "n1"], "each says so once"
    world.talk()
    world.talk()


def test_lamport_time_cannot_be_exhausted():
    world = Hostile()
    wall, pre = world.now, ""
    for n in range(1, 400):
        event = world.event(seq=n, pre=pre, lamport=wall + n * (AHEAD_MS_MAX - 1_000))
        world.utter_event("n0", event)
        if world.group("n0").log.chains[world.mallory.me].head_id == event.id:
            pre = event.id
    assert world.group("n0").log.lamport <= world.now + 5 * 60_000
    world.talk()


def test_late_chain_start_hides_nothing():
    world = Hostile()
    first = world.event()
    world.utter_event("n0", first)
    sync = {
        "group": world.id,
        "view": world.group("n0").view.checksum,
        "have": [],
        "start_seq": 50,
        "acked": 0,
        "heads": [],
        "reach": {"pair": "zmq+tcp://10.0.0.3:7000", "queue": "zmq+tcp://10.0.0.3:7001", "at": 0},
    }
    world.utter("n0", SYNC, sync)
    assert world.group("n0").log.chains[world.mallory.me].seq == 1
    world.talk()


def test_forked_events_are_not_both_delivered():
    world = Hostile()
    one, other = world.event(body={"text": "yes"}), world.event(body={"text": "no"})
    world.utter_event("n0", one)
    world.utter_event("n0", other)
    assert world.forks == ["n0"]
    assert world.group("n0").log.chains[world.mallory.me].head_id == one.id


def test_view_flood_is_answered_rarely():
    world = Hostile()
    sent = []
    world._frame = lambda name, input_: sent.append(name)  # type: ignore[method-assign]
    sync = {
        "group": world.id,
        "view": "nonsense",
        "have": [],
        "start_seq": 0,
        "acked": 0,
        "heads": [],
        "reach": {"pair": "zmq+tcp://10.0.0.3:7000", "queue": "zmq+tcp://10.0.0.3:7001", "at": 0},
    }
    for _ in range(100):
        world.utter("n0", SYNC, sync)
    assert len(sent) <= len(world.group("n0").control) + 1


@pytest.mark.parametrize("shown_to", [("n0",), ("n0", "n1")])
def test_membership_events_without_end_prevent_no_acknowledgement(shown_to):
    """Positions of other chains are compared only between equal views; an acknowledgement does not depend on them."""
    world = Hostile()
    me, other = world.group("n0").me, world.group("n1").me
    world.run_command("n0", SendPost(world.id, "hello"))
    posted, renames, pre = world.group("n0").seq, 0, ""
    while world.group("n0").links.peers[other].acks.upto.get(me, 0) < posted:
        group, renames = world.group("n0"), renames + 1
        body, place = {"label": f"m{renames}"}, {"seq": renames, "pre": pre, "deps": heads_of(group.control)}
        event = world.event(type=LABEL, body=body, lamport=group.log.lamport + 1, **place).signed(world.mallory.seed)
        for name in shown_to:
            world.utter_event(name, event)
        pre = event.id
        assert event.id in world.group("n0").control and renames <= 20
        world.run(for_ms=100)
    assert renames > 0


def test_unproven_key_claim_has_no_effect():
    world = Hostile()
    group = world.group("n0")
    assert set(group.links.relationships) == set(group.links.peers), "a claim alone makes no relationship"


def test_event_needs_its_authors_signature():
    world = Hostile()
    victim = world.group("n1").me
    before = world.nodes["n0"].agent
    world.utter_event("n0", world.event(author=victim))
    assert world.nodes["n0"].agent == before
    assert world.nodes["n0"].dropped["dropped Refused"] == 1


def test_seed_20434_chain_start_needs_posts():
    play_history(20434)


def test_joiner_without_room_is_informed(monkeypatch):
    """Members that come and go quickly stay peers for a moment after they left."""
    world = Hostile()
    invitation = world.invite(world.id)
    monkeypatch.setattr(peers, "PEERS_MAX", 2)
    world.nodes["n3"] = Node(
        "n3", Endpoint("10.0.0.9", 7000), Endpoint("10.0.0.9", 7001), world.nodes["n0"].server_key[::-1], Agent("n3")
    )
    world.start("n3")
    told = world.join("n3", invitation)
    assert told.phase == "failed" and "full" in told.text
    world.talk()


def test_work_is_refilled_and_survives_a_clock_that_is_set_back():
    world = Hostile()
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), {})
    mallory = world.mallory.me

    def later(ms):
        return Transaction(tx.agent, StepContext(world.now + ms, world.rng.randbytes), {})

    rate_limits.charge_work(tx, world.id, mallory, rate_limits.WORK_US_MAX)
    with pytest.raises(rate_limits.TooMuchWork):
        rate_limits.charge_work(later(0), world.id, mallory, 1)
    rate_limits.charge_work(later(1_000), world.id, mallory, 1)
    rate_limits.charge_work(later(-1_000), world.id, mallory, 1)
    tx = later(1_000)
    rate_limits.settle_work(tx, world.id, mallory, -2 * rate_limits.WORK_US_MAX)
    assert tx.peer(world.id, mallory).rate_limit.work == rate_limits.WORK_US_MAX


def test_the_work_of_a_rejected_envelope_stays_spent():
    world = Hostile()
    event = world.event(type=LABEL, body={"label": "x"}, deps=heads_of(world.mallory.control))
    world.utter_event("n0", event)  # its signature is missing: refused after work
    assert 0 < world.group("n0").links.peers[world.mallory.me].rate_limit.work < rate_limits.WORK_US_MAX


def test_the_end_of_a_gap_before_a_known_membership_event_is_notified():
    world, seen = Hostile(), []
    perform = world._perform

    def watched(node, effect):
        if node.name == "n0" and isinstance(getattr(effect, "notification", None), ViewChanged):
            seen.append(effect.notification)
        perform(node, effect)

    world._perform = watched  # type: ignore[method-assign]
    post = world.event(body={"text": "first"})
    place = {"seq": 2, "pre": post.id, "deps": heads_of(world.mallory.control), "lamport": post.lamport + 1}
    label = world.event(type=LABEL, body={"label": "M"}, **place).signed(world.mallory.seed)
    world.utter_event("n0", label)
    assert world.group("n0").log.reorder_buffers.keys() == {world.mallory.me}
    seen.clear()
    world.utter("n0", EVENTS, {"runs": write_runs([post]), "view": "", "have": []})
    assert world.group("n0").chain(world.mallory.me).seq == 2 and seen == [ViewChanged(world.id)]


def test_membership_events_that_waited_are_charged(monkeypatch):
    """Sixty concurrent events that wait for another one take effect in one step: not more of them than their sender may
    cause work. The others come again."""
    world = Hostile()
    first = world.event(type=LABEL, deps=heads_of(world.group("n0").control), body={"label": "m"})
    first = first.signed(world.mallory.seed)
    place = {"type": LABEL, "deps": (first.id,), "pre": first.id, "seq": 2, "lamport": first.lamport + 1}
    others = [world.event(**place, body={"label": f"m{n}"}).signed(world.mallory.seed) for n in range(60)]
    for event in others:
        world.utter_event("n0", event)
    group = world.group("n0")
    assert len(group.log.blocked) == len(others) and first.id not in group.control
    monkeypatch.setattr(log, "RESOLVE_WORK_US", rate_limits.STEP_WORK_US_MAX // 20)
    world.utter_event("n0", first)
    known = world.group("n0").control.keys() - group.control.keys()
    assert first.id in known and len(known) < 10 and not world.group("n0").log.blocked
    monkeypatch.undo()
    for event in others:
        world.utter_event("n0", event)
    assert {event.id for event in others} < world.group("n0").control.keys()
    world.talk()


def test_the_events_of_a_fork_proof_are_charged(monkeypatch):
    world = Hostile()
    heads = heads_of(world.group("n0").control)
    place = {"type": LABEL, "deps": heads, "lamport": world.group("n0").log.lamport + 1}
    forked = [world.event(**place, body={"label": f"m{n}"}).signed(world.mallory.seed) for n in range(16)]
    monkeypatch.setattr(log, "RESOLVE_WORK_US", rate_limits.WORK_US_MAX // 20)
    resolved, whole = [], ViewBuilder.of
    monkeypatch.setattr(ViewBuilder, "of", lambda events: resolved.append(1) or whole(events))
    for _ in range(5):
        world.utter("n0", FORK_PROOF, {"group": world.id, "runs": write_runs(forked)})
    assert len(resolved) < 10
    monkeypatch.undo()
    world.run(for_ms=60_000)
    world.talk()


def test_an_equivocator_with_full_quotas_divides_nobody():
    """Each of two members had 256 of its renames and refused 128 of the other's, and so all that depended on them."""
    world = Hostile()
    for name, later_ms in (("n0", 0), ("n1", 1_000)):
        did = world.group(name).me
        link = world.mallory.links.relationships[did]
        flooder = floods.Flooder(world.mallory, did, link, world.now + later_ms, world.rng.randbytes)
        for kind, body in islice(floods.membership(flooder), 3):
            world.utter(name, kind, body)
    told = len(world.group("n0").control.keys() - world.group("n1").control.keys())
    assert 2 * told > AUTHOR_CONTROL_MAX > told
    world.talk()
    assert world.group("n0").control.keys() == world.group("n1").control.keys()
    world.talk()
    check_all(missing(world.group("n0").control, []))
