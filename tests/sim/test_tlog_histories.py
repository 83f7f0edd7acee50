"""Transparency logs in histories: no fork for honest members, and overdue messages are found."""

import pytest

from tests.support.marks import others_slow
from zerochat.evidence.witness import Quorum
from zerochat.group.tlog import submission, witness
from zerochat.group.tlog.queries import Hashes
from zerochat.sim import Violation, play_accountable
from zerochat.sim.batch import BatchPlan, run_all
from zerochat.sim.tlog_store import TlogStore

EVERYDAY = 3


@pytest.mark.parametrize("seed", others_slow(range(EVERYDAY)))
def test_tlog_histories_violate_nothing(seed):
    play_accountable(seed)


@pytest.mark.sim
def test_tlog_histories_many_seeds(budget):
    plan = BatchPlan(kind="accountable")
    failed = [one.violation for one in run_all(plan, range(EVERYDAY, EVERYDAY + budget(12)), 2) if one.violation]
    assert not failed


def broken(seeds):
    found = []
    for seed in seeds:
        try:
            play_accountable(seed)
        except Violation as violation:
            found.append(str(violation))
    return found


# --- the simulator would notice -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_detects_missing_overdue_entries(monkeypatch):
    monkeypatch.setattr(submission, "query_overdue", lambda tx, name, origin: None)
    assert any("has not submitted" in one for one in broken(range(2)))


@pytest.mark.slow
def test_detects_cosignatures_without_content(monkeypatch):
    real = witness.cosign
    monkeypatch.setattr(witness, "cosign", lambda tx, name, origin, what, _: real(tx, name, origin, what, Hashes(())))
    monkeypatch.setattr(witness, "hold_blob", lambda *_, **__: None)
    monkeypatch.setattr(TlogStore, "_holds", lambda *_: True)  # the operator looks too
    assert any("no honest witness has" in one for one in broken(range(6)))


@pytest.mark.slow
def test_detects_minority_quorum(monkeypatch):
    monkeypatch.setattr(Quorum, "threshold", property(lambda self: 1))
    assert broken(range(12))
