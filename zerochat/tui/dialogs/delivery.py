"""The delivery dialog: how many have a message, and the recipients page by page, first those that lack it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from zerochat.rpc import DeliveryReport
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.dialogs.dialog import REFRESH_S, Dialog, HangingText, InputDialog
from zerochat.tui.state.agent_link import AgentError

Load = Callable[[str, str], Awaitable[tuple[DeliveryReport, Content]]]
"""Loads the page after a cursor (`DeliveryReport.next`) with the recipients whose names contain a word."""


class DeliveryDialog(Dialog[None]):
    """Loads the shown page again while it is open."""

    BINDING_GROUP_TITLE = "Delivery"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "turn(1)", "Next page", id="delivery.next"),
        Binding("p", "turn(-1)", "Page before", id="delivery.before"),
        Binding("slash", "find", "Find a member", key_display="/", id="delivery.find"),
        Binding("escape,q,enter", "close", "Close", id="delivery.close"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="delivery.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="delivery.down"),
    ]

    def __init__(self, load: Load, report: DeliveryReport, body: Content) -> None:
        """`report`, `body`: the first page."""
        super().__init__()
        self._load = load
        self._report, self._shown = report, body
        self._cursors = [""]
        """Where the pages up to the shown one begin."""
        self._before = [0]
        """How many recipients are on earlier pages, for each of them."""
        self._word = ""
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._head, self._body = Static(classes="title"), HangingText(body, classes="body")
        self._hint = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self._head
            with VerticalScroll():
                yield self._body
            yield self._hint

    def on_mount(self) -> None:
        self._show(self._report, self._shown)
        self.set_interval(REFRESH_S, self._start_refresh)

    def _start_refresh(self) -> None:
        self.run_worker(self._refresh_content(), exclusive=True)

    async def _refresh_content(self) -> None:
        with suppress(AgentError):  # the chat shows the error; keep the last content
            self._show(*await self._load(self._cursors[-1], self._word))

    def _show(self, report: DeliveryReport, body: Content) -> None:
        self._report = report
        title = f"Delivered to {report.delivered:,} of {report.of:,}"
        self._head.update(Content(title + (f" · “{printable_line(self._word, 24)}”" if self._word else "")))
        if not body.is_same(self._shown):  # keeps a text selection
            self._shown = body
            self._body.update(body)
        self._hint.update(Content("  ".join([*self._way(report), "Esc closes, Up and Down scroll"])))

    def _way(self, report: DeliveryReport) -> list[str]:
        """The place of the page, and the keys that lead to others."""
        if not (report.next or self._word or len(self._cursors) > 1):
            return []
        first = self._before[-1]
        place = f"{first + 1:,} to {first + len(report.members):,}" if report.members else "None"
        keys = ["n next"] * bool(report.next) + ["p before"] * (len(self._cursors) > 1)
        return [place, *keys, "/ find"]

    def action_turn(self, step: int) -> None:
        if step > 0 and self._report.next:
            self._cursors.append(self._report.next)
            self._before.append(self._before[-1] + len(self._report.members))
        elif step < 0 and len(self._cursors) > 1:
            self._cursors.pop()
            self._before.pop()
        else:
            return
        self._start_refresh()
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_find(self) -> None:
        def answered(word: str | None) -> None:
            if word is not None:
                self._word, self._cursors, self._before = word, [""], [0]
                self._start_refresh()

        hint = Printable("A part of the name; empty: all. Enter finds.")
        self.app.push_screen(InputDialog(Printable("Find a recipient"), hint), answered)

    def action_move(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)

    def action_close(self) -> None:
        self.dismiss(None)
