"""Episodes: some seconds in the life of an existing group with at least four faults.

A seed determines a group (`initial_groups.py`) and a script of user actions and faults. The script is data, so it can
be printed and shrunk (`batch.py`). Afterwards only a few frames are lost, and every member must have everything by a
deadline.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from zerochat.group.inputs import SendPost
from zerochat.sim.actions import Users, random_rotation
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.fault_schedule import FaultyWorld, Pair, crash_point
from zerochat.sim.initial_groups import build_world, initial_group_for
from zerochat.sim.low_limits import low_limits_for
from zerochat.sim.world import Faults

ACTIVE_MS = 12_000
"""Duration of the script."""
DEADLINE_MS = 180_000
"""Time until every member must have everything; a joiner may need two attempts."""
LOSS = 0.1
"""Packet loss during the script, and the most afterwards."""
POLL_MS = 250
"""Interval of the convergence check."""
FAULTS_MIN, FAULTS_MAX = 4, 6
MUTUAL_REMOVAL_RATE = 0.05
"""Probability that two members act against each other concurrently."""
ATTACH_RATE, FILE_BYTES_MAX = 0.1, 64 * 1024
"""Probability that a file is posted, and its largest size (three parts)."""
ROTATION_RATE = 0.1
"""Probability that a member rotates its DID towards another, perhaps both at once."""
PRIVATE_RATE = 0.15
"""Probability that a member writes to another one in private, perhaps both at once."""
UPGRADE_RATE = 0.1
"""Probability that a member upgrades the keys, perhaps two at once."""
YEAR_MS = 365 * 24 * 3_600_000
RIGHT_MS_MAX = 8_000
"""A clock set while the process was stopped is corrected this long after the next start, at most."""
REBOOTS_MS = 240_000
"""Clock error of a rebooted machine: less than others tolerate."""

POST, ANNOTATE, ATTACH = "post", "annotate", "attach"
RENAME, ROLE, REMOVE_MEMBER, LEAVE, JOIN, MUTUAL_REMOVAL = "rename", "role", "remove", "leave", "join", "mutual removal"
ROTATE, PRIVATE, UPGRADE = "rotate", "private", "upgrade"
CUT, CUT_ONE_WAY, APART, SPLIT = "cut", "cut one way", "apart", "split"
CLOG, SLOW, GARBLE, RESET = "clog", "slow", "garble", "reset"
KILL, CRASH, FULL, CLOCK, CLOCK_OFF = "kill", "crash", "full", "clock", "clock off"
USER_ACTIONS = (RENAME, ROLE, REMOVE_MEMBER, LEAVE, JOIN)
FAULTS = (CUT, CUT_ONE_WAY, APART, SPLIT, CLOG, SLOW, GARBLE, RESET, KILL, CRASH, CRASH, FULL, CLOCK, CLOCK_OFF)


class Action(Struct, frozen=True):
    """A user action or fault at a time of the episode (ms after its start)."""

    at_ms: int
    kind: str
    node: str
    peer: str = ""
    """The other end, for faults of a line."""
    for_ms: int = 0
    seed: int = 0
    """Seed of the action's random choices, which makes it independent of other actions."""

    def describe(self) -> str:
        """The action as a sentence."""
        seconds = f"for {self.for_ms / 1000:.1f} s"
        return {
            POST: f"{self.node} posts a message",
            ATTACH: f"{self.node} posts a file",
            ANNOTATE: f"{self.node} edits, deletes or reacts to a message",
            RENAME: f"{self.node} changes its display name",
            ROLE: f"{self.node} changes a member's role",
            REMOVE_MEMBER: f"{self.node} removes a member",
            LEAVE: f"{self.node} leaves",
            JOIN: f"{self.node} starts to join",
            MUTUAL_REMOVAL: f"{self.node} makes {self.peer} a reader while {self.peer} removes {self.node}",
            PRIVATE: f"{self.node} writes to {self.peer} in private",
            UPGRADE: f"{self.node} upgrades the keys",
            ROTATE: f"{self.node} rotates its DID towards {self.peer}",
            CUT: f"the line between {self.node} and {self.peer} is cut {seconds}",
            CUT_ONE_WAY: f"the line from {self.node} to {self.peer} is cut one way {seconds}",
            APART: f"{self.node} is isolated {seconds}",
            SPLIT: f"the group is partitioned, {self.node} from {self.peer}, {seconds}",
            CLOG: f"frames from {self.node} to {self.peer} are delayed {seconds}",
            SLOW: f"{self.node} is slow: frames arrive {self.seed % 4 + 1} s late {seconds}",
            GARBLE: f"frames from {self.node} to {self.peer} are corrupted {seconds}",
            RESET: f"the connections between {self.node} and {self.peer} are reset",
            KILL: f"{self.node} is killed and restarts after {self.for_ms / 1000:.1f} s",
            CRASH: f"the process of {self.node} dies {_crash_point_text(self.seed)}, and is off {seconds}",
            FULL: f"the disk of {self.node} is full {seconds}",
            CLOCK: f"the clock of {self.node} is off by {_clock_offset_ms(self.seed) / 1000:+,.0f} s {seconds}",
            CLOCK_OFF: f"{self.node} is off {seconds}; its clock is then off by"
            f" {_clock_offset_while_off_ms(self.seed) / 1000:+,.0f} s",
        }[self.kind]


def _crash_point_text(lot: int) -> str:
    before = crash_point(lot, 0) == -1
    return "before its next commit" if before else "between the effects of its next step"


def _clock_offset_ms(lot: int) -> int:
    """Clock error, ms."""
    return (-YEAR_MS, -3_600_000, -60_000, 60_000, REBOOTS_MS, 3_600_000, YEAR_MS)[lot % 7]


def _clock_offset_while_off_ms(lot: int) -> int:
    """Clock error of a clock that was set while the process was stopped, ms."""
    return (-YEAR_MS, -3_600_000, 3_600_000, YEAR_MS)[lot % 4]


def make_script(seed: int, names: Sequence[str], outsider: str) -> tuple[Action, ...]:
    """The script of a seed, in order."""
    rng = random.Random(f"episode {seed}")

    def context() -> int:
        return rng.randint(0, ACTIVE_MS)

    acts = [Action(context(), POST, rng.choice(names)) for _ in range(rng.randint(3, 6))]
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        kind = rng.choice(USER_ACTIONS)
        who = outsider if kind == JOIN else rng.choice(names)
        acts.append(Action(context(), kind, who, seed=rng.getrandbits(32)))
    for _ in range(rng.randint(FAULTS_MIN, FAULTS_MAX)):
        who, to = rng.sample(names, 2)
        for_ms = rng.choice((500, 2_000, 6_000, 15_000))
        acts.append(Action(context(), rng.choice(FAULTS), who, to, for_ms, rng.getrandbits(32)))
    acts += [Action(context(), ANNOTATE, rng.choice(names), seed=rng.getrandbits(32)) for _ in range(rng.randint(1, 3))]
    if rng.random() < ATTACH_RATE:
        acts.append(Action(context(), ATTACH, rng.choice(names), seed=rng.getrandbits(32)))
    apart = random.Random(f"feud {seed}")
    if apart.random() < MUTUAL_REMOVAL_RATE:
        who, to = apart.sample(names, 2)
        acts.append(Action(apart.randint(0, ACTIVE_MS), MUTUAL_REMOVAL, who, to))
    apart = random.Random(f"rotate {seed}")
    if apart.random() < ROTATION_RATE:
        who, to = apart.sample(names, 2)
        at_ms = apart.randint(0, ACTIVE_MS)
        acts += [Action(at_ms, ROTATE, one, other) for one, other in ((who, to), (to, who))[: apart.randint(1, 2)]]
    apart = random.Random(f"private {seed}")
    if apart.random() < PRIVATE_RATE:
        who, to = apart.sample(names, 2)
        at_ms = apart.randint(0, ACTIVE_MS)
        pairs = ((who, to), (to, who), (who, to))[: apart.randint(1, 3)]
        acts += [Action(at_ms + apart.randint(0, 2_000), PRIVATE, one, other) for one, other in pairs]
    apart = random.Random(f"upgrade {seed}")
    if apart.random() < UPGRADE_RATE:
        at_ms = apart.randint(0, ACTIVE_MS)
        for who in apart.sample(names, apart.randint(1, 2)):
            at_ms += apart.randint(0, 2_000)
            acts.append(Action(at_ms, UPGRADE, who, seed=apart.getrandbits(32)))
    return tuple(sorted(acts, key=lambda act: (act.at_ms, act.kind, act.node)))


@cached_signatures()
def play_episode(
    seed: int,
    script: Sequence[Action] | None = None,
    faults: Faults | None = None,
    trace: Callable[[str], None] | None = None,
    sync_every_steps: int = 0,
    on_world: Callable[[FaultyWorld], None] | None = None,
) -> FaultyWorld:
    """Run a script, then a calm phase; by the deadline every member must have everything.

    `sync_every_steps`: a disk that acknowledges writes persists them only every so many steps. `on_world` receives the
    world before the run. Returns the world; raises Violation.
    """
    stands = build_world(initial_group_for(seed))
    with low_limits_for(seed):
        *names, outsider = stands.nodes
        world = FaultyWorld.fork(stands, seed, faults or Faults(loss=LOSS))
        world.trace, world.sync_every_steps = trace, sync_every_steps
        if on_world:
            on_world(world)
        world.set_rotation(random_rotation(f"episode {seed}"))
        people = Users(world, random.Random(seed), names)
        world.on_notification, world.on_restart = people.on_notification, people.answer_pending_requests
        if trace:
            known = initial_group_for(seed)
            trace(f"seed {seed}: {known.describe()}")
        for act in make_script(seed, names, outsider) if script is None else script:
            world.after(act.at_ms, lambda act=act: perform(world, people, act))  # type: ignore[misc]
        looks = random.Random(f"looks {seed}")
        world.after(looks.randint(0, ACTIVE_MS), partial(world.check_node, looks.choice(names)))
        world.run(for_ms=ACTIVE_MS)
        world.heal(LOSS)
        if trace:
            lost = f"{world.faults.loss:.0%} of the frames are lost" if world.faults.loss else "frames come late"
            trace(f"{world.timestamp()} all faults end, except that {lost}")
        people.stop()
        world.run(lambda: world.fully_connected() and not any(world.missing()), DEADLINE_MS, POLL_MS)
        if people.active():
            world.check()
        world.check_joins()
        return world


def perform(world: FaultyWorld, people: Users, act: Action) -> None:
    """Perform an action."""
    if act.kind not in (*FAULTS, JOIN) and (act.node not in people.active() or world.machines[act.node].off):
        return
    if world.trace:
        world.trace(f"{world.timestamp()} {act.describe()}")
    if act.kind in FAULTS:
        world.fault_count += 1
        _inject_fault(world, act)
        return
    people.rng = random.Random(act.seed)
    if act.kind == JOIN:
        people.join(act.node, people.names)
        return
    match act.kind:
        case "post":
            world.run_command(act.node, SendPost(world.group(act.node).id, f"word at {act.at_ms} of {act.node}"))
        case "annotate":
            people.annotate(act.node, people.rng)
        case "attach":
            world.attach(act.node, people.rng.randbytes(1 + act.seed % FILE_BYTES_MAX))
        case "rename":
            people.rename(act.node)
        case "role":
            people.change_role(act.node)
        case "remove":
            people.remove_member(act.node)
        case "leave":
            people.leave(act.node)
        case "private" if act.peer in people.active():
            people.converse(act.node, act.peer)
        case "upgrade":
            people.upgrade(act.node, people.rng)
        case "rotate":
            people.rotate(act.node, act.peer)
        case "mutual removal" if act.peer in people.active() and not world.machines[act.peer].off:
            people.remove_each_other(act.node, act.peer)


def _inject_fault(world: FaultyWorld, act: Action) -> None:
    who, to, lines, machine = act.node, act.peer, world.lines, world.machines[act.node]
    until = world.now + act.for_ms
    match act.kind:
        case "cut":
            world.cut([(who, to), (to, who)], act.for_ms)
        case "cut one way":
            world.cut([(who, to)], act.for_ms)
        case "apart":
            pairs: list[Pair] = [pair for name in world.nodes if name != who for pair in ((who, name), (name, who))]
            world.cut(pairs, act.for_ms)
        case "split":
            drawn = {name for place, name in enumerate(world.nodes) if act.seed >> place & 1}
            there, nodes = drawn - {who} | {to}, world.nodes
            world.cut([(one, two) for one in nodes for two in nodes if (one in there) != (two in there)], act.for_ms)
        case "clog":
            lines.clogged[(who, to)] = until
        case "garble":
            lines.garbled[(who, to)] = until
        case "reset":
            world.reset(who, to)
        case "kill":
            world.power_off(who, act.for_ms)
        case "crash":
            machine.crash_seed, machine.off_ms = act.seed, act.for_ms
        case "slow":
            machine.slow_ms = (act.seed % 4 + 1) * 1_000
            world.after(act.for_ms, lambda: setattr(machine, "slow_ms", 0))
        case "full":
            machine.full = True
            world.after(act.for_ms, lambda: setattr(machine, "full", False))
        case "clock":
            set_ = world.reboot if abs(_clock_offset_ms(act.seed)) == REBOOTS_MS else world.set_clock
            set_(who, _clock_offset_ms(act.seed))
            world.after(act.for_ms, lambda: set_(who, 0))
        case "clock off":
            world.power_off(who, act.for_ms)
            world.set_clock(who, _clock_offset_while_off_ms(act.seed))
            world.after(act.for_ms + act.seed // 4 % RIGHT_MS_MAX, lambda: world.set_clock(who, 0))
