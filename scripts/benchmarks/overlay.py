"""Dissemination in large groups: the ring beside GossipSub and push gossip, in one simulator.

Discrete events in virtual time (`zerochat/sim/overlay`), so no figure depends on the machine, but for the work of the
routes; the ranges are over seeds. Among 1,000 members each protocol sends the same number of messages of random
authors, over delays of 50 ms (a round trip of 100 ms) and over lognormal ones. GossipSub is version 1.1 with its
published parameters, with and without flood publishing; without, it sends 6.29 payloads per delivery in the simulator
of its authors, and half of that is the goal. The floor is a tree of links for the copies, and one link from the author
for the latency.
"""

import importlib.util
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from benchmarks import Figure, Report, Row, scaled
from zerochat.overlay.ring import Ring
from zerochat.overlay.routing import HOPS_MAX, Routes
from zerochat.sim.overlay.events import MEDIAN_MS, P95_MS, Latency, constant, lognormal
from zerochat.sim.overlay.gossipsub import GossipSub
from zerochat.sim.overlay.measures import Figures
from zerochat.sim.overlay.push_gossip import PushGossip
from zerochat.sim.overlay.ring_run import EQUAL_MS, RingResult, run_ring
from zerochat.sim.overlay.ring_world import RingPlan

MEMBERS, MANY, MILLION = 1_000, 10_000, 1_000_000
PUBLISHED_COPIES = 6.29
P99_GOAL_MS = 1_600.0
HOPS_GOAL, DEAD, LACKING_GOAL = 8.5, 0.05, 10.0
EQUAL, LOGNORMAL = "100 ms round trip", f"lognormal delays, median {MEDIAN_MS:.0f} ms, p95 {P95_MS:.0f} ms"
ROUTED = 1_000
LACKING = "lacking, of 10,000 deliveries"
FLOODING, EAGER, PUSH = "GossipSub 1.1", "GossipSub 1.1 without flood publishing", "push gossip, b = 3"


def measure(quick: bool) -> Report:
    seeds, messages = scaled(quick, (range(5), 60), (range(2), 20), (range(1), 2))
    members, many = scaled(quick, (MEMBERS, MANY), (MEMBERS, MANY), (100, 200))
    rings = [run_ring(RingPlan(nodes=members, messages=messages), seed) for seed in seeds]
    peers = {name: [run(members, messages, seed) for seed in seeds] for name, run in protocols(equal).items()}
    varied = {name: [run(members, messages, seed) for seed in seeds] for name, run in protocols(unequal).items()}
    rows = [*copy_rows(members, rings, peers)]
    rows += latency_rows(f"{members:,} members, {EQUAL}: ", [one.equal for one in rings], peers, EQUAL_MS)
    rows += latency_rows(f"{members:,} members, {LOGNORMAL}: ", [one.lognormal for one in rings], varied, MEDIAN_MS)
    few = scaled(quick, seeds, seeds[:1], seeds)
    rows += many_rows(
        many,
        [run_ring(RingPlan(nodes=many, messages=5), seed) for seed in few],
        [run_ring(RingPlan(nodes=many, dead=DEAD), seed) for seed in few],
    )
    rows += route_rows(members, seeds)
    missing = []
    if importlib.util.find_spec("numpy"):
        rows += million_rows(scaled(quick, MILLION, MILLION, 1_000), seeds)
    else:
        missing.append("numpy, which simulates a million members in rounds")
    return Report(
        rows,
        missing,
        notes=[f"Virtual time but for the routes; {len(seeds)} seeds, {messages} messages among {members:,} members."],
    )


def million_rows(members: int, seeds: Iterable[int]) -> Iterator[Row]:
    from zerochat.sim.overlay.rounds import VectorRing

    runs = [VectorRing(members, seed).disseminate(0) for seed in seeds]
    case = f"{members:,} members, in rounds: "
    yield Row(f"{case}hops, mean", "hops", "lower", figure(runs, "hops_mean"), goal=12.6)
    yield Row(f"{case}hops, at most", "hops", "lower", Figure.of([max(one.hops) for one in runs]), goal=19)


def route_rows(members: int, seeds: Iterable[int]) -> Iterator[Row]:
    """Unicast: the work of a view's routes, and walks between random members of which some are dead."""
    work_ms, hops, lost = [], [], []
    for seed in seeds:
        ring = Ring(f"group {seed}", names := [f"m{at}" for at in range(members)])
        begun = time.process_time()
        routes = Routes(ring)
        work_ms.append(1_000 * (time.process_time() - begun))
        draw = random.Random(seed)
        dead = set(draw.sample(names, int(members * DEAD)))
        alive = [one for one in names if one not in dead]
        walks = [walked(ring, routes, draw.sample(alive, 2), dead, draw) for _ in range(ROUTED)]
        arrived = [walk for walk in walks if walk is not None]
        hops.append(sum(arrived) / max(1, len(arrived)))
        lost.append(10_000 * (1 - len(arrived) / len(walks)))
    case = f"{members:,} members, {DEAD:.0%} of them dead, one to one: "
    yield Row(f"{members:,} members: work of the routes of a view", "ms", "lower", Figure.of(work_ms), goal=50)
    yield Row(f"{case}hops, mean", "hops", "lower", Figure.of(hops), goal=3.5)
    yield Row(f"{case}lost, of 10,000", "messages", "lower", Figure.of(lost), goal=LACKING_GOAL)


def walked(ring: Ring, routes: Routes, pair: Sequence[str], dead: Collection[str], draw: random.Random) -> int | None:
    """The hops of a message from the first of a pair to the second; None: it ended elsewhere."""
    author, recipient = pair
    passed = [author]
    while passed[-1] != recipient and len(passed) <= HOPS_MAX:
        peers = [peer for peer in ring.links(passed[-1]).all if peer not in dead]
        if (hop := routes.next_hop(recipient, peers, passed, draw.randbytes)) is None:
            return None
        passed.append(hop)
    return len(passed) - 1 if passed[-1] == recipient else None


def equal(seed: int) -> Latency:
    return constant(EQUAL_MS)


def unequal(seed: int) -> Latency:
    return lognormal(random.Random(f"latency {seed}"))


def protocols(latency: Callable[[int], Latency]) -> Mapping[str, Callable[[int, int, int], Figures]]:
    """The other protocols: a run each of so many members and messages, and a seed."""

    def gossipsub(flood_publish: bool, members: int, messages: int, seed: int) -> Figures:
        return GossipSub(members, messages, seed, latency(seed), flood_publish=flood_publish).run()

    def push(members: int, messages: int, seed: int) -> Figures:
        return PushGossip(members, messages, seed, latency(seed)).run()

    return {FLOODING: partial(gossipsub, True), EAGER: partial(gossipsub, False), PUSH: push}


def figure(runs: Iterable[object], *names: str) -> Figure:
    """One field of all runs; several names lead to a field of a field."""
    values = []
    for one in runs:
        for name in names:
            one = getattr(one, name)
        assert isinstance(one, int | float)
        values.append(one)
    return Figure.of(values)


def beside(peers: Mapping[str, Sequence[Figures]], name: str) -> dict[str, Figure]:
    return {peer: figure(runs, name) for peer, runs in peers.items()}


def lacking(ratios: Iterable[float]) -> Figure:
    return Figure.of([10_000 * (1 - ratio) for ratio in ratios])


def copy_rows(members: int, rings: Sequence[RingResult], peers: Mapping[str, Sequence[Figures]]) -> Iterator[Row]:
    case = f"{members:,} members: "
    ours, one = [ring.equal for ring in rings], Figure.of([1.0])
    yield Row(
        f"{case}copies per delivery",
        "copies",
        "lower",
        figure(ours, "copies"),
        one,
        "a tree",
        beside(peers, "copies"),
        PUBLISHED_COPIES / 2,
        goal_is="half of GossipSub's 6.29",
    )
    control = Figure.of([ring.repair_control * members / max(1, ring.equal.deliveries) for ring in rings])
    others = beside(peers, "control")
    yield Row(f"{case}other messages per delivery, one repair round", "messages", "lower", control, peers=others)
    lost = {peer: lacking(one.hit_ratio for one in runs) for peer, runs in peers.items()}
    yield Row(f"{case}{LACKING}", "deliveries", "lower", lacking(one.hit_ratio for one in ours), peers=lost, goal=0)
    links = Figure.of([max(ring.links) for ring in rings])
    yield Row(f"{case}links of one member, at most", "links", "lower", links, Figure.of([2.0]), "a ring alone", goal=12)


def latency_rows(
    case: str, ours: Sequence[Figures], peers: Mapping[str, Sequence[Figures]], floor_ms: float
) -> Iterator[Row]:
    floor = Figure.of([floor_ms])
    for name, part, goal in (("latency_p50", "median", None), ("latency_p99", "99 of 100 deliveries", P99_GOAL_MS)):
        found = figure(ours, name)
        yield Row(f"{case}{part}", "ms", "lower", found, floor, "one link", beside(peers, name), goal)


def many_rows(members: int, intact: Sequence[RingResult], dead: Sequence[RingResult]) -> Iterator[Row]:
    case, mortal = f"{members:,} members: ", f"{members:,} members, {DEAD:.0%} of them dead: "
    yield Row(f"{case}copies per delivery", "copies", "lower", figure(intact, "equal", "copies"), goal=3.05)
    yield Row(f"{case}hops, mean", "hops", "lower", figure(intact, "equal", "hops_mean"), goal=HOPS_GOAL)
    lost = lacking(one.equal.hit_ratio for one in dead)
    yield Row(f"{mortal}{LACKING}", "deliveries", "lower", lost, goal=LACKING_GOAL)
    repaired = lacking(one.repaired_ratio for one in dead)
    yield Row(f"{mortal}the same, after one repair round", "deliveries", "lower", repaired, goal=0)
