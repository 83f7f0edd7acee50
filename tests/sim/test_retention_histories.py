"""Expiring content in histories: it is gone everywhere after its time, and no log becomes incomplete by that."""

import pytest

from tests.support.marks import others_slow
from zerochat.errors import Refused
from zerochat.group import retention
from zerochat.sim import Violation, play_retention
from zerochat.sim.batch import BatchPlan, run_all
from zerochat.sim.node import Node

EVERYDAY = 6


@pytest.mark.parametrize("seed", others_slow(range(EVERYDAY)))
def test_retention_histories_violate_nothing(seed):
    play_retention(seed)


@pytest.mark.sim
def test_retention_histories_many_seeds(budget):
    plan = BatchPlan(kind="retention")
    failed = [one.violation for one in run_all(plan, range(EVERYDAY, EVERYDAY + budget(200)), 2) if one.violation]
    assert not failed


def broken(seeds):
    found = []
    for seed in seeds:
        try:
            play_retention(seed)
        except Violation as violation:
            found.append(str(violation))
    return found


# --- the simulator would notice -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_detects_content_that_is_not_erased(monkeypatch):
    monkeypatch.setattr(retention, "_expire", lambda tx, name, before: None)
    assert any("keeps content that has expired" in one for one in broken(range(3)))


@pytest.mark.slow
def test_detects_signatures_that_are_not_erased(monkeypatch):
    real = Node._erase

    def erase(node, effect):
        kept = node.signed
        real(node, effect)
        node.signed = kept

    monkeypatch.setattr(Node, "_erase", erase)
    assert any("keeps a signature" in one for one in broken(range(12)))


@pytest.mark.slow
def test_detects_places_that_are_not_given_to_members_that_were_away(monkeypatch):
    """Completeness must not depend on content: without the headers a chain has a gap."""
    real = retention.for_others
    monkeypatch.setattr(retention, "for_others", lambda *given: [one for one in real(*given) if not one.is_erased])
    assert any("lacks" in one for one in broken(range(16)))


@pytest.mark.slow
def test_detects_places_that_are_refused(monkeypatch):
    def refuse(tx, name, event):
        if event.is_erased:
            raise Refused(why="an event without its content")

    monkeypatch.setattr(retention, "check_received", refuse)
    assert any("lacks" in one for one in broken(range(16)))
