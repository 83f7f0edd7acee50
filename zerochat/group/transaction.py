"""One step's workbench: the agent as it becomes, and the effects as they come up.

`step` is pure to everybody outside. Inside, a dozen small functions each change a little of the agent and say a thing
or two; handing them one mutable turn reads better than threading a pair through all of them. A turn that fails is
thrown away whole, so a refused message leaves nothing behind.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from zerochat.didcomm.packer import Packer
from zerochat.errors import Refused
from zerochat.group.effects import Effect, SetTimer
from zerochat.group.inputs import Moment
from zerochat.group.state import Agent, Group, Peer


class Turn:
    """The state of one step in the making."""

    def __init__(self, agent: Agent, moment: Moment, packers: Mapping[str, Packer]) -> None:
        self.agent = agent
        self.moment = moment
        self.packers = packers
        self.effects: list[Effect] = []

    @property
    def now(self) -> int:
        """The time by which we go and others know us, UTC ms: what the clock says, unless somebody has set it and no
        member has agreed with that yet (`timekeeping.py`)."""
        return self.moment.now - self.agent.leap

    def say(self, *effects: Effect) -> None:
        self.effects += effects

    def change(self, **fields: Any) -> None:
        self.agent = replace(self.agent, **fields)

    def put(self, group: Group) -> Group:
        agent = self.agent  # in these three each call counts: they are the most frequent of all
        self.agent = replace(agent, groups={**agent.groups, group.id: group})
        return group

    def edit(self, name: str, **fields: Any) -> Group:
        """Change fields of the group with this id."""
        agent = self.agent
        group = replace(agent.groups[name], **fields)
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return group

    def edit_peer(self, name: str, member: str, **fields: Any) -> Peer:
        """Change what is known of one member of the group with this id."""
        agent = self.agent
        group = agent.groups[name]
        peer = replace(group.peers[member], **fields)
        group = replace(group, peers={**group.peers, member: peer})
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return peer

    def group(self, name: str) -> Group:
        return self.agent.groups[name]

    def packer(self, envelope: str) -> Packer:
        """The packer of this name. Raises Refused for one that this version does not have."""
        if envelope not in self.packers:
            raise Refused(why="envelopes of a kind that this version does not have")
        return self.packers[envelope]

    def packer_of(self, name: str) -> Packer:
        """The packer that the group with this id has picked."""
        return self.packer(self.agent.groups[name].profile.envelope)

    def timer(self, kind: str, name: str, delay_ms: int, *, keep: bool = False) -> None:
        """Have `kind` happen to `name` after a while; with `keep`, unless that will happen anyway."""
        self.say(SetTimer(f"{kind} {name}", max(1, delay_ms), keep))
