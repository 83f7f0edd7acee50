"""SQL schema and queries of the journal, and its rows as structs."""

from typing import Any, Final

from msgspec import Struct

from zerochat.agent.api.subscriptions.tables import SUBSCRIPTION_SCHEMA
from zerochat.agent.storage.database import FileFormat
from zerochat.agent.storage.disputes import CASES_SCHEMA
from zerochat.agent.storage.erasure import ERASURE_SCHEMA
from zerochat.agent.storage.search_index import INDEX_SCHEMA
from zerochat.agent.storage.signed_messages import SIGNED_SCHEMA
from zerochat.agent.storage.tlog import TLOG_SCHEMA
from zerochat.crypto.structs import Redacted
from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.lamport import SORT_FIELDS

APPLICATION_ID: Final = 0x7A63_6A6C
"""`zcjl`: marks the file as a zerochat journal in the SQLite header."""
SCHEMA_VERSION: Final = 1
FORMAT: Final = FileFormat(APPLICATION_ID, SCHEMA_VERSION)
SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, value BLOB NOT NULL) STRICT;
CREATE TABLE sealed_parts (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, value BLOB NOT NULL) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    author TEXT NOT NULL,
    position INTEGER NOT NULL,
    lamport INTEGER NOT NULL,
    type TEXT NOT NULL,
    record BLOB NOT NULL,
    received INTEGER NOT NULL,
    late INTEGER NOT NULL CHECK (late IN (0, 1)),
    relayed_by TEXT NOT NULL DEFAULT '',
    refuted INTEGER NOT NULL DEFAULT 0 CHECK (refuted IN (0, 1)),
    history INTEGER NOT NULL DEFAULT 0 CHECK (history IN (0, 1)),
    target TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX events_in_order ON events (group_id, lamport, author, id) WHERE refuted = 0 AND type <> 'expired';
CREATE INDEX events_expired ON events (group_id, lamport, author, id) WHERE refuted = 0 AND type = 'expired';
CREATE INDEX events_by_chain ON events (group_id, author, position) WHERE refuted = 0;
CREATE INDEX events_refuted ON events (group_id) WHERE refuted = 1;
CREATE INDEX events_by_target ON events (group_id, target, author, type, position) WHERE target <> '' AND refuted = 0;
CREATE INDEX events_unread ON events (group_id, seq)
    WHERE type IN ('post', 'edit', 'delete') AND refuted = 0 AND history = 0;
CREATE INDEX events_verdicts ON events (group_id, seq) WHERE type = 'verdict' AND refuted = 0;
CREATE TABLE receipts (
    group_id TEXT NOT NULL,
    member TEXT NOT NULL,
    author TEXT NOT NULL,
    upto INTEGER NOT NULL,
    at INTEGER NOT NULL,
    via TEXT NOT NULL,
    PRIMARY KEY (group_id, member, author, upto)
) STRICT, WITHOUT ROWID;
CREATE TABLE telemetry (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE telemetry_names (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (group_id, name)
) STRICT;
{SUBSCRIPTION_SCHEMA}
{SIGNED_SCHEMA}
{TLOG_SCHEMA}
{CASES_SCHEMA}
{ERASURE_SCHEMA}
{INDEX_SCHEMA}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

COLUMNS: Final = (
    "seq, group_id, id, author, position, lamport, type, record, received, late, relayed_by, refuted, history, target"
)
_PLACE: Final = ", ".join(SORT_FIELDS)
_BACKWARDS: Final = ", ".join(f"{column} DESC" for column in SORT_FIELDS)
LATEST_ROWS: Final = f"""
SELECT {COLUMNS} FROM events WHERE group_id = ? AND refuted = 0 AND type <> 'expired' AND lamport >= ?
ORDER BY {_BACKWARDS} LIMIT ?
"""  # noqa: S608  # the columns are those above
ROWS_BEFORE: Final = f"""
SELECT {COLUMNS} FROM events
WHERE group_id = ? AND refuted = 0 AND type <> 'expired' AND lamport >= ? AND ({_PLACE}) < (?, ?, ?)
ORDER BY {_BACKWARDS} LIMIT ?
"""  # noqa: S608
ONE_ROW: Final = f"SELECT {COLUMNS} FROM events WHERE id = ? AND group_id = ?"  # noqa: S608
ROW_OF_SEQ: Final = f"SELECT {COLUMNS} FROM events WHERE seq = ? AND refuted = 0"  # noqa: S608
REFUTED_ROWS: Final = f"SELECT {COLUMNS} FROM events WHERE group_id = ? AND refuted = 1 ORDER BY seq"  # noqa: S608
ROWS_AFTER: Final = f"""
SELECT {COLUMNS} FROM events WHERE group_id = ? AND refuted = 0 AND type <> 'expired' AND ({_PLACE}) > (?, ?, ?)
ORDER BY {_PLACE} LIMIT ?
"""  # noqa: S608
LOG_AFTER: Final = f"""
SELECT * FROM (
    SELECT {COLUMNS} FROM events
    WHERE group_id = ?1 AND refuted = 0 AND type <> 'expired' AND ({_PLACE}) > (?2, ?3, ?4) ORDER BY {_PLACE} LIMIT ?5
) UNION ALL SELECT * FROM (
    SELECT {COLUMNS} FROM events
    WHERE group_id = ?1 AND refuted = 0 AND type = 'expired' AND ({_PLACE}) > (?2, ?3, ?4) ORDER BY {_PLACE} LIMIT ?5
) ORDER BY {_PLACE} LIMIT ?5
"""  # noqa: S608
"""As ROWS_AFTER, with the events whose content has expired."""
COUNT_EXPIRED: Final = "SELECT count(*) FROM events WHERE group_id = ? AND refuted = 0 AND type = 'expired'"
ROWS_WITH_ID_PREFIX: Final = (
    f"SELECT {COLUMNS} FROM events WHERE id >= ?1 AND id < ?1 || '{{' AND group_id = ?2 LIMIT ?3"  # noqa: S608
)
"""Ids are base64url, whose characters all sort before `{`."""
VERDICTS: Final = f"""
SELECT {COLUMNS} FROM events WHERE seq IN (
    SELECT seq FROM (
        SELECT seq, row_number() OVER (PARTITION BY author ORDER BY position DESC) AS back FROM events
        WHERE group_id = ? AND type = 'verdict' AND refuted = 0
    ) WHERE back <= ?
) ORDER BY seq
"""  # noqa: S608
LAST_OF_TYPE: Final = f"""
SELECT {COLUMNS} FROM events WHERE group_id = ? AND author = ? AND refuted = 0 AND type = ?
ORDER BY position DESC, seq LIMIT 1
"""  # noqa: S608
UNREAD_ROWS: Final = f"""
SELECT {COLUMNS} FROM events INDEXED BY events_unread
WHERE group_id = ? AND seq > ? AND author <> ? AND type IN ('post', 'edit', 'delete') AND refuted = 0 AND history = 0
ORDER BY seq LIMIT ?
"""  # noqa: S608
LAST_PLACE: Final = f"""
SELECT {_PLACE} FROM events WHERE group_id = ? AND refuted = 0 AND type <> 'expired' AND seq <= ?
ORDER BY {_BACKWARDS} LIMIT 1
"""  # noqa: S608
BY_SEQ: Final = f"""
SELECT {COLUMNS} FROM events WHERE seq > ? AND refuted = 0 AND type <> 'expired' ORDER BY seq LIMIT ?
"""  # noqa: S608
CHAIN: Final = """
SELECT record FROM events WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ?
ORDER BY position, seq LIMIT ?
"""
CHAIN_RANGE: Final = f"""
SELECT {COLUMNS} FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND lamport >= ?
ORDER BY position, seq LIMIT ?
"""  # noqa: S608
CHAIN_FORWARDS: Final = """
SELECT author, position, lamport, length(record), seq FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position <= ? AND (position, seq) > (?, ?)
ORDER BY position, seq LIMIT ?
"""
CHAIN_BACKWARDS: Final = """
SELECT author, position, lamport, length(record), seq FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND (position, seq) < (?, ?)
ORDER BY position DESC, seq DESC LIMIT ?
"""
RECORD_OF_SEQ: Final = "SELECT record FROM events WHERE seq = ?"
NTH_POST: Final = """
SELECT lamport FROM events WHERE group_id = ? AND lamport < ? AND refuted = 0 AND type <> 'expired' AND type = 'post'
ORDER BY lamport DESC LIMIT 1 OFFSET ?
"""
POSTS_SINCE: Final = """
SELECT lamport, id FROM events WHERE group_id = ?1 AND lamport >= ?2 AND refuted = 0 AND type <> 'expired'
    AND type NOT IN ('genesis', 'add', 'leave', 'remove', 'vote', 'role', 'label', 'terms')
UNION ALL
SELECT lamport, id FROM events WHERE group_id = ?1 AND lamport >= ?2 AND refuted = 0 AND type = 'expired'
ORDER BY lamport
"""
"""All content: every event that is no membership event (`event.CONTROL`)."""
ROWS_BY_ID: Final = f"""
SELECT {COLUMNS} FROM (SELECT DISTINCT value AS wanted FROM json_each(?2)) CROSS JOIN events
WHERE events.id = wanted AND +events.group_id = ?1 AND refuted = 0
"""  # noqa: S608
"""The events with the ids in a JSON list."""
ANNOTATIONS_MAX: Final = 32
"""Events considered per post, member and kind of annotation: the last ones. So no member can make a post expensive to
materialise, or displace the annotations of others."""
VERDICTS_MAX: Final = 32
"""Verdict events considered per member: the last ones."""
ANNOTATIONS: Final = f"""
WITH RECURSIVE
kinds (kind) AS (VALUES ('delete'), ('edit'), ('react')),
authors (about, owner, author) AS (
    SELECT about, owner, (
        SELECT min(author) FROM events WHERE group_id = ?1 AND target = about AND target <> '' AND refuted = 0
    ) FROM (SELECT json_extract(value, '$[0]') AS about, json_extract(value, '$[1]') AS owner FROM json_each(?2))
    UNION ALL
    SELECT about, owner, (
        SELECT min(author) FROM events
        WHERE group_id = ?1 AND target = about AND target <> '' AND refuted = 0 AND events.author > authors.author
    ) FROM authors WHERE authors.author IS NOT NULL
)
SELECT {COLUMNS} FROM (SELECT about, owner, author AS speaker FROM authors WHERE author IS NOT NULL)
CROSS JOIN kinds CROSS JOIN events
WHERE (kind = 'react' OR speaker = owner) AND events.seq IN (
    SELECT one.seq FROM events AS one
    WHERE one.group_id = ?1 AND one.target = about AND one.target <> '' AND one.refuted = 0 AND one.author = speaker
        AND one.type = kind
    ORDER BY one.position DESC LIMIT {ANNOTATIONS_MAX}
)
"""  # noqa: S608
"""The annotations of posts, a JSON list of [id, author]: reactions of all members, edits and deletions of the author
only. A loose index scan over the annotating members, with the last events of each kind."""
LAST_IN_RANGES: Final = f"""
SELECT {COLUMNS} FROM (SELECT value AS span FROM json_each(?2)) CROSS JOIN events WHERE events.seq = (
    SELECT one.seq FROM events AS one
    WHERE one.group_id = ?1 AND one.target = ?3 AND one.target <> '' AND one.refuted = 0
        AND one.author = json_extract(span, '$[0]') AND one.type = ?3
        AND one.position > json_extract(span, '$[1]') AND one.position <= json_extract(span, '$[2]')
    ORDER BY one.position DESC LIMIT 1
)
"""  # noqa: S608
"""The last topic, or announcement, in each of some chain ranges, a JSON list of [author, after, up to]."""
ANNOTATED_POSTS: Final = """
SELECT DISTINCT target FROM events
WHERE group_id = ? AND author = ? AND refuted = ? AND position > ? AND position <= ? AND length(target) = 43 LIMIT ?
"""
"""The posts that the events of a chain range annotate; `refuted`: of valid or of refuted events."""
CHAIN_BACK: Final = """
SELECT record FROM events WHERE group_id = ? AND author = ? AND refuted = 0 AND position < ?
ORDER BY position DESC, seq DESC LIMIT ?
"""
CHAIN_HEADS: Final = """
WITH RECURSIVE authors (author) AS (
    SELECT min(author) FROM events WHERE group_id = ?1 AND refuted = 0
    UNION ALL
    SELECT (SELECT min(author) FROM events WHERE group_id = ?1 AND refuted = 0 AND author > authors.author)
    FROM authors WHERE authors.author IS NOT NULL
)
SELECT author, top, (
    SELECT id FROM events
    WHERE group_id = ?1 AND refuted = 0 AND events.author = tops.author AND position = top ORDER BY seq LIMIT 1
) FROM (
    SELECT author, (
        SELECT max(position) FROM events WHERE group_id = ?1 AND refuted = 0 AND events.author = authors.author
    ) AS top FROM authors WHERE author IS NOT NULL
) AS tops
"""
"""A loose index scan over the authors: one step per author, however many events they have."""
RECEIPTS_OF: Final = """
SELECT receipts.member, receipts.upto, receipts.at, receipts.via
FROM (SELECT value AS wanted FROM json_each(?4)) CROSS JOIN receipts
WHERE receipts.group_id = ?1 AND receipts.member = wanted AND receipts.author = ?2 AND receipts.upto = (
    SELECT min(upto) FROM receipts
    WHERE group_id = ?1 AND member = wanted AND author = ?2 AND upto >= ?3
)
"""
COUNT_RECEIPTS: Final = "SELECT count(*) FROM receipts WHERE group_id = ? AND member = ?"
COUNT_EVENTS: Final = "SELECT count(*) FROM events WHERE group_id = ? AND refuted = 0"
INSERT_EVENT: Final = """
INSERT INTO events (group_id, id, author, position, lamport, type, record, received, late, relayed_by, history, target)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET relayed_by = excluded.relayed_by, refuted = 0
WHERE events.refuted = 1 OR (excluded.relayed_by = '' AND events.relayed_by <> '')
"""
"""A stored event is not changed, with two exceptions: it is confirmed when it comes from its author, and a refuted
event becomes valid when it is received again."""
CONFIRM_EVENTS: Final = """
UPDATE events SET relayed_by = ''
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND relayed_by <> ''
"""
REFUTE_EVENTS: Final = """
UPDATE events SET refuted = 1
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND relayed_by <> ''
RETURNING iif(type = 'post', id, target)
"""
INSERT_RECEIPT: Final = """
INSERT INTO receipts SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE group_id = ?1 AND member = ?2 AND author = ?3 AND upto >= ?4)
"""
"""A receipt up to position 9 covers 8: only new positions are written, so a later row never has an earlier time."""
DELETE_OLD_RECEIPTS: Final = """
DELETE FROM receipts WHERE (group_id, member, author, upto) IN (
    SELECT group_id, member, author, upto FROM receipts WHERE group_id = ?1 AND member = ?2 ORDER BY at, upto LIMIT ?3
)
"""
SET_META: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
DELETE_TELEMETRY_NAMES: Final = "DELETE FROM telemetry_names WHERE group_id = ?"
"""Without the names, a group's telemetry records are anonymous."""
READ_PREFIX: Final = "read:"
"""Prefix of the keys in `meta` that hold read markers, followed by the group's id (`read_markers.py`)."""
DELETE_META: Final = "DELETE FROM meta WHERE key = ?"
META_BELOW: Final = "SELECT key, value FROM meta WHERE key >= ? AND key < ? ORDER BY key"
WRITE_PART: Final = """
INSERT INTO checkpoint (path, value) VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value
"""
SEALED_PARTS: Final = "SELECT path, value FROM sealed_parts ORDER BY number"
WRITE_SEALED_PART: Final = WRITE_PART.replace("checkpoint", "sealed_parts")
DELETE_PARTS: Final = "DELETE FROM checkpoint WHERE path = ?1 OR (path > ?1 || '/' AND path < ?1 || '0')"
"""`0` is the character after `/`."""
DELETE_SEALED_PARTS: Final = DELETE_PARTS.replace("checkpoint", "sealed_parts")


class Row(Redacted, frozen=True):
    """One delivered event of the log."""

    REDACTED = ("record",)

    seq: int
    """Local sequence number, never reused: the order of delivery at this agent."""
    group: str
    id: str
    author: str
    position: int
    """Position in its author's chain, from 1."""
    lamport: int
    type: str
    record: bytes
    received: int
    """UTC milliseconds."""
    late: bool
    relayed_by: str = ""
    """DID of the member who relayed it; empty: confirmed by its author."""
    refuted: bool = False
    """Whether it contradicts its author's chain."""
    history: bool = False
    """Whether it is from before our time in the group, so that it causes no notifications."""
    target: str = ""
    """The id of the post that it annotates, or `topic` or `announce`; else empty."""


class EventReceipt(Struct, frozen=True):
    """When a member was first known to have an event."""

    member: str
    upto: int
    """The position in the event's chain that it acknowledged."""
    at: int
    """UTC milliseconds."""
    via: str
    """How it was acknowledged; empty: unknown."""


def values_of(one: StoreEvent) -> tuple[str | int | bytes, ...]:
    """The values for `INSERT_EVENT`."""
    return (
        one.group,
        one.id,
        one.author,
        one.seq,
        one.lamport,
        one.type,
        one.record,
        one.received,
        int(one.late),
        one.relayed_by,
        int(one.history),
        one.target,
    )


def row_of(values: Any) -> Row:
    """A row from the values of `COLUMNS`."""
    seq, group, event, author, place, lamport, kind, record, received, late, relayed_by, refuted, history, target = (
        values
    )
    kept = (seq, group, event, author, place, lamport, kind, record, received)
    return Row(*kept, late == 1, relayed_by, refuted == 1, history == 1, target)
