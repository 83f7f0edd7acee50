"""The sheet behind `/set`: every setting with what it is now and what it means, and how to change it.

Enter, or a click, goes on to the next of the few things that a setting can be. Where it can be anything, it leads to
the composer with the beginning of the line that changes it.
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

from zerochat.agent.settings.client_preferences import KEYS
from zerochat.agent.settings.options import OPTIONS
from zerochat.terminal_text import Printable, cells, printable_line
from zerochat.tui.composer.setting_completion import AS_USUAL
from zerochat.tui.dialogs.help import key_text, remapped
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.panels.lists import QuietList
from zerochat.tui.state.preferences import Choices
from zerochat.tui.style.keymaps import places_of_bindings
from zerochat.tui.style.text import clip

NAME_CELLS = 26
VALUES_SHOWN_MAX = 5


class SettingsSheet(Over[None]):
    """The settings; closed with Esc."""

    BINDING_GROUP_TITLE = "Settings"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "step(1)", "Next value", id="settings.next"),
        Binding("left", "step(-1)", "Value before", id="settings.before"),
        Binding("delete,backspace", "usual", "As usual", id="settings.usual"),
        Binding("escape,q", "close", "Close", id="settings.close"),
    ]

    def __init__(self, chat: Screen[None], choices: Choices, put: Callable[[str, str], None]) -> None:
        """`put` lets a setting be what is typed."""
        super().__init__()
        self._chat, self._choices, self._put = chat, choices, put
        self._list = QuietList(id="settings")
        self._about = Static(id="setting-about", classes="hint")

    def compose(self) -> ComposeResult:
        places = self._choices.places
        where = f"  {printable_line(str(places.config))}" if places else "  for this chat"
        with Vertical(classes="sheet"):
            yield Static(Content.assemble("Settings", (where, "$text-muted")), classes="title", id="settings-title")
            yield self._list
            yield self._about
            yield Static(Content("Enter or Left and Right change, Delete: as usual, Esc closes"), classes="hint")

    def on_mount(self) -> None:
        self._draw()
        self._list.highlighted = 0
        self._list.focus()

    def _draw(self) -> None:
        choices = self._choices
        entries = [(name, _line(name, choices.value_of(name))) for name in OPTIONS]
        known: dict[str, str] = {}
        for place in places_of_bindings():
            for binding in remapped(place.owner, self.app):
                known.setdefault(str(binding.id), f"{key_text(binding.key)}: {binding.description}")
        entries += [(f"{KEYS}{id}", _line(f"keys.{id}", known[id])) for id in sorted(known)]
        self._list.put(entries)

    @on(OptionList.OptionHighlighted)
    def _tell(self, event: OptionList.OptionHighlighted) -> None:
        option = OPTIONS.get(str(event.option_id))
        if option is None:
            self._about.update(Content("Other keys for it: Enter, and then the keys, such as ctrl+g or f5,alt+m."))
            return
        shown = "" if option.is_flag else ", ".join(option.values[:VALUES_SHOWN_MAX])
        more = ", …" if len(option.values) > VALUES_SHOWN_MAX else ""
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
        """Go on to the next of its values; else have it typed."""
        name = self._chosen()
        option = OPTIONS.get(name)
        if option is None or not option.values:
            self.dismiss(None)
            self.call_next(self._chat.run_action, f"begin({f'set {name}'!r})")
            return
        now = self._choices.value_of(name).strip('"')
        at = option.values.index(now) if now in option.values else -1
        self._put(name, option.values[(at + step) % len(option.values)])
        self._draw()

    def action_usual(self) -> None:
        if self._chosen():
            self._put(self._chosen(), AS_USUAL)
            self._draw()

    def action_close(self) -> None:
        self.dismiss(None)


def _line(name: str, value: str) -> Content:
    shown = clip(Printable(name.removeprefix("chat.")), NAME_CELLS)
    return Content.assemble((shown, "bold"), " " * (NAME_CELLS - cells(shown) + 1), printable_line(value))
