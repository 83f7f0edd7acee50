"""The terminal application: themes, the palette, the way in and the way out.

The first frame does not wait for anything: the agent is started, or found, while the empty screen is already there.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar

from textual import events
from textual.app import App, InvalidModeError, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hits, Provider
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen
from textual.system_commands import SystemCommandsProvider
from textual.theme import Theme
from textual.worker import Worker

from zerochat.agent.settings.client_preferences import Preferences
from zerochat.rpc import Hello
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.chat_screen import AGAIN_S, ChatScreen
from zerochat.tui.composer.composer import is_letter
from zerochat.tui.host.keys import teach_keys
from zerochat.tui.state.agent_link import Link, LinkState, in_thread
from zerochat.tui.state.preferences import Choices
from zerochat.tui.style.emoji_width import AgreedWidths
from zerochat.tui.style.keymaps import merged
from zerochat.tui.style.themes import NO_COLOUR, OWN

TERMINATED = 128 + signal.SIGTERM
"""The exit code for SIGTERM, and for a terminal that is gone."""
LOOK_S = 5.0
"""How often it is looked whether anybody is still there."""
TOAST_S_MIN = 1.0
"""How long a toast stands whatever is typed."""

WARNINGS_MAX = 5
"""Of the settings; `zerochat config check` says them all."""
EARLY_CHARS_MAX = 1_024
"""What can be typed before the question for the passphrase is on the screen."""
ARRIVE_S_MAX = 2.0
"""So long what is typed waits for a screen that was opened; then it goes wherever the focus is."""
AHEAD_MAX = 1_024
"""Keys that wait for it."""
MODE = "chat"
"""Textual's name for a stack of screens."""
LOCKED = "Locked, because nobody has touched it for a while (agent.lock_after)."

AGREED_WIDTHS = AgreedWidths()

PALETTE_FIRST = ("group.new", "group.join", "group.invite", "view.members")
"""What a person without a group, or alone in one, looks for."""

SHEETS = Path(__file__).parent / "sheets" / "sheets.tcss"
LOW = [(0, "-low"), (20, "-high")]
"""Lines below which a sheet has no room for its frame."""


class InOrder(SystemCommandsProvider):
    """The palette before anything is typed, in the order of `get_system_commands`; Textual would sort it by name."""

    async def discover(self) -> Hits:
        for title, help, callback, discover in self.app.get_system_commands(self.screen):
            if discover:
                yield DiscoveryHit(title, callback, help=help)


class ZerochatApp(App[str]):
    """`run()` answers "demo" when the person chose to try the demo at the first run, else None.

    `start_agent` makes sure that an agent serves `socket`; it may call its argument, which asks the person for the
    profile's passphrase. `create_profile`, given exactly when the profile does not exist yet, makes it with a name.
    Both block, are called in a thread of their own, and may raise: the text of what they raise is what the person
    reads. `lock` is called when nobody has touched the chat for long: from then on `start_agent` must ask for the
    passphrase, whatever agent runs; without it the chat closes then. `demo` offers the demo at the first run.
    `open_group`: a name or the first letters of an id. `choices`: the person's settings; without them the usual ones.
    `toured` is called once when the person has been shown what is where; without it nobody is.
    """

    TITLE = "zerochat"
    DEFAULT_MODE = MODE
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {InOrder}
    CSS_PATH = "app.tcss"
    VERTICAL_BREAKPOINTS = LOW
    BINDING_GROUP_TITLE = "Application"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", show=False, id="app.help"),
        Binding("ctrl+q", "quit", "Quit", show=False, id="app.quit"),
        Binding("ctrl+c", "interrupt", "Copy the selection; twice: quit", show=False, id="app.interrupt"),
        Binding("ctrl+p", "command_palette", "All commands", show=False, id="app.palette"),
    ]

    def __init__(
        self,
        socket: Path,
        *,
        start_agent: Callable[[Callable[[], bytes]], None] | None = None,
        create_profile: Callable[[str], None] | None = None,
        lock: Callable[[], None] | None = None,
        demo: bool = False,
        open_group: str = "",
        choices: Choices | None = None,
        toured: Callable[[], None] | None = None,
    ) -> None:
        teach_keys()
        self.choices = choices or Choices()
        no_color = "NO_COLOR" in os.environ
        # Before anything is styled: a theme that changes later has Textual read all styles anew.
        self.set_reactive(App.theme, NO_COLOUR if no_color else self.choices.now.theme)
        # With colours of its own Textual would leave greys where none are wanted.
        super().__init__(ansi_color=True if no_color else None)
        for theme in OWN:
            self.register_theme(theme)
        self.toured = toured
        self._warned: set[str] = set()
        self.apply_keymap()
        self._create_profile = create_profile
        self._demo = demo
        self._socket = socket
        self._start_agent = None if start_agent is None else lambda: start_agent(self.ask_passphrase)
        self._lock_profile = lock
        self.link = self._new_link()
        self.chat = ChatScreen(self.link, open_group=open_group)
        self._line: Worker[None] | None = None
        self._locked = ""
        """Why the profile is locked, if it is because nobody was there."""
        self._early = ""
        self._arriving: Screen[Any] | None = None
        """A screen over the chat that was opened, and is not there yet."""
        self._ahead: list[events.Key | events.Paste] = []
        """What has been typed for it."""
        """What was typed since the profile was closed, before there was a place for it."""
        self._answer: Future[bytes] | None = None
        self._first: str | None = None
        self._lock_after_s: float | None = None
        self._touched = monotonic()
        self._asked_to_quit = -AGAIN_S
        self._interrupted = -AGAIN_S

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Textual's and our own, which are there before anything is registered."""
        themes = super().available_themes
        return themes if OWN[0].name in themes else {**themes, **{theme.name: theme for theme in OWN}}

    def get_default_screen(self) -> Screen[Any]:
        """The first one; Textual styles a screen twice that it finds by the name of its mode."""
        return self.chat

    def on_mount(self) -> None:
        self._heed_signals()
        self.apply_mouse()
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self.call_after_refresh(self._warn_of_choices)
        if self._create_profile is None:
            self.call_after_refresh(self._go_on)  # The first frame comes before anything else is loaded.
        else:
            from zerochat.tui.dialogs.first_run import FirstRunScreen

            self.push_screen(FirstRunScreen(self._make_profile, demo=self._demo), self._begin)

    def _heed_signals(self) -> None:
        """Let a terminal that is closed, and SIGTERM, end the chat in good order. Without this they would raise inside
        whatever task runs just then, which may keep that to itself and go on without a terminal."""
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread, or no such system
            for one in (signal.SIGHUP, signal.SIGTERM):
                if signal.getsignal(one) is not signal.SIG_IGN:
                    asyncio.get_running_loop().add_signal_handler(one, lambda: self.run_worker(self._terminate()))

    async def _terminate(self) -> None:
        if self.chat.is_mounted:
            await self.chat.keeper.end()
        self.exit(return_code=TERMINATED)

    def _go_on(self) -> None:
        """The first frame is there: the agent may start, and then there is time for what the first key will need."""
        self._connect()
        self.call_later(self._load_the_rest)

    def _load_the_rest(self) -> None:
        import zerochat.tui.actions.commands  # noqa: F401

        self._style_sheets()
        gc.freeze()  # It all stays: nobody need look through it again and again while messages pour in.

    def push_screen(self, screen: Any, *args: Any, **options: Any) -> Any:
        """What is typed behind a key that opens a screen, and before that is there, waits and goes to it."""
        self._style_sheets()
        pushed = super().push_screen(screen, *args, **options)
        if isinstance(screen, ModalScreen):
            self._arriving = screen
            screen.call_after_refresh(self.call_later, self._arrived, screen)
            self.set_timer(ARRIVE_S_MAX, partial(self._arrived, screen))
        return pushed

    async def _arrived(self, screen: Screen[Any]) -> None:
        """This screen, or the one that has taken its place, is there."""
        if self._arriving is screen:
            self._arriving = None
            self._ahead.sort(key=lambda event: event.time)
            while self._ahead and not self._waits:  # one of them may open the next screen
                await self.on_event(self._ahead.pop(0))

    @property
    def _waits(self) -> bool:
        """Whether what is typed waits for a screen."""
        return self._arriving is not None

    def _style_sheets(self) -> None:
        """Read the styles of the screens over the chat, once: a third of all, and the first frame has none of them."""
        if not self.stylesheet.has_source(str(SHEETS)):
            self.stylesheet.add_source(SHEETS.read_text(encoding="utf-8"), read_from=(str(SHEETS), ""))

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), AGREED_WIDTHS]

    # --- what the person has chosen --------------------------------------------------------------------------------

    def apply_theme(self) -> None:
        """Take the theme over; without colours there is one alone."""
        wanted = NO_COLOUR if self.no_color else self.choices.now.theme
        if self.theme != wanted and wanted in self.available_themes:
            self.theme = wanted

    def _keep_theme(self, theme: Theme) -> None:
        """A theme that was chosen in the palette is a setting like one of `/set`."""
        if theme.name != self.choices.now.theme and not self.no_color and self.chat.is_mounted:
            from zerochat.tui.actions.settings import put

            put(self.chat, "chat.theme", theme.name)

    def apply_keymap(self) -> None:
        self.set_keymap(merged(self.choices.now.keymap, self.choices.now.keys))

    def apply_mouse(self) -> None:
        """Take the mouse, or leave it to the terminal, which can select and copy then."""
        from zerochat.tui.host.mouse import take_mouse

        take_mouse(self._driver, self.choices.now.mouse)

    def write_outside(self, text: str) -> None:
        """Send the terminal what is no part of the picture: a bell, or words for the desktop."""
        if self._driver is not None:
            self._driver.write(text)
            self._driver.flush()

    def take_over(self, before: Preferences) -> None:
        """Have what was chosen since `before` true on the screen."""
        now = self.choices.now
        if now.theme != before.theme:
            self.apply_theme()
        if (now.keymap, now.keys) != (before.keymap, before.keys):
            self.apply_keymap()
        if now.mouse != before.mouse:
            self.apply_mouse()
        self.chat.prefer(now)
        for warning in [each for each in self._doubts() if each not in self._warned]:
            self.warn(warning)

    def _doubts(self) -> list[str]:
        """What is wrong with the settings, with the keys among them too."""
        now = self.choices.now
        if not now.keys:
            return list(now.warnings)
        from zerochat.tui.style.keymaps import doubts

        return [*now.warnings, *doubts(now.keymap, now.keys)]

    def _warn_of_choices(self) -> None:
        """Once the first frame is there: looking at keys takes all the screens in."""
        for warning in self._doubts()[:WARNINGS_MAX]:
            self.warn(warning)

    # --- the way in ------------------------------------------------------------------------------------------------

    async def _make_profile(self, nick: str) -> None:
        create = self._create_profile
        assert create is not None
        await in_thread(lambda: create(nick))

    def _begin(self, choice: str | None) -> None:
        if choice == "demo":
            self.exit("demo")
            return
        self._first = choice
        self._connect()

    def _new_link(self) -> Link:
        return Link(
            self._socket,
            start_agent=self._start_agent,
            on_state=self._link_told,
            on_news=self._news_came,
            on_up=self._up,
        )

    def _connect(self) -> None:
        self._line = self.run_worker(self.link.run(self._locked), name="link")

    async def _up(self, hello: Hello) -> None:
        await self.chat.up(hello)
        self._locked = self._early = ""
        first, self._first = self._first, None
        if first == "create":
            self.chat.action_new()
        elif first == "join":
            self.chat.action_join()
        else:
            self.call_after_refresh(self.offer_tour)

    def offer_tour(self) -> None:
        """Show what is where, once, when nothing else is in front of it."""
        if self.toured is not None and self.chat.on_top and not self.chat.closed:
            toured, self.toured = self.toured, None
            toured()
            self.chat.action_tour()

    def _link_told(self, state: LinkState) -> None:
        self.chat.link_told(state)

    def _news_came(self) -> None:
        self.chat.news_came()

    def ask_passphrase(self) -> bytes:
        """Ask on the screen; called in the thread that starts the agent, and blocks it. Empty: the person gave up."""
        answer: Future[bytes] = Future()
        self.call_later(self._ask, answer)
        return answer.result()

    async def _ask(self, answer: "Future[bytes]") -> None:
        from zerochat.tui.dialogs.dialog import Ask

        self.chat.close()
        self._answer = answer
        typed, enter, _ = self._early.partition("\n")
        self._early = ""
        if enter:
            answer.set_result(typed.encode())
            return

        def answered(text: str | None) -> None:
            if not answer.done():
                answer.set_result((text or "").encode())

        back = " What you were writing comes back with it." if self.chat.kept else ""
        hint = Printable(f"{self._locked} Enter unlocks it, Ctrl+Q quits.{back}".strip())
        question = Ask(Printable("Passphrase of this profile"), hint, secret=True)
        await self.push_screen(question, answered)  # Keys that come meanwhile wait for their turn behind this.
        question.type_ahead(typed)

    def _hold(self, event: events.Event) -> bool:
        """Keep what is typed or pasted before the profile is open, and before there is a question; True: it was such.

        It may be the passphrase. It goes into the question, or nowhere: never where it can be read.
        """
        if not self.chat.closed or not self.is_running or self.screen_stack[-1:] != [self.chat]:
            return False
        early = self._early
        if isinstance(event, events.Paste):
            early += printable_line(event.text.strip())
        elif not isinstance(event, events.Key):
            return False
        elif is_letter(event):
            early += event.character or ""
        elif event.key in (
            "enter",
            "ctrl+j",
        ):  # the latter from before the screen was up
            early += "\n"
        elif event.key == "backspace":
            early = early[:-1]
        elif event.key == "ctrl+u":
            early = ""
        else:
            return False
        self._early = early[:EARLY_CHARS_MAX]
        return True

    def warn(self, sentence: str) -> None:
        """What a person should know before anything else, in a toast."""
        self._warned.add(sentence)
        self.notify(printable(sentence), severity="warning", markup=False, timeout=30)

    def lock_after(self, seconds: float) -> None:
        """Lock the chat, or close it, and an agent of its own with it, when nobody has touched it for so long."""
        if self._lock_after_s is None:
            self.set_interval(min(LOOK_S, seconds), self._lock)
        self._lock_after_s = seconds

    def _lock(self) -> None:
        if self._locked or self._lock_after_s is None or monotonic() - self._touched <= self._lock_after_s:
            return
        if self._lock_profile is None:
            self.exit(message="Closed, because nobody has touched it for a while (agent.lock_after).")
            return
        self._locked = LOCKED
        self._lock_profile()
        self.call_later(self._begin_again)

    async def _begin_again(self) -> None:
        """Drop all that is known of the profile but what is unsent, which only its passphrase brings back, from memory
        to the screen; and ask for that."""
        if self._line is not None:
            self._line.cancel()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(b"")  # Whoever waits for it opens nothing any more.
        self._early = ""
        self.clear_notifications()
        self.clear_selection()
        group, drafts = self.chat.conversations.open_id, self.chat.unsent()
        self.link = self._new_link()
        on_disk = self.chat.keeper.on_disk
        self.chat = ChatScreen(self.link, open_group=group, drafts=drafts)
        self.chat.keeper.on_disk = on_disk
        before = self.current_mode
        with suppress(InvalidModeError):  # It is known already, unless it is the first.
            self.add_mode(before, lambda: self.chat)
        self._show_chat(f"{MODE}, after it was locked" if before == MODE else MODE)
        await self.remove_mode(before)  # With all the sheets that lay over the chat.
        self._connect()

    def _show_chat(self, mode: str) -> None:
        chat = self.chat
        self.add_mode(mode, lambda: chat)
        if self.is_running:
            self.switch_mode(mode)

    # --- actions ---------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """The next key takes the toasts away; not as soon as they come, when a fast hand is in the middle of a word."""
        if isinstance(event, events.InputEvent):
            self._touched = monotonic()
        if not getattr(event, "is_forwarded", True) and self._hold(event):
            return
        if self._waits and isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            if len(self._ahead) < AHEAD_MAX:
                self._ahead.append(event)
            return
        pressed = isinstance(event, events.Key) and not event.is_forwarded
        if pressed and any(time() - toast.raised_at > TOAST_S_MIN for toast in self._notifications):
            self.clear_notifications()
        await super().on_event(event)

    def action_help(self) -> None:
        if self.screen is self.chat:
            self.chat.do("help", "keys")

    def action_interrupt(self) -> None:
        """Ctrl+C on a screen other than the chat."""
        if selected := self.screen.get_selected_text():
            self.run_worker(self._copy(selected))
        elif monotonic() - self._interrupted < AGAIN_S:
            self.call_next(self.run_action, "app.quit")
        else:
            self._interrupted = monotonic()
            self.notify("Ctrl+C again quits.", markup=False, timeout=AGAIN_S)

    async def _copy(self, text: str) -> None:
        from zerochat.tui.host.clipboard import copy

        self.notify(await copy(self, text, f"{len(text):,} characters"), markup=False)

    async def action_quit(self) -> None:
        """Quit. What is unsent is kept; where it cannot be, only when asked twice."""
        drafts: list[Printable] = []
        if self.chat.is_mounted:
            await self.chat.keeper.end()
            drafts = self.chat.lost_drafts()
        if drafts and monotonic() - self._asked_to_quit > AGAIN_S:
            self._asked_to_quit = monotonic()
            where = ", ".join(drafts)
            sentence = f"Unsent, and not kept: your draft in {where}. Quit again within {AGAIN_S:.0f} s to drop it."
            self.chat.tell(printable_line(sentence), trouble=True)
            return
        self.exit()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every action that has a key, which stands below it, in the order of the help; then Textual's own."""
        from zerochat.tui.dialogs.help import key_text, own_bindings

        for node in (self.chat, self):
            if node is self.chat and screen is not self.chat:
                continue
            bindings = own_bindings(node)
            first = [each for name in PALETTE_FIRST for each in bindings if each.id == name]
            for binding in first + [each for each in bindings if each not in first]:

                async def act(action: str = binding.action, node: Any = node) -> None:
                    await self.run_action(action, node)

                yield SystemCommand(binding.description, key_text(binding.key), act)
        if screen is self.chat:
            for binding in own_bindings(self.chat.pane):
                if str(binding.id).startswith("message."):
                    name = str(binding.id).removeprefix("message.")
                    yield SystemCommand(binding.description, key_text(binding.key), partial(self.chat.act, name))
            from zerochat.tui.composer.commands import COMMANDS

            for info in COMMANDS.values():
                if info.title:
                    yield SystemCommand(info.title, f"/{info.name}", partial(self.chat.action_begin, info.name))
        for command in super().get_system_commands(screen):
            if command.title not in ("Quit", "Keys"):
                yield command
