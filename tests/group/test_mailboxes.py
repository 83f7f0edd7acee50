"""A member that is gone reaches no mailbox of the others: each is replaced, once for several, and no mail is lost."""

import pytest

from tests.support.mediated_world import Behind
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.did import resolve
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.protocols.mediation import Changed, read_update, update_response
from zerochat.didcomm.service import Route
from zerochat.group.effects import CommandDone
from zerochat.group.inputs import AcceptInvitation, CreateGroup, LeaveGroup, RemoveMember
from zerochat.group.links import mailboxes, mediator_mail
from zerochat.group.membership import Policy
from zerochat.group.state import Mailbox
from zerochat.sim.mediator import Session

FOREIGN = did_key(ed25519_public(b"\x01" * 32))
ANYONE = Policy(remove="anyone", quorum=0)


class Removing(Behind):
    """n0 can be dialled, the others only dial out; any member may remove another one."""

    def __init__(self, members=4, policy=ANYONE, **more):
        self.policy = policy
        hidden = tuple(f"n{number}" for number in range(1, members))
        super().__init__(members, hidden=hidden, **more)

    def found(self, name="n0"):
        answer = self.run_command(name, CreateGroup("friends", name, policy=self.policy))
        assert isinstance(answer, CommandDone)
        return answer.result.group

    def mailbox(self, name="n1"):
        return self.group(name).links.mailbox

    def box(self, number, name="n1"):
        return mediator_mail.mailbox(self.group(name).seed, number)

    def registered(self, name="n1", mediator="m0"):
        """The numbers of the mailboxes that the mediator serves."""
        there = self.web.mediators[mediator].mailboxes
        return {number for number in range(10) if self.box(number, name) in there}

    def known(self, teller, name="n1"):
        """The number of the mailbox that another member uses."""
        (route,) = mediator_mail.reach_of_member(self.group(teller), self.group(name).me).routes
        return next(number for number in range(10) if self.box(number, name) == route.routing_keys[-1])

    def remove(self, name, by="n0"):
        assert isinstance(self.run_command(by, RemoveMember("friends", name)), CommandDone)
        self.run(for_ms=mailboxes.DELAY_MS + 5_000)

    def everybody_says(self, group, names, word="word"):
        for name in names:
            self.post(group, name, f"{word} of {name}")
        self.run(lambda: all(self.has(name, word, len(names)) for name in names), for_ms=120_000)
        assert all(self.has(name, word, len(names)) for name in names)

    def has(self, name, word, count):
        return sum(f"{word} of".encode() in record for record in self.texts(name)) == count


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(mailboxes, "GRACE_MS", 60_000)


def test_the_remaining_members_change_and_the_removed_one_is_not_told(short_grace):
    world = Removing()
    group = world.everybody()
    world.remove("n3")
    for name, other in (("n1", "n2"), ("n2", "n1")):
        assert world.registered(name) == {0, 1}, "the one before is kept for mail under way"
        assert world.known("n0", name) == world.known(other, name) == 1
        assert world.known("n3", name) == 0
    world.everybody_says(group, ("n0", "n1", "n2"))
    world.run(for_ms=mailboxes.GRACE_MS)
    assert world.registered("n1") == world.registered("n2") == {1}
    world.everybody_says(group, ("n0", "n1", "n2"), "more")
    assert world.known("n3", "n1") == world.known("n3", "n2") == 0


def test_posts_to_the_old_mailbox_are_refused_after_the_grace_time(short_grace):
    world = Removing()
    world.everybody()
    (route,) = mediator_mail.reach_of_member(world.group("n3"), world.group("n1").me).routes
    mediator, random = world.web.mediators["m0"], world.rng.randbytes
    *_, key, box = route.routing_keys

    def post():
        """Whether the mediator stores an envelope for the mailbox that n3 knows, and whether it sends a receipt."""
        letter = routing.wrap(b"{}", Route(route.uri, (box,), (), "final"), FOREIGN, resolve=resolve, random=random)
        way = Route(route.uri, (key,), (), "final")
        envelope = routing.wrap(letter, way, box, resolve=resolve, random=random, wants_receipt=True)
        dropped = mediator.dropped
        answers, _ = mediator.receive(envelope, Session())
        return mediator.dropped == dropped, bool(answers)

    world.remove("n3")
    assert post() == (True, True)
    world.run(for_ms=mailboxes.GRACE_MS)
    assert post() == (False, False), "neither to fill nor to probe"


def test_a_vote_alone_changes_nothing():
    world = Removing(policy=Policy())
    world.everybody()
    world.remove("n3", by="n0")
    assert world.mailbox() == Mailbox()
    world.remove("n3", by="n2")
    assert world.mailbox().number == 1


def test_a_member_that_leaves_is_gone_as_well():
    world = Removing()
    group = world.everybody()
    world.run_command("n3", LeaveGroup(group))
    world.run(for_ms=60_000)
    assert world.mailbox("n1").number == world.mailbox("n2").number == 1
    assert world.known("n2", "n1") == 1
    world.everybody_says(group, ("n0", "n1", "n2"))


def test_removals_in_a_row_share_one_change(short_grace):
    world = Removing(6)
    group = world.everybody()
    for name in ("n5", "n4"):
        assert isinstance(world.run_command("n0", RemoveMember("friends", name)), CommandDone)
    world.run(for_ms=mailboxes.DELAY_MS + 5_000)
    assert world.mailbox().number == 1
    world.remove("n3")
    assert (world.mailbox().number, world.mailbox().due) == (1, True), "one change at a time"
    world.run(for_ms=mailboxes.GRACE_MS)
    assert (world.mailbox().number, world.mailbox().due) == (2, False)
    assert world.registered() == {1, 2}
    world.everybody_says(group, ("n0", "n1", "n2"))
    world.run(for_ms=mailboxes.GRACE_MS)
    assert world.registered() == {2} and world.mailbox() == Mailbox(number=2)


@pytest.mark.parametrize("state", ["due", "registering", "grace"])
def test_a_change_survives_a_restart(state, short_grace):
    world = Removing()
    group = world.everybody()
    if state == "registering":
        world.web.stop_mediator("m0")
    assert isinstance(world.run_command("n0", RemoveMember("friends", "n3")), CommandDone)
    world.run(for_ms=3_000 if state == "due" else mailboxes.DELAY_MS + 5_000)
    box = world.mailbox()
    assert (box.due, box.registering, bool(box.grace_until)) == (
        state == "due",
        state == "registering",
        state == "grace",
    )
    world.restart("n1")
    if state == "registering":
        world.web.start_mediator("m0")
    world.run(for_ms=mailboxes.DELAY_MS + 20_000)
    assert world.mailbox().number == 1 and world.known("n2") == 1
    world.run(for_ms=mailboxes.GRACE_MS)
    assert world.registered() == {1} and world.mailbox() == Mailbox(number=1)
    world.everybody_says(group, ("n0", "n1", "n2"))


def test_a_member_absent_during_the_change_gets_and_sends_everything(short_grace):
    world = Removing()
    group = world.everybody()
    world.stop("n2")
    world.remove("n3")
    world.post(group, "n1", "word of n1")
    world.run(for_ms=2 * mailboxes.GRACE_MS)
    assert world.registered("n1") == {1}
    world.start("n2")
    world.post(group, "n2", "word of n2")  # to the old address, before its mail is fetched
    world.run(lambda: all(world.has(name, "word", 2) for name in ("n0", "n1", "n2")), for_ms=120_000)
    assert all(world.has(name, "word", 2) for name in ("n0", "n1", "n2"))


def test_a_hidden_joiner_meets_members_that_have_changed(short_grace):
    """Their contacts in the membership events name the mailboxes from before."""
    world = Removing(5)
    group = world.found()
    for name in ("n1", "n2", "n3"):
        world.run_command(name, AcceptInvitation(world.invite(group), name))
        world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000)
    world.run(for_ms=10_000)
    world.remove("n3")
    world.run(for_ms=mailboxes.GRACE_MS)
    assert world.registered("n1") == world.registered("n2") == {1}
    world.run_command("n4", AcceptInvitation(world.invite(group), "n4"))
    world.run(lambda: bool(world.nodes["n4"].agent.groups), for_ms=60_000)
    world.everybody_says(group, ("n0", "n1", "n2", "n4"))
    assert world.known("n4", "n1") == world.known("n4", "n2") == 1
    for name in ("n1", "n2"):
        assert world.group("n4").links.relationships[world.group(name).me].established


class Refusing:
    """A mediator that registers only what it has, for `update` of the simulated one."""

    def __init__(self, mediator):
        self.mediator, self.refuses = mediator, False
        self.usual, mediator._update = mediator._update, self.update

    def update(self, message, me):
        if not self.refuses:
            return self.usual(message, me)
        there = self.mediator.mailboxes
        rows = [
            Changed(one.did, one.action, "success" if (one.did in there) == (one.action == "add") else "client_error")
            for one in read_update(message)
        ]
        return update_response(message, rows, self.mediator._random)


def test_a_mailbox_that_no_mediator_registers_is_not_used():
    world = Removing()
    group = world.everybody()
    refusing = Refusing(world.web.mediators["m0"])
    refusing.refuses = True
    world.remove("n3")
    assert world.mailbox().registering and world.known("n2") == 0 and world.registered() == {0}
    world.everybody_says(group, ("n0", "n1", "n2"))
    refusing.refuses = False
    world.web.cut("n1", "ws://m0.example/")
    world.run(for_ms=20_000)
    assert world.mailbox().number == 1 and world.known("n2") == 1
    world.everybody_says(group, ("n0", "n1", "n2"), "more")


def test_one_of_two_mediators_cannot_prevent_a_change():
    world = Removing(3, mediators=2, via={"n1": ("m0", "m1"), "n2": ("m0",)})
    world.everybody()
    Refusing(world.web.mediators["m1"]).refuses = True
    world.remove("n2")
    assert world.mailbox().number == 1
    assert [route.uri for route in mediator_mail.reach_of_member(world.group("n0"), world.group("n1").me).routes] == [
        "http://m0.example/"
    ]


def test_without_a_mediator_nothing_is_announced():
    world = Behind(4)
    group = world.everybody()
    world.run_command("n3", LeaveGroup(group))
    world.run(for_ms=60_000)
    assert world.group("n1").links.mailbox.number == 1 and not world.posted
