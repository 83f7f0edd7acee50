"""Follows the system's time zone, which the C library reads only once."""

import time


def time_zone_changed() -> bool:
    """Read the time zone (TZ or /etc/localtime) anew; whether it differs from the one before."""
    before = (time.tzname, time.timezone, time.altzone)
    time.tzset()
    return before != (time.tzname, time.timezone, time.altzone)
