"""Who may do what in a group, whom to trust, and which words to compare, in the words of the control protocol."""

import re
from collections.abc import Collection
from typing import ClassVar, Literal, get_args

from zerochat import rpc
from zerochat.crypto.safety_words import (
    PREFIX_CHARS,
    WORDS,
    dictionary,
    group_words,
    pair_words,
    safety_words,
    same_words,
)
from zerochat.errors import LocalError
from zerochat.group.event_log.event import ADD, GENESIS, LABEL, VOTE
from zerochat.group.membership import (
    Policy,
    add_of,
    genesis_of,
    label_of,
    may_change_role,
    may_remove,
    may_vote,
    vote_of,
    votes_for,
    votes_needed,
)
from zerochat.group.membership.verification import trust_of
from zerochat.group.state import Group
from zerochat.presentation import group_rules
from zerochat.rpc import Deed, PolicyInfo, Role, Trust, VoteInfo, WordsInfo

_ROLES: frozenset[str] = frozenset(get_args(Role))
_GIVEN: tuple[Literal["reader", "writer", "admin"], ...] = ("reader", "writer", "admin")
"""The roles that one member can give another: an owner is one from the beginning."""
_STRANGE_MAX, _STRANGE_CHARS_MAX = 3, 32
"""How many words that there are not are named, and how much of each."""


class NotTheWords(LocalError):
    """{why} Ask to hear it once more."""

    exit_code: ClassVar[int] = 2


def policy_info(policy: Policy) -> PolicyInfo:
    return PolicyInfo(
        join=policy.join,
        remove=policy.remove,
        quorum=policy.quorum,
        roles=policy.roles,
        agreement=policy.agreement,
        history=policy.history,
        keepers=policy.keepers,
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
    cast = _cast(group)
    return [_vote(group, did, cast[did]) for did in sorted(cast.keys() & group.view.members.keys())]


def vote(group: Group, did: str) -> VoteInfo:
    """How far it is with putting a member out, or somebody who was one."""
    return _vote(group, did, _cast(group).get(did, ()))


def _vote(group: Group, did: str, cast: Collection[str]) -> VoteInfo:
    view = group.view
    member = view.known(did)
    return VoteInfo(
        group=group.id,
        did=did,
        nick=member.label if member else "",
        votes=len(votes_for(group.control, view, did)),
        needed=votes_needed(view) if view.policy.remove == "quorum" else 1,
        cast=len(cast),
        mine=group.me in cast,
        out=did in view.removed,
    )


def _cast(group: Group) -> dict[str, set[str]]:
    """By whom it is about: the members who have voted for putting somebody out, as `membership.voters_for` has it."""
    found: dict[str, set[str]] = {}
    if group.view.policy.remove == "quorum":
        for event in group.control.values():
            if event.type == VOTE and event.author in group.view.members:
                found.setdefault(vote_of(event).member, set()).add(event.author)
    return found


def voters(group: Group) -> list[str]:
    """Who has voted us out, in the order of their names; nobody where that takes no votes, or we are in."""
    view = group.view
    if not group.removed_by or view.policy.remove != "quorum":
        return []
    labels = {did: member.label for did in votes_for(group.control, view, group.me) if (member := view.known(did))}
    return sorted(labels, key=lambda did: (labels[did].casefold(), did))


# --- words ----------------------------------------------------------------------------------------------------------


def key_words(did: str) -> list[str]:
    """The words of one key: of somebody who is no member yet, and so has none in common with us."""
    return list(safety_words("key", (did,)))


def words_info(group: Group, did: str, said: str) -> rpc.WordsInfo:
    """The words of a member and ours, or (`did` empty) of all; and whether `said` is the same, unless it is empty.

    Raises NotTheWords where `said` cannot be such words: what was misheard or mistyped is no sign of an attack.
    """
    typed = _typed(said) if said.strip() else []
    words = pair_words(group.id, group.me, did) if did else group_words(group.id, group.view.members)
    return WordsInfo(
        group=group.id,
        did=did,
        nick=group.view.members[did].label if did else "",
        words=list(words),
        trust=trust(group, did) if did else None,
        same=same_words(said, words) if typed else None,
        differ=[place for place, one in enumerate(typed, 1) if one != words[place - 1]],
    )


def _typed(said: str) -> list[str]:
    """The eight words that somebody typed, each in full. Raises NotTheWords."""
    words, strange = [], []
    for each in re.findall(r"[^\W\d_]+", said.casefold()):
        known = (one for one in dictionary() if one == each or (len(each) >= PREFIX_CHARS and one.startswith(each)))
        words.append(next(known, ""))
        if not words[-1]:
            strange.append(each[:_STRANGE_CHARS_MAX])
    why = []
    if len(words) != WORDS:
        count = "none" if not words else str(len(words))
        why.append(f"{group_rules.number(WORDS).capitalize()} words are needed; you gave {count}.")
    if strange:
        verb = "is" if len(strange) == 1 else "are"
        why.append(f"{', '.join(strange[:_STRANGE_MAX])} {verb} none of the words.")
    if why:
        raise NotTheWords(why=" ".join(why))
    return words


# --- names ----------------------------------------------------------------------------------------------------------


def label_before(group: Group, did: str, lamport: int) -> str:
    """What somebody was called before an event of the log that has this Lamport time."""
    first, latest = "", (0, "")
    for event in group.control.values():
        if event.type == LABEL and event.author == did and event.lamport < lamport:
            latest = max(latest, (event.lamport, label_of(event).label))
        elif event.type == ADD and add_of(event).member == did:
            first = add_of(event).label
        elif event.type == GENESIS and event.author == did:
            first = genesis_of(event).label
    return latest[1] or first
