"""What must hold of all nodes together: who is in the group as they see it, and what each of them has."""

from collections.abc import Collection, Iterator

from zerochat.group.effects import Receipt
from zerochat.group.event_log.event import CONTROL, REMOVE, Event
from zerochat.group.membership import View, may_post, resolve_view
from zerochat.group.notifications import Delivered, Differs, Disagreement, Forked, LogSplit
from zerochat.group.state import Group
from zerochat.sim.annotation_checks import check_remarks
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.node_checks import check_state, check_told
from zerochat.sim.stream_checks import check_streams, lacking_words


class Checks:
    """The part of a world that looks whether a promise was broken."""

    seed: int
    nodes: dict[str, Node]
    made: set[str]
    """The ids of everything that somebody here has really said."""
    watchful = False
    """Whether what is told and acknowledged is looked at while it is: not where a test puts a disk back, or lies."""

    @property
    def honest(self) -> Collection[str]:
        """The nodes whose members keep the rules."""
        return self.nodes.keys()

    def group(self, name: str) -> Group:
        """The one group of this node's agent."""
        (group,) = self.nodes[name].agent.groups.values()
        return group

    def _accused(self, node: Node, notice: Forked | Disagreement | Differs | LogSplit) -> None:
        """A node says that somebody has broken the rules, which nobody here does."""
        raise Violation(f"seed {self.seed}: {node.name} accuses a member who keeps the rules: {notice}")

    def _delivered(self, node: Node, notice: Delivered) -> None:
        """A node tells its faces of an event."""
        if self.watchful and node.name in self.honest:
            check_told(f"seed {self.seed}: {node.name}", node, notice.id)

    def _received(self, node: Node, receipt: Receipt) -> None:
        """Raise Violation unless the member has on its disk, now, what it is known to have of this node; or has left it
        out as a reader's word, and asks for it where that counts after all. What liars say of themselves is their own
        affair."""
        if not self.watchful or node.name not in self.honest:
            return
        for name in self.honest:
            other = self.nodes[name]
            theirs = other.agent.groups.get(receipt.group)
            if theirs is None or theirs.me != receipt.member:
                continue
            kept = {row.id for row in other.log}
            kept |= {id_ for one in theirs.unheard.values() for id_ in one.ids.values()}
            for post, place in node.places.items():
                meant = place <= receipt.upto and receipt.member in node.audiences[post]
                if meant and post not in kept and may_post(theirs.view, receipt.author, place):
                    raise Violation(f"seed {self.seed}: {node.name} says that {name} has what it has not")

    def look_at(self, name: str) -> None:
        """Raise Violation unless what a node is just now is in order."""
        check_state(f"seed {self.seed}: {name}", self.nodes[name])

    def inside(self) -> dict[str, Group]:
        """By node: whoever is in the group, as far as can be said from what they know all together.

        Somebody who was put out need not know, and goes on for itself.
        """
        active = {node.name: group for node in self.nodes.values() for group in node.agent.groups.values()}
        return self._agreed({name: group for name, group in active.items() if group.state == "active"})

    def _agreed(self, active: dict[str, Group]) -> dict[str, Group]:
        known = active
        while known:
            view = self._together(known)
            rest = {name: group for name, group in known.items() if group.me in view.members}
            if len(rest) == len(known):
                break
            known = rest
        if not known:
            return {}
        view = self._together(known)
        return {name: group for name, group in active.items() if group.me in view.members}

    def _together(self, groups: dict[str, Group]) -> View:
        return resolve_view(_control(groups))

    def seated(self) -> bool:
        """Whether everybody who is in the group is in everybody's view, with a relationship to each."""
        if any(self._outside()):
            return False
        active = self.inside().values()
        return len({group.view.checksum for group in active}) == 1 and all(
            group.relationships.get(m) is not None and group.relationships[m].established
            for group in active
            for m in group.others
        )

    def missing(self) -> Iterator[str]:
        """What members of the group still lack, in words; nothing once all have converged."""
        yield from self._outside()
        yield from self.lacking(self.inside())

    def _outside(self) -> Iterator[str]:
        return (f"{node.name} is not in the group" for node in self.nodes.values() if not node.agent.groups)

    def parts(self, active: dict[str, Group]) -> list[dict[str, Group]]:
        """These members, in parts of whom none has anybody of another one as a neighbour.

        There is more than one where somebody was put out, and has brought others in before it could hear of that: they
        do not let each other in. Raises Violation where nobody has put anybody out.
        """
        owner = {group.me: name for name, group in active.items()}
        parts: list[set[str]] = []
        for name, group in active.items():
            near = {owner[did] for did in group.peers if did in owner and group.me in active[owner[did]].peers}
            touched = [part for part in parts if part & near]
            parts = [part for part in parts if not part & near] + [set().union({name}, *touched)]
        found = [{name: active[name] for name in sorted(part)} for part in parts]
        if len(found) > 1 and all(event.type != REMOVE for event in _control(active).values()):
            raise Violation(f"seed {self.seed}: members know nothing of each other, and nobody was put out")
        return found

    def _told_view(self, group: Group) -> str:
        """The view that a member tells the others of."""
        return group.view.checksum

    def lacking(self, active: dict[str, Group]) -> Iterator[str]:
        """The same of some members who should agree."""
        if len({self._told_view(group) for group in active.values()}) > 1:
            yield "the views differ"
        owner = {group.me: name for name, group in active.items()}
        kept = {name: {row.id for row in self.nodes[name].log} for name in active}
        for name, group in active.items():
            yield from lacking_words(group, owner, active[name].peers.keys() & owner.keys())
            node = self.nodes[name]
            for post, meant in node.audiences.items():
                for member in sorted(meant & owner.keys()):
                    other = active[owner[member]].view
                    if post not in kept[owner[member]] and may_post(other, group.me, node.places[post]):
                        yield f"{owner[member]} lacks a post of {name}"
        yield from self._last_words(active, owner, kept)

    def _last_words(self, active: dict[str, Group], owner: dict[str, str], kept: dict[str, set[str]]) -> Iterator[str]:
        """What any of these has of somebody who is not there any more, all others have who were members by then, or it
        is missing there, and shown so."""
        honest = {group.me for name in self.honest for group in self.nodes[name].agent.groups.values()}
        for name in active:
            for row in self.nodes[name].log:
                if row.type in CONTROL or row.author not in honest - owner.keys() or row.id not in self.made:
                    continue
                author = next((one for one in self.nodes.values() if row.id in one.audiences), None)
                for other, group in active.items():
                    me = group.view.members.get(group.me)
                    if me is None or me.joined > row.lamport or not may_post(group.view, row.author, row.seq):
                        continue
                    # What was said when its author had not heard of this one was said before its time.
                    told = author is not None and group.me in author.audiences[row.id]
                    meant = told or (group.view.policy.history, me.history) == ("all", "all")
                    if meant and row.id not in kept[other] and row.author not in group.needs:
                        yield f"{other} lacks what {name} has of somebody who is gone"

    def check(self) -> None:
        """Raise Violation unless everybody has everything, once, in one order, with every cause before its effect."""
        parts = self.parts(self.inside())
        for lack in (*self._outside(), *(lack for part in parts for lack in self.lacking(part))):
            raise Violation(f"seed {self.seed}: {lack}")
        check_logs(self.seed, list(self.nodes.values()), self.made)
        check_remarks(self.seed, list(self.nodes.values()))
        for name in self.nodes:
            self.look_at(name)
        honest = {group.me for node in self.nodes.values() for group in node.agent.groups.values()}
        check_streams(self.seed, list(self.nodes.values()), honest)


def _control(groups: dict[str, Group]) -> dict[str, Event]:
    """All membership events that these members have."""
    return {key: event for group in groups.values() for key, event in group.control.items()}
