"""The stream in the journal and at the desk: numbers, retention, losses that are told, keys; the protocol's page."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.agent.test_journal import KEY, Tree
from zerochat import rpc
from zerochat.agent.api.client import Dialogue, News
from zerochat.agent.api.reference import document, json_schema
from zerochat.agent.api.subscriptions import store as stores
from zerochat.agent.api.subscriptions import tables
from zerochat.agent.api.subscriptions.consumers import Consumers
from zerochat.agent.api.subscriptions.idempotency import Keys
from zerochat.agent.api.subscriptions.store import Consumer, Happening, Kept, Notes
from zerochat.agent.storage.database import Format, open_database
from zerochat.agent.storage.journal import DiskFull, Journal, Row
from zerochat.agent.storage.tables import APPLICATION_ID, SCHEMA_VERSION
from zerochat.agent.views.current_messages import Fed
from zerochat.errors import LocalError
from zerochat.group.effects import Forget, Refute, Remember
from zerochat.group.state import Agent

FORMAT_4 = {"meta", "checkpoint", "events", "receipts", "said"}
DAY_MS = 24 * 3600 * 1000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.create(tmp_path / "journal.db", KEY) as made:
        yield made


def consumer(name: str = "ci", acked: int = 0, **others: Any) -> Consumer:
    return Consumer(name, acked, acked, 1, 1, **others)


def post(number: int) -> Remember:
    return Remember("g", f"id-{number}", "did:key:a", number + 1, number, "post", b"{}", 1, False)


def happen(journal: Journal, count: int, *, at: int = 1, kind: str = "gap", group: str = "g") -> list[int]:
    """So many happenings in one turn; their numbers."""
    before = journal.stream.latest()
    turn = Notes(tuple(Happening(group, kind, at, f'{{"n":{n}}}') for n in range(count)))
    journal.commit(Tree("x"), (), turn)
    return list(range(before + 1, journal.stream.latest() + 1))


class Server:
    """The control server's part that the stream uses; what it says is kept."""

    def __init__(self) -> None:
        self.clients = {1, 2, 3}
        self.told: list[tuple[int, str, Any]] = []
        self.answers: dict[Any, Any] = {}

        self.unread: dict[int, int] | None = None
        """Bytes that wait for each; None: everybody reads at once."""

    def backlog(self, client: int) -> int:
        return self.unread.get(client, 0) if self.unread is not None else 0

    def notify(self, clients: Any, method: str, item: Any) -> None:
        self.told += [(client, method, item) for client in clients]
        if self.unread is not None:
            self.unread |= {client: self.unread.get(client, 0) + 100_000 for client in clients}

    def respond(self, client: int, request: Any, result: Any) -> None:
        self.answers[request] = result

    def refuse_error(self, client: int, request: Any, error: LocalError) -> None:
        self.answers[request] = error


class Reading:
    """Consumers at a desk without any groups: what happens is all there is."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.server, self.now, self.state = journal, Server(), 1, 0
        self.consumers = Consumers(self.server, journal, lambda agent, rows: [], lambda: self.now)  # type: ignore[arg-type]
        self.agent: Any = Agent("x")

    def subscribe(self, client: int, name: str = "ci", **params: Any) -> rpc.Subscribed:
        wanted = rpc.SubscribeParams(consumer=name, **params)
        return self.consumers.subscribe(client, name, wanted, self.agent)

    def feed(self) -> list[tuple[str, Any]]:
        """Everything that there is to tell now."""
        self.server.told.clear()
        while self.consumers.feed(self.agent):
            pass
        return [(method, item) for _, method, item in self.server.told]

    def items(self) -> list[tuple[int, str, int]]:
        return [(item.seq, item.type, item.attempt) for method, item in self.feed() if method == "item"]

    def turn(self) -> None:
        self.state += 1
        notes = Notes((), self.consumers.notes(writing=False))
        self.journal.commit(Tree(str(self.state)), (), notes)
        self.consumers.kept(notes.consumers)

    def ack(self, seq: int, name: str = "ci") -> Any:
        self.consumers.ack(1, "ack", name, seq)
        assert not self.consumers.pending or "ack" not in self.server.answers, "it is on disk before it is answered"
        if self.consumers.pending:
            self.turn()
        return self.server.answers.pop("ack")


# --- numbers --------------------------------------------------------------------------------------------------------


def test_events_and_happenings_have_one_row_of_numbers(journal: Journal) -> None:
    journal.stream.put(consumer())
    assert happen(journal, 2) == [1, 2]
    journal.commit(Tree("y"), [post(0), post(1)], Notes((Happening("g", "gap", 1, "{}"),)))
    assert [row.seq for row in journal.by_seq(0, 9)] == [3, 4]
    assert [one.seq for one in journal.stream.happenings(0, 9)] == [1, 2, 5] and journal.stream.latest() == 5
    journal.commit(Tree("z"), [Forget("g")])
    assert journal.stream.latest() == 5 and not journal.stream.happenings(0, 9) and not journal.by_seq(0, 9)
    assert happen(journal, 1) == [6], "no number is used twice"


def test_nothing_is_kept_while_nobody_could_miss_it(journal: Journal) -> None:
    assert happen(journal, 2) == [] and not journal.stream.happenings(0, 9)
    journal.stream.put(consumer())
    assert happen(journal, 1) == [1]
    journal.stream.drop("ci")
    assert not journal.stream.consumers and not journal.stream.happenings(0, 9)


def test_a_turn_that_fails_leaves_nothing_of_the_stream(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.stream.put(consumer())
    happen(journal, 1)
    kept = Kept("g", "k", 1, b"d", "{}")
    with monkeypatch.context() as patched:
        patched.setattr(tables, "PUT_KEY", "INSERT INTO nothing VALUES (?, ?, ?, ?, ?)")
        with pytest.raises(Exception, match="nothing"):
            journal.commit(Tree("y"), (), Notes((Happening("g", "gap", 1, "{}"),), (consumer(acked=1),), (kept,)))
    assert len(journal.stream.happenings(0, 9)) == 1 and journal.stream.unread(0) == 1
    assert journal.stream.consumers["ci"].acked == 0 and journal.stream.key("g", "k", 1) is None
    assert happen(journal, 1) == [2]


def test_a_journal_of_format_4_gets_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.create(path, KEY) as journal:
        journal.commit(Tree("x"), [post(0)])
    db = open_database(path, KEY, Format(APPLICATION_ID, SCHEMA_VERSION))
    found = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    later = [str(name) for name in found if name not in FORMAT_4 and not str(name).startswith(("sqlite_", "words"))]
    assert {"happenings", "consumers", "keys"} <= set(later)
    for table in later:
        db.execute(f"DROP TABLE {table}")
    db.execute("DROP INDEX events_verdicts")
    db.pragma("user_version", 4)
    db.close()
    with Journal.open(path, KEY) as journal:
        assert [row.seq for row in journal.by_seq(0, 9)] == [1] and not journal.stream.consumers
        journal.stream.put(consumer())
        assert happen(journal, 1) == [2]


# --- retention ------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "HAPPENINGS_MAX", 100)
    monkeypatch.setattr(stores, "KEYS_MAX", 100)


def test_the_oldest_go_and_whoever_had_not_read_them_is_told_in_their_place(journal: Journal, few: None) -> None:
    desk = Reading(journal)
    desk.subscribe(1)
    desk.subscribe(2, "ahead")
    happen(journal, 60)
    assert len(desk.items()) == 2 * 60
    desk.ack(60, "ahead")
    desk.ack(10)
    assert not [item for method, item in desk.feed() if method == "overflow"]
    happen(journal, 30)
    (warning,) = [item for method, item in desk.feed() if method == "overflow"]
    assert (warning.consumer, warning.unread, warning.left) == ("ci", 80, 20)
    happen(journal, 20)  # 110 of 100: the oldest 15 go
    assert [one.seq for one in journal.stream.happenings(0, 1)] == [16]
    assert not [item for method, item in desk.feed() if method in ("overflow", "dropped")], "it was told them"
    desk.server.clients = {2, 3}
    desk.subscribe(3)
    found = desk.items()
    assert found[0] == (15, "dropped", 2) and [seq for seq, _, _ in found[1:]] == list(range(16, 111))
    told = next(item for _, method, item in desk.server.told if item.type == "dropped")
    assert told.body == {"from_seq": 11, "to_seq": 15, "count": 5}
    assert desk.ack(15).acked == 15 and not journal.stream.consumers["ci"].lost
    assert not journal.stream.consumers["ahead"].lost


def test_only_what_was_wanted_is_missed(journal: Journal, few: None) -> None:
    journal.stream.put(consumer("gaps", types=("gap",)))
    journal.stream.put(consumer("other", types=("message",)))
    journal.stream.put(consumer("there", groups=("h",)))
    for _ in range(6):
        happen(journal, 10, kind="gap")
        happen(journal, 10, kind="fork")
    lost = {one.name: one.lost for one in journal.stream.consumers.values()}
    assert lost == {"gaps": 15, "other": 0, "there": 0}
    assert journal.stream.consumers["gaps"].lost_from == 1 and journal.stream.consumers["gaps"].lost_to == 25
    happen(journal, 20)
    assert journal.stream.consumers["gaps"].lost_from == 1, "what was lost earlier is not forgotten"
    assert journal.stream.consumers["gaps"].lost > 15


def test_what_is_too_old_goes_and_is_warned_of(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1, credit=1)
    happen(journal, 2, at=1)
    happen(journal, 1, at=10 * DAY_MS)
    desk.now = 25 * DAY_MS
    (warning,) = [item for method, item in desk.feed() if method == "overflow"]
    assert warning.unread == 3 and warning.until == "1970-01-31T00:00:00.001Z"
    assert not [item for method, item in desk.feed() if method == "overflow"], "once"
    happen(journal, 1, at=31 * DAY_MS)
    assert [one.seq for one in journal.stream.happenings(0, 9)] == [3, 4]
    assert journal.stream.consumers["ci"].lost == 2


def test_everything_may_be_gone(journal: Journal) -> None:
    desk = Reading(journal)
    journal.stream.put(consumer())
    happen(journal, 3, at=1)
    happen(journal, 1, at=40 * DAY_MS)
    journal.commit(Tree("z"), [Forget("g")])
    desk.subscribe(1)
    assert desk.items() == [(3, "dropped", 1)]
    assert desk.ack(3).acked == 3 and desk.items() == []


# --- acknowledging --------------------------------------------------------------------------------------------------


def test_what_is_not_wanted_is_passed_over(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1, types=["fork"])
    happen(journal, 3, kind="gap")
    (fork,) = happen(journal, 1, kind="fork")
    happen(journal, 2, kind="gap")
    assert desk.items() == [(fork, "fork", 1)]
    assert desk.ack(fork).acked == fork + 2, "the rest is nothing to it"
    (info,) = desk.consumers.infos()
    assert (info.behind, info.unread, info.acked) == (0, 0, fork + 2)


def test_who_does_not_read_is_told_no_more_until_it_does(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1)
    happen(journal, 8)
    desk.server.unread = {}
    heard = []
    for _ in range(3):
        heard.append(desk.items())
        assert desk.items() == []
        desk.server.unread.clear()
    assert [len(one) for one in heard] == [3, 3, 2] and [seq for one in heard for seq, _, _ in one] == list(range(1, 9))


def test_acknowledgements_of_one_turn_are_written_together(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1)
    happen(journal, 5)
    desk.items()
    for number in (2, 5, 3):
        desk.consumers.ack(1, f"a{number}", "ci", number)
    assert not desk.server.answers and desk.consumers.pending
    desk.turn()
    assert {one.acked for one in desk.server.answers.values()} == {5} and len(desk.server.answers) == 3
    assert not desk.consumers.pending


def test_an_acknowledgement_that_cannot_be_written_is_refused(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1, credit=2)
    happen(journal, 5)
    assert len(desk.items()) == 2
    desk.consumers.ack(1, "a", "ci", 2)
    desk.consumers.undone(DiskFull(path="/"))
    assert isinstance(desk.server.answers["a"], DiskFull) and journal.stream.consumers["ci"].acked == 0
    assert desk.items() == [], "it gives no credit"
    assert desk.ack(2).acked == 2 and len(desk.items()) == 2


def test_what_was_told_is_remembered_when_the_connection_ends(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1)
    happen(journal, 2)
    assert desk.items() == [(1, "gap", 1), (2, "gap", 1)]
    desk.server.clients = set()
    desk.feed()
    desk.turn()
    assert journal.stream.consumers["ci"].attempts == {1: 1, 2: 1} and journal.stream.consumers["ci"].told == 2
    other = Reading(journal)
    other.subscribe(1)
    assert other.items() == [(1, "gap", 2), (2, "gap", 2)]


def handed(number: int, vouched: str = "", author: str = "did:key:a") -> Remember:
    name = f"{author[-1]}{number}"
    record = b'{"body":{"text":"hello"}}'
    return Remember("g", name, author, number, number, "post", record, 1, False, vouched)


def heard(journal: Journal, after: int) -> list[str]:
    return [row.id for row in journal.by_seq(after, 9)]


def test_what_was_refuted_before_everybody_had_heard_it_comes_with_a_new_number(journal: Journal) -> None:
    journal.stream.put(consumer("ahead", acked=9))
    journal.stream.put(consumer())
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m"), handed(3, "did:key:m")])
    journal.commit(Tree("2"), [Refute("g", "did:key:a", 1, 3)])
    journal.commit(Tree("3"), [handed(1, author="did:key:b")])
    assert heard(journal, 0) == ["a1", "b1"]
    passed = journal.stream.latest()
    journal.stream.put(consumer(acked=passed))
    journal.commit(Tree("4"), [handed(2), handed(3, "did:key:m"), handed(2, author="did:key:b")])
    assert heard(journal, passed) == ["a2", "a3", "b2"], "in the order in which they have come"
    assert not journal.stream.unheard
    assert happen(journal, 1)[0] > journal.by_seq(passed, 9)[-1].seq, "no number is used twice"


def test_what_all_had_heard_is_not_told_again_when_it_comes_anew(journal: Journal) -> None:
    """Else whoever hands things over could have a bot do them again and again."""
    journal.stream.put(consumer(acked=2))
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m")])
    for turn in range(3):
        journal.commit(Tree(f"r{turn}"), [Refute("g", "did:key:a", 1, 2)])
        journal.commit(Tree(f"k{turn}"), [handed(2, "did:key:m")])
    assert heard(journal, 2) == [] and heard(journal, 0) == ["a1", "a2"]


def test_what_comes_anew_is_told_to_those_alone_who_had_not_heard_it(journal: Journal) -> None:
    """One that nobody uses any more does not make all others hear it twice."""

    def told(rows: list[Row]) -> list[Fed]:
        return [Fed(row, said(row)) for row in rows]

    def said(row: Row) -> rpc.Event:
        return rpc.Event(
            seq=row.seq,
            type="message",
            group=row.group,
            id=row.id,
            author=rpc.Author(row.author, ""),
            position=row.position,
            lamport=row.lamport,
            parents=[],
            sent_at="",
            received_at="",
            body={},
            delivery=rpc.Delivery(0, 0),
        )

    def begun() -> Reading:
        desk = Reading(journal)
        desk.consumers.fed = lambda agent, rows: told(rows)
        for client, name in enumerate(("ahead", "stale"), 1):
            desk.subscribe(client, name)
        return desk

    def heard_by(desk: Reading) -> dict[int, list[str]]:
        desk.feed()
        found: dict[int, list[str]] = {1: [], 2: []}
        for client, _, one in desk.server.told:
            found[client].append(one.id)
        return found

    journal.stream.put(consumer("ahead"))
    journal.stream.put(consumer("stale"))
    desk = begun()
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m"), handed(3, "did:key:m")])
    assert heard_by(desk) == {1: ["a1", "a2", "a3"], 2: ["a1", "a2", "a3"]}
    desk.ack(2, "ahead")
    for turn in range(3):
        journal.commit(Tree(f"r{turn}"), [Refute("g", "did:key:a", 1, 3)])
        notes = Notes((), (replace(journal.stream.consumers["ahead"], updated=2 + turn),))
        journal.commit(Tree(f"k{turn}"), [handed(2, "did:key:m"), handed(3, "did:key:m")], notes)
    desk = begun()  # and the agent starts again
    assert heard_by(desk) == {1: ["a3"], 2: ["a1", "a2", "a3"]}, "it had acknowledged the second one, and no more"
    desk.ack(max(one.seq for client, _, one in desk.server.told if client == 1), "ahead")
    assert not journal.stream.unheard and -1 not in journal.stream.consumers["ahead"].attempts.values()
    assert heard_by(begun()) == {1: [], 2: ["a1", "a2", "a3"]}


def test_what_comes_anew_is_still_found_and_a_forgotten_group_leaves_nothing(journal: Journal) -> None:
    journal.stream.put(consumer())
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m")])
    journal.commit(Tree("2"), [Refute("g", "did:key:a", 1, 2), handed(2)])
    known, db = journal.by_seq(0, 9), journal._db
    assert [row.id for row in known] == ["a1", "a2"] and known[1].seq == 3
    assert {seq for (seq,) in db.execute("SELECT seq FROM said").fetchall()} == {row.seq for row in known}
    journal.commit(Tree("3"), [handed(3, "did:key:m")])
    journal.commit(Tree("4"), [Refute("g", "did:key:a", 2, 3)])
    assert journal.stream.unheard == 1
    journal.commit(Tree("5"), [Forget("g")])
    assert journal.stream.unheard == 0


def test_a_full_house_of_names(journal: Journal) -> None:
    for number in range(64):
        journal.stream.put(consumer(f"c{number}"))
    desk = Reading(journal)
    with pytest.raises(LocalError, match="64 consumers"):
        desk.subscribe(1, "one-more")
    desk.consumers.forget("c7")
    desk.subscribe(1, "one-more")


# --- keys -----------------------------------------------------------------------------------------------------------


def test_keys_are_forgotten_after_so_many_and_so_long(journal: Journal, few: None) -> None:
    for number in range(130):
        journal.commit(Tree(str(number)), (), Notes((), (), (Kept("g", f"k{number}", number, b"d", "{}"),)))
    assert journal.stream.key("g", "k129", 200) == (b"d", "{}")
    assert journal.stream.key("g", "k129", 129 + 30 * DAY_MS) is None
    left = [number for number in range(130) if journal.stream.key("g", f"k{number}", 200)]
    assert left == list(range(130 - len(left), 130)) and 95 <= len(left) <= 100
    journal.commit(Tree("z"), [Forget("g")])
    assert journal.stream.key("g", "k129", 200) is None


def test_the_same_request_waits_for_the_first_one(journal: Journal) -> None:
    server = Server()
    keys = Keys(server, journal, lambda: 1)  # type: ignore[arg-type]
    numbers = itertools.count()

    def ask(text: str, key: str = "k") -> tuple[bool, rpc.Request]:
        request = rpc.Request("send", id=next(numbers))
        return keys.claim(1, request, "g", rpc.SendParams("g", text, key=key)), request

    first, request = ask("x")
    assert first and not ask("x")[0]
    with pytest.raises(LocalError, match="Something else was said under this key"):
        ask("y")
    sent = rpc.Sent("g", "e" * 43, 1, 1, 0)
    (kept,) = keys.kept([(request, lambda: sent)])
    journal.commit(Tree("x"), (), Notes((), (), (kept,)))
    keys.settled(request, sent)
    assert server.answers == {1: msgspec.structs.replace(sent, again=True)}
    assert not ask("x")[0] and server.answers[3].again
    refused, request = ask("z", "other")
    assert refused and not ask("z", "other")[0]
    keys.refused(request, DiskFull(path="/"))
    assert isinstance(server.answers[5], DiskFull) and ask("z", "other")[0], "nothing was said, and the key is free"
    with pytest.raises(LocalError) as reused:
        keys.claim(1, rpc.Request("edit", id=9), "g", rpc.EditParams("g", "e", "x", key="k"))
    assert reused.value.code == "KeyReused" and reused.value.fields == {"group": "g", "id": "e" * 43}


# --- the protocol ---------------------------------------------------------------------------------------------------


def test_an_item_says_all_that_an_event_says() -> None:
    event = {one.name: one.type for one in msgspec.structs.fields(rpc.Event)}
    item = {one.name: one.type for one in msgspec.structs.fields(rpc.Item)}
    assert event.keys() <= item.keys()
    extra = item.keys() - event.keys()
    assert extra == {"complete", "redelivered", "attempt"}


def test_a_reader_takes_what_a_later_agent_may_say() -> None:
    params = {"seq": 7, "type": "levitated", "group": "g", "id": "h7", "body": {"height": [1, {}]}, "moon": "full"}
    line = {"jsonrpc": "2.0", "method": "item", "params": {**params, "received_at": "now"}}
    (said,) = Dialogue().hear(json.dumps(line).encode() + b"\n")
    assert isinstance(said, News) and isinstance(said.item, rpc.Item)
    assert (said.item.type, said.item.body["height"]) == ("levitated", [1, {}])
    assert Dialogue().hear(b'{"jsonrpc":"2.0","method":"aurora","params":{"seen":1}}\n') == []


@pytest.mark.slow
def test_the_page_of_the_protocol_is_what_the_schema_says() -> None:
    page = ROOT / "zerochat" / "agent" / "PROTOCOL.md"
    assert page.read_text(encoding="utf-8") == document(), "run scripts/protocol.py"
    for name in (*rpc.METHODS, *rpc.NEWS):
        assert f"| `{name}` |" in document()


def test_the_schema_is_one_that_a_program_can_follow() -> None:
    whole = json_schema()
    assert whole["methods"].keys() == rpc.METHODS.keys() and whole["notifications"].keys() == rpc.NEWS.keys()

    def refs(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"]
            for one in part.values():
                yield from refs(one)
        elif isinstance(part, list):
            for one in part:
                yield from refs(one)

    assert {one.removeprefix("#/$defs/") for one in refs(whole)} <= whole["$defs"].keys()
    assert whole["$defs"]["SendParams"]["required"] == ["group", "text"]


def test_the_examples_of_the_page_are_requests() -> None:
    for line in document().split("```json\n")[1].split("```")[0].splitlines():
        request = msgspec.json.decode(line, type=rpc.Request)
        assert isinstance(request.params, dict)
        msgspec.convert(request.params, rpc.METHODS[request.method][0])


# --- standard input and output --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rpc_over_standard_input_and_output(tmp_path: Path) -> None:
    environment = {**os.environ, "ZEROCHAT_HOME": str(tmp_path), "ZEROCHAT_PROFILE": "al"}

    def zerochat(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zerochat", *arguments]
        return subprocess.run(command, env=environment, input=given, capture_output=True, text=True, timeout=60)

    assert zerochat("init", "--name", "al").returncode == 0
    lines = [
        '{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1}}',
        "",
        '{"jsonrpc":"2.0","id":2,"method":"new","params":{"group":"g"}}',
        "no json",
        '{"jsonrpc":"2.0","id":"three","method":"subscribe"}',
        '{"jsonrpc":"2.0","id":4,"method":"hello","params":{"protocol":99}}',  # without a line's end
    ]
    done = zerochat("rpc", "--stdio", given="\n".join(lines))
    assert done.returncode == 0 and not done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {one["id"]: one for one in said if "method" not in one}
    assert answers.keys() == {1, 2, None, "three", 4}
    assert set(rpc.METHODS) == set(answers[1]["result"]["methods"])
    assert {"consumers", "keys", "retry"} <= set(answers[1]["result"]["features"])
    assert "version 1 of the protocol, not 99" in answers[4]["error"]["message"]
    assert answers[4]["error"]["data"]["retry"] == "never"
    assert zerochat("rpc", "--stdio").stdout == ""
    assert json.loads(zerochat("rpc", "--schema").stdout) == json_schema()
    assert zerochat("rpc").returncode == 2


def test_a_consumer_keeps_its_times(journal: Journal) -> None:
    """What was written comes back as it was."""
    one = consumer(groups=("g",), types=("gap", "fork"), attempts={3: 2}, lost_from=1, lost_to=2, lost=2)
    journal.stream.put(one)
    journal.stream.undone()
    assert journal.stream.consumers == {"ci": one} and journal.stream.consumers["ci"] == replace(one)
