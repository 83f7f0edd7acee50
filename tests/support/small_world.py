"""Two or three cores over a perfect simulated network."""

from zerochat.group.effects import CommandDone
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation
from zerochat.group.notifications import JoinProgress
from zerochat.limits import KEYS_DEFAULT
from zerochat.sim import Faults, World

PERFECT = Faults(loss=0, duplication=0, delay_ms_max=5)


class Small(World):
    """A world without faults that remembers what the joiners were told."""

    key_mode = KEYS_DEFAULT
    path = "mesh"
    id: str
    """Of the group, where a test keeps it."""

    def __init__(self, members=3, envelope=None):
        super().__init__(1, members, PERFECT, envelope)
        self.told = []

    def _perform(self, node, effect):
        notice = getattr(effect, "notification", None)
        if isinstance(notice, JoinProgress):
            self.told.append((node.name, notice))
        super()._perform(node, effect)

    def found(self, name="n0"):
        answer = self.run_command(name, CreateGroup("friends", name, self.envelope, self.key_mode, path=self.path))
        assert isinstance(answer, CommandDone)
        return answer.result.group

    def invite(self, group, name="n0", uses=1, lifetime_s=3600):
        answer = self.run_command(name, CreateInvitation(group, lifetime_s, uses))
        return answer.result.invitation

    def join(self, name, invitation, label=None):
        self.run_command(name, AcceptInvitation(invitation, label or name))
        self.run(for_ms=70_000)
        return [notice for who, notice in self.told if who == name][-1]
