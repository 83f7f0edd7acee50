"""Simulated storage of transparency logs (`agent/storage/tlog.py`)."""

from collections.abc import Iterable
from copy import deepcopy

from msgspec import Struct, field

from zerochat.crypto.encoding import b64url
from zerochat.evidence.messages import ACK_BYTES
from zerochat.evidence.witness import Entry, parse_entry
from zerochat.group.effects import (
    DeleteBlobs,
    StoreBlob,
    StoreCheckpoint,
    StoreSignedAck,
    StoreSignedMessage,
    StoreTlog,
    StoreTlogEntries,
)
from zerochat.group.tlog.queries import (
    BlobQuery,
    Blobs,
    Extension,
    ExtensionQuery,
    Hashes,
    Messages,
    MissingBlobs,
    MissingEntries,
    OverdueMessages,
    Records,
    TlogQuery,
    TlogResult,
    UnplacedEntries,
    UnreadEntries,
)

ANSWER_BYTES_MAX = 384 * 1024
OVERDUE_MAX = 64


class TlogStore(Struct):
    """The transparency logs of one node, of all its groups."""

    rules: dict[tuple[str, str], bytes] = field(default_factory=dict)
    entries: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    notes: dict[tuple[str, str], list[tuple[int, int, str]]] = field(default_factory=dict)
    """Size, time and text."""
    blobs: dict[tuple[str, str], StoreBlob] = field(default_factory=dict)
    acks: dict[tuple[str, bytes, str], list[int]] = field(default_factory=dict)
    """By group, stream and member: the acknowledged message times."""
    hashed: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Signed messages by hash."""
    malicious: bool = False
    """Whether it claims to have all content, and serves other content."""
    room: int = 1 << 60
    """Bytes for others' content."""

    def copy(self) -> "TlogStore":
        return deepcopy(self)

    def store(self, one: StoreTlog | StoreTlogEntries | StoreCheckpoint | StoreBlob | DeleteBlobs) -> None:
        match one:
            case StoreTlog(group, origin, rules):
                self.rules.setdefault((group, origin), rules)
            case StoreTlogEntries(group, origin, after, records):
                kept = self.entries.setdefault((group, origin), [])
                if after > len(kept):
                    raise AssertionError("entries of a log with a gap before them")
                kept += records[len(kept) - after :]
            case StoreCheckpoint(group, origin, size, at, note):
                kept_notes = self.notes.setdefault((group, origin), [])
                if all((size, at) != one[:2] for one in kept_notes):
                    kept_notes.append((size, at, note))
            case StoreBlob(group, hash_):
                held = sum(len(blob.blob) for blob in self.blobs.values() if blob.group == group)
                if (group, hash_) not in self.hashed and held + len(one.blob) <= self.room:
                    self.blobs.setdefault((group, hash_), one)
            case DeleteBlobs(group, before):
                self.blobs = {key: blob for key, blob in self.blobs.items() if blob.group != group or blob.at >= before}

    def store_signed(self, one: StoreSignedMessage) -> None:
        if one.hash:
            self.hashed[one.group, b64url(one.hash)] = one.message

    def store_ack(self, one: StoreSignedAck) -> None:
        assert len(one.ack) == ACK_BYTES
        self.acks.setdefault((one.group, one.alias, one.member), []).append(one.time)

    def delete_group(self, group: str) -> None:
        self.rules = {key: one for key, one in self.rules.items() if key[0] != group}
        self.entries = {key: one for key, one in self.entries.items() if key[0] != group}
        self.notes = {key: one for key, one in self.notes.items() if key[0] != group}
        self.blobs = {key: one for key, one in self.blobs.items() if key[0] != group}
        self.acks = {key: one for key, one in self.acks.items() if key[0] != group}
        self.hashed = {key: one for key, one in self.hashed.items() if key[0] != group}

    def blob(self, group: str, hash_: str) -> bytes | None:
        if (group, hash_) in self.hashed:
            return self.hashed[group, hash_]
        found = self.blobs.get((group, hash_))
        return found.blob if found is not None else None

    def answer(self, group: str, origin: str, what: TlogQuery, stream: Iterable[StoreSignedMessage]) -> TlogResult:
        """The result of a lookup. `stream`: the stored signed messages."""
        entries = self.entries.get((group, origin), [])
        match what:
            case UnplacedEntries(_, records):
                free = [one for one in records if one not in entries]
                return Records(tuple(one for one in free if self.malicious or self._holds(group, parse_entry(one))))
            case MissingBlobs() if self.malicious:
                return Hashes(())
            case BlobQuery(records=records) if self.malicious:
                return Blobs(tuple((record, b"something else") for record in records))
            case MissingBlobs():
                lacking = [one for one in map(parse_entry, what.records) if not self._holds(group, one)]
                return Hashes(tuple(dict.fromkeys(one.hash for one in lacking)), bool(lacking) and self.room < 1 << 60)
            case ExtensionQuery(_, after, limit):
                notes = sorted(self.notes.get((group, origin), []))
                found = next(((size, note) for size, _, note in notes if size > after), None)
                if found is None:
                    return Extension(tuple(entries[after : after + limit]), "")
                size, note = found
                return Extension(tuple(entries[after:size]), note) if size - after <= limit else Extension((), "")
            case BlobQuery(records=records):
                return self._bytes(group, records)
            case UnreadEntries(me, after, limit):
                looked = entries[after : after + limit]
                return MissingEntries(after + len(looked), tuple(one for one in looked if self._lacks(group, me, one)))
            case OverdueMessages():
                return self._overdue(group, what, stream)

    def _holds(self, group: str, entry: Entry) -> bool:
        blob = self.blob(group, entry.hash)
        return blob is not None and len(blob) == entry.size

    def _bytes(self, group: str, records: Iterable[bytes]) -> Blobs:
        found: list[tuple[bytes, bytes]] = []
        size = 0
        for record in records:
            blob = self.blob(group, parse_entry(record).hash)
            size += len(blob or b"")
            if found and size > ANSWER_BYTES_MAX:
                break
            if blob is not None:
                found.append((record, blob))
        return Blobs(tuple(found))

    def _lacks(self, group: str, me: str, record: bytes) -> bool:
        entry = parse_entry(record)
        if entry.kind == "message":
            return entry.author != me and (group, entry.hash) not in self.hashed
        return self.blob(group, entry.hash) is None

    def _overdue(self, group: str, what: OverdueMessages, stream: Iterable[StoreSignedMessage]) -> Messages:
        spans = []
        for owed in what.owed:
            times = [time for time in self.acks.get((group, what.alias, owed.member), ()) if time <= owed.until]
            spans.append((max([owed.begun, *times]), min(owed.until, what.upto)))
        found: list[bytes] = []
        reached = what.after
        for one in sorted(stream, key=lambda one: one.time):
            ours = (one.group, one.alias) == (group, what.alias) and what.after < one.time <= what.upto
            if ours and any(after < one.time <= until for after, until in spans):
                if len(found) >= OVERDUE_MAX:
                    return Messages(tuple(found), reached)
                found.append(one.message)
                reached = one.time
        return Messages(tuple(found), what.upto)
