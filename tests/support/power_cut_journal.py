"""Real journals on a disk with power cuts: the workload, and the contents that must survive.

The workload is that of an agent: transactions of real cores (`transactions.py`), singly or in groups, metadata before
the first state, checkpoints of the write-ahead log, starts and stops, and a forgotten group. After each step the whole
content is recorded; a power cut must leave one of these contents, none older than the last commit.
"""

import random
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count, islice, repeat
from multiprocessing import get_context
from pathlib import Path

import apsw
from msgspec.structs import replace

from tests.support.powercut import KINDS, Choice, Disk, Image, Key, write_folder
from tests.support.transactions import Step, histories, together
from zerochat.agent.api.subscriptions.store import Consumer, DurableNotification, StoredAnswer, SubscriptionRecords
from zerochat.agent.storage.journal import Journal
from zerochat.errors import LocalError
from zerochat.group.effects import DeleteLog
from zerochat.group.event_log.event import foreign_event
from zerochat.group.state import Agent

KEY = bytes(range(32))
TABLES = ("meta", "events", "receipts", "notifications", "consumers", "keys", "sqlite_sequence")
EACH_LIFE = 500
AGAIN_EVERY, ON_EVERY = 40, 60
"""Of so many disks one is opened with the power going once more meanwhile; and on one all goes on to the end."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What the agent itself must know."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Fold:
    """The write-ahead log goes into the file, as SQLite decides by itself when it is long."""

    how: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The agent ends, and starts again."""


Deed = Step | Meta | Fold | Restart


def deeds(dice: random.Random, most: int = 24) -> list[Deed]:
    """What an agent might do, by lot: a stretch of some agent's life."""
    life = dice.choice(histories(dice.randrange(100)))
    begin = dice.randrange(max(1, len(life) - most))
    turns = list(life[begin : begin + most])
    found: list[Deed] = []
    while turns:
        size = dice.choice((1, 1, 1, 2, 5))
        found.append(together(turns[:size]))
        del turns[:size]
        match dice.randrange(12):
            case 0:
                found.append(Restart())
            case 1:
                found.append(Fold(dice.choice(("PASSIVE", "TRUNCATE"))))
            case 2:
                found.append(Meta(dice.choice(("label", "pair_port")), dice.randbytes(5)))
    if dice.random() < 0.3:
        state = life[-1].state
        gone = next(iter(state.groups), "")
        kept = {name: group for name, group in state.groups.items() if name != gone}
        found.append(Step(replace(state, groups=kept), (DeleteLog(gone),)))
    return found


@dataclass(frozen=True, slots=True)
class Mode:
    """How strict the journal's database is; None: as our own code makes it."""

    journal: str | None = None
    synchronous: str | None = None
    through: bool = True
    """Whether a sync goes further than to the drive's own cache."""

    def __call__(self, db: apsw.Connection) -> None:
        for name, value in (("journal_mode", self.journal), ("synchronous", self.synchronous)):
            if value is not None:
                db.pragma(name, value)
        if not self.through:
            db.pragma("fullfsync", 0)
            db.pragma("checkpoint_fullfsync", 0)


AS_IT_IS = Mode()


@dataclass(slots=True)
class Trial:
    """One journal's life on a disk, and every content that it had."""

    disk: Disk
    deeds: Sequence[Deed]
    contents: list[int] = field(default_factory=list)
    """After so many deeds."""


def made(path: Path) -> None:
    """A new journal, that somebody reads."""
    with Journal.create(path, KEY, {"label": b"zoe"}) as journal:
        journal.stream.put(Consumer("ci", 0, 0, 1, 1))


def live(folder: Path, deeds: Sequence[Deed], pages: int, mode: Mode) -> Trial:
    """Make a journal in an empty folder and do all of that. `pages`: how long its write-ahead log gets."""
    path = folder / "journal.db"
    made(path)
    with Disk(folder) as disk:
        trial = Trial(disk, deeds)
        journal = _open(path, disk, pages, mode)
        trial.contents.append(content(journal))
        disk.mark(("done", 0))
        for number, deed in enumerate(deeds, 1):
            disk.mark(("begun", number))
            if isinstance(deed, Restart):
                journal.close()
                journal = _open(path, disk, pages, mode)
            else:
                do(journal, deed, number)
            disk.mark(("done", number))
            trial.contents.append(content(journal))
        journal.close()
    return trial


def _open(path: Path, disk: Disk, pages: int, mode: Mode) -> Journal:
    journal = Journal.open(path, KEY, vfs=disk.vfs)
    journal._db.pragma("wal_autocheckpoint", pages)
    mode(journal._db)
    journal.load(Agent)
    return journal


def do(journal: Journal, deed: Deed, number: int) -> None:
    """The `number`-th deed of a life."""
    match deed:
        case Step():
            meta = {"clock": str(number).encode()} if number % 3 == 0 else None
            journal.commit(deed.state, deed.remembered, said(journal, deed, number), meta)
        case Meta():
            journal.meta_set(deed.name, deed.value)
        case Fold():
            journal._db.pragma(f"wal_checkpoint({deed.how})")


def said(journal: Journal, tx: Step, number: int) -> SubscriptionRecords:
    """What a turn has to say of the stream: something happens, a consumer has read what there was, a key is used."""
    group = next(iter(tx.state.groups), "")
    happened = tuple(DurableNotification(group, "gap", number, f'{{"n":{n}}}') for n in range(number % 3))
    at = journal.stream.latest()
    read = replace(journal.stream.consumers["ci"], acked=at, sent_to=at, updated=number)
    used = StoredAnswer(group, f"key {number % 7}", number, bytes([number % 256]), "{}")
    return SubscriptionRecords(happened, (read,) if number % 2 else (), (used,))


def content(journal: Journal) -> int:
    """All of it, as one number. Of the parts of the state the order within each dict counts, except in a view, which
    comes back sorted, and not their numbers: where the key of the sealed ones is lost, as on these disks, which do not
    have it, all parts are written anew."""
    tables = [tuple(journal._db.execute(f"SELECT * FROM {table}").fetchall()) for table in TABLES]
    parts: dict[str, list[object]] = {}
    for path, value in journal._db.execute("SELECT path, value FROM checkpoint ORDER BY number").fetchall():
        parts.setdefault(str(path).rpartition("/")[0], []).append((path, value))
    for name in parts:
        if name.rpartition("/")[0].endswith("/view"):
            parts[name].sort()
    return hash((*tables, *((name, tuple(parts[name])) for name in sorted(parts))))


# --- and afterwards ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Verdict:
    """What has come of the disks."""

    states: int = 0
    lost: int = 0
    """Something that was promised is not there."""
    unreadable: int = 0
    """It does not open, its check fails, or something in it has no meaning."""
    half: int = 0
    """The content is none that it ever had: half of a turn, say."""
    first: str = ""
    """The first of these."""

    @property
    def bad(self) -> int:
        return self.lost + self.unreadable + self.half

    def add(self, other: "Verdict") -> None:
        self.states += other.states
        self.lost += other.lost
        self.unreadable += other.unreadable
        self.half += other.half
        self.first = self.first or other.first

    def __str__(self) -> str:
        return f"{self.states} states: {self.lost} lost, {self.unreadable} unreadable, {self.half} half"


class Inspector:
    """Looks at what a power cut has left, in a folder of its own."""

    def __init__(self, folder: Path, trial: Trial, verdict: Verdict, dice: random.Random) -> None:
        self._folder, self._trial, self.verdict, self._dice = folder, trial, verdict, dice
        self._places: dict[int, list[int]] = {}
        for number, each in enumerate(trial.contents):
            self._places.setdefault(each, []).append(number)
        self._done, self._begun = self._marks()
        self._decoded: set[int] = set()
        self._seen: set[Key] = set()

    def _marks(self) -> tuple[list[int], list[int]]:
        """Before each operation, how many deeds were done, and how many begun."""
        done, begun = [0], [0]
        for op in self._trial.disk.ops:
            kind, number = op.mark or ("", 0)
            done.append(max(done[-1], number if kind == "done" else 0))
            begun.append(max(begun[-1], number))
        return done, begun

    def look(self, at: int, image: Image, choice: Choice) -> None:
        """Count what becomes of this disk, if it was not looked at before."""
        key = image.key(choice)
        if key in self._seen:
            return
        self._seen.add(key)
        write_folder(self._folder, image.after(choice)[1])
        self.verdict.states += 1
        if self.verdict.states % AGAIN_EVERY == 0:
            self._open_and_cut(at)
        found = self._judge(at)
        if found is not None and self.verdict.states % ON_EVERY == 0:
            self._go_on(at, found)

    def _judge(self, at: int) -> int | None:
        """How many deeds have come through; None: too few, or too little of one."""
        done, begun = self._done[at], self._begun[at]
        try:
            with Journal.open(self._folder / "journal.db", KEY) as journal:
                journal.check()
                found = content(journal)
                places = self._places.get(found, [])
                if found not in self._decoded and places:
                    journal.load(Agent)
                    for row in journal.by_seq(0, 1 << 20):
                        foreign_event(row.record)
                    self._decoded.add(found)
        except (LocalError, apsw.Error) as error:
            self.verdict.unreadable += 1
            self._note(at, repr(error))
            return None
        good = [place for place in places if done <= place <= begun]
        if good:
            return good[-1]
        if places and max(places) < done:
            self.verdict.lost += 1
            self._note(at, f"{max(places)} deeds are left of {done}")
        else:
            self.verdict.half += 1
            self._note(at, f"there is what never was, after {done} deeds")
        return None

    def _open_and_cut(self, at: int) -> None:
        """While what was left is brought in order, the power goes again."""
        with Disk(self._folder) as disk:
            try:
                Journal.open(self._folder / "journal.db", KEY, vfs=disk.vfs).close()
            except LocalError:  # it is counted without that
                return
        moments = len(disk.ops) + 1
        chosen = {self._dice.randrange(moments) for _ in range(6)}
        last: dict[str, bytes] = {}
        for number, image in disk.cuts():
            if number in chosen:
                for how in self._dice.sample(KINDS, 2):
                    last = image.after(how(image, self._dice))[1]
                    write_folder(self._folder, last)
                    self.verdict.states += 1
                    self._judge(at)
        write_folder(self._folder, last)

    def _go_on(self, at: int, found: int) -> None:
        """What was not done yet is done now, and in the end all is as if nothing had happened."""
        with Journal.open(self._folder / "journal.db", KEY) as journal:
            for number, deed in enumerate(self._trial.deeds[found:], found + 1):
                do(journal, deed, number)
            if content(journal) != self._trial.contents[-1]:
                self.verdict.half += 1
                self._note(at, f"it does not go on from {found}")

    def _note(self, at: int, what: str) -> None:
        self.verdict.first = self.verdict.first or f"operation {at}: {what}"


@contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    """Two empty folders, in memory where the system has a place for that."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as one:
        made = Path(one) / "live", Path(one) / "after"
        for each in made:
            each.mkdir()
        yield made


def cut_one_life(seed: str, wanted: int, mode: Mode = AS_IT_IS) -> Verdict:
    """So many different disks of one life, at any moments of it."""
    verdict, dice = Verdict(), random.Random(seed)
    with folders() as (alive, after):
        trial = live(alive, deeds(dice), dice.choice((8, 40, 4000)), mode)
        inspector = Inspector(after, trial, verdict, dice)
        moments = len(trial.disk.ops) + 1
        for number, image in trial.disk.cuts():
            share = (wanted - verdict.states) / (moments - number)
            for how in dice.choices(KINDS, k=int(share) + (dice.random() < share % 1)):
                inspector.look(number, image, how(image, dice))
    return verdict


def cut_everywhere(seed: str, most: int, mode: Mode = AS_IT_IS) -> Verdict:
    """One life, at each of its moments, with each kind of power cut. `most`: of how many turns at most it is."""
    verdict, dice = Verdict(), random.Random(seed)
    with folders() as (alive, after):
        trial = live(alive, deeds(dice, most), 40, mode)
        inspector = Inspector(after, trial, verdict, dice)
        for number, image in trial.disk.cuts():
            for how in KINDS:
                inspector.look(number, image, how(image, dice))
    return verdict


def cut_many(seed: str, wanted: int, mode: Mode = AS_IT_IS, processes: int = 1) -> Verdict:
    """At least so many different disks, of as many lives as that takes. The lives are the same on every machine."""
    verdict, lives = Verdict(), count()
    with ProcessPoolExecutor(processes, get_context("spawn")) if processes > 1 else nullcontext() as pool:
        work = pool.map if pool is not None else map
        while verdict.states < wanted:
            here = list(islice(lives, -(-(wanted - verdict.states) // EACH_LIFE)))
            seeds = [f"{seed} {number}" for number in here]
            for each in work(cut_one_life, seeds, repeat(min(EACH_LIFE, wanted)), repeat(mode)):
                verdict.add(each)
    return verdict
