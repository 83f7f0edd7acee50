"""Paths of a profile, and validation of the settings file."""

import os
import socket
import stat
from pathlib import Path

import pytest

from zerochat.agent.settings.config_file import BadSettings
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.storage import paths as places_module
from zerochat.agent.storage.paths import SOCKET_PATH_BYTES_MAX, BadProfile, FolderTaken, profile_paths


@pytest.fixture
def xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Base directories of the test's own, and a short name for long sockets."""
    monkeypatch.setattr(places_module, "SHORT", tmp_path)
    monkeypatch.delenv("ZEROCHAT_AGENT__PROTECT_MEMORY")
    named = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    return {**named, "XDG_RUNTIME_DIR": str(runtime)}


def bind(path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """Listen at a path that may be too long for the kernel when written out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with monkeypatch.context() as there:
        there.chdir(path.parent)
        listener.bind(path.name)
    return listener


def test_base_directories(xdg: dict[str, str], tmp_path: Path):
    found = profile_paths(None, xdg)
    assert found.profile == "default"
    assert found.config == tmp_path / "config/zerochat/config.toml"
    assert found.data == tmp_path / "data/zerochat/default"
    assert found.state == tmp_path / "state/zerochat/default"
    assert found.cache == tmp_path / "cache/zerochat/default"
    assert {found.journal, found.key_file, found.wrapped_key_file, found.lock} == {
        found.data / name for name in ("journal.db", "key", "wrapped-key", "lock")
    }
    assert not found.data.exists()  # looking makes nothing


def test_relative_base_directory_does_not_count(xdg: dict[str, str]):
    assert profile_paths(None, {**xdg, "XDG_DATA_HOME": "data"}).data.is_absolute()


def test_one_home_holds_everything(xdg: dict[str, str], tmp_path: Path):
    home = tmp_path / "h"
    found = profile_paths("work", {**xdg, "ZEROCHAT_HOME": str(home)})
    for path in (found.config, found.data, found.state, found.cache, found.log, found.lock):
        assert path.is_relative_to(home)
    assert found.socket.parent.parent == home or found.socket.is_relative_to(tmp_path)


def test_the_command_line_overrides_the_environments_profile(xdg: dict[str, str]):
    assert profile_paths("a", {**xdg, "ZEROCHAT_PROFILE": "b"}).profile == "a"
    assert profile_paths(None, {**xdg, "ZEROCHAT_PROFILE": "b"}).profile == "b"
    one, other = profile_paths("a", xdg), profile_paths("b", xdg)
    for name in ("data", "state", "cache", "socket", "log"):
        assert getattr(one, name) != getattr(other, name)


@pytest.mark.parametrize("name", [".", "..", ".a", "-a", "a/b", "a\n", "a b", "ä", "x" * 33, "\x1b[2J"])
def test_profile_names_are_safe_file_names(name: str, xdg: dict[str, str]):
    with pytest.raises(BadProfile) as refusal:
        profile_paths(name, xdg)
    assert "\x1b" not in str(refusal.value)


# --- the socket -------------------------------------------------------------------------------------------------------


def test_an_agent_is_found_from_every_environment(xdg: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """A cron job has no XDG_RUNTIME_DIR. Whoever of the two starts the agent, the other finds it."""
    monkeypatch.setattr(places_module, "SOCKET_PATH_BYTES_MAX", 4096)
    cron = {**xdg, "XDG_RUNTIME_DIR": "/nonexistent"}
    with bind(profile_paths("p", xdg).data / "agent.sock", monkeypatch) as listener:
        assert (
            profile_paths("p", xdg).socket
            == profile_paths("p", cron).socket
            == profile_paths("p", xdg).data / "agent.sock"
        )
        profile_paths("p", xdg).socket.unlink()
    assert listener.fileno() < 0
    assert profile_paths("p", xdg).socket == Path(xdg["XDG_RUNTIME_DIR"]) / "zerochat/p.sock"


def test_a_long_path_has_a_short_substitute(tmp_path: Path, xdg: dict[str, str]):
    long = {**xdg, "ZEROCHAT_HOME": str(tmp_path / ("long" * 30))}
    found = profile_paths("p", long).socket
    assert found == profile_paths("p", long).socket
    assert found != profile_paths("p", {**long, "ZEROCHAT_HOME": long["ZEROCHAT_HOME"] + "er"}).socket
    folder = found.parent.stat()
    assert folder.st_uid == os.geteuid() and stat.S_IMODE(folder.st_mode) == 0o700
    # The folder for short names is a long one in this test.
    assert len(os.fsencode(found)) - len(os.fsencode(tmp_path)) + len("/tmp") < SOCKET_PATH_BYTES_MAX


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_substitute_that_others_could_use_is_refused(trap: str, tmp_path: Path, xdg: dict[str, str]):
    long = {**xdg, "ZEROCHAT_HOME": str(tmp_path / ("long" * 30))}
    folder = profile_paths("p", long).socket.parent
    if trap == "open":
        folder.chmod(0o755)
    else:
        folder.rmdir()
        if trap == "link":
            folder.symlink_to(tmp_path / "r")
        else:
            folder.touch()
    with pytest.raises(FolderTaken) as refusal:
        profile_paths("p", long)
    assert str(folder) in str(refusal.value)


# --- settings ---------------------------------------------------------------------------------------------------------


def settings(xdg: dict[str, str], text: str | bytes) -> Settings:
    found = profile_paths(None, xdg)
    found.config.parent.mkdir(parents=True, exist_ok=True)
    found.config.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_settings(found)


def test_settings(xdg: dict[str, str]):
    assert load_settings(profile_paths(None, xdg)) == Settings()
    assert settings(xdg, "") == Settings()
    assert settings(xdg, '[network]\nlisten = "[::1]:4242:4243"\nadvertise = "2001:DB8::7"\n') == Settings(
        "[::1]:4242:4243", "2001:db8::7"
    )
    assert settings(xdg, '[network]\nlisten = "::1"\nadvertise = "[2001:db8::7]"\nsocks = "[::1]:9050"\n') == Settings(
        "::1", "2001:db8::7", socks="[::1]:9050"
    )


def test_unknown_settings_warn_with_the_nearest_name(xdg: dict[str, str]):
    found = settings(xdg, '[network]\nlissen = "127.0.0.1"\n[colour]\nnick = 3\n[empty]\n')
    assert found == Settings(warnings=found.warnings)
    assert found.warnings == (
        'Unknown setting "network.lissen". Did you mean network.listen?',
        'Unknown setting "colour.nick".',
        'Unknown setting "empty".',
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[network", "TOML"),
        (b"\xff", "TOML"),
        ("a = " + "[" * 60_000, "TOML"),
        ("#" * 70_000, "65536"),
        ("[network]\nlisten = 4242", "network.listen"),
        ('[network]\nlisten = "example.org"', "network.listen"),
        ('[network]\nadvertise = "example.org"', "peers do not look up names"),
        ('[network]\nsocks = "localhost:9050"', "such as 127.0.0.1:9050"),
        ('[network]\nsocks = "127.0.0.1"', "such as 127.0.0.1:9050"),
        ('[network]\nsocks = "127.0.0.1:99999"', "such as 127.0.0.1:9050"),
        ('[network]\nadvertise = "[2001:db8::7]:4242"', "without a port"),
        ('[network]\nlisten = "127.0.0.1:4242:4242"', "two ports must differ"),
        ("[network]\nadvertise = 7", "a text in quotes"),
        ('[network]\nweb_public = "http://me:secret@example.org"', "network.web_public"),
        ('[network]\nweb_public = "http://"', "network.web_public"),
        ('[network]\nadvertise = "0.0.0.0"', "network.advertise"),
    ],
)
def test_wrong_settings_are_refused_with_the_file_and_the_reason(text: str | bytes, word: str, xdg: dict[str, str]):
    with pytest.raises(BadSettings) as refusal:
        settings(xdg, text)
    assert word in str(refusal.value) and str(profile_paths(None, xdg).config) in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_profile_has_settings_of_its_own(tmp_path):
    home = {"ZEROCHAT_HOME": str(tmp_path)}
    work, other = profile_paths("work", home), profile_paths("other", home)
    work.config.parent.mkdir(parents=True, exist_ok=True)
    work.config.write_text(
        '[network]\nhidden = true\nsocks = "127.0.0.1:9050"\n'
        '[profiles.work.network]\nhidden = false\nweb = "127.0.0.1:8081"\nhiden = true\n'
    )
    mine = load_settings(work)
    assert (mine.hidden, mine.web, mine.socks) == (False, "127.0.0.1:8081", "127.0.0.1:9050")
    assert mine.warnings == ('Unknown setting "network.hiden". Did you mean network.hidden?',)
    theirs = load_settings(other)
    assert (theirs.hidden, theirs.web, theirs.warnings) == (True, None, ())
