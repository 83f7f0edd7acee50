"""The tour: five steps through the screen for new users, with the keys of the current keymap."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Button, Static

from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.dialogs.help import with_keys
from zerochat.tui.style.keymaps import is_letter

STEPS: Final = (
    (
        "Conversations",
        "#groups",
        (
            "Your groups are on the left, with their unread messages. {go.previous} and {go.next} switch between"
            " them, Alt+1 to Alt+9 open one by its number, {go.switch} finds one by name, and {go.unread} opens the"
            " next unread one."
        ),
    ),
    (
        "Writing",
        "#composer",
        (
            "Type your message below. {composer.send} sends it, {composer.newline} starts a new line. A line that"
            " starts with / is a command; a mistyped command is never sent as a message. {composer.complete}"
            " completes. Unsent drafts stay in their conversation."
        ),
    ),
    (
        "People",
        "#members",
        (
            "{group.new} creates a group, {group.invite} shows an invitation to it as a link and a QR code, and"
            " {group.join} joins with an invitation that you received. Inviter and invitee must both be online to join."
            " {view.members} shows the members."
        ),
    ),
    (
        "Delivery",
        "#pane",
        (
            "There is no server: your message goes directly to each member, now or when they are online. ✓2/3 next to"
            " it means that 2 of the 3 other members have received it; {group.delivery} shows who, when and how."
            " Messages that you have not received yet are shown as missing."
        ),
    ),
    (
        "Help",
        "#status",
        (
            "{app.help} shows all keys and commands, {app.palette} searches them, /set shows the settings and /tour"
            " shows this again. {app.quit} quits zerochat."
        ),
    ),
)
"""(title, highlighted widget, text); an action id in braces stands for its keys."""


class TourDialog(Dialog[None]):
    """One step at a time."""

    AUTO_FOCUS = ""  # buttons are for the mouse; the keys below work at any focus
    BINDING_GROUP_TITLE = "Tour"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right,space", "step(1)", "Next step", id="tour.next"),
        Binding("left,backspace", "step(-1)", "Previous step", id="tour.before"),
        Binding("escape,q", "close", "End the tour", id="tour.close"),
    ]

    def __init__(self, chat: Screen[None], keys: Mapping[str, str], write: Callable[[str], None]) -> None:
        """`keys`: what each action is called, and its keys, as `help.first_keys` has them. `write` puts a letter into
        the composer."""
        super().__init__()
        self._write = write
        self._chat = chat
        self._keys = keys
        self._at = 0
        self._written = False
        self._title, self._text = Static(classes="title"), Static(classes="body")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield self._title
            yield self._text
            with Horizontal(classes="buttons"):
                yield Button(Content("Next"), id="tour-next", compact=True)
                yield Button(Content("Skip"), id="tour-skip", compact=True)
            yield Static(Content("Enter next, Left back, Esc skip"), classes="hint")

    def on_mount(self) -> None:
        self._show()

    def on_key(self, event: events.Key) -> None:
        """A letter ends the tour and goes to the composer, a function key or a chord to the chat."""
        chord = event.key.startswith(("alt+", "ctrl+")) or event.key.removeprefix("f").isdecimal()
        if chord and event.key not in self.active_bindings:
            event.stop()
            self.action_close()
            self.app.post_message(events.Key(event.key, event.character))
        if is_letter(event) and event.character and (self._written or event.key not in self.active_bindings):
            event.stop()
            event.prevent_default()
            if not self._written:  # later letters may arrive before this screen is gone
                self._written = True
                self.action_close()
            self._write(event.character)

    def _show(self) -> None:
        title, wanted, text = STEPS[self._at]
        self._title.update(Content(f"{self._at + 1}/{len(STEPS)}  {title}"))
        self._text.update(Content(with_keys(text, self._keys)))
        for _, each, _ in STEPS:
            for widget in self._chat.query(each):
                widget.set_class(each == wanted, "-tour-target")
        self.set_class(wanted in ("#composer", "#status"), "-above")

    def action_step(self, step: int) -> None:
        if self._at + step >= len(STEPS):
            self.action_close()
        else:
            self._at = max(self._at + step, 0)
            self._show()

    def action_close(self) -> None:
        self.dismiss(None)

    def on_unmount(self) -> None:
        for _, each, _ in STEPS:
            for widget in self._chat.query(each):
                widget.remove_class("-tour-target")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "tour-next":
            self.action_step(1)
        else:
            self.action_close()

    def on_click(self, event: events.Click) -> None:
        event.stop()
