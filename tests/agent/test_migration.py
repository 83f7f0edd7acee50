"""A journal of an older version simply opens: whole, once, and with a copy beside it until that is certain.

`assets/old-profiles` has real ones.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.powercut import Disk
from zerochat.agent.loop import AgentThread
from zerochat.agent.storage import tables as rows
from zerochat.agent.storage.database import Format, OlderJournal, bring_along, open_database
from zerochat.agent.storage.journal import DiskFull, Journal, JournalDamaged, JournalInUse, NewerJournal, WrongKey
from zerochat.agent.storage.paths import Places, places
from zerochat.agent.storage.profiles import unlock
from zerochat.crypto.encoding import b64url_bytes
from zerochat.group.effects import Confirm, Receipt, Remember
from zerochat.group.event_log.event import POST, load_event
from zerochat.group.state import Agent

SAMPLE = Path(__file__).parents[2] / "assets" / "old-profiles" / "journal-2"
LINES = [f"{name}'s line {n}" for n in range(3) for name in ("alice", "bob")] + ["a last line, with an umlaut: ü"]
OLD_COLUMNS = "seq, group_id, id, author, position, lamport, type, record, received, late"
OLD = Format(rows.APPLICATION_ID, 2)


@pytest.fixture
def home(tmp_path: Path) -> Places:
    found = places("alice", {"ZEROCHAT_HOME": str(tmp_path / "home")})
    found.data.mkdir(parents=True)
    for source, target in ((SAMPLE / "journal.db", found.journal), (SAMPLE / "key", found.key_file)):
        shutil.copyfile(source, target)
        target.chmod(0o600)
    return found


def key_of(home: Places) -> bytes:
    return unlock(home, None)


def raw(path: Path, key: bytes, version: int = 2) -> dict[str, list[Any]]:
    """Everything that was in a journal of version 2, whatever version it is now."""
    db = open_database(path, key, Format(rows.APPLICATION_ID, version))
    try:
        return {
            "meta": db.execute("SELECT * FROM meta ORDER BY key").fetchall(),
            "checkpoint": db.execute("SELECT * FROM checkpoint ORDER BY number").fetchall(),
            "events": db.execute(f"SELECT {OLD_COLUMNS} FROM events ORDER BY seq").fetchall(),
            "sequence": db.execute("SELECT * FROM sqlite_sequence ORDER BY name").fetchall(),
        }
    finally:
        db.close()


def tables(path: Path, key: bytes) -> list[Any]:
    db = open_database(path, key, Format(rows.APPLICATION_ID, rows.SCHEMA_VERSION))
    try:
        found: list[Any] = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
        columns = [(name, db.execute(f"PRAGMA table_info({name})").fetchall()) for (name,) in found]
        indexes = db.execute("SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name")
        return [columns, indexes.fetchall(), db.pragma("application_id"), db.pragma("user_version")]
    finally:
        db.close()


def test_an_old_journal_simply_opens_and_has_what_it_had(home: Places):
    key = key_of(home)
    before = raw(home.journal, key)
    with Journal.open(home.journal, key) as journal:
        state = journal.load(Agent)
        assert state is not None and state.label == "alice"
        (group,) = state.groups
        rows_now = journal.by_seq(0, 99)
        texts = [load_event(row.record).body.get("text") for row in rows_now if row.type == POST]
        assert texts == LINES
        assert not any(row.vouched or row.refuted or row.history for row in rows_now)
        assert sorted(journal.history(group, 99), key=lambda row: row.seq) == rows_now
        assert sum(position for position, _ in journal.heights(group).values()) == journal.count(group)
    assert raw(home.journal, key, rows.SCHEMA_VERSION) == before
    with Journal.open(home.journal, key) as journal:
        author = rows_now[-1].author
        more = Remember(group, "new", author, 99, 1 << 50, "message", b"x", 1, False, "did:v")
        journal.commit(state, [more, Receipt(group, "did:m", author, 3, 1), Confirm(group, author, 98, 99)])
        assert journal.heights(group)[author] == (99, "new") and journal.receipts_of(group, author, 1)
        assert journal.load(Agent) == state and journal.latest() == rows_now[-1].seq + 1


def test_a_journal_that_was_brought_along_is_like_one_that_was_made_now(home: Places, tmp_path: Path):
    key = key_of(home)
    Journal.open(home.journal, key).close()
    made = tmp_path / "made.db"
    Journal.create(made, key).close()
    assert tables(home.journal, key) == tables(made, key)


@pytest.mark.parametrize("version", range(3, rows.SCHEMA_VERSION))
def test_one_of_every_version_in_between_opens_and_has_what_it_had(home: Places, tmp_path: Path, version: int):
    """Made of the oldest one, by the way to that version and no further."""
    key = key_of(home)
    steps = {number: sql for number, sql in rows.FORMAT.migrations.items() if number < version}
    between = Format(rows.APPLICATION_ID, version, steps, rows.FORMAT.steps)
    db = open_database(home.journal, key, between)
    assert bring_along(db, home.journal, key, between)
    db.close()
    (home.data / "journal.db.v2").unlink()
    before = raw(home.journal, key, version)
    with Journal.open(home.journal, key) as journal:
        assert (home.data / f"journal.db.v{version}").exists()
        state = journal.load(Agent)
        assert state is not None and state.label == "alice"
        texts = [load_event(row.record).body.get("text") for row in journal.by_seq(0, 99) if row.type == POST]
        assert texts == LINES
    assert raw(home.journal, key, rows.SCHEMA_VERSION) == before
    made = tmp_path / "made.db"
    Journal.create(made, key).close()
    assert tables(home.journal, key) == tables(made, key)


def test_what_a_later_version_has_said_is_found_by_what_it_is_about(home: Places):
    """An older version keeps what it does not know, so it may be there already."""
    key, of = key_of(home), "o" * 43
    bodies = [
        ("e", "edit", {"of": of, "text": "x"}),
        ("d", "delete", {"of": of}),
        ("r", "react", {"of": of, "emoji": "!", "on": True}),
        ("t", "topic", {"text": "x"}),
        *(("n", "react", {"of": 7}), ("m", "edit", {"of": "short"}), ("k", "react", {}), ("p", "post", {"of": of})),
    ]
    db = open_database(home.journal, key, OLD)
    for number, (name, kind, body) in enumerate(bodies, 1_000):
        record = json.dumps({"body": body}).encode()
        values = ("g", name, "a", number, number, kind, record, 1, 0)
        db.execute(f"INSERT INTO events ({OLD_COLUMNS.removeprefix('seq, ')}) VALUES (?,?,?,?,?,?,?,?,?)", values)
    db.execute("INSERT INTO events VALUES (9999, 'g', 'b', 'a', 9999, 9999, 'edit', x'ff00', 1, 0)")
    db.close()
    with Journal.open(home.journal, key) as journal:
        found = {row.id: row.target for row in journal.by_seq(0, 999) if row.group == "g"}
        assert {name: target for name, target in found.items() if target} == {"e": of, "d": of, "r": of, "t": "topic"}
        assert sorted(row.id for row in journal.remarks("g", [(of, "a")])) == ["d", "e", "r"]


def test_the_copy_stays_until_the_next_start_has_succeeded(home: Places):
    key = key_of(home)
    content = raw(home.journal, key)
    copy = home.data / "journal.db.v2"
    with Journal.open(home.journal, key) as journal:
        assert journal.load(Agent) is not None
        assert sorted(each.name for each in home.data.iterdir() if each.name.startswith("journal.db.")) == [copy.name]
        assert copy.stat().st_mode & 0o777 == 0o600
    # It is the old journal, and the same key opens it.
    assert raw(copy, key) == content
    Journal.open(home.journal, key).close()
    assert copy.exists(), "a start that has not read its state has not succeeded"
    with Journal.open(home.journal, key) as journal:
        assert journal.load(Agent) is not None
    assert not copy.exists()


def test_an_agent_lives_on_with_an_old_profile(home: Places):
    key = key_of(home)
    for _ in range(2):
        thread = AgentThread(home, unlock(home, None), listen="127.0.0.1")
        thread.start()
        thread.stop()
        assert thread.failure is None
    with Journal.open(home.journal, key) as journal:
        state = journal.load(Agent)
        assert state is not None and len(journal.history(next(iter(state.groups)), 99)) >= len(LINES)
    assert not (home.data / "journal.db.v2").exists()


def test_what_a_killed_agent_has_left_in_its_write_ahead_log_comes_along(home: Places, tmp_path: Path):
    key = key_of(home)
    db = open_database(home.journal, key, OLD)
    db.execute("INSERT INTO meta VALUES ('late', x'01')")
    killed = tmp_path / "killed"
    killed.mkdir()
    for each in home.data.glob("journal.db*"):
        shutil.copy(each, killed)
    db.close()
    assert (killed / "journal.db-wal").stat().st_size > 0
    with Journal.open(killed / "journal.db", key) as journal:
        assert journal.meta_get("late") == b"\x01"
    assert ("late", b"\x01") in raw(killed / "journal.db.v2", key)["meta"]


@pytest.mark.slow
def test_the_power_may_go_at_any_moment(home: Places, tmp_path: Path):
    key = key_of(home)
    before = raw(home.journal, key)
    names = {home.journal.name, home.journal.name + "-wal"}
    with Disk(home.data) as disk:
        Journal.open(home.journal, key, vfs=disk.vfs).close()
    # First the copy, to the last sector; only then is the journal touched.
    first = next(n for n, op in enumerate(disk.ops) if op.name in names and op.kind in ("write", "truncate"))
    copying = [n for n, op in enumerate(disk.ops) if op.name.startswith("journal.db.v2")]
    assert copying and max(copying) < first
    assert disk.ops[max(n for n in copying if disk.ops[n].kind != "delete")].kind == "sync"
    copy = (home.data / "journal.db.v2").read_bytes()
    after = tmp_path / "after"
    after.mkdir()
    dice = random.Random(7)
    seen, old, new = set(), 0, 0
    for at in range(first, len(disk.ops) + 1):
        for files in disk.states(dice, at):
            kept = {name: content for name, content in files.items() if name in names}
            if (mark := hash(tuple(sorted(kept.items())))) in seen:
                continue
            seen.add(mark)
            for each in after.iterdir():
                each.unlink()
            for name, content in kept.items():
                (after / name).write_bytes(content)
            path = after / "journal.db"
            path.with_name("journal.db.v2").write_bytes(copy)
            try:
                assert raw(path, key) == before
                old += 1
            except NewerJournal:
                new += 1
            Journal.open(path, key).close()
            assert raw(path, key, rows.SCHEMA_VERSION) == before
            assert raw(after / "journal.db.v2", key) == before
    assert old > 3 and new > 3, (old, new)


def test_without_room_for_the_copy_the_old_journal_stays(home: Places, monkeypatch: pytest.MonkeyPatch):
    from zerochat.agent.storage import database

    key, before = key_of(home), raw(home.journal, key_of(home))

    def full(*_: object, **__: object) -> None:
        raise DiskFull(path=home.journal)

    with monkeypatch.context() as patch:
        patch.setattr(database, "copy_database", full)
        with pytest.raises(DiskFull):
            Journal.open(home.journal, key)
    assert raw(home.journal, key) == before
    Journal.open(home.journal, key).close()


def test_a_damaged_old_journal_is_not_brought_along(home: Places):
    """Whichever page it is: the file and its folder are as they were."""
    key, good = key_of(home), home.journal.read_bytes()
    dice = random.Random(8)
    refused = 0
    for page in range(len(good) // 4096):
        bad = bytearray(good)
        bad[4096 * page + dice.randrange(24 if page == 0 else 0, 4096)] ^= 1 << dice.randrange(8)
        home.journal.write_bytes(bad)
        with pytest.raises((JournalDamaged, WrongKey)):
            Journal.open(home.journal, key)
        refused += 1
        assert home.journal.read_bytes() == bad
        assert sorted(each.name for each in home.data.iterdir()) == ["journal.db", "key"]
    assert refused > 10


def test_one_that_nobody_knows_any_more_is_not_touched(home: Places):
    key = key_of(home)
    db = open_database(home.journal, key, OLD)
    db.pragma("user_version", 1)
    db.close()
    before = home.journal.read_bytes()
    with pytest.raises(OlderJournal, match="older"):
        Journal.open(home.journal, key)
    assert home.journal.read_bytes() == before and not (home.data / "journal.db.v2").exists()


def test_an_old_journal_that_is_in_use_is_left_alone(home: Places, monkeypatch: pytest.MonkeyPatch):
    from zerochat.agent.storage import journal as journal_module

    monkeypatch.setattr(journal_module, "BUSY_MS", 1)
    db = open_database(home.journal, key_of(home), OLD)
    try:
        with pytest.raises(JournalInUse):
            Journal.open(home.journal, key_of(home))
    finally:
        db.close()


def test_the_sample_is_what_it_says():
    assert sum(each.stat().st_size for each in SAMPLE.iterdir()) < 100_000
    assert b64url_bytes(SAMPLE.joinpath("key").read_text().split('"key": "')[1].split('"')[0])
