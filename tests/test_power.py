"""The power is cut at every moment: what was promised is there, and the file opens.

`powercut.py` is the disk. That it would notice is tested too: with the settings that are usually recommended, it must
report a loss.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.powercut import Disk
from zerochat.agent.journal import Journal
from zerochat.errors import LocalError
from zerochat.group.effects import Receipt, Remember

KEY = bytes(range(32))
TURNS = 14


@dataclass(frozen=True, slots=True)
class State:
    label: str
    blob: bytes = b""


def work(disk: Disk, path: Path, synchronous: str | None) -> None:
    """Some turns, with a checkpoint of the write-ahead log among them; each is promised when `commit` has returned.
    `synchronous`: None, as a journal has it."""
    with Journal.open(path, KEY, vfs=disk.vfs) as journal:
        if synchronous:
            journal._db.pragma("synchronous", synchronous)
        for n in range(1, TURNS + 1):
            event = Remember("g", f"id-{n}", "did:a", n, n, "message", bytes(300 * n), n, False)
            journal.commit(State(str(n), bytes(100 * n)), [event, Receipt("g", "did:m", "did:a", n, n)])
            disk.mark(n)
            if n == TURNS // 2:
                journal._db.pragma("wal_checkpoint(TRUNCATE)")


def found(folder: Path, files: dict[str, bytes]) -> int:
    """How many turns are in what the power cut has left; -1: it does not open, or there is half a turn."""
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        with Journal.open(folder / "journal.db", KEY) as journal:
            state = journal.load(State)
            number = int(state.label) if state else 0
            events = [row.id for row in journal.by_seq(0, 99)] == [f"id-{n}" for n in range(1, number + 1)]
            receipts = bool(journal.receipts_of("g", "did:a", number)) is bool(number)
            return number if events and receipts and journal.latest() == number else -1
    except LocalError:
        return -1


def cut_everywhere(tmp_path: Path, synchronous: str | None) -> tuple[int, int, int]:
    """How many disks there were, on how many something promised was lost, and how many are not whole."""
    live, after = tmp_path / "live", tmp_path / "after"
    for folder in (live, after):
        folder.mkdir()
    path = live / "journal.db"
    Journal.create(path, KEY).close()
    dice = random.Random(6)
    states = lost = broken = 0
    with Disk(live) as disk:
        work(disk, path, synchronous)
    seen = set()
    for at in range(len(disk.ops) + 1):
        promised = max([0, *disk.promised(at)])
        for files in disk.states(dice, at):
            mark = hash((promised, tuple(sorted(files.items()))))
            if mark in seen:
                continue
            seen.add(mark)
            states += 1
            number = found(after, files)
            broken += number < 0
            lost += 0 <= number < promised
    return states, lost, broken


def test_nothing_promised_is_lost(tmp_path: Path):
    states, lost, broken = cut_everywhere(tmp_path, None)
    assert states > 300 and (lost, broken) == (0, 0)


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_with_the_usual_settings_a_loss_is_noticed(synchronous: str, tmp_path: Path):
    states, lost, broken = cut_everywhere(tmp_path, synchronous)
    assert states > 100 and lost + broken > states // 20, (states, lost, broken)
