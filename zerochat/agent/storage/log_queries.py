"""Read queries on the journal's event log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from zerochat.agent.storage import search_index
from zerochat.agent.storage.tables import (
    ANNOTATED_POSTS,
    ANNOTATIONS,
    BY_SEQ,
    CHAIN,
    CHAIN_BACK,
    CHAIN_BACKWARDS,
    CHAIN_FORWARDS,
    CHAIN_HEADS,
    CHAIN_RANGE,
    COUNT_EVENTS,
    COUNT_EXPIRED,
    LAST_IN_RANGES,
    LAST_OF_TYPE,
    LAST_PLACE,
    LATEST_ROWS,
    LOG_AFTER,
    NTH_POST,
    ONE_ROW,
    POSTS_SINCE,
    RECEIPTS_OF,
    RECORD_OF_SEQ,
    REFUTED_ROWS,
    ROW_OF_SEQ,
    ROWS_AFTER,
    ROWS_BEFORE,
    ROWS_BY_ID,
    ROWS_WITH_ID_PREFIX,
    UNREAD_ROWS,
    VERDICTS,
    VERDICTS_MAX,
    EventReceipt,
    Row,
    row_of,
)
from zerochat.errors import LocalError
from zerochat.group.event_log.event import ANNOUNCE, PINS, TOPIC
from zerochat.group.sync.history_policy import Entry

CHUNK_FIRST, CHUNK_MAX = 8, 256
"""Chunk size of reading a chain, at first and at most: usually few events of each of hundreds of chains are needed."""


def json_list(values: Iterable[object]) -> str:
    """The values as a JSON list, for a query."""
    return msgspec.json.encode(list(values)).decode()


class NoSuchEvent(LocalError):
    """No event {event} in this group. `zerochat history --ids {group}` shows the ids."""


class SearchHit(Struct, frozen=True):
    """A post found by the full-text index."""

    position: int
    """Position in the index."""
    row: Row
    text: str
    """The current text."""
    mentioned: Sequence[str]
    """The DIDs of the members that it mentions now."""
    outdated: bool
    """Whether the index holds another, invalid text or other mentions."""


class LogQueries:
    """The queries. Each raises what every method of `Journal` may raise."""

    _db: apsw.Connection
    _faults: Callable[[], AbstractContextManager[None]]
    _indexed: Callable[[], AbstractContextManager[None]]

    def history(self, group: str, limit: int, before: str | None = None) -> list[Row]:
        """The last `limit` events of a group (before the event with the id `before`), oldest first.

        In total order: by Lamport time, author and id. Raises NoSuchEvent.
        """
        position = None
        if before is not None:
            border = self.event(group, before)
            if border is None:
                raise NoSuchEvent(event=ascii(before[:64]), group=group)
            position = border.lamport, border.author, border.id
        return self.page(group, position, limit)[::-1]

    def page(
        self, group: str, before: tuple[int, str, str] | None, limit: int, since_ms: int | None = None
    ) -> list[Row]:
        """The last `limit` events of a group before a position in the total order, latest first.

        `before`: Lamport time, author and id; None: from the end. `since_ms`: the smallest Lamport time.
        """
        first = since_ms if since_ms is not None else -(1 << 63)
        if before is None:
            return self._rows(LATEST_ROWS, (group, first, limit))
        return self._rows(ROWS_BEFORE, (group, first, *before, limit))

    def event(self, group: str, event_id: str) -> Row | None:
        """The event with this id, even if refuted."""
        found = self._rows(ONE_ROW, (event_id, group))
        return found[0] if found else None

    def by_seq(self, since: int, limit: int) -> list[Row]:
        """The first `limit` events of all groups that were delivered after local number `since`."""
        return self._rows(BY_SEQ, (since, limit))

    def unread_rows(self, group: str, since: int, me: str, limit: int) -> list[Row]:
        """The first `limit` posts, edits and deletions of others in a group that were delivered after local number
        `since`, without backfilled ones."""
        return self._rows(UNREAD_ROWS, (group, since, me, limit))

    def last_place(self, group: str, upto: int) -> tuple[int, str, str] | None:
        """The place of the last event, in the total order, that was delivered up to local number `upto`."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(LAST_PLACE, (group, upto)).fetchall()
            return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def last_seq(self) -> int:
        """The local number of the last delivered event; 0: none."""
        return int(self._scalar("SELECT max(seq) FROM events") or 0)

    def chain(self, group: str, author: str, after: int, limit: int) -> list[bytes]:
        """The records of an author's events after position `after`, at most `limit`, in the order of its chain."""
        return self._records(CHAIN, (group, author, after, limit))

    def chain_back(self, group: str, author: str, before: int, limit: int) -> list[bytes]:
        """The records of an author's events before position `before`, at most `limit`, in descending order."""
        return self._records(CHAIN_BACK, (group, author, before, limit))

    def chain_heads(self, group: str) -> dict[str, tuple[int, str]]:
        """By author, the position and the id of the last event of its chain."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(CHAIN_HEADS, (group,))
            return {author: (position, event) for author, position, event in rows}

    def with_id_prefix(self, group: str, prefix: str, limit: int) -> list[Row]:
        """At most `limit` events with this id prefix, even if refuted."""
        return self._rows(ROWS_WITH_ID_PREFIX, (prefix, group, limit))

    def last_of_type(self, group: str, author: str, type_: str) -> Row | None:
        """The last event of this type in an author's chain."""
        return next(iter(self._rows(LAST_OF_TYPE, (group, author, type_))), None)

    def page_after(self, group: str, after: tuple[int, str, str], limit: int) -> list[Row]:
        """The first `limit` events of a group after a position in the total order, oldest first."""
        return self._rows(ROWS_AFTER, (group, *after, limit))

    def log_after(self, group: str, after: tuple[int, str, str], limit: int) -> list[Row]:
        """The same with the events whose content has expired."""
        return self._rows(LOG_AFTER, (group, *after, limit))

    def expired_count(self, group: str) -> int:
        """The number of a group's events whose content has expired."""
        return int(self._scalar(COUNT_EXPIRED, (group,)))

    def receipts_of(self, group: str, author: str, position: int, members: Sequence[str]) -> list[EventReceipt]:
        """The receipts of an event by these members, in the order of their DIDs."""
        with self._faults():
            wanted = json_list(sorted(members))
            rows: Iterable[Any] = self._db.execute(RECEIPTS_OF, (group, author, position, wanted))
            return [EventReceipt(*row) for row in rows]

    def refuted(self, group: str) -> list[Row]:
        """Relayed events that contradict their author's chain, in order of arrival."""
        return self._rows(REFUTED_ROWS, (group,))

    def chain_range(self, group: str, author: str, after: int, upto: int, floor: int, limit: int) -> list[Row]:
        """An author's events after position `after`, up to `upto`, with a Lamport time of at least `floor`; at most
        `limit`, in chain order."""
        return self._rows(CHAIN_RANGE, (group, author, after, upto, floor, limit))

    def chain_entries(
        self, group: str, author: str, after: int, upto: int, *, backwards: bool = False
    ) -> Iterator[Entry]:
        """All events of such a range without their records, in ascending or descending order, read lazily in chunks.

        No cursor stays open between chunks: when a caller stops early and closes the generator, apsw (3.54) leaks the
        cursor's memory, a megabyte for a request of a hundred chains.
        """
        query, end = (CHAIN_BACKWARDS, after) if backwards else (CHAIN_FORWARDS, upto)
        place, limit = (upto + 1, 0) if backwards else (after + 1, -1), CHUNK_FIRST
        while True:
            with self._faults():
                rows: Sequence[Any] = self._db.execute(query, (group, author, end, *place, limit)).fetchall()
            yield from map(Entry._make, rows)
            if len(rows) < limit:
                return
            place, limit = (rows[-1][1], rows[-1][4]), min(2 * limit, CHUNK_MAX)

    def records_of(self, entries: Iterable[Entry]) -> tuple[bytes, ...]:
        """The records of these events."""
        with self._faults():
            found: Sequence[Any] = [self._db.execute(RECORD_OF_SEQ, (entry.key,)).fetchall() for entry in entries]
        return tuple(row[0] for rows in found for row in rows)

    def search(
        self, query: str, first: int, end: int, limit: int, is_valid: search_index.Validity = lambda *_: True
    ) -> list[SearchHit]:
        """The last `limit` posts that match an FTS5 query, latest first, with index positions from `first` up to, and
        without, `end`."""
        with self._faults(), self._indexed():
            posts: Sequence[Any] = self._db.execute(search_index.FIND, (query, first, end, limit)).fetchall()
            rows = [(position, row) for position, seq in posts for row in self._rows(ROW_OF_SEQ, (seq,))]
            return [self._match(position, row, is_valid) for position, row in rows]

    def _match(self, position: int, row: Row, is_valid: search_index.Validity) -> SearchHit:
        about = (self._db, row.group, row.id, row.author, row.record)
        body = search_index.body_now(*about, is_valid)
        return SearchHit(position, row, body.text, body.mentioned, body != search_index.body_now(*about))

    def index_position(self, row: Row) -> int:
        """The event's position in the full-text index, or the one that it would have as a post."""
        with self._faults(), self._indexed():
            position = self._scalar("SELECT position FROM indexed_posts WHERE seq = ?", (row.seq,))
        return int(position) if position is not None else row.lamport * search_index.POSITIONS_PER_MS

    def nth_post(self, group: str, number: int, before: int) -> int:
        """The Lamport time of the `number`-th last post before Lamport time `before`; 0: there are fewer."""
        return int(self._scalar(NTH_POST, (group, before, number - 1)) or 0)

    def events_by_id(self, group: str, ids: Iterable[str]) -> list[Row]:
        """The stored events with these ids, without refuted ones."""
        names = json_list(ids)
        return self._rows(ROWS_BY_ID, (group, names)) if names != "[]" else []

    def annotations(self, group: str, posts: Iterable[tuple[str, str]]) -> list[Row]:
        """The annotations of posts (ids with authors), without refuted ones; per member and kind the last
        `ANNOTATIONS_MAX`."""
        names = json_list(posts)
        return self._rows(ANNOTATIONS, (group, names)) if names != "[]" else []

    def verdicts(self, group: str) -> list[Row]:
        """The verdicts that members have announced, in order of arrival; per member the last `VERDICTS_MAX`."""
        return self._rows(VERDICTS, (group, VERDICTS_MAX))

    def last_topics(self, group: str, spans: Iterable[tuple[str, int, int]]) -> list[Row]:
        """The last topic in each of these chain ranges (author, after, up to)."""
        return self._rows(LAST_IN_RANGES, (group, json_list(spans), TOPIC))

    def last_pins(self, group: str, spans: Iterable[tuple[str, int, int]]) -> list[Row]:
        """The last list of pins in each of these chain ranges (author, after, up to)."""
        return self._rows(LAST_IN_RANGES, (group, json_list(spans), PINS))

    def last_announcements(self, group: str, spans: Iterable[tuple[str, int, int]]) -> list[Row]:
        """The last bot announcement in each of these chain ranges (author, after, up to)."""
        return self._rows(LAST_IN_RANGES, (group, json_list(spans), ANNOUNCE))

    def annotated_posts(
        self, group: str, author: str, after: int, upto: int, limit: int, *, refuted: bool
    ) -> list[str]:
        """The ids of the posts that an author's events after position `after`, up to `upto`, annotate."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(ANNOTATED_POSTS, (group, author, int(refuted), after, upto, limit))
            return [target for (target,) in rows]

    def posts_since(self, group: str, lamport: int) -> list[tuple[int, str]]:
        """Lamport times and ids of a group's content events, from this Lamport time on."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(POSTS_SINCE, (group, lamport))
            return [(when, event) for when, event in rows]

    def count(self, group: str) -> int:
        """The number of a group's events, without refuted ones."""
        return int(self._scalar(COUNT_EVENTS, (group,)))

    # --- internals --------------------------------------------------------------------------------------------------

    def _rows(self, query: str, bindings: Sequence[str | int]) -> list[Row]:
        with self._faults():
            rows: Iterable[Any] = self._db.execute(query, bindings)
            return [row_of(row) for row in rows]

    def _records(self, query: str, bindings: Sequence[str | int]) -> list[bytes]:
        with self._faults():
            rows: Iterable[Any] = self._db.execute(query, bindings)
            return [record for (record,) in rows]

    def _scalar(self, query: str, bindings: Sequence[str | int] = ()) -> Any:
        """The first column of the only row; None when there is no row."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(query, bindings).fetchall()
            return rows[0][0] if rows else None
