"""What newcomers get of what was said before they came: the rule as people write it, and what it means, in words.

A rule is `none`, `all`, `last:N` posts or `since:T` (UTC ms). A group has one, and an invitation may have one too; then
both hold. Nothing but the schema is needed here, so a verb that must start at once can use it.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from zerochat.errors import LocalError
from zerochat.rpc import Beginning

KEEPERS_MAX: Final = 64
LAST_MAX: Final = 9_999_999
_SINCE_MAX: Final = 10**15 - 1
_UNITS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RULE = re.compile(r"none|all|last:[1-9]\d{0,6}|since:\d{1,15}", re.ASCII)
_MS = re.compile(r"since:\d{10,15}", re.ASCII)
"""Shorter numbers are dates: 20260701."""
_AGO = re.compile(r"(\d{1,5})([hdw])", re.ASCII)


class BadHistory(LocalError):
    """Newcomers cannot get {given} of what was said before: {why}."""

    exit_code: ClassVar[int] = 2


# --- as people write it ---------------------------------------------------------------------------------------------


def read_rule(text: str, now: int) -> str:
    """The rule that somebody means: `none`, `all`, `last:50` or 50, `since:2026-07-01`, `since:7d`. `now`: UTC ms.

    A date without a time zone is meant in that of this machine. Raises BadHistory.
    """
    kind, colon, value = text.partition(":")
    if kind != "since" and _RULE.fullmatch(text):
        return text
    if (kind == "last" and colon) or text.isdecimal():
        number = value if colon else text
        if not (number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= LAST_MAX and len(number) <= 7):
            why = f"`last:N` takes a number from 1 to {LAST_MAX}; `none` gives nothing"
            raise BadHistory(given=ascii(text[:32]), why=why)
        return f"last:{int(number)}"
    if kind == "since" and colon:
        return f"since:{_time(text, value, now)}"
    raise BadHistory(given=ascii(text[:32]), why="the rule is none, all, last:NUMBER or since:DATE")


def check(rule: str) -> None:
    """Raise BadHistory where that is none of the rules, as they stand in a group's first event."""
    if not _RULE.fullmatch(rule):
        raise BadHistory(given=ascii(rule[:32]), why="the rule is none, all, last:NUMBER or since:TIME")


def _time(text: str, value: str, now: int) -> int:
    if _MS.fullmatch(text):
        time = int(value)
    elif ago := _AGO.fullmatch(value):
        time = now - int(ago[1]) * _UNITS[ago[2]]
    else:
        try:
            time = int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            why = "`since:` takes a date like 2026-07-01, with a time like 2026-07-01T18:00, or 12h, 7d, 2w"
            raise BadHistory(given=ascii(text[:32]), why=why) from None
    if not 0 <= time <= _SINCE_MAX:
        raise BadHistory(given=ascii(text[:32]), why="that time is out of reach")
    if time > now:
        raise BadHistory(given=ascii(text[:32]), why="that time is still to come; `none` gives nothing")
    return time


def exceeds(rule: str, other: str) -> bool:
    """Whether one rule gives more than another one, which holds as well, and so promises what it cannot give."""
    kind, _, number = rule.partition(":")
    limit, _, most = other.partition(":")
    if limit == "all" or kind == "none":
        return False
    if kind == limit:
        return int(number) > int(most) if kind == "last" else int(number) < int(most)
    return kind == "all" or limit == "none"


# --- what it means --------------------------------------------------------------------------------------------------


def day_of(time: int) -> str:
    """A time (UTC ms) as a person anywhere reads it."""
    moment = datetime.fromtimestamp(min(time, 253_402_300_799_000) // 1000, UTC)
    return f"{moment:%Y-%m-%d}" + (f" {moment:%H:%M} UTC" if time % 86_400_000 else "")


def given(rule: str) -> str:
    """What newcomers get by a rule: the end of a sentence."""
    kind, _, number = rule.partition(":")
    match kind:
        case "none":
            return "nothing of what was said before they came"
        case "all":
            return "all that was said before they came, as far as somebody there has it"
        case "last" if number.isdecimal():
            return f"{_last(int(number))} from before they came"
        case "since" if number.isdecimal():
            return f"what was said since {day_of(int(number))}"
        case _:
            return "what a later version of this program knows of"


def in_words(rule: str, keepers: int) -> str:
    """A group's rule, and who keeps the history for newcomers, in a sentence without its full stop."""
    said = f"newcomers get {given(rule)}"
    if rule != "none" and keepers:
        who = "the one who has" if keepers == 1 else f"the {keepers} who have"
        said += f"; {who} been here longest {'keeps' if keepers == 1 else 'keep'} it for them"
    return said


def _last(number: int) -> str:
    return "the last message" if number == 1 else f"the last {number:,} messages"


# --- what a newcomer has --------------------------------------------------------------------------------------------

ABSENT: Final = "What was said before you came is not here."


def progress(found: Beginning) -> str:
    """How far the history has been fetched: "1,200 here, 4,000 to go". Where a rule holds some of it back, what is left
    is more than what may be had."""
    most = "" if set(found.rules) <= {"all"} else "up to "
    return f"{found.got:,} here" + (f", {most}{found.left:,} to go" if found.left else " so far")


def fetching(found: Beginning) -> str:
    """The same with what it is about, without a full stop."""
    return f"fetching what was said before: {progress(found)}"


def sentence(found: Beginning, group: str) -> str:
    """What stands above the first line that is here of a group, and why it is the first. `group`: its name, made
    printable."""
    match found.state:
        case "whole":
            return f"This is the beginning of {group}."
        case "fetching":
            text = fetching(found)
            return f"{text[0].upper()}{text[1:]}."
        case "withheld":
            return _withheld(found.rules)
        case "ended":
            return "You left before all that was said before you came was fetched."
        case "gone":
            has = "what came before this" if found.got else "what was said before you came"
            return f"Nobody who is there has {has}."


def _withheld(rules: Sequence[str]) -> str:
    group, *invitation = rules
    if group == "none":
        return "What was said before you came is not given to newcomers in this group."
    if "none" in invitation:
        return "Your invitation gave you nothing of what was said before you came."
    last = [int(rule.partition(":")[2]) for rule in rules if rule.startswith("last:")]
    since = [int(rule.partition(":")[2]) for rule in rules if rule.startswith("since:")]
    if last and since:
        return f"Of {_last(min(last))} from before you came you have what was said since {day_of(max(since))}."
    if last:
        return f"You have {_last(min(last))} from before you came."
    return f"Of what was said before you came you have what was said since {day_of(max(since))}." if since else ABSENT


def no_topic(found: Beginning | None) -> str:
    """That nobody says what a group is about, as far as its history is here. It is a word like any other: who came in
    later and got none of what was said before does not know of it until somebody says it anew."""
    if found is None or found.state == "whole":
        return "Nobody has said what this group is about."
    return "In what you have of its history, nobody says what this group is about."
