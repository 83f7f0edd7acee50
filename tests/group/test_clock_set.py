"""Somebody sets the clock of a machine, by a year: what is said stays acceptable, and nothing waits for a year."""

import pytest
from msgspec.structs import replace

from zerochat.agent import clock
from zerochat.agent.clock import Clock
from zerochat.agent.views.attention import Attention
from zerochat.group import clock_changes
from zerochat.group.clock_changes import NEGLIGIBLE_MS
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.files import download
from zerochat.group.files.descriptor import File
from zerochat.group.inputs import LeaveGroup, Moment, SendPost
from zerochat.group.state import Errand, Haul, Holding, Unheard
from zerochat.group.state.sync import Need
from zerochat.group.sync import acknowledgements, pull_requests
from zerochat.group.transaction import Turn
from zerochat.sim import SIMULATED_PACKERS, Faults, play_episode
from zerochat.sim.episode import CLOCK, JOIN, Act
from zerochat.sim.fault_schedule import Ordeal, moment_of_death
from zerochat.sim.initial_groups import beginning_of, begun

YEAR_MS = 365 * 24 * 3_600_000
STILL = Faults(loss=0, duplication=0, delay_ms_max=5)
SEED = 3


@pytest.fixture
def world():
    return Ordeal.fork(begun(beginning_of(SEED)), SEED, STILL)


def say(world, name, text="hello"):
    return world.ask(name, SendPost(world.group(name).id, text)).result.id


def has(world, name, post):
    return any(row.id == post for row in world.nodes[name].log)


@pytest.mark.parametrize("by_ms", [YEAR_MS, -YEAR_MS, AHEAD_MS_MAX + 1])
def test_what_is_said_after_the_clock_was_set_wrong_is_accepted_at_once(world, by_ms):
    world.set_clock("n0", by_ms)
    post = say(world, "n0")
    answer = say(world, "n1")
    world.run(for_ms=2_000)
    assert has(world, "n1", post) and has(world, "n0", answer)
    assert abs(world.group("n0").lamport - world.now) < AHEAD_MS_MAX
    assert world.nodes["n0"].agent.leap == by_ms, "nobody agrees with the new time"


def test_a_clock_that_was_wrong_and_is_set_right_is_believed_when_a_member_agrees(world):
    world.set_clock("n0", -YEAR_MS)
    world.set_clock("n0", 0)
    assert world.nodes["n0"].agent.leap == 0, "it is what it was"
    world.machines["n0"].ahead_ms = world.machines["n0"].known_ms = -2 * AHEAD_MS_MAX  # wrong from the start
    world.set_clock("n0", 0)
    assert world.nodes["n0"].agent.leap == 2 * AHEAD_MS_MAX
    say(world, "n0")
    world.run(for_ms=5_000)
    assert world.nodes["n0"].agent.leap == 0


def test_whoever_is_alone_goes_by_the_new_time_at_once(world):
    *_, outsider = world.nodes
    world.set_clock(outsider, YEAR_MS)
    assert world.machines[outsider].known_ms == YEAR_MS and world.nodes[outsider].agent.leap == 0


def test_whoever_is_leaving_confirms_nobody_s_wrong_clock(world):
    """Both clocks are set wrong at the same time, as by a wrong time zone, while one of them leaves."""
    for name in ("n0", "n1"):
        for other in {*world.nodes} - {"n0", "n1"}:
            world.cut([(name, other), (other, name)], 10_000)
    world.ask("n1", LeaveGroup(world.group("n1").id))
    for name in ("n1", "n0"):
        world.set_clock(name, YEAR_MS)
    assert world.nodes["n1"].agent.leap == YEAR_MS
    world.run(for_ms=5_000)
    assert world.nodes["n0"].agent.leap == YEAR_MS


def test_a_minute_is_nothing(world):
    world.set_clock("n0", NEGLIGIBLE_MS)
    assert world.nodes["n0"].agent.leap == 0


def test_what_was_to_be_repeated_is_repeated_when_the_clock_is_right_again(world):
    """Nothing tells the next process that the last one went by another clock."""
    world.reboot("n0", 240_000)
    world.run(for_ms=4_000)
    world.cut([("n0", "n1"), ("n1", "n0")], 1_000)
    post = say(world, "n0")
    world.run(for_ms=500)
    assert world.group("n0").peers[world.group("n1").me].retry_at > world.now + 200_000
    world.reboot("n0", 0)
    world.run(for_ms=4 * acknowledgements.RETRY_MS)
    assert has(world, "n1", post)


@pytest.mark.parametrize("by_ms", [YEAR_MS, -YEAR_MS])
def test_nothing_is_put_off_and_nothing_comes_early_when_a_clock_is_set(world, by_ms):
    world.cut([("n0", "n1"), ("n1", "n0")], 1_000)
    say(world, "n0")
    before = world.group("n0").peers[world.group("n1").me].retry_at
    world.set_clock("n0", by_ms)
    assert world.group("n0").peers[world.group("n1").me].retry_at <= before
    post = say(world, "n0")
    world.run(for_ms=4 * acknowledgements.RETRY_MS)
    assert has(world, "n1", post)


def test_a_joiner_is_welcomed_though_the_clock_of_whoever_lets_it_in_was_wrong_meanwhile():
    """Seed 1543 of the first search: it was told for a year that it had just been welcomed."""
    *names, outsider = begun(beginning_of(SEED)).nodes
    acts = [Act(1_212, JOIN, outsider, lot=1), Act(1_700, CLOCK, names[0], names[1], 1_500, lot=6)]
    for lot in range(8):
        world = play_episode(SEED, [acts[0], replace(acts[1], lot=6 + 7 * lot)])
        assert world.nodes[outsider].agent.groups


def test_the_time_goes_on_as_before_over_a_restart_too(world):
    world.set_clock("n0", YEAR_MS)
    world.switch_off("n0", 100)
    world.run(for_ms=3_000)
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post)


def test_nothing_is_said_by_the_clock_of_the_machine_as_it_was_before_it_started_anew(world):
    """The disk is full when the process begins, and has room again before it is tried again to remember that."""
    world.set_clock("n0", -YEAR_MS)
    world.machines["n0"].full = True
    world.reboot("n0", 0)
    world.run(for_ms=3_000)
    world.machines["n0"].full = False
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post) and abs(world.group("n0").lamport - world.now) < AHEAD_MS_MAX


def test_a_clock_that_is_set_before_a_start_is_remembered_counts_from_that_start_on(world):
    """Whatever was known of the clock before the machine started anew, what it was set by since is not forgotten."""
    world.machines["n0"].full = True
    world.reboot("n0", 0)
    world.run(for_ms=1_600)
    assert world.machines["n0"].start is not None
    world.set_clock("n0", YEAR_MS)
    world.machines["n0"].full = False
    world.run(for_ms=6_000)
    assert world.machines["n0"].start is None and world.nodes["n0"].agent.leap == YEAR_MS
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post)


@pytest.mark.parametrize("full", [False, True])
def test_a_start_that_was_lost_is_a_start_anew_the_next_time(world, full):
    """The process dies before it is remembered that it has begun; the one before went by the clock as it was once."""
    world.set_clock("n0", -YEAR_MS)
    machine = world.machines["n0"]
    machine.full, machine.off_ms = full, 500
    if not full:
        machine.dies = 0
        assert moment_of_death(machine.dies, 0) == -1
    world.reboot("n0", 0)
    world.run(for_ms=1_100)
    if full:
        world.switch_off("n0", 500)
        machine.full = False
    world.run(for_ms=1_000)
    assert not machine.off and world.nodes["n0"].agent.leap == 0
    post = say(world, "n0")
    world.run(for_ms=3_000)
    assert has(world, "n1", post) and abs(world.group("n0").lamport - world.now) < AHEAD_MS_MAX


def test_no_deadline_of_another_clock_is_kept(world):
    turn = Turn(world.nodes["n0"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    name = world.group("n0").id
    member, late = world.group("n1").me, world.now + YEAR_MS
    turn.edit_peer(name, member, retry_at=late, asked_at=late, answered_at=late, less_at=late, offered_at=late)
    turn.edit(name, needs={member: Need(9, at=late)}, agree_by=late)
    clock_changes.settle(turn)
    group, soon = turn.group(name), world.now + 10_000
    peer = group.peers[member]
    assert max(peer.retry_at, peer.asked_at, peer.answered_at, peer.less_at, peer.offered_at, group.agree_by) < soon
    assert group.needs[member].at < soon


# --- noticing it ----------------------------------------------------------------------------------------------------


def test_nobody_is_waited_for_until_the_end_of_another_clocks_time(world):
    """What a member was asked for while the clock was ahead, somebody else is asked for when it is right again."""
    turn = Turn(world.nodes["n1"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    (name,), far = turn.agent.groups, world.now + YEAR_MS
    member = world.group("n0").me
    haul = Haul(member, 0, 1, 1, until=far, asked=far, since=far)
    holding = Holding(File("r" * 43, 1, "a file"), member, "e" * 43, world.now, "getting", haul=haul)
    unheard = {member: Unheard({1: "e"}, 3, far)}
    turn.edit(name, errands={member: Errand("t", (), far)}, files={"f": holding}, unheard=unheard)
    clock_changes.settle(turn)
    group = turn.group(name)
    assert group.errands[member].until <= world.now + pull_requests.PATIENCE_MS
    assert group.files["f"].haul.until <= world.now + download.PATIENCE_MS
    assert group.unheard[member].at <= world.now
    assert max(group.files["f"].haul.asked, group.files["f"].haul.since) <= world.now


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


def test_a_step_is_told_once_and_a_drift_never(hands):
    one = clock_of(hands)
    for _ in range(100):
        hands.pass_time(1, drift=0.0005)
        assert one.set_by() == 0
    hands.wall += 3_600
    assert (one.set_by(), one.set_by()) == (3_600_000, 0)
    hands.wall -= 7_200
    assert one.set_by() == -7_200_000
    assert one.now() == int(hands.wall * 1000)
    one.unset(-7_200_000)
    assert one.set_by() == -7_200_000


def test_a_step_while_no_process_was_there_is_noticed_by_the_next_one(hands, monkeypatch):
    monkeypatch.setattr(clock, "_boot", lambda: "this-start")
    mark = clock_of(hands).mark
    hands.wall += 3_600
    later = clock_of(hands)
    assert later.recall(mark)
    assert later.set_by() == 3_600_000
    monkeypatch.setattr(clock, "_boot", lambda: "another-start")
    anew = clock_of(hands)
    assert not anew.recall(mark)
    assert anew.set_by() == 0, "how long the machine was off nobody knows"
    assert not anew.recall(b"")
    assert anew.set_by() == 0


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
def test_a_person_is_told(tmp_path, leap_ms, told):
    sentence = Attention(tmp_path).sentence(older=False, shut_out=False, leap_ms=leap_ms)
    assert told in sentence and "no member has confirmed" in sentence
