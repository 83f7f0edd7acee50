"""The wide-area harness: its line, its cleanup, and its arithmetic.

A line needs root, /dev/net/tun and a compiler; without them the tests that create one are skipped.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analytics import thesis
from benchmarks import join, ring_wan, wan, wide
from benchmarks.join import Join
from benchmarks.wide import line as lines
from benchmarks.wide.agents import Agents, grow
from benchmarks.wide.bare import Bare
from benchmarks.wide.line import Line, NoLine, ping_ms
from benchmarks.wide.thesis import JOINED_MS, RTT_MS, TESTER, member_names, one_way_ms, slowest_ms

needs_line = pytest.mark.skipif(bool(lines.why_not()), reason=lines.why_not() or "a line can be made")


def test_names_and_places_of_members():
    assert member_names(7) == ["alice", "bob", "carol", "david", "eve", "alice-1", "bob-1"]
    assert one_way_ms(6)["alice-1"] == one_way_ms(6)["alice"] == 72.5
    assert one_way_ms(6)[TESTER] == 0
    assert [slowest_ms(size) for size in (1, 2, 4, 32)] == [145, 145, 305, 305]


def test_every_case_has_its_published_figure():
    assert set(JOINED_MS) == set(join.SIZES)
    published = {
        (keys, size, batch): thesis.whole_ms(keys, size, batch)
        for keys in wan.KEYS.values()
        for size in wan.SIZES
        for batch in thesis.BATCHES
    }
    assert [case for case, figure in published.items() if figure is None] == [("pairwise-single", 16, 100)]
    assert all(thesis.whole_ms("pairwise-single", 1, batch) for batch in wan.ONE_MEMBER)
    assert not any(thesis.whole_ms(keys, 2, 1000) for keys in wan.KEYS.values())


def test_the_pings_of_the_thesis_have_a_handshake_in_three():
    assert list(thesis.PING_MS) == list(RTT_MS)
    assert all(abs(thesis.PING_MS[host] * 3 / 4 - RTT_MS[host]) <= 1 for host in RTT_MS)


@pytest.mark.parametrize(("messages", "rounds"), [(1, 1), (16, 1), (17, 2), (30, 2), (100, 3), (200, 4)])
def test_how_many_rounds_slow_start_takes(messages, rounds):
    assert wide._slow_start_rounds(messages) == rounds


def test_the_phases_of_a_join_are_the_whole_join():
    began = {"dialling": 0.0, "exchanging": 5.0, "asking": 6.5, "welcomed": 8.0, "connecting": 9.0, "joined": 11.0}
    nowhere: Any = None
    whole = Join(began, whole=True, seat=nowhere)
    assert whole.phase_ms() == {"dialling": 5.0, "exchanging": 1.5, "asking": 1.5, "welcomed": 3.0}
    assert (whole.from_nothing, whole.from_request) == (11.0, 4.5)
    passed_over = Join({"dialling": 0.0, "exchanging": 5.0, "joined": 7.0}, whole=True, seat=nowhere)
    assert passed_over.phase_ms() == {"dialling": 5.0, "exchanging": 2.0, "asking": 0.0, "welcomed": 0.0}


@pytest.mark.parametrize("area", [wan, join, ring_wan, wide])
def test_without_the_means_every_case_is_missing_with_the_reason(area, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    report = area.measure(quick=True)
    assert not report.rows
    assert len(report.missing) >= 2
    assert all("only root" in one for one in report.missing)


def test_a_line_that_cannot_be_created_explains_why(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoLine):
        Line({"near": 0.0})


@needs_line
def test_a_packet_takes_the_way_of_both_hosts():
    with Line({"near": 0.0, "far": 10.0, "farther": 15.0}) as line:
        near, far, farther = line.hosts.values()
        assert line.rtt_ms("far", "farther") == 50
        # Never early; how late depends on the machine.
        assert min(ping_ms(near, far.address, count=2)) >= 20
        assert min(ping_ms(far, farther.address, count=2)) >= 50
    assert line.carried is not None
    assert line.carried.carried >= 8
    assert line.carried.dropped == 0


@needs_line
def test_tcp_between_hosts_and_two_lines_at_once():
    with Line({"near": 0.0, "far": 1.0}) as one, Line({"near": 0.0, "far": 1.0}) as other:
        for line in (one, other):  # of the same addresses, and they do not meet
            near, far = line.hosts.values()
            listener = far.call(socket.create_server, (far.address, 4242))
            wire = near.call(socket.create_connection, (far.address, 4242), 10)
            taken, (address, _) = listener.accept()
            assert address == near.address
            wire.sendall(b"there")
            assert taken.recv(16) == b"there"
            for end in (wire, taken, listener):
                end.close()


@needs_line
def test_a_closed_line_leaves_nothing_behind():
    with pytest.raises(KeyboardInterrupt), Line({"near": 0.0, "far": 1.0}) as line:  # noqa: PT012  # all of it is needed
        process = line.hosts["far"].start(["sleep", "600"], stdin=subprocess.DEVNULL)
        inside = line.hosts["far"].call(Path("/proc/thread-self/ns/net").readlink)
        assert inside != Path("/proc/self/ns/net").readlink()
        assert Path(f"/proc/{process.pid}/ns/net").readlink() == inside
        raise KeyboardInterrupt
    assert process.wait(10) < 0  # nobody had to end it
    assert line.carried is not None
    for host in line.hosts.values():
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(host.device)


@pytest.mark.slow
@needs_line
def test_a_real_join_over_a_short_line():
    with Line({TESTER: 0.0, "alice": 1.0, "bob": 1.0}) as line, Agents(line) as agents:
        alice, bob = agents.start("alice"), agents.start("bob")
        group = alice.client.create_group("hikers").id
        grow(group, alice, [bob], 2)
        (found,) = join.join_at_once(group, [alice, bob], [agents.start(TESTER)])
        assert found.whole
        assert next(iter(found.began_ms)) == "dialling"
        assert sum(found.phase_ms().values()) + found.began_ms["dialling"] == pytest.approx(found.from_nothing)
        assert 0 < found.from_request < found.from_nothing and found.busy_s > 0
        missing: list[str] = []
        (acquainted,) = join.join_acquainted(agents, [alice, bob], 1, missing)
        assert acquainted.whole and not missing
        with Bare(line.hosts["alice"], [line.hosts["bob"]]) as bare:
            case = wan.burst(line, group, alice, [bob], 3, bare)
        assert case.bare_ms >= line.rtt_ms("alice", "bob") / 2
        assert case.arrived == case.of == 3
