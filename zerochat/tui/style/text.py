"""Small things about text on the screen: clocks, wrapping, names, and the colour that belongs to a key.

Everything that came from the agent is made printable here or where a value for the screen is built, never later.
"""

import re
from datetime import datetime, timedelta

from msgspec import Struct, field
from rich.cells import cell_len, chop_cells, set_cell_size

from zerochat.terminal_text import Printable, printable_line

NAME_CELLS_MAX = 32
"""A nick or a group's name on the screen; the agent allows longer ones, a column does not."""
NICK_COLOURS = 12
"""Hues that can still be told apart."""
CONVICTED = "§"
"""Behind the name of somebody who was convicted: a case was upheld."""
SUFFIX_CHARS = 4
"""Of a key, behind a nick that two people share: 58⁴ = 11 million possibilities."""
CLOCK_AHEAD_MAX = timedelta(minutes=2)
"""An author's clock that is further ahead than this is not believed; the time of arrival is shown instead."""

_pieces = re.compile(r"\s*\S+|\s+").findall


def name_of(text: str) -> Printable:
    """A nick or a group's name, in one line."""
    return printable_line(text, NAME_CELLS_MAX) if text.strip() else Printable("?")


def clip(text: str, width: int) -> str:
    """`text` in at most `width` cells, with an ellipsis where it was cut."""
    if width <= 0:
        return ""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells; breaks at spaces, and inside a word that is longer than a line."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        if len(paragraph) <= width and (paragraph.isascii() or cell_len(paragraph) <= width):
            lines.append(paragraph)
        else:
            lines.extend(_wrap_paragraph(paragraph, max(width, 2)))  # A wide character needs two cells.
    return lines


def _wrap_paragraph(paragraph: str, width: int) -> list[str]:
    lines: list[str] = []
    line, used = "", 0
    for piece in _pieces(paragraph):
        size = cell_len(piece)
        if used + size <= width:
            line, used = line + piece, used + size
            continue
        if used:
            lines.append(line)
            piece = piece.lstrip(" ")
            size = cell_len(piece)
        if size > width:
            *full, piece = chop_cells(piece, width)
            lines.extend(full)
            size = cell_len(piece)
        line, used = piece, size
    return [*lines, line]


def local_time(stamp: str) -> datetime | None:
    """An RFC 3339 time of the agent's in the person's time zone; None when it is no time."""
    try:
        return datetime.fromisoformat(stamp).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def told_time(sent: str, received: str) -> datetime | None:
    """When to say that a message was written: its author's word, unless that lies in the future."""
    sent_at, received_at = local_time(sent), local_time(received)
    if sent_at is None or (received_at is not None and sent_at > received_at + CLOCK_AHEAD_MAX):
        return received_at
    return sent_at


def day_text(moment: datetime) -> str:
    """As in "Thursday 20 November 2025"."""
    return f"{moment:%A} {moment.day} {moment:%B %Y}"


def clock_text(stamp: str) -> str:
    """As in "20 Nov 14:03", for times that need not be today."""
    moment = local_time(stamp)
    return f"{moment.day} {moment:%b %H:%M}" if moment else "?"


def clock_of(stamp: str) -> str:
    """As in "14:03", or with its day where that is not today."""
    moment = local_time(stamp)
    if moment is None:
        return "?"
    today = datetime.now().astimezone().date() == moment.date()
    return f"{moment:%H:%M}" if today else clock_text(stamp)


def age_of(stamp: str) -> str:
    """As in "2 min ago": how long ago a time was."""
    moment = local_time(stamp)
    if moment is None:
        return "?"
    seconds = (datetime.now().astimezone() - moment).total_seconds()
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {'day' if unit == 'days' and count == 1 else unit} ago"
    return "just now"


def marked(name: str, mark: str, width: int) -> Printable:
    """A name in at most `width` cells, with a mark behind it (empty: none) that is never cut off."""
    suffix = f"·{mark}" if mark else ""
    return Printable(clip(name, width - len(suffix)) + suffix)


def hue_of(did: str) -> int:
    """The colour number of a key: it follows the key, never the name, and is the same on every machine."""
    from hashlib import blake2s  # and with it all of OpenSSL: four megabytes, before there is a nick to colour

    return blake2s(did.encode(errors="replace"), digest_size=2).digest()[0] % NICK_COLOURS


def key_suffix(did: str) -> Printable:
    """The last letters of a key, to tell two people with one nick apart."""
    return printable_line(did[-SUFFIX_CHARS:])


class Names(Struct):
    """Who is called what in one group, so that two people with one nick are never shown as one."""

    nicks: dict[str, Printable] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    """Those who are not whom the person verified under the name that they bear."""
    guilty: frozenset[str] = frozenset()
    """Those who were convicted of something, as the agent has worked out itself."""

    def learn(self, did: str, nick: str) -> bool:
        """Note a nick; True when somebody's label changed by it."""
        shown = name_of(nick)
        before = self.nicks.get(did)
        if before == shown:
            return False
        if before is not None:
            self.holders[before.casefold()].discard(did)
        self.nicks[did] = shown
        self.holders.setdefault(shown.casefold(), set()).add(did)
        return before is not None or len(self.holders[shown.casefold()]) > 1

    def label(self, did: str, width: int = NAME_CELLS_MAX) -> Printable:
        """The nick in `width` cells, with letters of the key behind it when another key has the same nick."""
        nick = self.nicks.get(did, Printable("?"))
        shared = len(self.holders.get(nick.casefold(), ())) > 1
        return marked(nick, key_suffix(did) if shared else "", width)

    def byline_then(self, did: str, nick: Printable, width: int) -> Printable:
        """The byline of whoever was called `nick` then, with letters of the key where that is another's name now."""
        if self.nicks.get(did) == nick:
            return self.byline(did, width)
        taken = self.holders.get(nick.casefold(), set()) - {did}
        return marked(nick, key_suffix(did) if taken else "", width)

    def byline(self, did: str, width: int = NAME_CELLS_MAX) -> Printable:
        """The label of whoever did something, with a warning behind it where the name, or its bearer, is not to be
        trusted."""
        sign = "!" * (did in self.changed) + CONVICTED * (did in self.guilty)
        return Printable(self.label(did, max(width - len(sign), 1)) + sign) if sign else self.label(did, width)
