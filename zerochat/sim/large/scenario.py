"""The life of a large group: founded or joined one by one, quiet traffic, faults and churn, then calm."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import ClassVar

from msgspec import Struct

from zerochat.group.inputs import CreateGroup, RemoveMember, SendPost
from zerochat.group.key_agreement.channel_reset import is_pending
from zerochat.limits import KEYS_DEFAULT
from zerochat.sim.actions import Users
from zerochat.sim.large.founding import found
from zerochat.sim.large.large_world import LargeWorld, Traffic
from zerochat.sim.world import Faults, Violation, World

LOSS_CALM_MAX = 0.1
"""The most packet loss in the calm phase."""
QUIET_INTERVAL_MS = 400
"""Between two messages of the quiet phase."""
SETTLE_MS = 10_000
"""What follows the last delivery of a phase: acknowledgements, and what was missed."""
FAULTS_MS = 60_000
CONVERGED_MS = 600_000
"""Time until every member must have everything: a joiner may need several attempts."""
JOINED_MS = 900_000
"""Time until a member that joins by itself must be in the group."""
POLL_MS = 500
OFF_MS_MAX = 20_000
"""How long a machine is off."""
QUORUM = 2
"""Votes that a removal takes by the default policy."""
LACKS_SHOWN = 5
QUIET = Faults(loss=0, duplication=0, delay_ms_max=20)
PARTITION_MS = 20_000


class LargePlan(Struct, frozen=True):
    """What is simulated."""

    members: int = 40
    messages: int = 40
    """The first half under packet loss alone, the second half under all faults."""
    loss: float = 0.05
    path: str = "ring"
    joins: bool = False
    """Whether each member joins by itself; otherwise the group is founded with all of them."""

    @property
    def joiners(self) -> int:
        """Members that join during the faults."""
        return max(2, self.members // 25)

    @property
    def departures(self) -> int:
        """Members that leave, and members that are removed, during the faults."""
        return max(1, self.members // 50)

    @property
    def crashes(self) -> int:
        return max(2, self.members // 10)


class Phase(Struct, frozen=True):
    """What a part of the run has cost."""

    name: str
    seconds: float
    """Processor time."""
    virtual_ms: int
    steps: int
    frames: int
    bytes: int
    copies: int
    """Sealed messages on the network."""
    outside: int
    """Of these, how many went to nodes that never were members."""
    deliveries: int
    """Of the messages of this time: one for each member that was there when its author posted it."""
    latencies: tuple[int, ...]
    """By notification of a client of another member than the author, sorted, ms."""


class Scenario:
    """One run of a plan."""

    world_class: ClassVar[type[LargeWorld]] = LargeWorld

    def __init__(self, plan: LargePlan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.phases: list[Phase] = []
        begun = World(seed, plan.members + plan.joiners, QUIET)
        self.world = self.world_class.fork(begun, seed, QUIET)
        names = list(self.world.nodes)
        self.first, self.later = names[: plan.members], names[plan.members :]
        self._rng = random.Random(f"large {seed}")
        self._users = Users(self.world, self._rng, names)
        self.world.on_notification = self._users.on_notification
        self.world.on_restart = self._users.answer_pending_requests
        self._posts = 0

    def play(self) -> None:
        """Run all phases, and check the invariants at the end. Raises Violation."""
        self.gather()
        self.send_quietly()
        self._measure("faults", self._suffer)
        self._measure("calm", self._converge)
        self.world.check()
        self.world.check_joins()

    def gather(self) -> Phase:
        """Run the first phase. Raises Violation."""
        return self._measure("founded", self._gather)

    def send_quietly(self) -> Phase:
        """Run the phase whose figures are those of a delivery, once more if it has run. Raises Violation."""
        return self._measure("quiet", self._send_quietly)

    def _measure(self, name: str, run: Callable[[], None]) -> Phase:
        world, began = self.world, time.process_time()
        at, steps, traffic = world.now, world.steps, Traffic()
        world.traffic = traffic
        try:
            run()
        finally:
            seconds, latencies = time.process_time() - began, tuple(sorted(traffic.latencies))
            carried = traffic.frames, traffic.bytes, traffic.copies, traffic.outside, traffic.due, latencies
            self.phases.append(Phase(name, seconds, world.now - at, world.steps - steps, *carried))
        return self.phases[-1]

    # --- phases -----------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """The first members come together, without faults."""
        world, plan = self.world, self.plan
        chosen = CreateGroup("sim", self.first[0], world.envelope, KEYS_DEFAULT, path=plan.path)
        if plan.joins:
            world.run_command(self.first[0], chosen)
            for name in self.first[1:]:
                self._users.join(name, self.first)
                self._wait(lambda name=name: bool(world.nodes[name].agent.groups), JOINED_MS, f"{name} is not in")  # type: ignore[misc]
        else:
            found(world, self.first, chosen)
        self._wait(self._is_complete, JOINED_MS, "the first members are not complete")
        world.run(lambda: self._has_history() and self._has_channels(), JOINED_MS, POLL_MS)

    def _send_quietly(self) -> None:
        """Messages of random members, under packet loss alone."""
        world = self.world
        world.faults = Faults(loss=self.plan.loss)
        for number in range(self.plan.messages // 2):
            world.after(number * QUIET_INTERVAL_MS, self._post)
        world.run(for_ms=self.plan.messages // 2 * QUIET_INTERVAL_MS)
        self._wait(self._is_complete, CONVERGED_MS, "messages are missing")
        world.run(for_ms=SETTLE_MS)

    def _suffer(self) -> None:
        """Messages of random members under all faults, while members join, leave and are removed."""
        world, plan, rng = self.world, self.plan, self._rng
        for _ in range(plan.messages - plan.messages // 2):
            world.after(rng.randrange(FAULTS_MS), self._post)
        for name in self.later:
            world.after(rng.randrange(FAULTS_MS), partial(self._users.join, name, self.first))
        for _ in range(plan.departures):
            world.after(rng.randrange(FAULTS_MS), self._leave)
            world.after(rng.randrange(FAULTS_MS), self._remove)
        for _ in range(plan.crashes):
            world.after(rng.randrange(FAULTS_MS), self._crash)
        side = rng.sample(self.first, rng.randint(len(self.first) // 4, len(self.first) // 2))
        world.after(rng.randrange(FAULTS_MS - PARTITION_MS), partial(world.partition, side, PARTITION_MS))
        world.run(for_ms=FAULTS_MS)

    def _converge(self) -> None:
        """All faults end, except for some packet loss: every member gets everything."""
        self.world.heal(LOSS_CALM_MAX)
        self._wait(self._is_complete, CONVERGED_MS, "not all has arrived")
        self._users.stop()
        self.world.run(for_ms=SETTLE_MS)

    # --- what happens -----------------------------------------------------------------------------------------------

    def _active(self) -> list[str]:
        return [name for name in self._users.active() if not self.world.machines[name].off]

    def _post(self) -> None:
        active = self._active()
        if active:
            self._post_of(self._rng.choice(active))

    def _post_of(self, name: str) -> None:
        self._posts += 1
        self.world.run_command(name, SendPost(self.world.group(name).id, f"message {self._posts} of {name}"))

    def _leave(self) -> None:
        active = self._active()
        if len(active) > 2:
            self._users.leave(self._rng.choice(active))

    def _remove(self) -> None:
        """As many members as it takes vote to remove another."""
        active = self._active()
        if len(active) > QUORUM + 1:
            target, *voters = self._rng.sample(active, QUORUM + 1)
            member = self.world.group(target).me
            for name in voters:
                self.world.run_command(name, RemoveMember(self.world.group(name).id, member))

    def _crash(self) -> None:
        """A process ends, now or between two effects of its next step."""
        active = self._active()
        name, off_ms = self._rng.choice(active), self._rng.randint(1, OFF_MS_MAX)
        if self._rng.random() < 0.5:
            self.world.power_off(name, off_ms)
        else:
            machine = self.world.machines[name]
            machine.crash_seed, machine.off_ms = self._rng.getrandbits(32), off_ms

    # --- convergence ------------------------------------------------------------------------------------------------

    def _is_complete(self) -> bool:
        return not any(self._lacks())

    def _lacks(self) -> Iterator[str]:
        """What is missing, as sentences."""
        world = self.world
        waiting = [name for name in self._begun() if not world.nodes[name].agent.groups]
        if waiting:
            yield f"{waiting[0]} is not in the group"
        elif not world.fully_connected():
            yield "not all links are up"
        else:
            yield from world.missing()

    def _has_history(self) -> bool:
        """Whether no member looks for earlier history any more."""
        groups = [self.world.group(name) for name in self.first]
        return all(group.sync.backfill is None or group.sync.backfill.done for group in groups)

    def _has_channels(self) -> bool:
        """Whether all members have each other's pre-keys, on the ring, where they offer them when they join."""
        all_keys = [self.world.group(name).dcgka.keys for name in self.first]
        return self.plan.path != "ring" or all(
            len(keys.resets) == len(self.first) - 1 and not any(is_pending(keys, member) for member in keys.resets)
            for keys in all_keys
        )

    def _begun(self) -> Iterable[str]:
        """The nodes that should be in the group."""
        return [*self.first, *(name for name in self.later if name in self._users.attempts)]

    def _wait(self, until: Callable[[], bool], for_ms: int, what: str) -> None:
        """Raise Violation unless this becomes true within so many virtual milliseconds."""
        if not self.world.run(until, for_ms, POLL_MS):
            lacks = [*islice(self._lacks(), LACKS_SHOWN)]
            raise Violation(f"seed {self.seed}: {what} after {for_ms // 1000} s: {'; '.join(lacks)}")
