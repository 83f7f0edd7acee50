"""Retransmission after silence, restored backups and clock changes; a lone member stays silent."""

import pytest
from msgspec.structs import replace

from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import CONTROL, load_event
from zerochat.group.inputs import (
    AcceptInvitation,
    ClockSet,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    RotateDid,
    SendPost,
    StepContext,
)
from zerochat.group.membership import Policy
from zerochat.group.sync import acknowledgements, history_requests
from zerochat.group.sync.backfill import NO_PEER_MS
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SyncBody, read_body
from zerochat.sim import SIMULATED_PACKERS, Faults, play_byzantine, play_episode
from zerochat.sim.world import World

MINUTE = 60_000


class Lines(World):
    """Members on lines without faults, of which a test cuts those that it likes."""

    def __init__(self, members, keys="pairwise-multi"):
        self.cut, self.ahead, self.gone = set(), {}, set()
        super().__init__(1, members, Faults(loss=0, duplication=0, delay_ms_max=20))
        self.run_command("n0", CreateGroup("friends", "n0", self.envelope, keys, Policy(), "acks"))

    def _clock(self, node):
        return self.now + self.ahead.get(node.name, 0)

    def _frame(self, name, stimulus):
        if (self.nodes[name].connected.get(stimulus.link, ""), name) not in self.cut:
            super()._frame(name, stimulus)

    def process(self, name, stimulus):
        if name not in self.gone:
            super().process(name, stimulus)

    def join(self, name, by="n0"):
        invitation = self.run_command(by, CreateInvitation(self.group(by).id, 86_400, 1)).result.invitation
        self.run_command(name, AcceptInvitation(invitation, name, "writer"))

    def bring_in(self, *names):
        for name in names:
            self.join(name)
            self.run(for_ms=MINUTE)

    def post(self, name, text):
        return self.run_command(name, SendPost(self.group(name).id, text)).result.id

    def has(self, name, post):
        """Whether it is there, and by whose word."""
        return [bool(row.relayed_by) for row in self.nodes[name].log if row.id == post]

    def goes(self, name):
        """For ever."""
        self.stop(name)
        self.gone.add(name)


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single", "sender-key"])
def test_did_rotation_works_after_a_small_clock_setback(keys):
    """The peer ignores messages with an earlier time."""
    world = Lines(2, keys)
    world.bring_in("n1")
    peer = f"friends/{world.group('n1').me}"
    world.run_command("n0", RotateDid(peer))
    world.run(for_ms=5_000)
    world.ahead["n0"] = -30_000
    world.process("n0", ClockSet(-30_000))
    world.run(for_ms=5_000)
    world.run_command("n0", RotateDid(peer))
    world.run(for_ms=5_000)
    post = world.post("n0", "hello")
    assert world.run(lambda: world.has("n1", post) == [False], for_ms=10 * MINUTE)
    world.ahead["n0"] = -60_000
    world.process("n0", ClockSet(-30_000))
    world.run_command("n0", LeaveGroup(world.group("n0").id))
    assert world.run(lambda: len(world.group("n1").view.members) == 1, for_ms=10 * MINUTE)


def test_an_announced_chain_start_triggers_requests():
    """n2 learns that n1 has more of n0 before n0 announces where its chain begins for n2; then n0 is gone for good."""
    world = Lines(3)
    world.bring_in("n1")
    world.cut = {("n0", "n2")}
    world.join("n2", "n1")
    n0, n1 = world.group("n0").me, world.group("n1").me
    entered = world.run(
        lambda: bool(world.nodes["n2"].agent.groups) and world.group("n2").me in world.group("n0").view.members,
        for_ms=MINUTE,
    )
    assert entered
    post = world.post("n0", "hello")
    peers = world.group("n2").links.peers
    assert world.run(
        lambda: n1 in (links := world.group("n2").links).peers and links.acked(n1, n0) >= world.group("n0").seq,
        for_ms=2 * MINUTE,
    ), peers
    world.run(for_ms=20_000)
    world.cut = set()
    assert world.run(
        lambda: n0 in world.group("n2").log.chains and not world.group("n2").chain(n0).is_unannounced, for_ms=MINUTE
    )
    world.goes("n0")
    assert not world.has("n2", post) and history_requests.missing_ends(world.group("n2"))
    assert world.run(lambda: bool(world.has("n2", post)), for_ms=5 * MINUTE)


def test_recovered_events_are_confirmed_for_all_members():
    world = Lines(3)
    world.bring_in("n1", "n2")
    node = world.nodes["n1"]
    world.post("n1", "one")
    world.run(for_ms=10_000)
    agent, log = node.agent, list(node.log)
    world.cut = {("n0", "n1"), ("n1", "n0")}
    post = world.post("n1", "two")
    assert world.run(lambda: world.has("n0", post) == [True], for_ms=10 * MINUTE), "n2 has handed it over"
    world.stop("n1")
    node.agent, node.log = agent, log
    node.notified = {name: None for name in node.notified if name in {row.id for row in log}}
    world.cut = set()
    world.start("n1", restored=True)
    assert world.run(lambda: world.has("n0", post) == [False], for_ms=5 * MINUTE)
    group = world.group("n1")
    assert world.run(lambda: world.group("n1").links.acked(world.group("n0").me, group.me) == 2, for_ms=5 * MINUTE)


@pytest.mark.parametrize("seed", [8, 279, 348, 391, 1447])
def test_refuted_backfill_is_fetched_again_soon(seed):
    """The backfilled events are not the author's, and the next recheck was to be in five minutes."""
    world = play_episode(seed)
    world.run(for_ms=2 * MINUTE)
    for node in world.nodes.values():
        kept = {row.id for row in node.log}
        assert not [row for row in node.refuted if row.type not in CONTROL and row.id not in kept]


def test_a_lone_member_writes_nothing_while_it_waits():
    world = Lines(2)
    world.join("n1")
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=MINUTE)
    world.run_command("n0", LeaveGroup(world.group("n0").id))
    world.run(for_ms=10 * MINUTE)
    before, steps = world.group("n1"), world.steps
    world.run(for_ms=60 * MINUTE)
    assert world.group("n1") is before
    assert world.steps - steps <= 60 * MINUTE // NO_PEER_MS + 120


def test_a_leaving_member_waits_for_a_connected_recipient():
    """n1 and n3 are offline while n0 admits n2, and leaves: n2 alone has received it, and no member would accept n2."""
    world = Lines(4)
    world.bring_in("n1", "n3")
    away = {"n1", "n3"}
    for name in away:
        world.goes(name)
    post = world.post("n0", "for all")
    world.join("n2")
    world.run(for_ms=10 * MINUTE)
    world.run_command("n0", LeaveGroup(world.group("n0").id))
    world.run(for_ms=10 * MINUTE)
    assert world.group("n0").state == "leaving"
    world.gone = {"n3"}
    world.start("n1")
    assert world.run(lambda: world.group("n0").state == "left", for_ms=10 * MINUTE)
    world.gone = set()
    world.start("n3")
    stay = ("n1", "n2", "n3")
    assert world.run(lambda: len({world.group(name).view.checksum for name in stay}) == 1, for_ms=60 * MINUTE)
    assert len(world.group("n1").view.members) == 3
    assert world.run(lambda: all(world.has(name, post) for name in stay), for_ms=60 * MINUTE)


def test_a_leaver_counts_no_end_of_its_chain_without_the_rest():
    """A relayed leave event is the end of its author's chain, whose posts have not arrived."""
    world = Lines(2)
    world.bring_in("n1")
    world.cut = {("n0", "n1")}
    world.post("n0", "the last words")
    world.run_command("n0", LeaveGroup(world.group("n0").id))
    group, member = world.group("n0"), world.group("n1").me
    here, there = (
        Transaction(world.nodes[name].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
        for name in ("n0", "n1")
    )
    message = acknowledgements.sync_message(there, group.id, group.me)
    message = replace(message, body={**message.body, "former": [[group.me, group.seq]]})
    before = group.links.acked(member, group.me)
    receiving.receive_sync(here, group.id, member, read_body(message, SyncBody))
    assert here.group(group.id).links.acked(member, group.me) == before < group.seq


def test_a_later_members_chain_begins_at_its_first_event():
    """Byzantine seed 106: a liar relayed the leave of a former member, and nothing before it was requested any more, in
    a group without history for new members."""
    world = Lines(4)
    world.bring_in("n1", "n2", "n3")
    world.cut = {("n3", "n1")}
    posts = [world.post("n3", text) for text in ("one", "two")]
    world.run(for_ms=5_000)
    author, n1 = world.group("n3").me, world.group("n1")
    last = next(load_event(row.record) for row in world.nodes["n3"].log if row.id == posts[-1])
    context = StepContext(world.now, world.rng.randbytes)
    fresh = replace(n1, log=replace(n1.log, chains={did: one for did, one in n1.log.chains.items() if did != author}))
    agent = world.nodes["n1"].agent
    tx = Transaction(replace(agent, groups={**agent.groups, n1.id: fresh}), context, SIMULATED_PACKERS)
    receiving.receive_relayed(tx, n1.id, world.group("n2").me, last)
    assert tx.group(n1.id).chain(author).seq == 0 and not tx.effects
    assert play_byzantine(106)


def test_an_invitation_survives_a_restart_of_its_inviter():
    world = Lines(2)
    made = world.run_command("n0", CreateInvitation(world.group("n0").id, 86_400, 1)).result.invitation
    world.restart("n0")
    world.run(for_ms=5_000)
    world.run_command("n1", AcceptInvitation(made, "n1", "writer"))
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=MINUTE)


def test_a_restart_does_not_prolong_leaving():
    """n1 has received it, and n2 is gone for good."""
    world = Lines(3)
    world.bring_in("n1", "n2")
    world.goes("n2")
    world.run_command("n0", LeaveGroup(world.group("n0").id))
    world.run(for_ms=2_000)
    assert world.group("n0").state == "leaving"
    world.restart("n0")
    assert world.run(lambda: world.group("n0").state == "left", for_ms=2 * MINUTE)


def test_a_backfill_ends_only_with_all_events():
    world = Lines(3)
    world.bring_in("n1")
    posts = [world.post("n0", f"{number} " + "x" * 2_000) for number in range(60)]
    posts += [world.post("n1", f"{number} " + "y" * 2_000) for number in range(60)]
    world.run(for_ms=MINUTE)
    world.join("n2")

    def done():
        group = next(iter(world.nodes["n2"].agent.groups.values()), None)
        return group is not None and group.sync.backfill is not None and group.sync.backfill.done

    assert world.run(done, for_ms=10 * MINUTE, every_ms=1)
    assert all(world.has("n2", post) for post in posts)
