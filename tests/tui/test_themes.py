"""The themes: contrast of all texts, and no information by colour alone."""

import re
from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from tests.support.marks import others_slow
from tests.support.tui_pilot import run, scene, strips, weekend
from zerochat.agent.settings.values import OWN_THEMES, TEXTUAL_THEMES
from zerochat.agent.storage.paths import profile_paths
from zerochat.tui.messages.paint import CONTRAST_MIN, contrast
from zerochat.tui.state.preferences import SettingsStore
from zerochat.tui.style.themes import ANSI, CONTRAST, DARK, LIGHT, THEMES

pytestmark = pytest.mark.usefixtures("utc")
HIGH_CONTRAST_MIN = 7.0
"""WCAG 2.2, success criterion 1.4.6."""
GROUNDS = ("background", "surface", "panel", "boost", "block-cursor-background")
TEXTS = (
    "foreground",
    "text",
    "text-muted",
    "text-accent",
    "text-primary",
    "text-warning",
    "text-error",
    "text-success",
)
ON_GROUNDS_OF_THEIR_OWN = [
    ("text-warning", "warning-muted"),
    ("text-accent", "accent-muted"),
    ("text", "primary-muted"),
    ("block-cursor-foreground", "block-cursor-background"),
]
"""What `app.tcss` writes on what."""


def test_each_style_rule_has_its_widget():
    sources = Path(__file__).parents[2] / "zerochat" / "tui"
    styled, made = (
        {name for path in sources.rglob(files) for name in re.findall(pattern, path.read_text(encoding="utf-8"))}
        for files, pattern in (("*.tcss", r"#([a-z][\w-]*)"), ("*.py", r'\bid="([\w-]+)"'))
    )
    assert len(styled) > 30 and styled <= made
    assert not {word for name in made for word in re.split("[-_]", name)} & {"said", "asking", "sought", "offers"}


def test_the_settings_list_all_themes():
    assert tuple(theme.name for theme in THEMES) == OWN_THEMES
    assert set(TEXTUAL_THEMES) == BUILTIN_THEMES.keys() - {"textual-ansi"}


@pytest.mark.parametrize("theme", [DARK, LIGHT, CONTRAST], ids=lambda theme: theme.name)
def test_every_text_has_contrast(theme, tmp_path):
    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(overrides={"chat.theme": theme.name})
        ) as it:
            await it.shows("seven at the station")
            assert it.app.theme == theme.name
            variables = it.app.theme_variables
            pairs = [(text, ground) for ground in GROUNDS for text in TEXTS] + ON_GROUNDS_OF_THEIR_OWN
            least = HIGH_CONTRAST_MIN if theme is CONTRAST else CONTRAST_MIN
            for text, ground in pairs:
                one, other = (Color.parse(variables[name]) for name in (text, ground))
                assert one.a == other.a == 1, (text, ground)
                assert contrast(one, other) >= least, (text, ground, contrast(one, other))
            assert contrast(*(Color.parse(variables[name]) for name in ("text-disabled", "background"))) >= 3
            background = Color.parse(variables["background"])
            for style in it.app.chat.pane.palette.nicks:
                assert contrast(Color.from_rich_color(style.color), background) >= CONTRAST_MIN

    run(play())


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["dark", "light", "contrast"])
def test_the_screen_has_contrast(theme, tmp_path):
    """As it is drawn, on every kind of dialog."""

    def unreadable(app):
        found = set()
        dialogs = app.screen.query(".dialog, CommandList")
        top = dialogs.last().region if dialogs else app.screen.region
        for text, style in styles_of(app, top):  # What lies under a dialog is dimmed on purpose.
            if style.color is None or style.bgcolor is None or not any(char.isalnum() for char in text):
                continue
            one, other = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
            if contrast(one, other) < CONTRAST_MIN - 0.05:
                found.add((text.strip(), one.hex, other.hex, round(contrast(one, other), 2)))
        return found

    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(overrides={"chat.theme": theme})
        ) as it:
            await it.shows("seven at the station")
            assert not unreadable(it.app)
            for opened in ("/set", "/help", "/leave", "/new", "/tour", "/status", "/join"):
                it.app.chat.set_focus(it.composer)
                await it.say(opened)
                await it.until(lambda: it.app.screen is not it.app.chat and it.app.screen.is_mounted, opened)
                await it.pilot.pause()
                assert not unreadable(it.app), opened
                await it.press("escape")
                await it.until(lambda: it.app.screen is it.app.chat)
            it.app.warn("careful")
            await it.shows("careful")
            assert not unreadable(it.app)
            await it.press("ctrl+p")
            await it.shows("Create a group")
            assert not unreadable(it.app)

    run(play())


def test_the_ansi_theme_uses_terminal_colours(tmp_path):
    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(overrides={"chat.theme": "ansi"})
        ) as it:
            await it.shows("seven at the station")
            assert it.app.theme == ANSI.name
            colours = {
                each
                for strip in strips(it.app)
                for part in strip
                if part.style
                for each in (part.style.color, part.style.bgcolor)
            }
            assert all(each is None or each.is_default or each.number in range(16) for each in colours)

    run(play())


@pytest.mark.parametrize("theme", others_slow([*OWN_THEMES, "nord", "ansi-light"]))
def test_a_theme_is_changed_while_it_runs(theme, tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore()) as it:
            await it.shows("This is the beginning of weekend.", "seven at the station")
            await it.pilot.pause()
            before = it.text.splitlines()[:-1]
            await it.say(f"/set theme {theme}")
            await it.until(lambda: it.app.theme == theme)
            await it.until(lambda: it.text.splitlines()[:-1] == before, "the same text in another theme")

    run(play())


@pytest.mark.slow
def test_a_theme_from_the_palette_is_stored(tmp_path):
    home = profile_paths(None, {"ZEROCHAT_HOME": str(tmp_path)})

    async def play():
        async with scene(tmp_path, setting=weekend, settings_store=SettingsStore(home, environ={})) as it:
            await it.shows("seven at the station")
            assert set(OWN_THEMES) <= it.app.available_themes.keys()
            it.app.search_themes()
            await it.shows("gruvbox")
            await it.type("contrast")
            await it.gone("gruvbox")
            await it.press("down", "enter")
            await it.until(lambda: it.app.theme == "contrast")
            await it.until(lambda: it.app.settings_store.current.theme == "contrast")
            assert 'theme = "contrast"' in home.config.read_text()

    run(play())


def test_without_colours_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def play():
        async with scene(
            tmp_path, setting=weekend, settings_store=SettingsStore(overrides={"chat.theme": "dark"})
        ) as it:
            await it.shows("seven at the station")
            it.agent.say(it.agent.groups["g2"], 1, "task")
            it.agent.say(it.agent.groups["g2"], 1, "another")
            await it.shows("2 unread elsewhere")
            assert re.search(r"^ 2 work +2 +│ ─+ Thursday 20 November 2025 ─+$", it.text, re.MULTILINE)
            await it.press("f2")
            await it.shows("● bob")
            await it.press("f2")
            it.app.chat.group_list.focus()
            await it.press("home")
            await it.until(lambda: it.app.chat.group_list.highlighted == 0)
            styles = styles_of(it.app)
            assert all(style.color is None or style.color.is_default for _, style in styles)
            assert all(style.bgcolor is None or style.bgcolor.is_default for _, style in styles)
            assert any("weekend" in text and style.underline for text, style in styles), "the highlight in the list"
            assert any(text.strip() == "work" and style.bold for text, style in styles), "what is unread"
            assert any("bob" in text and style.bold for text, style in styles), "who speaks"
            it.composer.focus()
            await it.say("/set theme light")
            await it.until(lambda: "but NO_COLOR is set" in it.told())
            assert it.app.theme == "ansi"
            await it.press("f10")
            await it.shows("Leave weekend?")
            assert any("Cancel" in text and style.reverse for text, style in styles_of(it.app)), (
                "the answer with the focus"
            )

    run(play())


def styles_of(app, region=None):
    """What is on the terminal, or in one region of it: the texts with their styles, after every filter."""
    found = []
    region = region or app.screen.region
    for strip in strips(app)[region.y : region.bottom]:
        strip = strip.crop(region.x, region.right)
        for line_filter in app.get_line_filters():
            strip = strip.apply_filter(line_filter, Color.parse("black"))
        found += [(part.text, part.style) for part in strip if part.style is not None and part.text.strip()]
    return found
