"""A world with malicious members, and the invariants of the honest ones."""

import random
from collections.abc import Callable, Iterator, Sequence

from zerochat.group.effects import (
    AllowClient,
    CommandFailed,
    Dial,
    Effect,
    Notify,
    Publish,
    Reply,
    SendEnvelope,
    StoreEvent,
)
from zerochat.group.engine import NotPossible
from zerochat.group.event_log.event import ADD, REMOVE, Event, load_event
from zerochat.group.inputs import AnswerJoinRequest, Command, CreateInvitation, Input, Received, ResumeGroup
from zerochat.group.links.contact import member_link
from zerochat.group.membership import add_of, attestation, may_post, resolve_view
from zerochat.group.notifications import DifferenceFound, EventsRefuted, ForkDetected, TlogSplit, ViewDisagreement
from zerochat.group.state import Agent, Group
from zerochat.group.sync import stale_profile
from zerochat.sim.adversary import ENVELOPES_KEPT_MAX, Adversary
from zerochat.sim.annotation_checks import check_annotations
from zerochat.sim.attacks import ATTACKS
from zerochat.sim.failing_world import FailingWorld
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.forgeries import AttackResult
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.relayed_checks import check_authenticity, check_bounds, check_history_response, check_relayed
from zerochat.sim.upgrade_checks import check_forms
from zerochat.sim.world import Faults

SILENT_MS_MAX = 150_000
"""How long false claims may suspend a member's posting."""
ENCRYPTED_EVERY = 10
CHECK_RATE = 0.02
"""Probability of a state check after a step."""


def envelope_of(seed: int) -> str:
    """The envelope format of a seed: a tenth use real encryption, of both versions in turn."""
    return f"didcomm/v{2 - seed // ENCRYPTED_EVERY % 2}" if seed % ENCRYPTED_EVERY == 0 else TransparentPacker.name


class ByzantineWorld(FailingWorld):
    """A world with some byzantine nodes."""

    check_deliveries = True

    def __init__(
        self,
        seed: int,
        members: int,
        bad: Sequence[str],
        faults: Faults | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.adversaries: dict[str, Adversary] = {}
        self.isolated: set[str] = set()
        """Nodes that neither send nor receive for a while."""
        self._current_input: tuple[Input, Agent] | None = None
        """The input that an honest node is processing, and its state before."""
        self._check_rng = random.Random(f"looks {seed}")
        self._suspended_since: dict[tuple[str, bool], int] = {}
        """Since when an honest node is suspended, by whether a claimant is connected."""
        super().__init__(seed, members, faults, envelope_of(seed), trace)
        for name in bad:
            self.adversaries[name] = Adversary(self, name)
            self.adversaries[name].accomplices = frozenset(bad)
            self.adversaries[name].all_adversaries = self.adversaries
        self.accused: set[str] = set()
        """The adversaries (nodes) that an honest member accused."""
        self.results: list[tuple[str, AttackResult]] = []
        self.attempts: list[tuple[str, str]] = []
        """Adversary and attack."""
        self.quarantined: set[tuple[str, str]] = set()
        """Honest node and the member that it quarantined."""

    @property
    def honest(self) -> list[str]:
        return [name for name in self.nodes if name not in self.adversaries]

    # --- adversaries ------------------------------------------------------------------------------------------------

    def process(self, name: str, input_: Input) -> None:
        if name in self.adversaries:
            self.adversaries[name].process(input_)
            return
        outer, self._current_input = self._current_input, (input_, self.nodes[name].agent)
        super().process(name, input_)
        self._current_input = outer
        self._check_state(name)

    def run_command(self, name: str, command: Command) -> Effect:
        one = self.adversaries.get(name)
        if one is not None and one.crashed:
            return CommandFailed(0, NotPossible(why="the machine is off"))
        if one is None or not one.is_split:
            return super().run_command(name, command)
        client = one.branch
        if isinstance(command, CreateInvitation):
            client = one.inviting_branch
        elif isinstance(command, AnswerJoinRequest):
            client = one.branch_with_request(command.joiner)
        with one.using_branch(client):
            return super().run_command(name, command)

    def _perform(self, node: Node, effect: Effect) -> None:
        one = self.adversaries.get(node.name)
        for allowed in one.filter_effect(effect) if one else [effect]:
            if one and isinstance(allowed, SendEnvelope | Publish):
                self._record(one, allowed)
            if one is None:
                self._check_quarantine(node, allowed)
                assert self._current_input is not None
                check_authenticity(f"seed {self.seed}: {node.name}", node, *self._current_input, allowed)
                self._check_refuted(node, allowed)
            if node.name in self.isolated and isinstance(allowed, SendEnvelope | Publish | Reply):
                continue
            super()._perform(node, allowed)

    def _check_quarantine(self, node: Node, effect: Effect) -> None:
        """No node connects to a member known from a single source."""
        for group in node.agent.groups.values():
            for member in group.trust.quarantine:
                self.quarantined.add((node.name, member))
                apart = member_link(group.id, group.me, member)
                if isinstance(effect, AllowClient | Dial) and effect.link == apart:
                    raise Violation(f"seed {self.seed}: {node.name} connects to an unconfirmed member")

    def _record(self, one: Adversary, said: SendEnvelope | Publish) -> None:
        links = (said.link,) if isinstance(said, SendEnvelope) else said.links
        for name, did in one.members().items():
            group = one.known[did][0] if did in one.known else None
            for link in links:
                if group is not None and did in group.links.peers and group.links.peers[did].link == link:
                    one.sent.append((name, link, said.envelope))
        del one.sent[:-ENVELOPES_KEPT_MAX]

    def _frame(self, name: str, input_: Received) -> None:
        one = self.adversaries.get(name)
        if one:
            one.received_envelopes.append(input_.envelope)
        for member, post in one.decrypt_posts(input_.link, input_.envelope) if one else ():
            self._check_recipient(name, member, post)
        for member, events in one.decrypt_history_responses(input_.link, input_.envelope) if one else ():
            self._check_handed(name, member, events)
        if name in self.isolated:
            return
        super()._frame(name, input_)

    def _check_recipient(self, name: str, author: str, post: str) -> None:
        """A member sends this post to an adversary."""
        for other in self.honest:
            for group in self.nodes[other].agent.groups.values():
                reader = next((one.me for one in self.nodes[name].agent.groups.values() if one.id == group.id), "")
                if group.me == author and post in self.nodes[other].recipients and reader not in group.view.members:
                    raise Violation(
                        f"seed {self.seed}: {other} sends {name} a post although it knows that {name} was removed"
                    )

    def _check_handed(self, name: str, member: str, events: Sequence[Event]) -> None:
        """A member answers a history request of an adversary."""
        answerer = self.node_of(member)
        if answerer in self.honest and self.nodes[name].agent.groups:
            who = f"seed {self.seed}: {answerer}, asked by {name},"
            check_history_response(who, self.group(answerer), self.group(name).me, events)

    def isolate(self, name: str, for_ms: int) -> None:
        """Cut a node off for a while."""
        self.isolated.add(name)
        if self.trace:
            self.trace(f"{self.timestamp()} {name} is isolated for {for_ms / 1000:.1f} s")
        self.after(for_ms, lambda: self.isolated.discard(name))

    def attack(self, name: str, attack: str) -> None:
        """Try an attack."""
        if self.adversaries[name].crashed:
            return
        results = ATTACKS[attack](self.adversaries[name])
        if results is not None:
            self.attempts.append((name, attack))
            self.results.append((attack, results))
            if self.trace:
                self.trace(f"{self.timestamp()} {name} tries: {attack}")

    # --- accusations ------------------------------------------------------------------------------------------------

    def node_of(self, did: str) -> str:
        """The node with this DID; empty if there is none."""
        for name, node in self.nodes.items():
            if any(group.me == did for group in node.agent.groups.values()):
                return name
        return ""

    def _on_accusation(
        self, node: Node, notification: ForkDetected | ViewDisagreement | DifferenceFound | TlogSplit
    ) -> None:
        if node.name in self.adversaries:
            return
        if isinstance(notification, TlogSplit):
            blamed = {notification.operator}
        elif isinstance(notification, ForkDetected):
            blamed = {notification.author}
        elif isinstance(notification, DifferenceFound):  # the author or the relaying member: undecidable
            blamed = {
                notification.author,
                notification.member,
                *([notification.relayed_by] if notification.relayed_by else []),
            }
            blamed |= self._relayers(node.name, notification.author) | self._relayers(
                self.node_of(notification.member), notification.author
            )
        elif notification.member:
            blamed = {notification.member}
        else:  # one of these two: undecidable
            group = node.agent.groups[notification.group]
            blamed = {group.control[group.joining.event].author, *group.trust.dissenting[-1:]}
        self._record_accusation(node, blamed, str(notification))

    def _relayers(self, name: str, author: str) -> set[str]:
        """The members who relayed unconfirmed events of this author to a node, directly or indirectly."""
        found: set[str] = set()
        todo = [name]
        while todo:
            node = self.nodes.get(todo.pop())
            rows = node.log if node is not None else []
            by = {row.relayed_by for row in rows if row.author == author and row.relayed_by} - found
            found |= by
            todo += map(self.node_of, by)
        return found

    def _record_accusation(self, node: Node, blamed: set[str], text: str) -> None:
        found = {self.node_of(did) for did in blamed}
        if not found.isdisjoint(self.honest) and found <= {*self.honest, ""}:
            raise Violation(f"seed {self.seed}: {node.name} accuses an honest member: {text}")
        self.accused |= found & self.adversaries.keys()

    # --- invariants -------------------------------------------------------------------------------------------------

    def _check_refuted(self, node: Node, effect: Effect) -> None:
        """No honest member refutes what another honest member relayed."""
        if isinstance(effect, Notify) and isinstance(effect.notification, EventsRefuted):
            between = {self.node_of(effect.notification.author), self.node_of(effect.notification.relayed_by)}
            if between <= {*self.honest}:
                raise Violation(
                    f"seed {self.seed}: {node.name} has an honest member refute another: {effect.notification}"
                )

    def _check_state(self, name: str) -> None:
        """Limits of a node's state, and of how long it can be suspended.

        If no claimant is reachable, the user resumes the group.
        """
        if self._check_rng.random() < CHECK_RATE:
            self.check_node(name)
        for group in self.nodes[name].agent.groups.values():
            check_bounds(f"seed {self.seed}: {name}", group)
            there = self._suspended_by_connected(name, group)
            if there is None:
                self._suspended_since.pop((name, True), None)
                self._suspended_since.pop((name, False), None)
                continue
            self._suspended_since.pop((name, not there), None)
            if self.now <= self._suspended_since.setdefault((name, there), self.now) + SILENT_MS_MAX:
                continue
            if there:
                raise Violation(f"seed {self.seed}: {name} is suspended for too long")
            self.run_command(name, ResumeGroup(group.id))

    def _suspended_by_connected(self, name: str, group: Group) -> bool | None:
        """Whether a member whose claim suspends the node is connected; None if it is not suspended."""
        if group.state != "active" or group.sync.recovery is None or not stale_profile.is_suspended(group):
            return None
        up, ahead = (
            self.nodes[name].agent.links_up,
            {who for who, upto in group.sync.recovery.claims.items() if upto > group.seq},
        )
        return any(group.links.peers[who].link in up for who in ahead & group.links.peers.keys())

    def _check_relayed(self) -> None:
        """No node accepts a forgery, or stores too many unconfirmed events."""
        forged = {event for one in self.adversaries.values() for event in one.forged_ids}
        for name in self.honest:
            check_relayed(f"seed {self.seed}: {name}", self.nodes[name], forged)

    def missing_in(self, active: dict[str, Group]) -> Iterator[str]:
        yield from super().missing_in(active)
        for name, group in active.items():
            if stale_profile.is_suspended(group):
                yield f"{name} is suspended"
            me = group.view.known(group.me)
            if me is None or (group.view.policy.history, me.history) != ("all", "all"):
                continue
            kept = {row.id for row in self.nodes[name].log}
            for other, theirs in active.items():
                places = self.nodes[other].positions if theirs.me in group.links.peers else {}
                if any(post not in kept and may_post(group.view, theirs.me, seq) for post, seq in places.items()):
                    yield f"{name} lacks some of the history of {other}"

    def mutually_known(self) -> Iterator[dict[str, Group]]:
        """The honest members in groups that know each other and agree on who is a member.

        A joiner through an adversary that hides it is alone; nothing can prevent that.
        """
        groups = {name: group for name in self.honest for group in self.nodes[name].agent.groups.values()}
        rest = {name: group for name, group in groups.items() if group.state == "active"}
        known = {
            name: {add_of(event).member if event.type == ADD else event.author for event in group.control.values()}
            for name, group in rest.items()
        }
        while rest:
            todo = [next(iter(rest))]
            circle = {}
            while todo:
                one = todo.pop()
                if one in rest:
                    circle[one] = rest.pop(one)
                    todo += [
                        other
                        for other, group in rest.items()
                        if group.me in known[one] and circle[one].me in known[other]
                    ]
            yield self._agreed(circle)

    def _announced_view(self, group: Group) -> str:
        held = attestation.withheld_events(group)
        if not held:
            return group.view.checksum
        return resolve_view({name: event for name, event in group.control.items() if name not in held}).checksum

    def missing_of_honest(self) -> Iterator[str]:
        """What the honest members still lack."""
        for circle in self.mutually_known():
            remove_member = any(event.type == REMOVE for group in circle.values() for event in group.control.values())
            for part in self.partitions(circle) if remove_member else [circle]:
                yield from self.missing_in(part)

    def check(self) -> None:
        for lack in self.missing_of_honest():
            raise Violation(f"seed {self.seed}: {lack}")
        for name in self.honest:
            for group in self.nodes[name].agent.groups.values():
                if not group.links.peers.keys().isdisjoint(group.trust.quarantine):
                    raise Violation(f"seed {self.seed}: {name} is still connected to a quarantined member")
        for name in self.honest:
            for join in self.nodes[name].agent.joins.values():
                if join.conflict is not None:
                    blamed = {member for member, _ in join.conflict.attestations}
                    if not blamed:
                        blamed = {load_event(record).author for record in join.conflict.records}
                    self._record_accusation(self.nodes[name], blamed, "evidence")
        check_logs(self.seed, [self.nodes[name] for name in self.honest], self.authored, insiders=True)
        check_annotations(self.seed, [self.nodes[name] for name in self.honest])
        check_forms(self.seed, [self.nodes[name] for name in self.honest])
        for name in self.honest:
            self.check_node(name)
        self._check_relayed()
        for attack, results in self.results:
            for name in self.honest:
                self._check_results(attack, results, name)

    def _check_results(self, attack: str, results: AttackResult, name: str) -> None:
        node = self.nodes[name]
        kept = {row.id for row in node.log}
        for group in node.agent.groups.values():
            believed = (kept | group.control.keys()) - self.authored  # by chance, the same event may be real
            if not believed.isdisjoint(results.events):
                raise Violation(f"seed {self.seed}: {name} accepts a forgery: {attack}")
            if any(row.id in results.unshown and not _counts(group, node, row) for row in node.log):
                raise Violation(f"seed {self.seed}: {name} shows a void post: {attack}")
            if not (group.view.members.keys() - set(group.trust.quarantine)).isdisjoint(results.strangers):
                raise Violation(f"seed {self.seed}: {name} accepts a stranger as a member: {attack}")


def _counts(group: Group, node: Node, row: StoreEvent) -> bool:
    """Whether a post of a reader counts in the group's current view, or did when it arrived (clients mark it since)."""
    later = {one.id for one in node.log[node.log.index(row) :]}
    before = resolve_view({id_: event for id_, event in group.control.items() if id_ not in later})
    return any(may_post(view, row.author, row.seq) for view in (before, group.view))
