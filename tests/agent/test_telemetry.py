"""Delivery telemetry: consent, correctness, bounds and deletion."""

import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, meet, until
from tests.support.telemetry_records import kept, of, record, reopened
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.agent.telemetry import collection, consent, handlers, recorder, switch
from zerochat.agent.telemetry.schema import (
    Ack,
    Backfill,
    Join,
    Link,
    Record,
    Recv,
    Send,
    Span,
    State,
    View,
    unpack_rows,
)
from zerochat.agent.telemetry.store import TelemetryStore

people = agents.people
ROOT = Path(__file__).parents[2]
DAY_US = 86_400_000_000
OFF = """
import json, os, socket, sys, tempfile
from pathlib import Path

seen = {"open": [], "import": [], "socket": []}
def hook(event, arguments):
    if event == "import":
        seen["import"].append(str(arguments[0]))
    elif event in ("open", "os.mkdir", "os.rename", "sqlite3.connect"):
        seen["open"].append(str(arguments[0]))
    elif event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        seen["socket"].append(repr(arguments[1:]))
sys.addaudithook(hook)

from tests.support.agents import Person, meet, until
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock

with tempfile.TemporaryDirectory() as folder:
    alice, bob = (Person(Path(folder), name).wake() for name in ("alice", "bob"))
    meet(alice, bob)
    for number in range(3):
        alice.client.wait_for_delivery("friends", alice.client.send_message("friends", f"a{number}").id)
    bob.client.react("friends", bob.ids()[-1], "👍")
    alice.client.set_topic("friends", "what it is about")
    (Path(folder) / "letter.txt").write_text("what is in it")
    alice.client.call("send_files", group="friends", paths=[str(Path(folder) / "letter.txt")], text="a file")
    bob.sleep()
    sent = alice.client.send_message("friends", "while bob is away")
    bob.wake()
    alice.client.wait_for_delivery("friends", sent.id)
    bob.client.leave_group("friends")
    alice.sleep()
    bob.sleep()
    for person in (alice, bob):
        with Journal.open(person.places.journal, unlock(person.places, None)) as journal:
            counts = [journal._scalar(f"SELECT count(*) FROM {name}") for name in ("telemetry", "telemetry_names")]
            seen["kept"] = seen.get("kept", 0) + sum(counts) + (journal.meta_get("telemetry") is not None)
    seen["files"] = sorted({path.name for path in Path(folder).rglob("*")})
seen["modules"] = sorted(name for name in sys.modules if "telemetry" in name)
print(json.dumps(seen))
"""


# --- consent ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_disabled_telemetry_imports_and_stores_nothing():
    """A whole session in its own process; the interpreter reports every file, module and socket."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OFF],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert any("journal.db" in name or "config.toml" in name for name in seen["open"]), "the hook hears"
    assert "zerochat.agent.loop" in seen["import"]
    ours = "zerochat.agent.telemetry"
    switch = {ours, f"{ours}.switch"}
    assert {name for name in seen["modules"] if name.startswith(ours)} == switch
    assert {name for name in seen["import"] if name.startswith((ours, "pyarrow"))} <= switch
    opened = [Path(name) for name in seen["open"] if "agent/telemetry" in name or "pyarrow" in name]
    assert {path.name.partition(".")[0] for path in opened if path.suffix} <= {"__init__", "switch"}
    assert [where for where in seen["socket"] if "127.0.0.1" not in where and ".sock" not in where] == []
    assert [name for name in seen["files"] if "telemetry" in name] == []
    assert seen["kept"] == 0


def test_recording_requires_consent(people):
    (alice,) = people("alice")
    status = alice.client.call("get_telemetry")
    assert (status.on, status.recording, status.rows) == (False, False, 0)
    said = " ".join(status.question)
    assert "Nothing is ever sent" in said and "30 days" in said and "64 MiB" in said and "journal" in said
    for wrong in (0, status.consent + 1):
        with pytest.raises(AgentError) as caught:
            alice.client.call("set_telemetry", on=True, consent=wrong)
        assert caught.value.code == "ConsentNeeded"
    assert not alice.client.call("get_telemetry").on


def test_a_consent_to_another_version_is_void(people):
    (alice,) = people("alice")
    record(alice)
    alice.sleep()
    with reopened(alice) as journal:
        journal.meta_set(consent.META_KEY, journal.meta_get(consent.META_KEY).replace(b'"version":1', b'"version":2'))
    alice.wake()
    status = alice.client.call("get_telemetry")
    assert (status.on, status.recording) == (False, False)
    assert consent.META_KEY == switch.TELEMETRY


@pytest.mark.parametrize(
    ("name", "value", "off"),
    [
        ("DO_NOT_TRACK", "1", True),
        ("DO_NOT_TRACK", "true", True),
        ("DO_NOT_TRACK", "0", False),
        ("DO_NOT_TRACK", "", False),
        ("ZEROCHAT_TELEMETRY", "0", True),
        ("ZEROCHAT_TELEMETRY", "off", True),
        ("ZEROCHAT_TELEMETRY", "1", False),
    ],
)
def test_environment_veto_wins_and_is_reported(people, monkeypatch, name, value, off):
    (alice,) = people("alice")
    record(alice)
    alice.sleep()
    monkeypatch.setenv(name, value)
    alice.wake()
    status = alice.client.call("get_telemetry")
    assert (status.on, status.recording) == (True, not off)
    assert (name in status.forbidden) is off
    if off:
        alice.client.create_group("friends")
        assert alice.client.call("get_telemetry").rows == status.rows
        with pytest.raises(AgentError, match=name):
            alice.client.call("set_telemetry", on=True, consent=status.consent)
        assert alice.client.call("delete_telemetry").deleted == status.rows, "what there is can always be removed"


def test_setting_veto_applies_at_once(people):
    (alice,) = people("alice")
    record(alice)
    for value in ("false", "true"):
        alice.client.call("change_setting", name="telemetry.allowed", value=value)
        alice.thread.reload()
        until(lambda value=value: alice.client.call("get_telemetry").recording is (value == "true"), value)
        assert ("telemetry.allowed" in alice.client.call("get_telemetry").forbidden) is (value == "false")


def test_reload_leaves_no_gap_in_the_spans(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    alice.client.call("change_setting", name="telemetry.days", value="3")
    alice.thread.reload()
    until(lambda: alice.client.call("get_telemetry").days_max == 3, "the new bound")
    assert [row for row in kept(alice) if type(row) is Link] == [], "no connection has ended by that"
    assert len(of(alice, View)) == 1


def test_recording_stays_off_after_a_restart(people):
    (alice,) = people("alice")
    record(alice)
    alice.sleep()
    alice.wake()
    assert alice.client.call("get_telemetry").recording, "a yes holds until it is taken back"
    assert not alice.client.call("set_telemetry", on=False).recording
    rows = alice.client.call("get_telemetry").rows
    alice.client.create_group("friends")
    alice.sleep()
    alice.wake()
    status = alice.client.call("get_telemetry")
    assert (status.on, status.recording, status.rows) == (False, False, rows)


def test_final_batch_is_counted(people):
    alice, bob = people("alice", "bob")
    record(alice)
    meet(alice, bob)
    told, later = alice.client.call("set_telemetry", on=False), alice.client.call("get_telemetry")
    assert (told.recording, told.rows, told.last) == (False, later.rows, later.last)


# --- facts ------------------------------------------------------------------------------------------------------------


def test_records_match_the_events(people):
    alice, bob = people("alice", "bob")
    record(alice, bob)
    begun = time.time_ns() // 1000
    meet(alice, bob, keys="pairwise-multi")
    texts = ["short", "longer, with an umlaut: ü", "x" * 3000]
    ids = [alice.client.send_message("friends", text).id for text in texts]
    assert alice.client.wait_for_delivery("friends", ids[-1]).complete
    bob.client.react("friends", ids[0], "👍")
    until(lambda: any(row.kind == "annotation" for row in of(alice, Recv)), "the reaction")
    ended = time.time_ns() // 1000

    sent = {row.seq: row for row in of(alice, Send)}
    posted = [row for row in sent.values() if row.plain_b in [len(text.encode()) for text in texts] and row.n == 1]
    assert [row.plain_b for row in posted] == [len(text.encode()) for text in texts]
    for row in posted:
        assert (row.keys, row.path, row.accountability) == ("pairwise-multi", "direct", "acks")
        assert row.envelopes == 1 and row.env_b > row.plain_b // 50 and 0 < row.queue_us < ended - begun
    assert {row.kind for row in posted} == {"message"} and {row.kind for row in of(bob, Send)} >= {"annotation"}
    told = {row.seq: row.kind for row in of(bob, Recv)}
    both = sent.keys() & told.keys()
    assert both and {sent[seq].kind for seq in both} == {"message", "membership"}
    assert all(sent[seq].kind == told[seq] for seq in both), "as those who got it say"
    messages = {row.seq: row for row in of(bob, Recv) if row.kind == "message"}
    assert sorted(messages) == sorted(row.seq for row in posted), "each once, under its author's number"
    for row in posted:
        came = messages[row.seq]
        assert (came.t_send_us, came.plain_b, came.n, came.dup, came.late) == (
            row.t_send_us,
            row.plain_b,
            1,
            False,
            False,
        )
        assert row.t_send_us <= came.t_recv_us + 1000 and begun <= came.t_recv_us <= ended
        assert came.decrypt_us > 0 and came.hold_us == 0 and came.path == "direct"
        assert came.display_us is not None and 0 < came.display_us < ended - begun, "a face was there"
    assert sum(row.env_b for row in messages.values()) <= sum(row.env_b for row in posted)
    assert max(row.upto for row in of(alice, Ack)) == max(sent)
    assert {row.outcome for row in of(alice, Join)} == {row.outcome for row in of(bob, Join)} == {"joined"}
    for person, role in ((alice, "acceptor"), (bob, "joiner")):
        phases = {row.phase: row.us for row in of(person, Join)}
        assert {row.role for row in of(person, Join)} == {role}
        assert sum(us for phase, us in phases.items() if phase != "whole") == phases["whole"] < ended - begun
        (state,) = of(person, State)
        assert state.members == 2 and 0 < state.zstd_b < state.raw_b
    views = of(bob, View)
    assert len(views[-1].roster) == 2 and views[-1].checksum == of(alice, View)[-1].checksum
    assert {row.up for row in of(bob, Link)} == {True}
    until(lambda: of(bob, Backfill), "the history, as far as there is any")
    (snapshot,) = of(bob, Backfill)
    assert snapshot.outcome == "whole" and snapshot.us > 0


@pytest.mark.slow
def test_late_events_are_retransmissions(people):
    alice, bob, carol = people("alice", "bob", "carol")
    record(alice, bob, carol)
    meet(alice, bob, carol)
    assert alice.client.wait_for_delivery(
        "friends", alice.client.send_message("friends", "while all are there").id
    ).complete
    bob.sleep()
    ids = [alice.client.send_message("friends", f"while bob is away {number}").id for number in range(5)]
    assert alice.client.wait_for_delivery("friends", ids[-1], count=1).delivered == 1
    time.sleep(2.1)  # an author waits for 2 s before it repeats anything
    bob.wake()
    assert alice.client.wait_for_delivery("friends", ids[-1]).complete
    ways = [Counter(row.path for row in of(one, Recv) if row.kind == "message" and not row.dup) for one in (bob, carol)]
    assert ways == [Counter(direct=1, retransmission=5), Counter(direct=6)]
    sent = [row for row in of(alice, Send) if row.plain_b > 20 or row.n == 2]
    assert [row.n for row in sent[-5:]] == [2] * 5, "it is meant for whoever is away, too"
    stopped = [row for row in of(bob, Link) if row.reason == "stopped"]
    assert len(stopped) == 2 and all(not row.up and row.us > 0 for row in stopped)
    assert {row.reason for row in of(alice, Link) if not row.up} <= {"closed", "silent"}


def test_backfill_is_recorded_as_history(people):
    alice, bob, carol = people("alice", "bob", "carol")
    record(alice, bob, carol)
    meet(alice, bob)
    for number in range(4):
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", f"{number}").id).complete
    carol.client.join_group(alice.client.create_invitation("friends").url)
    until(
        lambda: [g.state for g in carol.client.list_groups()] == ["active"] and len(carol.texts()) == 4, "the history"
    )
    until(lambda: of(carol, Backfill), "the end of it")
    assert {row.path for row in of(carol, Recv) if row.kind == "message"} == {"history"}
    assert {row.path for row in of(bob, Recv) if row.kind == "message"} == {"direct"}
    (snapshot,) = of(carol, Backfill)
    assert (snapshot.rows, snapshot.outcome) == (4, "whole") and snapshot.bytes_b > 4 * 100
    assert of(carol, Join)[-1].members == 2


@pytest.mark.slow
def test_relayed_events_count_once(people):
    alice, bob, carol = people("alice", "bob", "carol")
    record(alice, bob, carol)
    meet(alice, bob, carol)
    carol.sleep()
    texts = [f"while carol is away {number}" for number in range(6)]
    ids = [alice.client.send_message("friends", text).id for text in texts]
    assert alice.client.wait_for_delivery("friends", ids[-1], count=1).delivered == 1
    alice.sleep()
    carol.wake()
    until(lambda: carol.texts() == texts, "bob brings it", 60.0)
    assert {row.path for row in of(carol, Recv) if row.kind == "message"} == {"retransmission"}
    alice.wake()
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "back").id).complete
    told = Counter((row.sender, row.seq) for row in of(carol, Recv) if not row.dup)
    assert max(told.values()) == 1
    assert sum(row.kind == "message" and not row.dup for row in of(carol, Recv)) == len(texts) + 1


def test_a_failed_transaction_leaves_no_records(people, monkeypatch):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice, bob)
    commit, full = Journal.commit, {alice.places.journal}

    def limited(journal: Journal, *rest: Any) -> None:
        if journal.path in full:
            raise DiskFull(path=journal.path)
        commit(journal, *rest)

    monkeypatch.setattr(Journal, "commit", limited)
    for _ in range(3):
        with pytest.raises(AgentError):
            alice.client.send_message("friends", "no room for this")
    full.clear()
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "now there is").id).complete
    assert [row.plain_b for row in of(alice, Send) if row.plain_b < 100] == [len("now there is")]


# --- storage ----------------------------------------------------------------------------------------------------------


def facts(count: int, at_us: int, group: int = 1) -> list[Record]:
    return [Ack(2, group, 3, seq, at_us + seq, "direct") for seq in range(count)]


@pytest.fixture
def journal(people) -> Any:
    (alice,) = people("alice")
    alice.sleep()
    with reopened(alice) as found:
        yield found


NOW = 1_800_000_000_000_000


def put(store: TelemetryStore, rows: list[Record], now: int = NOW, room: int = 1 << 30, *, whole: bool = True) -> None:
    store.append(rows, now, room, 30, complete=whole)


def test_records_are_limited_in_size_and_age(journal):
    store = journal.telemetry()
    for number in range(200):
        put(store, facts(50, NOW + number * 1_000))
    whole = store.sums()
    assert whole.rows == 10_000 and whole.bytes > 20_000
    put(store, facts(50, NOW + 300_000), room=whole.bytes // 2)
    half = store.sums()
    assert half.bytes <= whole.bytes // 2 and 0.4 < half.rows / whole.rows <= 0.51
    numbers = [one.number for one in store.batches(0, 1_000)]
    assert numbers == sorted(numbers) and numbers[0] > 90, "the oldest went first"
    again = TelemetryStore(store._db, store._faults, store._transaction)
    assert again.sums() == store.sums(), "what is counted on the way is what there is"
    put(store, facts(1, NOW + 31 * DAY_US), NOW + 31 * DAY_US)
    assert store.sums().rows == 1 == len(store.batches(0, 10))
    store.expire(NOW + 62 * DAY_US, 30)
    assert store.sums().rows == 0 == len(store.batches(0, 10))


def test_a_past_clock_error_keeps_no_old_records(journal):
    store = journal.telemetry()
    put(store, facts(1, NOW + 700 * DAY_US))
    for day in range(100):
        put(store, facts(1, NOW + day * DAY_US), NOW + day * DAY_US)
    assert len(store.batches(0, 1_000)) == 1 + 31


def test_unrecorded_events_leave_a_span_hole(journal):
    store, me = journal.telemetry(), {"g": "did:me"}

    def came(author: str) -> None:
        row = ("g", os.urandom(8).hex(), author, 1, 1, "post", b"", "", 0)
        names = [name for _, name, *_ in journal._db.execute("PRAGMA table_info(events)")]
        needed = [name for _, name, _, null, default, _ in journal._db.execute("PRAGMA table_info(events)") if null]
        values = dict(zip(("group_id", "id", "author", "position", "lamport", "type", "record"), row, strict=False))
        values |= {name: 0 for name in needed if name not in values and name in names and name != "seq"}
        journal._db.execute(
            f"INSERT INTO events ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
        )

    assert store.recorded_until(me, NOW) == NOW, "never before"
    came("did:other")
    put(store, facts(1, NOW))
    assert store.recorded_until(me, NOW + DAY_US) == NOW, "nothing has come since"
    assert store.recorded_until(me, NOW - DAY_US) == NOW - DAY_US, "nor does a clock that was set back make it later"
    came("did:me")
    assert store.recorded_until(me, NOW + DAY_US) == NOW, "what we have said ourselves has not come"
    came("did:other")
    assert store.recorded_until(me, NOW + DAY_US) == NOW + DAY_US
    put(store, facts(1, NOW), NOW + 2 * DAY_US, whole=False)
    assert store.recorded_until(me, NOW + 3 * DAY_US) == NOW + 3 * DAY_US, "there is more to be written"


def covered(person: Person) -> list[tuple[int, int]]:
    """The times of which all is recorded, those that meet as one."""
    found: list[tuple[int, int]] = []
    for row in of(person, Span):
        if found and found[-1][1] == row.t_from_us:
            found[-1] = found[-1][0], row.t_us
        else:
            found.append((row.t_from_us, row.t_us))
    return found


def test_spans_state_the_recorded_time(people, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_US", 0)
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "1").id).complete
    alice.sleep()
    alice.wake()  # a pause without received events
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "2").id).complete
    [(begun, ended)] = covered(alice)
    times = [row.t_recv_us for row in of(alice, Recv) if row.plain_b == 1]
    assert len(times) == 2 and all(begun <= at <= ended for at in times)
    alice.client.call("set_telemetry", on=False)
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "not on record").id).complete
    record(alice)
    assert bob.client.wait_for_delivery("friends", bob.client.send_message("friends", "3").id).complete
    first, second = covered(alice)
    assert first[0] == begun and first[1] < second[0], "something came in between"
    assert not any(row.plain_b == len("not on record") for row in of(alice, Recv))


def test_views_are_recorded_periodically(people, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_US", 0)
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    record(alice)
    count = len(of(alice, View))
    monkeypatch.setattr(recorder, "VIEWS_US", 0)
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "hello").id).complete
    until(lambda: len(of(alice, View)) > count, "another view")
    assert {len(row.roster) for row in of(alice, View)} == {2}


def test_old_records_expire_while_off(people):
    (alice,) = people("alice")
    record(alice)
    alice.client.call("set_telemetry", on=False)
    alice.sleep()
    with reopened(alice) as found:
        put(found.telemetry(), facts(5, NOW - 900 * DAY_US), NOW - 900 * DAY_US)
        assert found.telemetry().sums().rows >= 5
    alice.wake()
    assert of(alice, Ack) == []


def test_forgotten_names_are_deleted_and_numbers_unique(journal):
    store = journal.telemetry()
    numbers = {name: store.number(*name) for name in (("g", ""), ("g", "did:a"), ("h", ""), ("h", "did:a"))}
    put(store, facts(1, NOW))
    assert {(group, did): number for number, group, did in store.names(0, 99)} == numbers
    with journal._transaction():
        journal.forget("g")
    store.forget("g")
    assert [group for _, group, _ in store.names(0, 99)] == ["h", "h"]
    assert store.number("g") > max(numbers.values()), "facts that are left are nobody's"
    assert store.delete() == 1
    assert store.names(0, 99) == [] and store.number("g") > max(numbers.values())


def test_kill_leaves_complete_batches_in_the_journal(people, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_US", 0)
    alice, bob = people("alice", "bob")
    record(alice, bob)
    meet(alice, bob)
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "hello").id).complete
    copy = Path(alice.client.create_backup())
    with Journal.open(copy, unlock(alice.places, None)) as killed:
        batches = killed.telemetry().batches(0, 1_000)
        assert sum(one.rows for one in batches) == sum(len(unpack_rows(one.data)) for one in batches) > 5
    copy.unlink()
    did = alice.client.list_members("friends")[0].did.encode()
    files = [path for path in alice.places.data.rglob("*") if path.is_file()]
    assert files and not any(did in path.read_bytes() for path in files)


def test_recording_starts_empty_after_a_deletion(people):
    alice, bob = people("alice", "bob")
    record(alice, bob)
    meet(alice, bob)
    rows = alice.client.call("get_telemetry").rows
    status = alice.client.call("delete_telemetry")
    assert status.deleted >= rows > 0 and status.recording
    first = kept(alice)
    assert [type(row) for row in first[:1]] == [View] and len(first[0].roster) == 2, "who is in is known from the first"
    assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "after").id).complete
    assert len(of(alice, Send)) == 1
    alice.client.call("set_telemetry", on=False)
    assert alice.client.call("delete_telemetry").rows == 0 == alice.client.call("get_telemetry").rows
    alice.sleep()
    with reopened(alice) as journal:
        assert journal.meta_get(consent.META_KEY) is None and journal.telemetry().names(0, 9) == []


def test_pages_fit_control_socket_lines(people, monkeypatch):
    from zerochat.agent.telemetry import handlers

    monkeypatch.setattr(handlers, "PAGE_BATCHES", 3)
    monkeypatch.setattr(handlers, "NAMES_MAX", 2)
    (alice,) = people("alice")
    record(alice)
    alice.sleep()
    with reopened(alice) as journal:
        store = journal.telemetry()
        numbers = [store.number("g", f"did:{number}") for number in range(7)]
        for number in range(10):
            put(store, facts(5, time.time_ns() // 1000 + number), time.time_ns() // 1000)
    alice.wake()
    assert len(of(alice, Ack)) == 50
    assert [row.upto for row in collection.newest(alice.client.call, 4)][-3:] == [2, 3, 4]
    assert set(numbers) <= set(collection.names(alice.client.call))


def test_records_expire_after_a_failure(monkeypatch):
    """The disk is full once, and then the agent runs for weeks."""
    aged: list[float] = []

    class Full:
        limits = recorder.RetentionLimits(64, 30)

        def is_due(self, _: float) -> bool:
            return True

        def observe(self, *_: Any, **__: Any) -> None:
            raise DiskFull(path="here")

    monkeypatch.setattr(handlers, "expire", lambda *_: aged.append(1))
    monkeypatch.setattr(handlers, "retention_limits", lambda *_: Full.limits)
    monkeypatch.setattr(handlers, "new_recorder", lambda *_: Full())
    agent: Any = None
    log = logging.getLogger("nowhere")
    monkeypatch.setattr(log, "disabled", True)
    outside: Any = SimpleNamespace(counts={}, reason=None, clients=[], backlog=None, meta_get=lambda _: b"x")
    one = switch.Recording(outside, lambda: agent, outside, outside, log)
    one.reload(agent, 0.0)
    was_on = one.on
    one.before_wait(agent, 20.0)
    assert (was_on, one.on) == (True, False)
    for hour in range(1, 25):
        one.before_wait(agent, 20.0 + hour * 3_600)
    assert len(aged) == 24
