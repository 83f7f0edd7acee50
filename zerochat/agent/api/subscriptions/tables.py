"""The tables of subscriptions in the journal, and their SQL statements."""

from typing import Final

SUBSCRIPTION_SCHEMA: Final = """
CREATE TABLE notifications (
    seq INTEGER PRIMARY KEY,
    group_id TEXT NOT NULL,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE consumers (
    name TEXT PRIMARY KEY,
    acked INTEGER NOT NULL,
    sent_to INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    filter TEXT NOT NULL,
    attempts TEXT NOT NULL,
    lost_from INTEGER NOT NULL,
    lost_to INTEGER NOT NULL,
    lost INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE announcements (
    group_id TEXT NOT NULL,
    consumer TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (group_id, consumer)
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    group_id TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    digest BLOB NOT NULL,
    answer TEXT NOT NULL,
    UNIQUE (group_id, key)
) STRICT;
CREATE TABLE refuted_unacked (
    id TEXT PRIMARY KEY,
    group_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
"""Notifications and events take their numbers from the same row of `sqlite_sequence`. `refuted_unacked` has the events
that were refuted before every consumer had acknowledged them, and a row (id, space, name) per consumer that had."""

LATEST: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
TAKE_NUMBERS: Final = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'"
BEGIN_NUMBERS: Final = "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)"
"""Used before the first event."""

PUT_NOTIFICATION: Final = "INSERT INTO notifications (seq, group_id, type, at, body) VALUES (?, ?, ?, ?, ?)"
NOTIFICATIONS: Final = "SELECT seq, group_id, type, at, body FROM notifications WHERE seq > ? ORDER BY seq LIMIT ?"
NUMBERS: Final = "SELECT seq, at FROM notifications ORDER BY seq"
DROP_NOTIFICATIONS: Final = "DELETE FROM notifications WHERE seq <= ?"
FORGET_NOTIFICATIONS: Final = "DELETE FROM notifications WHERE group_id = ?"
LOST: Final = """
SELECT count(*), min(seq) FROM notifications WHERE seq > ?1 AND seq <= ?2
AND (?3 IS NULL OR group_id = '' OR group_id IN (SELECT value FROM json_each(?3)))
AND (?4 IS NULL OR type IN (SELECT value FROM json_each(?4)))
"""
"""Counts the notifications after one number, up to another, in some groups and of some types (JSON; null: all)."""
BEHIND: Final = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM events WHERE seq > ?1 AND refuted = 0 AND history = 0 LIMIT ?2))
    + (SELECT count(*) FROM notifications WHERE seq > ?1)
"""

CONSUMERS: Final = """
SELECT name, acked, sent_to, created, updated, filter, attempts, lost_from, lost_to, lost FROM consumers ORDER BY name
"""
PUT_CONSUMER: Final = "INSERT OR REPLACE INTO consumers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
DROP_CONSUMER: Final = "DELETE FROM consumers WHERE name = ?"
PUT_ANNOUNCEMENT: Final = "INSERT OR REPLACE INTO announcements VALUES (?, ?, ?)"
DROP_ANNOUNCEMENT: Final = "DELETE FROM announcements WHERE group_id = ? AND consumer = ?"
DROP_ANNOUNCEMENTS: Final = "DELETE FROM announcements WHERE consumer = ?"
FORGET_ANNOUNCEMENTS: Final = "DELETE FROM announcements WHERE group_id = ?"
ANNOUNCEMENTS: Final = "SELECT consumer, body FROM announcements WHERE group_id = ? ORDER BY consumer"
"""By consumer: whether it is a bot, and its commands (JSON)."""

NOTE_REFUTED: Final = """
INSERT OR IGNORE INTO refuted_unacked SELECT id, group_id FROM events
WHERE group_id = ?1 AND author = ?2 AND refuted = 0 AND position > ?3 AND position <= ?4 AND relayed_by <> ''
AND history = 0 AND seq > (SELECT min(acked) FROM consumers)
"""
NOTE_ACKED: Final = """
INSERT OR IGNORE INTO refuted_unacked SELECT events.id || ' ' || consumers.name, events.group_id
FROM events JOIN refuted_unacked ON refuted_unacked.id = events.id
JOIN consumers ON acked >= events.seq OR json_extract(attempts, '$."' || events.seq || '"') = -1
WHERE events.group_id = ?1 AND author = ?2 AND refuted = 0 AND position > ?3 AND position <= ?4
"""
"""-1: the consumer had acknowledged it under another number (`store.ALREADY_ACKED`)."""
REFUTED: Final = "SELECT seq FROM events WHERE refuted = 1 AND id = (SELECT id FROM refuted_unacked WHERE id = ?)"
RENUMBER: Final = "UPDATE events SET seq = ? WHERE seq = ?"
ACKED_BY: Final = "SELECT substr(id, length(?1) + 2) FROM refuted_unacked WHERE id > ?1 || ' ' AND id < ?1 || '!'"
"""The names of consumers; `!` follows the space in ASCII."""
DROP_REFUTED: Final = "DELETE FROM refuted_unacked WHERE id = ?1 OR (id > ?1 || ' ' AND id < ?1 || '!')"
FORGET_REFUTED: Final = "DELETE FROM refuted_unacked WHERE group_id = ?"

PUT_KEY: Final = """
INSERT INTO keys (group_id, key, at, digest, answer) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (group_id, key) DO UPDATE SET at = excluded.at, digest = excluded.digest, answer = excluded.answer
"""
KEY: Final = "SELECT digest, answer FROM keys WHERE group_id = ? AND key = ? AND at > ?"
KEYS: Final = "SELECT count(*) FROM keys"
DROP_KEYS: Final = "DELETE FROM keys WHERE number <= (SELECT number FROM keys ORDER BY number LIMIT 1 OFFSET ?)"
FORGET_KEYS: Final = "DELETE FROM keys WHERE group_id = ?"
POSTS_IN: Final = """
SELECT id, position FROM events
WHERE group_id = ? AND author = ? AND refuted = 0 AND position > ? AND position <= ? AND type = 'post'
ORDER BY position DESC LIMIT ?
"""
