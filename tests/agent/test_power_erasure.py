"""Power cuts during an erasure: the log stays whole, and the erasure goes on to its end."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.test_erasure import ALICE, BOB, CANARY, GROUP, KEPT, KEY, PAGE_BYTES, Log, State, fill
from tests.support.power_cut_journal import folders
from tests.support.powercut import KINDS, Disk, write_folder
from zerochat.agent.storage import erasure, search_index
from zerochat.agent.storage.erasure import ErasureStore
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import EraseContent
from zerochat.group.event_log.event import EXPIRED, load_event

BEFORE = 500
EVERYDAY, MORE = 1, 3
"""Power cuts at each moment, every day; and lives of which all are tried."""


class Erasing:
    """A journal in which content was erased, on a disk that has noted how."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(erasure, "SLICE_ROWS", 3)
        monkeypatch.setattr(erasure, "MERGE_PAGES", 2)
        self.log = log = Log(folder / "journal.db")
        self.expired = {event.id for event in fill(log)[:5]}  # the last one was withdrawn
        for number in range(12):
            self.expired.add(log.event((ALICE, BOB)[number % 2], 100 + number, {"text": f"{CANARY} {number}"}).id)
        log.journal.meta_set(f"draft:{GROUP}/tui", (12).to_bytes(8) + CANARY.encode())
        assert log.journal.search(f"text : {CANARY}", 0, 1 << 62, 10), "it is indexed"
        self.rows = {row.id: row for row in log.journal.log_after(GROUP, (0, "", ""), 1_000)}
        log.journal.close()
        with Disk(folder) as self.disk:
            log.journal = self.open(folder, self.disk.vfs)
            log.commit(EraseContent(GROUP, BEFORE, BEFORE, ALICE, 10_000))
            self.disk.mark("ordered")
            log.run()
            self.disk.mark("erased")
            log.commit()
            log.journal.close()

    def open(self, folder: Path, vfs: str = "") -> Journal:
        journal = Journal.open(folder / "journal.db", KEY, vfs=vfs) if vfs else Journal.open(folder / "journal.db", KEY)
        journal._db.pragma("wal_autocheckpoint", 20)
        journal.load(State)
        return journal

    def disks(self, dice: random.Random, each: int) -> Iterator[tuple[list[str], dict[str, bytes]]]:
        """What had been promised, and what is on the disk; some for each moment."""
        for at, image in self.disk.cuts():
            for how in dice.sample(KINDS, each) if each < len(KINDS) else KINDS:
                yield self.disk.promised(at), image.after(how(image, dice))[1]

    def judge(self, folder: Path, promised: list[str]) -> str:
        """What is wrong after a power cut; empty: nothing."""
        log = self.log
        log.path = folder / "journal.db"
        with self.open(folder) as log.journal:
            log.journal.check()
            if "erased" in promised and CANARY.encode() in log.bytes_on_disk():
                return "content is back that had been erased"
            found = {row.id: row for row in log.journal.log_after(GROUP, (0, "", ""), 1_000)}
            if list(found) != list(self.rows):
                return "the log is not complete"
            for event, row in found.items():
                before = self.rows[event]
                is_changed = (row.type, row.record) != (before.type, before.record)
                if is_changed and (row.type != EXPIRED or load_event(row.record).id != event):
                    return "an event is neither as it was nor erased"
                if is_changed and event not in self.expired:
                    return "an event was erased before its time"
            if not log.run() and "ordered" not in promised:
                return ""  # else it had ended just before
            if CANARY.encode() in log.bytes_on_disk():
                return "the erasure does not go on"
            if {
                row.id for row in log.journal.log_after(GROUP, (0, "", ""), 1_000) if row.type == EXPIRED
            } != self.expired:
                return "not exactly the expired events are erased"
            if len(log.journal.search(f"text : {KEPT}", 0, 1 << 62, 10)) != 2:
                return "the index lacks what stays"
            if log.log_bytes >= 2 * PAGE_BYTES and "erased" not in promised:
                return "the write-ahead log keeps older pages"
        return ""


def faults(monkeypatch: pytest.MonkeyPatch, seed: str, each: int) -> tuple[int, list[str]]:
    """How many disks were looked at, and what was wrong with some."""
    found, count = [], 0
    with folders() as (alive, after):
        erasing = Erasing(alive, monkeypatch)
        for promised, disk in erasing.disks(random.Random(seed), each):
            write_folder(after, disk)
            count += 1
            if why := erasing.judge(after, promised):
                found.append(why)
    return count, found


@pytest.mark.slow
def test_a_power_cut_delays_an_erasure_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    count, found = faults(monkeypatch, "every day", EVERYDAY)
    assert count > 100 and not found, found[:3]


@pytest.mark.crash
def test_no_power_cut_at_any_moment_breaks_an_erasure(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MORE):
        _, found = faults(monkeypatch, f"each moment {number}", len(KINDS))
        assert not found, found[:3]


@pytest.mark.slow
def test_an_order_that_ends_before_its_rows_are_erased_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ErasureStore._erase_rows

    def forgetful(store: ErasureStore, group: str, *rest: int) -> None:
        store._db.execute(
            "UPDATE erasures SET due = 0, traces = 1"
        )  # a transaction of its own, before that of the rows
        real(store, group, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ErasureStore, "_erase_rows", forgetful)
    assert faults(monkeypatch, "forgetful", EVERYDAY)[1]


@pytest.mark.slow
def test_words_that_stay_in_the_index_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "merge", lambda *_, **__: True)
    assert faults(monkeypatch, "no merge", EVERYDAY)[1]
