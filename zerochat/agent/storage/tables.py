"""The tables of a journal, the questions that it is asked, and its rows as values."""

from typing import Any, Final

from msgspec import Struct

from zerochat.agent.api.subscriptions.tables import STREAM_SCHEMA
from zerochat.agent.storage import search_index
from zerochat.agent.storage.database import Format
from zerochat.agent.storage.disputes import CASES_SCHEMA
from zerochat.agent.storage.signed_messages import HASHED, RIVALS_SCHEMA, SIGNED_SCHEMA, STRAYS_SCHEMA
from zerochat.agent.storage.tlog import LOGBOOK_SCHEMA
from zerochat.crypto.redacted import Veiled
from zerochat.group.effects import Remember
from zerochat.group.event_log.lamport import SORTED_BY

APPLICATION_ID: Final = 0x7A63_6A6C
"""`zcjl`, where SQLite keeps the mark of the program that a file belongs to."""
SCHEMA_VERSION: Final = 8
RECEIPTS_MAX: Final = 10_000
"""Receipts kept of one member of one group; then the oldest go, a tenth at a time."""

_INDEXES: Final = """
CREATE INDEX events_in_order ON events (group_id, lamport, author, id) WHERE refuted = 0;
CREATE INDEX events_by_chain ON events (group_id, author, position) WHERE refuted = 0;
CREATE INDEX events_refuted ON events (group_id) WHERE refuted = 1;
"""
_RECEIPTS: Final = """
CREATE TABLE receipts (
    group_id TEXT NOT NULL,
    member TEXT NOT NULL,
    author TEXT NOT NULL,
    upto INTEGER NOT NULL,
    at INTEGER NOT NULL,
    via TEXT NOT NULL,
    PRIMARY KEY (group_id, member, author, upto)
) STRICT, WITHOUT ROWID;
"""
_TARGETS: Final = """
CREATE INDEX events_about ON events (group_id, target, author, type, position) WHERE target <> '' AND refuted = 0;
"""
_VERDICTS: Final = """
CREATE INDEX events_verdicts ON events (group_id, seq) WHERE type = 'verdict' AND refuted = 0;
"""
_TELEMETRY: Final = """
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
"""
"""Empty unless somebody has asked for it (`telemetry/store.py`)."""
_ACCOUNTABLE: Final = HASHED + LOGBOOK_SCHEMA + RIVALS_SCHEMA + STRAYS_SCHEMA + CASES_SCHEMA + _VERDICTS
_MIGRATIONS: Final = {
    2: f"""
ALTER TABLE events ADD COLUMN vouched TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN refuted INTEGER NOT NULL DEFAULT 0 CHECK (refuted IN (0, 1));
ALTER TABLE events ADD COLUMN history INTEGER NOT NULL DEFAULT 0 CHECK (history IN (0, 1));
DROP INDEX events_in_order;
DROP INDEX events_by_chain;
{_INDEXES}
{_RECEIPTS}
""",
    3: f"""
ALTER TABLE events ADD COLUMN target TEXT NOT NULL DEFAULT '';
{_TARGETS}
UPDATE events SET target = 'topic' WHERE type = 'topic';
UPDATE events SET target = json_extract(CAST(record AS TEXT), '$.body.of')
WHERE type IN ('edit', 'delete', 'react') AND json_valid(CAST(record AS TEXT))
    AND json_type(CAST(record AS TEXT), '$.body.of') = 'text'
    AND length(json_extract(CAST(record AS TEXT), '$.body.of')) = 43;
{search_index.WORDS_SCHEMA}
""",  # noqa: S608  # nothing in it is anybody's
    4: STREAM_SCHEMA,
    5: _TELEMETRY,
    6: SIGNED_SCHEMA,
    7: _ACCOUNTABLE,
}
FORMAT: Final = Format(APPLICATION_ID, SCHEMA_VERSION, _MIGRATIONS, {3: search_index.build})

SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, value BLOB NOT NULL) STRICT;
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
    vouched TEXT NOT NULL DEFAULT '',
    refuted INTEGER NOT NULL DEFAULT 0 CHECK (refuted IN (0, 1)),
    history INTEGER NOT NULL DEFAULT 0 CHECK (history IN (0, 1)),
    target TEXT NOT NULL DEFAULT ''
) STRICT;
{_INDEXES}
{_TARGETS}
{_RECEIPTS}
{STREAM_SCHEMA}
{_TELEMETRY}
{SIGNED_SCHEMA}
{_ACCOUNTABLE}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

COLUMNS: Final = (
    "seq, group_id, id, author, position, lamport, type, record, received, late, vouched, refuted, history, target"
)
_PLACE: Final = ", ".join(SORTED_BY)
_BACKWARDS: Final = ", ".join(f"{column} DESC" for column in SORTED_BY)
LATEST_ROWS: Final = f"""
SELECT {COLUMNS} FROM events WHERE group_id = ? AND refuted = 0 AND lamport >= ?
ORDER BY {_BACKWARDS} LIMIT ?
"""  # noqa: S608  # the columns are those above
ROWS_BEFORE: Final = f"""
SELECT {COLUMNS} FROM events
WHERE group_id = ? AND refuted = 0 AND lamport >= ? AND ({_PLACE}) < (?, ?, ?)
ORDER BY {_BACKWARDS} LIMIT ?
"""  # noqa: S608
ONE_ROW: Final = f"SELECT {COLUMNS} FROM events WHERE id = ? AND group_id = ?"  # noqa: S608
ROW_OF_SEQ: Final = f"SELECT {COLUMNS} FROM events WHERE seq = ? AND refuted = 0"  # noqa: S608
REFUTED_ROWS: Final = f"SELECT {COLUMNS} FROM events WHERE group_id = ? AND refuted = 1 ORDER BY seq"  # noqa: S608
ROWS_AFTER: Final = f"""
SELECT {COLUMNS} FROM events WHERE group_id = ? AND refuted = 0 AND ({_PLACE}) > (?, ?, ?)
ORDER BY {_PLACE} LIMIT ?
"""  # noqa: S608
ROWS_LIKE: Final = f"SELECT {COLUMNS} FROM events WHERE id >= ?1 AND id < ?1 || '{{' AND group_id = ?2 LIMIT ?3"  # noqa: S608
"""Ids are base64url, and `{` is behind all of its letters."""
VERDICTS: Final = f"""
SELECT {COLUMNS} FROM events WHERE seq IN (
    SELECT seq FROM (
        SELECT seq, row_number() OVER (PARTITION BY author ORDER BY position DESC) AS back FROM events
        WHERE group_id = ? AND type = 'verdict' AND refuted = 0
    ) WHERE back <= ?
) ORDER BY seq
"""  # noqa: S608
LAST_OF: Final = f"""
SELECT {COLUMNS} FROM events WHERE group_id = ? AND author = ? AND refuted = 0 AND type = ?
ORDER BY position DESC, seq LIMIT 1
"""  # noqa: S608
BY_SEQ: Final = f"SELECT {COLUMNS} FROM events WHERE seq > ? AND refuted = 0 ORDER BY seq LIMIT ?"  # noqa: S608
CHAIN: Final = """
SELECT record FROM events WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ?
ORDER BY position, seq LIMIT ?
"""
STRETCH: Final = f"""
SELECT {COLUMNS} FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND lamport >= ?
ORDER BY position, seq LIMIT ?
"""  # noqa: S608
STRETCH_BACK: Final = """
SELECT author, position, lamport, record, seq FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND (position, seq) < (?, ?)
ORDER BY position DESC, seq DESC LIMIT ?
"""
NTH_POST: Final = """
SELECT lamport FROM events WHERE group_id = ? AND lamport < ? AND refuted = 0 AND type = 'post'
ORDER BY lamport DESC LIMIT 1 OFFSET ?
"""
POSTS_SINCE: Final = """
SELECT lamport, id FROM events WHERE group_id = ? AND lamport >= ? AND refuted = 0
    AND type NOT IN ('genesis', 'add', 'leave', 'remove', 'vote', 'role', 'label', 'terms')
ORDER BY lamport
"""
"""All that is said: whatever is no membership event (`event.CONTROL`)."""
ROWS_NAMED: Final = f"""
SELECT {COLUMNS} FROM (SELECT DISTINCT value AS wanted FROM json_each(?2)) CROSS JOIN events
WHERE events.id = wanted AND +events.group_id = ?1 AND refuted = 0
"""  # noqa: S608
"""The events with the ids in a list, as JSON."""
REMARKS_OF_ONE: Final = 32
"""Of what one member says of one kind about one post, the last so many events are looked at: nobody can make it long
work to see how a post stands, whatever it sends, nor push out what somebody else has said."""
VERDICTS_OF_ONE: Final = 32
"""Of what one member tells as verdicts, the last so many are looked at."""
REMARKS: Final = f"""
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
    ORDER BY one.position DESC LIMIT {REMARKS_OF_ONE}
)
"""  # noqa: S608
"""What is said about posts: by everybody, but that only its author edits one or takes it back. The posts: a list of
their ids with their authors, as JSON. From speaker to speaker, and of each the last events of each kind."""
LAST_IN: Final = f"""
SELECT {COLUMNS} FROM (SELECT value AS span FROM json_each(?2)) CROSS JOIN events WHERE events.seq = (
    SELECT one.seq FROM events AS one
    WHERE one.group_id = ?1 AND one.target = ?3 AND one.target <> '' AND one.refuted = 0
        AND one.author = json_extract(span, '$[0]') AND one.type = ?3
        AND one.position > json_extract(span, '$[1]') AND one.position <= json_extract(span, '$[2]')
    ORDER BY one.position DESC LIMIT 1
)
"""  # noqa: S608
"""The last topic, or announcement, in each of some stretches of chains (author, after, up to), a list as JSON."""
TARGETS: Final = """
SELECT DISTINCT target FROM events
WHERE group_id = ? AND author = ? AND refuted = ? AND position > ? AND position <= ? AND length(target) = 43 LIMIT ?
"""
"""The posts that a stretch of a chain is about; `refuted`: of what counts, or of what was given up."""
CHAIN_BACK: Final = """
SELECT record FROM events WHERE group_id = ? AND author = ? AND refuted = 0 AND position < ?
ORDER BY position DESC, seq DESC LIMIT ?
"""
HEIGHTS: Final = """
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
"""From author to author, and of each the last: as many steps as there are authors, however many events they have."""
RECEIPTS_OF: Final = """
WITH RECURSIVE members (member) AS (
    SELECT min(member) FROM receipts WHERE group_id = ?1
    UNION ALL
    SELECT (SELECT min(member) FROM receipts WHERE group_id = ?1 AND member > members.member)
    FROM members WHERE members.member IS NOT NULL
)
SELECT receipts.member, receipts.upto, receipts.at, receipts.via FROM members CROSS JOIN receipts
WHERE receipts.group_id = ?1 AND receipts.member = members.member AND receipts.author = ?2 AND receipts.upto = (
    SELECT min(upto) FROM receipts
    WHERE group_id = ?1 AND member = members.member AND author = ?2 AND upto >= ?3
)
"""
RECEIPTS: Final = "SELECT count(*) FROM receipts WHERE group_id = ? AND member = ?"
COUNT: Final = "SELECT count(*) FROM events WHERE group_id = ? AND refuted = 0"
KEEP: Final = """
INSERT INTO events (group_id, id, author, position, lamport, type, record, received, late, vouched, history, target)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET vouched = excluded.vouched, refuted = 0
WHERE events.refuted = 1 OR (excluded.vouched = '' AND events.vouched <> '')
"""
"""What is there already is left as it is, but for this: whoever has it from the author needs nobody to vouch for it;
and what was given up, because nobody could tell whether the author says it, may come anew."""
CONFIRM: Final = """
UPDATE events SET vouched = ''
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND vouched <> ''
"""
REFUTE: Final = """
UPDATE events SET refuted = 1
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND vouched <> ''
RETURNING iif(type = 'post', id, target)
"""
RECEIVE: Final = """
INSERT INTO receipts SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE group_id = ?1 AND member = ?2 AND author = ?3 AND upto >= ?4)
"""
"""Who has a chain up to 9 has it up to 8: only what is new is written, so a later row never says an earlier time."""
FORGET_RECEIPTS: Final = """
DELETE FROM receipts WHERE (group_id, member, author, upto) IN (
    SELECT group_id, member, author, upto FROM receipts WHERE group_id = ?1 AND member = ?2 ORDER BY at, upto LIMIT ?3
)
"""
SET: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
FORGET_FACTS: Final = "DELETE FROM telemetry_names WHERE group_id = ?"
"""What is recorded of a group is nobody's without the names."""
DRAFT: Final = "draft:"
"""In `meta`, before the id of the group for which something is begun and not sent (`drafts.py`)."""
UNSET: Final = "DELETE FROM meta WHERE key = ?"
WRITE: Final = """
INSERT INTO checkpoint (path, value) VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value
"""
DROP: Final = "DELETE FROM checkpoint WHERE path = ?1 OR (path > ?1 || '/' AND path < ?1 || '0')"
"""`0` is the character after `/`."""


class Row(Veiled, frozen=True):
    """One delivered event, as the log has it."""

    VEILED = ("record",)

    seq: int
    """Local and monotone, never used twice: the order in which this agent delivered."""
    group: str
    id: str
    author: str
    position: int
    """The event's place in its author's chain, from 1."""
    lamport: int
    type: str
    record: bytes
    received: int
    """UTC milliseconds."""
    late: bool
    vouched: str = ""
    """The DID of the member who handed it over; empty: its author has confirmed it."""
    refuted: bool = False
    """True when its author has never said it."""
    history: bool = False
    """From before our time in the group: no news."""
    target: str = ""
    """What it is about: the id of a post, `topic` or `announce`; empty for all others."""


class Held(Struct, frozen=True):
    """Since when a member is known to have an event."""

    member: str
    upto: int
    """What it said it had then, of the event's chain."""
    at: int
    """UTC milliseconds."""
    via: str
    """A short word for the way; empty: unknown."""


def values_of(one: Remember) -> tuple[str | int | bytes, ...]:
    """What `KEEP` wants."""
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
        one.vouched,
        int(one.history),
        one.target,
    )


def row_of(values: Any) -> Row:
    """Of the `COLUMNS`."""
    seq, group, event, author, place, lamport, kind, record, received, late, vouched, refuted, history, target = values
    kept = (seq, group, event, author, place, lamport, kind, record, received)
    return Row(*kept, late == 1, vouched, refuted == 1, history == 1, target)
