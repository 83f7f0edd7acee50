"""Desks before cores that are in one group: who comes in, who goes, who may do what, and what faces see of it."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.agent.test_request_handlers import Counter
from tests.group.test_members import ADMINS, Ruled
from tests.group.test_membership import Book, did
from zerochat import rpc
from zerochat.agent.api.command_adapter import BadRequest, MoreThanTheGroup, OwnWords, command_of
from zerochat.agent.api.delivery_waits import Wait
from zerochat.agent.api.request_handlers import Desk, PutOut
from zerochat.agent.api.server import read_params
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import core_state
from zerochat.agent.views import members as roster
from zerochat.crypto.safety_words import WORDS
from zerochat.errors import UnknownGroup
from zerochat.group import notifications
from zerochat.group.inputs import CreateInvitation
from zerochat.group.joining.cancellation import NoJoin
from zerochat.group.joining.requests import NoSuchRequest
from zerochat.group.lookup import UnknownMember
from zerochat.group.membership import Policy
from zerochat.group.membership.leave import StillIn
from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import BadHistory


class Journal:
    def latest(self) -> int:
        return 0

    def announcements(self, group: str, spans: object) -> list[Row]:
        return []

    def topics(self, group: str, spans: object) -> list[Row]:
        return []


class Offices(Ruled):
    """A group whose members each have a desk before them; `call` is what a face does."""

    def __init__(self, members: int = 3, policy: Policy | None = None, keys: str = "pairwise-multi") -> None:
        self.desks: dict[str, Desk] = {}
        self.servers: dict[str, Counter] = {}
        self.number = 0
        super().__init__(members, policy, keys)
        for name in self.nodes:
            self.seat(name)

    def seat(self, name: str) -> None:
        self.servers[name] = Counter()
        desk: Any = Desk(self.servers[name], Journal(), lambda agent: None)  # type: ignore[arg-type, return-value]
        self.desks[name] = desk
        self.call(name, "subscribe")

    def _perform(self, node: Any, effect: Any) -> None:
        super()._perform(node, effect)
        notice = getattr(effect, "notice", None)
        if notice is not None and node.name in self.desks:
            self.desks[node.name].tell([notice], node.agent)

    def call(self, who: str, method: str, /, **params: object) -> Any:
        """The result, in its shape; a refusal is raised."""
        self.number += 1
        request = rpc.Request(method=method, id=self.number, params=params, jsonrpc="2.0")
        read_params(request)
        desk, server, node = self.desks[who], self.servers[who], self.nodes[who]
        ask = desk.take(1, request, node.agent)
        if ask is not None:
            answer: Any = self.ask(who, ask.command)
            desk.settle(replace(answer, ticket=ask.ticket), node.agent)
            self.settle()
        if self.number in server.refusals:
            raise server.refusals[self.number]
        return msgspec.json.decode(msgspec.json.encode(server.answers[self.number]), type=rpc.METHODS[method][1])

    def heard_news(self, name: str, method: str) -> list[Any]:
        return [item for _, told, item in self.servers[name].news if told == method]

    def member(self, who: str, whom: str) -> rpc.MemberInfo:
        members: list[rpc.MemberInfo] = self.call(who, "members", group="friends")
        return next(one for one in members if one.nick == whom)

    def info(self, who: str) -> rpc.GroupInfo:
        groups: list[rpc.GroupInfo] = self.call(who, "groups")
        return groups[0]

    def history(self, who: str) -> list[rpc.Event]:
        group, rows = self.group(who), self.nodes[who].log
        ordered = sorted(rows, key=lambda row: (row.lamport, row.author, row.id))
        return [
            core_state.event(
                group,
                Row(
                    n, row.group, row.id, row.author, row.seq, row.lamport, row.type, row.record, row.received, row.late
                ),
                replayed=True,
            )
            for n, row in enumerate(ordered, 1)
        ]


def test_a_group_keeps_the_rules_and_keys_that_it_was_made_with() -> None:
    world = Offices(1)
    made = world.call("n0", "new", group="crew", keys="pairwise-single", join="ask", roles="admins", agreement="strict")
    assert (made.keys, made.role) == ("pairwise-single", "owner")
    assert world.call("n0", "new", group="board", keys="sender-key").keys == "sender-key"
    assert made.policy == rpc.PolicyInfo(join="ask", remove="admins", quorum=0, roles="admins", agreement="strict")
    usual = world.call("n0", "new", group="usual")
    assert (usual.policy, usual.role, usual.removed_by) == (rpc.PolicyInfo(), "writer", None)
    count = len(world.nodes["n0"].agent.groups)
    asked: list[tuple[dict[str, Any], str]] = [
        ({"remove": "admins"}, "there are no admins"),
        ({"remove": "anyone", "quorum": 3}, "a quorum counts votes"),
        ({"join": "\x1b"}, "no way to get in called '.x1b', only invited, ask and open"),
        ({"keys": "psk"}, "no keys called 'psk', only pairwise-multi, pairwise-single, sender-key"),
    ]
    for params, why in asked:
        with pytest.raises((group_rules.BadRules, BadRequest), match=why):
            world.call("n0", "new", group="bad", **params)
    assert len(world.nodes["n0"].agent.groups) == count


def test_every_policy_that_is_settled_is_one_that_the_core_takes() -> None:
    for join in group_rules.JOIN_RULES:
        for remove in (None, *group_rules.REMOVE_RULES):
            for quorum in (None, 2, 64):
                for roles in group_rules.ROLE_RULES:
                    try:
                        rules = group_rules.settled(join, remove, quorum, roles)
                    except group_rules.BadRules:
                        continue
                    policy = Policy(**msgspec.to_builtins(rules))
                    assert not policy.fault and roster.policy_info(policy) == rules
    assert group_rules.settled(roles="flat") == roster.policy_info(Policy.default("flat"))
    assert group_rules.settled(roles="admins") == roster.policy_info(Policy.default("admins"))


def test_what_newcomers_get_is_for_the_group_to_say_and_for_an_invitation_to_narrow() -> None:
    world = Offices(3, Policy(history="last:50", keepers=2))
    policy = world.info("n2").policy
    assert (policy.history, policy.keepers) == ("last:50", 2)
    assert [world.member("n2", name).keeper for name in ("n0", "n1", "n2")] == [True, True, False]
    made = world.call("n0", "new", group="crew", history="since:5", keepers=1)
    assert (made.policy.history, made.policy.keepers, made.beginning.state) == ("since:5", 1, "whole")
    for params in ({"history": "7d"}, {"history": "last:0"}, {"keepers": 65}):
        with pytest.raises((group_rules.BadRules, BadHistory)):
            world.call("n0", "new", group="bad", **params)

    def asked(rule: str | None) -> str:
        params = rpc.InviteParams("friends", history=rule)
        command = command_of("invite", params, world.nodes["n1"].agent, 0)
        assert isinstance(command, CreateInvitation)
        return command.history

    assert asked(None) == "all"
    for rule in ("last:50", "last:2", "none", "since:9"):
        assert asked(rule) == rule
    for rule in ("all", "last:51"):
        with pytest.raises(MoreThanTheGroup, match="newcomers to friends get the last 50 messages"):
            asked(rule)
    with pytest.raises(BadHistory):
        asked("tomorrow")


def test_nobody_keeps_the_history_for_the_others_where_everybody_does() -> None:
    world = Offices(2)
    assert not any(one.keeper for one in world.call("n0", "members", group="friends"))


def test_two_members_put_a_third_one_out() -> None:
    world = Offices(4)
    assert world.member("n1", "n3").may == ["remove"] and world.member("n1", "n1").may == ["reader"]
    did = world.group("n3").me
    first = world.call("n1", "remove", group="friends", member="n3")
    assert first == rpc.VoteInfo(group=world.id, did=did, nick="n3", votes=1, needed=2, cast=1, mine=True)
    assert world.info("n1").votes == [first]
    assert world.info("n2").votes == [msgspec.structs.replace(first, mine=False)]
    second = world.call("n2", "remove", group="friends", member=did[:20])
    assert (second.votes, second.needed, second.out) == (2, 2, True)
    assert world.info("n1").votes == [] and world.info("n1").members == 3
    lines = [(event.type, event.body) for event in world.history("n0")[-3:]]
    assert lines == [
        ("removal_voted", {"did": did, "nick": "n3"}),
        ("removal_voted", {"did": did, "nick": "n3"}),
        ("member_removed", {"did": did, "nick": "n3"}),
    ]
    with pytest.raises(UnknownMember):
        world.call("n1", "remove", group="friends", member="n3")


def test_votes_are_shown_as_they_count() -> None:
    """Whom a voter has brought in unseen has no vote of its own, and a face does not say that it had."""
    book, group = Book(members="bcd"), Offices(2).group("n0")
    book.add("d", "e")
    for voter in "de":
        book.vote(voter, "a")
    group = replace(group, control=book.control, view=book.view, me=did("d"))
    (vote,) = roster.votes(group)
    assert (vote.did, vote.votes, vote.needed, vote.cast, vote.mine) == (did("a"), 1, 2, 2, True)
    assert group_rules.removal(vote, "a").startswith("1 of 2 votes (2 cast; some count as one); one more member")


def test_whoever_was_put_out_is_told_by_whom() -> None:
    world = Offices(3, Policy(remove="anyone", quorum=0))
    assert world.call("n1", "remove", group="friends", member="n2").out
    by = world.group("n1").me
    assert world.heard_news("n2", "removed") == [rpc.RemovedNews(world.id, by, "n1")]
    info = world.info("n2")
    assert info.state == "left" and info.removed_by == rpc.Author(by, "n1")
    assert group_rules.removers_of(info) == ["n1"]
    with pytest.raises(PutOut, match="n1 has put you out") as refused:
        world.call("n2", "send", group="friends", text="still here?")
    assert refused.value.exit_code == 8
    assert world.member("n0", "n1").may == ["remove"] and world.call("n2", "members", group="friends")[0].may == []


def test_whoever_was_voted_out_is_told_by_whom() -> None:
    world = Offices(4)
    world.call("n2", "remove", group="friends", member="n3")
    world.call("n0", "remove", group="friends", member="n3")
    info = world.info("n3")
    assert [one.nick for one in info.voters] == ["n0", "n2"] == group_rules.removers_of(info)
    assert world.heard_news("n3", "removed")[-1].voters == ["n0", "n2"]
    assert all(one.view_agrees is None for one in world.call("n3", "members", group="friends"))
    with pytest.raises(PutOut, match="n0 and n2 have voted you out"):
        world.call("n3", "send", group="friends", text="why?")
    assert world.info("n0").voters == []


def test_joins_under_way_are_a_part_of_the_status() -> None:
    world = Offices(3, Policy(join="ask"))
    status = rpc.Status(
        profile="p", nick="n", version="0", pid=1, uptime_s=0, pair="", queue="", closed=False, groups=[]
    )
    for desk in world.desks.values():
        desk.status = lambda agent: status
    asked = world.call("n0", "requests", group="friends")
    (join,) = world.call("n1", "status").joins
    assert (join.phase, join.name, join.group) == ("asking", "friends", world.id) and join.words == asked[0].words
    (ours,) = world.nodes["n1"].agent.joins.values()
    assert join.until == timestamp(ours.deadline) and ours.phase == "asking"
    assert world.call("n0", "status").joins == []
    world.call("n0", "answer", group="friends", who="n1", admit=True)
    world.call("n0", "answer", group="friends", who="n2", admit=False)
    assert world.call("n1", "status").joins == []
    (failed,) = world.call("n2", "status").joins
    assert failed.phase == "failed" and failed.text and not failed.words
    assert world.call("n0", "status").joins == []


def test_roles_and_what_they_allow() -> None:
    world = Offices(3, ADMINS)
    assert (world.info("n0").role, world.info("n1").role) == ("owner", "writer")
    assert world.member("n0", "n1").may == ["remove", "reader", "admin"]
    assert world.member("n1", "n2").may == [] and world.member("n1", "n0").may == []
    assert world.call("n0", "role", group="friends", role="admin", member="n1").role == "admin"
    assert world.member("n1", "n2").may == ["remove", "reader"]
    assert world.call("n1", "role", group="friends", role="reader", member="n2").role == "reader"
    assert world.info("n2").role == "reader"
    last = world.history("n2")[-1]
    assert (last.type, last.body) == (
        "role_changed",
        {"did": world.group("n2").me, "nick": "n2", "role": "reader"},
    )
    with pytest.raises(BadRequest, match="no role called 'owner' to give"):
        world.call("n0", "role", group="friends", role="owner", member="n1")


def test_a_new_name_and_the_one_before() -> None:
    world = Offices(2)
    assert world.call("n1", "rename", group="friends", name="bob").nick == "bob"
    world.call("n1", "rename", group="friends", name="robert")
    me = world.group("n1").me
    bodies = [event.body for event in world.history("n0") if event.type == "member_renamed"]
    assert bodies == [{"did": me, "nick": "bob", "was": "n1"}, {"did": me, "nick": "robert", "was": "bob"}]
    assert {event.author.nick for event in world.history("n0") if event.author.did == me} == {"robert"}
    world.call("n1", "send", group="friends", text="hello")
    names = [(event.type, event.then) for event in world.history("n0") if event.author.did == me]
    assert names == [("member_renamed", "n1"), ("member_renamed", "bob"), ("message", "")]
    (joined,) = [event.body for event in world.history("n0") if event.type == "member_joined"]
    assert joined["nick"] == "n1"
    world.call("n0", "remove", group="friends", member="robert")
    world.call("n0", "rename", group="friends", name="n1")
    gone = [event for event in world.history("n0") if event.type in ("removal_voted", "member_removed")]
    assert {(event.then, event.body["nick"]) for event in gone} == {("n0", "robert")}


def test_words_are_the_same_at_both_ends_and_the_mark_is_ones_own() -> None:
    world = Offices(3)
    mine = world.call("n0", "words", group="friends", member="n1")
    theirs = world.call("n1", "words", group="friends", member="n0", said=" ".join(mine.words).upper())
    assert mine.words == theirs.words and theirs.same is True and mine.same is None and len(mine.words) == WORDS
    assert (mine.nick, mine.trust) == ("n1", "unverified")
    assert world.call("n2", "words", group="friends", member="n0").words != mine.words
    # What was misheard or mistyped is no sign of an attack; eight real words that differ may be.
    for said, why in (
        ("-", "Eight words are needed; you gave none."),
        (" ".join(mine.words[:4]), "Eight words are needed; you gave 4."),
        (" ".join(["zzzz", *mine.words[1:]]), "zzzz is none of the words."),
        ("zzzz yyyy", "Eight words are needed; you gave 2. zzzz, yyyy are none of the words."),
    ):
        with pytest.raises(roster.NotTheWords, match=f"^{why} Ask to hear it once more.$") as strange:
            world.call("n0", "words", group="friends", member="n1", said=said)
        assert strange.value.exit_code == 2
    swapped = " ".join([mine.words[1], mine.words[0], *(word[:4] for word in mine.words[2:])])
    other = world.call("n0", "words", group="friends", member="n1", said=swapped)
    assert (other.same, other.differ, theirs.differ) == (False, [1, 2], [])
    assert group_rules.places(other.differ) == " at places 1 and 2" and group_rules.places([3]) == " at place 3"
    for name in ("n0", "n1", "n2"):
        everybody = world.call(name, "words", group="friends")
        assert (everybody.did, everybody.trust) == ("", None)
        assert everybody.words == world.call("n0", "words", group="friends").words
    with pytest.raises(OwnWords):
        world.call("n0", "words", group="friends", member="n0")

    assert world.call("n0", "verify", group="friends", member="n1").trust == "verified"
    did = world.group("n1").me
    assert world.heard_news("n0", "trust") == [rpc.TrustNews(world.id, did, "n1", "verified")]
    assert world.member("n0", "n1").verified and not world.member("n2", "n1").verified
    world.call("n1", "rename", group="friends", name="N1")
    assert {event.author.did for event in world.history("n0") if event.author.verified} == {did}
    # Whoever takes the name of somebody who was verified is shown for what it is.
    world.call("n1", "rename", group="friends", name="other")
    world.call("n2", "rename", group="friends", name="n1")
    assert (world.member("n0", "n1").trust, world.member("n0", "other").trust) == ("changed", "verified")
    assert world.call("n0", "verify", group="friends", member="other", verified=False).trust == "unverified"


def test_whoever_asks_is_let_in_by_a_member_who_sees_the_same_words() -> None:
    world = Offices(3, Policy(join="ask"))
    (hers, his) = world.call("n0", "requests", group="friends")
    assert (hers.nick, his.nick) == ("n1", "n2") and hers.role == "writer" and len(hers.words) == WORDS
    assert world.info("n0").requests == [hers, his] and hers.words != his.words
    (join,) = world.nodes["n1"].agent.joins.values()
    notice = notifications.JoinProgress(join.id, "asking", "Waiting…")
    world.desks["n1"].tell([notice], world.nodes["n1"].agent)
    assert world.heard_news("n1", "join")[-1].words == hers.words
    assert world.call("n0", "answer", group="friends", who="n1", admit=True).members == 2
    assert world.call("n0", "answer", group="friends", who=his.did, admit=False).requests == []
    states = [(one.nick, one.state) for one in world.heard_news("n0", "request")]
    assert states == [("n1", "admitted"), ("n2", "refused")]
    assert world.info("n1").state == "active" and not world.nodes["n2"].agent.groups
    with pytest.raises(NoSuchRequest):
        world.call("n0", "answer", group="friends", who="n2", admit=True)


def test_an_invitation_says_for_how_many_it_is_and_as_what() -> None:
    world = Offices(1)
    for name, rule in (("usual", "invited"), ("everybody", "open")):
        world.call("n0", "new", group=name, join=rule)
    made = world.call("n0", "invite", group="usual", uses=3, role="reader")
    assert (made.uses, made.role) == (3, "reader")
    assert world.call("n0", "invite", group="everybody", uses=3).uses == 0, "as many as come"
    with pytest.raises(BadRequest, match="only as reader or writer"):
        world.call("n0", "invite", group="friends", role="admin")


def test_news_of_members_are_told_to_those_who_subscribed() -> None:
    world = Offices(2)
    agent, (other,) = world.nodes["n0"].agent, world.group("n0").others
    told: list[notifications.Notice] = [
        notifications.JoinAsked(world.id, "did:key:z6MkNew", "new", "reader"),
        notifications.JoinAnswered(world.id, "did:key:z6MkNew", "new", False),
        notifications.Seating(world.id, other, 1, 2),
        notifications.Disagreement(world.id, other, "They differ."),
        notifications.Disagreement(world.id, "", "They differ."),
        notifications.Removed(world.id, ""),
    ]
    world.servers["n0"].news.clear()
    world.desks["n0"].tell(told, agent)
    new: dict[str, Any] = {"group": world.id, "member": "did:key:z6MkNew", "nick": "new"}
    assert [(method, item) for _, method, item in world.servers["n0"].news] == [
        ("request", rpc.RequestNews(**new, role="reader", state="asked")),
        ("request", rpc.RequestNews(**new, state="refused")),
        ("seating", rpc.SeatingNews(world.id, other, "n1", 1, 2)),
        ("disagreement", rpc.DisagreementNews(world.id, other, "n1", "They differ.")),
        ("disagreement", rpc.DisagreementNews(world.id, "", "", "They differ.")),
        ("removed", rpc.RemovedNews(world.id, "", "")),
    ]


def test_a_group_that_was_forgotten_is_gone_for_every_face() -> None:
    world = Offices(2)
    with pytest.raises(StillIn):
        world.call("n1", "forget", group="friends")
    world.call("n1", "leave", group="friends")
    world.run(for_ms=30_000)
    desk, node = world.desks["n1"], world.nodes["n1"]
    other = world.group("n1").others[0]
    row = Row(1, world.id, "x", other, 1, 1, "post", b"{}", 1, False)
    wait = rpc.Request(method="wait", id="w", params={}, jsonrpc="2.0")
    desk._waits.open.append(Wait(1, wait.id, world.id, row, -1, 1e12))
    world.call("n1", "forget", group="friends")
    assert world.call("n1", "groups") == [] and world.heard_news("n1", "view")[-1] == rpc.ViewNews(world.id)
    desk.tell([notifications.PeerDown(world.id, other), notifications.Removed(world.id, other)], node.agent)
    assert not world.heard_news("n1", "removed"), "news of it that were on their way are nobody's"
    desk.review(node.agent)
    assert "w" in world.servers["n1"].refusals and not desk._waits.open
    with pytest.raises(UnknownGroup):
        world.call("n1", "history", group="friends")


def test_a_join_is_given_up_at_a_desk() -> None:
    world = Offices(3, Policy(join="ask"))
    (ours,) = world.nodes["n1"].agent.joins.values()
    assert [one.nick for one in world.call("n0", "requests", group="friends")] == ["n1", "n2"]
    status = world.call("n1", "cancel", join=ours.id)
    since = timestamp(ours.begun)
    assert (status.join, status.phase, status.name, status.since) == (ours.id, "failed", "friends", since)
    assert world.heard_news("n1", "join")[-1].error == "JoinCancelled"
    with pytest.raises(NoJoin):
        world.call("n1", "cancel")
    assert [one.nick for one in world.call("n0", "requests", group="friends")] == ["n2"]
    assert world.heard_news("n0", "request")[-1].state == "refused"


def test_a_warning_is_dismissed_at_a_desk() -> None:
    world = Offices(2)
    node, (other,) = world.nodes["n0"], world.group("n0").others
    group = node.agent.groups[world.id]
    view = replace(group.view, forked={other: ("a", "b")})
    node.agent = replace(node.agent, groups={world.id: replace(group, view=view)})
    (warning,) = world.info("n0").disagreements
    assert (warning.member, warning.nick) == (other, "n1") and "two different histories" in warning.text
    assert world.call("n0", "dismiss", group="friends", member="n1").disagreements == []
    assert world.member("n0", "n1").forked, "it is so all the same"


def test_what_casts_doubt_on_a_member_is_shown() -> None:
    world = Offices(2)
    node, (other,) = world.nodes["n0"], world.group("n0").others
    group = node.agent.groups[world.id]
    view = replace(group.view, forked={other: ("a", "b")})
    doubted = replace(group, view=view, disputed=(other,), quarantine=(other,))
    node.agent = replace(node.agent, groups={world.id: doubted})
    found = world.member("n0", "n1")
    assert (found.forked, found.disputed, found.unconfirmed) == (True, True, True)
    assert world.info("n0").forked == [other]
