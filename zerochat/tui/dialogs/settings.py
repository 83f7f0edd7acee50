"""The settings dialog: all settings with their values and meanings.

Enter or a click selects the next value; for free text it starts `/set NAME` in the composer.
"""

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static

from zerochat.agent.settings.options import KEYS, OPTIONS
from zerochat.terminal_text import Printable, cells, printable_line
from zerochat.tui.composer.arguments import DEFAULT
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.dialogs.help import bindings_of_class, key_text
from zerochat.tui.panels.lists import QuietList
from zerochat.tui.state.preferences import SettingsStore
from zerochat.tui.style.keymaps import binding_owners
from zerochat.tui.style.text import clip

NAME_CELLS = 26
VALUES_SHOWN_MAX = 5


class SettingsDialog(Dialog[None]):
    """The list of settings and key bindings."""

    BINDING_GROUP_TITLE = "Settings"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "step(1)", "Next value", id="settings.next"),
        Binding("left", "step(-1)", "Previous value", id="settings.before"),
        Binding("delete,backspace", "usual", "Reset to its default", id="settings.usual"),
        Binding("escape,q", "close", "Close", id="settings.close"),
    ]

    def __init__(self, chat: Screen[None], store: SettingsStore, put: Callable[[str, str], None]) -> None:
        """`put` stores a setting from its text."""
        super().__init__()
        self._chat, self._store, self._put = chat, store, put
        self._list = QuietList(id="settings")
        self._about = Static(id="setting-description", classes="hint")

    def compose(self) -> ComposeResult:
        places = self._store.places
        where = f"  {printable_line(str(places.config))}" if places else "  for this chat only"
        with Vertical(classes="dialog"):
            yield Static(Content.assemble("Settings", (where, "$text-muted")), classes="title", id="settings-title")
            yield self._list
            yield self._about
            yield Static(Content("Enter, Left and Right change it, Delete resets it, Esc closes"), classes="hint")

    def on_mount(self) -> None:
        self._draw()
        self._list.highlighted = 0
        self._list.focus()

    def _draw(self) -> None:
        store = self._store
        entries = [(name, _line(name, store.value_of(name))) for name in OPTIONS]
        known: dict[str, str] = {}
        for place in binding_owners():
            for binding in bindings_of_class(place.owner, self.app):
                known.setdefault(str(binding.id), f"{key_text(binding.key)}: {binding.description}")
        entries += [(f"{KEYS}{id}", _line(f"keys.{id}", known[id])) for id in sorted(known)]
        self._list.set_entries(entries)

    @on(OptionList.OptionHighlighted)
    def _show_about(self, event: OptionList.OptionHighlighted) -> None:
        option = OPTIONS.get(str(event.option_id))
        if option is None:
            self._about.update(Content("Press Enter to set other keys, for example ctrl+g or f5,alt+m."))
            return
        shown = "" if option.is_flag else ", ".join(option.choices[:VALUES_SHOWN_MAX])
        more = ", …" if len(option.choices) > VALUES_SHOWN_MAX else ""
        few = f" ({shown}{more})" if shown else ""
        self._about.update(Content(printable_line(f"{option.meaning[:1].upper()}{option.meaning[1:]}{few}.")))

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_step(1)

    def _chosen(self) -> str:
        option = self._list.highlighted_option
        return str(option.id) if option is not None else ""

    def action_step(self, step: int) -> None:
        """Select the next value; without fixed values start `/set NAME`."""
        name = self._chosen()
        option = OPTIONS.get(name)
        if option is None or not option.choices:
            self.dismiss(None)
            self.call_next(self._chat.run_action, f"begin({f'set {name}'!r})")
            return
        now = self._store.value_of(name).strip('"')
        at = option.choices.index(now) if now in option.choices else -1
        self._change(name, option.choices[(at + step) % len(option.choices)])

    def action_usual(self) -> None:
        if self._chosen():
            self._change(self._chosen(), DEFAULT)

    def _change(self, name: str, text: str) -> None:
        self.clear_error()
        self._put(name, text)
        self._draw()

    def action_close(self) -> None:
        self.dismiss(None)


def _line(name: str, value: str) -> Content:
    shown = clip(Printable(name.removeprefix("chat.")), NAME_CELLS)
    return Content.assemble((shown, "bold"), " " * (NAME_CELLS - cells(shown) + 1), printable_line(value))
