"""ISO 8601 times of DIDComm v1, converted from and to UTC seconds.

Pure arithmetic: Howard Hinnant's `days_from_civil` and `civil_from_days` ("chrono-Compatible Low-Level Date
Algorithms"), from 1970 on.
"""

import re
from typing import Final

SECONDS_MAX: Final = 253_402_300_799
"""The last second of the year 9999."""

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.][0-9]{1,9})?)?"
    r"(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?"
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def iso_time(seconds: int) -> str:
    """`2026-01-31T09:05:00Z`, of UTC seconds up to SECONDS_MAX."""
    assert 0 <= seconds <= SECONDS_MAX
    days, rest = divmod(seconds, 86400)
    era, day_of_era = divmod(days + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = era * 400 + year_of_era + (month <= 2)
    return f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"


def iso_seconds(text: str) -> int | None:
    """UTC seconds of a time, fractions dropped; without a zone it is UTC. None for an invalid time.

    Date and time are separated by `T` or a space, and seconds are optional (Aries RFC 0074, "Date and time fields").
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    sign, zone_hour, zone_minute = match[7], int(match[8] or 0), int(match[9] or 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] or (month == 2 and day == 29 and not _is_leap(year)):
        return None
    if hour > 23 or minute > 59 or second > 59 or zone_hour > 23 or zone_minute > 59:
        return None
    offset = (zone_hour * 60 + zone_minute) * (-60 if sign == "-" else 60)
    seconds = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    return seconds if 0 <= seconds <= SECONDS_MAX else None


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days(year: int, month: int, day: int) -> int:
    """The days since 1970-01-01."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
