"""Reads out of the journal what a member may have of a group's log (`group/history/`)."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, takewhile

from msgspec import Struct, field

from zerochat.agent.storage.journal import Journal
from zerochat.crypto.encoding import b64url_bytes
from zerochat.group.effects import Compare, Fetch, Forget, Refute, Remember, Remembered
from zerochat.group.event_log.event import CONTROL
from zerochat.group.inputs import Compared, Fetched
from zerochat.group.sync import fork_detection as compare
from zerochat.group.sync.history_policy import Entry, floor_of, portion
from zerochat.group.sync.negentropy import Items

FLOORS_MAX = 256
LISTS_MAX = 4
"""Groups whose posts are kept ready for a comparison, for some 45 bytes each."""
FRESH_MAX = 10_000
"""Posts that have come since; beyond that it is no longer worth while to keep them apart."""


class _Posts(Struct):
    """A group's posts from a Lamport time on."""

    since: int
    items: Items
    fresh: set[tuple[int, str]] = field(default_factory=set)
    """Those that have come since: Lamport time and id."""


class Shares:
    """Answers of one journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._floors: dict[tuple[str, tuple[str, ...], int], int] = {}
        """By group, rules and when a member joined: what was before that does not change any more."""
        self._posts: dict[str, _Posts] = {}
        """By group, the one that was asked for last at the end."""

    def fetch(self, asked: Fetch) -> Fetched:
        """What was asked for, as far as the member may have it. Raises whatever the journal does."""
        entries = self._back(asked) if asked.back else self._forward(asked)
        records, more = portion(entries, asked.want, self._floor(asked), asked.limit)
        answer = asked.group, asked.member, asked.thread, tuple(records), asked.back, more
        return Fetched(*answer, asked.want, asked.page, asked.pages)

    def _floor(self, asked: Fetch) -> int:
        key = asked.group, asked.rules, asked.joined
        if key not in self._floors:
            if len(self._floors) >= FLOORS_MAX:
                self._floors.clear()
            nth_post = self._journal.nth_post
            self._floors[key] = floor_of(asked.rules, asked.joined, lambda n, before: nth_post(asked.group, n, before))
        return self._floors[key]

    def _forward(self, asked: Fetch) -> Iterator[Entry]:
        floor, limit = self._floor(asked), asked.limit + 1
        chains = [
            self._journal.stretch(asked.group, author, after, upto, floor, limit) for author, after, upto in asked.want
        ]
        rows = merge(*chains, key=lambda row: row.seq)
        return (Entry(row.author, row.position, row.lamport, row.record) for row in rows)

    def _back(self, asked: Fetch) -> Iterator[Entry]:
        """By author and place, so that what is passed over costs nothing; later is greater within a chain."""
        floor = self._floor(asked)
        chains = [
            takewhile(lambda entry: entry.lamport >= floor, self._journal.stretch_back(asked.group, *wanted))
            for wanted in asked.want
        ]
        return merge(*chains, key=lambda entry: (entry.lamport, entry.author), reverse=True)

    # --- comparing ----------------------------------------------------------------------------------------------------

    def compare(self, asked: Compare) -> Compared:
        """What comes of comparing a group's log with what a member says of its own. Raises whatever the journal
        does."""

        def place_of(name: str) -> tuple[str, int] | None:
            row = self._journal.event(asked.group, name)
            return None if row is None or row.vouched or row.refuted else (row.author, row.position)

        return compare.look(asked, self._items(asked.group, asked.since), place_of)

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

    def note(self, remembered: Iterable[Remembered]) -> None:
        """The journal has taken this."""
        for one in remembered:
            kept = self._posts.get(one.group)
            if kept is None:
                continue
            if isinstance(one, Remember) and one.type not in CONTROL and one.lamport >= kept.since:
                kept.fresh.add((one.lamport, one.id))
            if isinstance(one, Refute | Forget) or len(kept.fresh) > FRESH_MAX:
                del self._posts[one.group]


def _raw(posts: Iterable[tuple[int, str]]) -> list[tuple[int, bytes]]:
    """The same with ids as bytes, as `Items` sorts them."""
    return sorted((lamport, b64url_bytes(event)) for lamport, event in posts)
