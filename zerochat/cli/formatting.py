"""Formatting of names, times, tables and group states as text."""

from collections.abc import Sequence
from datetime import datetime

from zerochat import errors
from zerochat.errors import AmbiguousGroup, LocalError, UnknownGroup
from zerochat.names import matching_ids
from zerochat.presentation import group_rules
from zerochat.presentation.delivery import completeness_text
from zerochat.presentation.history_rules import backfill_text, start_sentence
from zerochat.rpc import ConnectionInfo, GroupInfo, MemberInfo, ProblemNotification
from zerochat.terminal_text import Printable, cells, printable_key, printable_line

NAME_CELLS_MAX = 32
"""Maximum width of a name in text output."""
ID_CHARS = 8
"""Characters of an event's id in text output."""
PREFIX_MIN = 4
"""Minimum length of an id prefix, as in `group/lookup.py`."""
TRUST = {"unverified": "-", "verified": "verified", "changed": "CHANGED"}
MEDIATION = {"requested": "no answer yet", "granted": "active", "denied": "denied"}


def name_of(text: str) -> Printable:
    """A display name or a group's name on one line; never empty."""
    shown = printable_line(text, NAME_CELLS_MAX)
    return shown if shown.strip() else Printable("?")


def quoted(*names: str) -> str:
    """Names as the last arguments of a command to type (`errors.quoted`), sanitised for the terminal."""
    return errors.quoted(*(printable_line(name) for name in names))


def removed_sentence(info: GroupInfo) -> str:
    """States that other members removed us from a group, and who."""
    return group_rules.removed_from(name_of(info.name), [name_of(nick) for nick in group_rules.removers_of(info)])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns, two spaces apart."""
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def amount(count: int, noun: str) -> str:
    """A number of things: 1 event, 2,000 events. `noun`: in the singular, with a regular plural."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def local_time(stamp: str) -> str:
    """An RFC 3339 time as local date and time."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "????-??-?? ??:??"


def near_time(stamp: str) -> str:
    """An RFC 3339 time as local time; with the date if it is not today."""
    shown, today = local_time(stamp), datetime.now().astimezone().strftime("%Y-%m-%d ")
    return shown.removeprefix(today)


def completeness(group: GroupInfo) -> str:
    """The completeness of a group's log, without a full stop; empty if we are not a member."""
    if group.completeness is None:
        return ""
    begun = group.history_start
    return completeness_text(
        group.completeness, name_of, near_time, fetching=begun is not None and begun.state == "fetching"
    )


def removal_votes(group: GroupInfo) -> list[str]:
    """The pending removal votes, without full stops."""
    return [
        f"vote to remove {name_of(one.nick)}: {group_rules.vote_count(one)}{', including yours' if one.voted else ''}"
        for one in (group.votes if group.state != "left" else ())
    ]


def earlier_history(group: GroupInfo) -> str:
    """How much of the history before our join is available, without a full stop; empty if it is complete."""
    found = group.history_start
    if found is None or found.state == "whole":
        return ""
    if found.state == "fetching":
        return backfill_text(found)
    return start_sentence(found, name_of(group.name)).removesuffix(".")


def problem_sentence(problem: ProblemNotification) -> str:
    why = f"{printable_line(problem.comment)} ({printable_line(problem.code)})"
    return f"{name_of(problem.peer)} reports a problem: {why}"


def split_words(words: Sequence[str]) -> list[str]:
    """Fingerprint words, four per line."""
    return [" ".join(words[start : start + 4]) for start in range(0, len(words), 4)]


def mediation_state(one: ConnectionInfo) -> str:
    """The state of mediation by this connection."""
    away = one.mediator == "granted" and one.reachable is False
    return "unreachable" if away else MEDIATION[one.mediator or "requested"]


def connection_name(one: ConnectionInfo) -> Printable:
    """The name of a connection; its key if it has no name."""
    return printable_key(one.did) if one.did and one.did.startswith(one.label) else name_of(one.label)


# --- lookup ---------------------------------------------------------------------------------------------------------


def find_group(known: Sequence[GroupInfo], wanted: str) -> GroupInfo:
    """The group with this name, id or id prefix, found as the agent does. Raises UnknownGroup or AmbiguousGroup."""
    ids = matching_ids({one.id: (one.name,) for one in known}, wanted)
    matches = [one for one in known if one.id in ids]
    found = [one for one in matches if one.state != "left"] or matches
    if not found:
        raise UnknownGroup(group=wanted)
    if len(found) > 1:
        raise AmbiguousGroup(group=wanted, ids=[one.id for one in found])
    return found[0]


class NoSuchMember(LocalError):
    """{why}. `zerochat members {group}` lists the members and their keys."""


def find_member(members: Sequence[MemberInfo], wanted: str, group: str) -> MemberInfo:
    """The member of `group` with this name, key or key prefix. Raises NoSuchMember."""
    found = [one for one in members if one.did == wanted]
    found = found or [one for one in members if one.nick.casefold() == wanted.casefold()]
    if not found and len(wanted) >= len("did:key:z6Mk") + PREFIX_MIN:
        found = [one for one in members if one.did.startswith(wanted)]
    if len(found) != 1:
        why = f"Several members are called {wanted}" if found else f"There is no member {wanted}"
        raise NoSuchMember(why=why, group=group)
    return found[0]


def find_connection(known: Sequence[ConnectionInfo], wanted: str) -> ConnectionInfo | None:
    """The connection with this name, id or id prefix, found as the agent does; None if there is none or several."""
    ids = matching_ids({one.id: (one.label,) if one.label else () for one in known}, wanted)
    return next((one for one in known if one.id in ids), None) if len(ids) == 1 else None
