"""Sentences about the transparency log of an accountable group.

`Name` sanitises a display name, `Clock` formats a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from zerochat.presentation.delivery import Clock, Name, name_list
from zerochat.presentation.group_rules import number
from zerochat.rpc import Author, TlogInfo, TlogSplitNotification, TlogStalledNotification, TlogTermsNotification

NAMES_MAX: Final = 7
"""More witnesses are shown as a number."""
NOT_ACCOUNTABLE: Final = "This group is not accountable at the moment"
EXPLANATION: Final = (
    "Messages that are not acknowledged in time are entered in the log, which proves their delivery. A member who still"
    " lacks a message can prove that it was withheld."
)
EMPTY: Final = "none: all messages were acknowledged in time"
NOTHING: Final = "no entries of yours"
ABSENT: Final = "This group has no transparency log. Groups created with `--kind accountable` have one."


def names_text(members: Sequence[Author], name: Name) -> str:
    return name_list((name(one.nick) for one in members), NAMES_MAX)


def not_accountable(lacking: int) -> str:
    """Why the log has no operator, as a sentence."""
    if lacking:
        return f"{NOT_ACCOUNTABLE}: its log needs {number(lacking)} more member{'s' * (lacking != 1)} as witnesses."
    return f"{NOT_ACCOUNTABLE}: a new operator of its log will be appointed automatically."


def roles(operator: str, witnesses: str) -> str:
    """The roles of the transparency log, without a full stop."""
    return f"operator {operator}, witnesses {witnesses}"


def named_in(body: Mapping[str, Any], label: Callable[[str, str], str]) -> tuple[str, str]:
    """The operator and the witnesses in the body of a `terms_set`; any part may be missing."""

    def member(entry: object) -> str:
        return label(str(entry.get("did", "")), str(entry.get("nick", ""))) if isinstance(entry, dict) else "?"

    witnesses = body.get("witnesses")
    listed = [member(entry) for entry in witnesses] if isinstance(witnesses, list) else []
    return member(body.get("operator")), name_list(listed or ["?"], NAMES_MAX)


GONE: Final = "You are no longer a member; this was the last known state of the log."


def _entries(found: TlogInfo) -> str:
    """The number of entries of each kind."""
    messages = found.size - found.accusations - found.defences - found.closes
    kinds = [
        (messages, "message", "messages"),
        (found.accusations, "accusation", "accusations"),
        (found.defences, "defence", "defences"),
        (found.closes, "closed subscription", "closed subscriptions"),
    ]
    return ", ".join(f"{count:,} {one if count == 1 else more}" for count, one, more in kinds if count)


def facts(found: TlogInfo, name: Name, clock: Clock) -> list[tuple[str, str]]:
    """The state of a log in two columns; empty without an operator."""
    if found.operator is None:
        return []
    cosigned = f"{found.needed} of {len(found.witnesses)} must cosign"
    waits = f", since {clock(found.waiting_since)}" if found.waiting_since else ""
    mine = ["operator"] * found.operating + ["witness"] * found.witnessing
    shown = f"complete up to {clock(found.shown_at)} is among them" if found.shown_at else "none yet"
    return [
        ("operator", name(found.operator.nick)),
        ("witnesses", f"{names_text(found.witnesses, name)}; {cosigned}"),
        *([("appointed by", name(found.by.nick))] if found.by else []),
        *([("you", " and ".join(mine))] if mine else []),
        ("entries", f"{found.size:,} cosigned ({_entries(found)}); {shown}" if found.size else EMPTY),
        *(
            []
            if found.gone
            else [
                (
                    "waiting",
                    f"{found.waiting:,} {'entry' if found.waiting == 1 else 'entries'} of yours{waits}"
                    if found.waiting
                    else NOTHING,
                )
            ]
        ),
        ("deadlines", f"{_duration(found.ack_s)} to acknowledge, {_duration(found.window_s)} to answer an accusation"),
        *([("earlier logs", _earlier(found.earlier))] if found.earlier else []),
    ]


def _earlier(count: int) -> str:
    return f"{count:,}, with other operators or witnesses"


def sentences(found: TlogInfo, name: Name) -> list[str]:
    """The meaning of the state, as sentences."""
    if found.gone:
        return [GONE] if found.state else [ABSENT]
    match found.state:
        case "":
            return [ABSENT]
        case "unkept":
            return [not_accountable(found.members_missing)]
        case "stalled":
            return [_stalled(), EXPLANATION]
        case "split":
            return [_split(name(found.operator.nick) if found.operator else "?")]
        case _:
            return [EXPLANATION]


def notification_sentence(
    item: TlogTermsNotification | TlogStalledNotification | TlogSplitNotification, name: Name, clock: Clock
) -> str:
    """A notification about the log as a sentence."""
    match item:
        case TlogTermsNotification(operator=None):
            return not_accountable(item.members_missing)
        case TlogTermsNotification():
            assert item.operator is not None
            return f"Transparency log: {roles(name(item.operator.nick), names_text(item.witnesses, name))}."
        case TlogStalledNotification():
            return f"{_stalled()} Waiting since {clock(item.since)}."
        case TlogSplitNotification():
            return _split(name(item.operator.nick))


def _stalled() -> str:
    return (
        "The transparency log is stalled: an entry of yours has no position in it, so you cannot prove its delivery."
        " If enough witnesses are connected, another operator takes over soon."
    )


def _split(operator: str) -> str:
    return (
        f"Warning: {operator} has signed two different transparency logs. Neither is valid any more; another operator"
        " takes over soon."
    )


def _duration(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"
