"""Power cuts at every write: committed data survives and the journal opens.

`powercut.py` is the disk, and `power_cut_journal.py` the workload with its expected contents. The tests also show that
losses are detected: the settings that are usually recommended must lose data.
"""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.marks import others_slow
from tests.support.power_cut_journal import (
    KEY,
    Fold,
    Meta,
    Mode,
    Restart,
    cut_everywhere,
    cut_many,
    deeds,
    folders,
    live,
)
from tests.support.powercut import Op, read_folder, write_folder
from tests.support.transactions import Step
from zerochat.agent.mediator.store import Store
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import (
    ConfirmEvents,
    DeleteLog,
    RefuteEvents,
    StoreEvent,
    StoreReceipt,
    StoreSignedAck,
    StoreSignedMessage,
    StoreStatement,
)
from zerochat.group.state import Agent

WEAK = {
    "the usual advice": Mode("WAL", "NORMAL"),
    "no sync": Mode("WAL", "OFF"),
    "a rollback journal without sync": Mode("DELETE", "OFF"),
    "a rollback journal that is hardly synced": Mode("TRUNCATE", "NORMAL"),
    "a rollback journal in memory": Mode("MEMORY", "FULL"),
    "no journal": Mode("OFF", "FULL"),
}
"""Settings with which something is lost."""


@pytest.mark.slow
def test_no_committed_data_is_lost():
    verdict = cut_many("every day", 600)
    assert verdict.states >= 600 and not verdict.bad, f"{verdict}: {verdict.first}"


@pytest.mark.parametrize("mode", others_slow(WEAK.values()), ids=WEAK)
def test_with_other_settings_a_loss_is_noticed(mode: Mode):
    verdict = cut_many("weak", 300, mode)
    assert verdict.bad, str(verdict)


@pytest.mark.slow
def test_a_transaction_in_two_commits_is_detected(monkeypatch: pytest.MonkeyPatch):
    commit = Journal.commit

    def in_two(journal: Journal, after: object, *rest: Any) -> None:
        commit(journal, after)
        commit(journal, after, *rest)

    monkeypatch.setattr(Journal, "commit", in_two)
    verdict = cut_many("two parts", 300)
    assert verdict.half and not verdict.lost and not verdict.unreadable, str(verdict)


def test_a_rollback_journal_that_is_synced_loses_nothing_either():
    """So what is noticed is the missing sync, and not that a journal is another one than ours."""
    verdict = cut_many("weak", 100, Mode("DELETE", "EXTRA"))
    assert not verdict.bad, f"{verdict}: {verdict.first}"


STRICT = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "locking_mode": "exclusive",
    "cell_size_check": 1,
    "secure_delete": 1,
}


@pytest.mark.parametrize("kind", [Journal, Store])
def test_every_database_has_strict_settings(kind, tmp_path: Path):
    """Nobody makes it faster by a word: without the first four something is lost, here or on macOS."""
    for opened in (kind.create, kind.open):
        with opened(tmp_path / "new.db", KEY) as one:
            assert {name: one._db.pragma(name) for name in STRICT} == STRICT
            assert not one._db.pragma("mmap_size"), "nothing is written past the cipher"


def test_every_sync_reaches_the_disk():
    """And not only as far as the drive's cache, which is what fsync does on macOS."""

    def syncs(mode: Mode) -> list[Op]:
        with folders() as (alive, _):
            trial = live(alive, deeds(random.Random(1)), 40, mode)
            found = [op for op in trial.disk.ops if op.kind == "sync"]
            assert len(found) > len(trial.deeds) / 2
            return found

    assert all(op.full for op in syncs(Mode()))
    assert not any(op.full for op in syncs(Mode(through=False))), "it would be noticed"


@pytest.mark.slow
def test_the_workloads_contain_every_effect():
    wanted = {
        Meta,
        Fold,
        Restart,
        StoreEvent,
        StoreReceipt,
        ConfirmEvents,
        RefuteEvents,
        DeleteLog,
        StoreSignedMessage,
        StoreStatement,
        StoreSignedAck,
    }
    for number in range(500):  # confirmed or refuted is little of it
        for deed in deeds(random.Random(number)) if wanted else ():
            wanted -= {type(deed), *(type(effect) for effect in (deed.remembered if isinstance(deed, Step) else ()))}
    assert not wanted


# --- the search -------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_no_power_cut_loses_committed_data(budget):
    begun = time.monotonic()
    everywhere = cut_everywhere("one life", 8)
    print(f"\nevery moment of one life: {everywhere}")
    total = budget(20_000)
    by_lot = cut_many("by lot", total - everywhere.states, processes=os.cpu_count() or 1)
    seconds = time.monotonic() - begun
    print(f"by lot: {by_lot}; {(everywhere.states + by_lot.states) / seconds:.0f} states/s")
    assert not everywhere.bad, f"{everywhere}: {everywhere.first}"
    assert not by_lot.bad, f"{by_lot}: {by_lot.first}"
    assert everywhere.states > 500 and everywhere.states + by_lot.states >= total


@pytest.mark.crash
def test_data_lost_by_each_sync_setting(budget):
    """The weak ones, as a check of all this; the usual advice loses a good part of what was promised."""
    for name, mode in WEAK.items():
        verdict = cut_many("weak by lot", budget(300), mode)
        print(f"{mode.journal} {mode.synchronous}, {name}: {verdict}")
        assert verdict.bad
        if name == "the usual advice":
            assert verdict.lost > verdict.states / 20 and not verdict.unreadable and not verdict.half
    for mode in (Mode("WAL", "FULL"), Mode("DELETE", "FULL"), Mode("DELETE", "EXTRA"), Mode("PERSIST", "FULL")):
        verdict = cut_many("weak by lot", budget(300), mode)
        print(f"{mode.journal} {mode.synchronous}: {verdict}")
        assert not verdict.bad, verdict.first


@pytest.mark.crash
def test_a_long_history_is_recovered_quickly(budget):
    """After a kill or a power cut: what is in the write-ahead log is found, and an agent can go on."""
    events = budget(100_000)
    body = os.urandom(200)
    with folders() as (alive, after):
        path = alive / "journal.db"
        Journal.create(path, KEY).close()
        state = Agent("")
        with Journal.open(path, KEY) as journal:
            for begin in range(0, events, 1000):
                numbers = range(begin + 1, min(begin + 1000, events) + 1)
                state = Agent(str(begin))
                journal.commit(state, [StoreEvent("g", f"id-{n}", "a", n, n, "post", body, n, False) for n in numbers])
            write_folder(after, read_folder(alive))  # as it is in the middle of things
        begun = time.perf_counter()
        with Journal.open(after / "journal.db", KEY) as journal:
            assert journal.load(Agent) == state and journal.count("g") == events
            assert len(journal.page("g", None, 100)) == 100
            back = time.perf_counter()
            journal.check()
            checked = time.perf_counter()
        print(f"\n{events} events: back in {(back - begun) * 1000:.0f} ms, all pages checked in ", end="")
        print(f"{(checked - back) * 1000:.0f} ms more")
