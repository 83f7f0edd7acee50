"""Painting of timeline rows as strips of styled cells.

All output is `Segment`s with plain text. No markup is parsed, so a peer's text cannot become a style, link or action.
"""

import re
from colorsys import hls_to_rgb, rgb_to_hls
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.widget import Widget

from zerochat.terminal_text import Printable
from zerochat.tui.messages.layout import QUOTE_BAR, LayoutLine, lines_of
from zerochat.tui.messages.markdown import BOLD, CODE, ITALIC, LINK, NAME, QUOTED, SIGN, SLANT
from zerochat.tui.messages.row import MARGIN, NAME_PLACES, Columns, Row
from zerochat.tui.messages.timeline import Timeline
from zerochat.tui.style.text import NAME_CELLS_MAX, NICK_COLOURS, Names, clip, wrap

CONTRAST_MIN = 4.5
"""WCAG 2.2, success criterion 1.4.3: text of normal size against its background."""
_ANSI_NAMES = (
    "blue", "green", "magenta", "cyan", "red", "yellow", "bright_blue", "bright_green", "bright_magenta", "bright_cyan",
    "bright_red", "bright_yellow",
)  # fmt: skip
_names_or_text = re.compile("|".join([*(f"{place}+" for place in NAME_PLACES), f"[^{''.join(NAME_PLACES)}]+"])).findall
MARK_GAP = 2
"""Cells between a text and its mark: beside the text, wherever the eye is."""
LABELS = (
    "time", "bar", "body", "pending", "quiet", "mark", "delivered", "day", "unread", "head", "quote", "code",
    "reaction", "mine", "mention", "selected",
)  # fmt: skip
"""The pane's component classes, without their prefix."""
BAR, MENTION_BAR, SELECTED_BAR = "│", "┃", "▌"
"""Left of a text: normal, mentioning me, selected."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The styles of the pane in the current theme; `nicks` are indexed by `Names.hue`."""

    base: Style
    labels: dict[str, Style]
    nicks: tuple[Style, ...]
    bare: bool = False
    """No colours (NO_COLOR)."""

    def __getitem__(self, label: str) -> Style:
        return self.labels[label]


def nick_styles_of(widget: Widget) -> tuple[Style, ...]:
    """The styles of names in a widget, in the current theme."""
    theme = widget.app.current_theme
    primary = Color.parse(widget.app.theme_variables.get("primary", theme.primary))
    return nick_styles(widget.rich_style, widget.background_colors[1], primary, theme.ansi)


def nick_styles(base: Style, background: Color, primary: Color, ansi: bool) -> tuple[Style, ...]:
    """Twelve hues starting at the theme's primary colour, each with sufficient contrast.

    Terminal colours (`ansi`) cannot be measured; they are used by name.
    """
    if ansi:
        return tuple(base + Style(color=name, bold=True) for name in _ANSI_NAMES[:NICK_COLOURS])
    hue, _, saturation = rgb_to_hls(*primary.normalized)
    saturation = min(max(saturation, 0.45), 0.75)
    step = 0.02 if background.brightness < 0.5 else -0.02
    styles = []
    for number in range(NICK_COLOURS):
        lightness = 0.5
        while True:
            red, green, blue = hls_to_rgb((hue + number / NICK_COLOURS) % 1, lightness, saturation)
            colour = Color(round(red * 255), round(green * 255), round(blue * 255))
            if contrast(colour, background) >= CONTRAST_MIN or not 0.04 < lightness < 0.96:
                break
            lightness += step
        styles.append(base + Style(color=colour.rich_color, bold=True))
    return tuple(styles)


def contrast(entry: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.2, from 1 (none) to 21."""

    def luminance(colour: Color) -> float:
        parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    lighter, darker = sorted((luminance(entry), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def rule(text: str, width: int, style: Style) -> Strip:
    """`text` centred in a horizontal rule."""
    text = f" {clip(text, max(width - 6, 1))} "
    left = max((width - cell_len(text)) // 2, 0)
    right = max(width - cell_len(text) - left, 0)
    return Strip([Segment("─" * left + text + "─" * right, style)]).crop(0, width)


def note(text: str, width: int, style: Style) -> list[Strip]:
    """A centred sentence of the application."""
    return [Strip([Segment(" " * max((width - cell_len(line)) // 2, 0) + line, style)]) for line in wrap(text, width)]


def mark_of(row: Row) -> tuple[str, str]:
    """(text, style label) of the mark behind the text."""
    if row.void:
        return "void", "mark"
    if row.own:
        if row.delivered == 0:
            return f"0/{row.of}", "mark"
        return f"✓{row.delivered}/{row.of}", "delivered" if row.delivered >= row.of else "mark"
    return "relayed" if row.relayed else "late", "mark"


def paint(timeline: Timeline, index: int, names: Names, palette: Palette, *, selected: bool = False) -> list[Strip]:
    """The lines of row `index`: separators above it, then its text; as many as its height."""
    row, columns = timeline.shown(index), timeline.columns
    strips: list[Strip] = []
    if timeline.starts_day(index):
        strips.append(rule(row.day, columns.width, palette["day"]))
    if row.key == timeline.unread:
        strips.append(rule("new", columns.width, palette["unread"]))
    if row.kind == "quiet":
        return [*strips, *_quiet(timeline, row, names, palette)]
    starts = timeline.starts_group(index)
    if columns.stacked and starts and not row.action:
        strips.append(_name_line(row, columns, names, palette))
    first, gutter = _gutters(row, columns, names, palette, starts=starts, selected=selected)
    width = columns.text_width
    lines = lines_of(row, columns, timeline.markdown)
    for number, line in enumerate(lines):
        text = _line(row, line, width, names, palette)
        segments = [*(first if number == 0 else gutter), *text]
        if row.has_mark and number == len(lines) - 1:
            mark, label = mark_of(row)
            mark = clip(mark, MARGIN)
            used = sum(cell_len(segment.text) for segment in text)
            gap = min(MARK_GAP, max(width - used - cell_len(mark), 0)) if used else 0
            segments += [Segment(" " * gap, palette.base), Segment(mark, palette[label])]
        strip = Strip(segments)
        strips.append(_lit(strip, columns.width, palette["selected"]) if selected else strip)
    return strips


def with_name(strip: Strip, row: Row, columns: Columns, names: Names, palette: Palette) -> Strip:
    """A line of a post with its author in the name column; without that column, the author instead of the line."""
    if columns.stacked:
        return _name_line(row, columns, names, palette)
    start, end = columns.time_cells, columns.time_cells + columns.nick
    beside = Style(bgcolor=next((part.style.bgcolor for part in strip.crop(start, end) if part.style), None))
    name = _right(_byline(names, row.author, None, columns.nick, palette), columns.nick, palette)
    return Strip([*strip.crop(0, start), *Segment.apply_style(name, post_style=beside), *strip.crop(end)])


def _byline(names: Names, did: str, nick: Printable | None, width: int, palette: Palette) -> list[Segment]:
    """A name in its member's colour, and its marks in a style that no name has."""
    name, marks = names.parts(did, nick, width)
    found = [Segment(name, palette.nicks[names.hue(did)])]
    return [*found, Segment(marks, palette["mark"])] if marks else found


def _right(segments: list[Segment], width: int, palette: Palette) -> list[Segment]:
    """The segments at the right end of `width` cells."""
    used = sum(cell_len(segment.text) for segment in segments)
    return [Segment(" " * (width - used), palette.base), *segments]


def _name_line(row: Row, columns: Columns, names: Names, palette: Palette) -> Strip:
    """The author and the time, above the text."""
    nick = _byline(names, row.author, None, columns.nick, palette)
    return Strip([*nick, Segment(f" {columns.clock(row)}".rstrip(), palette["time"])]).crop(0, columns.width)


def _gutters(
    row: Row, columns: Columns, names: Names, palette: Palette, *, starts: bool, selected: bool
) -> tuple[list[Segment], list[Segment]]:
    """The gutters of the first line and of the other lines of a text."""
    bar, bar_style = ("" if row.action else BAR), palette["bar"]
    if row.mention:
        bar, bar_style = MENTION_BAR, palette["mention"]
    if selected:
        bar, bar_style = SELECTED_BAR, palette["mention" if row.mention else "unread"]
    if columns.stacked:
        loud = selected or row.mention
        sign = bar if loud else "*" if row.action else "·"  # Where one post ends and the next begins.
        other = bar if loud else ""
        first = [Segment(f"{sign:2}"[: columns.gutter], bar_style)]
        return first, [Segment(f"{other:2}"[: columns.gutter], bar_style)]
    shown = _byline(names, row.author, None, columns.nick, palette) if starts else []
    if row.action:
        shown = [Segment("*", palette["quiet"])]
    beside = Segment(f" {bar:1} ", bar_style)
    first = [Segment(columns.clock(row), palette["time"]), *_right(shown, columns.nick, palette), beside]
    return first, [Segment(" " * (columns.time_cells + columns.nick), palette.base), beside]


def _line(row: Row, line: LayoutLine, width: int, names: Names, palette: Palette) -> list[Segment]:
    """The segments of one line of a post."""
    match line.kind:
        case "quote":
            return [Segment(clip(_quote(row, names), width), palette["quote"])]
        case "reactions":
            return [Segment(text, palette["mine" if mine else "reaction"]) for text, mine in line.pieces]
        case "note" | "file":
            base = palette["mark"]
        case _:
            pending = row.own and row.of > 0 and row.delivered == 0
            base = palette["pending" if pending else "body"]
            if row.mention and palette.bare:
                base += Style(bold=True)
    segments = []
    for text, marks in line.pieces:
        if marks & NAME:
            segments += _byline(names, row.author, row.nick, len(text), palette)
        else:
            segments.append(Segment(text, _styled(base, marks, palette) if marks else base))
    return segments


def _styled(base: Style, marks: int, palette: Palette) -> Style:
    if marks & SIGN:
        return palette["mark"]
    style = base
    if marks & QUOTED:
        style += palette["quote"]
    if marks & CODE:
        style += palette["code"]
    if marks & LINK:
        style += Style(underline=True)
    if marks & BOLD:
        style += Style(bold=True)
    if marks & (ITALIC | SLANT):
        style += Style(italic=True)
    return style


def _quote(row: Row, names: Names) -> str:
    """The quote line: "│ alice: start of the text"."""
    quote = row.quote
    assert quote is not None
    if not quote.author:
        return f"{QUOTE_BAR}a message that is not available"
    text = "(deleted)" if quote.deleted else quote.text
    return f"{QUOTE_BAR}{names.past_byline(quote.author, quote.nick, NAME_CELLS_MAX)}: {text}"


def _lit(strip: Strip, width: int, style: Style) -> Strip:
    """A line of the selected post, highlighted up to the edge."""
    full = strip.extend_cell_length(width).crop(0, width)
    lit = Style(bgcolor=style.bgcolor)
    return Strip([Segment(each.text, each.style + lit if each.style else lit) for each in full])


def _quiet(timeline: Timeline, row: Row, names: Names, palette: Palette) -> list[Strip]:
    columns = timeline.columns
    first = "— "[: columns.gutter] if columns.stacked else f"{columns.clock(row)}{'—':>{columns.nick}}   "
    bearers = ([] if row.fold else [(row.author, row.nick)]) + [(each.did, each.nick) for each in row.subjects]
    strips = []
    for number, line in enumerate(columns.quiet_lines(row)):
        segments = [Segment(" " * columns.gutter if number else first, palette["quiet"])]
        for piece in _names_or_text(line):
            at = ord(piece[0]) - ord(NAME_PLACES[0])
            if 0 <= at < len(bearers):
                segments += _byline(names, *bearers[at], len(piece), palette)
            else:
                segments.append(Segment(piece, palette["quiet"]))
        strips.append(Strip(segments).crop(0, columns.width))
    return strips
