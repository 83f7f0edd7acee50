"""The invitation dialog: QR code, link, and who used it.

The QR code is black on white in every theme, as scanners require. The link is shown beside it, and alone with `t` so
that the terminal can select it. An invitation via a mediator has no code; its mediator serves a short link, which fits
80x24. Without that link the QR code is the long link's, where the window is large enough.
"""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import exceeds, read_rule, rule_text
from zerochat.rpc import InvitationInfo, InvitationNotification
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.dialogs.dialog import ConfirmDialog, Dialog, Feedback
from zerochat.tui.dialogs.help import first_keys
from zerochat.tui.state.agent_link import AgentError, in_thread
from zerochat.tui.style.text import clock_text, name_of

QR_STYLE = "#000000 on #ffffff"
BESIDE_CELLS_MIN = 18
"""Minimum width of the link beside the code; in narrower windows the code is hidden."""
BELOW_LINES = 2
KIND_FROM = 32
"""Minimum lines for what the group's kind gives and gives up beside a code; in lower windows, text only shows it."""
EXPIRIES_S = {24 * 3600: "24 hours", 7 * 24 * 3600: "7 days", 3600: "1 hour"}
"""Expiry times offered; `zerochat invite GROUP --expires TIME` takes any."""
ELSEWHERE = "add a mediator with /mediator LINK first (/help mediators), or see /help network"
WORDS = {
    "copy_link": "link",
    "copy_code": "code",
    "text_only": "text",
    "picture": "PNG",
    "hide": "hide",
    "expiry": "time",
    "read_only": "read",
    "history": "history",
    "revoke_earlier": "revoke",
    "create": "new",
    "open": "open",
    "close": "",
}
"""The buttons: word behind the key, by action."""
NARROWER_RULES = ("last:50", "since:7d", "none")
"""History rules of an invitation that narrow the group's rule."""


class InviteDialog(Dialog[None]):
    """Shows one invitation. `make` creates it for a role, a history rule (None: the group's rule `history`) and a
    lifetime in seconds. `list_open` opens the list of invitations; `revoke` revokes one by id. `by_request`: a member
    must admit each joiner. `kind`: what the group's kind gives and gives up, as sentences.

    Letters only choose, for a key that types no text to create: the user may believe to be typing a message.
    """

    BINDING_GROUP_TITLE = "Invitation"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy_link", "Copy the link", id="invite.copy_link"),
        Binding("z", "copy_code", "Copy the ZC: code, or the full link", id="invite.copy_code"),
        Binding("t", "text_only", "Text only", id="invite.text_only"),
        Binding("p", "picture", "Save the code as a picture (PNG)", id="invite.picture"),
        Binding("s", "hide", "Hide or show the invitation", id="invite.hide"),
        Binding("e", "expiry", "Choose another expiry", id="invite.expiry"),
        Binding("x", "revoke_earlier", "Revoke the earlier ones", id="invite.revoke_earlier"),
        Binding("o", "open", "Open invitations", id="invite.open"),
        Binding("r", "read_only", "Choose read only, or read and write", id="invite.read_only"),
        Binding("h", "history", "Choose more or less history", id="invite.history"),
        Binding("f3", "create", "New invitation, as chosen", id="invite.create"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="invite.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="invite.down"),
        Binding("escape", "close", "Close", id="invite.close"),
    ]

    def __init__(
        self,
        group: Printable,
        make: Callable[[str, str | None, int], Awaitable[InvitationInfo]],
        list_open: Callable[[], None],
        revoke: Callable[[str], Awaitable[None]],
        *,
        role: str = "writer",
        history: str = "all",
        by_request: bool = False,
        kind: str = "",
    ) -> None:
        super().__init__()
        self._group_history = history
        self._history: str | None = None
        self._role = role
        self._by_request = by_request
        self._group = group
        self._make = make
        self._list_open = list_open
        self._revoke = revoke
        self._earlier: list[str] = []
        """Ids of unused invitations created here before the shown one."""
        self._others = 0
        """The number of other open invitations to the group, not counting `_earlier`."""
        self._expires_s = next(iter(EXPIRIES_S))
        self._made: tuple[str, str | None, int] = (self._role, self._history, self._expires_s)
        """Role, history rule and lifetime of the shown invitation."""
        self._creating = False
        self._hidden = False
        self._invitation: InvitationInfo | None = None
        self._qr: list[str] = []
        self._text_only = False
        self._used: list[Printable] = []
        self._uses_left = 0
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._code = Static(id="qr")
        self._about = Static(id="invite-details")
        self._link = Static(id="invite-link")
        self._compact = Static(id="invite-code")
        self._kind = Static(Content(kind), id="invite-kind")
        self._buttons = {action: Button("", id=action, compact=True) for action in WORDS}
        self._feedback = Feedback(id="invite-status")

    def compose(self) -> ComposeResult:
        with Horizontal(id="invite-main"):
            yield self._code
            with VerticalScroll(id="invite-side"):
                yield self._about
                yield self._link
                yield self._compact
                yield self._kind
        yield self._feedback
        with Horizontal(id="invite-keys"):
            yield from self._buttons.values()

    def on_mount(self) -> None:
        for action, button in self._buttons.items():
            button.display = action in ("open", "close")  # the others when the invitation exists
        self._show_labels()
        self._feedback.set_default("Creating an invitation…")
        self.run_worker(self._create_invitation())

    async def _create_invitation(self) -> None:
        wanted, self._creating = self._wanted, True
        try:
            invitation = await self._make(*wanted)
        except AgentError as error:
            self._feedback.show_briefly(printable(str(error)), trouble=True)
            return
        finally:
            self._creating = False
        from zerochat.qr import qr_half_blocks

        before = self._invitation
        if before is not None and before.id and not self._used:
            self._earlier.append(before.id)
        self._invitation, self._made = invitation, wanted
        self._used.clear()
        self._uses_left = invitation.uses
        self._others = max(invitation.open_count - 1 - len(self._earlier), 0)
        try:
            self._qr = qr_half_blocks(printable_line(invitation.short or invitation.code) or printable(invitation.url))
        except ValueError:
            self._qr = []
        self._draw()

    def on_invitation_used(self, notification: InvitationNotification) -> bool:
        """An invitation was used; returns True when it belongs to this group. Only uses of the shown one are
        counted."""
        if self._invitation is None or notification.group != self._invitation.group:
            return False
        if notification.invitation in ("", self._invitation.id):
            self._used.append(name_of(notification.nick))
            self._uses_left = notification.uses_left
            self._draw()
            return True
        which = "an earlier invitation" if notification.invitation in self._earlier else "another invitation"
        if notification.name:
            which = group_rules.your_invitation(notification.name)
        if notification.uses_left == 0 and notification.invitation in self._earlier:
            self._earlier.remove(notification.invitation)  # used up: nothing to revoke
            self._draw()
        self._feedback.show_briefly(Printable(f"{name_of(notification.nick)} has used {which}."))
        return True

    # --- drawing ---------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        invitation = self._invitation
        if invitation is None:
            return
        fits = self._fits()
        shown = fits and not self._text_only and not self._hidden
        self._code.display = shown
        self._kind.display = not shown or self.size.height >= KIND_FROM
        if shown:
            self._code.update(Content("\n").join(Content.styled(row, QR_STYLE) for row in self._qr))
        uses = "1 person" if invitation.uses == 1 else f"{invitation.uses or 'any number of'} people"
        called = f" ({printable_line(invitation.name)})" if invitation.name else ""
        about = [f"Invitation to {self._group}{called}", f"for {uses}, expires {clock_text(invitation.expires_at)}"]
        if invitation.role == "reader":
            about.append("read only" if invitation.role_binds else f"read only. {group_rules.ROLE_NOT_BOUND}")
        if invitation.history != "all" or self._group_history != "all":
            narrower = invitation.history if invitation.history != "all" else self._group_history
            about.append(f"New members get {rule_text(narrower)}.")
        if self._hidden:
            about.append(f"Hidden. Press {first_keys(self)['invite.hide']} to show it.")
        elif not fits and self._qr and not self._text_only:
            width, height = len(self._qr[0]) + BESIDE_CELLS_MIN, len(self._qr) + BELOW_LINES
            about.append(f"Enlarge the window to {width}x{height} to see the code, or send the link.")
        if invitation.short_missing and not invitation.short:
            about.append(printable_line(invitation.short_missing))
        if elsewhere := group_rules.local_only(invitation, ELSEWHERE):
            about.append(elsewhere)
        if self._by_request:
            about.append("Anyone who has it can ask to join; you answer with /requests.")
        else:
            about.append("Anyone who has it can join: send it only to people you trust.")
        if self._earlier:
            count = len(self._earlier)
            earlier = "The earlier invitation is" if count == 1 else f"The {count} earlier invitations are"
            key = first_keys(self)["invite.revoke_earlier"]
            about.append(f"{earlier} still valid: {key} revokes {'it' if count == 1 else 'them'}.")
        if self._others:
            about.append(self._other_invitations())
        self._about.update(Content("\n".join(about)))
        link, other = _forms(invitation)
        self._link.update(Content(printable(link)))
        self._compact.update(Content(printable(other)))
        self._link.display = not self._hidden
        self._compact.display = bool(other) and not self._hidden
        self._show_buttons(invitation, bool(other))
        self.set_class((self._text_only or not shown) and not self._hidden, "-text")
        if chosen := self._chosen():
            self._feedback.set_default(f"{first_keys(self)['invite.create']} creates a new invitation: {chosen}.")
        elif not self._used:
            self._feedback.set_default("Not used yet. Keep zerochat running until they have joined.")
        else:
            left = "used up" if self._uses_left == 0 else f"{self._uses_left} left"
            self._feedback.set_default(f"✓ used by {', '.join(self._used[-5:])} ({left})")

    @property
    def _wanted(self) -> tuple[str, str | None, int]:
        return self._role, self._history, self._expires_s

    def _chosen(self) -> str:
        """In what the next invitation differs from the shown one; empty: in nothing."""
        role, history, expires_s = (
            chosen if chosen != made else None for chosen, made in zip(self._wanted, self._made, strict=True)
        )
        parts = ["read only" if role == "reader" else "read and write"] if role else []
        if self._history != self._made[1]:
            parts.append(rule_text(str(history or self._group_history)))
        return ", ".join([*parts, *([f"for {EXPIRIES_S[self._expires_s]}"] if expires_s else [])])

    def _show_buttons(self, invitation: InvitationInfo, other: bool) -> None:
        """Show the buttons that apply; `other`: the invitation has a second form."""
        chosen, unneeded = bool(self._chosen()), len(self._history_options()) < 2
        hidden = {"copy_code": not other, "picture": not self._qr, "history": unneeded, "create": not chosen}
        # 80 columns have no room for all; the keys still work
        hidden |= {"revoke_earlier": not self._earlier or chosen, "open": bool(self._earlier) or chosen}
        for action, button in self._buttons.items():
            button.display = not hidden.get(action, False)
        self._show_labels(
            copy_code="code" if invitation.code else "full",
            hide="show" if self._hidden else "hide",
            read_only="write" if self._role == "reader" else "read",
        )

    def _show_labels(self, **words: str) -> None:
        keys = first_keys(self)
        for action, button in self._buttons.items():
            button.label = Content(f"{keys[f'invite.{action}']} {words.get(action, WORDS[action])}".rstrip())

    def _other_invitations(self) -> str:
        """How many invitations are open besides the shown one and the earlier ones of this dialog."""
        one, key = self._others == 1, first_keys(self)["invite.open"]
        return (
            f"{self._others} other invitation{' is' if one else 's are'} open: {key} lists {'it' if one else 'them'}."
        )

    def _fits(self) -> bool:
        if not self._qr:
            return False
        wide = self.size.width >= len(self._qr[0]) + BESIDE_CELLS_MIN
        return wide and self.size.height >= len(self._qr) + BELOW_LINES

    def on_paste(self, event: events.Paste) -> None:
        """Ignore pastes; only Esc closes the dialog, so that a paste sent as keys does not."""
        event.prevent_default()
        event.stop()

    # --- actions ---------------------------------------------------------------------------------------------------

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        self.call_next(self.run_action, event.button.id or "close")

    def action_copy_link(self) -> None:
        self._copy("link", _forms(self._invitation)[0] if self._invitation else "")

    def action_copy_code(self) -> None:
        if self._invitation is not None:
            self._copy("code" if self._invitation.code else "full link", _forms(self._invitation)[1])

    def _copy(self, what: str, text: str) -> None:
        if not text:
            return
        self.app.copy_to_clipboard(text)
        key = first_keys(self)["invite.text_only"]
        self._feedback.show_briefly(f"Copied the {what} (OSC 52). If pasting fails, press {key} and select it.")

    def action_text_only(self) -> None:
        if self._invitation is None:
            return
        self._text_only = not self._text_only
        self._draw()

    def action_hide(self) -> None:
        """Hide or show the invitation, for example while sharing the screen."""
        if self._invitation is not None:
            self._hidden = not self._hidden
            self._draw()

    def action_picture(self) -> None:
        """Save the QR code as a PNG in the downloads folder, after confirmation."""
        if self._invitation is not None and self._qr:
            code = self._invitation.short or self._invitation.code or self._invitation.url
            question = Printable("Save the code as a picture? Anyone who has the picture can use the invitation.")
            self._confirm(question, "Save", lambda: self._save(code))

    def _confirm(self, question: Printable, yes: str, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def answered(confirmed: bool | None) -> None:
            if confirmed:
                self.run_worker(act(), exclusive=True, group=yes)

        self.app.push_screen(ConfirmDialog(question, yes, "Cancel"), answered)

    async def _save(self, text: str) -> None:
        from zerochat.agent.files.saving import downloads, save
        from zerochat.agent.invitations.qr_pictures import code_png
        from zerochat.errors import LocalError

        saved: list[str] = []

        def write() -> None:
            name = f"invitation to {self._group}.png"
            saved.append(str(save(name, [code_png(printable(text))], "", downloads(os.environ)).path))

        try:
            await in_thread(write)
        except LocalError as error:
            self._feedback.show_briefly(printable_line(str(error)), trouble=True)
            return
        self._feedback.show_briefly(printable_line(f"Saved as {saved[0]}."))

    def action_expiry(self) -> None:
        """Choose the next expiry time for a new invitation."""
        if self._invitation is not None:
            times = list(EXPIRIES_S)
            self._expires_s = times[(times.index(self._expires_s) + 1) % len(times)]
            self._draw()

    def action_create(self) -> None:
        """Create another invitation as chosen; the same only after the shown one was used."""
        if self._invitation is None or self._creating:
            return
        if self._chosen() or self._used:
            self.run_worker(self._create_invitation(), exclusive=True)
        else:
            keys = first_keys(self)
            choices = f"{keys['invite.expiry']}, {keys['invite.read_only']} or {keys['invite.history']}"
            self._feedback.show_briefly(f"This invitation is not used yet. Choose another one first: {choices}.")

    def action_revoke_earlier(self) -> None:
        """Revoke the earlier invitations after confirmation: the user may have sent one."""
        if count := len(self._earlier):
            which = "the earlier invitation" if count == 1 else f"the {count} earlier invitations"
            question = Printable(f"Revoke {which}? Members who joined with {'it' if count == 1 else 'them'} stay.")
            self._confirm(question, "Revoke", self._revoke_earlier)

    async def _revoke_earlier(self) -> None:
        while self._earlier:
            try:
                await self._revoke(self._earlier[0])
            except AgentError as error:
                if error.name != "NoSuchInvitation":  # used up or expired meanwhile
                    self._feedback.show_briefly(printable(str(error)), trouble=True)
                    return
            self._earlier.pop(0)
        self._draw()
        rest = self._other_invitations() if self._others else "Only this one is open."
        self._feedback.show_briefly(Printable(f"Earlier invitations revoked. {rest}"))

    def action_open(self) -> None:
        self.dismiss(None)
        self._list_open()

    def action_read_only(self) -> None:
        """Choose the other role for a new invitation."""
        if self._invitation is not None:
            self._role = "writer" if self._role == "reader" else "reader"
            self._draw()

    def _history_options(self) -> list[str | None]:
        """The history rules for an invitation: None (the group's rule) and all narrower ones."""
        now = int(time.time() * 1000)
        return [
            None,
            *(
                entry
                for entry in (read_rule(text, now) for text in NARROWER_RULES)
                if exceeds(self._group_history, entry)
            ),
        ]

    def action_history(self) -> None:
        """Choose the next history rule for a new invitation."""
        if self._invitation is not None and len(rules := self._history_options()) > 1:
            kinds = [rule and rule.partition(":")[0] for rule in rules]
            self._history = rules[(kinds.index(self._history and self._history.partition(":")[0]) + 1) % len(rules)]
            self._draw()

    def action_move(self, step: int) -> None:
        """Scroll the link in a small window."""
        self.query_one("#invite-side").scroll_relative(y=step, animate=False)

    def action_close(self) -> None:
        self.dismiss(None)


def _forms(invitation: InvitationInfo) -> tuple[str, str]:
    """What to send, and the same invitation in another form; empty: there is none."""
    if invitation.short and not invitation.code:
        return invitation.short, invitation.url
    return invitation.url, invitation.code
