"""Signed notes, checkpoints and cosignatures (C2SP signed-note, tlog-checkpoint, tlog-cosignature).

Compatible with the tools of public transparency logs. An operator's signature has type 0x01. A cosignature (type 0x04)
is timestamped: at this second, this was the largest log that the witness had seen.
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
"""Signature types."""
NOTE_BYTES_MAX = 32 * 1024
SIGNATURES_MAX = 64
COUNT_DIGITS_MAX = 16
"""Digits of sizes, indices and seconds, below 2**53."""
_DASH = "\u2014 "


class Signature(Struct, frozen=True):
    """A signature line of a note."""

    name: str
    key_id: bytes
    value: bytes


class Note(Struct, frozen=True):
    """A text with signature lines, unverified."""

    text: str
    signatures: tuple[Signature, ...]

    def by(self, did: str, kind: int) -> Iterator[bytes]:
        """The values of signatures of this type (`kind`) by this key (a did:key)."""
        key = key_id(did, kind)
        return (one.value for one in self.signatures if (one.name, one.key_id) == (did, key))

    def with_line(self, line: str) -> "Note":
        """The note with one more signature line."""
        return Note(self.text, (*self.signatures, _signature(line.removesuffix("\n"))))

    def serialize(self) -> str:
        return self.text + "\n" + "".join(_line(one) for one in self.signatures)


class Checkpoint(Struct, frozen=True):
    """Size and root of a log."""

    origin: str
    """Name of the log: one line without spaces."""
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def key_id(did: str, kind: int) -> bytes:
    """The four-byte key id of a did:key and a signature type (C2SP signed-note)."""
    return sha256(did.encode() + b"\n" + bytes([kind]) + did_key_bytes(did))[:4]


def sign_checkpoint(checkpoint: Checkpoint, seed: bytes) -> Note:
    """The checkpoint signed by the log's operator."""
    text = checkpoint.text()
    did = did_key(ed25519_public(seed))
    return Note(text, (Signature(did, key_id(did, LOG), ed25519_sign(seed, text.encode())),))


def check_signature(note: Note, did: str) -> None:
    """Raise Unauthentic unless this key signed the note as operator."""
    values = list(note.by(did, LOG))
    if not values:
        raise Unauthentic()
    for value in values:
        ed25519_verify(did_key_bytes(did), note.text.encode(), value)


def cosignature(text: str, seed: bytes, time_s: int) -> str:
    """The cosignature line of a witness. `time_s`: UTC seconds."""
    did = did_key(ed25519_public(seed))
    value = time_s.to_bytes(8, "big") + ed25519_sign(seed, _cosigned(text, time_s))
    return _line(Signature(did, key_id(did, COSIGNER), value))


def cosignature_time(note: Note, did: str) -> int | None:
    """When the witness cosigned the note, UTC seconds; None: never. Raises Unauthentic for an invalid signature."""
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
    """Decode a note without verifying it. Raises Malformed."""
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
        raise Malformed(why="a note without signatures")
    return Note(text + "\n", tuple(_signature(line) for line in lines))


def parse_checkpoint(text: str) -> Checkpoint:
    """The checkpoint in a note's text. Raises Malformed, also for extension lines, whose meaning is undefined."""
    lines = text.split("\n")
    if len(lines) != 4 or lines[3] or not lines[0] or " " in lines[0]:
        raise Malformed(why="a checkpoint of another shape")
    root = parse_hash(lines[2])
    return Checkpoint(lines[0], parse_count(lines[1]), root)


def parse_count(digits: str) -> int:
    """Decode a canonical decimal number below 2**53. Raises Malformed."""
    if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0") != (digits == "0"):
        raise Malformed(why="a number that is not canonical")
    if len(digits) > COUNT_DIGITS_MAX or int(digits) >= 2**53:
        raise Malformed(why="a number that is too large")
    return int(digits)


def parse_hash(text: str) -> bytes:
    """Decode a base64 hash of 32 bytes. Raises Malformed."""
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
        raise Malformed(why="base64 that is not canonical")
    return value


def _signature(line: str) -> Signature:
    words = line.removeprefix(_DASH).split(" ")
    if not line.startswith(_DASH) or len(words) != 2 or not words[0] or "+" in words[0]:
        raise Malformed(why="a note with an invalid signature line")
    value = _base64(words[1])
    if len(value) <= 4:
        raise Malformed(why="a signature that is too short")
    return Signature(words[0], value[:4], value[4:])


def _line(signature: Signature) -> str:
    return f"{_DASH}{signature.name} {base64.b64encode(signature.key_id + signature.value).decode()}\n"
