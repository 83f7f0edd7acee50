"""Automatic locking: idle agents and chats of a profile with a typed passphrase end."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fake_agent import FakeAgent
from tests.support.tui_pilot import until
from zerochat.agent.api.client import connect
from zerochat.agent.api.client_connection import NoAgent
from zerochat.agent.settings.config_file import BadSettings
from zerochat.agent.settings.reader import Settings, load_settings
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.agent.storage.profiles import create_profile, lock_profile, unlock
from zerochat.agent.thread import AgentThread
from zerochat.cli import main
from zerochat.tui import run_chat
from zerochat.tui.app import ZerochatApp

DEADLINE_S = 30.0


@pytest.fixture
def home(tmp_path: Path) -> ProfilePaths:
    return profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})


def ended(thread: AgentThread) -> None:
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "it goes on"


@pytest.mark.slow
def test_an_unused_agent_locks_the_profile(home: ProfilePaths):
    create_profile(home, "zoe", None)
    key = unlock(home, None)
    thread = AgentThread(home, key, listen="127.0.0.1", unused_s=0.5)
    thread.start()
    with connect(home, "test") as client:
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            assert thread.is_alive(), "somebody is attached"
            time.sleep(0.1)
        assert client.get_status().profile == "p"
    ended(thread)
    assert thread.unneeded and thread.failure is None
    with pytest.raises(NoAgent):
        connect(home, "test")
    with lock_profile(home), Journal.open(home.journal, key):
        pass  # it is nobody's any more


def test_without_the_setting_an_agent_stays(home: ProfilePaths):
    create_profile(home, "zoe", None)
    thread = AgentThread(home, unlock(home, None), listen="127.0.0.1")
    thread.start()
    time.sleep(1.5)
    assert thread.is_alive() and not thread.unneeded
    thread.stop()


@pytest.mark.parametrize(
    ("text", "minutes"), [("", 0), ("[agent]\nlock_after = 15\n", 15), ("[agent]\nlock_after=0", 0)]
)
def test_the_setting(text: str, minutes: int, home: ProfilePaths):
    home.config.parent.mkdir(exist_ok=True)
    home.config.write_text(text)
    assert load_settings(home).lock_after == minutes


@pytest.mark.parametrize("value", ["-1", "true", '"15"', "1.5", "10081", "[]"])
def test_an_invalid_setting_is_refused(value: str, home: ProfilePaths):
    home.config.parent.mkdir(exist_ok=True)
    home.config.write_text(f"[agent]\nlock_after = {value}\n")
    with pytest.raises(BadSettings, match="lock_after"):
        load_settings(home)


@pytest.mark.parametrize(("passphrase", "from_file"), [(b"secret", False), (b"secret", True), (None, False)])
def test_a_chat_with_a_typed_passphrase_locks_automatically(
    passphrase: bytes | None, from_file: bool, home: ProfilePaths, monkeypatch: pytest.MonkeyPatch
):
    create_profile(home, "zoe", passphrase)
    home.config.write_text('[network]\nlisten = "127.0.0.1"\n[agent]\nlock_after = 15\n')
    closes_after = []

    class App:
        return_code = 0

        def __init__(self, socket: Path, *, start_agent: Callable[[Callable[[], bytes]], None], **_: object) -> None:
            self.start_agent = start_agent

        def run(self) -> None:
            self.start_agent(lambda: b"secret")

        def call_from_thread(self, deed: Callable[..., None], *given: object) -> None:
            deed(*given)

        def lock_after(self, seconds: float) -> None:
            closes_after.append(seconds)

    monkeypatch.setattr("zerochat.tui.app.ZerochatApp", App)
    assert run_chat(home, (lambda: b"secret") if from_file else None) == 0
    assert closes_after == ([900.0] if passphrase and not from_file else [])


@pytest.mark.slow
@pytest.mark.parametrize("typed", [True, False])
def test_an_agent_with_a_typed_passphrase_locks_automatically(
    typed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))
    monkeypatch.delenv("ZEROCHAT_PROFILE", raising=False)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret\n")
    create_profile(profile_paths(None, os.environ), "zoe", b"secret")
    if typed:
        monkeypatch.delenv("ZEROCHAT_PASSPHRASE_FILE", raising=False)
        monkeypatch.setattr("zerochat.cli.prompts._has_terminal", lambda: True)
        monkeypatch.setattr("getpass.getpass", lambda prompt: "secret")
    else:
        monkeypatch.setenv("ZEROCHAT_PASSPHRASE_FILE", str(secret))
    quick = Settings(listen="127.0.0.1", lock_after=0.05)  # type: ignore[arg-type]  # nobody waits for a minute here
    monkeypatch.setattr("zerochat.agent.settings.reader.load_settings", lambda home: quick)
    begun: list[AgentThread] = []
    start = AgentThread.start

    def started(thread: AgentThread) -> None:
        begun.append(thread)
        start(thread)
        if not typed:
            threading.Timer(3.0, thread.stop).start()

    monkeypatch.setattr(AgentThread, "start", started)
    assert main(["agent"]) == 0
    assert begun[0].unneeded is typed
    assert ("no client was attached" in capsys.readouterr().err) is typed


@pytest.mark.slow
def test_an_idle_chat_closes(tmp_path: Path):
    async def scene() -> None:
        async with FakeAgent(tmp_path / "socket") as agent:
            app = ZerochatApp(agent.path)
            async with app.run_test(size=(80, 24)) as pilot:
                app.lock_after(3600.0)
                app._last_input -= 7200.0
                await pilot.press("a")
                app._lock_if_idle()
                assert app.is_running and not app._exit, "somebody has just touched it"
                app.lock_after(0.1)
                await until(pilot, lambda: app._exit, "closing")

    asyncio.run(scene())


def test_a_chat_stays_open_without_auto_lock(tmp_path: Path):
    async def scene() -> None:
        async with FakeAgent(tmp_path / "socket") as agent:
            app = ZerochatApp(agent.path)
            async with app.run_test(size=(80, 24)):
                app._last_input -= 1e9
                app._lock_if_idle()
                assert app.is_running and not app._exit

    asyncio.run(scene())
