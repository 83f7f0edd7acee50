"""Who is writing, and who has read what: what the chat shows of it, and what it tells of the person at it."""

import pytest

from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, weekend
from zerochat.agent.storage.paths import places
from zerochat.rpc import TypingNews
from zerochat.terminal_text import Printable, cells
from zerochat.tui.composer.setting_completion import words_for
from zerochat.tui.state import ephemeral
from zerochat.tui.state.ephemeral import TYPISTS_MAX, typing_sentence
from zerochat.tui.state.preferences import Choices


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
def test_who_is_writing_is_said_in_one_short_line(names, sentence):
    assert typing_sentence([Printable(name) for name in names]) == sentence


def sharing(*what):
    def setting(agent):
        weekend(agent)
        agent.shares = list(what)

    return setting


@pytest.mark.slow
def test_who_is_writing_stands_below_until_it_is_said_or_the_time_is_over(tmp_path, monkeypatch):
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
            it.app.chat.go("g2")
            await it.shows("dave is typing…")
            it.app.chat.go("g1")
            await it.shows("carol is typing…")
            now[0] += ephemeral.TYPING_S
            it.app.chat.draw_typists()
            await it.gone("typing…")

    run(play())


def test_a_hostile_name_is_made_printable_and_leaves_room(tmp_path):
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


def test_a_flood_of_names_is_bounded(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            told = it.app.chat.passing
            news = [TypingNews("g1", f"did:{number}", "x") for number in range(1_000)]
            assert sum(told.heard(one) for one in news) == TYPISTS_MAX == len(told._until)

    run(play())


def test_nothing_is_told_unless_the_agent_says_that_it_is(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.chat.passing._later = lambda _, then: then()
            await it.type("hello")
            it.agent.say(it.agent.groups["g1"], 1, "something new")
            await it.shows("something new")
            await it.press("enter")
            await it.until(lambda: it.agent.count("send"))
            assert it.agent.count("typing") == it.agent.count("read") == 0

    run(play())


def test_what_is_typed_is_told_now_and_then_and_commands_never(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(ephemeral, "monotonic", lambda: now[0])

    async def play():
        async with scene(tmp_path, setting=sharing("typing")) as it:
            await it.shows("seven at the station")
            it.composer.put("a draft that was kept")
            await it.pilot.pause()
            it.composer.put("")
            await it.type("/topic of no")
            await it.until(lambda: it.composer.text == "/topic of no")
            assert it.agent.count("typing") == 0
            await it.press("ctrl+c")
            await it.type("hello")
            await it.until(lambda: it.agent.count("typing") == 1)
            now[0] += ephemeral.TYPING_EVERY_S
            await it.type("!!")
            await it.until(lambda: it.agent.count("typing") == 2)
            await it.press("enter")
            await it.until(lambda: it.agent.count("send"))
            await it.type("more")
            await it.until(lambda: it.agent.count("typing") == 3)
            assert asked(it.agent, "typing") == [{"group": "g1"}] * 3

    run(play())


def test_what_was_seen_is_told_after_a_while_and_no_more_than_that(tmp_path):
    later = []

    async def play():
        async with scene(tmp_path, setting=sharing("read")) as it:
            await it.shows("seven at the station")
            it.app.chat.passing._later = lambda _, then: later.append(then)
            here = it.agent.groups["g1"]
            it.agent.say(here, 1, "one")
            await it.shows("one")
            it.agent.say(here, 2, "two")
            await it.shows("two")
            # What the first frame has begun may be under way; from here on it is the test that lets time pass.
            it.app.chat.passing._waiting = False
            it.app.chat.redraw_lists()
            assert len(later) >= 1
            later[-1]()
            await it.until(lambda: {"group": "g1", "upto": here.lamport} in asked(it.agent, "read"))
            count = it.agent.count("read")
            it.app.chat.redraw_lists()
            assert it.agent.count("read") == count  # it is known by now

            it.app.app_focus = False
            it.agent.say(here, 1, "nobody looks")
            await it.until(lambda: it.open.unread == 1)
            assert it.open.seen_upto == 0 and it.app.chat._seen_conversation() is None
            it.app.app_focus = True
            await it.until(lambda: it.open.seen_upto == here.lamport)

    run(play())


def test_info_says_who_has_read_it_beside_who_has_it(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend, size=(100, 40)) as it:
            await it.shows("seven at the station")
            it.agent.readers = {"bob"}
            await it.press("escape", "i")
            await it.shows("About this message", "read by     bob, by their own word", "has it      1 of 2")
            await it.shows("✓  bob", "by the group's clock (Lamport time ")

    run(play())


def test_a_setting_that_the_agent_can_take_over_holds_at_once(tmp_path):
    home = places("default", {"ZEROCHAT_HOME": str(tmp_path / "home")})

    async def play():
        async with scene(tmp_path, setting=weekend, choices=Choices(home, environ={})) as it:
            await it.shows("seven at the station")
            it.agent.shares = ["typing"]
            await it.say("/set typing on")
            await it.until(lambda: it.app.chat.passing.shares == {"typing"})
            assert it.agent.count("reload") == 1
            assert "share.typing is true." in it.told()
            assert "[share]\ntyping = true" in home.config.read_text()

    run(play())


def test_both_settings_are_completed():
    assert words_for("/set typ") == ["typing "] and words_for("/set share.") == [
        "share.read_receipts ",
        "share.typing ",
    ]
    assert words_for("/set read_receipts o") == []
    assert words_for("/set typing t") == ["typing true"]
