"""Relayed events: stored as unconfirmed, then confirmed or refuted by hash links from their author's events.

Posts of pairwise groups carry no signature (`event_log/event.py` says why). A post relayed by a member other than its
author is stored, shown as unconfirmed, and trusted no more than the relaying member. Each event names its predecessor
by its hash: as soon as the author sends or has signed a later event, everything that leads up to it is confirmed,
regardless of the relaying member, and contradicting events are refuted.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from zerochat.group.effects import ConfirmEvents, Notify, RefuteEvents
from zerochat.group.event_log.event import Event
from zerochat.group.event_log.signing import upgraded_after, upgraded_with
from zerochat.group.files import catalogue
from zerochat.group.membership import log_of
from zerochat.group.notifications import EventsConfirmed, EventsRefuted
from zerochat.group.state import Backfill, BackfillProgress, Chain, ChainPosition, Group, StartEvent
from zerochat.group.sync import reinstated_posts
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

DELAY_MS = 1_000
"""The delay after more of a chain turned out to be missing until it is requested."""
UNCONFIRMED_MAX = 16_384
"""The most unconfirmed events per chain: a member that forges posts of an absent author cannot fill our disk."""


def is_whole_chain_ours(group: Group, author: str) -> bool:
    """Whether the author joined after us, so its whole chain is meant for us."""
    is_ours, theirs = group.view.known(group.me), group.view.known(author)
    return is_ours is not None and theirs is not None and theirs.joined > is_ours.joined


def is_unreachable(group: Group, author: str) -> bool:
    """Whether this member was here before us, has never announced where its chain begins for us, and nothing it has
    sent since we joined is here, except by one member's relay. A removed member will not announce it either; one that
    left has signed its end."""
    record, me, chain = group.view.known(author), group.view.known(group.me), group.chain(author)
    if (
        record is None
        or me is None
        or author == group.me
        or not group.joining.event
        or is_whole_chain_ours(group, author)
    ):
        return False
    if author not in group.view.members and author not in group.view.removed:
        return False
    return author not in group.log.chains or (
        chain.is_unannounced and (chain.lamport < me.joined or is_past_claims(group, author))
    )


def is_past_claims(group: Group, author: str) -> bool:
    """Whether a chain known from one member alone begins beyond every other member's claims: if forged, it would hide
    the real one."""
    chain = group.chain(author)
    if not chain.is_unannounced or chain.backfill is None or chain.confirmed is None or chain.confirmed.seq:
        return False
    others = [group.links.acked(did, author) for did in group.links.peers if did not in (author, chain.relayed_by)]
    return 0 < max(others, default=0) < chain.backfill.first


def signed_by(group: Group, author: str) -> dict[int, list[Event]]:
    """The membership events of an author, by place in its chain: mostly one each."""
    record = group.view.known(author)
    found: dict[int, list[Event]] = {}
    for event in log_of(group.control).by_author.get(author, ()):
        if record is None or record.until is None or event.seq <= record.until:
            found.setdefault(event.seq, []).append(event)
    return found


def contradicts_signed(signed: Mapping[int, Sequence[Event]], event: Event) -> bool:
    """Whether the author's signed events contradict this one: another event at its place, or another hash in the next
    one."""
    here, after = signed.get(event.seq, ()), signed.get(event.seq + 1, ())
    differs = bool(here) and all(one.id != event.id for one in here)
    return differs or (bool(after) and all(one.pre != event.id for one in after))


def on_signed_event(tx: Transaction, name: str, event: Event) -> None:
    """A membership event became known, from any sender: compare it with the relayed events of its author's chain. No
    relayed part reaches beyond it, since responses include membership events."""
    group, author = tx.group(name), event.author
    if author == group.me or event not in signed_by(group, author).get(event.seq, ()):
        return
    on_author_event(tx, name, event)
    chain = tx.group(name).chain(author)
    if chain.seq < group.chain(author).seq:
        tx.set_timer(TimerKind.GAPS, name, DELAY_MS, if_unset=True)
    backfill = chain.backfill
    if (
        backfill is None
        or backfill.unconfirmed_top is None
        or chain.is_unannounced
        or not backfill.first <= event.seq <= backfill.unconfirmed_top.seq + 1
    ):
        return
    if event.seq == backfill.unconfirmed_top.seq + 1:
        anchor_backfill(tx, name, author, backfill.unconfirmed_top.seq, event.pre)
        return
    _refute(tx, name, author, backfill.relayed_by, backfill.first - 1, backfill.unconfirmed_top.seq)
    _store(
        tx,
        tx.group(name),
        author,
        replace(chain, backfill=Backfill(backfill.unconfirmed_top.seq + 1, since_joining=backfill.since_joining)),
    )
    reopen_backfill(tx, name, author)


def on_author_event(tx: Transaction, name: str, event: Event) -> None:
    """The author itself sends this event: compare it with the relayed ones.

    If it neither confirms nor contradicts them, drop them and accept what follows from the author.
    """
    group = tx.group(name)
    chain = group.chain(event.author)
    if chain.confirmed is None or event.seq <= chain.confirmed.seq or event.seq > chain.seq + 1:
        return
    if event.seq == chain.seq + 1 and chain.head_id in ("", event.pre):
        return  # delivering it confirms all of them (`extended_chain`)
    if event.seq == chain.seq and event.id == chain.head_id:
        _confirm_all(tx, name, event.author)
        return
    roll_back(tx, name, event.author, chain.relayed_by if event.seq >= chain.seq else "")


def on_author_head(tx: Transaction, name: str, author: str, seq: int, tip: str, since: int) -> bool:
    """The author names its head, and that its chain begins for us after `since`. Returns whether others have relayed
    all of that, so that no retransmission is needed."""
    chain = tx.group(name).chain(author)
    first = chain.backfill.first if chain.backfill is not None else 1
    if chain.confirmed is None or chain.detached or (chain.seq, chain.head_id) != (seq, tip):
        return False
    if chain.is_unannounced and not first - 1 <= since <= seq:
        return False
    _confirm_all(tx, name, author)
    return True


def _confirm_all(tx: Transaction, name: str, author: str) -> None:
    """The relayed events of this chain end with the author's head: confirm all of them."""
    group = tx.group(name)
    chain = group.chain(author)
    backfill, after = chain.backfill, _relayed_after(chain)
    # Each event names its predecessor, and the first one the event before the chain's start.
    if chain.is_unannounced and backfill is not None:
        if backfill.unconfirmed_top is not None and backfill.unconfirmed_top.seq < after:
            _confirm(tx, name, author, backfill.first - 1, backfill.unconfirmed_top.seq)
        elif backfill.unconfirmed_top is not None:
            after = backfill.first - 1
        if is_full(backfill):
            reopen_backfill(tx, name, author)
        backfill = replace(backfill, unconfirmed_top=None, relayed_by="", anchored=True)
    _confirm(tx, name, author, after, chain.seq)
    chain = tx.group(name).chain(author)
    _store(tx, tx.group(name), author, replace(chain, confirmed=None, relayed_by="", backfill=backfill))


def _relayed_after(chain: Chain) -> int:
    """After which place every relayed event is named by its successor, up to the end."""
    assert chain.confirmed is not None
    return chain.confirmed.seq if chain.backfill is None else max(chain.confirmed.seq, chain.backfill.first - 1)


def on_relayed_event(tx: Transaction, name: str, event: Event) -> None:
    """A member relays this event: if it does not continue the events that another member relayed, drop those, since
    either may be forged."""
    group = tx.group(name)
    chain = group.chain(event.author)
    if chain.confirmed is not None and event.seq == chain.seq + 1 and chain.head_id not in ("", event.pre):
        roll_back(tx, name, event.author)


def roll_back(tx: Transaction, name: str, author: str, refuted_member: str = "") -> None:
    """Drop the unconfirmed end of this chain. It comes again once the author confirms it; `refuted_member`: the
    member whose relayed events the author contradicts."""
    group = tx.group(name)
    chain = group.chain(author)
    assert chain.confirmed is not None
    _refute(tx, name, author, refuted_member, chain.confirmed.seq, chain.seq)
    confirmed = chain.confirmed
    if chain.is_unannounced and not confirmed.seq:  # nothing of it was confirmed, not even its start
        tx.drop_chain(name, author)
        reopen_backfill(tx, name, author)
        return
    back = replace(
        chain, seq=confirmed.seq, head_id=confirmed.event_id, lamport=confirmed.lamport, confirmed=None, relayed_by=""
    )
    _store(tx, group, author, back)


def _refute(tx: Transaction, name: str, author: str, by: str, after: int, upto: int) -> None:
    tx.emit(RefuteEvents(name, author, after, upto), Notify(EventsRefuted(name, author, by, after, upto)))
    catalogue.refute_deletions(tx, name, author, after, upto)
    reinstated_posts.on_refuted(tx, name, author, after, upto)


def _confirm(tx: Transaction, name: str, author: str, after: int, upto: int) -> None:
    tx.emit(ConfirmEvents(name, author, after, upto), Notify(EventsConfirmed(name, author, after, upto)))
    catalogue.confirm_deletions(tx, name, author, after, upto)
    reinstated_posts.schedule(tx, name)


def _store(tx: Transaction, group: Group, author: str, chain: Chain) -> None:
    tx.update_chain(group.id, author, chain)


def extended_chain(tx: Transaction, name: str, event: Event, by: str) -> Chain:
    """The chain with this event at its end. `by`: the member that relays it; empty: its author."""
    chain = tx.group(name).chain(event.author)
    backfill = _backfill_after(tx, name, chain, event, by)
    confirmed = None
    if by:
        confirmed = chain.confirmed or ChainPosition(chain.seq, chain.head_id, chain.lamport)
    elif chain.confirmed is not None:
        _confirm(tx, name, event.author, _relayed_after(chain), chain.seq)
    start = chain.start if event.is_control or by else chain.start_after(StartEvent.AUTHOR_POST)
    return Chain(
        event.seq,
        event.id,
        event.lamport,
        start,
        chain.fork_seq,
        confirmed,
        by,
        backfill,
        chain.detached,
        upgraded=upgraded_with(tx.group(name), chain, event),
    )


def announced_chain(tx: Transaction, name: str, author: str, since: int) -> Chain:
    """The chain after its author's announcement that it begins for us after place `since`. Relayed events stay until
    the author's own reach them."""
    chain = tx.group(name).chain(author)
    backfilled = chain.backfill
    first = 1 if backfilled is None else backfilled.first
    confirmed = chain.seq if chain.confirmed is None else chain.confirmed.seq
    if chain.is_unannounced and confirmed and first <= since + 1 <= confirmed + 1:
        # The author has confirmed the events from there meanwhile.
        return replace(chain, start=chain.start_after(StartEvent.ANNOUNCED))
    group = tx.group(name)
    upgraded = chain.upgraded or upgraded_after(group.control, group.joining.event, since)
    announced = replace(Chain.after(since), upgraded=upgraded)
    if chain.confirmed is None:
        return announced
    joins_up = (
        backfilled is not None and backfilled.unconfirmed_top is not None and backfilled.unconfirmed_top.seq == since
    )
    _refute(tx, name, author, "", since if joins_up else chain.confirmed.seq, chain.seq)
    before = backfilled if joins_up else announced.backfill
    is_ours = chain.is_unannounced and first <= since and chain.lamport >= _joined(tx.group(name))
    return replace(
        announced,
        backfill=replace(before, since_joining=before.since_joining or is_ours) if before is not None else None,
    )


def _joined(group: Group) -> int:
    record = group.view.known(group.me)
    return record.joined if record is not None else 0


def is_full(backfill: Backfill) -> bool:
    """Whether the unconfirmed stretch has its maximal size, until the author confirms some of it."""
    return (
        backfill.unconfirmed_top is not None
        and not backfill.anchored
        and backfill.unconfirmed_top.seq - backfill.first + 1 >= UNCONFIRMED_MAX
    )


def reopen_backfill(tx: Transaction, name: str, author: str) -> None:
    """More of this chain is missing than was known at the last request: backfill again."""
    state = tx.group(name).sync.backfill
    if state is None:
        return
    was_requested = author in state.requested_authors
    if state.done or was_requested:
        progress = state.reopened() if state.done else state
        tx.update_sync(name, backfill=replace(progress, requested_authors=state.requested_authors - {author}))
    # Repeated calls must not postpone a timer that is set.
    tx.set_timer(TimerKind.BACKFILL, name, DELAY_MS, if_unset=not (state.done or was_requested))


def open_backfill(tx: Transaction, name: str, author: str) -> None:
    """A former member's chain begins in the middle: others may have more of it, which may be ours even in a group
    without history for new members."""
    group = tx.group(name)
    me = group.view.members.get(group.me)
    if group.sync.backfill is None and me is not None and "none" in (group.view.policy.history, me.history):
        tx.update_sync(name, backfill=BackfillProgress())
    reopen_backfill(tx, name, author)


def anchor_backfill(tx: Transaction, name: str, author: str, seq: int, tip: str) -> None:
    """The author states the id of its event at place `seq`, where our backfilled stretch ends or begins."""
    group = tx.group(name)
    chain = group.chain(author)
    if chain.backfill is not None and not chain.is_unannounced:
        backfill = _anchored(tx, name, author, chain.backfill, seq, tip)
        if backfill != chain.backfill:
            _store(tx, group, author, replace(chain, backfill=backfill))


def _anchored(tx: Transaction, name: str, author: str, backfill: Backfill, seq: int, tip: str) -> Backfill:
    """The backfilled stretch after the author's statement of the id at place `seq`."""
    if backfill.unconfirmed_top is not None and backfill.unconfirmed_top.seq == seq:
        below = backfill.first - 1
        if backfill.unconfirmed_top.event_id == tip:
            _confirm(tx, name, author, below, seq)
            if is_full(backfill):
                reopen_backfill(tx, name, author)
            return replace(backfill, unconfirmed_top=None, relayed_by="", anchored=True)
        _refute(tx, name, author, backfill.relayed_by, below, seq)
        reopen_backfill(tx, name, author)
        return Backfill(seq + 1, tip, anchored=True, since_joining=backfill.since_joining)
    if backfill.first == seq + 1:
        return replace(backfill, previous_id=tip, anchored=True)
    return backfill


def _backfill_after(tx: Transaction, name: str, chain: Chain, event: Event, by: str) -> Backfill | None:
    """What this event's predecessor hash means for the backfilled stretch where the live part meets it."""
    backfill = chain.backfill
    if backfill is None or chain.is_fixed:
        return backfill
    if by:
        return (
            replace(backfill, previous_id=event.pre)
            if backfill.first == event.seq and not backfill.previous_id
            else backfill
        )
    return _anchored(tx, name, event.author, backfill, event.seq - 1, event.pre)
