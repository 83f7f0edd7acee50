"""The join dialog: invitation input and progress, one line for each phase.

A failure shows the agent's sentence and keeps the pasted text.
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
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.dialogs.help import first_keys
from zerochat.tui.dialogs.requests import word_lines
from zerochat.tui.state.agent_link import AgentError, in_thread
from zerochat.tui.style.text import clock_text

PHASES = {
    "dialling": "contact the inviter",
    "exchanging": "exchange keys",
    "asking": "ask to join the group",
    "connecting": "connect to the members",
    "joined": "joined",
}
ROLES = {"writer": "read and write", "reader": "read only"}
CANCELLED = "JoinCancelled"
"""Error code of a join cancelled by the user."""
STATUSES_MAX = 16
"""Statuses buffered until the id of our join is known."""


class JoinDialog(Dialog[str | None]):
    """Returns the id of the joined group; None when closed before. `start_join` starts it; `running`: a join to resume
    watching."""

    BINDING_GROUP_TITLE = "Join"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close; joining continues", id="join.close"),
        Binding("f10", "cancel", "Cancel joining", id="join.cancel", priority=True),
    ]

    def __init__(
        self,
        start_join: Callable[[str, str, str], Awaitable[JoinStatus]],
        *,
        cancel: Callable[[str], Awaitable[JoinStatus]],
        nick: Printable,
        invitation: str = "",
        running: JoinStatus | None = None,
    ) -> None:
        super().__init__()
        self._start_join = start_join
        self._cancel = cancel
        self._invitation = invitation
        self._initial_status = running
        self._join = ""
        self._read: tuple[Path | None, str] = None, ""
        """The picture read last, and the invitation in it; empty: it could not be read."""
        self._statuses: dict[str, JoinStatus] = {}
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._box = Composer(lambda text: self._start(), lambda step, text: None, id="invitation", field=True)
        self._nick_input = LineInput(nick, compact=True, id="nick")
        self._role = Choice("", ("writer", "reader"), ROLES.__getitem__, id="join-role")
        self._phases = Static(id="phases")
        self._status_text = Static(id="join-status")

    def compose(self) -> ComposeResult:
        keys = first_keys(self)
        with Vertical(classes="dialog"):
            yield Static(Content("Join a group"), classes="title")
            yield Static(Content("Paste the invitation: link, ZC: code, or the path of a QR code picture"))
            yield self._box
            with Horizontal(classes="field"):
                yield Static(Content("Your name "))
                yield self._nick_input
            with Horizontal(classes="buttons"):
                yield Button(Content("Join"), id="join", variant="primary", compact=True)
                yield Button(Content(f"{keys['join.close']} close"), id="close", compact=True)
                yield Button(Content(f"{keys['join.cancel']} cancel"), id="cancel", compact=True)
                yield self._role
            yield self._phases
            yield self._status_text

    def on_mount(self) -> None:
        self._box.focus()
        if self._invitation:
            self._box.set_text(printable(self._invitation))
            self._start()
        elif self._initial_status is not None:
            self._join = self._initial_status.join
            self._show(self._initial_status)

    # --- input -----------------------------------------------------------------------------------------------------

    @on(Input.Submitted)
    def _submit(self) -> None:
        self._start()

    @on(Composer.Pasted)
    def _pasted(self, event: Composer.Pasted) -> None:
        """Insert long texts and paths directly."""
        event.stop()
        self._box.insert_pasted(event.text)

    @on(Composer.Rejected)
    def _complain(self, event: Composer.Rejected) -> None:
        event.stop()
        self._show_text(event.sentence, trouble=True)

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
        """Read the QR code of a picture whose path is entered; clear the previous error."""
        if self._status_text.has_class("-trouble"):
            self._show_text(Printable(""))
        path = self._picture(self._box.text)
        if path is not None and path != self._read[0]:
            self._read_picture(path, join=False)

    def _picture(self, text: str) -> Path | None:
        """The path of a picture; None: the text is no such path."""
        from zerochat.agent.invitations.qr_pictures import picture_path

        return picture_path(text)

    def _read_picture(self, path: Path, *, join: bool) -> None:
        """Read the invitation in the picture's QR code; the path stays in the box. `join`: then start joining."""
        from zerochat.agent.invitations.qr_pictures import read_code
        from zerochat.errors import LocalError

        found = list[str]()
        self._read = path, ""

        async def read() -> None:
            self._show_text(Printable("Reading the code in the picture…"))
            try:
                await in_thread(lambda: found.append(read_code(path)))
            except LocalError as error:
                self._show_text(printable(str(error)), trouble=True)
                return
            self._read = path, found[0]
            self._show_text(Printable("Code read. Press Enter to join."))
            if join:
                self._start()

        self.run_worker(read(), exclusive=True)

    def _start(self) -> None:
        invitation, path = self._box.text.strip(), self._picture(self._box.text)
        if path is not None:
            invitation = self._read[1] if path == self._read[0] else ""
            if not invitation:
                self._read_picture(path, join=True)
                return
        if not invitation:
            self._show_text(Printable("Paste the invitation first."), trouble=True)
            return
        self._show_text(Printable("Resolving the short link…" if "_oobid=" in invitation else ""))
        self.run_worker(self._run(invitation, self._nick_input.value.strip(), self._role.value), exclusive=True)

    async def _run(self, invitation: str, nick: str, role: str) -> None:
        self._join = ""
        try:
            status = await self._start_join(invitation, nick, role)
        except AgentError as error:
            self._show_text(printable(str(error)), trouble=True)
            return
        self._join = status.join
        self._show(self._statuses.get(status.join, status))

    # --- progress --------------------------------------------------------------------------------------------------

    def on_join_status(self, status: JoinStatus) -> None:
        """A join status; the first may arrive before the response with the id of our join."""
        if len(self._statuses) >= STATUSES_MAX:
            self._statuses.clear()
        self._statuses[status.join] = status
        if status.join == self._join:
            self._show(status)

    def _show(self, status: JoinStatus) -> None:
        self.set_class(status.phase not in ("joined", "failed"), "-running")
        if status.phase == "joined":
            self.dismiss(status.group)
            return
        if status.phase == "failed":
            self._phases.update(Content(""))
            again = "\nPress Enter to try again; you can change the name or role first." if self._box.text else ""
            given_up = status.error == CANCELLED
            self._show_text(Printable(printable(status.text) + again), trouble=not given_up)
            return
        names = list(PHASES)
        here = names.index(status.phase)
        lines = []
        for number, name in enumerate(names):
            mark = "✓" if number < here else "●" if number == here else "·"
            style = "$text-success" if number < here else "bold" if number == here else "$text-muted"
            lines.append(Content.styled(f"{mark} {PHASES[name]}", style))
        self._phases.update(Content("\n").join(lines))
        sentences = [printable(status.text)]
        if status.words and status.started_at:
            sentences.append(Printable(f"Waiting since {clock_text(status.started_at)}."))
        if status.members and (count := f"{status.connected}/{status.members} members connected") not in status.text:
            sentences.append(Printable(count))
        if status.words:
            sentences += [Printable("The inviter may ask for your safety words:"), *word_lines(status.words)]
        keys = first_keys(self)
        continues = Printable(
            f"{keys['join.close']} closes this; joining continues (/join shows it). {keys['join.cancel']} cancels."
        )
        self._show_text(Printable("\n".join([*sentences, continues])))
        self.call_after_refresh(self._status_text.scroll_visible, animate=False)

    def _show_text(self, sentence: Printable, *, trouble: bool = False) -> None:
        self._status_text.set_class(trouble, "-trouble")
        self._status_text.update(Content(sentence))

    def action_cancel(self) -> None:
        """Cancel the shown join; its final status arrives as a notification."""
        if not self.has_class("-running") or not self._join:
            return

        async def cancel() -> None:
            try:
                await self._cancel(self._join)
            except AgentError as error:
                self._show_text(printable(str(error)), trouble=True)

        self.run_worker(cancel())

    def action_close(self) -> None:
        self.dismiss(None)
