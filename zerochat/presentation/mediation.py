"""Sentences about mediators, the relays that store messages for this profile."""

from typing import Final

from zerochat.rpc import Status
from zerochat.terminal_text import Printable

NO_ROUTE: Final = (
    "Nothing can leave until there is a route: this agent connects to its own mediators only (network.hidden = always),"
    " and it has none. `zerochat route add LINK` adds one, /mediator LINK in the chat."
)
NO_RELAY: Final = (
    "Nothing is sent: this agent connects to its own mediators only (network.hidden = always), and none of them can be"
    " reached and sends for it."
)


NO_MEDIATOR: Final = "no mediator, and this profile never connects directly"
"""Why a member is unreachable (`MemberInfo.no_mediator`)."""


def hidden_text(status: Status) -> str:
    """What an agent that announces no address connects to."""
    if status.sends == "direct":
        return "this agent only dials out and announces no address"
    return "this agent connects to its own mediators only, which send for it"


def nothing_sent(*, has_mediator: bool) -> str:
    """Why nothing leaves an agent that connects to its own mediators only, and has none that sends for it now."""
    return NO_RELAY if has_mediator else NO_ROUTE


def why_nothing_sent(status: Status) -> Printable:
    """The same of the agent with this status; empty: it can send."""
    return Printable(nothing_sent(has_mediator=bool(status.mediators)) if status.sends == "nothing" else "")


def none_yet(add: str) -> Printable:
    """`add`: the command that adds one."""
    return Printable(f"You have no mediator: nothing is stored while you are offline. Add one with {add}.")


def no_answer(who: str, check: str) -> Printable:
    """`check`: the command that shows the state."""
    return Printable(f"No answer from {who} yet. The agent keeps asking; check {check} later.")


def removed(who: str, in_groups: bool, status: Status) -> Printable:
    """`in_groups`: whether members of groups are notified, if something can be sent. `status`: after the removal."""
    if status.sends == "nothing" and not status.mediators:
        return Printable(f"Removed the mediator {who}. {NO_ROUTE}")
    return Printable(f"Removed the mediator {who}{notified(in_groups)}.")


def notified(in_groups: bool) -> str:
    """The end of a sentence."""
    return "; the members of your groups are notified" if in_groups else ""
