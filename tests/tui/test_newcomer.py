"""First use of the chat: visible keys, brief messages, helpful help."""

import pytest

from tests.support.fake_agent import Refusal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.presentation.files import file_line, short_name
from zerochat.rpc import Attachment
from zerochat.terminal_text import cells
from zerochat.tui.dialogs.dialog import HangingText
from zerochat.tui.state.preferences import SettingsStore

pytestmark = pytest.mark.usefixtures("utc")


# --- a message is selected ------------------------------------------------------------------------------------------


def test_message_keys_are_shown_during_a_selection(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station", "F1 help")
            await it.press("f6")
            await it.shows("Message  r reply  + react  m more  e edit  d delete  y copy  Esc back")
            await it.press("up")  # Somebody else's.
            await it.shows("Message  r reply  + react  m more  y copy  Esc back")
            it.app.chat.status_line.flash = "Something was done."
            await it.shows("A message is selected (Esc back)", "Something was done.")
            it.app.chat.status_line.flash = ""
            await it.pilot.resize_terminal(40, 24)
            await it.shows("r reply  + react  Esc back")
            await it.press("escape")
            await it.gone("Esc back")
            assert it.composer.has_focus

    run(play())


def test_text_typed_over_a_selection_is_kept(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("up")
            await it.type("hello")
            await it.shows("hello")
            assert it.composer.text == "hello" and it.app.chat.pane.selected is None
            await it.gone("Esc back")

    run(play())


def test_message_keys_follow_the_keymap(tmp_path):
    async def play():
        choices = SettingsStore()
        choices.set("chat.keymap", "vim")
        async with scene(tmp_path, setting=weekend, settings_store=choices) as it:
            await it.shows("seven at the station")
            await it.press("escape")
            await it.shows("r reply  + react  m more  e edit  d delete  y copy  i back")
            await it.press("z")
            await it.shows("No action for key z here. Press i to write.")
            assert it.app.chat.pane.has_focus and it.composer.text == ""

    run(play())


def test_hints_have_the_users_keys(tmp_path):
    keys = {
        "group.requests": "alt+r",
        "group.join": "alt+j",
        "group.invite": "alt+i",
        "go.unread": "alt+o",
        "join.cancel": "f11",
    }
    own = {f"chat.keys.{id}": key for id, key in keys.items()}

    async def play():
        async with scene(tmp_path, size=(120, 30), setting=weekend, settings_store=SettingsStore(overrides=own)) as it:
            await it.shows("seven at the station", "Alt+I invite")
            it.agent.ask(it.agent.groups["g1"], "dora")
            await it.shows("dora asks to join. Press Alt+R to answer.")
            it.agent.say(it.agent.groups["g2"], 1, "hello")
            await it.shows("(Alt+O)")
            it.agent.joining("asking", "A member has been asked.")
            await it.shows("(Alt+J)")
            await it.press("alt+j")
            await it.shows("F11 cancel", "joining continues (/join shows it). F11 cancels.")
            await it.press("escape")
            await it.say("/new club")
            await it.shows("club created. Press Alt+I or type /invite")

    run(play())


def test_the_explained_symbols_have_the_users_keys(tmp_path):
    async def play():
        own = {"chat.keymap": "vim", "chat.keys.agent.status": "alt+s"}
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(overrides=own)) as it:
            await it.shows("seven at the station")
            await it.press("f1")
            await it.shows("Help: keys")
            body = str(it.app.screen.query_one(HangingText).content)
            assert "it replies to; u goes there" in body and "received yet; Alt+S shows whose" in body
            assert "F9: → ⇥" in body and "{" not in body

    run(play())


@pytest.mark.slow
def test_a_word_typed_at_a_confirmation_cancels(tmp_path):
    """d asks whether to delete; the y of "did you" must not be taken for a yes."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f6", "d")
            await it.shows("Delete “seven")
            await it.press("i")
            await it.gone("Delete “seven")
            assert not it.agent.count("delete_message")
            await it.press("d")
            await it.shows("Delete “seven")
            await it.press("y")
            await it.until(lambda: asked(it.agent, "delete_message"))
            assert it.agent.count("delete_message") == 1

    run(play())


@pytest.mark.slow
def test_ctrl_c_over_a_dialog_needs_two_presses(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key, sign in (("f3", "Not used yet"), ("f7", "Name of the new group")):
                await it.press(key)
                await it.shows(sign)
                it.app._interrupted = -10.0
                await it.press("ctrl+c")
                await it.shows("Press Ctrl+C again to quit.", sign)
                await it.press("escape")
                await it.gone(sign)
            await it.press("f3")
            await it.shows("Not used yet")
            await it.press("ctrl+c", "ctrl+c")
            await it.until(lambda: not it.app.is_running)

    run(play())


# --- words that are no longer true ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_copy_report_is_brief(tmp_path, monkeypatch):
    monkeypatch.setattr("zerochat.tui.dialogs.dialog.FLASH_S", 0.2)

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.press("f3")
            await it.shows("Not used yet")
            await it.press("c")
            await it.shows("Copied the link")
            await it.shows("Not used yet")
            assert "Copied" not in it.text

    run(play())


def test_an_error_disappears_with_the_next_line(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/xyzzy")
            await it.shows("No command /xyzzy")
            await it.say("hello")
            await it.gone("No command /xyzzy")
            await it.shows("F1 help")

    run(play())


@pytest.mark.slow
def test_an_open_dialog_refreshes(tmp_path):
    """Who waits for whom is read again while it is looked at."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            group = it.agent.groups["g1"]
            await it.shows("seven at the station")
            it.agent.peer(group, 2, False)
            await it.press("f12")
            await it.shows("active, 1/2 connected")
            it.agent.peer(group, 2, True)
            await it.shows("active, 2/2 connected")

    run(play())


@pytest.mark.slow
def test_an_input_error_disappears_with_the_next_edit(tmp_path):
    def refusing(agent):
        weekend(agent)
        agent.refuse["create_group"] = agent.refuse["join_group"] = Refusal("No: so the test wants it.")

    async def play():
        async with scene(tmp_path, setting=refusing) as it:
            await it.shows("seven at the station")
            for key in ("f7", "f8"):
                await it.press(key)
                await it.type("friends")
                await it.press("enter")
                await it.shows("No: so the test wants it.")
                await it.press("x")
                await it.gone("No: so the test wants it.")
                await it.press("escape")

    run(play())


# --- the help ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_help_starts_with_its_topic(tmp_path):
    first = {
        "/help": ("Commands", "/help [COMMAND|TOPIC]"),
        "/help commands": ("Commands", "/help [COMMAND|TOPIC]"),
        "/help keys": ("Everywhere", "F3 "),
        "/help messages": ("/messages", "/messages NAME"),
        "/help /invite": ("/invite", "/invite [USES] [reader] [NAME]"),
        "/help inv": ("/inv", "/invite [USES] [reader] [NAME]"),
    }

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for line, (heading, below) in first.items():
                await it.say(line)
                await it.until(lambda: it.app.screen is not it.app.chat and it.app.screen.query(HangingText))
                heads = str(it.app.screen.query_one(HangingText).content).splitlines()
                assert heads[0] == heading and heads[1].startswith(below), (line, heads[:3])
                await it.press("escape")
                await it.until(lambda: it.app.screen is it.app.chat)
            await it.say("/help xyzzy")
            await it.shows("No help on xyzzy. /help lists the commands, F1 the keys and the manual.")
            await it.say("/help mediators")
            await it.until(lambda: it.app.screen is not it.app.chat and it.app.screen.query(HangingText))
            page = str(it.app.screen.query_one(HangingText).content).splitlines()
            assert page[0] == "Manual: Mediators" and "zerochat mediator --listen" in "\n".join(page)

    run(play())


# --- a group with files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (90, "minutes of the autumn meeting.pdf  2.3 MB · waiting for a member that has it"),
        (56, "minutes of the autumn meeting.pdf  2.3 MB · waiting"),
        (40, "minutes of the…ing.pdf  2.3 MB · waiting"),
        (24, "minutes o…g.pdf  waiting"),
    ],
)
def test_file_names_use_the_available_width(width, shown):
    file = Attachment(id="f1", name="minutes of the autumn meeting.pdf", size=2_300_000, state="getting")
    said = file_line(file, width=width)
    assert cells(said) <= width
    assert said == shown


def test_file_names_complete(tmp_path):
    def posted(agent):
        weekend(agent)
        for name in ("minutes of may.pdf", "map.png", "\x1b[2Jminutes"):
            event = agent.post(agent.groups["g1"], 1, "", minute=4)
            agent.change(agent.groups["g1"], event.id, attachments=[Attachment(id=name, name=name, size=3)])

    async def play():
        async with scene(tmp_path, setting=posted) as it:
            await it.shows("map.png")
            it.composer.set_text("/save mi")
            await it.press("tab")
            assert it.composer.text == "/save minutes of may.pdf"

    run(play())


def test_a_long_file_name_keeps_its_extension():
    for width in range(1, 60):
        for name in ("x" * 70 + ".jpeg", "照片" * 30 + ".jpeg", "e\u0301" * 70 + ".jpeg"):
            said = short_name(Attachment(id="f1", name=name, size=3), width)
            assert cells(said) <= width and (width < 10 or said.endswith(".jpeg")), (width, said)


# --- the tour ---------------------------------------------------------------------------------------------------------


def test_a_key_of_the_chat_ends_the_tour_and_acts(tmp_path):
    """The sentence behind the tour says which: "Press F3 to invite people"."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/tour")
            await it.shows("1/5")
            await it.press("f3")
            await it.shows("Not used yet")
            await it.press("escape")
            await it.gone("Not used yet")
            await it.say("/tour")
            await it.shows("1/5")
            await it.press("alt+2")
            await it.shows("Message work")
            assert "1/5" not in it.text

    run(play())


@pytest.mark.slow
def test_the_tour_does_not_cover_its_subject(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say("/tour")
            for number in range(1, 6):
                await it.shows(f"{number}/5", "F1 help", "^Q quit", "Message weekend")
                if number == 4:
                    await it.shows("✓1/2", "seven at the station")
                await it.press("enter")
            await it.say("/tour")
            await it.shows("1/5")
            await it.press("/")  # Whoever begins to write has seen enough, and loses nothing.
            await it.gone("1/5")
            await it.type("new")
            await it.until(lambda: it.composer.text == "/new")

    run(play())


# --- commands that are not whole --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_usage_error_shows_usage_and_keeps_the_line(tmp_path):
    lines = {
        "/mute for": "Usage: /mute [none|mentions|all|for 2h]",
        "/mute ment": "Example: /mute for 2h",
        "/role bob": "/role bob reader",
        "/invite re": "/invite 3 reader",
        "/rename": "/rename bob",
        "/message": "/message bob hello",
        "/telemetry export": "/telemetry export ~/study",
    }

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for line, example in lines.items():
                await it.say(line)
                await it.until(lambda example=example: example in it.told())
                it.app.chat.composer.set_text("")
                await it.press("ctrl+up")
                assert it.composer.text == line
                it.app.clear_notifications()

    run(play())
