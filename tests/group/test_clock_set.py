"""A clock set wrong by a year: events stay acceptable and no timer waits for a year."""

import pytest
from msgspec.structs import replace

from tests.support.small_world import Small
from zerochat.agent import clock
from zerochat.agent.clock import Clock
from zerochat.agent.views.attention import Attention
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group import clock_changes
from zerochat.group.clock_changes import NEGLIGIBLE_MS
from zerochat.group.event_log import lamport
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.files import download
from zerochat.group.files.descriptor import File
from zerochat.group.inputs import LeaveGroup, SendPost, StepContext
from zerochat.group.links import peers
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.state import Download, FileEntry, PullRequest, ReinstatedPosts
from zerochat.group.state.sync import MissingRange
from zerochat.group.sync import acknowledgements, pull_requests
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import ReachBody
from zerochat.sim import SIMULATED_PACKERS, Faults, play_episode
from zerochat.sim.episode import CLOCK, JOIN, Action
from zerochat.sim.fault_schedule import FaultyWorld, crash_point
from zerochat.sim.initial_groups import build_world, initial_group_for

YEAR_MS = 365 * 24 * 3_600_000
STILL = Faults(loss=0, duplication=0, delay_ms_max=5)
SEED = 3


@pytest.fixture
def world():
    return FaultyWorld.fork(build_world(initial_group_for(SEED)), SEED, STILL)


def say(world, name, text="hello"):
    return world.run_command(name, SendPost(world.group(name).id, text)).result.id


def has(world, name, post):
    return any(row.id == post for row in world.nodes[name].log)


@pytest.mark.parametrize("by_ms", [YEAR_MS, -YEAR_MS, AHEAD_MS_MAX + 1])
def test_events_after_a_wrong_clock_change_are_accepted(world, by_ms):
    world.set_clock("n0", by_ms)
    post = say(world, "n0")
    answer = say(world, "n1")
    world.run(for_ms=2_000)
    assert has(world, "n1", post) and has(world, "n0", answer)
    assert abs(world.group("n0").log.lamport - world.now) < AHEAD_MS_MAX
    assert world.nodes["n0"].agent.clock_offset_ms == by_ms, "nobody agrees with the new time"


def test_a_corrected_clock_is_adopted_when_members_agree(world):
    world.set_clock("n0", -YEAR_MS)
    world.set_clock("n0", 0)
    assert world.nodes["n0"].agent.clock_offset_ms == 0, "it is what it was"
    world.machines["n0"].clock_offset_ms = world.machines["n0"].reported_offset_ms = (
        -2 * AHEAD_MS_MAX
    )  # wrong from the start
    world.set_clock("n0", 0)
    assert world.nodes["n0"].agent.clock_offset_ms == 2 * AHEAD_MS_MAX
    say(world, "n0")
    world.run(for_ms=5_000)
    assert world.nodes["n0"].agent.clock_offset_ms == 0


def clock_set(members, by_ms=YEAR_MS):
    """A transaction of a member whose clock was set, and the others."""
    world = Small(members)
    group = world.found()
    for name in list(world.nodes)[1:]:
        assert world.join(name, world.invite(group)).phase == "joined"
    context = StepContext(world.now + by_ms, world.rng.randbytes)
    tx = Transaction(world.nodes["n0"].agent, context, SIMULATED_PACKERS)
    clock_changes.on_clock_set(tx, by_ms)
    return tx, world.group("n0").others


def test_one_member_alone_confirms_no_clock_change():
    """Its time is wrong as well, or it lies; what it says again counts once."""
    tx, (one, other) = clock_set(3)
    for _ in range(3):
        lamport.confirm_clock(tx, one, tx.context.now)
    assert tx.agent.clock_offset_ms == YEAR_MS
    lamport.confirm_clock(tx, other, tx.now)
    assert tx.agent.clock_offset_ms == YEAR_MS, "it disagrees"
    again = Transaction(tx.agent, tx.context, SIMULATED_PACKERS)
    clock_changes.on_clock_set(again, 1_000)
    lamport.confirm_clock(again, other, again.context.now)
    assert again.agent.clock_offset_ms == YEAR_MS + 1_000, "the first has confirmed another time"
    lamport.confirm_clock(tx, other, tx.context.now)
    assert tx.agent.clock_offset_ms == 0 and not tx.agent.clock_confirmed_by


def test_in_a_group_of_two_the_other_confirms_a_clock_change():
    tx, (other,) = clock_set(2)
    lamport.confirm_clock(tx, other, tx.context.now)
    assert tx.agent.clock_offset_ms == 0


def test_a_lone_member_adopts_the_new_time_at_once(world):
    *_, outsider = world.nodes
    world.set_clock(outsider, YEAR_MS)
    assert world.machines[outsider].reported_offset_ms == YEAR_MS and world.nodes[outsider].agent.clock_offset_ms == 0


def test_a_leaving_member_confirms_no_wrong_clock(world):
    """Both clocks are set wrong at the same time, as by a wrong time zone, while one of them leaves."""
    for name in ("n0", "n1"):
        for other in {*world.nodes} - {"n0", "n1"}:
            world.cut([(name, other), (other, name)], 10_000)
    world.run_command("n1", LeaveGroup(world.group("n1").id))
    for name in ("n1", "n0"):
        world.set_clock(name, YEAR_MS)
    assert world.nodes["n1"].agent.clock_offset_ms == YEAR_MS
    world.run(for_ms=5_000)
    assert world.nodes["n0"].agent.clock_offset_ms == YEAR_MS


@pytest.mark.parametrize(
    ("at", "known", "older"),
    [(0, 1, True), (1, 1, False), (2, 1, False), (0, YEAR_MS, False), (YEAR_MS, YEAR_MS + 1, True)],
)
def test_states_after_the_correction_of_a_clock_count(at, known, older):
    assert lamport.is_older(at, known, now=1) == older


def test_a_member_that_was_ahead_is_reached_where_it_moves(world):
    group, member, said = world.group("n0"), world.group("n1").me, world.now
    before = reach_of_member(group, member)
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    for port, at in ((7001, said + YEAR_MS), (7002, said), (7003, said - 1), (7004, said + 1)):
        pair, queue = Endpoint("10.0.0.9", port), Endpoint("10.0.0.9", port + 100)
        peers.update_reach(tx, group.id, member, ReachBody(pair.tcp, queue.tcp, at))
        moved = reach_of_member(tx.group(group.id), member)
        assert moved != before and (moved.pair == pair) == (port != 7003)


def test_a_member_that_was_ahead_gets_what_its_older_copy_has_lost(world):
    group, member = world.group("n0"), world.group("n1").me
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    tx.update_acks(group.id, member, written_at=world.now + YEAR_MS)
    for after in (1, 1 + acknowledgements.REGRESSION_MS):
        tx.context = replace(tx.context, now=world.now + after)
        acknowledgements.record_regression(tx, group.id, member, group.view.checksum, 0, tx.now)
    assert tx.group(group.id).links.acked(member, group.me) == 0 < group.links.acked(member, group.me)


def test_a_minute_of_difference_is_tolerated(world):
    world.set_clock("n0", NEGLIGIBLE_MS)
    assert world.nodes["n0"].agent.clock_offset_ms == 0


def test_retransmission_continues_after_a_clock_correction(world):
    """The next process does not know that the last one used another clock."""
    world.reboot("n0", 240_000)
    world.run(for_ms=4_000)
    world.cut([("n0", "n1"), ("n1", "n0")], 1_000)
    post = say(world, "n0")
    world.run(for_ms=500)
    assert world.group("n0").links.peers[world.group("n1").me].retransmission.retry_at > world.now + 200_000
    world.reboot("n0", 0)
    world.run(for_ms=4 * acknowledgements.RETRY_MS)
    assert has(world, "n1", post)


@pytest.mark.parametrize("by_ms", [YEAR_MS, -YEAR_MS])
def test_a_clock_change_delays_and_hastens_nothing(world, by_ms):
    world.cut([("n0", "n1"), ("n1", "n0")], 1_000)
    say(world, "n0")
    before = world.group("n0").links.peers[world.group("n1").me].retransmission.retry_at
    world.set_clock("n0", by_ms)
    assert world.group("n0").links.peers[world.group("n1").me].retransmission.retry_at <= before
    post = say(world, "n0")
    world.run(for_ms=4 * acknowledgements.RETRY_MS)
    assert has(world, "n1", post)


def test_a_joiner_is_welcomed_despite_the_inviters_clock_change():
    """Seed 1543 of the first search: a welcome of a year ago counted as recent."""
    *names, outsider = build_world(initial_group_for(SEED)).nodes
    acts = [Action(1_212, JOIN, outsider, seed=1), Action(1_700, CLOCK, names[0], names[1], 1_500, seed=6)]
    for lot in range(8):
        world = play_episode(SEED, [acts[0], replace(acts[1], seed=6 + 7 * lot)])
        assert world.nodes[outsider].agent.groups


def test_timestamps_continue_after_a_clock_change_and_restart(world):
    world.set_clock("n0", YEAR_MS)
    world.power_off("n0", 100)
    world.run(for_ms=3_000)
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post)


def test_a_reboot_voids_the_clock_offset(world):
    """The disk is full when the process begins, and has room again before it is tried again to remember that."""
    world.set_clock("n0", -YEAR_MS)
    world.machines["n0"].full = True
    world.reboot("n0", 0)
    world.run(for_ms=3_000)
    world.machines["n0"].full = False
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post) and abs(world.group("n0").log.lamport - world.now) < AHEAD_MS_MAX


def test_a_clock_change_before_the_start_counts_from_the_start(world):
    """A clock change after the reboot is not forgotten, whatever was known before."""
    world.machines["n0"].full = True
    world.reboot("n0", 0)
    world.run(for_ms=1_600)
    assert world.machines["n0"].pending_start is not None
    world.set_clock("n0", YEAR_MS)
    world.machines["n0"].full = False
    world.run(for_ms=6_000)
    assert world.machines["n0"].pending_start is None and world.nodes["n0"].agent.clock_offset_ms == YEAR_MS
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post)


@pytest.mark.parametrize("full", [False, True])
def test_an_unrecorded_start_is_repeated_the_next_time(world, full):
    """The process dies before it is remembered that it has begun; the one before went by the clock as it was once."""
    world.set_clock("n0", -YEAR_MS)
    machine = world.machines["n0"]
    machine.full, machine.off_ms = full, 500
    if not full:
        machine.crash_seed = 0
        assert crash_point(machine.crash_seed, 0) == -1
    world.reboot("n0", 0)
    world.run(for_ms=1_100)
    if full:
        world.power_off("n0", 500)
        machine.full = False
    world.run(for_ms=1_000)
    assert not machine.off and world.nodes["n0"].agent.clock_offset_ms == 0
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post) and abs(world.group("n0").log.lamport - world.now) < AHEAD_MS_MAX


def test_no_deadline_of_another_clock_is_kept(world):
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    name = world.group("n0").id
    member, late = world.group("n1").me, world.now + YEAR_MS
    tx.update_retransmission(name, member, retry_at=late)
    tx.update_anti_entropy(name, member, sync_sent_at=late, view_answered_at=late)
    tx.update_acks(name, member, regressed_since=late)
    tx.update_exchange(name, member, answered_at=late)
    tx.update_sync(name, gaps={member: MissingRange(9, retry_at=late)})
    tx.update_trust(name, attestation_deadline=late)
    clock_changes.clamp_deadlines(tx)
    group, soon = tx.group(name), world.now + 10_000
    peer = group.links.peers[member]
    assert (
        max(
            peer.retransmission.retry_at,
            peer.anti_entropy.sync_sent_at,
            peer.anti_entropy.view_answered_at,
            peer.acks.regressed_since,
            peer.exchange.answered_at,
            group.trust.attestation_deadline,
        )
        < soon
    )
    assert group.sync.gaps[member].retry_at < soon


# --- noticing it ----------------------------------------------------------------------------------------------------


def test_deadlines_of_another_clock_are_capped(world):
    """A request made while the clock was ahead goes to another member when the clock is right again."""
    tx = Transaction(world.nodes["n1"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    (name,), far = tx.agent.groups, world.now + YEAR_MS
    member = world.group("n0").me
    haul = Download(member, 0, 1, 1, timeout_at=far, requested_at=far, since=far)
    holding = FileEntry(File("r" * 43, 1, "a file"), member, "e" * 43, world.now, state="getting", download=haul)
    unheard = {member: ReinstatedPosts({1: "e"}, 3, far)}
    tx.update_sync(name, pull_requests={member: PullRequest("t", (), far)}, reinstated_posts=unheard)
    tx.update_group(name, files={"f": holding})
    clock_changes.clamp_deadlines(tx)
    group = tx.group(name)
    assert group.sync.pull_requests[member].until <= world.now + pull_requests.TIMEOUT_MS
    assert group.files["f"].download.timeout_at <= world.now + download.TIMEOUT_MS
    assert group.sync.reinstated_posts[member].retry_at <= world.now
    assert max(group.files["f"].download.requested_at, group.files["f"].download.since) <= world.now


class Hands:
    """Two clocks that a test moves."""

    def __init__(self):
        self.wall, self.steady = 1_750_000_000.0, 1_000.0

    def pass_time(self, seconds, drift=0.0):
        self.wall += seconds + drift
        self.steady += seconds


@pytest.fixture
def hands():
    return Hands()


def clock_of(hands):
    return Clock(lambda: hands.wall, lambda: hands.steady)


def test_a_clock_step_is_reported_once_and_a_drift_never(hands):
    one = clock_of(hands)
    for _ in range(100):
        hands.pass_time(1, drift=0.0005)
        assert one.step_ms() == 0
    hands.wall += 3_600
    assert (one.step_ms(), one.step_ms()) == (3_600_000, 0)
    hands.wall -= 7_200
    assert one.step_ms() == -7_200_000
    assert one.now() == int(hands.wall * 1000)
    one.undo_step(-7_200_000)
    assert one.step_ms() == -7_200_000


def test_a_clock_step_between_processes_is_noticed(hands, monkeypatch):
    monkeypatch.setattr(clock, "_boot_id", lambda: "this-start")
    mark = clock_of(hands).mark
    hands.wall += 3_600
    later = clock_of(hands)
    assert later.restore(mark)
    assert later.step_ms() == 3_600_000
    monkeypatch.setattr(clock, "_boot_id", lambda: "another-start")
    anew = clock_of(hands)
    assert not anew.restore(mark)
    assert anew.step_ms() == 0, "how long the machine was off nobody knows"
    assert not anew.restore(b"")
    assert anew.step_ms() == 0


@pytest.mark.parametrize(
    ("leap_ms", "told"),
    [
        (YEAR_MS, "forward by 365 days"),
        (-YEAR_MS, "back by 365 days"),
        (3 * 3_600_000, "forward by 3 hours"),
        (-61_000, "back by 1 minute "),
        (10 * 60_000, "forward by 10 minutes"),
    ],
)
def test_the_user_is_notified_of_a_wrong_clock(tmp_path, leap_ms, told):
    sentence = Attention(tmp_path).sentence(stale=False, banned=False, leap_ms=leap_ms)
    assert told in sentence and "too few members have confirmed" in sentence
