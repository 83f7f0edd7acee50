"""The transaction of one step: the agent in the making and the effects so far; discarded whole on error.

`step` is pure from outside. Inside, handlers share one mutable transaction instead of threading a pair through every
call.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from zerochat.didcomm.packer import Packer
from zerochat.errors import Refused, RemoteError
from zerochat.group.effects import Effect, Measure, SetTimer
from zerochat.group.inputs import StepContext
from zerochat.group.state import Agent, Group, Peer
from zerochat.group.timer_kinds import TimerKind


class Transaction:
    """The state of one step in the making."""

    def __init__(self, agent: Agent, context: StepContext, packers: Mapping[str, Packer]) -> None:
        self.agent = agent
        self.context = context
        self.packers = packers
        self.effects: list[Effect] = []
        self.work_us = 0
        """Work that was charged in this step (`links/rate_limits.py`); it stays spent if the step is discarded."""

    @property
    def now(self) -> int:
        """Our time, UTC ms: the clock without the part of its last change that members have not confirmed
        (`clock_changes.py`)."""
        return self.context.now - self.agent.clock_offset_ms

    def emit(self, *effects: Effect) -> None:
        self.effects += effects

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the changes and effects of the block if it raises."""
        agent, emitted = self.agent, len(self.effects)
        try:
            yield
        except BaseException:
            self.agent = agent
            del self.effects[emitted:]
            raise

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """As `savepoint`, and a RemoteError ends here: it is counted, not raised."""
        try:
            with self.savepoint():
                yield
        except RemoteError as error:
            self.emit(Measure("dropped", error.code))

    # update_group, update_log and update_peer are the most frequent calls of all, and call nothing else.

    def update_agent(self, **fields: Any) -> None:
        self.agent = replace(self.agent, **fields)

    def add_group(self, group: Group) -> Group:
        agent = self.agent
        self.agent = replace(agent, groups={**agent.groups, group.id: group})
        return group

    def update_group(self, name: str, /, **fields: Any) -> Group:
        """Replace fields of the group with this id."""
        agent = self.agent
        group = replace(agent.groups[name], **fields)
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return group

    def update_joining(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's record of admissions."""
        return self.update_group(name, joining=replace(self.agent.groups[name].joining, **fields))

    def update_trust(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's record of attestations and proofs."""
        return self.update_group(name, trust=replace(self.agent.groups[name].trust, **fields))

    def update_links(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's record of peers and relationships."""
        return self.update_group(name, links=replace(self.agent.groups[name].links, **fields))

    def update_log(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's event log."""
        agent = self.agent
        group = agent.groups[name]
        group = replace(group, log=replace(group.log, **fields))
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return group

    def update_sync(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's record of synchronisation."""
        return self.update_group(name, sync=replace(self.agent.groups[name].sync, **fields))

    def update_streams(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's signed streams."""
        return self.update_group(name, streams=replace(self.agent.groups[name].streams, **fields))

    def update_tlogs(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's transparency logs."""
        return self.update_group(name, tlogs=replace(self.agent.groups[name].tlogs, **fields))

    def update_peer(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer record of one member."""
        agent = self.agent
        group = agent.groups[name]
        links = group.links
        peer = replace(links.peers[member], **fields)
        group = replace(group, links=replace(links, peers={**links.peers, member: peer}))
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return peer

    def update_acks(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer's acknowledgements."""
        return self.update_peer(name, member, acks=replace(self.peer(name, member).acks, **fields))

    def update_retransmission(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer's retransmission state."""
        return self.update_peer(name, member, retransmission=replace(self.peer(name, member).retransmission, **fields))

    def update_exchange(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer's DID exchange state."""
        return self.update_peer(name, member, exchange=replace(self.peer(name, member).exchange, **fields))

    def update_anti_entropy(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer's anti-entropy state."""
        return self.update_peer(name, member, anti_entropy=replace(self.peer(name, member).anti_entropy, **fields))

    def update_shown(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer's display state."""
        return self.update_peer(name, member, shown=replace(self.peer(name, member).shown, **fields))

    def group(self, name: str) -> Group:
        return self.agent.groups[name]

    def peer(self, name: str, member: str) -> Peer:
        return self.agent.groups[name].links.peers[member]

    def packer(self, envelope: str) -> Packer:
        """The packer of this name. Raises Refused for an unknown one."""
        if envelope not in self.packers:
            raise Refused(why="an envelope format that this version does not support")
        return self.packers[envelope]

    def packer_of(self, name: str) -> Packer:
        """The packer that the group with this id uses."""
        return self.packer(self.agent.groups[name].profile.envelope)

    def set_timer(self, kind: TimerKind, name: str, delay_ms: int, *, if_unset: bool = False) -> None:
        """Fire the timer `kind` for `name` after a delay; with `if_unset`, only if none is set."""
        self.emit(SetTimer(f"{kind} {name}", max(1, delay_ms), if_unset))
