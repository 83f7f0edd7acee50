"""A simulated world that measures the steps of its cores."""

import time
from collections import defaultdict
from functools import partial

from zerochat.agent.storage.state_parts import changes
from zerochat.group.effects import CommandDone, Effect, InvitationCreated, Notify
from zerochat.group.engine import step
from zerochat.group.inputs import (
    AcceptInvitation,
    BatchEnded,
    CommandInput,
    CreateGroup,
    CreateInvitation,
    Input,
    Received,
    SendPost,
    StepContext,
    TimerFired,
)
from zerochat.group.notifications import Delivered
from zerochat.group.state import Agent
from zerochat.group.sync.acknowledgements import is_ack_timer
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.world import SIMULATED_PACKERS, Faults, Node, World

GROUP = "bench"
JOIN_MS_MAX = 120_000
"""Virtual time."""


class TimedWorld(World):
    """A group in which every member is connected with every other one."""

    def __init__(self, members: int) -> None:
        self._spent_us: dict[str, float] = defaultdict(float)
        self._steps_of: dict[str, int] = defaultdict(int)
        self.weighs, self.written = False, 0
        super().__init__(seed=1, members=members, faults=Faults(0, 0, 20), envelope=TransparentPacker.name)

    def taken(self) -> tuple[dict[str, float], dict[str, int]]:
        """By kind of step: the processor time, us, and the number of steps since the last call."""
        since = self._spent_us, self._steps_of
        self._spent_us, self._steps_of = defaultdict(float), defaultdict(int)
        return since

    def gather(self, keys: str) -> None:
        """All members join, one after the other."""
        self.run_command("n0", CreateGroup(GROUP, "n0", self.envelope, keys))
        for number, name in enumerate(list(self.nodes)[1:], 2):
            answer = self.run_command("n0", CreateInvitation(GROUP, 86_400, 1))
            assert isinstance(answer, CommandDone) and isinstance(answer.result, InvitationCreated), answer
            self.run_command(name, AcceptInvitation(answer.result.invitation, name))
            if not self.run(partial(is_member, self, number), JOIN_MS_MAX, 100):
                raise AssertionError(f"{name} did not join")

    def post(self, name: str) -> None:
        self.run_command(name, SendPost(GROUP, f"{name} says that at {self.now}"))

    def state_bytes(self) -> int:
        """The state of the founder, as the journal has it."""
        return bytes_of(None, self.nodes["n0"].agent)

    def _step(self, node: Node, input_: Input) -> list[Effect]:
        context, effects, before = StepContext(self.now, self.rng.randbytes), list[Effect](), node.agent
        begun = time.thread_time_ns()
        for heard in (input_, BatchEnded()):
            node.agent, said = step(node.agent, heard, context, SIMULATED_PACKERS)
            effects += said
        spent = time.thread_time_ns() - begun
        kind = kind_of(input_, effects)
        self._spent_us[kind] += spent / 1000
        self._steps_of[kind] += 1
        if self.weighs:
            self.written += bytes_of(before, node.agent)
        self.steps += 1
        return effects


def bytes_of(before: Agent | None, after: Agent) -> int:
    """What the journal writes for a change of the state, with the names of the parts."""
    return sum(len(path) + len(value or b"") for path, value in changes(before, after))


def is_member(world: World, count: int) -> bool:
    """Whether the last of so many members is connected with all others."""
    groups = world.nodes[f"n{count - 1}"].agent.groups
    relationships = [one for group in groups.values() for one in group.links.relationships.values()]
    return sum(one.established for one in relationships) == count - 1


def kind_of(input_: Input, effects: list[Effect]) -> str:
    """What a step has done."""
    match input_:
        case CommandInput():
            return "post"
        case TimerFired(key):
            return "acknowledging" if is_ack_timer(key) else "timer"
        case Received():
            news = (effect.notification for effect in effects if isinstance(effect, Notify))
            return "delivery" if any(isinstance(one, Delivered) for one in news) else "acknowledged"
        case _:
            return "other"
