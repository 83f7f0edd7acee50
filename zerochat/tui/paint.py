"""Turns rows of a timeline into strips of styled cells.

Kept apart from the pane, which only asks for line n. Everything here is a `Segment` with plain text: no markup is ever
parsed, so nothing that a peer writes can become a style, a link or an action.
"""

from colorsys import hls_to_rgb, rgb_to_hls
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip

from zerochat.tui.text import NICK_COLOURS, Names, clip, hue_of, wrap
from zerochat.tui.timeline import MARGIN, Row, Timeline

CONTRAST_MIN = 4.5
"""WCAG 2.2, success criterion 1.4.3: text of normal size against its background."""
_ANSI_NAMES = (
    "blue", "green", "magenta", "cyan", "red", "yellow", "bright_blue", "bright_green", "bright_magenta", "bright_cyan",
    "bright_red", "bright_yellow",
)  # fmt: skip
LABELS = ("time", "bar", "body", "pending", "quiet", "mark", "delivered", "day", "unread", "head")
"""The pane's component classes, without their prefix."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The styles of one pane in one theme; `nicks` by `hue_of`."""

    base: Style
    labels: dict[str, Style]
    nicks: tuple[Style, ...]

    def __getitem__(self, label: str) -> Style:
        return self.labels[label]


def nick_styles(base: Style, background: Color, primary: Color, ansi: bool) -> tuple[Style, ...]:
    """Twelve hues from the theme's primary colour round the circle, each light or dark enough for the background.

    A terminal's own colours (`ansi`) cannot be measured; there the sixteen names are used as they are.
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


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2.2, from 1 (none) to 21."""

    def luminance(colour: Color) -> float:
        parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def rule(text: str, width: int, style: Style) -> Strip:
    """`text` in the middle of a line across the pane."""
    text = f" {clip(text, max(width - 6, 1))} "
    left = max((width - cell_len(text)) // 2, 0)
    right = max(width - cell_len(text) - left, 0)
    return Strip([Segment("─" * left + text + "─" * right, style)]).crop(0, width)


def note(text: str, width: int, style: Style) -> list[Strip]:
    """A sentence of ours in the middle of the pane."""
    return [Strip([Segment(" " * max((width - cell_len(line)) // 2, 0) + line, style)]) for line in wrap(text, width)]


def mark_of(row: Row) -> tuple[str, str]:
    """(text, label of its style) of what stands in the right margin."""
    if row.own:
        if row.delivered == 0:
            return f"0/{row.of}", "mark"
        return f"✓{row.delivered}/{row.of}", "delivered" if row.delivered >= row.of else "mark"
    return "vouched" if row.vouched else "late", "mark"


def paint(timeline: Timeline, index: int, names: Names, palette: Palette) -> list[Strip]:
    """The lines of row `index`: separators that belong above it, then its text; as many as its height."""
    row, columns = timeline.rows[index], timeline.columns
    strips: list[Strip] = []
    if timeline.starts_day(index):
        strips.append(rule(row.day, columns.width, palette["day"]))
    if row.key == timeline.unread:
        strips.append(rule("new", columns.width, palette["unread"]))
    if row.kind == "quiet":
        return [*strips, *_quiet(timeline, row, names, palette)]

    starts = timeline.starts_group(index)
    nick_style = palette.nicks[hue_of(row.author)]
    if columns.stacked:
        if starts:
            nick = names.byline(row.author, columns.nick)
            head = [Segment(nick, nick_style), Segment(f" {row.time}", palette["time"])]
            strips.append(Strip(head).crop(0, columns.width))
        gutter = [Segment(" " * columns.gutter, palette.base)]
        first = [Segment("· "[: columns.gutter], palette["bar"])]  # Where one post ends and the next begins.
    else:
        shown = names.byline(row.author, columns.nick) if starts else ""
        space = " " * (columns.nick - cell_len(shown))
        first = [
            Segment(f"{row.time:5} ", palette["time"]),
            Segment(space + shown, nick_style),
            Segment(" │ ", palette["bar"]),
        ]
        gutter = [Segment(" " * (6 + columns.nick), palette.base), Segment(" │ ", palette["bar"])]

    pending = row.own and row.of > 0 and row.delivered == 0
    body = palette["pending" if pending else "body"]
    width = columns.text_width(row)
    lines = wrap(row.text, width)
    whole = len(lines)
    lines += wrap(row.cut, width) if row.cut else []
    for number, line in enumerate(lines):
        segments = [*(first if number == 0 else gutter), Segment(line, body if number < whole else palette["mark"])]
        if row.marked and number == len(lines) - 1:
            mark, label = mark_of(row)
            mark = clip(mark, MARGIN)
            filling = max(width - cell_len(line) + MARGIN - cell_len(mark), 0)
            segments += [Segment(" " * filling, palette.base), Segment(mark, palette[label])]
        strips.append(Strip(segments))
    return strips


def _quiet(timeline: Timeline, row: Row, names: Names, palette: Palette) -> list[Strip]:
    columns = timeline.columns
    name, (first, *others) = columns.quiet_lines(row)
    gutter = "— "[: columns.gutter] if columns.stacked else f"{row.time:5} {'—':>{columns.nick}}   "
    lines = [gutter + names.byline_then(row.author, row.nick, name) + first]
    lines += [" " * columns.gutter + line for line in others]
    return [Strip([Segment(line, palette["quiet"])]).crop(0, columns.width) for line in lines]
