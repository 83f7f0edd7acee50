"""Cases of an accountable group, in sentences: who accuses whom, and what has come of it.

Only the vocabulary of the control protocol is needed for this, so every face can use it. `Name` makes a nick fit to be
shown, `Clock` a time.
"""

from typing import Final

from zerochat.presentation.delivery import Clock, Name
from zerochat.rpc import CaseInfo
from zerochat.terminal_text import printable_line

OUTCOME_CELLS_MAX: Final = 24
"""Of what others say, whatever that is."""
STATES: Final = {"waiting": "not in the log yet", "over": "over, and something to judge by is missing here"}
NONE: Final = "Nobody is accused of anything here."


def charge(one: CaseInfo, name: Name) -> str:
    """Who accuses whom, without a full stop."""
    by = "you" if one.mine == "accuser" else name(one.accuser.nick)
    against = "you" if one.mine == "accused" else name(one.accused.nick) if one.accused is not None else "somebody"
    if one.verdict in ("forked", "turned back"):
        return f"{by} {'show' if by == 'you' else 'shows'} two messages of {against}"
    return f"{by} {'accuse' if by == 'you' else 'accuses'} {against}"


def outcome(one: CaseInfo, name: Name, clock: Clock) -> str:
    """What has become of it, without a full stop."""
    if one.verdict:
        others = [told for told in one.told if told.agrees is False]
        beside = (
            f"; {name(others[0].by.nick)} says: {printable_line(others[0].outcome, OUTCOME_CELLS_MAX)}"
            if others
            else ""
        )
        return one.verdict + beside
    answered = f", answered ({', '.join(one.answers)})" if one.answers else ""
    if one.state == "open" and one.until:
        return f"open until {clock(one.until)}{answered}"
    return STATES.get(one.state, one.state) + answered
