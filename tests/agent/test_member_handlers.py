"""Request handlers of members of one group: admission, removal, permissions, notifications."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.member_offices import Offices
from tests.support.membership_book import Book, did
from tests.support.ruled_world import ADMINS
from zerochat import rpc
from zerochat.agent.api.delivery_waits import Wait
from zerochat.agent.api.handlers.context import BadRequest, Context
from zerochat.agent.api.handlers.groups import MoreThanTheGroup, create_invitation
from zerochat.agent.api.handlers.members import OwnWords
from zerochat.agent.api.request_handlers import Removed
from zerochat.agent.api.server import Call
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import members as roster
from zerochat.crypto.safety_words import WORDS
from zerochat.errors import UnknownGroup
from zerochat.group import notifications
from zerochat.group.inputs import CreateInvitation, SendPost
from zerochat.group.joining.cancellation import NoSuchJoin
from zerochat.group.joining.requests import NoSuchRequest
from zerochat.group.lookup import UnknownMember
from zerochat.group.membership import Policy
from zerochat.group.membership.decisions import NoRight
from zerochat.group.membership.leave import StillMember
from zerochat.limits import MEMBERS_MAX
from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import BadHistory
from zerochat.rpc.common import timestamp


def test_a_group_keeps_the_rules_and_keys_that_it_was_made_with() -> None:
    world = Offices(1)
    made = world.call(
        "n0", "create_group", group="crew", keys="pairwise-single", join="ask", roles="admins", agreement="strict"
    )
    assert (made.keys, made.role) == ("pairwise-single", "owner")
    assert world.call("n0", "create_group", group="board", keys="sender-key").keys == "sender-key"
    assert made.policy == rpc.PolicyInfo(join="ask", remove="admins", quorum=0, roles="admins", agreement="strict")
    usual = world.call("n0", "create_group", group="usual")
    assert (usual.policy, usual.role, usual.removed_by) == (rpc.PolicyInfo(), "writer", None)
    count = len(world.nodes["n0"].agent.groups)
    asked: list[tuple[dict[str, Any], str]] = [
        ({"remove": "admins"}, "removal by `admins` requires"),
        ({"remove": "anyone", "quorum": 3}, "a quorum applies only to the removal rule"),
        ({"join": "\x1b"}, "unknown join rule '.*x1b'; choose invited, ask or open"),
        ({"keys": "psk"}, "unknown keys 'psk'; choose pairwise-multi, pairwise-single, sender-key"),
    ]
    for params, why in asked:
        with pytest.raises((group_rules.BadRules, BadRequest), match=why):
            world.call("n0", "create_group", group="bad", **params)
    assert len(world.nodes["n0"].agent.groups) == count


def test_every_valid_policy_is_accepted_by_the_core() -> None:
    for join in group_rules.JOIN_RULES:
        for remove in (None, *group_rules.REMOVE_RULES):
            for quorum in (None, 2, MEMBERS_MAX):
                for roles in group_rules.ROLE_RULES:
                    try:
                        rules = group_rules.completed_policy(join, remove, quorum, roles)
                    except group_rules.BadRules:
                        continue
                    policy = Policy(**msgspec.to_builtins(rules))
                    assert not policy.error and roster.policy_info(policy) == rules
    assert group_rules.completed_policy(roles="flat") == roster.policy_info(Policy.default("flat"))
    assert group_rules.completed_policy(roles="admins") == roster.policy_info(Policy.default("admins"))


def test_an_invitation_may_narrow_the_history_rule_of_its_group() -> None:
    world = Offices(3, Policy(history="last:50", keepers=2))
    policy = world.info("n2").policy
    assert (policy.history, policy.keepers) == ("last:50", 2)
    assert [world.member("n2", name).keeps_history for name in ("n0", "n1", "n2")] == [True, True, False]
    made = world.call("n0", "create_group", group="crew", history="since:5", keepers=1)
    assert (made.policy.history, made.policy.keepers, made.history_start.state) == ("since:5", 1, "whole")
    for params in ({"history": "7d"}, {"history": "last:0"}, {"keepers": MEMBERS_MAX + 1}):
        with pytest.raises((group_rules.BadRules, BadHistory)):
            world.call("n0", "create_group", group="bad", **params)

    def asked(rule: str | None) -> str:
        params = rpc.CreateInvitationParams("friends", history=rule)
        call = Call(1, 1, "create_invitation", params)
        command = create_invitation(Context(world.handlers["n1"], call, world.nodes["n1"].agent, params))
        assert isinstance(command, CreateInvitation)
        return command.history

    assert asked(None) == "all"
    for rule in ("last:50", "last:2", "none", "since:9"):
        assert asked(rule) == rule
    for rule in ("all", "last:51"):
        with pytest.raises(MoreThanTheGroup, match="new members of friends get the last 50 messages"):
            asked(rule)
    with pytest.raises(BadHistory):
        asked("tomorrow")


def test_no_history_keeper_is_shown_where_all_members_keep_it() -> None:
    world = Offices(2)
    assert not any(one.keeps_history for one in world.call("n0", "list_members", group="friends"))


def test_two_members_remove_a_third() -> None:
    world = Offices(4)
    assert world.member("n1", "n3").allowed_actions == ["remove"] and world.member("n1", "n1").allowed_actions == [
        "reader"
    ]
    did = world.group("n3").me
    first = world.call("n1", "remove_member", group="friends", member="n3")
    assert first == rpc.VoteInfo(group=world.id, did=did, nick="n3", votes=1, needed=2, cast=1, voted=True)
    assert world.info("n1").votes == [first]
    assert world.info("n2").votes == [msgspec.structs.replace(first, voted=False)]
    second = world.call("n2", "remove_member", group="friends", member=did[:20])
    assert (second.votes, second.needed, second.removed) == (2, 2, True)
    assert world.info("n1").votes == [] and world.info("n1").members == 3
    lines = [(event.type, event.body) for event in world.history("n0")[-3:]]
    assert lines == [
        ("removal_voted", {"did": did, "nick": "n3"}),
        ("removal_voted", {"did": did, "nick": "n3"}),
        ("member_removed", {"did": did, "nick": "n3"}),
    ]
    with pytest.raises(UnknownMember):
        world.call("n1", "remove_member", group="friends", member="n3")


def test_votes_are_shown_as_they_count() -> None:
    """Whom a voter has brought in unseen has no vote of its own, and a face does not say that it had."""
    book, group = Book(members="bcd"), Offices(2).group("n0")
    book.add("d", "e")
    for voter in "de":
        book.vote(voter, "a")
    group = replace(group, control=book.control, view=book.view, me=did("d"))
    (vote,) = roster.votes(group)
    assert (vote.did, vote.votes, vote.needed, vote.cast, vote.voted) == (did("a"), 1, 2, 2, True)
    assert group_rules.removal_state(vote, "a").startswith(
        "1 of 2 votes (2 cast; some count only once); one more vote needed"
    )


def test_a_removed_member_learns_its_remover() -> None:
    world = Offices(3, Policy(remove="anyone", quorum=0))
    assert world.call("n1", "remove_member", group="friends", member="n2").removed
    by = world.group("n1").me
    assert world.heard_news("n2", "removed") == [rpc.RemovedNotification(world.id, by, "n1")]
    info = world.info("n2")
    assert info.state == "left" and info.removed_by == rpc.Author(by, "n1")
    assert group_rules.removers_of(info) == ["n1"]
    with pytest.raises(Removed, match="n1 removed you") as refused:
        world.call("n2", "send_message", group="friends", text="still here?")
    assert refused.value.exit_code == 8
    assert (
        world.member("n0", "n1").allowed_actions == ["remove"]
        and world.call("n2", "list_members", group="friends")[0].allowed_actions == []
    )


def test_a_member_removed_by_vote_learns_the_voters() -> None:
    world = Offices(4)
    world.call("n2", "remove_member", group="friends", member="n3")
    world.call("n0", "remove_member", group="friends", member="n3")
    info = world.info("n3")
    assert [one.nick for one in info.voters] == ["n0", "n2"] == group_rules.removers_of(info)
    assert world.heard_news("n3", "removed")[-1].voters == ["n0", "n2"]
    assert all(one.view_matches is None for one in world.call("n3", "list_members", group="friends"))
    with pytest.raises(Removed, match="n0 and n2 voted to remove you"):
        world.call("n3", "send_message", group="friends", text="why?")
    assert world.info("n0").voters == []


def test_joins_under_way_are_a_part_of_the_status() -> None:
    world = Offices(3, Policy(join="ask"))
    status = rpc.Status(
        profile="p", nick="n", version="0", pid=1, uptime_s=0, pair="", queue="", closed=False, groups=[]
    )
    for handlers in world.handlers.values():
        handlers.status = lambda agent: status
    asked = world.call("n0", "list_join_requests", group="friends")
    (join,) = world.call("n1", "get_status").joins
    assert (join.phase, join.name, join.group) == ("asking", "friends", world.id) and join.words == asked[0].words
    (ours,) = world.nodes["n1"].agent.joins.values()
    assert join.expires_at == timestamp(ours.deadline) and ours.state == "pending"
    assert world.call("n0", "get_status").joins == []
    world.call("n0", "answer_join_request", group="friends", member="n1", admit=True)
    world.call("n0", "answer_join_request", group="friends", member="n2", admit=False)
    assert world.call("n1", "get_status").joins == []
    (failed,) = world.call("n2", "get_status").joins
    assert failed.phase == "failed" and failed.text and not failed.words
    assert world.call("n0", "get_status").joins == []


def test_roles_and_their_permissions() -> None:
    world = Offices(3, ADMINS)
    assert (world.info("n0").role, world.info("n1").role) == ("owner", "writer")
    assert world.member("n0", "n1").allowed_actions == ["remove", "reader", "admin", "owner"]
    assert world.member("n1", "n2").allowed_actions == [] and world.member("n1", "n0").allowed_actions == []
    assert world.call("n0", "set_role", group="friends", role="admin", member="n1").role == "admin"
    assert world.member("n1", "n2").allowed_actions == ["remove", "reader"]
    assert world.call("n1", "set_role", group="friends", role="reader", member="n2").role == "reader"
    assert world.info("n2").role == "reader"
    last = world.history("n2")[-1]
    assert (last.type, last.body) == (
        "role_changed",
        {"did": world.group("n2").me, "nick": "n2", "role": "reader"},
    )
    with pytest.raises(BadRequest, match="unknown role 'king'"):
        world.call("n0", "set_role", group="friends", role="king", member="n1")
    with pytest.raises(NoRight, match="only the owner can hand over"):
        world.call("n1", "set_role", group="friends", role="owner", member="n2")
    assert world.call("n0", "set_role", group="friends", role="owner", member="n1").role == "owner"
    assert (world.info("n0").role, world.info("n1").role) == ("admin", "owner")
    assert world.history("n2")[-1].body["role"] == "owner"


def test_a_changed_name_and_the_previous_one() -> None:
    world = Offices(2)
    assert world.call("n1", "set_display_name", group="friends", name="bob").nick == "bob"
    world.call("n1", "set_display_name", group="friends", name="robert")
    me = world.group("n1").me
    bodies = [event.body for event in world.history("n0") if event.type == "member_renamed"]
    assert bodies == [{"did": me, "nick": "bob", "was": "n1"}, {"did": me, "nick": "robert", "was": "bob"}]
    assert {event.author.nick for event in world.history("n0") if event.author.did == me} == {"robert"}
    world.call("n1", "send_message", group="friends", text="hello")
    names = [(event.type, event.author_nick_then) for event in world.history("n0") if event.author.did == me]
    assert names == [("member_renamed", "n1"), ("member_renamed", "bob"), ("message", "")]
    (joined,) = [event.body for event in world.history("n0") if event.type == "member_joined"]
    assert joined["nick"] == "n1"
    world.call("n0", "remove_member", group="friends", member="robert")
    world.call("n0", "set_display_name", group="friends", name="n1")
    gone = [event for event in world.history("n0") if event.type in ("removal_voted", "member_removed")]
    assert {(event.author_nick_then, event.body["nick"]) for event in gone} == {("n0", "robert")}


def test_safety_words_match_at_both_ends_and_the_mark_is_local() -> None:
    world = Offices(3)
    mine = world.call("n0", "get_safety_words", group="friends", member="n1")
    theirs = world.call("n1", "get_safety_words", group="friends", member="n0", entered=" ".join(mine.words).upper())
    assert mine.words == theirs.words and theirs.match is True and mine.match is None and len(mine.words) == WORDS
    assert (mine.nick, mine.trust) == ("n1", "unverified")
    assert world.call("n2", "get_safety_words", group="friends", member="n0").words != mine.words
    # What was misheard or mistyped is no sign of an attack; eight real words that differ may be.
    for said, why in (
        ("-", "Eight words are needed; you gave none."),
        (" ".join(mine.words[:4]), "Eight words are needed; you gave 4."),
        (" ".join(["zzzz", *mine.words[1:]]), "zzzz is not in the word list."),
        ("zzzz yyyy", "Eight words are needed; you gave 2. zzzz, yyyy are not in the word list."),
    ):
        with pytest.raises(roster.NotTheWords, match=f"^{why} Compare them again.$") as strange:
            world.call("n0", "get_safety_words", group="friends", member="n1", entered=said)
        assert strange.value.exit_code == 2
    swapped = " ".join([mine.words[1], mine.words[0], *(word[:4] for word in mine.words[2:])])
    other = world.call("n0", "get_safety_words", group="friends", member="n1", entered=swapped)
    assert (other.match, other.mismatches, theirs.mismatches) == (False, [1, 2], [])
    assert (
        group_rules.positions_text(other.mismatches) == " at positions 1 and 2"
        and group_rules.positions_text([3]) == " at position 3"
    )
    for name in ("n0", "n1", "n2"):
        everybody = world.call(name, "get_safety_words", group="friends")
        assert (everybody.did, everybody.trust) == ("", None)
        assert everybody.words == world.call("n0", "get_safety_words", group="friends").words
    with pytest.raises(OwnWords):
        world.call("n0", "get_safety_words", group="friends", member="n0")

    assert world.call("n0", "verify_member", group="friends", member="n1").trust == "verified"
    did = world.group("n1").me
    assert world.heard_news("n0", "trust_changed") == [rpc.TrustNotification(world.id, did, "n1", "verified")]
    assert world.member("n0", "n1").verified and not world.member("n2", "n1").verified
    world.call("n1", "set_display_name", group="friends", name="N1")
    assert {event.author.did for event in world.history("n0") if event.author.verified} == {did}
    # Whoever takes the name of somebody who was verified is shown for what it is.
    world.call("n1", "set_display_name", group="friends", name="other")
    world.call("n2", "set_display_name", group="friends", name="n1")
    assert (world.member("n0", "n1").trust, world.member("n0", "other").trust) == ("changed", "verified")
    assert world.call("n0", "verify_member", group="friends", member="other", verified=False).trust == "unverified"


def test_an_ignored_member_is_marked() -> None:
    world = Offices(3)
    world.says("n1", SendPost("friends", "hello"))
    assert world.call("n0", "ignore_member", group="friends", member="n1").ignored
    did = world.group("n1").me
    assert world.heard_news("n0", "ignored_changed") == [rpc.IgnoredNotification(world.id, did, "n1", True)]
    assert {event.type for event in world.history("n0") if event.ignored} == {"message"}, "joining is not hidden"
    assert not any(event.ignored for event in world.history("n2"))
    assert not world.call("n0", "ignore_member", group="friends", member="n1", ignored=False).ignored
    assert not any(event.ignored for event in world.history("n0"))


def test_a_former_member_can_be_ignored() -> None:
    world = Offices(3)
    world.says("n1", SendPost("friends", "hello"))
    did = world.group("n1").me
    world.call("n1", "leave_group", group="friends")
    gone = rpc.IgnoredMember(did, "n1", True, former=True)
    assert world.call("n0", "ignore_member", group="friends", member="n1") == gone
    assert world.heard_news("n0", "ignored_changed") == [rpc.IgnoredNotification(world.id, did, "n1", True)]
    assert world.call("n0", "list_ignored", group="friends") == [gone]
    assert [event.type for event in world.history("n0") if event.ignored] == ["message"]
    assert not world.call("n0", "ignore_member", group="friends", member=did, ignored=False).ignored
    assert world.call("n0", "list_ignored", group="friends") == []
    with pytest.raises(UnknownMember):
        world.call("n0", "ignore_member", group="friends", member="nemo")


def test_a_join_request_is_approved_by_matching_safety_words() -> None:
    world = Offices(3, Policy(join="ask"))
    (hers, his) = world.call("n0", "list_join_requests", group="friends")
    assert (hers.nick, his.nick) == ("n1", "n2") and hers.role == "writer" and len(hers.words) == WORDS
    assert world.info("n0").requests == [hers, his] and hers.words != his.words
    (join,) = world.nodes["n1"].agent.joins.values()
    notice = notifications.JoinProgress(join.id, "asking", "Waiting…")
    world.handlers["n1"].notify([notice], world.nodes["n1"].agent)
    assert world.heard_news("n1", "join_changed")[-1].words == hers.words
    assert world.call("n0", "answer_join_request", group="friends", member="n1", admit=True).members == 2
    assert world.call("n0", "answer_join_request", group="friends", member=his.did, admit=False).requests == []
    states = [(one.nick, one.state) for one in world.heard_news("n0", "join_request")]
    assert states == [("n1", "admitted"), ("n2", "refused")]
    assert world.info("n1").state == "active" and not world.nodes["n2"].agent.groups
    with pytest.raises(NoSuchRequest):
        world.call("n0", "answer_join_request", group="friends", member="n2", admit=True)


def test_an_invitation_shows_its_uses_and_role() -> None:
    world = Offices(1)
    for name, rule in (("usual", "invited"), ("everybody", "open")):
        world.call("n0", "create_group", group=name, join=rule)
    made = world.call("n0", "create_invitation", group="usual", uses=3, role="reader")
    assert (made.uses, made.role) == (3, "reader")
    assert world.call("n0", "create_invitation", group="usual").uses == 1
    assert world.call("n0", "create_invitation", group="everybody").uses == 0, "no limit"
    assert world.call("n0", "create_invitation", group="everybody", uses=3).uses == 3
    with pytest.raises(BadRequest, match="at least one use"):
        world.call("n0", "create_invitation", group="everybody", uses=0)
    with pytest.raises(BadRequest, match="only as reader or writer"):
        world.call("n0", "create_invitation", group="friends", role="admin")


def test_member_notifications_reach_the_subscribers() -> None:
    world = Offices(2)
    agent, (other,) = world.nodes["n0"].agent, world.group("n0").others
    told: list[notifications.Notification] = [
        notifications.JoinRequested(world.id, "did:key:z6MkNew", "new", "reader"),
        notifications.JoinRequestAnswered(world.id, "did:key:z6MkNew", "new", False),
        notifications.MemberConnections(world.id, other, 1, 2),
        notifications.ViewDisagreement(world.id, other, "They differ."),
        notifications.ViewDisagreement(world.id, "", "They differ."),
        notifications.RemovedFromGroup(world.id, ""),
    ]
    world.servers["n0"].news.clear()
    world.handlers["n0"].notify(told, agent)
    new: dict[str, Any] = {"group": world.id, "member": "did:key:z6MkNew", "nick": "new"}
    assert [(method, item) for _, method, item in world.servers["n0"].news] == [
        ("join_request", rpc.JoinRequestNotification(**new, role="reader", state="asked")),
        ("join_request", rpc.JoinRequestNotification(**new, state="refused")),
        ("member_connections", rpc.MemberConnectionsNotification(world.id, other, "n1", 1, 2)),
        ("warning", rpc.WarningNotification(world.id, other, "n1", "They differ.")),
        ("warning", rpc.WarningNotification(world.id, "", "", "They differ.")),
        ("removed", rpc.RemovedNotification(world.id, "", "")),
    ]


def test_a_forgotten_group_is_gone_for_every_client() -> None:
    world = Offices(2)
    with pytest.raises(StillMember):
        world.call("n1", "forget_group", group="friends")
    world.call("n1", "leave_group", group="friends")
    world.run(for_ms=30_000)
    handlers, node = world.handlers["n1"], world.nodes["n1"]
    other = world.group("n1").others[0]
    row = Row(1, world.id, "x", other, 1, 1, "post", b"{}", 1, False)
    wait = Call(1, "w", "wait_for_delivery", rpc.WaitParams("friends", "w"))
    handlers.waits.open.append(Wait(wait, world.id, row, -1, 1e12))
    world.call("n1", "forget_group", group="friends")
    assert world.call("n1", "list_groups") == [] and world.heard_news("n1", "view_changed")[-1] == rpc.ViewNotification(
        world.id
    )
    handlers.notify(
        [notifications.PeerDown(world.id, other), notifications.RemovedFromGroup(world.id, other)], node.agent
    )
    assert not world.heard_news("n1", "removed"), "news of it that were on their way are nobody's"
    handlers.review(node.agent)
    assert "w" in world.servers["n1"].refusals and not handlers.waits.open
    with pytest.raises(UnknownGroup):
        world.call("n1", "get_history", group="friends")


def test_a_join_is_cancelled_by_request() -> None:
    world = Offices(3, Policy(join="ask"))
    (ours,) = world.nodes["n1"].agent.joins.values()
    assert [one.nick for one in world.call("n0", "list_join_requests", group="friends")] == ["n1", "n2"]
    status = world.call("n1", "cancel_join", join=ours.id)
    since = timestamp(ours.begun_at)
    assert (status.join, status.phase, status.name, status.started_at) == (ours.id, "failed", "friends", since)
    assert world.heard_news("n1", "join_changed")[-1].error == "JoinCancelled"
    with pytest.raises(NoSuchJoin):
        world.call("n1", "cancel_join")
    assert [one.nick for one in world.call("n0", "list_join_requests", group="friends")] == ["n2"]
    assert world.heard_news("n0", "join_request")[-1].state == "refused"


def test_a_warning_is_dismissed_by_request() -> None:
    world = Offices(2)
    node, (other,) = world.nodes["n0"], world.group("n0").others
    group = node.agent.groups[world.id]
    view = replace(group.view, forked={other: ("a", "b")})
    node.agent = replace(node.agent, groups={world.id: replace(group, view=view)})
    (warning,) = world.info("n0").warnings
    assert (warning.member, warning.nick) == (other, "n1") and "two different histories" in warning.text
    assert world.call("n0", "dismiss_warnings", group="friends", member="n1").warnings == []
    assert world.member("n0", "n1").forked, "it is so all the same"


def test_warnings_about_a_member_are_shown() -> None:
    world = Offices(2)
    node, (other,) = world.nodes["n0"], world.group("n0").others
    group = node.agent.groups[world.id]
    view = replace(group.view, forked={other: ("a", "b")})
    doubted = replace(group, view=view, trust=replace(group.trust, dissenting=(other,), quarantine=(other,)))
    node.agent = replace(node.agent, groups={world.id: doubted})
    found = world.member("n0", "n1")
    assert (found.forked, found.disputed, found.unconfirmed) == (True, True, True)
    assert world.info("n0").forked == [other]
