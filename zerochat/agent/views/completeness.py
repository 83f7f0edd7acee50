"""Which events of a group are known to be missing, by the reports of its members.

It covers the events since we joined. Members that have not reported recently may have sent more, so every statement is
only as recent as the last reports.
"""

from collections.abc import Collection

from zerochat.group.links.neighbours import is_forwarding
from zerochat.group.state import Group, MissingRange, ReorderBuffer
from zerochat.group.sync import reinstated_posts, stale_profile
from zerochat.group.sync.history_requests import TRIES_MAX, missing_ends
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import Completeness, GapInfo, GapState, MemberReport
from zerochat.rpc.common import timestamp

PRESENT_MS = 2 * 60 * 1000
"""A member whose last message is not older counts as present without a connection: mail arrives in bursts."""


def completeness(group: Group, near: Collection[str], now: int) -> Completeness | None:
    """How complete the log is; None where we are not in the group.

    `near`: the members that are connected by a link. `now`: UTC ms.
    """
    if group.state != "active":
        return None
    found = _gaps(group)
    unreachable = _unreachable(group)
    missing = _missing(found, unreachable)
    members, words = [], []
    for did in group.view.eldest:
        if did == group.me or (is_forwarding(group) and did not in group.links.peers and did not in missing):
            continue
        one = _report(group, did, near, now, missing.get(did, 0))
        if one.present and did not in missing:
            words.append(group.links.peers[did].last_received_at)
        members.append(one)
    # How old that is which counts after all, and is not here yet, cannot be told.
    upto = _upto(group, found) if not unreachable else 0
    return Completeness(
        complete=not missing and not group.log.blocked,
        upto=upto,
        upto_at=timestamp(upto) if upto else None,
        at=timestamp(min(words)) if words else None,
        members=_notable(members),
        others=len(members),
        current=len(words),
        absent=sum(not one.present for one in members),
        differing=sum(one.view_matches is False for one in members),
        gaps=found[:MEMBER_PAGE_MAX],
        waiting=len(group.log.blocked),
    )


def missing_by_author(group: Group) -> dict[str, int]:
    """By author: the number of its events that are known to exist and are missing here."""
    return _missing(_gaps(group), _unreachable(group))


def _gaps(group: Group) -> list[GapInfo]:
    """The gaps at the ends of the authors' chains."""
    told = missing_ends(group)
    if (ours := stale_profile.claimed_seq(group)) > group.seq:
        told = {**told, group.me: ours}
    authors = sorted(told.keys() | group.log.reorder_buffers.keys())
    gaps = [_gap(group, author, _label(group, author), told.get(author, 0)) for author in authors]
    return [gap for gap in gaps if gap is not None]


def _label(group: Group, did: str) -> str:
    member = group.view.known(did)
    return member.label if member else ""


def _unreachable(group: Group) -> dict[str, int]:
    """By author: how many of its reinstated posts are wanted."""
    return {
        author: len(places)
        for author in group.sync.reinstated_posts
        if (places := reinstated_posts.wanted_seqs(group, author))
    }


def _missing(gaps: list[GapInfo], unreachable: dict[str, int]) -> dict[str, int]:
    missing = {gap.author: gap.missing for gap in gaps}
    return missing | {author: missing.get(author, 0) + count for author, count in unreachable.items()}


def _report(group: Group, did: str, near: Collection[str], now: int, missing: int) -> MemberReport:
    """What is known of another member's report."""
    peer, recovery = group.links.peers.get(did), group.sync.recovery
    heard = peer.last_received_at if peer is not None else 0
    present = heard > 0 and (did in near or now - heard <= PRESENT_MS)
    if peer is None and is_forwarding(group):
        present = True  # others hear of it
    if recovery is not None and recovery.from_backup and did not in recovery.claims:
        present = False  # what it said before the backup says nothing of what we had since
    return MemberReport(
        did=did,
        nick=group.view.members[did].label,
        at=timestamp(heard) if heard else None,
        present=present,
        missing=missing,
        view_matches=peer.anti_entropy.view == group.view.checksum
        if peer is not None and peer.anti_entropy.view
        else None,
    )


def _notable(members: list[MemberReport]) -> list[MemberReport]:
    """As many as one answer names: those with missing events or another view before absent ones."""
    if len(members) <= MEMBER_PAGE_MAX:
        return members
    chosen = sorted(members, key=lambda one: (not one.missing, one.view_matches is not False, one.present))
    kept = {one.did for one in chosen[:MEMBER_PAGE_MAX]}
    return [one for one in members if one.did in kept]


def _upto(group: Group, gaps: list[GapInfo]) -> int:
    """The Lamport time up to which all reported events are stored; 0: unknown.

    Missing events of a chain are newer than its last stored event. The age of a missing membership event is unknown.
    """
    if group.log.blocked:
        return 0
    return min((group.chain(gap.author).lamport for gap in gaps), default=group.log.lamport)


def known_of(group: Group, author: str) -> int:
    """The last position of an author's chain that is stored or reported."""
    told = missing_ends(group).get(author, 0)
    return max([group.chain(author).seq, told, *group.log.reorder_buffers.get(author, ReorderBuffer()).events])


def _gap(group: Group, author: str, nick: str, told: int) -> GapInfo | None:
    """The gap at the end of an author's chain."""
    chain, early = group.chain(author), group.log.reorder_buffers.get(author, ReorderBuffer()).events
    known = group.view.known(author)
    after, upto = chain.seq, max([told, *early])
    if known is not None and known.until is not None:
        upto = min(upto, known.until)  # what comes after that counts for nobody
    if upto <= after:
        return None
    # What came too early is here, and waits; and membership events come by other ways too.
    here = {*early, *(event.seq for event in group.control.values() if event.author == author)}
    missing = upto - after - sum(after < seq <= upto for seq in here)
    if missing <= 0:
        return None
    need = group.sync.gaps.get(author)
    return GapInfo(
        author=author,
        nick=nick,
        after=after,
        upto=upto,
        missing=missing,
        state=_state(group, author, need),
        tries=need.tries if need else 0,
        since=timestamp(need.since) if need and need.since else None,
    )


def is_refused(group: Group, author: str) -> bool:
    """Whether the next events of an author are refused for now, since its daily quota is used up."""
    peer = group.links.peers.get(author)
    return peer is not None and peer.stored.is_full and peer.stored.refused_upto > group.chain(author).seq


def _state(group: Group, author: str, need: MissingRange | None) -> GapState:
    if is_refused(group, author):
        return "held"
    if need is None or need.tries == 0:
        return "waiting"
    return "lost" if need.tries >= TRIES_MAX else "asked"
