"""Sending: waiting for acknowledgements, exit codes, refusals."""

import json
import os

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.cli_harness import (
    ALL,
    HALF,
    HIKERS,
    RELAY,
    SENT,
    STATUS,
    of,
)
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile
from zerochat.errors import LocalError, UnknownGroup
from zerochat.rpc import (
    Author,
    DeliveryReport,
    MemberDelivery,
    SendMessageParams,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)


BOB_REFUSES = MemberDelivery("did:key:bob", "bob", False, "held", connection="connected")
REFUSED = DeliveryReport("GROUPID", "EVENTID", 0, 2, False, [BOB_REFUSES])
SLOW = DeliveryReport("GROUPID", "EVENTID", 0, 2, False, [replace(BOB_REFUSES, state="sent")])


@pytest.mark.parametrize(
    ("line", "report", "code", "narration"),
    [
        ("--wait all", ALL, 0, ""),
        ("--wait all", HALF, 5, "It is sent again when"),
        ("--wait all", REFUSED, 5, "Your daily quota at bob is used up"),
        ("--wait all", SLOW, 5, "It is sent again until"),
        ("--wait 3", ALL, 5, "only 2 other members"),
        ("--wait 2 --format jsonl", ALL, 0, ""),
    ],
)
def test_waiting_for_acknowledgements(run, agent, line, report, code, narration) -> None:
    agent(send_message=lambda _: SENT, wait_for_delivery=lambda _: report)
    ended, out, err = run(f"send hikers -m x {line}")
    assert ended == code
    assert f"delivered to {report.delivered} of 2" in out or json.loads(out)["delivered"] == report.delivered
    assert narration in err
    assert ("when the other members can be reached" in err) == (report is HALF and code == 5)
    assert ("over your daily quota there" in out) == (report is REFUSED)


def test_a_used_up_quota_is_told_when_sending(run, agent) -> None:
    full = replace(HIKERS, quota_used_up=[Author("did:key:bob", "bob")])
    agent(
        send_message=lambda _: SENT, list_groups=lambda _: [full], get_status=lambda _: replace(STATUS, groups=[full])
    )
    code, out, err = run("send hikers -m x")
    assert (code, out) == (0, "EVENTID\n") and "your daily quota at bob is used up" in err
    assert "your daily quota at bob is used up" in run("status")[1]


def test_sending_without_connected_members_is_explained(run, agent) -> None:
    served = agent(send_message=lambda _: SENT, list_groups=lambda _: [replace(HIKERS, connected=0)])
    code, out, err = run("send hikers -m x")
    assert (code, out) == (3, "EVENTID\n")
    assert "Queued: none of the 2 other members is connected" in err
    served.answers["send_message"] = lambda _: replace(SENT, of=1)
    assert "Queued: the other member is not connected. It is sent when it connects." in run("send hikers -m x")[2]
    served.answers["send_message"] = lambda _: replace(SENT, of=0)
    code, out, err = run("send hikers -m x")
    assert (code, out) == (0, "EVENTID\n")
    assert "only member" in err
    served.answers["wait_for_delivery"] = lambda params: DeliveryReport(
        "GROUPID", "EVENTID", 0, 0, params.count == -1, []
    )
    for wanted, ended in (("all", 0), ("1", 5)):
        code, out, err = run(f"send hikers -m x --wait {wanted}")
        assert (code, out) == (ended, "delivered to 0 of 0\n")
        assert "only member" in err and err.count("\n") == 1


def test_sending_without_a_route_says_what_to_do(run, agent) -> None:
    apart = replace(HIKERS, connected=0)
    status = replace(STATUS, hidden=True, sends="nothing")
    served = agent(
        send_message=lambda _: SENT,
        list_groups=lambda _: [apart],
        get_status=lambda _: status,
        wait_for_delivery=lambda _: DeliveryReport("GROUPID", "EVENTID", 0, 2, False, SLOW.members),
    )
    for line, ended in (("send hikers -m x", 3), ("send hikers -m x --wait all", 5)):
        code, out, err = run(line)
        assert (code, out.splitlines()[-1]) == (ended, "EVENTID" if ended == 3 else "delivered to 0 of 2")
        assert "Nothing can leave until there is a route" in err and "`zerochat route add LINK`" in err
    served.answers["get_status"] = lambda _: replace(status, mediators=[RELAY])
    code, _, err = run("send hikers -m x")
    assert code == 3 and "none of them can be reached and sends for it" in err


def test_a_temporary_agent_without_a_route_says_what_to_do(run, alone) -> None:
    alone["wait_for_delivery"] = lambda _: DeliveryReport("GROUPID", "EVENTID", 0, 2, False, [])
    alone["get_status"] = lambda _: replace(STATUS, hidden=True, sends="nothing")
    code, out, err = run("send hikers -m x")
    assert (code, out) == (3, "EVENTID\n")
    assert "Nothing can leave until there is a route" in err


@pytest.mark.parametrize(
    ("stdin", "tty", "code", "why"),
    [
        (b"", False, 2, "The message is empty"),
        (b" \n\n", False, 2, "The message is empty"),
        (b"", True, 2, "The message is empty"),
        (b"\xff\xfe", False, 1, "not UTF-8"),
        (b"x" * 300_000, False, 1, "Split it"),
    ],
)
def test_unsendable_text_is_refused(run, agent, stdin, tty, code, why) -> None:
    served = agent(send_message=lambda _: SENT)
    ended, out, err = run("send hikers", stdin=stdin, tty=tty)
    assert (ended, out) == (code, "")
    assert why in err
    assert of(served, "send_message") == []


def test_a_broken_argument_is_not_sent(run, agent) -> None:
    served = agent(send_message=lambda _: SENT)
    assert run(["send", "hikers", "-m", "\udcff"])[0] == 1
    assert of(served, "send_message") == []


def test_refusals_are_sentences(run, agent) -> None:
    class ChangedIdentity(LocalError):
        """{who} is not who it was."""

        exit_code = 4

    def refuse(params: SendMessageParams) -> None:
        raise UnknownGroup(group=params.group)

    served = agent(send_message=refuse)
    code, out, err = run(["send", "hi\x1b[2J\u202ekers", "-m", "x"])
    assert (code, out) == (1, "")
    assert "Unknown group 'hi␛[2J\ufffdkers'." in err

    def doubt(params: SendMessageParams) -> None:
        raise ChangedIdentity(who="bob")

    served.answers["send_message"] = doubt
    assert run("send hikers -m x") == (4, "", "zerochat: bob is not who it was.\n")


def test_how_an_agent_is_reached(run, agent) -> None:
    relay = replace(RELAY, mediator="granted", reachable=True)
    hidden = replace(STATUS, hidden=True, web=["https://chat.example"], mediators=[relay, RELAY])
    served = agent(get_status=lambda _: hidden)
    lines = run("status")[1].splitlines()
    assert lines[2].startswith("hidden    this agent only dials")
    assert lines[3:6] == [
        "web       https://chat.example",
        "mediator  relay: active",
        "mediator  relay: no answer yet",
    ]
    served.answers["get_status"] = lambda _: replace(hidden, sends="mediator")
    assert run("status")[1].splitlines()[2].startswith("hidden    this agent connects to its own mediators only")


def test_notices_are_wrapped_for_a_terminal(run, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run("status")[2].count("\n") == 1
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    lines = run("status")[2].splitlines()
    assert len(lines) > 1 and any("`zerochat init --name NAME`" in line for line in lines)
    assert all(len(line) <= 40 for line in lines)


def test_there_is_no_status_without_an_agent(run) -> None:
    code, out, err = run("status --profile work")
    assert (code, out) == (6, "")
    assert "zerochat --profile work init --name NAME" in err
    create_profile(profile_paths("work", os.environ), "alice", None)
    code, out, err = run("status --profile work")
    assert (code, out) == (6, "")
    assert "zerochat --profile work agent" in err


def test_the_socket_of_a_dead_agent_is_no_agent(run, agent) -> None:
    served = agent()
    served.stop()
    served.server.path.touch()
    assert run("status")[0] == 6
