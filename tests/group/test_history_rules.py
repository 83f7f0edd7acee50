"""What newcomers get of what was said before: the rule as people write it, in words, and what a newcomer is told."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from tests.group.test_history import Cut
from zerochat.agent.archive.beginnings import beginning
from zerochat.group.effects import Refuse
from zerochat.group.event_log.event import ADD, POST, load_event
from zerochat.group.inputs import AcceptInvitation, CreateInvitation, LeaveGroup
from zerochat.group.joining.invitations import NoSuchHistory
from zerochat.group.membership import Policy, add_of, is_history_rule
from zerochat.group.state import Chain, Fetching, Past
from zerochat.group.sync.backfill import NEWEST
from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import (
    BadHistory,
    check,
    exceeds,
    fetching,
    given,
    in_words,
    read_rule,
    sentence,
)
from zerochat.rpc import Beginning

NOW = 1_782_864_000_000
DAY = 86_400_000


# --- the rule as people write it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("none", "none"),
        ("all", "all"),
        ("50", "last:50"),
        ("last:50", "last:50"),
        ("last:007", "last:7"),
        ("since:7d", f"since:{NOW - 7 * DAY}"),
        ("since:2w", f"since:{NOW - 14 * DAY}"),
        ("since:12h", f"since:{NOW - DAY // 2}"),
        ("since:2026-07-01T00:00Z", "since:1782864000000"),
        ("since:2026-07-01T02:30+02:30", "since:1782864000000"),
        ("since:1782864000000", "since:1782864000000"),
    ],
)
def test_a_rule_is_read_as_it_is_meant(text, rule):
    assert read_rule(text, NOW) == rule
    assert is_history_rule(rule)
    check(rule)


@pytest.mark.parametrize("text", ["since:2026-07-01", "since:20260701", "since:2026-07-01T00:00"])
def test_a_date_without_a_zone_is_meant_here(text):
    assert read_rule(text, NOW) == f"since:{int(datetime(2026, 7, 1).astimezone().timestamp() * 1000)}"


@pytest.mark.parametrize("text", ["since:2030-01-01", f"since:{NOW + 1}", "since:2026-07-01T00:01Z"])
def test_a_time_that_is_still_to_come_is_refused(text):
    with pytest.raises(BadHistory, match="still to come"):
        read_rule(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("", "some", "none:1", "all:2", "last", "last:", "last:0", "0", "-1", "last:x", "last:12345678", "9" * 400),
        *("since", "since:", "since:soon", "since:7y", "since:1900-01-01", "since:2026-13-01", "since:99999w", "²"),
    ],
)
def test_what_is_no_rule_is_refused_in_a_sentence(text):
    with pytest.raises(BadHistory) as refused:
        read_rule(text, NOW)
    assert refused.value.sentence().startswith("Newcomers cannot get '") and refused.value.exit_code == 2


@pytest.mark.parametrize(
    "rule",
    ["none", "all", "last:1", "last:0", "last:01", "last:9999999", "since:0", "since:x", "since:1" + "0" * 15, ""],
)
def test_what_faces_take_for_a_rule_is_what_the_core_does(rule):
    if is_history_rule(rule):
        assert not Policy(history=group_rules.settled(history=rule).history).fault
    else:
        with pytest.raises(BadHistory):
            group_rules.settled(history=rule)


def test_how_many_keep_it():
    assert group_rules.settled(keepers=64).keepers == 64
    for count in (-1, 65):
        with pytest.raises(group_rules.BadRules, match="from 1 to 64"):
            group_rules.settled(keepers=count)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        *(("none", "all"), ("none", "last:1"), ("none", "since:5"), ("last:5", "all"), ("since:5", "all")),
        *(("last:5", "last:6"), ("since:6", "since:5")),
    ],
)
def test_which_rule_gives_more(less, more):
    assert exceeds(more, less) and not exceeds(less, more)
    assert not exceeds(more, more) and not exceeds(less, less)


def test_a_number_and_a_time_cannot_be_compared():
    assert not exceeds("last:5", "since:5") and not exceeds("since:5", "last:5")


# --- in words --------------------------------------------------------------------------------------------------------


def test_what_a_rule_means():
    assert given("none") == "nothing of what was said before they came"
    assert given("last:1") == "the last message from before they came"
    assert given("last:1200") == "the last 1,200 messages from before they came"
    assert given("since:1782864000000") == "what was said since 2026-07-01"
    assert given("since:1782867660000") == "what was said since 2026-07-01 01:01 UTC"
    assert "9999-12-31" in given("since:" + "9" * 15)
    assert "later version" in given("tomorrow")
    assert in_words("last:2", 0) == "newcomers get the last 2 messages from before they came"
    assert in_words("last:2", 1).endswith("; the one who has been here longest keeps it for them")
    assert in_words("all", 3).endswith("; the 3 who have been here longest keep it for them")
    assert "keep" not in in_words("none", 3)


@pytest.mark.parametrize(
    ("state", "rules", "said"),
    [
        ("whole", [], "This is the beginning of friends."),
        ("gone", ["all", "all"], "Nobody who is there has what came before this."),
        ("ended", ["all", "all"], "You left before all that was said before you came was fetched."),
        ("withheld", ["none", "all"], "What was said before you came is not given to newcomers in this group."),
        ("withheld", ["all", "none"], "Your invitation gave you nothing of what was said before you came."),
        ("withheld", ["last:50", "all"], "You have the last 50 messages from before you came."),
        ("withheld", ["last:50", "last:1"], "You have the last message from before you came."),
        ("withheld", ["all", "since:0"], "Of what was said before you came you have what was said since 1970-01-01."),
        (
            "withheld",
            ["last:5", "since:0"],
            "Of the last 5 messages from before you came you have what was said since 1970-01-01.",
        ),
        ("withheld", ["tomorrow", "all"], "What was said before you came is not here."),
    ],
)
def test_what_a_newcomer_is_told(state, rules, said):
    assert sentence(Beginning(state=state, rules=rules, got=7), "friends") == said


def test_how_far_it_has_come():
    assert fetching(Beginning(state="fetching", got=1200, left=4000)) == (
        "fetching what was said before: 1,200 here, 4,000 to go"
    )
    assert sentence(Beginning(state="fetching"), "x") == "Fetching what was said before: 0 here so far."
    assert sentence(Beginning(state="gone"), "x") == "Nobody who is there has what was said before you came."


# --- from the state of a group ---------------------------------------------------------------------------------------


def state_of(world, name):
    return beginning(world.nodes[name].agent.groups[world.id])


def test_who_has_founded_a_group_has_its_beginning():
    world = Cut()
    assert state_of(world, "n0").state == "whole" and state_of(world, "n0").rules == []


def test_a_newcomer_who_has_all_of_it_has_the_beginning():
    world = Cut()
    world.post("n0", *(f"early {number}" for number in range(400)))
    invitation = world.ask("n0", CreateInvitation(world.id, 3600, 1)).result.invitation
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    seen = set()

    def look():
        if world.id in world.nodes["n1"].agent.groups:
            found = state_of(world, "n1")
            seen.add((found.state, found.got > 0 and found.left > 0))
            return found.state == "whole"
        return False

    assert world.run(look, for_ms=60_000)
    assert ("fetching", True) in seen and not {state for state, _ in seen} & {"gone", "withheld", "ended"}
    found = state_of(world, "n1")
    assert (found.got, found.left, found.rules) == (402, 0, ["all", "all"])
    own = next(row for row in world.nodes["n1"].log if row.type == ADD)
    assert found.joined == own.lamport


@pytest.mark.parametrize(
    ("rule", "texts", "state"),
    [
        ("none", [], "withheld"),
        ("last:2", ["two", "three"], "withheld"),
        ("last:9", ["one", "two", "three"], "whole"),
        ("since:1", ["one", "two", "three"], "whole"),
    ],
)
def test_what_the_rule_holds_back_is_said_to_be_held_back(rule, texts, state):
    world = Cut(policy=Policy(history=rule))
    world.post("n0", "one", "two", "three")
    world.bring_in("n1")
    world.run(for_ms=60_000)
    assert world.texts("n1") == texts and state_of(world, "n1").state == state


def test_an_invitation_gives_less_than_the_group():
    world = Cut()
    world.post("n0", "one", "two", "three")
    for name, rule in (("n1", "last:1"), ("n2", "none")):
        invitation = world.ask("n0", CreateInvitation(world.id, 3600, 1, history=rule)).result.invitation
        world.ask(name, AcceptInvitation(invitation, name))
        world.run(for_ms=60_000)
    assert (world.texts("n1"), world.texts("n2")) == (["three"], [])
    assert state_of(world, "n1").rules == ["all", "last:1"] and state_of(world, "n1").state == "withheld"
    assert state_of(world, "n2").state == "withheld"
    added = [load_event(row.record) for row in world.nodes["n0"].log if row.type == ADD]
    assert [add_of(event).history for event in added] == ["last:1", "none"]
    assert [member.history for member in world.nodes["n1"].agent.groups[world.id].view.members.values()].count("all")


def test_an_event_says_nothing_of_the_history_where_nothing_is_held_back():
    world = Cut()
    world.bring_in("n1")
    [added] = [load_event(row.record) for row in world.nodes["n0"].log if row.type == ADD]
    assert "history" not in added.body


def test_nobody_makes_an_invitation_with_a_rule_that_there_is_not():
    world = Cut()
    refused = world.ask("n0", CreateInvitation(world.id, 3600, 1, history="tomorrow\x1b"))
    assert isinstance(refused, Refuse) and isinstance(refused.error, NoSuchHistory)
    assert "'tomorrow\\x1b'" in refused.error.sentence() and world.nodes["n0"].agent.invitations == {}


def test_what_nobody_has_kept_is_said_to_be_gone():
    world = Cut()
    world.post("n0", "one", "two")
    world.nodes["n0"].log = [row for row in world.nodes["n0"].log if row.type != POST]
    world.bring_in("n1")
    world.run(for_ms=200_000)
    found = state_of(world, "n1")
    assert found.state == "gone" and found.left > 0


def test_what_follows_from_what_is_left():
    """The cases that do not come about by themselves in a short time."""
    world = Cut()
    world.bring_in("n1")
    world.run(for_ms=20_000)
    group, author = world.nodes["n1"].agent.groups[world.id], world.did("n0")

    def at(first, rule="all", **more):
        view = replace(group.view, policy=replace(group.view.policy, history=rule))
        chains = {**group.chains, author: Chain(90, past=Past(first))}
        return beginning(replace(group, view=view, chains=chains, **more)).state

    done = Fetching(done=True, got=20)
    assert at(1, fetching=done) == "whole"
    assert at(9, fetching=done) == "gone"
    assert at(9, "last:20", fetching=done) == "withheld"
    assert at(9, "last:21", fetching=done) == "gone", "fewer have come than it may have"
    assert at(9, "since:5", fetching=done) == "withheld"
    assert at(NEWEST, fetching=done) == "whole", "nobody says that there is any more"
    assert at(NEWEST, "last:21", fetching=done) == "whole"
    assert at(NEWEST, "last:20", fetching=done) == "withheld"
    assert at(9, fetching=None) == at(9, fetching=Fetching(got=5)) == "fetching"
    assert at(9, fetching=Fetching(got=5), state="left") == "ended"
    assert at(9, "none", fetching=None) == "withheld"
    world.ask("n1", LeaveGroup(world.id))
    world.run(for_ms=20_000)
    assert state_of(world, "n1").state == "whole", "what was fetched stays"
