"""The world of a large group: partitions, and counts of what the network carries."""

from collections.abc import Collection

from zerochat.group.effects import AllowClient, CommandDone, CommandFailed, Posted
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import Input, Received
from zerochat.group.key_modes.dcgka import is_sealed
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.membership import may_post
from zerochat.group.notifications import Delivered
from zerochat.group.timer_kinds import TimerKind
from zerochat.sim.fault_schedule import NOTICED_MS, REDIAL_MS_MAX, FaultyWorld
from zerochat.sim.invariants import main_groups
from zerochat.sim.node import Node
from zerochat.sim.world import Faults, World


class Traffic:
    """What the network has carried since the last reset."""

    def __init__(self) -> None:
        self.frames = self.bytes = self.copies = self.outside = self.due = 0
        """`copies`: sealed messages; `outside`: those sent to a node that never was a member; `due`: deliveries of the
        posts of this time."""
        self.latencies: list[int] = []
        """Of posts, ms, by notification of a client."""

    def add(self, size: int, *, sealed: bool, member: bool) -> None:
        """Count a frame of this many bytes; `member`: whether its receiver is one."""
        self.frames += 1
        self.bytes += size
        self.copies += sealed
        self.outside += sealed and not member


class LargeWorld(FaultyWorld):
    """Nodes of one large group (`fork`), of which a part may be unreachable for the others."""

    traffic: Traffic
    links_max: int
    """The most members that a member was connected to at a time."""
    isolated: frozenset[str]
    """The nodes on one side of a partition; empty: there is none."""
    _noticed: bool
    """Whether the connections between both sides are closed."""
    _posted_at: dict[str, int]
    """By post, UTC ms."""

    @classmethod
    def fork(cls, begun: World, seed: int, faults: Faults) -> "LargeWorld":
        world = super().fork(begun, seed, faults)
        assert isinstance(world, LargeWorld)
        world.traffic, world.links_max = Traffic(), 0
        world.isolated, world._noticed, world._posted_at = frozenset(), False, {}
        return world

    # --- partitions -------------------------------------------------------------------------------------------------

    def partition(self, side: Collection[str], for_ms: int) -> None:
        """Drop all frames between these nodes and the others; after a while both sides notice."""
        self.isolated = frozenset(side)
        self.after(NOTICED_MS, self._notice_partition)
        self.after(for_ms, self.end_partition)

    def end_partition(self) -> None:
        """Nothing is dropped any more; connections are dialled again soon."""
        self.isolated, self._noticed = frozenset(), False
        self._dials.retry()
        self.after(self.rng.randint(1, REDIAL_MS_MAX), self._connect_all)

    def _notice_partition(self) -> None:
        self._noticed = bool(self.isolated)
        for node in self.nodes.values():
            for link in [link for link, end in node.connected.items() if self._apart(node.name, end)]:
                self._disconnect(node, link)

    def _apart(self, one: str, other: str) -> bool:
        return (one in self.isolated) != (other in self.isolated)

    def _ends(self, node: Node, link: bytes) -> tuple[Node, AllowClient] | None:
        ends = super()._ends(node, link)
        return None if ends is not None and self._noticed and self._apart(node.name, ends[0].name) else ends

    def heal(self, loss: float = 1.0) -> None:
        self.end_partition()
        super().heal(loss)

    # --- counts -----------------------------------------------------------------------------------------------------

    def process(self, name: str, input_: Input) -> None:
        super().process(name, input_)
        node = self.nodes[name]
        if len(node.connected) > self.links_max and not self._adjusts(node):  # else it is not worth counting
            links = sum(link in group.links.index.by_link for group in main_groups(node) for link in node.connected)
            self.links_max = max(self.links_max, links)

    def _adjusts(self, node: Node) -> bool:
        """Whether a node that has got one more link is to close another one in this millisecond."""
        kind = TimerKind.NEIGHBOURS
        return any(key.startswith(kind) and due <= self.now + 1 for key, due in node.timers.items())

    def _frame(self, name: str, input_: Received) -> None:
        sender = self._sender(input_)
        sealed = is_sealed(input_.envelope) or is_forwarded(input_.envelope)
        self.traffic.add(len(input_.envelope), sealed=sealed, member=not sealed or self._is_member(name, sender))
        if not self._apart(sender, name):
            super()._frame(name, input_)

    def _sender(self, input_: Received) -> str:
        """The node that sends a frame: over a link that it has dialled, or the receiver has."""
        return input_.handle.partition(b" ")[0].decode() if input_.handle else self._at[input_.host].name

    def _is_member(self, name: str, sender: str) -> bool:
        """Whether a node is or was a member of the group in the view of the node that sends it a message. What a former
        one gets while its links close, it cannot read, and `check_logs` finds it if it does."""
        agent = self.nodes[name].agent
        mine = {join.me for join in agent.joins.values()}  # it may have been admitted, and not know it yet
        mine |= {group.me for group in agent.groups.values()}
        views = [group.view for group in main_groups(self.nodes[sender])]
        return any(not mine.isdisjoint(view.members) or not mine.isdisjoint(view.former) for view in views)

    def _answer(self, node: Node, effect: CommandDone | CommandFailed) -> None:
        super()._answer(node, effect)
        if isinstance(effect, CommandDone) and isinstance(effect.result, Posted):
            post = effect.result
            # On the ring a post is for all members, not only for those that its author is linked to.
            node.recipients[post.id] = frozenset(node.agent.groups[post.group].others)
            self._posted_at[post.id] = self.now
            self.traffic.due += len(node.recipients[post.id])

    def _on_delivered(self, node: Node, notification: Delivered) -> None:
        super()._on_delivered(node, notification)
        if notification.id in self._posted_at and notification.id not in node.recipients:
            self.traffic.latencies.append(self.now - self._posted_at[notification.id])

    def deliveries(self) -> tuple[int, int]:
        """How many deliveries to present members are due, and how many of them have happened."""
        active = self.active_groups()
        owner = {group.me: name for name, group in active.items()}
        kept = {name: {row.id for row in self.nodes[name].log if row.type == POST} for name in active}
        due = done = 0
        for author in self.nodes.values():
            own = main_groups(author)
            for post, meant in author.recipients.items():
                for did in meant & owner.keys():
                    if any(may_post(active[owner[did]].view, one.me, author.positions[post]) for one in own):
                        due += 1
                        done += post in kept[owner[did]]
        return due, done

    # --- convergence ------------------------------------------------------------------------------------------------

    def fully_connected(self) -> bool:
        """Whether all members have the same view and a relationship to each member that they are linked to."""
        if any(self._not_joined()):
            return False
        active = self.active_groups().values()
        return len({group.view.checksum for group in active}) == 1 and all(
            member in group.links.relationships and group.links.relationships[member].established
            for group in active
            for member in group.links.peers.keys() & group.view.members.keys()
        )
