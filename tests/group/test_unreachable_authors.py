"""Members whom nothing connects, from the beginning: neither can be dialled by the other, and others are between."""

import json
from collections import Counter

import pytest
from msgspec.structs import replace

from tests.group.test_completeness import Parted
from tests.group.test_join import Small
from zerochat.group import notifications
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    Moment,
    RemoveMember,
    SendPost,
)
from zerochat.group.key_modes import MODES
from zerochat.group.links import outbox
from zerochat.group.membership import Policy
from zerochat.group.state import Unmet
from zerochat.group.sync import acknowledgements, history_requests, relay, unreachable_authors
from zerochat.group.sync import relayed_events as vouched
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX
from zerochat.group.wire.messages import UNREACHED_MAX
from zerochat.sim.world import SIMULATED_PACKERS, Faults

SOON_MS = 2 * relay.RELAY_MS + history_requests.MEET_MS


class Apart(Parted):
    """n1 and n2 never meet, until they may."""

    def __init__(self, members=3, policy=None, keys="pairwise-multi", *, coming=True):
        Small.__init__(self, members)
        self.cut = {frozenset(("n1", "n2"))}
        self.notices = {name: [] for name in self.nodes}
        self.id = self.ask("n0", CreateGroup("friends", "n0", self.envelope, keys, policy or Policy())).result.group
        for name in [*self.nodes][1:] if coming else ():
            self.come(name)

    def come(self, name):
        invitation = self.ask("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
        self.ask(name, AcceptInvitation(invitation, name))
        self.run(for_ms=3_000)

    def vouched(self, name):
        """By text, who has handed it over; empty: its author's own word."""
        rows = [row for row in self.nodes[name].log if row.type == POST]
        return {json.loads(row.record)["body"]["text"]: row.vouched for row in rows}

    def gets(self, name, text, for_ms=SOON_MS):
        return self.run(until=lambda: text in self.texts(name), for_ms=for_ms)


@pytest.mark.parametrize("history", ["none", "all", "last:1"])
@pytest.mark.parametrize("keys", MODES)
def test_who_never_meet_hear_each_other_by_the_others_soon(keys, history):
    world = Apart(3, Policy(history=history), keys)
    between = world.group("n0").me
    assert not world.group("n1").relationships.get(world.group("n2").me), "they have not met"
    world.run(for_ms=60_000)
    for number in range(3):
        for author, other in (("n1", "n2"), ("n2", "n1")):
            text = f"{author} says {number}"
            world.ask(author, SendPost("friends", text))
            assert world.gets(other, text)
            assert world.vouched(other)[text] == between
            world.run(for_ms=240_000)
    assert all(sorted(world.texts(name)) == sorted(world.texts("n0")) for name in ("n1", "n2"))
    assert all(world.whole(name).complete for name in ("n1", "n2"))


def test_what_was_said_while_somebody_came_in_comes_too():
    """Before the newcomer could tell who cannot be reached."""
    world = Apart()
    world.ask("n1", SendPost("friends", "early"))
    assert world.gets("n2", "early", for_ms=60_000)


def test_what_was_said_before_somebody_s_time_stays_with_those_who_were_there():
    world = Apart(policy=Policy(history="none"), coming=False)
    world.come("n1")
    world.ask("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    world.run(for_ms=60_000)
    world.ask("n1", SendPost("friends", "after"))
    assert world.gets("n2", "after")
    world.run(for_ms=600_000)
    assert world.texts("n0") == ["before", "after"] and world.texts("n2") == ["after"]
    assert world.whole("n2").complete


@pytest.mark.parametrize("keys", MODES)
def test_what_an_author_said_before_it_knew_of_somebody_stays_when_they_meet(keys):
    """In a group whose past is not for newcomers: it was said since that one came in."""
    world = Apart(4, Policy(history="none"), keys, coming=False)
    for name in ("n1", "n3"):
        world.come(name)
    world.ask("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    for name in ("n0", "n3"):
        world.part("n1", name)
    world.come("n2")
    world.run(for_ms=60_000)
    for number in range(5):
        world.ask("n1", SendPost("friends", f"early {number}"))
    world.cut = {frozenset(("n1", "n2"))}
    world._connect_all()
    assert world.gets("n2", "early 4", for_ms=900_000) and len(world.texts("n2")) == 5
    world.meet()
    world.ask("n1", SendPost("friends", "here"))
    world.run(for_ms=300_000)
    assert sorted(world.vouched("n2").items()) == [*((f"early {number}", "") for number in range(5)), ("here", "")]


@pytest.mark.parametrize("keys", MODES)
def test_when_they_meet_after_all_each_confirms_what_it_has_said(keys):
    world = Apart(3, None, keys)
    world.run(for_ms=60_000)
    for number in range(3):
        for author, other in (("n1", "n2"), ("n2", "n1")):
            world.ask(author, SendPost("friends", f"{author} says {number}"))
            assert world.gets(other, f"{author} says {number}")
    world.meet()
    for author in ("n1", "n2"):
        world.ask(author, SendPost("friends", f"{author} is here"))
    world.run(for_ms=120_000)
    everything = world.texts("n0")
    assert len(everything) == 8
    for name in ("n1", "n2"):
        assert sorted(world.vouched(name).items()) == [(text, "") for text in sorted(everything)]
        assert world.whole(name).complete and not world.group(name).unmet
        assert not any(notice.by for notice in world.heard(name, notifications.Refuted)), "nobody has lied"


@pytest.mark.parametrize("history", ["none", "all"])
@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
def test_nothing_goes_and_comes_again_when_they_meet(keys, history):
    """The author says what its last word is, and that all leads up to it. It repeats 64 at a time."""
    world = Apart(3, Policy(history=history), keys)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=1)
    world.run(for_ms=60_000)
    for number in range(100):
        for author in ("n1", "n2"):
            world.ask(author, SendPost("friends", f"{author} says {number}"))
    world.run(until=lambda: len(world.texts("n1")) == len(world.texts("n2")) == 200, for_ms=60_000)
    assert len(world.texts("n1")) == len(world.texts("n2")) == 200
    world.meet()
    world.run(for_ms=60_000)
    for name in ("n1", "n2"):
        assert set(world.vouched(name).values()) == {""} and world.whole(name).complete
        assert not world.heard(name, notifications.Refuted)
        assert sum(notice.upto - notice.after for notice in world.heard(name, notifications.Confirmed)) == 100


@pytest.mark.parametrize("name", ["another", "later"])
def test_a_last_word_confirms_nothing_but_what_leads_up_to_it(name):
    """`another`: the author has said something else in that place; `later`: it is for us only from a later place on."""
    world = Apart(policy=Policy(history="none"), coming=False)
    world.come("n1")
    world.ask("n1", SendPost("friends", "before"))
    world.come("n2")
    world.run(for_ms=60_000)
    world.ask("n1", SendPost("friends", "there"))
    assert world.gets("n2", "there")
    group, author = world.group("n2"), world.group("n1").me
    chain = group.chain(author)
    turn = Turn(world.nodes["n2"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    tip, since = ("x" * 43, 0) if name == "another" else (chain.tip, chain.seq + 1)
    assert not vouched.hear_last(turn, world.id, author, chain.seq, tip, since)
    assert turn.group(world.id) == group and not turn.effects
    assert vouched.hear_last(turn, world.id, author, chain.seq, chain.tip, 1)
    assert turn.group(world.id).chain(author).own is None


@pytest.mark.parametrize("keys", MODES)
@pytest.mark.parametrize("history", ["none", "all"])
@pytest.mark.parametrize("gone", ["put out", "left"])
@pytest.mark.parametrize("said", [(), ("after",)])
def test_of_who_has_gone_before_they_could_meet_nothing_is_missing(keys, history, gone, said):
    world = Apart(4, Policy(history=history), keys, coming=False)
    for name in ("n1", "n3"):
        world.come(name)
    world.ask("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    world.run(for_ms=60_000)
    for text in said:
        world.ask("n1", SendPost("friends", text))
        world.run(for_ms=10_000)
    if gone == "left":
        world.ask("n1", LeaveGroup(world.id))
    for name in ("n0", "n3") if gone == "put out" else ():
        world.ask(name, SendPost("friends", "heard"))  # so that what it has said counts
        world.run(for_ms=3_000)
        world.ask(name, RemoveMember(world.id, world.group("n1").me))
    world.run(for_ms=900_000)
    assert world.group("n1").me in world.group("n2").view.former
    ours = ("before", *said) if history == "all" else said
    assert [text for text in world.texts("n2") if text != "heard"] == [*ours]
    assert world.whole("n2").complete


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("history", ["all", "last:1"])
def test_what_nothing_leads_to_is_never_confirmed(monkeypatch, history, signs):
    """n0 makes up what n1 has said before n2 came, and has nothing of what lies in between."""
    fetched, place, author, lamport = history_requests.fetched, 2, "", 0

    def lying(turn, found):
        group = turn.agent.groups[found.group]
        if group.view.members[group.me].label == "n0" and found.back:
            wants = [upto for did, _, upto in found.want if did == author]
            made_up = Event(group.id, POST, author, place, "A" * 43, (), (), lamport, turn.now, {"text": "made up"})
            if wants and wants[0] > 1_000:
                found = replace(found, records=(made_up.record,), more=False)
            elif wants and wants[0] < 4:
                found = replace(found, records=(), more=False)
        fetched(turn, found)

    monkeypatch.setattr(history_requests, "fetched", lying)
    world = Apart(3, Policy(history=history), coming=False)
    world.come("n1")
    for number in range(3):
        world.ask("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    author = world.group("n1").me
    lamport = [row for row in world.nodes["n0"].log if row.type == POST][1].lamport
    world.come("n2")
    world.run(for_ms=60_000)
    assert "made up" in world.vouched("n2"), "nobody has told anything else"
    world.ask("n1", SendPost("friends", "new"))
    world.run(for_ms=60_000)
    if signs:
        world.ask("n1", ChangeLabel(world.id, "nora"))
        world.run(for_ms=60_000)
    assert world.vouched("n2").get("made up") != ""
    world.meet()
    world.run(for_ms=300_000)
    shown = world.vouched("n2")
    assert shown.pop("made up", "n0") != "" and (signs or "made up" not in world.texts("n2"))
    assert set(shown.values()) == {""} and shown.keys() <= {"old 0", "old 1", "old 2", "new"}


def test_all_that_leads_up_to_the_last_word_is_confirmed_also_what_was_fetched_later(monkeypatch):
    fetched, there = history_requests.fetched, False

    def without_history(turn, found):
        old = found.back and any(upto > 1_000 or upto < 4 for _, _, upto in found.want)
        fetched(turn, found if there or not old else replace(found, records=(), more=False))

    monkeypatch.setattr(history_requests, "fetched", without_history)
    world = Apart(3, coming=False)
    world.come("n1")
    for number in range(3):
        world.ask("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    world.come("n2")
    world.run(for_ms=20_000)
    for said in (SendPost("friends", "new"), ChangeLabel(world.id, "nora")):
        world.ask("n1", said)
        world.run(for_ms=20_000)
    there = True
    world.run(for_ms=900_000)
    world.ask("n1", SendPost("friends", "last"))
    world.run(for_ms=60_000)
    assert len(world.vouched("n2")) == 5 and set(world.vouched("n2").values()) != {""}
    world.meet()
    world.run(for_ms=60_000)
    assert len(world.vouched("n2")) == 5 and set(world.vouched("n2").values()) == {""}


def removing(*others):
    world = Apart(4 + len(others), Policy(history="none", remove="anyone", quorum=0), coming=False)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=1)
    for name in ("n1", "n3", *others):
        world.come(name)
    world.ask("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    world.run(for_ms=60_000)
    return world


def reach(world, *pairs):
    world.cut -= {frozenset(pair) for pair in pairs}
    world._connect_all()


def test_what_counts_of_somebody_put_out_comes_though_much_that_does_not_is_behind_it():
    """It went on to talk to n3, which had not heard of it yet; and only n3 is there."""
    world = removing()
    for name in ("n0", "n3"):
        world.part("n2", name)
    for number in range(2):
        world.ask("n1", SendPost("friends", f"counts {number}"))
    world.run(for_ms=10_000)
    world.ask("n3", SendPost("friends", "heard"))  # so that n0 knows that somebody else has it too
    world.run(for_ms=3_000)
    for pair in (("n1", "n0"), ("n0", "n3")):
        world.part(*pair)
    for number in range(RUN_EVENTS_MAX + 10):
        world.ask("n1", SendPost("friends", f"too late {number}"))
    world.run(for_ms=60_000)
    world.part("n1", "n3")
    world.ask("n0", RemoveMember(world.id, world.group("n1").me))
    reach(world, ("n0", "n3"))
    world.run(for_ms=30_000)
    world.part("n0", "n3")
    reach(world, ("n2", "n3"))
    world.run(for_ms=900_000)
    assert world.group("n2").view.removed == {world.group("n1").me: 3}
    assert sorted(world.texts("n2")) == ["counts 0", "counts 1", "heard"] and world.whole("n2").complete


def test_what_did_not_count_comes_when_it_counts_after_all():
    """n4 has put n1 out, and had itself been put out by then: n2 hears of the one before the other."""
    world = removing("n4")
    for pair in (("n4", "n0"), ("n4", "n1"), ("n4", "n3"), ("n2", "n0"), ("n2", "n3"), ("n2", "n4")):
        world.part(*pair)
    for number in range(3):
        world.ask("n1", SendPost("friends", f"after {number}"))
    world.run(for_ms=20_000)
    for pair in (("n0", "n1"), ("n0", "n3"), ("n1", "n3")):
        world.part(*pair)
    author = world.group("n1").me
    world.ask("n0", RemoveMember(world.id, world.group("n4").me))
    world.ask("n4", RemoveMember(world.id, author))
    reach(world, ("n4", "n3"), ("n4", "n2"), ("n3", "n2"))
    world.run(for_ms=300_000)
    assert author in world.group("n2").view.removed and not world.texts("n2")
    for name in ("n3", "n2"):
        world.part("n4", name)
    reach(world, ("n0", "n3"))
    world.run(for_ms=900_000)
    assert author in world.group("n2").view.members
    assert world.texts("n2") == [f"after {number}" for number in range(3)]


def test_what_somebody_put_out_has_said_is_missing_as_long_as_nobody_has_answered(monkeypatch):
    fetched, silent = history_requests.fetched, True

    def hold_back(turn, found):
        if not silent:
            fetched(turn, found)

    monkeypatch.setattr(history_requests, "fetched", hold_back)
    world = removing()
    for number in range(2):
        world.ask("n1", SendPost("friends", f"counts {number}"))
    world.run(for_ms=10_000)
    world.ask("n3", SendPost("friends", "heard"))
    world.run(for_ms=3_000)
    world.ask("n0", RemoveMember(world.id, world.group("n1").me))
    world.run(for_ms=900_000)
    assert world.group("n2").view.removed == {world.group("n1").me: 3}
    assert world.texts("n2") == ["heard"] and not world.whole("n2").complete
    silent = False
    world.run(for_ms=300_000)
    assert sorted(world.texts("n2")) == ["counts 0", "counts 1", "heard"] and world.whole("n2").complete


def spoken_before():
    """n0, n1 and n3, of whom n1 has said three words; n2 has not come yet."""
    world = Apart(4, coming=False)
    for name in ("n1", "n3"):
        world.come(name)
    for number in range(3):
        world.ask("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    return world


def test_history_that_comes_after_they_have_met_is_the_author_s_own(monkeypatch):
    """Others have it only later; and the author had spoken before it knew of the newcomer."""
    fetched, there, old = history_requests.fetched, False, 0

    def not_yet(turn, found):
        history = found.back and any(upto > 1_000 or upto <= old for _, _, upto in found.want)
        fetched(turn, found if there or not history else replace(found, records=(), more=False))

    monkeypatch.setattr(history_requests, "fetched", not_yet)
    world = spoken_before()
    old = world.group("n1").seq
    for name in ("n0", "n3"):
        world.part("n1", name)
    world.come("n2")
    world.run(for_ms=20_000)
    world.ask("n1", SendPost("friends", "early"))
    reach(world, ("n1", "n0"), ("n1", "n3"))
    world.run(for_ms=60_000)
    world.ask("n1", SendPost("friends", "late"))
    world.run(for_ms=20_000)
    world.meet()
    world.run(for_ms=20_000)
    assert sorted(world.vouched("n2").items()) == [("early", ""), ("late", "")]
    there = True
    world.run(for_ms=1_200_000)
    world.ask("n1", SendPost("friends", "new"))
    world.run(for_ms=600_000)
    assert len(world.vouched("n2")) == 6 and set(world.vouched("n2").values()) == {""}


def test_what_has_met_in_the_middle_is_confirmed_whole():
    """n0 has less of n1's words than n3 when n2 asks it for them; what n3 brings later begins behind a hole."""
    world = spoken_before()
    world.run(for_ms=20_000)
    for pair in (("n1", "n0"), ("n3", "n0"), ("n3", "n2")):
        world.part(*pair)
    world.ask("n1", SendPost("friends", "old 3"))
    world.run(for_ms=10_000)
    world.come("n2")
    world.run(for_ms=120_000)
    world.part("n2", "n0")
    reach(world, ("n3", "n0"))
    world.run(for_ms=20_000)
    world.ask("n1", SendPost("friends", "new"))
    world.run(for_ms=20_000)
    reach(world, ("n3", "n2"), ("n2", "n0"))
    world.run(for_ms=900_000)
    author = world.group("n1").me
    assert len(world.texts("n2")) == 5 and world.group("n2").chain(author).stale
    world.ask("n1", LeaveGroup(world.id))
    assert world.run(until=lambda: world.group("n2").chain(author).own is None, for_ms=60_000)
    for name in ("n0", "n3"):
        world.part("n2", name)
    assert len(world.vouched("n2")) == 5 and set(world.vouched("n2").values()) == {""}


def test_somebody_who_says_that_there_is_nothing_is_not_believed_alone(monkeypatch):
    """n3 has all of it, and hands over none."""
    fetched = history_requests.fetched

    def stingy(turn, found):
        group = turn.agent.groups.get(found.group)
        silent = group is not None and group.view.members[group.me].label == "n3"
        fetched(turn, replace(found, records=(), more=False) if silent else found)

    monkeypatch.setattr(history_requests, "fetched", stingy)
    world = Apart(5)
    world.run(for_ms=60_000)
    for number in range(4):
        world.ask("n1", SendPost("friends", f"number {number}"))
        assert world.gets("n2", f"number {number}", for_ms=60_000)


@pytest.mark.parametrize("history", ["none", "all"])
@pytest.mark.parametrize("place", [50, 2**53 - 3])
def test_who_makes_up_that_the_chain_begins_far_away_keeps_nothing_from_others(monkeypatch, history, place):
    """n3 tells of more than there is, and hands over something that it has made up as the end of it."""
    lied = []
    fetched, have = history_requests.fetched, outbox.have

    def is_liar(group):
        return group.view.members[group.me].label == "n3"

    def telling(group):
        told = have(group)
        if is_liar(group):
            labels = [one.label for one in group.view.members.values()]
            told = [place + 1 if label == "n1" else upto for label, upto in zip(labels, told, strict=True)]
        return told

    def lying(turn, found):
        group = turn.agent.groups[found.group]
        ((author, after, upto), *_) = found.want
        if is_liar(group) and found.back and group.view.members[author].label == "n1" and after < place <= upto:
            lie = Event(
                group.id,
                POST,
                author,
                place,
                group.id,
                (),
                (),
                group.lamport + 1,
                turn.now,
                {"text": "lie"},
            )
            found = replace(found, records=(lie.record,), more=False)
            lied.append(place)
        fetched(turn, found)

    monkeypatch.setattr(history_requests, "fetched", lying)
    monkeypatch.setattr("zerochat.group.sync.acknowledgements.have", telling)
    for seed in range(4):
        world = Apart(5, Policy(history=history))
        world.dice.seed(seed)
        world.run(for_ms=60_000)
        for number in range(4):
            world.ask("n1", SendPost("friends", f"number {number}"))
            world.run(for_ms=60_000)
        assert {f"number {number}" for number in range(4)} <= set(world.texts("n2"))
        world.meet()
        world.ask("n1", SendPost("friends", "here"))
        world.run(for_ms=120_000)
        assert set(world.vouched("n2").values()) == {""} and len(world.texts("n2")) == 5
    assert lied


def test_what_names_something_unknown_begins_nothing(monkeypatch):
    """n5 alone tells of more than there is, and makes up a post that rests on a membership event that nobody knows."""
    fetched, have, author, lied = history_requests.fetched, outbox.have, "", []

    def telling(group):
        told = zip(group.view.members, have(group), strict=True)
        liar = group.view.members[group.me].label == "n5"
        return [50 if liar and did == author else upto for did, upto in told]

    def lying(turn, found):
        group = turn.agent.groups[found.group]
        wanted = [upto for did, after, upto in found.want if did == author and after < 40 <= upto]
        if group.view.members[group.me].label == "n5" and wanted and found.back:
            made_up = (
                group.id,
                POST,
                author,
                40,
                "A" * 43,
                ("B" * 43,),
                (),
                group.lamport + 1,
                turn.now,
                {"text": "x"},
            )
            found = replace(found, records=(Event(*made_up).record,), more=False)
            lied.append(found)
        fetched(turn, found)

    monkeypatch.setattr(history_requests, "fetched", lying)
    monkeypatch.setattr(acknowledgements, "have", telling)
    world = Apart(6, coming=False)
    for name in ("n1", "n3", "n4", "n5"):
        world.come(name)
    for number in range(5):
        world.ask("n1", SendPost("friends", f"old {number}"))
        world.run(for_ms=2_000)
    world.come("n2")
    world.run(for_ms=120_000)
    author = world.group("n1").me
    world.run(for_ms=600_000)
    assert lied and len(world.texts("n2")) == 5 and world.group("n2").chain(author).tip
    for number in range(3):
        world.ask("n1", SendPost("friends", f"new {number}"))
        world.run(for_ms=300_000)
    assert len(world.texts("n2")) == 8 and len(lied) < 40


def test_newcomers_who_never_had_it_do_not_answer_for_it(monkeypatch):
    """The answers of those who have what n1 said are lost at first."""
    fetched, silent = history_requests.fetched, True

    def hold_back(turn, found):
        group = turn.agent.groups[found.group]
        if not silent or group.view.members[group.me].label not in ("n0", "n3"):
            fetched(turn, found)

    world = Apart(7, Policy(history="none", remove="anyone", quorum=0), coming=False)
    monkeypatch.setattr(history_requests, "fetched", hold_back)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=1)
    for name in ("n1", "n3", "n2"):
        world.come(name)
    world.run(for_ms=60_000)
    for number in range(2):
        world.ask("n1", SendPost("friends", f"counts {number}"))
    world.run(for_ms=10_000)
    world.ask("n3", SendPost("friends", "heard"))
    world.run(for_ms=3_000)
    for name in ("n4", "n5", "n6"):
        world.come(name)
    world.run(for_ms=120_000)
    world.ask("n0", RemoveMember(world.id, world.group("n1").me))
    world.run(for_ms=60_000)
    assert world.texts("n2") == ["heard"] and not world.whole("n2").complete
    silent = False
    world.run(for_ms=300_000)
    assert sorted(world.texts("n2")) == ["counts 0", "counts 1", "heard"] and world.whole("n2").complete


def test_enough_answers_are_enough_until_somebody_tells_of_more():
    world = Apart(6)
    last = max(world.nodes, key=lambda name: world.group(name).view.members[world.group(name).me].joined)
    group = world.group(last)
    author, *others = group.peers

    def told(heights):
        peers = {did: replace(group.peers[did], acked={author: upto}) for did, upto in heights.items()}
        return replace(group, peers={**group.peers, **peers})

    same = dict.fromkeys(others, 7)
    for count in range(len(others)):
        left = unreachable_authors.tellers(told(same), author, Unmet(dict.fromkeys(others[:count], 7)))
        assert left == (others[count:] if count < unreachable_authors.ANSWERS else [])
    all_but_one = Unmet(dict.fromkeys(others[:-1], 7))
    for more in (others[0], others[-1]):
        assert unreachable_authors.tellers(told({**same, more: 8}), author, all_but_one) == [more]
    younger = {did: replace(one, joined=2**60) for did, one in group.view.members.items() if did in others[:-1]}
    group = replace(group, view=replace(group.view, members={**group.view.members, **younger}))
    assert unreachable_authors.tellers(told(same), author, all_but_one) == [others[-1]], (
        "the others may never have had it"
    )


def test_an_answer_counts_for_what_was_asked_and_not_for_what_is_told_by_then():
    """Whoever goes on hearing the author while it is asked is asked again."""
    world = Apart(policy=Policy(history="none"), coming=False)
    world.come("n1")
    world.ask("n1", SendPost("friends", "before"))
    world.run(for_ms=3_000)
    world.come("n2")
    author, asked = world.group("n1").me, lambda: any(one.want for one in world.group("n2").errands.values())
    assert world.run(asked, for_ms=60_000)
    (member, errand), *_ = world.group("n2").errands.items()
    group = world.group("n2")
    peers = {**group.peers, member: replace(group.peers[member], acked={author: 9})}
    agent = replace(world.nodes["n2"].agent, groups={group.id: replace(group, peers=peers)})
    turn = Turn(agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    unreachable_authors.take(turn, group.id, member, errand, [])
    assert turn.group(group.id).unmet[author].answered == {member: 1}
    assert unreachable_authors.tellers(turn.group(group.id), author, turn.group(group.id).unmet[author]) == [member]


def test_it_does_not_matter_who_else_has_lost_the_author():
    """All of them say truly that they have nothing for the newcomer, but for one."""
    for seed in range(6):
        world = Apart(7, Policy(history="none"), coming=False)
        world.dice.seed(seed)
        for name in ("n1", "n3", "n4", "n5", "n6"):
            world.come(name)
        world.ask("n1", SendPost("friends", "before"))
        world.come("n2")
        world.run(for_ms=60_000)
        for name in ("n3", "n4", "n5", "n6"):
            world.part("n1", name)
        world.ask("n1", SendPost("friends", "after"))
        assert world.gets("n2", "after", for_ms=30_000)


# --- asking others to hand it on --------------------------------------------------------------------------------------


def counted(world, monkeypatch):
    """How many messages of the kind there have been, by who has sent them, from now on."""
    sent = Counter()
    message_for = acknowledgements.message_for

    def telling(turn, name, member, unreached=()):
        group = turn.group(name)
        sent[group.view.members[group.me].label, bool(unreached)] += 1
        return message_for(turn, name, member, unreached)

    monkeypatch.setattr(acknowledgements, "message_for", telling)
    return sent


def test_who_is_away_costs_a_few_messages(monkeypatch):
    world = Apart(5)
    for number in range(4):
        world.part("n4", f"n{number}")
    world.run(for_ms=600_000)
    sent = counted(world, monkeypatch)
    world.ask("n3", SendPost("friends", "hello"))
    world.run(for_ms=600_000)
    asked = sum(count for (_, unreached), count in sent.items() if unreached)
    assert asked == sent["n3", True] == relay.ROUNDS_MAX * relay.HELPERS, "the one who has said something, and it alone"


def test_nobody_is_told_of_by_a_place_that_means_nothing(monkeypatch):
    world = Apart(4)
    world.run(for_ms=60_000)
    world.ask("n1", SendPost("friends", "hello"))
    world.run(for_ms=1)
    group = world.group("n0")
    author = next(did for did, one in group.view.members.items() if one.label == "n1")
    world.run(for_ms=60_000)
    sent = counted(world, monkeypatch)

    def hears(view, places):
        sent.clear()
        turn = Turn(world.nodes["n0"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
        relay.hear(turn, group.id, author, view, places)
        return sum(sent.values())

    mine = world.group("n0").view
    places = {one.label: place for place, one in enumerate(mine.members.values())}
    assert hears(mine.checksum, [places["n2"]]) == 1
    assert hears(mine.checksum, [places["n2"]] * UNREACHED_MAX) == 1
    assert hears("another", [places["n2"]]) == 0
    assert hears(mine.checksum, [places["n0"], places["n1"], 99, 2**53 - 1]) == 0
    assert hears(mine.checksum, []) == 0


def test_others_are_asked_again_when_they_can_help():
    """After its author has started anew right after it has said something, and when somebody who can help is back."""
    world = Apart()
    world.run(for_ms=60_000)
    world.ask("n1", SendPost("friends", "started"))
    world.run(for_ms=300)
    world.restart("n1")
    assert world.gets("n2", "started")
    world.part("n1", "n0")
    world.ask("n1", SendPost("friends", "alone"))
    world.run(for_ms=300_000)
    world.cut.discard(frozenset(("n0", "n1")))
    world.restart("n1")
    assert world.gets("n2", "alone")
