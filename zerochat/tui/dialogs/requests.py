"""The dialog of join requests and private invitations: safety words of each joiner, admit, refuse, undo.

An admission is sent at once. A refusal is sent after UNDO_S seconds, so that it can be undone: a refused joiner needs
another invitation.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import ClassVar, TypeAlias

from rich.cells import cell_len as cells
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import OptionList, Static

from zerochat.rpc import JoinRequestInfo, PrivateInvitationInfo
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.dialogs.dialog import Dialog, Feedback
from zerochat.tui.dialogs.help import first_keys, with_keys
from zerochat.tui.panels.lists import QuietList
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.state.hints import ROLE_TEXTS
from zerochat.tui.style.text import clip, clock_text, key_suffix, name_of

UNDO_S = 5.0
"""Time in which a refusal can be undone."""
INPUT_GUARD_S = 0.7
"""Keys are ignored for this long after the selection changed by itself; longer than the key repeat delay."""
Request: TypeAlias = JoinRequestInfo | PrivateInvitationInfo
INVITED = "A private conversation: only the two of you can read it."
UNTOLD = "If you decline, the member is not told."
INSTRUCTIONS = "Call them: they must see the same words."


class RequestsDialog(Dialog[None]):
    """`waiting` returns the open requests; `answer` sends a decision and raises AgentError. `report_late` reports an
    error once the dialog is closed."""

    BINDING_GROUP_TITLE = "Join requests"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "admit", "Admit", id="requests.admit"),
        Binding("r", "refuse", "Refuse", id="requests.refuse"),
        Binding("u", "undo", "Undo a refusal", id="requests.undo"),
        Binding("escape,f4", "close", "Close", id="requests.close"),
    ]

    def __init__(
        self,
        group: Printable,
        waiting: Callable[[], list[Request]],
        answer: Callable[[Request, bool], Awaitable[None]],
        report_late: Callable[[Printable], None],
    ) -> None:
        super().__init__()
        self._group = group
        self._waiting = waiting
        self._answer = answer
        self._report_late = report_late
        self._answered: set[str] = set()
        """DIDs with a sent decision; the agent's list may still contain them."""
        self._refused: dict[str, tuple[Request, Timer]] = {}
        """Refusals that can still be undone, by DID."""
        self._guarded_until = 0.0
        """Monotonic time until which keys are ignored after an automatic selection."""
        # Attributes instead of queries: a notification may arrive while the screen is being removed.
        self._list = QuietList(id="entries")
        self._about = Static(id="entry-details")
        self._feedback = Feedback(id="entries-status")
        self._keys = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            private = any(isinstance(request, PrivateInvitationInfo) for request in self._waiting())
            title = f"Requests in {self._group}" if private else f"Join requests for {self._group}"
            yield Static(Content(title), classes="title")
            yield self._list
            yield self._about
            yield self._feedback
            yield self._keys

    def on_mount(self) -> None:
        self._list.rebuild = self.refresh_content
        self._list.focus()
        self.refresh_content()
        if self._list.option_count:
            self._list.highlighted = 0
        self._guarded_until = 0.0

    def refresh_content(self) -> None:
        """Draw the open requests. When the selected one is gone, nothing is selected unless only one is left: the next
        key must not answer another joiner's request."""
        waiting = self._waiting()
        self._answered &= {request.did for request in waiting}
        self._list.set_entries(
            (request.did, self._line(request)) for request in waiting if request.did not in self._answered
        )
        if self._list.highlighted is None and self._list.option_count == 1:
            self._list.highlighted = 0
            self._guarded_until = monotonic() + INPUT_GUARD_S
        self._show_keys()
        self._show()

    def _show_keys(self) -> None:
        undo = "   {requests.undo} undoes that" if self._refused else ""
        waiting = self._waiting()
        private = bool(waiting) and all(isinstance(request, PrivateInvitationInfo) for request in waiting)
        admit, refuse = ("accepts", "declines") if private else ("admits", "refuses")
        hint = f"{{requests.admit}} {admit}   {{requests.refuse}} {refuse}{undo}   {{requests.close}} closes"
        self._keys.update(Content(with_keys(hint, first_keys(self))))

    def _accepts_key(self) -> bool:
        """Whether keys are accepted; a key held down since the last selection extends the guard."""
        deaf = monotonic() < self._guarded_until
        if deaf:
            self._guarded_until = monotonic() + INPUT_GUARD_S
        return not deaf

    def _line(self, request: Request) -> Content:
        width = max(self._list.size.width - 2, 12)
        mark = "✗ refused: " if request.did in self._refused else ""
        key = key_suffix(request.did)
        room = max(width - len(key) - 1, 4)
        wants = "private conversation"
        if isinstance(request, JoinRequestInfo):
            wants = ROLE_TEXTS.get(request.role, name_of(request.role))
        left = clip(f"{mark}{name_of(request.nick)}, {wants}", room)
        return Content.assemble(left, " " * max(room - cells(left) + 1, 1), (key, "$text-muted"))

    @on(OptionList.OptionHighlighted)
    def _show(self) -> None:
        entry = self._chosen()
        if entry is None:
            empty = "No join requests." if not self._list.option_count else "Choose a request with the arrow keys."
            self._about.update(Content(empty))
            return
        if isinstance(entry, PrivateInvitationInfo):
            facts = f"since {clock_text(entry.asked_at)}, until {clock_text(entry.expires_at)}"
            lines = [Content(INVITED), Content.styled(UNTOLD, "$text-muted"), Content(facts)]
            self._about.update(Content("\n").join(lines))
            return
        words = [Content.styled(line, "bold") for line in word_lines(entry.words)]
        facts = f"since {clock_text(entry.asked_at)}, key …{key_suffix(entry.did)}"
        self._about.update(Content("\n").join([*words, Content.styled(INSTRUCTIONS, "$text-muted"), Content(facts)]))

    def _chosen(self) -> Request | None:
        option = self._list.highlighted_option
        return next((request for request in self._waiting() if option is not None and request.did == option.id), None)

    # --- answering -------------------------------------------------------------------------------------------------

    def action_admit(self) -> None:
        """Admit the selected joiner. Afterwards at most the last request is selected: a held key must not admit all."""
        if (entry := self._chosen()) is not None and self._accepts_key():
            self._cancel_refusal(entry.did)
            self._submit(entry, True)

    def action_refuse(self) -> None:
        entry = self._chosen()
        if entry is None or entry.did in self._refused or not self._accepts_key():
            return
        self._refused[entry.did] = (entry, self.set_timer(UNDO_S, lambda: self._commit_refusal(entry)))
        self._show_feedback(f"{name_of(entry.nick)} refused. Press {first_keys(self)['requests.undo']} to undo.")
        self._select_next()
        self.refresh_content()

    def action_undo(self) -> None:
        """Undo the last refusal that was not sent yet."""
        if not self._refused:
            self._show_feedback("Nothing to undo.")
            return
        did = next(reversed(self._refused))
        entry = self._refused[did][0]
        self._cancel_refusal(did)
        self._show_feedback(f"{name_of(entry.nick)} is waiting again.")
        self.refresh_content()
        self._select(did)

    def _select(self, did: str) -> None:
        ids = [option.id for option in self._list.options]
        self._list.highlighted = ids.index(did) if did in ids else None

    def _cancel_refusal(self, did: str) -> None:
        if did in self._refused:
            self._refused.pop(did)[1].stop()
            self._show_keys()

    def _commit_refusal(self, request: Request) -> None:
        if request.did in self._refused:
            self._cancel_refusal(request.did)
            if any(each.did == request.did for each in self._waiting()):
                self._submit(request, False)

    def _submit(self, request: Request, admit: bool) -> None:
        self._answered.add(request.did)
        self.refresh_content()

        async def submit() -> None:
            try:
                await self._answer(request, admit)
            except AgentError as error:
                self._answered.discard(request.did)
                if not self.is_attached:
                    self._report_late(printable(str(error)))
                    return
                self._show_feedback(printable(str(error)), trouble=True)
                self.refresh_content()
                return
            if isinstance(request, PrivateInvitationInfo) and admit:
                self._show_feedback(f"Joining the conversation with {name_of(request.nick)}…")
                if not self._waiting() and self.is_current:
                    self.action_close()  # the conversation opens behind it
                return
            self._show_feedback(f"{name_of(request.nick)} {'admitted' if admit else 'refused'}.")

        self.app.run_worker(submit())

    def _select_next(self) -> None:
        """Select the next unanswered request."""
        open = [request.did for request in self._waiting() if request.did not in self._answered | self._refused.keys()]
        ids = [str(option.id) for option in self._list.options]
        here = self._list.highlighted or 0
        later = [number for number, did in enumerate(ids) if did in open]
        if later:
            self._list.highlighted = next((number for number in later if number > here), later[0])

    def _show_feedback(self, sentence: str, *, trouble: bool = False) -> None:
        self._feedback.show_briefly(printable_line(sentence), trouble=trouble)

    def action_close(self) -> None:
        for entry, _ in list(self._refused.values()):
            self._commit_refusal(entry)
        self.dismiss(None)


def word_lines(words: list[str]) -> list[Printable]:
    """Safety words, four in a line."""
    return [printable_line(" ".join(words[start : start + 4])) for start in range(0, len(words), 4)]
