"""With what a group's log begins here, and why: worked out from what the core knows of the history.

Nobody can know what nobody who could be asked has told of, so `whole` is as good as the others' words.
"""

from typing import Literal

from zerochat.group.state import Fetching, Group
from zerochat.group.sync.backfill import left_of
from zerochat.rpc import Beginning


def beginning(group: Group) -> Beginning:
    """With what the log of a group begins here."""
    me = group.view.known(group.me)
    if not group.entry or me is None:
        return Beginning(state="whole", joined=me.joined if me else 0)
    rules = [group.view.policy.history, me.history]
    fetched = group.fetching or Fetching()
    more, left = left_of(group)
    return Beginning(
        state=_state(group, rules, fetched, more, left), rules=rules, joined=me.joined, got=fetched.got, left=left
    )


def _state(
    group: Group, rules: list[str], fetched: Fetching, more: bool, left: int
) -> Literal["whole", "fetching", "withheld", "gone", "ended"]:
    if "none" in rules:
        return "withheld"
    if not fetched.done:
        return "fetching" if group.state == "active" else "ended"
    last = [int(rule.partition(":")[2]) for rule in rules if rule.startswith("last:")]
    if not more or (not left and (fetched.got < min(last) if last else rules == ["all", "all"])):
        return "whole"
    if rules == ["all", "all"] or (last and fetched.got < min(last)):
        return "gone"
    return "withheld"
