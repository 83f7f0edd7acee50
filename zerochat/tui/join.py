"""The join screen: paste an invitation, and watch how far it has got.

Joining takes several messages between several machines; a screen that only waits looks stuck. So every phase has its
line, and a failure is the agent's sentence, with the pasted text still there.
"""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from zerochat.agent.schema import JoinStatus
from zerochat.terminal import Printable, printable
from zerochat.tui.composer import Composer, LineInput
from zerochat.tui.link import AgentError

PHASES = {
    "dialling": "reach the person who invited you",
    "exchanging": "exchange keys",
    "asking": "ask the group to let you in",
    "connecting": "connect to the members",
    "joined": "joined",
}
STATUSES_MAX = 16
"""Joins whose last word is kept until it is known which of them is ours."""


class JoinScreen(ModalScreen[str | None]):
    """Answers the id of the group that was joined; None when it was closed before. `ask` hands the invitation over."""

    BINDING_GROUP_TITLE = "Join"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close", id="join.close")]

    def __init__(
        self, ask: Callable[[str, str], Awaitable[JoinStatus]], *, nick: Printable, invitation: str = ""
    ) -> None:
        super().__init__()
        self._ask = ask
        self._invitation = invitation
        self._join = ""
        self._told: dict[str, JoinStatus] = {}
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._box = Composer(lambda text: self._start(), lambda step, text: None, id="invitation")
        self._nick_input = LineInput(nick, compact=True, id="nick")
        self._phases = Static(id="phases")
        self._said = Static(id="join-said")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content("Join a group"), classes="title")
            yield Static(Content("Paste the invitation: the link, or the code that begins with ZC:"))
            yield self._box
            with Horizontal(classes="field"):
                yield Static(Content("Your name there "))
                yield self._nick_input
            with Horizontal(classes="buttons"):
                yield Button(Content("Join"), id="join", variant="primary", compact=True)
                yield Button(Content("Esc close"), id="close", compact=True)
            yield self._phases
            yield self._said

    def on_mount(self) -> None:
        self._box.focus()
        if self._invitation:
            self._box.put(printable(self._invitation))
            self._start()

    # --- asking ----------------------------------------------------------------------------------------------------

    @on(Input.Submitted)
    def _submit(self) -> None:
        self._start()

    @on(Composer.Complained)
    def _complain(self, event: Composer.Complained) -> None:
        event.stop()
        self._say(event.sentence, trouble=True)

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "join":
            self._start()
        else:
            self.action_close()

    def _start(self) -> None:
        invitation = "".join(self._box.text.split())  # A pasted link may have been wrapped.
        if not invitation:
            self._say(Printable("Paste the invitation first."), trouble=True)
            return
        self._say(Printable(""))
        self.run_worker(self._run(invitation, self._nick_input.value.strip()), exclusive=True)

    async def _run(self, invitation: str, nick: str) -> None:
        self._join = ""
        try:
            status = await self._ask(invitation, nick)
        except AgentError as error:
            self._say(printable(str(error)), trouble=True)
            return
        self._join = status.join
        self._show(self._told.get(status.join, status))

    # --- how it gets on --------------------------------------------------------------------------------------------

    def told(self, status: JoinStatus) -> None:
        """News of a join; the first may come before the answer that says which one is ours."""
        if len(self._told) >= STATUSES_MAX:
            self._told.clear()
        self._told[status.join] = status
        if status.join == self._join:
            self._show(status)

    def _show(self, status: JoinStatus) -> None:
        if status.phase == "joined":
            self.dismiss(status.group)
            return
        if status.phase == "failed":
            self._phases.update(Content(""))
            self._say(printable(status.text), trouble=True)
            return
        names = list(PHASES)
        here = names.index(status.phase)
        lines = []
        for number, name in enumerate(names):
            mark = "✓" if number < here else "●" if number == here else "·"
            style = "$text-success" if number < here else "bold" if number == here else "$text-muted"
            lines.append(Content.styled(f"{mark} {PHASES[name]}", style))
        self._phases.update(Content("\n").join(lines))
        count = f" ({status.connected} of {status.members} connected)" if status.members else ""
        self._say(Printable(printable(status.text) + count))

    def _say(self, sentence: Printable, *, trouble: bool = False) -> None:
        self._said.set_class(trouble, "-trouble")
        self._said.update(Content(sentence))

    def action_close(self) -> None:
        self.dismiss(None)
