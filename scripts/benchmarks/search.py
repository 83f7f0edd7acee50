"""Search: the time to find posts in a long journal, and the cost of the search index for each message.

Posts are committed with and without the index, in turn, into two journals in one folder. The searches run on a journal
of many posts; beside each is the time to read and scan all records, as a journal without an index would. A word in
every third post and prefixes of words are the hardest cases for an index.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks import Figure, Report, Row, scaled, take_turns
from benchmarks.journal import Turn, turns_of
from benchmarks.ours.chatter import WORDS, text_of
from zerochat.agent.storage import search_index
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import JournalEffect
from zerochat.presentation.search_query import read_query

KEY = bytes(range(32))
POSTS = 100_000
BATCHES = (1, 16, 256)
PAGE = 51
SEARCH_MS_GOAL = 50.0
QUERIES = {
    "a rare word": f'"{WORDS[2_500]}"',
    "two words": f'"{WORDS[200]}" "{WORDS[40]}"',
    "a word that every third has": f'"{WORDS[0]}"',
    "words that begin so": WORDS[0][:2],
    "a phrase": f'"{WORDS[0]} {WORDS[1]}"',
}


class Plain(Journal):
    """The same without an index."""

    def _apply_effects(self, remembered: Sequence[JournalEffect]) -> None:
        kept, search_index.reindex = search_index.reindex, lambda *_: None
        try:
            super()._apply_effects(remembered)
        finally:
            search_index.reindex = kept


class Writer:
    def __init__(self, path: Path, kind: type[Journal], turns: list[Turn]) -> None:
        self.journal, self.turns, self.rounds = kind.create(path, KEY), turns, count()
        self.journal.commit(turns[0].before)

    def rate(self) -> float:
        """Durable posts per second."""
        number = next(self.rounds)
        events = [
            [
                replace(one, id=f"{number} {one.id}", record=_record(number * 7 + at))
                for at, one in enumerate(batch.events)
            ]
            for batch in self.turns
        ]
        start = time.perf_counter()
        for batch, fresh in zip(self.turns, events, strict=True):
            self.journal.commit(batch.after, fresh)
        return sum(map(len, events)) / (time.perf_counter() - start)


def _record(number: int) -> bytes:
    """As long as a real one; its content is not read."""
    return msgspec.json.encode({"body": {"text": text_of(number)}, "rest": "x" * 350})


def rate_row(folder: Path, batch: int, rounds: int) -> Row:
    turns = turns_of(batch, max(4, 64 // batch))
    ours, plain = Writer(folder / "indexed.db", Journal, turns), Writer(folder / "plain.db", Plain, turns)
    try:
        figures = take_turns({"ours": ours.rate, "plain": plain.rate}, rounds)
    finally:
        ours.journal.close()
        plain.journal.close()
    case = f"durable posts, {batch} in a turn"
    floor = Figure.of(figures["plain"])
    return Row(case, "1/s", "higher", Figure.of(figures["ours"]), floor, "the same journal without the index")


def long_journal(path: Path, posts: int) -> Journal:
    (batch,) = turns_of(1, 1)
    (model,) = batch.events
    journal = Journal.create(path, KEY)
    for first in range(0, posts, 1_000):
        journal.commit(
            batch.after,
            [
                replace(
                    model,
                    id=f"{number:043d}",
                    seq=number + 1,
                    lamport=model.lamport + number * 20_000,
                    record=_record(number),
                )
                for number in range(first, min(first + 1_000, posts))
            ],
        )
    return journal


def find(journal: Journal, question: str) -> float:
    start = time.perf_counter()
    journal.search(question, 0, search_index.POSITION_MAX, PAGE)
    return (time.perf_counter() - start) * 1000


def read_all(journal: Journal, word: bytes) -> float:
    start, seq = time.perf_counter(), 0
    while rows := journal.by_seq(seq, 500):
        _ = [row.id for row in rows if word in row.record]
        seq = rows[-1].seq
    return (time.perf_counter() - start) * 1000


def search_rows(folder: Path, posts: int, rounds: int) -> list[Row]:
    journal = long_journal(folder / "long.db", posts)
    try:
        runs: dict[str, Callable[[], float]] = {
            case: partial(find, journal, search_index.fts_query(read_query(query, 0), [], []))
            for case, query in QUERIES.items()
        }
        found = take_turns(runs, rounds)
        every = Figure.of([read_all(journal, WORDS[2_500].encode()) for _ in range(2)])
        pages = journal._scalar("SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'words%' OR name LIKE '%said%'")
        size = Figure.of([(pages or 0) / 2**20])
        whole = Figure.of([journal.sizes().disk_bytes / 2**20])
    finally:
        journal.close()
    rows = [
        Row(
            f"the newest {PAGE - 1} of {posts:,} posts: {case}",
            "ms",
            "lower",
            Figure.of(values),
            peers={"reading all records": every},
            goal=SEARCH_MS_GOAL,
        )
        for case, values in found.items()
    ]
    return [*rows, Row(f"the index of {posts:,} posts", "MB", "lower", size, whole, "the whole journal with it")]


def measure(quick: bool) -> Report:
    rounds, posts = scaled(quick, (15, POSTS), (5, POSTS // 5), (1, 2_000))
    with tempfile.TemporaryDirectory(prefix="zerochat-bench-") as name:
        rows = []
        for batch in BATCHES:
            folder = Path(name) / str(batch)
            folder.mkdir()
            rows.append(rate_row(folder, batch, rounds))
        return Report([*rows, *search_rows(Path(name), posts, rounds)])
