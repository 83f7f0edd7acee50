"""Sentences about the cases of an accountable group.

`Name` sanitises a display name, `Clock` formats a time.
"""

from typing import Final

from zerochat.presentation.delivery import Clock, Name
from zerochat.rpc import CaseInfo
from zerochat.terminal_text import printable_line

OUTCOME_CELLS_MAX: Final = 24
"""Maximum width of an outcome reported by others."""
STATES: Final = {"waiting": "not in the log yet", "over": "closed, but evidence is missing here"}
NONE: Final = "There are no cases in this group."


def charge(one: CaseInfo, name: Name) -> str:
    """The accusation without a full stop."""
    by = "you" if one.mine == "accuser" else name(one.accuser.nick)
    against = "you" if one.mine == "accused" else name(one.accused.nick) if one.accused is not None else "a member"
    if one.verdict in ("forked", "time reversed"):
        return f"{by} {'present' if by == 'you' else 'presents'} two conflicting messages of {against}"
    return f"{by} {'accuse' if by == 'you' else 'accuses'} {against}"


def outcome(one: CaseInfo, name: Name, clock: Clock) -> str:
    """The state or outcome of a case, without a full stop."""
    if one.verdict:
        others = [told for told in one.announced if told.agrees is False]
        beside = (
            f"; {name(others[0].by.nick)} reports: {printable_line(others[0].outcome, OUTCOME_CELLS_MAX)}"
            if others
            else ""
        )
        return one.verdict + beside
    answered = f", answered ({', '.join(one.answers)})" if one.answers else ""
    if one.state == "open" and one.until:
        return f"open until {clock(one.until)}{answered}"
    return STATES.get(one.state, one.state) + answered
