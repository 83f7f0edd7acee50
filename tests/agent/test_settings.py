"""Settings of the clients: reading, refusals, and writing that preserves the user's file."""

import errno
import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerochat.agent.settings import options
from zerochat.agent.settings.client_preferences import Preferences, load_preferences, preferences
from zerochat.agent.settings.config_file import (
    SETTINGS_BYTES_MAX,
    BadSettings,
    BadVariable,
    from_environment,
    value_of,
)
from zerochat.agent.settings.config_writer import BadSetting, SettingsExist, write_commented, write_setting
from zerochat.agent.settings.options import AT_ONCE, CHAT_CHECKS, CHECKS, OPTIONS, check_value, full_name, typed
from zerochat.agent.settings.overview import commented, complaints, shown
from zerochat.agent.settings.reader import load_settings
from zerochat.agent.settings.reload import core_rules
from zerochat.agent.settings.values import unknown_setting
from zerochat.agent.storage.database import DiskFull
from zerochat.agent.storage.paths import ProfilePaths, profile_paths
from zerochat.cli import main
from zerochat.cli.parser import parse
from zerochat.errors import LocalError
from zerochat.group import settings
from zerochat.group.settings import KeyRotation


@pytest.fixture
def home(tmp_path: Path) -> ProfilePaths:
    return profile_paths("work", {"ZEROCHAT_HOME": str(tmp_path)})


def given_file(home: ProfilePaths, text: str) -> ProfilePaths:
    home.config.write_text(text)
    return home


# --- reading --------------------------------------------------------------------------------------------------------


def test_without_a_file_the_defaults_apply(home):
    assert load_preferences(home, {}) == Preferences()


def test_the_most_specific_setting_wins(home):
    given_file(home, '[chat]\ntheme = "light"\nkeymap = "vim"\nmouse = false\n[profiles.work.chat]\ntheme = "nord"\n')
    assert load_preferences(home, {}).theme == "nord"
    other = profile_paths("play", {"ZEROCHAT_HOME": str(home.config.parent)})
    assert load_preferences(other, {}).theme == "light"
    environ = {"ZEROCHAT_CHAT__THEME": "contrast", "ZEROCHAT_PROFILE": "work", "ZEROCHAT_CHAT__MOUSE": "true"}
    found = load_preferences(home, environ)
    assert (found.theme, found.mouse, found.keymap) == ("contrast", True, "vim")
    assert load_preferences(home, environ, {"chat.theme": "ansi"}).theme == "ansi"


def test_the_environment_is_for_the_agent_too(home):
    given_file(home, "[network]\nhidden = false\n")
    assert load_settings(home, {"ZEROCHAT_NETWORK__HIDDEN": "true"}).hidden
    with pytest.raises(BadVariable, match="ZEROCHAT_NETWORK__HIDDEN"):
        load_settings(home, {"ZEROCHAT_NETWORK__HIDDEN": "perhaps"})
    assert load_settings(home, {"ZEROCHAT_NETWORK__HIDEN": "true"}).warnings == (
        'Unknown setting "network.hiden". Did you mean network.hidden?',
    )


def test_action_and_group_names_keep_their_dots_and_spaces(home):
    given_file(
        home,
        '[chat.keys]\n"go.switch" = "ctrl+g"\ngo.next = "F5, alt+m"\n[chat.groups."my v1.2 hikers"]\nnotify = "all"\n',
    )
    found = load_preferences(home, {})
    assert found.keys == {"go.switch": "ctrl+g", "go.next": "f5,alt+m"}
    assert found.level_of("g1", "my v1.2 hikers") == "all" and found.level_of("g1", "work") == "mentions"
    assert found.warnings == ()


WRONG = [
    ('[chat]\ntheme = "lihgt"', "did you mean light?"),
    ("[chat]\ntheme = 3", "for chat.theme: it must be"),
    ('[chat]\nkeymap = "wordstar"', "default, vim or emacs"),
    ('[chat]\nmouse = "yes"', "must be true or false"),
    ('[chat]\ntime_format = "%c"', 'a format such as "%H:%M"'),
    ('[chat]\ntime_format = "%H:%M%"', 'a format such as "%H:%M"'),
    ('[chat]\ntime_format = "%99999999H"', 'a format such as "%H:%M"'),
    ('[chat]\ntime_format = "\\u001b[2J"', 'a format such as "%H:%M"'),
    ('[chat]\ntime_format = "aaaaaaaaaaaaaaaaaaaaaaaaa"', "at most 24 characters"),
    ("[chat]\nnick_width = 33", "columns between 0 and 32"),
    ("[chat]\nsidebar_width = -1", "columns between 0 and 60"),
    ('[chat]\nread_trigger = "seen"', "focused, visible or sent"),
    ('[chat]\nnotify = ["all"]', "none, mentions or all"),
    ('[chat]\nnotify_how = "smoke"', "bell, desktop or command"),
    ("[chat]\nnotify_how = []", "bell, desktop or command"),
    ('[chat]\nnotify_command = "rm -rf /"', "no shell reads it"),
    ("[chat]\nnotify_command = [1]", "no shell reads it"),
    ('[chat]\nnotify_command = ["a\\u0000b"]', "no shell reads it"),
    ('[chat]\nnotify_how = "command"', "is not set"),
    ('[chat]\nthem = "dark"', "Did you mean chat.theme?"),
    ('[chat.keys]\n"go.switch" = 7', "it must be a key"),
    ('[chat.keys]\n"go.switch" = ""', "it must be a key"),
    ('[chat.keys]\n"go.switch" = "ctrl +g"', "it must be a key"),
    ('[chat.groups.hikers]\nnotify = "loud"', "none, mentions or all"),
    ('[chat.groups.hikers]\nnotfy = "all"', 'Unknown setting "chat.groups.hikers.notfy".'),
    ("chat = 3", 'Unknown setting "chat".'),
    ("[chat", "not TOML"),
]
SIGNING = [
    ("key_messages = 257", "number of messages between 1 and 256"),
    ("key_messages = 0", "number of messages between 1 and 256"),
    ("key_days = 91", "number of days between 1 and 90"),
    ("key_days = 1.5", "number of days between 1 and 90"),
    ("key_removals = 0", "number of removals between 1 and 16"),
    ("key_removals = true", "number of removals between 1 and 16"),
]


@pytest.mark.parametrize(("text", "word"), WRONG)
def test_a_wrong_value_is_reported_and_the_chat_starts(home, text, word):
    given_file(home, text)
    found = load_preferences(home, {})
    if text != "chat = 3":
        assert any(word in warning for warning in found.warnings), found.warnings
        assert all(warning.endswith((".", "?")) for warning in found.warnings)
    assert (found.theme, found.keymap, found.mouse, found.groups) == ("dark", "default", True, {})
    assert any(word in each for each in complaints(home, {})), complaints(home, {})


@pytest.mark.parametrize(("text", "word"), SIGNING)
def test_a_key_is_not_kept_for_longer_than_it_may_be(home, text, word):
    given_file(home, f"[signing]\n{text}")
    assert any(word in each for each in complaints(home, {}))
    with pytest.raises(BadSettings, match=word):
        load_settings(home, {})


def test_hidden_takes_one_word_besides_true_and_false(home):
    for written_value, value in (("true", True), ("false", False), ('"always"', "always")):
        given_file(home, f"[network]\nhidden = {written_value}")
        assert load_settings(home, {}).hidden is value or load_settings(home, {}).hidden == value == "always"
    assert typed("network.hidden", "always") == "always" and typed("network.hidden", "on") is True
    assert load_settings(home, {"ZEROCHAT_NETWORK__HIDDEN": "always"}).hidden == "always"
    given_file(home, '[network]\nhidden = "allways"')
    with pytest.raises(BadSettings, match='it must be true, false or "always"'):
        load_settings(home, {})


def test_key_rotation_settings_are_applied_at_once(home):
    assert core_rules(load_settings(home, {}))[2] == KeyRotation() == KeyRotation(256, 7, 1)
    given_file(home, "[signing]\nkey_messages = 50\nkey_days = 90\nkey_removals = 16")
    assert core_rules(load_settings(home, {}))[2] == KeyRotation(50, 90, 16)
    assert {name for name in OPTIONS if name.startswith("signing.")} <= AT_ONCE


def test_the_limits_of_a_key_are_those_of_the_core(home):
    assert core_rules(load_settings(home, {}))[2] == KeyRotation()
    assert (options.KEY_MESSAGES_MAX, options.KEY_DAYS_MAX, options.KEY_REMOVALS_MAX) == (
        settings.MESSAGES_MAX,
        settings.DAYS_MAX,
        settings.REMOVALS_MAX,
    )


def test_too_many_keys_are_ignored(home):
    given_file(home, "[chat.keys]\n" + "\n".join(f'"a.{number}" = "f5"' for number in range(300)))
    found = load_preferences(home, {})
    assert found.keys == {} and "all of them are ignored" in found.warnings[0]


@given(
    st.dictionaries(
        st.sampled_from([*CHAT_CHECKS, "chat.keys.go.switch", "chat.groups.x.notify", "chat", "chat.keys"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
def test_any_settings_file_yields_preferences(found):
    said = preferences(found)
    assert said.theme and said.notify in ("none", "mentions", "all")
    assert all(isinstance(warning, str) for warning in said.warnings)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), (" 15 ", 15), ("light", "light"), ('"light"', "light"), ('["a", "b c"]', ["a", "b c"]),
     ("127.0.0.1:9050", "127.0.0.1:9050"), ("x\ny = 1", "x\ny = 1"), ("3\ny = 1", "3\ny = 1"),
     ("[" * 9_999, "[" * 9_999), ("1979-05-27", "1979-05-27"), ("", "")],
)  # fmt: skip
def test_values_as_users_type_them(text, value):
    assert value_of(text) == value


def test_on_and_off_will_do():
    assert typed("chat.mouse", "off") is False and typed("chat.mouse", "YES") is True
    assert typed("chat.theme", "on") == "on"
    assert full_name("theme") == "chat.theme" and full_name("lock_after") == "agent.lock_after"
    assert full_name("keys.go.next") == "chat.keys.go.next" and full_name("nothing") == "nothing"
    assert full_name("receipts") == "share.read_receipts" and full_name("read_receipts") == "share.read_receipts"
    assert full_name("agent") == "agent", "that is a section"
    assert "Did you mean share.read_receipts?" in unknown_setting("receip", OPTIONS)


def test_foreign_variables_are_ignored():
    environ = {"ZEROCHAT_PROFILE": "x", "ZEROCHAT__X": "1", "ZEROCHAT_CHAT__": "1", "OTHER_CHAT__THEME": "dark"}
    assert from_environment(environ) == {}


# --- the table ------------------------------------------------------------------------------------------------------


def test_every_setting_has_a_meaning_and_a_valid_default():
    assert OPTIONS.keys() == CHECKS.keys() | CHAT_CHECKS.keys()
    for name, option in OPTIONS.items():
        assert option.meaning and not option.meaning.endswith(".")
        for value in [option.default, option.example]:
            if value is not None and value != []:
                check_value(name, value)
        for word in option.choices:
            check_value(name, typed(name, word))


def test_the_defaults_in_the_table_are_in_force():
    found = {name: option.default for name, option in OPTIONS.items() if option.default is not None}
    assert preferences(found) == Preferences()


def test_the_commented_file_explains_all_and_changes_nothing(home):
    text = commented()
    assert all(f"# {option.key}: {option.meaning}" in text for option in OPTIONS.values())
    write_commented(home)
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o600
    assert load_preferences(home, {}) == Preferences() and complaints(home, {}) == []
    assert load_settings(home, {}) == load_settings(profile_paths("work", {"ZEROCHAT_HOME": "/nowhere"}), {})
    with pytest.raises(SettingsExist):
        write_commented(home)
    for line in text.splitlines():  # What is commented out can be taken in as it stands.
        if line.startswith("# ") and "=" in line and " = " in line:
            tomllib.loads(line.removeprefix("# "))


def test_a_settings_file_on_a_full_disk_is_not_begun(home: ProfilePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("zerochat.agent.settings.config_writer.commented", full)
    with pytest.raises(DiskFull, match=str(home.config)):
        write_commented(home)
    assert not home.config.exists()


def test_the_settings_in_the_manual_are_right(home):
    page = (Path(__file__).parents[2] / "zerochat" / "manual" / "settings.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    given_file(home, text)
    assert complaints(home, {}) == []
    assert all(f"| `{option.key}` |" in page for option in OPTIONS.values())


# --- writing --------------------------------------------------------------------------------------------------------

MINE = """\
# my settings, by hand

[network]   # the net
hidden = true      # behind NAT
  socks="127.0.0.1:9050"

[chat]
# dark hurts
theme    = 'light' # the best
[profiles.play.chat]
theme = "nord"
# the end
"""


def test_a_setting_is_changed_and_all_else_stays(home):
    given_file(home, MINE)
    home.config.chmod(0o640)
    write_setting(home, "chat.theme", "contrast")
    assert home.config.read_text() == MINE.replace("'light'", '"contrast"')
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o640
    assert [path.name for path in home.config.parent.iterdir()] == [home.config.name]


def test_new_settings_are_inserted(home):
    given_file(home, MINE)
    write_setting(home, "chat.keymap", "vim")
    write_setting(home, "chat.keys.go.switch", "ctrl+g")
    write_setting(home, "chat.groups.my hikers.notify", "all")
    write_setting(home, "agent.lock_after", 5)
    text = home.config.read_text()
    found = load_preferences(home, {})
    assert (found.keymap, found.keys, found.groups) == ("vim", {"go.switch": "ctrl+g"}, {"my hikers": "all"})
    assert load_settings(home, {}).lock_after == 5
    assert all(line in text.splitlines() for line in MINE.splitlines())
    write_setting(home, "chat.keys.go.switch", None)
    write_setting(home, "chat.groups.my hikers.notify", None)
    write_setting(home, "chat.keymap", None)
    assert load_preferences(home, {}) == Preferences(theme="light")


def test_a_profile_setting_is_changed_in_its_own_section(home):
    given_file(home, '[chat]\ntheme = "light"\n[profiles.work.chat]\ntheme = "nord" # at work\n')
    write_setting(home, "chat.theme", "dracula")
    assert home.config.read_text() == '[chat]\ntheme = "light"\n[profiles.work.chat]\ntheme = "dracula" # at work\n'


def test_the_first_setting_makes_the_file(tmp_path):
    home = profile_paths(None, {"ZEROCHAT_HOME": str(tmp_path / "deep" / "down")})
    write_setting(home, "chat.mouse", False)
    assert tomllib.loads(home.config.read_text()) == {"chat": {"mouse": False}}
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o600


def test_a_link_stays_a_link(home, tmp_path):
    real = tmp_path / "dotfiles.toml"
    real.write_text("# mine\n")
    home.config.symlink_to(real)
    write_setting(home, "chat.mouse", False)
    assert home.config.is_symlink() and "mouse = false" in real.read_text() and "# mine" in real.read_text()


@pytest.mark.parametrize(
    ("before", "name", "value"),
    [
        (MINE, "chat.theme", "lihgt"),
        (MINE, "chat.thme", "light"),
        (MINE, "chat.mouse", "off"),
        (MINE, "chat.notify_command", ["a", 3]),
        (MINE, "chat.keys.", "f5"),
        ("chat = 3\n", "chat.theme", "light"),
        ("[[chat]]\nx = 1\n", "chat.theme", "light"),
        ("[chat\n", "chat.theme", "light"),
        ("#" * SETTINGS_BYTES_MAX, "chat.theme", "light"),
        ("a = " + "[" * 2_000 + "]" * 2_000, "chat.theme", "light"),
    ],
)
def test_an_unwritable_value_changes_nothing(home, before, name, value):
    given_file(home, before)
    with pytest.raises((BadSetting, BadSettings)) as refusal:
        write_setting(home, name, value)
    assert home.config.read_text() == before
    assert [path.name for path in home.config.parent.iterdir()] == [home.config.name]
    assert refusal.value.sentence().endswith((".", "?"))


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@given(group=WORDS, level=st.sampled_from(["none", "mentions", "all"]))
def test_any_name_of_a_group_can_be_written_and_is_read_again(tmp_path_factory, group, level):
    home = profile_paths("work", {"ZEROCHAT_HOME": str(tmp_path_factory.mktemp("home"))})
    given_file(home, MINE)
    write_setting(home, f"chat.groups.{group}.notify", level)
    assert load_preferences(home, {}).groups == {group: level}
    assert all(line in home.config.read_text() for line in MINE.splitlines())


def test_a_full_disk_leaves_the_file_as_it_was(home, monkeypatch):
    given_file(home, MINE)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_setting(home, "chat.theme", "nord")
    assert home.config.read_text() == MINE
    assert [path.name for path in home.config.parent.iterdir()] == [home.config.name]


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))
    monkeypatch.delenv("ZEROCHAT_PROFILE", raising=False)

    def call(*words):
        code = main(words)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


def test_config_path_init_show_and_check(run, tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    monkeypatch.delenv("ZEROCHAT_AGENT__PROTECT_MEMORY")
    assert run("config", "path") == (0, f"{path}\n", "")
    assert run("config", "check") == (0, "", "There is no settings file; the defaults apply.\n")
    assert run("config", "init")[:2] == (0, f"{path}\n")
    code, out, err = run("config", "init")
    assert (code, out) == (1, "") and "Nothing changed" in err
    assert run("config", "check") == (0, "", "No errors.\n")
    monkeypatch.setenv("ZEROCHAT_CHAT__THEME", "light")
    monkeypatch.setenv("ZEROCHAT_AGENT__DRAIN", "7")
    told = "ZEROCHAT_AGENT__DRAIN sets agent.drain, ZEROCHAT_CHAT__THEME sets chat.theme.\n"
    assert run("config", "check") == (0, "", f"No errors. {told}")
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "bare"))
    assert run("config", "check") == (0, "", f"There is no settings file. {told}")
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path))
    code, out, err = run("config")
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert lines["chat.theme"] == ['"light"', "ZEROCHAT_CHAT__THEME"]
    assert lines["chat.mouse"] == ["true", "file"] and lines["network.listen"] == ["default"]
    path.write_text('[chat]\nthem = "x"\n[profiles.work.chat]\nmouse = 3\n[profiles]\nodd = 4\n')
    code, out, err = run("config", "check")
    assert code == 2 and out.splitlines() == [
        'Unknown setting "chat.them". Did you mean chat.theme?',
        "profiles.work: Invalid value 3 for chat.mouse: it must be true or false.",
        'Unknown setting "profiles.odd".',
    ]
    assert "zerochat config check" in run("config", "show")[2]
    code, out, err = run("--format", "jsonl", "config", "check")
    assert code == 2 and '"errors":["Unknown setting' in out


def test_the_source_of_each_setting(home):
    given_file(home, '[chat]\nmouse = false\n[profiles.work.chat]\ntheme = "nord"\n[chat.keys]\n"go.next" = "f5"\n')
    found = {name: (value, source) for name, value, source in shown(home, {"ZEROCHAT_CHAT__KEYMAP": "vim"})}
    assert found["chat.mouse"] == ("false", "file") and found["chat.theme"] == ('"nord"', "profile")
    assert found["chat.keymap"] == ('"vim"', "ZEROCHAT_CHAT__KEYMAP") and found["chat.notify"][1] == "default"
    assert found["chat.keys.go.next"] == ('"f5"', "file")


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("theme=lihgt", "did you mean light?"),
        ("them=x", 'Unknown setting "them"'),
        ("network.hidden=true", "a setting of the agent"),
        ("theme", "chat.theme"),
    ],
)
def test_a_wrong_set_is_a_wrong_command_line(run, said, word):
    code, out, err = run("chat", "--set", said)
    assert code == 2 and word in err and out == ""


def test_settings_on_the_command_line_apply_to_the_chat():
    options = parse(["chat", "--set", "theme=light", "--set", "chat.mouse=false", "hikers"])
    assert (
        dict(options.chat_settings or ()) == {"chat.theme": "light", "chat.mouse": False} and options.group == "hikers"
    )


def test_errors_are_ours():
    assert issubclass(BadSetting, LocalError) and BadSetting(why="x.").exit_code == 2
