"""Who may do what in a group, whom to trust, and which words to compare, in the words of the control protocol."""

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from zerochat.agent import schema
from zerochat.agent.schema import Deed, PolicyInfo, Role, Trust, VoteInfo, WordsInfo
from zerochat.crypto.words import group_words, pair_words, safety_words, same_words
from zerochat.group.event import ADD, GENESIS, LABEL, VOTE
from zerochat.group.membership import (
    Policy,
    add_of,
    genesis_of,
    label_of,
    may_change_role,
    may_remove,
    may_vote,
    vote_of,
    votes_needed,
)
from zerochat.group.state import Group
from zerochat.group.trust import trust_of

_ROLES: frozenset[str] = frozenset(get_args(Role))
_GIVEN: tuple[Literal["reader", "writer", "admin"], ...] = ("reader", "writer", "admin")
"""The roles that one member can give another: an owner is one from the beginning."""


def policy_info(policy: Policy) -> PolicyInfo:
    return PolicyInfo(
        join=policy.join,
        remove=policy.remove,
        quorum=policy.quorum,
        roles=policy.roles,
        agreement=policy.agreement,
    )


def as_role(role: str) -> Role:
    """A role as the schema has it; nothing else comes from the core."""
    assert role in _ROLES
    return role  # type: ignore[return-value]


def role(group: Group, did: str) -> Role:
    """What somebody is in the group, or was last."""
    member = group.view.known(did)
    return as_role(member.role) if member else "writer"


def trust(group: Group, did: str) -> Trust:
    return trust_of(group.view, group.verified, did) if group.verified else "unverified"


def deeds(group: Group, did: str) -> list[Deed]:
    """What we may do to a member now."""
    view, me = group.view, group.me
    if group.state != "active":
        return []
    found: list[Deed] = []
    if may_vote(view, me, did) or may_remove(view, me, did):
        found.append("remove")
    found += [one for one in _GIVEN if one != role(group, did) and may_change_role(view, me, did, one)]
    return found


# --- putting somebody out -------------------------------------------------------------------------------------------


def votes(group: Group) -> list[VoteInfo]:
    """The members whom somebody wants out."""
    tally = _tally(group)
    return [_vote(group, did, tally) for did in sorted(tally.keys() & group.view.members.keys())]


def vote(group: Group, did: str) -> VoteInfo:
    """How far it is with putting a member out, or somebody who was one."""
    return _vote(group, did, _tally(group))


def _vote(group: Group, did: str, tally: Mapping[str, Collection[str]]) -> VoteInfo:
    view = group.view
    member, wanted = view.known(did), tally.get(did, ())
    return VoteInfo(
        group=group.id,
        did=did,
        nick=member.label if member else "",
        votes=len(wanted),
        needed=votes_needed(view) if view.policy.remove == "quorum" else 1,
        mine=group.me in wanted,
        out=did in view.removed,
    )


def _tally(group: Group) -> dict[str, set[str]]:
    """By whom it is about: the members who want somebody out, as `membership.votes_for` has it for one."""
    found: dict[str, set[str]] = {}
    if group.view.policy.remove == "quorum":
        for event in group.control.values():
            if event.type == VOTE and event.author in group.view.members:
                found.setdefault(vote_of(event).member, set()).add(event.author)
    return found


# --- words ----------------------------------------------------------------------------------------------------------


def key_words(did: str) -> list[str]:
    """The words of one key: of somebody who is no member yet, and so has none in common with us."""
    return list(safety_words("key", (did,)))


def words_info(group: Group, did: str, said: str) -> schema.WordsInfo:
    """The words of a member and ours, or (`did` empty) of all; and whether `said` is the same, unless it is empty."""
    words = pair_words(group.id, group.me, did) if did else group_words(group.id, group.view.members)
    return WordsInfo(
        group=group.id,
        did=did,
        nick=group.view.members[did].label if did else "",
        words=list(words),
        trust=trust(group, did) if did else None,
        same=same_words(said, words) if said.strip() else None,
    )


# --- names ----------------------------------------------------------------------------------------------------------


def label_before(group: Group, did: str, position: int) -> str:
    """What somebody was called before the event in this place of its own chain."""
    first, latest = "", (0, "")
    for event in group.control.values():
        if event.type == LABEL and event.author == did and event.seq < position:
            latest = max(latest, (event.seq, label_of(event).label))
        elif event.type == ADD and add_of(event).member == did:
            first = add_of(event).label
        elif event.type == GENESIS and event.author == did:
            first = genesis_of(event).label
    return latest[1] or first
