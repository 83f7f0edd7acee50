"""Terminal text: no control sequences, bounded cost, scannable QR codes."""

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat.qr import qr_ansi, qr_half_blocks
from zerochat.terminal_text import (
    BASE,
    CHARS_MAX,
    JOINS_MAX,
    LINES_MAX,
    MARKS_MAX,
    cells,
    printable,
    printable_line,
)

ZWJ, ZWNJ = "\u200d", "\u200c"
BIDI = {chr(c) for c in [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]}
PICTOGRAPHS = range(0x1F000, 0x1FB00)
INKED_FORMAT = {chr(c) for c in [*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD]}

NASTY = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b31m",
    "\x9d0;t\x9c",
    "\x08\x08\x08",
    "\r" + "overwritten",
    "\x00",
    "\x7f",
    "\x0e",
    "\u202egnp.exe",
    "\u2066\u2069",
    "\ufeff\u200b\u2060\u00ad",
    "\U000e0041\U000e007f",
    "\ue000\U000f0000",
    "\ud800",
    "\ufffe",
    "e" + "\u0301" * 50,
    ("👩" + ZWJ) * 50,
    "\u3164\u115f",
]

hostile_text = st.lists(
    st.one_of(
        st.sampled_from(NASTY),
        st.text(max_size=8),
        st.characters(categories=["Mn", "Me", "Cf", "Cc", "Co", "Cs", "Cn", "Zl", "Zp", "So", "Lo"]),
        st.sampled_from(["\n", "\t", "\r\n", ZWJ, ZWNJ, "\ufe0f", "\u20e3", "1", "a", "\U000e0101", "漢", BASE, "…"]),
    ),
    max_size=60,
).map("".join)


def obeyed(text: str, newlines: bool) -> list[str]:
    """The characters of `text` that a terminal might obey or that have no business on a screen."""
    return [
        c
        for c in text
        if not (newlines and c == "\n")
        and (
            c in BIDI
            or (unicodedata.category(c) == "Cf" and c not in (ZWJ, ZWNJ) and c not in INKED_FORMAT)
            or unicodedata.category(c) in ("Cc", "Cs", "Co", "Zl", "Zp")
            or (unicodedata.category(c) == "Cn" and ord(c) not in PICTOGRAPHS)
        )
    ]


def is_mark(char: str) -> bool:
    selector = "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"
    return unicodedata.category(char) in ("Mn", "Me") and not selector


@settings(max_examples=400, deadline=None)
@given(hostile_text)
def test_printable_text_contains_no_control_sequence(text: str) -> None:
    shown = printable(text)
    assert not obeyed(shown, newlines=True)
    assert len(shown) <= CHARS_MAX
    assert shown.count("\n") < LINES_MAX
    for line in shown.split("\n"):
        marks = joins = 0
        assert not line or not is_mark(line[0])
        for before, char in zip(" " + line, line, strict=False):
            if is_mark(char):
                marks += 1
            elif unicodedata.category(char) not in ("Mn", "Me", "Cf"):
                marks = 0
                joins = joins if before == ZWJ else 0
            joins += char == ZWJ
            assert marks <= MARKS_MAX
            assert joins <= JOINS_MAX


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(hostile_text, st.integers(1, 40), st.integers(1, 6))
def test_twice_is_once(text: str, width: int, lines: int) -> None:
    shown = printable(text, lines_max=lines, chars_max=width)
    assert len(shown) <= width
    assert shown.count("\n") < lines
    assert printable(shown, lines_max=lines, chars_max=width) == shown
    line = printable_line(text, width)
    assert printable_line(line, width) == line
    assert cells(line) <= width
    assert not obeyed(line, newlines=False)


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=200))
def test_plain_text_is_left_alone(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb", "a    b"),
        ("one\r\ntwo\u2028three", "one\ntwo\nthree"),
        ("\x1b[31mred\x1b[0m\x07\x7f", "␛[31mred␛[0m␇␡"),
        ("\x9b31m", "\ufffd31m"),
        ("evil\u202egnp.exe", "evil\ufffdgnp.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("\u2068Alice\u2069 called \u200e+49 30\u200f, \u061c3 \u2066x\u2067y", "Alice called +49 30, 3 xy"),
        ("\u202aa\u202bb\u202cc\u202dd", "\ufffda\ufffdb\ufffdc\ufffdd"),
        ("private \ue000, lone \ud800", "private \ufffd, lone \ufffd"),
        ("flag 🏴\U000e0067\U000e007f", "flag 🏴"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 3),
        ("\u0301x", "◌\u0301x"),
        ("x\n\u0301y", "x\n◌\u0301y"),
        ("👨‍👩‍👧‍👦 1\ufe0f\u20e3 ❤️", "👨‍👩‍👧‍👦 1\ufe0f\u20e3 ❤️"),
        ("❤\ufe0f\ufe0f\ufe0f e\u0301\ufe0f", "❤\ufe0f e\u0301"),
        ("می‌خواهم", "می‌خواهم"),
        ("a\u200db \ufe0fc", "ab c"),
        ("Zoë, 東京, Привет, שלום", "Zoë, 東京, Привет, שלום"),
        ("[bold]x[/] [@click=app.quit]y[/", "[bold]x[/] [@click=app.quit]y[/"),
        ("\U0001fae8", "\U0001fae8"),
    ],
)
def test_hostile_text_becomes_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_long_texts_are_truncated_visibly() -> None:
    assert printable("\n" * 65_536).split("\n") == [""] * (LINES_MAX - 1) + ["…"]
    assert printable("x" * 1_000_000) == "x" * (CHARS_MAX - 1) + "…"
    assert printable("1\n2\n3", lines_max=3) == "1\n2\n3"
    assert printable("1\n2\n3\n4", lines_max=3) == "1\n2\n…"


def test_one_line_places() -> None:
    assert printable_line("two\nlines\r\n") == "two⏎lines⏎"
    assert printable_line("abcdef", 6) == "abcdef"
    assert printable_line("abcdefg", 6) == "abcde…"
    assert printable_line("漢字漢字", 6) == "漢字…"
    assert cells("漢字e\u0301") == 5
    assert len(printable_line("\t" * 9_999)) == 1_024


FAMILY, FLAG, HEART = "👩\u200d👩\u200d👧\u200d👦", "🇸🇪", "\u2764\ufe0f"


@pytest.mark.parametrize(
    ("text", "width"),
    [(FAMILY, 2), ("👍🏽", 2), (FLAG, 2), (HEART, 2), ("\u2764", 1), ("1\ufe0f\u20e3", 2), ("\u1112\u1161\u11ab", 2)],
)
def test_joined_characters_count_once(text: str, width: int) -> None:
    assert cells(text) == width and cells(text * 3) == 3 * width
    assert printable_line(f"a{text}bcde", 5) == f"a{text}{'bcde'[: 3 - width]}…"


@pytest.mark.slow
def test_all_of_unicode_does_not_fill_the_memory() -> None:
    from zerochat import terminal_text

    for start in range(0, 0x110000, 4096):
        printable("".join(map(chr, range(start, start + 4096))))
    assert len(terminal_text._table) <= terminal_text._Table.SIZE_MAX
    assert printable("\U0001d167a\U0001d168") == "◌\U0001d167a\U0001d168"


# --- QR codes -------------------------------------------------------------------------------------------------------

CODE = "ZC:" + "6BFOXN*TS0BI$ZD4N9:9S6RCVN5+O30K3/XIV0W23NTDEXWK G2EP4J0BGJLFX3R3VHXK.PJ:2DPF7R:5SVHP6A" * 2


def modules(rows: list[str]) -> list[list[bool]]:
    """The matrix that half-block rows draw; True is dark."""
    upper_lower = {" ": (False, False), "▀": (True, False), "▄": (False, True), "█": (True, True)}
    return [[upper_lower[c][half] for c in row] for row in rows for half in (0, 1)]


def test_a_code_has_its_quiet_zone_and_finders() -> None:
    rows = qr_half_blocks(CODE)
    matrix = modules(rows)
    assert len({len(row) for row in rows}) == 1
    for i in range(2):
        assert not any(matrix[i]) and not any(row[i] or row[-1 - i] for row in matrix)
    finder = [[max(abs(x - 3), abs(y - 3)) != 2 for x in range(7)] for y in range(7)]
    assert [row[2:9] for row in matrix[2:9]] == finder
    assert [row[-9:-2] for row in matrix[2:9]] == finder


def test_an_invitation_code_fits_a_small_terminal() -> None:
    assert len(CODE) < 195
    rows = qr_half_blocks(CODE)
    assert len(rows[0]) <= 45 and len(rows) <= 23
    assert len(qr_half_blocks(CODE.lower())[0]) > len(rows[0]), "upper case should use the denser alphanumeric mode"


def test_plain_output_sets_both_colours_and_resets_them() -> None:
    lines = qr_ansi("ZC:A").split("\n")
    assert all(re.fullmatch(r"\x1b\[30;107m[ ▀▄█]+\x1b\[0m", line) for line in lines)


def test_too_long_for_a_code() -> None:
    with pytest.raises(ValueError, match="too long"):
        qr_half_blocks("x" * 3_000)


@pytest.mark.parametrize("text", [CODE, "https://zerochat.org/?_oob=" + "eyJ0eXBlIjoi" * 40, "ZC:Ä"])
def test_a_real_decoder_reads_it(text: str, tmp_path: Path) -> None:
    zxingcpp = pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    scale = 6
    lines = [
        b"".join((b"\x00" if dark else b"\xff") * scale for dark in row)
        for row in modules(qr_half_blocks(text))
        for _ in range(scale)
    ]
    picture = memoryview(b"".join(lines)).cast("B", (len(lines), len(lines[0])))
    found = zxingcpp.read_barcodes(picture)
    assert [code.text for code in found] == [text]
