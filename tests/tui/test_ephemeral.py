"""Typing indicators and read reports in the terminal application."""

import pytest
from msgspec.structs import replace

from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, weekend
from zerochat.agent.storage.paths import profile_paths
from zerochat.rpc import TypingNotification
from zerochat.terminal_text import Printable, cells
from zerochat.tui.composer.arguments import setting_words
from zerochat.tui.state import ephemeral
from zerochat.tui.state.ephemeral import TYPISTS_MAX, typing_sentence
from zerochat.tui.state.preferences import SettingsStore


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], ""),
        (["alice"], "alice is typing…"),
        (["alice", "bob"], "alice and bob are typing…"),
        (["alice", "bob", "carol"], "alice, bob and 1 other are typing…"),
        (["alice", "bob", "carol", "dave"], "alice, bob and 2 others are typing…"),
    ],
)
def test_the_typing_indicator_is_one_short_line(names, sentence):
    assert typing_sentence([Printable(name) for name in names]) == sentence


def sharing(*what):
    def setting(agent):
        weekend(agent)
        agent.shares = list(what)

    return setting


@pytest.mark.slow
def test_the_typing_indicator_ends_with_a_post_or_timeout(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(ephemeral, "monotonic", lambda: now[0])

    async def play():
        async with scene(tmp_path, setting=sharing("typing")) as it:
            await it.shows("seven at the station")
            here, elsewhere = it.agent.groups["g1"], it.agent.groups["g2"]
            it.agent.typing(elsewhere, 1)
            it.agent.typing(here, 1)
            await it.shows("bob is typing…")
            assert "dave is typing" not in it.text
            it.agent.typing(here, 2)
            await it.shows("bob and carol are typing…")
            it.agent.say(here, 1, "there it is")
            await it.shows("carol is typing…", "there it is")
            it.app.chat.open_group("g2")
            await it.shows("dave is typing…")
            it.app.chat.open_group("g1")
            await it.shows("carol is typing…")
            now[0] += ephemeral.TYPING_S
            it.app.chat.draw_typing()
            await it.gone("typing…")

    run(play())


def test_a_hostile_typing_name_is_sanitised_and_clipped(tmp_path):
    def setting(agent):
        agent.add_group("all", [HOSTILE + str(number) + "w" * 200 for number in range(6)])
        agent.nick = "me"

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("Message all")
            it.agent.typing(it.agent.groups["g1"], *range(1, 7))
            await it.until(lambda: it.app.chat.status_line.typing)
            await it.pilot.pause()
            last = it.text.split("\n")[-1]
            assert cells(last) <= 80 and "typing" in it.app.chat.status_line.typing
            assert_harmless(it.text)

    run(play())


def test_typing_indicators_are_bounded(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            told = it.app.chat.ephemeral
            news = [TypingNotification("g1", f"did:{number}", "x") for number in range(1_000)]
            assert sum(told.typing_received(one) for one in news) == TYPISTS_MAX == len(told._typing_until)

    run(play())


def test_nothing_is_reported_unless_shared(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.chat.ephemeral._later = lambda _, then: then()
            await it.type("hello")
            it.agent.say(it.agent.groups["g1"], 1, "something new")
            await it.shows("something new")
            await it.press("enter")
            await it.until(lambda: it.agent.count("send_message"))
            assert it.agent.count("send_typing") == it.agent.count("send_read_receipt") == 0

    run(play())


def test_typing_is_reported_at_intervals_except_commands(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(ephemeral, "monotonic", lambda: now[0])

    async def play():
        async with scene(tmp_path, setting=sharing("typing")) as it:
            await it.shows("seven at the station")
            it.composer.set_text("a draft that was kept")
            await it.pilot.pause()
            it.composer.set_text("")
            await it.type("/topic of no")
            await it.until(lambda: it.composer.text == "/topic of no")
            assert it.agent.count("send_typing") == 0
            await it.press("ctrl+c")
            await it.type("hello")
            await it.until(lambda: it.agent.count("send_typing") == 1)
            now[0] += ephemeral.TYPING_EVERY_S
            await it.type("!!")
            await it.until(lambda: it.agent.count("send_typing") == 2)
            await it.press("enter")
            await it.until(lambda: it.agent.count("send_message"))
            await it.type("more")
            await it.until(lambda: it.agent.count("send_typing") == 3)
            assert asked(it.agent, "send_typing") == [{"group": "g1"}] * 3

    run(play())


def test_reading_is_reported_after_a_delay(tmp_path):
    later = []

    async def play():
        async with scene(tmp_path, setting=sharing("read")) as it:
            await it.shows("seven at the station")
            it.app.chat.ephemeral._later = lambda _, then: later.append(then)
            here = it.agent.groups["g1"]
            it.agent.say(here, 1, "one")
            await it.shows("one")
            it.agent.say(here, 2, "two")
            await it.shows("two")
            # What the first frame has begun may be under way; from here on it is the test that lets time pass.
            it.app.chat.ephemeral._waiting = False
            it.app.chat.draw_lists()
            assert len(later) >= 1
            later[-1]()
            await it.until(lambda: {"group": "g1", "upto": here.lamport} in asked(it.agent, "send_read_receipt"))
            count = it.agent.count("send_read_receipt")
            it.app.chat.draw_lists()
            assert it.agent.count("send_read_receipt") == count  # it is known by now

            it.app.app_focus = False
            it.agent.say(here, 1, "nobody looks")
            await it.until(lambda: it.open.unread == 1)
            assert it.open.seen_upto == 0 and it.app.chat.visible_conversation() is None
            it.app.app_focus = True
            await it.until(lambda: it.open.seen_upto == here.lamport)

    run(play())


def test_message_info_shows_readers_and_recipients(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend, size=(100, 40)) as it:
            await it.shows("seven at the station")
            it.agent.readers = {"bob"}
            await it.press("f6", "i")
            await it.shows("Message info", "read by     bob (as they report)", "delivered   to 1 of 2")
            await it.shows("✓  bob", "by the group's clock (Lamport time ")

    run(play())


def test_a_reloadable_setting_applies_at_once(tmp_path):
    home = profile_paths("default", {"ZEROCHAT_HOME": str(tmp_path / "home")})

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            it.agent.shares = ["typing"]
            await it.say("/set typing on")
            await it.until(lambda: it.app.chat.ephemeral.shares == {"typing"})
            assert it.agent.count("reload_settings") == 1
            assert "share.typing is now true." in it.told()
            assert "[share]\ntyping = true" in home.config.read_text()

    run(play())


def test_the_setting_of_the_retention_is_shown_at_once(tmp_path):
    home = profile_paths("default", {"ZEROCHAT_HOME": str(tmp_path / "home")})

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            # As the agent has it once it has read the settings again.
            group.info = replace(group.info, keep=7_200_000, keep_setting=7_200_000)
            await it.say("/set storage.keep 2h")
            await it.until(lambda: "disappear after 2 hours" in it.text.split("\n")[0])
            await it.say("/keep")
            await it.until(lambda: "disappear from this machine after 2 hours" in it.told())

    run(play())


def test_share_settings_complete():
    assert setting_words("/set typ") == ["typing "] and setting_words("/set share.") == [
        "share.read_receipts ",
        "share.typing ",
    ]
    assert setting_words("/set read_receipts o") == []
    assert setting_words("/set typing t") == ["typing true"]
