"""Search query syntax, and matching of queries in texts.

    bridge eight        posts with a word that begins with `bridge` and one that begins with `eight`
    "by the bridge"     this phrase
    from:alice          posts of Alice; `from:me` my own
    to:me               posts that mention me; `to:alice` Alice
    in:hikers           in this group
    after:2026-03-01    from this day on; also 2026-03-01T18:00, 18:00, today, yesterday, 12h, 7d, 2w
    before:2026-04-01   earlier than this day

There are no syntax errors: anything else is a word, and tokens without a letter, digit or symbol are ignored. Case and
accents are ignored. Scripts without spaces (Chinese, Japanese, Thai and others) are matched letter by letter; a symbol
such as an emoji is a word.
"""

import re
import unicodedata
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct

from zerochat.errors import LocalError

QUERY_CHARS_MAX: Final = 512
TERMS_MAX: Final = 16
EXCERPT_CHARS: Final = 160
LEAD_CHARS: Final = 40
"""Characters of an excerpt before the first match."""
SOUGHT_CHARS_MAX: Final = 16 * 1024
"""Part of a text in which matches are highlighted; later matches show the start of the text."""
SPANS_MAX: Final = 32

_UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003fffd"
)
_SIGNS: Final = "\u00a6\u00a9\u00ae\u00b0\u2190-\u2bff\U0001f000-\U0001faff"
_A_MARK: Final = "[\u0300-\u036f\ufe0f\u200d]"
_MARKS: Final = f"{_A_MARK}*"
_MARK: Final = re.compile(_A_MARK)
_PIECE: Final = re.compile(r'(?:(from|to|in|before|after):)?(?:"([^"]*)(?:"|$)|(\S+))', re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+")
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
            terms += [Term(value, whole=found[2] is not None)] if has_words(value) else []
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


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


# --- tokens of the index --------------------------------------------------------------------------------------------


@cache  # Compiling it takes a hundredth of an agent's start, and ASCII texts do not need it.
def _alone() -> re.Pattern[str]:
    """Characters that are words by themselves."""
    return re.compile(f"[{_UNSPACED}{_SIGNS}]")


def spaced(text: str) -> str:
    """`text` with spaces around characters that are words by themselves."""
    return text if text.isascii() else _alone().sub(r" \g<0> ", text)


def has_words(text: str) -> bool:
    """Whether a text contains a searchable word."""
    return _WORD.search(text) is not None or _alone().search(text) is not None


# --- matching -------------------------------------------------------------------------------------------------------


def pattern_of(terms: tuple[Term, ...]) -> re.Pattern[str] | None:
    """The pattern that finds the terms in a `folded` text; None without terms."""
    patterns = [one for term in terms if (one := _pattern(term))]
    return re.compile("|".join(patterns)) if patterns else None


def _pattern(term: Term) -> str:
    plain = _MARK.sub("", folded(unicodedata.normalize("NFC", term.text)))
    words = [word for part in spaced(plain).split() for word in _split(part)]
    if not words:
        return ""
    parts = ["".join(re.escape(letter) + _MARKS for letter in words[0])]
    for before, word in pairwise(words):
        # A gap does not start with a mark, which belongs to the letter before it: avoids ambiguous backtracking.
        gap = rf"(?:(?!{_A_MARK})[\W_][\W_]*)" + ("?" if _alone().match(before) or _alone().match(word) else "")
        parts += [gap, "".join(re.escape(letter) + _MARKS for letter in word)]
    start = "" if _alone().match(words[0]) else rf"(?:(?<![^\W_])|(?<=[{_UNSPACED}]))"
    end = "" if _alone().match(words[-1]) else rf"(?=[{_UNSPACED}]|[\W_]|\Z)"
    return start + "".join(parts) + (end if term.whole else "")


def _split(part: str) -> list[str]:
    return [part] if _alone().fullmatch(part) else _WORD.findall(part)


def folded(text: str) -> str:
    """`text` without case and accents, of the same length."""
    return text.lower() if text.isascii() else "".join(map(_fold, text))


@lru_cache(maxsize=4096)
def _fold(letter: str) -> str:
    small = unicodedata.normalize("NFD", letter)[0].lower()
    return small if len(small) == 1 else letter


def matches_all(text: str, terms: tuple[Term, ...]) -> bool:
    """Whether a text contains all terms."""
    flat = folded(text[:SOUGHT_CHARS_MAX])
    patterns = [pattern_of((term,)) for term in terms]
    return bool(text) and all(one.search(flat) is not None for one in patterns if one is not None)


def excerpt(text: str, sought: re.Pattern[str] | None) -> tuple[str, list[tuple[int, int]]]:
    """An excerpt of `text` around the first match, and the spans of the matches in it."""
    flat = folded(text[:SOUGHT_CHARS_MAX])
    first = sought.search(flat) if sought is not None else None
    start = 0
    if first is not None and first.end() > EXCERPT_CHARS:
        start = max(first.start() - LEAD_CHARS, 0)
        space = text.find(" ", start, first.start())
        start = space + 1 if space >= 0 else start
    end = min(start + EXCERPT_CHARS, len(text))
    if end < len(text) and (space := text.rfind(" ", start + EXCERPT_CHARS * 3 // 4, end)) > 0:
        end = space
    lead = "…" if start else ""
    shown = lead + text[start:end] + ("…" if end < len(text) else "")
    spans: list[tuple[int, int]] = []
    for found in sought.finditer(flat, start, end) if sought is not None else ():
        if found.end() > found.start() and len(spans) < SPANS_MAX:
            spans.append((found.start() - start + len(lead), found.end() - start + len(lead)))
    return shown, spans
