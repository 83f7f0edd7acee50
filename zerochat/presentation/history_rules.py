"""History rules: which earlier messages new members receive; parser and sentences.

A rule is `none`, `all`, `last:N` posts or `since:T` (UTC ms). A group has one, and an invitation may have one too; then
both apply.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from zerochat.errors import LocalError
from zerochat.limits import MEMBERS_MAX
from zerochat.rpc import HistoryStart

KEEPERS_MAX: Final = MEMBERS_MAX
LAST_MAX: Final = 9_999_999
_SINCE_MAX: Final = 10**15 - 1
_UNITS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RULE = re.compile(r"none|all|last:[1-9]\d{0,6}|since:\d{1,15}", re.ASCII)
_MS = re.compile(r"since:\d{10,15}", re.ASCII)
"""A time in UTC ms; shorter numbers are dates such as 20260701."""
_AGO = re.compile(r"(\d{1,5})([hdw])", re.ASCII)


class BadHistory(LocalError):
    """Invalid history rule {given}: {why}."""

    exit_code: ClassVar[int] = 2


# --- parsing --------------------------------------------------------------------------------------------------------


def read_rule(text: str, now: int) -> str:
    """The rule in canonical form, from `none`, `all`, `last:50` or 50, `since:2026-07-01`, `since:7d`. `now`: UTC ms.

    A date without a time zone is local. Raises BadHistory.
    """
    kind, colon, value = text.partition(":")
    if kind != "since" and _RULE.fullmatch(text):
        return text
    if (kind == "last" and colon) or text.isdecimal():
        number = value if colon else text
        if not (number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= LAST_MAX and len(number) <= 7):
            why = f"`last:N` takes a number from 1 to {LAST_MAX}; use `none` for no history"
            raise BadHistory(given=ascii(text[:32]), why=why)
        return f"last:{int(number)}"
    if kind == "since" and colon:
        return f"since:{_time(text, value, now)}"
    raise BadHistory(given=ascii(text[:32]), why="the rule is none, all, last:NUMBER or since:DATE")


def check(rule: str) -> None:
    """Raise BadHistory for a rule that is not in canonical form."""
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
        raise BadHistory(given=ascii(text[:32]), why="the time is out of range")
    if time > now:
        raise BadHistory(given=ascii(text[:32]), why="the time is in the future; use `none` for no history")
    return time


def exceeds(rule: str, other: str) -> bool:
    """Whether a rule allows more than another rule that also applies."""
    kind, _, number = rule.partition(":")
    limit, _, most = other.partition(":")
    if limit == "all" or kind == "none":
        return False
    if kind == limit:
        return int(number) > int(most) if kind == "last" else int(number) < int(most)
    return kind == "all" or limit == "none"


# --- sentences ------------------------------------------------------------------------------------------------------


def day_of(time: int) -> str:
    """A time (UTC ms) as a date, with the time in UTC if it is not midnight."""
    moment = datetime.fromtimestamp(min(time, 253_402_300_799_000) // 1000, UTC)
    return f"{moment:%Y-%m-%d}" + (f" {moment:%H:%M} UTC" if time % 86_400_000 else "")


NOT_ENCRYPTED = "The file is not encrypted and contains all messages of the group."
"""About an export."""


def rule_text(rule: str) -> str:
    """What new members receive by a rule: the end of a sentence."""
    kind, _, number = rule.partition(":")
    match kind:
        case "none":
            return "no earlier messages"
        case "all":
            return "all earlier messages that a member still has"
        case "last" if number.isdecimal():
            return f"{_last(int(number))} before they joined"
        case "since" if number.isdecimal():
            return f"messages since {day_of(int(number))}"
        case _:
            return "earlier messages by a rule that this version does not support"


def policy_text(rule: str, keepers: int) -> str:
    """A group's rule and its history keepers, without a full stop."""
    text = f"new members receive {rule_text(rule)}"
    if rule != "none" and keepers:
        who = "the longest-standing member keeps" if keepers == 1 else f"the {keepers} longest-standing members keep"
        text += f"; {who} it for them"
    return text


def _last(number: int) -> str:
    return "the last message" if number == 1 else f"the last {number:,} messages"


# --- the state after joining ----------------------------------------------------------------------------------------

UNAVAILABLE: Final = "Earlier messages are not available."


def backfill_progress(found: HistoryStart) -> str:
    """The progress of a backfill: "1,200 received, 4,000 to go". With a restricting rule the rest is an upper bound."""
    most = "" if set(found.rules) <= {"all"} else "up to "
    return f"{found.received:,} received" + (f", {most}{found.remaining:,} to go" if found.remaining else " so far")


def backfill_text(found: HistoryStart) -> str:
    """The progress of a backfill with its subject, without a full stop."""
    return f"fetching earlier messages: {backfill_progress(found)}"


def start_sentence(found: HistoryStart, group: str) -> str:
    """The line above the first event of a group: why the log starts there. `group`: its sanitised name."""
    match found.state:
        case "whole":
            return f"This is the beginning of {group}."
        case "fetching":
            text = backfill_text(found)
            return f"{text[0].upper()}{text[1:]}."
        case "withheld":
            return _withheld(found.rules)
        case "ended":
            return "You left the group before all earlier messages were fetched."
        case "gone":
            return f"No member has the {'messages before this' if found.received else 'earlier messages'}."


def _withheld(rules: Sequence[str]) -> str:
    group, *invitation = rules
    if group == "none":
        return "New members of this group do not receive earlier messages."
    if "none" in invitation:
        return "Your invitation does not include earlier messages."
    last = [int(rule.partition(":")[2]) for rule in rules if rule.startswith("last:")]
    since = [int(rule.partition(":")[2]) for rule in rules if rule.startswith("since:")]
    if last and since:
        return f"You have those of {_last(min(last))} before you joined that were sent since {day_of(max(since))}."
    if last:
        return f"You have {_last(min(last))} before you joined."
    return f"You have the earlier messages since {day_of(max(since))}." if since else UNAVAILABLE


def nothing_found(starts: Iterable[HistoryStart | None]) -> str:
    """The result of a search without hits, by where the histories of the searched groups begin here."""
    fetching = any(start is not None and start.state == "fetching" for start in starts)
    return "No messages found yet: earlier ones are still being fetched." if fetching else "No messages found."


def no_topic_sentence(found: HistoryStart | None) -> str:
    """States that the group has no topic, as far as its history is available: a topic that was set before is unknown to
    new members without that history."""
    if found is None or found.state == "whole":
        return "This group has no topic."
    return "No topic is set in the available history."
