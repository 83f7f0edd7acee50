"""Histories of groups that keep a log (`sim/tlog_histories.py`): the log never forks for those who keep the rules,
and whoever was away finds in it what was overdue."""

import pytest

from zerochat.evidence.witness import Quorum
from zerochat.group.tlog import submission, witness
from zerochat.group.tlog.lookups import Hashes
from zerochat.sim import Violation, play_accountable
from zerochat.sim.batch import Plan, play_all
from zerochat.sim.tlog_store import Logbook

EVERYDAY = 3


@pytest.mark.parametrize("seed", range(EVERYDAY))
def test_nobody_honest_believes_two_logs_and_whoever_was_away_finds_all(seed):
    play_accountable(seed)


@pytest.mark.sim
def test_the_same_of_many_more(budget):
    plan = Plan(kind="accountable")
    failed = [one.violation for one in play_all(plan, range(EVERYDAY, EVERYDAY + budget(12)), 2) if one.violation]
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
def test_it_would_notice_if_nothing_overdue_was_posted(monkeypatch):
    monkeypatch.setattr(submission, "look", lambda turn, name, origin: None)
    assert any("has not posted" in one for one in broken(range(2)))


@pytest.mark.slow
def test_it_would_notice_if_witnesses_cosigned_what_they_do_not_hold(monkeypatch):
    real = witness.cosign
    monkeypatch.setattr(
        witness, "cosign", lambda turn, name, origin, what, _: real(turn, name, origin, what, Hashes(()))
    )
    monkeypatch.setattr(witness, "hold", lambda *_, **__: None)
    monkeypatch.setattr(Logbook, "_holds", lambda *_: True)  # the operator looks too
    assert any("no honest witness holds" in one for one in broken(range(6)))


@pytest.mark.slow
def test_it_would_notice_if_a_minority_was_believed(monkeypatch):
    monkeypatch.setattr(Quorum, "needed", property(lambda self: 1))
    assert broken(range(12))
