"""Groups in the terminal application: creating, leaving, switching, toasts."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual.events import Key
from textual.widgets import Input

from tests.support.fake_agent import FakeAgent, Refusal
from tests.support.marks import others_slow
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.tui import app as app_module
from zerochat.tui.dialogs.create import CreateDialog
from zerochat.tui.panels.lists import group_line
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.style.text import clip

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


@pytest.mark.slow
def test_creating_and_leaving_a_group(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.type("book club")
            await it.press("enter")
            await it.shows("This is the beginning of book club.", "No messages yet. Type /invite to invite people.")
            await it.say("/new book club 2")
            await it.until(lambda: it.open.info.name == "book club 2" and it.app.screen is it.app.chat)
            await it.say("/leave")
            await it.shows("Leave book club 2?")
            await it.press("enter")  # The harmless answer has the focus.
            await it.gone("Leave book club 2?")
            assert it.agent.count("leave_group") == 0
            await it.say("/leave")
            await it.shows("Leave book club 2?")
            await it.press("y")
            await it.shows("You left book club 2")
            it.agent.refuse["send_message"] = Refusal("You are no longer in book club 2.")
            await it.say("hello?")
            await it.until(lambda: "no longer in book club 2" in it.told())

    run(play())


def test_a_forgotten_group_can_be_joined_again(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            for text in ("before", "after"):
                group = it.agent.add_group("weekend", ["bob"], id="g1")
                it.agent.post(group, 1, f"said {text}", minute=1)
                it.agent.view(group)
                await it.shows(f"said {text}", "weekend  1/1 connected")
                assert it.open.loaded and it.app.chat.pane.timeline is it.open.timeline
                if text == "before":
                    await it.say("/leave")
                    await it.shows("Leave weekend?")
                    await it.press("y")
                    await it.shows("You left weekend")
                    await it.say("/forget")
                    await it.shows("Forget weekend?")
                    await it.press("y")
                    await it.shows("No conversations yet.")
            await it.gone("said before")

    run(play())


def test_a_group_joined_anew_meanwhile_shows_its_new_history(tmp_path):
    """Another client may forget and join it between two looks at the list."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.groups.pop("g1")
            group = it.agent.add_group("weekend", ["bob"], id="g1")
            group.info = replace(group.info, me="did:key:z6MkAliceAgain")
            it.agent.post(group, 1, "welcome back", minute=1)
            it.agent.view(group)
            await it.shows("welcome back")
            await it.gone("seven at the station")
            assert it.open.info.id == "g1"

    run(play())


@pytest.mark.parametrize("keys", others_slow(["f7", "/new weekend"]))
def test_a_taken_group_name_keeps_the_dialog_open(tmp_path, keys):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["create_group"] = Refusal("You have a group weekend already.")
            if keys == "f7":
                await it.press("f7")
                await it.shows("Name of the new group")
                await it.type("weekend")
                await it.press("enter")
            else:
                await it.say(keys)
            await it.shows("You have a group weekend already.")
            assert it.app.screen.query_one(Input).value == "weekend"
            del it.agent.refuse["create_group"]
            await it.press("2", "enter")
            await it.until(lambda: it.app.screen is it.app.chat)
            assert it.open.info.name == "weekend2" and it.agent.count("send_message") == 0

    run(play())


def test_the_next_key_removes_a_toast(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.app.TOAST_S_MIN", -1.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.notify("This is a long sentence. " * 5)
            await it.until(lambda: len(it.app._notifications) == 1)
            await it.press("x")
            await it.until(lambda: not it.app._notifications)
            assert it.composer.text == "x"

    run(play())


@pytest.mark.slow
def test_a_fast_double_enter_closes_a_dialog_once(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("ctrl+k")
            await it.shows("Go to")
            await it.type("wo")
            for _ in range(2):
                it.app.post_message(Key("enter", "\r"))
            await it.until(lambda: it.open.info.name == "work")
            await it.pilot.pause()
            assert it.app.is_running and it.app.screen is it.app.chat

    run(play())


def test_switching(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("ctrl+k")
            await it.shows("Go to")
            await it.type("wk")
            await it.press("enter")
            await it.until(lambda: it.open.info.name == "weekend")
            await it.press("ctrl+k")
            await it.type("wo")
            await it.press("enter")
            await it.until(lambda: it.open.info.name == "work")
            await it.pilot.click("#groups", offset=(4, 0))
            await it.until(lambda: it.open.info.name == "weekend")
            assert it.app.focused is it.composer
            await it.press("alt+9")
            assert it.open.info.name == "weekend"

    run(play())


@pytest.mark.slow
def test_members_and_details(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            assert "● bob" not in it.text
            await it.press("f2")
            await it.shows("● alice (you)", "● bob", "● carol")
            it.agent.peer(it.agent.groups["g1"], 2, connected=False)
            await it.shows("○ carol unreachable")
            members = it.agent.groups["g1"].members
            members[2] = replace(members[2], no_mediator=True)
            it.agent.view(it.agent.groups["g1"])
            await it.shows("○ carol no mediator")
            assert re.search("● bob +0bob", it.text)
            assert "≈" not in it.text
            await it.say("/members")
            await it.until(lambda: it.app.focused is it.app.chat.query_one("#members"))
            await it.press("down", "down", "enter")
            await it.shows("admitted by", "did:key:z6Mkg1")
            await it.press("escape")
            await it.press("x")  # A letter goes to the composer, wherever the focus was.
            assert it.composer.text == "x"
            await it.press("ctrl+b")
            await it.gone("● bob")

    run(play())


@pytest.mark.slow
def test_status_and_delivery(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/delivery")
            await it.shows("Delivered to 1 of 2", "✓  bob", "·  carol")
            await it.press("escape")
            await it.say("/status")
            await it.shows("zmq+tcp://192.0.2.7:40001", "up 1 h 2 min")
            await it.press("escape")
            it.agent.warning = "The disk is nearly full."
            await it.say("/status")
            await it.press("escape")
            await it.shows("The disk is nearly full.")

    run(play())


@pytest.mark.slow
def test_equal_group_names_are_disambiguated(tmp_path):
    def setting(agent):
        agent.add_group("a weekend in the mountains", id="Zq3xAAAA")
        agent.add_group("a weekend in the mountains", id="Zq9yBBBB")
        agent.add_group("work", id="Wk11CCCC")

    async def play():
        async with scene(tmp_path, setting=setting, open_group="a weekend in the mountains") as it:
            await it.until(lambda: "Several groups match a weekend" in it.told())
            assert "Zq3xAAAA" in it.told() and "Zq9yBBBB" in it.told()
            await it.press("escape", "escape")
            top, groups = it.app.chat.top_bar, it.app.chat.group_list
            await it.until(lambda: str(top.render()).startswith("a weekend in the mountains·Zq3x"))
            lines = [str(groups.get_option_at_index(at).prompt).split() for at in range(3)]
            assert [line[-1].partition("·")[2] for line in lines] == ["Zq3x", "Zq9y", ""], lines
            await it.say("/leave")
            await it.shows("Leave a weekend in the mountains·Zq3x?")
            await it.press("enter", "ctrl+k")
            await it.shows("Go to")
            await it.type("zq9")
            await it.press("enter")
            await it.until(lambda: it.open.info.id == "Zq9yBBBB")

    run(play())


def test_a_narrow_list_keeps_names_and_counts_in_one_line(tmp_path):
    group = FakeAgent(tmp_path / "s").add_group("weekend in June", id="Zq3xAAAA")
    known = Conversation(group.info, unread=3, disambiguator="Zq3x")
    left = Conversation(replace(group.info, state="left"), unread=3, mentions=2, draft="so", notify_mark="♪")
    left.disambiguator = "Zq3x"

    def line(one, width):
        text = group_line(6, one, width, is_open=False).plain
        assert cell_len(text) == width
        return text.split()

    assert line(known, 13) == ["6", clip("weekend", 4) + "·Zq3x", "3"]
    assert line(left, 16)[-2:] == ["@2", "3"] and line(left, 18)[-3:] == ["✎", "@2", "3"]
    assert line(left, 40)[-5:] == ["♪", "✎", "@2", "3", "left"]
    known.info = replace(known.info, name="work")
    assert line(known, 13)[1] == "work·Zq3x"
    known.info = replace(known.info, state="left")
    assert line(known, 13)[1:] == ["work·Zq3x", "3"] and line(known, 18)[1:] == ["work·Zq3x", "3", "left"]


@pytest.mark.parametrize(("wanted", "opened"), [("weekend", "Zq9yBBBB"), ("Zq3x", "Zq3xAAAA")])
def test_group_lookup_by_name_and_id_prefix(tmp_path, wanted, opened):
    def setting(agent):
        agent.add_group("work", id="Wk11CCCC")
        left = agent.add_group("weekend", id="Zq3xAAAA")
        left.info = replace(left.info, state="left")
        agent.add_group("weekend", id="Zq9yBBBB")

    async def play():
        async with scene(tmp_path, setting=setting, open_group=wanted) as it:
            await it.until(lambda: it.open is not None and it.open.info.id == opened)
            assert "More than one" not in it.told()

    run(play())


@pytest.mark.slow
def test_keys_after_an_opening_key_go_to_the_dialog(tmp_path):
    """The terminal has sent all of it before the first key was looked at, as on a slow machine."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in ("f7", "h", "i", "k", "e", "r", "s"):
                it.app.post_message(Key(key, key if len(key) == 1 else None))
            await it.shows("Name of the new group")
            await it.until(lambda: it.app.screen.query_one("#answer", Input).value == "hikers")
            assert it.composer.text == ""
            await it.press("enter")
            await it.until(lambda: asked(it.agent, "create_group"))
            assert asked(it.agent, "create_group")[0]["group"] == "hikers"
            await it.until(lambda: it.app.screen is it.app.chat)
            await it.type("back here")
            await it.until(lambda: it.composer.text == "back here")

    run(play())


def test_queued_composer_keys_keep_their_order(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in ("f7", "a", "b"):
                it.composer._forward_event(Key(key, key if len(key) == 1 else None))
            it.app.post_message(Key("c", "c"))
            await it.until(lambda: it.app.screen is not it.app.chat and it.app.screen.query("#answer"))
            await it.until(lambda: it.app.screen.query_one("#answer", Input).value == "abc")
            assert it.composer.text == ""

    run(play())


def test_a_dialog_that_never_opens_holds_no_keys(tmp_path, monkeypatch):
    monkeypatch.setattr(app_module, "OPEN_S_MAX", 0.05)
    monkeypatch.setattr(CreateDialog, "call_after_refresh", lambda *_: None)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.until(lambda: it.app.screen is it.app.chat and not it.app.chat.input_locked)
            for key in ("f7", "x"):
                it.app.post_message(Key(key, key if len(key) == 1 else None))
            await it.until(lambda: it.app.screen.query("#answer"))
            await it.until(lambda: it.app.screen.query_one("#answer", Input).value == "x")

    run(play())
