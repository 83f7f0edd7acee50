"""Events that arise in the bot itself, timers that were set at run time and webhooks: stored, then handled once due.

They take the path of other events: retries, attempts, dead letters. A wait is measured on a steady clock; over a
restart it never lasts longer than it was set for, whatever the system clock says.
"""

import asyncio
import json
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
NAME_CHARS_MAX: Final = 128
BODY_BYTES_MAX: Final = 64 * 1024
SLEEP_S_MAX: Final = 60.0
"""Longest sleep, seconds: a machine may be suspended."""


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
    body: str
    runs: int


class LocalEvents:
    """The waiting local events in a bot's database. Usable from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, id: str, type: str, due: float, span_s: float, every_s: float, body: object) -> None:
        """Store an event, replacing one of the same id; on disk when this returns. Raises BadValue and
        TooManyLocalEvents."""
        try:
            text = json.dumps(body, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(why=f"it is not JSON-serialisable ({type_name(error)})") from error
        if len(text.encode()) > 2 * BODY_BYTES_MAX:
            raise BadValue(why=f"it is larger than {BODY_BYTES_MAX} bytes")
        with self._store.transaction() as db:
            count = db.execute("SELECT count(*) FROM local_events WHERE type = ? AND id != ?", (type, id)).fetchone()
            if count[0] >= LOCAL_EVENTS_MAX:
                raise TooManyLocalEvents(limit=LOCAL_EVENTS_MAX, type=type)
            runs = db.execute("SELECT runs FROM local_events WHERE id = ?", (id,)).fetchone()
            row = (id, type, due, span_s, every_s, text, runs[0] + 1 if runs else 0)
            db.execute("INSERT OR REPLACE INTO local_events VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def drop(self, id: str) -> bool:
        with self._store.transaction() as db:
            return db.execute("DELETE FROM local_events WHERE id = ?", (id,)).rowcount > 0

    def rows(self) -> list[_Row]:
        with self._store.transaction() as db:
            return [_Row(*row) for row in db.execute("SELECT * FROM local_events ORDER BY due, id").fetchall()]

    def handled(self, row: _Row, next_due: float) -> None:
        """Remove an event, or let a repeated timer wait again, unless it was replaced meanwhile."""
        with self._store.transaction() as db:
            if row.every_s:
                db.execute(
                    "UPDATE local_events SET due = ?, span = every, runs = runs + 1 WHERE id = ? AND runs = ?",
                    (next_due, row.id, row.runs),
                )
            else:
                db.execute("DELETE FROM local_events WHERE id = ? AND runs = ?", (row.id, row.runs))

    def timers(self) -> list[SetTimer]:
        found = [(row, json.loads(row.body)) for row in self.rows() if row.type == "timer"]
        return [SetTimer(body["name"], row.due, row.every_s, body["data"]) for row, body in found]


def type_name(error: Exception) -> str:
    return type(error).__name__


class LocalEventRunner:
    """Handles local events in one run."""

    def __init__(
        self,
        link: AgentLink,
        store: Store,
        connection: Connection,
        handle: Callable[[Event], Awaitable[None]],
        spawn: Callable[[Any], None],
    ) -> None:
        """`handle`: calls the handlers of an event. `spawn`: runs a coroutine as a task."""
        self._now, self._steady, self._connection = link.now, link.steady, connection
        self._handle, self._spawn = handle, spawn
        self.stored = LocalEvents(store)
        self._due: dict[tuple[str, int], float] = {}
        """By event and run: when it is due on the steady clock."""
        self._running: set[str] = set()
        self._changed = asyncio.Event()

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
            known = {(row.id, row.runs) for row in rows}
            self._due = {key: due for key, due in self._due.items() if key in known}
            for row in rows:
                left_s = max(0.0, min(row.due - now, row.span_s))  # the system clock may have been set
                due = self._due.setdefault((row.id, row.runs), steady + left_s)
                if row.id in self._running:
                    continue
                if due > steady:
                    wait_s = min(wait_s, due - steady)
                else:
                    self._running.add(row.id)
                    self._spawn(self._run_one(row, due))
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _run_one(self, row: _Row, due: float) -> None:
        try:
            item = Item(
                seq=0,
                type=row.type,
                group="",
                id=f"{row.id}:{row.runs}:{row.due:.3f}",
                body=json.loads(row.body),
                received_at=timestamp(int(row.due * 1000)),
            )
            await self._handle(event_from(item, await self._connection.group(""), self._connection.api))
            steady = self._steady()
            late = max(0.0, steady - due)
            missed = late // row.every_s * row.every_s if row.every_s else 0.0
            left_s = due + missed + row.every_s - steady
            self.stored.handled(row, self._now() + left_s)
        finally:
            self._running.discard(row.id)
            self._changed.set()
