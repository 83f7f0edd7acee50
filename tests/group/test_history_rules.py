"""History rules for new members: syntax, sentences, and notices."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut
from zerochat.agent.views.groups import history_start
from zerochat.group.effects import CommandFailed
from zerochat.group.event_log.event import ADD, POST, load_event
from zerochat.group.inputs import AcceptInvitation, CreateInvitation, LeaveGroup
from zerochat.group.joining.invitations import NoSuchHistory
from zerochat.group.membership import Policy, add_of, is_history_rule
from zerochat.group.state import Backfill, BackfillProgress, Chain
from zerochat.group.sync.backfill import NEWEST
from zerochat.limits import MEMBERS_MAX
from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import (
    BadHistory,
    backfill_text,
    check,
    exceeds,
    policy_text,
    read_rule,
    rule_text,
    start_sentence,
)
from zerochat.rpc import HistoryStart

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
def test_a_time_in_the_future_is_refused(text):
    with pytest.raises(BadHistory, match="in the future"):
        read_rule(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        *("", "some", "none:1", "all:2", "last", "last:", "last:0", "0", "-1", "last:x", "last:12345678", "9" * 400),
        *("since", "since:", "since:soon", "since:7y", "since:1900-01-01", "since:2026-13-01", "since:99999w", "²"),
    ],
)
def test_an_invalid_rule_is_rejected_with_a_sentence(text):
    with pytest.raises(BadHistory) as refused:
        read_rule(text, NOW)
    assert refused.value.sentence().startswith("Invalid history rule '") and refused.value.exit_code == 2


@pytest.mark.parametrize(
    "rule",
    ["none", "all", "last:1", "last:0", "last:01", "last:9999999", "since:0", "since:x", "since:1" + "0" * 15, ""],
)
def test_clients_and_core_parse_rules_alike(rule):
    if is_history_rule(rule):
        assert not Policy(history=group_rules.completed_policy(history=rule).history).error
    else:
        with pytest.raises(BadHistory):
            group_rules.completed_policy(history=rule)


def test_how_many_keep_it():
    assert group_rules.completed_policy(keepers=MEMBERS_MAX).keepers == MEMBERS_MAX
    for count in (-1, MEMBERS_MAX + 1):
        with pytest.raises(group_rules.BadRules, match=f"1 to {MEMBERS_MAX}"):
            group_rules.completed_policy(keepers=count)


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


def test_the_sentence_of_a_rule():
    assert rule_text("none") == "no earlier messages"
    assert rule_text("last:1") == "the last message before they joined"
    assert rule_text("last:1200") == "the last 1,200 messages before they joined"
    assert rule_text("since:1782864000000") == "messages since 2026-07-01"
    assert rule_text("since:1782867660000") == "messages since 2026-07-01 01:01 UTC"
    assert "9999-12-31" in rule_text("since:" + "9" * 15)
    assert "does not support" in rule_text("tomorrow")
    assert policy_text("last:2", 0) == "new members receive the last 2 messages before they joined"
    assert policy_text("last:2", 1).endswith("; the longest-standing member keeps it for them")
    assert policy_text("all", 3).endswith("; the 3 longest-standing members keep it for them")
    assert "keep" not in policy_text("none", 3)


@pytest.mark.parametrize(
    ("state", "rules", "said"),
    [
        ("whole", [], "This is the beginning of friends."),
        ("gone", ["all", "all"], "No member has the messages before this."),
        ("ended", ["all", "all"], "You left the group before all earlier messages were fetched."),
        ("withheld", ["none", "all"], "New members of this group do not receive earlier messages."),
        ("withheld", ["all", "none"], "Your invitation does not include earlier messages."),
        ("withheld", ["last:50", "all"], "You have the last 50 messages before you joined."),
        ("withheld", ["last:50", "last:1"], "You have the last message before you joined."),
        ("withheld", ["all", "since:0"], "You have the earlier messages since 1970-01-01."),
        (
            "withheld",
            ["last:5", "since:0"],
            "You have those of the last 5 messages before you joined that were sent since 1970-01-01.",
        ),
        ("withheld", ["tomorrow", "all"], "Earlier messages are not available."),
    ],
)
def test_the_sentence_for_a_new_member(state, rules, said):
    assert start_sentence(HistoryStart(state=state, rules=rules, received=7), "friends") == said


def test_backfill_progress_in_text():
    assert backfill_text(HistoryStart(state="fetching", received=1200, remaining=4000)) == (
        "fetching earlier messages: 1,200 received, 4,000 to go"
    )
    assert start_sentence(HistoryStart(state="fetching"), "x") == "Fetching earlier messages: 0 received so far."
    assert start_sentence(HistoryStart(state="gone"), "x") == "No member has the earlier messages."


# --- from the state of a group ---------------------------------------------------------------------------------------


def state_of(world, name):
    return history_start(world.nodes[name].agent.groups[world.id])


def test_a_founder_has_the_whole_history():
    world = Cut()
    assert state_of(world, "n0").state == "whole" and state_of(world, "n0").rules == []


def test_a_new_member_may_have_the_whole_history():
    world = Cut()
    world.post("n0", *(f"early {number}" for number in range(400)))
    invitation = world.run_command("n0", CreateInvitation(world.id, 3600, 1)).result.invitation
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    seen = set()

    def look():
        if world.id in world.nodes["n1"].agent.groups:
            found = state_of(world, "n1")
            seen.add((found.state, found.received > 0 and found.remaining > 0))
            return found.state == "whole"
        return False

    assert world.run(look, for_ms=60_000)
    assert ("fetching", True) in seen and not {state for state, _ in seen} & {"gone", "withheld", "ended"}
    found = state_of(world, "n1")
    assert (found.received, found.remaining, found.rules) == (402, 0, ["all", "all"])
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
def test_withheld_history_is_reported(rule, texts, state):
    world = Cut(policy=Policy(history=rule))
    world.post("n0", "one", "two", "three")
    world.bring_in("n1")
    world.run(for_ms=60_000)
    assert world.texts("n1") == texts and state_of(world, "n1").state == state


def test_an_invitation_gives_less_than_the_group():
    world = Cut()
    world.post("n0", "one", "two", "three")
    for name, rule in (("n1", "last:1"), ("n2", "none")):
        invitation = world.run_command("n0", CreateInvitation(world.id, 3600, 1, history=rule)).result.invitation
        world.run_command(name, AcceptInvitation(invitation, name))
        world.run(for_ms=60_000)
    assert (world.texts("n1"), world.texts("n2")) == (["three"], [])
    assert state_of(world, "n1").rules == ["all", "last:1"] and state_of(world, "n1").state == "withheld"
    assert state_of(world, "n2").state == "withheld"
    added = [load_event(row.record) for row in world.nodes["n0"].log if row.type == ADD]
    assert [add_of(event).history for event in added] == ["last:1", "none"]
    assert [member.history for member in world.nodes["n1"].agent.groups[world.id].view.members.values()].count("all")


def test_an_event_without_history_rule_has_no_field():
    world = Cut()
    world.bring_in("n1")
    [added] = [load_event(row.record) for row in world.nodes["n0"].log if row.type == ADD]
    assert "history" not in added.body


def test_an_invitation_with_an_unknown_rule_is_rejected():
    world = Cut()
    refused = world.run_command("n0", CreateInvitation(world.id, 3600, 1, history="tomorrow\x1b"))
    assert isinstance(refused, CommandFailed) and isinstance(refused.error, NoSuchHistory)
    assert "'tomorrow\\x1b'" in refused.error.sentence() and world.nodes["n0"].agent.invitations == {}


def test_lost_history_is_reported():
    world = Cut()
    world.post("n0", "one", "two")
    world.nodes["n0"].log = [row for row in world.nodes["n0"].log if row.type != POST]
    world.bring_in("n1")
    world.run(for_ms=200_000)
    found = state_of(world, "n1")
    assert found.state == "gone" and found.remaining > 0


def test_the_history_state_follows_from_the_remainder():
    """Cases that do not occur by themselves in a short time."""
    world = Cut()
    world.bring_in("n1")
    world.run(for_ms=20_000)
    group, author = world.nodes["n1"].agent.groups[world.id], world.did("n0")

    def at(first, rule="all", backfill=None, state="active"):
        view = replace(group.view, policy=replace(group.view.policy, history=rule))
        chains = {**group.log.chains, author: Chain(90, backfill=Backfill(first))}
        log, sync = replace(group.log, chains=chains), replace(group.sync, backfill=backfill)
        return history_start(replace(group, view=view, state=state, log=log, sync=sync)).state

    done = BackfillProgress(done=True, received=20)
    assert at(1, backfill=done) == "whole"
    assert at(9, backfill=done) == "gone"
    assert at(9, "last:20", backfill=done) == "withheld"
    assert at(9, "last:21", backfill=done) == "gone", "fewer have come than it may have"
    assert at(9, "since:5", backfill=done) == "withheld"
    assert at(NEWEST, backfill=done) == "whole", "nobody says that there is any more"
    assert at(NEWEST, "last:21", backfill=done) == "whole"
    assert at(NEWEST, "last:20", backfill=done) == "withheld"
    assert at(9, backfill=None) == at(9, backfill=BackfillProgress(received=5)) == "fetching"
    assert at(9, backfill=BackfillProgress(received=5), state="left") == "ended"
    assert at(9, "none", backfill=None) == "withheld"
    world.run_command("n1", LeaveGroup(world.id))
    world.run(for_ms=20_000)
    assert state_of(world, "n1").state == "whole", "what was fetched stays"
