"""Where a chain begins for a joiner on the ring: at the first event from after it joined.

An author announces that to the members that it is linked to; others receive the chain from some event on, perhaps not
the first one that is theirs, and fetch what is missing before it (`backfill.py`). Until the start is found they
acknowledge nothing of the chain, since an acknowledgement is cumulative. It is found when

- the event before is older than our joining, or there is none;
- the author has signed a membership event at or after the place before, and before we joined;
- the author has nothing more for us, or enough members that were here before us and acknowledge the chain up to there
  have not: one of them may lie.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from zerochat.group.event_log.event import Event
from zerochat.group.membership import log_of
from zerochat.group.state import Backfill, Chain, Group, PullRequest, StartEvent
from zerochat.group.sync import acknowledgements, aggregation
from zerochat.group.sync.relayed_events import is_whole_chain_ours, open_backfill
from zerochat.group.transaction import Transaction

ANSWERS: Final = 3
"""The members that must have nothing more, if so many were here before us."""


def begin(tx: Transaction, name: str, author: str, since: int) -> None:
    """Begin the chain of an author that was here before us after this place, and seek what is ours before it."""
    tx.update_chain(name, author, begun_in(tx.group(name), author, since))
    open_backfill(tx, name, author)


def begun_in(group: Group, author: str, since: int) -> Chain:
    """The chain of an author that was here before us, from after this place on."""
    return begun(group.control, joined(group), author, since)


def begun(control: dict[str, Event], joined: int, author: str, since: int) -> Chain:
    """The chain of an author from after this place on, for a member that `joined` at this Lamport time."""
    chain = Chain.on_ring(since)
    return _found(chain) if chain.is_sought and _is_signed_before(control, joined, author, since) else chain


def joined(group: Group) -> int:
    """The Lamport time of the event that admitted us."""
    me = group.view.known(group.me)
    return me.joined if me is not None else 0


def on_extended(tx: Transaction, name: str, author: str, event: Event) -> None:
    """Events were stored below a chain, this one last."""
    group, time = tx.group(name), joined(tx.group(name))
    is_older = event.seq == 1 or event.lamport < time
    if group.chain(author).is_sought and (is_older or _is_signed_before(group.control, time, author, event.seq - 1)):
        _settle(tx, name, author)


def _is_signed_before(control: dict[str, Event], joined: int, author: str, place: int) -> bool:
    """Whether the author has signed a membership event at or after this place and not after we joined."""
    return any(event.seq >= place and event.lamport <= joined for event in log_of(control).by_author.get(author, ()))


def _found(chain: Chain) -> Chain:
    """The same chain, with nothing missing from after we joined."""
    backfill = chain.backfill and replace(chain.backfill, since_joining=False, exhausted_by=())
    return replace(chain, start=chain.start_after(StartEvent.FOUND), backfill=backfill)


def on_last_page(tx: Transaction, name: str, member: str, request: PullRequest, events: Iterable[Event]) -> None:
    """A member has sent all that it has for us of the requested ranges, these events last."""
    lowest = {event.author: event.seq for event in sorted(events, key=lambda event: -event.seq)}
    for author, _, upto in request.ranges:
        chain = tx.group(name).chain(author)
        if not chain.is_sought or chain.backfill is None:
            continue
        before = chain.backfill.first - 1
        if upto < before or lowest.get(author, upto + 1) <= before:
            continue  # about a later part, or with an event that does not fit
        if member == author:
            _settle(tx, name, author)
        elif _is_complete(tx.group(name), member, author, before):
            _record_answer(tx, name, member, author, chain, chain.backfill)


def _is_complete(group: Group, member: str, author: str, upto: int) -> bool:
    """Whether a member has all of a chain from after we joined, up to this place."""
    return not is_whole_chain_ours(group, member) and group.links.acked(member, author) >= upto


def _record_answer(tx: Transaction, name: str, member: str, author: str, chain: Chain, backfill: Backfill) -> None:
    """One more member has nothing more of this chain for us."""
    group = tx.group(name)
    exhausted_by = tuple(dict.fromkeys((*backfill.exhausted_by, member)))
    older = [did for did in group.others if did != author and not is_whole_chain_ours(group, did)]
    if len(exhausted_by) >= min(ANSWERS, len(older)):
        _settle(tx, name, author)
    else:
        tx.update_chain(name, author, replace(chain, backfill=replace(backfill, exhausted_by=exhausted_by)))


def _settle(tx: Transaction, name: str, author: str) -> None:
    """The start of a chain is found: acknowledge the chain."""
    tx.update_chain(name, author, _found(tx.group(name).chain(author)))
    aggregation.on_progress(tx, name, author)
    acknowledgements.schedule_ack(tx, name, author)
