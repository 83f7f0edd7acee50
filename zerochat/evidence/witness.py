"""Log entries, witnesses, quorums and receipts of a transparency log with Byzantine witnesses.

A member or mediator operates the log; the group names witnesses. A witness cosigns a checkpoint only after following
the log entry by entry, and only if it stores the blob behind every entry: k cosignatures prove data availability, not
just existence.

Of n witnesses, f may be Byzantine, n > 3f. Any two quorums of k witnesses share f + 1, so no two conflicting logs both
get a quorum. The time of a checkpoint is the (f + 1)-th smallest cosignature time: at least one honest clock had not
passed it. More than f colluding witnesses can deceive everyone; with fewer than k available, the log stops.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key, did_key_bytes, strict_json
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify, sha256
from zerochat.crypto.structs import Count, Did
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.evidence.merkle import HASH_BYTES, HASHES_MAX, Frontier, Tree, root_of_inclusion
from zerochat.evidence.note import (
    NOTE_BYTES_MAX,
    Checkpoint,
    Note,
    check_signature,
    cosignature,
    cosignature_time,
    parse_checkpoint,
    parse_count,
    parse_hash,
    parse_note,
    sign_checkpoint,
)

WITNESSES_MIN, WITNESSES_MAX = 3, 32
ENTRY_BYTES_MAX = 512
ENTRIES_MAX = 256
"""New entries per checkpoint."""
RECEIPT_BYTES_MAX = NOTE_BYTES_MAX + 4096
_RECEIPT = "c2sp.org/tlog-proof@v1"

CONTEXT = b"zerochat/entry/1\n"

Kind: TypeAlias = Literal["message", "accusation", "defence", "close"]
Hash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A log entry: the hash and size of a blob, which the witnesses store."""

    kind: Kind
    author: Did
    hash: Hash
    """base64url of SHA-256 of the blob."""
    size: Count
    """Size of the blob in bytes."""
    about: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """Defences only: digest of the accusation."""
    sig: Annotated[str, msgspec.Meta(max_length=86)] = ""
    """Defences only: signature of the author, so that no other member can use up the few that count."""

    def record(self) -> bytes:
        return canonical_json({field: getattr(self, field) for field in self.__struct_fields__})

    def signed(self, seed: bytes) -> "Entry":
        return replace(self, sig=b64url(ed25519_sign(seed, self._signed_bytes())))

    def check(self) -> None:
        """Raise Unauthentic unless the author signed the entry."""
        ed25519_verify(did_key_bytes(self.author), self._signed_bytes(), b64url_bytes(self.sig))

    def matches(self, blob: bytes) -> bool:
        """Whether the blob has the entry's size and hash."""
        return (self.size, self.hash) == (len(blob), b64url(sha256(blob)))

    def _signed_bytes(self) -> bytes:
        return CONTEXT + replace(self, sig="").record()


def entry_of(kind: Kind, author: str, blob: bytes, about: str = "") -> Entry:
    return Entry(kind, author, b64url(sha256(blob)), len(blob), about)


def parse_entry(record: bytes) -> Entry:
    """Decode a log entry. Raises Malformed, also for a record that is not canonical or whose hash has a wrong size."""
    try:
        entry = msgspec.convert(strict_json(record, ENTRY_BYTES_MAX), Entry)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a log entry of another form ({error})") from None
    if len(b64url_bytes(entry.hash)) != HASH_BYTES or entry.record() != record:
        raise Malformed(why="a log entry that is not canonical")
    return entry


def kind_marker(kind: Kind) -> bytes:
    """Bytes that occur in records of this kind only: within a string the quotation marks would be escaped."""
    return b'"kind":"%s"' % kind.encode()


def is_kind(record: bytes, kind: Kind) -> bool:
    """Whether an encoded entry is of this kind, without decoding it; for scans of whole logs."""
    return kind_marker(kind) in record


class Quorum(Struct, frozen=True):
    """Operator and witnesses of a log, with its quorum arithmetic."""

    origin: str
    operator: str
    witnesses: tuple[str, ...]

    @property
    def max_faulty(self) -> int:
        """f: tolerated number of Byzantine witnesses."""
        return (len(self.witnesses) - 1) // 3

    @property
    def threshold(self) -> int:
        """k: cosignatures needed. Any two such sets share more than f witnesses."""
        return (len(self.witnesses) + self.max_faulty) // 2 + 1

    def is_complete(self, note: Note) -> bool:
        """Whether a quorum cosigned the checkpoint. Raises Unauthentic for an invalid signature."""
        try:
            self._times_s(note)
        except Refused:
            return False
        return True

    def posted_by_ms(self, note: Note) -> int:
        """Upper bound (UTC ms) of when the checkpoint's entries were posted: an honest witness cosigned by then. Raises
        Unauthentic for an invalid signature, Refused without a quorum."""
        return self._times_s(note)[self.max_faulty] * 1000

    def complete_until_ms(self, note: Note) -> int:
        """Time (UTC ms) up to which the checkpoint is complete: nothing posted earlier is missing from it, because a
        quorum cosigned it then or later, and any quorum for a larger log shares an honest witness with it. A single
        honest witness does not suffice: it may have been shown less. Raises like `posted_by_ms`."""
        return self._times_s(note)[-self.threshold] * 1000

    def _times_s(self, note: Note) -> list[int]:
        """Cosignature times in seconds, ascending; at least a quorum."""
        check_signature(note, self.operator)
        times = sorted(time_s for did in self.witnesses if (time_s := cosignature_time(note, did)) is not None)
        if len(times) < self.threshold:
            raise Refused(why=f"{len(times)} of {self.threshold} needed witnesses")
        return times


class Receipt(Struct, frozen=True):
    """Inclusion proof of an entry with a cosigned checkpoint (C2SP `tlog-proof`)."""

    index: int
    path: tuple[bytes, ...]
    note: Note

    def serialize(self) -> str:
        hashes = "".join(f"{base64.b64encode(one).decode()}\n" for one in self.path)
        return f"{_RECEIPT}\nindex {self.index}\n{hashes}\n{self.note.serialize()}"

    def posted_ms(self, entry: Entry, quorum: Quorum) -> int:
        """Upper bound (UTC ms) of when the entry was posted, by a quorum's clocks. Raises Unauthentic, Refused or
        Malformed for an invalid receipt."""
        checkpoint = parse_checkpoint(self.note.text)
        if checkpoint.origin != quorum.origin:
            raise Unauthentic()
        if root_of_inclusion(entry.record(), self.index, checkpoint.size, self.path) != checkpoint.root:
            raise Unauthentic()
        return quorum.posted_by_ms(self.note)


def receipt_for(tree: Tree, index: int, note: Note) -> Receipt:
    """The receipt of an entry under a cosigned checkpoint."""
    return Receipt(index, tuple(tree.inclusion(index, parse_checkpoint(note.text).size)), note)


def parse_receipt(data: bytes) -> Receipt:
    """Decode a receipt without verifying it. Raises Malformed."""
    if len(data) > RECEIPT_BYTES_MAX:
        raise Malformed(why="a receipt that is too long")
    head, found, note = data.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise Malformed(why="a receipt that is not text") from None
    if not found or len(lines) < 2 or lines[0] != _RECEIPT or not lines[1].startswith("index "):
        raise Malformed(why="a receipt of another shape")
    if len(lines) - 2 > HASHES_MAX:
        raise Malformed(why="a receipt with too many hashes")
    return Receipt(parse_count(lines[1][6:]), tuple(map(parse_hash, lines[2:])), parse_note(note))


# --- signing --------------------------------------------------------------------------------------------------------


def checkpoint(origin: str, frontier: Frontier, seed: bytes) -> Note:
    """The operator's signed checkpoint of a log."""
    return sign_checkpoint(Checkpoint(origin, frontier.size, frontier.root()), seed)


class SplitView(Exception):
    """Split view: two conflicting checkpoints of one log, signed by its operator (`is_split_view`)."""

    def __init__(self, one: Note, other: Note) -> None:
        super().__init__("two checkpoints of one length and different roots")
        self.one, self.other = one, other


def is_split_view(one: Note, other: Note, operator: str) -> bool:
    """Whether the operator signed two checkpoints of one name and size with different roots. Raises Malformed."""
    first, second = parse_checkpoint(one.text), parse_checkpoint(other.text)
    if (first.origin, first.size) != (second.origin, second.size) or first.root == second.root:
        return False
    try:
        for note in (one, other):
            check_signature(note, operator)
    except Unauthentic:
        return False
    return True


class SizeMismatch(Exception):
    """The witness's log has another size than the operator assumes (409 of C2SP `tlog-witness`)."""

    def __init__(self, size: int) -> None:
        super().__init__(f"this witness has {size} entries")
        self.size = size


class WitnessLog(Struct, frozen=True):
    """The witness's state of a log. It must be on disk before the cosignature is sent: a witness that forgets could
    cosign two conflicting logs."""

    origin: str
    operator: str
    frontier: Frontier = Frontier()
    last: Note | None = None
    """The last cosigned checkpoint."""

    def cosign(
        self, old: int, entries: Sequence[bytes], note: Note, holds: Callable[[Entry], bool], seed: bytes, now_s: int
    ) -> tuple["WitnessLog", str]:
        """Extend the log by the entries after the first `old`; return the new state and the cosignature line.
        `holds`: whether an entry's blob is stored and matches (`Entry.matches`); `now_s`: UTC seconds.

        Raises SizeMismatch, Unauthentic for a checkpoint not signed by the operator, SplitView for a conflicting one,
        Refused for missing blobs or entries that do not match the root, and Malformed.
        """
        target = parse_checkpoint(note.text)
        if target.origin != self.origin or len(entries) > ENTRIES_MAX:
            raise Refused(why="a log that is not witnessed here, or too many entries")
        check_signature(note, self.operator)
        if self.last is not None and is_split_view(self.last, note, self.operator):
            raise SplitView(self.last, note)
        if old != self.frontier.size:
            raise SizeMismatch(self.frontier.size)
        frontier = self.frontier
        for record in entries:
            if not holds(parse_entry(record)):
                raise Refused(why="an entry without its blob")
            frontier = frontier.with_entry(record)
        if (target.size, target.root) != (frontier.size, frontier.root()):
            raise Refused(why="the entries do not match the checkpoint")
        return WitnessLog(self.origin, self.operator, frontier, note), cosignature(note.text, seed, now_s)


def witness_did(seed: bytes) -> str:
    """The did:key that identifies a witness or an operator."""
    return did_key(ed25519_public(seed))
