"""Durations, times of day, schedules and rate limits: `30s`, `09:00`, `mon-fri`, `5/min`."""

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0}
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_S = 86_400
AUTHORS_MAX = 1_000
"""Authors whose recent uses a rate limit keeps."""


def parse_duration(span: str | float) -> float:
    """Seconds of `30s`, `5m`, `1.5h`, `2d`, or a number. Raises ValueError."""
    if isinstance(span, int | float):
        found = float(span)
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", span.strip())
        if match is None or (match[2] or "s") not in UNITS:
            raise ValueError(f"{span!r} is not a duration like 30s, 5m, 1h or 2d")
        found = float(match[1]) * UNITS[match[2] or "s"]
    if not 0 < found <= 366 * DAY_S:
        raise ValueError(f"{span!r} must be more than zero and at most a year")
    return found


def parse_time(text: str) -> time:
    """The time of day of `09:00`. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,2}):(\d{2})", text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise ValueError(f"{text!r} is not a time of day like 09:00")
    return time(int(match[1]), int(match[2]))


def parse_days(text: str) -> frozenset[int]:
    """Weekday numbers from 0 (Monday) of `mon-fri`, `sat,sun` or `daily`. Raises ValueError."""
    if text == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last and last not in DAYS):
            raise ValueError(f"{text!r} is not a list of days like mon-fri or sat,sun")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found |= {(begin + step) % 7 for step in range((end - begin) % 7 + 1)}
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A repeating schedule: an interval (`period_s`), a time of day (`at`), or both: at that time of day and at each
    interval before and after it."""

    period_s: float = 0.0
    at: time | None = None
    days: frozenset[int] = frozenset(range(7))
    zone: str = ""
    """IANA name of the time zone; empty: local time."""

    def next_after(self, moment: float, last: float | None) -> float:
        """The first due time after `moment`; `last`: the previous due time (None: never). UTC, seconds."""
        if self.at is None:
            due = (moment if last is None else last) + self.period_s
            return due if due > moment else due + ((moment - due) // self.period_s + 1) * self.period_s
        here = datetime.fromtimestamp(moment, UTC).astimezone(self._zone())
        times = self._times(self.at)
        for ahead in range(-1, 9):
            day = here.date() + timedelta(days=ahead)
            if day.weekday() not in self.days:
                continue
            for when in times:
                due = self._moment(datetime.combine(day, when))
                if due > moment:
                    return due
        raise AssertionError("some day of the week comes within eight days")

    def _zone(self) -> tzinfo | None:
        return ZoneInfo(self.zone) if self.zone else None

    def _times(self, at: time) -> list[time]:
        """All due times of one day."""
        first = at.hour * 3600 + at.minute * 60
        step = int(self.period_s) or DAY_S
        return [time(one // 3600, one // 60 % 60, one % 60) for one in range(first % step, DAY_S, step)]

    def _moment(self, wall: datetime) -> float:
        zone = self._zone()
        return (wall.replace(tzinfo=zone) if zone is not None else wall.astimezone()).timestamp()


def make_schedule(every: str | float | None = None, at: str = "", days: str = "daily", zone: str = "") -> Schedule:
    """A schedule from the arguments of a decorator. Raises ValueError if they are invalid."""
    period = parse_duration(every) if every is not None else 0.0
    if at and period and (DAY_S % period or period < 60):
        raise ValueError(f"with `at`, the interval must divide a day: {every!r} does not")
    if period and not at and period < 1:
        raise ValueError(f"{every!r} is less than a second")
    if zone:
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{zone!r} is not a time zone like Europe/Paris") from error
    if days != "daily" and not at:
        raise ValueError("`days` needs a time of day (`at`)")
    return Schedule(period, parse_time(at) if at else None, parse_days(days), zone)


# --- rate limits ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RateLimit:
    """Sliding-window rate limit per author."""

    limit: int
    period_s: float
    _used: dict[str, deque[tuple[float, str]]] = field(default_factory=dict)
    _notified: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By author: the event that was answered with the limit, and until when that holds."""

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        """The limit written as `5/min`, `1/30s` or `100/day`. Raises ValueError."""
        match = re.fullmatch(r"(\d{1,6})/(\d*(?:\.\d+)?[a-z]+)", text.replace(" ", ""))
        if match is None or not int(match[1]):
            raise ValueError(f"{text!r} is not a rate like 5/min, 1/30s or 100/day")
        span = match[2]
        return cls(int(match[1]), parse_duration(span if span[0].isdigit() or span[0] == "." else "1" + span))

    def acquire(self, author: str, event: str, moment: float) -> float:
        """Take a slot for this event: 0 if it got one (once per event), otherwise the wait in seconds. `moment`:
        arrival of the event, so that a redelivered event gets the same decision."""
        taken = self._used.setdefault(author, deque(maxlen=self.limit))
        if any(one == event for _, one in taken):
            return 0.0
        if len(taken) == self.limit and moment < taken[0][0] + self.period_s:
            return taken[0][0] + self.period_s - moment
        taken.append((moment, event))
        if len(self._used) > AUTHORS_MAX:
            oldest = min(self._used, key=lambda name: self._used[name][-1][0])
            del self._used[oldest]
            self._notified.pop(oldest, None)
        return 0.0

    def reset(self) -> None:
        """Forget all uses, for a new run."""
        self._used.clear()
        self._notified.clear()

    def should_notify(self, author: str, event: str, moment: float, wait_s: float) -> bool:
        """Whether to answer an author who exceeds the limit: once per window."""
        known, until = self._notified.get(author, ("", 0.0))
        if known != event and moment < until:
            return False
        if known != event:
            self._notified[author] = event, moment + wait_s
        return True
