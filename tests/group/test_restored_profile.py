"""A restored profile sends nothing before it knows its own chain head, and rejoins all peers."""

import random

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut
from tests.support.restored_world import older
from zerochat.errors import NotAMember
from zerochat.group.effects import CommandFailed, GroupChanged, ReadOwnEvents, SendEnvelope, StoreEvent
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CreateInvitation,
    LeaveGroup,
    Received,
    ResumeGroup,
    RotateDid,
    SendPost,
)
from zerochat.group.links import pairing
from zerochat.group.membership import Policy
from zerochat.group.notifications import JoinProgress, RecoveryEnded
from zerochat.group.sync import acknowledgements, pull_requests, stale_profile
from zerochat.group.wire.messages import PositionsBody


def restored(world, name, state, rows):
    """The same, and it knows."""
    world.nodes[name].agent, world.nodes[name].log = state, list(rows)
    world.restart(name, restored=True)


def test_r20_a_restored_profile_sends_nothing_before_recovery():
    world = Cut(members=2)
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    first = world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    older(world, "n0", state, rows)
    world.run(for_ms=100)
    world.deaf.clear()
    world.run(for_ms=200_000)
    assert world.texts("n0") == ["one", "two", "three"]
    assert any(isinstance(one, RecoveryEnded) for one in world.notices["n0"])
    world.post("n0", "four")
    world.run(for_ms=20_000)
    assert world.texts("n1") == world.texts("n0") == ["one", "two", "three", "four"]
    assert world.nodes["n1"].agent.groups[world.id].chain(world.did("n0")).fork_seq == 0
    assert first


def test_a_restored_profile_waits_for_head_claims():
    world = Cut(members=2)
    world.bring_in("n1")
    world.deaf.add(frozenset({"n0", "n1"}))
    restored(world, "n0", world.nodes["n0"].agent, world.nodes["n0"].log)
    refused = world.run_command("n0", SendPost(world.id, "a second first word"))
    assert isinstance(refused, CommandFailed)
    assert "restored from a backup" in refused.error.sentence()
    world.deaf.clear()
    world.run(for_ms=60_000)
    assert world.post("n0", "now")


def test_a_lone_restored_profile_admits_none_before_resume():
    world = Cut(members=3)
    invited = world.run_command("n0", CreateInvitation(world.id, 86_400, 2)).result.invitation
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.bring_in("n1")
    assert world.nodes["n1"].agent.groups
    world.kill("n1")
    restored(world, "n0", state, rows)
    before = world.nodes["n0"].agent.groups[world.id]
    for command in (
        SendPost(world.id, "a second history"),
        ChangeLabel(world.id, "nemo"),
        CreateInvitation(world.id, 3600, 1),
        LeaveGroup(world.id),
    ):
        refused = world.run_command("n0", command)
        assert isinstance(refused, CommandFailed), command
        assert "you were alone in friends when it was made" in refused.error.sentence()
        assert "type `zerochat resume friends`" in refused.error.sentence()
    world.run_command("n2", AcceptInvitation(invited, "n2"))
    world.run(for_ms=10_000)
    failed = [one for one in world.notices["n2"] if isinstance(one, JoinProgress) and one.phase == "failed"]
    assert len(failed) == 1 and "an older copy of its profile" in failed[0].text
    assert "Try again later" in failed[0].text and not world.nodes["n2"].agent.groups
    assert not any(one.claims for one in world.nodes["n0"].agent.invitations.values()), "the invitation is not used up"
    world.run(for_ms=100_000)
    after = world.nodes["n0"].agent.groups[world.id]
    assert (after.seq, after.others) == (before.seq, []) and stale_profile.is_suspended(after), (
        "it does not end by itself"
    )

    answer = world.run_command("n0", ResumeGroup("friends"))
    assert answer.result == GroupChanged(world.id) and world.notices["n0"][-1] == RecoveryEnded(world.id, before.seq)
    world.run_command("n2", AcceptInvitation(invited, "n2"))
    world.run(for_ms=20_000)
    world.post("n0", "so be it")
    world.run(for_ms=20_000)
    assert world.texts("n2") == ["so be it"]


def test_resume_continues_without_missing_members():
    world = Cut(members=3)
    world.bring_in("n1", "n2")
    tx = world.tx("n0")
    stale_profile.start(tx, world.id)
    stale_profile.receive_claim(tx, world.id, world.did("n1"), 1_000)
    world.perform("n0", tx)
    world.kill("n1")
    world.kill("n2")
    world.run(for_ms=300_000)
    assert isinstance(world.run_command("n0", SendPost(world.id, "silenced")), CommandFailed)
    world.run_command("n0", ResumeGroup(world.id))
    assert world.group("n0").sync.recovery.ignored == {world.did("n1")}
    assert world.post("n0", "on")
    refused = world.run_command("n0", ResumeGroup(world.id))
    assert isinstance(refused.error, stale_profile.NothingToResume) and "nothing to resume in friends" in str(
        refused.error
    )
    world.run_command("n0", LeaveGroup(world.id))
    world.run_command("n0", LeaveGroup(world.id))
    assert isinstance(world.run_command("n0", ResumeGroup(world.id)).error, NotAMember)


def test_a_liar_does_not_hide_an_absent_members_claim(monkeypatch):
    world = Cut()
    world.bring_in("n1", "n2")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.deaf |= {frozenset({"n0", "n1"}), frozenset({"n1", "n2"})}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    monkeypatch.setattr(world, "_on_accusation", lambda *_: None)
    world.kill("n2")
    world.deaf.discard(frozenset({"n0", "n1"}))
    hear, liar = stale_profile.receive_claim, world.did("n1")

    def claimed(tx, name, member, upto):
        hear(tx, name, member, tx.group(name).seq + 9 if member == liar else upto)

    monkeypatch.setattr(stale_profile, "receive_claim", claimed)
    older(world, "n0", state, rows)
    tx = world.tx("n0")
    stale_profile.start(tx, world.id)
    hear(tx, world.id, world.did("n2"), tx.group(world.id).seq + 2)
    world.perform("n0", tx)
    world.run(for_ms=300_000)
    refused = world.run_command("n0", SendPost(world.id, "a second two"))
    assert "reported more of your own messages in friends than it has" in refused.error.sentence()
    world.deaf.clear()
    world.restart("n2")
    world.run(for_ms=120_000)
    assert world.texts("n0") == ["one", "two", "three"]
    refused = world.run_command("n0", SendPost(world.id, "a fourth"))
    assert "copy of the profile: n1 reported more" in refused.error.sentence(), "a person sees who silences it"
    world.run_command("n0", ResumeGroup(world.id))
    assert world.post("n0", "four")


def test_a_restored_profile_waits_for_the_only_witness():
    world = Cut()
    world.bring_in("n1", "n2")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.deaf |= {frozenset({"n0", "n1"}), frozenset({"n1", "n2"})}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    world.kill("n2")
    world.deaf.clear()
    restored(world, "n0", state, rows)
    world.run(for_ms=3_600_000)
    refused = world.run_command("n0", SendPost(world.id, "a second two"))
    assert "missing: n2)" in refused.error.sentence()
    world.restart("n0")
    world.run(for_ms=3_600_000)
    assert isinstance(world.run_command("n0", SendPost(world.id, "a second two")), CommandFailed)
    world.restart("n2")
    world.run(for_ms=120_000)
    world.post("n0", "four")
    world.run(for_ms=20_000)
    assert world.texts("n0") == world.texts("n1") == world.texts("n2") == ["one", "two", "three", "four"]
    assert all(world.group(name).chain(world.did("n0")).fork_seq == 0 for name in ("n1", "n2"))


def test_a_restored_profile_queries_members_that_joined_since():
    world = Cut(members=3)
    world.bring_in("n1")
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.bring_in("n2")
    world.deaf |= {frozenset({"n0", "n1"}), frozenset({"n1", "n2"})}
    world.post("n0", "one")
    world.run(for_ms=5_000)
    world.kill("n2")
    world.deaf.clear()
    restored(world, "n0", state, rows)
    world.run(for_ms=600_000)
    refused = world.run_command("n0", SendPost(world.id, "a second one"))
    assert "missing: n2)" in refused.error.sentence()
    world.restart("n2")
    world.run(for_ms=120_000)
    assert world.texts("n0") == ["one"] and world.post("n0", "two")


@pytest.mark.parametrize("first", [True, False])
def test_after_a_restore_every_claimant_is_queried(first, monkeypatch):
    world = Cut(members=3)
    world.bring_in("n1", "n2")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    liar, holder = sorted(("n1", "n2"), key=world.did, reverse=not first)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.deaf |= {frozenset({liar, "n0"}), frozenset({liar, holder})}
    world.post("n0", "two", "three")
    world.run(for_ms=5_000)
    world.deaf.clear()
    hear, ask, restored_at, me = stale_profile.receive_claim, pull_requests.send, world.now, world.did("n0")

    def claimed(tx, name, member, upto):
        hear(tx, name, member, 1_000 if member == world.did(liar) else upto)

    def unanswered(tx, name, member, want, *args, **kwargs):
        said = len(tx.effects)
        ask(tx, name, member, want, *args, **kwargs)
        mute = member == world.did(liar) or tx.now < restored_at + 60_000
        if mute and me == tx.group(name).me in {author for author, _, _ in want}:
            del tx.effects[said:]

    monkeypatch.setattr(stale_profile, "receive_claim", claimed)
    monkeypatch.setattr(pull_requests, "send", unanswered)
    restored(world, "n0", state, rows)
    world.run(for_ms=300_000)
    assert world.texts("n0") == ["one", "two", "three"]


# --- relationships with the others ------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["n0", "n1", ""])
def test_a_restored_profile_reconnects_after_did_rotations(who):
    world = Cut()
    world.bring_in("n1", "n2")
    world.post("n0", "one")
    world.post("n1", "two")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    for _ in range(2 if who else 0):
        world.run_command(who, RotateDid(f"friends/{'n1' if who == 'n0' else 'n0'}"))
        world.run(for_ms=5_000)
    before = world.group("n1").links.relationships[world.did("n0")]
    restored(world, "n0", state, rows)
    world.run(for_ms=15_000)
    world.post("n0", "three")
    world.post("n1", "four")
    world.run(for_ms=20_000)
    assert all(set(world.texts(name)) == {"one", "two", "three", "four"} for name in world.nodes)
    after = world.group("n1").links.relationships[world.did("n0")]
    assert before.mine != after.mine and before.theirs != after.theirs
    assert not any(world.group(name).links.offers for name in world.nodes)


@pytest.mark.parametrize("seed", range(12))
def test_two_restored_members_rebuild_their_relationship(seed):
    """Their requests and answers arrive in any order, or not at all."""
    dice = random.Random(f"both {seed}")
    world = Cut()
    world.rng = random.Random(seed)
    world.bring_in("n1", "n2")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    old = {name: (world.nodes[name].agent, list(world.nodes[name].log)) for name in ("n0", "n1")}
    world.run_command("n0", RotateDid("friends/n1"))
    world.post("n1", "two")
    world.run(for_ms=5_000)
    for name in dice.choices(("n0", "n1"), k=dice.randint(0, 2)) + dice.sample(("n0", "n1"), 2):
        restored(world, name, *old[name])
        world.run(for_ms=dice.choice((0, dice.randint(0, 60), dice.randint(0, 5_000))))
    world.run(for_ms=400_000)
    world.post("n0", "three")
    world.post("n1", "four")
    world.run(for_ms=20_000)
    assert all(set(world.texts(name)) == {"one", "two", "three", "four"} for name in world.nodes)


def test_a_former_member_gets_no_answer():
    """Its request may be a replay."""
    world = Cut()
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    restored(world, "n0", world.nodes["n0"].agent, world.nodes["n0"].log)
    link = world.group("n0").links.peers[world.did("n2")].link
    tx = world.tx("n2")
    pairing.forget_relationship(tx, world.id, world.did("n0"))
    tx.effects.clear()
    pairing.renew_relationship(tx, world.id, world.did("n0"))
    (asked,) = [one for one in tx.effects if isinstance(one, SendEnvelope)]
    world.run_command("n2", LeaveGroup(world.id))
    world.run(for_ms=2_000)
    assert world.did("n2") in world.group("n0").view.former and world.did("n2") in world.group("n0").links.peers
    world.process("n0", Received(link, asked.envelope))
    assert world.nodes["n0"].dropped["dropped Refused"]


def test_own_signed_events_count_from_any_member(monkeypatch):
    """A rejoin under its own name is immediate; its earlier events may be lost everywhere."""
    world = Cut()
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.deaf.add(frozenset({"n0", "n1"}))
    monkeypatch.setattr("zerochat.group.sync.history_requests.request_missing", lambda tx, name: None)
    world.post("n0", "one", "two")
    world.run_command("n0", ChangeLabel(world.id, "alice"))
    world.run(for_ms=20_000)
    signed = {event.seq for event in world.group("n1").control.values() if event.author == world.did("n0")}
    assert max(signed) > world.chain("n1", "n0").seq
    world.run_command("n2", LeaveGroup(world.id))
    world.run(for_ms=20_000)
    world.deaf.clear()
    restored(world, "n0", state, rows)
    world.run(for_ms=60_000)
    assert world.group("n0").view.members[world.did("n0")].label == "alice"
    refused = world.run_command("n0", SendPost(world.id, "a second one"))
    assert "n1 reported more of your own messages" in refused.error.sentence()


def kept(world, monkeypatch, name):
    """The inputs of a node from now on."""
    heard, hear = [], world.process

    def recording(to, stimulus):
        if to == name and isinstance(stimulus, Received):
            heard.append(stimulus)
        hear(to, stimulus)

    monkeypatch.setattr(world, "process", recording)
    return heard


def test_a_replay_ends_no_relationship(monkeypatch):
    """A mediator that stores messages also has old exchange requests."""
    world = Cut()
    first = kept(world, monkeypatch, "n1")
    second = kept(world, monkeypatch, "n0")
    world.bring_in("n1", "n2")
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.post("n0", "one")
    world.run(for_ms=5_000)
    restored(world, "n0", state, rows)
    world.run(for_ms=30_000)
    pair = [
        world.group("n1").links.relationships[world.did("n0")],
        world.group("n0").links.relationships[world.did("n1")],
    ]
    links = {name: [peer.link for peer in world.group(name).links.peers.values()] for name in ("n0", "n1")}
    for name, said in (("n1", first), ("n0", second)):
        for stimulus in list(said):
            for link in links[name]:
                world.process(name, replace(stimulus, link=link))
    world.run(for_ms=120_000)
    assert all(len(offers) <= 4 for name in ("n0", "n1") for offers in world.group(name).links.offers.values())
    world.post("n0", "two")
    world.post("n1", "three")
    world.run(for_ms=20_000)
    assert pair == [
        world.group("n1").links.relationships[world.did("n0")],
        world.group("n0").links.relationships[world.did("n1")],
    ]
    assert all(set(world.texts(name)) == {"one", "two", "three"} for name in world.nodes)


def test_claims_from_before_the_restore_do_not_count(monkeypatch):
    """An attacker withholds the present messages and replays that a member lacked our last event."""
    world = Cut(2)
    world.bring_in("n1")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    said = kept(world, monkeypatch, "n0")
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.run_command("n1", ChangeLabel(world.id, "bob"))
    world.run(for_ms=5_000)
    assert said
    world.post("n0", "two")
    world.run(for_ms=5_000)
    world.deaf.add(frozenset({"n0", "n1"}))
    restored(world, "n0", state, rows)
    for stimulus in list(said):
        world.process("n0", stimulus)
    world.run(for_ms=60_000)
    assert isinstance(world.run_command("n0", SendPost(world.id, "a second two")), CommandFailed)
    world.deaf.clear()
    world.run(for_ms=60_000)
    assert world.texts("n0") == ["one", "two"] and world.post("n0", "three")


@pytest.mark.parametrize("how", ["it waits for what comes before it", "somebody else has brought it"])
def test_unconfirmed_events_count_in_head_claims(how):
    world = Cut(3)
    world.bring_in("n1", "n2")
    world.post("n0", "one")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    if how.startswith("it waits"):
        world.kill("n2")
        world.deaf.add(frozenset({"n0", "n1"}))
        world.post("n0", "two")
        world.run(for_ms=10)
        world.deaf.discard(frozenset({"n0", "n1"}))
        world.post("n0", "three")
        world.run(for_ms=1_000)
        assert world.group("n1").log.reorder_buffers
    else:
        world.deaf.add(frozenset({"n0", "n2"}))
        world.post("n0", "two", "three")
        world.run(for_ms=300_000)
        assert world.texts("n2", relayed=True)
        world.kill("n1")
        world.deaf.discard(frozenset({"n0", "n2"}))
    restored(world, "n0", state, rows)
    world.run(for_ms=60_000)
    refused = world.run_command("n0", SendPost(world.id, "a second two"))
    assert isinstance(refused, CommandFailed)
    if how.startswith("it waits"):
        assert "n1 reported more" in refused.error.sentence(), "and nobody has all of it"
    else:
        assert world.texts("n0") == ["one", "two", "three"]


def test_an_unmarked_stale_copy_renews_its_streams():
    world = Cut()
    world.bring_in("n1", "n2")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    before = {name: world.group(name).links.relationships[world.did("n0")].mine for name in ("n1", "n2")}
    world.run_command("n0", RotateDid("friends/n1"))
    world.post("n1", "one")
    world.run(for_ms=5_000)
    older(world, "n0", state, rows)
    world.run(for_ms=120_000)
    world.post("n0", "two")
    world.run(for_ms=20_000)
    assert all(set(world.texts(name)) == {"one", "two"} for name in world.nodes)
    after = {name: world.group(name).links.relationships[world.did("n0")].mine for name in ("n1", "n2")}
    assert before["n1"] != after["n1"] and before["n2"] == after["n2"]


def test_a_stale_copy_regains_other_members_events():
    """Its author believes that all members have it, and none has."""
    world = Cut(2)
    world.bring_in("n1")
    world.run(for_ms=5_000)
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    world.post("n1", *map(str, range(100)))
    world.run(for_ms=20_000)
    assert len(world.texts("n0")) == 100
    older(world, "n0", state, rows)
    world.run(for_ms=200_000)
    assert world.texts("n0") == world.texts("n1")


def test_repeated_regression_claims_are_limited():
    world = Cut(2)
    world.bring_in("n1")
    world.post("n0", *map(str, range(10)))
    world.run(for_ms=20_000)

    def told(second, *haves, at=None):
        """How often that leads to a repair."""
        tx = world.tx("n0")
        tx.context = replace(tx.context, now=world.now + second * 1_000)
        group = tx.group(world.id)
        for place, have in enumerate(haves):
            theirs = [have if did == group.me else 0 for did in group.view.members]
            when = world.now + second * 1_000 + place if at is None else at
            acknowledgements.record_regression(tx, world.id, world.did("n1"), group.view.checksum, have, when)
            body = PositionsBody(group.view.checksum, theirs)
            acknowledgements.record_state(tx, world.id, world.did("n1"), body)
        world.perform("n0", tx)
        return sum(isinstance(one, ReadOwnEvents) for one in tx.effects)

    whole = world.group("n0").seq
    assert sum(told(second, 1, whole, 1) for second in range(60)) == 0, "whoever has it all in between has lost nothing"
    assert told(60, whole) == 0
    assert sum(told(second, 1, at=1) for second in range(60, 120)) == 0, "an old word is none"
    assert sum(told(second, 1) for second in range(120, 180)) == 1


# --- by lot ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_no_place_of_a_chain_is_used_twice(seed, monkeypatch):
    dice = random.Random(f"restored {seed}")
    world = Cut(5, Policy(history="all"))
    world.rng = random.Random(seed)
    names = ["n1", "n2", "n3", "n4"]
    inside = names[: dice.randint(1, 3)]
    world.bring_in(*inside)
    me, places = world.did("n0"), {}
    perform = world._perform

    def watching(node, effect):
        if isinstance(effect, StoreEvent) and node.name != "n0" and effect.author == me:
            first = places.setdefault(effect.seq, effect.id)
            assert first == effect.id, f"two things in place {effect.seq}"
        perform(node, effect)

    monkeypatch.setattr(world, "_perform", watching)

    def live(most):
        for _ in range(dice.randint(1, most)):
            deed = dice.random()
            if deed < 0.5:
                world.run_command("n0", SendPost(world.id, f"word {dice.random()}"))
            elif deed < 0.7:
                world.run_command(dice.choice(inside), SendPost(world.id, f"word {dice.random()}"))
            elif deed < 0.8:
                world.run_command("n0", ChangeLabel(world.id, f"name {dice.randint(1, 10**6)}"))
            elif deed < 0.9:
                world.run_command("n0", RotateDid(f"friends/{dice.choice(inside)}"))
            elif len(inside) < len(names) and not world.deaf:
                world.bring_in(names[len(inside)])
                inside.append(names[len(inside)])
            world.run(for_ms=dice.randint(0, 3_000))

    def cut_off():
        pairs = [frozenset({one, other}) for one in world.nodes for other in world.nodes if one < other]
        world.deaf = {pair for pair in pairs if dice.random() < 0.5}

    live(4)
    world.run(for_ms=dice.choice((0, 5_000)))
    state, rows = world.nodes["n0"].agent, list(world.nodes["n0"].log)
    live(5)
    cut_off()
    live(6)
    cut_off()
    restored(world, "n0", state, rows)
    for _ in range(6):
        live(2)
        cut_off()
        world.run(for_ms=dice.randint(0, 90_000))
        if dice.random() < 0.3:
            world.restart("n0")
    world.deaf.clear()
    world.run(for_ms=300_000)
    assert not stale_profile.is_suspended(world.group("n0"))
    world.post("n0", "the last word")
    world.run(for_ms=60_000)
    everybody = ["n0", *inside]
    texts = {name: world.texts(name) for name in everybody}
    assert all(texts[name] == texts["n0"] for name in everybody)
    assert all(world.group(name).chain(me).fork_seq == 0 for name in inside)
