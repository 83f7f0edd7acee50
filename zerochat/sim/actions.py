"""What people do in a group beside joining it: they talk, change names and roles, put somebody out, go."""

import random
from collections.abc import Sequence
from typing import get_args

from zerochat.group.effects import Answer, Effect, InvitationCreated, Refuse
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerRequest,
    ChangeLabel,
    ChangeRole,
    Command,
    CreateInvitation,
    LeaveGroup,
    RemoveMember,
    RotateDid,
    Say,
    SendPost,
)
from zerochat.group.key_modes import MODES
from zerochat.group.key_rotation import MESSAGES_MAX, Rotation
from zerochat.group.membership import (
    ADMIN,
    LEDGER,
    OWNER,
    READER,
    WRITER,
    Policy,
    label_free,
    may_change_role,
    may_remove,
    may_vote,
)
from zerochat.group.membership.bodies import AgreementRule, JoinRule, RemoveRule, RoleRule
from zerochat.group.membership.bot_announcement import Announcement, BotCommand
from zerochat.group.messages.bodies import Delete, Edit, React, Topic
from zerochat.group.notifications import JoinAsked, Notice
from zerochat.sim.world import World

JOIN_AGAIN_MS = 70_000
"""A joiner whom nobody has let in by then looks for another invitation."""
REMARKS = 0.3
"""How often something is said about a message, for each message."""
ANNOUNCED = 0.05
"""How often somebody announces commands, for each message."""
REMARKED_MAX = 8
"""It is one of the last so many."""
DECIDE_MS_MAX = 3_000
"""How long somebody may think about whether to let somebody in."""


def drawn_policy(dice: random.Random) -> Policy:
    """Some rules that fit together."""
    while True:
        policy = Policy(
            join=dice.choice(get_args(JoinRule)),
            remove=dice.choice(get_args(RemoveRule)),
            quorum=dice.choice((0, 2, 3)),
            roles=dice.choice(get_args(RoleRule)),
            agreement=dice.choice(get_args(AgreementRule)),
        )
        if not policy.fault:
            return policy


def drawn_accountability(keys: str, lot: str) -> str:
    """Whether a group whose keys sign keeps a log. Drawn apart, so that all else goes on as it would have."""
    return LEDGER if MODES[keys].signs and random.Random(f"log {lot}").random() < 0.5 else "acks"


def drawn_rotation(lot: str) -> Rotation:
    """When keys are replaced in a group whose keys sign, mostly sooner than they are in life. Drawn apart, too."""
    dice = random.Random(f"rotation {lot}")
    return Rotation(dice.choice((1, 2, 5, MESSAGES_MAX)), dice.choice((1, 7)), dice.choice((1, 1, 2, 3)))


class People:
    """The people at some nodes of a world, who keep the rules."""

    def __init__(self, world: World, dice: random.Random, names: Sequence[str]) -> None:
        self.world, self.dice, self.names = world, dice, list(names)
        self.said = 0
        self.tried: dict[str, int] = {}
        """How often each took an invitation."""
        self.over = False

    def heed(self, name: str, notice: Notice) -> None:
        """Whoever is asked whether somebody may come in says yes, after a moment."""
        if isinstance(notice, JoinAsked):
            answer = AnswerRequest(notice.group, notice.member, admit=True)
            self.world.after(self.dice.randint(0, DECIDE_MS_MAX), lambda: self._command(name, answer))

    def look(self, name: str) -> None:
        """One who comes back looks who has asked to come in meanwhile."""
        for group in self.world.nodes[name].agent.groups.values():
            for member, request in group.requests.items():
                self.heed(name, JoinAsked(group.id, member, request.label, request.role))

    def active(self, among: Sequence[str] | None = None) -> list[str]:
        """Those who are in a group, as far as they know themselves."""
        nodes = self.world.nodes
        groups = {name: nodes[name].agent.groups for name in among or self.names}
        return [name for name, found in groups.items() if any(one.state == "active" for one in found.values())]

    def _ask(self, name: str, command: Command) -> Effect:
        return self.world.ask(name, command)

    def _command(self, name: str, command: Command) -> None:
        """Have it done; where that is not possible just now (a full disk), a person tries again."""
        if isinstance(self._ask(name, command), Refuse) and not self.over:
            self.world.after(DECIDE_MS_MAX, lambda: self._command(name, command))

    # --- joining ----------------------------------------------------------------------------------------------------

    def join(self, name: str, inviters: Sequence[str]) -> None:
        """Begin to join, with an invitation of one of these; begin anew with another one if that leads nowhere."""
        if self.world.nodes[name].agent.groups or self.over:
            return
        insiders = self.active(inviters)
        if insiders:
            inviter = self.dice.choice(insiders)
            group = self.world.group(inviter).id
            made = self._ask(inviter, CreateInvitation(group, 86_400, 1))
            if isinstance(made, Answer) and isinstance(made.result, InvitationCreated):
                self.tried[name] = self.tried.get(name, 0) + 1
                label = name if self.tried[name] == 1 else f"{name} {self.tried[name]}"
                role = READER if self.dice.random() < 0.1 else WRITER
                self._ask(name, AcceptInvitation(made.result.invitation, label, role))
        self.world.after(JOIN_AGAIN_MS, lambda: self.join(name, inviters))

    def stop(self) -> None:
        """Whoever is not in by now tries no more."""
        self.over = True

    # --- in the group -----------------------------------------------------------------------------------------------

    def say(self, text: str = "") -> None:
        """One of them says something."""
        inside = self.active()
        if inside:
            self.said += 1
            name = self.dice.choice(inside)
            self._ask(name, SendPost(self.world.group(name).id, text or f"word {self.said} of {name}"))
            lot = random.Random(f"remark {self.world.seed} {self.said} {name}")
            if lot.random() < REMARKS:
                self.remark(name, lot)
            lot = random.Random(f"announce {self.world.seed} {self.said} {name}")
            if lot.random() < ANNOUNCED:
                self.announce(name, lot)

    def remark(self, name: str, dice: random.Random) -> None:
        """This one edits or deletes something that it has said, reacts to something, or says what the group is about.

        What is drawn here is drawn apart, so that all else goes on as it would have."""
        group, node = self.world.group(name), self.world.nodes[name]
        posts = [row for row in node.log if row.type == POST and row.group == group.id][-REMARKED_MAX:]
        if not posts or dice.random() < 0.1:
            self._ask(name, Say(group.id, Topic(f"topic {dice.randint(0, 9)} of {name}")))
            return
        row = dice.choice(posts)
        react = React(row.id, dice.choice("👍🎉😀"), dice.random() < 0.8)
        own = (react, Edit(row.id, f"edited by {name} after {self.world.told_time().strip()} s"), Delete(row.id))
        self._ask(name, Say(group.id, dice.choice(own) if row.author == group.me else react))

    def announce(self, name: str, dice: random.Random) -> None:
        """This one says that it is a bot, and what it listens to, or is none any more. Drawn apart, as remarks are."""
        commands = tuple(BotCommand(f"c{number}", "[WHAT]") for number in range(dice.randint(0, 3)))
        self._ask(name, Say(self.world.group(name).id, Announcement(dice.random() < 0.8, commands)))

    def do(self) -> None:
        """One of them does something else, if there is something that it may do."""
        inside = self.active()
        if inside:
            self.dice.choice((self.rename, self.rename, self.role, self.role, self.put_out, self.go))(
                self.dice.choice(inside)
            )

    def rename(self, name: str) -> None:
        group = self.world.group(name)
        label = f"{name}-{self.dice.randint(0, 5)}"
        if label_free(group.view, label, but=group.me):
            self._ask(name, ChangeLabel(group.id, label))

    def role(self, name: str) -> None:
        group = self.world.group(name)
        wanted = [
            (member, role)
            for member in group.view.members
            for role in (READER, WRITER, ADMIN)
            if group.view.members[member].role not in (role, OWNER)
            and may_change_role(group.view, group.me, member, role)
        ]
        if wanted:
            self._ask(name, ChangeRole(group.id, *self.dice.choice(wanted)))

    def rotate(self, name: str, other: str) -> None:
        """This one takes a new DID towards another member."""
        group, theirs = self.world.group(name), self.world.group(other)
        if theirs.me in group.view.members:
            self._ask(name, RotateDid(f"{group.id}/{theirs.me}"))

    def put_out(self, name: str) -> None:
        """This one and some others want somebody out."""
        target = self.dice.choice([*self.world.group(name).others, ""])
        several = self.world.group(name).view.policy.remove == "quorum"
        for actor in self.active() if several else [name]:
            group = self.world.group(actor)
            if may_vote(group.view, group.me, target) or may_remove(group.view, group.me, target):
                self._ask(actor, RemoveMember(group.id, target))

    def feud(self, name: str, other: str) -> None:
        """This one wants the other to say nothing any more, and the other wants it, or who may do that for it, out;
        and neither has heard of the other's deed."""
        theirs = self.world.group(other)
        for actor in (name, *self.active()):
            ours = self.world.group(actor)
            if actor != other and may_change_role(ours.view, ours.me, theirs.me, READER):
                self._ask(actor, ChangeRole(ours.id, theirs.me, READER))
                self._ask(other, SendPost(theirs.id, f"what {other} says of {actor}"))
                for one in (other, *self.active()) if theirs.view.policy.remove == "quorum" else (other,):
                    group = self.world.group(one)
                    if may_vote(group.view, group.me, ours.me) or may_remove(group.view, group.me, ours.me):
                        self._ask(one, RemoveMember(group.id, ours.me))
                return

    def go(self, name: str) -> None:
        if len(self.active()) > 2:
            self._ask(name, LeaveGroup(self.world.group(name).id))
