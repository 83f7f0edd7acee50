"""Terminal escape payloads, and a parser of the output that a terminal received.

`PAYLOADS` are put wherever a peer can put text. `Sent` reads the bytes from the other end of a pseudo-terminal as a
terminal would, sequence by sequence, and names each sequence that zerochat does not emit itself.
"""

import re
import unicodedata
from collections import Counter

from zerochat.terminal_text import cells, printable_line
from zerochat.tui.style.text import NAME_CELLS_MAX

ZWJ = "\u200d"
EVIL = "UFdORUQ"
"""Stands in every sequence that carries something, so that it is found wherever it comes out."""

PAYLOADS = {
    "clears the screen": "\x1b[2J\x1b[H",
    "colours": "\x1b[38;2;66;66;6m\x1b[5;8m",
    "makes the terminal answer": "\x1b[6n\x1b[c\x1b[21t",
    "renames the window": f"\x1b]0;{EVIL}\x07\x1b]2;{EVIL}\x1b\\",
    "writes the clipboard": f"\x1b]52;c;{EVIL}=\x07",
    "links elsewhere": f"\x1b]8;;https://{EVIL}.example\x1b\\here\x1b]8;;\x1b\\",
    "device control": f"\x1bP+q{EVIL}\x1b\\\x1bPq#0\x1b\\",
    "other strings": f"\x1b_{EVIL}\x1b\\\x1b^{EVIL}\x1b\\",
    "resets": "\x1bc\x1b7\x1b8\x1b(0",
    "eight bits": f"\x9b2J\x9d0;{EVIL}\x9c\x90q\x9c",
    "eight bits as text": "\u009b31m\u0085\u0084",
    "bell": "\x07\x07",
    "shifts": "\x0e\x0f",
    "nothing": "\x00\x00\x01",
    "back": "\x08\x08\x08\x7f",
    "return": "\rover",
    "tabs and pages": "\t\x0b\x0c\x1c",
    "lines": "\n\r\n\u2028\u2029\nlast",
    "turns round": "\u202egnp.exe\u202d\u202b",
    "isolates": "\u2066\u2067\u2068\u2069\u200e\u200f\u061c",
    "no width": "\u200b\u2060\ufeff\u00ad\u180e",
    "tags": "\U000e0041\U000e0020\U000e007f",
    "private": "\ue000\U000f0000\ufffe",
    "blank": "\u3164\u115f\uffa0",
    "tower": "e" + "\u0301" * 60,
    "a chain": ("👩" + ZWJ) * 20,
    "acts": "[@click=app.quit]x[/]",
    "unbalanced": "[/b][/][bold",
    "a template": "$body {0} %s %n \\[",
    "from right to left": "שלום",
    "looks alike": "b\u043eb",
}
"""By what it would do, in few enough cells that none is cut off where a name stands."""
HARMLESS = {"acts", "unbalanced", "a template", "from right to left", "looks alike"}
"""Those that are nothing to a terminal: they would do something to a program, or to its reader."""


def _bundles() -> list[str]:
    """The payloads again, as many together as a name has room for."""
    bundles = [""]
    for text in PAYLOADS.values():
        both = bundles[-1] + text
        bundles = [*bundles[:-1], both] if cells(printable_line(both)) <= NAME_CELLS_MAX else [*bundles, text]
    return bundles


BUNDLES = _bundles()

_TOKENS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # OSC, DCS, SOS, PM, APC: strings up to their end
    r"|\x1b[ -/]*[0-~]?"  # any other escape sequence
    r"|\r\n|[\x00-\x1f\x7f-\x9f]"
    r"|[^\x00-\x1f\x7f-\x9f]+",
    re.DOTALL,
)
_OURS = re.compile(
    r"\x1b\[[\d;]*m"  # colours and styles
    r"|\x1b\[\d+;\d+H"  # the cursor
    r"|\x1b\[\?\d+(?:;\d+)*[hl]"  # modes: the other screen, the mouse, pasting, focus
    r"|\x1b\[\?\d+\$p"  # asks for a mode
    r"|\x1b\[[<>=]\d*(?:;\d+)?u"  # the keyboard
    r"|\x1b\]22;[a-z]+\x07"  # the mouse pointer's shape
    r"|\r\n"
)
_BLANK = "\u115f\u1160\u3164\uffa0"
"""Letters that nobody sees."""
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def _strange(char: str) -> bool:
    """Whether a character has no business on a screen."""
    category = unicodedata.category(char)
    if category == "Cn":
        return ord(char) not in range(0x1F000, 0x1FB00)
    if category == "Cf":
        return char not in (ZWJ, "\u200c")
    return ord(char) in _BIDI or char in _BLANK or category in ("Cc", "Cs", "Co", "Zl", "Zp")


_PLACED = re.compile(rb"\x1b7( *)\x1b8([^\x1b]+)\x1b8(?:\x1b\[\d+C)?")


def unplaced(output: bytes) -> bytes:
    """The output of the chat without the cursor moves round runs of unsettled width (`tui/host/cell_grid.py`)."""
    return _PLACED.sub(rb"\2", output)


class Sent:
    """What a terminal was sent: `bad` names what it should not have been, each with how often; `text` is the rest."""

    def __init__(self, output: bytes) -> None:
        self.bad: Counter[str] = Counter()
        shown: list[str] = []
        decoded = output.decode(errors="surrogateescape")
        for token in _TOKENS.findall(decoded):
            if token[0] < " " or "\x7f" <= token[0] <= "\x9f":
                if not _OURS.fullmatch(token) or EVIL in token:
                    self.bad[repr(token)[:60]] += 1
                elif token.endswith("m") and self._is_odd(token):
                    self.bad[repr(token)] += 1
                continue
            shown.append(token)
            self.bad.update(f"U+{ord(char):04X}" for char in token if _strange(char))
            if tower := re.search(r"[\u0300-\u036f]{4,}", token):
                self.bad[f"{len(tower[0])} marks on one letter"] += 1
            if f"👩{ZWJ}" * 6 in token:
                self.bad["a chain of joined emoji"] += 1
        self.text = "\n".join(shown)

    @staticmethod
    def _is_odd(colour: str) -> bool:
        """Blinking, hidden, or the payload's own colour."""
        plain = re.sub(r"[34]8;(?:2;\d+;\d+;\d+|5;\d+)", "", colour[2:-1])
        return "66;66;6" in colour or not {"5", "8"}.isdisjoint(plain.split(";"))
