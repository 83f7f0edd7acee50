"""Texts with signatures below them (C2SP `signed-note`), and a log's checkpoint as such a text (`tlog-checkpoint`).

The formats are those of public transparency logs, so that their tools read ours. A log's own signature is of type 0x01.
A cosignature (`tlog-cosignature`, type 0x04) also says when it was given: that at this second the log with this root
was the longest that the witness had seen.
"""

import base64
import binascii
from collections.abc import Iterator

from msgspec import Struct

from zerochat.crypto.encoding import did_key, did_key_bytes
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify, sha256
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.merkle import HASH_BYTES

LOG, COSIGNER = 1, 4
"""Types of signatures."""
NOTE_BYTES_MAX = 32 * 1024
SIGNATURES_MAX = 64
COUNT_DIGITS_MAX = 16
"""Of sizes, indices and seconds: below 2**53."""
_DASH = "\u2014 "


class Signature(Struct, frozen=True):
    """One line below a note."""

    name: str
    key_id: bytes
    value: bytes


class Note(Struct, frozen=True):
    """A text, and what stands below it. Nothing is checked yet."""

    text: str
    signatures: tuple[Signature, ...]

    def by(self, did: str, kind: int) -> Iterator[bytes]:
        """What stands below it in the name of this key (a did:key), as signatures of this type."""
        wanted = key_id(did, kind)
        return (one.value for one in self.signatures if (one.name, one.key_id) == (did, wanted))

    def with_line(self, line: str) -> "Note":
        """The same note with one more signature."""
        return Note(self.text, (*self.signatures, _signature(line.removesuffix("\n"))))

    def written(self) -> str:
        return self.text + "\n" + "".join(_line(one) for one in self.signatures)


class Checkpoint(Struct, frozen=True):
    """How long a log is, and the root over all of it."""

    origin: str
    """Which log: in one line, without spaces."""
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def key_id(did: str, kind: int) -> bytes:
    """The four bytes that name a key and the type of its signatures; keys go by their did:key."""
    return sha256(did.encode() + b"\n" + bytes([kind]) + did_key_bytes(did))[:4]


def signed(checkpoint: Checkpoint, seed: bytes) -> Note:
    """The checkpoint under the signature of the log's operator."""
    text = checkpoint.text()
    did = did_key(ed25519_public(seed))
    return Note(text, (Signature(did, key_id(did, LOG), ed25519_sign(seed, text.encode())),))


def check_signed(note: Note, did: str) -> None:
    """Raise Unauthentic unless this key has signed the note as its log's operator."""
    values = list(note.by(did, LOG))
    if not values:
        raise Unauthentic()
    for value in values:
        ed25519_verify(did_key_bytes(did), note.text.encode(), value)


def cosignature(text: str, seed: bytes, time_s: int) -> str:
    """The line in which a witness says that at this time (UTC seconds) it knew of no longer log than this."""
    did = did_key(ed25519_public(seed))
    value = time_s.to_bytes(8, "big") + ed25519_sign(seed, _cosigned(text, time_s))
    return _line(Signature(did, key_id(did, COSIGNER), value))


def cosigned_at(note: Note, did: str) -> int | None:
    """When this witness cosigned the note (UTC seconds); None: it did not. Raises Unauthentic for a forgery."""
    times = []
    for value in note.by(did, COSIGNER):
        if len(value) != 8 + 64:
            raise Unauthentic()
        time_s = int.from_bytes(value[:8], "big")
        ed25519_verify(did_key_bytes(did), _cosigned(note.text, time_s), value[8:])
        times.append(time_s)
    return min(times, default=None)


def _cosigned(text: str, time_s: int) -> bytes:
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def parse_note(data: bytes) -> Note:
    """Raises Malformed."""
    if len(data) > NOTE_BYTES_MAX:
        raise Malformed(why="a note that is too long")
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise Malformed(why="a note that is not text") from None
    if any(character < " " and character != "\n" for character in whole):
        raise Malformed(why="a note with control characters")
    text, found, below = whole.rpartition("\n\n")
    lines = below.split("\n")
    if not found or lines.pop() != "" or not 0 < len(lines) <= SIGNATURES_MAX:
        raise Malformed(why="a note without its signatures")
    return Note(text + "\n", tuple(_signature(line) for line in lines))


def parse_checkpoint(text: str) -> Checkpoint:
    """The checkpoint that a note says. Raises Malformed, also for one with more lines than the three: of those nobody
    says what they mean."""
    lines = text.split("\n")
    if len(lines) != 4 or lines[3] or not lines[0] or " " in lines[0]:
        raise Malformed(why="a checkpoint of another shape")
    root = hash_of(lines[2])
    return Checkpoint(lines[0], count_of(lines[1]), root)


def count_of(digits: str) -> int:
    """A number in its only form. Raises Malformed."""
    if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0") != (digits == "0"):
        raise Malformed(why="a number in another form")
    if len(digits) > COUNT_DIGITS_MAX or int(digits) >= 2**53:
        raise Malformed(why="a number that is too large")
    return int(digits)


def hash_of(text: str) -> bytes:
    """A hash in base64. Raises Malformed."""
    value = _base64(text)
    if len(value) != HASH_BYTES:
        raise Malformed(why="a hash of another length")
    return value


def _base64(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(why="bad base64") from None
    if base64.b64encode(value).decode() != text:
        raise Malformed(why="base64 in another form")
    return value


def _signature(line: str) -> Signature:
    words = line.removeprefix(_DASH).split(" ")
    if not line.startswith(_DASH) or len(words) != 2 or not words[0] or "+" in words[0]:
        raise Malformed(why="a line below a note that is no signature")
    value = _base64(words[1])
    if len(value) <= 4:
        raise Malformed(why="a signature that is too short")
    return Signature(words[0], value[:4], value[4:])


def _line(signature: Signature) -> str:
    return f"{_DASH}{signature.name} {base64.b64encode(signature.key_id + signature.value).decode()}\n"
