"""Vim's normal mode in the composer."""

import pytest

from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.terminal_text import Printable
from zerochat.tui.composer.vim import Change, NormalMode
from zerochat.tui.state.preferences import SettingsStore


def typed(keys, text, at):
    """Text, cursor and mode after these keys in normal mode; `|` marks the cursor."""
    mode, killed = NormalMode(), ""
    for key in keys:
        done = mode.press(key, text, at, killed)
        if isinstance(done, Change):
            killed = killed if done.killed is None else done.killed
            text, at = text[: done.start] + done.text + text[done.end :], done.cursor
            if done.insert:
                return f"{text[:at]}^{text[at:]}"
    return f"{text[:at]}|{text[at:]}"


@pytest.mark.parametrize(
    ("before", "keys", "after"),
    [
        ("|one two", "w", "one |two"),
        ("one |two", "b", "|one two"),
        ("|one, two", "e", "on|e, two"),
        ("|one, two", "ww", "one, |two"),
        ("|one two", "$", "one tw|o"),
        ("one t|wo", "0", "|one two"),
        ("|ab", "llll", "a|b"),
        ("a|b", "hhh", "|ab"),
        ("|abc", "x", "|bc"),
        ("ab|c", "x", "a|b"),
        ("|abc", "xp", "b|ac"),
        ("|one two three", "dw", "|two three"),
        ("one |two", "dw", "one| "),
        ("one |two\nthree", "dw", "one| \nthree"),
        ("one two |three", "db", "one |three"),
        ("|one two", "de", "| two"),
        ("one |two\nx", "d$", "one| \nx"),
        ("one |two\nx", "D", "one| \nx"),
        ("one\nt|wo\nthree", "dd", "one\n|three"),
        ("one\nt|wo", "dd", "|one"),
        ("o|ne", "dd", "|"),
        ("one\nt|wo\nthree", "ddp", "one\nthree\n|two"),
        ("|one two", "cw", "^ two"),
        ("one|  two", "cw", "one^two"),
        ("one |two", "C", "one ^"),
        ("one\nt|wo\nx", "cc", "one\n^\nx"),
        ("o|ne", "A", "one^"),
        ("  on|e", "I", "  ^one"),
        ("o|ne", "i", "o^ne"),
        ("o|ne", "a", "on^e"),
        ("o|ne\ntwo", "o", "one\n^\ntwo"),
        ("|one", "dq", "|one"),
        ("|می‌خواهم نان", "w", "می‌خواهم |نان"),
        ("|", "xwbe$0hldwp", "|"),
    ],
)
def test_normal_mode(before, keys, after):
    at = before.index("|")
    assert typed(keys, before.replace("|", "", 1), at) == after


def test_vim_edits_the_composer(tmp_path):
    async def play():
        vim = SettingsStore(overrides={"chat.keymap": "vim"})
        async with scene(tmp_path, setting=weekend, settings_store=vim) as it:
            await it.shows("seven at the station")
            await it.type("hello wrold")
            await it.press("escape")
            await it.shows("NORMAL [alice]")
            await it.press("b", "c", "w")
            await it.gone("NORMAL")
            await it.type("world")
            await it.until(lambda: it.composer.text == "hello world")
            await it.press("escape", "0", "d", "w", "u")
            await it.until(lambda: it.composer.text == "hello world")
            await it.press("x", "p", "A")
            await it.type("!")
            await it.until(lambda: it.composer.text == "ehllo world!")
            await it.press("escape", "z", "q")  # no letter is typed
            assert it.composer.text == "ehllo world!" and it.app.chat.status_line.mode == "NORMAL"
            it.app.chat.flash(Printable("bob is connected."))
            await it.shows("NORMAL bob is connected.")
            it.app.chat.flash(Printable("a sentence of many words " * 4))
            await it.shows("NORMAL a sentence")
            await it.until(lambda: it.app.chat.status_line.size.height == 2, "room for the mode too")
            await it.press("enter")
            await it.until(lambda: asked(it.agent, "send_message"))
            assert asked(it.agent, "send_message")[0]["text"] == "ehllo world!"
            await it.type("next")  # a new text starts in insert mode
            await it.until(lambda: it.composer.text == "next")
            await it.press("escape", "escape")
            await it.until(lambda: it.app.chat.pane.has_focus)
            await it.press("i")
            await it.type("!")
            await it.until(lambda: "!" in it.composer.text)

    run(play())


def test_other_keymaps_have_no_modes(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("dd")
            await it.press("escape", "escape")
            await it.type("x")
            await it.until(lambda: it.composer.text == "ddx")

    run(play())
