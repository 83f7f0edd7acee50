"""Drafts: one per conversation, persistent, never lost."""

import re
from contextlib import suppress
from typing import cast

import pytest

from tests.support.fake_agent import Refusal
from tests.support.machines import machines, until
from tests.support.terminals import terminal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.agent.api.client import connect
from zerochat.cli.plain_chat import subscription
from zerochat.rpc import Draft, Drafts, NoParams
from zerochat.tui.composer.drafts import SAVE_DELAY_S, DraftSaver
from zerochat.tui.messages.reply_bar import ComposeTarget
from zerochat.tui.state.agent_link import AgentError, AgentLink


def begun(agent):
    weekend(agent)
    agent.drafts = {"g1": "half a thought", "g2": "for dave"}


def test_stored_drafts_are_restored(tmp_path):
    async def play():
        async with scene(tmp_path, size=(100, 24), setting=begun) as it:
            await it.shows("seven at the station")
            assert it.composer.text == "half a thought"
            await it.until(lambda: re.search("2 work +✎", it.text))  # and the open one shows its own in the composer
            assert not re.search("1 weekend +✎", it.text)
            await it.press("alt+2")
            await it.until(lambda: it.composer.text == "for dave")
            await it.until(lambda: re.search("1 weekend +✎", it.text))
            await it.press("ctrl+u")
            await it.until(lambda: it.agent.drafts == {"g1": "half a thought"})

    run(play())


def test_a_draft_is_saved_while_typing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            assert SAVE_DELAY_S == subscription.SAVE_S == 0.5, "in the chat without a screen too"
            await it.type("half a thought that goes on")
            await it.until(lambda: it.agent.drafts == {"g1": "half a thought that goes on"})
            assert len(asked(it.agent, "save_draft")) < 10, "not for every letter"
            await it.press("ctrl+q")
            await it.until(lambda: not it.app.is_running)  # nothing is lost, so nothing is asked
        async with scene(tmp_path, setting=lambda agent: (weekend(agent), agent.drafts.update(g1="x"))) as it:
            await it.until(lambda: it.composer.text == "x")

    run(play())


def test_leaving_saves_the_draft_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.chat_view.SAVE_DELAY_S", 3600.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("one")
            await it.press("alt+2")
            await it.until(lambda: it.agent.drafts == {"g1": "one"})
            await it.type("two")
            await it.press("ctrl+q")
            await it.until(lambda: not it.app.is_running)
            assert it.agent.drafts == {"g1": "one", "g2": "two"}

    run(play())


def test_sending_deletes_the_draft_when_accepted(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("ready")
            await it.until(lambda: it.agent.drafts == {"g1": "ready"})
            it.agent.refuse["send_message"] = Refusal("The disk is full. Make room, then send it again.", "DiskFull")
            await it.press("enter")
            await it.shows("The disk is full.")
            assert it.composer.text == "ready" and it.agent.drafts == {"g1": "ready"}
            del it.agent.refuse["send_message"]
            methods = []
            it.agent.asked.clear()
            await it.press("enter")
            await it.until(lambda: it.agent.drafts == {})
            methods = [method for method, _ in it.agent.asked if method in ("send_message", "save_draft")]
            assert methods == ["send_message", "save_draft"], "it is never in neither place"

    run(play())


def test_a_text_being_sent_is_a_draft_until_accepted(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            keeper = it.app.chat.draft_saver
            keeper.sending("g1", "on its way")
            await it.type("the next")
            assert keeper.current() == {"g1": "on its way\nthe next"}
            keeper.sent("g1", "on its way")
            assert keeper.current() == {"g1": "the next"}

    run(play())


@pytest.mark.slow
def test_drafts_are_saved_again_after_reconnecting(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.agent.stop()
            await it.shows("Reconnecting")
            await it.type("while it was away")
            await it.press("ctrl+q")  # nobody keeps it now: asked first
            await it.until(lambda: "Your draft in weekend is not saved" in it.told())
            await it.agent.start()
            await it.until(lambda: it.agent.drafts == {"g1": "while it was away"})

    run(play())


@pytest.mark.slow
def test_a_rejected_draft_is_reported_once_and_stays(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["save_draft"] = Refusal("There is no room left on the disk.", "DiskFull")
            for word in ("one", "two", "three"):
                before = len(asked(it.agent, "save_draft"))
                await it.type(word)
                await it.until(lambda before=before: len(asked(it.agent, "save_draft")) > before)
                if word == "one":
                    await it.until(lambda: "is not saved: There is no room" in it.told())
                it.app.clear_notifications()
                it.app.chat.status_line.flash = ""
            assert "not saved" not in it.told() and it.composer.text == "onetwothree"
            del it.agent.refuse["save_draft"]
            await it.type("!")
            await it.until(lambda: it.agent.drafts == {"g1": "onetwothree!"})

    run(play())


def test_a_draft_that_another_agent_rejects_is_unsaved_and_not_retried():
    asked, refused = [], False

    class Link:
        async def request(self, method, params, shape):
            asked.append(method)
            if method == "list_drafts":
                return Drafts([Draft("g1", "kept")], more=False)
            if refused:
                raise AgentError("There is no room left on the disk.", "DiskFull")
            return NoParams()

    async def play():
        nonlocal refused
        texts = {}
        saver = DraftSaver(cast(AgentLink, Link()), lambda: dict(texts), lambda sentence: None)
        texts |= await saver.read()
        await saver.save()
        refused = True
        assert await saver.read() == {} and saver.unsaved() == []
        for _ in range(3):
            await saver.save()
        assert asked.count("save_draft") == 1 and saver.unsaved() == ["g1"]
        refused = False
        await saver.save_now()
        assert asked.count("save_draft") == 2 and saver.unsaved() == []

    run(play())


def test_unreadable_drafts_do_not_block_startup(tmp_path):
    def setting(agent):
        weekend(agent)
        agent.refuse["list_drafts"] = Refusal("This method is not known.", "MethodNotFound")

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            await it.type("hello")
            await it.until(lambda: it.agent.drafts == {"g1": "hello"})

    run(play())


@pytest.mark.slow
def test_an_edited_recalled_text_is_the_draft(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("said before")
            await it.type("the draft")
            await it.press("ctrl+up")
            assert it.composer.text == "said before"
            await it.until(lambda: it.agent.drafts == {"g1": "the draft"})
            await it.type("!")
            await it.until(lambda: it.agent.drafts == {"g1": "said before!"})
            await it.press("alt+2", "alt+1")
            await it.until(lambda: it.composer.text == "said before!")
            await it.press("ctrl+up")
            assert it.composer.text == "the draft", "it can be brought back in turn"
            await it.press("ctrl+down")
            assert it.composer.text == "said before!"

    run(play())


@pytest.mark.slow
def test_editing_a_message_keeps_the_draft(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("begun")
            await it.until(lambda: it.agent.drafts == {"g1": "begun"})
            it.composer.set_text("/edit")
            it.open.remember_text("begun")
            row = next(each for each in it.open.timeline.rows if each.own and each.kind == "post")
            it.app.chat.set_compose_target(ComposeTarget.edit(row, "begun"))
            it.composer.set_text("seven at the station")
            assert it.app.chat.unsent() == {"g1": "begun"}
            await it.type(", sharp")
            await it.until(lambda: it.agent.drafts == {"g1": "begun\nseven at the station, sharp"})
            await it.press("escape")
            await it.until(lambda: it.agent.drafts == {"g1": "begun"})

    run(play())


# --- real processes -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill -9 of the chat", "kill -9 of the agent", "the terminal is closed"])
def test_a_draft_survives(tmp_path, end):
    words = "words that nobody else has"
    with machines(tmp_path, ("alice",)) as (alice,):
        group = alice.client.create_group("hikers").id
        own = end != "kill -9 of the agent"
        if own:  # the chat has the agent in its own process
            alice.kill()
        with terminal(alice) as one:
            one.shows("hikers")
            one.type(words)

            def kept():
                with suppress(Exception), connect(alice.places, "test") as client:
                    return client.list_drafts() == {group: words}

            until(kept, "the draft on disk")
            if not own:
                alice.kill()
                until(lambda: "Reconnecting" in one.shown or "Starting" in one.shown, "the chat to notice")
                one.process.kill()
            elif end == "the terminal is closed":
                one.hang_up()
            else:
                one.process.kill()
            one.process.wait(20)
        with terminal(alice) as one:
            one.shows(words)


def test_a_draft_is_as_secret_as_a_message(tmp_path):
    with machines(tmp_path, ("alice",)) as (alice,):
        group = alice.client.create_group("hikers").id
        alice.client.save_draft(group, "CANARY-in-a-draft")
        assert alice.client.list_drafts() == {group: "CANARY-in-a-draft"}
        alice.kill()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                assert b"CANARY-in-a-draft" not in path.read_bytes(), path


@pytest.mark.slow
def test_two_chats_on_one_profile_keep_their_drafts(tmp_path):
    with machines(tmp_path, ("alice",)) as (alice,):
        group = alice.client.create_group("hikers").id
        with terminal(alice) as one, terminal(alice) as two:
            one.shows("hikers")
            two.shows("hikers")
            one.type("of the first")
            until(lambda: alice.client.list_drafts() == {group: "of the first"}, "the first draft")
            two.type("sent by the second")
            both = {"of the first", "sent by the second"}
            until(lambda: set(alice.client.list_drafts()[group].split("\n")) == both, "both drafts")
            two.type("\r")
            until(lambda: alice.client.list_drafts() == {group: "of the first"}, "its own draft ends with the message")
            one.process.kill()
            one.process.wait(20)
            two.type("goes on")
            until(lambda: "goes on" in alice.client.list_drafts()[group], "the second draft")
            with terminal(alice) as three:
                three.shows("of the first")
                assert "goes on" not in three.shown
