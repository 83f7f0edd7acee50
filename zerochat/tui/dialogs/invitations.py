"""The dialog of open invitations: their users' progress, and revoking.

The agent sends no notification about invitees that are not members yet, so the open dialog polls it.
"""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.cells import cell_len as cells
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from zerochat.presentation.history_rules import rule_text
from zerochat.rpc import Invitee, OpenInvitation
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.dialogs.dialog import ConfirmDialog, Dialog, Feedback, HangingText, rows
from zerochat.tui.dialogs.help import first_keys, with_keys
from zerochat.tui.panels.lists import QuietList
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import clip, clock_text, name_of

REFRESH_S = 2.0
"""Polling interval."""
STATES = {
    "joining": "joining",
    "waiting": "waiting for your answer (/requests)",
    "joined": "✓ joined",
    "gone": "not admitted, or left",
}


class InvitationsDialog(Dialog[None]):
    """`load` loads the open invitations; `revoke` revokes one by id. Both raise AgentError."""

    BINDING_GROUP_TITLE = "Open invitations"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "revoke", "Revoke an invitation", id="invitations.revoke"),
        Binding("f3", "another", "Create another one", id="invitations.another"),  # a letter must create nothing
        Binding("escape,q", "close", "Close", id="invitations.close"),
    ]

    def __init__(
        self,
        group: Printable,
        load: Callable[[], Awaitable[list[OpenInvitation]]],
        revoke: Callable[[str], Awaitable[None]],
        another: Callable[[], None],
    ) -> None:
        super().__init__()
        self._group, self._load, self._revoke, self._another = group, load, revoke, another
        self._found: list[OpenInvitation] = []
        self._unread = False
        """The last load failed, and its error is shown."""
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._list = QuietList(id="entries")
        self._about = HangingText(Content(""), classes="body")
        self._feedback = Feedback(id="entries-status")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content(f"Open invitations to {self._group}"), classes="title")
            yield self._list
            yield self._about
            yield self._feedback
            hint = "{invitations.revoke} revokes it   {invitations.another} creates one   {invitations.close} closes"
            yield Static(Content(with_keys(hint, first_keys(self))), classes="hint")

    def on_mount(self) -> None:
        self._list.rebuild = self._draw
        self._list.focus()
        self.set_interval(REFRESH_S, self.reload)
        self.reload()

    def reload(self) -> None:
        """Load the invitations again."""
        self.run_worker(self._read(), group="read", exclusive=True)

    async def _read(self) -> None:
        try:
            self._found = await self._load()
        except AgentError as error:
            self._unread = True
            self._feedback.show_briefly(printable(str(error)), trouble=True)
            return
        if self._unread:
            self._unread = False
            self._feedback.set_default("")
        self._draw()

    def _draw(self) -> None:
        self._list.set_entries((invitation.id, self._line(invitation)) for invitation in self._found)
        if self._list.highlighted is None and self._list.option_count:
            self._list.highlighted = 0
        self._show()

    def _line(self, invitation: OpenInvitation) -> Content:
        width = self._list.room(12)
        joined = sum(each.state == "joined" for each in invitation.invitees)
        waiting = sum(each.state == "waiting" for each in invitation.invitees)
        name = f"{printable_line(invitation.name)}: " if invitation.name else ""
        left = f"{name}{joined} of {invitation.uses or 'any number'} joined" + (
            f", {waiting} waiting" if waiting else ""
        )
        right = f"until {clock_text(invitation.expires_at)}"
        left = clip(left, max(width - cells(right) - 1, 4))
        return Content.assemble(left, " " * max(width - cells(left) - cells(right), 1), (right, "$text-muted"))

    @on(OptionList.OptionHighlighted)
    def _show(self) -> None:
        entry = self._chosen()
        if entry is None:
            key = first_keys(self)["invitations.another"]
            self._about.update(Content(f"No open invitations. Press {key} to create one."))
            return
        facts = [("access", "read only" if entry.role == "reader" else "read and write")]
        if entry.history != "all":
            facts.append(("history", printable_line(rule_text(entry.history))))
        facts += [(invitee_name(each), invitee_state(each)) for each in entry.invitees] or [("used by", "no one yet")]
        self._about.update(rows(facts, 12))

    def _chosen(self) -> OpenInvitation | None:
        option = self._list.highlighted_option
        return next(
            (invitation for invitation in self._found if option is not None and invitation.id == option.id), None
        )

    # --- actions ---------------------------------------------------------------------------------------------------

    def action_revoke(self) -> None:
        entry = self._chosen()
        if entry is None:
            return

        async def revoke(id: str) -> None:
            try:
                await self._revoke(id)
            except AgentError as error:
                self._feedback.show_briefly(printable(str(error)), trouble=True)
                return
            self._feedback.show_briefly(Printable("Invitation revoked."))
            await self._read()

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(revoke(entry.id))

        waits = " Waiting requests are refused." if any(each.state == "waiting" for each in entry.invitees) else ""
        question = Printable(
            f"Revoke this invitation? It can no longer be used.{waits} Members who joined with it stay."
        )
        self.app.push_screen(ConfirmDialog(question, "Revoke", "Cancel"), answered)

    def action_another(self) -> None:
        self.dismiss(None)
        self._another()

    def action_close(self) -> None:
        self.dismiss(None)


def invitee_name(invitee: Invitee) -> Printable:
    return name_of(invitee.nick) if invitee.nick else Printable("unknown")


def invitee_state(invitee: Invitee) -> str:
    """The progress of an invitee, and since when."""
    since = f", since {clock_text(invitee.at)}" if invitee.at and invitee.state in ("joining", "waiting") else ""
    return STATES[invitee.state] + since
