"""Head claims: members that report more of our own chain than we have, and which of them are believed.

`stale_profile.py` acts on them. Every other pull request consults this first: a member that is asked for our own events
is asked for nothing else meanwhile, because we may not send without them.
"""

from collections.abc import Sequence

from zerochat.group.membership import log_of
from zerochat.group.state import Group, Recovery

TRIES_MAX = 6
"""Requests in vain after which a claimant counts as having nothing."""


def queried_members(group: Group) -> Sequence[str]:
    """The members that are asked for our own events now."""
    state = group.sync.recovery
    if state is None:
        return ()
    return [member for member in believed_claimants(group) if not state.from_backup or may_have(state, member)]


def may_have(state: Recovery, member: str) -> bool:
    """Whether it may still have some, after its requests so far."""
    return state.requests.get(member, 0) < TRIES_MAX


def believed_claimants(group: Group) -> list[str]:
    """The claimants that are believed: after a restore any, else at least two members or the only other one."""
    assert group.sync.recovery is not None
    found = claimants(group)
    return found if len(found) >= (1 if group.sync.recovery.from_backup else min(2, len(group.counterparts))) else []


def claimants(group: Group) -> list[str]:
    """The members that claim more of our chain than we have; all that reported any place, if a signed event of ours
    proves that there is more."""
    assert group.sync.recovery is not None
    known = last_signed_seq(group)
    claims = {
        member: max(upto, known) for member, upto in group.sync.recovery.claims.items() if member in group.view.members
    }
    return sorted(member for member, upto in claims.items() if upto > group.seq)


def last_signed_seq(group: Group) -> int:
    """The place of our last membership event in our chain."""
    return log_of(group.control).last_seq(group.me)
