"""A safe subset of Markdown for the message pane: plain text to lines of marked pieces, in linear time.

`**bold**`, `*italic*`, `_italic_`, `` `code` ``, fenced code, `> quotes` and bare https links; everything else stays
literal. Rich's and Textual's parsers never see a peer's text. Delimiters inside words (`2*3*4`, `*.py`,
`snake_case`) are literal. Code delimiters stay visible, since spaces inside count; those of bold and italic are
removed.
"""

import re
from typing import TypeAlias

from rich.cells import chop_cells

from zerochat.tui.style.text import wrap

BOLD, ITALIC, SLANT, CODE, LINK, QUOTED, SIGN, NAME = (1 << bit for bit in range(8))
"""Marks of a piece; `*` and `_` have separate ones, since they may overlap. SIGN: drawn by us. NAME: placeholder of
the author's name."""

Piece: TypeAlias = tuple[str, int]
Line: TypeAlias = tuple[Piece, ...]

SIGNS_MAX = 400
"""Delimiters interpreted per message, a bound on layout time."""
FENCE = "```"
QUOTE_SIGN, CODE_SIGN = "▎ ", "┊ "
"""Prefixes of the lines of a quote and of fenced code."""
SIGN_CELLS = 2

_anything = re.compile(r"[*_`]|^>|https://", re.MULTILINE).search
_inline = re.compile(r"`[^`\n]+`|https://[^\s<>\"`]+|(?<![*\\])\*{1,2}(?!\*)|(?<![_\\])_(?!_)")
_BITS = {"**": BOLD, "*": ITALIC, "_": SLANT}


def lay_out(text: str, width: int, *, lead: int = 0, marked: bool = True) -> list[Line]:
    """The lines of `text` in `width` cells. The first starts with `lead` cells for the author's name (0: none);
    `marked` False: no Markdown."""
    if not marked or _anything(text) is None:
        return _plain(text, width, lead)
    paragraphs = text.split("\n")
    ends = [at for at, each in enumerate(paragraphs) if each.rstrip() == FENCE]
    lines: list[Line] = []
    if lead and (paragraphs[0].startswith(("> ", FENCE))):
        lines.append((("x" * lead, NAME),))
        lead = 0
    at, nearest = 0, 0
    left = [SIGNS_MAX]
    while at < len(paragraphs):
        while nearest < len(ends) and ends[nearest] <= at:
            nearest += 1
        entry = paragraphs[at]
        if _opens_code(entry) and nearest < len(ends) and ends[nearest] > at + 1:
            lines += _code(entry[len(FENCE) :].strip(), paragraphs[at + 1 : ends[nearest]], width)
            at = ends[nearest] + 1
            continue
        if entry.startswith("> "):
            inside = _broken(_pieces(entry[2:], QUOTED, left), width - SIGN_CELLS)
            lines += [((QUOTE_SIGN, SIGN), *line) for line in inside]
        else:
            first: list[Piece] = [("x" * lead, NAME), (" ", 0)] if lead and at == 0 else []
            lines += _broken([*first, *_pieces(entry, 0, left)], width)
        at += 1
    return lines


def links_in(text: str, most: int) -> list[str]:
    """The distinct https links in a raw text, at most `most`."""
    found: dict[str, None] = {}
    for each in re.finditer(r"https://[^\s<>\"`]+", text):
        if len(found) >= most:
            break
        found.setdefault(_trimmed(each.group()))
    return list(found)


def _plain(text: str, width: int, lead: int) -> list[Line]:
    if not lead:
        return [((line, 0),) for line in wrap(text, width)]
    first, *others = wrap(f"{'x' * lead} {text}", width)
    return [(("x" * lead, NAME), (first[lead:], 0)), *(((line, 0),) for line in others)]


def _opens_code(paragraph: str) -> bool:
    return paragraph.startswith(FENCE) and "`" not in paragraph[len(FENCE) :]


def _code(tag: str, paragraphs: list[str], width: int) -> list[Line]:
    """Fenced code, broken at the line end, not at spaces. `tag`: the text after the fence; shown, so that no part of a
    message is hidden."""
    room = max(width - SIGN_CELLS, 2)
    named: list[Line] = [((CODE_SIGN + piece, SIGN),) for piece in chop_cells(tag, room)]
    pieces = [piece for paragraph in paragraphs for piece in (chop_cells(paragraph, room) or [""])]
    return [*named, *(((CODE_SIGN, SIGN), (piece, CODE)) for piece in pieces)]


def _trimmed(link: str) -> str:
    """A link without trailing punctuation of its sentence."""
    signs = ".,;:!?'*_]}" if "(" in link else ".,;:!?'*_]})"
    return link.rstrip(signs)


def _pieces(text: str, base: int, left: list[int]) -> list[Piece]:
    """A paragraph in marked pieces; `left` counts down the delimiters still interpreted."""
    toggles: dict[int, int] = {}
    cuts: dict[int, int] = {}
    open_at: dict[str, int] = {}
    at = 0
    while left[0] > 0 and (found := _inline.search(text, at)) is not None:
        left[0] -= 1
        start, end, sign = found.start(), found.end(), found.group()
        at = end
        if sign not in _BITS:
            if sign[0] != "`":
                at = end = start + max(len(_trimmed(sign)), len("https://"))
            _toggle(toggles, start, end, CODE if sign[0] == "`" else LINK)
            continue
        before, after = text[start - 1 : start], text[end : end + 1]
        begun = open_at.get(sign)
        if begun is not None and begun < start and not before.isspace() and not after.isalnum():
            _toggle(toggles, begun, start, _BITS[sign])
            cuts[begun - len(sign)], cuts[start] = begun, end
            del open_at[sign]
        elif after and not after.isspace() and not before.isalnum():
            open_at[sign] = end
    pieces: list[Piece] = []
    at, marks = 0, base
    for edge in sorted({*toggles, *cuts, len(text)}):
        if edge > at:
            pieces.append((text[at:edge], marks))
            at = edge
        marks ^= toggles.get(edge, 0)
        at = cuts.get(edge, at)
    return pieces


def _toggle(toggles: dict[int, int], start: int, end: int, bit: int) -> None:
    toggles[start] = toggles.get(start, 0) ^ bit
    toggles[end] = toggles.get(end, 0) ^ bit


def _broken(pieces: list[Piece], width: int) -> list[Line]:
    """Pieces wrapped to `width` cells. Wrapping only drops spaces at line ends."""
    text = "".join(piece for piece, _ in pieces)
    lines: list[Line] = []
    at = number = start = 0  # in the text; the piece there, and where that begins
    for shown in wrap(text, width):
        at = text.index(shown, at)
        end = at + len(shown)
        line: list[Piece] = []
        while number < len(pieces) and start < end:
            piece, marks = pieces[number]
            if part := piece[max(at - start, 0) : end - start]:
                line.append((part, marks))
            if start + len(piece) > end:
                break
            start += len(piece)
            number += 1
        lines.append(tuple(line) or (("", 0),))
        at = end
    return lines
