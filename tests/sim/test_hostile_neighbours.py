"""Hostile neighbours on the ring: honest members are complete in time and pay for no forgery, and defects are found."""

from collections import Counter
from collections.abc import Callable

import pytest

from zerochat.group import engine
from zerochat.group.key_modes.forwarded import Forwarded
from zerochat.group.sync import history_requests
from zerochat.sim.large import hostile_run
from zerochat.sim.large.hostile_neighbours import ATTACKS, FORGING
from zerochat.sim.large.hostile_run import LAYOUTS, HostilePlan, run_hostile
from zerochat.sim.world import Violation

MEMBERS, MESSAGES, SEED = 26, 12, 2


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_neighbours_are_harmless_or_pay(layout):
    attacks = ("drop",) if layout == "encircled" else tuple(ATTACKS)
    one = run_hostile(HostilePlan(MEMBERS, MESSAGES, layout=layout, attacks=attacks), SEED)
    assert one.hostile >= 4 and sum(one.tried.values()) > 50
    assert one.undetected == []


@pytest.mark.sim
def test_many_rings_with_hostile_neighbours(budget, figures):
    runs, tried, charged, slowest = budget(9), Counter[str](), Counter[str](), 0
    for seed in range(runs):
        plan = HostilePlan(members=30 + seed % 3 * 5, layout=LAYOUTS[seed % 3], loss=(0.0, 0.02, 0.1)[seed // 3 % 3])
        one = run_hostile(plan, seed)
        assert one.undetected == [], (plan, seed)
        tried.update(one.tried)
        charged.update(one.charged)
        slowest = max(slowest, one.complete_ms)
    table = ", ".join(f"{name} {tried[name]:,} ({charged[name]:,} charged)" for name in ATTACKS if tried[name])
    figures(f"{runs} rings with hostile neighbours, complete after at most {slowest / 1000:.0f} s: {table}")


@pytest.mark.slow
def test_a_history_replays_exactly():
    plan = HostilePlan(members=26, messages=4)
    assert run_hostile(plan, 1) == run_hostile(plan, 1) != run_hostile(plan, 2)


# --- seeded defects are found -----------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def _trust_the_bearer(patch: Patch) -> None:
    patch.setattr(Forwarded, "check", lambda one, group: None)


def _junk_is_free(patch: Patch) -> None:
    patch.setattr(engine, "_charge_rejected", lambda tx, received, work_us: None)


def _no_pull(patch: Patch) -> None:
    """Only authors are asked for what is missing, and those are mostly no neighbours."""
    choose = history_requests._choose_peer

    def only_the_author(tx, name, author, gap):
        return author if choose(tx, name, author, gap) == author else None

    patch.setattr(history_requests, "_choose_peer", only_the_author)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "attack", "says"),
    [
        (_trust_the_bearer, "alter", "honest members for a forgery"),
        (_trust_the_bearer, "claim", "honest members for a forgery"),
        (_junk_is_free, "invent", "charges no member for a forgery"),
        (_no_pull, "drop", "honest members are not complete"),
    ],
)
def test_seeded_defects_are_found(defect: Callable[[Patch], None], attack, says, monkeypatch):
    monkeypatch.setattr(hostile_run, "COMPLETE_MS_MAX", 200_000)
    defect(monkeypatch)
    layout = "encircled" if attack not in FORGING else "eclipse"
    with pytest.raises(Violation, match=says):
        run_hostile(HostilePlan(MEMBERS, MESSAGES, layout=layout, attacks=(attack,)), SEED)
