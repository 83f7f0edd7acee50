"""The conversation switcher: fuzzy search by group name."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.fuzzy import Matcher
from textual.widgets import Input, OptionList, Static

from zerochat.tui.composer.composer import LineInput
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.panels.lists import QuietList, group_line
from zerochat.tui.state.conversations import Conversations

WIDTH = 40


def matches(letters: str, name: str) -> bool:
    """Whether `name` contains the letters in this order."""
    rest = iter(name.casefold())
    return all(letter in rest for letter in letters.casefold() if not letter.isspace())


def fitting(letters: str, names: Sequence[str]) -> list[int]:
    """Indices of the matching names, best first; without letters all, in order."""
    found = [at for at, name in enumerate(names) if matches(letters, name)]
    if not letters.strip():
        return found
    matcher = Matcher("".join(letters.split()))
    return sorted(found, key=lambda at: -matcher.match(names[at]))


class Switcher(Dialog[str | None]):
    """Returns the id of the chosen group."""

    BINDING_GROUP_TITLE = "Conversation finder"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+k", "close", "Close", id="switcher.close"),
        Binding("up", "move(-1)", "Up", show=False, priority=True, id="switcher.up"),
        Binding("down", "move(1)", "Down", show=False, priority=True, id="switcher.down"),
    ]

    def __init__(self, conversations: Conversations) -> None:
        super().__init__()
        self._conversations = conversations

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield Static(Content("Go to conversation"), classes="title")
            yield LineInput(compact=True, id="filter")
            yield QuietList(id="matches")

    def on_mount(self) -> None:
        self.query_one("#filter").focus()
        self._find("")

    @on(Input.Changed)
    def _change(self, event: Input.Changed) -> None:
        self._find(event.value)

    def _find(self, letters: str) -> None:
        found, here = self.query_one(QuietList), self._conversations.open_id
        groups = list(self._conversations.by_id.items())
        found.set_entries(
            (groups[at][0], group_line(at + 1, groups[at][1], WIDTH, is_open=groups[at][0] == here))
            for at in fitting(letters, [each.name for _, each in groups])
        )
        found.highlighted = 0 if found.option_count else None

    def action_move(self, step: int) -> None:
        found = self.query_one(QuietList)
        if step > 0:
            found.action_cursor_down()
        else:
            found.action_cursor_up()

    @on(Input.Submitted)
    def _submit(self) -> None:
        option = self.query_one(QuietList).highlighted_option
        self.dismiss(option.id if option else None)

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_id)

    def action_close(self) -> None:
        self.dismiss(None)
