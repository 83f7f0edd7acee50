"""A world in which some members break the rules, and what must hold of those who keep them, while it happens and at the
end."""

import random
from collections.abc import Callable, Iterator, Sequence

from zerochat.group.effects import Admit, Dial, Dispatch, Effect, Notify, Publish, Refuse, Remember, Reply
from zerochat.group.engine import NotPossible
from zerochat.group.event_log.event import ADD, REMOVE, Event, load_event
from zerochat.group.inputs import AnswerRequest, Command, CreateInvitation, Received, ResumeGroup, Stimulus
from zerochat.group.links.contact import member_link
from zerochat.group.membership import add_of, attestation, may_post, resolve_view
from zerochat.group.notifications import Differs, Disagreement, Forked, LogSplit, Refuted
from zerochat.group.state import Agent, Group
from zerochat.group.sync import stale_profile
from zerochat.sim.adversary import HEARD_MAX, Adversary
from zerochat.sim.annotation_checks import check_remarks
from zerochat.sim.attacks import ATTACKS
from zerochat.sim.failing_world import Fragile
from zerochat.sim.forgeries import Spoils
from zerochat.sim.node import Node, Violation, check_logs
from zerochat.sim.null_packer import TransparentPacker
from zerochat.sim.relayed_checks import check_bounds, check_handed, check_kept, check_word
from zerochat.sim.world import Faults

SILENT_MS_MAX = 150_000
"""How long liars may keep a member from saying anything new, by claiming that it has said more than it knows."""
REAL_EVERY = 10
LOOKS = 0.02
"""How often it is looked, after a turn, whether what its node has become can be written down."""


def envelope_of(seed: int) -> str:
    """A tenth of the histories have really encrypted envelopes, of both generations by turns."""
    return f"didcomm/v{2 - seed // REAL_EVERY % 2}" if seed % REAL_EVERY == 0 else TransparentPacker.name


class Arena(Fragile):
    """A world with some byzantine nodes."""

    watchful = True

    def __init__(
        self,
        seed: int,
        members: int,
        bad: Sequence[str],
        faults: Faults | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.adversaries: dict[str, Adversary] = {}
        self.away: set[str] = set()
        """Nodes of which nothing is heard for a while, and which hear nothing."""
        self._heard: tuple[Stimulus, Agent] | None = None
        """What an honest node hears just now, and what it was before that."""
        self._looks = random.Random(f"looks {seed}")
        self._silent: dict[tuple[str, bool], int] = {}
        """Since when an honest node may say nothing new, by whether anybody is there to be asked about that."""
        super().__init__(seed, members, faults, envelope_of(seed), say)
        for name in bad:
            self.adversaries[name] = Adversary(self, name)
            self.adversaries[name].accomplices = frozenset(bad)
            self.adversaries[name].band = self.adversaries
        self.accused: set[str] = set()
        """The adversaries (by node) of whom somebody honest has said that they break the rules."""
        self.spoils: list[tuple[str, Spoils]] = []
        self.tries: list[tuple[str, str]] = []
        """Adversary and attack."""
        self.quarantined: set[tuple[str, str]] = set()
        """Honest nodes, and members with whom they had nothing to do at some time."""

    @property
    def honest(self) -> list[str]:
        return [name for name in self.nodes if name not in self.adversaries]

    # --- what the adversaries may do --------------------------------------------------------------------------------

    def hear(self, name: str, stimulus: Stimulus) -> None:
        if name in self.adversaries:
            self.adversaries[name].hear(stimulus)
            return
        outer, self._heard = self._heard, (stimulus, self.nodes[name].agent)
        super().hear(name, stimulus)
        self._heard = outer
        self._check_state(name)

    def ask(self, name: str, command: Command) -> Effect:
        one = self.adversaries.get(name)
        if one is not None and one.gone:
            return Refuse(0, NotPossible(why="its machine is off"))
        if one is None or not one.two_faced:
            return super().ask(name, command)
        face = one.face
        if isinstance(command, CreateInvitation):
            face = one.opens
        elif isinstance(command, AnswerRequest):
            face = one.face_with(command.who)
        with one.wearing(face):
            return super().ask(name, command)

    def _perform(self, node: Node, effect: Effect) -> None:
        one = self.adversaries.get(node.name)
        for allowed in one.filtered(effect) if one else [effect]:
            if one and isinstance(allowed, Dispatch | Publish):
                self._record(one, allowed)
            if one is None:
                self._check_apart(node, allowed)
                assert self._heard is not None
                check_word(f"seed {self.seed}: {node.name}", node, *self._heard, allowed)
                self._check_refuted(node, allowed)
            if node.name in self.away and isinstance(allowed, Dispatch | Publish | Reply):
                continue
            super()._perform(node, allowed)

    def _check_apart(self, node: Node, effect: Effect) -> None:
        """Nobody lets somebody in, or dials her, of whom it has been told by one alone."""
        for group in node.agent.groups.values():
            for member in group.quarantine:
                self.quarantined.add((node.name, member))
                apart = member_link(group.id, group.me, member)
                if isinstance(effect, Admit | Dial) and effect.link == apart:
                    raise Violation(f"seed {self.seed}: {node.name} meets somebody whom nobody has confirmed")

    def _record(self, one: Adversary, said: Dispatch | Publish) -> None:
        links = (said.link,) if isinstance(said, Dispatch) else said.links
        for name, did in one.members().items():
            group = one.known[did][0] if did in one.known else None
            for link in links:
                if group is not None and did in group.peers and group.peers[did].link == link:
                    one.sent.append((name, link, said.envelope))
        del one.sent[:-HEARD_MAX]

    def _frame(self, name: str, stimulus: Received) -> None:
        one = self.adversaries.get(name)
        if one:
            one.seen.append(stimulus.envelope)
        for member, post in one.overhear(stimulus.link, stimulus.envelope) if one else ():
            self._check_meant(name, member, post)
        for member, events in one.handed(stimulus.link, stimulus.envelope) if one else ():
            self._check_handed(name, member, events)
        if name in self.away:
            return
        super()._frame(name, stimulus)

    def _check_meant(self, name: str, author: str, post: str) -> None:
        """Somebody sends an adversary this post now."""
        for other in self.honest:
            for group in self.nodes[other].agent.groups.values():
                reader = next((one.me for one in self.nodes[name].agent.groups.values() if one.id == group.id), "")
                if group.me == author and post in self.nodes[other].audiences and reader not in group.view.members:
                    raise Violation(f"seed {self.seed}: {other} sends {name} a post, and knows that it is out")

    def _check_handed(self, name: str, member: str, events: Sequence[Event]) -> None:
        """A member hands an adversary this, of what it has asked for."""
        answerer = self.owner(member)
        if answerer in self.honest and self.nodes[name].agent.groups:
            who = f"seed {self.seed}: {answerer}, asked by {name},"
            check_handed(who, self.group(answerer), self.group(name).me, events)

    def go_away(self, name: str, for_ms: int) -> None:
        """Nobody hears of this node for a while, nor it of anybody."""
        self.away.add(name)
        if self.say:
            self.say(f"{self.told_time()} {name} is cut off from everybody for {for_ms / 1000:.1f} s")
        self.after(for_ms, lambda: self.away.discard(name))

    def attack(self, name: str, attack: str) -> None:
        """Have an adversary try something."""
        if self.adversaries[name].gone:
            return
        spoils = ATTACKS[attack](self.adversaries[name])
        if spoils is not None:
            self.tries.append((name, attack))
            self.spoils.append((attack, spoils))
            if self.say:
                self.say(f"{self.told_time()} {name} tries: {attack}")

    # --- what the honest say ----------------------------------------------------------------------------------------

    def owner(self, did: str) -> str:
        """The node of whoever has this key; empty where no node has it."""
        for name, node in self.nodes.items():
            if any(group.me == did for group in node.agent.groups.values()):
                return name
        return ""

    def _accused(self, node: Node, notice: Forked | Disagreement | Differs | LogSplit) -> None:
        if node.name in self.adversaries:
            return
        if isinstance(notice, LogSplit):
            blamed = {notice.operator}
        elif isinstance(notice, Forked):
            blamed = {notice.author}
        elif isinstance(notice, Differs):  # one of these, or who they have it from, and nobody can say which
            blamed = {notice.author, notice.member, *([notice.by] if notice.by else [])}
            blamed |= self._sources(node.name, notice.author) | self._sources(self.owner(notice.member), notice.author)
        elif notice.member:
            blamed = {notice.member}
        else:  # one of these two, and nobody can say which
            group = node.agent.groups[notice.group]
            blamed = {group.control[group.entry].author, *group.disputed[-1:]}
        self._blame(node, blamed, str(notice))

    def _sources(self, name: str, author: str) -> set[str]:
        """The members by whose hands a node has come to what it has of this chain, where that is not its author's own
        word."""
        found: set[str] = set()
        todo = [name]
        while todo:
            node = self.nodes.get(todo.pop())
            rows = node.log if node is not None else []
            by = {row.vouched for row in rows if row.author == author and row.vouched} - found
            found |= by
            todo += map(self.owner, by)
        return found

    def _blame(self, node: Node, blamed: set[str], text: str) -> None:
        found = {self.owner(did) for did in blamed}
        if not found.isdisjoint(self.honest) and found <= {*self.honest, ""}:
            raise Violation(f"seed {self.seed}: {node.name} accuses a member who keeps the rules: {text}")
        self.accused |= found & self.adversaries.keys()

    # --- checking ---------------------------------------------------------------------------------------------------

    def _check_refuted(self, node: Node, effect: Effect) -> None:
        """Nobody who keeps the rules contradicts what another one of them has handed over."""
        if isinstance(effect, Notify) and isinstance(effect.notice, Refuted):
            between = {self.owner(effect.notice.author), self.owner(effect.notice.by)}
            if between <= {*self.honest}:
                raise Violation(f"seed {self.seed}: {node.name} has one honest member refute another: {effect.notice}")

    def _check_state(self, name: str) -> None:
        """What others can have a node remember has limits, and how long they can silence it too.

        Where those who do are not there to be asked for what they claim to have, a person goes on without.
        """
        if self._looks.random() < LOOKS:
            self.look_at(name)
        for group in self.nodes[name].agent.groups.values():
            check_bounds(f"seed {self.seed}: {name}", group)
            there = self._silenced(name, group)
            if there is None:
                self._silent.pop((name, True), None)
                self._silent.pop((name, False), None)
                continue
            self._silent.pop((name, not there), None)
            if self.now <= self._silent.setdefault((name, there), self.now) + SILENT_MS_MAX:
                continue
            if there:
                raise Violation(f"seed {self.seed}: {name} may say nothing for too long")
            self.ask(name, ResumeGroup(group.id))

    def _silenced(self, name: str, group: Group) -> bool | None:
        """Whether any of those who keep a node from saying anything is connected; None where nobody does."""
        if group.state != "active" or group.regain is None or not stale_profile.suspended(group):
            return None
        up, ahead = self.nodes[name].agent.up, {who for who, upto in group.regain.claims.items() if upto > group.seq}
        return any(group.peers[who].link in up for who in ahead & group.peers.keys())

    def _check_hearsay(self) -> None:
        """Nobody believes what was forged as another one's word, and nobody keeps too much on anybody's word."""
        forged = {event for one in self.adversaries.values() for event in one.forged}
        for name in self.honest:
            check_kept(f"seed {self.seed}: {name}", self.nodes[name], forged)

    def lacking(self, active: dict[str, Group]) -> Iterator[str]:
        yield from super().lacking(active)
        for name, group in active.items():
            if stale_profile.suspended(group):
                yield f"{name} may say nothing"
            me = group.view.known(group.me)
            if me is None or (group.view.policy.history, me.history) != ("all", "all"):
                continue
            kept = {row.id for row in self.nodes[name].log}
            for other, theirs in active.items():
                places = self.nodes[other].places if theirs.me in group.peers else {}
                if any(post not in kept and may_post(group.view, theirs.me, seq) for post, seq in places.items()):
                    yield f"{name} lacks some of the history of {other}"

    def circles(self) -> Iterator[dict[str, Group]]:
        """The honest who know of each other, and who are in the group by what they know together.

        Whoever has come in through an adversary that tells nobody of it is alone, and nobody can help that.
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

    def _told_view(self, group: Group) -> str:
        held = attestation.withheld(group)
        if not held:
            return group.view.checksum
        return resolve_view({name: event for name, event in group.control.items() if name not in held}).checksum

    def troubles(self) -> Iterator[str]:
        """What the honest still lack."""
        for circle in self.circles():
            put_out = any(event.type == REMOVE for group in circle.values() for event in group.control.values())
            for part in self.parts(circle) if put_out else [circle]:
                yield from self.lacking(part)

    def check(self) -> None:
        for lack in self.troubles():
            raise Violation(f"seed {self.seed}: {lack}")
        for name in self.honest:
            for group in self.nodes[name].agent.groups.values():
                if not group.peers.keys().isdisjoint(group.quarantine):
                    raise Violation(f"seed {self.seed}: {name} has still to do with somebody in quarantine")
        for name in self.honest:
            for join in self.nodes[name].agent.joins.values():
                if join.contradiction is not None:
                    blamed = {member for member, _ in join.contradiction.words}
                    if not blamed:
                        blamed = {load_event(record).author for record in join.contradiction.records}
                    self._blame(self.nodes[name], blamed, "evidence")
        check_logs(self.seed, [self.nodes[name] for name in self.honest], self.made)
        check_remarks(self.seed, [self.nodes[name] for name in self.honest])
        for name in self.honest:
            self.look_at(name)
        self._check_hearsay()
        for attack, spoils in self.spoils:
            for name in self.honest:
                self._check_spoils(attack, spoils, name)

    def _check_spoils(self, attack: str, spoils: Spoils, name: str) -> None:
        node = self.nodes[name]
        kept = {row.id for row in node.log}
        for group in node.agent.groups.values():
            believed = (kept | group.control.keys()) - self.made  # chance may have somebody really say the same
            if not believed.isdisjoint(spoils.events):
                raise Violation(f"seed {self.seed}: {name} believes what was forged: {attack}")
            if any(row.id in spoils.unshown and not _counts(group, node, row) for row in node.log):
                raise Violation(f"seed {self.seed}: {name} shows what does not count: {attack}")
            if not (group.view.members.keys() - set(group.quarantine)).isdisjoint(spoils.strangers):
                raise Violation(f"seed {self.seed}: {name} takes a stranger for a member: {attack}")


def _counts(group: Group, node: Node, row: Remember) -> bool:
    """Whether something that was said counts, as this group stands now: a role that its author gave itself may have
    turned out not to count. Or counted by what was known when it came: it was taken in, and faces mark it since."""
    later = {one.id for one in node.log[node.log.index(row) :]}
    before = resolve_view({id_: event for id_, event in group.control.items() if id_ not in later})
    return any(may_post(view, row.author, row.seq) for view in (before, group.view))
