"""The verbs for a group's rules and its members: against an agent that only pretends, and once against real ones."""

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli import test_cli
from tests.cli.test_cli import ALICE, BOB, CAROL, HIKERS, INVITATION, event, follow, joining, of
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage.paths import places
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.views.members import NotTheWords
from zerochat.errors import GroupExists
from zerochat.group.key_modes import MODES
from zerochat.presentation import group_rules
from zerochat.rpc import (
    CONTRADICTION,
    AnnouncedCommand,
    AnswerParams,
    Author,
    Beginning,
    DisagreementNews,
    GroupInfo,
    History,
    InviteParams,
    JoinParams,
    JoinStatus,
    MemberInfo,
    NewParams,
    NoParams,
    PolicyInfo,
    RemovedNews,
    RemoveParams,
    RenameParams,
    RequestInfo,
    RequestNews,
    RoleParams,
    VerifyParams,
    VoteInfo,
    WordsInfo,
    WordsParams,
)
from zerochat.tui.dialogs.create import KEYS as CHOSEN
from zerochat.tui.dialogs.create import KEYS_ABOUT
from zerochat.tui.panels.bars import KEYS

home, agent, run, alone = test_cli.home, test_cli.agent, test_cli.run, test_cli.alone

WORDS = ["apple", "river", "stone", "lamp", "cloud", "tiger", "window", "bread"]
PEOPLE = [
    MemberInfo(did=ALICE, nick="alice", connection="self", joined_at="x", role="owner"),
    MemberInfo(did=BOB, nick="Bob", connection="connected", joined_at="x", role="admin", trust="verified"),
    MemberInfo(did=CAROL, nick="carol\x1b", connection="connected", joined_at="x", role="reader", trust="changed"),
]
DAVE = RequestInfo(
    group="GROUPID", did="did:key:z6MkDave1", nick="dave\n", role="reader", words=WORDS, asked_at="2026-07-01T12:09:00Z"
)
CREW = replace(
    HIKERS,
    role="owner",
    envelope="didcomm/v2",
    policy=PolicyInfo(join="ask", remove="quorum", quorum=3, roles="admins"),
    votes=[VoteInfo(group="GROUPID", did=CAROL, nick="carol\x1b", votes=1, needed=2, mine=True)],
    requests=[DAVE],
)


@pytest.fixture
def crew(agent: Callable[..., Any]) -> Any:
    """An agent in the group hikers, whose answers are as a desk's would be."""

    def words(params: WordsParams) -> WordsInfo:
        whom = next((one for one in PEOPLE if one.did == params.member), None)
        return WordsInfo(
            group="GROUPID",
            did=params.member,
            nick=whom.nick if whom else "",
            words=WORDS,
            trust=whom.trust if whom else None,
            same=params.said.split() == WORDS if params.said else None,
        )

    return agent(
        groups=lambda _: [CREW],
        members=lambda _: PEOPLE,
        requests=lambda _: [DAVE],
        answer=lambda _: replace(CREW, requests=[]),
        role=lambda params: replace(PEOPLE[1 if params.member else 0], role=params.role),
        rename=lambda params: replace(CREW, nick=params.name),
        words=words,
        verify=lambda _: PEOPLE[1],
        new=lambda _: CREW,
        invite=lambda params: replace(INVITATION, role=params.role, history=params.history or "all"),
    )


# --- rules ----------------------------------------------------------------------------------------------------------


def test_what_holds_in_a_group_is_said_in_plain_words(run, crew) -> None:
    code, out, _ = run("info hikers")
    assert code == 0
    rows = {line[:18].strip(): line[18:].strip() for line in out.partition("\n\n")[0].splitlines()}
    assert rows == {
        "group": "hikers (GROUPID)",
        "you": "alice, owner",
        "members": "3; 1/2 connected",
        "getting in": "anybody with an invitation may ask, and gets in when whoever made it says yes",
        "being put out": "three members together can put somebody out",
        "writing": "the owner and the admins say who may write; the owner makes the admins",
        "disagreement": "a newcomer to whom members tell different things stays, and is warned",
        "history": "newcomers get all that was said before they came, as far as somebody there has it",
        "keys": "pairwise-multi: keys for each pair of members; each member gets an envelope of its own",
        "path": "mesh: every member is connected with every other",
        "accountability": "acks: you see who has your messages",
        "envelope": "didcomm/v2",
        "owner": "alice",
        "admin": "Bob",
        "reader": "carol␛",
        "verified": "Bob",
        "not who they were": "carol␛",
        "voted against": "carol␛: 1 of 2 votes, with yours",
        "waits to get in": "dave⏎",
    }
    assert (
        "can prove it to nobody until its author signs something" in out
        and "keeps all that was read" in out
        and "network" not in out
    )
    assert json.loads(run("info GROU --format jsonl")[1])["policy"]["quorum"] == 3
    single = replace(CREW, keys="pairwise-single", removed_by=Author(BOB, "Bob"), state="left")
    crew.answers["groups"] = lambda _: [single]
    code, out, err = run("info hikers")
    assert code == 0 and "watches the network" in out and "Bob has put you out" in err
    assert run("info moon") == (
        1,
        "",
        "zerochat: There is no group called moon in this profile. `zerochat status` lists the groups.\n",
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--removal admins", "there are no admins who could put somebody out"),
        ("--removal anyone --quorum 2", "a quorum counts votes"),
        ("--removal admins --roles admins --quorum 2", "a quorum counts votes"),
        ("--quorum 1", "let `anyone` put members out"),
        ("--quorum 65", "from 2 to 64"),
    ],
)
def test_rules_that_do_not_go_together_are_refused_before_anything_happens(run, crew, line, why) -> None:
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
    assert of(crew, "new") == [
        NewParams("g", remove="admins", quorum=0, roles="admins"),
        NewParams("g", remove="quorum", quorum=3, roles="admins", join="ask"),
        NewParams("g", "didcomm/v1", "pairwise-single", "open", "anyone", 0, "flat", "strict"),
    ]


def test_a_kind_of_group_is_its_keys_in_a_word(run, crew) -> None:
    for line in ("new g --kind signed", "new g --kind classic-single", "new g --keys sender-key --kind signed"):
        assert run(line)[0] == 0
    assert [params.keys for params in of(crew, "new")] == ["sender-key", "pairwise-single", "sender-key"]
    assert run("new g --kind accountable")[0] == 0
    made = of(crew, "new")
    assert [(one.keys, one.accountability) for one in made[-1:]] == [("sender-key", "ledger")]
    assert {one.accountability for one in made[:-1]} == {"acks"}
    code, _, err = run("new g --kind signed --keys pairwise-multi")
    assert code == 2 and "has the keys `sender-key`, and not `pairwise-multi`" in err
    assert len(of(crew, "new")) == 4, "what is refused is not asked for"
    assert tuple(MODES) == group_rules.KEYS and {keys for keys, _ in group_rules.KINDS.values()} == set(MODES)
    assert {keys for keys, mode in MODES.items() if mode.signs} == set(group_rules.SIGNS)


@pytest.mark.parametrize(("keys", "said"), [("pairwise-multi", "not signed"), ("sender-key", "you cannot deny it")])
def test_what_a_group_says_of_itself_is_true_of_its_keys(run, agent, keys, said) -> None:
    info = replace(HIKERS, keys=keys)
    agent(groups=lambda _: [info], members=lambda _: [])
    shown = run("info hikers")[1]
    assert said in shown and f"{keys}: {group_rules.keys_of(info)}" in shown
    assert ("have that signed" in shown) == (keys in group_rules.SIGNS)
    assert keys in KEYS and KEYS_ABOUT.keys() == CHOSEN.keys() == {*group_rules.KEYS, "accountable"}


def test_every_rule_has_its_words() -> None:
    for join in group_rules.JOIN_RULES:
        for remove, quorum in (("anyone", None), ("quorum", 12), ("admins", None)):
            rules = group_rules.settled(join, remove, quorum, "admins", "strict")
            said = group_rules.rules_of(rules)
            assert len(said) == 5 and not {join, remove} & set(said) and all(" " in one for one in said)
    assert "12 members" in group_rules.rules_of(group_rules.settled(quorum=12))[1]
    for kind in ("join", "remove", "roles", "agreement"):
        with pytest.raises(group_rules.BadRules, match=r"called 'x.x1b', only"):
            group_rules.settled(**{"join": "open", kind: "x\x1b"})  # type: ignore[arg-type]


def test_what_newcomers_get_is_chosen_and_seen(run, crew) -> None:
    for line in ("new g --history none", "new g --history 50 --keepers 3", "new g --history since:1782864000000"):
        assert run(line)[0] == 0
    assert [(asked.history, asked.keepers) for asked in of(crew, "new")] == [
        ("none", 0),
        ("last:50", 3),
        ("since:1782864000000", 0),
    ]
    before = time.time()
    assert run("new g --history since:2w")[0] == 0
    ago = before - int(of(crew, "new")[-1].history.removeprefix("since:")) / 1000
    assert 13 * 86_400 < ago < 15 * 86_400
    for rule in ("tomorrow", "last:0", "since:soon", "-1"):
        code, out, err = run(f"new g --history={rule}")
        assert (code, out) == (2, "") and "Newcomers cannot get" in err
    assert run("new g --keepers 65")[0] == 2 and len(of(crew, "new")) == 4

    code, out, _ = run("invite hikers --history last:2")
    assert code == 0 and re.search(r"^gives +the last 2 messages from before they came$", out, re.MULTILINE)
    assert "gives" not in run("invite hikers")[1]
    assert [asked.history for asked in of(crew, "invite")] == ["last:2", None]

    crew.answers["members"] = lambda _: [PEOPLE[0], replace(PEOPLE[1], keeper=True), PEOPLE[2]]
    begun = Beginning(state="withheld", rules=["last:50", "all"], joined=7, got=60, left=9)
    told = replace(CREW, policy=replace(CREW.policy, history="last:50", keepers=1), beginning=begun)
    crew.answers["groups"] = lambda _: [told]
    out = run("info hikers")[1]
    assert re.search(r"^before you +You have the last 50 messages from before you came$", out, re.MULTILINE)
    assert "newcomers get the last 50 messages from before they came; the one who has been here longest keeps" in out
    assert re.search(r"^keeps the history +Bob$", out, re.MULTILINE)
    assert re.search(r"^Bob +admin, keeps the history +connected", run("members hikers")[1], re.MULTILINE)
    said = json.loads(run("info hikers --format jsonl")[1])
    assert (said["policy"]["history"], said["policy"]["keepers"], said["beginning"]["left"]) == ("last:50", 1, 9)
    assert [json.loads(line)["keeper"] for line in run("members hikers --format jsonl")[1].splitlines()] == [
        False,
        True,
        False,
    ]


def test_how_much_of_the_history_is_here_yet(run, crew) -> None:
    going = Beginning(state="fetching", rules=["all", "all"], joined=7, got=1200, left=4000)
    crew.answers["groups"] = lambda _: [replace(CREW, beginning=going)]
    said = "fetching what was said before: 1,200 here, 4,000 to go"
    assert re.search(rf"^before you +{said}$", run("info hikers")[1], re.MULTILINE)
    status = test_cli.STATUS
    crew.answers["status"] = lambda _: replace(status, groups=[replace(CREW, beginning=going)])
    assert f"hikers:  {said}" in run("status")[1]
    whole = Beginning(state="whole")
    crew.answers["status"] = lambda _: replace(status, groups=[replace(CREW, beginning=whole)])
    crew.answers["groups"] = lambda _: [replace(CREW, beginning=whole)]
    assert "fetching" not in run("status")[1] and "before you" not in run("info hikers")[1]


def test_whoever_comes_only_to_read(run, crew) -> None:
    assert "lets in  readers, who cannot send" in run("invite hikers --read-only")[1].replace("   ", "  ")
    assert "readers" not in run("invite hikers")[1]
    assert of(crew, "invite") == [InviteParams("hikers", role="reader"), InviteParams("hikers")]
    crew.answers["join"] = follow(lambda: crew, joining("joined", "In.", group="GROUPID"))
    assert run("join - --read-only", stdin=b"ZC:1")[0] == 0
    assert of(crew, "join") == [JoinParams("ZC:1", None, "reader")]


# --- coming in ------------------------------------------------------------------------------------------------------


def test_what_a_bot_listens_to_stands_below_the_members(run, crew) -> None:
    commands = [AnnouncedCommand("deploy", "ENV\x1b", "Bring it out\u202e", "admin"), AnnouncedCommand("ping")]
    bot = MemberInfo(did=BOB, nick="ci", connection="connected", joined_at="x", bot=True, commands=commands)
    crew.answers["members"] = lambda _: [PEOPLE[0], bot]
    out = run("members hikers")[1].splitlines()
    assert [" ".join(line.split()) for line in out[3:7]] == [
        "",
        "BOT LISTENS TO FROM AND DOES",
        "ci !deploy ENV␛ admin Bring it out�",
        "ci !ping - -",
    ]
    assert out[2].startswith("ci [bot]")


def test_who_waits_to_be_let_in(run, crew) -> None:
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
    assert "`zerochat admit hikers WHO`" in err
    assert run(["admit", "hikers", "dave\n"])[0] == 1, "somebody has the name by now"
    seated = replace(PEOPLE[1], did=DAVE.did, nick=DAVE.nick)
    crew.answers["members"] = lambda _: [*PEOPLE, seated]
    assert run(["admit", "hikers", "Dave\n"]) == (0, "did:key:z6MkDave1\n", "dave⏎ comes in now, to read only.\n")
    assert run("refuse hikers did:key:z6MkDave1")[1:] == ("did:key:z6MkDave1\n", "dave⏎ does not come in.\n")
    assert of(crew, "answer") == [
        AnswerParams("hikers", "dave\n", True, "dave\n", "reader"),
        AnswerParams("hikers", "Dave\n", True, "dave\n", "reader"),
        AnswerParams("hikers", "did:key:z6MkDave1", False, "dave\n", "reader"),
    ]
    crew.answers["requests"] = lambda _: []
    assert run("requests hikers") == (0, "", "Nobody waits to be let in.\n")


def test_whoever_has_to_wait_for_a_person_is_shown_the_words_of_its_key(run, crew) -> None:
    asking = replace(joining("asking", "Asking to be let in…"), words=WORDS)
    crew.answers["join"] = follow(lambda: crew, asking)
    code, out, err = run("join - --timeout 0.3", stdin=b"ZC:1")
    assert (code, out) == (5, "") and err.count("  apple river stone lamp\n  cloud tiger window bread\n") == 1
    assert "Nobody has let you in yet." in err
    crew.answers["join"] = follow(lambda: crew, replace(asking, words=[]), joining("joined", "In.", group="GROUPID"))
    code, _, err = run("join -", stdin=b"ZC:1")
    assert code == 0 and "apple" not in err


def test_a_join_that_ends_in_a_contradiction_has_an_exit_code_of_its_own(run, crew) -> None:
    ended = joining("failed", "They differ.", error=CONTRADICTION)
    crew.answers["join"] = follow(lambda: crew, joining("connecting", "…"), ended)
    assert run("join -", stdin=b"ZC:1")[0] == 7


def test_members_who_disagree_are_named_to_whoever_joins(run, crew) -> None:
    def join(params: JoinParams) -> JoinStatus:
        for client in crew.subscribers:
            text = "Bob tells of other members\x1b."
            crew.server.notify([client], "disagreement", DisagreementNews("GROUPID", BOB, "Bob", text))
            crew.server.notify([client], "join", joining("joined", "In.", group="GROUPID"))
        return joining("dialling", "Looking…")

    crew.answers["join"] = join
    code, _, err = run("join -", stdin=b"ZC:1")
    assert code == 0 and "Careful: Bob tells of other members␛." in err


# --- going, and changing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "needed", "out", "said"),
    [
        (2, 2, True, "2 of 2 votes: Bob is out"),
        (1, 2, False, "1 of 2 votes; one more member has to say the same"),
        (1, 4, False, "1 of 4 votes; three more members have to say the same"),
        (1, 1, True, "Bob is out"),
    ],
)
@pytest.mark.parametrize("unseen", [0, 1])
def test_putting_somebody_out(run, crew, votes, needed, out, said, unseen) -> None:
    cast = votes + unseen
    vote = VoteInfo(group="GROUPID", did=BOB, nick="Bob", votes=votes, needed=needed, cast=cast, mine=True, out=out)
    if unseen:
        said = said.replace(" votes", f" votes ({cast} cast; some count as one)")
    crew.answers["remove"] = lambda _: vote
    assert run("remove hikers bob --yes") == (0, said + "\n", "")
    assert json.loads(run("remove hikers bob --yes --format jsonl")[1])["out"] is out
    assert of(crew, "remove") == [RemoveParams("GROUPID", BOB)] * 2


def test_putting_somebody_out_is_asked_first(run, crew) -> None:
    crew.answers["remove"] = lambda _: VoteInfo(group="GROUPID", did=BOB, nick="Bob", votes=1, needed=1, out=True)
    code, out, err = run("remove hikers bob")
    assert (code, out) == (2, "") and "add --yes" in err
    code, out, err = run("remove hikers bob", stdin=b"\n", tty=True)
    assert (code, out) == (1, "") and "Vote for putting Bob out of hikers?" in err
    assert of(crew, "remove") == []
    crew.answers["groups"] = lambda _: [replace(CREW, policy=PolicyInfo(remove="anyone", quorum=0))]
    code, out, err = run("remove hikers bob", stdin=b"yes\n", tty=True)
    assert (code, out) == (0, "Bob is out\n") and "Put Bob out of hikers?" in err
    code, out, err = run("remove hikers eve --yes")
    assert (code, out) == (1, "") and "Nobody there is called eve" in err


def test_roles_and_names(run, crew) -> None:
    assert run("role hikers bob admin") == (0, "", "Bob is an admin in hikers already.\n")
    assert run("role hikers bob reader") == (0, "", "Bob is a reader in hikers now.\n")
    assert run("role hikers reader") == (0, "", "You are a reader in hikers now.\n")
    assert run(["rename", "hikers", "Alice B."]) == (0, "", "You are called Alice B. in hikers now.\n")
    assert of(crew, "role") == [
        RoleParams("GROUPID", "admin", "bob"),
        RoleParams("GROUPID", "reader", "bob"),
        RoleParams("GROUPID", "reader"),
    ]
    assert of(crew, "rename") == [RenameParams("hikers", "Alice B.")]
    assert run("rename hikers alice")[2] == "You are called alice in hikers already.\n"
    assert json.loads(run("role hikers bob writer --format jsonl")[1])["role"] == "writer"


def test_an_agent_of_its_own_stays_until_the_others_have_heard_of_it(run, alone, monkeypatch) -> None:
    behind = iter([2, 1])
    alone["groups"] = lambda _: [replace(HIKERS, unacknowledged=next(behind, 0))]
    alone["rename"] = lambda params: replace(HIKERS, nick=params.name)
    monkeypatch.setattr("zerochat.cli.members.LOOK_S", 0.01)
    code, _, err = run("rename hikers al")
    assert code == 0 and err.endswith("You are called al in hikers now.\n")
    assert next(behind, None) is None
    alone["groups"] = lambda _: [HIKERS]
    monkeypatch.setattr("zerochat.cli.members.SPREAD_S_MAX", 0.0)
    assert "Not everybody has heard of it yet" in run("rename hikers al")[2]


def test_what_need_not_be_changed_is_said_to_be_so(run, crew) -> None:
    vote = VoteInfo(group="GROUPID", did=CAROL, nick="carol\x1b", votes=1, needed=2, mine=True)
    code, out, err = run(["remove", "hikers", "carol\x1b", "--yes"])
    assert (code, out.split(";")[0], err) == (0, "1 of 2 votes", "You had voted already.\n")
    assert json.loads(run(["remove", "hikers", "carol\x1b", "--yes", "--format", "jsonl"])[1])["votes"] == vote.votes
    assert of(crew, "remove") == []
    crew.answers["requests"] = lambda _: []
    assert run("admit hikers bob") == (0, "", "Bob is in hikers already.\n")
    crew.answers["groups"] = lambda _: [replace(CREW, policy=PolicyInfo())]
    asks_nobody = "In hikers nobody has to ask: anybody with an invitation gets in.\n"
    assert run("requests hikers") == (0, "", asks_nobody)
    assert run("admit hikers eve") == (1, "", asks_nobody) and of(crew, "answer") == []
    assert run("verify hikers bob --mark")[2].endswith("Bob is verified already.\n")


def test_a_group_that_is_over_says_so_everywhere(run, crew) -> None:
    crew.answers["groups"] = lambda _: [replace(CREW, state="left")]
    crew.answers["members"] = lambda _: [replace(one, view_agrees=None, trust="unverified") for one in PEOPLE[1:]]
    code, out, err = run("info hikers")
    assert code == 0 and "you             left" in out and "members" not in out.split("keys ")[0].split("getting")[0]
    assert "You have left hikers." in err
    code, out, err = run("leave hikers --yes")
    assert (code, out) == (0, "") and "You have left hikers." in err and of(crew, "leave") == []
    crew.answers["words"] = lambda _: WordsInfo(group="GROUPID", did=BOB, nick="Bob", words=WORDS, trust="unverified")
    assert "--mark" not in run("verify hikers bob")[2]
    bob, al = Author(BOB, "Bob"), Author(CAROL, "Al")
    crew.answers["groups"] = lambda _: [replace(CREW, state="left", removed_by=bob, voters=[al, bob])]
    code, _, err = run("leave hikers --yes")
    assert code == 8 and "You are no longer in hikers: Al and Bob have voted you out." in err
    assert "Al and Bob have voted you out." in run("info hikers")[2]


def test_an_owner_who_leaves_is_warned(run, crew) -> None:
    crew.answers["leave"] = lambda _: replace(CREW, state="left")
    code, _, err = run("leave hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "without you nobody can make admins any more" in err and of(crew, "leave") == []
    code, _, err = run("leave hikers --yes")
    assert code == 0 and err.startswith("Careful: You are the owner")
    crew.answers["groups"] = lambda _: [replace(CREW, role="admin")]
    assert "Careful" not in run("leave hikers --yes")[2]


def test_commands_in_sentences_can_be_pasted(run, crew) -> None:
    crew.answers["groups"] = lambda _: [replace(CREW, name="old $HOME's")]
    _, _, err = run(["requests", "old $HOME's"])
    command = next(part for part in err.split("`") if part.startswith("zerochat admit"))
    assert shlex.split(command)[2] == "old $HOME's"
    _, _, err = run(["verify", "old $HOME's", "eve"])
    command = next(part for part in err.split("`") if part.startswith("zerochat members"))
    assert shlex.split(command)[2] == "old $HOME's"
    assert "`zerochat leave 'a b'`" in GroupExists(group="a b").sentence()
    assert "called a b." in GroupExists(group="a b").sentence()


# --- trust ----------------------------------------------------------------------------------------------------------

SHOWN = "  apple river stone lamp\n  cloud tiger window bread\n"


def test_the_words_of_a_member(run, crew) -> None:
    code, out, err = run("verify hikers bob")
    assert (code, out) == (0, SHOWN)
    assert "over the phone or face to face, not in the chat itself" in err and "Bob is verified." in err
    assert "whom you verified as carol␛ was somebody else" in run("verify hikers carol\x1b")[2]
    assert json.loads(run("verify hikers bob --format jsonl")[1])["words"] == WORDS
    code, _, err = run("verify hikers eve")
    assert code == 1 and "Nobody there is called eve" in err


def test_the_words_of_a_group(run, crew) -> None:
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
    assert "Everybody in hikers sees these words" in err and "--mark" not in err
    code, _, err = run(["verify", "hikers", "--words", "other"])
    assert code == 1 and "you do not see the same members" in err


def test_words_that_were_read_out_are_compared(run, crew) -> None:
    code, _, err = run(["verify", "hikers", "bob", "--words", " ".join(WORDS)])
    assert code == 0 and "The words are the same." in err
    assert of(crew, "verify") == []
    usual = crew.answers["words"]

    def like_an_agent(params: WordsParams) -> WordsInfo:
        if params.said and len(params.said.split()) != 8:
            raise NotTheWords(why="Eight words are needed; you gave 1.")
        words: WordsInfo = usual(params)
        return replace(words, differ=[1, 8] if params.said == other else [])

    crew.answers["words"] = like_an_agent
    for other in ("apple", "", "  "):
        code, out, err = run(["verify", "hikers", "bob", "--words", other, "--mark"])
        assert (code, out) == (2, "") and "you gave 1" in err and "differ" not in err
    other = " ".join(["stone", *WORDS[1:7], "stone"])
    code, _, err = run(["verify", "hikers", "bob", "--words", other, "--mark"])
    assert code == 1 and "The words differ at places 1 and 8." in err and "verified" not in err
    assert of(crew, "verify") == [], "what differs is never marked"
    assert run(["verify", "hikers", "bob", "--words", " ".join(WORDS), "--mark"])[0] == 0
    assert run("verify hikers bob --unmark")[2].endswith("Bob is not verified any more.\n")
    assert of(crew, "verify") == [VerifyParams("GROUPID", BOB, True), VerifyParams("GROUPID", BOB, False)]


def test_what_cannot_be_marked(run, crew) -> None:
    for line in ("verify hikers --mark", "verify hikers --unmark", "verify hikers bob --unmark --words x"):
        code, out, _ = run(line)
        assert (code, out) == (2, "")
    assert crew.asked == []


# --- when one has been put out --------------------------------------------------------------------------------------


def test_a_tail_ends_when_one_is_put_out(run, crew, monkeypatch) -> None:
    monkeypatch.setattr("zerochat.cli.talk.LAST_S", 0.1)
    crew.answers["history"] = lambda _: History([event(1)], more=False)
    out_of_it = replace(CREW, state="left", removed_by=Author(BOB, "Bob"))
    states = iter([CREW])

    def groups(_: NoParams) -> list[GroupInfo]:
        now = next(states, out_of_it)
        if now is CREW:
            asked = RequestNews(group="GROUPID", member="did:key:z6MkD", nick="dave", state="asked")
            end = event(2, type="member_removed", body={"did": ALICE, "nick": "alice"}, replayed=False)
            for client in crew.subscribers:
                crew.server.notify([client], "request", asked)
                crew.server.notify([client], "removed", RemovedNews("GROUPID", BOB, "Bob"))
                crew.server.notify([client], "event", end)
        return [now]

    crew.answers["groups"] = groups
    code, out, err = run("tail hikers")
    assert code == 8
    assert out.splitlines()[-1] == "2026-07-01 12:04  * bob put alice out"
    assert "dave asks to be let in: `zerochat requests hikers`" in err
    assert err.endswith(
        "You are no longer in hikers: Bob has put you out. Its history stays here; to come back you need a new"
        " invitation.\n"
    )
    code, out, err = run("tail hikers")
    assert code == 8 and "message 1" in out, "a second time it ends at once"
    crew.answers["groups"] = lambda _: [replace(out_of_it, removed_by=Author(ALICE, "alice"))]
    assert "whoever let you in was put out before" in run("tail hikers")[2]


def test_a_status_says_who_waits_and_where_one_is_out(run, crew) -> None:
    gone = replace(HIKERS, name="gone", id="G2", state="left", removed_by=Author(BOB, "Bob"))
    crew.answers["status"] = lambda _: replace(test_cli.STATUS, groups=[CREW, gone])
    code, out, err = run("status")
    assert code == 0 and "put out" in out.splitlines()[-1]
    assert err == "Waiting to be let into hikers: dave⏎. `zerochat requests hikers`.\n"


# --- real agents ----------------------------------------------------------------------------------------------------


@pytest.fixture
def two(run) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """`two("bob", "send hikers -m hello")`: Alice and Bob, each with an agent that runs."""
    threads = []
    for name in ("alice", "bob"):
        profile = places(name, os.environ)
        create_profile(profile, name, None)
        threads.append(AgentThread(profile, unlock(profile, None), listen="127.0.0.1"))
        threads[-1].start()
    yield lambda who, line, **more: run(f"--profile {who} {line}", **more)
    for thread in threads:
        thread.stop()


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)
    return found


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
    until(lambda: "alice is called ally now" in two("bob", "history hikers")[1], "the new name")
    assert re.search(r"ally  writer  connected   [\d: -]+  same  verified", two("bob", "members hikers")[1])
    assert two("bob", "role hikers reader")[0] == 0
    code, _, err = two("bob", "send hikers -m x")
    assert code == 1 and "only read" in err
    until(lambda: "bob is a reader now" in two("alice", "history hikers")[1], "the new role")

    assert two("alice", "remove hikers bob --yes")[:2] == (0, "bob is out\n")
    until(lambda: "put out" in two("bob", "status")[1], "hearing of it")
    code, _, err = two("bob", "send hikers -m x")
    assert code == 8 and "ally has put you out" in err
    assert two("bob", "history hikers")[1].endswith("ally put bob out\n")


@pytest.mark.slow
def test_a_group_that_one_asks_to_be_let_into(two) -> None:
    _, group, _ = two("alice", "new crew --join ask --roles admins")
    link = two("alice", "invite crew --read-only --format url")[1]
    code, _, err = two("bob", "join - --read-only --timeout 4", stdin=link.encode())
    assert code == 5 and "Nobody has let you in yet." in err
    asked = json.loads(two("alice", "requests crew --format jsonl")[1])
    assert (asked["nick"], asked["role"]) == ("bob", "reader")
    assert " ".join(asked["words"][:4]) in err, "both see the same words"
    assert "Waiting to be let into crew: bob." in two("alice", "status")[2]
    assert two("alice", "admit crew bob")[:2] == (0, asked["did"] + "\n")
    until(lambda: "crew" in two("bob", "status")[1], "coming in")
    assert two("alice", "requests crew")[1] == ""
    assert json.loads(two("bob", "info crew --format jsonl")[1])["role"] == "reader"
    assert two("alice", "role crew bob writer")[0] == 0
    until(lambda: two("bob", "send crew -m hello")[0] == 0, "writing")
    code, _, err = two("bob", "remove crew alice --yes")
    assert code == 1 and "the owner" in err
    assert group.strip() in two("alice", "info crew")[1]
