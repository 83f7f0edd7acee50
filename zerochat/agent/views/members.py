"""Members, roles, votes and safety words as the control protocol shows them."""

import re
import time
from collections.abc import Collection, Mapping
from typing import ClassVar, Literal, get_args

from zerochat import rpc
from zerochat.agent.views.completeness import completeness
from zerochat.agent.views.delivery import reach
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
from zerochat.group.event_log.event import (
    ADD,
    GENESIS,
    LABEL,
    VOTE,
)
from zerochat.group.joining import member_connections
from zerochat.group.membership import (
    Policy,
    add_of,
    attestation,
    genesis_of,
    label_of,
    may_change_role,
    may_remove,
    may_vote,
    vote_of,
    votes_for,
    votes_needed,
)
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.membership.verification import trust_of
from zerochat.group.state import Agent, Group
from zerochat.presentation import group_rules
from zerochat.rpc import IgnoredMember, MemberAction, MemberInfo, PolicyInfo, Role, SafetyWords, Trust, VoteInfo
from zerochat.rpc.common import timestamp

_ROLES: frozenset[str] = frozenset(get_args(Role))
_GIVEN: tuple[Literal["reader", "writer", "admin", "owner"], ...] = ("reader", "writer", "admin", "owner")
"""The roles that a member can give to another."""
_STRANGE_MAX, _STRANGE_CHARS_MAX = 3, 32
"""How many words that there are not are named, and how much of each."""


class NotTheWords(LocalError):
    """{why} Compare them again."""

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
        keep=policy.keep,
    )


def as_role(role: str) -> Role:
    """A role of the core, which has no others."""
    assert role in _ROLES
    return role  # type: ignore[return-value]


def role_of(group: Group, did: str) -> Role:
    """The current or last role of a member."""
    member = group.view.known(did)
    return as_role(member.role) if member else "writer"


def trust_level(group: Group, did: str) -> Trust:
    return trust_of(group.view, group.trust.verified, did) if group.trust.verified else "unverified"


def ignored_member(group: Group, did: str) -> IgnoredMember:
    """Whether I ignore a member or former member."""
    member = group.view.known(did)
    former = did not in group.view.members
    return IgnoredMember(did, member.label if member else "", did in group.trust.ignored, former)


def allowed_actions(group: Group, did: str) -> list[MemberAction]:
    """What we may do to a member now."""
    view, me = group.view, group.me
    if group.state != "active":
        return []
    found: list[MemberAction] = []
    if may_vote(view, me, did) or may_remove(view, me, did):
        found.append("remove")
    found += [one for one in _GIVEN if one != role_of(group, did) and may_change_role(view, me, did, one)]
    return found


# --- votes ------------------------------------------------------------------------------------------------------------


def votes(group: Group) -> list[VoteInfo]:
    """The open votes on removing members."""
    cast = _cast(group)
    return [_vote(group, did, cast[did]) for did in sorted(cast.keys() & group.view.members.keys())]


def vote(group: Group, did: str) -> VoteInfo:
    """The vote on removing a member or former member."""
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
        voted=group.me in cast,
        removed=did in view.removed,
    )


def _cast(group: Group) -> dict[str, set[str]]:
    """By member: the members that have voted to remove it."""
    found: dict[str, set[str]] = {}
    if group.view.policy.remove == "quorum":
        for event in group.control.values():
            if event.type == VOTE and event.author in group.view.members:
                found.setdefault(vote_of(event).member, set()).add(event.author)
    return found


def voters(group: Group) -> list[str]:
    """The members that voted to remove us, ordered by name; none where no quorum did."""
    view = group.view
    if not group.removed_by or view.policy.remove != "quorum":
        return []
    labels = {did: member.label for did in votes_for(group.control, view, group.me) if (member := view.known(did))}
    return sorted(labels, key=lambda did: (labels[did].casefold(), did))


# --- words ----------------------------------------------------------------------------------------------------------


def join_words(did: str) -> list[str]:
    """The safety words of a joiner's key, which has no pairwise key with us yet."""
    return list(safety_words("key", (did,)))


def safety_words_view(group: Group, did: str, said: str) -> rpc.SafetyWords:
    """The safety words of a member and us, or (`did` empty) of all members, and whether `said` matches.

    Raises NotTheWords where `said` is malformed: a typing error is no sign of an attack.
    """
    typed = _typed(said) if said.strip() else []
    words = pair_words(group.id, group.me, did) if did else group_words(group.id, group.view.members)
    return SafetyWords(
        group=group.id,
        did=did,
        nick=group.view.members[did].label if did else "",
        words=list(words),
        trust=trust_level(group, did) if did else None,
        match=same_words(said, words) if typed else None,
        mismatches=[place for place, one in enumerate(typed, 1) if one != words[place - 1]],
    )


def _typed(said: str) -> list[str]:
    """The eight entered words, completed. Raises NotTheWords."""
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
        why.append(f"{', '.join(strange[:_STRANGE_MAX])} {verb} not in the word list.")
    if why:
        raise NotTheWords(why=" ".join(why))
    return words


# --- names ----------------------------------------------------------------------------------------------------------


def name_before(group: Group, did: str, lamport: int) -> str:
    """The display name of a member before the event with this Lamport time."""
    first, latest = "", (0, "")
    for event in group.control.values():
        if event.type == LABEL and event.author == did and event.lamport < lamport:
            latest = max(latest, (event.lamport, label_of(event).label))
        elif event.type == ADD and add_of(event).member == did:
            first = add_of(event).label
        elif event.type == GENESIS and event.author == did:
            first = genesis_of(event).label
    return latest[1] or first


def display_names(group: Group) -> dict[str, str]:
    """The display names of members and former members, by DID; in a private conversation also the other member's in the
    group from which it was begun."""
    awaited = {group.private.member: group.private.label} if group.private is not None else {}
    return awaited | {did: member.label for did, member in (group.view.former | group.view.members).items()}


def member_infos(
    agent: Agent,
    group: Group,
    announced: Mapping[str, Announcement] | None = None,
    guilty: Mapping[str, list[str]] | None = None,
) -> list[MemberInfo]:
    """The members in the order of joining. By DID: `announced`, their announcements as bots; `guilty`, the verdicts
    against them."""
    found, now, forked, keepers = [], int(time.time() * 1000), attestation.forked_members(group), group.view.keepers
    whole = completeness(group, (), 0)
    missing = {gap.author: gap.missing for gap in whole.gaps} if whole else {}
    for did, member in sorted(group.view.members.items(), key=lambda item: (item[1].joined, item[0])):
        peer = group.links.peers.get(did)
        connection, via = reach(agent, group, did)
        agrees = heard = None
        if did != group.me and peer is not None and group.state == "active":
            agrees = peer.anti_entropy.view == group.view.checksum if peer.anti_entropy.view else None
        if did != group.me and peer is not None:
            heard = timestamp(peer.last_received_at) if peer.last_received_at else None
        trust = trust_level(group, did)
        says = (announced or {}).get(did, Announcement())
        found.append(
            MemberInfo(
                did=did,
                nick=member.label,
                connection=connection,
                via=via,
                bot=says.bot,
                commands=[rpc.AnnouncedCommand(**one.body()) for one in says.commands],
                verified=trust == "verified",
                view_matches=agrees,
                last_seen=heard,
                ahead_ms=peer.shown.clock_ahead_ms if did != group.me and peer is not None else None,
                missing=missing.get(did, 0),
                joined_at=timestamp(member.joined),
                added_by=member.added_by,
                role=as_role(member.role),
                trust=trust,
                forked=did in forked,
                disputed=did in group.trust.dissenting,
                unconfirmed=did in group.trust.quarantine,
                arrived=not member_connections.never_connected(group, did, now),
                keeps_history=group.view.policy.keepers > 0 and did in keepers,
                ignored=did in group.trust.ignored,
                verdicts=(guilty or {}).get(did, []),
                allowed_actions=allowed_actions(group, did),
            )
        )
    return found
