"""Text helpers: times, wrapping, member names, colours by key.

Text from the agent is sanitised here or where a display value is built.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec import Struct, field
from rich.cells import cell_len, chop_cells, set_cell_size

from zerochat.presentation.lookalikes import SUFFIX_CHARS, likenesses, skeleton
from zerochat.rpc import GroupInfo
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.style.cell_width import install_cell_width

NAME_CELLS_MAX = 32
"""Width of a member's or group's name on the screen."""
NICK_COLOURS = 12
"""Number of distinguishable hues."""
ALL_TAKEN_FROM = 64
"""In larger groups a new member has the colour of its key, which others have too."""
CONVICTED = "§"
"""Mark after the name of a convicted member."""
CLOCK_AHEAD_MAX = timedelta(minutes=2)
"""Tolerance for an author's clock being ahead; beyond, the time of arrival is shown."""

install_cell_width()

_pieces = re.compile(r"\s*\S+|\s+").findall


def titled(info: GroupInfo) -> Printable:
    """The name of a group; of a private conversation, with an @."""
    name = name_of(info.name)
    return Printable(f"@{name}") if info.private is not None else name


def name_of(text: str) -> Printable:
    """A printable member's or group's name."""
    return printable_line(text, NAME_CELLS_MAX) if text.strip() else Printable("?")


def clip(text: str, width: int) -> str:
    """`text` truncated to `width` cells with an ellipsis."""
    if width <= 0:
        return ""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def wrap(text: str, width: int) -> list[str]:
    """`text` wrapped to `width` cells; words longer than a line are broken."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        if len(paragraph) <= width and (paragraph.isascii() or cell_len(paragraph) <= width):
            lines.append(paragraph)
        else:
            lines.extend(_wrap_paragraph(paragraph, max(width, 2)))  # a wide character needs two cells
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
    """An RFC 3339 time in the local time zone; None: invalid."""
    try:
        return datetime.fromisoformat(stamp).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def display_time(sent: str, received: str) -> datetime | None:
    """The displayed time of a message: the author's, unless it is in the future."""
    sent_at, received_at = local_time(sent), local_time(received)
    if sent_at is None or (received_at is not None and sent_at > received_at + CLOCK_AHEAD_MAX):
        return received_at
    return sent_at


@lru_cache(maxsize=64)
def time_cells(format: str) -> int:
    """The greatest width of a time in this format, in the language of the user."""
    days = (
        datetime(2025, month, day, hour, 59, 59, tzinfo=UTC)
        for month in range(1, 13)
        for day in range(22, 29)
        for hour in (9, 22)
    )  # every month, weekday and half of the day
    return max(cell_len(day.strftime(format)) for day in days) if format else 0


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
    """As in "2 min ago"."""
    moment = local_time(stamp)
    if moment is None:
        return "?"
    seconds = (datetime.now().astimezone() - moment).total_seconds()
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {'day' if unit == 'days' and count == 1 else unit} ago"
    return "just now"


def with_suffix(name: str, mark: str, width: int) -> Printable:
    """A name in `width` cells with a suffix (empty: none) that is never truncated."""
    suffix = f"·{mark}" if mark else ""
    return Printable(clip(name, width - len(suffix)) + suffix)


def hue_of(did: str) -> int:
    """The colour index of a key, equal on every machine and independent of the name."""
    from hashlib import blake2s  # loads OpenSSL (4 MB), so import late

    return blake2s(did.encode(errors="replace"), digest_size=2).digest()[0] % NICK_COLOURS


def _hue_distance(one: int, other: int) -> int:
    apart = abs(one - other)
    return min(apart, NICK_COLOURS - apart)


def key_suffix(did: str) -> Printable:
    """The last characters of a key, which disambiguate equal names."""
    return printable_line(did[-SUFFIX_CHARS:])


class Names(Struct):
    """The member names of one group; names that look alike are disambiguated by key suffix."""

    nicks: dict[str, Printable] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    """DIDs of members by each likeness of their names."""
    clipped: dict[int, Counter[str]] = field(default_factory=dict)
    """How many names have each skeleton, by the width to which they are truncated; computed when needed."""
    changed: frozenset[str] = frozenset()
    """DIDs of members under a name that was verified with another key."""
    guilty: frozenset[str] = frozenset()
    """DIDs of convicted members."""
    hues: dict[str, int] = field(default_factory=dict)
    """Colour indices of members, also of those that have left."""
    revision: int = 0
    """Grows with every name."""

    def colour(self, fresh: Iterable[str], members: Collection[str] | None = None) -> bool:
        """Give each new member a colour index of its own, as far as they reach; True when one changed.

        A member keeps its index; where its key's own is taken it gets the one farthest from all others. `fresh` in the
        order of their joining: so no newcomer changes a colour. `members`: all of them, if others have an index; where
        they are many, every index is taken.
        """
        fresh = [did for did in fresh if did not in self.hues]
        changed = False
        if members is None or len(members) > ALL_TAKEN_FROM:
            taken = set(self.hues.values()) if members is None else set(range(NICK_COLOURS))
        else:
            taken = {self.hues[did] for did in members if did in self.hues}
        for did in fresh:
            hue = hue_of(did)
            if hue in taken and (free := [each for each in range(NICK_COLOURS) if each not in taken]):
                hue = max(free, key=lambda each: min(_hue_distance(each, other) for other in taken))
                changed = True
            self.hues[did] = hue
            taken.add(hue)
        return changed

    def hue(self, did: str) -> int:
        """The colour index of a member or a former one."""
        return self.hues[did] if did in self.hues else hue_of(did)

    def learn(self, did: str, nick: str) -> bool:
        """Record a name; True when a label changed."""
        shown = name_of(nick)
        before = self.nicks.get(did)
        if before == shown:
            return False
        for likeness in likenesses(before, did) if before is not None else ():
            self.holders[likeness].discard(did)
        self.nicks[did] = shown
        self.revision += 1
        for width, counter in self.clipped.items():
            counter[skeleton(clip(shown, width))] += 1
            if before is not None:
                counter[skeleton(clip(before, width))] -= 1
        for likeness in likenesses(shown, did):
            self.holders.setdefault(likeness, set()).add(did)
        return before is not None or self._is_shared(did, shown)

    def _is_shared(self, did: str, nick: Printable, width: int = NAME_CELLS_MAX) -> bool:
        """Whether another member's name looks like `nick` in `width` cells."""
        for likeness in likenesses(nick, did):
            holders = self.holders.get(likeness, ())
            if len(holders) > (did in holders):
                return True
        if cell_len(nick) <= width:
            return False
        if width not in self.clipped:
            self.clipped[width] = Counter(skeleton(clip(each, width)) for each in self.nicks.values())
        shown, own = skeleton(clip(nick, width)), skeleton(clip(self.nicks.get(did, ""), width))
        return self.clipped[width][shown] > (shown == own)

    def parts(self, did: str, nick: Printable | None, width: int) -> tuple[Printable, Printable]:
        """A name in `width` cells, and the marks behind it, which are never truncated: the key suffix where another
        member's name looks like it, a warning sign where the name or the member is not trustworthy. `nick`: the name
        at the time; None: the present one."""
        current = self.nicks.get(did, Printable("?"))
        nick = current if nick is None else nick
        marks = ""
        if nick == current:
            marks = "!" * (did in self.changed) + CONVICTED * (did in self.guilty)
        if self._is_shared(did, nick, width - len(marks)):
            marks = f"·{key_suffix(did)}{marks}"
        return Printable(clip(nick, max(width - cell_len(marks), 1))), Printable(marks)

    def label(self, did: str, width: int = NAME_CELLS_MAX) -> Printable:
        """The name in `width` cells, with a key suffix where another member's name looks like it."""
        nick = self.nicks.get(did, Printable("?"))
        return with_suffix(nick, key_suffix(did) if self._is_shared(did, nick, width) else "", width)

    def past_byline(self, did: str, nick: Printable, width: int = NAME_CELLS_MAX) -> Printable:
        """The byline of an author named `nick` at the time."""
        name, marks = self.parts(did, nick, width)
        return Printable(name + marks)

    def byline(self, did: str, width: int = NAME_CELLS_MAX) -> Printable:
        """The label of an author, with a warning sign where name or member is not trustworthy."""
        name, marks = self.parts(did, None, width)
        return Printable(name + marks)
