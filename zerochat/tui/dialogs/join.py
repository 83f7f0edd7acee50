"""The join screen: paste an invitation, and watch how far it has got.

Joining takes several messages between several machines; a screen that only waits looks stuck. So every phase has its
line, and a failure is the agent's sentence, with the pasted text still there.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Static, TextArea

from zerochat.rpc import JoinStatus
from zerochat.terminal_text import Printable, printable
from zerochat.tui.composer.composer import Composer, LineInput
from zerochat.tui.dialogs.choice import Choice
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.dialogs.requests import in_lines
from zerochat.tui.state.agent_link import AgentError, in_thread
from zerochat.tui.style.text import clock_text

PHASES = {
    "dialling": "reach the person who invited you",
    "exchanging": "exchange keys",
    "asking": "ask the group to let you in",
    "connecting": "connect to the members",
    "joined": "joined",
}
ROLES = {"writer": "to read and write", "reader": "to read only"}
GOES_ON = Printable("Esc closes this; the join goes on (F8 shows it). F10 gives it up.")
CANCELLED = "JoinCancelled"
"""The error of a join that its own person has given up."""
STATUSES_MAX = 16
"""Joins whose last word is kept until it is known which of them is ours."""


class JoinScreen(Over[str | None]):
    """Answers the id of the group that was joined; None when it was closed before. `ask` hands the invitation over.
    `running`: a join that is under way already, to be watched again."""

    BINDING_GROUP_TITLE = "Join"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close; the join goes on", id="join.close"),
        Binding("f10", "cancel", "Give the join up", id="join.cancel", priority=True),
    ]

    def __init__(
        self,
        ask: Callable[[str, str, str], Awaitable[JoinStatus]],
        *,
        cancel: Callable[[str], Awaitable[JoinStatus]],
        nick: Printable,
        invitation: str = "",
        running: JoinStatus | None = None,
    ) -> None:
        super().__init__()
        self._ask = ask
        self._cancel = cancel
        self._invitation = invitation
        self._under_way = running
        self._join = ""
        self._looked_at: Path | None = None
        """The picture that a code was last looked for in."""
        self._told: dict[str, JoinStatus] = {}
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._box = Composer(lambda text: self._start(), lambda step, text: None, id="invitation", field=True)
        self._nick_input = LineInput(nick, compact=True, id="nick")
        self._role = Choice("", ("writer", "reader"), ROLES.__getitem__, id="join-role")
        self._phases = Static(id="phases")
        self._said = Static(id="join-said")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content("Join a group"), classes="title")
            yield Static(Content("Paste the invitation: link, ZC: code, or the path of a picture of it"))
            yield self._box
            with Horizontal(classes="field"):
                yield Static(Content("Your name there "))
                yield self._nick_input
            with Horizontal(classes="buttons"):
                yield Button(Content("Join"), id="join", variant="primary", compact=True)
                yield Button(Content("Esc close"), id="close", compact=True)
                yield Button(Content("F10 give up"), id="cancel", compact=True)
                yield self._role
            yield self._phases
            yield self._said

    def on_mount(self) -> None:
        self._box.focus()
        if self._invitation:
            self._box.put(printable(self._invitation))
            self._start()
        elif self._under_way is not None:
            self._join = self._under_way.join
            self._show(self._under_way)

    # --- asking ----------------------------------------------------------------------------------------------------

    @on(Input.Submitted)
    def _submit(self) -> None:
        self._start()

    @on(Composer.Pasted)
    def _pasted(self, event: Composer.Pasted) -> None:
        """Long texts and paths are what this box is for."""
        event.stop()
        self._box.insert_pasted(event.text)

    @on(Composer.Complained)
    def _complain(self, event: Composer.Complained) -> None:
        event.stop()
        self._say(event.sentence, trouble=True)

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "join":
            self._start()
        elif event.button.id == "cancel":
            self.action_cancel()
        else:
            self.action_close()

    @on(TextArea.Changed)
    def _changed(self) -> None:
        """The path of a picture, pasted or dropped here, becomes what the code in it says. What was wrong with the text
        before is said no more."""
        if self._said.has_class("-trouble"):
            self._say(Printable(""))
        if self._picture(self._box.text) is not None:
            self._read_picture(join=False)

    def _picture(self, text: str) -> Path | None:
        """The picture that is meant, if it is one."""
        from zerochat.agent.invitations.qr_pictures import picture_path

        return picture_path(text)

    def _read_picture(self, *, join: bool) -> None:
        """Put what the code in the picture says in its path's place; `join`: and use it."""
        from zerochat.agent.invitations.qr_pictures import read_code
        from zerochat.errors import LocalError

        path, found = self._picture(self._box.text), list[str]()
        assert path is not None
        if path == self._looked_at and not join:
            return  # what has become of it stands there
        self._looked_at = path

        async def read() -> None:
            self._say(Printable("Looking for the code in the picture…"))
            try:
                await in_thread(lambda: found.append(read_code(path)))
            except LocalError as error:
                self._say(printable(str(error)), trouble=True)
                return
            self._box.put(found[0])
            self._say(Printable("Read off the picture. Enter joins."))
            if join:
                self._start()

        self.run_worker(read(), exclusive=True)

    def _start(self) -> None:
        if self._picture(self._box.text) is not None:
            self._read_picture(join=True)
            return
        invitation = "".join(self._box.text.split())  # A pasted link may have been wrapped.
        if not invitation:
            self._say(Printable("Paste the invitation first."), trouble=True)
            return
        self._say(Printable(""))
        self.run_worker(self._run(invitation, self._nick_input.value.strip(), self._role.value), exclusive=True)

    async def _run(self, invitation: str, nick: str, role: str) -> None:
        self._join = ""
        try:
            status = await self._ask(invitation, nick, role)
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
        self.set_class(status.phase not in ("joined", "failed"), "-running")
        if status.phase == "joined":
            self.dismiss(status.group)
            return
        if status.phase == "failed":
            self._phases.update(Content(""))
            again = "\nEnter tries again, with another name or role if you change them." if self._box.text else ""
            given_up = status.error == CANCELLED
            self._say(Printable(printable(status.text) + again), trouble=not given_up)
            return
        names = list(PHASES)
        here = names.index(status.phase)
        lines = []
        for number, name in enumerate(names):
            mark = "✓" if number < here else "●" if number == here else "·"
            style = "$text-success" if number < here else "bold" if number == here else "$text-muted"
            lines.append(Content.styled(f"{mark} {PHASES[name]}", style))
        self._phases.update(Content("\n").join(lines))
        said = [printable(status.text)]
        if status.words and status.since:
            said.append(Printable(f"It waits since {clock_text(status.since)}."))
        if status.members and (count := f"{status.connected}/{status.members} members connected") not in status.text:
            said.append(Printable(count))
        if status.words:
            said += [Printable("They may ask you for the words of your key:"), *in_lines(status.words)]
        self._say(Printable("\n".join([*said, GOES_ON])))
        self.call_after_refresh(self._said.scroll_visible, animate=False)

    def _say(self, sentence: Printable, *, trouble: bool = False) -> None:
        self._said.set_class(trouble, "-trouble")
        self._said.update(Content(sentence))

    def action_cancel(self) -> None:
        """Give the join up that is shown; its last word comes as news."""
        if not self.has_class("-running") or not self._join:
            return

        async def cancel() -> None:
            try:
                await self._cancel(self._join)
            except AgentError as error:
                self._say(printable(str(error)), trouble=True)

        self.run_worker(cancel())

    def action_close(self) -> None:
        self.dismiss(None)
