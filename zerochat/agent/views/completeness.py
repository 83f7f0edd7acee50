"""Which events of a group are known to be missing, by the reports of its members.

It covers the events since we joined. Members that have not reported recently may have sent more, so every statement is
only as recent as the last reports.
"""

from collections.abc import Collection

from zerochat.group.state import Group, MissingRange, ReorderBuffer
from zerochat.group.sync import reinstated_posts, stale_profile
from zerochat.group.sync.history_requests import TRIES_MAX, missing_ends
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
    everybody = sorted(group.view.members.values(), key=lambda one: (one.joined, one.did))
    labels = {one.did: one.label for one in (group.view.former | group.view.members).values()}
    told = missing_ends(group)
    if (ours := stale_profile.claimed_seq(group)) > group.seq:
        told = {**told, group.me: ours}
    unsure = group.sync.recovery is not None and group.sync.recovery.from_backup
    authors = sorted(told.keys() | group.log.reorder_buffers.keys())
    gaps = [_gap(group, author, labels.get(author, ""), told.get(author, 0)) for author in authors]
    found = [gap for gap in gaps if gap is not None]
    missing = {gap.author: gap.missing for gap in found}
    unreachable = {
        author: len(places)
        for author in group.sync.reinstated_posts
        if (places := reinstated_posts.wanted_seqs(group, author))
    }
    missing |= {author: missing.get(author, 0) + count for author, count in unreachable.items()}
    members, words = [], []
    for one in (each for each in everybody if each.did != group.me):
        peer = group.links.peers.get(one.did)
        heard = peer.last_received_at if peer is not None else 0
        present = heard > 0 and (one.did in near or now - heard <= PRESENT_MS)
        if unsure and group.sync.recovery is not None and one.did not in group.sync.recovery.claims:
            present = False  # what it said before the backup says nothing of what we had since
        if present and one.did not in missing:
            words.append(heard)
        members.append(
            MemberReport(
                did=one.did,
                nick=one.label,
                at=timestamp(heard) if heard else None,
                present=present,
                missing=missing.get(one.did, 0),
                view_matches=peer.anti_entropy.view == group.view.checksum
                if peer is not None and peer.anti_entropy.view
                else None,
            )
        )
    # How old that is which counts after all, and is not here yet, cannot be told.
    upto = _upto(group, found) if not unreachable else 0
    return Completeness(
        complete=not missing and not group.log.blocked,
        upto=upto,
        upto_at=timestamp(upto) if upto else None,
        at=timestamp(min(words)) if words else None,
        members=members,
        gaps=found,
        waiting=len(group.log.blocked),
    )


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
