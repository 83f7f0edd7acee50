"""One seed of a large group: its figures, and the bounds that they must keep."""

import resource
import sys
import time
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.overlay.ring import MESH_MEMBERS_MAX
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.large.scenario import LargePlan, Phase, Scenario
from zerochat.sim.large.wide_caches import wide_caches
from zerochat.sim.overlay.measures import percentile
from zerochat.sim.world import Violation

LINKS_MAX: Final = 24
"""Links of a member, where there are more members than a mesh has."""
COPIES_MAX: Final = 3.1
"""Copies of a message for each member on the ring, without retransmissions."""
MEMORY_MIB_MAX: Final = 2_048


class LargeResult(Struct, frozen=True):
    """One run of a large group. Processor times in seconds, latencies in ms."""

    seed: int
    plan: LargePlan
    envelope: str
    """The format of the envelopes: a tenth of the seeds have real encryption."""
    members: int
    """At the end."""
    due: int
    """Deliveries of messages to members that were there until the end."""
    hit_ratio: float
    """How many of these happened."""
    links_max: int
    links_mean: float
    """At the end."""
    copies: float
    """Sealed messages on the network per delivery, in the quiet phase."""
    outside: int
    """Sealed messages that were sent to nodes that never were members."""
    cpu_us: float
    """Processor time per delivery, in the quiet phase, us."""
    bytes: float
    """On the network per delivery, in the quiet phase."""
    unnotified: int
    """Deliveries of the quiet phase of which no client was notified: they came as history."""
    latency_p50: float
    latency_p95: float
    latency_max: float
    """Of the quiet phase."""
    seconds: float
    memory_mib: float
    """The peak of the process."""
    digest: str
    """Of the run: equal for equal seeds and plans."""
    phases: tuple[Phase, ...]
    violations: tuple[str, ...] = ()


@cached_signatures()
def run_large(plan: LargePlan, seed: int) -> LargeResult:
    """Simulate one seed. Guarantees that it violates stand in `violations`."""
    began, violations = time.process_time(), list[str]()
    scenario = Scenario(plan, seed)
    try:
        with wide_caches(plan.members + plan.joiners):
            scenario.play()
    except Violation as error:
        violations.append(str(error))
    world = scenario.world
    due, done = world.deliveries()
    quiet = next((phase for phase in scenario.phases if phase.name == "quiet"), scenario.phases[-1])
    deliveries, active = max(1, quiet.deliveries), world.active_groups()
    links = [len(world.nodes[name].connected) for name in active]
    result = LargeResult(
        seed=seed,
        plan=plan,
        envelope=world.envelope,
        members=len(active),
        due=due,
        hit_ratio=done / due if due else 1.0,
        links_max=world.links_max,
        links_mean=sum(links) / max(1, len(links)),
        copies=quiet.copies / deliveries,
        outside=sum(phase.outside for phase in scenario.phases),
        cpu_us=quiet.seconds / deliveries * 1e6,
        bytes=quiet.bytes / deliveries,
        unnotified=quiet.deliveries - len(quiet.latencies),
        latency_p50=percentile(quiet.latencies, 0.5),
        latency_p95=percentile(quiet.latencies, 0.95),
        latency_max=percentile(quiet.latencies, 1),
        seconds=time.process_time() - began,
        memory_mib=_peak_memory_mib(),
        digest=world.digest.hexdigest(),
        phases=tuple(scenario.phases),
    )
    return replace(result, violations=(*violations, *bound_faults(result)))


def bound_faults(result: LargeResult) -> Iterator[str]:
    """Which bounds these figures exceed, as sentences."""
    large = result.plan.path == "ring" and result.plan.members > MESH_MEMBERS_MAX
    if result.hit_ratio < 1:
        yield f"{result.hit_ratio:.6f} of {result.due:,} deliveries happened"
    if result.outside:
        yield f"{result.outside} copies went to nodes that never were members"
    if large and result.links_max > LINKS_MAX:
        yield f"a member had {result.links_max} links, more than {LINKS_MAX}"
    # The author sends a message on like every other member, and is no delivery itself.
    most = COPIES_MAX * result.plan.members / (result.plan.members - 1)
    if large and result.copies > most:
        yield f"a delivery took {result.copies:.2f} copies, more than {most:.2f}"
    if large and result.unnotified:
        yield f"{result.unnotified:,} deliveries to members of the time came as history, so no client was notified"
    if result.memory_mib > MEMORY_MIB_MAX:
        yield f"it took {result.memory_mib:,.0f} MiB, more than {MEMORY_MIB_MAX:,}"


def _peak_memory_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)  # KiB, on macOS bytes
