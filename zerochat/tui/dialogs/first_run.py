"""The first-run screen: display name, optional passphrase, profile creation, first step."""

from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal, TypeAlias

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker

from zerochat.terminal_text import printable
from zerochat.tui.composer.composer import LineInput

Choice: TypeAlias = Literal["create", "join", "demo"]
NICK_CHARS_MAX = 64

WELCOME = (
    "zerochat is an end-to-end encrypted group chat without a server: the members' machines connect"
    " to each other, and only members can read the messages."
)
PROTECTION = (
    "A passphrase encrypts this profile's key. Without one, a thief of your disk can read your messages and write as"
    " you. You type it at each start, and it cannot be recovered."
)
CONTINUE_HINT = "Enter continues, Ctrl+Q quits."
SKIP_HINT = "Enter skips it. `zerochat passphrase` sets one later."
ROUTER_HINT = (
    "Behind a router, members elsewhere need a mediator: /mediator LINK adds one, /help mediators explains it."
)
REPEAT_HINT = "Type the same passphrase again."
MISMATCH = "The passphrases do not match. Type both again, or leave both empty."
CHOICES: dict[Choice, str] = {
    "create": "Create a group and invite people",
    "join": "Join a group with an invitation",
    "demo": "Try the demo: a group on this machine only, nothing is saved",
}


class FirstRunScreen(Screen[Choice]):
    """Ask for a name and a passphrase, create the profile, and return the first step. `create_profile` gets the name,
    and the passphrase or None."""

    BINDING_GROUP_TITLE = "First run"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back to the name", id="first.back"),
        Binding("1", "choose('create')", "Create", show=False, id="first.create"),
        Binding("2", "choose('join')", "Join", show=False, id="first.join"),
        Binding("3", "choose('demo')", "Demo", show=False, id="first.demo"),
        Binding("f7", "start('create')", "Create a group at once", show=False, id="first.create_now"),
        Binding("f8", "start('join')", "Join a group at once", show=False, id="first.join_now"),
    ]

    def __init__(self, create_profile: Callable[[str, bytes | None], Awaitable[None]], *, demo: bool) -> None:
        super().__init__()
        self._create_profile = create_profile
        self._choices = [each for each in CHOICES if demo or each != "demo"]
        self._creating: Worker[None] | None = None
        self._created = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content("Welcome to zerochat"), classes="title")
            yield Static(Content(WELCOME), classes="body")
            yield Static(Content("Your name, as other members see it:"))
            yield LineInput(compact=True, id="nick", placeholder="your name", max_length=NICK_CHARS_MAX)
            yield Static(Content("A passphrase (optional):"), classes="secret")
            yield LineInput(compact=True, id="passphrase", password=True, classes="secret")
            yield Static(Content("The passphrase again:"), classes="repeated")
            yield LineInput(compact=True, id="repeated", password=True, classes="repeated")
            yield Static(Content(PROTECTION), id="protection", classes="secret hint")
            yield OptionList(
                *(
                    Option(Content(f"{number}  {CHOICES[name]}"), id=name)
                    for number, name in enumerate(self._choices, 1)
                ),
                id="choices",
                markup=False,
                compact=True,
            )
            yield Static(Content(CONTINUE_HINT), id="first-run-status")
            yield Static(Content(ROUTER_HINT), id="router", classes="hint")

    def on_mount(self) -> None:
        self._show("#nick")

    def _show(self, focus: str) -> None:
        """Show the fields up to this one, which gets the focus."""
        self.query(".body").set(display=focus == "#nick")  # a small window has no room for everything
        self.query(".secret").set(display=focus in ("#passphrase", "#repeated"))
        self.query(".repeated").set(display=focus == "#repeated")
        self.query_one("#choices").display = self.query_one("#router").display = focus == "#choices"
        self.query_one(focus).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Digits select a choice only while the choices are visible."""
        return action != "choose" or self.query_one("#choices").display

    @on(Input.Changed)
    def _typed(self) -> None:
        if self.query_one("#first-run-status").has_class("-trouble"):
            self._show_status(CONTINUE_HINT if self.query_one("#nick").has_focus else SKIP_HINT)

    @on(Input.Submitted, "#nick")
    def _named(self) -> None:
        if self._has_name():
            self._show("#passphrase")
            self._show_status(SKIP_HINT)

    @on(Input.Submitted, "#passphrase")
    def _secured(self) -> None:
        if self._value("#passphrase"):
            self._show("#repeated")
            self._show_status(REPEAT_HINT)
        else:
            self.query_one("#repeated", LineInput).value = ""
            self._offer_choices()

    @on(Input.Submitted, "#repeated")
    def _repeated(self) -> None:
        if self._has_passphrase():
            self._offer_choices()

    def _offer_choices(self) -> None:
        self.query_one("#choices", OptionList).highlighted = 0
        self._show("#choices")
        locked = "The passphrase is set. " if self._value("#passphrase") else ""
        self._show_status(f"{locked}Choose with the arrow keys and Enter, or press the number. Esc goes back.")

    def _value(self, field: str) -> str:
        return self.query_one(field, LineInput).value

    def _has_passphrase(self) -> bool:
        """Whether both passphrases are equal; if not, asks for them again."""
        if self._value("#passphrase") == self._value("#repeated"):
            return True
        with self.prevent(Input.Changed):  # the sentence below stays until something is typed
            for field in ("#passphrase", "#repeated"):
                self.query_one(field, LineInput).value = ""
        self._show("#passphrase")
        self._show_status(MISMATCH, trouble=True)
        return False

    def _has_name(self) -> bool:
        """Whether a name is entered; if not, asks for it."""
        if self._value("#nick").strip():
            return True
        self._show_status("Enter a name. Other members see it next to your messages.", trouble=True)
        return False

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose(str(event.option_id))

    def action_choose(self, choice: str) -> None:
        """The first choice counts: a key pressed while the profile is created must not create it again."""
        if self._creating is not None and not self._creating.is_finished:
            return
        for name in self._choices:
            if name == choice:
                self._creating = self.run_worker(self._go(name))

    def action_start(self, choice: str) -> None:
        """The keys that the chat has for this: they work with the name alone, without the list of choices."""
        if self._has_name() and self._has_passphrase():
            self.action_choose(choice)

    async def _go(self, choice: Choice) -> None:
        if choice != "demo" and not self._created:  # the demo uses its own temporary profile
            try:
                passphrase = self._value("#passphrase").encode() or None
                await self._create_profile(self._value("#nick").strip(), passphrase)
                self._created = True
            except Exception as error:  # noqa: BLE001 - a full disk, a read-only home: the person must read it, whatever it is
                self._show_status(printable(str(error)), trouble=True)
                return
        if self.is_current:
            self.dismiss(choice)

    def action_back(self) -> None:
        self._show("#nick")
        self._show_status(CONTINUE_HINT)

    def _show_status(self, sentence: str, *, trouble: bool = False) -> None:
        status = self.query_one("#first-run-status", Static)
        status.set_class(trouble, "-trouble")
        status.update(Content(sentence))
