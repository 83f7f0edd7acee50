"""Import of an exported log: events of a file, checked as if a member had relayed them.

Events that are neither signed nor named by a confirmed event stay unconfirmed, relayed by ourselves, until their author
confirms them (`relayed_events.py`). Events above the stored part of a chain take the path of a history response
(`receiving.receive_relayed`), those below it that of backfill (`backfill.prepend`); both are linked by hash. Nothing is
buffered: a detached event can be imported again once its neighbour is here.
"""

from collections.abc import Sequence
from itertools import groupby

from zerochat.errors import LocalError, NotAMember, RemoteError
from zerochat.group.effects import ImportOutcome, StoreEvent
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import Event, foreign_event
from zerochat.group.membership import may_post
from zerochat.group.state import Group
from zerochat.group.sync import backfill, corroboration, stale_profile
from zerochat.group.sync.relayed_events import contradicts_signed, signed_by
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

RECORDS_MAX = 256
BYTES_MAX = 1_000_000
"""The bytes of all records of one page."""


class PageTooLarge(LocalError):
    """At most {records} events with {limit} bytes in all can be imported at once. Split the import."""


def import_page(tx: Transaction, name: str, records: Sequence[bytes], back: bool) -> tuple[ImportOutcome, ...]:
    """Import a page of records; returns the outcome of each. `back`: from the newest to the oldest, below the stored
    events, else upwards. Raises NotAMember or PageTooLarge, and then nothing has changed."""
    group = tx.group(name)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if len(records) > RECORDS_MAX or sum(map(len, records)) > BYTES_MAX:
        raise PageTooLarge(records=RECORDS_MAX, limit=BYTES_MAX)
    events = [_read(record) for record in records]
    if back:
        outcomes = _import_below(tx, name, events)
    else:
        outcomes = ["invalid" if event is None else _import_above(tx, name, event) for event in events]
    if tx.group(name).sync.gaps:
        tx.set_timer(TimerKind.GAPS, name, 1)  # some of the missing events may be here now
    if "new" in outcomes:
        corroboration.schedule(tx, name)
    return tuple(outcomes)


def _read(record: bytes) -> Event | None:
    try:
        return foreign_event(record)
    except RemoteError:
        return None


def _early_outcome(group: Group, event: Event) -> ImportOutcome | None:
    """The outcome that is clear at once; None: the event lies above or below the stored part of its author's chain."""
    author, chain = group.view.known(event.author), group.chain(event.author)
    if event.group_id != group.id:
        return "invalid"
    if author is None or event.author in group.trust.quarantine:
        return "not-a-member"
    if author.until is not None and event.seq > author.until:
        return "known" if event.id in group.control else "not-a-member"
    first = chain.backfill.first if chain.backfill is not None else 1
    if first <= event.seq <= chain.seq:
        if event.id == chain.head_id or event.id in group.control:
            return "known"
        # For a post in between only the log can tell whether it is the same.
        if event.is_control:
            return "contradiction"
        return "occupied" if may_post(group.view, event.author, event.seq) else "known"
    if event.author == group.me and not stale_profile.is_suspended(group):
        return "own"
    return None


# --- upwards ----------------------------------------------------------------------------------------------------------


def _import_above(tx: Transaction, name: str, event: Event) -> ImportOutcome:
    group = tx.group(name)
    outcome = _early_outcome(group, event) or _obstacle(group, event)
    if outcome is not None:
        return outcome
    emitted = len(tx.effects)
    try:
        with tx.savepoint():
            receiving.receive_relayed(tx, name, group.me, event)
    except RemoteError:
        return "invalid"
    if event.id in _stored_ids(tx, emitted):
        return "new"
    group = tx.group(name)
    return "known" if event.id in group.control or group.chain(event.author).seq >= event.seq else "detached"


def _obstacle(group: Group, event: Event) -> ImportOutcome | None:
    """Why this event cannot be the next one of its chain; None: it can."""
    chain = group.chain(event.author)
    if any(dep not in group.control for dep in event.deps):
        return "missing-causes"
    if event.author in group.view.members:
        # Until the author announces where its chain begins for us, it only grows downwards.
        unannounced = bool(group.joining.event) and (chain.is_unannounced or event.author not in group.log.chains)
        begins = False
    else:
        unannounced, begins = False, chain.seq == 0
    if unannounced or not (event.seq == chain.seq + 1 or begins):
        return "detached"
    follows = not chain.head_id or event.pre == chain.head_id or event.seq != chain.seq + 1
    if not event.is_control and (not follows or contradicts_signed(signed_by(group, event.author), event)):
        return "contradiction"
    return None


# --- downwards --------------------------------------------------------------------------------------------------------


def _import_below(tx: Transaction, name: str, events: Sequence[Event | None]) -> list[ImportOutcome]:
    found: list[ImportOutcome] = ["invalid"] * len(events)
    candidates: list[tuple[int, Event]] = []
    for place, event in enumerate(events):
        judged = _early_outcome(tx.group(name), event) if event is not None else "invalid"
        if judged is not None:
            found[place] = judged
        elif event is not None:
            candidates.append((place, event))
    candidates.sort(key=lambda one: one[1].author)  # stable: each author's events stay in order
    for author, group_events in groupby(candidates, key=lambda one: one[1].author):
        batch = list(group_events)
        outcomes = _prepend(tx, name, author, [event for _, event in batch])
        for (place, _), outcome in zip(batch, outcomes, strict=True):
            found[place] = outcome
    return found


def _prepend(tx: Transaction, name: str, author: str, events: Sequence[Event]) -> list[ImportOutcome]:
    group = tx.group(name)
    chain = group.chain(author)
    is_empty = author not in group.log.chains and bool(group.joining.event)  # its newest event becomes the chain's end
    if not (is_empty or (chain.backfill is not None and chain.backfill.first > 1)):
        return ["detached"] * len(events)
    skipped = sum(event.seq > chain.seq for event in events) if not is_empty else 0
    emitted = len(tx.effects)
    stored_count = backfill.prepend(tx, name, group.me, author, events[skipped:])
    new = _stored_ids(tx, emitted)
    stored: list[ImportOutcome] = [
        "new" if event.id in new else "known" for event in events[skipped : skipped + stored_count]
    ]
    remaining: list[ImportOutcome] = ["detached"] * (len(events) - skipped - stored_count)
    if remaining:
        remaining[0] = _stop_reason(tx.group(name), events[skipped + stored_count])
    above: list[ImportOutcome] = ["detached"] * skipped
    return [*above, *stored, *remaining]


def _stop_reason(group: Group, event: Event) -> ImportOutcome:
    """Why the first rejected event was rejected."""
    known = group.chain(event.author).backfill
    if known is None or event.seq != known.first - 1:
        return "detached"
    return "contradiction" if known.previous_id and event.id != known.previous_id else "missing-causes"


def _stored_ids(tx: Transaction, emitted: int) -> set[str]:
    """The ids of the events stored by the effects from this index on."""
    return {effect.id for effect in tx.effects[emitted:] if isinstance(effect, StoreEvent)}
