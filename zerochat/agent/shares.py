"""Reads out of the journal what a member may have of a group's log (`group/history/`)."""

from collections.abc import Iterator
from heapq import merge

from zerochat.agent.journal import Journal, Row
from zerochat.group.effects import Fetch
from zerochat.group.history.policy import Entry, floor_of, portion
from zerochat.group.stimuli import Fetched

PAGE_ROWS_MIN, PAGE_ROWS = 16, 256
"""Rows of one author that are read at once: few at first, because there may be many authors."""
FLOORS_MAX = 256


class Shares:
    """Answers of one journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._floors: dict[tuple[str, tuple[str, ...], int], int] = {}
        """By group, rules and when a member joined: what was before that does not change any more."""

    def fetch(self, asked: Fetch) -> Fetched:
        """What was asked for, as far as the member may have it. Raises whatever the journal does."""
        rows = self._back(asked) if asked.back else self._forward(asked)
        entries = (Entry(row.author, row.position, row.lamport, row.record) for row in rows)
        records, more = portion(entries, asked.want, self._floor(asked), asked.limit)
        return Fetched(asked.group, asked.member, asked.thread, tuple(records), asked.back, more)

    def _floor(self, asked: Fetch) -> int:
        key = asked.group, asked.rules, asked.joined
        if key not in self._floors:
            if len(self._floors) >= FLOORS_MAX:
                self._floors.clear()
            nth_post = self._journal.nth_post
            self._floors[key] = floor_of(asked.rules, asked.joined, lambda n, before: nth_post(asked.group, n, before))
        return self._floors[key]

    def _forward(self, asked: Fetch) -> Iterator[Row]:
        chains = [
            self._journal.stretch(asked.group, author, after, upto, asked.limit + 1)
            for author, after, upto in asked.want
        ]
        return merge(*chains, key=lambda row: row.seq)

    def _back(self, asked: Fetch) -> Iterator[Row]:
        """By author and place, so that what is passed over costs nothing; later is greater within a chain."""
        chains = [self._chain_back(asked.group, author, after, upto) for author, after, upto in asked.want]
        return merge(*chains, key=lambda row: (row.lamport, row.author, row.id), reverse=True)

    def _chain_back(self, group: str, author: str, after: int, upto: int) -> Iterator[Row]:
        size = PAGE_ROWS_MIN
        while page := self._journal.stretch_back(group, author, after, upto, size):
            yield from page
            upto, size = page[-1].position - 1, PAGE_ROWS
