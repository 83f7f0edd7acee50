"""Verbs that start an agent of their own, and the verb agent."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import (
    ALL,
    HALF,
    HIKERS,
    INVITATION,
    MEMBERS,
    MEMBERS_TEXT,
    SENT,
    STATUS,
)
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import ProfileOwned
from zerochat.errors import LocalError
from zerochat.rpc import (
    DeliveryReport,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)


@pytest.mark.parametrize(
    ("report", "code", "narration"),
    [(ALL, 0, "Delivered to all 2"), (HALF, 0, "Delivered to 1 of 2 members. It is queued")],
)
def test_a_message_sent_by_a_temporary_agent(run, alone, report, code, narration) -> None:
    alone["wait_for_delivery"] = lambda _: report
    ended, out, err = run("send hikers -m x")
    assert (ended, out) == (code, "EVENTID\n")
    assert narration in err
    assert alone["stopped"]


def test_a_message_waits_until_an_agent_runs(run, alone) -> None:
    alone["wait_for_delivery"] = lambda _: DeliveryReport("GROUPID", "EVENTID", 0, 2, False, [])
    ended, out, err = run("send hikers -m x")
    assert (ended, out) == (3, "EVENTID\n")
    assert "until an agent runs" in err


def test_an_invitation_needs_an_agent_that_stays(run, alone) -> None:
    code, out, err = run("invite hikers --format url")
    assert (code, out) == (0, INVITATION.url + "\n")
    assert "zerochat agent" in err


def test_a_temporary_agent_connects_to_members_first(run, alone) -> None:
    from msgspec.structs import replace

    answers = iter([[replace(one, connection="unreachable") for one in MEMBERS[1:]]])
    here = [replace(one, connection="connected", trust="unverified", forked=False) for one in MEMBERS[1:]]
    alone["list_members"] = lambda _: [MEMBERS[0], *next(answers, here)]
    code, out, err = run("members hikers")
    assert (code, err) == (0, "")
    assert out.count("connected") == 2 and "via mediator" in out and "unreachable" not in out


def test_connections_of_an_agent_that_has_just_started(run, alone, monkeypatch) -> None:
    monkeypatch.setattr("zerochat.cli.verbs.members.CONNECT_S_MAX", 0.0)
    alone["list_members"] = lambda _: MEMBERS
    code, out, err = run("members hikers")
    assert (code, out) == (0, MEMBERS_TEXT)
    assert "started only for this command" in err
    alone["list_members"] = lambda _: MEMBERS[:1]
    assert run("members hikers")[2] == ""


def test_a_wrong_passphrase_is_prompted_for_again(run, alone, monkeypatch, tmp_path) -> None:
    from zerochat.agent.storage.profiles import WrongPassphrase

    def unlock(home: Any, passphrase: Callable[[], bytes]) -> bytes:
        if passphrase() != b"right":
            raise WrongPassphrase(profile="default")
        return b"key"

    alone["wait_for_delivery"] = lambda _: ALL
    monkeypatch.setattr("zerochat.agent.storage.profiles.unlock", unlock)
    monkeypatch.setattr("zerochat.cli.prompts._has_terminal", lambda: True)
    typed = iter(["a", "b", "right", "a", "b", "c", "a", "b", "c"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    code, _, err = run("send hikers -m x")
    assert code == 0 and err.count("Wrong passphrase.") == 2
    for line in ("send hikers -m x", "agent"):
        code, _, err = run(line)
        assert code == 6 and err.count("Wrong passphrase.") == 2 and err.endswith("Try again.\n")
    secret = tmp_path / "secret"
    secret.write_bytes(b"wrong\n")
    monkeypatch.setenv("ZEROCHAT_PASSPHRASE_FILE", str(secret))
    code, _, err = run("send hikers -m x")
    assert code == 6 and "Wrong passphrase. Try again." not in err


def test_the_loser_of_a_race_attaches_to_the_winner(run, alone, fake_agent) -> None:
    def race(thread: Any, starts: int) -> None:
        if starts == 2:
            fake_agent(path=thread.home.socket, send_message=lambda _: SENT, list_groups=lambda _: [HIKERS])
        raise ProfileOwned(profile="default", pid=1)

    alone["before_start"] = race
    code, out, err = run("send hikers -m x")
    assert (code, out, err) == (0, "EVENTID\n", "")


def test_the_agent_waits_for_the_profile(run, alone, monkeypatch) -> None:
    def owned(thread: Any, starts: int) -> None:
        if starts < 4:
            raise ProfileOwned(profile="default", pid=7)

    alone["before_start"] = owned
    alone["get_status"] = lambda _: STATUS
    alone["Thread"].is_alive = lambda self: False
    monkeypatch.setattr("zerochat.cli.verbs.agent.OWNER_RETRY_S", 0.001)
    monkeypatch.setattr("zerochat.cli.verbs.agent.OWNER_QUIET_S", 0.0)
    code, out, err = run("agent")
    assert code == 0 and out.startswith("ready ") and err.count("\n") == 1 and "process 7" in err
    monkeypatch.setattr("zerochat.cli.verbs.agent.OWNER_WAIT_S_MAX", 0.0)
    alone["Thread"].starts = 0
    code, out, err = run("agent")
    assert (code, out) == (6, "") and "is in use by a running agent" in err


def test_unknown_settings_are_reported(run, alone) -> None:
    home = profile_paths(None, os.environ)
    home.config.parent.mkdir(parents=True)
    home.config.write_text("[network]\nhiden = true\n")
    alone["get_status"] = lambda _: STATUS
    alone["Thread"].is_alive = lambda self: False
    alone["list_members"] = lambda _: MEMBERS[:1]
    for line in ("members hikers", "agent"):
        assert 'Unknown setting "network.hiden". Did you mean network.hidden?' in run(line)[2]


def test_an_agent_that_cannot_start(run, alone) -> None:
    class Full(LocalError):
        """The disk is full."""

    def fail(thread: Any, starts: int) -> None:
        raise Full

    alone["before_start"] = fail
    assert run("send hikers -m x") == (1, "", "zerochat: The disk is full.\n")


def test_the_failure_of_a_temporary_agent_is_explained(run, alone) -> None:
    class Broken(LocalError):
        """The journal is broken."""

        exit_code = 7

    def die(params: Any) -> None:
        alone["agent"].end()
        alone["Thread"].failure = Broken()

    alone["send_message"] = die
    code, out, err = run("send hikers -m x")
    assert (code, out, err) == (7, "", "zerochat: The journal is broken.\n")
