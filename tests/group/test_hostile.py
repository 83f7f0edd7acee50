"""A member that breaks the rules: whatever it signs and sends, the others keep talking and keep agreeing."""

import pytest

from tests.group.test_join import Small
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.message import Message, new_id
from zerochat.group.event_log.event import DEPS_MAX, LEAVE, POST, Event
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.inputs import Received, SendPost
from zerochat.group.links import peers
from zerochat.group.links.relationship import pack
from zerochat.group.membership import heads_of
from zerochat.group.notifications import Disagreement, Forked
from zerochat.group.state import Agent
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, HEADS_MAX, SYNC
from zerochat.sim import SIMULATED_PACKERS, play
from zerochat.sim.world import Node


class Hostile(Small):
    """Three members, of whom the last one does as the test says."""

    def __init__(self):
        super().__init__()
        self.forks = []
        self.disagreements = []
        self.id = self.found()
        for name in ("n1", "n2"):
            assert self.join(name, self.invite(self.id)).phase == "joined"
        self.mallory = self.group("n2")
        self.run(for_ms=5_000)

    def _perform(self, node, effect):
        notice = getattr(effect, "notice", None)
        if isinstance(notice, Forked) and notice.author == self.mallory.me:
            self.forks.append(node.name)  # rightly accused
        elif isinstance(notice, Disagreement) and notice.member == self.mallory.me:
            self.disagreements.append(node.name)
        else:
            super()._perform(node, effect)

    def utter(self, to, kind, body):
        """Mallory says something authentic, over her own link."""
        mine = self.group("n2")
        relationship = mine.relationships[self.group(to).me]
        message = Message(type=kind, id=new_id(self.dice.randbytes), body=body)
        packer = SIMULATED_PACKERS[self.envelope]
        link = self.group(to).peers[mine.me].link
        self.hear(to, Received(link, pack(relationship, message, packer, self.dice.randbytes)))

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
            self.ask(name, SendPost(self.id, f"from {name}"))
        self.run(for_ms=60_000)
        texts = [
            {row.record for row in self.nodes[name].log if row.type == POST and row.author != self.mallory.me}
            for name in ("n0", "n1")
        ]
        assert texts[0] == texts[1] != set()
        assert self.group("n0").view == self.group("n1").view


@pytest.mark.parametrize("leaves", [DEPS_MAX + 1, HEADS_MAX + 2])
def test_any_number_of_heads_stops_nobody(leaves):
    world = Hostile()
    deps = heads_of(world.group("n0").control)
    for n in range(leaves):
        forked = world.event(type=LEAVE, deps=deps, lamport=world.group("n0").lamport + 1, time=n + 1, body={})
        for name in ("n0", "n1"):
            world.utter_event(name, forked.signed(world.mallory.seed))
    assert len(heads_of(world.group("n0").control)) == leaves
    assert sorted(world.disagreements) == ["n0", "n1"], "each says so once"
    world.talk()
    world.talk()


def test_nobody_runs_the_others_time_away():
    world = Hostile()
    wall, pre = world.now, ""
    for n in range(1, 400):
        event = world.event(seq=n, pre=pre, lamport=wall + n * (AHEAD_MS_MAX - 1_000))
        world.utter_event("n0", event)
        if world.group("n0").chains[world.mallory.me].tip == event.id:
            pre = event.id
    assert world.group("n0").lamport <= world.now + 5 * 60_000
    world.talk()


def test_a_beginning_that_comes_too_late_hides_nothing():
    world = Hostile()
    first = world.event()
    world.utter_event("n0", first)
    sync = {
        "group": world.id,
        "view": world.group("n0").view.checksum,
        "have": [],
        "since": 50,
        "yours": 0,
        "heads": [],
        "reach": {"pair": "zmq+tcp://10.0.0.3:7000", "queue": "zmq+tcp://10.0.0.3:7001", "at": 0},
    }
    world.utter("n0", SYNC, sync)
    assert world.group("n0").chains[world.mallory.me].seq == 1
    world.talk()


def test_two_words_in_one_place_are_not_both_delivered():
    world = Hostile()
    one, other = world.event(body={"text": "yes"}), world.event(body={"text": "no"})
    world.utter_event("n0", one)
    world.utter_event("n0", other)
    assert world.forks == ["n0"]
    assert world.group("n0").chains[world.mallory.me].tip == one.id


def test_a_flood_of_differing_views_is_answered_once_in_a_while():
    world = Hostile()
    sent = []
    world._frame = lambda name, stimulus: sent.append(name)  # type: ignore[method-assign]
    sync = {
        "group": world.id,
        "view": "nonsense",
        "have": [],
        "since": 0,
        "yours": 0,
        "heads": [],
        "reach": {"pair": "zmq+tcp://10.0.0.3:7000", "queue": "zmq+tcp://10.0.0.3:7001", "at": 0},
    }
    for _ in range(100):
        world.utter("n0", SYNC, sync)
    assert len(sent) <= len(world.group("n0").control) + 1


def test_a_key_is_claimed_for_nothing_until_it_has_been_proved():
    world = Hostile()
    group = world.group("n0")
    assert set(group.relationships) == set(group.peers), "a claim alone makes no relationship"


def test_an_event_of_another_member_needs_that_members_signature():
    world = Hostile()
    victim = world.group("n1").me
    before = world.nodes["n0"].agent
    world.utter_event("n0", world.event(author=victim))
    assert world.nodes["n0"].agent == before
    assert world.nodes["n0"].dropped["dropped Refused"] == 1


def test_seed_20434_membership_events_alone_do_not_settle_where_a_chain_begins():
    play(20434)


def test_a_newcomer_for_whom_there_is_no_room_is_told_so(monkeypatch):
    """Members who come and go quickly are still neighbours for a moment after they have left."""
    world = Hostile()
    invitation = world.invite(world.id)
    monkeypatch.setattr(peers, "PEERS_MAX", 2)
    world.nodes["n3"] = Node(
        "n3", Endpoint("10.0.0.9", 7000), Endpoint("10.0.0.9", 7001), world.nodes["n0"].server_key[::-1], Agent("n3")
    )
    world.start("n3")
    told = world.join("n3", invitation)
    assert told.phase == "failed" and "full" in told.text
    world.talk()
