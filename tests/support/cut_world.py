"""A simulated group whose links can be cut, and forged events."""

from msgspec.structs import replace

from tests.support.small_world import Small
from zerochat.group.event_log.event import POST, load_event
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation, LinkDown, SendPost, StepContext
from zerochat.group.membership import Policy
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS


class Cut(Small):
    """Members of one group, of whom some do not hear each other for a while."""

    def __init__(self, members=3, policy=None):
        super().__init__(members)
        self.deaf = set()
        self.notices = {name: [] for name in self.nodes}
        answer = self.run_command(
            "n0", CreateGroup("friends", "n0", self.envelope, "pairwise-multi", policy or Policy())
        )
        self.id = answer.result.group

    def bring_in(self, *names):
        for name in names:
            invitation = self.run_command("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
            self.run_command(name, AcceptInvitation(invitation, name))
            self.run(for_ms=5_000)

    def post(self, name, *texts):
        return [self.run_command(name, SendPost(self.id, text)).result.id for text in texts]

    def texts(self, name, relayed=None):
        """What somebody has of the posts, in the order in which it is shown."""
        rows = sorted(self.nodes[name].log, key=lambda row: (row.lamport, row.author, row.id))
        posts = [row for row in rows if row.type == POST and (relayed is None or bool(row.relayed_by) == relayed)]
        return [load_event(row.record).body["text"] for row in posts]

    def did(self, name):
        return self.nodes[name].agent.groups[self.id].me

    def chain(self, name, author):
        return self.nodes[name].agent.groups[self.id].chain(self.did(author))

    def kill(self, name):
        """Its machine is gone for good."""
        self.deaf |= {frozenset({name, other}) for other in self.nodes if other != name}
        for link in list(self.nodes[name].dialled):
            self._disconnect(self.nodes[name], link)
        self.nodes[name].dialled.clear()
        self.nodes[name].allowed_clients.clear()
        self.nodes[name].timers.clear()
        for other in self.nodes.values():
            for link in [link for link, end in other.connected.items() if end == name]:
                self._disconnect(other, link)
                self._later(60, other.name, LinkDown(link))  # that it is up may not be known yet

    def _frame(self, name, stimulus):
        if frozenset({self.speaking, name}) not in self.deaf:
            super()._frame(name, stimulus)

    def _perform(self, node, effect):
        self.speaking = node.name
        notice = getattr(effect, "notification", None)
        if notice is not None and hasattr(self, "notices"):
            self.notices[node.name].append(notice)
        super()._perform(node, effect)

    def tx(self, name):
        return Transaction(self.nodes[name].agent, StepContext(self.now, self.rng.randbytes), SIMULATED_PACKERS)

    def perform(self, name, tx):
        """What was done in this turn really happens."""
        self.nodes[name].agent = tx.agent
        for effect in tx.effects:
            self._perform(self.nodes[name], effect)


def forged(world, name, member, author, texts):
    """What a member who lies hands over as an author's next posts."""
    group = world.nodes[name].agent.groups[world.id]
    chain = group.chain(author)
    events, seq, pre, lamport = [], chain.seq, chain.head_id or chain.backfill.previous_id or "A" * 43, chain.lamport
    for text in texts:
        template = next(load_event(r.record) for r in world.nodes[member].log if r.author == author)
        seq, lamport = seq + 1, max(lamport, group.log.lamport) + 1
        body = {"text": text}
        event = replace(
            template, group=world.id, type=POST, seq=seq, pre=pre, deps=(), conc=(), lamport=lamport, body=body, sig=""
        )
        events.append(event)
        pre = event.id
    return events
