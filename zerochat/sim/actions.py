"""Actions of the simulated users: join, post, annotate, change names, roles and keys, remove members, leave."""

import random
from collections.abc import Sequence
from typing import get_args

from zerochat.group.effects import CommandDone, CommandFailed, ConversationOpened, Effect, InvitationCreated
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerJoinRequest,
    AnswerPrivateInvitation,
    ChangeLabel,
    ChangeRole,
    Command,
    CreateInvitation,
    LeaveGroup,
    OpenConversation,
    RemoveMember,
    RotateDid,
    SendContent,
    SendPost,
    UpgradeKeys,
)
from zerochat.group.key_modes import MODES
from zerochat.group.membership import (
    ADMIN,
    OWNER,
    READER,
    TLOG,
    WRITER,
    Policy,
    label_free,
    may_change_role,
    may_remove,
    may_vote,
)
from zerochat.group.membership.bodies import AgreementRule, JoinRule, RemoveRule, RoleRule
from zerochat.group.membership.bot_announcement import Announcement, BotCommand
from zerochat.group.membership.upgrades import may_upgrade, target_of_upgrade
from zerochat.group.messages.bodies import Delete, Edit, Pins, React, Topic
from zerochat.group.notifications import JoinRequested, Notification, PrivateInvited
from zerochat.group.settings import MESSAGES_MAX, KeyRotation
from zerochat.group.state import Consent
from zerochat.sim.world import World

JOIN_RETRY_MS = 70_000
"""Time after which a joiner tries another invitation."""
ANNOTATION_TYPES = 0.3
"""Probability of an annotation after each post."""
ANNOUNCE_RATE = 0.05
"""Probability of a bot announcement after each post."""
BURST_RATE, BURST_MAX = 0.2, 4
"""Probability of more posts in the same batch, and their number at most."""
UPGRADE_RATE = 0.02
"""Probability of an upgrade of the keys in each round of a history."""
UPGRADER_REMOVED_RATE = 0.25
"""Probability that the member that upgrades the keys is removed concurrently."""
ANNOTATED_MAX = 8
"""Annotations refer to one of this many latest posts."""
ACCEPT_RATE = 0.8
"""Probability that a private invitation is accepted."""
DECIDE_MS_MAX = 3_000
"""Longest delay before a join request is answered."""


def random_policy(rng: random.Random) -> Policy:
    """A random consistent policy."""
    while True:
        policy = Policy(
            join=rng.choice(get_args(JoinRule)),
            remove=rng.choice(get_args(RemoveRule)),
            quorum=rng.choice((0, 2, 3)),
            roles=rng.choice(get_args(RoleRule)),
            agreement=rng.choice(get_args(AgreementRule)),
        )
        if not policy.error:
            return policy


def random_accountability(keys: str, lot: str) -> str:
    """Whether a group whose keys sign has a transparency log. Uses its own random generator, so that other choices are
    unaffected."""
    return TLOG if MODES[keys].signs and random.Random(f"log {lot}").random() < 0.5 else "acks"


def random_rotation(lot: str) -> KeyRotation:
    """When keys are rotated, mostly sooner than in practice. Uses its own random generator."""
    rng = random.Random(f"rotation {lot}")
    return KeyRotation(rng.choice((1, 2, 5, MESSAGES_MAX)), rng.choice((1, 7)), rng.choice((1, 1, 2, 3)))


class Users:
    """The users at some nodes of a world. They follow the protocol."""

    def __init__(self, world: World, rng: random.Random, names: Sequence[str]) -> None:
        self.world, self.rng, self.names = world, rng, list(names)
        self.posted = 0
        self.attempts: dict[str, int] = {}
        """Number of join attempts by node."""
        self.stopped = False

    def on_notification(self, name: str, notification: Notification) -> None:
        """Admit joiners after a random delay."""
        if isinstance(notification, PrivateInvited):
            lot = random.Random(f"private {self.world.seed} {name} {self.world.group(name).others}")
            accept = AnswerPrivateInvitation(notification.group, notification.member, lot.random() < ACCEPT_RATE)
            self.world.after(lot.randint(0, DECIDE_MS_MAX), lambda: self._answer_invitation(name, accept))
        if isinstance(notification, JoinRequested):
            answer = AnswerJoinRequest(notification.group, notification.member, admit=True)
            self.world.after(self.rng.randint(0, DECIDE_MS_MAX), lambda: self._run_with_retry(name, answer))

    def answer_pending_requests(self, name: str) -> None:
        """After a restart: answer the join requests that arrived meanwhile."""
        for group in self.world.nodes[name].agent.groups.values():
            for member, received in group.joining.private.items():
                if received.consent is Consent.PENDING:
                    self.on_notification(name, PrivateInvited(group.id, member))
            for member, request in group.joining.requests.items():
                self.on_notification(name, JoinRequested(group.id, member, request.label, request.role))

    def active(self, among: Sequence[str] | None = None) -> list[str]:
        """The nodes that are in a group, as far as they know."""
        nodes = self.world.nodes
        groups = {name: nodes[name].agent.groups for name in among or self.names}
        return [
            name
            for name, found in groups.items()
            if any(one.state == "active" and one.private is None for one in found.values())
        ]

    def _run(self, name: str, command: Command) -> Effect:
        return self.world.run_command(name, command)

    def _answer_invitation(self, name: str, command: AnswerPrivateInvitation) -> None:
        """Answer a private invitation that is still pending, again after a failure such as a full disk."""
        group = self.world.nodes[name].agent.groups.get(command.group)
        received = group.joining.private.get(command.member) if group is not None else None
        pending = received is not None and received.consent is Consent.PENDING
        if pending and isinstance(self._run(name, command), CommandFailed):
            self.world.after(DECIDE_MS_MAX, lambda: self._answer_invitation(name, command))

    def _run_with_retry(self, name: str, command: Command) -> None:
        """Run a command, again after a failure such as a full disk."""
        if isinstance(self._run(name, command), CommandFailed) and not self.stopped:
            self.world.after(DECIDE_MS_MAX, lambda: self._run_with_retry(name, command))

    # --- joining ----------------------------------------------------------------------------------------------------

    def join(self, name: str, inviters: Sequence[str]) -> None:
        """Start to join with an invitation of one of these; start again if that fails."""
        if self.world.nodes[name].agent.groups or self.stopped:
            return
        insiders = self.active(inviters)
        if insiders:
            inviter = self.rng.choice(insiders)
            group = self.world.group(inviter).id
            made = self._run(inviter, CreateInvitation(group, 86_400, None))
            if isinstance(made, CommandDone) and isinstance(made.result, InvitationCreated):
                self.attempts[name] = self.attempts.get(name, 0) + 1
                label = name if self.attempts[name] == 1 else f"{name} {self.attempts[name]}"
                role = READER if self.rng.random() < 0.1 else WRITER
                self._run(name, AcceptInvitation(made.result.invitation, label, role))
        self.world.after(JOIN_RETRY_MS, lambda: self.join(name, inviters))

    def stop(self) -> None:
        """Start no more join attempts."""
        self.stopped = True

    # --- in the group -----------------------------------------------------------------------------------------------

    def post(self, text: str = "") -> None:
        """A random member posts."""
        inside = self.active()
        if inside:
            self.posted += 1
            name = self.rng.choice(inside)
            lot = random.Random(f"burst {self.world.seed} {self.posted} {name}")
            group, text = self.world.group(name), text or f"word {self.posted} of {name}"
            # Only where the posts of a batch share a signature, so that all other histories stay as they are.
            more = lot.randint(1, BURST_MAX) if group.mode.signs_events and lot.random() < BURST_RATE else 0
            texts = [*(f"{text}, part {number}" for number in range(more)), text]
            self.world.run_batch(name, [SendPost(group.id, each) for each in texts])
            lot = random.Random(f"remark {self.world.seed} {self.posted} {name}")
            if lot.random() < ANNOTATION_TYPES:
                self.annotate(name, lot)
            lot = random.Random(f"announce {self.world.seed} {self.posted} {name}")
            if lot.random() < ANNOUNCE_RATE:
                self.announce(name, lot)

    def annotate(self, name: str, rng: random.Random) -> None:
        """The node edits or deletes its post, reacts to a post, pins two, or sets the topic. Uses its own random
        generator."""
        group, node = self.world.group(name), self.world.nodes[name]
        posts = [row for row in node.log if row.type == POST and row.group == group.id][-ANNOTATED_MAX:]
        if not posts or rng.random() < 0.1:
            topic = Topic(f"topic {rng.randint(0, 9)} of {name}")
            pins = Pins(tuple(row.id for row in posts[-2:]))
            self._run(name, SendContent(group.id, pins if rng.random() < 0.5 else topic))
            return
        row = rng.choice(posts)
        react = React(row.id, rng.choice("👍🎉😀"), rng.random() < 0.8)
        own = (react, Edit(row.id, f"edited by {name} after {self.world.timestamp().strip()} s"), Delete(row.id))
        self._run(name, SendContent(group.id, rng.choice(own) if row.author == group.me else react))

    def announce(self, name: str, rng: random.Random) -> None:
        """The node announces itself as a bot, or withdraws that. Uses its own random generator."""
        commands = tuple(BotCommand(f"c{number}", "[WHAT]") for number in range(rng.randint(0, 3)))
        self._run(name, SendContent(self.world.group(name).id, Announcement(rng.random() < 0.8, commands)))

    def act(self) -> None:
        """A random member performs another action, if it may."""
        inside = self.active()
        if inside:
            self.rng.choice(
                (self.rename, self.rename, self.change_role, self.change_role, self.remove_member, self.leave)
            )(self.rng.choice(inside))

    def rename(self, name: str) -> None:
        group = self.world.group(name)
        label = f"{name}-{self.rng.randint(0, 5)}"
        if label_free(group.view, label, but=group.me):
            self._run(name, ChangeLabel(group.id, label))

    def change_role(self, name: str) -> None:
        group = self.world.group(name)
        wanted = [
            (member, role)
            for member in group.view.members
            for role in (READER, WRITER, ADMIN, OWNER)
            if group.view.members[member].role not in (role, OWNER)
            and may_change_role(group.view, group.me, member, role)
        ]
        if wanted:
            self._run(name, ChangeRole(group.id, *self.rng.choice(wanted)))

    def rotate(self, name: str, other: str) -> None:
        """The node takes a new DID towards another member."""
        group, theirs = self.world.group(name), self.world.group(other)
        if theirs.me in group.view.members:
            self._run(name, RotateDid(f"{group.id}/{theirs.me}"))

    def converse(self, name: str, other: str) -> None:
        """The node begins a private conversation with another member, or continues it."""
        group, theirs = self.world.group(name), self.world.group(other)
        if theirs.me in group.view.members:
            done = self._run(name, OpenConversation(group.id, theirs.me))
            if isinstance(done, CommandDone) and isinstance(done.result, ConversationOpened):
                self._run(name, SendPost(done.result.group, f"what {name} writes to {other} alone"))

    def remove_member(self, name: str) -> None:
        """The node, or every member where a quorum is needed, removes or votes to remove a member."""
        target = self.rng.choice([*self.world.group(name).others, ""])
        self._remove(name, target)

    def _remove(self, name: str, target: str) -> None:
        """The node removes a member, or every member votes where a quorum is needed."""
        several = self.world.group(name).view.policy.remove == "quorum"
        for actor in self.active() if several else [name]:
            group = self.world.group(actor)
            if may_vote(group.view, group.me, target) or may_remove(group.view, group.me, target):
                self._run(actor, RemoveMember(group.id, target))

    def remove_each_other(self, name: str, other: str) -> None:
        """A member makes another one a reader; concurrently, the other one or its allies remove the first."""
        theirs = self.world.group(other)
        for actor in (name, *self.active()):
            ours = self.world.group(actor)
            if actor != other and may_change_role(ours.view, ours.me, theirs.me, READER):
                self._run(actor, ChangeRole(ours.id, theirs.me, READER))
                self._run(other, SendPost(theirs.id, f"what {other} says of {actor}"))
                self._remove(other, ours.me)
                return

    def upgrade(self, name: str, rng: random.Random) -> None:
        """The node agrees to upgrade the keys, if it may; concurrently, others agree too, or remove it. Uses its own
        random generator."""
        others = [one for one in self.active() if one != name]
        for actor in (name, *rng.sample(others, rng.randint(0, len(others)))):
            group = self.world.group(actor)
            if may_upgrade(group.view, group.me, target_of_upgrade(group.view)):
                self._run(actor, UpgradeKeys(group.id))
        if others and rng.random() < UPGRADER_REMOVED_RATE:
            self._remove(rng.choice(others), self.world.group(name).me)

    def upgrade_rarely(self, rng: random.Random) -> None:
        """In few rounds of a history, a random member upgrades the keys. Uses its own random generator."""
        inside = self.active() if rng.random() < UPGRADE_RATE else []
        if inside:
            self.upgrade(rng.choice(inside), rng)

    def leave(self, name: str) -> None:
        if len(self.active()) > 2:
            self._run(name, LeaveGroup(self.world.group(name).id))
