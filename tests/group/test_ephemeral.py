"""Typing notices and read receipts in the core: who is told, who is not, and what hostile ones come to."""

import pytest
from msgspec.structs import replace

from tests.group.test_history import Cut
from tests.support.mediated_world import Behind
from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import Dispatch, Measure, Refuse
from zerochat.group.inputs import ChangeRole, CreateGroup, Received, ShareRead, ShareTyping
from zerochat.group.key_modes import MODES
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import Policy
from zerochat.group.messages.ephemeral import TOLD_MEMBERS_MAX
from zerochat.group.messages.sharing import Sharing
from zerochat.group.notifications import Typing
from zerochat.group.wire.ephemeral import READ, TYPING
from zerochat.group.wire.messages import PROTOCOL
from zerochat.sim import SIMULATED_PACKERS

ALL = Sharing(read_receipts=True, typing=True)


def told_read(group):
    """That everything was read."""
    return ShareRead(group, 2**50)


SHARED = (ShareTyping, told_read)


class Sharers(Cut):
    """Three members of one group who tell each other everything, unless a test has it otherwise."""

    def __init__(self, sharing=ALL, members=3, keys=None):
        self.sent = []
        super().__init__(members, Policy())
        if keys:
            self.nodes["n0"].agent = replace(self.nodes["n0"].agent, groups={})
            self.id = self.ask("n0", CreateGroup("others", "n0", self.envelope, keys)).result.group
        self.bring_in(*list(self.nodes)[1:])
        self.post("n0", "hello", "you")
        self.run(for_ms=5_000)
        for name in self.nodes:
            self.share(name, sharing)
        self.sent.clear()

    def share(self, name, sharing):
        self.nodes[name].agent = replace(self.nodes[name].agent, sharing=sharing)

    def _perform(self, node, effect):
        if isinstance(effect, Dispatch):
            self.sent.append(node.name)
        super()._perform(node, effect)

    def tells(self, name, command):
        """How many a member tells something."""
        return self.ask(name, command).result.members

    def heard(self, name):
        return [each for each in self.notices[name] if isinstance(each, Typing)]

    def read(self, name, other):
        """Up to where somebody takes another one to have read."""
        return self.group(name).peers[self.did(other)].read

    def utter(self, sender, to, kind, **body):
        """A member says something authentic to another; what comes of it."""
        there, here = self.group(sender), self.group(to)
        message = Message(type=kind, id=new_id(self.dice.randbytes), body=body)
        packer = SIMULATED_PACKERS[self.envelope]
        envelope = pack(there.relationships[here.me], message, packer, self.dice.randbytes)
        return self._step(self.nodes[to], Received(here.peers[there.me].link, envelope))


@pytest.mark.parametrize("keys", MODES)
def test_who_is_near_is_told_and_nothing_of_it_is_an_event(keys):
    world = Sharers(keys=keys)
    before = {name: (len(node.log), world.group(name).lamport) for name, node in world.nodes.items()}
    assert world.tells("n0", ShareTyping(world.id)) == 2
    assert world.tells("n0", ShareRead(world.id, 2**50)) == 2
    world.run(for_ms=2_000)
    for name in ("n1", "n2"):
        assert world.heard(name) == [Typing(world.id, world.did("n0"))]
        assert world.read(name, "n0") == world.group(name).lamport
    assert before == {name: (len(node.log), world.group(name).lamport) for name, node in world.nodes.items()}


@pytest.mark.parametrize("made", SHARED)
def test_off_means_that_nothing_leaves(made):
    world = Sharers(Sharing())
    assert world.tells("n0", made(world.id)) == 0
    assert world.sent == []


@pytest.mark.parametrize(("mine", "kind"), [(Sharing(typing=True), READ), (Sharing(read_receipts=True), TYPING)])
def test_each_is_wanted_for_itself(mine, kind):
    world = Sharers(mine)
    assert world.tells("n0", (told_read if kind == READ else ShareTyping)(world.id)) == 0
    assert world.tells("n0", (told_read if kind == TYPING else ShareTyping)(world.id)) == 2


def test_whoever_does_not_tell_it_is_not_told_it():
    world = Sharers()
    world.share("n1", Sharing())
    world.tells("n0", ShareTyping(world.id))
    world.tells("n0", ShareRead(world.id, 2**50))
    world.run(for_ms=2_000)
    assert not world.heard("n1") and not world.read("n1", "n0")
    assert world.heard("n2") and world.read("n2", "n0")


@pytest.mark.parametrize("made", SHARED)
def test_what_does_not_arrive_is_not_said_again(made):
    world = Sharers()
    world.deaf.add(frozenset({"n0", "n1"}))
    world.tells("n0", made(world.id))
    world.run(for_ms=2_000)
    world.deaf.clear()
    world.run(for_ms=300_000)
    assert not world.heard("n1") and not world.read("n1", "n0")


@pytest.mark.parametrize("made", SHARED)
def test_only_those_with_a_live_link_are_told(made):
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
def test_who_is_reached_over_a_mediator_is_told_nothing_of_it(made):
    """n2 can be dialled by nobody: to n1 there is a link, to n2 what is posted to its mediator."""
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    for node in world.nodes.values():
        node.agent = replace(node.agent, sharing=ALL)
    world.post(group, "n1", "hello")
    world.settle()
    mark, heard = len(world.posted), len(world.news("n2", Typing))
    assert world.ask("n1", made(group)).result.members == 1, "n0, to whom it has dialled"
    world.run(for_ms=60_000)
    posted = [uri for name, uri in world.since(mark) if name == "n1"]  # it asks its own mediator for mail, over ws
    assert "http://m0.example/" not in posted, "nothing is posted to anybody"
    me = world.group("n1").me
    assert len(world.news("n2", Typing)) == heard and not world.group("n2").peers[me].read
    told = world.news("n0", Typing) if made is ShareTyping else world.group("n0").peers[me].read
    assert told


def test_whoever_may_only_read_does_not_type():
    world = Sharers()
    world.ask("n2", ChangeRole(world.id, "", "reader"))
    world.run(for_ms=5_000)
    assert world.tells("n2", ShareTyping(world.id)) == 0
    assert world.tells("n2", ShareRead(world.id, 2**50)) == 2


@pytest.mark.parametrize("made", SHARED)
def test_a_large_group_is_spared(made, monkeypatch):
    world = Sharers()
    assert world.tells("n0", made(world.id)) == 2
    assert TOLD_MEMBERS_MAX == 32
    monkeypatch.setattr("zerochat.group.messages.ephemeral.TOLD_MEMBERS_MAX", 2)
    assert world.tells("n0", made(world.id)) == 0


def test_nobody_tells_what_another_group_is_about_to_hear():
    world = Sharers()
    assert isinstance(world.ask("n0", ShareTyping("nowhere")), Refuse)


def test_what_was_read_never_falls_and_is_never_more_than_there_is():
    world = Sharers()
    end = world.group("n1").lamport
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
def test_nonsense_changes_nothing(kind, body):
    world = Sharers()
    before = world.group("n1")
    effects = world.utter("n0", "n1", kind, **{"group": world.id, **body})
    assert [type(each) for each in effects] == [Measure]
    assert world.group("n1").peers == before.peers and not world.heard("n1")


def test_whoever_is_no_member_any_more_tells_nothing():
    world = Sharers()
    group = world.group("n1")
    view = replace(group.view, members={did: one for did, one in group.view.members.items() if did != world.did("n0")})
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, groups={world.id: replace(group, view=view)})
    assert not any(isinstance(each, Typing) for each in world.utter("n0", "n1", TYPING, group=world.id))
    world.utter("n0", "n1", READ, group=world.id, upto=2)
    assert not world.read("n1", "n0")


def test_a_flood_is_passed_over_and_leaves_one_number():
    world = Sharers()
    size = len(str(world.group("n1").peers))
    effects = []
    for number in range(rate_limits.ENVELOPES_MAX + 50):
        effects = world.utter("n0", "n1", READ, group=world.id, upto=number)
    assert effects == [Measure("throttled")]
    assert len(str(world.group("n1").peers)) < size + 32


def test_a_kind_that_is_new_to_the_reader_is_passed_over():
    """So is this one by a version that knows neither: nothing is answered, nothing counts against the sender."""
    world = Sharers()
    world.sent.clear()
    before = world.group("n1")
    assert world.utter("n0", "n1", PROTOCOL + "wave", group=world.id) == []
    assert world.group("n1").peers == before.peers and world.sent == []
