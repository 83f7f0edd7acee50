"""Files between killed processes over cut, slow or corrupting connections arrive unchanged."""

import hashlib
from random import Random

import pytest

from tests.support.chaos_proxy import Chaos
from tests.support.machines import GROUP, machines, meet, until
from tests.support.shared_files import write
from zerochat.agent.files.blobs import SEALED_PART_BYTES
from zerochat.group.files.hash_tree import PART_BYTES

SIZE = 6 << 20
CUT_S = 0.7


@pytest.fixture
def chaos():
    with Chaos() as proxy:
        yield proxy
        assert not proxy.failures, proxy.failures


def the_file(machine):
    found = list(machine.client.list_files(GROUP))
    return found[0].file if found else None


def offered(alice, bob, path):
    alice.client.send_files(GROUP, [str(path)])
    until(lambda: the_file(bob), "the offer")
    bob.client.fetch_file(GROUP, path.name)


def right(machine, data, folder):
    until(lambda: the_file(machine).state == "here", "the file")
    saved = machine.client.save_file(GROUP, the_file(machine).id, str(folder / f"from-{machine.name}"))
    assert saved.sha256 == hashlib.sha256(data).hexdigest()


def on_disk(machine):
    return sum(one.stat().st_size for one in machine.places.files.rglob("*.part"))


@pytest.mark.slow
def test_repeated_kill_9_loses_no_stored_part(tmp_path, chaos):
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
            assert on_disk(bob) >= counted // PART_BYTES * SEALED_PART_BYTES, "what counted is on disk"
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
def test_a_file_arrives_while_connections_are_cut(tmp_path, chaos):
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
def test_another_source_takes_over_when_one_goes_silent(tmp_path, chaos):
    path, data = write(tmp_path, "film.mkv", SIZE)
    with machines(tmp_path, ("alice", "bob", "carol"), chaos) as everybody:
        alice, bob, carol = everybody
        meet(alice, bob, carol)
        offered(alice, bob, path)
        until(lambda: the_file(bob).state == "here", "the file")
        for way in (*chaos.ways("alice", "carol"),):
            way.bytes_per_s = 1 << 20
        carol.client.fetch_file(GROUP, path.name)
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
def test_chat_is_not_blocked_by_a_file_on_a_slow_line(tmp_path, chaos):
    path, _ = write(tmp_path, "film.mkv", SIZE)
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        for way in chaos.ways("alice", "bob"):
            way.bytes_per_s = 128 << 10
        offered(alice, bob, path)
        until(lambda: the_file(bob).have > 300_000, "some of it")
        for number in range(5):
            report = alice.client.wait_for_delivery(
                GROUP, alice.client.send_message(GROUP, f"hello {number}").id, timeout_s=20
            )
            assert report.complete
            assert bob.client.wait_for_delivery(
                GROUP, bob.client.send_message(GROUP, f"and {number}").id, timeout_s=20
            ).complete
        assert the_file(bob).state == "getting", "it is still coming"
