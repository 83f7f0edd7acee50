"""Search and jumps in the terminal application: message, date, mention, and back."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import ME, STAMP, FakeAgent, Refusal
from tests.support.tui_pilot import HOSTILE, asked, run, scene, weekend
from zerochat.rpc import HistoryStart, Hit
from zerochat.rpc.common import Author
from zerochat.terminal_text import printable_line
from zerochat.tui.actions.jumps import to_message
from zerochat.tui.dialogs.search import SearchDialog, highlighted
from zerochat.tui.dialogs.switcher import fitting
from zerochat.tui.messages.timeline import ROWS_MAX
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed import PAGE

CALLING = (100, 900)
"""The messages that call me by name."""


def long(agent: FakeAgent, said: int = 1_500) -> None:
    """A group with a long history, of which the newest page is loaded at first; and another one."""
    group = agent.add_group("weekend", ["bob", "carol"])
    for number in range(said):
        event = agent.post(group, 1 + number % 2, f"message {number}.", lamport=1_000 + 10 * number)
        if number in CALLING:
            group.events[group.events.index(event)] = replace(event, mentions=[ME])
    other = agent.add_group("work", ["dave"])
    agent.post(other, 1, "a needle elsewhere", minute=5)


def texts(conversation: Conversation) -> list[str]:
    return [str(row.text) for row in conversation.timeline.rows if row.kind == "post"]


async def search(at: Any, words: str) -> SearchDialog:
    await at.press("ctrl+f")
    await at.until(lambda: isinstance(at.app.screen, SearchDialog))
    screen: SearchDialog = at.app.screen
    await at.type(words)
    return screen


# --- the search -----------------------------------------------------------------------------------------------------


def test_incremental_search_and_enter(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long, size=(100, 30)) as at:
            await at.shows("message 1499.")
            await search(at, "message 700.")
            await at.shows("1 found", "bob", "in weekend")
            await at.press("enter")
            await at.until(lambda: at.app.screen is at.app.chat)
            await at.shows("message 700.", "message 699.", "message 703.")
            pane = at.app.chat.pane
            assert pane.selected_row.text == "message 700." and pane.has_focus
            assert at.open.timeline.detached and at.open.timeline.more and not at.open.place.following
            # Down to the end again, without a message left out.
            await at.press("end")
            await at.until(lambda: not at.open.timeline.detached)
            await at.shows("message 1499.")

    run(play())


def test_a_search_while_history_arrives_says_so(tmp_path):
    def young(agent):
        long(agent)
        for group in agent.groups.values():
            group.info = replace(group.info, history_start=HistoryStart(state="fetching"))

    async def play():
        async with scene(tmp_path, setting=young) as at:
            await at.shows("message 1499.")
            await search(at, "nowhere")
            await at.shows("No messages found yet: earlier ones are still being fetched.")

    run(play())


@pytest.mark.slow
def test_only_the_last_query_is_shown(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long) as at:
            await at.shows("message 1499.")
            await search(at, "message 12")
            await at.shows("found")
            queries = [one["query"] for one in asked(at.agent, "search_messages")]
            assert queries[-1] == "message 12" and len(queries) <= 3
            await at.press("backspace", "backspace", "x", "y")
            await at.shows("No messages found.")
            await at.press("escape")
            await at.until(lambda: at.app.screen is at.app.chat)

    run(play())


def test_a_search_across_groups_opens_the_other_one(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long) as at:
            await at.shows("message 1499.")
            await at.say("/search needle")
            await at.shows("a needle elsewhere", "in work")
            await at.press("enter")
            await at.until(lambda: at.open.info.name == "work")
            await at.shows("a needle elsewhere")
            await at.press("alt+left")
            await at.until(lambda: at.open.info.name == "weekend")
            await at.shows("message 1499.")

    run(play())


@pytest.mark.slow
def test_results_are_paged_and_clickable(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long, size=(100, 30)) as at:
            await at.shows("message 1499.")
            screen = await search(at, "message")
            await at.shows("50 or more found")
            for _ in range(60):
                await at.press("down")
            await at.until(lambda: len(screen._hits) >= 100)
            assert screen._found.highlighted == 60
            assert len({hit.id for hit in screen._hits}) == len(screen._hits)
            await at.press("pageup", "up", "pagedown")
            await at.pilot.click("#search-results", offset=(5, 2))
            await at.until(lambda: at.app.screen is at.app.chat)
            await at.until(lambda: at.app.chat.pane.selected_row is not None)

    run(play())


@pytest.mark.slow
def test_search_errors_are_shown_in_the_dialog(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as at:
            await at.shows("seven at the station")
            screen = await search(at, "what?")
            await at.shows("Invalid search: so the test wants it.")
            await at.press("enter")
            assert at.app.screen is screen
            at.agent.refuse["search_messages"] = Refusal("The disk is full \x1b[2J.")
            await at.type(" seven")
            await at.shows("The disk is full")
            del at.agent.refuse["search_messages"]
            await at.press("home", *["delete"] * 6)
            await at.shows("seven at the station", "1 found")

    run(play())


def test_hostile_text_in_a_result(tmp_path):
    def setting(agent: FakeAgent) -> None:
        group = agent.add_group(HOSTILE, [HOSTILE])
        agent.post(group, 1, HOSTILE + " needle " + HOSTILE)

    async def play():
        async with scene(tmp_path, setting=setting) as at:
            await search(at, "needle")
            await at.shows("1 found")
            assert "\x1b" not in at.text and "\x9b" not in at.text and "\u202e" not in at.text
            await at.press("enter")
            await at.until(lambda: at.app.screen is at.app.chat)

    run(play())


@pytest.mark.parametrize("spans", [[], [(0, 3)], [(4, 2)], [(-1, 5)], [(2, 99)], [(0, 4), (2, 6)], [(5, 6), (0, 2)]])
def test_highlights_do_not_change_the_text(spans):
    hit = Hit(
        group="g", id="e", author=Author("d", "bob"), lamport=1, sent_at="", received_at="", text=HOSTILE, spans=spans
    )
    shown = highlighted(hit).plain
    assert "\x1b" not in shown and "\n" not in shown
    assert shown.replace("⏎", "") == printable_line(HOSTILE).replace("⏎", "")


# --- jumps ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_jumping_to_a_date_and_back(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long, size=(100, 30)) as at:
            await at.shows("message 1499.")
            await at.say("/goto soon")
            await at.shows("Cannot go there: 'soon' is not a date")
            await at.say("/goto 2026-03-01")
            await at.until(lambda: asked(at.agent, "get_history")[-1].get("at"))
            await at.shows("message 1499.")  # nothing here is as new as that
            await at.app.chat.feed.load_around(at.open, at=1_000 + 10 * 300)
            await at.shows("message 300.")
            assert at.open.timeline.detached
            await at.press("alt+left")
            await at.until(lambda: at.open.place.following)
            await at.shows("message 1499.")
            await at.press("alt+left")
            await at.until(lambda: "Nowhere to go back to." in at.told())

    run(play())


def test_jumping_through_mentions(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long, size=(100, 30)) as at:
            await at.shows("message 1499.")
            pane = at.app.chat.pane
            for number in (900, 100):
                await at.press("alt+m")
                await at.until(
                    lambda wanted=f"message {number}.": pane.selected_row and pane.selected_row.text == wanted
                )
                await at.shows(f"message {number}.")
            await at.press("alt+m")
            await at.until(lambda: "No earlier mentions of you" in at.told())
            await at.press("alt+left")
            await at.until(lambda: at.open.place.following and not at.open.timeline.detached)

    run(play())


def test_a_jump_to_a_missing_message_changes_nothing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long) as at:
            await at.shows("message 1499.")
            to_message(at.app.chat, "g1", "nowhere")
            await at.until(lambda: "There is no event nowhere" in at.told())
            await at.shows("message 1499.")
            assert at.open.place.following and not at.open.unreadable
            to_message(at.app.chat, "gone", "nowhere")
            await at.until(lambda: "no longer exists here" in at.told())

    run(play())


# --- paging ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_paging_from_the_middle_shows_all_once(tmp_path):
    """Whatever way one goes, and while others speak: what is loaded is a stretch of the log without a hole."""
    dice = random.Random(11)

    def setting(agent: FakeAgent) -> None:
        long(agent, 4 * PAGE)

    async def play():
        async with scene(tmp_path, setting=setting, size=(90, 24)) as at:
            await at.shows(f"message {4 * PAGE - 1}.")
            group = at.agent.groups["g1"]
            feed, conversation = at.app.chat.feed, at.open
            said = 4 * PAGE
            for round_ in range(60):
                match dice.randrange(6):
                    case 0:
                        number = dice.randrange(said)
                        await feed.load_around(conversation, event=group.events[number].id)
                    case 1:
                        await feed.load_older(conversation)
                    case 2:
                        await feed.load_newer(conversation)
                    case 3:
                        at.agent.say(group, 1, f"message {said}.")
                        said += 1
                    case 4:
                        at.app.chat.pane.page(dice.choice([-1, 1]))
                    case 5:
                        await at.press(dice.choice(["pageup", "pagedown", "ctrl+home", "ctrl+end"]))
                numbers = [int(text.split()[1][:-1]) for text in texts(conversation)]
                assert numbers == list(range(numbers[0], numbers[-1] + 1)), round_
                if not conversation.timeline.detached:
                    last = f"message {said - 1}."
                    await at.until(lambda wanted=last: texts(conversation)[-1] == wanted)
                assert len(conversation.timeline.rows) <= ROWS_MAX
            while conversation.timeline.detached:
                await feed.load_newer(conversation)
            while conversation.timeline.more:
                await feed.load_older(conversation)
            assert texts(conversation) == [f"message {number}." for number in range(said)]

    run(play())


@pytest.mark.slow
def test_pages_are_prefetched(tmp_path):
    async def play():
        async with scene(tmp_path, setting=long, size=(90, 24)) as at:
            await at.shows("message 1499.")
            pane, timeline = at.app.chat.pane, at.open.timeline
            while len(timeline.rows) <= PAGE:
                before = pane.scroll_y
                await at.press("pageup")
                await at.pilot.pause()
                assert pane.scroll_y > 0 or len(timeline.rows) > PAGE, "the edge was reached first"
                assert pane.scroll_y != before or len(timeline.rows) > PAGE

    run(play())


@pytest.mark.slow
def test_a_late_response_keeps_the_order(tmp_path):
    """A page for where the window was is of no use where it is now."""

    async def play():
        async with scene(tmp_path, setting=long) as at:
            await at.shows("message 1499.")
            feed, conversation = at.app.chat.feed, at.open
            older = at.app.run_worker(feed.load_older(conversation))
            event = at.agent.groups["g1"].events[200].id
            await feed.load_around(conversation, event=event)
            await older.wait()
            numbers = [int(text.split()[1][:-1]) for text in texts(conversation)]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) and numbers[-1] < 1_000

    run(play())


def test_the_switcher_ranks_matches():
    names = ["weekend hikers", "work", "whisky in kilts", "hike with kids", "[b]wk[/b]"]
    assert [names[at] for at in fitting("work", names)] == ["work"]
    assert fitting("", names) == [0, 1, 2, 3, 4]
    assert names[fitting("hik", names)[0]] in ("hike with kids", "weekend hikers")
    assert names[fitting("wk", names)[0]] != "whisky in kilts" and len(fitting("w k", names)) == 5
    assert fitting("zz", names) == [] and fitting("\0\x1b", names) == []


def test_result_times_have_their_year():
    from zerochat.tui.dialogs.search import time_text

    assert time_text(STAMP.format(minute=3)).startswith("20 Nov 2025 ") and time_text("nonsense") == "?"
