"""History reader: answers pull requests and set reconciliation from the journal, within the history policy."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, takewhile

from msgspec import Struct, field

from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url_bytes
from zerochat.group.effects import DeleteLog, JournalEffect, ReadHistory, Reconcile, RefuteEvents, StoreEvent
from zerochat.group.event_log.event import CONTROL
from zerochat.group.inputs import HistoryRead, Reconciled
from zerochat.group.sync import fork_detection
from zerochat.group.sync.history_policy import Entry, oldest_allowed, take_page
from zerochat.group.sync.negentropy import Items

FLOORS_MAX = 256
LISTS_MAX = 4
"""Groups whose posts are cached for reconciliation, at some 45 bytes per post."""
FRESH_MAX = 10_000
"""New posts beside a cached list; with more of them the list is rebuilt."""


class _Posts(Struct):
    """A group's posts from a Lamport time on."""

    since: int
    items: Items
    fresh: set[tuple[int, str]] = field(default_factory=set)
    """New posts since `items` was built: Lamport time and id."""


class HistoryReader:
    """The reader of one journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._floors: dict[tuple[str, tuple[str, ...], int], int] = {}
        """Policy floors by group, rules and time of joining; the history before that time is final."""
        self._posts: dict[str, _Posts] = {}
        """Cached posts by group, least recently used first."""

    def answer_pull(self, asked: ReadHistory) -> HistoryRead:
        """The requested events, as far as the history policy allows. Raises what the journal raises."""
        entries = self._back(asked) if asked.backwards else self._forward(asked)
        page, more = take_page(entries, asked.ranges, self._floor(asked), asked.limit)
        records = self._journal.records_of(page)
        answer = asked.group, asked.member, asked.thread, records, asked.backwards, more
        return HistoryRead(*answer, asked.ranges, asked.page, asked.pages)

    def _floor(self, asked: ReadHistory) -> int:
        key = asked.group, asked.rules, asked.joined
        if key not in self._floors:
            if len(self._floors) >= FLOORS_MAX:
                self._floors.clear()
            nth_post = self._journal.nth_post
            self._floors[key] = oldest_allowed(
                asked.rules, asked.joined, lambda n, before: nth_post(asked.group, n, before)
            )
        return self._floors[key]

    def _forward(self, asked: ReadHistory) -> Iterator[Entry]:
        """In the order of arrival, merged lazily from the chains."""
        floor = self._floor(asked)
        chains = []
        for author, after, upto in asked.ranges:
            begin = self._last_below(asked.group, author, after, upto, floor) if floor else after
            chains.append(self._journal.chain_entries(asked.group, author, begin, upto))
        return merge(*chains, key=lambda entry: entry.key)

    def _last_below(self, group: str, author: str, after: int, upto: int, floor: int) -> int:
        """The last position of this range before all events that are not older than the floor, by binary search: a
        chain is in Lamport order. `after` where all of it is."""
        while after < upto:
            middle = (after + upto) // 2
            entry = next(self._journal.chain_entries(group, author, middle, upto), None)
            if entry is not None and entry.lamport < floor:
                after = entry.position
            else:
                upto = middle
        return after

    def _back(self, asked: ReadHistory) -> Iterator[Entry]:
        """Newest first, merged lazily from the chains, so that skipped events cost nothing."""
        floor = self._floor(asked)
        chains = [
            takewhile(
                lambda entry: entry.lamport >= floor,
                self._journal.chain_entries(asked.group, *wanted, backwards=True),
            )
            for wanted in asked.ranges
        ]
        return merge(*chains, key=lambda entry: (entry.lamport, entry.author), reverse=True)

    # --- reconciliation------------------------------------------------------------------------------------------------

    def compare(self, asked: Reconcile) -> Reconciled:
        """What comes of comparing a group's log with what a member says of its own. Raises whatever the journal
        does."""

        def place_of(name: str) -> tuple[str, int] | None:
            row = self._journal.event(asked.group, name)
            return None if row is None or row.relayed_by or row.refuted else (row.author, row.position)

        return fork_detection.reconcile(asked, self._items(asked.group, asked.since), place_of)

    def _items(self, group: str, since: int) -> Items:
        kept = self._posts.pop(group, None)
        if kept is None or kept.since != since:
            kept = _Posts(since, Items(_raw(self._journal.posts_since(group, since))))
        elif kept.fresh:
            kept = _Posts(since, Items(one for one, _ in groupby(merge(kept.items, _raw(kept.fresh)))))
        while len(self._posts) >= LISTS_MAX:
            del self._posts[next(iter(self._posts))]
        self._posts[group] = kept
        return kept.items

    def note_stored(self, remembered: Iterable[JournalEffect]) -> None:
        """Update the caches with stored effects."""
        for one in remembered:
            kept = self._posts.get(one.group)
            if kept is None:
                continue
            if isinstance(one, StoreEvent) and one.type not in CONTROL and one.lamport >= kept.since:
                kept.fresh.add((one.lamport, one.id))
            if isinstance(one, RefuteEvents | DeleteLog) or len(kept.fresh) > FRESH_MAX:
                del self._posts[one.group]


def _raw(posts: Iterable[tuple[int, str]]) -> list[tuple[int, bytes]]:
    """Sorted items with the ids as bytes."""
    return sorted((lamport, b64url_bytes(event)) for lamport, event in posts)
