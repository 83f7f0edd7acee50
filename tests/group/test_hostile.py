"""A member that breaks the rules: the others keep communicating and agree."""

from itertools import islice

import pytest

from tests.support.hostile_world import Hostile
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.event_log.event import DEPS_MAX, LABEL, LEAVE
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.inputs import ChangeLabel, SendPost, StepContext
from zerochat.group.links import peers, rate_limits
from zerochat.group.membership import check_all, heads_of, log, missing, quota
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Agent
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, FORK_PROOF, HEADS_MAX, STATUS, SYNC
from zerochat.sim import floods, play_history
from zerochat.sim.world import Node


@pytest.mark.parametrize("leaves", [DEPS_MAX + 1, HEADS_MAX + 2])
def test_any_number_of_heads_is_handled(leaves, monkeypatch):
    monkeypatch.setattr(rate_limits, "EXCEEDING_MAX", 8 * rate_limits.EXCEEDING_MAX)
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
    while world.group("n0").links.acked(other, me) < posted:
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
    left = world.group("n0").links.peers[world.mallory.me].rate_limit.work
    assert 0 < left < rate_limits.WORK_US_MAX - rate_limits.ENVELOPE_WORK_US


def test_an_envelope_is_work_and_none_is_opened_without(monkeypatch):
    """However little is asked for in it. What is dropped unopened changes nothing, and so is not written."""
    world, opened = Hostile(), []
    mode = type(world.group("n0").mode)
    open_ = mode.open
    monkeypatch.setattr(mode, "open", lambda *about: opened.append(1) or open_(*about))
    monkeypatch.setattr(rate_limits, "WORK_US_MAX", 10 * rate_limits.ENVELOPE_WORK_US)
    for _ in range(20):
        world.utter("n0", STATUS, {"runs": [], "view": "", "have": []})
    assert len(opened) == 10
    before = world.nodes["n0"].agent
    world.utter("n0", STATUS, {"runs": [], "view": "", "have": []})
    assert world.nodes["n0"].agent is before
    world.run(for_ms=1_000)
    opened.clear()
    world.utter("n0", STATUS, {"runs": [], "view": "", "have": []})
    assert opened


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
    monkeypatch.setattr(rate_limits, "EXCEEDING_MAX", 8 * rate_limits.EXCEEDING_MAX)
    world.utter_event("n0", first)
    known = world.group("n0").control.keys() - group.control.keys()
    assert first.id in known and len(known) < 10 and not world.group("n0").log.blocked
    monkeypatch.setattr(log, "RESOLVE_WORK_US", 0)
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


TELLINGS = 8
"""How often the same is told, every few seconds: what a member does not accept, the hostile one repeats."""


def equivocate(world, victims):
    """Mallory tells each of these members 192 renames of her own that the others do not get from her. Returns the
    events that they have then."""

    def told(name, later_ms):
        did = world.group(name).me
        link = world.mallory.links.relationships[did]
        by = floods.Flooder(world.mallory, did, link, world.now + later_ms, world.rng.randbytes)
        return [(name, *message) for message in islice(floods.membership(by), 3)]

    messages = [one for at, name in enumerate(victims) for one in told(name, 1_000 * at)]
    for _ in range(TELLINGS):
        for name, kind, body in messages:
            world.utter(name, kind, body)
        world.run(for_ms=3_000)
    return set().union(*(world.group(name).control for name in victims))


def agree(world, victims):
    return len({world.group(name).view.checksum for name in victims}) == 1


@pytest.mark.parametrize(
    ("members", "inviter", "room"),
    [
        (4, "n0", 0),
        pytest.param(12, "n0", 512, marks=pytest.mark.slow),
        pytest.param(12, "n1", 0, marks=pytest.mark.slow),
    ],
)
def test_an_equivocator_with_full_quotas_divides_nobody(members, inviter, room, monkeypatch):
    """Each member had 256 of its renames and refused those of the others, and so all that depended on them.

    `inviter`: has added all others. `room`: for so many events, as if the group had the others already."""
    world = Hostile(members, inviter)
    before = world.group("n0").control.keys()
    if room:
        monkeypatch.setattr(quota, "RELAYED_MAX", len(before) + room)
    victims = world.victims
    known = equivocate(world, victims) - before
    assert len(known) < 1.5 * rate_limits.BRANCH_EVENTS_MAX
    assert world.run(lambda: agree(world, victims), for_ms=600_000)
    assert known <= world.group("n0").control.keys()
    check_all(missing(world.group("n0").control, []))
    for name in victims:
        world.run_command(name, SendPost(world.id, f"from {name}"))
    dids = {name: world.group(name).me for name in victims}
    heard = [(name, did) for name in victims for did in dids.values() if did != dids[name]]
    assert world.run(lambda: all(world.group(name).chain(did).seq for name, did in heard), for_ms=60_000)


def test_an_equivocator_may_leave_at_once(monkeypatch):
    world = Hostile()
    equivocate(world, ["n0", "n1"])
    monkeypatch.setattr(rate_limits, "EXCEEDING_MAX", 0)
    place = {"deps": heads_of(world.group("n0").control), "lamport": world.group("n0").log.lamport + 1}
    rename = world.event(type=LABEL, body={"label": "x"}, **place).signed(world.mallory.seed)
    for _ in range(2):
        world.utter_event("n0", rename)
    assert rename.id not in world.group("n0").control
    world.utter_event("n0", world.event(type=LEAVE, body={}, **place).signed(world.mallory.seed))
    assert world.mallory.me not in world.group("n0").view.members


def spend(world, by, sender, times=1):
    """How many of so many membership events a member may bring another one."""
    accepted = 0
    for _ in range(times):
        tx = Transaction(world.nodes[by].agent, StepContext(world.now, world.rng.randbytes), {})
        accepted += rate_limits.spend_branch_event(tx, world.id, world.group(sender).me)
        world.nodes[by].agent = tx.agent
    return accepted


def test_a_member_has_one_share_with_those_that_it_added():
    """Not with those that came in through the same member as the one that counts."""
    world = Hostile(8, "n6")  # n6 has added n7, and n0 the others
    share = rate_limits.BRANCH_EVENTS_MAX // 8
    assert spend(world, "n0", "n7", 2 * share) == share
    assert spend(world, "n0", "n6") == 0
    assert spend(world, "n0", "n5") == spend(world, "n7", "n6") == 1
    assert spend(world, "n7", "n0", 2 * share) == 2 * share, "the founder has no such limit"
    world.now += 10_000
    assert spend(world, "n0", "n6", share) == 10


def test_the_members_of_a_large_branch_have_a_share_each():
    world = Hostile(6, "n1")  # n0 has added n1, and n1 the others
    share = rate_limits.BRANCH_EVENTS_MAX // 6
    for recipient, sender in (("n0", "n2"), ("n0", "n3"), ("n0", "n1"), ("n2", "n3"), ("n2", "n1")):
        assert spend(world, recipient, sender, 2 * share) == share


def test_admissions_are_not_slowed():
    world = Hostile(4, "n1")
    for _ in range(60):
        assert spend(world, "n2", "n1") == 1
        world.now += 2_000
    assert spend(world, "n2", "n1", 60) == 60, "and as many at once"


@pytest.mark.slow
def test_halves_that_were_apart_for_long_merge():
    world = Hostile(5)
    halves = ("n0", "n1"), ("n2", "n3")
    for here, there in (halves, halves[::-1]):
        for name in there:
            world.stop(name)
        for number in range(200):
            world.run_command(here[1], ChangeLabel(world.id, f"{here[1]} {number}"))
            world.run(for_ms=1_000)
        world.run(for_ms=30_000)
        assert agree(world, here)
        for name in here:
            world.stop(name)
        for name in there:
            world.start(name)
    for name in halves[0]:
        world.start(name)
    honest = [*halves[0], *halves[1]]
    assert world.run(lambda: agree(world, honest) and len(world.group("n0").control) > 400, for_ms=180_000)


def test_a_fork_proof_may_exceed_the_limits(monkeypatch):
    world = Hostile()
    heads = heads_of(world.group("n0").control)
    for number in range(3):
        world.run_command("n2", ChangeLabel(world.id, f"called {number}"))
        world.run(for_ms=2_000)
    place = {"type": LABEL, "deps": heads, "lamport": world.group("n1").log.lamport + 1}
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 3)
    forked = [world.event(**place, body={"label": f"m{n}"}).signed(world.mallory.seed) for n in range(2)]
    world.utter("n0", FORK_PROOF, {"group": world.id, "runs": write_runs(forked)}, by="n1")
    assert world.mallory.me in world.group("n0").trust.fork_proofs
