"""The tables of the stream in a journal, and the questions that they are asked."""

from typing import Final

STREAM_SCHEMA: Final = """
CREATE TABLE happenings (
    seq INTEGER PRIMARY KEY,
    group_id TEXT NOT NULL,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE consumers (
    name TEXT PRIMARY KEY,
    acked INTEGER NOT NULL,
    told INTEGER NOT NULL,
    made INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    wanted TEXT NOT NULL,
    attempts TEXT NOT NULL,
    lost_from INTEGER NOT NULL,
    lost_to INTEGER NOT NULL,
    lost INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    group_id TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    asked BLOB NOT NULL,
    answer TEXT NOT NULL,
    UNIQUE (group_id, key)
) STRICT;
CREATE TABLE unheard (
    id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
"""Happenings have their numbers from the same row of `sqlite_sequence` as events, so none has that of another. Unheard
are events that were refuted before every consumer had acknowledged them; beside each, under its id, a space and a name,
stands every consumer that had."""

LATEST: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
TAKE_NUMBERS: Final = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'"
BEGIN_NUMBERS: Final = "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)"
"""Where no event was ever written."""

HAPPEN: Final = "INSERT INTO happenings (seq, group_id, type, at, body) VALUES (?, ?, ?, ?, ?)"
HAPPENINGS: Final = "SELECT seq, group_id, type, at, body FROM happenings WHERE seq > ? ORDER BY seq LIMIT ?"
NUMBERS: Final = "SELECT seq, at FROM happenings ORDER BY seq"
DROP_HAPPENINGS: Final = "DELETE FROM happenings WHERE seq <= ?"
FORGET_HAPPENINGS: Final = "DELETE FROM happenings WHERE group_id = ?"
LOST: Final = """
SELECT count(*), min(seq) FROM happenings WHERE seq > ?1 AND seq <= ?2
AND (?3 IS NULL OR group_id = '' OR group_id IN (SELECT value FROM json_each(?3)))
AND (?4 IS NULL OR type IN (SELECT value FROM json_each(?4)))
"""
"""How many happenings behind one number, up to another, are of some groups and types (lists, as JSON; null: all)."""
BEHIND: Final = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM events WHERE seq > ?1 AND refuted = 0 AND history = 0 LIMIT ?2))
    + (SELECT count(*) FROM happenings WHERE seq > ?1)
"""

CONSUMERS: Final = """
SELECT name, acked, told, made, updated, wanted, attempts, lost_from, lost_to, lost FROM consumers ORDER BY name
"""
PUT_CONSUMER: Final = "INSERT OR REPLACE INTO consumers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
DROP_CONSUMER: Final = "DELETE FROM consumers WHERE name = ?"

NOTE_UNHEARD: Final = """
INSERT OR IGNORE INTO unheard SELECT id, group_id FROM events
WHERE group_id = ?1 AND author = ?2 AND refuted = 0 AND position > ?3 AND position <= ?4 AND vouched <> ''
AND history = 0 AND seq > (SELECT min(acked) FROM consumers)
"""
NOTE_HEARD: Final = """
INSERT OR IGNORE INTO unheard SELECT events.id || ' ' || consumers.name, events.group_id
FROM events JOIN unheard ON unheard.id = events.id
JOIN consumers ON acked >= events.seq OR json_extract(attempts, '$."' || events.seq || '"') = -1
WHERE events.group_id = ?1 AND author = ?2 AND refuted = 0 AND position > ?3 AND position <= ?4
"""
"""-1: it had heard it under another number (`store.HEARD`)."""
UNHEARD: Final = "SELECT seq FROM events WHERE refuted = 1 AND id = (SELECT id FROM unheard WHERE id = ?)"
RENUMBER: Final = "UPDATE events SET seq = ? WHERE seq = ?"
HEARD_BY: Final = "SELECT substr(id, length(?1) + 2) FROM unheard WHERE id > ?1 || ' ' AND id < ?1 || '!'"
"""The names of consumers; `!` comes behind the space."""
DROP_UNHEARD: Final = "DELETE FROM unheard WHERE id = ?1 OR (id > ?1 || ' ' AND id < ?1 || '!')"
FORGET_UNHEARD: Final = "DELETE FROM unheard WHERE group_id = ?"

PUT_KEY: Final = """
INSERT INTO keys (group_id, key, at, asked, answer) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (group_id, key) DO UPDATE SET at = excluded.at, asked = excluded.asked, answer = excluded.answer
"""
KEY: Final = "SELECT asked, answer FROM keys WHERE group_id = ? AND key = ? AND at > ?"
KEYS: Final = "SELECT count(*) FROM keys"
DROP_KEYS: Final = "DELETE FROM keys WHERE number <= (SELECT number FROM keys ORDER BY number LIMIT 1 OFFSET ?)"
FORGET_KEYS: Final = "DELETE FROM keys WHERE group_id = ?"
POSTS_IN: Final = """
SELECT id, position FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND type = 'post'
ORDER BY position DESC LIMIT ?
"""
