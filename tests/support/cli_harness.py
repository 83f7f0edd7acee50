"""The command line against a scripted agent: profiles, fixtures, sample answers."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from zerochat.agent.storage.paths import profile_paths
from zerochat.cli import main
from zerochat.rpc import (
    Author,
    ConnectionInfo,
    Delivery,
    DeliveryReport,
    Event,
    GroupInfo,
    History,
    InvitationInfo,
    JoinStatus,
    MemberDelivery,
    MemberInfo,
    Sent,
    Status,
)

ALICE, BOB, CAROL = "did:key:z6MkAlice", "did:key:z6MkBobb", "did:key:z6MkCarol"


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
        did=BOB, nick="bob\x1b[2J", connection="connected", view_matches=True, joined_at="x", bot=True, trust="verified"
    ),
    MemberInfo(
        did=CAROL,
        nick="卡羅",
        connection="connected",
        via="mediator",
        view_matches=False,
        joined_at="x",
        role="reader",
        trust="changed",
    ),
    MemberInfo(did=CAROL + "2", nick="dave", connection="unreachable", joined_at="x", forked=True),
]

MEMBERS_TEXT = """\
NAME           ROLE    CONNECTION    LAST SEEN  VIEW     TRUST     KEY
alice          writer  you           -          -        -         did:key:z6MkAlice
bob␛[2J [bot]  writer  connected     never      same     verified  did:key:z6MkBobb
卡羅           reader  via mediator  never      differs  CHANGED   did:key:z6MkCarol
dave           writer  unreachable   never      -        FORKED    did:key:z6MkCarol2
"""

INVITATION = InvitationInfo(
    group="GROUPID",
    url="https://zerochat.org/?_oob=eyJ0",
    code="ZC:6BF",
    expires_at="2026-07-02T12:04:00.000Z",
    uses=1,
    endpoint="zmq+tcp://192.0.2.7:4242",
)

SENT = Sent(group="GROUPID", id="EVENTID", lamport=9, position=4, of=2)

HALF = DeliveryReport(
    "GROUPID", "EVENTID", 1, 2, False, [MemberDelivery(BOB, "bob", True), MemberDelivery(CAROL, "卡羅", False)]
)

ENOUGH = DeliveryReport("GROUPID", "EVENTID", 1, 2, True, HALF.members)

ALL = DeliveryReport("GROUPID", "EVENTID", 2, 2, True, HALF.members)

KEY = "did:peer:4zQmVTheirDidWhichIsQuiteLong7xQp#key-2"

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
        answers.setdefault("list_groups", lambda _: [HIKERS])
        answers.setdefault("get_status", lambda _: STATUS)
        profile_paths(None, os.environ).data.mkdir(parents=True, exist_ok=True)
        return fake_agent(path=profile_paths(None, os.environ).socket, **answers)

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
    """The params of every request of this kind, without the idempotency keys that the client has made."""
    return [_without_made_key(params) for asked, params in agent.asked if asked == method]


def _without_made_key(params: Any) -> Any:
    made = (getattr(params, "key", None) or "").startswith("once:")
    return replace(params, key=None) if made else params


@pytest.fixture
def usual(agent) -> Any:
    return agent(
        get_status=lambda _: STATUS,
        list_members=lambda _: MEMBERS,
        get_history=lambda _: History(HISTORY, more=False),
        create_invitation=lambda _: INVITATION,
        create_group=lambda _: HIKERS,
        leave_group=lambda _: HIKERS,
        send_message=lambda _: SENT,
        wait_for_delivery=lambda params: DeliveryReport("GROUPID", "EVENTID", 1, 2, params.count == 1, HALF.members),
    )


def joining(phase: Any, text: str, **fields: Any) -> JoinStatus:
    return JoinStatus(join="J", phase=phase, text=text, **fields)


def follow(served: Any, *phases: JoinStatus) -> Callable[[Any], JoinStatus]:
    """An answer to `join` that is followed by these phases as news."""

    def answer(params: Any) -> JoinStatus:
        for phase in phases:
            for client in served().subscribers:
                served().server.notify([client], "join_changed", phase)
        return joining("dialling", "Looking…")

    return answer


@pytest.fixture
def alone(monkeypatch, fake_agent) -> dict[str, Any]:
    """No agent is running, and the one that a verb starts for itself is a pretending one with these answers."""
    answers: dict[str, Any] = {
        "list_groups": lambda _: [HIKERS],
        "send_message": lambda _: SENT,
        "create_invitation": lambda _: INVITATION,
        "get_status": lambda _: STATUS,
    }

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
            owner: str = "",
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

    monkeypatch.setattr("zerochat.agent.thread.AgentThread", Thread)
    monkeypatch.setattr("zerochat.agent.storage.profiles.unlock", lambda home, passphrase: b"key")
    answers["Thread"] = Thread
    return answers


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
