"""Histories of groups whose content expires: after its time no honest log has it, and all stay complete and verifiable.

Members are off for longer than a message is kept, restart, and choose times of their own beside the group's rule.
"""

import random
from collections.abc import Callable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.agent.storage.state_parts import changes
from zerochat.group import retention
from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.event import CONTROL, EXPIRED, LASTING, load_event
from zerochat.group.inputs import ChooseRetention, CreateGroup, SendPost, TimerFired
from zerochat.group.key_modes import MODES
from zerochat.group.membership import Policy
from zerochat.group.state import Group
from zerochat.group.timer_kinds import TimerKind
from zerochat.sim.actions import Users, random_rotation
from zerochat.sim.fast_crypto import cached_signatures, event_of
from zerochat.sim.low_limits import with_low_limits
from zerochat.sim.node import Node, Violation
from zerochat.sim.world import Faults, World

MINUTE, HOUR = 60_000, 3_600_000
RULES = (0, HOUR, HOUR, 2 * HOUR)
"""Times of the group, of a member for this conversation, and of its profile; 0: none."""
LATE_MS = 10 * MINUTE
"""How long after its time content may stay: until the next round, or the first one after a start."""
CONVERGE_MS = 30 * MINUTE


class Course(Struct):
    """What has happened so far."""

    texts: dict[str, int] = field(default_factory=dict)
    """When each text was posted, UTC ms."""
    started: dict[str, int] = field(default_factory=dict)
    """When the members that were off have returned."""
    off: set[str] = field(default_factory=set)


@cached_signatures()
@with_low_limits
def play_retention(
    seed: int,
    faults: Faults | None = None,
    trace: Callable[[str], None] | None = None,
    on_world: Callable[[World], None] | None = None,
) -> World:
    """One history of a group whose content expires. `on_world` receives the world before the run. Raises Violation."""
    rng = random.Random(f"retention {seed}")
    world = World(seed, rng.choice((2, 3, 3, 4)), faults or Faults(loss=0.05), trace=trace)
    if on_world:
        on_world(world)
    world.set_rotation(random_rotation(f"retention {seed}"))
    names, course = list(world.nodes), Course()
    people = Users(world, random.Random(seed), names)
    policy = Policy(keep=rng.choice(RULES), history=rng.choice(("all", "all", "last:5", "none")))
    founding = CreateGroup("world", names[0], world.envelope, rng.choice(list(MODES)), policy)
    world.run_command(names[0], founding)
    late = names[-1] if len(names) > 2 and rng.random() < 0.5 else ""
    for name in names[1:]:
        if name != late:
            _join(world, people, name)
    group = world.group(names[0]).id
    for name in names:
        if name != late and rng.random() < 0.5:
            world.run_command(name, ChooseRetention(group, rng.choice(RULES)))
        node = world.nodes[name]
        node.agent = replace(node.agent, keep_ms=rng.choice((0, 0, *RULES)))
        world.process(name, TimerFired(f"{TimerKind.RETENTION} "))  # as the agent does after a change of its settings
    for number in range(rng.randint(6, 14)):
        _act(world, people, rng, course, late, number)
        world.run(for_ms=rng.randint(0, HOUR * 3 // 4))
        _check_content(world, course)
    for name in sorted(course.off):
        _return(world, course, name)
    if late and not world.nodes[late].agent.groups:
        _join(world, people, late)
    people.stop()
    for wait_ms in (CONVERGE_MS, 3 * HOUR):  # with what is left of the content, and without any
        world.run(lambda: world.fully_connected() and not any(world.missing()), for_ms=CONVERGE_MS)
        world.check()
        world.run(for_ms=wait_ms)
        _check_content(world, course)
    world.check()
    _check_chains(world)
    return world


def _join(world: World, people: Users, name: str) -> None:
    people.join(name, people.names)
    if not world.run(lambda: bool(world.nodes[name].agent.groups), for_ms=600_000):
        raise Violation(f"seed {world.seed}: {name} never joined the group")


def _act(world: World, people: Users, rng: random.Random, course: Course, late: str, number: int) -> None:
    """A member posts or annotates, restarts, goes off, or returns; or the last one joins."""
    here = [name for name in people.active() if name not in course.off]
    name, what = rng.choice(here), rng.random()
    if what < 0.5:
        text = f"word {number} of {name}, which expires"
        course.texts[text] = world.now
        world.run_command(name, SendPost(world.group(name).id, text))
    elif what < 0.6:
        people.annotate(name, rng)
    elif what < 0.7:
        world.restart(name)
        course.started[name] = world.now
    elif what < 0.85 and len(here) > 1:
        world.stop(name)
        course.off.add(name)
    elif what < 0.92 and late and not world.nodes[late].agent.groups and not course.off:
        _join(world, people, late)
    elif course.off:
        _return(world, course, rng.choice(sorted(course.off)))


def _return(world: World, course: Course, name: str) -> None:
    world.start(name)
    course.off.discard(name)
    course.started[name] = world.now


# --- invariants -----------------------------------------------------------------------------------------------------


def _check_content(world: World, course: Course) -> None:
    """Raise Violation if a member that runs has content whose time is over, in its log or in its state."""
    for name, node in world.nodes.items():
        if name in course.off or world.now < course.started.get(name, 0) + LATE_MS:
            continue
        for group in node.agent.groups.values():
            rule = retention.keep_ms(node.agent, group)
            if rule and group.state == "active":
                _check_group(f"seed {world.seed}: {name}", node, group, world.now - rule - LATE_MS, world.now, course)


def _check_group(who: str, node: Node, group: Group, before: int, now: int, course: Course) -> None:
    policy = group.view.policy
    ruled = now - policy.keep - LATE_MS if policy.keep else 0
    for row in node.log:
        mine = row.author == group.me  # a member may lack it, and no other one can send it
        if row.lamport < (ruled if mine else before) and row.type not in {*LASTING, EXPIRED}:
            raise Violation(f"{who} keeps content that has expired")
    for record in _waiting(group):
        event = event_of(record)
        if event.lamport < before and event.type not in LASTING and not event.is_erased:
            raise Violation(f"{who} keeps early content that has expired")
    if any(one.time < (ruled if one.author == group.me else before) for one in node.signed):
        raise Violation(f"{who} keeps a signature of content that has expired")
    if policy.keep:
        state = b"".join(value for _, value in changes(None, node.agent) if value is not None)
        left = [text for text, at in course.texts.items() if at < ruled and text.encode() in state]
        if left:
            raise Violation(f"{who} has text in its state that has expired")


def _waiting(group: Group) -> Iterator[bytes]:
    return (early.record for buffer in group.log.reorder_buffers.values() for early in buffer.events.values())


def _check_chains(world: World) -> None:
    """Raise Violation unless each chain is whole, by its hashes, and nothing was withdrawn."""
    for name, node in world.nodes.items():
        if node.refuted:
            raise Violation(f"seed {world.seed}: {name} has withdrawn events of honest members")
        for group in node.agent.groups.values():
            ids = {row.id for row in node.log if row.group == group.id}
            if any(chain.head_id and chain.head_id not in ids for chain in group.log.chains.values()):
                raise Violation(f"seed {world.seed}: {name} lacks the head of a chain")
            chains: dict[str, list[StoreEvent]] = {}
            for row in node.log:
                if row.group == group.id and row.type not in CONTROL:
                    chains.setdefault(row.author, []).append(row)
            for author, rows in chains.items():
                rows.sort(key=lambda row: row.seq)
                events = [load_event(row.record) for row in rows]
                for row, event, after in zip(rows, events, [*events[1:], None], strict=True):
                    if event.id != row.id or (after and after.seq == event.seq + 1 and after.pre != event.id):
                        raise Violation(f"seed {world.seed}: {name} has a broken chain of {author}")
