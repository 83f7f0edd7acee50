"""Episodes: some seconds in the life of a group, in which at least four things go wrong while people talk.

A seed stands for a group (`beginnings.py`) and a script: what people do and what goes wrong, each at its moment. The
script is data, so that it can be told, and cut down to what it takes to break a promise (`shrink.py`). Then nothing
more goes wrong but that a few frames get lost, and by a deadline everybody must have everything.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from zerochat.group.inputs import SendPost
from zerochat.sim.actions import People, drawn_rotation
from zerochat.sim.crypto_cache import remembering
from zerochat.sim.fault_schedule import Ordeal, Pair, moment_of_death
from zerochat.sim.initial_groups import beginning_of, begun
from zerochat.sim.low_limits import room_for
from zerochat.sim.world import Faults, Violation

LASTS_MS = 12_000
"""How long things happen."""
DEADLINE_MS = 180_000
"""How long it may take afterwards until everybody has everything: a joiner may try twice."""
LOSS = 0.1
"""Of so many frames each gets lost, and of no more once nothing else goes wrong: else the time would be too short."""
LOOK_MS = 250
"""How often that is looked at."""
FAULTS_MIN, FAULTS_MAX = 4, 6
FEUDS = 0.05
"""How often two act against each other at the same time, so that others hear of it in one order or the other."""
ATTACHED, FILE_BYTES_MAX = 0.1, 64 * 1024
"""How often somebody posts a file in an episode, of up to three parts."""
ROTATIONS = 0.1
"""How often somebody takes a new DID towards one of the others, and perhaps that one at the same time."""
YEAR_MS = 365 * 24 * 3_600_000
RIGHT_MS_MAX = 8_000
"""A clock that was set while no process ran is right again within so long after the next one has begun."""
REBOOTS_MS = 240_000
"""A clock that is wrong by this is so from a start of its machine to the next: less than others put up with."""

SAY, REMARK, ATTACH = "say", "remark", "attach"
RENAME, ROLE, PUT_OUT, GO, JOIN, FEUD = "rename", "role", "put out", "go", "join", "feud"
ROTATE = "rotate"
CUT, CUT_ONE_WAY, APART, SPLIT = "cut", "cut one way", "apart", "split"
CLOG, SLOW, GARBLE, RESET = "clog", "slow", "garble", "reset"
KILL, CRASH, FULL, CLOCK, CLOCK_OFF = "kill", "crash", "full", "clock", "clock off"
DEEDS = (RENAME, ROLE, PUT_OUT, GO, JOIN)
FAULTS = (CUT, CUT_ONE_WAY, APART, SPLIT, CLOG, SLOW, GARBLE, RESET, KILL, CRASH, CRASH, FULL, CLOCK, CLOCK_OFF)


class Act(Struct, frozen=True):
    """Something that somebody does, or that goes wrong, at a moment of an episode (ms after it began)."""

    at_ms: int
    kind: str
    who: str
    to: str = ""
    """The other end, where it is about a line."""
    for_ms: int = 0
    lot: int = 0
    """What has to be drawn by lot is drawn from this, so that it does not depend on what else happens."""

    def sentence(self) -> str:
        """What happens, as a person would say it."""
        seconds = f"for {self.for_ms / 1000:.1f} s"
        return {
            SAY: f"{self.who} says something",
            ATTACH: f"{self.who} posts a file",
            REMARK: f"{self.who} edits or deletes a message, or reacts to one",
            RENAME: f"{self.who} takes another name",
            ROLE: f"{self.who} changes somebody's role",
            PUT_OUT: f"{self.who} puts somebody out",
            GO: f"{self.who} leaves",
            JOIN: f"{self.who} begins to join",
            FEUD: f"{self.who} wants {self.to} to say nothing any more, and {self.to} wants {self.who} out",
            ROTATE: f"{self.who} takes a new DID towards {self.to}",
            CUT: f"the line between {self.who} and {self.to} is cut {seconds}",
            CUT_ONE_WAY: f"nothing gets from {self.who} to {self.to} {seconds}",
            APART: f"{self.who} is cut off from everybody {seconds}",
            SPLIT: f"the group falls into two parts, {self.who} in one and {self.to} in the other, {seconds}",
            CLOG: f"what {self.who} sends to {self.to} is held up {seconds}",
            SLOW: f"everything reaches {self.who} {self.lot % 4 + 1} s late, {seconds}",
            GARBLE: f"bits are flipped on the line from {self.who} to {self.to} {seconds}",
            RESET: f"the connections between {self.who} and {self.to} break",
            KILL: f"the process of {self.who} is killed, and starts again after {self.for_ms / 1000:.1f} s",
            CRASH: f"the process of {self.who} dies {_moment(self.lot)}, and is off {seconds}",
            FULL: f"the disk of {self.who} is full {seconds}",
            CLOCK: f"the clock of {self.who} is {_clock_lie(self.lot) / 1000:+,.0f} s wrong {seconds}",
            CLOCK_OFF: f"{self.who} is off {seconds}, its clock {_set_while_off(self.lot) / 1000:+,.0f} s wrong then",
        }[self.kind]


def _moment(lot: int) -> str:
    before = moment_of_death(lot, 0) == -1
    return "before its next turn is remembered" if before else "in the middle of what its next turn has to say"


def _clock_lie(lot: int) -> int:
    """By how much a clock is wrong, ms."""
    return (-YEAR_MS, -3_600_000, -60_000, 60_000, REBOOTS_MS, 3_600_000, YEAR_MS)[lot % 7]


def _set_while_off(lot: int) -> int:
    """By how much a clock is wrong that was set while its machine ran and no process did, ms."""
    return (-YEAR_MS, -3_600_000, 3_600_000, YEAR_MS)[lot % 4]


def script_of(seed: int, names: Sequence[str], outsider: str) -> tuple[Act, ...]:
    """What happens in the episode of a seed, in order."""
    dice = random.Random(f"episode {seed}")

    def moment() -> int:
        return dice.randint(0, LASTS_MS)

    acts = [Act(moment(), SAY, dice.choice(names)) for _ in range(dice.randint(3, 6))]
    for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
        kind = dice.choice(DEEDS)
        who = outsider if kind == JOIN else dice.choice(names)
        acts.append(Act(moment(), kind, who, lot=dice.getrandbits(32)))
    for _ in range(dice.randint(FAULTS_MIN, FAULTS_MAX)):
        who, to = dice.sample(names, 2)
        for_ms = dice.choice((500, 2_000, 6_000, 15_000))
        acts.append(Act(moment(), dice.choice(FAULTS), who, to, for_ms, dice.getrandbits(32)))
    acts += [Act(moment(), REMARK, dice.choice(names), lot=dice.getrandbits(32)) for _ in range(dice.randint(1, 3))]
    if dice.random() < ATTACHED:
        acts.append(Act(moment(), ATTACH, dice.choice(names), lot=dice.getrandbits(32)))
    apart = random.Random(f"feud {seed}")
    if apart.random() < FEUDS:
        who, to = apart.sample(names, 2)
        acts.append(Act(apart.randint(0, LASTS_MS), FEUD, who, to))
    apart = random.Random(f"rotate {seed}")
    if apart.random() < ROTATIONS:
        who, to = apart.sample(names, 2)
        at_ms = apart.randint(0, LASTS_MS)
        acts += [Act(at_ms, ROTATE, one, other) for one, other in ((who, to), (to, who))[: apart.randint(1, 2)]]
    return tuple(sorted(acts, key=lambda act: (act.at_ms, act.kind, act.who)))


@remembering()
def play_episode(
    seed: int,
    script: Sequence[Act] | None = None,
    faults: Faults | None = None,
    say: Callable[[str], None] | None = None,
    lazy_turns: int = 0,
    made: Callable[[Ordeal], None] | None = None,
) -> Ordeal:
    """One episode: what its script says, then calm, and by the deadline everybody must have everything.

    `lazy_turns`: what the disks were told to keep they keep only every so many turns. `made`: handed the world
    before anything happens in it. Returns the world at its end; raises Violation with the seed when a promise is
    broken.
    """
    stands = begun(beginning_of(seed))
    with room_for(seed):
        *names, outsider = stands.nodes
        world = Ordeal.fork(stands, seed, faults or Faults(loss=LOSS))
        world.say, world.lazy_turns = say, lazy_turns
        if made:
            made(world)
        world.set_rotation(drawn_rotation(f"episode {seed}"))
        people = People(world, random.Random(seed), names)
        world.heed, world.started = people.heed, people.look
        if say:
            known = beginning_of(seed)
            say(f"seed {seed}: {known.sentence()}")
        for act in script_of(seed, names, outsider) if script is None else script:
            world.after(act.at_ms, lambda act=act: perform(world, people, act))  # type: ignore[misc]
        looks = random.Random(f"looks {seed}")
        world.after(looks.randint(0, LASTS_MS), partial(world.look_at, looks.choice(names)))
        world.run(for_ms=LASTS_MS)
        world.heal(LOSS)
        if say:
            lost = f"{world.faults.loss:.0%} of what is sent gets lost" if world.faults.loss else "frames come late"
            say(f"{world.told_time()} lines and machines work again, and nothing goes wrong any more but that {lost}")
        people.stop()
        world.run(lambda: world.seated() and not any(world.missing()), DEADLINE_MS, LOOK_MS)
        if people.active():
            world.check()
        for node in world.nodes.values():
            if any(join.contradiction is not None for join in node.agent.joins.values()):
                raise Violation(f"seed {seed}: {node.name} has evidence against members who keep the rules")
        return world


def perform(world: Ordeal, people: People, act: Act) -> None:
    """Let it happen."""
    if act.kind not in (*FAULTS, JOIN) and (act.who not in people.active() or world.machines[act.who].off):
        return
    if world.say:
        world.say(f"{world.told_time()} {act.sentence()}")
    if act.kind in FAULTS:
        world.done += 1
        _go_wrong(world, act)
        return
    people.dice = random.Random(act.lot)
    if act.kind == JOIN:
        people.join(act.who, people.names)
        return
    match act.kind:
        case "say":
            world.ask(act.who, SendPost(world.group(act.who).id, f"word at {act.at_ms} of {act.who}"))
        case "remark":
            people.remark(act.who, people.dice)
        case "attach":
            world.attach(act.who, people.dice.randbytes(1 + act.lot % FILE_BYTES_MAX))
        case "rename":
            people.rename(act.who)
        case "role":
            people.role(act.who)
        case "put out":
            people.put_out(act.who)
        case "go":
            people.go(act.who)
        case "rotate":
            people.rotate(act.who, act.to)
        case "feud" if act.to in people.active() and not world.machines[act.to].off:
            people.feud(act.who, act.to)


def _go_wrong(world: Ordeal, act: Act) -> None:
    who, to, lines, machine = act.who, act.to, world.lines, world.machines[act.who]
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
            drawn = {name for place, name in enumerate(world.nodes) if act.lot >> place & 1}
            there, nodes = drawn - {who} | {to}, world.nodes
            world.cut([(one, two) for one in nodes for two in nodes if (one in there) != (two in there)], act.for_ms)
        case "clog":
            lines.clogged[(who, to)] = until
        case "garble":
            lines.garbled[(who, to)] = until
        case "reset":
            world.reset(who, to)
        case "kill":
            world.switch_off(who, act.for_ms)
        case "crash":
            machine.dies, machine.off_ms = act.lot, act.for_ms
        case "slow":
            machine.slow_ms = (act.lot % 4 + 1) * 1_000
            world.after(act.for_ms, lambda: setattr(machine, "slow_ms", 0))
        case "full":
            machine.full = True
            world.after(act.for_ms, lambda: setattr(machine, "full", False))
        case "clock":
            set_ = world.reboot if abs(_clock_lie(act.lot)) == REBOOTS_MS else world.set_clock
            set_(who, _clock_lie(act.lot))
            world.after(act.for_ms, lambda: set_(who, 0))
        case "clock off":
            world.switch_off(who, act.for_ms)
            world.set_clock(who, _set_while_off(act.lot))
            world.after(act.for_ms + act.lot // 4 % RIGHT_MS_MAX, lambda: world.set_clock(who, 0))
