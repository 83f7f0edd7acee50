"""SQL schema of the mediator's store, and its rows as structs."""

import hashlib
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from zerochat.agent.storage.database import FileFormat
from zerochat.crypto.structs import Redacted

APPLICATION_ID: Final = 0x7A63_6D64
"""`zcmd`."""
SCHEMA_VERSION: Final = 1
FORMAT: Final = FileFormat(APPLICATION_ID, SCHEMA_VERSION)

SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE recipients (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    did TEXT NOT NULL UNIQUE,
    long_did TEXT NOT NULL,
    last_seen INTEGER NOT NULL,
    pairwise_did TEXT NOT NULL UNIQUE,
    rotated_at INTEGER NOT NULL,
    rotation_confirmed INTEGER NOT NULL CHECK (rotation_confirmed IN (0, 1)),
    invitation TEXT NOT NULL,
    used INTEGER NOT NULL DEFAULT 0 CHECK (used IN (0, 1))
) STRICT;
CREATE INDEX recipients_by_last_seen ON recipients (used, last_seen);
CREATE INDEX recipients_by_invitation ON recipients (invitation);
CREATE TABLE dids (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient INTEGER NOT NULL,
    did TEXT NOT NULL UNIQUE,
    long_did TEXT NOT NULL,
    relay INTEGER NOT NULL CHECK (relay IN (0, 1))
) STRICT;
CREATE INDEX dids_by_recipient ON dids (recipient, id);
CREATE TABLE names (
    name TEXT PRIMARY KEY,
    did INTEGER NOT NULL,
    proven INTEGER NOT NULL CHECK (proven IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX names_by_did ON names (did);
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    recipient INTEGER NOT NULL,
    did INTEGER NOT NULL,
    envelope BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    received INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_in_order ON messages (recipient, seq);
CREATE INDEX messages_by_did ON messages (did, recipient, seq);
CREATE INDEX messages_by_expiry ON messages (expires);
CREATE TABLE delayed (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient INTEGER NOT NULL,
    did INTEGER NOT NULL,
    target TEXT,
    envelope BLOB NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    due INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX delayed_by_due ON delayed (due);
CREATE INDEX delayed_by_expiry ON delayed (expires);
CREATE INDEX delayed_by_recipient ON delayed (recipient);
CREATE INDEX delayed_by_did ON delayed (did);
CREATE TABLE replay_digests (
    recipient INTEGER NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (recipient, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX replay_digests_by_time ON replay_digests (recipient, at);
CREATE TABLE short_links (
    oobid TEXT PRIMARY KEY,
    recipient INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX short_links_by_recipient ON short_links (recipient);
CREATE INDEX short_links_by_expiry ON short_links (expires);
CREATE TABLE delivered (digest BLOB PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX delivered_by_end ON delivered (until);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
SET_META: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
RECIPIENT: Final = "SELECT id, did, long_did, last_seen, pairwise_did, rotated_at, rotation_confirmed FROM recipients"
TOUCH: Final = "INSERT INTO meta VALUES ('batch', randomblob(8)) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
ADD_DELIVERED: Final = (
    "INSERT INTO delivered VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET until = max(until, excluded.until)"
)
DELAYED: Final = """
SELECT delayed.seq, delayed.recipient, delayed.did, coalesce(dids.long_did, ''), coalesce(dids.relay, 0), target,
    envelope, expires, tries FROM delayed LEFT JOIN dids ON dids.id = delayed.did
"""

EVICT_MESSAGE, EVICT_DELAYED = (
    f"DELETE FROM {table} WHERE seq = (SELECT min(seq) FROM {table} WHERE did = ? AND recipient = ?)"  # noqa: S608
    " RETURNING digest, length(envelope), expires"
    for table in ("messages", "delayed")
)


class Recipient(Struct, frozen=True):
    id: int
    did: str
    """The short form."""
    long_did: str
    last_seen: int
    """UTC seconds, rounded."""
    pairwise_did: str
    """Our DID for this recipient only."""
    rotated_at: int
    """UTC seconds: when our public DID was rotated to the pairwise one."""
    rotation_confirmed: bool
    """Whether its last message was addressed to the pairwise DID."""


class Registration(Struct, frozen=True):
    """The registration behind a name in a forward."""

    recipient: int
    did: int
    """The number of the registered DID."""
    long_did: str
    relay: bool
    """Whether messages are relayed to the DID's own address instead of stored."""
    proven: bool = False
    """Whether the recipient has proved possession of this name's key."""


class QueuedMessage(Struct, frozen=True):
    """A stored message without its envelope."""

    seq: int
    id: str
    bytes: int


class DelayedMessage(Redacted, frozen=True):
    """A delayed envelope that is due: for `target`, or (None) for the recipient's queue."""

    REDACTED = ("envelope",)

    seq: int
    registration: Registration
    target: str | None
    envelope: bytes
    expires: int
    tries: int


def recipient_of(row: tuple[int, str, str, int, str, int, int]) -> Recipient:
    return Recipient(*row[:-1], rotation_confirmed=row[-1] == 1)


def registration_of(row: tuple[int, int, str, int, int]) -> Registration:
    return Registration(row[0], row[1], row[2], row[3] == 1, row[4] == 1)


def due_of(row: tuple[int, int, int, str, int, str | None, bytes, int, int]) -> DelayedMessage:
    seq, recipient, did, long_did, relay, target, envelope, expires, tries = row
    return DelayedMessage(seq, Registration(recipient, did, long_did, relay == 1), target, envelope, expires, tries)


def digest_of(registration: Registration, envelope: bytes) -> bytes:
    return hashlib.sha256(registration.did.to_bytes(8, "big") + envelope).digest()[:16]


def sendable(sending: bool, busy: Collection[int]) -> tuple[str, tuple[int, ...]]:
    """The SQL condition that excludes what cannot be relayed now, and its bindings."""
    if not sending:
        return " AND target IS NULL", ()
    if not busy:
        return "", ()
    return f" AND (target IS NULL OR delayed.recipient NOT IN ({','.join('?' * len(busy))}))", tuple(busy)
