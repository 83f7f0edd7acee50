"""Passphrases and backups: a restored profile equals the original and opens only with its key."""

import contextlib
import io
import json
import os
import random
import shutil
import socket
import stat
import sys
import tarfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.agents import Person, meet, until
from tests.support.marks import others_slow
from tests.support.profile_fixtures import PASSPHRASE, StandInKeyring, content, home
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_connection import AgentGone
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.storage import backup, database, key_wrapping
from zerochat.agent.storage import profiles as vault
from zerochat.agent.storage.backup import BackupThere, BadBackup, copy_journal, restore, write_backup
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.agent.storage.key_wrapping import WrappedKeyFile, WrappingParameters
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import (
    BadPassphrase,
    PassphraseNeeded,
    ProfileExists,
    WrongPassphrase,
    change_key_location,
    create_profile,
    key_location,
    profile_exists,
    unlock,
)
from zerochat.crypto.encoding import b64url
from zerochat.group.state import Agent

__all__ = ["home"]

LABEL, WORDS = "zoe of the hills", b"this was there"
"""Long enough not to stand by chance in what is encrypted."""
OTHER = b"another one"


def said(passphrase: bytes | None) -> Callable[[], bytes] | None:
    return None if passphrase is None else lambda: passphrase


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> StandInKeyring:
    stand_in = StandInKeyring()
    monkeypatch.setitem(sys.modules, "keyring", stand_in)
    return stand_in


# --- another lock -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["key", "keyring", "passphrase"])
@pytest.mark.parametrize("after", ["key", "keyring", "passphrase"])
def test_another_passphrase_for_the_same_key(before: str, after: str, home: ProfilePaths, keyring: StandInKeyring):
    create_profile(home, "zoe", PASSPHRASE if before == "passphrase" else None, keyring=before == "keyring")
    assert key_location(home) == before
    key = unlock(home, said(PASSPHRASE))
    journal = home.journal.read_bytes()
    change_key_location(home, key, OTHER if after == "passphrase" else None, keyring=after == "keyring")
    assert key_location(home) == after
    assert unlock(home, said(OTHER)) == key
    if after == "passphrase":
        with pytest.raises(WrongPassphrase):
            unlock(home, said(PASSPHRASE))
        with pytest.raises(PassphraseNeeded):
            unlock(home, None)
    # Nothing of the old way is left, and the journal was not touched.
    assert set(content(home)) == {
        "journal.db",
        {"key": "key", "keyring": "keyring", "passphrase": "wrapped-key"}[after],
    }
    assert home.journal.read_bytes() == journal
    assert len(keyring.kept) == (after == "keyring")
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in home.data.iterdir())
    if after != "key":
        assert all(b64url(key).encode() not in each for each in content(home).values())


def test_a_passphrase_that_cannot_be_used_changes_nothing(home: ProfilePaths):
    create_profile(home, "zoe", PASSPHRASE)
    before = content(home)
    for bad in (b"", b"x" * 5000):
        with pytest.raises(BadPassphrase):
            change_key_location(home, unlock(home, said(PASSPHRASE)), bad)
    assert content(home) == before


@pytest.mark.parametrize("step", others_slow(["write_secret", "replace", "sync_folder"]))
def test_a_failing_disk_leaves_a_profile_that_opens(step: str, home: ProfilePaths, monkeypatch: pytest.MonkeyPatch):
    create_profile(home, "zoe", PASSPHRASE)
    key = unlock(home, said(PASSPHRASE))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path if step == "replace" else vault, step, fail)
        with pytest.raises(DiskFull):
            change_key_location(home, key, OTHER)
    answers = []
    for passphrase in (PASSPHRASE, OTHER):
        with contextlib.suppress(WrongPassphrase):
            answers.append(unlock(home, said(passphrase)))
    assert answers == [key]
    assert not [each for each in home.data.iterdir() if each.name.endswith(".new")]


# --- backups ----------------------------------------------------------------------------------------------------------


def make(home: ProfilePaths, target: Path, passphrase: bytes | None = None, *, as_it_is: bool = False) -> None:
    key = unlock(home, said(PASSPHRASE))
    with Journal.open(home.journal, key) as journal:
        copy = copy_journal(journal)
    write_backup(home, target, copy, None if as_it_is else key, passphrase)


@pytest.fixture
def elsewhere(tmp_path: Path) -> ProfilePaths:
    return profile_paths("back", {"ZEROCHAT_HOME": str(tmp_path / "elsewhere")})


@pytest.mark.parametrize(
    ("profile", "wanted", "lock"),
    [
        (None, None, "key"),
        (None, OTHER, "passphrase"),
        pytest.param(PASSPHRASE, OTHER, "passphrase", marks=pytest.mark.slow),
        (PASSPHRASE, PASSPHRASE, "passphrase"),
    ],
)
def test_the_restored_profile_equals_the_original(
    profile: bytes | None, wanted: bytes | None, lock: str, home: ProfilePaths, elsewhere: ProfilePaths, tmp_path: Path
):
    create_profile(home, LABEL, profile)
    key = unlock(home, said(profile))
    with Journal.open(home.journal, key) as journal:
        journal.meta_set("what", WORDS)
    target = tmp_path / "backup"
    make(home, target, wanted, as_it_is=profile is not None and wanted is profile)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 and not (home.data / "backup.db").exists()
    found = restore(elsewhere, target, said(wanted))
    assert (found.profile, found.key_location) == ("p", lock) and found.made_at > 1_700_000_000_000
    assert key_location(elsewhere) == lock and unlock(elsewhere, said(wanted)) == key
    with Journal.open(elsewhere.journal, key) as journal:
        assert journal.meta_get("what") == WORDS and journal.meta_get("label") == LABEL.encode()
        assert int(journal.meta_get(vault.RESTORED_AT) or 0) >= found.made_at
    with Journal.open(home.journal, key) as journal:
        assert journal.meta_get(vault.RESTORED_AT) is None
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in elsewhere.data.iterdir())
    assert set(content(elsewhere)) == {"journal.db", "key" if lock == "key" else "wrapped-key"}
    if lock == "passphrase":
        raw = target.read_bytes()
        assert not any(each in raw for each in (key, b64url(key).encode(), key.hex().encode(), LABEL.encode(), WORDS))


def test_nothing_is_replaced(home: ProfilePaths, elsewhere: ProfilePaths, tmp_path: Path):
    create_profile(home, "zoe", None)
    target = tmp_path / "backup"
    make(home, target)
    before = target.read_bytes()
    with pytest.raises(BackupThere):
        make(home, target)
    assert target.read_bytes() == before and not (home.data / "backup.db").exists()
    restore(elsewhere, target, None)
    there = content(elsewhere)
    with pytest.raises(ProfileExists):
        restore(elsewhere, target, None)
    assert content(elsewhere) == there
    assert [each.name for each in elsewhere.data.parent.iterdir()] == ["back"]


def test_a_backup_needs_its_passphrase(home: ProfilePaths, elsewhere: ProfilePaths, tmp_path: Path):
    create_profile(home, "zoe", PASSPHRASE)
    target = tmp_path / "backup"
    make(home, target, as_it_is=True)
    with pytest.raises(PassphraseNeeded):
        restore(elsewhere, target, None)
    with pytest.raises(WrongPassphrase):
        restore(elsewhere, target, said(OTHER))
    assert not profile_exists(elsewhere) and not list(elsewhere.data.parent.iterdir())


def test_an_interrupted_backup_leaves_no_file(home: ProfilePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    create_profile(home, "zoe", None)
    target = tmp_path / "backup"

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("zerochat.agent.storage.backup.os.fsync", fail)
        with pytest.raises(DiskFull):
            make(home, target)
    assert not target.exists() and not (home.data / "backup.db").exists()
    for module in (backup, database):
        with monkeypatch.context() as patch:
            patch.setattr(module, "sync_folder", fail)
            with pytest.raises(DiskFull):
                make(home, target)
        assert not target.exists() and not (home.data / "backup.db").exists()
    make(home, target)


def refused(elsewhere: ProfilePaths, target: Path) -> str:
    with pytest.raises(BadBackup) as refusal:
        restore(elsewhere, target, None)
    assert str(target) in str(refusal.value) and str(elsewhere.data.parent) not in str(refusal.value)
    assert not profile_exists(elsewhere) and not list(elsewhere.data.parent.iterdir())
    return str(refusal.value)


def test_a_backup_that_was_cut_off_or_changed_is_refused(home: ProfilePaths, elsewhere: ProfilePaths, tmp_path: Path):
    create_profile(home, "zoe", None)
    target = tmp_path / "a file"
    make(home, target)
    good = target.read_bytes()
    with tarfile.open(target) as tar:
        end = max(member.offset_data + member.size for member in tar)
        start = tar.getmember("journal.db").offset_data
    for size in (0, 1, 511, 512, 700, 1024, 1600, 2048, 3000, start + 5000, end - 1, end, end + 512, len(good) - 1):
        target.write_bytes(good[:size])
        refused(elsewhere, target)
    for end_of_it in (good + bytes(1), good + good, good[:-1] + b"x", good[: end + 600] + b"x" + good[end + 601 :]):
        target.write_bytes(end_of_it)
        refused(elsewhere, target)
    dice = random.Random(9)
    for page in range(start, end, 4096):
        bad = bytearray(good)
        bad[page + (dice.randrange(4096) if page > start else dice.randrange(24, 4096))] ^= 1 << dice.randrange(8)
        target.write_bytes(bad)
        assert "***" not in refused(elsewhere, target)
    swapped = bytearray(good)
    one, two = start + 4096, start + 2 * 4096
    swapped[one : one + 4096], swapped[two : two + 4096] = good[two : two + 4096], good[one : one + 4096]
    target.write_bytes(swapped)
    refused(elsewhere, target)
    target.unlink()
    refused(elsewhere, target)
    target.mkdir()
    refused(elsewhere, target)


MANIFEST = b'{"zerochat":"backup","profile":"p","made_at":1,"version":1}'
KEY = json.dumps({"zerochat": "key", "key": b64url(bytes(32)), "version": 1}).encode()


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [("other", b"")],
        [("backup.json", b"{}")],
        [("backup.json", b"[" * 4000)],
        [("backup.json", b" " * 5000)],
        [("backup.json", MANIFEST.replace(b"1}", b"2}"))],
        [("backup.json", MANIFEST)],
        [("backup.json", MANIFEST), ("../key", KEY)],
        [("backup.json", MANIFEST), ("key", b"{}")],
        [("backup.json", MANIFEST), ("key", b" " * 5000)],
        [("backup.json", MANIFEST), ("key", KEY.replace(b"AAAA", b"AA"))],
        [("backup.json", MANIFEST), ("wrapped-key", KEY)],
        [("backup.json", MANIFEST), ("key", KEY)],
        [("backup.json", MANIFEST), ("key", KEY), ("journal.db", b"hello")],
        [("backup.json", MANIFEST), ("key", KEY), ("journal.db", b""), ("more", b"")],
        [("key", KEY), ("backup.json", MANIFEST), ("journal.db", b"")],
    ],
)
def test_an_invalid_backup_is_refused(entries: list[tuple[str, bytes]], elsewhere: ProfilePaths, tmp_path: Path):
    a_backup_of(tmp_path / "a file", *entries)
    refused(elsewhere, tmp_path / "a file")


def a_backup_of(target: Path, *entries: tuple[str, bytes]) -> None:
    with tarfile.open(target, "w") as tar:
        for name, body in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))


def test_a_foreign_backup_is_limited_in_memory_and_time(
    elsewhere: ProfilePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Neither memory nor time for its passphrase, nor a date that there is not, whatever is said where."""
    asked: list[WrappingParameters] = []

    def stretched(passphrase: bytes, lock: WrappingParameters) -> bytes:
        asked.append(lock)
        return bytes(32)

    monkeypatch.setattr(key_wrapping, "_stretch", stretched)
    good = json.loads(
        msgspec.json.encode(WrappedKeyFile(WrappingParameters(b64url(bytes(16)), b64url(bytes(24))), b64url(bytes(48))))
    )
    manifest, lock, target = json.loads(MANIFEST), good["lock"], tmp_path / "a file"
    bad = ("-1", "9007199254740992", "18446744073709551616", "1" + "0" * 3000, "1.5", "null", '"1"')
    unusual = ("0", "1", "2", "4", "67108863", "67108865", "4294967296", "9007199254740991")

    def refusal_with(where: dict[str, object], name: str, number: str) -> str:
        before, where[name] = where[name], "HERE"
        first, second = (json.dumps(one).replace('"HERE"', number).encode() for one in (manifest, good))
        where[name] = before
        a_backup_of(target, ("backup.json", first), ("wrapped-key", second), ("journal.db", b""))
        with pytest.raises(BadBackup) as refusal:
            restore(elsewhere, target, lambda: b"passphrase")
        assert not asked and not profile_exists(elsewhere), (name, number)
        return str(refusal.value)

    for where, name in ((manifest, "made_at"), (manifest, "version"), (good, "version")):
        for number in bad:
            refusal_with(where, name, number)
    for name in ("passes", "memory_bytes"):
        for number in (*bad, *unusual):
            refusal_with(lock, name, number)
    assert "4096 MiB and 3 passes of Argon2id" in refusal_with(lock, "memory_bytes", str(4 << 30))
    a_backup_of(target, ("backup.json", MANIFEST), ("wrapped-key", json.dumps(good).encode()), ("journal.db", b""))
    with pytest.raises(WrongPassphrase):
        restore(elsewhere, target, lambda: b"passphrase")
    assert [(one.passes, one.memory_bytes) for one in asked] == [(3, 64 << 20)]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_backup_contains_only_regular_files(kind: bytes, elsewhere: ProfilePaths, tmp_path: Path):
    target = tmp_path / "a file"
    with tarfile.open(target, "w") as tar:
        entry = tarfile.TarInfo("backup.json")
        entry.type, entry.linkname = kind, "/etc/passwd"
        tar.addfile(entry)
    refused(elsewhere, target)


def test_a_backup_of_a_busy_agent_is_consistent(tmp_path: Path):
    """Each is whole: all that was acknowledged before it was asked for, and a state that belongs to its events."""
    alice, bob = Person(tmp_path, "alice").wake(), Person(tmp_path, "bob").wake()
    try:
        meet(alice, bob)
        for n in range(4):
            sent = [alice.client.send_message("friends", f"{n} {m}").id for m in range(10)]
            copy = Path(alice.client.create_backup())
            assert copy.parent == alice.places.data
            target = tmp_path / f"backup {n}"
            write_backup(alice.places, target, copy, unlock(alice.places, None), None)
            alice.client.send_message("friends", "after it")
            back = profile_paths("back", {"ZEROCHAT_HOME": str(tmp_path / f"home {n}")})
            restore(back, target, None)
            with Journal.open(back.journal, unlock(back, None)) as journal:
                state = journal.load(Agent)
                assert state is not None
                (group,) = state.groups.values()
                assert journal.event(group.id, sent[-1]) is not None
                assert journal.chain_heads(group.id)[group.me][0] == group.seq
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "still here").id).complete
    finally:
        alice.sleep()
        bob.sleep()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Copies go on after their first slice once this is set."""
    goes_on, whole = threading.Event(), Journal.copy_in_slices

    def slices(journal: Journal, target: Path):
        with contextlib.closing(whole(journal, target)) as real:
            yield next(real)
            while not goes_on.is_set():
                yield 1, 2
            yield from real

    monkeypatch.setattr(Journal, "copy_in_slices", slices)
    monkeypatch.setattr(database, "COPY_PAGES", 1)
    return goes_on


def test_an_agent_that_makes_a_backup_serves_other_clients(tmp_path: Path, held: threading.Event):
    alice = Person(tmp_path, "alice").wake()
    begun, seen = threading.Event(), list[int]()
    try:
        alice.client.create_group("hikers")
        with ThreadPoolExecutor(1) as pool, connect(alice.places) as other:
            copied = pool.submit(alice.client.create_backup, lambda copy: (seen.append(copy.done), begun.set()))
            assert begun.wait(30) and seen[0] == 1
            sent = other.send_message("hikers", "meanwhile").id
            with pytest.raises(AgentError, match="Another backup of this profile is being made"):
                other.create_backup()
            assert not copied.done()
            held.set()
            copy = Path(copied.result(30))
        write_backup(alice.places, tmp_path / "backup", copy, unlock(alice.places, None), None)
        back = profile_paths("back", {"ZEROCHAT_HOME": str(tmp_path / "back")})
        restore(back, tmp_path / "backup", None)
        with Journal.open(back.journal, unlock(back, None)) as journal:
            (group,) = journal.load(Agent).groups.values()
            assert journal.event(group.id, sent) is not None, "the copy is that of its end"
    finally:
        alice.sleep()


def test_a_backup_leaves_the_copy_of_the_next_one_alone(home: ProfilePaths, monkeypatch: pytest.MonkeyPatch):
    create_profile(home, "Alice", PASSPHRASE)
    with Journal.open(home.journal, unlock(home, said(PASSPHRASE))) as journal:
        copy, add = copy_journal(journal), backup._add

        def meanwhile(tar: tarfile.TarFile, name: str, data: IO[bytes], size: int) -> None:
            if name == home.journal.name:
                assert copy_journal(journal) == copy
            add(tar, name, data, size)

        monkeypatch.setattr(backup, "_add", meanwhile)
        write_backup(home, home.data.parent / "one", copy, None, None)
        monkeypatch.undo()
        write_backup(home, home.data.parent / "other", copy, None, None)
    assert not copy.exists()


@pytest.mark.parametrize("ends", ["client", "agent"])
def test_a_backup_that_is_given_up_leaves_no_copy(ends: str, tmp_path: Path, held: threading.Event):
    alice = Person(tmp_path, "alice").wake()
    copy = alice.places.data / backup.COPY
    try:
        with connect(alice.places) as client, ThreadPoolExecutor(1) as pool:
            begun = threading.Event()
            copied = pool.submit(client.create_backup, lambda copy: begun.set())
            assert begun.wait(30) and copy.exists()
            if ends == "client":
                client._socket.shutdown(socket.SHUT_RDWR)
                assert isinstance(copied.exception(30), AgentGone)
                until(lambda: not copy.exists(), "the end of the copy")
                held.set()
                assert Path(alice.client.create_backup()) == copy
            else:
                alice.client.stop_agent()
                error = copied.exception(30)
                assert isinstance(error, AgentError) and error.code == "AgentStopping" and not copy.exists()
    finally:
        alice.sleep()


# --- the verbs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from zerochat.cli import main

    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "home"))
    for name in ("ZEROCHAT_PROFILE", "ZEROCHAT_PASSPHRASE_FILE", "ZEROCHAT_NEW_PASSPHRASE_FILE"):
        monkeypatch.delenv(name, raising=False)

    def command(*words: str, **secrets: bytes) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            for name, secret in secrets.items():
                file = tmp_path / name
                file.write_bytes(secret + b"\n")
                patch.setenv(
                    {"old": "ZEROCHAT_PASSPHRASE_FILE", "new": "ZEROCHAT_NEW_PASSPHRASE_FILE"}[name], str(file)
                )
            code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


@pytest.mark.slow
def test_the_verbs_that_change_the_passphrase(run, tmp_path: Path):
    at = profile_paths(None, os.environ)
    assert run("passphrase")[0] == 6, "there is no profile yet"
    assert run("init", "--name", "alice")[0] == 0
    code, _, err = run("passphrase")
    assert code == 6 and "ZEROCHAT_NEW_PASSPHRASE_FILE" in err, "nobody to ask"
    code, _, err = run("passphrase", new=b"")
    assert code == 2 and "empty" in err
    code, out, err = run("passphrase", new=PASSPHRASE)
    assert (code, out) == (0, "") and "locked with the new passphrase" in err and "old key file" in err
    assert key_location(at) == "passphrase"
    assert run("passphrase", new=OTHER)[0] == 6, "the old one is asked for"
    assert run("passphrase", old=OTHER, new=OTHER)[0] == 6 and key_location(at) == "passphrase"
    code, out, _ = run("passphrase", "--format", "jsonl", old=PASSPHRASE, new=OTHER)
    assert code == 0 and json.loads(out) == {"profile": "default", "was": "passphrase", "lock": "passphrase"}
    assert unlock(at, said(OTHER))
    code, _, err = run("passphrase", "--remove", old=OTHER)
    assert code == 0 and str(at.key_file) in err and key_location(at) == "key"
    assert run("passphrase", "--remove", "--keyring")[0] == 2


def test_a_backup_of_a_damaged_journal_names_the_journal(run, tmp_path: Path):
    """And not the copy of it, which is gone."""
    assert run("init", "--name", "alice")[0] == 0
    home = profile_paths("default", os.environ)
    with home.journal.open("r+b") as file:
        file.seek(home.journal.stat().st_size - 99)
        file.write(b"\0" * 32)
    code, _, err = run("backup", str(tmp_path / "alice.zerochat"))
    assert code == 7 and f"The journal {home.journal} is damaged" in err and "backup.db" not in err
    assert not (tmp_path / "alice.zerochat").exists() and not home.journal.with_name("backup.db").exists()


def test_the_verbs_backup_and_restore(run, tmp_path: Path):
    target = tmp_path / "alice.zerochat"
    assert run("backup", str(target))[0] == 6
    assert run("init", "--name", "alice")[0] == 0
    code, out, err = run("backup", str(target))
    assert (code, out) == (0, f"{target}\n") and "has no passphrase" in err
    assert run("backup", str(target))[0] == 2
    locked = tmp_path / "locked"
    code, out, _ = run("backup", str(locked), "--passphrase", "--format", "jsonl", new=OTHER)
    assert code == 0 and json.loads(out)["passphrase"] is True and json.loads(out)["bytes"] == locked.stat().st_size
    code, out, err = run("--profile", "two", "restore", str(target))
    assert code == 0 and out.strip() == str(profile_paths("two", os.environ).data)
    assert "Never use the original profile again" in err
    assert run("--profile", "two", "restore", str(target))[0] == 1
    assert run("--profile", "three", "restore", str(locked))[0] == 6
    assert run("--profile", "three", "restore", str(locked), old=PASSPHRASE)[0] == 6
    assert run("--profile", "three", "restore", str(locked), old=OTHER)[0] == 0
    assert run("--profile", "four", "restore", str(tmp_path / "nothing"))[0] == 7
    assert run("--profile", "three", "backup", str(tmp_path / "again"), old=OTHER)[0] == 0
    assert run("--profile", "four", "restore", str(tmp_path / "again"), old=OTHER)[0] == 0


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_a_backup_into_no_folder_says_so_before_anything_is_asked(run, tmp_path: Path, place: str):
    (tmp_path / "file").touch()
    assert run("init", "--name", "alice")[0] == 0
    code, _, err = run("backup", str(tmp_path / place / "alice.zerochat"), "--passphrase")  # and there is none to type
    assert code == 1 and f"The folder {tmp_path / place} does not exist. Create it" in err and "disk" not in err


def test_restoring_names_groups_that_must_be_resumed(run, tmp_path: Path):
    from zerochat.group.state import Agent

    def restored(name: str, *more: str) -> tuple[list[str], str]:
        target = tmp_path / f"backup of {name}"
        assert run("backup", str(target))[0] == 0
        code, out, err = run("--profile", name, "restore", str(target), "--format", "jsonl")
        assert code == 0
        return json.loads(out)["alone"], err

    assert run("init", "--name", "alice")[0] == 0
    alone, err = restored("nobody")
    assert alone == [] and "resume" not in err and "in a group again" not in err
    assert run("new", "two words")[0] == 0
    alone, err = restored("one")
    assert alone == ["two words"] and "`zerochat --profile one resume 'two words'`" in err
    assert "in a group again" not in err
    code, _, err = run("--profile", "one", "send", "two words", "-m", "hello")
    assert code == 1 and "`zerochat --profile one resume 'two words'`" in err
    assert run("--profile", "one", "resume", "two words")[0] == 2, "nobody to ask"
    assert run("--profile", "one", "resume", "two words", "--yes")[0] == 0
    assert run("--profile", "one", "send", "two words", "-m", "hello")[0] == 0
    assert run("--profile", "one", "resume", "two words", "--yes")[0] == 1, "nothing to resume"
    assert run("new", "hikers")[0] == 0
    assert "two words, hikers" in restored("two")[1]

    at = profile_paths(None, os.environ)
    with Journal.open(at.journal, unlock(at, None)) as journal:
        state = journal.load(Agent)
        assert state is not None
        group = next(one for one in state.groups.values() if one.name == "hikers")
        member = group.view.members[group.me]
        view = replace(group.view, members={**group.view.members, "did:key:z6MkBob": replace(member, label="bob")})
        journal.commit(replace(state, groups={**state.groups, group.id: replace(group, view=view)}))
    alone, err = restored("three")
    assert alone == ["two words"] and "once all its members have sent" in err


def test_a_key_in_the_keyring_gets_a_passphrase_for_the_backup(run, tmp_path: Path, keyring: StandInKeyring):
    target = tmp_path / "backup"
    assert run("init", "--name", "alice", "--keyring")[0] == 0
    assert run("backup", str(target))[0] == 6 and not target.exists()
    assert run("backup", str(target), new=OTHER)[0] == 0
    keyring.kept.clear()
    assert run("--profile", "two", "restore", str(target), old=OTHER)[0] == 0
    assert key_location(profile_paths("two", os.environ)) == "passphrase"


def test_a_mediator_is_not_backed_up(run, tmp_path: Path):
    assert run("init", "--name", "mediator")[0] == 0
    (profile_paths(None, os.environ).data / "mediator.db").touch()
    code, _, err = run("backup", str(tmp_path / "backup"))
    assert code == 1 and "mediator" in err and not (tmp_path / "backup").exists()


# --- an older copy in the place of the profile ------------------------------------------------------------------------


def back_to(person: Person, backup_file: Path) -> None:
    """Lose the profile, and restore it from a backup."""
    shutil.rmtree(person.places.data)
    restore(person.places, backup_file, None)


@pytest.mark.slow
def test_a_restored_profile_repeats_no_message(tmp_path: Path):
    """What it said after the backup comes back from the other member, and only then does it go on."""
    alice, bob = Person(tmp_path, "alice").wake(), Person(tmp_path, "bob").wake()
    try:
        meet(alice, bob)
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "before").id).complete
        target = tmp_path / "backup"
        write_backup(alice.places, target, Path(alice.client.create_backup()), unlock(alice.places, None), None)
        sent = [alice.client.send_message("friends", f"after {n}").id for n in range(20)]
        assert alice.client.wait_for_delivery("friends", sent[-1]).complete
        everything = bob.ids()
        bob.sleep()
        alice.sleep()
        back_to(alice, target)
        alice.wake()
        assert "after 19" not in alice.texts() and alice.client.get_status().warning
        with pytest.raises(AgentError):
            alice.client.send_message("friends", "too early")
        alice.sleep()
        alice.wake()
        with pytest.raises(AgentError):
            alice.client.send_message("friends", "too early, after another start too")
        bob.wake()
        until(lambda: alice.ids() == everything, "what was lost coming back")
        until(lambda: not alice.client.get_status().warning, "the end of the warning")
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "and on").id).complete
        assert bob.ids() == alice.ids() and bob.texts()[-1] == "and on"
        alice.sleep()
        with Journal.open(alice.places.journal, unlock(alice.places, None)) as journal:
            assert not journal.meta_get(vault.RESTORED_AT)
        alice.wake()
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "as before").id).complete
    finally:
        alice.sleep()
        bob.sleep()


def test_a_restored_profile_without_peers_resumes_on_request(tmp_path: Path):
    """Somebody may have joined since, whom it does not know; and what it founds later is none of that."""
    alice, bob = Person(tmp_path, "alice").wake(), Person(tmp_path, "bob").wake()
    try:
        meet(alice, bob)
        alice.client.create_group("mine")
        target = tmp_path / "backup"
        write_backup(alice.places, target, Path(alice.client.create_backup()), unlock(alice.places, None), None)
        alice.sleep()
        bob.sleep()
        back_to(alice, target)
        alice.wake()
        assert {one.name: one.suspended for one in alice.client.list_groups()} == {"mine": True, "friends": True}
        assert "`resume`" in alice.client.get_status().warning
        with pytest.raises(AgentError, match=r"you were alone in mine when it was made.*`zerochat resume mine`"):
            alice.client.send_message("mine", "too early")
        with pytest.raises(AgentError, match=r"once every member has .*\(missing: bob\).* `zerochat resume friends`"):
            alice.client.send_message("friends", "too early")
        with pytest.raises(AgentError, match="alone in mine"):
            alice.client.create_invitation("mine")
        assert not alice.client.resume_group("mine").suspended
        alice.client.create_group("another")
        alice.sleep()
        with Journal.open(alice.places.journal, unlock(alice.places, None)) as journal:
            assert not journal.meta_get(vault.RESTORED_AT)
        alice.wake()
        alice.client.send_message("mine", "hello")
        alice.client.send_message("another", "hello")
        with pytest.raises(AgentError, match="nothing to resume in mine"):
            alice.client.resume_group("mine")
        assert [one.name for one in alice.client.list_groups() if one.suspended] == ["friends"]
        assert alice.client.get_status().warning
        alice.client.resume_group("friends")
        alice.client.send_message("friends", "nobody else is left")
        assert not alice.client.get_status().warning
    finally:
        alice.sleep()
        bob.sleep()


def test_a_profile_restored_by_hand_is_noticed(tmp_path: Path):
    """There is no mark then: only the other members know better."""
    alice, bob, carol = (Person(tmp_path, name).wake() for name in ("alice", "bob", "carol"))
    try:
        meet(alice, bob, carol)
        alice.sleep()
        old = tmp_path / "old"
        shutil.copytree(alice.places.data, old)
        alice.wake()
        sent = [alice.client.send_message("friends", f"after {n}").id for n in range(5)]
        assert alice.client.wait_for_delivery("friends", sent[-1]).complete
        everything = bob.ids()
        alice.sleep()
        shutil.rmtree(alice.places.data)
        shutil.copytree(old, alice.places.data)
        alice.wake()
        until(lambda: alice.ids() == everything, "what was lost coming back")
        assert alice.client.wait_for_delivery("friends", alice.client.send_message("friends", "and on").id).complete
        assert bob.ids() == carol.ids() == alice.ids()
        assert all(not m.forked for p in (bob, carol) for m in p.client.list_members("friends"))
    finally:
        for person in (alice, bob, carol):
            person.sleep()
