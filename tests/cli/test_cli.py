"""The command line against an agent that only pretends: what it asks, what it prints, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerochat import __version__
from zerochat.agent.storage.paths import places
from zerochat.agent.storage.profiles import ProfileOwned, create_profile
from zerochat.cli import main
from zerochat.cli.exits import ExitCode
from zerochat.cli.parser import parse
from zerochat.cli.parser_profile import PLACES
from zerochat.errors import LocalError, UnknownGroup
from zerochat.rpc import (
    Author,
    ConnectionInfo,
    ConnectionNews,
    ConnectParams,
    Delivery,
    DeliveryReport,
    Event,
    FeatureInfo,
    FeaturesNews,
    FeaturesParams,
    GroupInfo,
    History,
    HistoryParams,
    InvitationInfo,
    InviteParams,
    JoinParams,
    JoinStatus,
    LetterInfo,
    MemberDelivery,
    MemberInfo,
    NewParams,
    NoParams,
    OfferInfo,
    OfferParams,
    PeerParams,
    PongNews,
    ProblemNews,
    Question,
    SendParams,
    Sent,
    Status,
    SubscribeParams,
    TellParams,
    ToldInfo,
    WaitParams,
)

ALICE, BOB, CAROL = "did:key:z6MkAlice", "did:key:z6MkBobb", "did:key:z6MkCarol"
VERBS = [
    *("chat", "demo", "init", "agent", "status", "locate"),
    *("new", "invite", "join", "leave", "info", "send", "tail", "history"),
    *("react", "edit", "delete", "topic"),
    *("delivery", "why", "audit", "export", "import"),
    *("members", "requests", "admit", "refuse", "remove", "role", "rename", "verify"),
    *("ping", "features", "rotate", "connect", "connections", "tell", "letters", "disconnect", "route", "mediator"),
    *("sim", "doctor", "completion", "man"),
]


def event(seq: int, author: str = BOB, nick: str = "bob", **fields: Any) -> Event:
    usual: dict[str, Any] = {
        "seq": seq,
        "type": "message",
        "group": "GROUPID",
        "id": f"id{seq}",
        "author": Author(author, nick),
        "position": seq,
        "lamport": seq,
        "parents": [],
        "sent_at": "2026-07-01T12:04:00.000Z",
        "received_at": "2026-07-01T12:04:01.000Z",
        "body": {"text": f"message {seq}"},
        "replayed": True,
        "delivery": Delivery(1, 2),
    }
    return Event(**{**usual, **fields})


HIKERS = GroupInfo(
    id="GROUPID",
    name="hikers",
    state="active",
    me=ALICE,
    nick="alice",
    members=3,
    connected=1,
    keys="pairwise-multi",
    path="mesh",
    accountability="acks",
    view="0123456789abcdef",
    unacknowledged=2,
    created_at="2026-07-01T12:00:00.000Z",
)
STATUS = Status(
    profile="default",
    nick="alice",
    version="0.1.0",
    pid=4242,
    uptime_s=7_300,
    pair="zmq+tcp://192.0.2.7:4242",
    queue="zmq+tcp://192.0.2.7:4243",
    closed=False,
    groups=[HIKERS],
)
MEMBERS = [
    MemberInfo(did=ALICE, nick="alice", connection="self", joined_at="2026-07-01T12:00:00.000Z"),
    MemberInfo(
        did=BOB, nick="bob\x1b[2J", connection="connected", view_agrees=True, joined_at="x", bot=True, trust="verified"
    ),
    MemberInfo(
        did=CAROL,
        nick="卡羅",
        connection="connected",
        via="mediator",
        view_agrees=False,
        joined_at="x",
        role="reader",
        trust="changed",
    ),
    MemberInfo(did=CAROL + "2", nick="dave", connection="unreachable", joined_at="x", forked=True),
]
INVITATION = InvitationInfo(
    group="GROUPID",
    url="https://zerochat.org/?_oob=eyJ0",
    code="ZC:6BF",
    expires_at="2026-07-02T12:04:00.000Z",
    uses=1,
    endpoint="zmq+tcp://192.0.2.7:4242",
)
SENT = Sent(group="GROUPID", id="EVENTID", lamport=9, position=4, of=2)
REPORT = DeliveryReport("GROUPID", "EVENTID", 1, 2, False, [])
HALF = DeliveryReport(
    "GROUPID", "EVENTID", 1, 2, False, [MemberDelivery(BOB, "bob", True), MemberDelivery(CAROL, "卡羅", False)]
)
ENOUGH = DeliveryReport("GROUPID", "EVENTID", 1, 2, True, HALF.members)
ALL = DeliveryReport("GROUPID", "EVENTID", 2, 2, True, HALF.members)
HISTORY = [
    event(1, ALICE, "alice", type="group_created", body={"name": "hikers"}),
    event(2, ALICE, "alice", type="member_joined", body={"did": BOB, "nick": "bob"}),
    event(3, body={"text": "two\nlines\x1b]0;owned\x07"}),
    event(4, CAROL, "bob", body={"text": "I am bob ‮ too"}, late=True),
    event(5, ALICE, "alice", self=True, body={"text": "hello 😀"}),
    event(6, type="poll", body={"question": "?"}),
    event(7, BOB, "bob", type="member_left", body={"did": BOB, "nick": "bob"}),
    event(8, ALICE, "alice", type="removal_voted", body={"did": CAROL, "nick": "carol"}),
    event(9, ALICE, "alice", type="member_removed", body={"did": CAROL, "nick": "carol\n"}),
    event(10, ALICE, "alice", type="role_changed", body={"did": BOB, "nick": "bob", "role": "admin"}),
    event(11, ALICE, "alice", type="role_changed", body={"did": ALICE, "nick": "alice", "role": "reader"}),
    event(12, ALICE, "al\x1b", type="member_renamed", body={"did": ALICE, "nick": "al\x1b", "was": "alice"}),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "h"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return tmp_path / "h"


@pytest.fixture
def agent(fake_agent: Callable[..., Any]) -> Callable[..., Any]:
    """Start a pretending agent for the default profile."""

    def start(**answers: Any) -> Any:
        answers.setdefault("groups", lambda _: [HIKERS])
        places(None, os.environ).data.mkdir(parents=True, exist_ok=True)
        return fake_agent(path=places(None, os.environ).socket, **answers)

    return start


class Stdin(io.TextIOWrapper):
    def __init__(self, data: bytes, tty: bool) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@pytest.fixture
def run(capsys, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """`run("send hikers", stdin=…)` gives the exit code, standard output and standard error."""

    def one(line: str | list[str], stdin: bytes = b"", tty: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", Stdin(stdin, tty))
        capsys.readouterr()
        code = main(line.split() if isinstance(line, str) else line)
        out, err = capsys.readouterr()
        return int(code), out, err

    return one


def of(agent: Any, method: str) -> list[Any]:
    """The params of every request of this kind."""
    return [params for asked, params in agent.asked if asked == method]


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
        ("sned", "did you mean send?"),
        ("send", "GROUP"),
        ("--format xml status", "invalid choice"),
        ("status --format url", "invalid choice"),
        ("init", "--name"),
        ("invite hikers --expires 0h", "a time like"),
        ("invite hikers --expires 31d", "at most 30 days"),
        ("invite hikers --expires soon", "a time like"),
        ("invite hikers --uses 0", "at least 1"),
        ("send hikers -m x --wait some", "neither any nor all"),
        ("send hikers -m x --wait 0", "at least 1"),
        ("send hikers -m x --wait all --timeout nan", "seconds"),
        ("tail hikers -n 1 --since 2", "not allowed with"),
        ("history hikers -n -1", "argument"),
        ("history hikers --al", "unrecognized"),
        ("send hikers hello", "The text goes behind -m"),
        ("locate moon", "invalid choice"),
        ("new hikers --envelope mime", "invalid choice"),
        ("new hikers --removal everybody", "invalid choice"),
        ("new hikers --quorum 0", "at least 1"),
        ("role hikers bob owner", "invalid choice"),
        ("admit hikers", "WHO"),
        ("verify hikers bob --mark --unmark", "not allowed with"),
        ("ping", "PEER"),
        ("ping bob --count 0", "at least 1"),
        ("connect LINK --invite", "not allowed with"),
        ("connect --invite --expires 31d", "at most 30 days"),
        ("route lose", "invalid choice"),
        ("agent --listen here", "here is no IP address"),
        ("agent --listen 127.0.0.1:x", "a port is a number"),
        ("route drop", "NAME"),
        ("agent --advertise example.org", "peers do not look up names"),
        ("chat --advertise 203.0.113.7:4242", "an IP address without a port"),
        ("agent --advertise 0.0.0.0", "nobody can be reached at"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(run, line: str, why: str) -> None:
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert why in err
    assert "--help" in err and err.count("\n") == 2
    verb = line.split()[0]
    assert verb not in VERBS or f"See `zerochat {verb}" in err


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
profile      default (alice)
agent        zerochat 0.1.0, process 4242, up 2 h
peers reach  zmq+tcp://192.0.2.7:4242
queues at    zmq+tcp://192.0.2.7:4243

GROUP   STATE   MEMBERS  CONNECTED  UNACKNOWLEDGED  VIEW      ID
hikers  active  3        1/2        2               01234567  GROUPID
""",
    "members hikers": """\
NAME           ROLE    CONNECTION       HEARD  VIEW     TRUST     KEY
alice          writer  you              -      -        -         did:key:z6MkAlice
bob␛[2J [bot]  writer  connected        never  same     verified  did:key:z6MkBobb
卡羅           reader  over a mediator  never  differs  CHANGED   did:key:z6MkCarol
dave           writer  unreachable      never  -        FORKED    did:key:z6MkCarol2
""",
    "history hikers": """\
2026-07-01 12:04  * alice created the group hikers
2026-07-01 12:04  * alice let bob in
2026-07-01 12:04  bob: two
    lines␛]0;owned␇
2026-07-01 12:04  bob#arol: I am bob \ufffd too  (late)
2026-07-01 12:04  alice: hello 😀  ✓1/2
2026-07-01 12:04  * bob left
2026-07-01 12:04  * alice wants carol out
2026-07-01 12:04  * alice put carol⏎ out
2026-07-01 12:04  * alice made bob an admin
2026-07-01 12:04  * alice is a reader now
2026-07-01 12:04  * alice is called al␛ now
""",
    "invite hikers": """\
link      https://zerochat.org/?_oob=eyJ0
code      ZC:6BF
good      once, until 2026-07-02 12:04
leads to  zmq+tcp://192.0.2.7:4242
""",
    "invite hikers --format url": "https://zerochat.org/?_oob=eyJ0\n",
    "invite hikers --format code": "ZC:6BF\n",
    "new hikers": "GROUPID\n",
    "send hikers -m hello": "EVENTID\n",
    "send hikers -m hello --wait any": """\
bob   delivered  did:key:z6MkBobb
卡羅  waiting    did:key:z6MkCarol
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


@pytest.fixture
def usual(agent) -> Any:
    return agent(
        status=lambda _: STATUS,
        members=lambda _: MEMBERS,
        history=lambda _: History(HISTORY, more=False),
        invite=lambda _: INVITATION,
        new=lambda _: HIKERS,
        leave=lambda _: HIKERS,
        send=lambda _: SENT,
        wait=lambda params: DeliveryReport("GROUPID", "EVENTID", 1, 2, params.count == 1, HALF.members),
    )


@pytest.mark.parametrize("line", TEXT)
def test_text_for_people(run, usual, line: str) -> None:
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


def test_what_is_asked_of_the_agent(run, usual) -> None:
    from msgspec.structs import replace

    run("new hikers")
    run("new hikers --envelope didcomm/v1")
    run("invite hikers --uses 5 --expires 7d")
    run(["send", "hikers", "-m", "-v ä\n"])
    run("send hikers", stdin=b"from stdin\n\n")
    run("send hikers -m x --wait all --timeout 7")
    run("send hikers -m x --wait 2")
    usually = NewParams("hikers", remove="quorum", quorum=2)
    assert of(usual, "new") == [usually, replace(usually, envelope="didcomm/v1")]
    assert of(usual, "invite") == [InviteParams("hikers", 7 * 86_400, 5)]
    assert [params.text for params in of(usual, "send")] == ["-v ä\n", "from stdin\n", "x", "x"]
    assert of(usual, "wait") == [WaitParams("GROUPID", "EVENTID", -1, 7.0), WaitParams("GROUPID", "EVENTID", 2, 30.0)]


def test_history_in_pages(run, agent) -> None:
    events = [event(seq) for seq in range(1, 451)]

    def page(params: HistoryParams) -> History:
        end = len(events) if params.before is None else int(params.before.removeprefix("id")) - 1
        limit = min(params.limit, 150)  # the agent may give less than it was asked for
        return History(events[max(end - limit, 0) : end], more=end > limit)

    served = agent(history=page)
    for line, first in [("--all", 1), ("-n 300", 151), ("-n 1", 450), ("", 401), ("-n 9999", 1)]:
        code, out, _ = run(f"history hikers {line} --format jsonl")
        assert code == 0
        assert [json.loads(one)["seq"] for one in out.splitlines()] == list(range(first, 451))
    assert run("history hikers -n 0") == (0, "", "")
    assert max(params.limit for params in of(served, "history")) <= 500


# --- waiting and exit codes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "report", "code", "narration"),
    [
        ("--wait all", ALL, 0, ""),
        ("--wait all", HALF, 5, "The others get it"),
        ("--wait 3", ALL, 5, "only 2 other members"),
        ("--wait 2 --format jsonl", ALL, 0, ""),
    ],
)
def test_waiting_for_acknowledgements(run, agent, line, report, code, narration) -> None:
    agent(send=lambda _: SENT, wait=lambda _: report)
    ended, out, err = run(f"send hikers -m x {line}")
    assert ended == code
    assert f"delivered to {report.delivered} of 2" in out or json.loads(out)["delivered"] == report.delivered
    assert narration in err


def test_nobody_is_there_to_receive(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(send=lambda _: SENT, groups=lambda _: [replace(HIKERS, connected=0)])
    code, out, err = run("send hikers -m x")
    assert (code, out) == (3, "EVENTID\n")
    assert "Queued: none of the 2 other members is connected" in err
    served.answers["send"] = lambda _: replace(SENT, of=0)
    code, out, err = run("send hikers -m x")
    assert (code, out) == (0, "EVENTID\n")
    assert "only member" in err
    served.answers["wait"] = lambda params: DeliveryReport("GROUPID", "EVENTID", 0, 0, params.count == -1, [])
    for wanted, ended in (("all", 0), ("1", 5)):
        code, out, err = run(f"send hikers -m x --wait {wanted}")
        assert (code, out) == (ended, "delivered to 0 of 0\n")
        assert "only member" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("stdin", "tty", "code", "why"),
    [
        (b"", False, 2, "nothing to send"),
        (b" \n\n", False, 2, "nothing to send"),
        (b"", True, 2, "nothing to send"),
        (b"\xff\xfe", False, 1, "not UTF-8"),
        (b"x" * 300_000, False, 1, "Split it"),
    ],
)
def test_what_cannot_be_sent(run, agent, stdin, tty, code, why) -> None:
    served = agent(send=lambda _: SENT)
    ended, out, err = run("send hikers", stdin=stdin, tty=tty)
    assert (ended, out) == (code, "")
    assert why in err
    assert of(served, "send") == []


def test_a_broken_argument_is_not_sent(run, agent) -> None:
    served = agent(send=lambda _: SENT)
    assert run(["send", "hikers", "-m", "\udcff"])[0] == 1
    assert of(served, "send") == []


def test_refusals_are_sentences(run, agent) -> None:
    class ChangedIdentity(LocalError):
        """{who} is not who it was."""

        exit_code = 4

    def refuse(params: SendParams) -> None:
        raise UnknownGroup(group=params.group)

    served = agent(send=refuse)
    code, out, err = run(["send", "hi\x1b[2J\u202ekers", "-m", "x"])
    assert (code, out) == (1, "")
    assert "There is no group called hi␛[2J\ufffdkers in this profile." in err

    def doubt(params: SendParams) -> None:
        raise ChangedIdentity(who="bob")

    served.answers["send"] = doubt
    assert run("send hikers -m x") == (4, "", "zerochat: bob is not who it was.\n")


def test_how_an_agent_is_reached(run, agent) -> None:
    from msgspec.structs import replace

    relay = replace(RELAY, mediator="granted", reachable=True)
    hidden = replace(STATUS, hidden=True, web=["https://chat.example"], mediators=[relay, RELAY])
    agent(status=lambda _: hidden)
    lines = run("status")[1].splitlines()
    assert lines[2].startswith("hidden    this agent only dials")
    assert lines[3:6] == [
        "web       https://chat.example",
        "mediator  relay: takes in what is for you",
        "mediator  relay: no answer yet",
    ]


def test_notices_are_wrapped_for_a_terminal(run, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run("status")[2].count("\n") == 1
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    lines = run("status")[2].splitlines()
    assert len(lines) > 1 and any("`zerochat init --name NAME`" in line for line in lines)
    assert all(len(line) <= 40 for line in lines)


def test_no_agent_no_status(run) -> None:
    code, out, err = run("status --profile work")
    assert (code, out) == (6, "")
    assert "zerochat --profile work init --name NAME" in err
    create_profile(places("work", os.environ), "alice", None)
    code, out, err = run("status --profile work")
    assert (code, out) == (6, "")
    assert "zerochat --profile work agent" in err


def test_a_dead_agents_socket_is_no_agent(run, agent) -> None:
    served = agent()
    served.stop()
    served.server.path.touch()
    assert run("status")[0] == 6


# --- joining --------------------------------------------------------------------------------------------------------


def joining(phase: Any, text: str, **fields: Any) -> JoinStatus:
    return JoinStatus(join="J", phase=phase, text=text, **fields)


def follow(served: Any, *phases: JoinStatus) -> Callable[[Any], JoinStatus]:
    """An answer to `join` that is followed by these phases as news."""

    def answer(params: Any) -> JoinStatus:
        for phase in phases:
            for client in served().subscribers:
                served().server.notify([client], "join", phase)
        return joining("dialling", "Looking…")

    return answer


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
    served.answers["join"] = follow(lambda: served, *phases)
    ended, printed, err = run("join - --name Al --timeout 0.2", stdin=b" ZC:6BF \n")
    assert (ended, printed) == (code, out)
    ours = [phase.text for phase in phases if phase.join == "J"]
    assert err.splitlines()[: len(ours)] == ours
    assert of(served, "join") == [JoinParams("ZC:6BF", "Al")]
    assert "command line" not in err


def test_where_the_invitation_comes_from(run, agent) -> None:
    served = agent()
    served.answers["join"] = follow(lambda: served, joining("joined", "In.", group="GROUPID"))
    assert "join -" in run("join ZC:1")[2]
    assert "Paste the invitation" in run("join", stdin=b"ZC:2\nrest", tty=True)[2]
    assert run("join", stdin=b"ZC:\n3")[0] == 0
    assert json.loads(run("join - --format jsonl", stdin=b"ZC:4")[1])["name"] == "hikers"
    assert [params.invitation for params in of(served, "join")] == ["ZC:1", "ZC:2", "ZC:\n3", "ZC:4"]
    assert run("join -", stdin=b"  \n")[0] == 2
    assert run("join", stdin=b"\n", tty=True)[0] == 2


def test_leaving_is_asked_first(run, agent) -> None:
    served = agent(leave=lambda _: HIKERS)
    assert run("leave hikers")[0] == 2
    code, out, err = run("leave hikers", stdin=b"\n", tty=True)
    assert (code, out) == (1, "")
    assert "[y/N]" in err
    assert of(served, "leave") == []
    assert run("leave hikers", stdin=b"y\n", tty=True)[:2] == (0, "GROUPID\n")


def test_joins_under_way_are_listed(run, usual) -> None:
    from msgspec.structs import replace

    asking = joining("asking", "A member was asked…", name="crew two", words=["apple"], until="2026-07-02T12:04:00Z")
    failed = joining("failed", "You did not get in: nobody answered.")
    usual.answers["status"] = lambda _: replace(STATUS, joins=[asking, failed])
    _, out, _ = run("status")
    assert "joining crew two  waits for an answer until 2026-07-02 12:04  A member was asked…\n" in out
    assert "joining           failed" in out and "nobody answered" in out
    assert json.loads(run("status --format jsonl")[1])["joins"][0]["name"] == "crew two"
    usual.answers["status"] = lambda _: replace(STATUS, groups=[replace(HIKERS, state="left", members=0)])
    assert "hikers  left   -        -          -               -     GROUPID" in run("status")[1]


# --- single peers ---------------------------------------------------------------------------------------------------

KEY = "did:peer:4zQmVTheirDidWhichIsQuiteLong7xQp#key-2"
PONG = PongNews(
    thread="T",
    peer="bob\x1b[2J",
    rtt_ms=12,
    envelope="didcomm/v2 authcrypt",
    their_key=KEY,
    my_key="Dk4CexRfc0019VerkeyWithoutAnyDid",
    way="mediator",
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
    mediator="asking",
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

    monkeypatch.setattr("zerochat.cli.asking.PAUSE_S", 0.0)
    served = agent(rotate=lambda _: NoParams(), connections=lambda _: [ARCHIVE])
    strange = [("pong", replace(PONG, thread="U", rtt_ms=9_999)), ("features", FeaturesNews("U", "bob", []))]
    found = FeaturesNews(
        "T", "bob", [FeatureInfo("protocol", "https://x/\x1b]0;1\x07\n/1.0"), FeatureInfo("header", "h")]
    )
    served.answers["ping"] = with_news(lambda: served, Question("T"), *strange, ("pong", PONG))
    served.answers["features"] = with_news(lambda: served, Question("T"), *strange, ("features", found))
    return served


def test_a_ping_says_what_its_answer_proves(run, curious) -> None:
    code, out, err = run("ping hikers/bob --count 3")
    assert code == 0
    assert (
        out
        == """\
bob␛[2J: answer 1 in 12 ms, over a mediator
  envelope   didcomm/v2 authcrypt
  their key  did:peer:4zQmV…ng7xQp#key-2
  my key     Dk4CexRfc0019V…AnyDid
bob␛[2J: answer 2 in 12 ms, over a mediator
bob␛[2J: answer 3 in 12 ms, over a mediator
"""
    )
    assert err == "3 of 3 answered, in 12 to 12 ms.\n"
    told = json.loads(run("ping bob --format jsonl")[1])
    assert (told["their_key"], told["way"], told["rtt_ms"]) == (KEY, "mediator", 12)
    assert of(curious, "ping") == [PeerParams("hikers/bob")] * 3 + [PeerParams("bob")]


def test_a_peer_that_does_not_answer(run, curious) -> None:
    problem = ProblemNews("bob", "e.p.me.res\x1b", "too\nbusy")
    curious.answers["ping"] = with_news(lambda: curious, Question("T"), ("problem", problem))
    curious.answers["features"] = lambda _: Question("T")
    code, out, err = run("ping bob --count 2 --timeout 0.05")
    assert (code, out) == (5, "")
    assert err.splitlines()[:2] == [
        "bob reports a problem: too⏎busy (e.p.me.res␛)",
        "No answer from bob within 0.05 s.",
    ]
    assert err.endswith("0 of 2 answered.\n")
    code, out, err = run("features bob --timeout 0.05")
    assert (code, out, err) == (5, "", "No answer from bob within 0.05 s.\n")


def test_features_are_listed(run, curious) -> None:
    code, out, err = run(["features", "bob", "https://x/*"])
    assert (code, err) == (0, "")
    assert out == "protocol  https://x/␛]0;1␇⏎/1.0\nheader    h\n"
    assert json.loads(run("features bob --format jsonl")[1].splitlines()[1]) == {"type": "header", "id": "h"}
    assert of(curious, "features") == [FeaturesParams("bob", "https://x/*"), FeaturesParams("bob", "*")]
    curious.answers["features"] = with_news(lambda: curious, Question("T"), ("features", FeaturesNews("T", "bob", [])))
    assert run("features bob") == (0, "", "bob discloses nothing that matches.\n")


def test_rotating_says_what_it_means(run, curious) -> None:
    code, out, err = run("rotate bob")
    assert (code, out) == (0, "")
    assert "new DID" in err and "The old one is given up" in err
    assert json.loads(run("rotate bob --format jsonl")[1]) == {"peer": "bob"}
    assert of(curious, "rotate") == [PeerParams("bob"), PeerParams("bob")]
    assert "towards archive⏎2." in run("rotate CONN")[2]


def test_an_agent_that_has_just_started_waits_for_the_peer(run, alone) -> None:
    from zerochat.group.external.questions import NotConnected

    tries = iter([True, False])

    def ping(params: Any) -> Any:
        if next(tries, True):
            raise NotConnected(peer="bob")
        return with_news(lambda: alone["agent"], Question("T"), ("pong", PONG))(params)

    alone["ping"] = ping
    code, out, _ = run("ping bob --timeout 5")
    assert (code, out.splitlines()[0]) == (0, "bob␛[2J: answer 1 in 12 ms, over a mediator")
    code, out, err = run("ping bob --timeout 0.1")
    assert (code, out) == (1, "") and "There is no way to bob" in err


# --- connections ----------------------------------------------------------------------------------------------------


def connecting(served: Any, *states: Any) -> None:
    """Each look at the connections finds the next of these states of one; the last for ever; None: it is gone."""
    begun, *later = states
    looks, now = iter(later), [begun]

    def look(_: Any) -> list[ConnectionInfo]:
        now[0] = next(looks, now[0])
        return [one for one in (RELAY, now[0]) if one is not None]

    served.answers["connect"] = with_news(
        lambda: served, begun, ("connection", ConnectionNews(connection=begun.id, text="…"))
    )
    served.answers["connections"] = look


@pytest.mark.parametrize(
    ("verb", "states", "code", "said"),
    [
        ("connect", [{"state": "requested"}, {"state": "requested"}, {}], 0, "Connected with archive⏎2"),
        ("connect", [{"state": "requested"}], 5, "No answer from archive⏎2 yet"),
        ("connect", [{"state": "requested"}, {"state": "ended"}], 1, "They have ended"),
        ("connect", [{"state": "requested"}, None], 1, "They have ended"),
        ("route add", [{"mediator": "asking"}, {"mediator": "granted"}], 0, "takes in what is for you"),
        ("route add", [{"mediator": "asking"}, {"mediator": "denied"}], 1, "does not want to"),
        ("route add", [{"mediator": "asking"}], 5, "The agent goes on asking"),
    ],
)
def test_connecting_waits_until_it_is_settled(run, agent, monkeypatch, verb, states, code, said) -> None:
    from msgspec.structs import replace

    monkeypatch.setattr("zerochat.cli.connecting.LOOK_S", 0.01)
    served = agent()
    connecting(served, *(state and replace(ARCHIVE, **state) if state != {} else ARCHIVE for state in states))
    ended, out, err = run([*verb.split(), "-", "--name", "A", "--timeout", "0.2"], stdin=b" https://x/?_oob=e30 \n")
    assert ended == code
    assert out == ("" if code == 1 and "denied" not in str(states) else "CONNECTION\n")
    assert said in err
    assert of(served, "connect") == [ConnectParams("https://x/?_oob=e30", "A", verb == "route add")]


def test_what_is_connected(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(connections=lambda _: [ARCHIVE, RELAY])
    assert run("connections") == (
        0,
        """\
NAME       STATE        ENVELOPE    MEDIATOR  DID                    ID
archive⏎2  established  didcomm/v1  -         did:peer:4zQmV…ng7xQp  CONNECTION
relay      requested    didcomm/v2  asking    -                      RELAYID
""",
        "",
    )
    assert run("route") == (0, "NAME   ANSWER         ID\nrelay  no answer yet  RELAYID\n", "")
    granted = replace(
        RELAY, mediator="granted", reachable=False, label="did:peer:4zQmVabc", did="did:peer:4zQmVabc" + "d" * 40
    )
    served.answers["connections"] = lambda _: [granted]
    assert "did:peer:4zQmV…dddddd  cannot be reached now " in run("route")[1]
    served.answers["connections"] = lambda _: [replace(granted, reachable=True)]
    assert " takes in what is for you " in run("route")[1]
    served.answers["connections"] = lambda _: [ARCHIVE, RELAY]
    assert [json.loads(line)["id"] for line in run("connections --format jsonl")[1].splitlines()] == [
        "CONNECTION",
        "RELAYID",
    ]
    assert json.loads(run("route --format jsonl")[1])["mediator"] == "asking"
    served.answers["connections"] = lambda _: []
    assert run("connections")[1] == run("route")[1] == ""


def test_only_an_invitation_of_ones_own_gets_an_end(run, agent) -> None:
    served = agent()
    code, _, err = run("connect - --expires 1h", stdin=b"https://x/?_oob=e30")
    assert code == 2 and "--invite" in err and of(served, "connect") == []


def test_an_offer_is_a_link_and_a_qr_code(run, agent, monkeypatch) -> None:
    offer = OfferInfo(url="https://zerochat.org/?_oob=e30", expires_at="2026-07-02T12:04:00.000Z", connection="C")
    served = agent(offer=lambda _: offer)
    assert run("connect --invite --envelope didcomm/v1 --expires 1h")[1] == (
        "link  https://zerochat.org/?_oob=e30\ngood  once, until 2026-07-02 12:04\n"
    )
    assert run("connect --invite --format url") == (0, offer.url + "\n", "")
    code, out, _ = run("connect --invite --format qr")
    assert code == 0 and out.startswith(offer.url + "\n\n\x1b[30;107m")
    assert json.loads(run("connect --invite --format json")[1])["connection"] == "C"
    assert of(served, "offer")[0] == OfferParams("didcomm/v1", 3_600)
    assert of(served, "offer")[1] == OfferParams("didcomm/v2", 86_400)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    code, out, err = run("connect --invite --format qr")
    assert (code, out) == (0, offer.url + "\n\n") and "needs a window of" in err


def test_telling_and_ending(run, agent) -> None:
    served = agent(
        tell=lambda _: ToldInfo("M"), disconnect=lambda _: NoParams(), connections=lambda _: [ARCHIVE, RELAY]
    )
    assert run(["tell", "archive 2", "keep it"]) == (0, "M\n", "")
    assert run("tell archive -", stdin=b"piped\n")[0] == run("tell archive", stdin=b"piped\n")[0] == 0
    code, _, err = run("tell archive", stdin=b" ")
    assert code == 2 and "`zerochat tell --help`" in err
    assert run(["tell", "-bcdefghijkl", "-abc"])[0] == run("tell -- --cdefghijkl x")[0] == 0
    assert of(served, "tell")[-2:] == [TellParams("-bcdefghijkl", "-abc"), TellParams("--cdefghijkl", "x")]
    del served.asked[-4:]
    assert of(served, "tell") == [TellParams("archive 2", "keep it"), *[TellParams("archive", "piped")] * 2]
    assert run("disconnect archive")[0] == 2
    code, out, err = run("disconnect archive", stdin=b"\n", tty=True)
    assert (code, out) == (1, "") and "[y/N]" in err
    assert of(served, "disconnect") == []
    assert run("disconnect archive", stdin=b"y\n", tty=True)[0] == 0
    assert "with archive⏎2 has ended" in run("disconnect CONNECTION --yes")[2]
    code, _, err = run(["route", "drop", "archive 2"])
    assert code == 1 and "No mediator of yours is called archive 2" in err
    code, _, err = run("route drop RELA")
    assert code == 0 and err == "relay takes in nothing for you any more, and the members of your groups are told so.\n"
    served.answers["groups"] = lambda _: []
    assert run("route drop relay") == (0, "", "relay takes in nothing for you any more.\n")
    whom = [params.peer for params in of(served, "disconnect")]
    assert whom == ["archive", "CONNECTION", "RELAYID", "RELAYID"]


def test_what_was_told_is_shown_again(run, agent) -> None:
    kept = [LetterInfo("1", "2026-07-01T12:04:00.000Z", False, "two\nlines\x1b"), LetterInfo("2", "x", True, "keep it")]
    served = agent(letters=lambda _: kept, connections=lambda _: [ARCHIVE])
    assert run("letters CONN")[1] == (
        "2026-07-01 12:04  archive⏎2: two\n                  lines␛\n????-??-?? ??:??  you: keep it\n"
    )
    assert of(served, "letters") == [PeerParams("CONN")]


@pytest.mark.parametrize(("answers", "code"), [(True, 0), (False, 3)])
def test_an_agent_of_its_own_sees_that_a_text_gets_out(run, alone, monkeypatch, answers, code) -> None:
    monkeypatch.setattr("zerochat.cli.connecting.HANDED_OVER_S_MAX", 5.0 if answers else 0.05)
    alone["tell"] = lambda _: ToldInfo("M")
    news = [("pong", PONG)] if answers else []
    alone["ping"] = lambda params: with_news(lambda: alone["agent"], Question("T"), *news)(params)
    ended, out, err = run("tell archive x")
    assert (ended, out) == (code, "M\n")
    assert ("may not have got there" in err) is not answers


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

    monkeypatch.setattr("zerochat.agent.network.web.short_link_fetch.fetch_invitation", fetch)
    config = places(None, os.environ).config
    config.parent.mkdir(parents=True)
    config.write_text('[network]\nsocks = "127.0.0.1:9050"\n')
    served = agent(connections=lambda _: [])
    served.answers["join"] = lambda _: joining("joined", "In.", group="GROUPID")
    served.answers["connect"] = lambda params: replace(ARCHIVE, mediator="granted" if params.mediate else None)
    for line in ("https://x.example/?_oobid=1", "HTTP://x.example/a?b=c&_oobid=1"):
        code, _, err = run([*verb.split(), "-"], stdin=line.encode() + b"\n")
        assert code == 0
        assert "Fetching" in err
    assert asked == [
        ("https://x.example/?_oobid=1", "127.0.0.1:9050"),
        ("HTTP://x.example/a?b=c&_oobid=1", "127.0.0.1:9050"),
    ]
    given = of(served, "join" if verb == "join" else "connect")[0].invitation
    assert given == ("https://zerochat.org/?_oob=eyJpZCI6IjEifQ" if verb == "connect" else "https://x/?_oob=e30")
    assert run([*verb.split(), "-"], stdin=b"https://x/?_oob=e30")[2].count("Fetching") == 0


def test_a_short_link_that_leads_nowhere(run, agent) -> None:
    served = agent()
    code, out, err = run("join -", stdin=b"http://127.0.0.1:1/?_oobid=1")
    assert (code, out) == (3, "")
    assert "cannot be followed now: nobody answers at that address" in err
    assert of(served, "join") == []


@pytest.mark.parametrize(
    ("why", "code", "said"),
    [
        ("the answer is 404", 1, "is not there any more"),
        ("there is no host of that name", 3, "cannot be followed now: there is no host"),
        ("what is there is too long", 1, "There is no invitation behind this short link: what is there is too long"),
    ],
)
def test_why_a_short_link_leads_nowhere(run, agent, monkeypatch, why, code, said) -> None:
    from zerochat.agent.network.web.short_link_fetch import NoInvitationThere

    def fetch(uri: str, **options: Any) -> Any:
        raise NoInvitationThere(why=why)

    monkeypatch.setattr(
        "zerochat.agent.network.web.short_link_fetch.fetch_invitation",
        lambda *a, **o: SimpleNamespace(result=lambda: fetch("")),
    )
    agent()
    for verb in ("join", "connect", "route add"):
        ended, _, err = run([*verb.split(), "-"], stdin=b"http://192.0.2.1/?_oobid=1")
        assert ended == code and said in err and "zerochat invite" not in err


def test_an_invitation_over_a_mediator_has_no_code(run, agent) -> None:
    from msgspec.structs import replace

    served = agent(invite=lambda _: replace(INVITATION, code="", endpoint="https://relay.example"))
    code, out, err = run("invite hikers")
    assert code == 0 and "code" not in out and "leads to  https://relay.example" in out
    code, out, err = run("invite hikers --format code")
    assert (code, out) == (1, "") and "--format url" in err
    code, out, err = run("invite hikers --format qr")
    assert code == 0 and out.startswith(INVITATION.url + "\n\n\x1b[30;107m")
    long = replace(INVITATION, code="", url="https://x/?_oob=" + "a" * 3_000)
    served.answers["invite"] = lambda _: long
    assert run("invite hikers --format qr") == (0, long.url + "\n\n", "This link is too long for a QR code.\n")


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
def test_a_command_that_is_hinted_at_leads_to_the_same_profile(run, monkeypatch, options, environment, hint) -> None:
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


def test_a_command_for_somebody_else_names_no_profile_of_ours(run) -> None:
    create_profile(places("work", os.environ), "alice", None)
    code, _, err = run("--profile work join -", stdin=b"ZC:AAAA")
    assert code == 1
    assert "cut off or damaged" in err and "`zerochat invite GROUP`" in err and "--profile" not in err
    assert "`zerochat --help`" in run("--profile work")[2]


# --- an agent of one's own ------------------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch, fake_agent) -> dict[str, Any]:
    """No agent is running, and the one that a verb starts for itself is a pretending one with these answers."""
    answers: dict[str, Any] = {"groups": lambda _: [HIKERS], "send": lambda _: SENT, "invite": lambda _: INVITATION}

    class Thread:
        failure: BaseException | None = None
        starts = 0

        def __init__(
            self,
            home: Any,
            key: bytes,
            *,
            listen: str | None,
            advertise: str | None,
            unused_s: float | None = None,
            log_format: str | None = None,
            hooks: bool = False,
        ) -> None:
            assert key == b"key"
            self.home = home
            self.agent: Any = None

        def start(self) -> None:
            Thread.starts += 1
            if (before := answers.get("before_start")) is not None:
                before(self, Thread.starts)
            self.agent = fake_agent(path=self.home.socket, **{k: v for k, v in answers.items() if k != "before_start"})
            answers["agent"] = self.agent

        def stop(self) -> None:
            if self.agent is not None:
                self.agent.stop()
            answers["stopped"] = True

    monkeypatch.setattr("zerochat.agent.loop.AgentThread", Thread)
    monkeypatch.setattr("zerochat.agent.storage.profiles.unlock", lambda home, passphrase: b"key")
    answers["Thread"] = Thread
    return answers


@pytest.mark.parametrize(
    ("report", "code", "narration"),
    [(ALL, 0, "Delivered to all 2"), (HALF, 0, "Delivered to 1 of 2. The rest is queued")],
)
def test_a_message_sent_by_an_agent_of_its_own(run, alone, report, code, narration) -> None:
    alone["wait"] = lambda _: report
    ended, out, err = run("send hikers -m x")
    assert (ended, out) == (code, "EVENTID\n")
    assert narration in err
    assert alone["stopped"]


def test_a_message_that_nobody_could_get_yet(run, alone) -> None:
    alone["wait"] = lambda _: DeliveryReport("GROUPID", "EVENTID", 0, 2, False, [])
    ended, out, err = run("send hikers -m x")
    assert (ended, out) == (3, "EVENTID\n")
    assert "goes out when an agent runs" in err


def test_an_invitation_needs_an_agent_that_stays(run, alone) -> None:
    code, out, err = run("invite hikers --format url")
    assert (code, out) == (0, INVITATION.url + "\n")
    assert "zerochat agent" in err


def test_an_agent_of_its_own_looks_for_the_members_first(run, alone) -> None:
    from msgspec.structs import replace

    answers = iter([[replace(one, connection="unreachable") for one in MEMBERS[1:]]])
    here = [replace(one, connection="connected", trust="unverified", forked=False) for one in MEMBERS[1:]]
    alone["members"] = lambda _: [MEMBERS[0], *next(answers, here)]
    code, out, err = run("members hikers")
    assert (code, err) == (0, "")
    assert out.count("connected") == 2 and "over a mediator" in out and "unreachable" not in out


def test_who_is_not_connected_to_an_agent_that_has_just_started(run, alone, monkeypatch) -> None:
    monkeypatch.setattr("zerochat.cli.members.MEETING_S_MAX", 0.0)
    alone["members"] = lambda _: MEMBERS
    code, out, err = run("members hikers")
    assert (code, out) == (0, TEXT["members hikers"])
    assert "only just started" in err
    alone["members"] = lambda _: MEMBERS[:1]
    assert run("members hikers")[2] == ""


def test_a_wrong_passphrase_is_asked_for_again(run, alone, monkeypatch, tmp_path) -> None:
    from zerochat.agent.storage.profiles import WrongPassphrase

    def unlock(home: Any, passphrase: Callable[[], bytes]) -> bytes:
        if passphrase() != b"right":
            raise WrongPassphrase(profile="default")
        return b"key"

    alone["wait"] = lambda _: ALL
    monkeypatch.setattr("zerochat.agent.storage.profiles.unlock", unlock)
    monkeypatch.setattr("zerochat.cli.agents._has_terminal", lambda: True)
    typed = iter(["a", "b", "right", "a", "b", "c", "a", "b", "c"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    code, _, err = run("send hikers -m x")
    assert code == 0 and err.count("Once more.") == 2
    for line in ("send hikers -m x", "agent"):
        code, _, err = run(line)
        assert code == 6 and err.count("Once more.") == 2 and err.endswith("try again.\n")
    secret = tmp_path / "secret"
    secret.write_bytes(b"wrong\n")
    monkeypatch.setenv("ZEROCHAT_PASSPHRASE_FILE", str(secret))
    code, _, err = run("send hikers -m x")
    assert code == 6 and "Once more." not in err


def test_the_loser_of_a_race_attaches_to_the_winner(run, alone, fake_agent) -> None:
    def race(thread: Any, starts: int) -> None:
        if starts == 2:
            fake_agent(path=thread.home.socket, send=lambda _: SENT, groups=lambda _: [HIKERS])
        raise ProfileOwned(profile="default", pid=1)

    alone["before_start"] = race
    code, out, err = run("send hikers -m x")
    assert (code, out, err) == (0, "EVENTID\n", "")


def test_the_agent_waits_for_the_profile(run, alone, monkeypatch) -> None:
    def owned(thread: Any, starts: int) -> None:
        if starts < 4:
            raise ProfileOwned(profile="default", pid=7)

    alone["before_start"] = owned
    alone["status"] = lambda _: STATUS
    alone["Thread"].is_alive = lambda self: False
    monkeypatch.setattr("zerochat.cli.running.OWNED_AGAIN_S", 0.001)
    monkeypatch.setattr("zerochat.cli.running.OWNED_QUIET_S", 0.0)
    code, out, err = run("agent")
    assert code == 0 and out.startswith("ready ") and err.count("\n") == 1 and "process 7" in err
    monkeypatch.setattr("zerochat.cli.running.OWNED_S_MAX", 0.0)
    alone["Thread"].starts = 0
    code, out, err = run("agent")
    assert (code, out) == (6, "") and "belongs to another zerochat" in err


def test_settings_that_mean_nothing_are_told(run, alone) -> None:
    home = places(None, os.environ)
    home.config.parent.mkdir(parents=True)
    home.config.write_text("[network]\nhiden = true\n")
    alone["status"] = lambda _: STATUS
    alone["Thread"].is_alive = lambda self: False
    alone["members"] = lambda _: MEMBERS[:1]
    for line in ("members hikers", "agent"):
        assert "no setting network.hiden. Did you mean network.hidden?" in run(line)[2]


def test_an_agent_that_cannot_start(run, alone) -> None:
    class Full(LocalError):
        """The disk is full."""

    def fail(thread: Any, starts: int) -> None:
        raise Full

    alone["before_start"] = fail
    assert run("send hikers -m x") == (1, "", "zerochat: The disk is full.\n")


def test_why_an_agent_of_ones_own_has_gone(run, alone) -> None:
    class Broken(LocalError):
        """The journal is broken."""

        exit_code = 7

    def die(params: Any) -> None:
        alone["agent"].end()
        alone["Thread"].failure = Broken()

    alone["send"] = die
    code, out, err = run("send hikers -m x")
    assert (code, out, err) == (7, "", "zerochat: The journal is broken.\n")


# --- the profile ----------------------------------------------------------------------------------------------------


def test_locate_prints_paths_and_makes_nothing(run, home) -> None:
    here = places("work", os.environ)
    assert run("--profile work locate socket") == (0, f"{here.socket}\n", "")
    assert json.loads(run("locate log --profile work --format jsonl")[1]) == {"place": "log", "path": str(here.log)}
    code, out, _ = run("locate --profile work")
    assert code == 0
    assert tuple(line.split()[0] for line in out.splitlines()) == PLACES
    assert str(here.data) in out
    assert not home.exists()


def test_a_name_for_a_profile_that_cannot_be(run) -> None:
    code, out, err = run(["--profile", "../x", "locate"])
    assert code != 0 and out == "" and err


def test_the_passphrase_comes_from_a_file_or_a_person(run, monkeypatch, tmp_path) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        "zerochat.agent.storage.profiles.create_profile", lambda *given, keyring: made.append(given[1:])
    )
    code, out, err = run("init --name alice")
    assert (code, out) == (0, f"{places(None, os.environ).data}\n")
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
    monkeypatch.setattr("zerochat.cli.agents._has_terminal", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert run("init --name alice --passphrase")[0] == 0
    assert run("init --name alice --passphrase")[0] == 2
    code, _, err = run("init --name alice --passphrase")
    assert code == 2 and err.count("Once more.") == 2
    assert made == [("alice", None), ("alice", b"two words"), ("alice", b"same")]


def test_the_chat_needs_a_terminal(run) -> None:
    code, out, err = run("")
    assert (code, out) == (2, "")
    assert "needs a terminal" in err


# --- as a process ---------------------------------------------------------------------------------------------------


def process(*words: str, **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "zerochat", *words],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        **options,
    )


@contextmanager
def heeded(signum: int) -> Iterator[None]:
    """Whoever is started within does not ignore this signal, as it would under nohup or in a shell's background."""
    before = signal.signal(signum, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)])
def test_tail_follows_until_it_is_told_to_end(agent, signum, code) -> None:
    served = agent(history=lambda params: History([event(1), event(2)], more=True))
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


def test_tail_from_a_cursor_and_an_agent_that_goes(agent) -> None:
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
    assert of(served, "history") == []


def test_a_reader_that_has_seen_enough(agent) -> None:
    agent(history=lambda params: History([event(seq, body={"text": "x" * 1_000}) for seq in range(300)], more=False))
    with process("history", "hikers") as history:
        assert history.stdout is not None and history.stderr is not None
        history.stdout.readline()
        history.stdout.close()
        assert history.wait(10) == 0
        assert history.stderr.read() == b""


def test_the_agent_runs_until_it_is_told_to_end(run, home, monkeypatch) -> None:
    create_profile(places(None, os.environ), "alice", None)
    with process("agent", "--listen", "127.0.0.1") as agent:
        assert agent.stdout is not None and agent.stderr is not None
        ready = dict(pair.split("=", 1) for pair in agent.stdout.readline().decode().split()[1:])
        assert ready["pid"] == str(agent.pid)
        status = json.loads(run("status --format jsonl")[1])
        assert (status["pid"], status["pair"], status["nick"]) == (agent.pid, ready["pair"], "alice")
        monkeypatch.setattr("zerochat.cli.running.OWNED_S_MAX", 0.0)
        code, out, err = run("agent")
        assert (code, out) == (6, "")
        assert f"process {agent.pid}" in err
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
        assert (agent.stdout.read(), agent.stderr.read()) == (b"", b"")
    assert run("status")[0] == 6


def test_ctrl_c_on_a_terminal_leaves_the_prompt_a_line_of_its_own(run, capsys, monkeypatch) -> None:
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


def test_a_full_disk_behind_standard_output(agent) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    agent(status=lambda _: STATUS)
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "zerochat", "status"]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], stdout=full, stderr=subprocess.PIPE, timeout=20, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"zerochat: No space left on device")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["send", "hikers", "-m", "x"], ["--profile", "nobody", "status"]])
def test_that_nobody_reads_standard_error_changes_nothing(agent, words: list[str]) -> None:
    """The terminal has gone, or the disk of the log is full."""
    agent(send=lambda _: SENT)
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
    agent(send=lambda _: SENT)
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
    assert {name for name in loaded if name.startswith("zerochat")} == {"zerochat"}
    assert not loaded & {"importlib.metadata", "msgspec", "socket", "json", "datetime"}
    import zerochat

    assert zerochat.LocalError is LocalError
    assert "attach" in dir(zerochat)
    with pytest.raises(AttributeError):
        _ = zerochat.nonsense
