"""Small worlds in which some members only dial out, behind simulated mediators."""

from tests.support.small_world import PERFECT, Small
from zerochat.didcomm.invitation import parse_invitation
from zerochat.group.effects import Dial, WebPost
from zerochat.group.event_log.event import POST
from zerochat.group.inputs import AcceptInvitation, SendPost
from zerochat.sim import World


class Behind(Small):
    """Faultless, and what is posted and dialled is kept: by whom, and where to."""

    def __init__(self, members=3, hidden=(), mediators=1, chained=False, envelope="didcomm/v2", via=None):
        self.told, self.posted, self.dialled, self.notices = [], [], [], []
        last = f"m{mediators - 1}"
        behind = {name: (via or {}).get(name, (last,)) for name in hidden}
        World.__init__(self, 3, members, PERFECT, envelope, None, mediators, behind, chained)

    def _perform(self, node, effect):
        match effect:
            case WebPost(uri):
                self.posted.append((node.name, uri))
            case Dial():
                self.dialled.append(node.name)
        if hasattr(effect, "notification"):
            self.notices.append((node.name, effect.notification))
        super()._perform(node, effect)

    def everybody(self):
        """Everybody joins, each by an invitation of the first."""
        group = self.found()
        for name in list(self.nodes)[1:]:
            link = self.invite(group).url()
            self.run_command(name, AcceptInvitation(parse_invitation(link, self.now // 1000), name))
            assert self.run(lambda name=name: bool(self.nodes[name].agent.groups), for_ms=60_000), f"{name} is not in"
        assert self.run(self.fully_connected, for_ms=60_000)
        self.run(for_ms=5_000)
        return group

    def post(self, group, name, text):
        self.run_command(name, SendPost(group, text))

    def texts(self, name):
        """What a node has in its log, in the order of arrival."""
        return [row.record for row in self.nodes[name].log if row.type == POST]

    def settle(self, for_ms=120_000):
        """Time passes until everybody has everything; then all promises are checked."""
        self.run(lambda: self.fully_connected() and not any(self.missing()), for_ms=for_ms)
        self.check()

    def since(self, mark):
        return self.posted[mark:]

    def _connections(self, name):
        return list(self.nodes[name].agent.connections.values())

    def news(self, name, kind):
        return [notice for who, notice in self.notices if who == name and isinstance(notice, kind)]
