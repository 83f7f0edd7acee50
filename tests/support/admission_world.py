"""A simulated group that records join requests and admissions."""

from tests.support.small_world import Small
from zerochat.group.effects import CommandDone
from zerochat.group.inputs import AcceptInvitation, AnswerJoinRequest, CreateGroup, CreateInvitation
from zerochat.group.membership import Policy
from zerochat.group.notifications import InvitationUsed, JoinRequestAnswered, JoinRequested, MemberConnections

KINDS = (JoinRequested, JoinRequestAnswered, InvitationUsed, MemberConnections)


class Admitting(Small):
    """A group founded by n0 under a policy, and what everybody was told of those who come."""

    def __init__(self, members: int = 2, policy: Policy | None = None, keys: str = "pairwise-multi") -> None:
        self.news: list[tuple[str, object]] = []
        super().__init__(members)
        answer = self.run_command("n0", CreateGroup("friends", "n0", self.envelope, keys, policy or Policy(join="ask")))
        assert isinstance(answer, CommandDone)
        self.id = answer.result.group

    def _perform(self, node, effect):
        notice = getattr(effect, "notification", None)
        if isinstance(notice, KINDS):
            self.news.append((node.name, notice))
        super()._perform(node, effect)

    def all(self, kind):
        return [notice for _, notice in self.news if isinstance(notice, kind)]

    def last(self, name):
        return [notice for who, notice in self.told if who == name][-1]

    def knock(self, name, invitation, label=None, role="writer"):
        """Begin to join, and let it come as far as it gets by itself."""
        self.run_command(name, AcceptInvitation(invitation, label or name, role))
        self.run(for_ms=5_000)

    def answer(self, who, admit, name="n0"):
        return self.run_command(name, AnswerJoinRequest(self.id, who, admit))

    def offer(self, uses=None, lifetime_s=3600, role="writer", name="n0"):
        return self.run_command(name, CreateInvitation(self.id, lifetime_s, uses, role)).result.invitation
