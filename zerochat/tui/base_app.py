"""The settings side of the application: themes, keymap, mouse, warnings; the type that screens see as their app."""

import os
from typing import Any, cast

from textual import on
from textual.app import App
from textual.screen import Screen
from textual.theme import Theme

from zerochat.agent.settings.client_preferences import Preferences
from zerochat.terminal_text import printable
from zerochat.tui.host.driver import TerminalDriver, TerminalStale
from zerochat.tui.host.terminal import mouse_wanted
from zerochat.tui.state.preferences import SettingsStore
from zerochat.tui.style.keymaps import merged
from zerochat.tui.style.themes import NO_COLOUR, THEMES

WARNINGS_MAX = 5
"""Settings warnings shown; `zerochat config check` lists all."""


def app_of(screen: Screen[Any]) -> "BaseApp":
    """The running application."""
    return cast(BaseApp, screen.app)


class BaseApp(App[str]):
    """Applies the settings, and shows warnings about them."""

    def __init__(self, settings_store: SettingsStore | None = None) -> None:
        self.settings_store = settings_store or SettingsStore()
        no_color = "NO_COLOR" in os.environ
        # Before styling: a later theme change makes Textual parse all styles again.
        self.set_reactive(App.theme, NO_COLOUR if no_color else self.settings_store.current.theme)
        # Without ansi_color Textual would keep greys.
        super().__init__(TerminalDriver, ansi_color=True if no_color else None)
        for theme in THEMES:
            self.register_theme(theme)
        self._shown_warnings: set[str] = set()
        self.apply_keymap()

    def offer_tour(self) -> None:
        """Show the tour once, when no dialog is open."""
        raise NotImplementedError

    def key(self, id: str) -> str:
        """The first key of an action of the chat or the application, as shown, by its id."""
        raise NotImplementedError

    def is_interrupted_again(self) -> bool:
        """Whether this Ctrl+C follows another one."""
        raise NotImplementedError

    def apply_changes(self, before: Preferences) -> None:
        """Apply the settings changed since `before`."""
        now = self.settings_store.current
        if now.theme != before.theme:
            self.apply_theme()
        if (now.keymap, now.keys) != (before.keymap, before.keys):
            self.apply_keymap()
        if now.mouse != before.mouse:
            self.apply_mouse()
        for warning in [each for each in self._settings_warnings() if each not in self._shown_warnings]:
            self.warn(warning)

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Textual's themes and ours, also before ours are registered."""
        themes = super().available_themes
        return themes if THEMES[0].name in themes else {**themes, **{theme.name: theme for theme in THEMES}}

    def apply_theme(self) -> None:
        """Apply the theme; with NO_COLOR there is only one."""
        wanted = NO_COLOUR if self.no_color else self.settings_store.current.theme
        if self.theme != wanted and wanted in self.available_themes:
            self.theme = wanted

    def apply_keymap(self) -> None:
        self.set_keymap(merged(self.settings_store.current.keymap, self.settings_store.current.keys))

    def apply_mouse(self) -> None:
        """Capture the mouse, or leave it to the terminal for selecting and copying."""
        from zerochat.tui.host.terminal import set_mouse

        set_mouse(self._driver, mouse_wanted(self.settings_store.current.mouse))

    @on(TerminalStale)
    def action_redraw(self) -> None:
        """Draw the whole screen anew."""
        self.refresh()

    def write_raw(self, text: str) -> None:
        """Write an escape sequence to the terminal: a bell or a notification."""
        if self._driver is not None:
            self._driver.write(text)
            self._driver.flush()

    def _settings_warnings(self) -> list[str]:
        """Warnings about the settings, including key bindings."""
        now = self.settings_store.current
        if not now.keys:
            return list(now.warnings)
        from zerochat.tui.style.keymaps import keymap_warnings

        return [*now.warnings, *keymap_warnings(now.keymap, now.keys)]

    def show_settings_warnings(self) -> None:
        """Runs after the first frame: checking keys imports all dialogs."""
        for warning in self._settings_warnings()[:WARNINGS_MAX]:
            self.warn(warning)

    def warn(self, sentence: str) -> None:
        """Show a warning in a toast."""
        self._shown_warnings.add(sentence)
        self.notify(printable(sentence), severity="warning", markup=False, timeout=30)
