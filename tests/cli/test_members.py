"""Verbs for the rules and members of a group: against a fake agent, and once against real ones."""

import json
import re
import shlex
import time

import pytest
from msgspec.structs import replace

from tests.support import cli_harness, cli_members
from tests.support.cli_harness import ALICE, BOB, CAROL, HIKERS, event, follow, joining, of
from tests.support.cli_members import CREW, DAVE, PEOPLE, WORDS, until
from zerochat.agent.views.members import NotTheWords
from zerochat.errors import GroupExists
from zerochat.group.key_modes import MODES, OFFERED
from zerochat.group.lookup import UnknownPeer
from zerochat.limits import MEMBERS_MAX
from zerochat.presentation import group_kinds, group_rules, keep_rules
from zerochat.rpc import (
    CONTRADICTION,
    AnnouncedCommand,
    AnswerJoinRequestParams,
    Author,
    CreateGroupParams,
    CreateInvitationParams,
    GroupInfo,
    History,
    HistoryStart,
    IgnoredMember,
    JoinGroupParams,
    JoinRequestNotification,
    JoinStatus,
    MemberInfo,
    NoParams,
    PolicyInfo,
    RemovedNotification,
    RemoveMemberParams,
    SafetyWords,
    SafetyWordsParams,
    SetDisplayNameParams,
    SetRoleParams,
    VerifyMemberParams,
    VoteInfo,
    WarningNotification,
)

agent, alone, home, run = cli_harness.agent, cli_harness.alone, cli_harness.home, cli_harness.run
crew, two = cli_members.crew, cli_members.two


def test_a_member_without_a_mediator_is_explained_to_a_hidden_profile(run, agent) -> None:
    alone = MemberInfo(did=BOB, nick="bob\x1b", connection="unreachable", joined_at="x", no_mediator=True)
    agent(list_members=lambda _: [alone, replace(alone, did=CAROL, nick="carol", no_mediator=False)])
    code, out, err = run("members hikers")
    assert code == 0 and out.count("unreachable") == 2
    assert err == (
        "Unreachable: bob␛; no mediator, and this profile never connects directly (network.hidden = always).\n"
    )


# --- rules ----------------------------------------------------------------------------------------------------------


def test_the_rules_of_a_group_in_plain_words(run, crew) -> None:
    code, out, _ = run("info hikers")
    assert code == 0
    rows = {line[:18].strip(): line[18:].strip() for line in out.partition("\n\n")[0].splitlines()}
    assert rows == {
        "group": "hikers (GROUPID)",
        "you": "alice, owner",
        "members": "3; 1/2 connected",
        "joining": "anyone with an invitation can ask to join; the inviter decides",
        "removal": "three members together can remove a member",
        "posting": "the owner appoints admins; they decide who can post",
        "member lists": "conflicting member lists cause a warning for new members",
        "history": "new members receive all earlier messages that a member still has",
        "retention": "messages do not disappear",
        "kind": "classic-multi",
        "gives": group_kinds.BY_NAME["classic-multi"].gives,
        "gives up": group_kinds.BY_NAME["classic-multi"].gives_up,
        "keys": "pairwise-multi: pairwise keys; one envelope per member",
        "path": "mesh: every member connects to every other",
        "accountability": "acks: you see who has received your messages",
        "envelope": "didcomm/v2",
        "owner": "alice",
        "admin": "Bob",
        "reader": "carol␛",
        "verified": "Bob",
        "CHANGED identity": "carol␛",
        "vote to remove": "carol␛: 1 of 2 votes, including yours",
        "join request": "dave⏎",
    }
    assert (
        "recipients know the author but cannot prove it" in out
        and "keep the messages they have received" in out
        and "network" not in out
    )
    assert json.loads(run("info GROU --format jsonl")[1])["policy"]["quorum"] == 3
    single = replace(CREW, keys="pairwise-single", removed_by=Author(BOB, "Bob"), state="left")
    crew.answers["list_groups"] = lambda _: [single]
    code, out, err = run("info hikers")
    assert code == 0 and "network observer" in out and "Bob removed you" in err
    assert run("info moon") == (
        1,
        "",
        "zerochat: Unknown group 'moon'. `zerochat info` lists the groups of this profile.\n",
    )
    code, out, _ = run("info")
    assert code == 0 and out.splitlines()[0].split()[:2] == ["GROUP", "STATE"] and "hikers" in out.splitlines()[1]
    crew.answers["list_groups"] = lambda _: []
    assert run("info")[:2] == (0, "") and "There are no groups yet." in run("info")[2]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--removal admins", "removal by `admins` requires the roles `admins`"),
        ("--removal anyone --quorum 2", "a quorum applies only to"),
        ("--removal admins --roles admins --quorum 2", "a quorum applies only to"),
        ("--quorum 1", "use the removal rule `anyone`"),
        (f"--quorum {MEMBERS_MAX + 1}", f"must be 2 to {MEMBERS_MAX}"),
    ],
)
def test_conflicting_rules_are_refused_before_any_request(run, crew, line, why) -> None:
    code, out, err = run(f"new hikers {line}")
    assert (code, out) == (2, "") and why in err and err.count("\n") == 1
    assert crew.asked == []


def test_a_group_is_made_with_the_rules_that_were_chosen(run, crew) -> None:
    for line in (
        "new g --roles admins",
        "new g --roles admins --quorum 3 --join ask",
        "new g --keys pairwise-single --removal anyone --agreement strict --join open --envelope didcomm/v1",
    ):
        assert run(line)[0] == 0
    assert of(crew, "create_group") == [
        CreateGroupParams("g", remove="admins", quorum=0, roles="admins"),
        CreateGroupParams("g", remove="quorum", quorum=3, roles="admins", join="ask"),
        CreateGroupParams("g", "didcomm/v1", "pairwise-single", "open", "anyone", 0, "flat", "strict"),
    ]


def test_a_kind_of_group_is_a_key_mode(run, crew) -> None:
    for line in ("new g --kind signed", "new g --kind classic-single", "new g --keys sender-key --kind signed"):
        assert run(line)[0] == 0
    assert [params.keys for params in of(crew, "create_group")] == ["sender-key", "pairwise-single", "sender-key"]
    assert run("new g --kind accountable")[0] == 0
    made = of(crew, "create_group")
    assert [(one.keys, one.accountability) for one in made[-1:]] == [("sender-key", "tlog")]
    assert {(one.path, one.accountability) for one in made[:-1]} == {("mesh", "acks")}
    assert run("new g --kind large")[0] == run("new g --kind large --keys dcgka")[0] == 0
    assert {(one.keys, one.path) for one in of(crew, "create_group")[4:]} == {("dcgka", "ring")}
    assert run("new g --keys dcgka")[0] == 0
    assert of(crew, "create_group")[-1].path == "mesh", "the first kind of these keys"
    code, _, err = run("new g --kind signed --keys pairwise-multi")
    assert code == 2 and "has the keys `sender-key`, not `pairwise-multi`" in err
    assert len(of(crew, "create_group")) == 7, "what is refused is not asked for"
    assert set(group_kinds.KEYS) == set(OFFERED)
    assert {keys for keys, mode in MODES.items() if mode.signs or mode.signs_events} == set(group_kinds.SIGNING_KEYS)


@pytest.mark.parametrize(("keys", "said"), [("pairwise-multi", "not signed"), ("sender-key", "you can never deny it")])
def test_the_keys_of_a_group_are_described_correctly(run, agent, keys, said) -> None:
    info = replace(HIKERS, keys=keys)
    agent(list_groups=lambda _: [info], list_members=lambda _: [])
    shown = run("info hikers")[1]
    assert said in shown and f"{keys}: {group_kinds.meanings(info)[0]}" in shown
    assert ("with signatures" in shown) == (keys == "sender-key")


@pytest.mark.parametrize("kind", group_kinds.KINDS, ids=lambda kind: kind.name)
def test_a_group_says_what_its_kind_gives_and_gives_up(run, agent, kind) -> None:
    assert "`" not in kind.sentences, "they are shown without the table of kinds"
    info = replace(HIKERS, keys=kind.keys, path=kind.path, accountability=kind.accountability)
    agent(list_groups=lambda _: [info], list_members=lambda _: [])
    shown = run("info hikers")[1]
    assert all(f" {text}\n" in shown for text in (kind.name, kind.gives, kind.gives_up))
    assert all(meaning in shown for meaning in group_kinds.meanings(info))
    assert "unknown" not in shown and kind.sentences in " ".join(run("new --help")[1].split())


def test_a_group_of_an_unknown_kind_is_shown_without_its_sentences(run, agent) -> None:
    info = replace(HIKERS, keys="telepathy")
    agent(list_groups=lambda _: [info], list_members=lambda _: [])
    shown = run("info hikers")[1]
    assert "telepathy: unknown to this version" in shown and "\nkind" not in shown
    assert group_kinds.short_texts(info)[0] == "telepathy"


@pytest.mark.parametrize(
    ("given", "keep_ms", "said"),
    [
        ("12h", 43_200_000, "12 hours"),
        ("1d", 86_400_000, "1 day"),
        ("30d", 30 * 86_400_000, "30 days"),
        ("2w", 14 * 86_400_000, "2 weeks"),
        ("35d", 35 * 86_400_000, "35 days"),
        ("forever", 0, "forever"),
    ],
)
def test_a_retention_rule_is_set_when_a_group_is_created(run, crew, given, keep_ms, said) -> None:
    assert run(f"new g --keep {given}")[0] == 0
    assert of(crew, "create_group")[-1].keep == keep_ms and keep_rules.span_text(keep_ms) == said
    sentence = group_rules.policy_sentences(PolicyInfo(keep=keep_ms))[5]
    assert (said in sentence and "others may keep copies" in sentence) == (keep_ms > 0)


@pytest.mark.parametrize("given", ["5", "0d", "30", "-1d", "11y", "99999d", "1m", "\u0663d"])
def test_an_invalid_retention_rule_is_refused(run, crew, given) -> None:
    code, _, err = run(["new", "g", "--keep", given])
    assert code == 2 and "Invalid retention" in err and not of(crew, "create_group")
    assert "1 hour to 3,650 days" in " ".join(err.split())


def test_an_accountable_group_keeps_its_messages(run, crew) -> None:
    code, _, err = run("new g --kind accountable --keep 30d")
    assert code == 2 and "evidence" in err and not of(crew, "create_group")


def test_every_rule_has_its_words() -> None:
    for join in group_rules.JOIN_RULES:
        for remove, quorum in (("anyone", None), ("quorum", 12), ("admins", None)):
            rules = group_rules.completed_policy(join, remove, quorum, "admins", "strict")
            said = group_rules.policy_sentences(rules)
            assert len(said) == 6 and not {join, remove} & set(said) and all(" " in one for one in said)
    assert "12 members" in group_rules.policy_sentences(group_rules.completed_policy(quorum=12))[1]
    for kind in ("join", "remove", "roles", "agreement"):
        with pytest.raises(group_rules.BadRules, match=r"unknown \w+ rule 'x.x1b'; choose"):
            group_rules.completed_policy(**{"join": "open", kind: "x\x1b"})  # type: ignore[arg-type]


def test_history_rules_are_set_and_shown(run, crew) -> None:
    for line in ("new g --history none", "new g --history 50 --keepers 3", "new g --history since:1782864000000"):
        assert run(line)[0] == 0
    assert [(asked.history, asked.keepers) for asked in of(crew, "create_group")] == [
        ("none", 0),
        ("last:50", 3),
        ("since:1782864000000", 0),
    ]
    before = time.time()
    assert run("new g --history since:2w")[0] == 0
    ago = before - int(of(crew, "create_group")[-1].history.removeprefix("since:")) / 1000
    assert 13 * 86_400 < ago < 15 * 86_400
    for rule in ("tomorrow", "last:0", "since:soon", "-1"):
        code, out, err = run(f"new g --history={rule}")
        assert (code, out) == (2, "") and "Invalid history rule" in err
    assert run(f"new g --keepers {MEMBERS_MAX + 1}")[0] == 2 and len(of(crew, "create_group")) == 4

    code, out, _ = run("invite hikers --history last:2")
    assert code == 0 and re.search(r"^history +the last 2 messages before they joined$", out, re.MULTILINE)
    assert "history" not in run("invite hikers")[1]
    assert [asked.history for asked in of(crew, "create_invitation")] == ["last:2", None]

    crew.answers["list_members"] = lambda _: [PEOPLE[0], replace(PEOPLE[1], keeps_history=True), PEOPLE[2]]
    begun = HistoryStart(state="withheld", rules=["last:50", "all"], joined=7, received=60, remaining=9)
    told = replace(CREW, policy=replace(CREW.policy, history="last:50", keepers=1), history_start=begun)
    crew.answers["list_groups"] = lambda _: [told]
    out = run("info hikers")[1]
    assert re.search(r"^before you joined +You have the last 50 messages before you joined$", out, re.MULTILINE)
    assert "new members receive the last 50 messages before they joined; the longest-standing member keeps" in out
    assert re.search(r"^history keeper +Bob$", out, re.MULTILINE)
    assert re.search(r"^Bob +admin, history keeper +connected", run("members hikers")[1], re.MULTILINE)
    said = json.loads(run("info hikers --format jsonl")[1])
    assert (said["policy"]["history"], said["policy"]["keepers"], said["history_start"]["remaining"]) == (
        "last:50",
        1,
        9,
    )
    assert [json.loads(line)["keeps_history"] for line in run("members hikers --format jsonl")[1].splitlines()] == [
        False,
        True,
        False,
    ]


def test_backfill_progress_is_shown(run, crew) -> None:
    going = HistoryStart(state="fetching", rules=["all", "all"], joined=7, received=1200, remaining=4000)
    crew.answers["list_groups"] = lambda _: [replace(CREW, history_start=going)]
    said = "fetching earlier messages: 1,200 received, 4,000 to go"
    assert re.search(rf"^before you joined +{said}$", run("info hikers")[1], re.MULTILINE)
    status = cli_harness.STATUS
    crew.answers["get_status"] = lambda _: replace(status, groups=[replace(CREW, history_start=going)])
    assert f"hikers:  {said}" in run("status")[1]
    whole = HistoryStart(state="whole")
    crew.answers["get_status"] = lambda _: replace(status, groups=[replace(CREW, history_start=whole)])
    crew.answers["list_groups"] = lambda _: [replace(CREW, history_start=whole)]
    assert "fetching" not in run("status")[1] and "before you" not in run("info hikers")[1]


def test_an_invitation_for_readers(run, crew) -> None:
    assert "role     reader, who cannot post" in run("invite hikers --read-only")[1]
    assert "reader" not in run("invite hikers")[1]
    assert of(crew, "create_invitation") == [
        CreateInvitationParams("hikers", role="reader"),
        CreateInvitationParams("hikers"),
    ]
    crew.answers["join_group"] = follow(lambda: crew, joining("joined", "In.", group="GROUPID"))
    assert run("join - --read-only", stdin=b"ZC:1")[0] == 0
    assert of(crew, "join_group") == [JoinGroupParams("ZC:1", None, "reader")]


# --- coming in ------------------------------------------------------------------------------------------------------


def test_the_commands_of_a_bot_stand_below_the_members(run, crew) -> None:
    commands = [AnnouncedCommand("deploy", "ENV\x1b", "Bring it out\u202e", "admin"), AnnouncedCommand("ping")]
    bot = MemberInfo(did=BOB, nick="ci", connection="connected", joined_at="x", bot=True, commands=commands)
    crew.answers["list_members"] = lambda _: [PEOPLE[0], bot]
    out = run("members hikers")[1].splitlines()
    assert [" ".join(line.split()) for line in out[3:7]] == [
        "",
        "BOT COMMAND ROLE DESCRIPTION",
        "ci !deploy ENV␛ admin Bring it out�",
        "ci !ping - -",
    ]
    assert out[2].startswith("ci [bot]")


def test_join_requests_are_listed(run, crew) -> None:
    code, out, err = run("requests hikers")
    assert (code, out) == (
        0,
        """\
dave⏎, as reader, since 2026-07-01 12:09
    key    did:key:z6MkDave1
    words  apple river stone lamp
    words  cloud tiger window bread
""",
    )
    assert "`zerochat admit hikers NAME`" in err
    assert run(["admit", "hikers", "dave\n"])[0] == 1, "somebody has the name by now"
    seated = replace(PEOPLE[1], did=DAVE.did, nick=DAVE.nick)
    crew.answers["list_members"] = lambda _: [*PEOPLE, seated]
    assert run(["admit", "hikers", "Dave\n"]) == (0, "did:key:z6MkDave1\n", "Admitted dave⏎ as a reader.\n")
    assert run("refuse hikers did:key:z6MkDave1")[1:] == ("did:key:z6MkDave1\n", "Refused dave⏎.\n")
    assert of(crew, "answer_join_request") == [
        AnswerJoinRequestParams("hikers", "dave\n", True, "dave\n", "reader"),
        AnswerJoinRequestParams("hikers", "Dave\n", True, "dave\n", "reader"),
        AnswerJoinRequestParams("hikers", "did:key:z6MkDave1", False, "dave\n", "reader"),
    ]
    crew.answers["list_join_requests"] = lambda _: []
    assert run("requests hikers") == (0, "", "There are no join requests.\n")


def test_a_waiting_joiner_is_shown_its_safety_words(run, crew) -> None:
    asking = replace(joining("asking", "Asking to be let in…"), words=WORDS)
    crew.answers["join_group"] = follow(lambda: crew, asking)
    code, out, err = run("join - --timeout 0.3", stdin=b"ZC:1")
    assert (code, out) == (5, "") and err.count("  apple river stone lamp\n  cloud tiger window bread\n") == 1
    assert "Waiting for approval." in err
    crew.answers["join_group"] = follow(
        lambda: crew, replace(asking, words=[]), joining("joined", "In.", group="GROUPID")
    )
    code, _, err = run("join -", stdin=b"ZC:1")
    assert code == 0 and "apple" not in err


def test_a_contradiction_while_joining_has_its_own_exit_code(run, crew) -> None:
    ended = joining("failed", "They differ.", error=CONTRADICTION)
    crew.answers["join_group"] = follow(lambda: crew, joining("connecting", "…"), ended)
    assert run("join -", stdin=b"ZC:1")[0] == 7


def test_members_with_different_views_are_named_to_the_joiner(run, crew) -> None:
    def join(params: JoinGroupParams) -> JoinStatus:
        for client in crew.subscribers:
            text = "Bob tells of other members\x1b."
            crew.server.notify([client], "warning", WarningNotification("GROUPID", BOB, "Bob", text))
            crew.server.notify([client], "join_changed", joining("joined", "In.", group="GROUPID"))
        return joining("dialling", "Looking…")

    crew.answers["join_group"] = join
    code, _, err = run("join -", stdin=b"ZC:1")
    assert code == 0 and "Warning: Bob tells of other members␛." in err


# --- going, and changing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "needed", "out", "said"),
    [
        (2, 2, True, "2 of 2 votes: Bob was removed"),
        (1, 2, False, "1 of 2 votes; one more vote needed"),
        (1, 4, False, "1 of 4 votes; three more votes needed"),
        (1, 1, True, "Bob was removed"),
    ],
)
@pytest.mark.parametrize("unseen", [0, 1])
def test_removing_a_member(run, crew, votes, needed, out, said, unseen) -> None:
    cast = votes + unseen
    vote = VoteInfo(
        group="GROUPID", did=BOB, nick="Bob", votes=votes, needed=needed, cast=cast, voted=True, removed=out
    )
    if unseen:
        said = said.replace(f" {needed} votes", f" {needed} votes ({cast} cast; some count only once)")
    crew.answers["remove_member"] = lambda _: vote
    assert run("remove hikers bob --yes") == (0, said + "\n", "")
    assert json.loads(run("remove hikers bob --yes --format jsonl")[1])["removed"] is out
    assert of(crew, "remove_member") == [RemoveMemberParams("GROUPID", BOB)] * 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("leave nowhere", "nowhere"),
        ("forget nowhere", "nowhere"),
        ("resume nowhere", "nowhere"),
        ("remove nowhere bob", "nowhere"),
        ("remove hikers zoe", "zoe"),
        ("remove hikers alice", "is called did:key"),
        ("disconnect nowhere", "is called nowhere"),
    ],
)
def test_what_is_impossible_is_refused_before_confirmation(run, crew, line, why) -> None:
    def refuse(params):
        raise UnknownPeer(peer=getattr(params, "peer", "") or params.member)

    crew.answers |= {"list_connections": lambda _: [], "remove_member": refuse, "close_connection": refuse}
    for more in ({}, {"stdin": b"y\n", "tty": True}):
        code, out, err = run(line, **more)
        assert (code, out) == (1, "") and why in err and "--yes" not in err and "[y/N]" not in err


def test_removing_a_member_needs_confirmation(run, crew) -> None:
    crew.answers["remove_member"] = lambda _: VoteInfo(
        group="GROUPID", did=BOB, nick="Bob", votes=1, needed=1, removed=True
    )
    code, out, err = run("remove hikers bob")
    assert (code, out) == (2, "") and "add --yes" in err
    code, out, err = run("remove hikers bob", stdin=b"\n", tty=True)
    assert (code, out) == (1, "") and "Vote to remove Bob from hikers?" in err
    assert of(crew, "remove_member") == []
    crew.answers["list_groups"] = lambda _: [replace(CREW, policy=PolicyInfo(remove="anyone", quorum=0))]
    code, out, err = run("remove hikers bob", stdin=b"yes\n", tty=True)
    assert (code, out) == (0, "Bob was removed\n") and "Remove Bob from hikers?" in err
    code, out, err = run("remove hikers eve --yes")
    assert (code, out) == (1, "") and "There is no member eve" in err


def test_roles_and_names(run, crew) -> None:
    assert run("role hikers bob admin") == (0, "", "Bob is already an admin in hikers.\n")
    assert run("role hikers bob reader") == (0, "", "Bob is now a reader in hikers.\n")
    assert run("role hikers reader") == (0, "", "You are now a reader in hikers.\n")
    assert run(["rename", "hikers", "Alice B."]) == (0, "", "You are now called Alice B. in hikers.\n")
    assert of(crew, "set_role") == [
        SetRoleParams("GROUPID", "admin", "bob"),
        SetRoleParams("GROUPID", "reader", "bob"),
        SetRoleParams("GROUPID", "reader"),
    ]
    assert of(crew, "set_display_name") == [SetDisplayNameParams("hikers", "Alice B.")]
    assert run("rename hikers alice")[2] == "You are already called alice in hikers.\n"
    assert json.loads(run("role hikers bob writer --format jsonl")[1])["role"] == "writer"


def test_transfer_requires_confirmation(run, crew) -> None:
    members = crew.answers["list_members"]
    crew.answers["list_members"] = lambda params: [replace(one, allowed_actions=["owner"]) for one in members(params)]
    code, _, err = run("transfer hikers bob")
    assert code == 2 and "add --yes" in err and of(crew, "set_role") == []
    code, _, err = run("transfer hikers bob", stdin=b"\n", tty=True)
    assert code == 1 and "Make Bob the owner of hikers? You become an admin" in err and of(crew, "set_role") == []
    code, _, err = run("transfer hikers bob --yes")
    assert (code, err) == (0, "Bob is now the owner of hikers, and you are an admin.\n")
    assert [one.role for one in of(crew, "set_role")] == ["owner"]


def test_ignoring_a_member(run, crew) -> None:
    crew.answers["list_ignored"] = lambda params: []
    assert run("ignore hikers") == (0, "", "You ignore no member of hikers.\n")
    crew.answers["ignore_member"] = lambda params: IgnoredMember(BOB, "Bob", params.ignored)
    code, _, err = run("ignore hikers bob")
    assert (code, err) == (0, "You no longer see messages from Bob.\n")
    code, _, err = run("ignore hikers bob --undo")
    assert (code, err) == (0, "Messages from Bob are shown.\n")
    assert [one.ignored for one in of(crew, "ignore_member")] == [True, False]
    crew.answers["list_ignored"] = lambda params: [
        IgnoredMember(BOB, "Bob"),
        IgnoredMember(CAROL, "Carol", former=True),
    ]
    assert run("ignore hikers")[1] == "Bob\nCarol (has left)\n"


def test_a_temporary_agent_stays_until_all_members_acknowledge(run, alone, monkeypatch) -> None:
    behind = iter([2, 1])
    alone["list_groups"] = lambda _: [replace(HIKERS, unacknowledged=next(behind, 0))]
    alone["set_display_name"] = lambda params: replace(HIKERS, nick=params.name)
    monkeypatch.setattr("zerochat.cli.verbs.members.POLL_S", 0.01)
    code, _, err = run("rename hikers al")
    assert code == 0 and err.endswith("You are now called al in hikers.\n")
    assert next(behind, None) is None
    alone["list_groups"] = lambda _: [HIKERS]
    monkeypatch.setattr("zerochat.cli.verbs.members.SPREAD_S_MAX", 0.0)
    assert "Some members have not received the change yet" in run("rename hikers al")[2]


def test_a_change_without_effect_is_reported(run, crew) -> None:
    vote = VoteInfo(group="GROUPID", did=CAROL, nick="carol\x1b", votes=1, needed=2, voted=True)
    code, out, err = run(["remove", "hikers", "carol\x1b", "--yes"])
    assert (code, out.split(";")[0], err) == (0, "1 of 2 votes", "You have already voted.\n")
    assert json.loads(run(["remove", "hikers", "carol\x1b", "--yes", "--format", "jsonl"])[1])["votes"] == vote.votes
    assert of(crew, "remove_member") == []
    crew.answers["list_join_requests"] = lambda _: []
    assert run("admit hikers bob") == (0, "", "Bob is already a member of hikers.\n")
    crew.answers["list_groups"] = lambda _: [replace(CREW, policy=PolicyInfo())]
    asks_nobody = "hikers has no join requests: anyone with an invitation can join.\n"
    assert run("requests hikers") == (0, "", asks_nobody)
    assert run("admit hikers eve") == (1, "", asks_nobody) and of(crew, "answer_join_request") == []
    assert run("verify hikers bob --mark")[2].endswith("Bob is already verified.\n")
    crew.answers["list_groups"] = lambda _: [replace(CREW, name="we already met", policy=PolicyInfo())]
    code, _, err = run(["admit", CREW.id, "eve"])
    assert (code, err.startswith("we already met has no join requests")) == (1, True), "only a member's name counts"


def test_a_group_that_was_left_is_marked_in_every_verb(run, crew) -> None:
    crew.answers["list_groups"] = lambda _: [replace(CREW, state="left")]
    crew.answers["list_members"] = lambda _: [replace(one, view_matches=None, trust="unverified") for one in PEOPLE[1:]]
    code, out, err = run("info hikers")
    assert code == 0 and "you             left" in out and "members" not in out.split("keys ")[0].split("joining")[0]
    assert "You have left hikers." in err
    code, out, err = run("leave hikers --yes")
    assert (code, out) == (0, "") and "You have left hikers." in err and of(crew, "leave_group") == []
    crew.answers["get_safety_words"] = lambda _: SafetyWords(
        group="GROUPID", did=BOB, nick="Bob", words=WORDS, trust="unverified"
    )
    assert "--mark" not in run("verify hikers bob")[2]
    bob, al = Author(BOB, "Bob"), Author(CAROL, "Al")
    crew.answers["list_groups"] = lambda _: [replace(CREW, state="left", removed_by=bob, voters=[al, bob])]
    code, _, err = run("leave hikers --yes")
    assert code == 8 and "You are no longer in hikers: Al and Bob voted to remove you." in err
    assert "Al and Bob voted to remove you." in run("info hikers")[2]


def test_an_owner_who_leaves_is_warned(run, crew) -> None:
    crew.answers["leave_group"] = lambda _: replace(CREW, state="left")
    code, _, err = run("leave hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "no new admins can be appointed" in err and of(crew, "leave_group") == []
    code, _, err = run("leave hikers --yes")
    assert code == 0 and err.startswith("Warning: You are the owner")
    crew.answers["list_groups"] = lambda _: [replace(CREW, role="admin")]
    assert "Warning" not in run("leave hikers --yes")[2]


def test_commands_in_sentences_can_be_pasted(run, crew) -> None:
    crew.answers["list_groups"] = lambda _: [replace(CREW, name="old $HOME's")]
    _, _, err = run(["requests", "old $HOME's"])
    command = next(part for part in err.split("`") if part.startswith("zerochat admit"))
    assert shlex.split(command)[2] == "old $HOME's"
    _, _, err = run(["verify", "old $HOME's", "eve"])
    command = next(part for part in err.split("`") if part.startswith("zerochat members"))
    assert shlex.split(command)[2] == "old $HOME's"
    assert "`zerochat leave 'a b'`" in GroupExists(group="a b").sentence()
    assert "already has a group a b." in GroupExists(group="a b").sentence()


# --- trust ----------------------------------------------------------------------------------------------------------

SHOWN = "  apple river stone lamp\n  cloud tiger window bread\n"


def test_safety_words_of_a_member(run, crew) -> None:
    code, out, err = run("verify hikers bob")
    assert (code, out) == (0, SHOWN)
    assert "by phone or in person, not in the chat" in err and "Bob is verified." in err
    assert "carol␛ has a different key than the one you verified" in run("verify hikers carol\x1b")[2]
    assert json.loads(run("verify hikers bob --format jsonl")[1])["words"] == WORDS
    code, _, err = run("verify hikers eve")
    assert code == 1 and "There is no member eve" in err


def test_safety_words_of_a_group(run, crew) -> None:
    code, out, err = run("verify hikers")
    assert (code, out) == (
        0,
        SHOWN
        + """
NAME    TRUST     KEY
Bob     verified  did:key:z6MkBobb
carol␛  CHANGED   did:key:z6MkCarol
""",
    )
    assert "All members of hikers with the same member list see these words" in err and "--mark" not in err
    code, _, err = run(["verify", "hikers", "--words", "other"])
    assert code == 1 and "your member lists differ" in err


def test_entered_safety_words_are_compared(run, crew) -> None:
    code, _, err = run(["verify", "hikers", "bob", "--words", " ".join(WORDS)])
    assert code == 0 and "The words match." in err
    assert of(crew, "verify_member") == []
    usual = crew.answers["get_safety_words"]

    def like_an_agent(params: SafetyWordsParams) -> SafetyWords:
        if params.entered and len(params.entered.split()) != 8:
            raise NotTheWords(why="Eight words are needed; you gave 1.")
        words: SafetyWords = usual(params)
        return replace(words, mismatches=[1, 8] if params.entered == other else [])

    crew.answers["get_safety_words"] = like_an_agent
    for other in ("apple", "", "  "):
        code, out, err = run(["verify", "hikers", "bob", "--words", other, "--mark"])
        assert (code, out) == (2, "") and "you gave 1" in err and "differ" not in err
    other = " ".join(["stone", *WORDS[1:7], "stone"])
    code, _, err = run(["verify", "hikers", "bob", "--words", other, "--mark"])
    assert code == 1 and "The words differ at positions 1 and 8." in err and "verified" not in err
    assert of(crew, "verify_member") == [], "what differs is never marked"
    assert run(["verify", "hikers", "bob", "--words", " ".join(WORDS), "--mark"])[0] == 0
    assert run("verify hikers bob --unmark")[2].endswith("Bob is no longer verified.\n")
    assert of(crew, "verify_member") == [
        VerifyMemberParams("GROUPID", BOB, True),
        VerifyMemberParams("GROUPID", BOB, False),
    ]


def test_invalid_uses_of_verify(run, crew) -> None:
    for line in ("verify hikers --mark", "verify hikers --unmark", "verify hikers bob --unmark --words x"):
        code, out, _ = run(line)
        assert (code, out) == (2, "")
    assert crew.asked == []


# --- when one has been put out --------------------------------------------------------------------------------------


def test_tail_ends_when_the_member_is_removed(run, crew, monkeypatch) -> None:
    monkeypatch.setattr("zerochat.cli.verbs.history.DRAIN_S", 0.1)
    crew.answers["get_history"] = lambda _: History([event(1)], more=False)
    out_of_it = replace(CREW, state="left", removed_by=Author(BOB, "Bob"))
    states = iter([CREW])

    def groups(_: NoParams) -> list[GroupInfo]:
        now = next(states, out_of_it)
        if now is CREW:
            asked = JoinRequestNotification(group="GROUPID", member="did:key:z6MkD", nick="dave", state="asked")
            end = event(2, type="member_removed", body={"did": ALICE, "nick": "alice"}, replayed=False)
            for client in crew.subscribers:
                crew.server.notify([client], "join_request", asked)
                crew.server.notify([client], "removed", RemovedNotification("GROUPID", BOB, "Bob"))
                crew.server.notify([client], "event", end)
        return [now]

    crew.answers["list_groups"] = groups
    code, out, err = run("tail hikers")
    assert code == 8
    assert out.splitlines()[-1] == "2026-07-01 12:04  * bob removed alice"
    assert "dave asks to join: see `zerochat requests hikers`" in err
    assert err.endswith(
        "You are no longer in hikers: Bob removed you. Its history stays on this machine; to return, get a new"
        " invitation.\n"
    )
    code, out, err = run("tail hikers")
    assert code == 8 and "message 1" in out, "a second time it ends at once"
    crew.answers["list_groups"] = lambda _: [replace(out_of_it, removed_by=Author(ALICE, "alice"))]
    assert "the member who invited you had been removed before" in run("tail hikers")[2]


def test_status_shows_join_requests_and_removals(run, crew) -> None:
    gone = replace(HIKERS, name="gone", id="G2", state="left", removed_by=Author(BOB, "Bob"))
    crew.answers["get_status"] = lambda _: replace(cli_harness.STATUS, groups=[CREW, gone])
    code, out, err = run("status")
    assert code == 0 and "removed" in out
    assert err == "Join requests for hikers: dave⏎. See `zerochat requests hikers`.\n"


# --- real agents ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_life_of_a_group_with_one_frame_for_all(two) -> None:
    code, group, _ = two("alice", "new hikers --keys pairwise-single --removal anyone")
    assert code == 0
    info = json.loads(two("alice", "info hikers --format jsonl")[1])
    assert (info["keys"], info["policy"]["remove"], info["role"]) == ("pairwise-single", "anyone", "writer")
    link = two("alice", "invite hikers --format url")[1]
    code, joined, err = two("bob", "join -", stdin=link.encode())
    assert (code, joined) == (0, group), err
    code, out, _ = two("alice", "send hikers -m hello --wait all")
    assert code == 0 and "delivered to 1 of 1" in out
    assert two("bob", "history hikers")[1].endswith("alice: hello\n")

    # Words are the same at both ends; what Bob has marked, Alice need not know.
    everybody = json.loads(two("alice", "verify hikers --format jsonl")[1])["words"]
    assert two("bob", f"verify hikers --words {'-'.join(everybody).upper()}")[0] == 0
    words = " ".join(json.loads(two("alice", "verify hikers bob --format jsonl")[1])["words"])
    assert two("bob", f"verify hikers alice --mark --words {words.replace(' ', ',')}")[0] == 0
    assert re.search(r"alice  writer  connected   [\d: -]+  same  verified", two("bob", "members hikers")[1])

    assert two("alice", "rename hikers ally")[0] == 0
    until(lambda: "alice is now called ally" in two("bob", "history hikers")[1], "the new name")
    assert re.search(r"ally  writer  connected   [\d: -]+  same  verified", two("bob", "members hikers")[1])
    assert two("bob", "role hikers reader")[0] == 0
    code, _, err = two("bob", "send hikers -m x")
    assert code == 1 and "read" in err
    until(lambda: "bob is now a reader" in two("alice", "history hikers")[1], "the new role")

    assert two("alice", "remove hikers bob --yes")[:2] == (0, "bob was removed\n")
    until(lambda: "removed" in two("bob", "status")[1], "hearing of it")
    code, _, err = two("bob", "send hikers -m x")
    assert code == 8 and "ally removed you" in err
    assert two("bob", "history hikers")[1].endswith("ally removed bob\n")


@pytest.mark.slow
def test_joining_a_group_that_requires_approval(two) -> None:
    _, group, _ = two("alice", "new crew --join ask --roles admins")
    link = two("alice", "invite crew --read-only --format url")[1]
    code, _, err = two("bob", "join - --read-only --timeout 4", stdin=link.encode())
    assert code == 5 and "Waiting for approval." in err
    asked = json.loads(two("alice", "requests crew --format jsonl")[1])
    assert (asked["nick"], asked["role"]) == ("bob", "reader")
    assert " ".join(asked["words"][:4]) in err, "both see the same words"
    assert "Join requests for crew: bob." in two("alice", "status")[2]
    assert two("alice", "admit crew bob")[:2] == (0, asked["did"] + "\n")
    until(lambda: "crew" in two("bob", "status")[1], "coming in")
    assert two("alice", "requests crew")[1] == ""
    assert json.loads(two("bob", "info crew --format jsonl")[1])["role"] == "reader"
    assert two("alice", "role crew bob writer")[0] == 0
    until(lambda: two("bob", "send crew -m hello")[0] == 0, "writing")
    code, _, err = two("bob", "remove crew alice --yes")
    assert code == 1 and "the owner" in err
    assert group.strip() in two("alice", "info crew")[1]
