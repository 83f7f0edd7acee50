"""Times as one writes them: `30s`, `1h`, `09:00`, `mon-fri`, `5/min`; and when something is due next."""

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0}
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_S = 86_400
AUTHORS_MAX = 1_000
"""Of how many people it is remembered how often they have lately asked for something."""


def seconds_of(span: str | float) -> float:
    """`30s`, `5m`, `1.5h`, `2d`, or a number of seconds. Raises ValueError."""
    if isinstance(span, int | float):
        found = float(span)
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", span.strip())
        if match is None or (match[2] or "s") not in UNITS:
            raise ValueError(f"{span!r} is not a time like 30s, 5m, 1h or 2d")
        found = float(match[1]) * UNITS[match[2] or "s"]
    if not 0 < found <= 366 * DAY_S:
        raise ValueError(f"{span!r} is not between a moment and a year")
    return found


def clock_of(text: str) -> time:
    """`09:00` as a time of day. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,2}):(\d{2})", text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise ValueError(f"{text!r} is not a time of day like 09:00")
    return time(int(match[1]), int(match[2]))


def days_of(text: str) -> frozenset[int]:
    """`mon-fri`, `sat,sun` or `daily` as numbers from 0 (Monday). Raises ValueError."""
    if text == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last and last not in DAYS):
            raise ValueError(f"{text!r} does not name days like mon-fri or sat,sun")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found |= {(begin + step) % 7 for step in range((end - begin) % 7 + 1)}
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When something happens again and again: every so many seconds (`period_s`), or at a time of day, or both: then at
    that time of day and so many seconds before and after it."""

    period_s: float = 0.0
    at: time | None = None
    days: frozenset[int] = frozenset(range(7))
    zone: str = ""
    """An IANA name; empty: this machine's own."""

    def after(self, moment: float, last: float | None) -> float:
        """When it is due next after `moment`; `last`: when it was due before (None: never). UTC seconds."""
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
        """All times of one day."""
        first = at.hour * 3600 + at.minute * 60
        step = int(self.period_s) or DAY_S
        return [time(one // 3600, one // 60 % 60, one % 60) for one in range(first % step, DAY_S, step)]

    def _moment(self, wall: datetime) -> float:
        zone = self._zone()
        return (wall.replace(tzinfo=zone) if zone is not None else wall.astimezone()).timestamp()


def schedule_of(every: str | float | None = None, at: str = "", days: str = "daily", zone: str = "") -> Schedule:
    """Raises ValueError when that is no schedule."""
    period = seconds_of(every) if every is not None else 0.0
    if at and period and (DAY_S % period or period < 60):
        raise ValueError(f"{every!r} does not fit a whole number of times into a day, so it cannot be `at` one")
    if period and not at and period < 1:
        raise ValueError(f"{every!r} is less than a second")
    if zone:
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{zone!r} is not a time zone like Europe/Paris") from error
    if days != "daily" and not at:
        raise ValueError("`days` goes with a time of day (`at`)")
    return Schedule(period, clock_of(at) if at else None, days_of(days), zone)


# --- how often ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rate:
    """At most so many within so many seconds, for each author."""

    most: int
    within_s: float
    _taken: dict[str, deque[tuple[float, str]]] = field(default_factory=dict)
    _told: dict[str, tuple[str, float]] = field(default_factory=dict)
    """For which event each author was last told to wait, and until when."""

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """`5/min`, `1/30s`, `100/day`. Raises ValueError."""
        match = re.fullmatch(r"(\d{1,6})/(\d*(?:\.\d+)?[a-z]+)", text.replace(" ", ""))
        if match is None or not int(match[1]):
            raise ValueError(f"{text!r} is not a rate like 5/min, 1/30s or 100/day")
        span = match[2]
        return cls(int(match[1]), seconds_of(span if span[0].isdigit() or span[0] == "." else "1" + span))

    def wait_s(self, author: str, event: str, moment: float) -> float:
        """0: there is room for this event, and it has taken it (the same event takes it once). Otherwise how long it is
        until there is. `moment`: when the event came, so that one that is handled again is judged alike."""
        taken = self._taken.setdefault(author, deque(maxlen=self.most))
        if any(one == event for _, one in taken):
            return 0.0
        if len(taken) == self.most and moment < taken[0][0] + self.within_s:
            return taken[0][0] + self.within_s - moment
        taken.append((moment, event))
        if len(self._taken) > AUTHORS_MAX:
            oldest = min(self._taken, key=lambda name: self._taken[name][-1][0])
            del self._taken[oldest]
            self._told.pop(oldest, None)
        return 0.0

    def forget(self) -> None:
        """A new run begins."""
        self._taken.clear()
        self._told.clear()

    def tells(self, author: str, event: str, moment: float, wait_s: float) -> bool:
        """Whether somebody who has to wait is told so: once until there is room again."""
        known, until = self._told.get(author, ("", 0.0))
        if known != event and moment < until:
            return False
        if known != event:
            self._told[author] = event, moment + wait_s
        return True
