"""The terminal application: themes, the palette, the way in and the way out.

The first frame does not wait for anything: the agent is started, or found, while the empty screen is already there.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hits, Provider
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider

from zerochat.agent.schema import Hello
from zerochat.terminal import Printable, printable, printable_line
from zerochat.tui.chat import AGAIN_S, ChatScreen
from zerochat.tui.commands import COMMANDS
from zerochat.tui.keys import teach_keys
from zerochat.tui.link import Link, LinkState, in_thread

LOOK_S = 5.0
"""How often it is looked whether anybody is still there."""
TOAST_S_MIN = 1.0
"""How long a toast stands whatever is typed."""

PALETTE_FIRST = ("group.new", "group.join", "group.invite", "view.members")
"""What a person without a group, or alone in one, looks for."""

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
    reads. `demo` offers the demo at the first run. `open_group`: a name or the first letters of an id.
    """

    TITLE = "zerochat"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {InOrder}
    CSS_PATH = "app.tcss"
    VERTICAL_BREAKPOINTS = LOW
    BINDING_GROUP_TITLE = "Application"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", show=False, id="app.help"),
        Binding("ctrl+q", "quit", "Quit", show=False, id="app.quit"),
        Binding("ctrl+c", "interrupt", "Copy the selection; twice: quit", show=False, id="app.interrupt"),
    ]

    def __init__(
        self,
        socket: Path,
        *,
        start_agent: Callable[[Callable[[], bytes]], None] | None = None,
        create_profile: Callable[[str], None] | None = None,
        demo: bool = False,
        open_group: str = "",
    ) -> None:
        teach_keys()
        super().__init__()
        self._create_profile = create_profile
        self._demo = demo
        self.link = Link(
            socket,
            start_agent=None if start_agent is None else lambda: start_agent(self.ask_passphrase),
            on_state=self._link_told,
            on_news=self._news_came,
            on_up=self._up,
        )
        self.chat = ChatScreen(self.link, open_group=open_group)
        self._first: str | None = None
        self._lock_after_s: float | None = None
        self._touched = monotonic()
        self._asked_to_quit = -AGAIN_S
        self._interrupted = -AGAIN_S

    def get_default_screen(self) -> Screen[Any]:
        return self.chat

    def on_mount(self) -> None:
        if self._create_profile is None:
            self._connect()
        else:
            from zerochat.tui.first_run import FirstRunScreen

            self.push_screen(FirstRunScreen(self._make_profile, demo=self._demo), self._begin)

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

    def _connect(self) -> None:
        self.run_worker(self.link.run(), name="link")

    async def _up(self, hello: Hello) -> None:
        await self.chat.up(hello)
        first, self._first = self._first, None
        if first == "create":
            self.chat.action_new()
        elif first == "join":
            self.chat.action_join()

    def _link_told(self, state: LinkState) -> None:
        self.chat.link_told(state)

    def _news_came(self) -> None:
        self.chat.news_came()

    def ask_passphrase(self) -> bytes:
        """Ask on the screen; called in the thread that starts the agent, and blocks it. Empty: the person gave up."""
        from zerochat.tui.sheet import Ask

        answer: Future[bytes] = Future()

        def answered(text: str | None) -> None:
            answer.set_result((text or "").encode())

        question = Ask(
            Printable("Passphrase of this profile"), Printable("Enter unlocks it, Ctrl+Q quits."), secret=True
        )
        self.call_later(self.push_screen, question, answered)
        return answer.result()

    def warn(self, sentence: str) -> None:
        """What a person should know before anything else, in a toast."""
        self.notify(printable(sentence), severity="warning", markup=False, timeout=30)

    def lock_after(self, seconds: float) -> None:
        """Close the chat, and an agent of its own with it, when nobody has touched it for so long."""
        if self._lock_after_s is None:
            self.set_interval(min(LOOK_S, seconds), self._lock)
        self._lock_after_s = seconds

    def _lock(self) -> None:
        if self._lock_after_s is not None and monotonic() - self._touched > self._lock_after_s:
            self.exit(message="Closed, because nobody has touched it for a while (agent.lock_after).")

    # --- actions ---------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """The next key takes the toasts away; not as soon as they come, when a fast hand is in the middle of a word."""
        if isinstance(event, events.InputEvent):
            self._touched = monotonic()
        pressed = isinstance(event, events.Key) and not event.is_forwarded
        if pressed and any(time() - toast.raised_at > TOAST_S_MIN for toast in self._notifications):
            self.clear_notifications()
        await super().on_event(event)

    def action_help(self) -> None:
        if self.screen is self.chat:
            from zerochat.tui.deeds import run

            run(self.chat, "help", "")

    def action_interrupt(self) -> None:
        """Ctrl+C on a screen other than the chat."""
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.notify(f"{len(selected)} characters copied (OSC 52).", markup=False)
        elif monotonic() - self._interrupted < AGAIN_S:
            self.exit()
        else:
            self._interrupted = monotonic()
            self.notify("Ctrl+C again quits.", markup=False)

    async def action_quit(self) -> None:
        """Quit; where something is unsent, only when asked twice."""
        drafts = self.chat.drafts() if self.chat.is_mounted else []
        if drafts and monotonic() - self._asked_to_quit > AGAIN_S:
            self._asked_to_quit = monotonic()
            sentence = f"Unsent: your draft in {', '.join(drafts)}. Quit again within {AGAIN_S:.0f} s to drop it."
            self.chat.tell(printable_line(sentence), trouble=True)
            return
        self.exit()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every action that has a key, which stands below it, in the order of the help; then Textual's own."""
        from zerochat.tui.help import key_text, own_bindings

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
            for info in COMMANDS.values():
                if info.title:
                    yield SystemCommand(info.title, f"/{info.name}", partial(self.chat.action_begin, info.name))
        for command in super().get_system_commands(screen):
            if command.title not in ("Quit", "Keys"):
                yield command
