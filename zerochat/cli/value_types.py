"""The values of command-line arguments: each function reads one, or raises ArgumentTypeError with the fault."""

import time
from argparse import ArgumentTypeError
from collections.abc import Callable

EXPIRES_S_MAX = 30 * 86_400
"""The longest lifetime of an invitation."""
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def count(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at most 15 digits")
    return int(text)


def positive(text: str) -> int:
    if text.lstrip("-").isdecimal() and text.startswith("-"):
        raise ArgumentTypeError("must be at least 1")
    if not (number := count(text)):
        raise ArgumentTypeError("must be at least 1")
    return number


def between(least: int, most: int) -> Callable[[str], int]:
    """Whole numbers in this range, both ends included."""

    def read(text: str) -> int:
        if not least <= (number := count(text)) <= most:
            raise ArgumentTypeError(f"{text!r} is not between {least} and {most:,}")
        return number

    return read


def seconds_of(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return seconds


def chance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def history_rule(text: str) -> str:
    """A history rule in canonical form: `none`, `all`, `last:50` or `since:TIME`."""
    from zerochat.presentation.history_rules import BadHistory, read_rule

    try:
        return read_rule(text, int(time.time() * 1000))
    except BadHistory as error:
        raise ArgumentTypeError(error.sentence()) from None


def lifetime(text: str) -> int:
    """A duration such as `90s`, `30m`, `24h` or `7d`, in seconds."""
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not number.isdecimal() or not 0 < int(number[:12]) * unit <= EXPIRES_S_MAX or len(number) > 12:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 90s, 30m, 24h or 7d (at most 30d)")
    return int(number) * unit


def interval(text: str) -> int:
    """A duration of an hour to 366 days, in seconds; `never`: 0."""
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if text == "never":
        return 0
    seconds = int(number) * unit if unit is not None and number.isdecimal() and len(number) <= 12 else 0
    if not 3_600 <= seconds <= 366 * 86_400:
        raise ArgumentTypeError(f"{text!r} is neither `never` nor a duration such as 12h or 7d (1h to 366d)")
    return seconds


def listen_address(text: str) -> str:
    from zerochat.agent.network.addresses import BadAddress, parse_listen

    try:
        parse_listen(text)
    except BadAddress as error:
        raise ArgumentTypeError(f"{text!r} is not a valid address: {error.fields['why']}") from None
    return text


def advertised_address(text: str) -> str:
    from zerochat.agent.settings.values import advertise_address

    try:
        return advertise_address(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a valid address: {error}") from None
