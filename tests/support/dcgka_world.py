"""A simulated group with keys that heal."""

from msgspec.structs import replace

from tests.support.ruled_world import Ruled
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import CommandDone, Publish, ReadOwnEvents
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import Event, load_event
from zerochat.group.inputs import (
    AcceptInvitation,
    CreateInvitation,
    LeaveGroup,
    Received,
    SendPost,
    StepContext,
)
from zerochat.group.key_modes.dcgka import is_sealed, place_of
from zerochat.group.key_modes.deniable import is_tagged, without_tags
from zerochat.group.links import content_keys
from zerochat.group.links.relationship import pack
from zerochat.group.membership import Policy
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS
from zerochat.sim import SIMULATED_PACKERS


class Healing(Ruled):
    """Members of a group with the keys `dcgka`, or others that heal."""

    def __init__(self, members=3, policy=None, keys="dcgka"):
        self.sealed, self.retransmissions, self.away = [], [], set()
        self.epochs = dict[str, None]()
        """Of all messages."""
        super().__init__(members, policy or Policy(remove="anyone", quorum=0), keys=keys)

    def _perform(self, node, effect):
        if isinstance(effect, Publish) and (is_sealed(effect.envelope) or is_tagged(effect.envelope)):
            self.sealed.append((node.name, effect.envelope))
            self.epochs[self.keys(node.name).epoch.event] = None
        if isinstance(effect, ReadOwnEvents):
            self.retransmissions.append((node.name, effect))
        super()._perform(node, effect)

    def _frame(self, name, input_):
        if name not in self.away and self.nodes[name].connected:
            super()._frame(name, input_)

    def _on_accusation(self, node, notification):
        """Members may lie here."""

    def keys(self, name):
        return self.group(name).dcgka.keys

    def place(self, envelope):
        """Which key opens a message."""
        return place_of(without_tags(envelope), self.epochs)

    def converged(self):
        """Whether all that was posted is everywhere, and every member follows every author."""
        texts = [sorted(self.texts(name)) for name in self.nodes]
        return all(text == texts[0] for text in texts)

    def did(self, name):
        return self.group(name).me

    def post(self, name, text):
        return self.says(name, SendPost(self.id, text))

    def burst(self, name, *texts):
        """Posts of one batch."""
        answer = self.run_batch(name, [SendPost(self.id, text) for text in texts])
        assert isinstance(answer, CommandDone), answer
        self.settle()

    def tx(self, name):
        return Transaction(self.nodes[name].agent, StepContext(self.now, self.rng.randbytes), SIMULATED_PACKERS)

    def next_post(self, name, text) -> Event:
        """The post that a member would make now; it does not enter its chain."""
        event = own_events.append(self.tx(name), self.id, "post", {"text": text})
        return event.signed(self.group(name).seed) if self.group(name).mode.signs_events else event

    def posts(self, name) -> list[Event]:
        return [load_event(row.record) for row in self.nodes[name].log if row.type == "post"]

    def bring(self, bearer, to, *events):
        """A member sends another one these events. Returns whether that changed the other one's log."""
        group, before = self.group(bearer), len(self.nodes[to].log)
        relationship = group.links.relationships[self.did(to)]
        body = {"runs": write_runs(events, group.me), "view": group.view.checksum, "have": []}
        message = Message(type=EVENTS, id=new_id(self.rng.randbytes), body=body)
        message = content_keys.sealed(self.tx(bearer), self.id, self.did(to), message) or message
        envelope = pack(relationship, message, SIMULATED_PACKERS[group.profile.envelope], self.rng.randbytes)
        self.process(to, Received(self.group(to).links.peers[self.did(bearer)].link, envelope))
        return len(self.nodes[to].log) > before

    def events(self, name):
        """All records in a member's log, as JSON objects."""
        return [load_event(row.record).wire for row in self.nodes[name].log]

    def leave(self, name):
        self.left = {**getattr(self, "left", {}), name: self.did(name)}
        self.says(name, LeaveGroup(self.id))
        self.run(for_ms=20_000)

    def come(self, name):
        """One more node joins."""
        self.add_node({})
        self.notices[name] = []
        self.start(name)
        invitation = self.run_command("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
        self.run_command(name, AcceptInvitation(invitation, name))
        self.run(for_ms=20_000)

    def strip_signatures(self, name):
        """A member's disk loses the signatures of its posts."""
        log = self.nodes[name].log
        log[:] = [
            row if row.type != "post" else replace(row, record=replace(load_event(row.record), sig="").record)
            for row in log
        ]


def talk(world, rounds=2, names=None, pause_ms=300):
    """Every member posts in turn; what was posted."""
    texts = []
    for number in range(rounds):
        for name in names or world.nodes:
            texts.append(f"{name} says {number} at {world.now}")
            world.run_command(name, SendPost(world.id, texts[-1]))
            world.run(for_ms=pause_ms)
    return texts


def live(world, rounds=1):
    """Whether everything that is posted now arrives without a retransmission."""
    before = len(world.retransmissions)
    texts = talk(world, rounds)
    return len(world.retransmissions) == before and all(set(texts) <= set(world.texts(name)) for name in world.nodes)
