"""Verbs that cancel a join or forget a group, and warnings about members that never connected."""

import json
import os
import re

import pytest
from msgspec.structs import replace

from tests.support import cli_harness, cli_members
from tests.support.cli_harness import STATUS, joining, of
from tests.support.cli_members import CREW, PEOPLE, until
from zerochat.agent.api.client import Client
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.presentation import group_rules
from zerochat.rpc import CancelJoinParams, DismissWarningsParams, GroupParams, NoParams, WarningNotification

home, agent, run, crew, two = (
    cli_harness.home,
    cli_harness.agent,
    cli_harness.run,
    cli_members.crew,
    cli_members.two,
)


# --- joins ----------------------------------------------------------------------------------------------------------


def test_status_shows_since_when_a_join_waits(run, crew) -> None:
    times = {"started_at": "2026-07-01T12:09:00Z", "expires_at": "2026-07-02T12:09:00Z", "name": "crew"}
    asking = replace(joining("asking", "Asking."), words=["x"] * 8, **times)
    looking = replace(joining("dialling", "Looking."), started_at=times["started_at"])
    crew.answers["get_status"] = lambda _: replace(STATUS, joins=[asking, looking])
    out = run("status")[1]
    assert "waiting for approval since 2026-07-01 12:09 until 2026-07-02 12:09" in out
    assert "dialling since 2026-07-01 12:09" in out


@pytest.mark.parametrize(("line", "which"), [("join --cancel", ""), ("join --cancel crew", "crew")])
def test_a_join_is_cancelled(run, crew, line, which) -> None:
    crew.answers["cancel_join"] = lambda _: replace(joining("failed", "Given up."), name="crew")
    code, out, err = run(line)
    assert (code, out, err) == (0, f"{joining('failed', '').join}\n", "Cancelled the join of crew.\n")
    assert of(crew, "cancel_join") == [CancelJoinParams(which)]


def test_an_invitation_cannot_be_cancelled_and_used_at_once(run, crew) -> None:
    assert run("join ZC:1 --cancel")[0] == 2
    assert of(crew, "cancel_join") == of(crew, "join_group") == []


@pytest.mark.slow
def test_a_waiting_join_can_be_cancelled_and_repeated(two) -> None:
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
def test_a_temporary_agent_stays_until_the_inviter_knows(run) -> None:
    for name in ("alice", "bob"):
        create_profile(profile_paths(name, os.environ), name, None)
    alice = profile_paths("alice", os.environ)
    with AgentThread(alice, unlock(alice, None), listen="127.0.0.1"):
        run("--profile alice new crew --join ask")
        link = run("--profile alice invite crew --format url")[1].encode()
        assert run("--profile bob join - --timeout 3", stdin=link)[0] == 5
        assert json.loads(run("--profile alice requests crew --format jsonl")[1])["nick"] == "bob"
        assert run("--profile bob join --cancel")[0] == 0
        assert run("--profile alice requests crew")[1] == "", "at once, for nobody will say it later"


# --- groups that are over -------------------------------------------------------------------------------------------


def test_forgetting_a_group_needs_confirmation(run, crew) -> None:
    crew.answers["forget_group"] = lambda _: NoParams()
    crew.answers["list_groups"] = lambda _: [replace(CREW, state="left")]
    code, _, err = run("forget hikers")
    assert code == 2 and "Forgetting hikers requires confirmation" in err
    code, _, err = run("forget hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "deleted from this machine" in err and of(crew, "forget_group") == []
    assert run("forget hikers --yes") == (0, "GROUPID\n", "Deleted hikers from this machine.\n")
    assert of(crew, "forget_group") == [GroupParams("GROUPID")]


def test_forgetting_waits_for_members_to_learn_of_the_leave(run, crew, monkeypatch) -> None:
    states = ["leaving", "leaving", "left"]
    crew.answers["forget_group"] = lambda _: NoParams()
    crew.answers["list_groups"] = lambda _: [replace(CREW, state=states.pop(0) if len(states) > 1 else states[0])]
    waiting = "Waiting until the members of hikers know that you left, for at most 30 seconds (Ctrl+C stops waiting)…\n"
    assert run("forget hikers --yes") == (0, "GROUPID\n", f"{waiting}Deleted hikers from this machine.\n")
    assert "waits until the members know that you left" in " ".join(run("forget --help")[1].split())
    states[:] = ["leaving"]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "next_notification", interrupted)
    assert run("forget hikers --yes") == (130, "", waiting)
    assert len(of(crew, "forget_group")) == 1


def test_forgetting_a_group_deletes_only_that_group(two) -> None:
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


def test_resuming_a_restored_profile_needs_confirmation(run, crew) -> None:
    silent = replace(CREW, suspended=True)
    crew.answers["resume_group"] = lambda _: CREW
    crew.answers["list_groups"] = lambda _: [silent]
    crew.answers["get_status"] = lambda _: replace(STATUS, groups=[silent])
    assert "hikers:  cannot post yet (restored from a backup)" in run("status")[1]
    code, _, err = run("resume hikers")
    assert code == 2 and "Resuming hikers requires confirmation" in err
    code, _, err = run("resume hikers", stdin=b"n\n", tty=True)
    assert code == 1 and "Nothing was changed." in err and of(crew, "resume_group") == []
    assert "Resume hikers?" in err and "will see two contradicting histories" in err
    assert run("resume hikers", stdin=b"y\n", tty=True)[0] == 0
    assert run("resume hikers --yes") == (0, "GROUPID\n", "You can post in hikers again.\n")
    assert of(crew, "resume_group") == [GroupParams("GROUPID")] * 2


def test_resume_without_need_is_refused(two) -> None:
    two("alice", "new hikers")
    code, _, err = two("alice", "resume hikers --yes")
    assert code == 1 and "nothing to resume in hikers" in err


# --- what to be careful with ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("may", [["remove"], []])
def test_a_member_that_never_connected_is_named_with_a_remedy(run, crew, may) -> None:
    crew.answers["list_members"] = lambda _: [PEOPLE[0], replace(PEOPLE[1], arrived=False, allowed_actions=may)]
    _, out, err = run("members hikers")
    assert "never connected" in out and "You admitted Bob, who has never connected" in err
    assert ("Remove it with `zerochat remove hikers Bob`" in err) is bool(may)
    assert re.search(r"(?m)^never connected +Bob$", run("info hikers")[1])


def test_a_warning_is_shown_until_it_is_dismissed(run, crew) -> None:
    doubt = WarningNotification("GROUPID", PEOPLE[1].did, "Bob", "Bob has signed\x1b two different histories.")
    warned = replace(CREW, warnings=[doubt], requests=[])
    crew.answers["get_status"] = lambda _: replace(STATUS, groups=[warned])
    _, _, err = run("status")
    assert "Warning, hikers: Bob has signed␛ two different histories." in err
    assert "To dismiss: `zerochat members --dismiss hikers`" in err
    crew.answers["list_members"] = lambda _: [replace(PEOPLE[1], forked=True)]
    crew.answers["dismiss_warnings"] = lambda _: CREW
    assert "two contradicting histories" in run("members hikers")[2] and of(crew, "dismiss_warnings") == []
    code, out, err = run("members hikers --dismiss")
    assert code == 0 and "FORKED" in out and "two contradicting histories" not in err
    assert of(crew, "dismiss_warnings") == [DismissWarningsParams("hikers")]


@pytest.mark.parametrize(("remove", "said"), [("admins", True), ("quorum", False)])
def test_an_owner_leaving_a_group_without_admins_is_warned(remove, said) -> None:
    policy = replace(CREW.policy, remove=remove)
    group, members = replace(CREW, policy=policy), [PEOPLE[0], PEOPLE[2]]
    sentence = group_rules.owner_leaving_warning(group, members)
    assert "Consider handing over the group first" in sentence and ("remove members" in sentence) is said
    assert (
        group_rules.owner_leaving_warning(group, members[:1])
        == group_rules.owner_leaving_warning(replace(group, role="admin"), members)
        == ""
    )
