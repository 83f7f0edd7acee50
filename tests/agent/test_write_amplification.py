"""How much a member's posts make the real journal write: bytes below SQLite, in the write-ahead log and the file."""

import random
import string
from typing import get_args

import pytest

from tests.support.counting_disk import CountingDisk
from tests.support.hostile_world import Hostile
from zerochat.agent.storage import search_index
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import JournalEffect

KEY = bytes(range(32))
POST_CHARS, ROUND_POSTS, ROUNDS = 3_500, 250, 6
"""5.5 MiB, in rounds that each fill the reorder buffer."""


def one_word(_):
    return "x" * POST_CHARS


def random_words(dice):
    """The worst for a full-text index: hardly any word occurs twice."""
    words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(3, 9))) for _ in range(POST_CHARS // 6)]
    return " ".join(words)[:POST_CHARS]


class Victim(Hostile):
    """What the core of n0 stores is stored in a real journal, so many envelopes of Mallory's in a turn."""

    def __init__(self, journal, disk, in_a_turn, text):
        self.storage = []
        super().__init__()
        self.journal, self.disk, self.in_a_turn, self.text = journal, disk, in_a_turn, text
        self.dice, self.sent, self.seq, self.pre = random.Random(5), 0, 0, ""
        self.lamport = self.group("n0").log.lamport
        self.store()
        disk.written = 0

    def _step(self, node, input_):
        effects = super()._step(node, input_)
        if node.name == "n0":
            self.storage += [effect for effect in effects if isinstance(effect, get_args(JournalEffect))]
        return effects

    def store(self):
        self.journal.commit(self.nodes["n0"].agent, self.storage)
        self.storage = []

    def next_post(self):
        self.seq, self.lamport = self.seq + 1, self.lamport + 1
        place = {"seq": self.seq, "pre": self.pre, "lamport": self.lamport, "time": self.now}
        event = self.event(**place, body={"text": self.text(self.dice)})
        self.pre = event.id
        return event

    def round(self, *, in_order):
        first, *rest = [self.next_post() for _ in range(ROUND_POSTS)]
        for number, event in enumerate([first, *rest] if in_order else [*rest, first], 1):
            self.sent += len(event.record)
            self.utter_event("n0", event)
            if number % self.in_a_turn == 0:
                self.store()
            self.run(for_ms=3)
        self.run(for_ms=2_000)
        self.store()
        assert self.group("n0").log.chains[self.mallory.me].seq == self.seq


def written(folder, rounds, *, in_a_turn, text, in_order=False):
    """The bytes written for each byte of Mallory's posts, until the journal is closed."""
    Journal.create(folder / "journal.db", KEY).close()
    with CountingDisk() as disk:
        journal = Journal.open(folder / "journal.db", KEY, vfs=disk.vfs)
        victim = Victim(journal, disk, in_a_turn, text)
        for _ in range(rounds):
            victim.round(in_order=in_order)
        journal.close()
        factor = disk.written / victim.sent
    print(f"{victim.sent >> 10} KiB sent, {disk.written >> 10} KiB written: {factor:.1f} times")
    return factor


@pytest.mark.slow
@pytest.mark.parametrize(("text", "bound"), [(one_word, 4), (random_words, 9)])
def test_posts_out_of_order_are_written_a_few_times(tmp_path, text, bound):
    """5.5 MiB of them made 633 MiB of writes. The index of random words is twice as long as they are, and everything is
    written to the log and to the file."""
    assert written(tmp_path, ROUNDS, in_a_turn=32, text=text) <= bound


@pytest.mark.slow
def test_the_index_is_written_in_batches(tmp_path, monkeypatch):
    """A turn with one post writes as many pages of the index as one with many."""
    batched, each = tmp_path / "batched", tmp_path / "each"
    batched.mkdir()
    each.mkdir()
    with_batches = written(batched, 2, in_a_turn=1, text=random_words, in_order=True)
    monkeypatch.setattr(search_index, "UNINDEXED_BYTES_MAX", 0)
    assert with_batches <= 0.7 * written(each, 2, in_a_turn=1, text=random_words, in_order=True)
