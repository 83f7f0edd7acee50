"""/set, keymaps, the tour; every action has an id, keys, a help line and a palette entry."""

import re

import pytest
from textual import events
from textual.binding import Binding
from textual.widgets import OptionList

from tests.support.marks import others_slow
from tests.support.tui_pilot import run, scene, weekend
from zerochat import slash_commands as commands
from zerochat.agent.settings.options import OPTIONS
from zerochat.agent.storage.paths import profile_paths
from zerochat.tui.app import Palette, ZerochatApp
from zerochat.tui.chat_screen import ChatScreen
from zerochat.tui.composer.arguments import setting_words
from zerochat.tui.dialogs.dialog import Dialog, HangingText
from zerochat.tui.dialogs.help import bindings_of, bindings_of_class, key_text
from zerochat.tui.dialogs.settings import SettingsDialog
from zerochat.tui.dialogs.tour import STEPS
from zerochat.tui.host.terminal import set_mouse
from zerochat.tui.messages.selectable_pane import SelectablePane
from zerochat.tui.state.preferences import SettingsStore
from zerochat.tui.style.keymaps import KEYMAPS, _conflicts, binding_owners, is_key, keymap_warnings, keys_in, merged

pytestmark = pytest.mark.usefixtures("utc")


@pytest.fixture
def home(tmp_path):
    return profile_paths(None, {"ZEROCHAT_HOME": str(tmp_path)})


# --- /set -----------------------------------------------------------------------------------------------------------


def test_set_stores_and_applies_at_once(tmp_path, home):
    home.config.write_text("# mine\n[chat]\ntheme = 'dark' # at night\n")

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            await it.say("/set theme light")
            await it.until(lambda: it.app.theme == "light")
            assert 'chat.theme is now "light".' in it.told()
            assert home.config.read_text() == '# mine\n[chat]\ntheme = "light" # at night\n'
            await it.say("/set mouse=off")
            await it.until(lambda: "chat.mouse is now false." in it.told())
            assert it.app.settings_store.current.mouse is False
            await it.say("/set markdown off")
            await it.until(lambda: it.app.chat.pane.markdown is False)
            await it.say("/set theme -")
            await it.until(lambda: it.app.theme == "dark")
            assert home.config.read_text() == "# mine\n[chat]\nmouse = false\nmarkdown = false\n"
            await it.say("/set theme")
            await it.until(lambda: 'chat.theme = "dark": the colours' in it.told())
            await it.say("/set network.hidden true")
            await it.until(lambda: "takes effect when the agent restarts" in it.told())
            await it.say("/set groups.my friends.notify all")
            await it.until(lambda: it.app.settings_store.current.groups == {"my friends": "all"})

    run(play())


@pytest.mark.parametrize(
    ("line", "sentence"),
    others_slow(
        [
            ("/set theme lihgt", "Invalid value 'lihgt' for chat.theme: did you mean light? Nothing changed."),
            ("/set thme dark", 'Unknown setting "thme".'),
            ("/set chat.thme dark", 'Unknown setting "chat.thme". Did you mean chat.theme?'),
            ("/set mouse perhaps", "must be true or false"),
            ("/set notify_command rm", "no shell reads it"),
            ("/set keys.go.swich ctrl+g", "unknown action go.swich. Did you mean go.switch?"),
            ("/set keys.go.switch ctlr+g", "unknown key ctlr+g"),
            ("/set thme", 'Unknown setting "thme".'),
        ],
        3,
        unpacked=True,
    ),
)
def test_a_rejected_setting_changes_nothing(tmp_path, home, line, sentence):
    home.config.write_text("# mine\n")

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            before = it.app.settings_store.current
            await it.say(line)
            await it.until(lambda: sentence in it.told(), sentence)
            assert home.config.read_text() == "# mine\n" and it.app.settings_store.current == before

    run(play())


def test_overrides_stay_and_are_reported(tmp_path, home):
    choices = SettingsStore(home, {"chat.keymap": "vim"}, {"ZEROCHAT_CHAT__THEME": "light"})

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=choices) as it:
            await it.shows("seven at the station")
            await it.say("/set theme nord")
            await it.until(lambda: "but ZEROCHAT_CHAT__THEME overrides it" in it.told())
            assert it.app.theme == "light" and 'theme = "nord"' in home.config.read_text()
            await it.say("/set keymap emacs")
            await it.until(lambda: "but the command line overrides it" in it.told())
            assert it.app.settings_store.current.keymap == "vim"

    run(play())


def test_a_full_disk_is_reported(tmp_path, home, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zerochat.agent.settings.config_writer.write_setting", full)

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            await it.say("/set theme light")
            await it.until(
                lambda: "The settings file cannot be written: no space left on device. Nothing changed." in it.told()
            )
            assert it.app.theme == "dark"

    run(play())


@pytest.mark.slow
def test_the_settings_dialog_lists_and_changes_all(tmp_path, home):
    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            await it.say("/set")
            await it.shows("Settings  /", "theme ", '"dark"', "The colours")
            dialog = it.app.screen
            assert isinstance(dialog, SettingsDialog)
            names = [option.id for option in dialog.query_one(OptionList).options]
            assert names[: len(OPTIONS)] == list(OPTIONS)
            assert set(names[len(OPTIONS) :]) == {
                f"chat.keys.{binding.id}" for place in binding_owners() for binding in place.bindings
            }
            for name in names:
                dialog.query_one(OptionList).highlighted = names.index(name)
                await it.pilot.pause()
                if (option := OPTIONS.get(str(name))) is not None:
                    start = option.meaning[1:30].split("`")[0]
                    assert start in str(dialog._about.content)
                else:
                    break
            dialog.query_one(OptionList).highlighted = 0
            await it.press("right")
            await it.until(lambda: it.app.theme == "light")
            await it.press("left", "left")
            await it.until(lambda: it.app.theme == OPTIONS["chat.theme"].choices[-1])
            await it.press("delete")
            await it.until(lambda: it.app.theme == "dark")
            await it.press("down", "enter")
            await it.until(lambda: it.app.settings_store.current.keymap == "vim")
            dialog.query_one(OptionList).highlighted = names.index("network.socks")
            await it.press("enter")
            await it.until(lambda: it.composer.text == "/set network.socks ")

    run(play())


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 12)])
def test_settings_and_help_fit_the_window(tmp_path, size):
    async def play():
        async with scene(tmp_path, size=size, setting=weekend, settings_store=SettingsStore()) as it:
            await it.until(lambda: it.app.chat.conversations.open is not None and it.open.loaded)
            await it.say("/set")
            await it.shows("Settings", "theme")
            await it.press("escape")
            await it.say("/tour")
            for number, (title, _, _) in enumerate(STEPS, 1):
                await it.shows(f"{number}/{len(STEPS)}  {title}")
                await it.press("enter")
            await it.until(lambda: it.app.screen is it.app.chat)

    run(play())


@pytest.mark.parametrize(
    ("text", "found"),
    [("/set them", ["theme "]), ("/set theme l", ["theme light"]), ("/set mouse ", ["mouse true", "mouse false"]),
     ("/set ke", ["keymap ", "keys."]), ("/set keys.go.sw", ["keys.go.switch "]),
     ("/set network.hi", ["network.hidden "]), ("/set groups.x.notify m", ["groups.x.notify mentions"]),
     ("/set receipts", ["read_receipts "]), ("/set RECEIPTS", ["read_receipts "]), ("/set ceip", ["read_receipts "]),
     ("/set nothing", []), ("/mute m", ["mentions"]), ("/mute for", ["for 1h", "for 8h", "for 1d"]), ("/set", None),
     ("/members x", None), ("words", None)],
)  # fmt: skip
def test_setting_names_and_values_complete(text, found):
    assert setting_words(text) == found


def test_tab_completes_a_setting(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore()) as it:
            await it.shows("seven at the station")
            it.composer.set_text("/set keym")
            await it.press("tab")
            await it.until(lambda: it.composer.text == "/set keymap ")
            it.composer.set_text("/set keymap e")
            await it.press("tab")
            await it.until(lambda: it.composer.text == "/set keymap emacs")

    run(play())


def test_settings_warnings_are_shown_at_startup(tmp_path, home):
    home.config.write_text('[chat]\ntheme = "lihgt"\n[chat.keys]\n"go.swich" = "f5"\n')

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("did you mean light?", "Did you mean go.switch?")
            assert it.app.theme == "dark"

    run(play())


class Driver:
    """The four things of a driver that the mouse needs."""

    def __init__(self):
        self._mouse, self.said = True, []

    def _enable_mouse_support(self):
        self.said += ["on"] if self._mouse else []

    def _disable_mouse_support(self):
        self.said += ["off"] if self._mouse else []


def test_the_mouse_is_captured_and_released():
    driver = Driver()
    for wanted in (True, False, False, True):
        set_mouse(driver, wanted)
    assert driver.said == ["off", "on"]
    set_mouse(None, False)
    set_mouse(object(), False)


def test_times_and_names_as_wanted(tmp_path):
    async def play():
        async with scene(tmp_path, size=(130, 24), setting=weekend) as it:
            await it.shows("12:03        alice │ seven at the station")
            await it.say("/set time_format %d.%m. %I:%M:%S %p")
            await it.shows("20.11. 12:03:00 PM")
            await it.say("/set nick_width 6")
            await it.shows("20.11. 12:03:00 PM  alice │ seven at the station")
            await it.say('/set time_format ""')
            await it.gone("12:03")
            await it.shows("alice │ seven at the station")
            await it.say("/set time_format %c")
            await it.until(lambda: "it must be a format such as" in it.told())
            await it.say("/set time_format -")
            await it.shows("12:03  alice │ seven at the station")

    run(play())


def sidebar_cells(it):
    """The columns of the list of conversations, with its border; 0: it is hidden."""
    return it.app.chat.group_list.outer_size.width if it.app.chat.group_list.display else 0


def test_the_sidebar_is_hidden_and_resized(tmp_path, home):
    async def play():
        store = SettingsStore(home, environ={})
        async with scene(tmp_path, setting=weekend, settings_store=store) as it:
            await it.shows("2 work", "seven at the station")
            assert sidebar_cells(it) == 16
            await it.press("alt+shift+right", "alt+shift+right", "alt+shift+left")
            await it.until(lambda: sidebar_cells(it) == 17)
            await it.pilot.mouse_down(it.app.chat.group_list, offset=(16, 3))
            await it.drag(22, 5)
            await it.until(lambda: sidebar_cells(it) == 23)
            await it.pilot.mouse_up(offset=(22, 5))
            await it.until(lambda: "sidebar_width = 23" in home.config.read_text())
            await it.pilot.mouse_down(it.app.chat.group_list, offset=(22, 3))
            await it.drag(25, 5)
            await it.until(lambda: sidebar_cells(it) == 26)
            await it.pilot.hover(offset=(30, 5))  # a move without a button: the release was lost
            await it.until(lambda: "sidebar_width = 26" in home.config.read_text())
            await it.press("alt+l")
            await it.until(lambda: sidebar_cells(it) == 0)
            assert "sidebar = false" in home.config.read_text()
            await it.pilot.resize_terminal(70, 24)
            await it.press("alt+l")  # a narrow window shows it too, but only for now
            await it.until(lambda: sidebar_cells(it) == 26)
            assert "sidebar = false" in home.config.read_text()
            await it.pilot.resize_terminal(200, 50)
            await it.say("/set sidebar on")
            await it.until(lambda: sidebar_cells(it) == 26)
            await it.say("/set sidebar_width -")
            await it.until(lambda: sidebar_cells(it) == 32)

    run(play())


# --- keys -----------------------------------------------------------------------------------------------------------


def test_every_binding_has_id_and_description():
    found = [binding for place in binding_owners() for binding in place.bindings]
    assert len(found) > 80
    for place in binding_owners():
        declared = place.owner.BINDINGS
        assert all(isinstance(each, Binding) for each in declared), place.owner
    for binding in found:
        assert binding.id and re.fullmatch(r"[a-z]+\.[a-z0-9_]+", binding.id), binding
        assert binding.description, binding
        assert all(is_key(key) for key in keys_in(binding.key)), binding
    # Modal screens hide the application's keys, and repeat some.
    ids = [
        str(each.id) for place in binding_owners() for each in place.bindings if place.owner not in (Dialog, Palette)
    ]
    assert len(ids) == len(set(ids)), sorted(id for id in set(ids) if ids.count(id) > 1)


@pytest.mark.parametrize("keymap", KEYMAPS)
def test_keymaps_are_valid_and_free_of_conflicts(keymap):
    known = {binding.id for place in binding_owners() for binding in place.bindings}
    assert KEYMAPS[keymap].keys() <= known
    assert all(is_key(key) for keys in KEYMAPS[keymap].values() for key in keys_in(keys))
    said = list(_conflicts(binding_owners(), dict(KEYMAPS[keymap]), KEYMAPS[keymap]))
    assert said == []


@pytest.mark.slow
@pytest.mark.parametrize("keymap", KEYMAPS)
def test_help_and_palette_show_current_keys(tmp_path, keymap):
    own = {"go.switch": "ctrl+g", "view.members": "f11,alt+j"}

    async def play():
        said = {"chat.keymap": keymap, **{f"chat.keys.{id}": keys for id, keys in own.items()}}
        async with scene(tmp_path, size=(80, 60), setting=weekend, settings_store=SettingsStore(overrides=said)) as it:
            await it.shows("seven at the station")
            entries = {entry.title: entry.help for entry in it.app.get_system_commands(it.app.screen)}
            keys = merged(keymap, own)
            for binding in bindings_of(it.app.chat) + bindings_of(it.app):
                assert binding.description in entries, binding
                assert entries[binding.description] == key_text(keys.get(str(binding.id), binding.key)), binding
            assert entries["Show or hide the members"] == "F11, Alt+J"
            for info in commands.COMMANDS.values():
                assert info.title in entries or info.name in HAVE_KEYS, info
            await it.press("f1")
            await it.shows("Everywhere")
            body = str(it.app.screen.query_one(HangingText).content)
            for place in binding_owners():
                for binding in bindings_of_class(place.owner, it.app):
                    id = str(binding.id)
                    plain = id.startswith("edit.") or id.removeprefix("go.").isdigit() or id.endswith((".up", ".down"))
                    assert plain or binding.description in body, binding
            assert "Ctrl+G" in body and "F11, Alt+J" in body and "Ctrl+K, Alt+G" not in body
            await it.press("escape")
            await it.shows("F11 members", "^G switch")
            await it.press("ctrl+g")
            await it.shows("Go to")

    run(play())


WITH_KEYS = [*ChatScreen.BINDINGS, *ZerochatApp.BINDINGS, *SelectablePane.BINDINGS]
HAVE_KEYS = {word for binding in WITH_KEYS for word in re.findall(r"\w+", binding.action)}


def test_vim(tmp_path):
    def long(agent):
        group = agent.add_group("long", ["bob"])
        for number in range(60):
            agent.post(group, 1, f"post {number}.")

    async def play():
        async with scene(tmp_path, setting=long, settings_store=SettingsStore(overrides={"chat.keymap": "vim"})) as it:
            await it.shows("post 59.")
            await it.type("ijkg:")
            await it.until(lambda: it.composer.text == "ijkg:")
            await it.press("escape", "escape")  # normal mode, then the messages
            await it.until(lambda: it.app.chat.pane.has_focus)
            await it.press("g")
            await it.shows("post 0.")
            await it.press("j")
            await it.press("z")
            await it.press("G")
            await it.shows("post 59.")
            await it.press("j", "j", "x")
            assert it.app.chat.pane.has_focus
            assert it.composer.text == "ijkg:", "no letter has gone over"
            await it.press("i")
            await it.until(lambda: it.composer.has_focus)
            it.composer.set_text("")
            await it.press("escape")
            await it.until(lambda: it.app.chat.pane.has_focus)
            await it.press("colon")
            await it.until(lambda: it.composer.text == "/" and it.composer.has_focus)

    run(play())


def test_emacs(tmp_path):
    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(overrides={"chat.keymap": "emacs"})
        ) as it:
            await it.shows("seven at the station")
            it.composer.set_text("ab")
            await it.press("ctrl+b")
            await it.type("x")
            await it.until(lambda: it.composer.text == "axb")
            await it.press("alt+n")
            await it.until(lambda: it.open.info.name == "work")
            await it.press("alt+x")
            await it.shows("Create a group")

    run(play())


@pytest.mark.parametrize(
    ("own", "sentences"),
    [
        ({"go.switch": "ctrl+g"}, []),
        ({"go.swich": "f5"}, ["chat.keys: unknown action go.swich. Did you mean go.switch?"]),
        ({"go.switch": "ctlr+g"}, ["chat.keys: unknown key ctlr+g for go.switch."]),
        ({"go.switch": "f3"}, ["chat.keys: f3 is bound to both go.switch and group.invite."]),
        ({"go.switch": "f3", "group.invite": "ctrl+g"}, []),
        ({"go.switch": "tab"}, ["chat.keys: tab is bound to both composer.complete and go.switch."]),
        ({"invite.text_only": "f4"}, []),
        ({"invite.text_only": "c"}, ["chat.keys: c is bound to both invite.copy_link and invite.text_only."]),
    ],
)
def test_invalid_own_keys_are_reported(own, sentences):
    assert [each for each in keymap_warnings("default", own) if each in sentences] == sentences
    assert bool(keymap_warnings("default", own)) == bool(sentences)


# --- the tour -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_tour_is_offered_once_and_fits(tmp_path):
    shown = []

    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(), on_tour_shown=lambda: shown.append(1)
        ) as it:
            await it.shows("1/5  Conversations", "Alt+Up and Alt+Down")
            assert shown == [1]
            await it.press("enter")
            await it.shows("2/5  Writing")
            await it.press("left")
            await it.shows("1/5")
            for number, (title, _, text) in enumerate(STEPS, 1):
                await it.shows(f"{number}/5  {title}")
                last = re.sub(r"\{.*?\}", "", text).split()[-1]
                assert last in it.text and "{" not in it.text and "Esc skip" in it.text
                await it.press("enter")
            await it.until(lambda: it.app.screen is it.app.chat)
            await it.shows("seven at the station")
            assert not it.app.chat.query(".-tour-target")
            await it.type("a")
            await it.until(lambda: it.composer.text == "a")
            await it.press("ctrl+c")
            await it.say("/tour")
            await it.shows("1/5")
            await it.press("escape")
            await it.until(lambda: it.app.screen is it.app.chat)
            assert shown == [1]

    run(play())


@pytest.mark.slow
def test_the_tour_by_mouse_and_with_other_keys(tmp_path):
    async def play():
        said = {"chat.keys.go.switch": "ctrl+g"}
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(overrides=said)) as it:
            await it.shows("seven at the station")
            await it.say("/tour")
            await it.shows("1/5", "Ctrl+G finds")
            await it.pilot.click("#tour-next")
            await it.shows("2/5")
            await it.pilot.click("#tour-skip")
            await it.until(lambda: it.app.screen is it.app.chat)

    run(play())


@pytest.mark.slow
def test_the_tour_waits_for_the_first_group(tmp_path):
    async def play():
        made = []
        options = {
            "create_profile": lambda nick, passphrase: made.append(nick),
            "settings_store": SettingsStore(),
            "on_tour_shown": lambda: made.append("toured"),
        }
        async with scene(tmp_path, **options) as it:
            await it.shows("Your name, as other members see it:")
            await it.type("Alice")
            await it.press("enter")
            await it.shows("A passphrase (optional):")
            await it.press("enter")
            await it.shows("Create a group")
            await it.press("1")
            await it.until(lambda: it.app.screen is not it.app.chat and it.agent.count("subscribe"))
            assert made == ["Alice"]
            await it.press("escape")
            await it.shows("1/5")
            assert made == ["Alice", "toured"]

    run(play())


@pytest.mark.slow
def test_profile_shows_its_paths(tmp_path, home):
    async def play():
        async with scene(
            tmp_path, size=(120, 40), setting=weekend, settings_store=SettingsStore(home, environ={})
        ) as it:
            await it.shows("seven at the station")
            await it.say("/profile")
            await it.shows("default", "config.toml")

    run(play())


@pytest.mark.slow
def test_text_typed_over_the_tour_is_kept(tmp_path):
    """Its own keys are letters of the text, once somebody has begun to write."""

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore()) as it:
            await it.until(lambda: it.app.chat.conversations.open is not None and it.open.loaded)
            await it.say("/tour")
            await it.shows(f"1/{len(STEPS)}")
            for key, character in (("h", "h"), ("space", " "), ("q", "q"), ("x", "x")):
                it.app.post_message(events.Key(key, character))
            await it.until(lambda: it.app.chat.composer.text == "h qx")

    run(play())
