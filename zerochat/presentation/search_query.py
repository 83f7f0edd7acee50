"""Search query syntax, and matching of queries in texts.

    bridge eight        posts with a word that begins with `bridge` and one that begins with `eight`
    "by the bridge"     this phrase
    from:alice          posts of Alice; `from:me` my own
    to:me               posts that mention me; `to:alice` Alice
    in:hikers           in this group
    after:2026-03-01    from this day on; also 2026-03-01T18:00, 18:00, today, yesterday, 12h, 7d, 2w
    before:2026-04-01   earlier than this day

There are no syntax errors: anything else is a word, and tokens without a letter, digit or symbol are ignored. Case,
accents, points and widths are ignored (`search_text`). Chinese, Japanese, Korean, Thai and others are matched character
by character; a symbol such as an emoji is a word.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from zerochat.errors import LocalError
from zerochat.presentation import search_text
from zerochat.presentation.search_text import fold, words_of

QUERY_CHARS_MAX: Final = 512
TERMS_MAX: Final = 16
EXCERPT_CHARS: Final = 160
LEAD_CHARS: Final = 40
"""Characters of an excerpt before the first match."""
SOUGHT_CHARS_MAX: Final = 16 * 1024
"""Part of a text in which matches are highlighted; later matches show the start of the text."""
SPANS_MAX: Final = 32

_PIECE: Final = re.compile(r'(?:(from|to|in|before|after):)?(?:"([^"]*)(?:"|$)|(\S+))', re.IGNORECASE)
_AGO: Final = re.compile(r"(\d{1,5})([hdw])", re.ASCII)
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_UNITS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_TIME_MAX: Final = 253_402_300_799_000


class BadSearch(LocalError):
    """Invalid search: {why}."""


class Term(Struct, frozen=True):
    """A word or a phrase."""

    text: str
    whole: bool = False
    """Whether the last word must match completely, not as a prefix."""


class Query(Struct, frozen=True):
    """A search query; all conditions must match."""

    terms: tuple[Term, ...] = ()
    authors: tuple[str, ...] = ()
    """Names as typed; a post must be by one of them."""
    called: tuple[str, ...] = ()
    """Names as typed; a post must mention one of them."""
    groups: tuple[str, ...] = ()
    after: int | None = None
    """Earliest time, UTC ms."""
    before: int | None = None
    """Exclusive latest time, UTC ms."""


# --- parsing --------------------------------------------------------------------------------------------------------


def read_query(text: str, now: int) -> Query:
    """Parse a query. `now`: UTC ms. Raises BadSearch for an invalid date or a query that is too long."""
    if len(text) > QUERY_CHARS_MAX:
        raise BadSearch(why=f"it has more than {QUERY_CHARS_MAX} characters")
    terms: list[Term] = []
    kept: dict[str, list[str]] = {"from": [], "to": [], "in": []}
    times: dict[str, list[int]] = {"after": [], "before": []}
    for found in _PIECE.finditer(text):
        key = (found[1] or "").lower()
        value = found[2] if found[2] is not None else found[3]
        if not key:
            terms += [Term(value, whole=found[2] is not None)] if words_of(fold(value)) else []
        elif key in kept:
            kept[key] += [value] if value.strip("@ ") else []
        elif value.strip():
            times[key].append(read_time(value, now))
    if len(terms) > TERMS_MAX:
        raise BadSearch(why=f"it has more than {TERMS_MAX} words")
    return Query(
        tuple(terms),
        tuple(kept["from"]),
        tuple(kept["to"]),
        tuple(kept["in"]),
        max(times["after"], default=None),
        min(times["before"], default=None),
    )


def read_time(text: str, now: int) -> int:
    """Parse a local date or time, as UTC ms. Raises BadSearch."""
    value = text.strip().lower()
    here = datetime.fromtimestamp(now / 1000)  # noqa: DTZ006  # local time
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if ago := _AGO.fullmatch(value):
            time = now - int(ago[1]) * _UNITS[ago[2]]
        elif clock := _CLOCK.fullmatch(value):
            moment = midnight.replace(hour=int(clock[1]), minute=int(clock[2]))
            time = _ms(moment if moment <= here else moment - timedelta(days=1))
        elif value in ("today", "yesterday"):
            time = _ms(midnight if value == "today" else midnight - timedelta(days=1))
        else:
            time = _ms(datetime.fromisoformat(value))
    except (ValueError, OverflowError, OSError):
        why = (
            f"{text[:32]!a} is not a date such as 2026-03-01, 2026-03-01T18:00, 18:00, today, yesterday, 12h, 7d or 2w"
        )
        raise BadSearch(why=why) from None
    return max(0, min(time, _TIME_MAX))


def with_zone(query: str, now: int) -> str:
    """The query with its dates in the time zone of this process, which the agent need not share. Invalid dates stay:
    the agent refuses them."""

    def absolute(found: re.Match[str]) -> str:
        key, value = found[1] or "", found[2] if found[2] is not None else found[3]
        return f"{key}:{time_with_zone(value, now)}" if key.lower() in ("after", "before") else found[0]

    return _PIECE.sub(absolute, query)


def time_with_zone(text: str, now: int) -> str:
    """A date or time of a query as RFC 3339 with this process's time zone; as it is if it is none."""
    try:
        time = read_time(text, now)
    except BadSearch:
        return text
    return datetime.fromtimestamp(time / 1000, UTC).astimezone().isoformat(timespec="milliseconds")


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


# --- matching -------------------------------------------------------------------------------------------------------


def pattern_of(terms: tuple[Term, ...]) -> re.Pattern[str] | None:
    """The pattern that finds the terms in a folded text; None without terms."""
    patterns = [
        search_text.pattern_of(words, whole=term.whole) for term in terms if (words := words_of(fold(term.text)))
    ]
    return re.compile("|".join(patterns)) if patterns else None


def matches_all(text: str, terms: tuple[Term, ...]) -> bool:
    """Whether a text contains all terms."""
    flat = fold(text[:SOUGHT_CHARS_MAX])
    patterns = [pattern_of((term,)) for term in terms]
    return bool(text) and all(one.search(flat) is not None for one in patterns if one is not None)


def excerpt(text: str, sought: re.Pattern[str] | None) -> tuple[str, list[tuple[int, int]]]:
    """An excerpt of `text` around the first match, and the spans of the matches in it."""
    matches = list(_matches(text[:SOUGHT_CHARS_MAX], sought)) if sought is not None else []
    start = 0
    if matches and matches[0][1] > EXCERPT_CHARS:
        first = matches[0][0]
        start = max(first - LEAD_CHARS, 0)
        space = text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    end = min(start + EXCERPT_CHARS, len(text))
    if end < len(text) and (space := text.rfind(" ", start + EXCERPT_CHARS * 3 // 4, end)) > 0:
        end = space
    lead = "…" if start else ""
    shown = lead + text[start:end] + ("…" if end < len(text) else "")
    shift = len(lead) - start
    spans = [(first + shift, last + shift) for first, last in matches if start <= first and last <= end]
    return shown, spans[:SPANS_MAX]


def _matches(text: str, sought: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """The ranges of `text` that match, as far as an excerpt around the first one can show them."""
    flat = search_text.fold_with_origin(text)
    first: int | None = None
    for found in sought.finditer(flat.text):
        start, end = flat.origin(*found.span())
        first = max(start, EXCERPT_CHARS) if first is None else first
        if start > first + EXCERPT_CHARS:
            return
        yield start, end
