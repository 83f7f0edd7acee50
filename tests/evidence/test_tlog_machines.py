"""Transparency log state machines with faulty witnesses: no fork, and no missing message."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import pytest

from tests.support.dispute_parties import did_of, seed_of
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.evidence import operator
from zerochat.evidence.note import Note, cosignature, parse_checkpoint
from zerochat.evidence.operator import OperatorLog
from zerochat.evidence.reader import ReaderLog
from zerochat.evidence.witness import (
    ENTRIES_MAX,
    Entry,
    Quorum,
    SizeMismatch,
    SplitView,
    WitnessLog,
    checkpoint,
    entry_of,
    is_split_view,
)

NOW_S = 1_700_000_000
MEMBERS = [bytes([n]) * 32 for n in range(1, 4)]
HISTORIES = 25


S = TypeVar("S")


def kept(state: S) -> S:
    """The state after a restart."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))


def with_lines(note: Note, seeds: Sequence[bytes]) -> Note:
    """The note, cosigned by all of these."""
    for seed in seeds:
        note = note.with_line(cosignature(note.text, seed, NOW_S))
    return note


def entry(number: int, seed: bytes = MEMBERS[0]) -> Entry:
    return entry_of("message", did_of(seed), str(number).encode())


class Operator:
    """The operator's state with its journal: sequenced entries and the checkpoints."""

    def __init__(self, seed: bytes, quorum: Quorum) -> None:
        self.seed, self.state = seed, OperatorLog(quorum)
        self.records: list[bytes] = []
        self.pieces: dict[int, Note] = {}
        """By where a piece begins: the checkpoint at its end."""

    def ask(self) -> None:
        begin = len(self.records)
        self.state, placed = self.state.propose(self.seed)
        if placed:
            assert self.state.proposed is not None
            self.records += placed
            self.pieces[begin] = self.state.proposed

    def piece(self, old: int) -> tuple[list[bytes], Note] | None:
        if (note := self.state.proposal_for(old)) is not None:
            return [], note
        note = self.pieces.get(old)
        return None if note is None else (self.records[old : parse_checkpoint(note.text).size], note)

    def fork(self) -> "Operator":
        other = Operator(self.seed, self.state.quorum)
        other.state, other.records, other.pieces = self.state, list(self.records), dict(self.pieces)
        return other


class Witness:
    """`lies`: it cosigns whatever it is shown."""

    def __init__(self, seed: bytes, quorum: Quorum, lies: bool) -> None:
        self.seed, self.did, self.lies = seed, did_of(seed), lies
        self.state = WitnessLog(quorum.origin, quorum.operator)
        self.split: SplitView | None = None

    def hear(self, old: int, records: list[bytes], note: Note, holds: Callable[[Entry], bool]) -> str | int | None:
        """Its cosignature line, or its size; None: no answer."""
        if self.lies:
            return cosignature(note.text, self.seed, NOW_S)
        try:
            self.state, line = self.state.cosign(old, records, note, holds, self.seed, NOW_S)
        except SizeMismatch as behind:
            return behind.size
        except Refused:
            return None
        except SplitView as split:
            self.split = split
            return None
        return line


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        mine, seeds = seed_of(self.dice), [seed_of(self.dice) for _ in range(self.dice.choice((3, 4, 5, 7)))]
        self.quorum = Quorum("zerochat/log", did_of(mine), tuple(map(did_of, seeds)))
        self.operator = Operator(mine, self.quorum)
        liars = self.dice.randint(0, self.quorum.max_faulty)
        self.witnesses = [Witness(one, self.quorum, place < liars) for place, one in enumerate(seeds)]
        self.reached = dict.fromkeys(self.quorum.witnesses, 0)

    def show(self, operator: Operator, witness: Witness, holds: Callable[[Entry], bool], loss: float) -> None:
        """One question and its answer, as far as either gets there."""
        old = self.reached[witness.did]
        piece = operator.piece(old)
        if piece is None or self.dice.random() < loss:
            return
        before = witness.state
        said = witness.hear(old, *piece, holds)
        if self.dice.random() < loss / 3:  # it dies before it has remembered that, or right after
            witness.state = kept(self.dice.choice((before, witness.state)))
            return
        if self.dice.random() < loss or said is None:
            return
        if isinstance(said, int):
            self.reached[witness.did] = said
            return
        with suppress(Unauthentic):  # for a checkpoint that is behind us
            operator.state = operator.state.add_cosignature(witness.did, said)
        self.reached[witness.did] = parse_checkpoint(piece[1].text).size


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_posted_entries_have_one_order_for_all(seed):
    world = World(seed)
    dice, mine, readers = world.dice, world.operator, [ReaderLog(world.quorum) for _ in range(2)]
    posted: list[bytes] = []
    away = {witness.did: dice.randint(0, 40) for witness in world.witnesses}
    for time in range(200):
        calm = time >= 60
        mine.state = kept(mine.state) if dice.random() < 0.1 else mine.state
        if not calm and dice.random() < 0.5:
            author = dice.choice(MEMBERS)
            posted.append(entry(time, author).record())
            mine.state = mine.state.post(did_of(author), posted[-1])
        mine.ask()
        for witness in world.witnesses:
            if calm or (away[witness.did] <= time and dice.random() < 0.7):
                world.show(mine, witness, lambda _, calm=calm: calm or dice.random() < 0.8, 0.0 if calm else 0.3)
        for place, reader in enumerate(readers):
            if mine.state.complete is not None and (calm or dice.random() < 0.2):
                size = parse_checkpoint(mine.state.complete.text).size
                readers[place] = reader.follow(mine.records[reader.frontier.size : size], mine.state.complete)
    assert mine.records == posted and not mine.state.pending and mine.state.proposed is None
    assert {reader.frontier for reader in readers} == {mine.state.frontier}
    assert all(one.lies or one.state.frontier == mine.state.frontier for one in world.witnesses)


def test_as_many_witnesses_lie_as_may():
    """One of four and two of seven, in some of the histories that are played here."""
    worlds = [World(seed) for seed in range(HISTORIES)]
    played = {(len(one.witnesses), sum(witness.lies for witness in one.witnesses)) for one in worlds}
    assert {(4, 1), (7, 2)} <= played and max(liars for _, liars in played) == 2


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_split_view_gets_no_two_quorums_and_is_convicted(seed):
    world = World(seed)
    dice, one = world.dice, world.operator
    everything = lambda _: True  # noqa: E731
    for number in range(dice.randint(0, 3)):
        one.state = one.state.post(did_of(MEMBERS[0]), entry(number).record())
        one.ask()
        for witness in world.witnesses:
            world.show(one, witness, everything, 0.0)
    other, begin = one.fork(), len(one.records)
    for branch, author in ((one, MEMBERS[1]), (other, MEMBERS[2])):
        branch.state = branch.state.post(did_of(author), entry(99, author).record())
        branch.ask()
    notes = one.pieces[begin], other.pieces[begin]
    assert is_split_view(*notes, world.quorum.operator) and not is_split_view(notes[0], notes[0], world.quorum.operator)
    for witness in world.witnesses:
        first, second = dice.sample((one, other), 2)
        for branch in (first, second):
            world.reached[witness.did] = begin
            world.show(branch, witness, everything, 0.0)
        if not witness.lies:
            assert witness.split is not None and is_split_view(
                witness.split.one, witness.split.other, one.state.quorum.operator
            )
    whole = [branch.state.proposed is None for branch in (one, other)]
    assert whole.count(True) <= 1
    reader = ReaderLog(world.quorum)
    for branch, done in zip((one, other), whole, strict=True):
        if not done:
            with pytest.raises(Refused):
                reader.follow(branch.records, branch.pieces[begin])


def test_reader_detects_a_split_view():
    """With more lying witnesses than tolerated both logs get a quorum, and a reader of both can prove it."""
    dice = random.Random(1)
    mine, seeds = seed_of(dice), [seed_of(dice) for _ in range(4)]
    quorum = Quorum("zerochat/log", did_of(mine), tuple(map(did_of, seeds)))
    shown = []
    for author in MEMBERS[:2]:
        branch = Operator(mine, quorum)
        branch.state = branch.state.post(did_of(author), entry(1, author).record())
        branch.ask()
        for one in seeds:
            with_line = branch.state.proposed or branch.state.complete
            assert with_line is not None
            branch.state = branch.state.add_cosignature(did_of(one), cosignature(with_line.text, one, NOW_S))
        assert branch.state.complete is not None
        shown.append((branch.records, branch.state.complete))
    reader = ReaderLog(quorum).follow(*shown[0])
    assert reader.follow(*shown[0]) == reader
    with pytest.raises(SplitView) as found:
        reader.follow(*shown[1])
    assert is_split_view(found.value.one, found.value.other, quorum.operator)


@pytest.fixture
def mine():
    dice = random.Random(7)
    seeds = [seed_of(dice) for _ in range(4)]
    return Operator(seeds[0], Quorum("zerochat/log", did_of(seeds[0]), tuple(map(did_of, seeds[1:])))), seeds[1:]


def test_one_member_fills_no_log(mine):
    state = mine[0].state
    for number in range(operator.PENDING_PER_AUTHOR_MAX):
        state = state.post(did_of(MEMBERS[0]), entry(number).record())
    assert state.post(did_of(MEMBERS[0]), entry(0).record()) is state
    with pytest.raises(Refused, match="too many entries"):
        state.post(did_of(MEMBERS[0]), entry(-1).record())
    assert len(state.post(did_of(MEMBERS[1]), entry(1, MEMBERS[1]).record()).pending) == len(state.pending) + 1


def test_posts_are_authenticated_and_defences_signed(mine):
    state = mine[0].state
    with pytest.raises(Refused, match="another member"):
        state.post(did_of(MEMBERS[1]), entry(1, MEMBERS[0]).record())
    defence = entry_of("defence", did_of(MEMBERS[0]), b"no", "d" * 43)
    with pytest.raises(Unauthentic):
        state.post(did_of(MEMBERS[0]), defence.signed(MEMBERS[1]).record())
    with pytest.raises(Malformed):
        state.post(did_of(MEMBERS[0]), b"{}")
    assert state.post(did_of(MEMBERS[0]), defence.signed(MEMBERS[0]).record()).pending


def test_a_piece_is_bounded_and_one_is_under_way_at_a_time(mine):
    one, seeds = mine
    members = [bytes([n]) * 32 for n in range(1, 9)]
    for number in range(ENTRIES_MAX + 10):
        author = members[number % len(members)]
        one.state = one.state.post(did_of(author), entry(number, author).record())
    one.ask()
    assert len(one.records) == ENTRIES_MAX and len(one.state.pending) == 10
    one.ask()
    assert len(one.records) == ENTRIES_MAX, "the first is not whole yet"
    for seed in seeds:
        now = one.state.proposed or one.state.complete
        assert now is not None
        one.state = one.state.add_cosignature(did_of(seed), cosignature(now.text, seed, NOW_S))
    one.ask()
    assert len(one.records) == ENTRIES_MAX + 10


def test_cosignature_counts_once_for_its_witness(mine):
    one, seeds = mine
    one.state = one.state.post(did_of(MEMBERS[0]), entry(1).record())
    one.ask()
    asked = one.state.proposed
    assert asked is not None
    line = cosignature(asked.text, seeds[0], NOW_S)
    state = one.state.add_cosignature(did_of(seeds[0]), line)
    assert state.add_cosignature(did_of(seeds[0]), cosignature(asked.text, seeds[0], NOW_S + 9)) == state
    for by, said, error in (
        (did_of(MEMBERS[0]), cosignature(asked.text, MEMBERS[0], NOW_S), Refused),
        (did_of(seeds[1]), line, Unauthentic),
        (did_of(seeds[1]), cosignature(asked.text.replace("\n1\n", "\n2\n"), seeds[1], NOW_S), Unauthentic),
        (did_of(seeds[1]), "nothing", Malformed),
    ):
        with pytest.raises(error):
            state.add_cosignature(by, said)


def test_reader_requires_a_quorum_and_matching_entries(mine):
    one, seeds = mine
    one.state = one.state.post(did_of(MEMBERS[0]), entry(1).record())
    one.ask()
    asked = one.state.proposed
    assert asked is not None
    reader = ReaderLog(one.state.quorum)
    with pytest.raises(Refused, match="witnesses"):
        reader.follow(one.records, asked)
    whole = with_lines(asked, seeds)
    with pytest.raises(Refused, match="missing"):
        reader.follow([], whole)
    with pytest.raises(Refused, match="do not match"):
        reader.follow([entry(2).record()], whole)
    elsewhere = with_lines(checkpoint("zerochat/other", one.state.frontier, one.seed), seeds)
    with pytest.raises(Unauthentic):
        reader.follow(one.records, elsewhere)
    assert reader.follow(one.records, whole).frontier == one.state.frontier
