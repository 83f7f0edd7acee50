"""Runs the ring under equal and under lognormal delays, and checks its guarantees."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct

from zerochat.overlay.ring import LINKS_MAX, MESH_MEMBERS_MAX, Links
from zerochat.sim.overlay.events import constant, lognormal
from zerochat.sim.overlay.measures import Figures
from zerochat.sim.overlay.ring_world import RingPlan, RingWorld, links_of_members
from zerochat.sim.world import Violation

EQUAL_MS = 50.0
"""The delay of every copy under equal delays."""
DEAD_PROMISED = 0.05
"""With at most this part of the members dead, one repair round completes the others."""


class RingResult(Struct, frozen=True):
    """One run of the ring, twice: under equal delays, in which the first copy is that over the fewest hops, and under
    lognormal ones."""

    seed: int
    plan: RingPlan
    equal: Figures
    lognormal: Figures
    repaired_ratio: float
    """The part of all messages that live members have after one repair round."""
    repair_control: float
    """Messages without payload per live member in the repair round."""
    repair_copies: int
    links: dict[int, int]
    """How many members have so many links."""
    sent_min: int
    sent_max: int
    """Copies that one member has sent of one message."""
    outside: int
    """Copies that nodes which are no members have handled."""
    events: int
    seconds: float
    violations: tuple[str, ...] = ()


def run_ring(plan: RingPlan, seed: int) -> RingResult:
    """Simulate one seed. Guarantees that it violates stand in `violations`."""
    begun_at = time.monotonic()
    links = links_of_members(f"simulated group {seed}", plan.nodes)
    violations = list(link_faults(links))
    worlds = []
    for latency in (constant(EQUAL_MS), lognormal(random.Random(f"latency {seed}"))):
        world = RingWorld(plan, links, seed, latency)
        try:
            world.publish_all()
            figures = world.measures.figures()
            world.repair()
        except Violation as error:
            violations.append(str(error))
            figures = world.measures.figures()
        violations += world_faults(world, figures)
        worlds.append((world, figures))
    (equal, equal_figures), (varied, varied_figures) = worlds
    return RingResult(
        seed=seed,
        plan=plan,
        equal=equal_figures,
        lognormal=varied_figures,
        repaired_ratio=min(equal.completeness, varied.completeness),
        repair_control=(equal.repair_control + varied.repair_control) / 2 / len(equal.alive),
        repair_copies=equal.repair_copies + varied.repair_copies,
        links=dict(sorted(Counter(len(own.all) for own in links.values()).items())),
        sent_min=min(equal.sent + varied.sent),
        sent_max=max(equal.sent + varied.sent),
        outside=equal.outside + varied.outside,
        events=equal.events.count + varied.events.count,
        seconds=time.monotonic() - begun_at,
        violations=tuple(dict.fromkeys(violations)),
    )


def link_faults(links: Mapping[str, Links]) -> Iterator[str]:
    """What is wrong with the links of all members: too many, not mutual, or no circle."""
    most = max(len(own.all) for own in links.values())
    if len(links) > MESH_MEMBERS_MAX and most > LINKS_MAX:
        yield f"a member has {most} links, more than {LINKS_MAX}"
    visited, at = set[str](), next(iter(links), "")
    while at in links and at not in visited:
        visited.add(at)
        at = next(iter(links[at].successors), "")
    if len(visited) != len(links):
        yield f"the ring leads through {len(visited)} of {len(links)} members"
    pairs = {(one, other) for one, own in links.items() for other in own.all}
    lonely = sum((other, one) not in pairs for one, other in pairs)
    if lonely:
        yield f"{lonely} links are not mutual"


def world_faults(world: RingWorld, figures: Figures) -> Iterator[str]:
    """What is wrong with a run."""
    if world.outside:
        yield f"{world.outside} copies were handled by nodes that are no members"
    if world.returned:
        yield f"{world.returned} copies went back to their bearer"
    fan_out, mesh = world.plan.fan_out, len(world.members) <= MESH_MEMBERS_MAX
    if not mesh and {*world.sent} != {fan_out}:
        yield f"members have sent {min(world.sent)} to {max(world.sent)} copies of a message, not {fan_out}"
    if not world.dead and figures.hit_ratio < 1:
        yield f"{figures.hit_ratio:.6f} of the deliveries happened, although all members were alive"
    if world.plan.dead <= DEAD_PROMISED and world.completeness < 1:
        yield f"after one repair round live members have {world.completeness:.6f} of all messages"
