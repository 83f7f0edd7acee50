"""Events that arise in the bot itself, timers that were set at run time and webhooks: stored, then handled once due.

They take the path of other events: retries, attempts, dead letters. A wait is measured on a steady clock; over a
restart it never lasts longer than it was set for, whatever the system clock says.
"""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from zerochat.bot.agent_link import AgentLink
from zerochat.bot.connection import Connection
from zerochat.bot.events import Event, event_from
from zerochat.bot.store import BadValue, Store
from zerochat.errors import LocalError
from zerochat.rpc.common import timestamp
from zerochat.rpc.subscriptions import Item

LOCAL_EVENTS_MAX: Final = 1_000
"""Timers and webhooks that may wait, each."""
DELIVERIES_MAX: Final = 10_000
"""Deliveries of webhooks that are recognised when they are repeated; the oldest are forgotten first."""
NAME_CHARS_MAX: Final = 128
BODY_BYTES_MAX: Final = 64 * 1024
RUNNING_MAX: Final = 8
"""Local events that are handled at the same time: more would wait for a thread, which counts towards their timeout."""
SLEEP_S_MAX: Final = 60.0
"""Longest sleep, seconds: a machine may be suspended."""


class BadTimer(BadValue):
    """Invalid timer: {why}."""


class TooManyLocalEvents(LocalError):
    """There are already {limit} waiting events of the type {type}, which is the limit."""

    retry = "later"


@dataclass(frozen=True, slots=True)
class SetTimer:
    """A timer that was set at run time."""

    name: str
    due: float
    """UTC, seconds."""
    every_s: float
    """Interval, seconds; 0: once."""
    data: Any


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    type: str
    due: float
    span_s: float
    """How long it was to wait when it was set, seconds."""
    every_s: float
    run: int
    """Unique for each time that it was set, and for each run of a repeated timer."""

    @property
    def lane(self) -> str:
        """Events of one lane are handled one after the other: a timer, or the webhooks of one path."""
        return self.id if self.type == "timer" else self.id.rpartition(":")[0]


class LocalEvents:
    """The waiting local events in a bot's database. Usable from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(
        self, id: str, type: str, due: float, span_s: float, every_s: float, body: object, *, delivery: str = ""
    ) -> bool:
        """Store an event, replacing one of the same id; on disk when this returns. False: one of this `delivery` was
        stored before, and maybe handled. The callers limit the size of `body`. Raises BadValue and TooManyLocalEvents.
        """
        try:
            text = json.dumps(body, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(why=f"it is not JSON-serialisable ({type_name(error)})") from error
        with self._store.transaction() as db:
            if delivery and not _is_first(db, delivery):
                return False
            count = db.execute("SELECT count(*) FROM local_events WHERE type = ? AND id != ?", (type, id)).fetchone()
            if count[0] >= LOCAL_EVENTS_MAX:
                raise TooManyLocalEvents(limit=LOCAL_EVENTS_MAX, type=type)
            row = (id, type, due, span_s, every_s, text, _next_run(db))
            db.execute("INSERT OR REPLACE INTO local_events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        return True

    def drop(self, id: str) -> bool:
        with self._store.transaction() as db:
            return db.execute("DELETE FROM local_events WHERE id = ?", (id,)).rowcount > 0

    def rows(self) -> list[_Row]:
        """All waiting events, in the order in which they are due."""
        with self._store.transaction() as db:
            found = db.execute("SELECT id, type, due, span, every, run FROM local_events ORDER BY due, run").fetchall()
            return [_Row(*row) for row in found]

    def body(self, row: _Row) -> Any:
        """The body of an event; None: it was dropped or replaced."""
        with self._store.transaction() as db:
            found = db.execute("SELECT body FROM local_events WHERE id = ? AND run = ?", (row.id, row.run)).fetchone()
        return json.loads(found[0]) if found else None

    def handled(self, row: _Row, next_due: float) -> None:
        """Remove an event, or let a repeated timer wait again, unless it was replaced meanwhile."""
        with self._store.transaction() as db:
            if row.every_s:
                db.execute(
                    "UPDATE local_events SET due = ?, span = every, run = ? WHERE id = ? AND run = ?",
                    (next_due, _next_run(db), row.id, row.run),
                )
            else:
                db.execute("DELETE FROM local_events WHERE id = ? AND run = ?", (row.id, row.run))

    def timers(self) -> list[SetTimer]:
        with self._store.transaction() as db:
            found = db.execute(
                "SELECT due, every, body FROM local_events WHERE type = 'timer' ORDER BY due, run"
            ).fetchall()
        bodies = [(due, every_s, json.loads(body)) for due, every_s, body in found]
        return [SetTimer(body["name"], due, every_s, body["data"]) for due, every_s, body in bodies]


def _is_first(db: sqlite3.Connection, delivery: str) -> bool:
    """Note a delivery; whether it is new."""
    new = db.execute("INSERT OR IGNORE INTO deliveries (id) VALUES (?)", (delivery,)).rowcount > 0
    db.execute("DELETE FROM deliveries WHERE number <= (SELECT max(number) FROM deliveries) - ?", (DELIVERIES_MAX,))
    return new


def _next_run(db: sqlite3.Connection) -> int:
    """A number that no event has had in this database."""
    found = db.execute(
        "INSERT INTO counters VALUES ('local event runs', 1) ON CONFLICT (name) DO UPDATE SET number = number + 1"
        " RETURNING number"
    ).fetchone()
    return int(found[0])


def type_name(error: Exception) -> str:
    return type(error).__name__


class LocalEventRunner:
    """Handles local events in one run."""

    def __init__(
        self,
        link: AgentLink,
        store: Store,
        connection: Connection,
        handle: Callable[[Event], Awaitable[bool]],
        spawn: Callable[[Any], None],
    ) -> None:
        """`handle`: calls the handlers of an event; False: the bot is stopping, and the event stays. `spawn`: runs a
        coroutine as a task."""
        self._now, self._steady, self._connection = link.now, link.steady, connection
        self._handle, self._spawn = handle, spawn
        self.stored = LocalEvents(store)
        self._due: dict[tuple[str, int], float] = {}
        """By event and run: when it is due on the steady clock."""
        self._running: set[str] = set()
        """The lanes of the events that are being handled."""
        self._changed = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Whether no event is being handled."""
        return not self._running

    def wake(self) -> None:
        """Something was stored. Call it in the event loop."""
        self._changed.set()

    async def run(self) -> None:
        """Handle events when they are due, until cancelled."""
        await self._connection.connected.wait()
        while True:
            self._changed.clear()
            now, steady, wait_s = self._now(), self._steady(), SLEEP_S_MAX
            rows = self.stored.rows()
            known = {(row.id, row.run) for row in rows}
            self._due = {key: due for key, due in self._due.items() if key in known}
            for row in rows:
                left_s = max(0.0, min(row.due - now, row.span_s))  # the system clock may have been set
                due = self._due.setdefault((row.id, row.run), steady + left_s)
                if row.lane in self._running or len(self._running) >= RUNNING_MAX:
                    continue  # the end of a running one wakes this loop
                if due > steady:
                    wait_s = min(wait_s, due - steady)
                else:
                    self._running.add(row.lane)
                    self._spawn(self._run_one(row, due))
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _run_one(self, row: _Row, due: float) -> None:
        if (body := self.stored.body(row)) is not None:
            item = Item(
                seq=0,
                type=row.type,
                group="",
                id=f"{row.id}:{row.run}",
                body=body,
                received_at=timestamp(int(row.due * 1000)),
            )
            if not await self._handle(event_from(item, await self._connection.group(""), self._connection.api)):
                return  # its lane stays closed
            steady = self._steady()
            late = max(0.0, steady - due)
            missed = late // row.every_s * row.every_s if row.every_s else 0.0
            self.stored.handled(row, self._now() + due + missed + row.every_s - steady)
        self._running.discard(row.lane)
        self._changed.set()
