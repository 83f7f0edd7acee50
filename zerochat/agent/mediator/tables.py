"""The tables of a mediator's store, and their rows as values."""

import hashlib
from typing import Final

from msgspec import Struct

from zerochat.agent.storage.database import Format
from zerochat.crypto.redacted import Veiled

APPLICATION_ID: Final = 0x7A63_6D64
"""`zcmd`."""
SCHEMA_VERSION: Final = 3
FORMAT: Final = Format(APPLICATION_ID, SCHEMA_VERSION)

SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE recipients (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    did TEXT NOT NULL UNIQUE,
    long TEXT NOT NULL,
    heard INTEGER NOT NULL,
    own TEXT NOT NULL UNIQUE,
    since INTEGER NOT NULL,
    knows INTEGER NOT NULL CHECK (knows IN (0, 1))
) STRICT;
CREATE INDEX recipients_by_heard ON recipients (heard);
CREATE TABLE dids (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient INTEGER NOT NULL,
    did TEXT NOT NULL UNIQUE,
    long TEXT NOT NULL,
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
CREATE TABLE waiting (
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
CREATE INDEX waiting_by_due ON waiting (due);
CREATE INDEX waiting_by_expiry ON waiting (expires);
CREATE INDEX waiting_by_recipient ON waiting (recipient);
CREATE INDEX waiting_by_did ON waiting (did);
CREATE TABLE heard (
    recipient INTEGER NOT NULL,
    digest BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (recipient, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX heard_by_time ON heard (recipient, at);
CREATE TABLE seen (digest BLOB PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX seen_by_end ON seen (until);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
SET: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
RECIPIENT: Final = "SELECT id, did, long, heard, own, since, knows FROM recipients"
TICK: Final = "INSERT INTO meta VALUES ('turn', randomblob(8)) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
FORGET: Final = "INSERT INTO seen VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET until = max(until, excluded.until)"
WAITING: Final = """
SELECT waiting.seq, waiting.recipient, waiting.did, coalesce(dids.long, ''), coalesce(dids.relay, 0), target, envelope,
    expires, tries FROM waiting LEFT JOIN dids ON dids.id = waiting.did
"""


class Recipient(Struct, frozen=True):
    id: int
    did: str
    """The short form."""
    long: str
    heard: int
    """UTC seconds; not exact."""
    own: str
    """Our own DID, under which we speak to this recipient and to nobody else."""
    since: int
    """UTC seconds: when our public DID was rotated to that one."""
    knows: bool
    """Whether what it said last was for that one."""


class Place(Struct, frozen=True):
    """Where a name in a forward leads."""

    recipient: int
    did: int
    """The number of the registered DID."""
    long: str
    relay: bool
    """Whether it is sent on to the DID's own address, instead of waiting here."""
    proven: bool = False
    """Whether the recipient has shown that it has the key of this name."""


class Kept(Struct, frozen=True):
    """An envelope that waits to be fetched, without what is in it: a list of these is short."""

    seq: int
    id: str
    bytes: int


class Due(Veiled, frozen=True):
    """An envelope whose time has come: for `target`, or (None) for the recipient."""

    VEILED = ("envelope",)

    seq: int
    place: Place
    target: str | None
    envelope: bytes
    expires: int
    tries: int


class Usage(Struct):
    """How much waits: messages and bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


def recipient_of(row: tuple[int, str, str, int, str, int, int]) -> Recipient:
    return Recipient(*row[:-1], knows=row[-1] == 1)


def place_of(row: tuple[int, int, str, int, int]) -> Place:
    return Place(row[0], row[1], row[2], row[3] == 1, row[4] == 1)


def due_of(row: tuple[int, int, int, str, int, str | None, bytes, int, int]) -> Due:
    seq, recipient, did, long, relay, target, envelope, expires, tries = row
    return Due(seq, Place(recipient, did, long, relay == 1), target, envelope, expires, tries)


def digest_of(place: Place, envelope: bytes) -> bytes:
    return hashlib.sha256(place.did.to_bytes(8, "big") + envelope).digest()[:16]
