"""The journal: durable events per second for several batch sizes, and the time to open a long journal.

A batch is the core's output for that many posts: the events and the changed parts of a state with several members.
Plain SQLite (Python's own) gets the same rows with the same settings, without encryption and search index; the floor is
a file to which the same number of bytes is appended and synced (`fdatasync`). All three write to the same folder, in
turn. The figures follow the disk: a cache that survives power cuts makes them many times higher.
"""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from benchmarks import Figure, Report, Row, Scale, take_turns
from benchmarks.ours.core import GROUP, HUB, Star
from zerochat.agent.storage.database import WAL_BYTES_KEPT, WAL_PAGES
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.search_index import INDEX_SCHEMA
from zerochat.agent.storage.state_parts import changes
from zerochat.agent.storage.tables import DELETE_PARTS, INSERT_EVENT, LATEST_ROWS, SCHEMA, WRITE_PART, values_of
from zerochat.group.effects import CommandDone, Effect, StoreEvent
from zerochat.group.engine import step
from zerochat.group.inputs import BatchEnded, CommandInput, SendPost, StepContext
from zerochat.group.state import Agent

KEY = bytes(range(32))
PLAIN_SCHEMA = SCHEMA.replace(INDEX_SCHEMA, "")
"""The journal's tables without the search index, which needs a newer SQLite than Python may have."""
BATCHES = (1, 4, 16, 64, 256)
MEMBERS = 8
"""Of the group that turns are written for."""
LONG_MEMBERS, OPEN_MS_GOAL = 64, 1_000.0
LONG_EVENTS, LONG_EVENTS_LEAST = 100_000, 1_000
PAGE = 50
SETTINGS = (
    *(("locking_mode", "EXCLUSIVE"), ("journal_mode", "WAL"), ("synchronous", "FULL"), ("fullfsync", 1)),
    *(("checkpoint_fullfsync", 1), ("cell_size_check", 1), ("mmap_size", 0), ("temp_store", "MEMORY")),
    *(("trusted_schema", 0), ("secure_delete", 1), ("journal_size_limit", WAL_BYTES_KEPT)),
    ("wal_autocheckpoint", WAL_PAGES),
)


@dataclass(frozen=True)
class Turn:
    before: Agent
    after: Agent
    events: tuple[StoreEvent, ...]


def turns_of(batch: int, number: int) -> list[Turn]:
    """The core's output for `batch` posts, this many times in a row."""
    star = Star(MEMBERS)
    star.grow(MEMBERS)
    agent = star.nodes[HUB].agent
    turns = []
    for _ in range(number):
        before, said = agent, list[Effect]()
        moment = StepContext(star.now, star.rng.randbytes)
        for ticket in range(batch):
            agent, effects = step(
                agent,
                CommandInput(ticket, SendPost(GROUP, "a line of some sixty characters, as people write.")),
                moment,
            )
            assert any(isinstance(effect, CommandDone) for effect in effects), effects
            said += effects
        agent, effects = step(agent, BatchEnded(), moment)
        turns.append(Turn(before, agent, tuple(one for one in [*said, *effects] if isinstance(one, StoreEvent))))
    return turns


class Writers:
    """Three files in one folder, and the same turns for each."""

    def __init__(self, folder: Path, turns: Sequence[Turn]) -> None:
        self._turns, self._rounds = turns, count()
        self.journal = Journal.create(folder / "journal.db", KEY)
        self.journal.commit(turns[0].before)
        self.plain = plain_database(folder / "plain.db")
        self.raw = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._parts = [list(changes(batch.before, batch.after)) for batch in turns]
        self.events = sum(len(batch.events) for batch in turns)

    def close(self) -> None:
        self.journal.close()
        self.plain.close()
        os.close(self.raw)

    def _fresh(self) -> list[list[StoreEvent]]:
        """The events again under other ids: existing ids are not written again."""
        number = next(self._rounds)
        return [[replace(one, id=f"{number} {one.id}") for one in batch.events] for batch in self._turns]

    def ours(self) -> float:
        events = self._fresh()
        start = time.perf_counter()
        for batch, fresh in zip(self._turns, events, strict=True):
            self.journal.commit(batch.after, fresh)
        return self.events / (time.perf_counter() - start)

    def sqlite(self) -> float:
        events = self._fresh()
        start = time.perf_counter()
        for parts, fresh in zip(self._parts, events, strict=True):
            write_plain(self.plain, parts, fresh)
        return self.events / (time.perf_counter() - start)

    def floor(self) -> float:
        sizes = [
            sum(len(value or b"") for _, value in parts) + sum(len(one.record) for one in batch.events)
            for parts, batch in zip(self._parts, self._turns, strict=True)
        ]
        start = time.perf_counter()
        for size in sizes:
            os.write(self.raw, bytes(size))
            os.fdatasync(self.raw)
        return self.events / (time.perf_counter() - start)


def commit_ms() -> float:
    """Milliseconds of one durable commit of one post: the median of several rounds."""
    with tempfile.TemporaryDirectory(prefix="zerochat-bench-") as folder:
        writers = Writers(Path(folder), turns_of(1, 16))
        try:
            return 1000 / Figure.of(take_turns({"ours": writers.ours}, 5)["ours"]).median
        finally:
            writers.close()


def plain_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    for name, value in SETTINGS:
        database.execute(f"PRAGMA {name} = {value}")
    database.executescript(PLAIN_SCHEMA)
    return database


def write_plain(
    database: sqlite3.Connection, parts: Sequence[tuple[str, bytes | None]], events: Sequence[StoreEvent]
) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.executemany(DELETE_PARTS, [(path,) for path, value in parts if value is None])
    database.executemany(WRITE_PART, [(path, value) for path, value in parts if value is not None])
    database.executemany(INSERT_EVENT, [values_of(one) for one in events])
    database.execute("COMMIT")


def rate_row(folder: Path, batch: int, rounds: int) -> Row:
    writers = Writers(folder, turns_of(batch, max(4, 64 // batch)))
    try:
        runs = {"ours": writers.ours, "sqlite": writers.sqlite, "floor": writers.floor}
        figures = {name: Figure.of(values) for name, values in take_turns(runs, rounds).items()}
    finally:
        writers.close()
    case = f"durable events, {batch} in a turn"
    peers = {"plain SQLite": figures["sqlite"]}
    return Row(case, "1/s", "higher", figures["ours"], figures["floor"], "append and fdatasync", peers)


# --- a long journal ---------------------------------------------------------------------------------------------------


def long_journal(folder: Path, posts: int) -> tuple[Path, Path]:
    """A journal with the state of a founder of a group of 64, and so many posts of its members; and the same in plain
    SQLite."""
    star = Star(LONG_MEMBERS)
    star.grow(LONG_MEMBERS)
    agent = star.nodes[HUB].agent
    (group,) = agent.groups.values()
    authors = sorted(group.view.members)
    model = next(one for batch in turns_of(1, 1) for one in batch.events)
    events = [
        replace(
            model,
            group=group.id,
            id=f"{number:043d}",
            author=authors[number % len(authors)],
            seq=number // len(authors) + 1,
            lamport=model.lamport + number,
        )
        for number in range(posts)
    ]
    path, plain = folder / "long.db", folder / "long-plain.db"
    with Journal.create(path, KEY) as journal:
        journal.commit(agent, events)
    database = plain_database(plain)
    write_plain(database, list(changes(None, agent)), events)
    database.close()
    return path, plain


def open_ours(path: Path) -> float:
    start = time.perf_counter()
    with Journal.open(path, KEY) as journal:
        agent = journal.load(Agent)
        assert agent is not None
        (group,) = agent.groups
        heights, page = journal.chain_heads(group), journal.history(group, PAGE)
        elapsed = time.perf_counter() - start
        assert len(heights) == LONG_MEMBERS and len(page) == PAGE
    return elapsed * 1000


def open_plain(path: Path, group: str) -> float:
    """Without taking the state apart: only reading its parts, and the newest page."""
    start = time.perf_counter()
    database = sqlite3.connect(path)
    database.execute("SELECT path, value FROM checkpoint ORDER BY number").fetchall()
    page = database.execute(LATEST_ROWS, (group, 0, PAGE)).fetchall()
    elapsed = time.perf_counter() - start
    database.close()
    assert len(page) == PAGE
    return elapsed * 1000


def copy_ours(path: Path) -> float:
    target = path.with_name("copy.db")
    with Journal.open(path, KEY) as journal:
        start = time.perf_counter()
        journal.copy(target)
        elapsed = time.perf_counter() - start
    target.unlink()
    return elapsed * 1000


def copy_plain(path: Path) -> float:
    target = path.with_name("plain-copy.db")
    start = time.perf_counter()
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    source.backup(copy)
    copy.close()
    source.close()
    elapsed = time.perf_counter() - start
    target.unlink()
    return elapsed * 1000


def copy_file(path: Path) -> float:
    target = path.with_name("file-copy")
    start = time.perf_counter()
    shutil.copyfile(path, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    elapsed = time.perf_counter() - start
    target.unlink()
    return elapsed * 1000


def long_rows(folder: Path, rounds: int) -> list[Row]:
    posts = LONG_EVENTS_LEAST if Scale.smoke else LONG_EVENTS
    path, plain = long_journal(folder, posts)
    with Journal.open(path, KEY) as journal:
        group = journal.by_seq(0, 1)[0].group
        assert journal.count(group) == posts
    opens: dict[str, Callable[[], float]] = {
        "ours": partial(open_ours, path),
        "plain": partial(open_plain, plain, group),
    }
    copies: dict[str, Callable[[], float]] = {
        "ours": partial(copy_ours, path),
        "plain": partial(copy_plain, plain),
        "floor": partial(copy_file, path),
    }
    opened = {name: Figure.of(values) for name, values in take_turns(opens, rounds).items()}
    copied = {name: Figure.of(values) for name, values in take_turns(copies, rounds).items()}
    what = f"{posts:,} events, {LONG_MEMBERS} members"
    return [
        Row(
            f"opening a journal: {what}, and the newest page",
            "ms",
            "lower",
            opened["ours"],
            peers={"plain SQLite": opened["plain"]},
            goal=OPEN_MS_GOAL,
        ),
        Row(
            f"a copy of it for a backup ({path.stat().st_size / 2**20:.0f} MB)",
            "ms",
            "lower",
            copied["ours"],
            copied["floor"],
            "copying the file, and fsync",
            {"plain SQLite": copied["plain"]},
        ),
    ]


def measure(quick: bool) -> Report:
    rounds = 5 if quick else 15
    rows = []
    with tempfile.TemporaryDirectory(prefix="zerochat-bench-") as folder:
        for batch in BATCHES:
            inner = Path(folder) / str(batch)
            inner.mkdir()
            rows.append(rate_row(inner, batch, rounds))
        rows += long_rows(Path(folder), 3 if quick else 9)
    return Report(rows)
