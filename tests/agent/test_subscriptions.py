"""The event stream in the journal: numbers, retention, gaps, credit, idempotency keys."""

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

from tests.support.journals import KEY, Tree
from zerochat import rpc
from zerochat.agent.api.client_protocol import ClientProtocol, Notification
from zerochat.agent.api.reference import document, json_schema
from zerochat.agent.api.server import Call
from zerochat.agent.api.subscriptions import store as stores
from zerochat.agent.api.subscriptions import tables
from zerochat.agent.api.subscriptions.consumers import Consumers
from zerochat.agent.api.subscriptions.idempotency import IdempotencyKeys
from zerochat.agent.api.subscriptions.live import UnknownType, filter_of
from zerochat.agent.api.subscriptions.notifications import TYPES
from zerochat.agent.api.subscriptions.store import Consumer, DurableNotification, StoredAnswer, SubscriptionRecords
from zerochat.agent.storage.journal import DiskFull, Journal, Row
from zerochat.agent.views.current_messages import FeedEntry
from zerochat.agent.views.events import _TYPES
from zerochat.errors import LocalError
from zerochat.group.effects import DeleteLog, RefuteEvents, StoreEvent
from zerochat.group.state import Agent

DAY_MS = 24 * 3600 * 1000
ROOT = Path(__file__).parents[2]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.create(tmp_path / "journal.db", KEY) as made:
        yield made


def consumer(name: str = "ci", acked: int = 0, **others: Any) -> Consumer:
    return Consumer(name, acked, acked, 1, 1, **others)


def post(number: int) -> StoreEvent:
    return StoreEvent("g", f"id-{number}", "did:key:a", number + 1, number, "post", b"{}", 1, False)


def happen(journal: Journal, count: int, *, at: int = 1, kind: str = "gap", group: str = "g") -> list[int]:
    """So many happenings in one turn; their numbers."""
    before = journal.stream.latest()
    tx = SubscriptionRecords(tuple(DurableNotification(group, kind, at, f'{{"n":{n}}}') for n in range(count)))
    journal.commit(Tree("x"), (), tx)
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

    def respond(self, call: Any, result: Any) -> None:
        self.answers[call.id] = result

    def refuse_error(self, call: Any, error: LocalError) -> None:
        self.answers[call.id] = error


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

    def tx(self) -> None:
        self.state += 1
        notes = SubscriptionRecords((), self.consumers.records(writing=False))
        self.journal.commit(Tree(str(self.state)), (), notes)
        self.consumers.committed(notes.consumers)

    def ack(self, seq: int, name: str = "ci") -> Any:
        reader = self.consumers._readers.get(name)
        client = (reader and reader.client) or 1
        self.consumers.acknowledge(Call(client, "ack", "acknowledge", rpc.NoParams()), name, seq)
        assert not self.consumers.pending or "ack" not in self.server.answers, "it is on disk before it is answered"
        if self.consumers.pending:
            self.tx()
        return self.server.answers.pop("ack")


# --- numbers --------------------------------------------------------------------------------------------------------


def test_events_and_notifications_share_one_numbering(journal: Journal) -> None:
    journal.stream.put(consumer())
    assert happen(journal, 2) == [1, 2]
    journal.commit(Tree("y"), [post(0), post(1)], SubscriptionRecords((DurableNotification("g", "gap", 1, "{}"),)))
    assert [row.seq for row in journal.by_seq(0, 9)] == [3, 4]
    assert [one.seq for one in journal.stream.notifications(0, 9)] == [1, 2, 5] and journal.stream.latest() == 5
    journal.commit(Tree("z"), [DeleteLog("g")])
    assert journal.stream.latest() == 5 and not journal.stream.notifications(0, 9) and not journal.by_seq(0, 9)
    assert happen(journal, 1) == [6], "no number is used twice"


def test_nothing_is_kept_without_consumers(journal: Journal) -> None:
    assert happen(journal, 2) == [] and not journal.stream.notifications(0, 9)
    journal.stream.put(consumer())
    assert happen(journal, 1) == [1]
    journal.stream.drop("ci")
    assert not journal.stream.consumers and not journal.stream.notifications(0, 9)


def test_a_failed_transaction_leaves_no_stream_entries(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.stream.put(consumer())
    happen(journal, 1)
    kept = StoredAnswer("g", "k", 1, b"d", "{}")
    with monkeypatch.context() as patched:
        patched.setattr(tables, "PUT_KEY", "INSERT INTO nothing VALUES (?, ?, ?, ?, ?)")
        with pytest.raises(Exception, match="nothing"):
            journal.commit(
                Tree("y"),
                (),
                SubscriptionRecords((DurableNotification("g", "gap", 1, "{}"),), (consumer(acked=1),), (kept,)),
            )
    assert len(journal.stream.notifications(0, 9)) == 1 and journal.stream.unread(0) == 1
    assert journal.stream.consumers["ci"].acked == 0 and journal.stream.key("g", "k", 1) is None
    assert happen(journal, 1) == [2]


# --- retention ------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "NOTIFICATIONS_MAX", 100)
    monkeypatch.setattr(stores, "KEYS_MAX", 100)


def test_expired_items_are_replaced_by_a_gap_item(journal: Journal, few: None) -> None:
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
    assert [one.seq for one in journal.stream.notifications(0, 1)] == [16]
    assert not [item for method, item in desk.feed() if method in ("overflow", "dropped")], "it was told them"
    desk.server.clients = {2, 3}
    desk.subscribe(3)
    found = desk.items()
    assert found[0] == (15, "dropped", 2) and [seq for seq, _, _ in found[1:]] == list(range(16, 111))
    told = next(item for _, method, item in desk.server.told if item.type == "dropped")
    assert told.body == {"from_seq": 11, "to_seq": 15, "count": 5}
    assert desk.ack(15).acked == 15 and not journal.stream.consumers["ci"].lost
    assert not journal.stream.consumers["ahead"].lost


def test_only_matching_items_are_counted_as_missed(journal: Journal, few: None) -> None:
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


def test_expired_items_are_removed_and_announced(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1, credit=1)
    happen(journal, 2, at=1)
    happen(journal, 1, at=10 * DAY_MS)
    desk.now = 25 * DAY_MS
    (warning,) = [item for method, item in desk.feed() if method == "overflow"]
    assert warning.unread == 3 and warning.until == "1970-01-31T00:00:00.001Z"
    assert not [item for method, item in desk.feed() if method == "overflow"], "once"
    happen(journal, 1, at=31 * DAY_MS)
    assert [one.seq for one in journal.stream.notifications(0, 9)] == [3, 4]
    assert journal.stream.consumers["ci"].lost == 2


def test_all_entries_may_have_expired(journal: Journal) -> None:
    desk = Reading(journal)
    journal.stream.put(consumer())
    happen(journal, 3, at=1)
    happen(journal, 1, at=40 * DAY_MS)
    journal.commit(Tree("z"), [DeleteLog("g")])
    desk.subscribe(1)
    assert desk.items() == [(3, "dropped", 1)]
    assert desk.ack(3).acked == 3 and desk.items() == []


# --- acknowledging --------------------------------------------------------------------------------------------------


def test_unmatched_items_are_skipped(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1, types=["fork"])
    happen(journal, 3, kind="gap")
    (fork,) = happen(journal, 1, kind="fork")
    happen(journal, 2, kind="gap")
    assert desk.items() == [(fork, "fork", 1)]
    assert desk.ack(fork).acked == fork + 2, "the rest is nothing to it"
    (info,) = desk.consumers.infos()
    assert (info.behind, info.unread, info.acked) == (0, 0, fork + 2)


@pytest.mark.parametrize("wrong", ["mesage", "receipt", "\x1b[2J"])
def test_unknown_types_are_refused(journal: Journal, wrong: str) -> None:
    desk = Reading(journal)
    with pytest.raises(UnknownType) as refused:
        desk.subscribe(1, types=["fork", wrong])
    assert refused.value.sentence().isprintable() and not desk.consumers.infos()
    with pytest.raises(UnknownType):
        filter_of(desk.agent, rpc.SubscribeParams(types=["gap_filled"]))
    assert {*_TYPES.values(), "unknown"} == {*rpc.EVENT_TYPES}
    assert {*TYPES, "gap", "gap_filled", "file_changed", "delivery", "dropped"} == {*rpc.ITEM_TYPES}


def test_a_consumer_without_credit_gets_no_more(journal: Journal) -> None:
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


def test_acknowledgements_of_one_batch_are_written_together(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1)
    happen(journal, 5)
    desk.items()
    for number in (2, 5, 3):
        desk.consumers.acknowledge(Call(1, f"a{number}", "acknowledge", rpc.NoParams()), "ci", number)
    assert not desk.server.answers and desk.consumers.pending
    desk.tx()
    assert {one.acked for one in desk.server.answers.values()} == {5} and len(desk.server.answers) == 3
    assert not desk.consumers.pending


def test_an_acknowledgement_that_cannot_be_written_is_refused(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1, credit=2)
    happen(journal, 5)
    assert len(desk.items()) == 2
    desk.consumers.acknowledge(Call(1, "a", "acknowledge", rpc.NoParams()), "ci", 2)
    desk.consumers.rolled_back(DiskFull(path="/"))
    assert isinstance(desk.server.answers["a"], DiskFull) and journal.stream.consumers["ci"].acked == 0
    assert desk.items() == [], "it gives no credit"
    assert desk.ack(2).acked == 2 and len(desk.items()) == 2


def test_delivery_attempts_are_counted_across_connections(journal: Journal) -> None:
    desk = Reading(journal)
    desk.subscribe(1)
    happen(journal, 2)
    assert desk.items() == [(1, "gap", 1), (2, "gap", 1)]
    desk.server.clients = set()
    desk.feed()
    desk.tx()
    assert journal.stream.consumers["ci"].attempts == {1: 1, 2: 1} and journal.stream.consumers["ci"].sent_to == 2
    other = Reading(journal)
    other.subscribe(1)
    assert other.items() == [(1, "gap", 2), (2, "gap", 2)]


def handed(number: int, vouched: str = "", author: str = "did:key:a") -> StoreEvent:
    name = f"{author[-1]}{number}"
    record = b'{"body":{"text":"hello"}}'
    return StoreEvent("g", name, author, number, number, "post", record, 1, False, vouched)


def heard(journal: Journal, after: int) -> list[str]:
    return [row.id for row in journal.by_seq(after, 9)]


def test_items_refuted_before_delivery_return_with_a_new_number(journal: Journal) -> None:
    journal.stream.put(consumer("ahead", acked=9))
    journal.stream.put(consumer())
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m"), handed(3, "did:key:m")])
    journal.commit(Tree("2"), [RefuteEvents("g", "did:key:a", 1, 3)])
    journal.commit(Tree("3"), [handed(1, author="did:key:b")])
    assert heard(journal, 0) == ["a1", "b1"]
    passed = journal.stream.latest()
    journal.stream.put(consumer(acked=passed))
    journal.commit(Tree("4"), [handed(2), handed(3, "did:key:m"), handed(2, author="did:key:b")])
    assert heard(journal, passed) == ["a2", "a3", "b2"], "in the order in which they have come"
    assert not journal.stream.refuted_unacked
    assert happen(journal, 1)[0] > journal.by_seq(passed, 9)[-1].seq, "no number is used twice"


def test_items_that_all_have_read_are_not_delivered_again(journal: Journal) -> None:
    """Else whoever hands things over could have a bot do them again and again."""
    journal.stream.put(consumer(acked=2))
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m")])
    for tx in range(3):
        journal.commit(Tree(f"r{tx}"), [RefuteEvents("g", "did:key:a", 1, 2)])
        journal.commit(Tree(f"k{tx}"), [handed(2, "did:key:m")])
    assert heard(journal, 2) == [] and heard(journal, 0) == ["a1", "a2"]


def test_returned_items_reach_only_consumers_without_them(journal: Journal) -> None:
    """One that nobody uses any more does not make all others hear it twice."""

    def told(rows: list[Row]) -> list[FeedEntry]:
        return [FeedEntry(row, said(row)) for row in rows]

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
        desk.consumers.entries = lambda agent, rows: told(rows)
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
    for tx in range(3):
        journal.commit(Tree(f"r{tx}"), [RefuteEvents("g", "did:key:a", 1, 3)])
        notes = SubscriptionRecords((), (replace(journal.stream.consumers["ahead"], updated=2 + tx),))
        journal.commit(Tree(f"k{tx}"), [handed(2, "did:key:m"), handed(3, "did:key:m")], notes)
    desk = begun()  # and the agent starts again
    assert heard_by(desk) == {1: ["a3"], 2: ["a1", "a2", "a3"]}, "it had acknowledged the second one, and no more"
    desk.ack(max(one.seq for client, _, one in desk.server.told if client == 1), "ahead")
    assert not journal.stream.refuted_unacked and -1 not in journal.stream.consumers["ahead"].attempts.values()
    assert heard_by(begun()) == {1: [], 2: ["a1", "a2", "a3"]}


def test_returned_items_are_found_and_deleted_with_their_group(journal: Journal) -> None:
    journal.stream.put(consumer())
    journal.commit(Tree("1"), [handed(1), handed(2, "did:key:m")])
    with journal._indexed():
        pass
    journal.commit(Tree("2"), [RefuteEvents("g", "did:key:a", 1, 2), handed(2)])
    with journal._indexed():
        known, db = journal.by_seq(0, 9), journal._db
    assert [row.id for row in known] == ["a1", "a2"] and known[1].seq == 3
    assert {seq for (seq,) in db.execute("SELECT seq FROM indexed_posts").fetchall()} == {row.seq for row in known}
    journal.commit(Tree("3"), [handed(3, "did:key:m")])
    journal.commit(Tree("4"), [RefuteEvents("g", "did:key:a", 2, 3)])
    assert journal.stream.refuted_unacked == 1
    journal.commit(Tree("5"), [DeleteLog("g")])
    assert journal.stream.refuted_unacked == 0


def test_consumers_are_limited(journal: Journal) -> None:
    for number in range(64):
        journal.stream.put(consumer(f"c{number}"))
    desk = Reading(journal)
    with pytest.raises(LocalError, match="64 consumers"):
        desk.subscribe(1, "one-more")
    desk.consumers.delete("c7")
    desk.subscribe(1, "one-more")


# --- keys -----------------------------------------------------------------------------------------------------------


def test_keys_are_forgotten_after_so_many_and_so_long(journal: Journal, few: None) -> None:
    for number in range(130):
        journal.commit(
            Tree(str(number)), (), SubscriptionRecords((), (), (StoredAnswer("g", f"k{number}", number, b"d", "{}"),))
        )
    assert journal.stream.key("g", "k129", 200) == (b"d", "{}")
    assert journal.stream.key("g", "k129", 129 + 30 * DAY_MS) is None
    left = [number for number in range(130) if journal.stream.key("g", f"k{number}", 200)]
    assert left == list(range(130 - len(left), 130)) and 95 <= len(left) <= 100
    journal.commit(Tree("z"), [DeleteLog("g")])
    assert journal.stream.key("g", "k129", 200) is None


def test_a_repeated_request_waits_for_the_first_one(journal: Journal) -> None:
    server = Server()
    keys = IdempotencyKeys(server, journal, lambda: 1)  # type: ignore[arg-type]
    numbers = itertools.count()

    def ask(text: str, key: str = "k") -> tuple[bool, Call]:
        params = rpc.SendMessageParams("g", text, key=key)
        call = Call(1, next(numbers), "send_message", params)
        return keys.claim(call, "g", params), call

    first, request = ask("x")
    assert first and not ask("x")[0]
    with pytest.raises(LocalError, match="used for a different request"):
        ask("y")
    sent = rpc.Sent("g", "e" * 43, 1, 1, 0)
    (kept,) = keys.records([(request, lambda: sent)])
    journal.commit(Tree("x"), (), SubscriptionRecords((), (), (kept,)))
    keys.answered(request, sent)
    assert server.answers == {1: msgspec.structs.replace(sent, duplicate=True)}
    assert not ask("x")[0] and server.answers[3].duplicate
    refused, request = ask("z", "other")
    assert refused and not ask("z", "other")[0]
    keys.refused(request, DiskFull(path="/"))
    assert isinstance(server.answers[5], DiskFull) and ask("z", "other")[0], "nothing was said, and the key is free"
    params = rpc.EditMessageParams("g", "e", "x", key="k")
    with pytest.raises(LocalError) as reused:
        keys.claim(Call(1, 9, "edit_message", params), "g", params)
    assert reused.value.code == "KeyReused" and reused.value.fields == {"group": "g", "id": "e" * 43}


# --- the protocol ---------------------------------------------------------------------------------------------------


def test_an_item_has_all_fields_of_an_event() -> None:
    event = {one.name: one.type for one in msgspec.structs.fields(rpc.Event)}
    item = {one.name: one.type for one in msgspec.structs.fields(rpc.Item)}
    assert event.keys() <= item.keys()
    extra = item.keys() - event.keys()
    assert extra == {"complete", "redelivered", "attempt"}


def test_a_client_accepts_fields_of_a_later_agent() -> None:
    params = {"seq": 7, "type": "levitated", "group": "g", "id": "h7", "body": {"height": [1, {}]}, "moon": "full"}
    line = {"jsonrpc": "2.0", "method": "item", "params": {**params, "received_at": "now"}}
    (said,) = ClientProtocol().receive(json.dumps(line).encode() + b"\n")
    assert isinstance(said, Notification) and isinstance(said.params, rpc.Item)
    assert (said.params.type, said.params.body["height"]) == ("levitated", [1, {}])
    assert ClientProtocol().receive(b'{"jsonrpc":"2.0","method":"aurora","params":{"seen":1}}\n') == []


def test_the_manual_page_lists_every_method_and_notification() -> None:
    page = document()
    assert [name for name in (*rpc.METHODS, *rpc.NOTIFICATIONS) if f"| `{name}` |" not in page] == []


def test_the_schema_is_complete() -> None:
    whole = json_schema()
    assert whole["methods"].keys() == rpc.METHODS.keys() and whole["notifications"].keys() == rpc.NOTIFICATIONS.keys()

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
    assert whole["$defs"]["SendMessageParams"]["required"] == ["group", "text"]


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
        '{"jsonrpc":"2.0","id":2,"method":"create_group","params":{"group":"g"}}',
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
    assert "the agent uses protocol version 1, not 99" in answers[4]["error"]["message"]
    assert answers[4]["error"]["data"]["retry"] == "never"
    assert zerochat("rpc", "--stdio").stdout == ""
    assert json.loads(zerochat("rpc", "--schema").stdout) == json_schema()
    assert zerochat("rpc").returncode == 2


def test_a_consumer_keeps_its_times(journal: Journal) -> None:
    """What was written comes back as it was."""
    one = consumer(groups=("g",), types=("gap", "fork"), attempts={3: 2}, lost_from=1, lost_to=2, lost=2)
    journal.stream.put(one)
    journal.stream.rolled_back()
    assert journal.stream.consumers == {"ci": one} and journal.stream.consumers["ci"] == replace(one)
