"""Giving a join up, forgetting a group, and what the verbs say of whoever never arrives."""

import json
import os
import re

import pytest
from msgspec.structs import replace

from tests.cli import test_members
from tests.cli.test_cli import STATUS, joining, of
from tests.cli.test_members import CREW, PEOPLE, until
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage.paths import places
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.presentation import group_rules
from zerochat.rpc import CancelParams, DisagreementNews, DismissParams, GroupParams, NoParams

home, agent, run, crew, two = (
    test_members.home,
    test_members.agent,
    test_members.run,
    test_members.crew,
    test_members.two,
)


# --- joins ----------------------------------------------------------------------------------------------------------


def test_a_status_says_since_when_a_join_waits(run, crew) -> None:
    times = {"since": "2026-07-01T12:09:00Z", "until": "2026-07-02T12:09:00Z", "name": "crew"}
    asking = replace(joining("asking", "Asking."), words=["x"] * 8, **times)
    looking = replace(joining("dialling", "Looking."), since=times["since"])
    crew.answers["status"] = lambda _: replace(STATUS, joins=[asking, looking])
    out = run("status")[1]
    assert "waits for an answer since 2026-07-01 12:09 until 2026-07-02 12:09" in out
    assert "dialling since 2026-07-01 12:09" in out


@pytest.mark.parametrize(("line", "which"), [("join --cancel", ""), ("join --cancel crew", "crew")])
def test_a_join_is_given_up(run, crew, line, which) -> None:
    crew.answers["cancel"] = lambda _: replace(joining("failed", "Given up."), name="crew")
    code, out, err = run(line)
    assert (code, out, err) == (0, f"{joining('failed', '').join}\n", "You have given up joining crew.\n")
    assert of(crew, "cancel") == [CancelParams(which)]


def test_an_invitation_is_not_given_up_and_used_at_once(run, crew) -> None:
    assert run("join ZC:1 --cancel")[0] == 2
    assert of(crew, "cancel") == of(crew, "join") == []


@pytest.mark.slow
def test_whoever_waits_gives_up_and_may_come_again(two) -> None:
    two("alice", "new crew --join ask")
    link = two("alice", "invite crew --format url")[1].encode()
    assert two("bob", "join --cancel")[0] == 1
    assert two("bob", "join - --timeout 3", stdin=link)[0] == 5
    assert " since " in two("bob", "status")[1]
    assert two("bob", "join --cancel crew")[0] == 0
    until(lambda: two("alice", "requests crew")[1] == "", "taking it back")
    assert two("bob", "join - --timeout 3", stdin=link)[0] == 5
    assert two("alice", "admit crew bob")[0] == 0
    until(lambda: "crew" in two("bob", "info crew")[1], "coming in")


@pytest.mark.slow
def test_an_agent_of_its_own_stays_until_the_inviter_knows(run) -> None:
    for name in ("alice", "bob"):
        create_profile(places(name, os.environ), name, None)
    alice = places("alice", os.environ)
    with AgentThread(alice, unlock(alice, None), listen="127.0.0.1"):
        run("--profile alice new crew --join ask")
        link = run("--profile alice invite crew --format url")[1].encode()
        assert run("--profile bob join - --timeout 3", stdin=link)[0] == 5
        assert json.loads(run("--profile alice requests crew --format jsonl")[1])["nick"] == "bob"
        assert run("--profile bob join --cancel")[0] == 0
        assert run("--profile alice requests crew")[1] == "", "at once, for nobody will say it later"


# --- groups that are over -------------------------------------------------------------------------------------------


def test_a_group_is_forgotten_when_that_is_confirmed(run, crew) -> None:
    crew.answers["forget"] = lambda _: NoParams()
    crew.answers["groups"] = lambda _: [replace(CREW, state="left")]
    code, _, err = run("forget hikers")
    assert code == 2 and "Forgetting hikers must be confirmed" in err
    code, _, err = run("forget hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "deleted on this machine" in err and of(crew, "forget") == []
    assert run("forget hikers --yes") == (0, "GROUPID\n", "hikers is forgotten.\n")
    assert of(crew, "forget") == [GroupParams("GROUPID")]


def test_what_is_forgotten_is_gone_and_nothing_else(two) -> None:
    two("alice", "new hikers")
    two("alice", "new others")
    two("alice", "send others -m kept")
    code, _, err = two("alice", "forget hikers --yes")
    assert code == 1 and "`zerochat --profile alice leave hikers`" in err
    two("alice", "send hikers -m secret")
    assert two("alice", "leave hikers --yes")[0] == 0
    assert "secret" in two("alice", "history hikers")[1]
    assert two("alice", "forget hikers --yes")[0] == 0
    assert two("alice", "history hikers")[0] == 1 and "hikers" not in two("alice", "status")[1]
    assert "kept" in two("alice", "history others")[1]


def test_an_older_copy_goes_on_when_that_is_confirmed(run, crew) -> None:
    silent = replace(CREW, suspended=True)
    crew.answers["resume"] = lambda _: CREW
    crew.answers["groups"] = lambda _: [silent]
    crew.answers["status"] = lambda _: replace(STATUS, groups=[silent])
    assert "hikers:  nothing can be said there yet" in run("status")[1]
    code, _, err = run("resume hikers")
    assert code == 2 and "Resuming hikers must be confirmed" in err
    code, _, err = run("resume hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "Nothing was changed." in err and of(crew, "resume") == []
    assert "Resume hikers?" in err and "will see two histories from you, and tell others to be careful" in err
    assert run("resume hikers", stdin=b"y\n", tty=True)[0] == 0
    assert run("resume hikers --yes") == (0, "GROUPID\n", "You can speak in hikers again.\n")
    assert of(crew, "resume") == [GroupParams("GROUPID")] * 2


def test_nothing_is_asked_where_there_is_nothing_to_resume(two) -> None:
    two("alice", "new hikers")
    code, _, err = two("alice", "resume hikers --yes")
    assert code == 1 and "nothing to resume in hikers" in err


# --- what to be careful with ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("may", [["remove"], []])
def test_whoever_never_arrived_is_named_with_what_to_do(run, crew, may) -> None:
    crew.answers["members"] = lambda _: [PEOPLE[0], replace(PEOPLE[1], arrived=False, may=may)]
    _, out, err = run("members hikers")
    assert "never arrived" in out and "You have let Bob in, and nothing was ever heard from there" in err
    assert ("`zerochat remove hikers Bob` puts it out" in err) is bool(may)
    assert re.search(r"(?m)^never arrived +Bob$", run("info hikers")[1])


def test_a_warning_is_given_until_it_is_dismissed(run, crew) -> None:
    doubt = DisagreementNews("GROUPID", PEOPLE[1].did, "Bob", "Bob has signed\x1b two different histories.")
    warned = replace(CREW, disagreements=[doubt], requests=[])
    crew.answers["status"] = lambda _: replace(STATUS, groups=[warned])
    _, _, err = run("status")
    assert "Careful, in hikers: Bob has signed␛ two different histories." in err
    assert "`zerochat members --dismiss hikers`" in err
    crew.answers["members"] = lambda _: [replace(PEOPLE[1], forked=True)]
    crew.answers["dismiss"] = lambda _: CREW
    assert "two histories" in run("members hikers")[2] and of(crew, "dismiss") == []
    code, out, err = run("members hikers --dismiss")
    assert code == 0 and "FORKED" in out and "two histories" not in err
    assert of(crew, "dismiss") == [DismissParams("hikers")]


@pytest.mark.parametrize(("remove", "said"), [("admins", True), ("quorum", False)])
def test_an_owner_hears_what_a_group_without_admins_cannot_do(remove, said) -> None:
    policy = replace(CREW.policy, remove=remove)
    group, members = replace(CREW, policy=policy), [PEOPLE[0], PEOPLE[2]]
    sentence = group_rules.owner_leaves(group, members)
    assert "Make somebody an admin first" in sentence and ("put anybody out" in sentence) is said
    assert (
        group_rules.owner_leaves(group, members[:1])
        == group_rules.owner_leaves(replace(group, role="admin"), members)
        == ""
    )
