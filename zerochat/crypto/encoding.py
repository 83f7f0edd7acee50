"""Canonical encodings: base64url, base58, base45, multikey, did:key, JSON and MessagePack.

Decoders accept only the spelling that the encoder produces, and raise `Malformed` for any other. Python's own decoders
are lenient (foreign characters, left-over bits, duplicate members), and a value with two spellings defeats comparisons,
hashes and signatures.
"""

import json
import math
import re
import string
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated

import msgspec

from zerochat.errors import Malformed

INTEGER_MAX = 2**53 - 1
"""The largest integer that every JSON parser represents exactly (RFC 7493, section 2.2)."""
Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
"""A non-negative integer from a peer; sums of a few still fit `range` and `len`."""

ED25519 = b"\xed\x01"
X25519 = b"\xec\x01"
JSON = b"\x80\x04"
SHA2_256 = b"\x12\x20"
"""Multicodec prefixes as unsigned varints; the last one is a multihash prefix with its length, 32."""

# --- base64url (RFC 4648, section 5) --------------------------------------------------------------------------------


_TO_URL = bytes.maketrans(b"+/", b"-_")
_LETTERS_DIGITS = (string.ascii_letters + string.digits).encode()
_FROM_URL = bytes({45: 43, 95: 47}.get(byte, byte if byte in _LETTERS_DIGITS else 33) for byte in range(256))
"""Translation to the standard base64 alphabet; invalid characters become `!`, which is in neither alphabet."""
_LAST = (b"", b"", b"AQgw", b"AEIMQUYcgkosw048")
"""Final characters without left-over bits, by the length of the last group; a group of one is invalid."""
_END = (b'"', b"", b'=="', b'="')
_decode_quoted = msgspec.json.Decoder(bytes).decode
"""Decodes base64 as a JSON string: strict, and three to four times as fast as Python's decoder."""


def b64url(data: bytes) -> str:
    """base64url without padding."""
    return b64url_ascii(data).decode()


def b64url_ascii(data: bytes) -> bytes:
    """`b64url` as bytes."""
    return b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=")


def b64url_bytes(text: str) -> bytes:
    """Decode canonical base64url; padding is absent or exact. Raises Malformed."""
    bare = text.rstrip("=")
    if len(text) != len(bare) and len(text) != len(bare) + -len(bare) % 4:
        raise Malformed(why="not canonical base64url")
    return b64url_bare(bare.encode("ascii", "replace"))


def b64url_bare(ascii_: bytes) -> bytes:
    """Decode canonical base64url without padding, given as bytes. Raises Malformed."""
    left = len(ascii_) % 4
    if not left or ascii_[-1] in _LAST[left]:
        try:
            return _decode_quoted(b'"' + ascii_.translate(_FROM_URL) + _END[left])
        except ValueError:
            pass
    raise Malformed(why="not canonical base64url")


# --- base58btc ------------------------------------------------------------------------------------------------------

_B58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_B58_PAIRS = [first + last for first in _B58 for last in _B58]
"""Two digits at a time."""
_B58_NONE = 255
_B58_VALUES = bytes(max(_B58.find(chr(byte)), -1) % 256 for byte in range(256))
"""Digit values by character; _B58_NONE: invalid."""
_B58_RUN, _B58_PART = 8, 80
"""Digits per machine word and per intermediate number: long division in two steps takes a third of the time."""
_B58_RUNS, _B58_PARTS = 58**_B58_RUN, 58**_B58_PART


def base58(data: bytes) -> str:
    """base58btc (the Bitcoin alphabet); every leading zero byte is a leading `1`."""
    number, parts = int.from_bytes(data, "big"), [""]
    while number:
        number, part = divmod(number, _B58_PARTS)
        parts.append(_base58_digits(part).rjust(_B58_PART, "1") if number else _base58_digits(part).lstrip("1"))
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(parts))


def _base58_digits(number: int) -> str:
    """The digits of a number, possibly with leading zeros."""
    pairs: list[str] = []
    while number:
        number, run = divmod(number, _B58_RUNS)
        high, low = divmod(run, 58**4)
        pairs += _B58_PAIRS[low % 58**2], _B58_PAIRS[low // 58**2], _B58_PAIRS[high % 58**2], _B58_PAIRS[high // 58**2]
    return "".join(reversed(pairs))


def base58_bytes(text: str, size_max: int) -> bytes:
    """Decode base58btc to at most `size_max` bytes; the length is checked first because decoding is quadratic. Raises
    Malformed."""
    if len(text) > size_max * 1.37 + 1:
        raise Malformed(why="base58 too long")
    digits = text.encode("ascii", "replace").translate(_B58_VALUES)
    if _B58_NONE in digits:
        raise Malformed(why="not base58")
    # Each byte is a digit. Combine pairs of digits, then pairs of those, until one number remains.
    number, width, base = int.from_bytes(digits, "big"), 1, 58
    while width < len(digits):
        low = _low_halves(width, len(digits).bit_length())
        number = (number & low) + base * (number >> 8 * width & low)
        width, base = 2 * width, base * base
    zeros = len(text) - len(text.lstrip("1"))
    data = bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(data) > size_max:
        raise Malformed(why="base58 too long")
    return data


@lru_cache(maxsize=128)
def _low_halves(width: int, bits: int) -> int:
    """A mask of every other group of `width` bytes, at least `2**bits` bytes long; it includes the last group."""
    return int.from_bytes((bytes(width) + b"\xff" * width) * max(1, (1 << bits) // (2 * width)), "big")


# --- base45 (RFC 9285) and its smaller sibling ----------------------------------------------------------------------

BASE45 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
BASE41 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-+/.:"
"""RFC 9285 without the four characters that shells, line breaks or URLs mangle. 41 cubed still exceeds 2**16, so a text
has the same length, and all characters are in a QR code's alphanumeric mode."""


def base45(data: bytes, alphabet: str = BASE45) -> str:
    """Encode pairs of bytes as three characters, a last single byte as two; least significant character first."""
    base, text = len(alphabet), []
    for start in range(0, len(data), 2):
        pair = data[start : start + 2]
        value = int.from_bytes(pair, "big")
        for _ in range(len(pair) + 1):
            value, digit = divmod(value, base)
            text.append(alphabet[digit])
    return "".join(text)


def base45_bytes(text: str, alphabet: str = BASE45) -> bytes:
    """Decode `base45`. Raises Malformed, also for groups that no byte pair encodes to."""
    base, data = len(alphabet), bytearray()
    for start in range(0, len(text), 3):
        group = text[start : start + 3]
        value = 0
        for character in reversed(group):
            digit = alphabet.find(character)
            if digit < 0:
                raise Malformed(why="a character outside the alphabet")
            value = value * base + digit
        size = len(group) - 1
        if size == 0 or value >> 8 * size:
            raise Malformed(why="a group of characters that encodes no bytes")
        data += value.to_bytes(size, "big")
    return bytes(data)


# --- multikeys and did:key ------------------------------------------------------------------------------------------

KEY_BYTES = 32
_MULTIKEY_BYTES_MAX = 600
"""Enough for an RSA key of 4096 bits: DID documents of peers may hold keys of any kind."""


def multikey(codec: bytes, key: bytes) -> str:
    """A public key as multibase text: `z`, then base58 of the multicodec prefix and the key."""
    return "z" + base58(codec + key)


@lru_cache(maxsize=4096)
def multikey_bytes(text: str) -> tuple[bytes, bytes]:
    """The two-byte multicodec prefix and the key of a multikey; Ed25519 and X25519 keys have 32 bytes. Raises
    Malformed."""
    if not text.startswith("z"):
        raise Malformed(why="a multikey in an unknown base")
    data = base58_bytes(text[1:], _MULTIKEY_BYTES_MAX)
    codec, key = data[:2], data[2:]
    if not key or (codec in (ED25519, X25519) and len(key) != KEY_BYTES):
        raise Malformed(why="a multikey of the wrong length")
    return codec, key


def did_key(ed25519_public: bytes) -> str:
    """The did:key of an Ed25519 public key: `did:key:z6Mk…`, 56 characters."""
    return "did:key:" + multikey(ED25519, ed25519_public)


@lru_cache(maxsize=4096)
def did_key_bytes(did: str) -> bytes:
    """The Ed25519 public key (32 bytes) of a did:key. Raises Malformed."""
    if not did.startswith("did:key:"):
        raise Malformed(why="not a did:key")
    codec, key = multikey_bytes(did[8:])
    if codec != ED25519:
        raise Malformed(why="a did:key that is not Ed25519")
    return key


# --- JSON -----------------------------------------------------------------------------------------------------------

NOT_JSON = "it is not strict JSON"
"""Why a text is refused that is no JSON, or that two parsers could read differently."""
DEPTH_MAX = 64
"""Deeper than any message of the protocols here, and far below the stack limit of Python's parser."""

CONTAINERS_MAX = 32 * 1024
"""Objects and arrays in one text. An object costs as much time as fifty digits, plus the check for duplicate members:
half a megabyte of `{},` would take too long for unauthenticated input."""

FRACTIONS_MAX = 2048
"""Numbers with a fraction or an exponent in a text that takes the slow path: that parser is slow with them."""

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"')
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = bytes.maketrans(b'[{]}"', b"\x01\x01\xff\xff\x00")
"""Brackets as signed bytes: 1, -1, and 0 for an unpaired quotation mark."""


def _check_structure(data: bytes, depth_max: int) -> None:
    """Raise Malformed for too many brackets or too deep nesting, outside strings; exact up to the first syntax
    error."""
    structure = _STRING.sub(b"", _ESCAPE.sub(b"", data).translate(None, _NOT_STRUCTURE))
    if structure.count(b"[") + structure.count(b"{") > CONTAINERS_MAX:
        raise Malformed(why=f"JSON with more than {CONTAINERS_MAX} objects and arrays")
    if max(accumulate(memoryview(structure.translate(_STEPS)).cast("b")), default=0) > depth_max:
        raise Malformed(why=f"JSON nested more than {depth_max} deep")


def _members(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a duplicate member")
    return members


def _no_constant(name: str) -> object:
    raise ValueError(name)


class _Finite:
    """Parses the fractions of one text, up to FRACTIONS_MAX."""

    def __init__(self) -> None:
        self._left = FRACTIONS_MAX

    def __call__(self, text: str) -> float:
        self._left -= 1
        number = float(text) if self._left >= 0 else math.inf
        if not math.isfinite(number):
            raise ValueError(text)
        return number


_READ, _WRITE = msgspec.json.Decoder(float_hook=float).decode, msgspec.json.Encoder().encode
"""With `float_hook`, because msgspec's own float parser takes 13 µs for `1e308`, and half a second for 256 kB of
them."""
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CANONICAL = msgspec.json.Encoder(order="sorted").encode


def strict_json(data: bytes, size_max: int, depth_max: int = DEPTH_MAX) -> object:
    """Parse a JSON text in UTF-8 as I-JSON (RFC 7493). Raises Malformed.

    No duplicate members, no NaN or Infinity (not even as 1e999), no lone surrogates, at most `size_max` bytes,
    `depth_max` levels and CONTAINERS_MAX objects and arrays. Limits are checked before parsing.

    Fast path: a text that a lenient parser reads and writes back byte for byte is strict, because a duplicate member
    would be lost. That takes half the time.
    """
    if len(data) > size_max:
        raise Malformed(why=f"JSON of more than {size_max} bytes")
    if data.count(b"[") + data.count(b"{") > depth_max:
        _check_structure(data, depth_max)
    try:
        value: object = _READ(data)
        if _WRITE(value) == data.rstrip(b" "):  # messages are padded with spaces
            return value
    except (ValueError, RecursionError):
        pass
    try:
        lenient = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_constant, parse_float=_Finite())
        value = lenient.decode(data.decode())
        if b"\\" in data and (b"\\ud" in data or b"\\uD" in data):  # one byte is found faster than three
            _COMPACT.encode(value).encode()
    except (ValueError, RecursionError):
        raise Malformed(why=NOT_JSON) from None
    return value


def compact_json(value: object) -> bytes:
    """JSON in UTF-8 without white space, members in insertion order."""
    return _WRITE(value)


def canonical_json(value: object, unchecked: object = None) -> bytes:
    """JSON Canonicalization Scheme (RFC 8785) for a subset. Raises Malformed outside it.

    The subset: objects with ASCII names, arrays, text, true, false, null, and integers of at most 53 bits, no floats.
    There msgspec's sorted output is canonical. `unchecked`: the only part that may be outside of it; None: all.
    """
    try:
        _check_subset(value if unchecked is None else unchecked)
        return _CANONICAL(value)
    except (ValueError, RecursionError):
        raise Malformed(why="JSON outside the canonical subset") from None


def canonical_checked(value: object) -> bytes:
    """The same for a value that is known to be in the subset, such as a part of one that was encoded."""
    return _CANONICAL(value)


def _joined(names: Iterable[object]) -> str:
    try:
        return "".join(names)  # type: ignore[arg-type]  # TypeError for a name that is not text
    except TypeError:
        raise ValueError("a name that is not text") from None


def _check_subset(value: object) -> None:
    if isinstance(value, dict):
        if not _joined(value).isascii():
            raise ValueError("a name that is not ASCII")
        _check_members(value.values())
    elif isinstance(value, (list, tuple)):
        _check_members(value)
    elif value is None or isinstance(value, (str, bool)):
        return
    elif not isinstance(value, int):
        raise ValueError("not a JSON type")
    elif not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise ValueError("an integer of more than 53 bits")


def _check_members(values: Iterable[object]) -> None:
    for value in values:
        kind = type(value)  # most values are text or small numbers, and a call costs more than the check
        if kind is str or (kind is int and 0 <= value <= INTEGER_MAX) or value == []:  # type: ignore[operator]
            continue
        _check_subset(value)


# --- MessagePack ----------------------------------------------------------------------------------------------------

_UNPACK, _PACK = msgspec.msgpack.Decoder().decode, msgspec.msgpack.Encoder().encode
_PERHAPS_CONTAINERS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
"""First bytes of maps and arrays; in other places they occur as parts of texts."""
_PERHAPS_CONTAINERS_MAX = 2 * CONTAINERS_MAX


def compact_msgpack(value: object) -> bytes:
    """MessagePack in the shortest form, members in insertion order."""
    return _PACK(value)


def strict_msgpack(data: bytes, size_max: int) -> object:
    """Decode the output of `compact_msgpack`, at most `size_max` bytes; any other form is refused. Raises Malformed.

    The value may contain bytes, times and fractions, which JSON lacks: the caller checks its shape. The number of
    containers is limited because decoding an empty map is a thousand times as expensive as sending its one byte.
    """
    if len(data) > size_max:
        raise Malformed(why=f"MessagePack of more than {size_max} bytes")
    if len(data) > _PERHAPS_CONTAINERS_MAX < len(data) - len(data.translate(None, _PERHAPS_CONTAINERS)):
        raise Malformed(why=f"MessagePack with more than {_PERHAPS_CONTAINERS_MAX} maps and arrays")
    try:
        value: object = _UNPACK(data)
        if _PACK(value) == data:
            return value
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass
    raise Malformed(why="not strict MessagePack")
