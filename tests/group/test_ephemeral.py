"""Typing notices and read receipts in the core: recipients, and hostile input."""

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut
from tests.support.mediated_world import Behind
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import CommandFailed, Measure, Rejected, SendEnvelope
from zerochat.group.inputs import ChangeRole, CreateGroup, Received, SendReadReceipt, SendTyping
from zerochat.group.key_modes import MODES
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import Policy
from zerochat.group.notifications import Typing
from zerochat.group.settings import Indicators
from zerochat.group.wire.messages import PROTOCOL, READ, TYPING
from zerochat.limits import INDICATOR_MEMBERS_MAX
from zerochat.sim import SIMULATED_PACKERS

ALL = Indicators(read_receipts=True, typing=True)


def told_read(group):
    """That everything was read."""
    return SendReadReceipt(group, 2**50)


SHARED = (SendTyping, told_read)


class Sharers(Cut):
    """Three members of one group with all indicators on, unless a test changes that."""

    def __init__(self, sharing=ALL, members=3, keys=None):
        self.sent = []
        super().__init__(members, Policy())
        if keys:
            self.nodes["n0"].agent = replace(self.nodes["n0"].agent, groups={})
            self.id = self.run_command("n0", CreateGroup("others", "n0", self.envelope, keys)).result.group
        self.bring_in(*list(self.nodes)[1:])
        self.post("n0", "hello", "you")
        self.run(for_ms=5_000)
        for name in self.nodes:
            self.share(name, sharing)
        self.sent.clear()

    def share(self, name, sharing):
        self.nodes[name].agent = replace(self.nodes[name].agent, indicators=sharing)

    def _perform(self, node, effect):
        if isinstance(effect, SendEnvelope):
            self.sent.append(node.name)
        super()._perform(node, effect)

    def tells(self, name, command):
        """The number of members that an indicator is sent to."""
        return self.run_command(name, command).result.members

    def heard(self, name):
        return [each for each in self.notices[name] if isinstance(each, Typing)]

    def read(self, name, other):
        """Up to where one member takes another to have read."""
        return self.group(name).links.peers[self.did(other)].shown.read_upto

    def utter(self, sender, to, kind, **body):
        """A member sends an authentic message to another; returns the outcome."""
        there, here = self.group(sender), self.group(to)
        message = Message(type=kind, id=new_id(self.rng.randbytes), body=body)
        packer = SIMULATED_PACKERS[self.envelope]
        envelope = pack(there.links.relationships[here.me], message, packer, self.rng.randbytes)
        return self._step(self.nodes[to], Received(here.links.peers[there.me].link, envelope))


@pytest.mark.parametrize("keys", MODES)
def test_connected_members_receive_indicators_without_events(keys):
    world = Sharers(keys=keys)
    before = {name: (len(node.log), world.group(name).log.lamport) for name, node in world.nodes.items()}
    assert world.tells("n0", SendTyping(world.id)) == 2
    assert world.tells("n0", SendReadReceipt(world.id, 2**50)) == 2
    world.run(for_ms=2_000)
    for name in ("n1", "n2"):
        assert world.heard(name) == [Typing(world.id, world.did("n0"))]
        assert world.read(name, "n0") == world.group(name).log.lamport
    assert before == {name: (len(node.log), world.group(name).log.lamport) for name, node in world.nodes.items()}


@pytest.mark.parametrize("made", SHARED)
def test_a_disabled_indicator_sends_nothing(made):
    world = Sharers(Indicators())
    assert world.tells("n0", made(world.id)) == 0
    assert world.sent == []


@pytest.mark.parametrize(("mine", "kind"), [(Indicators(typing=True), READ), (Indicators(read_receipts=True), TYPING)])
def test_each_indicator_is_enabled_separately(mine, kind):
    world = Sharers(mine)
    assert world.tells("n0", (told_read if kind == READ else SendTyping)(world.id)) == 0
    assert world.tells("n0", (told_read if kind == TYPING else SendTyping)(world.id)) == 2


def test_indicators_work_both_ways():
    world = Sharers()
    world.share("n1", Indicators())
    world.tells("n0", SendTyping(world.id))
    world.tells("n0", SendReadReceipt(world.id, 2**50))
    world.run(for_ms=2_000)
    assert not world.heard("n1") and not world.read("n1", "n0")
    assert world.heard("n2") and world.read("n2", "n0")


@pytest.mark.parametrize("made", SHARED)
def test_a_lost_indicator_is_not_retransmitted(made):
    world = Sharers()
    world.deaf.add(frozenset({"n0", "n1"}))
    world.tells("n0", made(world.id))
    world.run(for_ms=2_000)
    world.deaf.clear()
    world.run(for_ms=300_000)
    assert not world.heard("n1") and not world.read("n1", "n0")


@pytest.mark.parametrize("made", SHARED)
def test_indicators_need_a_live_link(made):
    world = Sharers()
    world.kill("n1")
    world.run(for_ms=2_000)
    assert world.tells("n0", made(world.id)) == 1
    world.sent.clear()
    world.kill("n2")
    world.run(for_ms=2_000)
    world.sent.clear()
    assert world.tells("n0", made(world.id)) == 0 and world.sent == []


@pytest.mark.parametrize("made", SHARED)
def test_no_indicator_goes_over_a_mediator(made):
    """n2 cannot be dialled: n1 is reached over a link, n2 over its mediator."""
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    for node in world.nodes.values():
        node.agent = replace(node.agent, indicators=ALL)
    world.post(group, "n1", "hello")
    world.settle()
    mark, heard = len(world.posted), len(world.news("n2", Typing))
    assert world.run_command("n1", made(group)).result.members == 1, "n0, to whom it has dialled"
    world.run(for_ms=2_000)  # less than until the next comparison of states, which goes over a mediator
    posted = [uri for name, uri in world.since(mark) if name == "n1"]  # it fetches its mail over a WebSocket
    assert "http://m0.example/" not in posted, "nothing is posted to anybody"
    me = world.group("n1").me
    assert len(world.news("n2", Typing)) == heard and not world.group("n2").links.peers[me].shown.read_upto
    told = world.news("n0", Typing) if made is SendTyping else world.group("n0").links.peers[me].shown.read_upto
    assert told


def test_a_reader_sends_no_typing_indicator():
    world = Sharers()
    world.run_command("n2", ChangeRole(world.id, "", "reader"))
    world.run(for_ms=5_000)
    assert world.tells("n2", SendTyping(world.id)) == 0
    assert world.tells("n2", SendReadReceipt(world.id, 2**50)) == 2


@pytest.mark.parametrize("made", SHARED)
def test_large_groups_send_no_indicators(made, monkeypatch):
    world = Sharers()
    assert world.tells("n0", made(world.id)) == 2
    assert INDICATOR_MEMBERS_MAX == 32
    monkeypatch.setattr("zerochat.group.messages.indicators.INDICATOR_MEMBERS_MAX", 2)
    assert world.tells("n0", made(world.id)) == 0


def test_an_indicator_of_another_group_is_rejected():
    world = Sharers()
    assert isinstance(world.run_command("n0", SendTyping("nowhere")), CommandFailed)


def test_read_receipts_are_monotonic_and_capped():
    world = Sharers()
    end = world.group("n1").log.lamport
    for upto, wanted in ((2, 2), (1, 2), (0, 2), (end, end), (2**53 - 1, end), (3, end)):
        world.utter("n0", "n1", READ, group=world.id, upto=upto)
        assert world.read("n1", "n0") == wanted
    world.post("n2", "one more")
    world.run(for_ms=5_000)
    assert world.read("n1", "n0") == end  # what came since was not read


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (READ, {"upto": -1}),
        (READ, {"upto": 2**53}),
        (READ, {"upto": 2**2000}),
        (READ, {"upto": "all"}),
        (READ, {}),
        (READ, {"group": "g" * 43, "upto": 1}),
        (TYPING, {"group": "g" * 43}),
        (TYPING, {"group": 7}),
    ],
)
def test_malformed_indicators_change_nothing(kind, body):
    world = Sharers()
    before = world.group("n1")
    effects = world.utter("n0", "n1", kind, **{"group": world.id, **body})
    assert [type(each) for each in effects] == [Rejected]
    assert world.group("n1").links.peers == before.links.peers and not world.heard("n1")


def test_a_former_member_sends_no_indicator():
    world = Sharers()
    group = world.group("n1")
    view = replace(group.view, members={did: one for did, one in group.view.members.items() if did != world.did("n0")})
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, groups={world.id: replace(group, view=view)})
    assert not any(isinstance(each, Typing) for each in world.utter("n0", "n1", TYPING, group=world.id))
    world.utter("n0", "n1", READ, group=world.id, upto=2)
    assert not world.read("n1", "n0")


def test_a_flood_of_indicators_is_ignored():
    world = Sharers()
    size = len(str(world.group("n1").links.peers))
    effects = []
    for number in range(rate_limits.ENVELOPES_MAX + 50):
        effects = world.utter("n0", "n1", READ, group=world.id, upto=number)
    assert effects == [Measure("throttled")]
    assert len(str(world.group("n1").links.peers)) < size + 32


def test_an_unknown_indicator_is_ignored():
    """So is this one by a version that knows neither: nothing is answered, nothing counts against the sender."""
    world = Sharers()
    world.sent.clear()
    before = world.group("n1")
    assert world.utter("n0", "n1", PROTOCOL + "wave", group=world.id) == []
    assert world.group("n1").links.peers == before.links.peers and world.sent == []
