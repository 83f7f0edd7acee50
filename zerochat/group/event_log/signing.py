"""Which posts and annotations must be signed, by the keys that their author had (`membership/upgrades.py`).

In a group that was upgraded, an event with the upgrade in its causal past must be signed, and each later one of its
author's chain. What its author made without knowing of the upgrade keeps the old form, whenever it arrives, and so does
the history from before it.
"""

from collections.abc import Mapping

from zerochat.errors import Refused
from zerochat.group.event_log.event import UPGRADE, Event
from zerochat.group.membership.bodies import upgrade_of
from zerochat.group.membership.upgrades import is_upgraded_at
from zerochat.group.state import Chain, Group


def must_be_signed(group: Group, event: Event) -> bool:
    """Whether this event must carry its author's signature."""
    if event.is_control or group.first_mode.signs_events:
        return True
    if not group.mode.signs_events:
        return False
    upgraded = group.chain(event.author).upgraded
    return 0 < upgraded <= event.seq or is_upgraded_at(group.control, event.deps)


def check_author(group: Group, event: Event) -> None:
    """Check the signature of an event, if it has one. Raises Unauthentic, or Refused for one that lacks it."""
    check_signed(group, event)
    if event.sig:
        event.check_signature()


def check_signed(group: Group, event: Event) -> None:
    """Raise Refused for an event that lacks its author's signature, as far as its known dependencies show."""
    if not event.sig and must_be_signed(group, event):
        raise Refused(why="an unsigned post in a group whose authors sign")


def upgraded_with(group: Group, chain: Chain, event: Event) -> int:
    """`Chain.upgraded` of its author's chain with this event at its end."""
    is_final = event.type == UPGRADE and upgrade_of(event).final
    if chain.upgraded or not (is_final or is_upgraded_at(group.control, event.deps)):
        return chain.upgraded
    return event.seq


def upgraded_after(control: Mapping[str, Event], admission: str, since: int) -> int:
    """`Chain.upgraded` of a chain that begins for us after this place: its author knew the event of our `admission`
    then, so it knew what that has in its past."""
    return since + 1 if is_upgraded_at(control, [admission]) else 0
