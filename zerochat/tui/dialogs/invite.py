"""The invitation screen: a code to scan, the link to send, and word of who used it.

The code is black on bright white whatever the theme, because scanners do not read it the other way round; the link is
always there as text beside it, and alone on the screen with `t`, so that a terminal's own selection can take it. An
invitation that leads over a mediator has no code: then the link itself is drawn, where the window is large enough.
"""

import os
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from zerochat.presentation.history_rules import exceeds, given, read_rule
from zerochat.rpc import InvitationInfo, InvitationNews
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.dialogs.status_line import Said
from zerochat.tui.state.agent_link import AgentError, in_thread
from zerochat.tui.style.text import clock_text, name_of

QR_STYLE = "#000000 on #ffffff"
BESIDE_CELLS_MIN = 18
"""Narrower than this, the link beside the code is a ladder of letters; then the code has to wait for a wider window."""
BELOW_LINES = 2
EXPIRIES_S = (24 * 3600, 7 * 24 * 3600, 3600)
"""How long an invitation can be good here; `zerochat invite --expires` takes any time."""
LESS = ("last:50", "since:7d", "none")
"""What an invitation can give of the history where its group gives more."""


class InviteScreen(Over[None]):
    """Shows one invitation; `make` asks the agent for it, for a role, for what it gives of the history (None: as much
    as the group does, which is `history`), and for so many seconds. `list_open` shows all that are open; `revoke` takes
    one back, by its id. `let_in`: a member has to say yes to whoever uses it."""

    BINDING_GROUP_TITLE = "Invitation"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy_link", "Copy the link", id="invite.copy_link"),
        Binding("z", "copy_code", "Copy the ZC: code", id="invite.copy_code"),
        Binding("t", "text_only", "Text only", id="invite.text_only"),
        Binding("p", "picture", "Save the code as a picture (PNG)", id="invite.picture"),
        Binding("s", "hide", "Hide it from whoever sees this screen, or show it", id="invite.hide"),
        Binding("e", "expiry", "Another one, that is good for longer or not so long", id="invite.expiry"),
        Binding("x", "take_back", "Take back those that were shown before this one", id="invite.take_back"),
        Binding("o", "open", "Open invitations: who uses them, taking one back", id="invite.open"),
        Binding("r", "read_only", "Another one, to read only, or to write too", id="invite.read_only"),
        Binding("h", "history", "Another one, with more or less of the history", id="invite.history"),
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
        let_in: bool = False,
    ) -> None:
        super().__init__()
        self._rule = history
        self._gives: str | None = None
        self._role = role
        self._let_in = let_in
        self._group = group
        self._make = make
        self._list_open = list_open
        self._revoke = revoke
        self._before: list[str] = []
        """The ids of those that were made here before this one, and that nobody is known to have used."""
        self._expires_s = EXPIRIES_S[0]
        self._hidden = False
        self._invitation: InvitationInfo | None = None
        self._qr: list[str] = []
        self._text_only = False
        self._used: list[Printable] = []
        self._uses_left = 0
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._code = Static(id="qr")
        self._about = Static(id="invite-about")
        self._link = Static(id="invite-link")
        self._compact = Static(id="invite-code")
        self._link_button = Button(Content("c link"), id="copy_link", compact=True)
        self._copy_button = Button(Content("z code"), id="copy_code", compact=True)
        self._text_button = Button(Content("t text"), id="text_only", compact=True)
        self._read_button = Button(Content("r read"), id="read_only", compact=True)
        self._history_button = Button(Content("h history"), id="history", compact=True)
        self._picture_button = Button(Content("p PNG"), id="picture", compact=True)
        self._hide_button = Button(Content("s hide"), id="hide", compact=True)
        self._expiry_button = Button(Content("e time"), id="expiry", compact=True)
        self._open_button = Button(Content("o open"), id="open", compact=True)
        self._back_button = Button(Content("x undo"), id="take_back", compact=True)
        self._news = Said(id="invite-news")

    def compose(self) -> ComposeResult:
        with Horizontal(id="invite-main"):
            yield self._code
            with VerticalScroll(id="invite-side"):
                yield self._about
                yield self._link
                yield self._compact
        yield self._news
        with Horizontal(id="invite-keys"):
            yield self._link_button
            yield self._copy_button
            yield self._text_button
            yield self._picture_button
            yield self._hide_button
            yield self._expiry_button
            yield self._read_button
            yield self._history_button
            yield self._back_button
            yield self._open_button
            yield Button(Content("Esc"), id="close", compact=True)

    def on_mount(self) -> None:
        buttons = (self._link_button, self._copy_button, self._text_button, self._read_button, self._history_button)
        for button in (*buttons, self._picture_button, self._hide_button, self._expiry_button, self._back_button):
            button.display = False  # There is nothing yet that they could be for.
        self._news.last("Asking the agent for an invitation…")
        self.run_worker(self._ask())

    async def _ask(self) -> None:
        try:
            invitation = await self._make(self._role, self._gives, self._expires_s)
        except AgentError as error:
            self._news.tell(printable(str(error)), trouble=True)
            return
        from zerochat.terminal_text import qr_half_blocks

        before = self._invitation
        if before is not None and before.id and not self._used:
            self._before.append(before.id)
        self._invitation = invitation
        self._used.clear()
        self._uses_left = invitation.uses
        try:
            self._qr = qr_half_blocks(printable_line(invitation.short or invitation.code) or printable(invitation.url))
        except ValueError:
            self._qr = []
        self._draw()

    def told(self, news: InvitationNews) -> bool:
        """Somebody used an invitation; True when it was one to this group. Only those who come with the one that is
        shown are counted."""
        if self._invitation is None or news.group != self._invitation.group:
            return False
        if news.invitation in ("", self._invitation.id):
            self._used.append(name_of(news.nick))
            self._uses_left = news.uses_left
            self._draw()
            return True
        which = "one before this" if news.invitation in self._before else "another invitation"
        if news.uses_left == 0 and news.invitation in self._before:
            self._before.remove(news.invitation)  # there is nothing left of it to be taken back
            self._draw()
        self._news.tell(Printable(f"{name_of(news.nick)} has used {which}."))
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
        if shown:
            self._code.update(Content("\n").join(Content.styled(row, QR_STYLE) for row in self._qr))
        uses = f"{invitation.uses} person" if invitation.uses == 1 else f"{invitation.uses} people"
        about = [f"Invitation to {self._group}", f"for {uses}, until {clock_text(invitation.expires_at)}"]
        if invitation.role == "reader":
            about.append("to read only")
        if invitation.history != "all" or self._rule != "all":
            narrower = invitation.history if invitation.history != "all" else self._rule
            about.append(f"Newcomers get {given(narrower)}.")
        if self._hidden:
            about.append("Hidden, so that nobody who sees this screen can use it: s shows it.")
        elif not fits and self._qr and not self._text_only:
            width, height = len(self._qr[0]) + BESIDE_CELLS_MIN, len(self._qr) + BELOW_LINES
            about.append(f"Enlarge the window to {width}x{height} to see the code, or send the link.")
        if self._let_in:
            about.append("Whoever has it can ask to come in, and you answer with F4.")
        else:
            about.append("Whoever has it can join: send it only to whom you mean.")
        if self._before:
            many = "The one before is" if len(self._before) == 1 else f"The {len(self._before)} before are"
            about.append(f"{many} still good: x takes {'it' if len(self._before) == 1 else 'them'} back.")
        self._about.update(Content("\n".join(about)))
        self._back_button.display = bool(self._before)
        self._open_button.display = not self._before  # there is no room for both in 80 columns; the key is there still
        self._link.update(Content(printable(invitation.url)))
        self._compact.update(Content(printable_line(invitation.code)))
        self._link.display = not self._hidden
        self._compact.display = bool(invitation.code) and not self._hidden
        self._copy_button.display = bool(invitation.code)
        self._link_button.display = self._text_button.display = self._read_button.display = True
        self._hide_button.display = self._expiry_button.display = True
        self._picture_button.display = bool(self._qr)
        self._hide_button.label = Content("s show" if self._hidden else "s hide")
        self._history_button.display = len(self._rules()) > 1
        self._read_button.label = Content("r write" if invitation.role == "reader" else "r read")
        self.set_class((self._text_only or not shown) and not self._hidden, "-text")
        if not self._used:
            self._news.last("Nobody has used it yet. Keep zerochat running until they have joined.")
        else:
            left = "used up" if self._uses_left == 0 else f"{self._uses_left} left"
            self._news.last(f"✓ used by {', '.join(self._used[-5:])} ({left})")

    def _fits(self) -> bool:
        if not self._qr:
            return False
        wide = self.size.width >= len(self._qr[0]) + BESIDE_CELLS_MIN
        return wide and self.size.height >= len(self._qr) + BELOW_LINES

    def on_paste(self, event: events.Paste) -> None:
        """There is nothing to paste into here. A terminal that pastes as keys closes nothing either: only Esc does."""
        event.prevent_default()
        event.stop()

    # --- actions ---------------------------------------------------------------------------------------------------

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        self.call_next(self.run_action, event.button.id or "close")

    def action_copy_link(self) -> None:
        self._copy("link", self._invitation.url if self._invitation else "")

    def action_copy_code(self) -> None:
        self._copy("code", self._invitation.code if self._invitation else "")

    def _copy(self, what: str, text: str) -> None:
        if not text:
            return
        self.app.copy_to_clipboard(text)
        self._news.tell(f"Copied the {what} (OSC 52). If pasting brings nothing: t, then select it.")

    def action_text_only(self) -> None:
        if self._invitation is None:
            return
        self._text_only = not self._text_only
        self._draw()

    def action_hide(self) -> None:
        """Whoever shares a screen hands what is on it to everybody who looks."""
        if self._invitation is not None:
            self._hidden = not self._hidden
            self._draw()

    def action_picture(self) -> None:
        """Save the code where downloads go."""
        if self._invitation is not None and self._qr:
            self.run_worker(
                self._save(self._invitation.short or self._invitation.code or self._invitation.url), group="save"
            )

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
            self._news.tell(printable_line(str(error)), trouble=True)
            return
        self._news.tell(printable_line(f"Saved as {saved[0]}. Whoever has the picture has the invitation."))

    def action_expiry(self) -> None:
        """Ask for another invitation, which is good for longer, or not so long."""
        if self._invitation is not None:
            here = EXPIRIES_S.index(self._expires_s)
            self._expires_s = EXPIRIES_S[(here + 1) % len(EXPIRIES_S)]
            self.run_worker(self._ask(), exclusive=True)

    def action_take_back(self) -> None:
        """Nobody gets in any more with those that were shown before: whoever has already sent one away keeps it."""
        if self._before:
            self.run_worker(self._take_back(), exclusive=True)

    async def _take_back(self) -> None:
        while self._before:
            try:
                await self._revoke(self._before[0])
            except AgentError as error:
                if error.name != "NoSuchInvitation":  # it was used up meanwhile, or its time is over
                    self._news.tell(printable(str(error)), trouble=True)
                    return
            self._before.pop(0)
        self._draw()
        self._news.tell("Only this one is good now: nobody gets in with those before.")

    def action_open(self) -> None:
        self.dismiss(None)
        self._list_open()

    def action_read_only(self) -> None:
        """Ask for another invitation. The one before is of no use to anybody who has not got it."""
        if self._invitation is not None:
            self._role = "writer" if self._invitation.role == "reader" else "reader"
            self.run_worker(self._ask(), exclusive=True)

    def _rules(self) -> list[str | None]:
        """What an invitation can give of the history: as much as the group does, or less."""
        now = int(time.time() * 1000)
        return [None, *(one for one in (read_rule(text, now) for text in LESS) if exceeds(self._rule, one))]

    def action_history(self) -> None:
        """Ask for another invitation, which gives less of the history, or again all that the group does."""
        if self._invitation is not None and len(rules := self._rules()) > 1:
            kinds = [rule and rule.partition(":")[0] for rule in rules]
            self._gives = rules[(kinds.index(self._gives and self._gives.partition(":")[0]) + 1) % len(rules)]
            self.run_worker(self._ask(), exclusive=True)

    def action_move(self, step: int) -> None:
        """The link is longer than a small window."""
        self.query_one("#invite-side").scroll_relative(y=step, animate=False)

    def action_close(self) -> None:
        self.dismiss(None)
