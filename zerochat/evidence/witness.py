"""A group's log, its witnesses, and when something was in it at the latest.

One member or mediator operates the log; others, whom the group has named, witness it. A witness cosigns a checkpoint
only where it has followed the log entry by entry up to there, and holds the bytes behind every entry: a hash in a log
helps nobody who never gets the message. So k cosignatures show that an honest witness can hand it out.

Of n witnesses f may lie, where n > 3f. k is so large that any two quorums share f + 1 of them: no two logs of one name
both have a quorum. A quorum's time is the (f + 1)-th of its times: then at least one honest clock said no later one.
What is beyond this is a limit: more than f who lie together can fool everybody, and if fewer than k answer, the log
stands still.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key, did_key_bytes, strict_json
from zerochat.crypto.field_types import Count, Did
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify, sha256
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.evidence.merkle import HASH_BYTES, HASHES_MAX, Frontier, Tree, root_from
from zerochat.evidence.note import (
    NOTE_BYTES_MAX,
    Checkpoint,
    Note,
    check_signed,
    cosignature,
    cosigned_at,
    count_of,
    hash_of,
    parse_checkpoint,
    parse_note,
    signed,
)

WITNESSES_MIN, WITNESSES_MAX = 3, 32
ENTRY_BYTES_MAX = 512
ENTRIES_MAX = 256
"""New ones under one checkpoint."""
RECEIPT_BYTES_MAX = NOTE_BYTES_MAX + 4096
_RECEIPT = "c2sp.org/tlog-proof@v1"

CONTEXT = b"zerochat/entry/1\n"

Kind: TypeAlias = Literal["message", "accusation", "defence", "close"]
Hash: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a log says of something that was posted; the bytes themselves are with the witnesses."""

    kind: Kind
    author: Did
    hash: Hash
    """base64url of SHA-256 over the bytes."""
    size: Count
    """In bytes."""
    about: Annotated[str, msgspec.Meta(max_length=43)] = ""
    """Of a defence: the digest of the accusation."""
    sig: Annotated[str, msgspec.Meta(max_length=86)] = ""
    """Of a defence: its author's signature below all this, so that nobody else uses up the few that count."""

    def record(self) -> bytes:
        return canonical_json({field: getattr(self, field) for field in self.__struct_fields__})

    def signed(self, seed: bytes) -> "Entry":
        return replace(self, sig=b64url(ed25519_sign(seed, self._signed_bytes())))

    def check(self) -> None:
        """Raise Unauthentic unless its author has signed it."""
        ed25519_verify(did_key_bytes(self.author), self._signed_bytes(), b64url_bytes(self.sig))

    def is_of(self, blob: bytes) -> bool:
        """Whether these are the bytes that it speaks of."""
        return (self.size, self.hash) == (len(blob), b64url(sha256(blob)))

    def _signed_bytes(self) -> bytes:
        return CONTEXT + replace(self, sig="").record()


def entry_of(kind: Kind, author: str, blob: bytes, about: str = "") -> Entry:
    return Entry(kind, author, b64url(sha256(blob)), len(blob), about)


def parse_entry(record: bytes) -> Entry:
    """Raises Malformed, also for a record that is not the canonical one: its hash would name something else. The hash
    in it is one too, so whoever looks that up need not check it again."""
    try:
        entry = msgspec.convert(strict_json(record, ENTRY_BYTES_MAX), Entry)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"an entry of a log: {error}") from None
    if len(b64url_bytes(entry.hash)) != HASH_BYTES or entry.record() != record:
        raise Malformed(why="an entry of a log in another form")
    return entry


def mark_of(kind: Kind) -> bytes:
    """What a record of this kind has in it, and no other one: in a string the quotation marks would be escaped."""
    return b'"kind":"%s"' % kind.encode()


def is_kind(record: bytes, kind: Kind) -> bool:
    """Whether an entry is of this kind, without reading all of it: for whoever looks through a whole log."""
    return mark_of(kind) in record


class Quorum(Struct, frozen=True):
    """Who operates a log, who witnesses it, and how many of those it takes."""

    origin: str
    operator: str
    witnesses: tuple[str, ...]

    @property
    def liars(self) -> int:
        """f: how many of the witnesses may lie."""
        return (len(self.witnesses) - 1) // 3

    @property
    def needed(self) -> int:
        """k: how many have to cosign. Any two such sets share more than f."""
        return (len(self.witnesses) + self.liars) // 2 + 1

    def is_whole(self, note: Note) -> bool:
        """Whether enough of them have cosigned it. Raises Unauthentic where a signature is forged."""
        try:
            self._times_s(note)
        except Refused:
            return False
        return True

    def time_ms(self, note: Note) -> int:
        """A time (UTC milliseconds) that an honest witness had not passed when it cosigned this checkpoint. Raises
        Unauthentic where a signature is forged, and Refused where they are too few."""
        return self._times_s(note)[self.liars] * 1000

    def whole_ms(self, note: Note) -> int:
        """A time (UTC milliseconds) before which nothing was posted that is not under this checkpoint: a quorum has
        cosigned it then or later, and of any quorum for more, an honest witness is among these. Raises as `time_ms`.

        That one honest witness said so is not enough: it may be the one to whom nothing more was shown."""
        return self._times_s(note)[-self.needed] * 1000

    def _times_s(self, note: Note) -> list[int]:
        """When the witnesses cosigned it, the earliest first; as many as it takes, or more."""
        check_signed(note, self.operator)
        times = sorted(time_s for did in self.witnesses if (time_s := cosigned_at(note, did)) is not None)
        if len(times) < self.needed:
            raise Refused(why=f"{len(times)} witnesses where it takes {self.needed}")
        return times


class Receipt(Struct, frozen=True):
    """The proof that an entry is in a log, for whoever was not there (C2SP `tlog-proof`)."""

    index: int
    path: tuple[bytes, ...]
    note: Note

    def written(self) -> str:
        hashes = "".join(f"{base64.b64encode(one).decode()}\n" for one in self.path)
        return f"{_RECEIPT}\nindex {self.index}\n{hashes}\n{self.note.written()}"

    def posted_ms(self, entry: Entry, quorum: Quorum) -> int:
        """When this entry was in the log at the latest, by a quorum's clocks (UTC milliseconds). Raises Unauthentic or
        Refused where the receipt shows nothing of the kind, and Malformed."""
        checkpoint = parse_checkpoint(self.note.text)
        if checkpoint.origin != quorum.origin:
            raise Unauthentic()
        if root_from(entry.record(), self.index, checkpoint.size, self.path) != checkpoint.root:
            raise Unauthentic()
        return quorum.time_ms(self.note)


def receipt_for(tree: Tree, index: int, note: Note) -> Receipt:
    """What the operator, or whoever follows the log, hands out for an entry once a checkpoint is cosigned."""
    return Receipt(index, tuple(tree.inclusion(index, parse_checkpoint(note.text).size)), note)


def parse_receipt(data: bytes) -> Receipt:
    """Raises Malformed."""
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
    return Receipt(count_of(lines[1][6:]), tuple(map(hash_of, lines[2:])), parse_note(note))


# --- who signs ------------------------------------------------------------------------------------------------------


def checkpoint(origin: str, frontier: Frontier, seed: bytes) -> Note:
    """How far the log is, in its operator's words."""
    return signed(Checkpoint(origin, frontier.size, frontier.root()), seed)


class Split(Exception):
    """Two checkpoints of one log that cannot both be: the operator's signatures below both convict it (`is_split`)."""

    def __init__(self, one: Note, other: Note) -> None:
        super().__init__("two checkpoints of one length and different roots")
        self.one, self.other = one, other


def is_split(one: Note, other: Note, operator: str) -> bool:
    """Whether this operator has signed two different logs of one name and one length. Raises Malformed."""
    said, also = parse_checkpoint(one.text), parse_checkpoint(other.text)
    if (said.origin, said.size) != (also.origin, also.size) or said.root == also.root:
        return False
    try:
        for note in (one, other):
            check_signed(note, operator)
    except Unauthentic:
        return False
    return True


class Behind(Exception):
    """A witness has the log up to another place (`size`) than the operator thinks (409 of C2SP `tlog-witness`)."""

    def __init__(self, size: int) -> None:
        super().__init__(f"this witness has {size} entries")
        self.size = size


class Watched(Struct, frozen=True):
    """A log as its witness remembers it. What it remembers has to be on the disk before its cosignature goes out:
    a witness that forgets could cosign two logs."""

    origin: str
    operator: str
    frontier: Frontier = Frontier()
    last: Note | None = None
    """What it has cosigned last, in the operator's words."""

    def cosigned(
        self, old: int, entries: Sequence[bytes], note: Note, holds: Callable[[Entry], bool], seed: bytes, now_s: int
    ) -> tuple["Watched", str]:
        """The log with the entries that come after the first `old`, and the line that says so below the operator's
        checkpoint. `holds`: whether the bytes behind an entry are here, and are what it says (`Entry.is_of`).

        Raises Behind, Unauthentic where the operator did not sign this, Split where it has signed another log of this
        length before, Refused where bytes are missing or the entries do not lead there, and Malformed.
        """
        said = parse_checkpoint(note.text)
        if said.origin != self.origin or len(entries) > ENTRIES_MAX:
            raise Refused(why="not a log, or not a piece of one, that is witnessed here")
        check_signed(note, self.operator)
        if self.last is not None and is_split(self.last, note, self.operator):
            raise Split(self.last, note)
        if old != self.frontier.size:
            raise Behind(self.frontier.size)
        frontier = self.frontier
        for record in entries:
            if not holds(parse_entry(record)):
                raise Refused(why="an entry without its bytes")
            frontier = frontier.with_entry(record)
        if (said.size, said.root) != (frontier.size, frontier.root()):
            raise Refused(why="the entries do not lead to this checkpoint")
        return Watched(self.origin, self.operator, frontier, note), cosignature(note.text, seed, now_s)


def witness_did(seed: bytes) -> str:
    """The name of a witness or an operator: the did:key of its key."""
    return did_key(ed25519_public(seed))
