"""What members claim of our own chain: who is believed to have more of it than we have, and is asked for that.

`regain.py` says what comes of it. This is read by all who want to ask a member for something: whoever is asked for our
own words is asked for nothing else meanwhile, because we may not speak without them.
"""

from collections.abc import Sequence

from zerochat.group.state import Group, Regain

TRIES_MAX = 6
"""How often each of those is asked in vain before it counts as one who has nothing."""


def asking(group: Group) -> Sequence[str]:
    """Those who are asked for our own words now."""
    state = group.regain
    if state is None:
        return ()
    return [member for member in believed(group) if not state.unsure or may_have(state, member)]


def may_have(state: Regain, member: str) -> bool:
    """Whether it was not asked in vain so often that it has nothing to show."""
    return state.asked.get(member, 0) < TRIES_MAX


def believed(group: Group) -> list[str]:
    """Those who are believed to have more of our chain than we have."""
    assert group.regain is not None
    found = ahead(group)
    return found if len(found) >= (1 if group.regain.unsure else min(2, len(group.others))) else []


def ahead(group: Group) -> list[str]:
    """The members who say that they have more of our chain than we have; all who have said anything, where we know it
    ourselves, because somebody has brought us something that we have signed."""
    assert group.regain is not None
    known = signed(group)
    claims = {member: max(upto, known) for member, upto in group.regain.claims.items() if member in group.view.members}
    return sorted(member for member, upto in claims.items() if upto > group.seq)


def signed(group: Group) -> int:
    """The place in our chain of our last membership event."""
    return max((event.seq for event in group.control.values() if event.author == group.me), default=0)
