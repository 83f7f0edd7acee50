"""Profiles: created completely or not at all, opened by their key alone, owned by one process."""

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import profile_fixtures
from tests.support.profile_fixtures import PASSPHRASE, StandInKeyring, content
from zerochat.agent.storage import key_wrapping, os_keyring, profiles
from zerochat.agent.storage.journal import DiskFailed, DiskFull, DiskReadOnly, Journal, WrongKey
from zerochat.agent.storage.key_wrapping import NotOurSecretFile
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import (
    BadPassphrase,
    BadSecretFile,
    NoProfile,
    OpenToOthers,
    PassphraseNeeded,
    ProfileExists,
    ProfileIncomplete,
    ProfileOwned,
    WrongPassphrase,
    create_profile,
    lock_profile,
    passphrase_source,
    profile_exists,
    unlock,
)
from zerochat.crypto.encoding import b64url
from zerochat.errors import BadName, LocalError

home = profile_fixtures.home


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def read_meta(profile_paths: ProfilePaths, passphrase: Callable[[], bytes] | None, key: str) -> bytes | None:
    with Journal.open(profile_paths.journal, unlock(profile_paths, passphrase)) as journal:
        return journal.meta_get(key)


# --- making -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("open_umask")
def test_a_new_profile(home: ProfilePaths):
    assert not profile_exists(home)
    create_profile(home, "Zoe\u0308", None)
    assert profile_exists(home)
    assert read_meta(home, None, "label") == "Zo\u00eb".encode()
    assert len(read_meta(home, None, "server_secret") or b"") == 32
    assert int(read_meta(home, None, "created") or 0) > 1_700_000_000_000
    assert {path.name for path in home.data.iterdir()} == {"journal.db", "key"}
    assert [path.name for path in home.data.parent.iterdir()] == ["p"]
    for path in home.data.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (home.data, home.data.parent, home.data.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_profiles_share_no_secret(home: ProfilePaths, tmp_path: Path):
    other = profile_paths("q", {"ZEROCHAT_HOME": str(tmp_path / "home")})
    create_profile(home, "zoe", None)
    create_profile(other, "zoe", None)
    assert unlock(home, None) != unlock(other, None)
    assert read_meta(home, None, "server_secret") != read_meta(other, None, "server_secret")
    with pytest.raises(WrongKey):
        Journal.open(home.journal, unlock(other, None))


@pytest.mark.parametrize("label", ["", " zoe", "zoe\n", "zo\u202ee", "\x1b[2J", "z" * 65])
def test_a_label_that_cannot_be_shown_is_refused(label: str, home: ProfilePaths):
    with pytest.raises(BadName) as refusal:
        create_profile(home, label, None)
    assert "\x1b" not in str(refusal.value)
    assert not home.data.exists()


@pytest.mark.parametrize("passphrase", [b"", b"x" * 4097])
def test_an_invalid_passphrase_is_refused(passphrase: bytes, home: ProfilePaths):
    with pytest.raises(BadPassphrase):
        create_profile(home, "zoe", passphrase)
    assert not home.data.exists()


@pytest.mark.parametrize("left", [("journal.db",), ("key",), ("wrapped-key",), ("journal.db", "key")])
def test_an_existing_profile_is_kept_as_it_is(left: tuple[str, ...], home: ProfilePaths):
    """Be it incomplete: somebody may have the rest in a backup."""
    create_profile(home, "zoe", None)
    for path in home.data.iterdir():
        if path.name not in left:
            path.unlink()
    for name in left:
        (home.data / name).touch()
    before = content(home)
    with pytest.raises(ProfileExists, match="--profile") as refusal:
        create_profile(home, "eve", PASSPHRASE)
    assert str(home.data) in str(refusal.value)
    assert content(home) == before


def test_a_profile_that_appears_meanwhile_is_kept_as_it_is(home: ProfilePaths, monkeypatch: pytest.MonkeyPatch):
    create_profile(home, "zoe", None)
    before = content(home)
    monkeypatch.setattr(profiles, "profile_exists", lambda _: False)
    with pytest.raises(ProfileExists):
        create_profile(home, "eve", None)
    assert content(home) == before
    assert [path.name for path in home.data.parent.iterdir()] == ["p"]


def test_an_empty_folder_is_accepted(home: ProfilePaths):
    home.data.mkdir(parents=True)
    create_profile(home, "zoe", None)
    assert stat.S_IMODE(home.data.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("where", "name", "number", "refusal"),
    [
        (Path, "mkdir", errno.EROFS, DiskReadOnly),
        (Path, "mkdir", errno.EACCES, DiskReadOnly),
        (Path, "mkdir", errno.ENOENT, DiskReadOnly),
        (Path, "mkdir", errno.ENOTDIR, DiskReadOnly),
        (tempfile, "mkdtemp", errno.ENOSPC, DiskFull),
        (os, "open", errno.EDQUOT, DiskFull),
        (os, "fdopen", errno.EMFILE, DiskFailed),
        (os, "fsync", errno.EIO, DiskFailed),
        (Path, "rename", errno.ENOSPC, DiskFull),
    ],
)
def test_a_disk_that_refuses_leaves_no_profile(
    where: object,
    name: str,
    number: int,
    refusal: type[LocalError],
    home: ProfilePaths,
    monkeypatch: pytest.MonkeyPatch,
):
    willing = getattr(where, name)

    def refuse_once(*_: object, **__: object) -> None:
        monkeypatch.setattr(where, name, willing)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(where, name, refuse_once)
    with pytest.raises(refusal) as found:
        create_profile(home, "zoe", None)
    assert str(home.data) in str(found.value)
    assert not profile_exists(home)
    assert not home.data.parent.exists() or list(home.data.parent.iterdir()) == []
    create_profile(home, "zoe", None)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_a_read_only_home(home: ProfilePaths):
    home.data.parent.parent.mkdir(mode=0o500)
    with pytest.raises(DiskReadOnly, match="ZEROCHAT_HOME"):
        create_profile(home, "zoe", None)


# --- opening ----------------------------------------------------------------------------------------------------------


def test_no_profile(home: ProfilePaths):
    with pytest.raises(NoProfile, match="zerochat --profile p init --name NAME"):
        unlock(home, None)
    with pytest.raises(NoProfile):
        lock_profile(home)
    assert not home.data.exists()


@pytest.mark.parametrize("lost", ["journal.db", "key"])
def test_an_incomplete_profile_names_its_missing_file(lost: str, home: ProfilePaths):
    create_profile(home, "zoe", None)
    (home.data / lost).unlink()
    with pytest.raises(ProfileIncomplete) as refusal:
        unlock(home, None)
    assert str(home.data / lost) in str(refusal.value)


def test_a_passphrase_locks(home: ProfilePaths):
    label = "a name too long for chance"
    create_profile(home, label, PASSPHRASE)
    assert {path.name for path in home.data.iterdir()} == {"journal.db", "wrapped-key"}
    assert read_meta(home, lambda: PASSPHRASE, "label") == label.encode()
    before = content(home)
    with pytest.raises(WrongPassphrase):
        unlock(home, lambda: PASSPHRASE + b" ")
    with pytest.raises(BadPassphrase):
        unlock(home, lambda: b"")
    with pytest.raises(PassphraseNeeded, match="ZEROCHAT_PASSPHRASE_FILE"):
        unlock(home, None)
    assert content(home) == before
    key = unlock(home, lambda: PASSPHRASE)
    for text in (label.encode(), PASSPHRASE, key, key.hex().encode(), b64url(key).encode()):
        assert not any(text in there for there in before.values())


def test_a_changed_key_wrapping_does_not_open(home: ProfilePaths, monkeypatch: pytest.MonkeyPatch):
    """Not with cheaper parameters, so that nobody can make the next guess easier; nor with dearer ones."""
    create_profile(home, "zoe", PASSPHRASE)
    good = json.loads(home.wrapped_key_file.read_bytes())
    lock = good["lock"]
    stretched: list[int] = []
    honest = key_wrapping._stretch
    monkeypatch.setattr(key_wrapping, "_stretch", lambda p, o: stretched.append(o.memory_bytes) or honest(p, o))
    for change, refusal in (
        ({"passes": 1}, BadSecretFile),
        ({"memory_bytes": 8192}, BadSecretFile),
        ({"memory_bytes": 65 << 20}, BadSecretFile),
        ({"memory_bytes": 4 << 30}, BadSecretFile),
        ({"memory_bytes": 1 << 50}, BadSecretFile),
        ({"memory_bytes": 1 << 70}, BadSecretFile),
        ({"passes": 4}, BadSecretFile),
        ({"passes": 1 << 31}, BadSecretFile),
        ({"kdf": "plain"}, BadSecretFile),
        ({"salt": lock["salt"][:-4]}, BadSecretFile),
        ({"nonce": "!" + lock["nonce"][1:]}, BadSecretFile),
        ({"nonce": ("B" if lock["nonce"][0] == "A" else "A") + lock["nonce"][1:]}, WrongPassphrase),
    ):
        home.wrapped_key_file.write_text(json.dumps({**good, "lock": {**lock, **change}}))
        with pytest.raises(refusal):
            unlock(home, lambda: PASSPHRASE)
    assert stretched == [64 << 20]  # the others were refused before any work
    home.wrapped_key_file.write_text(json.dumps(good))
    assert unlock(home, lambda: PASSPHRASE)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[" * 4096, b'{"zerochat":"wrapped-key","version":1}', b"\xff", b"0" * 9000]
)
def test_an_invalid_key_file_is_refused(text: bytes, home: ProfilePaths):
    create_profile(home, "zoe", None)
    home.key_file.write_bytes(text)
    with pytest.raises(BadSecretFile) as refusal:
        unlock(home, None)
    assert str(home.key_file) in str(refusal.value)


def test_a_key_file_of_a_newer_version(home: ProfilePaths):
    create_profile(home, "zoe", None)
    home.key_file.write_bytes(b'{"zerochat": "key", "version": 2, "wrapped": {}}')
    with pytest.raises(BadSecretFile, match="newer"):
        unlock(home, None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_key_file_that_others_can_open_is_refused(mode: int, home: ProfilePaths):
    create_profile(home, "zoe", None)
    home.key_file.chmod(mode)
    with pytest.raises(OpenToOthers, match="chmod 600"):
        unlock(home, None)
    home.key_file.chmod(0o600)
    assert unlock(home, None)


def test_advice_for_an_unreadable_key_file(home: ProfilePaths, monkeypatch: pytest.MonkeyPatch):
    create_profile(home, "zoe", None)
    real = os.open

    def denied(path: Any, *rest: Any, **more: Any) -> int:
        if path == home.key_file:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        with pytest.raises(BadSecretFile, match=r"permission denied.*chmod 600"):
            unlock(home, None)
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(NotOurSecretFile, match=f"belongs to another user .id {os.getuid()}.*chown"):
            unlock(home, None)


def test_a_key_file_must_be_the_file_itself(home: ProfilePaths, tmp_path: Path):
    create_profile(home, "zoe", None)
    home.key_file.rename(tmp_path / "elsewhere")
    home.key_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadSecretFile, match="symbolic link"):
        unlock(home, None)
    home.key_file.unlink()
    os.mkfifo(home.key_file, 0o600)
    with pytest.raises(BadSecretFile, match="regular file"):
        unlock(home, None)
    home.key_file.unlink()
    home.key_file.mkdir(mode=0o700)
    with pytest.raises(BadSecretFile, match="regular file"):
        unlock(home, None)


# --- passphrases from files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"secret", b"secret\n", b"secret\r\n", b"secret\nand more\n"])
def test_a_passphrase_is_the_first_line_of_its_file(text: bytes, tmp_path: Path):
    path = tmp_path / "passphrase"
    path.write_bytes(text)
    source = passphrase_source({"ZEROCHAT_PASSPHRASE_FILE": str(path)})
    assert source is not None and source() == b"secret"


def test_a_passphrase_from_a_descriptor(tmp_path: Path):
    reader, writer = os.pipe()
    os.write(writer, b"secret\n")
    os.close(writer)
    source = passphrase_source({"ZEROCHAT_PASSPHRASE_FILE": f"/dev/fd/{reader}"})
    assert source is not None and source() == b"secret"
    os.close(reader)


@pytest.mark.parametrize("text", [None, b"", b"\n", b"x" * 5000])
def test_a_passphrase_file_without_passphrase_is_refused(text: bytes | None, tmp_path: Path):
    path = tmp_path / "passphrase"
    if text is not None:
        path.write_bytes(text)
    source = passphrase_source({"ZEROCHAT_PASSPHRASE_FILE": str(path)})
    assert source is not None
    with pytest.raises(BadPassphrase):
        source()


def test_no_passphrase_file():
    assert passphrase_source({}) is None
    assert passphrase_source({"ZEROCHAT_PASSPHRASE_FILE": ""}) is None


# --- ownership --------------------------------------------------------------------------------------------------------


def test_one_owner_at_a_time(home: ProfilePaths):
    create_profile(home, "zoe", None)
    with lock_profile(home) as lock:
        with pytest.raises(ProfileOwned, match=f"process {os.getpid()}"):
            lock_profile(home)
        lock.close()
        with lock_profile(home):
            lock.close()  # a second time: it must not let go of somebody else's descriptor
            with pytest.raises(ProfileOwned):
                lock_profile(home)
    assert stat.S_IMODE(home.lock.stat().st_mode) == 0o600


HOLD = """
import sys
from pathlib import Path
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import lock_profile
with lock_profile(profile_paths("p", {"ZEROCHAT_HOME": sys.argv[1]})):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_a_killed_owner_releases_the_lock(home: ProfilePaths, tmp_path: Path):
    create_profile(home, "zoe", None)
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "home")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"mine\n"
        with pytest.raises(ProfileOwned, match=f"process {owner.pid}"):
            lock_profile(home)
        owner.kill()
        owner.wait(10)
        lock_profile(home).close()


# --- the system's keyring -------------------------------------------------------------------------------------------


def test_a_key_in_the_keyring_is_nowhere_on_disk(home, monkeypatch):
    keyring = StandInKeyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    profiles.create_profile(home, "alice", None, keyring=True)
    (secret,) = keyring.kept.values()
    assert not home.key_file.exists() and not home.wrapped_key_file.exists()
    assert all(secret.encode() not in path.read_bytes() for path in home.data.rglob("*") if path.is_file())
    Journal.open(home.journal, profiles.unlock(home, None)).close()
    keyring.kept.clear()
    with pytest.raises(os_keyring.NoKeyring, match="does not have the key"):
        profiles.unlock(home, None)


@pytest.mark.parametrize("module", [None, StandInKeyring(broken=True)], ids=["absent", "locked"])
def test_without_a_keyring_no_profile_and_no_leaked_secret(home, monkeypatch, module):
    monkeypatch.setitem(sys.modules, "keyring", module)
    with pytest.raises(os_keyring.NoKeyring) as caught:
        profiles.create_profile(home, "alice", None, keyring=True)
    assert "passphrase" in str(caught.value) and "backend for" not in str(caught.value)
    assert not profiles.profile_exists(home)
