"""A simulated group with roles and a removal policy."""

import json

from tests.support.small_world import Small
from zerochat.group.effects import CommandDone, CommandFailed
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation
from zerochat.group.membership import Policy

ADMINS = Policy(remove="admins", quorum=0, roles="admins")


class Ruled(Small):
    """Some members in one group with a policy, all connected."""

    def __init__(self, members=4, policy=None, keys="pairwise-multi"):
        super().__init__(members)
        self.notices = {name: [] for name in self.nodes}
        answer = self.run_command("n0", CreateGroup("friends", "n0", self.envelope, keys, policy or Policy()))
        self.id = answer.result.group
        for name in list(self.nodes)[1:]:
            invitation = self.run_command("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
            self.run_command(name, AcceptInvitation(invitation, name))
            self.run(for_ms=3_000)
        self.settle()

    def settle(self):
        self.run(for_ms=5_000)

    def _perform(self, node, effect):
        notice = getattr(effect, "notification", None)
        if notice is not None and hasattr(self, "notices"):
            self.notices[node.name].append(notice)
        super()._perform(node, effect)

    def says(self, name, command):
        """The result of a command that is obeyed."""
        answer = self.run_command(name, command)
        assert isinstance(answer, CommandDone), answer.error.sentence()
        self.settle()
        return answer.result

    def refuses(self, name, command, error):
        answer = self.run_command(name, command)
        assert isinstance(answer, CommandFailed) and isinstance(answer.error, error), answer
        return answer.error.sentence()

    def texts(self, name):
        return [json.loads(row.record)["body"]["text"] for row in self.nodes[name].log if row.type == POST]

    def labels(self, name):
        return sorted(member.label for member in self.group(name).view.members.values())

    def heard(self, name, kind):
        return [notice for notice in self.notices[name] if isinstance(notice, kind)]
