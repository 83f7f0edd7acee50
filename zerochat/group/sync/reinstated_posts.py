"""Reinstated posts: posts rejected while their author counted as a reader, fetched once that is void.

A role change is void if its author was removed concurrently (`membership/resolve.py`). Members that received the
removal first have accepted posts that others, who received the role first, have rejected; the latter keep place and
hash. So the posts are requested again from any member, and the hash verifies them. Unconfirmed ones stay unconfirmed
(`relayed_events.py`).
"""

from msgspec.structs import replace

from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail
from zerochat.group.membership import may_post
from zerochat.group.state import Group, PullPurpose, ReinstatedPosts
from zerochat.group.sync import pull_requests
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import RANGES_MAX

IDS_MAX = 256
"""The most rejected events of one author whose hashes are kept, latest first."""
RETRY_MS, BACKGROUND_MS = 1_000, 60_000
TRIES_MAX = 6
"""After so many requests in vain with doubling delays, requests become rare."""


def record(tx: Transaction, name: str, event: Event, *, valid: bool) -> None:
    """An event has taken its place in its chain: it was accepted if it `valid`, else its hash is kept."""
    rejected = tx.group(name).sync.reinstated_posts.get(event.author, ReinstatedPosts())
    if valid:
        if event.seq not in rejected.ids:
            return
        posts = ReinstatedPosts({seq: id_ for seq, id_ in rejected.ids.items() if seq != event.seq})
    else:
        posts = replace(rejected, ids={**rejected.ids, event.seq: event.id})
        if len(posts.ids) > IDS_MAX:
            del posts.ids[min(posts.ids)]
    others = {author: other for author, other in tx.group(name).sync.reinstated_posts.items() if author != event.author}
    tx.update_sync(name, reinstated_posts={**others, event.author: posts} if posts.ids else others)


def on_refuted(tx: Transaction, name: str, author: str, after: int, upto: int) -> None:
    """The relayed events of this chain after place `after`, up to `upto`, are refuted: forget rejected ones among
    them."""
    group = tx.group(name)
    rejected = group.sync.reinstated_posts.get(author)
    if rejected is not None:
        ids = {seq: id_ for seq, id_ in rejected.ids.items() if not after < seq <= upto}
        others = {did: posts for did, posts in group.sync.reinstated_posts.items() if did != author}
        tx.update_sync(name, reinstated_posts={**others, author: replace(rejected, ids=ids)} if ids else others)


def is_rejected(group: Group, event: Event) -> bool:
    """Whether this event has its place in its chain and was rejected."""
    rejected = group.sync.reinstated_posts.get(event.author)
    return rejected is not None and rejected.ids.get(event.seq) == event.id


def is_wanted(group: Group, event: Event) -> bool:
    """Whether this event was rejected and is valid by now."""
    return is_rejected(group, event) and may_post(group.view, event.author, event.seq)


def is_confirmed(group: Group, author: str, seq: int) -> bool:
    """Whether the author has sent or confirmed the event at this place."""
    chain = group.chain(author)
    top = chain.backfill.unconfirmed_top if chain.backfill is not None else None
    return seq <= chain.confirmed_seq and not (top is not None and seq <= top.seq)


def wanted_seqs(group: Group, author: str) -> list[int]:
    """The places in this chain that were rejected and are valid by now."""
    rejected = group.sync.reinstated_posts.get(author, ReinstatedPosts()).ids
    return sorted(seq for seq in rejected if may_post(group.view, author, seq))


def schedule(tx: Transaction, name: str) -> None:
    """After a view change or a confirmation, request posts that have become valid."""
    group = tx.group(name)
    if any(wanted_seqs(group, author) for author in group.sync.reinstated_posts):
        tx.set_timer(TimerKind.GAPS, name, RETRY_MS, if_unset=True)


def request(tx: Transaction, name: str) -> int:
    """Make the requests that are due; returns the time until the next check in ms, 0 if nothing is wanted."""
    ranges_by_member: dict[str, list[tuple[str, int, int]]] = {}
    delays = []
    for author, posts in tx.group(name).sync.reinstated_posts.items():
        seqs = wanted_seqs(tx.group(name), author)
        if not seqs:
            continue
        if posts.retry_at <= tx.now:
            target = _choose_peer(tx, name, author, posts.tries)
            # In chain order; but an event that no member has does not block those after it.
            start = seqs[0 if posts.tries < TRIES_MAX else posts.tries % len(seqs)]
            if target is not None and len(ranges_by_member.setdefault(target, [])) < RANGES_MAX:
                ranges_by_member[target].append((author, start - 1, seqs[-1]))
            delay = RETRY_MS << posts.tries if posts.tries < TRIES_MAX else BACKGROUND_MS
            posts = replace(posts, tries=posts.tries + 1, retry_at=tx.now + delay)
            tx.update_sync(name, reinstated_posts={**tx.group(name).sync.reinstated_posts, author: posts})
        delays.append(max(RETRY_MS, posts.retry_at - tx.now))
    for member, ranges in ranges_by_member.items():
        pull_requests.send(tx, name, member, ranges, IDS_MAX, purpose=PullPurpose.REINSTATE)
    return min(delays, default=0)


def _choose_peer(tx: Transaction, name: str, author: str, tries: int) -> str | None:
    """The author on every other try if it is free, else a random member; mail last."""
    group = tx.group(name)
    candidates = [member for member in sorted(group.links.peers) if pull_requests.is_source(tx, name, member)]
    if author in candidates and tries % 2 == 0:
        return author
    linked = [member for member in candidates if not mediator_mail.goes_by_mail(tx, name, member)] or candidates
    return linked[tx.context.random(1)[0] % len(linked)] if linked else None
