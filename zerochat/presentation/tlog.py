"""The log of an accountable group, in sentences: who keeps it, how it stands, and what that means.

Only the vocabulary of the control protocol is needed for this, so every face can use it. `Name` makes a nick fit to be
shown, `Clock` a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from zerochat.presentation.delivery import Clock, Name
from zerochat.presentation.group_rules import number
from zerochat.rpc import Author, LogInfo, LogKeptNews, LogSplitNews, LogStalledNews

NAMES_MAX: Final = 7
"""More witnesses than these are counted and not named."""
UNKEPT: Final = "This group is not accountable now"
WITHHELD: Final = (
    "What somebody has not acknowledged in time stands in the log, so that it can be shown that it was delivered."
    " Whoever lacks something all the same can show that it was withheld."
)
EMPTY: Final = "none: everybody has acknowledged in time"
NOTHING: Final = "nothing of yours"
ABSENT: Final = "This group keeps no log. One that does is made with `--kind accountable`."


def named(members: Sequence[Author], name: Name) -> str:
    if len(members) > NAMES_MAX:
        return f"{len(members)} members"
    *first, last = [name(one.nick) for one in members] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def why_not(lacking: int) -> str:
    """Why nobody keeps the log, and until when, in a sentence."""
    if lacking:
        more = f"{number(lacking)} more {'has' if lacking == 1 else 'have'} to join"
        return f"{UNKEPT}: it takes three members to witness its log; {more}. Until then only acknowledgements count."
    return f"{UNKEPT}: who keeps its log is said by itself, soon. Until then only acknowledgements count."


def kept_by(operator: str, witnesses: str) -> str:
    """Without a full stop."""
    return f"the log is kept by {operator}, witnessed by {witnesses}"


def keepers(body: Mapping[str, Any], label: Callable[[str, str], str]) -> tuple[str, str]:
    """Whom a `terms_set` names as operator and as witnesses, for a line; any of it may be missing."""

    def one(about: object) -> str:
        return label(str(about.get("did", "")), str(about.get("nick", ""))) if isinstance(about, dict) else "?"

    witnesses = body.get("witnesses")
    listed = [one(each) for each in witnesses] if isinstance(witnesses, list) else []
    if len(listed) > NAMES_MAX:
        return one(body.get("operator")), f"{len(listed)} members"
    *first, last = listed or ["?"]
    return one(body.get("operator")), f"{', '.join(first)} and {last}" if first else last


GONE: Final = "You are no longer in this group: so its log stood when you were."


def _entries(found: LogInfo) -> str:
    """How many entries there are of each kind."""
    messages = found.size - found.accusations - found.defences - found.closes
    kinds = [
        (messages, "message", "messages"),
        (found.accusations, "accusation", "accusations"),
        (found.defences, "defence", "defences"),
        (found.closes, "end of a subscription", "ends of subscriptions"),
    ]
    return ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in kinds if count)


def facts(found: LogInfo, name: Name, clock: Clock) -> list[tuple[str, str]]:
    """How a log stands, in two columns; none where nobody keeps one."""
    if found.operator is None:
        return []
    cosigned = f"{found.needed} of {len(found.witnesses)} have to cosign"
    waits = f", since {clock(found.waiting_since)}" if found.waiting_since else ""
    mine = ["operate it"] * found.operating + ["witness it"] * found.witnessing
    shown = f"all that was posted before {clock(found.shown_at)} is among them" if found.shown_at else "none yet"
    return [
        ("kept by", name(found.operator.nick)),
        ("witnesses", f"{named(found.witnesses, name)}; {cosigned}"),
        *([("said by", name(found.by.nick))] if found.by else []),
        *([("you", " and ".join(mine))] if mine else []),
        ("entries", f"{found.size:,} cosigned ({_entries(found)}); {shown}" if found.size else EMPTY),
        *([] if found.gone else [("waiting", f"{found.waiting:,} of yours{waits}" if found.waiting else NOTHING)]),
        ("times", f"{_long(found.ack_s)} to acknowledge, {_long(found.window_s)} to answer an accusation"),
        *([("before it", _earlier(found.earlier))] if found.earlier else []),
    ]


def _earlier(count: int) -> str:
    logs = "log that was" if count == 1 else "logs that were"
    return f"{count:,} more {logs} kept before, by other members"


def sentences(found: LogInfo, name: Name) -> list[str]:
    """What that means."""
    if found.gone:
        return [GONE] if found.state else [ABSENT]
    match found.state:
        case "":
            return [ABSENT]
        case "unkept":
            return [why_not(found.members_lacking)]
        case "stalled":
            return [_stalled(), WITHHELD]
        case "split":
            return [_split(name(found.operator.nick) if found.operator else "?")]
        case _:
            return [WITHHELD]


def news(item: LogKeptNews | LogStalledNews | LogSplitNews, name: Name, clock: Clock) -> str:
    """What has become known of a group's log, in a sentence."""
    match item:
        case LogKeptNews(operator=None):
            return why_not(item.members_lacking)
        case LogKeptNews():
            assert item.operator is not None
            said = kept_by(name(item.operator.nick), named(item.witnesses, name))
            return f"{said[0].upper()}{said[1:]}."
        case LogStalledNews():
            return f"{_stalled()} It waits since {clock(item.since)}."
        case LogSplitNews():
            return _split(name(item.operator.nick))


def _stalled() -> str:
    return (
        "The log stands still: something of yours has no place in it, so you cannot show that it was delivered."
        " If enough witnesses are there, another member keeps it soon."
    )


def _split(operator: str) -> str:
    return (
        f"Careful: {operator} has shown two different logs, and signed both. Neither counts any more; another member"
        " keeps it as soon as that is said."
    )


def _long(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
