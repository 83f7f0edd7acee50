"""Joining and leaving, and where an invitation comes from."""

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import (
    ARCHIVE,
    HIKERS,
    INVITATION,
    STATUS,
    follow,
    joining,
    of,
)
from zerochat.agent.storage.paths import profile_paths
from zerochat.rpc import (
    JoinGroupParams,
    JoinStatus,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)


# --- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "code", "out"),
    [
        (
            [
                JoinStatus(join="another", phase="failed", text="Not ours."),
                joining("dialling", "Looking at 192.0.2.7…"),
                joining("exchanging", "Found."),
                joining("joined", "You are in hikers.", group="GROUPID", connected=1, members=2),
            ],
            0,
            "GROUPID\n",
        ),
        ([joining("failed", "Nobody answered.", error="JoinFailed")], 3, ""),
        ([joining("exchanging", "Found."), joining("failed", "Used up.", error="JoinFailed")], 1, ""),
        ([joining("exchanging", "Found.")], 5, ""),
    ],
)
def test_a_join_is_narrated_to_its_end(run, agent, phases, code, out) -> None:
    served = agent()
    served.answers["join_group"] = follow(lambda: served, *phases)
    ended, printed, err = run("join - --name Al --timeout 0.2", stdin=b" ZC:6BF \n")
    assert (ended, printed) == (code, out)
    ours = [phase.text for phase in phases if phase.join == "J"]
    assert err.splitlines()[: len(ours)] == ours
    assert of(served, "join_group") == [JoinGroupParams("ZC:6BF", "Al")]
    assert "command line" not in err


def test_sources_of_an_invitation(run, agent) -> None:
    served = agent()
    served.answers["join_group"] = follow(lambda: served, joining("joined", "In.", group="GROUPID"))
    assert "join -" in run("join ZC:1")[2]
    assert "Paste the invitation" in run("join", stdin=b"ZC:2\nrest", tty=True)[2]
    assert run("join", stdin=b"ZC:\n3")[0] == 0
    assert json.loads(run("join - --format jsonl", stdin=b"ZC:4")[1])["name"] == "hikers"
    assert [params.invitation for params in of(served, "join_group")] == ["ZC:1", "ZC:2", "ZC:\n3", "ZC:4"]
    assert run("join -", stdin=b"  \n")[0] == 2
    assert run("join", stdin=b"\n", tty=True)[0] == 2


def test_leaving_needs_confirmation(run, agent) -> None:
    served = agent(leave_group=lambda _: HIKERS)
    assert run("leave hikers")[0] == 2
    code, out, err = run("leave hikers", stdin=b"\n", tty=True)
    assert (code, out) == (1, "")
    assert "[y/N]" in err
    assert of(served, "leave_group") == []
    assert run("leave hikers", stdin=b"y\n", tty=True)[:2] == (0, "GROUPID\n")


def test_joins_under_way_are_listed(run, usual) -> None:
    from msgspec.structs import replace

    asking = joining(
        "asking", "A member was asked…", name="crew two", words=["apple"], expires_at="2026-07-02T12:04:00Z"
    )
    failed = joining("failed", "You did not get in: no answer came.")
    usual.answers["get_status"] = lambda _: replace(STATUS, joins=[asking, failed])
    _, out, _ = run("status")
    assert "joining crew two  waiting for approval until 2026-07-02 12:04  A member was asked…\n" in out
    assert "joining           failed" in out and "no answer came" in out
    assert json.loads(run("status --format jsonl")[1])["joins"][0]["name"] == "crew two"
    usual.answers["get_status"] = lambda _: replace(STATUS, groups=[replace(HIKERS, state="left", members=0)])
    assert "hikers  left   -        -          -               -     GROUPID" in run("status")[1]


# --- short links and mediators' invitations ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["join", "connect", "route add"])
def test_a_short_link_is_fetched_first_and_through_the_proxy(run, agent, home, monkeypatch, verb) -> None:
    from concurrent.futures import Future

    from msgspec.structs import replace

    asked: list[Any] = []

    def fetch(uri: str, **options: Any) -> "Future[str]":
        asked.append((uri, options["socks"]))
        future: Future[str] = Future()
        future.set_result('{"id":"1"}' if verb == "connect" else "https://x/?_oob=e30")
        return future

    monkeypatch.setattr("zerochat.agent.invitations.resolving.fetch_invitation", fetch)
    config = profile_paths(None, os.environ).config
    config.parent.mkdir(parents=True)
    config.write_text('[network]\nsocks = "127.0.0.1:9050"\n')
    served = agent(list_connections=lambda _: [])
    served.answers["join_group"] = lambda _: joining("joined", "In.", group="GROUPID")
    served.answers["open_connection"] = lambda params: replace(ARCHIVE, mediator="granted" if params.mediate else None)
    for line in ("https://x.example/?_oobid=1", "HTTP://x.example/a?b=c&_oobid=1"):
        code, _, err = run([*verb.split(), "-"], stdin=line.encode() + b"\n")
        assert code == 0
        assert "Resolving" in err
    assert asked == [
        ("https://x.example/?_oobid=1", "127.0.0.1:9050"),
        ("HTTP://x.example/a?b=c&_oobid=1", "127.0.0.1:9050"),
    ]
    given = of(served, "join_group" if verb == "join" else "open_connection")[0].invitation
    assert given == ("https://zerochat.org/?_oob=eyJpZCI6IjEifQ" if verb == "connect" else "https://x/?_oob=e30")
    assert run([*verb.split(), "-"], stdin=b"https://x/?_oob=e30")[2].count("Resolving") == 0


def test_a_short_link_is_not_fetched_where_its_server_would_see_the_address(run, agent, home, monkeypatch) -> None:
    from concurrent.futures import Future

    from msgspec.structs import replace

    asked: list[str] = []

    def fetch(uri: str, **options: Any) -> "Future[str]":
        asked.append(uri)
        future: Future[str] = Future()
        future.set_result("https://x/?_oob=e30")
        return future

    monkeypatch.setattr("zerochat.agent.invitations.resolving.fetch_invitation", fetch)
    config = profile_paths(None, os.environ).config
    config.parent.mkdir(parents=True)
    config.write_text('[network]\nhidden = "always"\n')
    served = agent(list_connections=lambda _: [])
    served.answers["open_connection"] = lambda params: replace(ARCHIVE, mediator="granted")
    for verb in ("join", "connect"):
        code, _, err = run(f"{verb} -", stdin=b"http://x.example/?_oobid=1\n")
        assert code == 1 and "would see the address of this machine" in err
    assert asked == [] and not of(served, "open_connection")
    assert run("route add -", stdin=b"http://relay.example/?_oobid=1\n")[0] == 0
    assert asked == ["http://relay.example/?_oobid=1"], "of one's own mediator"


def test_a_short_link_that_leads_nowhere(run, agent) -> None:
    served = agent()
    code, out, err = run("join -", stdin=b"http://127.0.0.1:1/?_oobid=1")
    assert (code, out) == (3, "")
    assert "cannot be resolved now: the server is unreachable" in err
    assert of(served, "join_group") == []


@pytest.mark.parametrize(
    ("kind", "why", "code", "said"),
    [
        ("ShortLinkGone", "the server answered with status 404", 1, "no longer exists"),
        ("ShortLinkUnanswered", "the host was not found", 3, "cannot be resolved now: the host"),
        (
            "NoInvitationThere",
            "what is there is too long",
            1,
            "There is no invitation behind this short link: what is there is too long",
        ),
    ],
)
def test_why_a_short_link_leads_nowhere(run, agent, monkeypatch, kind, why, code, said) -> None:
    from zerochat.agent.network.web import short_link_fetch

    def fetch(uri: str, **options: Any) -> Any:
        raise getattr(short_link_fetch, kind)(why=why)

    monkeypatch.setattr(
        "zerochat.agent.invitations.resolving.fetch_invitation",
        lambda *a, **o: SimpleNamespace(result=lambda: fetch("")),
    )
    agent()
    for verb in ("join", "connect", "route add"):
        ended, _, err = run([*verb.split(), "-"], stdin=b"http://192.0.2.1/?_oobid=1")
        assert ended == code and said in err and "zerochat invite" not in err


def test_an_invitation_over_a_mediator_has_no_code(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(create_invitation=lambda _: replace(INVITATION, code="", endpoint="https://relay.example"))
    code, out, err = run("invite hikers")
    assert code == 0 and "code" not in out and "address  https://relay.example" in out
    code, out, err = run("invite hikers --format code")
    assert (code, out) == (1, "") and "--format url" in err
    code, out, err = run("invite hikers --format qr")
    assert code == 0 and out.startswith(INVITATION.url + "\n\n\x1b[30;107m")
    long = replace(INVITATION, code="", url="https://x/?_oob=" + "a" * 3_000)
    served.answers["create_invitation"] = lambda _: long
    assert run("invite hikers --format qr") == (0, long.url + "\n\n", "The link is too long for a QR code.\n")
