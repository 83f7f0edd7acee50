"""The mutations of a seed: grammar-aware changes to its tree, and changes to its bytes.

Most changes are small, because a text with one error gets further than one with many. Now and then one part grows to
the parser's limits, which exposes parsers of quadratic time.
"""

from collections.abc import Callable, Sequence
from math import isqrt
from random import Random
from typing import TypeAlias

from fuzzing.nodes import Array, Base64, Bytes, Node, Object, Part, Path, Verbatim, as_json, at, edit, paths

Change: TypeAlias = Callable[[Part, Random], Part]

VALUES: tuple[Part, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**53 - 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308),
    *(
        "",
        " ",
        "\0",
        "a",
        "é",
        "日本語",
        "😀",
        "\u202e",
        "\ufeff",
        "null",
        "0",
        "=",
        ".",
        "#",
        ":",
        "did:",
        "did:x:y",
        "z",
    ),
    *("../..", "%00", "%", "{}", "[]", "{1}", "*", "a" * 300, "1" * 5000, "\u0661", "İ", "ﬀ"),
    *(
        Verbatim(text)
        for text in ("1e999", "-1e999", "NaN", "Infinity", '"\\ud800"', '"\\udc00\\ud800"', "1.0", "1E400")
    ),
    *(
        Verbatim(text)
        for text in ("", "01", "+1", "'a'", '"\\x00"', '"\t"', "/**/", '"\\u0000"', "9" * 5000, "-", "[,]")
    ),
    *(Array([]), Object([], []), Array([Array([])]), Object([""], [""]), Object([None, None], ["a", "a"])),
)
CHARACTERS = "aAzZ019-_=+/.:#;?&%@~*{}[]\"'\\ \t\n\0\x7f\x80é日😀\ud800\u200b\u202e\u0661"
BYTES: tuple[bytes, ...] = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b'"',
    b"\\",
    b"{",
    b"[",
)
BYTES += (b"}", b"]", b",", b":", b"null", b"\\u0000", b"\\ud83d", b" ", b"\n", b"=", b"-", b"_", b"+", b"/", b"1e999")


DEPTH_MAX = 100
"""Deeper nesting is not taken apart: no parser here goes so deep, and writing it again would exhaust the stack."""
PARTS_MAX = 20_000
"""Parts that are stored for reuse elsewhere."""


class Mutator:
    """Mutates the seeds of one target. `seeds` are their trees; `size_max` is the parser's limit in bytes."""

    def __init__(self, seeds: Sequence[Part], size_max: int) -> None:
        self.size_max = size_max
        self.seeds: list[Part] = []
        self.ways: list[list[Path]] = []
        self._lots: list[int] = []
        """The more there is to change in a seed, the oftener it is taken."""
        self._first = len(self._lots)
        """How many of these are about the seeds that there were in the beginning."""
        self.parts: list[Part] = []
        """Parts of seeds: a part from one place may be tried in another."""
        self.names = ["", "x", "crit", "zip", "__proto__", "\0", "é"]
        for seed in seeds:
            self.learn(seed)
        self._first = len(self._lots)

    def learn(self, seed: Part) -> None:
        """Change this one too."""
        ways = list(paths(seed))
        if max(map(len, ways)) > DEPTH_MAX:
            return
        self._lots += [len(self.seeds)] * (1 + isqrt(len(ways)))
        self.seeds.append(seed)
        self.ways.append(ways)
        if len(self.parts) < PARTS_MAX:
            found = [at(seed, way) for way in ways]
            self.parts += found
            names = {name for part in found if isinstance(part, Object) for name in part.names}
            self.names += sorted(names.difference(self.names))

    def tree(self, dice: Random) -> Part:
        """A seed with one or some changes to its tree; now and then with none. Half of the cases come from the original
        seeds, because most learned cases are refused, and so are their mutants."""
        number = self._lots[dice.randrange(self._first if dice.random() < 0.5 else len(self._lots))]
        tree, ways = self.seeds[number], self.ways[number]
        for _ in range(_few(dice)):
            tree = edit(tree, dice.choice(ways), lambda part: self.changed(part, dice))
        return tree

    def changed(self, part: Part, dice: Random) -> Part:
        chance = dice.random()
        if chance < 0.002:
            return self.grown(part, dice)
        if chance < 0.15:
            return dice.choice(VALUES)
        if chance < 0.30:
            return dice.choice(self.parts)
        if chance < 0.36:
            return dice.choice((Array([part]), Object([part], [dice.choice(self.names)]), Base64([part])))
        match part:
            case Object():
                return self.object_changed(part, dice)
            case Array():
                return Array(shuffled(part.parts, dice))
            case Bytes():
                return Bytes(bytes_changed(part.data, dice), part.padded)
            case Base64():
                return text_changed(part.text(), dice) if dice.random() < 0.5 else Base64(part.parts, not part.padded)
            case Node():
                return part.with_parts(shuffled(part.parts, dice)) if part.parts else dice.choice(VALUES)
            case bool() | None:
                return dice.choice(VALUES)
            case int() | float():
                return part + dice.choice((-1, 1, 2**31, -(2**53))) if dice.random() < 0.5 else -part
        return text_changed(part, dice)

    def object_changed(self, part: Object, dice: Random) -> Part:
        names, parts = list(part.names), list(part.parts)
        where = dice.randrange(len(names) + 1)
        what = dice.randrange(6)
        if what == 0 or where == len(names):
            names.insert(where, dice.choice(self.names))
            parts.insert(where, dice.choice(self.parts) if dice.random() < 0.5 else dice.choice(VALUES))
        elif what <= 2:
            del names[where], parts[where]
        elif what == 3:
            names.append(names[where])
            parts.append(parts[where] if dice.random() < 0.5 else dice.choice(VALUES))
        elif what == 4:
            names[where] = dice.choice(self.names) if dice.random() < 0.5 else text_changed(names[where], dice)
        else:
            other = dice.randrange(len(names))
            parts[where], parts[other] = parts[other], parts[where]
        return Object(parts, names)

    def grown(self, part: Part, dice: Random) -> Part:
        """The part, or something in its place, at some size up to the limit."""
        size = int(self.size_max * dice.choice((0.01, 0.1, 0.3, 0.6, 0.74, 0.99, 1.01)))
        text = as_json(part)
        match dice.randrange(7):
            case 0:
                return (
                    dice.choice(("a", "1", "z", ".", "-", "=", "%", "\\", '"', "/", " ", "A.", "{1}", "😀", "\0"))
                    * size
                )
            case 1:
                return Array([part] * min(200_000, size // (len(text) + 1) + 1))
            case 2:
                count = min(20_000, size // (len(text) + 8) + 1)
                return Object([part] * count, [f"n{number}" for number in range(count)])
            case 3:
                depth = dice.choice((10, 60, 63, 64, 65, 100, 1_000, min(size // 2, 100_000)))
                left, right = dice.choice((("[", "]"), ('{"a":', "}"), ('{"a":[', "]}")))
                return Verbatim(left * depth + text * (size > 1000) + (right * depth if dice.random() < 0.8 else ""))
            case 4:
                return Verbatim(dice.choice(("9", "0.", "1e")) + "9" * min(size, 100_000))
            case 5:
                return Verbatim('"' + dice.choice(("\\u0041", "\\ud83d\\ude00", "\\\\", "\\ud800")) * (size // 6) + '"')
        return Bytes(dice.randbytes(min(size * 3 // 4, 1 << 20)))

    def bytes(self, data: bytes, dice: Random) -> bytes:
        """Now and then, changes against the grammar too."""
        if dice.random() < 0.3:
            for _ in range(_few(dice)):
                data = bytes_changed(data, dice)
        return data


def _few(dice: Random) -> int:
    return dice.choice((0, 1, 1, 1, 1, 1, 2, 2, 3, 5))


def shuffled(parts: Sequence[Part], dice: Random) -> list[Part]:
    """A list without one of its parts, with one twice or often, with two exchanged, or cut off."""
    parts = list(parts)
    if not parts:
        return [dice.choice(VALUES)]
    where, other = dice.randrange(len(parts)), dice.randrange(len(parts))
    match dice.randrange(6):
        case 0:
            del parts[where]
        case 1:
            parts.insert(other, parts[where])
        case 2:
            parts += [parts[where]] * dice.choice((2, 15, 16, 17, 63, 64, 65, 300))
        case 3:
            parts[where], parts[other] = parts[other], parts[where]
        case 4:
            del parts[where:]
        case _:
            parts.insert(where, dice.choice(VALUES))
    return parts


def text_changed(text: str, dice: Random) -> str:
    start, end = sorted((dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)))
    match dice.randrange(8):
        case 0 | 1:
            return text[:start] + dice.choice(CHARACTERS) + text[start + 1 :]
        case 2 | 3:
            return text[:start] + dice.choice(CHARACTERS) + text[start:]
        case 4:
            return text[:start] + text[end:]
        case 5:
            return text[:end] + text[start:end] * dice.choice((1, 1, 2, 30)) + text[end:]
        case 6:
            return text[:start] if dice.random() < 0.5 else text[end:]
    return text.swapcase() if dice.random() < 0.5 else text[:start] + text[start:end][::-1] + text[end:]


def bytes_changed(data: bytes, dice: Random) -> bytes:
    start, end = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
    match dice.randrange(8):
        case 0 | 1:
            return data[:start] + bytes([dice.randrange(256)]) + data[start + 1 :]
        case 2:
            if start == len(data):
                return data
            return data[:start] + bytes([data[start] ^ 1 << dice.randrange(8)]) + data[start + 1 :]
        case 3 | 4:
            return data[:start] + dice.choice(BYTES) + data[start:]
        case 5:
            return data[:start] + data[end:]
        case 6:
            return data[:end] + data[start:end] * dice.choice((1, 1, 2, 30)) + data[end:]
    return data[:start] if dice.random() < 0.5 else data[:start] + dice.randbytes(min(end - start, 64)) + data[end:]


def spliced(data: bytes, other: bytes, dice: Random) -> bytes:
    """The beginning of one, and the end of another."""
    return data[: dice.randrange(len(data) + 1)] + other[dice.randrange(len(other) + 1) :]
