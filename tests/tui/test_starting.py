"""Startup and shutdown: first run, passphrase, failing agents, unreadable journals."""

import asyncio
import os
import pty
import signal
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key, Paste
from textual.widgets import Input

from tests.support.fake_agent import FakeAgent, Refusal
from tests.support.marks import others_slow
from tests.support.tui_pilot import Scene, gone, run, scene, screen, shows, until, weekend
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import WrongPassphrase, create_profile
from zerochat.rpc import LINE_BYTES_MAX
from zerochat.tui import restored_signals, run_chat
from zerochat.tui.app import ZerochatApp
from zerochat.tui.state import agent_link
from zerochat.tui.state.agent_link import AgentLink

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


def test_the_first_run_creates_a_group(tmp_path):
    async def play():
        made = []

        def create(nick, passphrase):
            assert passphrase is None
            if not made:
                made.append("refused")
                raise OSError("The home folder is read-only: choose another with ZEROCHAT_HOME.")
            made.append(nick)

        async with scene(tmp_path, create_profile=create, demo=True) as it:
            await it.shows("Welcome to zerochat", "Your name, as other members see it:")
            await it.press("enter")
            await it.shows("Enter a name.")
            await it.type("alice1")
            assert it.app.screen.query_one(Input).value == "alice1"  # A digit in a name chooses nothing.
            await it.press("enter")
            await it.shows("A passphrase (optional):", "Enter skips it")
            await it.press("enter")
            await it.shows("1  Create a group", "2  Join a group", "3  Try the demo")
            assert it.agent.asked == []
            await it.press("1")
            await it.shows("The home folder is read-only")
            await it.press("1")
            await it.shows("Name of the new group")
            assert made == ["refused", "alice1"]

    run(play())


@pytest.mark.parametrize(("choice", "shown"), [("1", "Name of the new group"), ("2", "Paste the invitation")])
def test_text_typed_after_the_first_choice_goes_to_its_dialog(tmp_path, choice, shown):
    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        go = threading.Event()

        def start_agent(ask):
            assert go.wait(20)

        app = ZerochatApp(agent.path, start_agent=start_agent, create_profile=lambda nick, passphrase: None)
        async with app.run_test(size=(80, 24)) as pilot:
            it = Scene(agent, app, pilot)
            await it.shows("Welcome to zerochat")
            await it.type("alice")
            await it.press("enter", "enter")
            await it.shows("1  Create a group")
            await it.press(choice)
            await it.shows("Starting…")
            await it.press("enter")
            await it.type("hikerz")
            app.post_message(Key("backspace", "\x08"))
            await it.type("s")
            await agent.start()
            go.set()
            await it.shows(shown)
            await it.until(lambda: "hikers" in it.text)
            assert it.composer.text == ""
        await agent.stop()

    run(play())


def test_a_second_choice_at_the_first_run_creates_nothing(tmp_path):
    async def play():
        made, go = [], threading.Event()

        def create(nick, passphrase):
            made.append(nick)
            assert go.wait(20)
            assert len(made) == 1, "The profile default exists already."

        async with scene(tmp_path, create_profile=create, demo=True) as it:
            await it.type("alice")
            await it.press("enter", "enter", "2", "enter", "3")
            await it.until(lambda: made)
            go.set()
            await it.shows("Paste the invitation")
            assert made == ["alice"]

    run(play())


@pytest.mark.parametrize(("key", "dialog"), [("f7", "Name of the new group"), ("f8", "Paste the invitation")])
def test_the_first_run_has_the_keys_of_the_chat(tmp_path, key, dialog):
    async def play():
        made = []
        async with scene(tmp_path, create_profile=lambda nick, passphrase: made.append((nick, passphrase))) as it:
            await it.press(key)
            await it.shows("Enter a name.")
            await it.type("alice")
            await it.press(key)
            await it.shows(dialog)
            assert made == [("alice", None)]

    run(play())


@pytest.mark.slow
def test_the_first_run_can_end_in_the_demo(tmp_path):
    async def play():
        async with scene(
            tmp_path, create_profile=lambda *given: pytest.fail("the demo needs no profile"), demo=True
        ) as it:
            await it.type("alice")
            await it.press("enter", "enter", "down", "down", "enter")
            await it.until(lambda: not it.app.is_running)
            assert it.app.return_value == "demo"

    run(play())


@pytest.mark.parametrize("size", others_slow([(80, 24), (60, 20)]))
def test_the_first_run_offers_a_passphrase(tmp_path, size):
    """It is typed twice, shown nowhere, and may be skipped with Enter."""

    async def play():
        made = []
        async with scene(
            tmp_path, size=size, create_profile=lambda *given: made.append(given), start_agent=lambda prompt: None
        ) as it:
            await it.shows("Welcome to zerochat")
            await it.type("alice")
            await it.press("enter")
            await it.shows("A passphrase (optional):", "encrypts this profile's key")
            await it.type("2 birds")
            await it.press("enter")
            await it.shows("The passphrase again:")
            await it.type("2 bird")
            await it.press("enter")
            await it.shows("The passphrases do not match.")
            assert "bird" not in it.text and not made
            await it.type("2 birds")
            await it.press("enter")
            await it.type("2 birds")
            await it.press("enter")
            await it.shows("The passphrase is set.", "1  Create a group")
            assert "bird" not in it.text and not made
            await it.press("escape", "enter", "enter", "enter", "1")
            await it.until(lambda: made)
            assert made == [("alice", b"2 birds")]

    run(play())


def test_a_passphrase_of_the_first_run_is_not_asked_for_at_once(tmp_path, monkeypatch):
    """The agent of the first run starts with it; the next start asks."""
    from zerochat.agent.storage.profiles import unlock
    from zerochat.tui import _AgentStarter

    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))
    places = profile_paths(None, os.environ)
    create_profile(places, "alice", b"2 birds")
    asked = []

    class Attached:
        own = False

        def close(self):
            pass

    def attach(given, passphrase, **options):
        unlock(given, passphrase)
        return Attached()

    def prompt():
        asked.append(1)
        return b"2 birds"

    monkeypatch.setattr("zerochat.agent.api.attach.attach", attach)
    starter = _AgentStarter(places, None, None, None)
    starter.typed = b"2 birds"
    app = ZerochatApp(places.socket)
    starter.start(app, prompt)
    assert not asked
    starter.start(app, prompt)
    assert asked == [1]


def test_the_first_frame_does_not_wait_for_the_agent(tmp_path):
    import threading

    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        go, called = threading.Event(), []

        def start_agent(ask):
            called.append(threading.current_thread())
            assert go.wait(20)

        app = ZerochatApp(agent.path, start_agent=start_agent)
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(pilot, "Starting…")
            await shows(pilot, "F1 help")
            assert called and called[0] is not threading.main_thread()
            await agent.start()
            go.set()
            await shows(pilot, "seven at the station")
            await gone(pilot, "Starting…")
        await agent.stop()

    run(play())


def test_the_restart_of_a_service_is_awaited(tmp_path, monkeypatch):
    """The chat does not take the place of an agent that outlives it, until that does not come back."""
    connect, refused, started = asyncio.open_unix_connection, [], []

    async def counted(path, **more):
        try:
            return await connect(path, **more)
        except OSError:
            refused.append(path)
            raise

    monkeypatch.setattr(asyncio, "open_unix_connection", counted)

    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        await agent.start()
        app = ZerochatApp(agent.path, start_agent=lambda ask: started.append(1))
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(pilot, "seven at the station")
            monkeypatch.setattr(agent_link, "RESTART_S_MAX", 3600.0)
            await agent.stop()
            await until(pilot, lambda: len(refused) > 1)
            assert not started
            monkeypatch.setattr(agent_link, "RESTART_S_MAX", 0.0)
            await until(pilot, lambda: started)

    run(play())


def test_a_failing_agent_start_is_shown_and_retried(tmp_path):
    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        asked = []

        def start_agent(ask):
            asked.append(ask())
            if asked[-1] != b"right":
                raise WrongPassphrase(profile="default")

        app = ZerochatApp(agent.path, start_agent=start_agent)
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(pilot, "Passphrase for this profile")
            await pilot.press(*"wrong", "enter")
            await shows(pilot, "\n Wrong passphrase for the profile default. Try again.")
            await shows(pilot, "Passphrase for this profile")
            assert "wrong\n" not in screen(app)
            await agent.start()
            await pilot.press(*"right", "enter")
            await shows(pilot, "seven at the station")
        await agent.stop()
        assert asked == [b"wrong", b"right"]

    run(play())


@pytest.mark.parametrize("pasted", others_slow([False, True]))
@pytest.mark.parametrize("enter", [False, True])
def test_an_early_passphrase_is_never_visible(tmp_path, pasted, enter):
    """What is typed before the question is there goes into it; or, where nobody asks, nowhere."""

    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        asked, go = [], threading.Event()

        def start_agent(ask):
            assert go.wait(20)
            asked.append(ask())

        app = ZerochatApp(agent.path, start_agent=start_agent)
        async with app.run_test(size=(80, 24)) as pilot:
            it = Scene(agent, app, pilot)
            await it.shows("Starting…")
            await it.press("tab", "escape")  # Neither leads into the composer.
            if pasted:
                app.post_message(Paste("open sesxame\n"))
                await it.press(*["backspace"] * 4)
                await it.type("ame")
            else:
                await it.type("open sesame")
            if enter:
                await it.press("enter")
            assert "open" not in it.text and it.composer.text == "" and it.app.focused is not it.composer
            await agent.start()
            go.set()
            if not enter:
                await it.shows("Passphrase for this profile", "•••")
                await it.press("enter")
            await it.shows("seven at the station")
            assert asked == [b"open sesame"] and it.composer.text == ""
            await it.type("hello")
            assert it.composer.text == "hello" and agent.count("send_message") == 0
        await agent.stop()

    run(play())


def test_early_keys_without_a_passphrase_are_dropped(tmp_path):
    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        go = threading.Event()

        def start_agent(ask):
            assert go.wait(20)

        app = ZerochatApp(agent.path, start_agent=start_agent)
        async with app.run_test(size=(80, 24)) as pilot:
            it = Scene(agent, app, pilot)
            await it.shows("Starting…")
            await it.type("secret")
            await it.press("enter")
            await agent.start()
            go.set()
            await it.shows("seven at the station")
            await it.until(lambda: it.app.focused is it.composer)
            assert it.composer.text == "" and agent.count("send_message") == 0 and "secret" not in it.text
        await agent.stop()

    run(play())


@pytest.mark.slow
def test_keys_between_two_prompts_go_to_the_second(tmp_path):
    """The same holds while a wrong passphrase is looked at."""

    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        asked, go = [], threading.Event()

        def start_agent(ask):
            asked.append(ask())
            if asked[-1] != b"right":
                assert go.wait(20)
                raise ValueError("This passphrase is wrong.")

        app = ZerochatApp(agent.path, start_agent=start_agent)
        async with app.run_test(size=(80, 24)) as pilot:
            it = Scene(agent, app, pilot)
            await it.shows("Passphrase for this profile")
            await it.press(*"wrong", "enter")
            await it.gone("Passphrase for this profile")
            await it.type("right")
            assert "right" not in it.text and it.composer.text == ""
            go.set()
            await it.shows("Passphrase for this profile", "•••••")
            await agent.start()
            await it.press("enter")
            await it.shows("seven at the station")
            assert asked == [b"wrong", b"right"] and it.composer.text == ""
        await agent.stop()

    run(play())


@pytest.mark.slow
def test_a_locked_chat_shows_nothing_and_keeps_drafts(tmp_path):
    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        asked, locked = [], []

        def start_agent(ask):
            asked.append(ask())

        async with agent:
            app = ZerochatApp(agent.path, start_agent=start_agent, lock=lambda: locked.append(True))
            async with app.run_test(size=(100, 30), notifications=True) as pilot:
                it = Scene(agent, app, pilot)
                await it.shows("seven at the station")  # An agent ran already: nobody asked.
                app.lock_after(3600.0)
                await it.type("a sketch")
                await it.press("alt+2")
                await it.type("another")
                await it.press("f12")
                await it.shows("process")
                app._last_input -= 7200.0
                app._lock_if_idle()
                await it.shows("Passphrase for this profile", "Locked after inactivity")
                await it.shows("Your draft will be restored.")
                for word in ("seven", "weekend", "another", "sketch", "work", "process", "alice"):
                    assert word not in it.text, word
                assert locked == [True] and asked == [] and it.composer.text == ""
                app._lock_if_idle()  # once is enough
                await it.type("secret")
                assert "secret" not in it.text
                await it.press("enter")
                await it.shows("another")
                assert asked == [b"secret"] and locked == [True] and it.open.name == "work"
                await it.press("alt+1")
                await it.shows("seven at the station", "a sketch")
                assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is kept on disk"
                app._last_input -= 7200.0
                app._lock_if_idle()
                await it.shows("Passphrase for this profile")
                await it.press("ctrl+q")
                await it.until(lambda: not app.is_running)
                assert agent.drafts == {"g1": "a sketch", "g2": "another"}

    run(play())


def test_another_process_cannot_unlock_the_chat(tmp_path, monkeypatch):
    home = profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})
    create_profile(home, "zoe", b"secret")
    attached = []

    class Elsewhere:
        own = False

        def close(self):
            attached.remove(self)

    def attach(*_, **__):
        attached.append(Elsewhere())
        return attached[-1]

    class App:
        return_code = 0

        def __init__(self, socket, *, start_agent, lock, **_):
            self.start_agent, self.lock = start_agent, lock

        def run(self):
            self.start_agent(lambda: b"nobody asks")
            assert len(attached) == 1
            self.lock()
            with pytest.raises(WrongPassphrase):
                self.start_agent(lambda: b"wrong")
            assert not attached
            self.start_agent(lambda: b"secret")
            assert len(attached) == 1

    monkeypatch.setattr("zerochat.agent.api.attach.attach", attach)
    monkeypatch.setattr("zerochat.tui.app.ZerochatApp", App)
    assert run_chat(home) == 0 and not attached


def test_no_terminal_echo_before_the_screen(monkeypatch, tmp_path):
    main, line = pty.openpty()
    before, echoed = os.dup(0), []

    class App:
        return_code = 0

        def __init__(self, *_, **__):
            pass

        def run(self):
            echoed.append(bool(termios.tcgetattr(line)[3] & termios.ECHO))

    monkeypatch.setattr("zerochat.tui.app.ZerochatApp", App)
    os.dup2(line, 0)
    try:
        assert run_chat(profile_paths("p", {"ZEROCHAT_HOME": str(tmp_path)})) == 0
        echoed.append(bool(termios.tcgetattr(line)[3] & termios.ECHO))
    finally:
        os.dup2(before, 0)
        for each in (main, line, before):
            os.close(each)
    assert echoed == [False, True]


def test_an_unreadable_journal_is_shown_in_the_banner(tmp_path):
    sentence = "The journal /home/a/.local/share/zerochat/default/journal.db is damaged: it is not as it was."

    def setting(agent):
        weekend(agent)
        agent.refuse["get_history"] = Refusal(sentence, "JournalDamaged")

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("The messages could not be read.", "/home/a/.local/share/zerochat/default/journal.db")
            assert "Loading" not in it.text and "No conversations" not in it.text and not it.app._notifications
            await it.press("alt+2", "x")
            await it.shows("The messages could not be read.", "is damaged")
            it.agent.refuse.clear()
            await it.press("alt+1")
            await it.shows("seven at the station")
            await it.gone("is damaged")
            it.agent.refuse["send_message"] = Refusal(sentence, "JournalDamaged")
            await it.say("hello")
            await it.shows("default/journal.db", "Not done: the journal is damaged.")
            await it.press("y")
            assert "default/journal.db" in it.text and it.composer.text == "helloy"

    run(play())


def test_a_journal_damaged_at_startup(tmp_path):
    def setting(agent):
        weekend(agent)
        for method in ("subscribe", "get_history"):
            agent.refuse[method] = Refusal("The journal default/journal.db is damaged.", "JournalDamaged")

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("1 weekend", "2 work", "The journal default/journal.db is damaged.")
            await it.shows("The messages could not be read.")
            assert "No conversations" not in it.text and "Loading" not in it.text

    run(play())


@pytest.mark.slow
def test_unreadable_older_messages_are_reported(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(300):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 299.")
            it.agent.refuse["get_history"] = Refusal("The disk fails.", "DiskFailed")
            await it.press("ctrl+home")
            await it.shows("Older messages could not be read.", "The disk fails.")
            it.agent.refuse.clear()
            await it.press("pageup")
            await it.gone("could not be read")
            await it.gone("The disk fails.")

    run(play())


def test_the_link_reconnects(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("a draft")
            await it.agent.stop()
            await it.shows("No agent is running. Retrying…")
            await it.press("enter")
            await it.until(lambda: "Not connected to the agent" in it.told())
            assert it.composer.text == "a draft"
            group = it.agent.groups["g1"]
            it.agent.post(group, 1, "said meanwhile", minute=8)
            it.agent.receipt(group, 2, upto=4)
            await it.agent.start()
            await it.shows("said meanwhile", "✓2/2")
            await it.gone("Retrying")
            assert len(it.open.timeline.rows) == 5
            await it.press("enter")
            await it.until(lambda: it.agent.count("send_message") == 1)

    run(play())


def test_signal_handlers_are_restored():
    """Else a second SIGTERM would kill the process while it stops its agent."""

    async def heed():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)

    def theirs(number, frame):
        raise AssertionError("nobody sends it")

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        with restored_signals():
            asyncio.run(heed())
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_line_that_is_too_long_is_not_asked_for_at_once(tmp_path, monkeypatch):
    """The chat connects again after longer and longer delays, though the agent answers each greeting."""
    served: list[Any] = []
    delays, sleep = [], asyncio.sleep

    async def play():
        async def serve(reader, writer):
            served.append((asyncio.current_task(), writer))
            with suppress(ConnectionError):
                await reader.readline()
                writer.write(b"{}\n" + b"x" * (2 * LINE_BYTES_MAX) + b"\n")
                await writer.drain()

        def noted(seconds, *result):
            delays.append(seconds)
            return sleep(0, *result)

        path = tmp_path / "agent.sock"
        async with await asyncio.start_unix_server(serve, path):

            async def connected(hello):
                pass

            link = AgentLink(path, start_agent=None, on_state=print, on_news=print, on_up=connected)
            with monkeypatch.context() as patched:
                patched.setattr(asyncio, "sleep", noted)
                running = asyncio.create_task(link.run())
                while len([each for each in delays if each]) < 7:
                    await sleep(0.005)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            for task, writer in served:
                writer.transport.abort()
                await asyncio.gather(task, writer.wait_closed(), return_exceptions=True)

    run(play())
    assert [each for each in delays if each][:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
