"""Files between processes that are killed, over connections that are cut, slow, or change bytes: in the end the file is
there, and it is the right one."""

import hashlib
from random import Random

import pytest

from tests.agent.test_files_agents import write
from tests.support.chaos_proxy import Chaos
from tests.support.machines import GROUP, machines, meet, until
from zerochat.agent.files.blobs import PLACE_BYTES
from zerochat.group.files.hash_tree import PART_BYTES

SIZE = 6 << 20
CUT_S = 0.7


@pytest.fixture
def chaos():
    with Chaos() as proxy:
        yield proxy
        assert not proxy.failures, proxy.failures


def the_file(machine):
    found = list(machine.client.files(GROUP))
    return found[0].file if found else None


def offered(alice, bob, path):
    alice.client.attach(GROUP, [str(path)])
    until(lambda: the_file(bob), "the offer")
    bob.client.get(GROUP, path.name)


def right(machine, data, folder):
    until(lambda: the_file(machine).state == "here", "the file")
    saved = machine.client.save(GROUP, the_file(machine).id, str(folder / f"from-{machine.name}"))
    assert saved.sha256 == hashlib.sha256(data).hexdigest()


def on_disk(machine):
    return sum(one.stat().st_size for one in machine.places.files.rglob("*.part"))


@pytest.mark.slow
def test_kill_9_again_and_again_loses_nothing_that_counted(tmp_path, chaos):
    path, data = write(tmp_path, "film.mkv", SIZE)
    dice = Random(3)
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        for way in chaos.ways("alice", "bob"):
            way.bytes_per_s = 2 << 20
        offered(alice, bob, path)
        had = 0
        for _ in range(3):
            wanted = had + dice.randrange(400_000, 1_000_000)
            until(lambda wanted=wanted: the_file(bob).have >= wanted, "some more of it")
            counted = the_file(bob).have
            bob.kill()
            assert on_disk(bob) >= counted // PART_BYTES * PLACE_BYTES, "what counted is on disk"
            chaos.part("alice", "bob")
            bob.start()
            file = the_file(bob)
            assert file.state == "getting" and file.have >= counted, "it begins where it was"
            had = file.have
            chaos.join("alice", "bob")
        alice.kill()
        alice.start()
        right(bob, data, tmp_path)


@pytest.mark.chaos
def test_it_comes_over_connections_that_are_cut_all_the_time(tmp_path, chaos):
    path, data = write(tmp_path, "film.mkv", SIZE)
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        for way in chaos.ways("alice", "bob"):
            way.bytes_per_s = 4 << 20
        chaos.cut_every_s = CUT_S
        offered(alice, bob, path)
        until(lambda: the_file(bob).have > SIZE // 2, "half of it")
        assert chaos.cuts
        chaos.cut_every_s = 0.0
        right(bob, data, tmp_path)


@pytest.mark.chaos
def test_somebody_else_gives_it_when_one_goes_silent(tmp_path, chaos):
    path, data = write(tmp_path, "film.mkv", SIZE)
    with machines(tmp_path, ("alice", "bob", "carol"), chaos) as everybody:
        alice, bob, carol = everybody
        meet(alice, bob, carol)
        offered(alice, bob, path)
        until(lambda: the_file(bob).state == "here", "the file")
        for way in (*chaos.ways("alice", "carol"),):
            way.bytes_per_s = 1 << 20
        carol.client.get(GROUP, path.name)
        until(lambda: the_file(carol).have > 500_000, "some of it")
        assert the_file(carol).from_.nick == "alice"
        alice.stop()
        try:
            until(
                lambda: (one := the_file(carol)).state == "here" or (one.from_ and one.from_.nick == "bob"),
                "asking bob",
            )
            right(carol, data, tmp_path)
        finally:
            alice.go_on()


@pytest.mark.slow
def test_chat_comes_through_on_a_slow_line_while_a_file_does(tmp_path, chaos):
    path, _ = write(tmp_path, "film.mkv", SIZE)
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        for way in chaos.ways("alice", "bob"):
            way.bytes_per_s = 128 << 10
        offered(alice, bob, path)
        until(lambda: the_file(bob).have > 300_000, "some of it")
        for number in range(5):
            report = alice.client.wait(GROUP, alice.client.send(GROUP, f"hello {number}").id, timeout_s=20)
            assert report.complete
            assert bob.client.wait(GROUP, bob.client.send(GROUP, f"and {number}").id, timeout_s=20).complete
        assert the_file(bob).state == "getting", "it is still coming"
