"""The terminal application over a double of the agent: what is asked, what is shown, and that nothing gets lost."""

import argparse
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import msgspec
import pytest
from textual.events import Key, Paste
from textual.widgets import Input

from tests.fake_agent import CODE, URL, FakeAgent, Refusal
from tests.pilot import HOSTILE, Scene, asked, gone, run, scene, screen, shows, weekend
from zerochat.agent.places import places
from zerochat.agent.schema import (
    ConnectionInfo,
    ConnectionNews,
    FeatureInfo,
    FeaturesNews,
    LetterInfo,
    PongNews,
    ProblemNews,
    RotatedNews,
    ToldNews,
)
from zerochat.agent.vault import WrongPassphrase, create_profile
from zerochat.cli.parser import _parser
from zerochat.tui import commands, run_chat
from zerochat.tui.app import ZerochatApp
from zerochat.tui.board import Board
from zerochat.tui.composer import Composer
from zerochat.tui.help import key_text
from zerochat.tui.invite import InviteScreen
from zerochat.tui.link import INBOX_NEWS_MAX
from zerochat.tui.sheet import Body, hang, rows

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("utc")


# --- reading --------------------------------------------------------------------------------------------------------


def test_what_a_person_sees_at_80x24(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            lines = it.text.split("\n")
            assert len(lines) == 24
            assert lines[0].strip() == "weekend  2/2 connected · 0/2 verified"
            assert lines[1].startswith(" 1 weekend ") and lines[2].startswith(" 2 work ")
            assert "12:03     alice │ seven at the station                ✓1/2" in it.text
            assert "Message weekend" in lines[-2]
            assert "[alice]" in lines[-1] and "F1 help" in lines[-1]
            await it.pilot.resize_terminal(100, 24)
            await it.shows("weekend  2/2 connected · 0/2 verified · sealed for each · peer to peer · receipts")

    run(play())


def test_news_arrive_live(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            it.agent.say(group, 1, "me too", minute=4)
            await it.shows("me too")
            it.agent.receipt(group, 2, upto=5)
            await it.shows("✓2/2")
            it.agent.say(group, 2, "said earlier, came later", lamport=2, minute=1, late=True)
            await it.shows("said earlier, came later")
            assert it.text.index("said earlier") < it.text.index("seven at the station")
            it.agent.peer(group, 1, connected=False)
            await it.shows("1/2 connected")

    run(play())


def test_a_receipt_right_behind_its_own_post_counts(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            event = it.agent.say(group, 0, "quick one", minute=5)
            it.agent.receipt(group, 1, upto=event.position, after=event.position - 1)
            it.agent.receipt(group, 2, upto=event.position, after=event.position - 1)
            await it.shows("quick one")
            await it.until(lambda: "✓2/2" in it.text)

    run(play())


def test_unread_elsewhere_is_counted_and_marked(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            work = it.agent.groups["g2"]
            for number in range(3):
                it.agent.say(work, 1, f"task {number}")
            await it.shows("3 unread elsewhere")
            assert " 2 work          3 " in it.text
            await it.press("alt+a")
            await it.shows("task 2", "─ new ─")
            assert it.text.index("new ─") < it.text.index("task 0")
            assert "unread elsewhere" not in it.text
            it.agent.say(work, 1, "task 3")
            await it.shows("task 3", "─ new ─")  # The line stays until one leaves,
            await it.press("alt+up", "alt+down")
            await it.shows("task 3")
            assert "─ new ─" not in it.text  # and then it has gone.

    run(play())


def test_what_comes_while_nobody_looks_is_unread(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.app_focus = False
            it.agent.say(it.agent.groups["g1"], 1, "are you there?", minute=9)
            await it.shows("are you there?", "─ new ─")
            assert it.open.unread == 1
            it.app.app_focus = True
            await it.until(lambda: it.open.unread == 0)
            assert "─ new ─" in it.text

    run(play())


def test_older_pages_are_fetched_when_the_reader_gets_there(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(900):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 899.")
            assert it.agent.count("history") == 1
            await it.press("pageup")
            assert "post 899." not in it.text
            for pages in range(2, 6):
                await it.press("ctrl+home")
                await it.until(lambda pages=pages: it.agent.count("history") == pages, f"page {pages}")
                await it.until(lambda: not it.open.paging)
            await it.press("ctrl+home")
            await it.shows("This is the beginning of long.", "post 0.")
            assert it.agent.count("history") == 5
            assert [row.text for row in it.open.timeline.rows[1:]] == [f"post {number}." for number in range(900)]
            await it.press("ctrl+end")
            await it.shows("post 899.")

    run(play())


def test_ten_thousand_events_keep_their_order(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            lines = [
                msgspec.json.encode(
                    {"jsonrpc": "2.0", "method": "event", "params": it.agent.post(group, 1, f"n{number}")}
                )
                for number in range(10_000)
            ]
            for writer in it.agent._writers:
                writer.write(b"\n".join(lines) + b"\n")
            await it.until(lambda: it.open.timeline.rows and it.open.timeline.rows[-1].text == "n9999")
            await it.shows("n9999")
            timeline = it.open.timeline
            assert timeline.keys == sorted(set(timeline.keys))
            numbers = [int(row.text[1:]) for row in timeline.rows if row.text.startswith("n")]
            assert numbers == list(range(numbers[0], 10_000)) and len(numbers) > 200

    run(play())


def test_dropped_news_are_read_again(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            group = it.agent.groups["g1"]
            event = it.agent.post(group, 1, "this must not be lost")
            line = msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": event})
            # One burst into the reader, with no chance to show anything in between.
            for _ in range(INBOX_NEWS_MAX + 1):
                it.app.link._take(line)
            assert it.app.link.overflowed
            await it.shows("this must not be lost")

    run(play())


# --- writing --------------------------------------------------------------------------------------------------------


def test_sending(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("hello")
            await it.press("ctrl+j")
            await it.type("world")
            await it.until(lambda: it.composer.size.height == 2, "a composer of two lines")
            await it.press("enter")
            await it.shows("12:30           │ hello")
            assert asked(it.agent, "send")[-1]["text"] == "hello\nworld"
            await it.until(lambda: it.composer.text == "" and it.composer.size.height == 1)
            await it.press("ctrl+up")
            assert it.composer.text == "hello\nworld"
            await it.press("ctrl+down")
            assert it.composer.text == ""
            await it.say("//me waves")
            await it.until(lambda: asked(it.agent, "send")[-1]["text"] == "/me waves")

    run(play())


def test_a_burst_of_keys_keeps_its_order(tmp_path):
    """All keys of one read from the terminal: no key may overtake another, or words go to the wrong people."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            keys = [*"for them", "enter", "alt+2", *"for dave", "enter", "escape", "escape"]
            keys += [*"draftx", "backspace", "alt+1", *"more"]
            for key in keys:
                it.app.post_message(Key("space" if key == " " else key, key if len(key) == 1 else None))
            await it.until(lambda: it.composer.text == "more")
            await it.until(lambda: it.agent.count("send") == 2)
            said = [params for method, params in it.agent.asked if method == "send"]
            assert [(one["group"], one["text"]) for one in said] == [("g1", "for them"), ("g2", "for dave")]
            await it.press("alt+2")
            assert it.composer.text == "draft"

    run(play())


def test_alt_with_a_letter_types_nothing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in ("alt+a", "alt+q"):  # As plain terminals send them, with the letter.
                it.app.post_message(Key(key, key[-1]))
            await it.type("ok")
            assert it.composer.text == "ok"

    run(play())


def test_what_is_refused_comes_back_into_the_composer(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["send"] = Refusal("The disk is full. Make room, then send it again.", "DiskFull")
            await it.say("precious words")
            await it.shows("The disk is full.")
            assert it.composer.text == "precious words"

    run(play())


def test_drafts_belong_to_their_conversation(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("half a thou")
            await it.press("ctrl+n")
            await it.until(lambda: it.open.info.name == "work")
            assert it.composer.text == ""
            await it.type("other")
            await it.press("alt+1")
            await it.until(lambda: it.composer.text == "half a thou")
            await it.until(lambda: it.agent.drafts == {"g1": "half a thou", "g2": "other"})
            it.agent.refuse["draft"] = Refusal("The disk is full.", "DiskFull")
            await it.type("ght")
            await it.press("alt+2")
            await it.type("s")
            await it.press("ctrl+q")  # Two drafts would be lost: once is not enough.
            assert "weekend, work" in it.told()
            assert it.app.is_running
            await it.press("alt+1")
            await it.until(lambda: it.composer.text == "half a thought")
            await it.press("ctrl+c")
            assert it.composer.text == ""
            await it.press("ctrl+up")
            assert it.composer.text == "half a thought"

    run(play())


def test_ctrl_c_twice_quits(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("ctrl+c")
            await it.shows("Ctrl+C again quits.")
            await it.press("ctrl+c")
            await it.until(lambda: not it.app.is_running)

    run(play())


@pytest.mark.parametrize("wait", [False, True])
def test_quitting_in_the_middle_of_things(tmp_path, wait):
    """What still comes from the agent while the screen is taken down must not end in a traceback."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            if wait:
                await it.shows("seven at the station")
                it.app.chat.action_join()
                for number in range(300):
                    it.agent.say(it.agent.groups["g1"], 1, f"n{number}")
                    it.agent.joining("asking", "Asking.")
                    it.agent.view(it.agent.groups["g1"])
            it.app.exit()

    run(play())


def test_commands_are_never_said_by_mistake(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for text, answer in [
                ("/jion ZC:SECRET", "Did you mean /join?"),
                (" /leave", "Spaces before a slash"),
                ("/etc/hosts is broken", "No command /etc/hosts"),
                ("/xyzzy", "/help lists them"),
                ("/", "No command /."),
                ("/msg bob", "/msg does not exist yet."),
                ("/nick al", "Here it is /rename."),
                ("/export", "/export is not a command of the chat; in a shell: zerochat export"),
                ("/AUDIT hikers", "/audit is not a command of the chat; in a shell: zerochat audit"),
                ("/connect", "in a shell: zerochat connect"),
                ("/admit dora", "Here it is /requests."),
                ("/forgte", "No command /forgte."),
                ("/removve bob", "No command /removve."),
                ("/memb waves", "/memb could be /members"),
                ("/jo ZC:SECRET", "/jo could be /join"),
            ]:
                await it.say(text)
                await it.until(lambda answer=answer: answer in it.told(), answer)
                assert it.composer.text == text
            assert it.agent.count("send") == 0 and it.agent.count("join") == 0
            assert not it.app._notifications  # All of it fits where it covers nothing.
            await it.gone("/jo could be")

    run(play())


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("hello", commands.Say("hello")),
        ("  indented\n", commands.Say("  indented")),
        ("\n\nx\n", commands.Say("x")),
        ("a /b", commands.Say("a /b")),
        ("//b", commands.Say("/b")),
        ("///b", commands.Say("//b")),
        ("/new two words ", commands.Command("new", "two words")),
        ("/JOIN ZC:AB\nCD", commands.Command("join", "ZC:AB\nCD")),
        ("/join\nhttps://x", commands.Command("join", "https://x")),
        ("/dism", commands.Command("dismiss", "")),
        ("   ", None),
    ],
)
def test_what_a_line_means(text, meaning):
    assert commands.parse(text) == meaning


def test_what_a_shell_knows_is_what_its_parser_knows():
    found = next(each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction)).choices
    assert set(found) - commands.COMMANDS.keys() == commands.IN_A_SHELL | {"admit", "refuse"}


def test_no_typing_error_leads_to_what_takes_something_away():
    drastic = {info.name for info in commands.COMMANDS.values() if info.drastic}
    assert {"remove", "leave", "forget", "resume"} <= drastic
    for name in drastic:
        for at in range(len(name)):
            for typed in (name[:at] + name[at + 1 :], name[:at] + "z" + name[at:], f"{name}{name[at]}"):
                if not name.startswith(typed):
                    line = commands.parse(f"/{typed}")
                    assert not isinstance(line, commands.Command) or line.name not in drastic, typed
                    said = line.sentence if isinstance(line, commands.Refusal) else ""
                    assert not any(f"mean /{each}?" in said for each in drastic), said


def test_commands_complete(tmp_path):
    assert commands.complete("/deli") == "/delivery "
    assert commands.complete("/") is None
    assert commands.complete("de") is None and commands.complete("/new x") is None
    assert commands.complete("/ping d", ["Dora", "dora the second", "Emil"]) is None
    assert commands.complete("/ping dor", ["Dora", "Emil"]) == "/ping Dora"
    assert commands.complete("/new d", ["Dora"]) is None

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("/mem")
            await it.press("tab")
            assert it.composer.text == "/members "
            for text, answer in [("/xy", "No command begins with /xy."), ("/", "/help  /new")]:
                it.composer.put(text)
                await it.press("tab")
                await it.shows(answer)
                assert it.app.focused is it.composer and it.composer.text == text

    run(play())


def test_pasting(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.paste("one\r\ntwo\x1b]52;c;aGk=\x07\rthree")
            await it.until(lambda: it.composer.text == "one\ntwo␛]52;c;aGk=␇\nthree", it.composer.text)
            assert it.agent.count("send") == 0  # Three lines are one draft, never three messages.
            it.composer.put("")
            long = "a line of words\n" * 4_096
            await it.paste(long)  # The protocol's own limit, to the byte.
            await it.shows("4,096 lines were pasted: 65,536 bytes.")
            await it.press("down", "down", "enter")
            await it.until(lambda: it.composer.text == long)
            await it.type("x")
            await it.until(lambda: it.composer.text == long + "x")

    run(play())


# --- groups ---------------------------------------------------------------------------------------------------------


def test_creating_and_leaving_a_group(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.type("book club")
            await it.press("enter")
            await it.shows(
                "This is the beginning of book club.", "Nobody has said anything yet. /invite brings people in."
            )
            await it.say("/new book club 2")
            await it.until(lambda: it.open.info.name == "book club 2" and it.app.screen is it.app.chat)
            await it.say("/leave")
            await it.shows("Leave book club 2?")
            await it.press("enter")  # The harmless answer has the focus.
            await it.gone("Leave book club 2?")
            assert it.agent.count("leave") == 0
            await it.say("/leave")
            await it.shows("Leave book club 2?")
            await it.press("y")
            await it.shows("You have left book club 2")
            it.agent.refuse["send"] = Refusal("You are no longer in book club 2.")
            await it.say("hello?")
            await it.until(lambda: "no longer in book club 2" in it.told())

    run(play())


@pytest.mark.parametrize("keys", ["f7", "/new weekend"])
def test_a_name_that_is_taken_keeps_the_sheet_open(tmp_path, keys):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["new"] = Refusal("You have a group weekend already.")
            if keys == "f7":
                await it.press("f7")
                await it.shows("Name of the new group")
                await it.type("weekend")
                await it.press("enter")
            else:
                await it.say(keys)
            await it.shows("You have a group weekend already.")
            assert it.app.screen.query_one(Input).value == "weekend"
            del it.agent.refuse["new"]
            await it.press("2", "enter")
            await it.until(lambda: it.app.screen is it.app.chat)
            assert it.open.info.name == "weekend2" and it.agent.count("send") == 0

    run(play())


def test_a_toast_goes_at_the_next_key(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.app.TOAST_S_MIN", -1.0)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["send"] = Refusal("This is a long sentence. " * 5)
            await it.say("hello")
            await it.until(lambda: len(it.app._notifications) == 1)
            await it.press("x")
            await it.until(lambda: not it.app._notifications)
            assert it.composer.text == "hellox"

    run(play())


def test_alt_u_goes_to_what_is_new_below(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(60):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 59.")
            await it.press("pageup")
            it.agent.say(it.agent.groups["g1"], 1, "the newest")
            await it.shows("▼ 1 new below")
            await it.press("alt+u")
            await it.shows("the newest")

    run(play())


@pytest.mark.parametrize("press", [True, False])
def test_late_ones_above_are_counted_where_it_hides_nothing_and_alt_u_goes_there(tmp_path, press):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(60):
            agent.post(group, 1, f"post {number}.", minute=number % 60)
        agent.post(group, 0, "my last", delivered=1)

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("my last", "✓1/1")
            group = it.agent.groups["g1"]
            for lamport in (20, 30):
                it.agent.say(group, 1, f"from long ago {lamport}", lamport=lamport, late=True)
            await it.shows("▲ 2 late above", "my last", "✓1/1")
            if press:
                await it.press("alt+u")
            else:
                await it.pilot.click(Composer, offset=(70, 0))
            await it.shows("from long ago 20")
            await it.press("alt+u")
            await it.shows("from long ago 30")
            await it.gone("late above")
            await it.press("alt+u")
            await it.until(lambda: "There is no unread line here." in it.told())

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


def test_members_and_details(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            assert "● bob" not in it.text
            await it.press("f2")
            await it.shows("● alice (you)", "● bob", "● carol")
            it.agent.peer(it.agent.groups["g1"], 2, connected=False)
            await it.shows("○ carol unreachable")
            assert re.search("● bob +0bob", it.text)
            assert "≈" not in it.text
            await it.say("/members")
            await it.until(lambda: it.app.focused is it.app.chat.query_one("#members"))
            await it.press("down", "down", "enter")
            await it.shows("let in by", "did:key:z6Mkg1")
            await it.press("escape")
            await it.press("x")  # A letter goes to the composer, wherever the focus was.
            assert it.composer.text == "x"
            await it.press("ctrl+b")
            await it.gone("● bob")

    run(play())


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


# --- single peers ---------------------------------------------------------------------------------------------------

DID = "did:peer:4zQmVTheirDidWhichIsQuiteLong7xQp"


def pong(thread, peer="bob", **details):
    fields = {
        "rtt_ms": 12,
        "envelope": "didcomm/v2 authcrypt",
        "their_key": DID + "#key-2",
        "my_key": DID,
        "way": "web",
    }
    return PongNews(thread=thread, peer=peer, **{**fields, **details})


def test_asking_a_peer(tmp_path, monkeypatch):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/ping BOB")
            await it.until(lambda: it.agent.count("ping") == 1)
            assert ("ping", {"peer": "g1/did:key:z6Mkg10bob"}) in it.agent.asked
            it.agent.tell("pong", pong("another", rtt_ms=9999))
            it.agent.tell("pong", pong("q1", way="mediator"))
            await it.shows("bob answered in 12 ms, over a", "mediator.", "theirs did:peer:4zQmV…ng7xQp#key-2")
            assert "9999" not in it.told()
            it.agent.early = [("pong", pong("q2", "the archive"))]  # An answer may come before its question's thread.
            await it.say("/ping the archive")
            await it.shows("the archive answered in 12 ms, over")
            assert ("ping", {"peer": "the archive"}) in it.agent.asked
            await it.say("/features carol")
            await it.until(lambda: it.agent.count("features") == 1)
            assert ("features", {"peer": "g1/did:key:z6Mkg11caro", "match": "*"}) in it.agent.asked
            found = [FeatureInfo("protocol", "https://didcomm.org/trust-ping/2.0"), FeatureInfo("goal-code", "x.y")]
            it.agent.tell("features", FeaturesNews("q3", "carol", found))
            await it.shows("What carol speaks", "protocol  https://didcomm.org/trust-ping/2.0", "goal-code x.y")
            await it.press("escape")
            await it.say("/features carol")
            await it.until(lambda: it.agent.count("features") == 2)
            it.composer.put("in the middle of a word")
            it.agent.tell("features", FeaturesNews("q4", "carol", found * 5))
            await it.until(lambda: "and 2 more" in it.told())
            assert isinstance(it.app.screen, Board)
            it.composer.put("")
            monkeypatch.setattr("zerochat.tui.peers.ANSWER_S_MAX", 0.05)
            await it.say("/ping bob")
            await it.until(lambda: "No answer from bob within 0.05 s." in it.told())

    run(play())


def test_a_peer_that_is_not_clear_is_not_asked(tmp_path):
    def twins(agent):
        agent.add_group("weekend", ["bob", "Bob", "carol"])

    async def play():
        async with scene(tmp_path, size=(100, 24), setting=twins) as it:
            await it.shows("● carol")
            await it.say("/ping")
            await it.until(lambda: "/ping takes the name of a member" in it.told())
            await it.say("/ping bob")
            await it.until(lambda: "2 here are called bob: Tab adds" in it.told())
            assert it.agent.count("ping") == 0
            for text, completed in [
                ("/ping ca", "/ping carol"),
                ("/ROTATE BOB·1", "/ROTATE Bob·1Bob"),
                ("/ping x", None),
            ]:
                it.composer.put(text)
                await it.press("tab")
                assert it.composer.text == (completed or text)
            await it.until(lambda: "Nobody here is called that." in it.told())
            it.composer.put("/ping b")
            await it.press("tab")
            await it.shows("bob·0bob  Bob·1Bob")
            await it.say("/ping Bob·1Bob")
            await it.until(lambda: ("ping", {"peer": "g1/did:key:z6Mkg11Bob"}) in it.agent.asked)
            it.agent.refuse["ping"] = Refusal("There is no way to bob at the moment.")
            await it.say("/ping carol")
            await it.until(lambda: "There is no way to bob" in it.told())

    run(play())


def test_rotating_is_told_when_the_other_knows(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            bob = it.agent.groups["g1"].members[1].did
            it.agent.tell("rotated", RotatedNews("g1", bob, "bob", True))  # At a first contact: nobody has asked.
            await it.say("/rotate bob")
            await it.until(lambda: "You have a new DID towards bob" in it.told())
            assert ("rotate", {"peer": f"g1/{bob}"}) in it.agent.asked
            it.agent.tell("rotated", RotatedNews("g1", bob, "bob", False))
            assert "knows" not in it.told()
            it.agent.tell("rotated", RotatedNews("g1", bob, "bob", True))
            await it.until(lambda: "bob knows your new DID" in it.told())

    run(play())


def test_news_from_connections(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.tell("told", ToldNews("c1", "the archive", "two\nlines"))
            await it.shows("the archive: two", "lines", "/letters the archive shows it")
            it.agent.tell("connection", ConnectionNews(connection="c1", text="Connected with the archive."))
            await it.until(lambda: "Connected with the archive." in it.told())
            it.agent.tell("problem", ProblemNews("the archive", "e.p.me", "no room"))
            await it.until(lambda: "the archive reports a problem: no room (e.p.me)" in it.told())

    run(play())


def test_telling_and_reading_it_again(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.connections = [
                ConnectionInfo(
                    id=f"c{number}abcd",
                    label=label,
                    state="established",
                    envelope="didcomm/v2",
                    did="did:peer:4zQm" + "V" * 40,
                    my_did="did:peer:4zQmMine",
                    mediator="granted" if mediator else None,
                    reachable=False if mediator else None,
                    begun_at="2025-11-20T12:00:00.000Z",
                )
                for number, (label, mediator) in enumerate(
                    [("the", None), ("the archive", None), ("did:peer:4zQmVVVV", None), ("relay", "granted")]
                )
            ]
            await it.say("/connections")
            await it.shows("the archive ", "did:peer:4zQmV…VVVVVV ", "cannot be reached now (c3abcd)")
            await it.press("escape")
            await it.say("/tell the archive keep  it")
            await it.until(lambda: "Told the archive." in it.told())
            await it.say('/tell "the" archive')
            await it.until(lambda: it.agent.count("tell") == 2)
            await it.say("/tell c2abcd x")
            await it.until(lambda: it.agent.count("tell") == 3)
            told = [params for method, params in it.agent.asked if method == "tell"]
            assert told == [
                {"peer": "c1abcd", "text": "keep  it"},
                {"peer": "c0abcd", "text": "archive"},
                {"peer": "c2abcd", "text": "x"},
            ]
            await it.say("/tell nobody SECRET")
            await it.until(lambda: "/connections lists them" in it.told())
            assert it.composer.text == "/tell nobody SECRET" and it.agent.count("tell") == 3
            it.agent.letters = [
                LetterInfo("1", "2025-11-20T12:00:00.000Z", False, "hello\x1b"),
                LetterInfo("2", "2025-11-20T12:01:00.000Z", True, "keep it"),
            ]
            await it.say("/letters THE archive")
            await it.shows("To and from the archive", "the archive: hello␛", "you: keep it")
            assert ("letters", {"peer": "c1abcd"}) in it.agent.asked
            await it.press("escape")
            it.agent.hidden = True
            await it.say("/status")
            await it.shows("this agent only dials", "http://192.0.2.7:8080", "relay: cannot be reached now")
            assert it.agent.count("send") == 0

    run(play())


def test_a_member_behind_a_mediator(tmp_path):
    def behind(agent):
        group = agent.add_group("weekend", ["bob"])
        group.members[1] = msgspec.structs.replace(group.members[1], via="mediator")

    async def play():
        async with scene(tmp_path, size=(100, 24), setting=behind) as it:
            await it.shows("● bob")
            await it.say("/members")
            await it.until(lambda: it.app.focused is it.app.chat.query_one("#members"))
            await it.press("down", "down", "enter")
            await it.shows("connected, over a mediator")

    run(play())


# --- invitations ----------------------------------------------------------------------------------------------------


def test_inviting_at_80x24(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/invite 2")
            await it.shows("Invitation to weekend", "for 2 people, until 21 Nov 12:00")
            asked = {"group": "g1", "expires_s": 86400, "uses": 2, "role": "writer", "history": None}
            assert ("invite", asked) in it.agent.asked
            qr = it.app.screen.query_one("#qr")
            assert qr.display and (qr.region.width, qr.region.height) == (41, 21) and qr.region.bottom <= 24
            strips = it.app.screen._compositor.render_strips()
            colours = {
                (segment.style.color.name, segment.style.bgcolor.name) for segment in strips[5] if "█" in segment.text
            }
            assert colours == {("#000000", "#ffffff")}
            beside = "".join(line[42:].strip() for line in it.text.split("\n"))
            assert URL in beside  # The whole link, to the last letter.
            copied = []
            it.app.copy_to_clipboard = copied.append
            await it.press("c", "z")
            assert copied == [URL, CODE]
            await it.shows("Copied the code (OSC 52). If pasting brings nothing: t, then select it.")
            await it.press("t")
            await it.until(lambda: not qr.display)
            await it.until(lambda: "OSC 52" not in it.text)
            lines = it.text.split("\n")
            assert CODE in "".join(lines) and URL in "".join(lines)  # From the very left, for the terminal's selection.
            it.agent.used(it.agent.groups["g1"], "dave", left=1)
            await it.shows("✓ used by dave (1 left)")
            await it.press("escape")
            await it.shows("Message weekend")

    run(play())


def test_a_window_too_small_for_the_code_says_so(tmp_path):
    async def play():
        async with scene(tmp_path, size=(58, 20), setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Enlarge the window to 59x23")
            assert not it.app.screen.query_one("#qr").display
            await it.pilot.resize_terminal(100, 30)
            await it.until(lambda: it.app.screen.query_one("#qr").display)

    run(play())


def test_an_invitation_over_a_mediator_is_a_link_alone(tmp_path):
    async def play():
        async with scene(tmp_path, size=(150, 70), setting=weekend) as it:
            it.agent.code = ""
            it.agent.url = URL + "A" * 600
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend")
            assert it.app.screen.query_one("#qr").display and not it.app.screen.query_one("#copy_code").display
            copied = []
            it.app.copy_to_clipboard = copied.append
            await it.press("z", "c")
            assert copied == [it.agent.url]
            await it.press("t")
            await it.until(lambda: it.agent.url in "".join(it.text.split("\n")))
            await it.pilot.resize_terminal(100, 24)
            await it.press("t")
            await it.until(lambda: not it.app.screen.query_one("#qr").display)
            await it.shows("Enlarge the window to")

    run(play())


def test_an_invitation_that_is_refused(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["invite"] = Refusal("weekend has 250 members, and no more fit.")
            await it.press("f3")
            await it.shows("weekend has 250 members, and no more fit.")
            assert not {"copy_link", "copy_code", "text_only"} & {
                button.id for button in it.app.screen.query("Button") if button.display
            }
            await it.press("t")
            await it.shows("no more fit.")


@pytest.mark.parametrize("bracketed", [True, False])
def test_what_is_pasted_over_an_invitation_goes_nowhere(tmp_path, bracketed):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Invitation to weekend")
            if bracketed:
                it.app.post_message(Paste("q\nquite\nsecret\n"))
            else:
                await it.press(*"quite", "enter", *"secret", "enter")
            await it.pilot.pause()
            assert isinstance(it.app.screen, InviteScreen)
            await it.press("escape")
            await it.shows("Message weekend")
            assert it.composer.text == "" and it.agent.count("send") == 0

    run(play())

    run(play())


def test_joining_by_paste(tmp_path):
    async def play():
        async with scene(tmp_path) as it:
            await it.shows("No conversations yet.")
            await it.press("f8")
            await it.shows("Paste the invitation")
            await it.paste(f"  {URL[:60]}\n{URL[60:]}  ")
            it.agent.refuse["join"] = Refusal(
                "This invitation expired at 12:00. Ask for a fresh one.", "InvitationExpired"
            )
            await it.press("enter")
            await it.shows("This invitation expired at 12:00. Ask for a fresh one.")
            del it.agent.refuse["join"]
            await it.press("enter")
            await it.shows("● reach the person who invited you")
            assert ("join", {"invitation": URL, "name": "alice", "role": "writer"}) in it.agent.asked
            it.agent.joining("exchanging", "Exchanging keys with bob.")
            await it.shows("✓ reach the person", "● exchange keys", "Exchanging keys with bob.")
            it.agent.joining("failed", "bob does not answer. Ask whether zerochat is running there.", error="NoAnswer")
            await it.shows("bob does not answer.")
            await it.press("enter")
            it.agent.joining("connecting", "Connecting.", connected=1, members=2)
            await it.shows("1/2 members connected")
            group = it.agent.add_group("weekend", ["bob", "carol"])
            it.agent.joining("joined", "You are in.", group=group.info.id)
            await it.shows("Message weekend")
            assert it.open.info.id == group.info.id

    run(play())


# --- the way in -----------------------------------------------------------------------------------------------------


def test_the_first_run_creates(tmp_path):
    async def play():
        made = []

        def create(nick):
            if not made:
                made.append("refused")
                raise OSError("The home folder is read-only: choose another with ZEROCHAT_HOME.")
            made.append(nick)

        async with scene(tmp_path, create_profile=create, demo=True) as it:
            await it.shows("Welcome to zerochat", "What shall the others call you?", "--passphrase` makes a profile")
            await it.press("enter")
            await it.shows("A name is needed")
            await it.type("alice1")
            assert it.app.screen.query_one(Input).value == "alice1"  # A digit in a name chooses nothing.
            await it.press("enter")
            await it.shows("1  Create a group", "2  Join a group", "3  Try the demo")
            assert it.agent.asked == []
            await it.press("1")
            await it.shows("The home folder is read-only")
            await it.press("1")
            await it.shows("Name of the new group")
            assert made == ["refused", "alice1"]

    run(play())


def test_the_first_run_can_end_in_the_demo(tmp_path):
    async def play():
        async with scene(
            tmp_path, create_profile=lambda nick: pytest.fail("the demo needs no profile"), demo=True
        ) as it:
            await it.type("alice")
            await it.press("enter", "down", "down", "enter")
            await it.until(lambda: not it.app.is_running)
            assert it.app.return_value == "demo"

    run(play())


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


def test_an_agent_that_does_not_start_is_explained_and_tried_again(tmp_path):
    async def play():
        agent = FakeAgent(tmp_path / "agent.sock")
        weekend(agent)
        asked = []

        def start_agent(ask):
            asked.append(ask())
            if asked[-1] != b"right":
                raise ValueError("This passphrase is wrong.")

        app = ZerochatApp(agent.path, start_agent=start_agent)
        async with app.run_test(size=(80, 24)) as pilot:
            await shows(pilot, "Passphrase of this profile")
            await pilot.press(*"wrong", "enter")
            await shows(pilot, "This passphrase is wrong.")
            await shows(pilot, "Passphrase of this profile")
            assert "wrong\n" not in screen(app)
            await agent.start()
            await pilot.press(*"right", "enter")
            await shows(pilot, "seven at the station")
        await agent.stop()
        assert asked == [b"wrong", b"right"]

    run(play())


@pytest.mark.parametrize("pasted", [False, True])
@pytest.mark.parametrize("enter", [False, True])
def test_a_passphrase_that_is_typed_too_early_is_never_to_be_read(tmp_path, pasted, enter):
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
                await it.shows("Passphrase of this profile", "•••")
                await it.press("enter")
            await it.shows("seven at the station")
            assert asked == [b"open sesame"] and it.composer.text == ""
            await it.type("hello")
            assert it.composer.text == "hello" and agent.count("send") == 0
        await agent.stop()

    run(play())


def test_what_is_typed_before_a_profile_without_a_passphrase_is_open_goes_nowhere(tmp_path):
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
            assert it.composer.text == "" and agent.count("send") == 0 and "secret" not in it.text
        await agent.stop()

    run(play())


def test_what_is_typed_between_two_questions_goes_into_the_second(tmp_path):
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
            await it.shows("Passphrase of this profile")
            await it.press(*"wrong", "enter")
            await it.gone("Passphrase of this profile")
            await it.type("right")
            assert "right" not in it.text and it.composer.text == ""
            go.set()
            await it.shows("Passphrase of this profile", "•••••")
            await agent.start()
            await it.press("enter")
            await it.shows("seven at the station")
            assert asked == [b"wrong", b"right"] and it.composer.text == ""
        await agent.stop()

    run(play())


def test_a_chat_that_is_locked_shows_nothing_and_gives_the_draft_back(tmp_path):
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
                await it.type("a draft")
                await it.press("alt+2")
                await it.type("another")
                await it.press("f12")
                await it.shows("process")
                app._touched -= 7200.0
                app._lock()
                await it.shows("Passphrase of this profile", "Locked, because nobody has touched it for a while")
                await it.shows("What you were writing comes back with it.")
                for word in ("seven", "weekend", "another", "draft", "work", "process", "alice"):
                    assert word not in it.text, word
                assert locked == [True] and asked == [] and it.composer.text == ""
                app._lock()  # once is enough
                await it.type("secret")
                assert "secret" not in it.text
                await it.press("enter")
                await it.shows("another")
                assert asked == [b"secret"] and locked == [True] and it.open.name == "work"
                await it.press("alt+1")
                await it.shows("seven at the station", "a draft")
                assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is kept on disk"
                app._touched -= 7200.0
                app._lock()
                await it.shows("Passphrase of this profile")
                await it.press("ctrl+q")
                await it.until(lambda: not app.is_running)
                assert agent.drafts == {"g1": "a draft", "g2": "another"}

    run(play())


def test_no_agent_of_another_process_opens_what_was_locked(tmp_path, monkeypatch):
    home = places("p", {"ZEROCHAT_HOME": str(tmp_path)})
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

    monkeypatch.setattr("zerochat.agent.attach.attach", attach)
    monkeypatch.setattr("zerochat.tui.app.ZerochatApp", App)
    assert run_chat(home) == 0 and not attached


def test_the_terminal_echoes_nothing_before_the_screen_is_up(monkeypatch, tmp_path):
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
        assert run_chat(places("p", {"ZEROCHAT_HOME": str(tmp_path)})) == 0
        echoed.append(bool(termios.tcgetattr(line)[3] & termios.ECHO))
    finally:
        os.dup2(before, 0)
        for each in (main, line, before):
            os.close(each)
    assert echoed == [False, True]


def test_a_journal_that_cannot_be_read_is_said_for_as_long_as_that_is_so(tmp_path):
    sentence = "The journal /home/a/.local/share/zerochat/default/journal.db is damaged: it is not as it was."

    def setting(agent):
        weekend(agent)
        agent.refuse["history"] = Refusal(sentence, "JournalDamaged")

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
            it.agent.refuse["send"] = Refusal(sentence, "JournalDamaged")
            await it.say("hello")
            await it.shows("default/journal.db", "This cannot be done: the journal is damaged.")
            await it.press("y")
            assert "default/journal.db" in it.text and it.composer.text == "helloy"

    run(play())


def test_a_journal_that_is_damaged_before_anything_was_read(tmp_path):
    def setting(agent):
        weekend(agent)
        for method in ("subscribe", "history"):
            agent.refuse[method] = Refusal("The journal default/journal.db is damaged.", "JournalDamaged")

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("1 weekend", "2 work", "The journal default/journal.db is damaged.")
            await it.shows("The messages could not be read.")
            assert "No conversations" not in it.text and "Loading" not in it.text

    run(play())


def test_older_messages_that_cannot_be_read_are_said_to_be_so(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(300):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long) as it:
            await it.shows("post 299.")
            it.agent.refuse["history"] = Refusal("The disk fails.", "DiskFailed")
            await it.press("ctrl+home")
            await it.shows("Older messages could not be read.", "The disk fails.")
            it.agent.refuse.clear()
            await it.press("pageup")
            await it.gone("could not be read")
            await it.gone("The disk fails.")

    run(play())


def test_a_lost_agent_comes_back(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("a draft")
            await it.agent.stop()
            await it.shows("No agent answers. Trying again…")
            await it.press("enter")
            await it.until(lambda: "no connection to the agent" in it.told())
            assert it.composer.text == "a draft"
            group = it.agent.groups["g1"]
            it.agent.post(group, 1, "said meanwhile", minute=8)
            it.agent.receipt(group, 2, upto=4)
            await it.agent.start()
            await it.shows("said meanwhile", "✓2/2")
            await it.gone("Trying again")
            assert len(it.open.timeline.rows) == 5
            await it.press("enter")
            await it.until(lambda: it.agent.count("send") == 1)

    run(play())


# --- places of all sizes --------------------------------------------------------------------------------------------


def test_narrow_windows_lose_the_sides_first(tmp_path):
    async def play():
        async with scene(tmp_path, size=(120, 30), setting=weekend) as it:
            await it.shows("seven at the station")
            chat = it.app.chat

            async def at(width, *shown):
                await it.pilot.resize_terminal(width, 24)
                await it.until(
                    lambda: (
                        tuple(name for name in ("groups", "pane", "members") if chat.query_one(f"#{name}").display)
                        == shown
                    )
                )

            await at(120, "groups", "pane", "members")
            await at(99, "groups", "pane")
            await at(79, "pane")
            await at(59, "pane")
            await it.press("f2")
            await at(59, "members")
            await at(79, "pane", "members")
            await at(99, "pane", "members")
            await at(120, "groups", "pane", "members")

    run(play())


def test_any_size_and_back(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            before = it.text
            for keys in [(), ("f1",), ("f3",), ("f8",), ("ctrl+k",), ("f10",)]:
                await it.press(*keys)
                for size in [(10, 3), (80, 24)] if keys else [(1, 1), (40, 12), (200, 50), (2, 60), (80, 24)]:
                    await it.pilot.resize_terminal(*size)
                if keys:
                    await it.press("escape")
                    await it.until(lambda: it.app.screen is it.app.chat)
            await it.until(lambda: it.text == before, "the picture as it was")

    run(play())


# --- keys, help, palette --------------------------------------------------------------------------------------------


def test_every_action_has_an_id_a_help_line_and_a_palette_entry(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 90), setting=weekend) as it:
            await it.shows("seven at the station")
            bindings = [*it.app.chat.BINDINGS, *ZerochatApp.BINDINGS, *Composer.BINDINGS]
            assert all(binding.id and binding.description for binding in bindings)
            assert len({binding.id for binding in bindings}) == len(bindings)
            entries = list(it.app.get_system_commands(it.app.screen))
            titles = [entry.title for entry in entries]
            assert titles[:3] == ["Create a group", "Join a group", "Invite into this group"]
            assert (titles[3], entries[3].help) == ("Members on or off", "F2, Ctrl+B")
            for binding in [*it.app.chat.BINDINGS, *ZerochatApp.BINDINGS]:
                assert titles.count(binding.description) == 1
            await it.press("f1")
            await it.shows("Everywhere")
            body = str(it.app.screen.query_one(Body).content)
            for binding in bindings:
                plain = binding.id.startswith("edit.") or binding.id.removeprefix("go.").isdigit()
                assert binding.description in body or plain, binding
            for info in commands.COMMANDS.values():
                assert info.usage in body and info.help in body
            signs = ["F3", "F7", "F8", "Alt+1 …", "Ctrl+W", "/new NAME", "✓2/3", "late", "keys · path"]
            places = [body.index(sign) for sign in signs]
            assert places == sorted(places)
            await it.press("escape")
            await it.press("ctrl+p")
            await it.shows("Create a group", "Members on or off")
            await it.type("members on or")
            await it.gone("Create a group")
            await it.press("down", "enter")
            await it.shows("● bob")

    run(play())


def test_the_help_begins_with_the_keys_and_keeps_its_columns(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f1")
            await it.shows("Help", "F3 ", "Invite into this group", "Ctrl+K, Alt+G")
            assert "What stands where" not in it.text
            body = it.app.screen.query_one(Body)
            lines = [body.render_line(y).text for y in range(body.size.height)]
            at = next(at for at, line in enumerate(lines) if line.startswith("/resume"))
            wrapped = next(at for at, line in enumerate(lines) if line.startswith("≈ before a name"))
            assert lines[wrapped + 1].startswith(" " * 21) and lines[wrapped + 1].strip()
            assert "script" in lines[wrapped] and at < wrapped
            assert all(len(line.rstrip()) <= body.size.width for line in lines)
            assert not any("\t" in line for line in lines)

    run(play())


@pytest.mark.parametrize("width", [8, 20, 30, 70])
def test_columns_lose_no_word(width):
    pairs = [
        ("left", "some words that go on for a while"),
        ("", "x" * 90),
        ("empty", ""),
        ("a longer one", "and short"),
    ]
    whole = rows(pairs, 8)
    shown = hang(whole, width)
    assert "".join(shown.plain.split()) == "".join(whole.plain.split())
    if width > 30:
        assert all(line.cell_length <= width for line in shown.split("\n"))
        assert shown.plain.splitlines()[2].startswith(" " * 9)


def test_a_keymap_changes_keys_and_help(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.set_keymap({"view.members": "f5"})
            await it.press("f5")
            await it.shows("● bob")

    run(play())


@pytest.mark.parametrize(
    ("sequence", "key"),
    [("\x1b1", "alt+1"), ("\x1b9", "alt+9"), ("\x1b\r", "alt+enter"), ("\x1b[13;2u", "shift+enter"), ("\r", "enter"),
     ("\n", "ctrl+j"), ("\x1b[1;3A", "alt+up"), ("\x1ba", "alt+a"), ("¡", "inverted_exclamation_mark")],
)  # fmt: skip
def test_what_plain_terminals_send(sequence, key):
    from textual._xterm_parser import XTermParser

    from zerochat.tui.keys import teach_keys

    teach_keys()
    parser = XTermParser()
    events = [*parser.feed(sequence), *parser.feed("")]
    assert [event.key for event in events if isinstance(event, Key)] == [key]


def test_keys_are_written_as_on_the_keyboard():
    assert key_text("ctrl+n,alt+down") == "Ctrl+N, Alt+Down"
    assert key_text("f2,ctrl+b") == "F2, Ctrl+B"
    assert key_text("pageup") == "PgUp"


# --- hostile text ---------------------------------------------------------------------------------------------------


def hostile(agent):
    agent.nick = "me" + HOSTILE
    group = agent.add_group("g" + HOSTILE, ["b" + HOSTILE, "b" + HOSTILE], id="g1")
    group.info = msgspec.structs.replace(group.info, keys=HOSTILE, path=HOSTILE, accountability=HOSTILE, view=HOSTILE)
    agent._log(group, 1, "member_joined", {"did": HOSTILE, "nick": HOSTILE})
    agent.post(group, 1, HOSTILE, minute=1)
    agent.post(group, 0, "end" + HOSTILE, minute=2, delivered=1)
    agent.warning = HOSTILE
    agent.url, agent.code = "https://zerochat.org/" + HOSTILE, "ZC:" + HOSTILE


def test_nothing_from_others_reaches_the_terminal_as_it_is(tmp_path):
    """Every place that shows a string from the agent, at once hostile and read back from the composed screen."""

    async def play():
        async with scene(tmp_path, size=(100, 40), setting=hostile) as it:
            seen = []

            def look():
                text = it.text
                bad = {char for char in text if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)}
                bad |= set(text) & set("\u202e\u200b\u2066")
                assert not bad, (bad, text)
                seen.append(text)

            await it.shows("end␛]52;c;aGk=␇[@click=")
            await it.until(lambda: len([line for line in it.text.split("\n") if "●" in line]) == 3, "the members")
            look()
            group = it.agent.groups["g1"]
            it.agent.used(group, HOSTILE)
            await it.shows("used your invitation")
            look()
            for keys, sign in [
                (("f12",), "gatekeeper"),
                (("f9",), "Delivered to"),
                (("f10",), "Leave g"),
                (("ctrl+k",), "Go to"),
                (("f8",), "Your name there"),
                (("f3",), "Invitation to"),
            ]:
                await it.press(*keys)
                await it.shows(sign)
                look()
                if keys == ("f3",):
                    it.agent.used(group, HOSTILE)
                    await it.shows("used by")
                    look()
                if keys == ("f8",):
                    await it.paste("x")
                    await it.press("enter")
                    it.agent.joining("exchanging", HOSTILE)
                    await it.shows("✓ reach")
                    look()
                await it.press("escape")
                await it.until(lambda: isinstance(it.app.screen, Board))
            await it.say("/members")
            await it.press("down", "enter")
            await it.shows("let in by")
            look()
            await it.press("escape", "escape")  # From the sheet to the list, from the list to the composer.
            it.agent.refuse["send"] = Refusal(HOSTILE)
            await it.say("x")
            await it.until(lambda: "aGk" in it.told())
            await it.pilot.pause()
            look()
            await it.say("/" + HOSTILE)
            await it.until(lambda: "No command" in it.told())
            await it.pilot.pause()
            look()
            hurt = [
                ("told", ToldNews("c", HOSTILE, "told" + HOSTILE), "told␛"),
                ("connection", ConnectionNews(connection="c", text="changed" + HOSTILE), "changed␛"),
                ("problem", ProblemNews(HOSTILE, "code" + HOSTILE, HOSTILE), "code␛"),
                ("pong", pong("q1", HOSTILE, envelope="kind" + HOSTILE, their_key=HOSTILE), "kind␛"),
                ("features", FeaturesNews("q2", HOSTILE, [FeatureInfo(HOSTILE, "feature" + HOSTILE)]), "feature␛"),
            ]
            for method, news, sign in hurt:
                if method in ("pong", "features"):
                    question = "ping" if method == "pong" else method
                    await it.say(f"/{question} somebody")
                    await it.until(lambda question=question: it.agent.count(question))
                it.agent.tell(method, news)
                await it.until(lambda sign=sign: sign in it.told() + it.text)
                await it.pilot.pause()
                look()
            assert it.app.is_running and len(seen) == 18

    run(play())


PLAY = """
import asyncio, sys
from pathlib import Path
from tests.fake_agent import FakeAgent
from tests.test_tui import hostile
from zerochat.tui.app import ZerochatApp

async def play():
    async with FakeAgent(Path(sys.argv[1])) as agent:
        hostile(agent)
        await ZerochatApp(agent.path).run_async()

asyncio.run(play())
"""


def test_what_a_real_terminal_gets(tmp_path):
    """The bytes themselves, at the other end of a pseudo-terminal: also what goes round the composed screen."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "-c", PLAY, str(tmp_path / "agent.sock")]
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ) as process:
        os.close(slave)
        got = b""
        quitting = False
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                more = os.read(master, 65536)
            except OSError:  # What Linux says at the end of a terminal.
                break
            if not more:
                break
            got += more
            if b"end\xe2\x90\x9b" in got and not quitting:
                quitting = True
                os.write(master, b"\x11")
        assert process.wait(10) == 0, got[-2000:]
    os.close(master)
    assert quitting and b"aGk=" in got
    for payload in (b"\x1b]52", b"\xc2\x9b", "\u202e".encode(), b"\x1b]0;", b"\x1b]2;"):
        assert payload not in got, payload


@pytest.mark.parametrize("theme", ["textual-light", "nord", "ansi-dark", "ansi-light"])
def test_other_themes(tmp_path, theme):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.theme = theme
            await it.pilot.pause()
            await it.shows("seven at the station")

    run(play())
