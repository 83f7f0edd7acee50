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
from zerochat.group.state import Account, Agent, Chain, Group, Peer
from zerochat.group.timer_kinds import TimerKind


class Transaction:
    """The state of one step in the making."""

    def __init__(self, agent: Agent, context: StepContext, packers: Mapping[str, Packer]) -> None:
        self.agent = agent
        self.context = context
        self.packers = packers
        self.effects: list[Effect] = []
        self.is_mail = False
        """Whether the input has come over the web, where a mediator may have stored it for days."""
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

    # update_group, update_log and update_peer are the most frequent calls of all, and call little else.

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
        """Replace fields of the group's event log, of all but its chains."""
        agent = self.agent
        group = agent.groups[name]
        group = replace(group, log=group.log.changed(**fields))
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return group

    def update_chain(self, name: str, author: str, chain: Chain) -> Group:
        """Replace one author's chain in the group's event log."""
        group = self.agent.groups[name]
        if chain.seq < group.chain(author).seq:
            self.mark_ahead(name, author)
        return self.update_group(name, log=group.log.with_chain(author, chain))

    def drop_chain(self, name: str, author: str) -> Group:
        """Remove one author's chain from the group's event log."""
        self.mark_ahead(name, author)
        return self.update_group(name, log=self.agent.groups[name].log.without_chain(author))

    def mark_ahead(self, name: str, author: str) -> None:
        """Members may have more of this author's chain than we."""
        ahead = self.agent.groups[name].sync.ahead
        if author not in ahead:
            self.update_sync(name, ahead=ahead | {author})

    def update_sync(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's record of synchronisation."""
        return self.update_group(name, sync=replace(self.agent.groups[name].sync, **fields))

    def update_streams(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's signed streams."""
        return self.update_group(name, streams=replace(self.agent.groups[name].streams, **fields))

    def update_dcgka(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's key agreement."""
        return self.update_group(name, dcgka=replace(self.agent.groups[name].dcgka, **fields))

    def update_tlogs(self, name: str, **fields: Any) -> Group:
        """Replace fields of the group's transparency logs."""
        return self.update_group(name, tlogs=replace(self.agent.groups[name].tlogs, **fields))

    def update_peer(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer record of one member."""
        agent = self.agent
        group = agent.groups[name]
        links = group.links
        peer = replace(links.peers[member], **fields)
        group = replace(group, links=links.with_peer(member, peer))
        self.agent = replace(agent, groups={**agent.groups, name: group})
        return peer

    def update_acks(self, name: str, member: str, **fields: Any) -> Peer:
        """Replace fields of the peer's acknowledgements."""
        return self.update_peer(name, member, acks=replace(self.peer(name, member).acks, **fields))

    def number_author(self, name: str, author: str) -> int:
        """The number of an author for acknowledgements of its chain; it gets one if it has none."""
        links = self.agent.groups[name].links.with_number(author)
        if links is not self.agent.groups[name].links:
            self.update_group(name, links=links)
        return links.numbers[author]

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

    def payer(self, name: str, member: str) -> Peer | Account | None:
        """Who pays for what a member causes: its peer record, or on the ring its account. None: it has neither."""
        group = self.agent.groups[name]
        peer = group.links.peers.get(member)
        if peer is not None or group.view.path == "mesh" or member not in group.view.members:
            return peer
        return group.links.accounts.get(member) or Account()

    def update_payer(self, name: str, member: str, **fields: Any) -> None:
        """Replace fields of what `payer` returns, which must exist."""
        links = self.agent.groups[name].links
        if member in links.peers:
            self.update_peer(name, member, **fields)
        else:
            account = replace(links.accounts.get(member) or Account(), **fields)
            self.update_links(name, accounts={**links.accounts, member: account})

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
