"""Sentences about mediators, the relays that store messages for this profile."""

from zerochat.terminal_text import Printable


def none_yet(add: str) -> Printable:
    """`add`: the command that adds one."""
    return Printable(f"You have no mediator: nothing is stored while you are offline. Add one with {add}.")


def no_answer(who: str, check: str) -> Printable:
    """`check`: the command that shows the state."""
    return Printable(f"No answer from {who} yet. The agent keeps asking; check {check} later.")


def removed(who: str, in_groups: bool) -> Printable:
    """`in_groups`: whether members of groups are notified."""
    return Printable(f"Removed the mediator {who}{notified(in_groups)}.")


def notified(in_groups: bool) -> str:
    """The end of a sentence."""
    return "; the members of your groups are notified" if in_groups else ""
