"""What nobody says again by itself, and has to come all the same: after it is known what is missing, after a backup,
after a clock that was set back a little; and whoever is alone is silent."""

import pytest
from msgspec.structs import replace

from zerochat.group.event_log import log
from zerochat.group.event_log.event import CONTROL, load_event
from zerochat.group.inputs import (
    AcceptInvitation,
    ClockSet,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    Moment,
    RotateDid,
    SendPost,
)
from zerochat.group.membership import Policy
from zerochat.group.sync import history_requests
from zerochat.group.sync.backfill import NOBODY_MS
from zerochat.group.transaction import Turn
from zerochat.sim import SIMULATED_PACKERS, Faults, play_byzantine, play_episode
from zerochat.sim.world import World

MINUTE = 60_000


class Lines(World):
    """Members on lines without faults, of which a test cuts those that it likes."""

    def __init__(self, members, keys="pairwise-multi"):
        self.cut, self.ahead, self.gone = set(), {}, set()
        super().__init__(1, members, Faults(loss=0, duplication=0, delay_ms_max=20))
        self.ask("n0", CreateGroup("friends", "n0", self.envelope, keys, Policy(), "acks"))

    def _clock(self, node):
        return self.now + self.ahead.get(node.name, 0)

    def _frame(self, name, stimulus):
        if (self.nodes[name].connected.get(stimulus.link, ""), name) not in self.cut:
            super()._frame(name, stimulus)

    def hear(self, name, stimulus):
        if name not in self.gone:
            super().hear(name, stimulus)

    def join(self, name, by="n0"):
        invitation = self.ask(by, CreateInvitation(self.group(by).id, 86_400, 1)).result.invitation
        self.ask(name, AcceptInvitation(invitation, name, "writer"))

    def bring_in(self, *names):
        for name in names:
            self.join(name)
            self.run(for_ms=MINUTE)

    def post(self, name, text):
        return self.ask(name, SendPost(self.group(name).id, text)).result.id

    def has(self, name, post):
        """Whether it is there, and by whose word."""
        return [bool(row.vouched) for row in self.nodes[name].log if row.id == post]

    def goes(self, name):
        """For good."""
        self.stop(name)
        self.gone.add(name)


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single", "sender-key"])
def test_a_did_is_rotated_again_after_the_clock_was_set_back_a_little(keys):
    """The peer takes no word for newer that says an earlier time."""
    world = Lines(2, keys)
    world.bring_in("n1")
    peer = f"friends/{world.group('n1').me}"
    world.ask("n0", RotateDid(peer))
    world.run(for_ms=5_000)
    world.ahead["n0"] = -30_000
    world.hear("n0", ClockSet(-30_000))
    world.run(for_ms=5_000)
    world.ask("n0", RotateDid(peer))
    world.run(for_ms=5_000)
    post = world.post("n0", "hello")
    assert world.run(lambda: world.has("n1", post) == [False], for_ms=10 * MINUTE)
    world.ahead["n0"] = -60_000
    world.hear("n0", ClockSet(-30_000))
    world.ask("n0", LeaveGroup(world.group("n0").id))
    assert world.run(lambda: len(world.group("n1").view.members) == 1, for_ms=10 * MINUTE)


def test_what_is_missing_once_its_author_has_told_where_it_begins_is_asked_for():
    """n2 knows that n1 has more of n0 before n0 tells from where on that is for it; then n0 is gone for good."""
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
    peers = world.group("n2").peers
    assert world.run(
        lambda: n1 in (peers := world.group("n2").peers) and peers[n1].acked.get(n0, 0) >= world.group("n0").seq,
        for_ms=2 * MINUTE,
    ), peers
    world.run(for_ms=20_000)
    world.cut = set()
    assert world.run(lambda: n0 in world.group("n2").chains and not world.group("n2").chain(n0).untold, for_ms=MINUTE)
    world.goes("n0")
    assert not world.has("n2", post) and history_requests.lacking(world.group("n2"))
    assert world.run(lambda: bool(world.has("n2", post)), for_ms=5 * MINUTE)


def test_what_a_restored_profile_has_regained_is_its_own_word_for_everybody():
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
    node.told = {name: None for name in node.told if name in {row.id for row in log}}
    world.cut = set()
    world.start("n1", restored=True)
    assert world.run(lambda: world.has("n0", post) == [False], for_ms=5 * MINUTE)
    group = world.group("n1")
    assert world.run(lambda: world.group("n1").peers[world.group("n0").me].acked.get(group.me) == 2, for_ms=5 * MINUTE)


@pytest.mark.parametrize("seed", [8, 279, 348, 391, 1447])
def test_a_history_that_is_taken_back_is_there_again_soon(seed):
    """What was fetched is not what its author says, and the next look was to be in five minutes."""
    world = play_episode(seed)
    world.run(for_ms=2 * MINUTE)
    for node in world.nodes.values():
        kept = {row.id for row in node.log}
        assert not [row for row in node.refuted if row.type not in CONTROL and row.id not in kept]


def test_whoever_is_alone_writes_nothing_down_while_it_waits_for_somebody():
    world = Lines(2)
    world.join("n1")
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=MINUTE)
    world.ask("n0", LeaveGroup(world.group("n0").id))
    world.run(for_ms=10 * MINUTE)
    before, steps = world.group("n1"), world.steps
    world.run(for_ms=60 * MINUTE)
    assert world.group("n1") is before
    assert world.steps - steps <= 60 * MINUTE // NOBODY_MS + 120


def test_whoever_leaves_stays_until_somebody_has_heard_it_whom_the_others_know():
    """n1 and n3 are off while n0 lets n2 in, and leaves: n2 alone has heard it, and nobody would listen to n2."""
    world = Lines(4)
    world.bring_in("n1", "n3")
    away = {"n1", "n3"}
    for name in away:
        world.goes(name)
    post = world.post("n0", "for all")
    world.join("n2")
    world.run(for_ms=10 * MINUTE)
    world.ask("n0", LeaveGroup(world.group("n0").id))
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


def test_what_somebody_said_who_came_after_us_begins_at_its_beginning_whatever_is_handed_over_first():
    """Byzantine seed 106: a liar handed over the last word of somebody who had left, and nothing before it was asked
    for any more, in a group whose newcomers are given no history."""
    world = Lines(4)
    world.bring_in("n1", "n2", "n3")
    world.cut = {("n3", "n1")}
    posts = [world.post("n3", text) for text in ("one", "two")]
    world.run(for_ms=5_000)
    author, n1 = world.group("n3").me, world.group("n1")
    last = next(load_event(row.record) for row in world.nodes["n3"].log if row.id == posts[-1])
    moment = Moment(world.now, world.dice.randbytes)
    fresh = replace(n1, chains={did: one for did, one in n1.chains.items() if did != author})
    agent = world.nodes["n1"].agent
    turn = Turn(replace(agent, groups={**agent.groups, n1.id: fresh}), moment, SIMULATED_PACKERS)
    log.hear_shared(turn, n1.id, world.group("n2").me, last)
    assert turn.group(n1.id).chain(author).seq == 0 and not turn.effects
    assert play_byzantine(106)


def test_an_invitation_is_good_after_its_maker_has_started_again():
    world = Lines(2)
    made = world.ask("n0", CreateInvitation(world.group("n0").id, 86_400, 1)).result.invitation
    world.restart("n0")
    world.run(for_ms=5_000)
    world.ask("n1", AcceptInvitation(made, "n1", "writer"))
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=MINUTE)


def test_whoever_starts_again_while_it_leaves_goes_when_its_time_is_over():
    """n1 has heard it, and n2 is gone for good."""
    world = Lines(3)
    world.bring_in("n1", "n2")
    world.goes("n2")
    world.ask("n0", LeaveGroup(world.group("n0").id))
    world.run(for_ms=2_000)
    assert world.group("n0").state == "leaving"
    world.restart("n0")
    assert world.run(lambda: world.group("n0").state == "left", for_ms=2 * MINUTE)


def test_nothing_is_called_the_whole_history_while_there_is_more():
    world = Lines(3)
    world.bring_in("n1")
    posts = [world.post("n0", f"{number} " + "x" * 2_000) for number in range(60)]
    posts += [world.post("n1", f"{number} " + "y" * 2_000) for number in range(60)]
    world.run(for_ms=MINUTE)
    world.join("n2")

    def done():
        group = next(iter(world.nodes["n2"].agent.groups.values()), None)
        return group is not None and group.fetching is not None and group.fetching.done

    assert world.run(done, for_ms=10 * MINUTE, every_ms=1)
    assert all(world.has("n2", post) for post in posts)
