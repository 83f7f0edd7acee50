"""The ring among many members: everyone is reached by three copies each, within few hops, and never by others.

The expected figures are those of a model (F = 3: 6.0 hops among 10^3 members, 8.1 among 10^4, 10.2 among 10^5).
Mutation tests: the simulator finds each of a list of seeded defects.
"""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import pytest

from tests.support.seeds import outputs_elsewhere
from zerochat.cli import main
from zerochat.overlay import ring as ring_module
from zerochat.overlay.forwarding import SeenMessages, sample, targets
from zerochat.overlay.ring import Links, Ring, positions
from zerochat.sim import batch
from zerochat.sim.overlay import ring_world
from zerochat.sim.overlay.events import Events, constant, lognormal
from zerochat.sim.overlay.hop_comparison import compare_hops
from zerochat.sim.overlay.measures import percentile
from zerochat.sim.overlay.ring_run import RingResult, run_ring
from zerochat.sim.overlay.ring_world import RingPlan, RingWorld, links_of_members

SMALL, SMALL_HOPS = 500, 5.4
SEED = 1
GROUP = f"simulated group {SEED}"
HOPS_TOLERANCE = 0.4
DEAD_HIT_RATIO_MIN = 0.999
HOPS_MAX = 19
"""Of 100,000 and of a million members."""


def faults(one: RingResult, hops: float) -> list[str]:
    """What is wrong with a run, with the figures that its size makes one expect."""
    found, fan_out = list(one.violations), one.plan.fan_out
    if abs(one.equal.hops_mean - hops) > HOPS_TOLERANCE:
        found.append(f"{one.equal.hops_mean:.2f} hops, not {hops}")
    copies = {one.equal.copies, one.lognormal.copies}
    return [*found, *(f"{one:.3f} copies, not {fan_out}" for one in copies if abs(one - fan_out) > 0.05)]


def test_a_small_overlay():
    for seed in range(3):
        one = run_ring(RingPlan(nodes=SMALL, messages=5), seed)
        assert faults(one, SMALL_HOPS) == []
        assert one.equal.deliveries == one.lognormal.deliveries == 5 * (SMALL - 1)
        assert one.repaired_ratio == 1.0 and one.outside == 0 and one.repair_copies == 0
        assert sum(one.links.values()) == SMALL and max(one.links) == 12


def test_dead_members_are_repaired():
    one = run_ring(RingPlan(nodes=SMALL, dead=0.2, messages=5), 0)
    assert 0.9 < one.equal.hit_ratio < 0.999 < one.repaired_ratio and one.repair_copies > 0
    one = run_ring(RingPlan(nodes=SMALL, dead=0.05, messages=20), 0)
    assert 0.998 < one.equal.hit_ratio < 1.0 and one.repair_copies > 0
    assert one.repaired_ratio == 1.0 and one.violations == ()


@pytest.mark.parametrize("nodes", [2, 3, 24, 25, 30, 45])
@pytest.mark.parametrize("fan_out", [2, 3, 6])
def test_small_groups(nodes, fan_out):
    one = run_ring(RingPlan(nodes=nodes, fan_out=fan_out, messages=20), nodes)
    assert one.violations == () and one.equal.hit_ratio == one.lognormal.hit_ratio == 1.0
    if nodes <= 24:
        assert one.equal.hops_max == 1 and one.equal.copies == 1.0


def differing_views(before: int, joined: int, seed: int) -> tuple[float, float]:
    """Half of the members know the joiners only by the repair round: the hit ratio, and the completeness after it."""
    old, new = [f"n{at}" for at in range(before)], [f"n{at}" for at in range(before + joined)]
    rings, rng = (Ring(GROUP, old), Ring(GROUP, new)), random.Random(seed)
    links = {name: rings[name not in old or rng.random() < 0.5].links(name) for name in new}
    world = RingWorld(RingPlan(nodes=len(new), messages=10), links, seed, constant(50))
    world.publish_all()
    assert world.outside == world.returned == 0
    for name, member in world.members.items():
        member.links = rings[1].links(name)
    world.repair()
    return world.measures.figures().hit_ratio, world.completeness


@pytest.mark.parametrize(("before", "joined", "hits"), [(SMALL, 25, 0.99), (60, 1, 0.99), (24, 1, 0.95), (20, 5, 0.85)])
def test_members_whose_views_differ(before, joined, hits):
    """Some links are known to one side only, and some members take the group for a mesh. A mesh author that does not
    know a joiner does not reach it."""
    found = [differing_views(before, joined, seed) for seed in range(10)]
    assert sum(ratio for ratio, _ in found) / len(found) > hits
    assert {completeness for _, completeness in found} == {1.0}


def test_a_recipient_must_not_decide_whether_the_group_is_a_mesh(monkeypatch):
    def by_its_own_view(links, bearer, *more, direct):
        return () if links.mesh and bearer is not None else targets(links, bearer, *more)

    monkeypatch.setattr(ring_world, "targets", by_its_own_view)
    assert min(completeness for _, completeness in (differing_views(24, 1, seed) for seed in range(10))) < 1.0


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.sim)])
def test_ten_thousand_members(seed):
    one = run_ring(RingPlan(messages=5), seed)
    assert faults(one, 8.1) == []
    assert one.equal.hit_ratio == one.lognormal.hit_ratio == one.repaired_ratio == 1.0
    assert one.outside == 0 and one.equal.hops_max <= 14


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.sim)])
def test_ten_thousand_members_of_whom_a_twentieth_is_dead(seed):
    one = run_ring(RingPlan(dead=0.05), seed)
    assert one.violations == () and one.repaired_ratio == 1.0
    for figures in (one.equal, one.lognormal):
        assert DEAD_HIT_RATIO_MIN <= figures.hit_ratio < 1.0
    assert one.repair_copies > 0


@pytest.mark.sim
def test_many_overlays(budget, figures):
    """Of every size, fan-out and mortality."""
    rng, runs = random.Random(2), budget(60)
    for seed in range(runs):
        plan = RingPlan(rng.randrange(25, 3_000), rng.choice((2, 3, 4)), rng.choice((0.0, 0.0, 0.02, 0.05)), 5)
        assert run_ring(plan, seed).violations == (), (plan, seed)
    figures(f"{runs} overlays: no guarantee was violated")


@pytest.mark.long
def test_a_hundred_thousand_members():
    one = run_ring(RingPlan(nodes=100_000, messages=2), 0)
    assert faults(one, 10.2) == [] and one.equal.hit_ratio == one.repaired_ratio == 1.0
    assert one.equal.hops_max <= HOPS_MAX


@pytest.mark.slow
def test_a_run_replays_exactly():
    names = "equal", "lognormal", "repaired_ratio", "repair_control", "repair_copies", "links", "events"
    expression = (
        "[[getattr(__import__('zerochat.sim.overlay.ring_run', fromlist=['x']).run_ring("
        "__import__('zerochat.sim.overlay.ring_world', fromlist=['x']).RingPlan(200, 3, 0.1, 4), 5), name)]"
        f" for name in {names}]"
    )
    assert len(outputs_elsewhere(expression)) == 1


# --- the simulator would notice -------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Defect:
    name: str
    apply: Callable[[Patch], object]
    seen: str
    """What `faults` says about it."""
    dead: float = 0.0


def _no_duplicate_check(patch: Patch) -> None:
    patch.setattr(SeenMessages, "remember", lambda seen, message, now: True)


def _back_to_the_bearer(patch: Patch) -> None:
    patch.setattr(ring_world, "targets", lambda links, bearer, *more, **direct: targets(links, None, *more))


def _linear_direction(patch: Patch) -> None:
    """Who is before whom is read off the numbers, also where the ring wraps around."""

    def forward(world, name, bearer, message, hops):
        def linear(links, bearer, random, fan_out, direct):
            if bearer not in (*links.successors[:1], *links.predecessors[:1]):
                return targets(links, bearer, random, fan_out)
            behind = positions(bearer, GROUP)[0] < positions(name, GROUP)[0]
            [onward] = links.successors[:1] if behind else links.predecessors[:1]
            return (*({onward} - {bearer}), *sample(list(links.shortcuts), fan_out - 1, random))

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ring_world, "targets", linear)
            return honest(world, name, bearer, message, hops)

    honest = RingWorld._forward
    patch.setattr(RingWorld, "_forward", forward)


def _no_wrap(patch: Patch) -> None:
    """The ring is a line."""
    around = Ring._around

    def line(ring, number, member):
        nexts, before = around(ring, number, member)
        here = [positions(one, ring.group)[number] for one in (member, *nexts, *before)]
        nexts = [one for one, at in zip(nexts, here[1:3], strict=True) if at > here[0]]
        before = [one for one, at in zip(before, here[3:], strict=True) if at < here[0]]
        return [*nexts, member, member][:2], [*before, member, member][:2]

    patch.setattr(Ring, "_around", line)


def _no_ring(patch: Patch) -> None:
    """Only shortcuts: gossip."""
    patch.setattr(
        ring_world,
        "targets",
        lambda links, bearer, random, fan_out, direct: tuple(
            sample([one for one in links.shortcuts if one != bearer], fan_out, random)
        ),
    )


def _no_shortcuts(patch: Patch) -> None:
    patch.setattr(
        ring_world,
        "targets",
        lambda links, bearer, *more, direct: targets(links.without(links.shortcuts), bearer, *more),
    )


def _near_shortcuts(patch: Patch) -> None:
    """The rings of the shortcuts have one order with the first, so shortcuts are near."""
    patch.setattr(ring_module, "positions", lambda member, group: (positions(member, group)[0],) * 5)


def _uncoordinated_shortcuts(patch: Patch) -> None:
    """Each member draws its own shortcuts, whether or not these have accepted."""
    links = Ring.links

    def drawn(ring, member):
        own = links(ring, member)
        names = [f"n{at}" for at in range(SMALL) if f"n{at}" not in (member, *own.successors, *own.predecessors)]
        return Links(own.successors, own.predecessors, tuple(random.Random(member).sample(names, 8)))

    patch.setattr(Ring, "links", drawn)


def _former_members_stay(patch: Patch) -> None:
    def discard(ring, member):
        del ring._rings[0][ring._rings[0].index((ring._positions[member][0], member))]

    patch.setattr(Ring, "discard", discard)


def _no_repair(patch: Patch) -> None:
    patch.setattr(ring_world, "partners", lambda links, random: [])


def _repair_asks_the_dead(patch: Patch) -> None:
    patch.setattr(ring_world, "wanted", lambda here, named, requested: ())


DEFECTS = [
    Defect("no duplicate check", _no_duplicate_check, "duplicates are forwarded"),
    Defect("back to the bearer", _back_to_the_bearer, "went back to their bearer"),
    Defect("linear direction", _linear_direction, "members have sent 2 to 3 copies"),
    Defect("no wrap", _no_wrap, "the ring leads through"),
    Defect("no ring", _no_ring, "of the deliveries happened"),
    Defect("no shortcuts", _no_shortcuts, "hops, not"),
    Defect("near shortcuts", _near_shortcuts, "hops, not"),
    Defect("uncoordinated shortcuts", _uncoordinated_shortcuts, "not mutual"),
    Defect("former members stay", _former_members_stay, "handled by nodes that are no members"),
    Defect("no repair", _no_repair, "after one repair round", dead=0.05),
    Defect("repair requests nothing", _repair_asks_the_dead, "after one repair round", dead=0.05),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_seeded_defects_are_found(defect, monkeypatch):
    plan = RingPlan(nodes=SMALL, dead=defect.dead, messages=20)
    with monkeypatch.context() as patch:
        defect.apply(patch)
        found = " ".join(faults(run_ring(plan, SEED), SMALL_HOPS))
    assert re.search(defect.seen, found), found
    assert run_ring(plan, SEED).violations == ()


# --- parts ----------------------------------------------------------------------------------------------------------


def test_events_run_in_the_order_of_time_and_arrival():
    events, found = Events(), []
    for ms, name in ((5, "b"), (1, "a"), (5, "c"), (9, "late")):
        events.after(ms, found.append, name)
    events.run(6)
    assert found == ["a", "b", "c"] and (events.now, events.count) == (6, 3)
    events.run()
    assert found[-1] == "late" and events.now == 9


def test_lognormal_delays_have_their_median_and_percentile():
    delay = lognormal(random.Random(1), 50, 180)
    found = sorted(delay() for _ in range(40_000))
    assert abs(percentile(found, 0.5) - 50) < 1 and abs(percentile(found, 0.95) - 180) < 6


@pytest.mark.parametrize(("part", "value"), [(0.5, 2), (0.51, 3), (0.99, 4), (1, 4), (0, 1)])
def test_percentiles(part, value):
    assert percentile([1, 2, 3, 4], part) == value and percentile([], part) == 0


def hops_of(nodes, fan_out, seed):
    plan = RingPlan(nodes=nodes, fan_out=fan_out, messages=12)
    world = RingWorld(plan, links_of_members(f"g{seed}", nodes), seed, constant(50))
    world.publish_all()
    return list(world.measures.hops.values())


def test_hop_distributions_are_compared_by_message():
    three, again, four = hops_of(200, 3, 1), hops_of(200, 3, 2), hops_of(200, 4, 3)
    same = compare_hops(three, again, random.Random(1), rounds=199)
    other = compare_hops(three, four, random.Random(1), rounds=199)
    assert same.p > 0.05 and same.statistic < other.statistic
    assert other.p == 1 / 200


def vectorised():
    pytest.importorskip("numpy", reason="numpy comes with the extra `analytics`")
    return import_module("zerochat.sim.overlay.rounds")


@pytest.mark.slow
def test_rounds_have_the_hops_of_events():
    rounds = vectorised()
    messages = [rounds.VectorRing(10_000, seed).disseminate(seed) for seed in range(12)]
    assert all(one.deliveries == 9_999 and abs(one.copies / 9_999 - 3) < 0.01 for one in messages)
    by_rounds, by_events = [one.hops for one in messages], hops_of(10_000, 3, 1)
    assert compare_hops(by_rounds, by_events, random.Random(1), rounds=199).p > 0.01
    fewer = [rounds.VectorRing(10_000, seed).disseminate(seed, 2).hops for seed in range(12)]
    assert compare_hops(fewer, by_events, random.Random(1), rounds=199).p == 1 / 200


@pytest.mark.slow
def test_a_million_members_in_rounds():
    rounds = vectorised()
    for nodes, hops, tolerance in ((100_000, 10.2, 0.4), (1_000_000, 12.3, 0.3)):
        one = rounds.VectorRing(nodes, 1).disseminate(0)
        assert one.deliveries == nodes - 1 and abs(one.copies / nodes - 3) < 0.01
        assert abs(one.hops_mean - hops) < tolerance and max(one.hops) <= HOPS_MAX
    fewer = rounds.VectorRing(1_000_000, 1).disseminate(0, 2)
    assert abs(fewer.hops_mean - 12.3) > 5 and max(fewer.hops) > HOPS_MAX


# --- the verb -------------------------------------------------------------------------------------------------------


def test_the_verb_prints_each_run(capsys):
    line = "sim --overlay --nodes 300 --dead 0.05 --messages 3 --seeds 2 --first 4 --jobs 1"
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert "Seed 4: 300 members, 5.0% of them dead; fan-out 3" in out and "Seed 5: " in out
    assert "1.000000 after one repair round" in out and "handled 0 copies" in out
    assert "2 overlays run in " in out and "No guarantee was violated." in out
    assert main(["--format", "jsonl", *line.split()]) == 0
    *runs, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["seed"] for one in runs] == [4, 5] and total["played"] == 2 and not total["broken"]
    assert runs[0]["plan"] == {"nodes": 300, "fan_out": 3, "dead": 0.05, "messages": 3}
    assert runs[0]["repaired_ratio"] == 1.0


def test_the_verb_reports_violations(capsys, monkeypatch):
    _no_repair(monkeypatch)
    assert main(["sim", "--overlay", "--nodes", "500", "--dead", "0.05", "--messages", "20", "--jobs", "1"]) == 7
    out = capsys.readouterr().out
    assert "violated " in out and "1 violated a guarantee." in out


def test_an_interrupted_run_prints_the_result_so_far(capsys, monkeypatch):
    def interrupted(run, seeds, jobs):
        yield run(seeds[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "in_processes", interrupted)
    assert main(["sim", "--overlay", "--nodes", "100", "--seeds", "3"]) == 130
    out = capsys.readouterr().out
    assert "Seed 0: " in out and "Interrupted: of 3, 1 overlay run in " in out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nodes 100", "only allowed with argument --overlay"),
        ("--overlay --nodes 1", "not between 2 and 200,000"),
        ("--overlay --fan-out 1", "not between 2 and 6"),
        ("--overlay --dead 0.95", "more than 0.9"),
        ("--overlay --dead -1", "not a number from 0 to 1"),
        ("--overlay --trace", "not allowed with argument --overlay"),
        ("--overlay --histories", "not allowed with argument"),
    ],
)
def test_invalid_options_are_refused(line, says, capsys):
    assert main(["sim", *line.split()]) == 2
    assert says in capsys.readouterr().err


def test_the_help_tells_the_defaults(capsys):
    assert main(["sim", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    plan = RingPlan()
    assert f"members (default: {plan.nodes})" in text and f"member sends (default: {plan.fan_out})" in text
    assert f"not noticed (default: {plan.dead:g})" in text and f"random members (default: {plan.messages})" in text
