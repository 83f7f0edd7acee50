"""Private conversations in the terminal application."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import Refusal
from tests.support.tui_pilot import asked, completed, run, scene, weekend
from zerochat.rpc import ConversationMovedNotification, PrivateInfo
from zerochat.slash_commands import SeveralNames, name_and_text
from zerochat.tui.actions import private


def test_msg_opens_the_conversation_and_sends_the_text(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/msg bob are you coming?")
            await it.shows("3 @bob", "are you coming?", "waiting for bob to accept")
            bob = it.agent.groups["g1"].members[1].did
            assert asked(it.agent, "open_conversation") == [{"member": bob, "group": "g1"}]
            assert asked(it.agent, "send_message")[0]["text"] == "are you coming?"
            await it.press("alt+1")
            await it.shows("seven at the station")
            await it.say("/query bob")
            await it.shows("are you coming?")
            assert it.agent.count("send_message") == 1

    run(play())


def test_the_other_member_has_accepted(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/msg bob hello")
            await it.until(lambda: it.open is not None and it.open.info.private is not None)
            it.agent.used(it.agent.groups[it.open.info.id], "bob", name="bob")
            await it.shows("bob has accepted the private conversation.")

    run(play())


def test_a_refused_msg_stands_in_the_composer_again(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["open_conversation"] = Refusal("No member or connection is called dora.", "UnknownPeer")
            await it.say("/msg dora hello")
            await it.until(lambda: "is called dora" in it.told())
            assert it.composer.text == "/msg dora hello"
            it.composer.set_text("")
            await it.say("/msg")
            await it.until(lambda: "Usage: /msg NAME [TEXT]" in it.told())

    run(play())


def test_an_invitation_is_answered_with_two_keys(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.invite_privately(it.agent.groups["g1"], 1)
            await it.shows("? bob invites you to a private conversation. Press F4 to answer.", "1 weekend  ?1")
            assert not asked(it.agent, "answer_private_invitation")
            await it.press("f4")
            await it.shows("Requests in weekend", "bob, private conversation", "only the two of you can read it")
            await it.press("a")
            await it.shows("@bob", "1/1 connected")
            assert asked(it.agent, "answer_private_invitation")[0]["accept"] is True
            assert it.open.info.private is not None and "invites you" not in it.text

    run(play())


def test_a_conversation_that_is_joined_late_does_not_open_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(private, "OPENS_S_MAX", 0.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.invite_privately(it.agent.groups["g1"], 1)
            await it.shows("Press F4 to answer.")
            await it.press("f4")
            await it.shows("bob, private conversation")
            await it.press("a")
            await it.until(lambda: "You are in bob." in it.told())
            await it.shows("@bob")
            assert it.open.info.id == "g1"

    run(play())


def test_declining_can_be_undone(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.invite_privately(it.agent.groups["g2"], 1)
            await it.until(lambda: "dave invites you to a private conversation." in it.told())
            it.app.chat.status_line.flash = ""
            await it.shows("?1 private invitation elsewhere (Alt+A)")
            await it.press("alt+a", "f4", "r")
            await it.shows("✗ refused: dave", "Press u to undo.")
            await it.press("u", "r", "escape")
            await it.until(lambda: it.agent.count("answer_private_invitation") == 1)
            assert asked(it.agent, "answer_private_invitation")[0]["accept"] is False
            await it.gone("invites you")

    run(play())


def test_a_conversation_that_moves_takes_the_unsent_text_along(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/msg bob")
            await it.shows("waiting for bob")
            former = it.open.info
            await it.type("unsent")
            made = it.agent.add_group("bob", ["bob"])
            made.info = replace(made.info, private=replace(former.private, state="joined"))
            del it.agent.groups[former.id]
            it.agent.tell("conversation_moved", ConversationMovedNotification(made.info.id, former.id))
            await it.until(lambda: it.open is not None and it.open.info.id == made.info.id)
            assert it.composer.text == "unsent"

    run(play())


def test_names_with_spaces_and_completion():
    names = ["bob", "Bob B.", "carol"]
    assert name_and_text('"Bob B." hello there', names) == ("Bob B.", "hello there")
    assert name_and_text("Bob B.", names) == ("Bob B.", "")
    assert name_and_text("Bob B. hello", names[1:]) == ("Bob B.", "hello")
    assert name_and_text("@BOB hello", names) == ("BOB", "hello")
    assert name_and_text('"Dave D." hello', names) == ("Dave D.", "hello")
    assert name_and_text("dave hello", names) == ("dave", "hello")
    assert name_and_text("bob", names) == ("bob", "") and name_and_text("", names) == ("", "")
    assert completed("/msg car", names) == "/msg carol"
    assert completed("/query car", names) == "/query carol"


def test_a_text_for_one_member_does_not_go_to_another_with_a_longer_name(tmp_path):
    with pytest.raises(SeveralNames, match='"bob", "Bob the"'):
        name_and_text("bob the code is 1234", ["bob", "Bob the"])

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            made = it.agent.add_group("bob the", ["bob"])
            made.info = replace(made.info, private=PrivateInfo(group="g1", did="x", nick="bob the", state="joined"))
            await it.app.chat.feed.refresh()
            await it.say("/msg bob the code is 1234")
            await it.until(lambda: "in quotes" in it.told())
            assert it.composer.text == "/msg bob the code is 1234"
            assert not it.agent.count("open_conversation")

    run(play())
