"""The Textual application: themes, command palette, startup, locking, quitting.

The first frame waits for nothing: the agent is started, or found, while the empty screen is already visible.
"""

import asyncio
import gc
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar

from textual import events, on
from textual.app import InvalidModeError, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, DiscoveryHit, Hits, Provider
from textual.screen import ModalScreen, Screen
from textual.system_commands import SystemCommandsProvider
from textual.theme import Theme
from textual.worker import Worker

from zerochat.agent.settings.client_preferences import Preferences
from zerochat.rpc import Hello
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.base_app import BaseApp
from zerochat.tui.chat_screen import REPEAT_S, ChatScreen
from zerochat.tui.host.driver import TerminalGone
from zerochat.tui.host.terminal import register_keys
from zerochat.tui.state.agent_link import AgentLink, LinkState, in_thread
from zerochat.tui.state.preferences import SettingsStore
from zerochat.tui.style.keymaps import is_letter

TERMINATED = 128 + signal.SIGTERM
"""The exit code for SIGTERM, and for a terminal that is gone."""
IDLE_CHECK_S = 5.0
"""Interval of the idle check."""
TOAST_S_MIN = 1.0
"""Minimum display time of a toast; later, any key removes it."""

EARLY_CHARS_MAX = 1_024
"""Characters buffered before the passphrase prompt is visible."""
OPEN_S_MAX = 2.0
"""Keys wait at most this long for an opened dialog; then they go to the focused widget."""
QUEUED_KEYS_MAX = 1_024
"""Limit of queued keys."""
MODE = "chat"
"""Textual mode: the name of a screen stack."""
LOCKED = "Locked after inactivity (agent.lock_after)."

PALETTE_FIRST = ("group.new", "group.join", "group.invite", "view.members")
"""Palette entries that a new user needs first."""

DIALOG_STYLES = Path(__file__).parent / "dialogs" / "dialogs.tcss"
VERTICAL_SIZES = [(0, "-low"), (20, "-high")]
"""Below 20 lines dialogs have no frame."""


class PaletteCommands(SystemCommandsProvider):
    """Palette entries in the order of `get_system_commands`; Textual would sort them by name."""

    async def discover(self) -> Hits:
        for title, help, callback, discover in self.app.get_system_commands(self.screen):
            if discover:
                yield DiscoveryHit(title, callback, help=help)


class Palette(CommandPalette):
    """Textual's palette, which hides the application's bindings as every modal screen does."""

    BINDING_GROUP_TITLE = "All commands"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "app.quit", "Quit", show=False, id="app.quit"),
    ]


class ZerochatApp(BaseApp):
    """`run()` returns "demo" when the user chose the demo at the first run, else None.

    `start_agent` ensures that an agent serves `socket`; it may call its argument to prompt for the passphrase.
    `create_profile` creates the profile with a name and perhaps a passphrase; it is given exactly when the profile does
    not exist yet. Both block, run in their own thread, and may raise: the user reads the text of the exception. `lock`
    is called after inactivity: from then on `start_agent` must ask for the passphrase, even of a running agent; without
    `lock` the chat closes instead. `demo`: offer the demo at the first run. `open_group`: a name or an id prefix.
    `settings_store`: the settings; None: defaults. `on_tour_shown` is called once when the tour is shown; None: no
    tour.
    """

    TITLE = "zerochat"
    DEFAULT_MODE = MODE
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {PaletteCommands}
    CSS_PATH = "app.tcss"
    VERTICAL_BREAKPOINTS = VERTICAL_SIZES
    BINDING_GROUP_TITLE = "Application"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", show=False, id="app.help"),
        Binding("ctrl+q", "quit", "Quit", show=False, id="app.quit"),
        Binding("ctrl+c", "interrupt", "Copy the selection; twice: quit", show=False, id="app.interrupt"),
        Binding("ctrl+p", "command_palette", "All commands", show=False, id="app.palette"),
        Binding("ctrl+l", "redraw", "Draw the screen anew", show=False, id="app.redraw"),
    ]

    def __init__(
        self,
        socket: Path,
        *,
        start_agent: Callable[[Callable[[], bytes]], None] | None = None,
        create_profile: Callable[[str, bytes | None], None] | None = None,
        lock: Callable[[], None] | None = None,
        demo: bool = False,
        open_group: str = "",
        settings_store: SettingsStore | None = None,
        on_tour_shown: Callable[[], None] | None = None,
    ) -> None:
        register_keys()
        super().__init__(settings_store)
        self.on_tour_shown = on_tour_shown
        self._create_profile = create_profile
        self._demo = demo
        self._socket = socket
        self._start_agent = None if start_agent is None else lambda: start_agent(self.ask_passphrase)
        self._lock_profile = lock
        self.link = self._new_link()
        self.chat = ChatScreen(self.link, open_group=open_group)
        self._link_worker: Worker[None] | None = None
        self._lock_reason = ""
        """Why the profile is locked; empty: it is not locked by inactivity."""
        self._early_text = ""
        self._opening: Screen[Any] | None = None
        """A dialog that was opened and is not visible yet."""
        self._queued_keys: list[events.Key | events.Paste] = []
        """Keys typed for it."""
        self._answer: Future[bytes] | None = None
        self._first_choice: str | None = None
        self._first_keys: list[events.Key | events.Paste] = []
        """Keys typed after it, for the dialog that it opens."""
        self._lock_after_s: float | None = None
        self._last_input = monotonic()
        self._quit_requested = -REPEAT_S
        self._interrupted = -REPEAT_S
        self._interrupted_at_key = self._keys_pressed = 0
        """Number of keys pressed until the last Ctrl+C, and until now."""

    def get_default_screen(self) -> Screen[Any]:
        """The chat screen itself: Textual styles a screen twice that it looks up by mode name."""
        return self.chat

    def on_mount(self) -> None:
        self._handle_signals()
        self.apply_mouse()
        self.theme_changed_signal.subscribe(self, self._store_theme)
        self.call_after_refresh(self.show_settings_warnings)
        if self._create_profile is None:
            self.call_after_refresh(self._after_first_frame)  # the first frame comes first
        else:
            from zerochat.tui.dialogs.first_run import FirstRunScreen

            self.push_screen(FirstRunScreen(self._make_profile, demo=self._demo), self._on_first_run_done)

    def _handle_signals(self) -> None:
        """Shut down in order on SIGHUP and SIGTERM. The default handlers raise inside the running task, which may
        swallow the exception and continue without a terminal."""
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread, or unsupported
            for entry in (signal.SIGHUP, signal.SIGTERM):
                if signal.getsignal(entry) is not signal.SIG_IGN:
                    asyncio.get_running_loop().add_signal_handler(entry, self._leave)

    @on(TerminalGone)
    def _leave(self) -> None:
        """The terminal was closed: shut down as on SIGHUP, which may be ignored or come later."""
        self.run_worker(self._terminate())

    async def _terminate(self) -> None:
        if self.chat.is_mounted:
            await self.chat.read_marks.send_now()
            await self.chat.draft_saver.save_now()
        self.exit(return_code=TERMINATED)

    def _after_first_frame(self) -> None:
        """Connect to the agent, then preload the modules that the first key needs."""
        self._connect()
        self.call_later(self._preload)

    def _preload(self) -> None:
        import zerochat.tui.actions.commands  # noqa: F401

        self._load_dialog_styles()
        gc.freeze()  # loaded modules never become garbage

    def push_screen(self, screen: Any, *args: Any, **options: Any) -> Any:
        """Queue keys typed before the dialog is visible, and deliver them to it."""
        self._load_dialog_styles()
        pushed = super().push_screen(screen, *args, **options)
        if isinstance(screen, ModalScreen):
            self._opening = screen
            screen.call_after_refresh(self.call_later, self._on_opened, screen)
            self.set_timer(OPEN_S_MAX, partial(self._on_opened, screen))
        return pushed

    async def _on_opened(self, screen: Screen[Any]) -> None:
        """Deliver the queued keys to the dialog, or to its successor."""
        if self._opening is screen:
            self._opening = None
            self._queued_keys.sort(key=lambda event: event.time)
            while self._queued_keys and not self._is_opening:  # a key may open the next dialog
                await self.on_event(self._queued_keys.pop(0))

    @property
    def _is_opening(self) -> bool:
        """Whether keys are queued for a dialog."""
        return self._opening is not None

    def _load_dialog_styles(self) -> None:
        """Read the dialogs' styles once; the first frame does not need them."""
        if not self.stylesheet.has_source(str(DIALOG_STYLES)):
            self.stylesheet.add_source(DIALOG_STYLES.read_text(encoding="utf-8"), read_from=(str(DIALOG_STYLES), ""))

    # --- settings --------------------------------------------------------------------------------------------------

    def _store_theme(self, theme: Theme) -> None:
        """Store a theme chosen in the palette, as /set does."""
        if theme.name != self.settings_store.current.theme and not self.no_color and self.chat.is_mounted:
            from zerochat.tui.actions.settings import apply_setting

            apply_setting(self.chat, "chat.theme", theme.name)

    def apply_changes(self, before: Preferences) -> None:
        super().apply_changes(before)
        self.chat.apply_preferences(self.settings_store.current)

    # --- startup and locking ---------------------------------------------------------------------------------------

    async def _make_profile(self, nick: str, passphrase: bytes | None) -> None:
        create = self._create_profile
        assert create is not None
        await in_thread(lambda: create(nick, passphrase))

    def _on_first_run_done(self, choice: str | None) -> None:
        if choice == "demo":
            self.exit("demo")
            return
        self._first_choice = choice
        self._connect()

    def _new_link(self) -> AgentLink:
        return AgentLink(
            self._socket,
            start_agent=self._start_agent,
            on_state=self._on_link_state,
            on_news=self._on_notifications,
            on_up=self._on_connected,
        )

    def _connect(self) -> None:
        self._link_worker = self.run_worker(self.link.run(self._lock_reason), name="link")

    async def _on_connected(self, hello: Hello) -> None:
        await self.chat.on_connected(hello)
        self._lock_reason = self._early_text = ""
        first, self._first_choice = self._first_choice, None
        if first is None:
            self.call_after_refresh(self.offer_tour)
            return
        self._queued_keys, self._first_keys = self._first_keys, []
        self.chat.run_command("new" if first == "create" else "join")
        if not self._is_opening:
            self._queued_keys.clear()

    def offer_tour(self) -> None:
        """Show the tour once, when no dialog is open."""
        if self.on_tour_shown is not None and self.chat.on_top and not self.chat.input_locked:
            on_tour_shown, self.on_tour_shown = self.on_tour_shown, None
            on_tour_shown()
            self.chat.action_tour()

    def _on_link_state(self, state: LinkState) -> None:
        self.chat.on_link_state(state)

    def _on_notifications(self) -> None:
        self.chat.on_notifications()

    def ask_passphrase(self) -> bytes:
        """Prompt for the passphrase; called in, and blocking, the thread that starts the agent. Empty: cancelled."""
        answer: Future[bytes] = Future()
        self.call_later(self._show_passphrase_prompt, answer)
        return answer.result()

    async def _show_passphrase_prompt(self, answer: "Future[bytes]") -> None:
        from zerochat.tui.dialogs.dialog import InputDialog

        self.chat.lock_input()
        self._answer = answer
        typed, enter, _ = self._early_text.partition("\n")
        self._early_text = ""
        if enter:
            answer.set_result(typed.encode())
            return

        def answered(text: str | None) -> None:
            if not answer.done():
                answer.set_result((text or "").encode())

        back = " Your draft will be restored." if self.chat.pending_drafts else ""
        hint = Printable(f"{self._lock_reason} Enter unlocks, {self.key('app.quit')} quits.{back}".strip())
        question = InputDialog(Printable("Passphrase for this profile"), hint, secret=True)
        await self.push_screen(question, answered)  # keys meanwhile are queued behind this
        question.type_ahead(typed)

    def _capture_early(self, event: events.Event) -> bool:
        """Buffer keys typed before the profile is open and before the prompt is visible; returns True when buffered.

        The text may be the passphrase: it goes to the prompt or nowhere.
        """
        if not self.is_running or self.screen_stack[-1:] != [self.chat]:
            return False
        if self._first_choice is not None and self._answer is None:
            return self._capture_first(event)
        if not self.chat.input_locked:
            return False
        early = self._early_text
        if isinstance(event, events.Paste):
            early += printable_line(event.text.strip())
        elif not isinstance(event, events.Key):
            return False
        elif is_letter(event):
            early += event.character or ""
        elif event.key in ("enter", "ctrl+j"):  # ctrl+j: Enter in cooked mode, before the screen was up
            early += "\n"
        elif event.key == "backspace":
            early = early[:-1]
        elif event.key == "ctrl+u":
            early = ""
        else:
            return False
        self._early_text = early[:EARLY_CHARS_MAX]
        return True

    def _capture_first(self, event: events.Event) -> bool:
        """Keep a key for the dialog of the first choice: the profile is open, so it is no passphrase. Deletions happen
        here, since widgets handle them after the letters that follow."""
        if not isinstance(event, events.Key | events.Paste):
            return False
        key, keys = getattr(event, "key", ""), self._first_keys
        if key in ("backspace", "ctrl+u"):
            self._first_keys = keys[:-1] if key == "backspace" else []
        elif isinstance(event, events.Paste) or is_letter(event) or (key in ("enter", "ctrl+j") and keys):
            self._first_keys = [*keys, event][:QUEUED_KEYS_MAX]
        else:
            return key in ("enter", "ctrl+j")  # one Enter too many
        return True

    def lock_after(self, seconds: float) -> None:
        """Lock the chat, or close it, after this many seconds without input."""
        if self._lock_after_s is None:
            self.set_interval(min(IDLE_CHECK_S, seconds), self._lock_if_idle)
        self._lock_after_s = seconds

    def _lock_if_idle(self) -> None:
        if self._lock_reason or self._lock_after_s is None or monotonic() - self._last_input <= self._lock_after_s:
            return
        if self._lock_profile is None:
            self.exit(message="Closed after inactivity (agent.lock_after).")
            return
        self._lock_reason = LOCKED
        self._lock_profile()
        self.call_later(self._restart_locked)

    async def _restart_locked(self) -> None:
        """Replace the chat screen by an empty one and prompt for the passphrase. Only unsent drafts stay in memory;
        they are shown after unlocking."""
        if self._link_worker is not None:
            self._link_worker.cancel()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(b"")  # the waiting thread then opens nothing
        self._early_text = ""
        self.clear_notifications()
        self.clear_selection()
        group, drafts = self.chat.conversations.open_id, self.chat.unsent()
        self.link = self._new_link()
        on_disk, client = self.chat.draft_saver.saved, self.chat.draft_saver.client
        self.chat = ChatScreen(self.link, open_group=group, drafts=drafts)
        self.chat.draft_saver.saved, self.chat.draft_saver.client = on_disk, client
        before = self.current_mode
        with suppress(InvalidModeError):  # every mode after the first is registered
            self.add_mode(before, lambda: self.chat)
        self._show_chat(f"{MODE}, after it was locked" if before == MODE else MODE)
        await self.remove_mode(before)  # with all open dialogs
        self._connect()

    def _show_chat(self, mode: str) -> None:
        chat = self.chat
        self.add_mode(mode, lambda: chat)
        if self.is_running:
            self.switch_mode(mode)

    # --- actions ---------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Route input: buffer it before unlocking, queue it for an opening dialog; a key also removes old toasts."""
        if isinstance(event, events.InputEvent):
            self._last_input = monotonic()
        if not getattr(event, "is_forwarded", True) and self._capture_early(event):
            return
        if self._is_opening and isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            if len(self._queued_keys) < QUEUED_KEYS_MAX:
                self._queued_keys.append(event)
            return
        pressed = isinstance(event, events.Key) and not event.is_forwarded
        self._keys_pressed += pressed
        if pressed and any(time() - toast.raised_at > TOAST_S_MIN for toast in self._notifications):
            self.clear_notifications()
        await super().on_event(event)

    async def run_action(self, *args: Any, **options: Any) -> bool:
        """Nothing once the application ends: a screen that opened now would lose its widgets while it is filled."""
        return False if self._exit else await super().run_action(*args, **options)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(Palette(id="--command-palette"))

    def action_help(self) -> None:
        """All keys; those of an open dialog first."""
        here = self.screen
        self.chat.run_command("help", "keys" if here is self.chat else str(here.BINDING_GROUP_TITLE or "keys"))

    def action_interrupt(self) -> None:
        """Ctrl+C on a screen other than the chat."""
        if selected := self.screen.get_selected_text():
            self.run_worker(self._copy(selected))
        elif self.is_interrupted_again():
            self.call_next(self.run_action, "app.quit")
        else:
            self.notify("Press Ctrl+C again to quit.", markup=False, timeout=REPEAT_S)

    def is_interrupted_again(self) -> bool:
        """Whether the key before this Ctrl+C was a Ctrl+C too, at most REPEAT_S ago."""
        again = self._keys_pressed == self._interrupted_at_key + 1 and monotonic() - self._interrupted < REPEAT_S
        self._interrupted, self._interrupted_at_key = monotonic(), self._keys_pressed
        return again

    async def _copy(self, text: str) -> None:
        from zerochat.tui.host.clipboard import copy

        self.notify(await copy(self, text, f"{len(text):,} characters"), markup=False)

    async def action_quit(self) -> None:
        """Save the drafts and quit; where a draft cannot be saved, quit only when asked twice."""
        drafts: list[Printable] = []
        if self.chat.is_mounted:
            await self.chat.read_marks.send_now()
            await self.chat.draft_saver.save_now()
            drafts = self.chat.unsaved_drafts()
        if drafts and monotonic() - self._quit_requested > REPEAT_S:
            self._quit_requested = monotonic()
            where = ", ".join(drafts)
            sentence = f"Your draft in {where} is not saved. Quit again within {REPEAT_S:.0f} s to discard it."
            self.chat.report(printable_line(sentence), trouble=True)
            return
        self.exit()

    def key(self, id: str) -> str:
        from zerochat.tui.dialogs.help import first_keys

        return first_keys(self.chat, self.chat.composer, self)[id]

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """All key-bound actions with their keys, message actions, titled commands, then Textual's own entries."""
        from zerochat.tui.dialogs.help import bindings_of, key_text

        for node in (self.chat, self):
            if node is self.chat and screen is not self.chat:
                continue
            bindings = bindings_of(node)
            first = [each for name in PALETTE_FIRST for each in bindings if each.id == name]
            for binding in first + [each for each in bindings if each not in first]:

                async def act(action: str = binding.action, node: Any = node) -> None:
                    await self.run_action(action, node)

                yield SystemCommand(binding.description, key_text(binding.key), act)
        if screen is self.chat:
            for binding in bindings_of(self.chat.pane):
                if str(binding.id).startswith("message."):
                    name = str(binding.id).removeprefix("message.")
                    yield SystemCommand(
                        binding.description, key_text(binding.key), partial(self.chat.run_message_action, name)
                    )
            from zerochat.slash_commands import COMMANDS

            for info in COMMANDS.values():
                if info.title:
                    yield SystemCommand(info.title, f"/{info.name}", partial(self.chat.action_begin, info.name))
        for command in super().get_system_commands(screen):
            if command.title not in ("Quit", "Keys"):
                yield command
