"""Unreachable authors: two members that cannot connect exchange events through others."""

import json
from collections import Counter

import pytest
from msgspec.structs import replace

from tests.support.marks import others_slow
from tests.support.parted_world import Parted
from tests.support.small_world import Small
from zerochat.group import notifications
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    RemoveMember,
    SendPost,
    StepContext,
)
from zerochat.group.key_modes import MODES
from zerochat.group.membership import Policy
from zerochat.group.state import UnreachableAuthor
from zerochat.group.sync import (
    acknowledgements,
    history_requests,
    positions,
    relay,
    relayed_events,
    unreachable_authors,
)
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX
from zerochat.group.wire.messages import UNREACHABLE_MAX
from zerochat.sim.world import SIMULATED_PACKERS, Faults

SOON_MS = 2 * relay.RELAY_MS + history_requests.NEW_MEMBER_MS


class Apart(Parted):
    """n1 and n2 never meet, until they may."""

    def __init__(self, members=3, policy=None, keys="pairwise-multi", *, coming=True):
        Small.__init__(self, members)
        self.cut = {frozenset(("n1", "n2"))}
        self.notices = {name: [] for name in self.nodes}
        self.id = self.run_command(
            "n0", CreateGroup("friends", "n0", self.envelope, keys, policy or Policy())
        ).result.group
        for name in [*self.nodes][1:] if coming else ():
            self.come(name)

    def come(self, name):
        invitation = self.run_command("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
        self.run_command(name, AcceptInvitation(invitation, name))
        self.run(for_ms=3_000)

    def relayed(self, name):
        """By text, the member that relayed it; empty: confirmed by its author."""
        rows = [row for row in self.nodes[name].log if row.type == POST]
        return {json.loads(row.record)["body"]["text"]: row.relayed_by for row in rows}

    def gets(self, name, text, for_ms=SOON_MS):
        return self.run(until=lambda: text in self.texts(name), for_ms=for_ms)


@pytest.mark.parametrize("history", ["none", "all", "last:1"])
@pytest.mark.parametrize("keys", MODES)
def test_unconnected_members_get_events_from_others(keys, history):
    world = Apart(3, Policy(history=history), keys)
    between = world.group("n0").me
    assert not world.group("n1").links.relationships.get(world.group("n2").me), "they have not met"
    world.run(for_ms=60_000)
    for number in range(3):
        for author, other in (("n1", "n2"), ("n2", "n1")):
            text = f"{author} says {number}"
            world.run_command(author, SendPost("friends", text))
            assert world.gets(other, text)
            assert world.relayed(other)[text] == ("" if MODES[keys].signs_events else between)
            world.run(for_ms=240_000)
    assert all(sorted(world.texts(name)) == sorted(world.texts("n0")) for name in ("n1", "n2"))
    assert all(world.whole(name).complete for name in ("n1", "n2"))


def test_events_during_a_join_arrive_too():
    """Before the new member could report who is unreachable."""
    world = Apart()
    world.run_command("n1", SendPost("friends", "early"))
    assert world.gets("n2", "early", for_ms=60_000)


def test_earlier_events_stay_with_earlier_members():
    world = Apart(policy=Policy(history="none"), coming=False)
    world.come("n1")
    world.run_command("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    world.run(for_ms=60_000)
    world.run_command("n1", SendPost("friends", "after"))
    assert world.gets("n2", "after")
    world.run(for_ms=600_000)
    assert world.texts("n0") == ["before", "after"] and world.texts("n2") == ["after"]
    assert world.whole("n2").complete


@pytest.mark.parametrize("keys", MODES)
def test_relayed_events_stay_when_the_author_connects(keys):
    """In a group without history for new members: the events date from after it joined."""
    world = Apart(4, Policy(history="none"), keys, coming=False)
    for name in ("n1", "n3"):
        world.come(name)
    world.run_command("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    for name in ("n0", "n3"):
        world.part("n1", name)
    world.come("n2")
    world.run(for_ms=60_000)
    for number in range(5):
        world.run_command("n1", SendPost("friends", f"early {number}"))
    world.cut = {frozenset(("n1", "n2"))}
    world._connect_all()
    assert world.gets("n2", "early 4", for_ms=900_000) and len(world.texts("n2")) == 5
    world.meet()
    world.run_command("n1", SendPost("friends", "here"))
    world.run(for_ms=300_000)
    assert sorted(world.relayed("n2").items()) == [*((f"early {number}", "") for number in range(5)), ("here", "")]


@pytest.mark.parametrize("keys", MODES)
def test_a_late_connection_confirms_relayed_events(keys):
    world = Apart(3, None, keys)
    world.run(for_ms=60_000)
    for number in range(3):
        for author, other in (("n1", "n2"), ("n2", "n1")):
            world.run_command(author, SendPost("friends", f"{author} says {number}"))
            assert world.gets(other, f"{author} says {number}")
    world.meet()
    for author in ("n1", "n2"):
        world.run_command(author, SendPost("friends", f"{author} is here"))
    world.run(for_ms=120_000)
    everything = world.texts("n0")
    assert len(everything) == 8
    for name in ("n1", "n2"):
        assert sorted(world.relayed(name).items()) == [(text, "") for text in sorted(everything)]
        assert world.whole(name).complete and not world.group(name).sync.unreachable_authors
        assert not any(notice.relayed_by for notice in world.heard(name, notifications.EventsRefuted)), (
            "nobody has lied"
        )


@pytest.mark.parametrize("history", others_slow(["none", "all"]))
@pytest.mark.parametrize("keys", others_slow(["pairwise-multi", "pairwise-single"]))
def test_relayed_events_are_not_sent_again_on_direct_contact(keys, history):
    """The author names its head, which everything leads up to. It retransmits 64 at a time."""
    world = Apart(3, Policy(history=history), keys)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=1)
    world.run(for_ms=60_000)
    for number in range(100):
        for author in ("n1", "n2"):
            world.run_command(author, SendPost("friends", f"{author} says {number}"))
    world.run(until=lambda: len(world.texts("n1")) == len(world.texts("n2")) == 200, for_ms=60_000)
    assert len(world.texts("n1")) == len(world.texts("n2")) == 200
    world.meet()
    world.run(for_ms=60_000)
    for name in ("n1", "n2"):
        assert set(world.relayed(name).values()) == {""} and world.whole(name).complete
        assert not world.heard(name, notifications.EventsRefuted)
        assert sum(notice.upto - notice.after for notice in world.heard(name, notifications.EventsConfirmed)) == 100


@pytest.mark.parametrize("name", ["another", "later"])
def test_a_head_confirms_only_its_ancestors(name):
    """`another`: the author has another event at that place; `later`: its chain begins for us at a later place."""
    world = Apart(policy=Policy(history="none"), coming=False)
    world.come("n1")
    world.run_command("n1", SendPost("friends", "before"))
    world.come("n2")
    world.run(for_ms=60_000)
    world.run_command("n1", SendPost("friends", "there"))
    assert world.gets("n2", "there")
    group, author = world.group("n2"), world.group("n1").me
    chain = group.chain(author)
    tx = Transaction(world.nodes["n2"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    tip, since = ("x" * 43, 0) if name == "another" else (chain.head_id, chain.seq + 1)
    assert not relayed_events.on_author_head(tx, world.id, author, chain.seq, tip, since)
    assert tx.group(world.id) == group and not tx.effects
    assert relayed_events.on_author_head(tx, world.id, author, chain.seq, chain.head_id, 1)
    assert tx.group(world.id).chain(author).confirmed is None


@pytest.mark.parametrize("keys", MODES)
@pytest.mark.parametrize("history", ["none", "all"])
@pytest.mark.parametrize("gone", ["put out", "left"])
@pytest.mark.parametrize("said", [(), ("after",)])
def test_events_of_an_unreachable_former_member_arrive(keys, history, gone, said):
    world = Apart(4, Policy(history=history), keys, coming=False)
    for name in ("n1", "n3"):
        world.come(name)
    world.run_command("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    world.run(for_ms=60_000)
    for text in said:
        world.run_command("n1", SendPost("friends", text))
        world.run(for_ms=10_000)
    if gone == "left":
        world.run_command("n1", LeaveGroup(world.id))
    for name in ("n0", "n3") if gone == "put out" else ():
        world.run_command(name, SendPost("friends", "heard"))  # so that its events are valid
        world.run(for_ms=3_000)
        world.run_command(name, RemoveMember(world.id, world.group("n1").me))
    world.run(for_ms=900_000)
    assert world.group("n1").me in world.group("n2").view.former
    ours = ("before", *said) if history == "all" else said
    assert [text for text in world.texts("n2") if text != "heard"] == [*ours]
    assert world.whole("n2").complete


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("history", ["all", "last:1"])
def test_unlinked_events_are_never_confirmed(monkeypatch, history, signs):
    """n0 forges events of n1 from before n2 joined, and has none of those in between."""
    fetched, place, author, lamport = history_requests.send_response, 2, "", 0

    def lying(tx, found):
        group = tx.agent.groups[found.group]
        if group.view.members[group.me].label == "n0" and found.backwards:
            wants = [upto for did, _, upto in found.ranges if did == author]
            made_up = Event(group.id, POST, author, place, "A" * 43, (), (), lamport, tx.now, {"text": "made up"})
            if wants and wants[0] > 1_000:
                found = replace(found, records=(made_up.record,), more=False)
            elif wants and wants[0] < 4:
                found = replace(found, records=(), more=False)
        fetched(tx, found)

    monkeypatch.setattr(history_requests, "send_response", lying)
    world = Apart(3, Policy(history=history), coming=False)
    world.come("n1")
    for number in range(3):
        world.run_command("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    author = world.group("n1").me
    lamport = [row for row in world.nodes["n0"].log if row.type == POST][1].lamport
    world.come("n2")
    world.run(for_ms=60_000)
    assert "made up" in world.relayed("n2"), "nobody has told anything else"
    world.run_command("n1", SendPost("friends", "new"))
    world.run(for_ms=60_000)
    if signs:
        world.run_command("n1", ChangeLabel(world.id, "nora"))
        world.run(for_ms=60_000)
    assert world.relayed("n2").get("made up") != ""
    world.meet()
    world.run(for_ms=300_000)
    shown = world.relayed("n2")
    assert shown.pop("made up", "n0") != "" and (signs or "made up" not in world.texts("n2"))
    assert set(shown.values()) == {""} and shown.keys() <= {"old 0", "old 1", "old 2", "new"}


def test_a_head_confirms_events_that_are_fetched_later(monkeypatch):
    fetched, there = history_requests.send_response, False

    def without_history(tx, found):
        old = found.backwards and any(upto > 1_000 or upto < 4 for _, _, upto in found.ranges)
        fetched(tx, found if there or not old else replace(found, records=(), more=False))

    monkeypatch.setattr(history_requests, "send_response", without_history)
    world = Apart(3, coming=False)
    world.come("n1")
    for number in range(3):
        world.run_command("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    world.come("n2")
    world.run(for_ms=20_000)
    for said in (SendPost("friends", "new"), ChangeLabel(world.id, "nora")):
        world.run_command("n1", said)
        world.run(for_ms=20_000)
    there = True
    world.run(for_ms=900_000)
    world.run_command("n1", SendPost("friends", "last"))
    world.run(for_ms=60_000)
    assert len(world.relayed("n2")) == 5 and set(world.relayed("n2").values()) != {""}
    world.meet()
    world.run(for_ms=60_000)
    assert len(world.relayed("n2")) == 5 and set(world.relayed("n2").values()) == {""}


def removing(*others):
    world = Apart(4 + len(others), Policy(history="none", remove="anyone", quorum=0), coming=False)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=1)
    for name in ("n1", "n3", *others):
        world.come(name)
    world.run_command("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    world.run(for_ms=60_000)
    return world


def reach(world, *pairs):
    world.cut -= {frozenset(pair) for pair in pairs}
    world._connect_all()


def test_valid_events_of_a_removed_member_arrive():
    """It went on to send to n3, which had not received that yet; and only n3 is there."""
    world = removing()
    for name in ("n0", "n3"):
        world.part("n2", name)
    for number in range(2):
        world.run_command("n1", SendPost("friends", f"counts {number}"))
    world.run(for_ms=10_000)
    world.run_command("n3", SendPost("friends", "heard"))  # so that n0 knows that another member has it too
    world.run(for_ms=3_000)
    for pair in (("n1", "n0"), ("n0", "n3")):
        world.part(*pair)
    for number in range(RUN_EVENTS_MAX + 10):
        world.run_command("n1", SendPost("friends", f"too late {number}"))
    world.run(for_ms=60_000)
    world.part("n1", "n3")
    world.run_command("n0", RemoveMember(world.id, world.group("n1").me))
    reach(world, ("n0", "n3"))
    world.run(for_ms=30_000)
    world.part("n0", "n3")
    reach(world, ("n2", "n3"))
    world.run(for_ms=900_000)
    assert world.group("n2").view.removed == {world.group("n1").me: 3}
    assert sorted(world.texts("n2")) == ["counts 0", "counts 1", "heard"] and world.whole("n2").complete


def test_events_arrive_once_they_become_valid():
    """n4 has removed n1, and had itself been removed by then: n2 receives the one before the other."""
    world = removing("n4")
    for pair in (("n4", "n0"), ("n4", "n1"), ("n4", "n3"), ("n2", "n0"), ("n2", "n3"), ("n2", "n4")):
        world.part(*pair)
    for number in range(3):
        world.run_command("n1", SendPost("friends", f"after {number}"))
    world.run(for_ms=20_000)
    for pair in (("n0", "n1"), ("n0", "n3"), ("n1", "n3")):
        world.part(*pair)
    author = world.group("n1").me
    world.run_command("n0", RemoveMember(world.id, world.group("n4").me))
    world.run_command("n4", RemoveMember(world.id, author))
    reach(world, ("n4", "n3"), ("n4", "n2"), ("n3", "n2"))
    world.run(for_ms=300_000)
    assert author in world.group("n2").view.removed and not world.texts("n2")
    for name in ("n3", "n2"):
        world.part("n4", name)
    reach(world, ("n0", "n3"))
    world.run(for_ms=900_000)
    assert author in world.group("n2").view.members
    assert world.texts("n2") == [f"after {number}" for number in range(3)]


def test_a_removed_members_events_are_missing_until_answered(monkeypatch):
    fetched, silent = history_requests.send_response, True

    def hold_back(tx, found):
        if not silent:
            fetched(tx, found)

    monkeypatch.setattr(history_requests, "send_response", hold_back)
    world = removing()
    for number in range(2):
        world.run_command("n1", SendPost("friends", f"counts {number}"))
    world.run(for_ms=10_000)
    world.run_command("n3", SendPost("friends", "heard"))
    world.run(for_ms=3_000)
    world.run_command("n0", RemoveMember(world.id, world.group("n1").me))
    world.run(for_ms=900_000)
    assert world.group("n2").view.removed == {world.group("n1").me: 3}
    assert world.texts("n2") == ["heard"] and not world.whole("n2").complete
    silent = False
    world.run(for_ms=300_000)
    assert sorted(world.texts("n2")) == ["counts 0", "counts 1", "heard"] and world.whole("n2").complete


def spoken_before():
    """n0, n1 and n3, of which n1 has posted three times; n2 has not joined yet."""
    world = Apart(4, coming=False)
    for name in ("n1", "n3"):
        world.come(name)
    for number in range(3):
        world.run_command("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    return world


def test_history_after_the_connection_is_confirmed(monkeypatch):
    """Others have it only later; and the author had spoken before it knew of the newcomer."""
    fetched, there, old = history_requests.send_response, False, 0

    def not_yet(tx, found):
        history = found.backwards and any(upto > 1_000 or upto <= old for _, _, upto in found.ranges)
        fetched(tx, found if there or not history else replace(found, records=(), more=False))

    monkeypatch.setattr(history_requests, "send_response", not_yet)
    world = spoken_before()
    old = world.group("n1").seq
    for name in ("n0", "n3"):
        world.part("n1", name)
    world.come("n2")
    world.run(for_ms=20_000)
    world.run_command("n1", SendPost("friends", "early"))
    reach(world, ("n1", "n0"), ("n1", "n3"))
    world.run(for_ms=60_000)
    world.run_command("n1", SendPost("friends", "late"))
    world.run(for_ms=20_000)
    world.meet()
    world.run(for_ms=20_000)
    assert sorted(world.relayed("n2").items()) == [("early", ""), ("late", "")]
    there = True
    world.run(for_ms=1_200_000)
    world.run_command("n1", SendPost("friends", "new"))
    world.run(for_ms=600_000)
    assert len(world.relayed("n2")) == 6 and set(world.relayed("n2").values()) == {""}


def test_a_joined_stretch_is_confirmed_whole():
    """n0 has fewer of n1's events than n3 when n2 requests them; those that n3 sends later begin behind a gap."""
    world = spoken_before()
    world.run(for_ms=20_000)
    for pair in (("n1", "n0"), ("n3", "n0"), ("n3", "n2")):
        world.part(*pair)
    world.run_command("n1", SendPost("friends", "old 3"))
    world.run(for_ms=10_000)
    world.come("n2")
    world.run(for_ms=120_000)
    world.part("n2", "n0")
    reach(world, ("n3", "n0"))
    world.run(for_ms=20_000)
    world.run_command("n1", SendPost("friends", "new"))
    world.run(for_ms=20_000)
    reach(world, ("n3", "n2"), ("n2", "n0"))
    world.run(for_ms=900_000)
    author = world.group("n1").me
    assert len(world.texts("n2")) == 5 and world.group("n2").chain(author).detached
    world.run_command("n1", LeaveGroup(world.id))
    assert world.run(until=lambda: world.group("n2").chain(author).confirmed is None, for_ms=60_000)
    for name in ("n0", "n3"):
        world.part("n2", name)
    assert len(world.relayed("n2")) == 5 and set(world.relayed("n2").values()) == {""}


def test_one_empty_answer_does_not_end_the_search(monkeypatch):
    """n3 has all of it, and hands over none."""
    fetched = history_requests.send_response

    def stingy(tx, found):
        group = tx.agent.groups.get(found.group)
        silent = group is not None and group.view.members[group.me].label == "n3"
        fetched(tx, replace(found, records=(), more=False) if silent else found)

    monkeypatch.setattr(history_requests, "send_response", stingy)
    world = Apart(5)
    world.run(for_ms=60_000)
    for number in range(4):
        world.run_command("n1", SendPost("friends", f"number {number}"))
        assert world.gets("n2", f"number {number}", for_ms=60_000)


@pytest.mark.parametrize("history", others_slow(["none", "all"]))
@pytest.mark.parametrize("place", others_slow([50, 2**53 - 3]))
def test_a_forged_chain_start_hides_nothing(monkeypatch, history, place):
    """n3 claims more than there is, and relays a forged event as its end."""
    lied = []
    fetched, have = history_requests.send_response, positions.confirmed_positions

    def is_liar(group):
        return group.view.members[group.me].label == "n3"

    def telling(group, members):
        told = have(group, members)
        if is_liar(group):
            labels = [group.view.members[did].label for did in members]
            told = [place + 1 if label == "n1" else upto for label, upto in zip(labels, told, strict=True)]
        return told

    def lying(tx, found):
        group = tx.agent.groups[found.group]
        ((author, after, upto), *_) = found.ranges
        if is_liar(group) and found.backwards and group.view.members[author].label == "n1" and after < place <= upto:
            lie = Event(
                group.id,
                POST,
                author,
                place,
                group.id,
                (),
                (),
                group.log.lamport + 1,
                tx.now,
                {"text": "lie"},
            )
            found = replace(found, records=(lie.record,), more=False)
            lied.append(place)
        fetched(tx, found)

    monkeypatch.setattr(history_requests, "send_response", lying)
    monkeypatch.setattr(positions, "confirmed_positions", telling)
    for seed in range(4):
        world = Apart(5, Policy(history=history))
        world.rng.seed(seed)
        world.run(for_ms=60_000)
        for number in range(4):
            world.run_command("n1", SendPost("friends", f"number {number}"))
            world.run(for_ms=60_000)
        assert {f"number {number}" for number in range(4)} <= set(world.texts("n2"))
        world.meet()
        world.run_command("n1", SendPost("friends", "here"))
        world.run(for_ms=120_000)
        assert set(world.relayed("n2").values()) == {""} and len(world.texts("n2")) == 5
    assert lied


def test_events_with_unknown_dependencies_begin_no_chain(monkeypatch):
    """n5 alone claims more than there is, and forges a post with an unknown dependency."""
    fetched, have, author, lied = history_requests.send_response, positions.confirmed_positions, "", []

    def telling(group, members):
        told = zip(members, have(group, members), strict=True)
        liar = group.view.members[group.me].label == "n5"
        return [50 if liar and did == author else upto for did, upto in told]

    def lying(tx, found):
        group = tx.agent.groups[found.group]
        wanted = [upto for did, after, upto in found.ranges if did == author and after < 40 <= upto]
        if group.view.members[group.me].label == "n5" and wanted and found.backwards:
            made_up = (
                group.id,
                POST,
                author,
                40,
                "A" * 43,
                ("B" * 43,),
                (),
                group.log.lamport + 1,
                tx.now,
                {"text": "x"},
            )
            found = replace(found, records=(Event(*made_up).record,), more=False)
            lied.append(found)
        fetched(tx, found)

    monkeypatch.setattr(history_requests, "send_response", lying)
    monkeypatch.setattr(positions, "confirmed_positions", telling)
    world = Apart(6, coming=False)
    for name in ("n1", "n3", "n4", "n5"):
        world.come(name)
    for number in range(5):
        world.run_command("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    world.come("n2")
    world.run(for_ms=120_000)
    author = world.group("n1").me
    world.run(for_ms=600_000)
    assert lied and len(world.texts("n2")) == 5 and world.group("n2").chain(author).head_id
    for number in range(3):
        world.run_command("n1", SendPost("friends", f"new {number}"))
        world.run(for_ms=300_000)
    assert len(world.texts("n2")) == 8 and len(lied) < 40


def test_newer_members_do_not_count_as_answers(monkeypatch):
    """The answers of those that have n1's events are lost at first."""
    fetched, silent = history_requests.send_response, True

    def hold_back(tx, found):
        group = tx.agent.groups[found.group]
        if not silent or group.view.members[group.me].label not in ("n0", "n3"):
            fetched(tx, found)

    world = Apart(7, Policy(history="none", remove="anyone", quorum=0), coming=False)
    monkeypatch.setattr(history_requests, "send_response", hold_back)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=1)
    for name in ("n1", "n3", "n2"):
        world.come(name)
    world.run(for_ms=60_000)
    for number in range(2):
        world.run_command("n1", SendPost("friends", f"counts {number}"))
    world.run(for_ms=10_000)
    world.run_command("n3", SendPost("friends", "heard"))
    world.run(for_ms=3_000)
    for name in ("n4", "n5", "n6"):
        world.come(name)
    world.run(for_ms=120_000)
    world.run_command("n0", RemoveMember(world.id, world.group("n1").me))
    world.run(for_ms=60_000)
    assert world.texts("n2") == ["heard"] and not world.whole("n2").complete
    silent = False
    world.run(for_ms=300_000)
    assert sorted(world.texts("n2")) == ["counts 0", "counts 1", "heard"] and world.whole("n2").complete


def test_enough_answers_suffice_until_a_higher_claim():
    world = Apart(6)
    last = max(world.nodes, key=lambda name: world.group(name).view.members[world.group(name).me].joined)
    group = world.group(last)
    author, *others = group.links.peers

    def told(heights):
        links = group.links
        for did, upto in heights.items():
            links = links.with_acks(did, {author: upto})
        return replace(group, links=links)

    same = dict.fromkeys(others, 7)
    for count in range(len(others)):
        left = unreachable_authors.sources(told(same), author, UnreachableAuthor(dict.fromkeys(others[:count], 7)))
        assert left == (others[count:] if count < unreachable_authors.ANSWERS else [])
    all_but_one = UnreachableAuthor(dict.fromkeys(others[:-1], 7))
    for more in (others[0], others[-1]):
        assert unreachable_authors.sources(told({**same, more: 8}), author, all_but_one) == [more]
    younger = {did: replace(one, joined=2**60) for did, one in group.view.members.items() if did in others[:-1]}
    group = replace(group, view=replace(group.view, members={**group.view.members, **younger}))
    assert unreachable_authors.sources(told(same), author, all_but_one) == [others[-1]], (
        "the others may never have had it"
    )


def test_an_answer_counts_up_to_the_requested_end():
    """A member that still receives from the author while it is asked is asked again."""
    world = Apart(policy=Policy(history="none"), coming=False)
    world.come("n1")
    world.run_command("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    author, asked = (
        world.group("n1").me,
        lambda: any(one.ranges for one in world.group("n2").sync.pull_requests.values()),
    )
    assert world.run(asked, for_ms=60_000)
    (member, errand), *_ = world.group("n2").sync.pull_requests.items()
    group = world.group("n2")
    links = group.links.with_acks(member, {author: 9})
    agent = replace(world.nodes["n2"].agent, groups={group.id: replace(group, links=links)})
    tx = Transaction(agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    unreachable_authors.receive(tx, group.id, member, errand, [])
    assert tx.group(group.id).sync.unreachable_authors[author].answered_upto == {member: 1}
    assert unreachable_authors.sources(
        tx.group(group.id), author, tx.group(group.id).sync.unreachable_authors[author]
    ) == [member]


@pytest.mark.slow
def test_other_members_without_the_author_do_not_matter():
    """All members but one truly have nothing for the new member."""
    for seed in range(6):
        world = Apart(7, Policy(history="none"), coming=False)
        world.rng.seed(seed)
        for name in ("n1", "n3", "n4", "n5", "n6"):
            world.come(name)
        world.run_command("n1", SendPost("friends", "before"))
        world.come("n2")
        world.run(for_ms=60_000)
        for name in ("n3", "n4", "n5", "n6"):
            world.part("n1", name)
        world.run_command("n1", SendPost("friends", "after"))
        assert world.gets("n2", "after", for_ms=30_000)


# --- asking others to hand it on --------------------------------------------------------------------------------------


def counted(world, monkeypatch):
    """The number of messages of this kind from now on, by sender."""
    sent = Counter()
    message_for = acknowledgements.sync_message

    def telling(tx, name, member, unreached=(), **more):
        group = tx.group(name)
        sent[group.view.members[group.me].label, bool(unreached)] += 1
        return message_for(tx, name, member, unreached, **more)

    monkeypatch.setattr(acknowledgements, "sync_message", telling)
    return sent


def test_an_absent_member_costs_few_messages(monkeypatch):
    world = Apart(5)
    for number in range(4):
        world.part("n4", f"n{number}")
    world.run(for_ms=600_000)
    sent = counted(world, monkeypatch)
    world.run_command("n3", SendPost("friends", "hello"))
    world.run(for_ms=600_000)
    asked = sum(count for (_, unreached), count in sent.items() if unreached)
    assert asked == sent["n3", True] == relay.ROUNDS_MAX * relay.RELAYS_PER_ROUND, (
        "the one who has said something, and it alone"
    )


def test_an_invalid_place_names_no_member(monkeypatch):
    world = Apart(4)
    world.run(for_ms=60_000)
    world.run_command("n1", SendPost("friends", "hello"))
    world.run(for_ms=1)
    group = world.group("n0")
    author = next(did for did, one in group.view.members.items() if one.label == "n1")
    world.run(for_ms=60_000)
    sent = counted(world, monkeypatch)

    def hears(view, places):
        sent.clear()
        tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
        relay.receive_request(tx, group.id, author, view, places)
        return sum(sent.values())

    mine = world.group("n0").view
    places = {one.label: place for place, one in enumerate(mine.members.values())}
    assert hears(mine.checksum, [places["n2"]]) == 1
    assert hears(mine.checksum, [places["n2"]] * UNREACHABLE_MAX) == 1
    assert hears("another", [places["n2"]]) == 0
    assert hears(mine.checksum, [places["n0"], places["n1"], 99, 2**53 - 1]) == 0
    assert hears(mine.checksum, []) == 0


def test_others_are_queried_again_when_they_can_help():
    """After its author has restarted right after posting, and when a member that can relay is back."""
    world = Apart()
    world.run(for_ms=60_000)
    world.run_command("n1", SendPost("friends", "started"))
    world.run(for_ms=300)
    world.restart("n1")
    assert world.gets("n2", "started")
    world.part("n1", "n0")
    world.run_command("n1", SendPost("friends", "alone"))
    world.run(for_ms=300_000)
    world.cut.discard(frozenset(("n0", "n1")))
    world.restart("n1")
    assert world.gets("n2", "alone")
