"""What is known to be missing of a group's log, and how much of what the others have told of is here.

It is about what was said since we are in the group, and honest about where that ends: nothing can be known of what
somebody who was not heard from has said meanwhile, so every statement here is as good as the others' last words.
"""

from collections.abc import Collection

from zerochat.agent.api.timestamps import timestamp
from zerochat.group.state import Group, Limbo, Need
from zerochat.group.sync import reinstated_posts, stale_profile
from zerochat.group.sync.history_requests import TRIES_MAX, lacking
from zerochat.rpc import Completeness, GapInfo, GapState, Heard

PRESENT_MS = 2 * 60 * 1000
"""Whoever was heard from this recently counts as present without a connection: mail comes in bursts."""


def completeness(group: Group, near: Collection[str], now: int) -> Completeness | None:
    """How complete the log is; None where we are no longer in the group.

    `near`: the members to whom there is a connection of our own now. `now`: UTC ms.
    """
    if group.state != "active":
        return None
    everybody = sorted(group.view.members.values(), key=lambda one: (one.joined, one.did))
    labels = {one.did: one.label for one in (group.view.former | group.view.members).values()}
    told = lacking(group)
    if (ours := stale_profile.told(group)) > group.seq:
        told = {**told, group.me: ours}
    unsure = group.regain is not None and group.regain.unsure
    authors = sorted(told.keys() | group.limbo.keys())
    gaps = [_gap(group, author, labels.get(author, ""), told.get(author, 0)) for author in authors]
    found = [gap for gap in gaps if gap is not None]
    missing = {gap.author: gap.missing for gap in found}
    unheard_of = {author: len(places) for author in group.unheard if (places := reinstated_posts.wanted(group, author))}
    missing |= {author: missing.get(author, 0) + count for author, count in unheard_of.items()}
    members, words = [], []
    for one in (each for each in everybody if each.did != group.me):
        peer = group.peers.get(one.did)
        heard = peer.heard if peer is not None else 0
        present = heard > 0 and (one.did in near or now - heard <= PRESENT_MS)
        if unsure and group.regain is not None and one.did not in group.regain.claims:
            present = False  # what it said before the backup says nothing of what we had since
        if present and one.did not in missing:
            words.append(heard)
        members.append(
            Heard(
                did=one.did,
                nick=one.label,
                at=timestamp(heard) if heard else None,
                present=present,
                missing=missing.get(one.did, 0),
                agrees=peer.view == group.view.checksum if peer is not None and peer.view else None,
            )
        )
    # How old that is which counts after all, and is not here yet, cannot be told.
    upto = _upto(group, found) if not unheard_of else 0
    return Completeness(
        complete=not missing and not group.waiting,
        upto=upto,
        upto_at=timestamp(upto) if upto else None,
        at=timestamp(min(words)) if words else None,
        members=members,
        gaps=found,
        waiting=len(group.waiting),
    )


def _upto(group: Group, gaps: list[GapInfo]) -> int:
    """The Lamport time up to which everything is here that anybody has told us of; 0: that cannot be said.

    What is missing of a chain is newer than the last that is here of it. How old a missing membership event is, cannot
    be told.
    """
    if group.waiting:
        return 0
    return min((group.chain(gap.author).lamport for gap in gaps), default=group.lamport)


def known_of(group: Group, author: str) -> int:
    """The last position in an author's chain that is here, or that somebody has told us of."""
    told = lacking(group).get(author, 0)
    return max([group.chain(author).seq, told, *group.limbo.get(author, Limbo()).records])


def _gap(group: Group, author: str, nick: str, told: int) -> GapInfo | None:
    """What is missing at the end of an author's chain. `told`: how far somebody says that it goes."""
    chain, early = group.chain(author), group.limbo.get(author, Limbo()).records
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
    need = group.needs.get(author)
    return GapInfo(
        author=author,
        nick=nick,
        after=after,
        upto=upto,
        missing=missing,
        state=_state(need),
        tries=need.tries if need else 0,
        since=timestamp(need.since) if need and need.since else None,
    )


def _state(need: Need | None) -> GapState:
    if need is None or need.tries == 0:
        return "waiting"
    return "lost" if need.tries >= TRIES_MAX else "asked"
