"""The arithmetic of the benchmarks."""

import importlib
import os
import pkgutil
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import benchmarks
from analytics.thesis import MESSAGE_B, STATE_B
from benchmarks import Figure, Row, any_goal, group, pane, take_turns
from benchmarks.ours import agents
from benchmarks.ours.core import HEALING, MULTI, SIGNED, SINGLE, Star, sample_text
from benchmarks.ours.terminals import NotPainted, Terminal
from benchmarks.peers import rooms, thesis
from benchmarks.peers.cpu import cpu_ms, session
from benchmarks.peers.rooms import Burst, NotHere
from benchmarks.peers.tcp import bytes_sent
from benchmarks.startup import has_frame

AREAS = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]


@pytest.mark.parametrize("area", AREAS)
def test_an_area_is_a_module_that_measures(area):
    module = importlib.import_module(f"benchmarks.{area}")
    assert module.__doc__
    assert callable(module.measure)


def test_a_row_of_json():
    row = Row(
        "case", "ms", "lower", Figure.of([3, 1, 2.00001]), Figure(1, 1, 1), "nothing", {"peer": Figure(9, 8, 10)}, 1.5
    )
    assert row.as_json() == {
        "case": "case",
        "unit": "ms",
        "better": "lower",
        "ours": 2.0,
        "ours_range": [1, 3],
        "peers": {"peer": 9},
        "peers_range": {"peer": [8, 10]},
        "absent": {},
        "floor": 1,
        "floor_range": [1, 1],
        "floor_is": "nothing",
        "goal": 1.5,
        "goal_is": "",
        "met": False,
    }


def test_an_unpainted_frame_counts_as_missing(capsys):
    def program(name):
        return SimpleNamespace(name=name, absent="")

    ours, fast, slow = map(program, ("ours", "fast", "slow"))
    course = pane.Course(ours, [fast, slow], 3)
    asked = []

    def measured(one):
        asked.append(one.name)
        if one is slow and asked.count("slow") > 1:
            raise NotPainted(["python", "slow.py"], "it", 120)
        return 5.0

    course.add("first", measured, 3)
    course.add("second", measured, 1, unit="MB")
    course.add("ours alone", measured, 1, only=[ours])
    first, second, alone = course.rows
    assert first.peers.keys() == second.peers.keys() == {"fast"} and asked.count("slow") == 2
    assert first.absent == second.absent == {"slow": "not painted in 120 s"} and not alone.absent
    assert "first: 1 of 3" in capsys.readouterr().err

    def stuck(one):
        raise NotPainted(["zerochat"], "it", 120)

    with pytest.raises(NotPainted, match="zerochat did not paint it within 120 s"):
        course.add("third", stuck, 1)


def test_no_peer_is_waited_for_when_the_time_is_over(monkeypatch):
    ours: Any = SimpleNamespace(name="ours", absent="")
    other: Any = SimpleNamespace(name="other", absent="")
    course = pane.Course(ours, [other], 1)
    monkeypatch.setattr(pane, "WHOLE_S_MAX", -60)
    course.add("case", lambda one: 1.0, 2)
    assert course.rows[0].ours.median == 1.0 and course.rows[0].absent == {"other": "no time left after -1 minutes"}


def test_a_silent_terminal_is_not_waited_for_longer():
    terminal = Terminal(["sleep", "60"], {"PATH": os.environ["PATH"]}, columns=80, lines=24)
    try:
        with pytest.raises(NotPainted, match="did not paint 'anything' within 0 s"):
            terminal.until(lambda: None, "anything", within_s=0.05)
    finally:
        terminal.close()


@pytest.mark.parametrize(
    ("better", "goal", "met"),
    [("lower", 2, True), ("lower", 1.9, False), ("higher", 2, True), ("higher", 2.1, False), ("lower", None, None)],
)
def test_when_a_goal_is_met(better, goal, met):
    assert Row("case", "ms", better, Figure(2, 0, 9), goal=goal).met is met


@pytest.mark.parametrize(("ours", "goal"), [(1, (2, "a")), (3, (4, "b")), (5, (4, "b"))])
def test_a_row_is_met_by_any_of_its_goals(ours, goal):
    assert any_goal(ours, {"a": 2, "b": 4}) == goal


def test_rounds_alternate_their_order():
    calls = []
    values = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert "".join(calls) == "ab" + "ab" + "ba"  # once to warm up, then there and back
    assert values == {"a": [None, None], "b": [None, None]}


@pytest.mark.parametrize(
    ("output", "painted"),
    [
        (b"Starting up, please wait", False),
        (b"\x1b[?1049h", False),
        (b"words before \x1b[?1049h\x1b[2J\x1b[1;1H  ", False),
        (b"\x1b[?1049h\x1b]0;a title\x07\x1bPquery\x1b\\\x1b[?2026$p\x1b(B\x1b[38;2;1;2;3m   ", False),
        (b"\x1b[?1049h\x1b]0;half a title", False),
        (b"\x1b[?1049h\x1b[1;1H\x1b[1mready", True),
        (b"\x1b[?1049h\x1b]0;a title\x07\x1b[Hready", True),
    ],
)
def test_output_that_counts_as_a_frame(output, painted):
    assert has_frame(output) is painted


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "published"), MESSAGE_B.items())
def test_the_thesis_envelopes_have_the_size_that_it_published(size, published):
    dice = random.Random(size)
    assert statistics.mode(len(thesis.authcrypt(bytes(size), dice)) for _ in range(151)) == published


@pytest.mark.parametrize(("members", "published"), STATE_B.items())
def test_thesis_state_messages_have_about_the_published_size(members, published):
    assert thesis.state(members, random.Random(members)) == pytest.approx(published, rel=0.012)


def test_the_bytes_of_the_real_core():
    star = Star(4)
    star.grow(2)
    before = star.nodes["n0"].agent
    posts = [star.post_bytes(sample_text(size)) for size in (1, 1000, 3000)]
    assert posts[0] > 100 and posts[1] > 1000 and posts[2] - posts[1] > 500
    alone = star.leave_bytes()
    assert star.nodes["n0"].agent is before  # it was only asked what it would say
    star.grow(4)
    assert star.leave_bytes() > alone > 100
    assert star.state_bytes() > 100


# --- group ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them")
def test_the_bytes_that_a_process_has_sent():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            before = bytes_sent(os.getpid())
            assert before is not None
            one.sendall(bytes(10_000))
            other.sendall(bytes(50))
            assert other.recv(10_000, socket.MSG_WAITALL) == bytes(10_000)
            assert one.recv(50, socket.MSG_WAITALL) == bytes(50)
            assert bytes_sent(os.getpid()) == before + 10_050


@pytest.mark.parametrize("way", ["floor", "floor-single", "lean", "lean-single", "lean-signed"])
def test_a_room_of_processes(way):
    with rooms.curve(way, 2, 300) as room:
        for batch in (1, 5):
            burst = room.burst(2, batch, 7)
            assert (burst.came, burst.wanted) == (2 * batch, 2 * batch)
            assert burst.ms > 0
            assert burst.sent is None or burst.sent / burst.wanted > 300


def test_a_room_that_does_not_get_ready():
    quits, talks = ([sys.executable, "-c", does] for does in ("pass", "input(print('hello', flush=True))"))
    with pytest.raises(NotHere, match="quits has ended"), rooms.program("quits", quits):
        pytest.fail("it has ended")
    with pytest.raises(NotHere, match="talks does not get ready"), rooms.program("talks", talks):
        pytest.fail("it says something else")


def test_programs_that_are_not_installed_are_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    missing = {}
    with ExitStack() as stack:
        assert group.entered(stack, "Tox", lambda: rooms.tox([1], tmp_path), missing) is None
        assert group.entered(stack, "IRC", lambda: rooms.irc(1, tmp_path), missing) is None
    assert list(missing) == ["Tox", "IRC"]
    assert "no C compiler" in capsys.readouterr().err


@pytest.mark.slow
def test_real_agents(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "TRIES_MAX", 1)
    said = []
    with agents.Agents(tmp_path, None, said.append) as group_of_two:
        group_of_two.grow(1)
        processes = [member.process for member in group_of_two._members]
        for batch in (1, 3):
            group_of_two.rest()
            burst = group_of_two.burst(batch, 7)
            assert (burst.came, burst.wanted) == (batch, batch)
    assert said and said[0].startswith("1 members")
    assert all(process.poll() is not None for process in processes)


def bursts_of(**ms):
    bursts = defaultdict(lambda: defaultdict(list))
    for name, took in ms.items():
        called = {"ours": MULTI, "lean": f"lean form, {MULTI}", "floor": f"floor, {MULTI}"}.get(name, name)
        bursts[called][8, 100] += [Burst(one, 800, 800, 80_000) for one in took]
    return bursts


@pytest.mark.parametrize(
    ("ms", "goal"),
    [
        ({"lean": [50], "Tox": [120]}, 100),
        ({"lean": [50], "Tox": [90]}, 90),
        ({"lean": [50]}, 100),
        ({"irc": [1]}, None),
    ],
)
def test_the_goal_of_a_burst(ms, goal):
    bursts = bursts_of(ours=[95, 99, 97], **ms)
    assert group.time_row(MULTI, (8, 100), bursts).goal == goal
    bursts[MULTI][4, 100] = bursts[MULTI][8, 100]
    assert group.time_row(MULTI, (4, 100), bursts).goal is None


def test_the_goal_of_signing_keys_is_half_the_pairwise_time():
    bursts = bursts_of(Tox=[90], ours=[200])
    bursts[SIGNED][8, 100] = [Burst(70, 800, 800, 9_000)]
    assert group.time_row(SIGNED, (8, 100), bursts).goal == 90
    bursts[SINGLE][8, 100] = [Burst(120, 800, 800, 9_000)]
    row = group.time_row(SIGNED, (8, 100), bursts)
    assert row.goal == 60 and not row.met and set(row.peers) == {MULTI, SINGLE, "Tox"}


def test_the_goal_of_keys_that_heal_is_the_time_of_sender_keys():
    bursts = bursts_of(Tox=[90], ours=[200])
    bursts[HEALING][8, 100] = [Burst(70, 800, 800, 9_000)]
    assert group.time_row(HEALING, (8, 100), bursts).goal == 90
    bursts[SIGNED][8, 100] = [Burst(60, 800, 800, 9_000)]
    row = group.time_row(HEALING, (8, 100), bursts)
    assert row.goal == 60 and not row.met and set(row.peers) == {MULTI, SIGNED, "Tox"}
    assert HEALING not in group.time_row(SIGNED, (8, 100), bursts).peers


def test_a_failing_program_is_missing_a_slow_one_runs_once(monkeypatch):
    asked, bursts, missing = [], bursts_of(), {}

    def slow(batch):
        asked.append(batch)
        return Burst(1.0, batch, batch)

    def breaks(batch):
        if batch == 100:
            raise NotHere("it has ended")
        return Burst(1.0, batch, batch)

    ways = {"slow": slow, "breaks": breaks}
    monkeypatch.setattr(group, "CASE_S_MAX", 0.0)
    group.in_turn(ways, 8, (1, 100), 3, bursts, missing)
    assert asked == [group.WARM_UP, 1, 100] and list(ways) == ["slow"]
    assert [len(bursts["slow"][8, batch]) for batch in (1, 100)] == [1, 1]
    assert bursts["breaks"][8, 1] and not bursts["breaks"][8, 100]
    assert list(missing) == ["breaks with 8 members (it has ended)"]


def test_one_lost_copy_is_not_all():
    bursts = bursts_of(ours=[95, 99, 97], floor=[3])
    times, sizes, copies = group.rows_of(MULTI, bursts)
    assert (times.ours.median, times.floor.median, sizes.ours.median) == (97, 3, 100)
    assert copies.met
    bursts[MULTI][8, 100].append(Burst(99, 799, 800, 80_000))
    assert not group.success_row(MULTI, 8, bursts).met


def test_the_goal_of_processor_time():
    bursts = bursts_of(ours=[95], lean=[50], Tox=[120])
    for name, used in ((MULTI, 800.0), (f"lean form, {MULTI}", 400.0), ("Tox", 1_600.0)):
        bursts[name][8, 100] = [replace(one, cpu_ms=used) for one in bursts[name][8, 100]]
    row = group.cpu_row(MULTI, (8, 100), bursts)
    assert (row.ours.median, row.peers["Tox"].median, row.goal, row.met) == (1.0, 2.0, 0.75, False)
    assert row in list(group.rows_of(MULTI, bursts))
    bursts["Tox"][8, 100] = [replace(one, cpu_ms=160.0) for one in bursts["Tox"][8, 100]]
    assert group.cpu_row(MULTI, (8, 100), bursts).goal == 0.2


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_processor_time_is_that_of_all_processes_of_a_session():
    program = "import os, time\nif os.fork() == 0:\n while True: pass\nprint('ready', flush=True)\ntime.sleep(60)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as leader:
        try:
            assert leader.stdout is not None and leader.stdout.readline() == b"ready\n"
            pids = session(leader.pid)
            assert len(pids) == 2 and leader.pid in pids
            first = cpu_ms(pids) or 0.0
            while (cpu_ms(pids) or 0.0) <= first + 5:
                time.sleep(0.01)
            assert sum(cpu_ms([pid]) or 0.0 for pid in pids if pid != leader.pid) >= 5, "the fork is the busy one"
        finally:
            os.killpg(leader.pid, signal.SIGKILL)
