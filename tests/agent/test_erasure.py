"""Erasure of expired content: no byte of it stays in the journal, and the rest of the journal stays."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.support import agents
from tests.support.agents import DEADLINE_S, until
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.api.subscriptions.store import Consumer, DurableNotification, StoredAnswer, SubscriptionRecords
from zerochat.agent.clock import Clock
from zerochat.agent.storage import drafts, erasure
from zerochat.agent.storage.erasure import Eraser
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public, sha256
from zerochat.group.effects import (
    DeleteLog,
    EraseContent,
    RefuteEvents,
    StoreEvent,
    StoreReceipt,
    StoreSignedMessage,
)
from zerochat.group.event_log.event import ANNOUNCE, DELETE, EDIT, EXPIRED, LABEL, POST, TOPIC, Event, load_event
from zerochat.group.messages.bodies import target_of

people = agents.people
PAGE_BYTES = 4_096
HOUR, DAY = 3_600_000, 86_400_000
KEY = bytes(range(32))
CANARY = "xylocanary"
KEPT = "yellowkept"
GROUP = b64url(sha256(b"group"))
ALICE, BOB = (did_key(ed25519_public(bytes([number]) * 32)) for number in (1, 2))


class State(Struct, frozen=True):
    number: int = 0


class Log:
    """A journal and the last event of each author."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0
        self.journal = Journal.create(path, KEY)
        self.heads: dict[str, Event] = {}

    def event(self, author: str, lamport: int, body: dict[str, Any], kind: str = POST, **row: Any) -> StoreEvent:
        """The author's next event, stored at once."""
        last = self.heads.get(author)
        seq, pre = (last.seq + 1, last.id) if last else (1, "")
        event = self.heads[author] = Event(GROUP, kind, author, seq, pre, (), (), lamport, lamport, body)
        stored = StoreEvent(
            GROUP, event.id, author, seq, lamport, kind, event.record, lamport, False, target=target_of(event), **row
        )
        self.commit(stored)
        return stored

    def commit(self, *effects: Any, notes: SubscriptionRecords | None = None) -> None:
        self.number += 1
        self.journal.commit(State(self.number), effects, notes)

    def erase(self, before: int, ruled: int | None = None, own_upto: int = 10_000) -> int:
        """Order an erasure and run it to its end; the number of slices."""
        self.commit(EraseContent(GROUP, before, before if ruled is None else ruled, ALICE, own_upto))
        return self.run()

    def run(self) -> int:
        slices = 0
        while self.journal.erasures.erase_slice():
            slices += 1
            assert slices < 1_000
        return slices

    def bytes_on_disk(self) -> bytes:
        """All pages, decrypted: those of the file, and those of the write-ahead log."""
        return self.journal._db.serialize("main")

    @property
    def log_bytes(self) -> int:
        return self.path.with_name(self.path.name + "-wal").stat().st_size

    def types(self) -> list[str]:
        return [row.type for row in self.journal.log_after(GROUP, (0, "", ""), 1_000)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "journal.db")
    with made.journal:
        yield made


def fill(log: Log) -> list[StoreEvent]:
    """Content of every kind, old and new; returns the old events."""
    old = [
        log.event(ALICE, 10, {"text": f"{CANARY} one", "mentions": [CANARY]}),
        log.event(BOB, 11, {"text": f"two {CANARY}", "files": [{"name": CANARY}]}),
        log.event(BOB, 12, {"text": CANARY}, TOPIC),
    ]
    old.append(log.event(BOB, 13, {"target": old[1].id, "text": f"{CANARY} edited"}, EDIT))
    old.append(log.event(ALICE, 14, {"target": old[0].id}, DELETE))
    old.append(log.event(BOB, 15, {"text": f"refuted {CANARY}"}, relayed_by=ALICE))
    log.commit(RefuteEvents(GROUP, BOB, old[-1].seq - 1, old[-1].seq))
    log.journal.stream.put(Consumer("bot", 0, 0, 1, 1))
    log.commit(
        StoreReceipt(GROUP, BOB, ALICE, 1, 12),
        StoreSignedMessage(GROUP, BOB, b"a" * 16, 12, b"", b"s" * 64, 4, CANARY.encode(), b"k" * 32),
        StoreSignedMessage(GROUP, ALICE, b"b" * 16, 12, b"", b"t" * 64, 2, CANARY.encode(), b"k" * 32),
        notes=SubscriptionRecords(
            (DurableNotification(GROUP, "file_changed", 12, CANARY),),
            answers=(StoredAnswer(GROUP, "key", 12, b"d", f'"{CANARY}"'),),
        ),
    )
    log.event(BOB, 16, {"bot": True, "about": KEPT}, ANNOUNCE)
    log.event(BOB, 900, {"label": KEPT}, LABEL)
    log.event(ALICE, 1_000, {"text": f"{KEPT} three"})
    log.event(BOB, 1_001, {"text": f"four {KEPT}"})
    return old


def test_no_byte_of_expired_content_stays(log: Log) -> None:
    old = fill(log)
    log.journal.meta_set(f"draft:{GROUP}/tui", (12).to_bytes(8) + CANARY.encode())
    drafts.store_draft(log.journal, GROUP, f"{KEPT} draft", "other")
    assert log.bytes_on_disk().count(CANARY.encode()) > 10 and log.log_bytes
    log.erase(500)
    assert CANARY.encode() not in log.bytes_on_disk()
    assert log.log_bytes < 2 * PAGE_BYTES, "the log was emptied, and the end of the order written"
    for event in old:
        row = log.journal.event(GROUP, event.id)
        assert row is not None and row.type == EXPIRED and not row.target
        assert load_event(row.record).id == event.id and load_event(row.record).is_erased
    assert not log.journal.search(f"text : {CANARY}", 0, 1 << 62, 10)
    assert [hit.text for hit in log.journal.search(f"text : {KEPT}", 0, 1 << 62, 10)] == [
        f"four {KEPT}",
        f"{KEPT} three",
    ]
    assert [one.text for one in drafts.drafts_page(log.journal, [GROUP], "").drafts] == [f"{KEPT} draft"]
    assert log.types() == [EXPIRED] * 5 + [ANNOUNCE, LABEL, POST, POST]
    log.journal.close()
    with Journal.open(log.path, KEY) as again:
        assert CANARY.encode() not in again._db.serialize("main")


def test_expired_content_is_not_shown_and_stays_in_the_chain(log: Log) -> None:
    old = fill(log)
    log.erase(500)
    shown = log.journal.history(GROUP, 100)
    assert [row.type for row in shown] == [ANNOUNCE, LABEL, POST, POST]
    assert [row.type for row in log.journal.page_after(GROUP, (0, "", ""), 100)] == [ANNOUNCE, LABEL, POST, POST]
    assert not {row.id for row in log.journal.by_seq(0, 100)} & {event.id for event in old}
    assert len(log.journal.chain(GROUP, ALICE, 0, 100)) == 3 and log.journal.expired_count(GROUP) == 5
    assert log.journal.count(GROUP) == 9
    known = {event for _, event in log.journal.posts_since(GROUP, 0)}
    assert {event.id for event in old[:5]} <= known, "set reconciliation sees no difference"


def test_posts_that_a_member_lacks_stay_under_a_choice_alone(log: Log) -> None:
    fill(log)
    log.erase(500, ruled=0, own_upto=1)
    assert log.types() == [EXPIRED, EXPIRED, EXPIRED, EXPIRED, DELETE, ANNOUNCE, LABEL, POST, POST]
    log.erase(500, ruled=0, own_upto=2)
    assert log.types().count(EXPIRED) == 5
    log.erase(1_001, ruled=1_001, own_upto=0)
    assert log.types() == [EXPIRED] * 5 + [ANNOUNCE, LABEL, EXPIRED, POST]


def test_an_erasure_runs_in_slices_and_goes_on_after_a_crash(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "SLICE_ROWS", 10)
    for number in range(1, 101):
        log.event(ALICE, 2 * number, {"text": f"{CANARY} {number}"})
        log.event(BOB, 2 * number, {"text": f"{CANARY} {number}"})
    log.commit(EraseContent(GROUP, 150, 150, ALICE, 10_000))
    assert log.journal.erasures.erase_slice()
    assert 0 < log.types().count(EXPIRED) <= 20
    log.journal.close()
    log.journal = Journal.open(log.path, KEY)
    assert log.run() >= 7
    assert log.types().count(EXPIRED) == 2 * 74
    assert not log.journal.erasures.erase_slice()


def test_a_slice_reads_the_rows_that_it_erases_and_no_others(log: Log) -> None:
    """Its time does not grow with the log."""
    fill(log)
    for query, bindings, index in (
        (erasure._OTHERS, (GROUP, 0, 500, ALICE, 10), "events_in_order (group_id=? AND lamport>? AND lamport<?)"),
        (erasure._OWN, (GROUP, ALICE, 0, 10), "events_by_chain (group_id=? AND author=? AND position>?)"),
        (erasure._REFUTED, (GROUP, 500, 10), "events_refuted (group_id=?)"),
    ):
        rows: Any = log.journal._db.execute(f"EXPLAIN QUERY PLAN {query}", bindings).fetchall()
        plan = [row[-1] for row in rows]
        assert plan == [f"SEARCH events USING INDEX {index}"]


def test_a_slice_of_events_of_one_time_goes_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure, "SLICE_ROWS", 3)
    authors = [did_key(ed25519_public(bytes([number]) * 32)) for number in range(10, 20)]
    for author in authors:
        log.event(author, 7, {"text": CANARY})
    log.erase(8)
    assert log.types() == [EXPIRED] * 10


def test_an_erasure_costs_nothing_where_nothing_is_new(log: Log) -> None:
    fill(log)
    first = log.erase(500)
    assert log.erase(501) <= first
    read: list[int] = []
    log.journal._db.set_profile(lambda *_: read.append(1))
    assert not log.journal.erasures.erase_slice()
    assert len(read) <= 4


def test_a_round_without_expired_content_leaves_the_index_alone(log: Log) -> None:
    fill(log)
    log.erase(500)
    cleared = log.journal.erasures.cleared
    assert log.erase(501) == 1 and log.journal.erasures.cleared == cleared


def test_traces_are_removed_once_for_many_rounds(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging reads all of the index, however little has expired."""
    monkeypatch.setattr(erasure, "PAUSE_S", 0.0)
    monkeypatch.setattr(erasure, "IDLE_S", 0.0)
    eraser = Eraser(log.journal.erasures, logging.getLogger("test"))
    for number in range(1, 21):
        log.event(BOB, number, {"text": f"{CANARY} {number}"})
    for before in range(2, 22):
        log.commit(EraseContent(GROUP, before, before, ALICE, 10_000))
        while eraser.run_if_due() is not None:
            pass
    assert log.types() == [EXPIRED] * 20 and log.journal.erasures.cleared == 1


def test_consumers_see_what_is_left_of_their_notifications(log: Log) -> None:
    fill(log)
    note = DurableNotification(GROUP, "gap_filled", 12, "{}")
    log.commit(notes=SubscriptionRecords((note,)))
    assert log.journal.stream.unread(0) == 2
    log.erase(500)
    assert log.journal.stream.unread(0) == 1
    assert [one.type for one in log.journal.stream.notifications(0, 10)] == ["gap_filled"]


def test_the_file_shrinks(log: Log) -> None:
    for number in range(1, 400):
        log.event(BOB, number, {"text": CANARY, "padding": "x" * 4_000})
    log.run()
    log.journal._db.wal_checkpoint()
    before = log.path.stat().st_size
    log.erase(399)
    assert log.path.stat().st_size < before // 2


def test_a_deleted_group_has_no_erasure(log: Log) -> None:
    fill(log)
    log.commit(EraseContent(GROUP, 500, 500, ALICE, 0))
    log.commit(DeleteLog(GROUP))
    assert not log.journal.erasures.erase_slice()


def test_a_full_disk_delays_an_erasure(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log)
    log.commit(EraseContent(GROUP, 500, 500, ALICE, 10_000))
    eraser = Eraser(log.journal.erasures, logging.getLogger("test"))
    monkeypatch.setattr(log.journal.erasures, "erase_slice", lambda **_: (_ for _ in ()).throw(DiskFull(path=log.path)))
    until = eraser.run_if_due()
    assert until is not None and eraser.run_if_due() == until
    assert EXPIRED not in log.types()


# --- agents -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_agents_erase_messages_and_files_of_a_group_with_a_rule(
    people: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = people("alice", "bob")
    alice.client.create_group("friends", keep=HOUR)
    bob.client.join_group(alice.client.create_invitation("friends").url)
    until(lambda: bob.client.list_groups() and bob.client.list_groups()[0].state == "active", "joining")
    until(lambda: all(one.client.list_groups()[0].connected for one in (alice, bob)), "connecting")
    assert alice.client.list_groups()[0].keep == HOUR == bob.client.list_groups()[0].policy.keep
    picture = tmp_path / "notes.txt"
    picture.write_text(f"{CANARY} in a file")
    alice.client.call("send_message", group="friends", text=f"{CANARY} one")
    alice.client.call("send_files", group="friends", paths=[str(picture)], text=CANARY)
    bob.client.call("save_draft", group="friends", text=f"{CANARY} draft")
    until(lambda: len(bob.texts()) == 2, "receiving")
    until(lambda: stored_files(bob), "downloading")
    now = Clock.now
    monkeypatch.setattr(Clock, "now", lambda clock: now(clock) + 2 * HOUR)
    for one in (alice, bob):
        one.client.set_retention("friends", 0)  # begins a round now
    until(lambda: not alice.texts() and not bob.texts(), "expiry")
    alice.client.call("send_message", group="friends", text=f"{KEPT} two")
    until(lambda: bob.texts() == [f"{KEPT} two"], "the next message")
    until(lambda: not stored_files(alice) and not stored_files(bob), "the deletion of the file")
    assert not bob.client.call("search_messages", query=CANARY).hits
    assert not bob.client.call("list_drafts").drafts
    for one in (alice, bob):
        until(lambda one=one: not one.client.list_groups()[0].unacknowledged, "acknowledgement")
        one.sleep()
        with Journal.open(one.places.journal, unlock(one.places, None)) as journal:
            while journal.erasures.erase_slice():
                pass
            pages = journal._db.serialize("main")
        assert CANARY.encode() not in pages and KEPT.encode() in pages


def stored_files(one: Any) -> list[Path]:
    return [path for path in (one.places.journal.parent / "files").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_setting_and_a_choice_apply_at_once(people: Any) -> None:
    (alice,) = people("alice")
    alice.client.create_group("friends")
    assert alice.client.call("change_setting", name="storage.keep", value="30d").note == ""
    until(lambda: alice.client.list_groups()[0].keep == 30 * DAY, "the setting")
    assert alice.client.set_retention("friends", DAY).keep == DAY
    assert alice.client.list_groups()[0].keep_choice == DAY
    with pytest.raises(AgentError, match="Invalid retention"):
        alice.client.set_retention("friends", 1)
    alice.client.create_group("board", keys="sender-key", accountability="tlog")
    with pytest.raises(AgentError, match="evidence"):
        alice.client.set_retention("board", DAY)
    assert {one.name: one.keep for one in alice.client.list_groups()} == {"friends": DAY, "board": 0}


def test_other_clients_are_notified_of_a_changed_setting(people):
    (alice,) = people("alice")
    group = alice.client.create_group("friends")
    with connect(alice.places, "other") as other:
        other.subscribe(types=["view_changed"])
        alice.client.call("change_setting", name="storage.keep", value="1h")
        alice.thread.reload()
        news = other.notifications(DEADLINE_S)
        assert next(getattr(one.params, "group", "") for one in news if one.method == "view_changed") == group.id
        assert other.list_groups()[0].keep == HOUR
