"""Notifications: policy, rate, and the content for desktop and commands."""

import asyncio
import json
import os
import sys

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import ME
from tests.support.marks import others_slow
from tests.support.tui_pilot import HOSTILE, run, scene, weekend
from zerochat.agent.settings.client_preferences import Preferences, preferences
from zerochat.tui.host import notify
from zerochat.tui.host.notify import (
    PROGRAMS_MAX,
    Notification,
    NotificationPolicy,
    Notifier,
    desktop,
    duration_s,
    duration_text,
    osc,
)
from zerochat.tui.state.preferences import SettingsStore

pytestmark = pytest.mark.usefixtures("utc")
ABOUT = Notification("g1", "weekend", "did:key:bob", "bob", "are you there?", True, "m1", "2025-11-20T12:09:00.000Z")


def calling(event, **details):
    """The event, as it is when it calls me by name."""
    return replace(event, mentions=[ME], **details)


class Stage:
    """A herald with a clock and timers that the test moves."""

    def __init__(self, **found):
        self.now, self.timers, self.told = 0.0, [], []
        self.preferences = Preferences(**found)
        self.herald = NotificationPolicy(lambda: self.preferences, self.told.append, self._later, lambda: self.now)

    def _later(self, seconds, work):
        self.timers.append((self.now + seconds, work))

    def pass_by(self, seconds):
        self.now += seconds
        while due := [timer for timer in self.timers if timer[0] <= self.now]:
            for timer in due:
                self.timers.remove(timer)
                timer[1]()


@pytest.fixture
def group(tmp_path):
    from tests.support.fake_agent import FakeAgent

    agent = FakeAgent(tmp_path / "unused.sock")
    return agent, agent.add_group("weekend", ["bob"])


def test_mentions_notify_by_default(group):
    agent, weekend = group
    stage = Stage()
    stage.herald.add(weekend.info, [agent.post(weekend, 1, "hello")])
    assert stage.told == []
    stage.herald.add(weekend.info, [calling(agent.post(weekend, 1, "alice!"))])
    assert [(one.text, one.mention, one.count) for one in stage.told] == [("alice!", True, 1)]
    stage = Stage(groups={"weekend": "all"})
    stage.herald.add(weekend.info, [agent.post(weekend, 1, "hello")])
    assert [(one.text, one.mention) for one in stage.told] == [("hello", False)]
    stage = Stage(notify="all", groups={weekend.info.id: "none"})
    stage.herald.add(weekend.info, [calling(agent.post(weekend, 1, "alice!"))])
    assert stage.told == []


def test_only_mentioning_edits_notify(group):
    agent, weekend = group
    stage = Stage(notify="all")
    body = {"target": "e000001", "text": "alice?"}
    edits = [agent._log(weekend, 1, "message_edited", body, minute=minute) for minute in (5, 6)]
    stage.herald.add(weekend.info, [edits[0], calling(edits[1])])
    assert [(one.text, one.mention, one.event) for one in stage.told] == [("alice?", True, "e000001")]


def test_old_and_own_events_do_not_notify(group):
    agent, weekend = group
    stage = Stage(notify="all")
    events = [
        agent.post(weekend, 0, "mine"),
        replace(agent.post(weekend, 1, "old"), replayed=True),
        replace(agent.post(weekend, 1, "gone"), deleted=True),
        weekend.events[0],
    ]
    stage.herald.add(weekend.info, events)
    assert stage.told == [] and stage.timers == []


def test_a_flood_is_coalesced(group):
    agent, weekend = group
    work = agent.add_group("work", ["dave"])
    stage = Stage(notify="all")
    for number in range(1_000):
        event = agent.post(weekend, 1, f"n{number}")
        stage.herald.add(weekend.info, [calling(event) if number == 500 else event])
    stage.herald.add(work.info, [agent.post(work, 1, "task")])
    assert [one.text for one in stage.told] == ["n0"] and len(stage.timers) == 1
    stage.pass_by(notify.COALESCE_S)
    assert (stage.told[1].text, stage.told[1].count, stage.told[1].mention) == ("n999", 999, True)
    stage.pass_by(notify.COALESCE_S)
    assert stage.told[2].text == "task"
    stage.pass_by(notify.COALESCE_S)
    assert len(stage.told) == 3 and stage.timers == []
    stage.herald.add(weekend.info, [agent.post(weekend, 1, "again")])
    assert stage.told[-1].text == "again"


def test_muting_for_a_while_ends(group):
    agent, weekend = group
    stage = Stage(notify="all")
    stage.herald.mute_for(weekend.info.id, 7_200)
    assert stage.herald.mark(weekend.info) == "∅"
    stage.herald.add(weekend.info, [agent.post(weekend, 1, "quiet")])
    stage.pass_by(7_200)
    stage.herald.add(weekend.info, [agent.post(weekend, 1, "loud")])
    assert [one.text for one in stage.told] == ["loud"] and stage.herald.mark(weekend.info) == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1_800), ("2h", 7_200), ("1d", 86_400), ("0h", None), ("31d", None), ("2", None), ("h", None),
     ("-1h", None), ("99999d", None), ("2 h", None), ("２h", None)],
)  # fmt: skip
def test_durations_are_parsed(text, seconds):
    assert duration_s(text) == seconds


def test_durations_as_text():
    assert [duration_text(each) for each in (1_800, 7_200, 86_400)] == ["30 min", "2 h", "1 d"]


# --- how ------------------------------------------------------------------------------------------------------------


class Ear:
    """What a crier writes and complains of."""

    def __init__(self):
        self.written, self.complaints = [], []
        self.crier = Notifier(self.written.append, self.complaints.append, "work")

    def tell(self, about, found, times=1):
        async def both():
            await asyncio.gather(*(self.crier.notify(about, found) for _ in range(times)))

        asyncio.run(both())


def hook(tmp_path, body):
    """A person's own program."""
    path = tmp_path / "hook.py"
    path.write_text(f"import sys, pathlib, time\nhere = pathlib.Path({str(tmp_path)!r})\n{body}\n")
    return preferences(
        {"chat.notify_how": "command", "chat.notify_command": [sys.executable, "-I", str(path), "$HOME;ls"]}
    )


WRITE_DOWN = """
count = len(list(here.glob("started-*")))
(here / f"started-{count}").write_text(sys.stdin.read() + "|" + sys.argv[1])
"""


def test_a_command_gets_json_and_its_arguments(tmp_path):
    ear = Ear()
    ear.tell(ABOUT, hook(tmp_path, WRITE_DOWN))
    given, _, word = (tmp_path / "started-0").read_text().rpartition("|")
    assert word == "$HOME;ls" and not ear.complaints
    assert json.loads(given) == {
        "v": 1, "type": "notification", "profile": "work", "group": "g1", "group_name": "weekend",
        "author": {"did": "did:key:bob", "nick": "bob"}, "id": "m1", "sent_at": "2025-11-20T12:09:00.000Z",
        "text": "are you there?", "mention": True, "count": 1,
    }  # fmt: skip


def test_a_command_gets_the_exact_text_in_ascii():
    given = Notification("g", HOSTILE, "d", HOSTILE, HOSTILE, False, "m", "t").as_json("p")
    assert given.isascii() and given.count(b"\n") == 1 and b"\x1b" not in given
    assert json.loads(given)["text"] == HOSTILE


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["/nowhere/to/be/found"], "could not be started"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "failed with exit code 3"),
    ],
)
def test_a_failing_command_is_reported_once(words, sentence):
    ear = Ear()
    found = preferences({"chat.notify_how": "command", "chat.notify_command": words})
    ear.tell(ABOUT, found)
    ear.tell(ABOUT, found)
    assert len(ear.complaints) == 1 and sentence in ear.complaints[0]


def test_a_hanging_command_is_killed_and_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(notify, "PROGRAM_S_MAX", 1.0)
    ear = Ear()
    ear.tell(ABOUT, hook(tmp_path, "time.sleep(1000)"), times=PROGRAMS_MAX + 3)
    assert any("hangs" in each for each in ear.complaints)
    assert any("was stopped" in each for each in ear.complaints)
    assert ear.crier._running == 0


def test_a_command_that_ignores_stdin_is_accepted(tmp_path):
    ear = Ear()
    ear.tell(Notification("g", "n", "d", "b", "x" * 1_000_000, False, "m", "t"), hook(tmp_path, "sys.stdin.close()"))
    assert not ear.complaints


def test_the_bell():
    ear = Ear()
    ear.tell(ABOUT, preferences({"chat.notify_how": "bell"}))
    assert ear.written == ["\a"]


HARMLESS = Notification("g", HOSTILE, "d", "-x;y\x07" + HOSTILE, "--help;\x1b\\<b>&" + HOSTILE * 50, False, "m", "t")


@pytest.mark.parametrize(
    ("environ", "start", "end"),
    [({"TERM_PROGRAM": "iTerm.app"}, "\x1b]9;", "\x07"), ({"TERM": "xterm-kitty"}, "\x1b]777;notify;", "\x07")],
)
def test_a_capable_terminal_gets_one_sequence(environ, start, end):
    sequence = osc(HARMLESS, environ) or ""
    assert sequence.startswith(start) and sequence.endswith(end)
    inner = sequence[len(start) : -len(end)]
    assert inner.isprintable() and inner.count(";") == (1 if "777" in start else 0) and len(inner) < 2_000
    assert osc(HARMLESS, {**environ, "TMUX": "/tmp/x"}) is None
    assert osc(HARMLESS, {"TERM": "xterm-256color"}) is None


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_notify_send_gets_plain_arguments(platform, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    words = desktop(HARMLESS, platform) or ()
    assert words[0] == ("notify-send" if platform == "linux" else "osascript")
    *_, title, body = words
    assert title.isprintable() and body.isprintable() and len(body) < 2_000
    if platform == "linux":
        assert words[-3] == "--" and "<" not in body
    else:
        assert all(HOSTILE[:5] not in word for word in words[:-2])


def test_missing_desktop_support_is_reported_once(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(os, "environ", {"TERM": "xterm"})
    ear = Ear()
    for _ in range(3):
        ear.tell(ABOUT, preferences({"chat.notify_how": "desktop"}))
    assert len(ear.complaints) == 1 and "notify-send" in ear.complaints[0] and not ear.written


# --- in the chat ----------------------------------------------------------------------------------------------------


def test_only_unseen_messages_notify(tmp_path):
    def heard():
        """What was written to its end: a file is there before that."""
        return sorted(path.name for path in tmp_path.glob("started-*") if "|" in path.read_text())

    async def play():
        found = hook(tmp_path, WRITE_DOWN)
        said = {"chat.notify_how": "command", "chat.notify_command": list(found.notify_command), "chat.notify": "all"}
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(overrides=said)) as it:
            await it.shows("seven at the station")
            here, there = it.agent.groups["g1"], it.agent.groups["g2"]
            it.agent.say(here, 1, "you are looking")
            await it.shows("you are looking")
            assert heard() == [] and it.app.chat.notification_policy._cooling_down is False
            it.agent.say(there, 1, "over there")
            await it.until(lambda: heard() == ["started-0"], "the program")
            assert json.loads((tmp_path / "started-0").read_text().rpartition("|")[0])["text"] == "over there"

    run(play())


def test_a_process_is_reaped_despite_two_cancellations(monkeypatch):
    """By the application, and by its loop, which closes then."""
    begin, begun = asyncio.create_subprocess_exec, []

    async def started(*words, **named):
        begun.append(await begin(*words, **named))
        return begun[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)

    async def play():
        crier = Notifier(lambda _: None, lambda _: None)
        telling = asyncio.create_task(crier._run([sys.executable, "-c", "import time; time.sleep(60)"], b"x", "it"))
        while not begun:
            await asyncio.sleep(0.01)
        for _ in range(2):
            telling.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await telling
        return begun[0].returncode

    assert asyncio.run(play()) is not None


def test_an_unfocused_terminal_gets_notifications(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore()) as it:
            await it.shows("seven at the station")
            rung = []
            it.app.write_raw = rung.append
            it.app.app_focus = False
            it.agent.say(it.agent.groups["g1"], 1, "hello")
            await it.shows("hello")
            assert rung == []
            it.agent.tell("event", calling(it.agent.post(it.agent.groups["g1"], 1, "alice!")))
            await it.until(lambda: rung == ["\a"], "the bell")

    run(play())


def test_muting_shows_a_mark_and_is_stored(tmp_path):
    from zerochat.agent.storage.paths import profile_paths

    home = profile_paths(None, {"ZEROCHAT_HOME": str(tmp_path)})

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            await it.say("/mute")
            await it.shows("1 weekend   ∅")
            assert "weekend is muted. /unmute ends it." in it.told()
            await it.say("/mute all")
            await it.shows("1 weekend   *")
            await it.say("/mute mentions")
            await it.gone("1 weekend   *")
            assert '[chat.groups.g1]\nnotify = "mentions"' in home.config.read_text()
            await it.say("/unmute")
            await it.until(lambda: "is no longer muted" in it.told())
            assert "notify" not in home.config.read_text()
            await it.say("/mute for 2h")
            await it.shows("1 weekend   ∅", "weekend is muted for 2 h.")
            await it.say("/mute loudly")
            await it.until(lambda: "Usage: /mute" in it.told())
            await it.say("/mute for ever")
            await it.until(lambda: "Usage: /mute" in it.told())

    run(play())


@pytest.mark.parametrize("trigger", others_slow(["focused", "visible", "sent"]))
def test_read_triggers(tmp_path, trigger):
    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(overrides={"chat.read_trigger": trigger})
        ) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.app.app_focus = False
            it.agent.say(group, 1, "first")
            await it.shows("first")
            assert it.open.unread == (0 if trigger == "visible" else 1)
            it.app.app_focus = True
            await it.until(lambda: it.open.unread == (1 if trigger == "sent" else 0))
            it.agent.say(group, 1, "second")
            await it.shows("second")
            assert it.open.unread == (2 if trigger == "sent" else 0)
            await it.say("answer")
            await it.until(lambda: it.open.unread == 0)

    run(play())
