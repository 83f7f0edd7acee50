"""A full disk: no loss, no partial write, no acknowledgement without storage, and recovery."""

import logging
import random
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.full_journal import ENDLESS, Narrow, lived
from tests.support.machines import GROUP, Machine, acknowledged, check, everybody_has, machines, meet, until
from tests.support.power_cut_journal import deeds, folders
from tests.support.small_disk import BALLAST, LOG, SmallDisk, why_not
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.archive.log_file import FileThere, Header
from zerochat.agent.service.crash_log import LogFile
from zerochat.agent.storage.journal import DiskFailed, DiskFull
from zerochat.agent.storage.paths import profile_paths
from zerochat.cli.verbs.audit import write_export as _to_file
from zerochat.rpc import LogRow, LogSummary

DISK_BYTES = 5 << 20


@pytest.fixture
def small_disk(tmp_path):
    if why_not():
        pytest.skip(why_not())


# --- the journal ------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow():
    disk = Narrow()
    yield disk
    disk.unregister()


@pytest.mark.slow
def test_a_full_disk_at_any_write_loses_nothing(narrow):
    with folders() as (folder, _):
        work = deeds(random.Random(5), 16)
        usual, again = lived(folder / "journal.db", narrow, work, ENDLESS)
        assert not again
        writes, found = narrow.written, 0
        for room in range(0, writes, max(1, writes // 80)):
            path = folder / f"{room}.db"
            contents, again = lived(path, narrow, work, room)
            assert contents == usual
            found += bool(again)
        assert found > 40


@pytest.mark.crash
@pytest.mark.usefixtures("small_disk")
def test_a_journal_finds_no_room_at_any_moment(tmp_path, budget):
    zoe = profile_paths("zoe", {"ZEROCHAT_HOME": str(tmp_path)})
    zoe.data.mkdir(parents=True)
    times = budget(25)
    with SmallDisk(zoe, DISK_BYTES) as disk:
        command = [sys.executable, "-m", "tests.support.full_journal", str(zoe.data), str(times)]
        process = disk.start(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0
    print(f"\n{times} journals, {int(said)} times without room: nothing lost, nothing half there")
    assert int(said) > times


# --- agents -----------------------------------------------------------------------------------------------------------


def known_to_have(author: Machine, reader: Machine) -> set[str]:
    """The ids of the author's messages of which it has heard that the reader has them."""
    events = [event for event in author.events() if event.type == "message" and event.author.nick == author.name]
    reports = [author.client.get_delivery(GROUP, event.id) for event in events]
    return {one.id for one in reports if any(m.nick == reader.name and m.delivered for m in one.members)}


@pytest.mark.crash
@pytest.mark.usefixtures("small_disk")
def test_an_agent_with_a_full_disk_waits_and_resumes(tmp_path):
    dice = random.Random(5)
    with machines(tmp_path, ("alice", "bob")) as (alice, bob):
        bob.kill()
        with SmallDisk(bob.places, DISK_BYTES) as disk:
            bob.host = cast(Any, disk)
            bob.start()
            meet(alice, bob)
            bob.say("before")
            everybody_has((alice, bob), 1, 60)
            process = bob.process
            for again in range(2):
                disk.fill()
                refused(bob, "no room for this")
                for number in range(10):
                    alice.say(f"did you get this? {again} {number} {dice.randbytes(1500).hex()}")
                until(lambda: "disk" in bob.client.get_status().warning, "a warning")
                refused(bob, "nor for this")
                shown = disk.run("status", environment=bob.environment)
                assert shown.returncode == 0
                (warning,) = [line for line in shown.stdout.splitlines() if line.startswith("warning")]
                assert "The disk is full" in warning or "only 0 MB left" in warning
                known = known_to_have(alice, bob)
                has = {event.id for event in bob.events()}
                assert known <= has
                assert not bob.has(10 * (again + 1) + 1), "there is no room for all of it"
                assert process.poll() is None
                # It ends, and starts again where there is no room either.
                if again:
                    bob.kill()
                else:
                    bob.client.stop_agent()
                    assert process.wait(20) == 0
                    bob.client.close()
                process = bob.start().process
                refused(bob, "still no room")
                known = known_to_have(alice, bob)
                assert has | known <= {event.id for event in bob.events()}
                disk.make_room()
                everybody_has((alice, bob), 10 * (again + 1) + 1, 60)
            bob.say("now there is room")
            everybody_has((alice, bob), 22, 60)
            acknowledged((alice, bob))
            assert "The disk is full" not in bob.client.get_status().warning
            assert [event["body"]["text"] for event in check([alice], bob) if event["type"] == "message"] == bob.texts()
            audit = disk.run("audit", GROUP, environment=bob.environment)
            assert audit.returncode == 0, audit.stdout
            bob.kill()


def refused(machine: Machine, text: str) -> None:
    """It is not said, and it is said why not."""
    with pytest.raises(AgentError, match="The disk is full") as refusal:
        machine.client.send_message(GROUP, text + " " + "x" * 30_000)
    assert refusal.value.code == "DiskFull" and str(machine.places.journal) in str(refusal.value)


# --- the verbs ------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.usefixtures("small_disk")
def test_verbs_on_a_full_disk_report_it_and_change_nothing(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"the {name} passphrase")
        (tmp_path / name).chmod(0o600)
    with machines(tmp_path, ("zoe",)) as (zoe,):
        zoe.kill()
        with SmallDisk(zoe.places, DISK_BYTES) as disk:
            zoe.host = cast(Any, disk)
            zoe.start().client.create_group(GROUP)
            for number in range(40):
                zoe.say(f"{number} " + "x" * 2000)
            environment = {**zoe.environment, "ZEROCHAT_NEW_PASSPHRASE_FILE": str(tmp_path / "old")}
            verbs = {
                "backup": ("backup", str(disk.data / "backup")),
                "export": ("export", GROUP, "--output", str(disk.data / "log.jsonl")),
                "passphrase": ("passphrase",),
            }
            before, key = names(disk), (disk.here / "key").read_bytes()
            for leave, tried in ((0, verbs), (40_960, ("backup", "export"))):
                disk.fill(leave)
                for verb in tried:
                    done = disk.run(*verbs[verb], environment=environment)
                    assert done.returncode and not done.stdout, done
                    assert "The disk is full" in done.stderr and done.stderr.count("\n") == 1, done.stderr
                    assert names(disk) - {BALLAST} == before and (disk.here / "key").read_bytes() == key
                disk.make_room()
            for words in verbs.values():
                done = disk.run(*words, environment=environment)
                assert done.returncode == 0, done
            # A vault that is there gives way to a new one only when that is whole.
            environment["ZEROCHAT_PASSPHRASE_FILE"] = str(tmp_path / "old")
            environment["ZEROCHAT_NEW_PASSPHRASE_FILE"] = str(tmp_path / "new")
            before, vault = names(disk), (disk.here / "wrapped-key").read_bytes()
            disk.fill()
            done = disk.run("passphrase", environment=environment)
            assert done.returncode and "The disk is full" in done.stderr, done
            assert names(disk) - {BALLAST} == before and (disk.here / "wrapped-key").read_bytes() == vault
            # A verb that runs an agent of its own has a log that cannot be written either.
            zoe.kill()
            disk.make_room()
            disk.fill()
            with suppress(OSError), (disk.here / LOG / "agent.log").open("ab", buffering=0) as log:
                while True:
                    log.write(b"and so on\n")
            done = disk.run("send", GROUP, "-m", "x" * 30_000, environment=environment)
            assert done.returncode and done.stderr.count("\n") == 1 and "The disk is full" in done.stderr, done.stderr
            done = disk.run("history", GROUP, "-n", "1", environment=environment)
            assert (done.returncode, done.stderr) == (0, "") and "39 xxx" in done.stdout


def names(disk: SmallDisk) -> set[str]:
    return {path.name for path in disk.here.iterdir()} - {"journal.db-wal"}


def test_an_export_that_does_not_fit_leaves_no_file(tmp_path):
    """What has no room shows only when the file is closed: until then it is in a buffer."""
    row = LogRow(
        seq=1,
        id="i",
        author="a",
        position=1,
        lamport=1,
        type="post",
        record=b"{}",
        received=1,
    )
    about = LogSummary(group="g", name="g", me="a", nick="a", view="", chains=[], events=60)

    class Here:
        def event_rows(self, summary):
            return iter([row] * 60)

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "log.jsonl"
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limit[1]))
    try:
        with pytest.raises((DiskFull, DiskFailed), match="log"):
            _to_file(path, Header(exported_at="", summary=about), cast(Any, Here()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not path.exists()
    assert _to_file(path, Header(exported_at="", summary=about), cast(Any, Here())) == 60
    with pytest.raises(FileThere):
        _to_file(path, Header(exported_at="", summary=about), cast(Any, Here()))
    assert path.read_bytes().count(b"\n") == 61


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_unwritable_log_file_is_harmless(capfd):
    log = logging.Logger("full")
    handler = LogFile("/dev/full", encoding="utf-8")
    log.addHandler(handler)
    for _ in range(1000):
        log.error("a line of the log")
    handler.close()
    assert capfd.readouterr() == ("", "")
