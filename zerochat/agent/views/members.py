"""Members, roles, votes and safety words as the control protocol shows them."""

import re
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import ClassVar, Literal, get_args

from zerochat import rpc
from zerochat.agent.views.completeness import missing_by_author
from zerochat.agent.views.delivery import reach
from zerochat.agent.views.display_names import DisplayNames
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
from zerochat.group import did_rotation
from zerochat.group.event_log.event import VOTE
from zerochat.group.joining import member_connections
from zerochat.group.links import mediator_mail
from zerochat.group.membership import (
    Member,
    Policy,
    attestation,
    may_change_role,
    may_remove,
    may_vote,
    vote_of,
    votes_for,
    votes_needed,
)
from zerochat.group.membership.bot_announcement import Announcement
from zerochat.group.membership.verification import trust_of
from zerochat.group.state import Agent, Group, PeerRef
from zerochat.limits import MEMBER_PAGE_MAX
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
    """The open votes on removing members, at most as many as one answer names: those that most have voted in."""
    cast = _cast(group)
    most = sorted(cast.keys() & group.view.members.keys(), key=lambda did: -len(cast[did]))[:MEMBER_PAGE_MAX]
    return [_vote(group, did, cast[did]) for did in sorted(most)]


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


def display_names(group: Group) -> DisplayNames:
    """The display names of members and former members."""
    return DisplayNames(group)


# --- members ----------------------------------------------------------------------------------------------------------


def member_page(group: Group, params: rpc.ListMembersParams) -> list[str]:
    """The DIDs of the members of a page, in the order of joining."""
    view, limit = group.view, max(1, min(params.limit, MEMBER_PAGE_MAX))
    if params.dids is not None:
        return [did for did in dict.fromkeys(params.dids) if did in view.members][:limit]
    found, start = view.eldest, 0
    if (last := view.known(params.after)) is not None:
        start = bisect_right(found, (last.joined, last.did), key=lambda did: (view.members[did].joined, did))
    wanted = params.query.casefold()
    matching = (did for did in islice(found, start, None) if is_called(view.members[did], wanted))
    return list(islice(matching, limit))


def is_called(member: Member, wanted: str) -> bool:
    """Whether a member is found by this text, case-folded: a part of its name, or a prefix of its DID."""
    return wanted in member.label.casefold() or (bool(wanted) and member.did.casefold().startswith(wanted))


def member_infos(
    agent: Agent,
    group: Group,
    announced: Mapping[str, Announcement] | None = None,
    guilty: Mapping[str, list[str]] | None = None,
    dids: Iterable[str] | None = None,
) -> list[MemberInfo]:
    """These members (None: all, in the order of joining). By DID: `announced`, their announcements as bots; `guilty`,
    the verdicts against them."""
    forked = set(attestation.forked_members(group))
    keepers = set(group.view.keepers) if group.view.policy.keepers else ()
    missing = missing_by_author(group) if group.state == "active" else {}
    wanted = group.view.eldest if dids is None else dids
    return [
        _member_info(
            agent,
            group,
            did,
            announced=(announced or {}).get(did, Announcement()),
            missing=missing.get(did, 0),
            forked=did in forked,
            keeps_history=did in keepers,
            verdicts=(guilty or {}).get(did, []),
        )
        for did in wanted
    ]


def _member_info(
    agent: Agent,
    group: Group,
    did: str,
    *,
    announced: Announcement,
    missing: int,
    forked: bool,
    keeps_history: bool,
    verdicts: list[str],
) -> MemberInfo:
    member, peer = group.view.members[did], group.links.peers.get(did)
    connection, via = reach(agent, group, did)
    agrees = heard = None
    if did != group.me and peer is not None and group.state == "active":
        agrees = peer.anti_entropy.view == group.view.checksum if peer.anti_entropy.view else None
    if did != group.me and peer is not None:
        heard = timestamp(peer.last_received_at) if peer.last_received_at else None
    trust = trust_level(group, did)
    return MemberInfo(
        did=did,
        nick=member.label,
        connection=connection,
        via=via,
        no_mediator=connection == "unreachable" and mediator_mail.is_cut_off(agent, group, did),
        bot=announced.bot,
        commands=[rpc.AnnouncedCommand(**one.body()) for one in announced.commands],
        verified=trust == "verified",
        view_matches=agrees,
        last_seen=heard,
        ahead_ms=peer.shown.clock_ahead_ms if did != group.me and peer is not None else None,
        missing=missing,
        joined_at=timestamp(member.joined),
        added_by=member.added_by,
        role=as_role(member.role),
        trust=trust,
        forked=forked,
        disputed=did in group.trust.dissenting,
        unconfirmed=did in group.trust.quarantine,
        arrived=not member_connections.never_connected(group, did, int(time.time() * 1000)),
        keeps_history=keeps_history,
        ignored=did in group.trust.ignored,
        rotates_every_s=did_rotation.interval_ms(agent, PeerRef(group.id, did)) // 1000,
        verdicts=verdicts,
        allowed_actions=allowed_actions(group, did),
    )
