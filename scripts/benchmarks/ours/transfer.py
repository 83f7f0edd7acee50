"""The history for a new member: the time for two real agents to transfer all of it, and its floor.

The old member's journal is filled in advance (`past.py`). The new member joins by an invitation, is killed halfway,
restarts and resumes; meanwhile the old member posts, and the new member's client is timed. At the end both journals
must hold the same, nothing twice. Beside it, in the same run: the same rows from one plain SQLite file into another, in
as many transactions; and the floor, reading the rows and hashing them.
"""

import contextlib
import hashlib
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks import Figure, Row
from benchmarks.journal import PLAIN_SCHEMA
from benchmarks.ours.agents import GROUP, STEP_S_MAX, NotReady, connected, running
from benchmarks.ours.past import OLD, fill
from zerochat.agent.api.client import Client, connect
from zerochat.agent.storage.database import WAL_PAGES
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.journal import Row as Kept
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.storage.tables import COLUMNS
from zerochat.errors import LocalError
from zerochat.group.event_log.event import POST
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX
from zerochat.rpc import BackfillNotification, Event

RATE_MIN, POST_MS_MAX = 10_000, 250
"""The goals: rows in a second, and how long a post may take meanwhile."""
POST_S = 0.2
"""From one post of the old member to the next."""
STALL_S_MAX = 60.0
"""The transfer has failed if nothing arrives for this long."""
NEW = "newcomer"
READ_ROWS = 1_000
AGENT = ["agent", "--listen", "127.0.0.1"]


@dataclass(slots=True)
class Course:
    """The notifications of the new member's client, with monotonic times in seconds."""

    told: list[tuple[float, int]] = field(default_factory=list)
    """How many rows of the history were there; the newcomer was dead before the first of `second`."""
    second: int = 0
    said: dict[str, float] = field(default_factory=dict)
    """The old member's posts meanwhile, by text: when its face handed them over."""
    heard: dict[str, float] = field(default_factory=dict)

    @property
    def whole_s(self) -> float:
        return self.told[-1][0] - self.told[0][0]

    @property
    def rates(self) -> list[float]:
        """Rows in a second, before the newcomer was killed and after it was back."""
        stretches = self.told[: self.second], self.told[self.second :]
        return [(last[1] - first[1]) / (last[0] - first[0]) for first, *_, last in stretches]

    @property
    def rate(self) -> float:
        """The same for both together."""
        moved = [pair for place, pair in enumerate(pairwise(self.told), 1) if place != self.second]
        return sum(after[1] - before[1] for before, after in moved) / sum(a[0] - b[0] for b, a in moved)

    def posts_ms(self) -> list[float]:
        """How long the posts took that were handed over while rows came."""
        spans = [(part[0][0], part[-1][0]) for part in (self.told[: self.second], self.told[self.second :])]
        return [
            (self.heard[text] - at) * 1000
            for text, at in self.said.items()
            if text in self.heard and any(begin <= at <= end for begin, end in spans)
        ]


def transfer_rows(posts: int, folder: Path, say: Callable[[str], None]) -> list[Row]:
    """`say`: the posts meanwhile. Raises NotReady if the transfer does not complete."""
    old, new = (profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)}) for name in (OLD, NEW))
    begun = time.monotonic()
    fill(old, GROUP, posts)
    say(f"an old member has {posts:,} messages after {time.monotonic() - begun:.0f} s")
    create_profile(new, NEW, None)
    course = hand_over(old, new, posts, say)
    say("both journals are read")
    rows = compared(old, new)
    waited = course.posts_ms()
    ours = Figure.of([course.whole_s])
    copying = Figure.of([copied(rows, folder)])
    floor = Figure.of([read_and_hashed(folder)])
    of = f"{posts:,} messages to a newcomer"
    peers = {"SQLite to SQLite, nothing else": copying}
    return [
        Row(f"{of}, killed in the middle", "s", "lower", ours, floor, "reading and hashing", peers),
        Row(
            f"{of}, without the time it was dead",
            "rows/s",
            "higher",
            Figure(course.rate, min(course.rates), max(course.rates)),
            Figure.of([len(rows) / floor.median]),
            "reading and hashing",
            {name: Figure.of([len(rows) / figure.median]) for name, figure in peers.items()},
            RATE_MIN,
        ),
        *([Row(f"{of}: a post meanwhile", "ms", "lower", Figure.of(waited), goal=POST_MS_MAX)] if waited else []),
    ]


# --- the two agents ---------------------------------------------------------------------------------------------------


def hand_over(old: ProfilePaths, new: ProfilePaths, posts: int, say: Callable[[str], None]) -> Course:
    """Raises NotReady if the new member does not receive all of it, or a post of the old member never arrives."""
    course = Course()
    with running(AGENT, old) as process:
        with connected(process, old) as face:
            code = face.create_invitation(GROUP, uses=1).code
        with agent(new) as (process, news):
            news.join_group(code)
            with posting(old, course):
                if follow(news, course, posts // 2):
                    raise NotReady("the newcomer had all of it before it could be killed")
                process.kill()
        course.second = len(course.told)
        # Rows from before the kill are not notified again; the journals are compared at the end.
        course.said = {text: at for text, at in course.said.items() if text in course.heard}
        say(f"the newcomer is killed with {course.told[-1][1]:,} rows")
        with agent(new) as (process, news):
            with posting(old, course):
                if not follow(news, course, None):
                    raise NotReady(f"the newcomer has {course.told[-1][1]} rows and gets no more")
            say(f"it has {course.told[-1][1]:,} rows after {course.whole_s:.1f} s")
            await_posts(news, course)
    return course


@contextlib.contextmanager
def agent(home: ProfilePaths) -> Iterator[tuple["subprocess.Popen[bytes]", Client]]:
    with running(AGENT, home) as process, connected(process, home) as news:
        news.subscribe()
        yield process, news


@contextlib.contextmanager
def posting(old: ProfilePaths, course: Course) -> Iterator[None]:
    """Post at the old member now and then."""
    done = threading.Event()
    poster = threading.Thread(target=post, args=(old, course, done), daemon=True)
    poster.start()
    try:
        yield
    finally:
        done.set()
        poster.join(STEP_S_MAX)


def post(old: ProfilePaths, course: Course, done: threading.Event) -> None:
    """A request that times out at the client continues over a new connection; the arrival shows how long a post took
    and whether it arrived."""
    while not done.is_set():
        with contextlib.suppress(LocalError), connect(old, "benchmark") as face:
            while not done.wait(POST_S):
                at = time.monotonic()
                text = f"meanwhile, at {at}"
                course.said[text] = at
                face.send_message(GROUP, text)


def follow(news: Client, course: Course, enough: int | None) -> bool:
    """Receive until the new member has this many rows, or (True) all of them. Raises NotReady when no more arrive."""
    moved = time.monotonic()
    for item in news.notifications(STALL_S_MAX):
        now = time.monotonic()
        match item.params:
            case BackfillNotification(received=got, done=done):
                if got > (course.told[-1][1] if course.told else 0):
                    course.told.append((now, got))
                    moved = now
                if done or (enough is not None and got >= enough):
                    return done
            case Event(type="message") as event:
                course.heard.setdefault(event.body["text"], now)
        if now - moved > STALL_S_MAX:
            break
    raise NotReady(f"the newcomer has {course.told[-1][1] if course.told else 0} rows and is told nothing more")


def await_posts(news: Client, course: Course) -> None:
    """Receive the posts that have not arrived yet. Raises NotReady if they do not."""
    deadline = time.monotonic() + STALL_S_MAX
    while (missing := course.said.keys() - course.heard.keys()) and (left := deadline - time.monotonic()) > 0:
        item = news.next_notification(left)
        if item is not None and isinstance(item.params, Event) and item.params.type == "message":
            course.heard.setdefault(item.params.body["text"], time.monotonic())
    if missing:
        raise NotReady(f"{len(missing)} of {len(course.said)} posts have not come")


# --- journals ---------------------------------------------------------------------------------------------------


def compared(old: ProfilePaths, new: ProfilePaths) -> list[Kept]:
    """The posts that both have, in their order. Raises NotReady unless they are the same, each once."""
    theirs, mine = posts_of(old), posts_of(new)
    if [row.record for row in theirs] != [row.record for row in mine]:
        raise NotReady(f"of {len(theirs)} messages the newcomer has {len(mine)}, and they are not the same")
    if len({(row.author, row.position) for row in mine}) != len(mine):
        raise NotReady("the newcomer has something twice")
    return theirs


def posts_of(home: ProfilePaths) -> list[Kept]:
    with Journal.open(home.journal, unlock(home, None)) as journal:
        found: list[Kept] = []
        while page := journal.by_seq(found[-1].seq if found else 0, READ_ROWS):
            found += page
    return sorted((row for row in found if row.type == POST), key=lambda row: (row.lamport, row.author, row.id))


# --- beside it --------------------------------------------------------------------------------------------------------


def copied(rows: Sequence[Kept], folder: Path) -> float:
    """The seconds that it takes to copy these rows from one plain file to another."""
    with contextlib.closing(plain(folder / "from.db")) as source, contextlib.closing(plain(folder / "to.db")) as target:
        keep(source, [values(row) for row in rows])
        begun = time.monotonic()
        found = source.execute(f"SELECT {COLUMNS} FROM events ORDER BY lamport DESC")  # noqa: S608
        while page := found.fetchmany(RUN_EVENTS_MAX):
            keep(target, page)
        return time.monotonic() - begun


def plain(path: Path) -> sqlite3.Connection:
    """A new file without a cipher and search index, with the journal's tables and as rare checkpoints."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    db.executescript(PLAIN_SCHEMA)
    return db


def keep(db: sqlite3.Connection, rows: Sequence[Sequence[object]]) -> None:
    with db:
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO events ({COLUMNS}) VALUES ({marks})", rows)  # noqa: S608


def values(row: Kept) -> tuple[object, ...]:
    where = (row.seq, row.group, row.id, row.author, row.position, row.lamport, row.type, row.record, row.received)
    return (*where, row.late, row.relayed_by, row.refuted, row.history, row.target)


def read_and_hashed(folder: Path) -> float:
    """The seconds that it takes to read the rows of the plain file and to hash each."""
    with contextlib.closing(sqlite3.connect(folder / "from.db")) as db:
        begun = time.monotonic()
        for (record,) in db.execute("SELECT record FROM events ORDER BY lamport DESC"):
            hashlib.sha256(record).digest()
        return time.monotonic() - begun
