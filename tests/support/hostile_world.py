"""A simulated group with a member that breaks the rules."""

from tests.support.small_world import Small
from zerochat.didcomm.message import Message, new_id
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import Received, SendPost
from zerochat.group.links.relationship import pack
from zerochat.group.notifications import ForkDetected, ViewDisagreement
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS
from zerochat.sim import SIMULATED_PACKERS


class Hostile(Small):
    """Members, of whom the last one does as the test says."""

    key_mode = "pairwise-multi"  # what it says needs no signature and no key of a ratchet

    def __init__(self, members=3, inviter="n0"):
        """`inviter`: adds the others, once the founder has added it."""
        super().__init__(members)
        self.forks = []
        self.disagreements = []
        self.id = self.found()
        for name in list(self.nodes)[1:]:
            by = "n0" if name <= inviter else inviter
            assert self.join(name, self.invite(self.id, by)).phase == "joined"
        *self.victims, self.hostile = self.nodes
        self.mallory = self.group(self.hostile)
        self.run(for_ms=5_000)

    def _perform(self, node, effect):
        notice = getattr(effect, "notification", None)
        if isinstance(notice, ForkDetected) and notice.author == self.mallory.me:
            self.forks.append(node.name)  # rightly accused
        elif isinstance(notice, ViewDisagreement) and notice.member == self.mallory.me:
            self.disagreements.append(node.name)
        else:
            super()._perform(node, effect)

    def utter(self, to, kind, body, by=""):
        """Mallory, or another member, says something authentic, over her own link."""
        mine = self.group(by or self.hostile)
        relationship = mine.links.relationships[self.group(to).me]
        message = Message(type=kind, id=new_id(self.rng.randbytes), body=body)
        packer = SIMULATED_PACKERS[self.envelope]
        link = self.group(to).links.peers[mine.me].link
        self.process(to, Received(link, pack(relationship, message, packer, self.rng.randbytes)))

    def utter_event(self, to, event):
        self.utter(to, EVENTS, {"runs": write_runs([event]), "view": self.group(to).view.checksum, "have": []})

    def event(self, **fields):
        values = {
            "group": self.id,
            "type": POST,
            "author": self.mallory.me,
            "seq": 1,
            "pre": "",
            "deps": (),
            "conc": (),
            "lamport": self.now,
            "time": self.now,
            "body": {"text": "hm"},
        }
        return Event(**{**values, **fields})

    def talk(self):
        """The honest ones say something each, and have it all soon."""
        for name in ("n0", "n1"):
            self.run_command(name, SendPost(self.id, f"from {name}"))
        self.run(for_ms=60_000)
        texts = [
            {row.record for row in self.nodes[name].log if row.type == POST and row.author != self.mallory.me}
            for name in ("n0", "n1")
        ]
        assert texts[0] == texts[1] != set()
        assert self.group("n0").view == self.group("n1").view
