"""Sending in the terminal application: parsing of lines, bursts, and that no input is lost."""

import argparse
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.events import Key

from tests.support.fake_agent import Refusal
from tests.support.tui_pilot import asked, completed, run, scene, weekend
from zerochat import slash_commands as commands
from zerochat.cli.parser import grammar
from zerochat.terminal_text import Printable
from zerochat.tui.composer.paste import BURST_PAUSE_S, BURST_S
from zerochat.tui.state.preferences import SettingsStore

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


def test_sending(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("hello")
            await it.press("ctrl+j")
            await it.type("world")
            await it.until(lambda: it.composer.size.height == 2, "a composer of two lines")
            await it.press("enter")
            await it.shows("12:30            │ hello")
            assert asked(it.agent, "send_message")[-1]["text"] == "hello\nworld"
            await it.until(lambda: it.composer.text == "" and it.composer.size.height == 1)
            await it.press("ctrl+up")
            assert it.composer.text == "hello\nworld"
            await it.press("ctrl+down")
            assert it.composer.text == ""
            await it.say("//me waves")
            await it.until(lambda: asked(it.agent, "send_message")[-1]["text"] == "/me waves")

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
            await it.until(lambda: it.agent.count("send_message") == 2)
            said = [params for method, params in it.agent.asked if method == "send_message"]
            assert [(one["group"], one["text"]) for one in said] == [("g1", "for them"), ("g2", "for dave")]
            await it.press("alt+2")
            assert it.composer.text == "draft"

    run(play())


def test_a_paste_in_key_bursts_is_one_draft(tmp_path):
    """As terminals without brackets have it, read late by a busy machine, with an empty line in it."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            pieces = ["one\n", "\ntwo", "\nthree\n", "four\nfive"]
            read_at = 1.0
            for piece in pieces:
                for letter in piece:
                    key = Key("enter", None) if letter == "\n" else Key(letter, letter)
                    key.time = read_at = read_at + BURST_S / 8
                    it.app.post_message(key)
                read_at += BURST_PAUSE_S / 2
            await it.until(lambda: it.composer.text == "".join(pieces))
            assert it.agent.count("send_message") == 0

    run(play())


def test_alt_letter_types_nothing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in ("alt+a", "alt+q"):  # As plain terminals send them, with the letter.
                it.app.post_message(Key(key, key[-1]))
            await it.type("ok")
            assert it.composer.text == "ok"

    run(play())


def test_a_rejected_message_returns_to_the_composer(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["send_message"] = Refusal("The disk is full. Make room, then send it again.", "DiskFull")
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
            it.agent.refuse["save_draft"] = Refusal("The disk is full.", "DiskFull")
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
            await it.shows("Press Ctrl+C again to quit.")
            await it.press("x", "backspace", "ctrl+c")  # the two must follow each other
            await it.shows("Press Ctrl+C again to quit.")
            assert it.app.is_running
            await it.press("ctrl+c")
            await it.until(lambda: not it.app.is_running)

    run(play())


@pytest.mark.parametrize("wait", [False, True])
def test_quitting_with_pending_requests(tmp_path, wait):
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


@pytest.mark.slow
def test_mistyped_commands_are_never_sent(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for text, answer in [
                ("/jion ZC:SECRET", "Did you mean /join?"),
                (" /leave", "Remove the spaces"),
                ("/etc/hosts is broken", "No command /etc/hosts"),
                ("/xyzzy", "See /help."),
                ("/wibble", "See /help."),
                ("/serch bridge", "Did you mean /search?"),
                ("/", "No command /."),
                ("/op bob", "Use /role."),
                ("/audit", "/audit is not a chat command. In a shell: zerochat audit"),
                ("/AUDIT hikers", "/audit is not a chat command. In a shell: zerochat audit"),
                ("/connect", "In a shell: zerochat connect"),
                ("/admit dora", "Use /requests."),
                ("/forgte", "No command /forgte."),
                ("/removve bob", "No command /removve."),
                ("/stat waves", "Did you mean /status?"),
                ("/jo ZC:SECRET", "Did you mean /join?"),
            ]:
                await it.say(text)
                await it.until(lambda answer=answer: answer in it.told(), answer)
                assert it.composer.text == text
            assert it.agent.count("send_message") == 0 and it.agent.count("join_group") == 0
            assert not it.app._notifications  # All of it fits where it covers nothing.
            await it.gone("No command /jo.")

    run(play())


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("hello", commands.Post("hello")),
        ("  indented\n", commands.Post("  indented")),
        ("\n\nx\n", commands.Post("x")),
        ("a /b", commands.Post("a /b")),
        ("//b", commands.Post("/b")),
        ("///b", commands.Post("//b")),
        ("/new two words ", commands.Command("new", "two words")),
        ("/JOIN ZC:AB\nCD", commands.Command("join", "ZC:AB\nCD")),
        ("/join\nhttps://x", commands.Command("join", "https://x")),
        ("/dism", commands.Command("dismiss", "")),
        ("   ", None),
    ],
)
def test_parsing_of_lines(text, meaning):
    assert commands.parse(text) == meaning


def test_shell_only_verbs_match_the_parser():
    found = next(each for each in grammar()._actions if isinstance(each, argparse._SubParsersAction)).choices
    assert set(found) - commands.COMMANDS.keys() - commands.ALIASES.keys() == commands.IN_A_SHELL | {
        "admit",
        "refuse",
        "__complete",
    }


def test_commands_of_other_chats_have_a_counterpart_here():
    assert set(commands.ELSEWHERE.values()) <= commands.COMMANDS.keys()
    assert not commands.ELSEWHERE.keys() & commands.COMMANDS.keys()
    assert not commands.ALIASES.keys() & (commands.COMMANDS.keys() | commands.ELSEWHERE.keys() | commands.IN_A_SHELL)
    assert len(commands.ALIASES) == sum(len(info.aliases) for info in commands.COMMANDS.values())


def test_aliases_do_what_their_command_does():
    assert commands.parse("/NICK Al") == commands.Command("rename", "Al")
    assert commands.parse("/part") == commands.Command("leave", "")
    assert commands.parse("/query carol hi") == commands.Command("msg", "carol hi")
    assert commands.parse("/names") == commands.Command("members", "")
    assert commands.parse("/whois bob") == commands.Command("members", "bob")
    assert commands.parse("/nic Al") == commands.Command("rename", "Al")  # abbreviated as any command
    assert completed("/nic") == "/nick "
    assert completed("/whois d", ["Dora", "Emil"]) == "/whois Dora"
    assert completed("/help nic") == "/help nick"


def test_aliases_in_the_chat(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/whois bob")
            await it.shows("last seen", "joined")
            await it.press("escape")
            await it.say("/nick Al")
            await it.until(lambda: it.agent.count("set_display_name") == 1)
            await it.say("/message bob hi")
            await it.until(lambda: "bob is a member of this group, not a connection." in it.told())
            it.composer.set_text("")
            await it.say("/query bob hi")
            await it.shows("waiting for bob to accept")
            await it.say("/help kick")
            await it.shows("/remove NAME", "(also /kick)")

    run(play())


def test_typos_never_run_destructive_commands():
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
    assert completed("/deli") == "/delivery "
    assert completed("/") is None
    assert completed("de") is None and completed("/new x") is None
    assert completed("/ping d", ["Dora", "dora the second", "Emil"]) is None
    assert completed("/ping dor", ["Dora", "Emil"]) == "/ping Dora"
    assert completed("/new d", ["Dora"]) is None

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("/mem")
            await it.press("tab")
            assert it.composer.text == "/members "
            for text, answer in [("/xy", "No command starts with /xy."), ("/", "/help  /new")]:
                it.composer.set_text(text)
                await it.press("tab")
                await it.shows(answer)
                assert it.app.focused is it.composer and it.composer.text == text

    run(play())


@pytest.mark.slow
def test_pasting(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.paste("one\r\ntwo\x1b]52;c;aGk=\x07\rthree")
            await it.until(lambda: it.composer.text == "one\ntwo␛]52;c;aGk=␇\nthree", it.composer.text)
            assert it.agent.count("send_message") == 0  # Three lines are one draft, never three messages.
            it.composer.set_text("")
            long = "a line of words\n" * 4_096
            await it.paste(long)  # The protocol's own limit, to the byte.
            await it.shows("You pasted 4,096 lines (65,536 bytes).")
            await it.press("down", "down", "enter")
            await it.until(lambda: it.composer.text == long)
            await it.type("x")
            await it.until(lambda: it.composer.text == long + "x")

    run(play())


LONG = "This cannot be done, for a reason that takes more than one line of this window to say, and then a little more."


@pytest.mark.parametrize("line", ["/verify Zoe", "/react nosuchname", "/topic new", "/role bob admin", "/help nosuch"])
def test_a_rejected_command_is_back_in_the_composer(tmp_path, line):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for method in ("set_topic", "set_role"):
                it.agent.refuse[method] = Refusal(LONG)
            await it.say(line)
            await it.until(lambda: it.app.chat.status_line.flash)
            await it.until(lambda: it.composer.text == line)
            assert not it.app._notifications

    run(play())


def test_a_rejected_command_replaces_no_newer_text(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["set_topic"] = Refusal("Only admins set the topic.")
            it.composer.set_text("/topic new")
            it.app.post_message(Key("enter", "\r"))
            await it.type("hello")
            await it.shows("Only admins set the topic.")
            assert it.composer.text == "hello"
            await it.press("ctrl+up")
            assert it.composer.text == "/topic new"

    run(play())


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 15)])
def test_a_long_error_covers_nothing(tmp_path, size):
    async def play():
        async with scene(tmp_path, size=size, setting=weekend) as it:
            await it.shows("seven at the station")
            it.agent.refuse["send_message"] = Refusal(LONG * 2)
            await it.say("hello")
            await it.shows("and then a little more.")
            lines = it.text.split("\n")
            newest = next(at for at, line in enumerate(lines) if "seven at the station" in line)
            written = next(at for at, line in enumerate(lines) if line.strip() == "hello")
            assert newest < written < next(at for at, line in enumerate(lines) if "This cannot be" in line)
            assert not it.app._notifications
            del it.agent.refuse["send_message"]
            await it.press("enter")
            await it.gone("and then a little more.")
            assert it.app.chat.status_line.size.height == 1

    run(play())


def test_a_toast_covers_neither_newest_rows_nor_composer(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for _ in range(5):
                it.app.notify(LONG, timeout=60)
            await it.shows("and then a little more.")
            half = it.text.split("\n")[13:]
            assert not any("reason that takes" in line for line in half)

    run(play())


# --- errors while a dialog is open -----------------------------------------------------------------------------------


def test_errors_wait_while_a_dialog_is_open(tmp_path):
    """They stand in the status line when it closes; nothing less important replaces them."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            chat = it.app.chat
            await it.press("f1")
            await it.shows("Help")
            chat.call_next(chat.report_error, Printable("The first is broken."))
            chat.call_next(chat.flash, Printable("bob is connected."))
            chat.call_next(chat.report_error, Printable("The second is broken."))
            await it.until(lambda: "second" in chat.status_line.flash)
            assert not it.app._notifications
            await it.press("escape")
            await it.shows("The first is broken.", "The second is broken.")
            assert "bob is connected" not in it.text and "seven at the station" in it.text
            await it.say("hello")
            await it.gone("is broken")

    run(play())


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_an_error_of_a_dialog_is_in_its_line(tmp_path, size):
    def setting(agent):
        weekend(agent)
        members = agent.groups["g1"].members
        members[1] = replace(members[1], allowed_actions=["reader", "remove"])

    async def play():
        async with scene(tmp_path, size=size, setting=setting) as it:
            await it.until(lambda: it.open is not None and it.open.members)
            await it.say("/members bob")
            await it.shows("r reader")
            it.agent.refuse["set_role"] = Refusal("Only admins change roles.")
            await it.press("r")
            await it.shows("Only admins change roles.")
            line = it.app.screen.query_one("#dialog-error")
            assert line.region.height == 1 and line.region.bottom <= size[1]
            assert not it.app._notifications and it.app.chat.status_line.flash == ""
            it.agent.refuse["remove_member"] = Refusal("The disk is full.")
            await it.press("x")
            await it.shows("Vote to remove bob")
            await it.press("y")
            await it.shows("The disk is full.")
            await it.gone("Only admins")
            del it.agent.refuse["set_role"]
            await it.press("r")
            await it.gone("The disk is full.")
            await it.press("escape")
            await it.gone("r reader")

    run(play())


def test_an_error_of_the_settings_is_in_their_line(tmp_path, monkeypatch):
    def broken(store, name, value):
        raise PermissionError(13, "Permission denied")

    async def play():
        store = SettingsStore()
        monkeypatch.setattr(SettingsStore, "set", broken)
        async with scene(tmp_path, setting=weekend, settings_store=store) as it:
            await it.shows("seven at the station")
            await it.say("/set")
            await it.shows("Settings")
            await it.press("right")
            await it.shows("cannot be written: permission denied.")
            assert it.app.screen.query_one("#dialog-error").has_class("-trouble") and not it.app._notifications

    run(play())
