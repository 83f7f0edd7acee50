"""Invariants over all nodes: membership, delivery, order."""

from collections.abc import Collection, Iterator

from zerochat.group.effects import StoreReceipt
from zerochat.group.event_log.event import CONTROL, REMOVE, Event
from zerochat.group.membership import View, may_post, resolve_view
from zerochat.group.notifications import Delivered, DifferenceFound, ForkDetected, TlogSplit, ViewDisagreement
from zerochat.group.state import Group
from zerochat.sim.annotation_checks import check_annotations
from zerochat.sim.key_checks import missing_keys
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.node_checks import check_notified, check_state
from zerochat.sim.private_checks import check_private, missing_conversations
from zerochat.sim.stream_checks import check_streams, missing_signed_acks
from zerochat.sim.upgrade_checks import check_forms, differing_keys


def main_groups(node: Node) -> list[Group]:
    """The groups of a node that are no private conversations."""
    return [group for group in node.agent.groups.values() if group.private is None]


class Checks:
    """The part of a world that checks invariants."""

    seed: int
    nodes: dict[str, Node]
    authored: set[str]
    """Ids of all events that honest nodes really wrote."""
    check_deliveries = False
    """Whether to check notifications and receipts as they happen: off where a test restores a disk."""

    @property
    def honest(self) -> Collection[str]:
        """The honest nodes."""
        return self.nodes.keys()

    def group(self, name: str) -> Group:
        """The only group of this node beside its private conversations."""
        (group,) = main_groups(self.nodes[name])
        return group

    def _on_accusation(
        self, node: Node, notification: ForkDetected | ViewDisagreement | DifferenceFound | TlogSplit
    ) -> None:
        """A node accuses a member, and all are honest here."""
        raise Violation(f"seed {self.seed}: {node.name} accuses an honest member: {notification}")

    def _on_delivered(self, node: Node, notification: Delivered) -> None:
        """A node notifies its clients of an event."""
        if self.check_deliveries and node.name in self.honest:
            check_notified(f"seed {self.seed}: {node.name}", node, notification.id)

    def _on_receipt(self, node: Node, receipt: StoreReceipt) -> None:
        """Raise Violation unless the member stores, now, everything that it is recorded to have of this node, or
        excluded it as a reader's post to be requested if it counts after all. False claims of adversaries are
        ignored."""
        if not self.check_deliveries or node.name not in self.honest:
            return
        for name in self.honest:
            other = self.nodes[name]
            theirs = other.agent.groups.get(receipt.group)
            if theirs is None or theirs.me != receipt.member:
                continue
            kept = {row.id for row in other.log}
            kept |= {id_ for one in theirs.sync.reinstated_posts.values() for id_ in one.ids.values()}
            for post, place in node.positions.items():
                meant = place <= receipt.upto and receipt.member in node.recipients[post]
                if meant and post not in kept and may_post(theirs.view, receipt.author, place):
                    raise Violation(f"seed {self.seed}: {node.name} counts as delivered what {name} does not have")

    def check_node(self, name: str) -> None:
        """Check the state of a node."""
        check_state(f"seed {self.seed}: {name}", self.nodes[name])

    def active_groups(self) -> dict[str, Group]:
        """The members' groups by node, according to what they know together. A removed member may not know and
        continues alone."""
        active = {node.name: group for node in self.nodes.values() for group in main_groups(node)}
        return self._agreed({name: group for name, group in active.items() if group.state == "active"})

    def _agreed(self, active: dict[str, Group]) -> dict[str, Group]:
        known = active
        while known:
            view = self._merged_view(known)
            rest = {name: group for name, group in known.items() if group.me in view.members}
            if len(rest) == len(known):
                break
            known = rest
        if not known:
            return {}
        view = self._merged_view(known)
        return {name: group for name, group in active.items() if group.me in view.members}

    def _merged_view(self, groups: dict[str, Group]) -> View:
        return resolve_view(_control(groups))

    def fully_connected(self) -> bool:
        """Whether all members have the same view and a relationship to each other."""
        if any(self._not_joined()):
            return False
        active = self.active_groups().values()
        return len({group.view.checksum for group in active}) == 1 and all(
            group.links.relationships.get(m) is not None and group.links.relationships[m].established
            for group in active
            for m in group.others
        )

    def missing(self) -> Iterator[str]:
        """What members still lack, as sentences; empty once all have converged."""
        yield from self._not_joined()
        active = self.active_groups()
        yield from self.missing_in(active)
        yield from missing_conversations(self.nodes, active)

    def _not_joined(self) -> Iterator[str]:
        return (f"{node.name} is not in the group" for node in self.nodes.values() if not node.agent.groups)

    def partitions(self, active: dict[str, Group]) -> list[dict[str, Group]]:
        """These members, in parts without a connection between them.

        There is more than one only after a removal: a removed member may admit others before it knows. Raises Violation
        without one.
        """
        owner = {group.me: name for name, group in active.items()}
        parts: list[set[str]] = []
        for name, group in active.items():
            near = {
                owner[did] for did in group.links.peers if did in owner and group.me in active[owner[did]].links.peers
            }
            touched = [part for part in parts if part & near]
            parts = [part for part in parts if not part & near] + [set().union({name}, *touched)]
        found = [{name: active[name] for name in sorted(part)} for part in parts]
        if len(found) > 1 and all(event.type != REMOVE for event in _control(active).values()):
            raise Violation(f"seed {self.seed}: members are partitioned without a removal")
        return found

    def _announced_view(self, group: Group) -> str:
        """The checksum of the view that a member announces."""
        return group.view.checksum

    def missing_in(self, active: dict[str, Group]) -> Iterator[str]:
        """What these members lack of each other, as sentences."""
        if len({self._announced_view(group) for group in active.values()}) > 1:
            yield "the views differ"
        yield from differing_keys(active)
        owner = {group.me: name for name, group in active.items()}
        kept = {name: {row.id for row in self.nodes[name].log} for name in active}
        for name, group in active.items():
            yield from missing_signed_acks(group, owner, active[name].links.peers.keys() & owner.keys())
            node = self.nodes[name]
            for post, meant in node.recipients.items():
                for member in sorted(meant & owner.keys()):
                    other = active[owner[member]].view
                    if post not in kept[owner[member]] and may_post(other, group.me, node.positions[post]):
                        yield f"{owner[member]} lacks a post of {name}"
        yield from missing_keys(active, owner)
        yield from self._missing_posts_of_former(active, owner, kept)

    def _missing_posts_of_former(
        self, active: dict[str, Group], owner: dict[str, str], kept: dict[str, set[str]]
    ) -> Iterator[str]:
        """Every member of that time must have the posts of a former member that any of them has, or mark them as
        missing."""
        honest = {group.me for name in self.honest for group in self.nodes[name].agent.groups.values()}
        for name in active:
            for row in self.nodes[name].log:
                if row.type in CONTROL or row.author not in honest - owner.keys() or row.id not in self.authored:
                    continue
                if row.group != active[name].id:
                    continue
                author = next((one for one in self.nodes.values() if row.id in one.recipients), None)
                for other, group in active.items():
                    me = group.view.members.get(group.me)
                    if me is None or me.joined > row.lamport or not may_post(group.view, row.author, row.seq):
                        continue
                    # Posts from before the author knew this member count as earlier history.
                    told = author is not None and group.me in author.recipients[row.id]
                    meant = told or (group.view.policy.history, me.history) == ("all", "all")
                    if meant and row.id not in kept[other] and row.author not in group.sync.gaps:
                        yield f"{other} lacks a post of a former member that {name} has"

    def check(self) -> None:
        """Raise Violation unless every member has everything, once, in one order, causes before effects."""
        parts = self.partitions(self.active_groups())
        for lack in (*self._not_joined(), *(lack for part in parts for lack in self.missing_in(part))):
            raise Violation(f"seed {self.seed}: {lack}")
        check_logs(self.seed, list(self.nodes.values()), self.authored)
        check_annotations(self.seed, list(self.nodes.values()))
        check_forms(self.seed, list(self.nodes.values()))
        check_private(self.seed, self.nodes)
        for lack in missing_conversations(self.nodes, self.active_groups()):
            raise Violation(f"seed {self.seed}: {lack}")
        for name in self.nodes:
            self.check_node(name)
        honest = {group.me for node in self.nodes.values() for group in node.agent.groups.values()}
        check_streams(self.seed, list(self.nodes.values()), honest)

    def check_joins(self) -> None:
        """Raise Violation if a joiner has evidence against members, who are all honest here."""
        for node in self.nodes.values():
            if any(join.conflict is not None for join in node.agent.joins.values()):
                raise Violation(f"seed {self.seed}: {node.name} has evidence against honest members")


def _control(groups: dict[str, Group]) -> dict[str, Event]:
    """All membership events of these members."""
    return {key: event for group in groups.values() for key, event in group.control.items()}
