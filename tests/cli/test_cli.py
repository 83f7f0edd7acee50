"""The command line against a fake agent: requests, output, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import cli_harness
from tests.support.cli_harness import (
    ENOUGH,
    HALF,
    HIKERS,
    HISTORY,
    INVITATION,
    MEMBERS,
    SENT,
    STATUS,
    event,
    follow,
    heeded,
    joining,
    of,
    process,
)
from tests.support.marks import others_slow
from zerochat import __version__
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import ProfileOwned, create_profile
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.parser import parse
from zerochat.cli.verbs.profile import PATHS as PLACES
from zerochat.errors import LocalError, UnknownGroup
from zerochat.rpc import (
    ConnectionInfo,
    ConnectionMessage,
    ConnectionNotification,
    ConnectionOffer,
    CreateGroupParams,
    CreateInvitationParams,
    DeliveryReport,
    FeatureInfo,
    FeaturesNotification,
    History,
    HistoryParams,
    JoinGroupParams,
    JoinStatus,
    NoParams,
    OfferConnectionParams,
    OpenConnectionParams,
    PeerParams,
    PendingReply,
    PongNotification,
    ProblemNotification,
    QueryFeaturesParams,
    SendConnectionMessageParams,
    SendMessageParams,
    SentConnectionMessage,
    SubscribeParams,
    WaitParams,
)

agent, alone, home, run, usual = (
    cli_harness.agent,
    cli_harness.alone,
    cli_harness.home,
    cli_harness.run,
    cli_harness.usual,
)

VERBS = [
    *("chat", "demo", "init", "agent", "status", "paths"),
    *("new", "invite", "join", "leave", "info", "send", "tail", "history"),
    *("react", "edit", "delete", "topic"),
    *("delivery", "why", "audit", "export", "import"),
    *("members", "requests", "admit", "refuse", "remove", "role", "rename", "verify"),
    *("ping", "features", "rotate", "connect", "connections", "message", "messages", "disconnect", "route", "mediator"),
    *("sim", "doctor", "completion", "help", "man"),
]


REPORT = DeliveryReport("GROUPID", "EVENTID", 1, 2, False, [])
ALL = DeliveryReport("GROUPID", "EVENTID", 2, 2, True, HALF.members)


# --- the grammar ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["", *VERBS])
@pytest.mark.parametrize("columns", ["30", "80"])
def test_every_verb_has_help_with_examples(run, monkeypatch, verb: str, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, out, err = run([*verb.split(), "--help"])
    assert (code, err) == (0, "")
    assert f"usage: zerochat {verb}".strip() in " ".join(out.split())
    assert columns == "30" or all(len(line) <= 79 for line in out.splitlines())
    if verb:
        assert "examples:\n" in out and "zerochat" in out.split("examples:")[1]
    else:
        assert all(f"\n    {one}" in out for one in VERBS)
        assert all(f"{code.value:>5}  {code.sentence}\n" in out for code in ExitCode)


def test_version(run) -> None:
    assert run("--version") == (0, f"zerochat {__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("fly", "invalid choice"),
        ("sned", "did you mean 'send'?"),
        ("send", "GROUP"),
        ("--format xml status", "invalid choice"),
        ("status --format url", "invalid choice"),
        ("init", "--name"),
        ("invite hikers --expires 0h", "a duration such as"),
        ("invite hikers --expires 31d", "at most 30d"),
        ("invite hikers --expires soon", "a duration such as"),
        ("invite hikers --uses 0", "at least 1"),
        ("send hikers -m x --wait some", "is not any, all or a number"),
        ("send hikers -m x --wait 0", "at least 1"),
        ("send hikers -m x --wait all --timeout nan", "seconds"),
        ("tail hikers -n 1 --since 2", "not allowed with"),
        ("history hikers -n -1", "argument"),
        ("history hikers --al", "unrecognized"),
        ("send hikers hello", "Put the text in quotes after -m"),
        ("paths moon", "invalid choice"),
        ("new hikers --envelope mime", "invalid choice"),
        ("new hikers --removal everybody", "invalid choice"),
        ("new hikers --quorum 0", "at least 1"),
        ("role hikers bob owner", "invalid choice"),
        ("admit hikers", "NAME"),
        ("verify hikers bob --mark --unmark", "not allowed with"),
        ("ping", "PEER"),
        ("ping bob --count 0", "at least 1"),
        ("connect LINK --invite", "not allowed with"),
        ("connect --invite --expires 31d", "at most 30d"),
        ("route lose", "invalid choice"),
        ("agent --listen here", "not an IP address"),
        ("agent --listen 127.0.0.1:x", "a port is a number"),
        ("route remove", "NAME"),
        ("agent --advertise example.org", "peers do not look up names"),
        ("chat --advertise 203.0.113.7:4242", "an IP address without a port"),
        ("agent --advertise 0.0.0.0", "not reachable"),
    ],
)
def test_usage_errors_show_the_usage_line(run, line: str, why: str) -> None:
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert why in err
    assert err.startswith("usage: zerochat") and "--help' for more information." in err
    verb = line.split()[0]
    assert verb not in VERBS or f"Try 'zerochat {verb}" in err


@pytest.mark.parametrize(
    ("line", "profile", "format_"),
    [
        ("status", None, "text"),
        ("--profile work status", "work", "text"),
        ("status --profile work", "work", "text"),
        ("--profile home status --profile work", "work", "text"),
        ("--format jsonl --profile work status", "work", "jsonl"),
        ("--format jsonl status --format text", None, "text"),
        ("invite hikers --format url", None, "url"),
        ("--format jsonl invite hikers", None, "jsonl"),
        ("--profile work", "work", "text"),
    ],
)
def test_common_options_stand_before_or_after_the_verb(line: str, profile: str | None, format_: str) -> None:
    options = parse(line.split())
    assert (options.profile, options.format) == (profile, format_)
    assert options.verb == ("chat" if line == "--profile work" else "status" if "status" in line else "invite")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)])
def test_times(text: str, seconds: int) -> None:
    assert parse(["invite", "g", "--expires", text]).expires_s == seconds


# --- what is printed ------------------------------------------------------------------------------------------------

TEXT = {
    "status": """\
profile        default (alice)
agent          zerochat 0.1.0, process 4242, up 2 h
pair address   zmq+tcp://192.0.2.7:4242
queue address  zmq+tcp://192.0.2.7:4243

GROUP   STATE   MEMBERS  CONNECTED  UNACKNOWLEDGED  VIEW      ID
hikers  active  3        1/2        2               01234567  GROUPID
""",
    "members hikers": """\
NAME           ROLE    CONNECTION    LAST SEEN  VIEW     TRUST     KEY
alice          writer  you           -          -        -         did:key:z6MkAlice
bob␛[2J [bot]  writer  connected     never      same     verified  did:key:z6MkBobb
卡羅           reader  via mediator  never      differs  CHANGED   did:key:z6MkCarol
dave           writer  unreachable   never      -        FORKED    did:key:z6MkCarol2
""",
    "history hikers": """\
2026-07-01 12:04  * alice created the group hikers
2026-07-01 12:04  * alice admitted bob
2026-07-01 12:04  bob: two
    lines␛]0;owned␇
2026-07-01 12:04  bob#arol: I am bob \ufffd too  (late)
2026-07-01 12:04  alice: hello 😀  ✓1/2
2026-07-01 12:04  * bob left
2026-07-01 12:04  * alice voted to remove carol
2026-07-01 12:04  * alice removed carol⏎
2026-07-01 12:04  * alice made bob an admin
2026-07-01 12:04  * alice is now a reader
2026-07-01 12:04  * alice is now called al␛
""",
    "invite hikers": """\
link     https://zerochat.org/?_oob=eyJ0
code     ZC:6BF
valid    one use, until 2026-07-02 12:04
address  zmq+tcp://192.0.2.7:4242
""",
    "invite hikers --format url": "https://zerochat.org/?_oob=eyJ0\n",
    "invite hikers --format code": "ZC:6BF\n",
    "new hikers": "GROUPID\n",
    "send hikers -m hello": "EVENTID\n",
    "send hikers -m hello --wait any": """\
bob   delivered  did:key:z6MkBobb
卡羅  queued     did:key:z6MkCarol
delivered to 1 of 2
""",
    "leave hikers --yes": "GROUPID\n",
}

JSONL: dict[str, list[Any]] = {
    "status": [STATUS],
    "members hikers": MEMBERS,
    "history hikers": HISTORY,
    "invite hikers": [INVITATION],
    "new hikers": [HIKERS],
    "send hikers -m hello": [SENT],
    "send hikers -m hello --wait any": [ENOUGH],
    "leave hikers --yes": [HIKERS],
}


@pytest.mark.parametrize("line", TEXT)
def test_text_output(run, usual, line: str) -> None:
    code, out, _ = run(line)
    assert code == 0
    assert out == TEXT[line]


@pytest.mark.parametrize("line", JSONL)
def test_lines_of_json_for_programs(run, usual, line: str) -> None:
    from msgspec import to_builtins

    code, out, _ = run(line + " --format jsonl")
    assert code == 0
    assert out.isascii()
    assert [json.loads(one) for one in out.splitlines()] == [to_builtins(one) for one in JSONL[line]]
    assert run("--format jsonl " + line)[1] == out
    assert run("--format json " + line)[1] == run(line + " --format json")[1] == out


def test_a_qr_code_with_its_code_and_link_beside_it(run, usual) -> None:
    code, out, _ = run("invite hikers --format qr")
    rows = [row for row in out.splitlines() if "\x1b" in row]
    assert code == 0
    assert all(row.startswith("\x1b[30;107m") and row.endswith("\x1b[0m") for row in rows)
    assert out.startswith("https://zerochat.org/?_oob=eyJ0\n\nZC:6BF\n\n\x1b[30;107m")
    assert out.endswith("\x1b[0m\n")


def test_requests_sent_to_the_agent(run, usual) -> None:
    from msgspec.structs import replace

    run("new hikers")
    run("new hikers --envelope didcomm/v1")
    run("invite hikers --uses 5 --expires 7d")
    run(["send", "hikers", "-m", "-v ä\n"])
    run("send hikers", stdin=b"from stdin\r\n\r\n")
    run("send hikers -m x --wait all --timeout 7")
    run("send hikers -m x --wait 2")
    usually = CreateGroupParams("hikers", remove="quorum", quorum=2)
    assert of(usual, "create_group") == [usually, replace(usually, envelope="didcomm/v1")]
    assert of(usual, "create_invitation") == [CreateInvitationParams("hikers", 7 * 86_400, 5)]
    assert [params.text for params in of(usual, "send_message")] == ["-v ä\n", "from stdin\n", "x", "x"]
    assert of(usual, "wait_for_delivery") == [
        WaitParams("GROUPID", "EVENTID", -1, 7.0),
        WaitParams("GROUPID", "EVENTID", 2, 30.0),
    ]


def test_a_text_may_begin_with_a_hyphen(run, usual) -> None:
    for words in (["-m", "-x"], ["-m", "--what is it"], ["-m=--wait"], ["-m", "-1", "--reply", "-abcd"]):
        assert run(["send", "hikers", *words])[0] == 0
    sent = of(usual, "send_message")
    assert [params.text for params in sent] == ["-x", "--what is it", "--wait", "-1"]
    assert sent[3].reply_to == "-abcd"
    for words in (["-m"], ["-m", "--wait"], ["-m", "-h"]):
        code, _, err = run(["send", "hikers", *words])
        assert code == 2 and "if it begins with a hyphen: -m=VALUE" in err
    assert of(usual, "send_message") == sent


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("agent --print-unit --profile=x", {"print_unit": "user", "profile": "x"}),
        ("join --cancel --format=json", {"format": "json"}),
        ("send g -m hi --format=json", {"message": "hi", "format": "json"}),
    ],
)
def test_an_option_is_no_value_of_the_one_before(line: str, found: dict[str, object]) -> None:
    options = vars(parse(line.split()))
    assert {name: options[name] for name in found} == found
    for missing in ("send g --reply --file=x -m hi", "invite g --name --uses=3", "invite g --name --read"):
        with pytest.raises(SystemExit):
            parse(missing.split())


def test_history_in_pages(run, agent) -> None:
    events = [event(seq) for seq in range(1, 451)]

    def page(params: HistoryParams) -> History:
        end = len(events) if params.before is None else int(params.before.removeprefix("id")) - 1
        limit = min(params.limit, 150)  # the agent may give less than it was asked for
        return History(events[max(end - limit, 0) : end], more=end > limit)

    served = agent(get_history=page)
    for line, first in [("--all", 1), ("-n 300", 151), ("-n 1", 450), ("", 401), ("-n 9999", 1)]:
        code, out, _ = run(f"history hikers {line} --format jsonl")
        assert code == 0
        assert [json.loads(one)["seq"] for one in out.splitlines()] == list(range(first, 451))
    assert run("history hikers -n 0") == (0, "", "")
    assert max(params.limit for params in of(served, "get_history")) <= 500


# --- waiting and exit codes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "report", "code", "narration"),
    [
        ("--wait all", ALL, 0, ""),
        ("--wait all", HALF, 5, "The other members receive it"),
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


def test_sending_without_connected_members_is_explained(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(send_message=lambda _: SENT, list_groups=lambda _: [replace(HIKERS, connected=0)])
    code, out, err = run("send hikers -m x")
    assert (code, out) == (3, "EVENTID\n")
    assert "Queued: none of the 2 other members is connected" in err
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
    from msgspec.structs import replace

    relay = replace(RELAY, mediator="granted", reachable=True)
    hidden = replace(STATUS, hidden=True, web=["https://chat.example"], mediators=[relay, RELAY])
    agent(get_status=lambda _: hidden)
    lines = run("status")[1].splitlines()
    assert lines[2].startswith("hidden    this agent only dials")
    assert lines[3:6] == [
        "web       https://chat.example",
        "mediator  relay: active",
        "mediator  relay: no answer yet",
    ]


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


# --- joining --------------------------------------------------------------------------------------------------------


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
    failed = joining("failed", "You did not get in: nobody answered.")
    usual.answers["get_status"] = lambda _: replace(STATUS, joins=[asking, failed])
    _, out, _ = run("status")
    assert "joining crew two  waiting for approval until 2026-07-02 12:04  A member was asked…\n" in out
    assert "joining           failed" in out and "nobody answered" in out
    assert json.loads(run("status --format jsonl")[1])["joins"][0]["name"] == "crew two"
    usual.answers["get_status"] = lambda _: replace(STATUS, groups=[replace(HIKERS, state="left", members=0)])
    assert "hikers  left   -        -          -               -     GROUPID" in run("status")[1]


# --- single peers ---------------------------------------------------------------------------------------------------

KEY = "did:peer:4zQmVTheirDidWhichIsQuiteLong7xQp#key-2"
PONG = PongNotification(
    thread="T",
    peer="bob\x1b[2J",
    rtt_ms=12,
    envelope="didcomm/v2 authcrypt",
    their_key=KEY,
    my_key="Dk4CexRfc0019VerkeyWithoutAnyDid",
    channel="mediator",
)
ARCHIVE = ConnectionInfo(
    id="CONNECTION",
    label="archive\n2",
    state="established",
    envelope="didcomm/v1",
    did=KEY.partition("#")[0],
    my_did="did:peer:4zQmMine",
    begun_at="2026-07-01T12:00:00.000Z",
)
RELAY = ConnectionInfo(
    id="RELAYID",
    label="relay",
    state="requested",
    envelope="didcomm/v2",
    did="",
    my_did="did:peer:4zQmMine",
    mediator="requested",
    begun_at="2026-07-01T12:00:00.000Z",
)


def with_news(served: Callable[[], Any], answer: Any, *news: tuple[str, Any]) -> Callable[[Any], Any]:
    """An answer that is followed by these news."""

    def both(params: Any) -> Any:
        for client in served().subscribers:
            for method, item in news:
                served().server.notify([client], method, item)
        return answer

    return both


@pytest.fixture
def curious(agent, monkeypatch) -> Any:
    """An agent whose peers answer at once, and twice: what answers another question is not taken for an answer."""
    from msgspec.structs import replace

    monkeypatch.setattr("zerochat.cli.verbs.ping.PAUSE_S", 0.0)
    served = agent(rotate_did=lambda _: NoParams(), list_connections=lambda _: [ARCHIVE])
    strange = [("pong", replace(PONG, thread="U", rtt_ms=9_999)), ("features", FeaturesNotification("U", "bob", []))]
    found = FeaturesNotification(
        "T", "bob", [FeatureInfo("protocol", "https://x/\x1b]0;1\x07\n/1.0"), FeatureInfo("header", "h")]
    )
    served.answers["ping_peer"] = with_news(lambda: served, PendingReply("T"), *strange, ("pong", PONG))
    served.answers["query_features"] = with_news(lambda: served, PendingReply("T"), *strange, ("features", found))
    return served


def test_ping_explains_the_strength_of_its_answer(run, curious) -> None:
    code, out, err = run("ping hikers/bob --count 3")
    assert code == 0
    assert (
        out
        == """\
bob␛[2J: seq=1 time=12 ms, via mediator
  envelope   didcomm/v2 authcrypt
  their key  did:peer:4zQmV…ng7xQp#key-2
  my key     Dk4CexRfc0019V…AnyDid
bob␛[2J: seq=2 time=12 ms, via mediator
bob␛[2J: seq=3 time=12 ms, via mediator
"""
    )
    assert err == "3 sent, 3 answered, 12 to 12 ms.\n"
    told = json.loads(run("ping bob --format jsonl")[1])
    assert (told["their_key"], told["channel"], told["rtt_ms"]) == (KEY, "mediator", 12)
    assert of(curious, "ping_peer") == [PeerParams("hikers/bob")] * 3 + [PeerParams("bob")]


def test_a_peer_that_does_not_answer(run, curious) -> None:
    problem = ProblemNotification("bob", "e.p.me.res\x1b", "too\nbusy")
    curious.answers["ping_peer"] = with_news(lambda: curious, PendingReply("T"), ("problem_report", problem))
    curious.answers["query_features"] = lambda _: PendingReply("T")
    code, out, err = run("ping bob --count 2 --timeout 0.05")
    assert (code, out) == (5, "")
    assert err.splitlines()[:2] == [
        "bob reports a problem: too⏎busy (e.p.me.res␛)",
        "No answer from bob within 0.05 s.",
    ]
    assert err.endswith("2 sent, 0 answered.\n")
    code, out, err = run("features bob --timeout 0.05")
    assert (code, out, err) == (5, "", "No answer from bob within 0.05 s.\n")


def test_features_are_listed(run, curious) -> None:
    code, out, err = run(["features", "bob", "https://x/*"])
    assert (code, err) == (0, "")
    assert out == "protocol  https://x/␛]0;1␇⏎/1.0\nheader    h\n"
    assert json.loads(run("features bob --format jsonl")[1].splitlines()[1]) == {"type": "header", "id": "h"}
    assert of(curious, "query_features") == [QueryFeaturesParams("bob", "https://x/*"), QueryFeaturesParams("bob", "*")]
    curious.answers["query_features"] = with_news(
        lambda: curious, PendingReply("T"), ("features", FeaturesNotification("T", "bob", []))
    )
    assert run("features bob") == (0, "", "bob discloses no matching protocol.\n")


def test_rotate_explains_its_effect(run, curious) -> None:
    code, out, err = run("rotate bob")
    assert (code, out) == (0, "")
    assert "new DID" in err and "The old one is dropped" in err
    assert json.loads(run("rotate bob --format jsonl")[1]) == {"peer": "bob"}
    assert of(curious, "rotate_did") == [PeerParams("bob"), PeerParams("bob")]
    assert "towards archive⏎2." in run("rotate CONN")[2]


def test_an_agent_that_has_just_started_waits_for_the_peer(run, alone) -> None:
    from zerochat.group.external.standard_protocols import NotConnected

    tries = iter([True, False])

    def ping(params: Any) -> Any:
        if next(tries, True):
            raise NotConnected(peer="bob")
        return with_news(lambda: alone["agent"], PendingReply("T"), ("pong", PONG))(params)

    alone["ping_peer"] = ping
    code, out, _ = run("ping bob --timeout 5")
    assert (code, out.splitlines()[0]) == (0, "bob␛[2J: seq=1 time=12 ms, via mediator")
    code, out, err = run("ping bob --timeout 0.1")
    assert (code, out) == (1, "") and "bob cannot be reached" in err


# --- connections ----------------------------------------------------------------------------------------------------


def connecting(served: Any, *states: Any) -> None:
    """Each look at the connections finds the next of these states of one; the last for ever; None: it is gone."""
    begun, *later = states
    looks, now = iter(later), [begun]

    def look(_: Any) -> list[ConnectionInfo]:
        now[0] = next(looks, now[0])
        return [one for one in (RELAY, now[0]) if one is not None]

    served.answers["open_connection"] = with_news(
        lambda: served, begun, ("connection_changed", ConnectionNotification(connection=begun.id, text="…"))
    )
    served.answers["list_connections"] = look


@pytest.mark.parametrize(
    ("verb", "states", "code", "said"),
    [
        ("connect", [{"state": "requested"}, {"state": "requested"}, {}], 0, "Connected with archive⏎2"),
        ("connect", [{"state": "requested"}], 5, "No answer from archive⏎2 yet"),
        ("connect", [{"state": "requested"}, {"state": "ended"}], 1, "The peer has ended"),
        ("connect", [{"state": "requested"}, None], 1, "The peer has ended"),
        ("route add", [{"mediator": "requested"}, {"mediator": "granted"}], 0, "now stores messages for you"),
        ("route add", [{"mediator": "requested"}, {"mediator": "denied"}], 1, "has denied mediation"),
        ("route add", [{"mediator": "requested"}], 5, "The agent keeps asking"),
    ],
)
def test_connecting_waits_until_it_is_settled(run, agent, monkeypatch, verb, states, code, said) -> None:
    from msgspec.structs import replace

    monkeypatch.setattr("zerochat.cli.verbs.connections.POLL_S", 0.01)
    served = agent()
    connecting(served, *(state and replace(ARCHIVE, **state) if state != {} else ARCHIVE for state in states))
    ended, out, err = run([*verb.split(), "-", "--name", "A", "--timeout", "0.2"], stdin=b" https://x/?_oob=e30 \n")
    assert ended == code
    assert out == ("" if code == 1 and "denied" not in str(states) else "CONNECTION\n")
    assert said in err
    assert of(served, "open_connection") == [OpenConnectionParams("https://x/?_oob=e30", "A", verb == "route add")]


def test_connections_are_listed(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(list_connections=lambda _: [ARCHIVE, RELAY])
    assert run("connections") == (
        0,
        """\
NAME       STATE        ENVELOPE    MEDIATOR   DID                    ID
archive⏎2  established  didcomm/v1  -          did:peer:4zQmV…ng7xQp  CONNECTION
relay      requested    didcomm/v2  requested  -                      RELAYID
""",
        "",
    )
    assert run("route") == (0, "NAME   STATE          ID\nrelay  no answer yet  RELAYID\n", "")
    granted = replace(
        RELAY, mediator="granted", reachable=False, label="did:peer:4zQmVabc", did="did:peer:4zQmVabc" + "d" * 40
    )
    served.answers["list_connections"] = lambda _: [granted]
    assert "did:peer:4zQmV…dddddd  unreachable" in run("route")[1]
    served.answers["list_connections"] = lambda _: [replace(granted, reachable=True)]
    assert " active " in run("route")[1]
    served.answers["list_connections"] = lambda _: [ARCHIVE, RELAY]
    assert [json.loads(line)["id"] for line in run("connections --format jsonl")[1].splitlines()] == [
        "CONNECTION",
        "RELAYID",
    ]
    assert json.loads(run("route --format jsonl")[1])["mediator"] == "requested"
    served.answers["list_connections"] = lambda _: []
    assert run("connections")[1] == run("route")[1] == ""


def test_only_an_own_invitation_takes_an_expiry(run, agent) -> None:
    served = agent()
    code, _, err = run("connect - --expires 1h", stdin=b"https://x/?_oob=e30")
    assert code == 2 and "--invite" in err and of(served, "open_connection") == []


def test_an_offer_is_a_link_and_a_qr_code(run, agent, monkeypatch) -> None:
    offer = ConnectionOffer(url="https://zerochat.org/?_oob=e30", expires_at="2026-07-02T12:04:00.000Z", connection="C")
    served = agent(offer_connection=lambda _: offer)
    assert run("connect --invite --envelope didcomm/v1 --expires 1h")[1] == (
        "link   https://zerochat.org/?_oob=e30\nvalid  one use, until 2026-07-02 12:04\n"
    )
    assert run("connect --invite --format url") == (0, offer.url + "\n", "")
    code, out, _ = run("connect --invite --format qr")
    assert code == 0 and out.startswith(offer.url + "\n\n\x1b[30;107m")
    assert json.loads(run("connect --invite --format json")[1])["connection"] == "C"
    assert of(served, "offer_connection")[0] == OfferConnectionParams("didcomm/v1", 3_600)
    assert of(served, "offer_connection")[1] == OfferConnectionParams("didcomm/v2", 86_400)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    code, out, err = run("connect --invite --format qr")
    assert (code, out) == (0, offer.url + "\n\n") and "needs a terminal of" in err


def test_sending_a_message_and_disconnecting(run, agent) -> None:
    served = agent(
        send_connection_message=lambda _: SentConnectionMessage("M"),
        close_connection=lambda _: NoParams(),
        list_connections=lambda _: [ARCHIVE, RELAY],
    )
    assert run(["message", "archive 2", "keep it"]) == (0, "M\n", "")
    assert run("message archive -", stdin=b"piped\n")[0] == run("message archive", stdin=b"piped\n")[0] == 0
    code, _, err = run("message archive", stdin=b" ")
    assert code == 2 and "`zerochat message --help`" in err
    assert run(["message", "-bcdefghijkl", "-abc"])[0] == run("message -- --cdefghijkl x")[0] == 0
    assert of(served, "send_connection_message")[-2:] == [
        SendConnectionMessageParams("-bcdefghijkl", "-abc"),
        SendConnectionMessageParams("--cdefghijkl", "x"),
    ]
    del served.asked[-4:]
    assert of(served, "send_connection_message") == [
        SendConnectionMessageParams("archive 2", "keep it"),
        *[SendConnectionMessageParams("archive", "piped")] * 2,
    ]
    assert run("disconnect CONNECTION")[0] == 2
    code, out, err = run("disconnect CONNECTION", stdin=b"\n", tty=True)
    assert (code, out) == (1, "") and "[y/N]" in err
    assert of(served, "close_connection") == []
    assert run("disconnect CONNECTION", stdin=b"y\n", tty=True)[0] == 0
    assert "Ended the connection with archive⏎2." in run("disconnect CONNECTION --yes")[2]
    code, _, err = run(["route", "remove", "archive 2"])
    assert code == 1 and "You have no mediator archive 2" in err
    code, _, err = run("route remove RELA")
    assert code == 0 and err == "Removed the mediator relay; the members of your groups are notified.\n"
    served.answers["list_groups"] = lambda _: []
    assert run("route remove relay") == (0, "", "Removed the mediator relay.\n")
    whom = [params.peer for params in of(served, "close_connection")]
    assert whom == ["CONNECTION", "CONNECTION", "RELAYID", "RELAYID"]


def test_messages_of_a_connection_are_listed(run, agent) -> None:
    kept = [
        ConnectionMessage("1", "2026-07-01T12:04:00.000Z", False, "two\nlines\x1b"),
        ConnectionMessage("2", "x", True, "keep it"),
    ]
    served = agent(list_connection_messages=lambda _: kept, list_connections=lambda _: [ARCHIVE])
    assert run("messages CONN")[1] == (
        "2026-07-01 12:04  archive⏎2: two\n                  lines␛\n????-??-?? ??:??  you: keep it\n"
    )
    assert of(served, "list_connection_messages") == [PeerParams("CONN")]


@pytest.mark.parametrize(("answers", "code"), [(True, 0), (False, 3)])
def test_a_temporary_agent_waits_for_delivery_of_a_message(run, alone, monkeypatch, answers, code) -> None:
    monkeypatch.setattr("zerochat.cli.verbs.connections.DELIVERY_S_MAX", 5.0 if answers else 0.05)
    alone["send_connection_message"] = lambda _: SentConnectionMessage("M")
    news = [("pong", PONG)] if answers else []
    alone["ping_peer"] = lambda params: with_news(lambda: alone["agent"], PendingReply("T"), *news)(params)
    ended, out, err = run("message archive x")
    assert (ended, out) == (code, "M\n")
    assert ("may not have arrived" in err) is not answers


# --- short links and mediators' invitations -------------------------------------------------------------------------


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


# --- commands to type -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment", "hint"),
    [
        ("", "", "`zerochat new GROUP`"),
        ("--profile default", "", "`zerochat new GROUP`"),
        ("--profile work", "", "`zerochat --profile work new GROUP`"),
        ("", "work", "`zerochat new GROUP`"),
        ("--profile work", "work", "`zerochat new GROUP`"),
        ("--profile default", "work", "`zerochat --profile default new GROUP`"),
    ],
)
def test_a_suggested_command_names_the_same_profile(run, monkeypatch, options, environment, hint) -> None:
    monkeypatch.setenv("ZEROCHAT_PROFILE", environment)
    code, _, err = run(f"{options} status")
    verb = hint.replace("new GROUP", "init --name NAME")  # this sentence names the profile by itself
    assert code == 6 and verb in err
    code, _, err = run(f"{options} init --name alice")
    assert code == 0 and hint in err and err.count("--profile") == 2 * hint.count("--profile")
    code, _, err = run(f"{options} init --name alice")
    assert code == 1 and "`zerochat --profile OTHER init" in err
    code, _, err = run(f"{options} status")
    assert code == 6
    assert hint.replace("new GROUP", "agent") in err and hint.replace(" new GROUP", "") in err


def test_a_hint_for_another_user_names_no_local_profile(run) -> None:
    create_profile(profile_paths("work", os.environ), "alice", None)
    code, _, err = run("--profile work join -", stdin=b"ZC:AAAA")
    assert code == 1
    assert "cut off or damaged" in err and "`zerochat invite GROUP`" in err and "--profile" not in err
    assert "`zerochat --profile work send`" in run("--profile work")[2]


# --- an agent of one's own ------------------------------------------------------------------------------------------


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
    assert (code, out) == (0, TEXT["members hikers"])
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


# --- the profile ----------------------------------------------------------------------------------------------------


def test_locate_prints_paths_and_makes_nothing(run, home) -> None:
    here = profile_paths("work", os.environ)
    assert run("--profile work paths socket") == (0, f"{here.socket}\n", "")
    assert json.loads(run("paths log --profile work --format jsonl")[1]) == {"place": "log", "path": str(here.log)}
    code, out, _ = run("paths --profile work")
    assert code == 0
    assert tuple(line.split()[0] for line in out.splitlines()) == PLACES
    assert str(here.data) in out
    assert not home.exists()


def test_an_invalid_profile_name(run) -> None:
    code, out, err = run(["--profile", "../x", "paths"])
    assert code != 0 and out == "" and err


def test_the_passphrase_comes_from_a_file_or_a_prompt(run, monkeypatch, tmp_path) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        "zerochat.agent.storage.profiles.create_profile", lambda *given, keyring: made.append(given[1:])
    )
    code, out, err = run("init --name alice")
    assert (code, out) == (0, f"{profile_paths(None, os.environ).data}\n")
    assert "Next:" in err
    assert run("init --name alice --passphrase")[0] == 6
    secret = tmp_path / "secret"
    secret.write_bytes(b"two words\n")
    monkeypatch.setenv("ZEROCHAT_PASSPHRASE_FILE", str(secret))
    assert json.loads(run("init --name alice --format jsonl")[1])["passphrase"] is True
    secret.write_bytes(b"")
    assert run("init --name alice")[0] == 2
    secret.unlink()
    assert run("init --name alice")[0] == 2
    monkeypatch.delenv("ZEROCHAT_PASSPHRASE_FILE")
    typed = iter(["one", "two", "same", "same", "", *"ababab"])
    monkeypatch.setattr("zerochat.cli.prompts._has_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert run("init --name alice --passphrase")[0] == 0
    assert run("init --name alice --passphrase")[0] == 2
    code, _, err = run("init --name alice --passphrase")
    assert code == 2 and err.count("The passphrases do not match. Try again.") == 2
    assert made == [("alice", None), ("alice", b"two words"), ("alice", b"same")]


def test_the_chat_needs_a_terminal(run) -> None:
    code, out, err = run("")
    assert (code, out) == (2, "")
    assert "needs a terminal" in err


# --- as a process ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)])
def test_tail_follows_until_it_is_terminated(agent, signum, code) -> None:
    served = agent(get_history=lambda params: History([event(1), event(2)], more=True))
    with heeded(signum), process("tail", "hikers", "-n", "2", "--format", "jsonl") as tail:
        assert tail.stdout is not None and tail.stderr is not None
        assert [json.loads(tail.stdout.readline())["seq"] for _ in range(2)] == [1, 2]
        for seq in (2, 3):  # the second is in the past and in the news, and yet one event
            served.tell("event", event(seq))
        assert json.loads(tail.stdout.readline())["seq"] == 3
        tail.send_signal(signum)
        assert tail.wait(10) == code
        assert tail.stderr.read() == b""
    assert of(served, "subscribe") == [SubscribeParams(["hikers"], None)]


def test_tail_from_a_cursor_until_the_agent_ends(agent) -> None:
    served = agent()
    with process("tail", "hikers", "--since", "41") as tail:
        assert tail.stdout is not None and tail.stderr is not None
        deadline = time.monotonic() + 10
        while not served.subscribers and time.monotonic() < deadline:
            served.do(lambda: None)
        served.tell("event", event(42))
        assert tail.stdout.readline() == b"2026-07-01 12:04  bob: message 42\n"
        served.stop()
        assert tail.wait(10) == 6
        assert b"The agent has closed the connection" in tail.stderr.read()
    assert of(served, "subscribe") == [SubscribeParams(["hikers"], 41)]
    assert of(served, "get_history") == []


def test_a_closed_pipe_ends_the_output_quietly(agent) -> None:
    agent(
        get_history=lambda params: History([event(seq, body={"text": "x" * 1_000}) for seq in range(300)], more=False)
    )
    with process("history", "hikers") as history:
        assert history.stdout is not None and history.stderr is not None
        history.stdout.readline()
        history.stdout.close()
        assert history.wait(10) == 0
        assert history.stderr.read() == b""


def test_the_agent_runs_until_it_is_terminated(run, home, monkeypatch) -> None:
    create_profile(profile_paths(None, os.environ), "alice", None)
    with process("agent", "--listen", "127.0.0.1") as agent:
        assert agent.stdout is not None and agent.stderr is not None
        ready = dict(pair.split("=", 1) for pair in agent.stdout.readline().decode().split()[1:])
        assert ready["pid"] == str(agent.pid)
        status = json.loads(run("status --format jsonl")[1])
        assert (status["pid"], status["pair"], status["nick"]) == (agent.pid, ready["pair"], "alice")
        monkeypatch.setattr("zerochat.cli.verbs.agent.OWNER_WAIT_S_MAX", 0.0)
        code, out, err = run("agent")
        assert (code, out) == (6, "")
        assert f"process {agent.pid}" in err
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
        assert (agent.stdout.read(), agent.stderr.read()) == (b"", b"")
    assert run("status")[0] == 6


def test_ctrl_c_on_a_terminal_starts_a_new_line(run, capsys, monkeypatch) -> None:
    def interrupted(*given: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("zerochat.cli._run", interrupted)
    assert run("tail hikers") == (130, "", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run("tail hikers") == (130, "", "\n")


@pytest.mark.parametrize("where", ["start", "stop", "removal"])
def test_an_interrupted_demo_leaves_nothing_behind(monkeypatch, tmp_path, where) -> None:
    """Ctrl+C at the worst moments: while an agent starts, and again while it is stopped or the folder removed."""
    import shutil

    from zerochat import demo

    stopped: list[object] = []
    remove = shutil.rmtree

    class Thread:
        def __init__(self, *given: Any, **named: Any) -> None: ...

        def start(self) -> None:
            raise KeyboardInterrupt

        def stop(self) -> None:
            stopped.append(self)
            if where == "stop":
                raise KeyboardInterrupt

    def removal(path: Path, **options: Any) -> None:
        if where == "removal":
            monkeypatch.setattr("shutil.rmtree", remove)
            raise KeyboardInterrupt
        remove(path, **options)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", removal)
    monkeypatch.setattr("zerochat.demo.AgentThread", Thread)
    with pytest.raises(KeyboardInterrupt), demo.Stage(("alice",)):
        pass
    assert len(stopped) == 1
    assert not list(tmp_path.glob("zerochat-demo-*"))


@pytest.mark.parametrize("words", others_slow([["send", "hikers", "-m", "x"], ["--profile", "nobody", "status"]]))
def test_an_unreadable_standard_error_changes_nothing(agent, words: list[str]) -> None:
    """The terminal has gone, or the disk of the log is full."""
    agent(send_message=lambda _: SENT)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        codes = [
            subprocess.run(
                [sys.executable, "-m", "zerochat", *words],
                cwd=Path(__file__).parents[2],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=20,
                check=False,
            ).returncode
            for errors in (subprocess.DEVNULL, unread)
        ]
    assert codes[0] == codes[1] != ExitCode.REFUSED, "which an error of ours would come to"


def test_a_verb_on_a_running_agent_is_light(agent) -> None:
    """The start-up promise: no sockets library, no screen and no cryptography for a `send`."""
    agent(send_message=lambda _: SENT)
    script = "import sys; from zerochat.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", script, "send", "hikers", "-m", "x"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=20, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.decode().splitlines()[1].split()}
    assert "msgspec" in loaded
    heavy = {"zmq", "textual", "rich", "cryptography", "nacl", "apsw", "pyspark", "qrcode", "asyncio", "zstandard"}
    assert not loaded & heavy


def test_importing_zerochat_costs_nothing() -> None:
    script = "import sys; before = set(sys.modules); import zerochat; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, timeout=20, check=True
    )
    loaded = set(done.stdout.decode().split())
    assert {name for name in loaded if name.startswith("zerochat")} <= {"zerochat", "zerochat.version"}
    assert not loaded & {"importlib.metadata", "msgspec", "socket", "json", "datetime"}
    import zerochat

    assert zerochat.LocalError is LocalError
    assert "attach" in dir(zerochat)
    with pytest.raises(AttributeError):
        _ = zerochat.nonsense
