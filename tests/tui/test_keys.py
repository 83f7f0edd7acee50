"""Keys, help and palette of the terminal application."""

from pathlib import Path

import pytest
from textual.events import Key
from textual.screen import ModalScreen

from tests.support.marks import others_slow
from tests.support.tui_pilot import run, scene, weekend
from zerochat import slash_commands as commands
from zerochat.tui.app import Palette
from zerochat.tui.dialogs.dialog import HangingText, hang, rows
from zerochat.tui.dialogs.help import key_text
from zerochat.tui.style.keymaps import binding_owners

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("utc")


@pytest.mark.slow
def test_palette_order_and_complete_help(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 90), setting=weekend) as it:
            await it.shows("seven at the station")
            entries = list(it.app.get_system_commands(it.app.screen))
            titles = [entry.title for entry in entries]
            assert titles[:3] == ["Create a group", "Join a group", "Invite to this group"]
            assert (titles[3], entries[3].help) == ("Show or hide the members", "F2, Ctrl+B")
            assert sorted(set(titles)) == sorted(titles)
            await it.press("f1")
            await it.shows("Everywhere")
            body = str(it.app.screen.query_one(HangingText).content)
            for info in commands.COMMANDS.values():
                assert info.usage in body and info.help in body
            signs = ["F3", "F7", "F8", "Alt+1 …", "Ctrl+W", "/new NAME", "✓2/3", "late", "keys · path"]
            places = [body.index(sign) for sign in signs]
            assert places == sorted(places)
            await it.press("escape")
            await it.press("ctrl+p")
            await it.shows("Create a group", "Show or hide the members")
            await it.type("hide the members")
            await it.gone("Create a group")
            await it.press("down", "enter")
            await it.shows("● bob")

    run(play())


def test_the_help_starts_with_keys_in_columns(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f1")
            await it.shows("Help", "F3 ", "Invite to this group", "Ctrl+K, Alt+G")
            assert "Symbols" not in it.text
            body = it.app.screen.query_one(HangingText)
            lines = [body.render_line(y).text for y in range(body.size.height)]
            at = next(at for at, line in enumerate(lines) if line.startswith("/resume"))
            wrapped = next(at for at, line in enumerate(lines) if line.startswith("≈ before a name"))
            assert lines[wrapped + 1].startswith(" " * 21) and lines[wrapped + 1].strip()
            assert "script" in lines[wrapped] and at < wrapped
            assert all(len(line.rstrip()) <= body.size.width for line in lines)
            assert not any("\t" in line for line in lines)

    run(play())


DIALOGS = {
    "ctrl+p": "Search for commands",
    "f1": "Help",
    "f3": "Invit",
    "f7": "Name of the new group",
    "f8": "Paste the invitation",
    "f10": "Leave weekend?",
    "ctrl+k": "Go to",
    "ctrl+f": "Search",
}


def test_keys_after_quit_do_nothing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in ("ctrl+q", "x", "ctrl+p", "f1"):
                it.app.post_message(Key(key, "x" if key == "x" else None))
            await it.until(lambda: it.app._exit and not it.app.is_running, "the end")
            assert it.app.return_code == 0 and it.app._exception is None

    run(play())


@pytest.mark.parametrize("opener", others_slow([*DIALOGS], 2))
def test_ctrl_q_quits_from_every_dialog(tmp_path, opener):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press(opener)
            await it.until(lambda: it.app.screen is not it.app.chat)
            await it.shows(DIALOGS[opener])
            await it.press("ctrl+q")
            await it.until(lambda: not it.app.is_running)

    run(play())


@pytest.mark.parametrize("opener", others_slow(["f8", "f7", "ctrl+f"], 1))
def test_the_field_is_in_sight_in_a_tiny_window(tmp_path, opener):
    async def play():
        async with scene(tmp_path, size=(20, 6), setting=weekend) as it:
            await it.shows("Message")
            await it.press(opener)
            await it.until(lambda: it.app.screen is not it.app.chat and it.app.screen.focused)
            await it.until(lambda: it.app.screen.region.contains_region(it.app.screen.focused.region))
            await it.pilot.pause()
            assert it.app.screen.region.contains_region(it.app.screen.focused.region)

    run(play())


@pytest.mark.parametrize(("pasted", "told"), [("pa\u200bste", True), ("past\u00e9 two", False)])
def test_invisible_characters_in_a_pasted_name_are_reported(tmp_path, pasted, told):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f7")
            await it.shows("Name of the new group")
            await it.paste(pasted)
            await it.until(lambda: it.app.screen.focused.value == pasted.replace("\u200b", ""))
            if told:
                await it.shows("had invisible characters")
            assert bool(it.app.screen.query("#dialog-error")) == told

    run(play())


def test_every_dialog_quits_and_helps():
    for place in binding_owners():
        if issubclass(place.owner, ModalScreen):
            keys = {each.id for kind in place.owner.__mro__ for each in vars(kind).get("BINDINGS", ())}
            assert "app.quit" in keys and ({"app.help", "dialog.close"} & keys or place.owner is Palette), place.owner


def test_the_first_run_and_the_tour_have_help_and_quit(tmp_path):
    async def play():
        async with scene(tmp_path, create_profile=lambda nick, passphrase: None) as it:
            await it.shows("Welcome to zerochat")
            await it.press("f1")
            await it.shows("Help", "First run", "Create a group at once")
            await it.press("escape")
            await it.shows("Welcome to zerochat")
            await it.type("alice")
            await it.press("enter", "enter", "1")
            await it.shows("Name of the new group")
            await it.press("escape")
            await it.say("/tour")
            await it.shows("1/5  Conversations")
            await it.press("f1")
            await it.shows("Help", "Next step", "End the tour")
            await it.press("escape")
            await it.shows("1/5  Conversations")
            await it.press("ctrl+q")
            await it.until(lambda: not it.app.is_running)

    run(play())


@pytest.mark.parametrize("width", [8, 20, 30, 70])
def test_hanging_columns_lose_no_word(width):
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


@pytest.mark.parametrize(
    ("sequence", "key"),
    [("\x1b1", "alt+1"), ("\x1b9", "alt+9"), ("\x1b\r", "alt+enter"), ("\x1b[13;2u", "shift+enter"), ("\r", "enter"),
     ("\n", "ctrl+j"), ("\x1b[1;3A", "alt+up"), ("\x1ba", "alt+a"), ("¡", "inverted_exclamation_mark")],
)  # fmt: skip
def test_key_sequences_of_plain_terminals(sequence, key):
    from textual._xterm_parser import XTermParser

    from zerochat.tui.host.terminal import register_keys

    register_keys()
    parser = XTermParser()
    events = [*parser.feed(sequence), *parser.feed("")]
    assert [event.key for event in events if isinstance(event, Key)] == [key]


def test_display_form_of_keys():
    assert key_text("ctrl+n,alt+down") == "Ctrl+N, Alt+Down"
    assert key_text("f2,ctrl+b") == "F2, Ctrl+B"
    assert key_text("pageup") == "PgUp"
