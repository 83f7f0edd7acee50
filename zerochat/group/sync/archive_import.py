"""Taking in a group's events out of a file: what a member could hand over, checked as if one did, and nothing more.

Whoever has such a file here vouches for it: what is not signed, or named by its author's own word, is *vouched* by
ourselves (`vouched.py`) until its author confirms it. What is above the part of a chain that is here goes the way of a
share (`log.hear_shared`), what is below it that of the history (`past.prepend`); both hang it by its hash on what is
here. Nothing is kept for later: what does not join on may come again, once something before or after it is here.
"""

from collections.abc import Sequence
from itertools import groupby

from zerochat.errors import LocalError, NotAMember, RemoteError
from zerochat.group.effects import Outcome, Remember
from zerochat.group.event_log import log
from zerochat.group.event_log.event import Event, foreign_event
from zerochat.group.membership import may_post
from zerochat.group.state import Group
from zerochat.group.sync import backfill, corroboration, stale_profile
from zerochat.group.sync.relayed_events import contradicted, signed_by
from zerochat.group.transaction import Turn

RECORDS_MAX = 256
BYTES_MAX = 1_000_000
"""Of all records of one page."""


class PageTooLarge(LocalError):
    """At most {records} events, with {limit} bytes in all, can be imported at once. Give them in several parts."""


def take(turn: Turn, name: str, records: Sequence[bytes], back: bool) -> tuple[Outcome, ...]:
    """Take in a page of records; what has become of each. `back`: it goes from the newest to the oldest, down from what
    is here, else from the oldest up. Raises NotAMember or PageTooLarge, and then nothing has changed."""
    group = turn.group(name)
    if group.state != "active":
        raise NotAMember(group=group.name)
    if len(records) > RECORDS_MAX or sum(map(len, records)) > BYTES_MAX:
        raise PageTooLarge(records=RECORDS_MAX, limit=BYTES_MAX)
    events = [_read(record) for record in records]
    if back:
        found = _below(turn, name, events)
    else:
        found = ["invalid" if event is None else _above(turn, name, event) for event in events]
    if turn.group(name).needs:
        turn.timer("need", name, 1)  # some of it may be here now
    if "new" in found:
        corroboration.soon(turn, name)
    return tuple(found)


def _read(record: bytes) -> Event | None:
    try:
        return foreign_event(record)
    except RemoteError:
        return None


def _judged(group: Group, event: Event) -> Outcome | None:
    """What is clear before anything is tried; None: it stands above or below what is here of its author's chain."""
    author, chain = group.view.known(event.author), group.chain(event.author)
    if event.group_id != group.id:
        return "invalid"
    if author is None or event.author in group.quarantine:
        return "stranger"
    if author.until is not None and event.seq > author.until:
        return "known" if event.id in group.control else "stranger"
    first = chain.past.first if chain.past is not None else 1
    if first <= event.seq <= chain.seq:
        if event.id == chain.tip or event.id in group.control:
            return "known"
        # Of a post in between only the log can say whether it is the one that is here.
        if event.is_control:
            return "contradiction"
        return "taken" if may_post(group.view, event.author, event.seq) else "known"
    if event.author == group.me and not stale_profile.suspended(group):
        return "own"
    return None


# --- upwards --------------------------------------------------------------------------------------------------------


def _above(turn: Turn, name: str, event: Event) -> Outcome:
    group = turn.group(name)
    judged = _judged(group, event) or _fault(group, event)
    if judged is not None:
        return judged
    before, said = turn.agent, len(turn.effects)
    try:
        log.hear_shared(turn, name, group.me, event)
    except RemoteError:
        turn.agent = before
        del turn.effects[said:]
        return "invalid"
    if event.id in _remembered(turn, said):
        return "new"
    group = turn.group(name)
    return "known" if event.id in group.control or group.chain(event.author).seq >= event.seq else "apart"


def _fault(group: Group, event: Event) -> Outcome | None:
    """Why this event cannot be the next one of its chain; None: it can."""
    chain = group.chain(event.author)
    if any(dep not in group.control for dep in event.deps):
        return "causes"
    if event.author in group.view.members:
        # A newcomer does not know from where on a chain is meant for it, until its author says so: it goes down only.
        untold = bool(group.entry) and (chain.untold or event.author not in group.chains)
        begins = False
    else:
        untold, begins = False, chain.seq == 0
    if untold or not (event.seq == chain.seq + 1 or begins):
        return "apart"
    follows = not chain.tip or event.pre == chain.tip or event.seq != chain.seq + 1
    if not event.is_control and (not follows or contradicted(signed_by(group, event.author), event)):
        return "contradiction"
    return None


# --- downwards ------------------------------------------------------------------------------------------------------


def _below(turn: Turn, name: str, events: Sequence[Event | None]) -> list[Outcome]:
    found: list[Outcome] = ["invalid"] * len(events)
    waiting: list[tuple[int, Event]] = []
    for place, event in enumerate(events):
        judged = _judged(turn.group(name), event) if event is not None else "invalid"
        if judged is not None:
            found[place] = judged
        elif event is not None:
            waiting.append((place, event))
    waiting.sort(key=lambda one: one[1].author)  # each author's stay in their order
    for author, stretch in groupby(waiting, key=lambda one: one[1].author):
        part = list(stretch)
        outcomes = _prepended(turn, name, author, [event for _, event in part])
        for (place, _), outcome in zip(part, outcomes, strict=True):
            found[place] = outcome
    return found


def _prepended(turn: Turn, name: str, author: str, events: Sequence[Event]) -> list[Outcome]:
    group = turn.group(name)
    chain = group.chain(author)
    unheard = author not in group.chains and bool(group.entry)  # then its newest event is where it begins
    if not (unheard or (chain.past is not None and chain.past.first > 1)):
        return ["apart"] * len(events)
    skipped = sum(event.seq > chain.seq for event in events) if not unheard else 0
    said = len(turn.effects)
    got = backfill.prepend(turn, name, group.me, author, events[skipped:])
    new = _remembered(turn, said)
    taken: list[Outcome] = ["new" if event.id in new else "known" for event in events[skipped : skipped + got]]
    rest: list[Outcome] = ["apart"] * (len(events) - skipped - got)
    if rest:
        rest[0] = _stopped(turn.group(name), events[skipped + got])
    above: list[Outcome] = ["apart"] * skipped
    return [*above, *taken, *rest]


def _stopped(group: Group, event: Event) -> Outcome:
    """Why the first event that was not taken was not."""
    known = group.chain(event.author).past
    if known is None or event.seq != known.first - 1:
        return "apart"
    return "contradiction" if known.before and event.id != known.before else "causes"


def _remembered(turn: Turn, said: int) -> set[str]:
    """What has been kept since so many effects were said."""
    return {effect.id for effect in turn.effects[said:] if isinstance(effect, Remember)}
