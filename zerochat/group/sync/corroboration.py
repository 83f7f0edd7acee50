"""Corroboration: another member is asked whether it has the same relayed events.

The hash links make one event stand for all that lead up to it: equal last events mean equal stretches. Corroboration is
no proof, since two members can collude or have one source, and it confirms nothing; a contradiction is reported to the
user with both names. No member is asked about its own events, or about those that it relayed.
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.group.event_log.event import Event
from zerochat.group.state import Chain, ChainPosition, Corroboration, Group, PullPurpose
from zerochat.group.sync import fork_detection, pull_requests
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import RANGES_MAX

DELAY_MS = 3_000
"""The delay after the last relayed event: more may follow."""
RETRY_MS = 60_000
"""The delay if no member that has the events can be asked."""
PEERS_MAX = 3
"""The most members asked until one confirms. A contradicting answer does not end it."""


def schedule(tx: Transaction, name: str) -> None:
    """Relayed events were stored: corroborate them soon."""
    tx.set_timer(TimerKind.CORROBORATION, name, DELAY_MS)


def request(tx: Transaction, name: str) -> None:
    """Ask other members about relayed events without corroboration."""
    pull_requests.expire(tx, name)
    group = tx.group(name)
    corroborations = {
        author: corroboration for author in group.log.chains if (corroboration := _current(group, author)) is not None
    }
    ranges_by_member: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for author, corroboration in corroborations.items():
        target = _choose_peer(tx, group, author, corroboration)
        if target is not None and len(ranges_by_member[target]) < RANGES_MAX:
            ranges_by_member[target].append((author, corroboration.seq - 1, corroboration.seq))
            corroborations[author] = replace(corroboration, asked=(*corroboration.asked, target))
    if corroborations != group.sync.corroborations:
        tx.update_sync(name, corroborations=corroborations)
    for member, ranges in ranges_by_member.items():
        pull_requests.send(tx, name, member, ranges, len(ranges), purpose=PullPurpose.CORROBORATE)
    if any(
        not corroboration.corroborator and len(corroboration.asked) < PEERS_MAX
        for corroboration in corroborations.values()
    ):
        tx.set_timer(TimerKind.CORROBORATION, name, pull_requests.TIMEOUT_MS + 1 if ranges_by_member else RETRY_MS)


def receive(tx: Transaction, name: str, member: str, events: Sequence[Event]) -> None:
    """Process a member's events at the places that it was asked about."""
    group = tx.group(name)
    if member in group.trust.quarantine:
        return
    corroborations = dict(group.sync.corroborations)
    for event in events:
        corroboration = _current(group, event.author)
        if corroboration is None or corroboration != corroborations.get(event.author) or event.seq != corroboration.seq:
            continue  # settled, or outdated by newer events
        if event.id == corroboration.id:
            corroborations[event.author] = replace(corroboration, corroborator=member)
        else:
            fork_detection.record_difference(tx, name, event.author, event.seq, member, corroboration.relayed_by)
    tx.update_sync(name, corroborations=corroborations)


def corroborator_of(group: Group, author: str, seq: int) -> str:
    """The member that corroborates a relayed event at this place; empty: none."""
    corroboration = group.sync.corroborations.get(author)
    if (
        corroboration is None
        or _current(group, author) != corroboration
        or corroboration.corroborator in group.trust.quarantine
        or seq > corroboration.seq
    ):
        return ""
    return corroboration.corroborator


def _current(group: Group, author: str) -> Corroboration | None:
    """The corroboration that the newest relayed event of this chain needs, new or under way; None: nothing is
    unconfirmed."""
    position, by = _unconfirmed_head(group.chain(author))
    if position is None or not by:
        return None
    present = group.sync.corroborations.get(author)
    if present is not None and (present.seq, present.id, present.relayed_by) == (position.seq, position.event_id, by):
        return present
    return Corroboration(position.seq, position.event_id, by)


def _unconfirmed_head(chain: Chain) -> tuple[ChainPosition | None, str]:
    """The newest unconfirmed event of the chain, and the member that relayed it."""
    if chain.confirmed is not None and chain.seq > chain.confirmed.seq:
        return ChainPosition(chain.seq, chain.head_id, chain.lamport), chain.relayed_by
    return (chain.backfill.unconfirmed_top, chain.backfill.relayed_by) if chain.backfill is not None else (None, "")


def _choose_peer(tx: Transaction, group: Group, author: str, corroboration: Corroboration) -> str | None:
    if corroboration.corroborator or len(corroboration.asked) >= PEERS_MAX:
        return None
    is_former = author not in group.view.members  # no member reports its place in a former member's chain
    candidates = [
        member
        for member in sorted(group.links.peers)
        if member not in (author, corroboration.relayed_by, *corroboration.asked, *group.trust.quarantine)
        and (is_former or group.links.acked(member, author) >= corroboration.seq)
        and pull_requests.is_free(tx, group.id, member)
    ]
    return candidates[tx.context.random(1)[0] % len(candidates)] if candidates else None
