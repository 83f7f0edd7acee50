"""The invitations to a group that are open: how far those are who use them, and taking one back.

The agent tells of no step of an invitation that is not yet a member's, so the sheet asks again and again while it is
open; the answer comes from the agent's memory.
"""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from zerochat.presentation.history_rules import given
from zerochat.rpc import Invitee, OpenInvitation
from zerochat.terminal_text import Printable, cells, printable, printable_line
from zerochat.tui.dialogs.dialog import Body, Confirm, rows
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.dialogs.status_line import Said
from zerochat.tui.panels.lists import QuietList
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import clip, clock_text, name_of

AGAIN_S = 2.0
"""How often the agent is asked how far everybody is."""
STATES = {
    "joining": "is joining",
    "waiting": "waits for your answer (F4)",
    "joined": "✓ joined",
    "gone": "does not come in, or has left",
}


class InvitationsScreen(Over[None]):
    """`ask` answers the open invitations; `revoke` takes the one with this id back. Both raise AgentError."""

    BINDING_GROUP_TITLE = "Open invitations"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "revoke", "Take an invitation back", id="invitations.revoke"),
        Binding("n", "another", "Make another one", id="invitations.another"),
        Binding("escape,q", "close", "Close", id="invitations.close"),
    ]

    def __init__(
        self,
        group: Printable,
        ask: Callable[[], Awaitable[list[OpenInvitation]]],
        revoke: Callable[[str], Awaitable[None]],
        another: Callable[[], None],
    ) -> None:
        super().__init__()
        self._group, self._ask, self._revoke, self._another = group, ask, revoke, another
        self._found: list[OpenInvitation] = []
        self._unread = False
        """Whether the agent has refused the last time, which is said."""
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._list = QuietList(id="asking")
        self._about = Body(Content(""), classes="body")
        self._said = Said(id="asking-said")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content(f"Open invitations to {self._group}"), classes="title")
            yield self._list
            yield self._about
            yield self._said
            yield Static(Content("x takes it back   n makes another one   Esc closes"), classes="hint")

    def on_mount(self) -> None:
        self._list.again = self._draw
        self._list.focus()
        self.set_interval(AGAIN_S, self.renew)
        self.renew()

    def renew(self) -> None:
        """Ask anew."""
        self.run_worker(self._read(), group="read", exclusive=True)

    async def _read(self) -> None:
        try:
            self._found = await self._ask()
        except AgentError as error:
            self._unread = True
            self._said.tell(printable(str(error)), trouble=True)
            return
        if self._unread:
            self._unread = False
            self._said.last("")
        self._draw()

    def _draw(self) -> None:
        self._list.put((one.id, self._line(one)) for one in self._found)
        if self._list.highlighted is None and self._list.option_count:
            self._list.highlighted = 0
        self._show()

    def _line(self, one: OpenInvitation) -> Content:
        width = self._list.room(12)
        joined = sum(each.state == "joined" for each in one.invitees)
        waiting = sum(each.state == "waiting" for each in one.invitees)
        left = f"{joined} of {one.uses or 'any number'} in" + (f", {waiting} waits" if waiting else "")
        right = f"until {clock_text(one.expires_at)}"
        left = clip(left, max(width - cells(right) - 1, 4))
        return Content.assemble(left, " " * max(width - cells(left) - cells(right), 1), (right, "$text-muted"))

    @on(OptionList.OptionHighlighted)
    def _show(self) -> None:
        one = self._chosen()
        if one is None:
            self._about.update(Content("None is open. n makes one."))
            return
        facts = [("for", "reading only" if one.role == "reader" else "reading and writing")]
        if one.history != "all":
            facts.append(("history", printable_line(given(one.history))))
        facts += [(who(each), state_of(each)) for each in one.invitees] or [("used by", "nobody yet")]
        self._about.update(rows(facts, 12))

    def _chosen(self) -> OpenInvitation | None:
        option = self._list.highlighted_option
        return next((one for one in self._found if option is not None and one.id == option.id), None)

    # --- actions ---------------------------------------------------------------------------------------------------

    def action_revoke(self) -> None:
        one = self._chosen()
        if one is None:
            return

        async def revoke(id: str) -> None:
            try:
                await self._revoke(id)
            except AgentError as error:
                self._said.tell(printable(str(error)), trouble=True)
                return
            self._said.tell(Printable("It is taken back: nobody gets in with it any more."))
            await self._read()

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(revoke(one.id))

        waits = " Who waits is told no." if any(each.state == "waiting" for each in one.invitees) else ""
        question = Printable(f"Take this invitation back? Nobody gets in with it any more.{waits} Who is in stays.")
        self.app.push_screen(Confirm(question, "Take back", "Keep"), answered)

    def action_another(self) -> None:
        self.dismiss(None)
        self._another()

    def action_close(self) -> None:
        self.dismiss(None)


def who(one: Invitee) -> Printable:
    return name_of(one.nick) if one.nick else Printable("somebody")


def state_of(one: Invitee) -> str:
    """How far somebody is, and since when."""
    since = f", since {clock_text(one.at)}" if one.at and one.state in ("joining", "waiting") else ""
    return STATES[one.state] + since
