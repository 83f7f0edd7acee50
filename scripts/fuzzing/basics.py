"""Fuzz targets: encodings, JSON, compressed data, and text on its way to a screen."""

import unicodedata
from collections.abc import Callable
from random import Random

from fuzzing.nodes import Part
from fuzzing.run import Form
from zerochat.crypto.compression import compress, decompress
from zerochat.crypto.encoding import (
    BASE41,
    b64url,
    b64url_bytes,
    base45,
    base45_bytes,
    base58,
    base58_bytes,
    canonical_json,
    compact_json,
    multikey,
    multikey_bytes,
    strict_json,
)
from zerochat.errors import Malformed, RemoteError
from zerochat.group.wire.padding import pad, padded_size
from zerochat.terminal_text import (
    CHARS_MAX,
    KEY_CELLS_MAX,
    LINE_CHARS_MAX,
    LINES_MAX,
    cells,
    printable,
    printable_key,
    printable_line,
)


class _Raw:
    """Bytes without a grammar."""

    form: Form = "raw"

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree


class Json(_Raw):
    """Strict JSON: a value that is read and written again, also padded, is the same; in canonical form, to the byte."""

    name = "json"
    form: Form = "text"
    size_max = 16 * 1024

    def seeds(self) -> list[bytes]:
        return [
            b'{"a":[1,2.5,-0.0,1e10,true,false,null,"x\\u00e9\\n\\\\\\"","\\ud83d\\ude00"],"b":{"c":{}},"":[[],[[]]]}',
            b'[9007199254740991,-9007199254740992,123456789012345678901234567890,0.1,"' + "日本語😀".encode() + b'"]',
            b' {"one" : 1 , "two" : [ ] }  ',
            b'"text"',
        ]

    def parse(self, data: bytes) -> object:
        value = strict_json(data, self.size_max)
        again = compact_json(value)
        assert strict_json(again, 8 * self.size_max) == value
        padded = pad(data)
        assert len(padded) == padded_size(len(data)) >= len(data) and strict_json(padded, 2 * self.size_max) == value
        try:
            canonical = canonical_json(value)
        except Malformed:
            return value
        assert strict_json(canonical, 8 * self.size_max) == value and canonical_json(value) == canonical
        return value


class Encodings(_Raw):
    """base64url, base58, base45 and multikeys: whatever is read has no other spelling."""

    name = "encodings"
    size_max = 1024

    def seeds(self) -> list[bytes]:
        data = bytes(range(250, 256)) + b"some bytes"
        plain = (b64url(data), base58(b"\0\0" + data), base45(data), base45(data[1:], BASE41))
        return [text.encode() for text in (*plain, multikey(b"\xed\x01", bytes(32)), "QUI=", "1111")]

    def parse(self, data: bytes) -> object:
        text = data.decode(errors="surrogateescape")
        read: tuple[tuple[Callable[[str], bytes], Callable[[bytes], str]], ...] = (
            (b64url_bytes, b64url),
            (lambda text: base58_bytes(text, self.size_max), base58),
            (base45_bytes, base45),
            (lambda text: base45_bytes(text, BASE41), lambda found: base45(found, BASE41)),
            (lambda text: b"".join(multikey_bytes(text)), lambda found: multikey(found[:2], found[2:])),
        )
        found = [self._one(text, *both) for both in read]
        if not any(found):
            raise Malformed(why="nothing of all that")
        return found

    def _one(self, text: str, reader: Callable[[str], bytes], writer: Callable[[bytes], str]) -> bool:
        try:
            found = reader(text)
        except RemoteError:
            return False
        assert writer(found) == (text.rstrip("=") if reader is b64url_bytes else text), "two spellings of one thing"
        return True


class Compressed(_Raw):
    """Zstandard frames: the output never exceeds the allowed size, and compresses again."""

    name = "zstd"
    size_max = 64 * 1024

    _BOUND = 128 * 1024

    def seeds(self) -> list[bytes]:
        texts = (b"", b"a", b"hello " * 100, bytes(self._BOUND), bytes(range(256)) * 40)
        return [compress(text) for text in texts]

    def parse(self, data: bytes) -> object:
        found = decompress(data, self._BOUND)
        assert len(found) <= self._BOUND
        assert decompress(compress(found), self._BOUND) == found
        return len(found)


class Screen(_Raw):
    """Any text, as a terminal shows it: drawn and not obeyed, within its bounds, and the same when it is done twice."""

    name = "screen"
    size_max = 32 * 1024

    _JOINERS = "\u200c\u200d"
    _DRAWN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
    """Format characters that have ink."""

    def seeds(self) -> list[bytes]:
        texts = (
            "hello\r\nworld\ttabs\x1b[31mred\x1b]0;title\x07\x9b1m\x7f\x00",
            "\u202eevil\u202c \u2066x\u2069 \u200e\u061c \ufeff\u00ad\u2060\U000e0041",
            "e\u0301\u0302\u0303\u0304 \u0915\u094d\u200d\u0937 \u0646\u0645\u06cc\u200c\u0634\u0648\u062f",
            "👨‍👩‍👧‍👦 ❤️ 1️⃣ 🏳️‍🌈 🇩🇪 \u200d\u200d\ufe0f a\ufe0f",
            "\u0301start \u20dd \u115f\u3164\uffa0 \ue000 \U0010ffff \U0001faff \u0378",
            "one\u2028two\u2029three\n\n\n" + "line\n" * 500,
            "did:peer:2.Ez6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc#key-1",
        )
        return [text.encode() for text in texts]

    def parse(self, data: bytes) -> object:
        text = data.decode(errors="surrogateescape")
        many = printable(text)
        assert printable(many) == many, "twice is not once"
        assert many.count("\n") < LINES_MAX and len(many) <= CHARS_MAX
        few = printable(text, lines_max=3, chars_max=40)
        assert printable(few, lines_max=3, chars_max=40) == few and few.count("\n") < 3 and len(few) <= 40
        line = printable_line(text)
        assert printable_line(line) == line and len(line) <= LINE_CHARS_MAX
        narrow, key = printable_line(text, 12), printable_key(text)
        assert cells(narrow) <= 12 and printable_line(narrow, 12) == narrow
        assert cells(key) <= KEY_CELLS_MAX
        for shown in (many, few):
            self._check(shown.replace("\n", " "))
        for shown in (line, narrow, key):
            self._check(shown)
        return many

    def _check(self, shown: str) -> None:
        if shown.isascii() and shown.isprintable():
            return
        for char in set(shown) - self._DRAWN:
            kind = unicodedata.category(char)
            pictograph = kind == "Cn" and 0x1F000 <= ord(char) < 0x1FB00
            joins = char in self._JOINERS
            assert joins or pictograph or kind not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), (
                f"U+{ord(char):04X} gets to the screen"
            )
            assert unicodedata.bidirectional(char) not in (
                "LRE",
                "RLE",
                "LRO",
                "RLO",
                "PDF",
                "LRI",
                "RLI",
                "FSI",
                "PDI",
            )
