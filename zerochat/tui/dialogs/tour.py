"""The tour: five steps through what is on the screen, for whoever sees it for the first time.

The keys that it names are those of the person's own keymap.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Button, Static

from zerochat.tui.composer.composer import is_letter
from zerochat.tui.dialogs.overlay import Over

STEPS: Final = (
    (
        "Conversations",
        "#groups",
        (
            "Your groups are on the left, with what you have not read. {go.previous} and {go.next} go from one to the"
            " other, Alt+1 to Alt+9 to one by its number, {go.switch} finds one by a few letters, and {go.unread} goes"
            " to the next unread one."
        ),
    ),
    (
        "Writing",
        "#composer",
        (
            "Type below, from wherever you are; {composer.send} sends, {composer.newline} begins a new line. A line"
            " that begins with / is a command, and is never said by mistake: what is none is refused."
            " {composer.complete} completes. What you have not sent waits for you in its conversation."
        ),
    ),
    (
        "People",
        "#members",
        (
            "{group.new} makes a group, {group.invite} shows an invitation to it, as a link and as a code for a camera,"
            " and {group.join} takes one that you were given. Both of you must be running for the joining."
            " {view.members} shows who is in the group."
        ),
    ),
    (
        "Who has my message",
        "#pane",
        (
            "There is no server: your message goes to each member, now or when they are there. ✓2/3 beside it says that"
            " 2 of the 3 others have it; {group.delivery} says who, since when, and over which way. Whatever is missing"
            " of what others have said is shown as missing."
        ),
    ),
    (
        "Where help is",
        "#status",
        (
            "{app.help} shows all keys and commands, {app.palette} finds one by its words, /set has the settings and"
            " /tour shows this again. {app.quit} ends zerochat."
        ),
    ),
)
"""(title, what is meant, text); an action's id in braces stands for its keys."""


class TourScreen(Over[None]):
    """One step at a time; Esc ends it at any."""

    AUTO_FOCUS = ""  # The buttons are for the mouse; the keys are those below, whatever has the focus.
    BINDING_GROUP_TITLE = "Tour"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right,space", "step(1)", "Next step", id="tour.next"),
        Binding("left,backspace", "step(-1)", "Step before", id="tour.before"),
        Binding("escape,q", "close", "End the tour", id="tour.close"),
    ]

    def __init__(self, chat: Screen[None], keys: Mapping[str, str], write: Callable[[str], None]) -> None:
        """`keys`: what each action is called, and its keys, as `help.keys_of_all` has them. `write` puts a letter into
        the composer."""
        super().__init__()
        self._write = write
        self._chat = chat
        self._keys = keys
        self._at = 0
        self._written = False
        self._title, self._text = Static(classes="title"), Static(classes="body")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small"):
            yield self._title
            yield self._text
            with Horizontal(classes="buttons"):
                yield Button(Content("Next"), id="tour-next", compact=True)
                yield Button(Content("Skip"), id="tour-skip", compact=True)
            yield Static(Content("Enter: next, Left: back, Esc: skip it"), classes="hint")

    def on_mount(self) -> None:
        self._show()

    def on_key(self, event: events.Key) -> None:
        """Whoever begins to write has seen enough, and loses nothing."""
        if is_letter(event) and event.character and (self._written or event.key not in self.active_bindings):
            event.stop()
            event.prevent_default()
            if not self._written:  # what is typed before this is gone from the screen is more of the same
                self._written = True
                self.action_close()
            self._write(event.character)

    def _show(self) -> None:
        title, wanted, text = STEPS[self._at]
        self._title.update(Content(f"{self._at + 1}/{len(STEPS)}  {title}"))
        for id, keys in self._keys.items():
            text = text.replace(f"{{{id}}}", keys)
        self._text.update(Content(text))
        for _, each, _ in STEPS:
            for widget in self._chat.query(each):
                widget.set_class(each == wanted, "-toured")
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
                widget.remove_class("-toured")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "tour-next":
            self.action_step(1)
        else:
            self.action_close()

    def on_click(self, event: events.Click) -> None:
        event.stop()
