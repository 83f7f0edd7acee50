"""The lines around the conversation: what group this is, what needs attention, and what is going on elsewhere."""

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from zerochat.agent.schema import GroupInfo
from zerochat.terminal import Printable, cells, printable_line
from zerochat.tui.text import clip, clock_of, name_of

CHECKSUM_CHARS = 8
"""Of the view's checksum: enough to compare by eye or by voice."""

DETAILS_FROM = 100
"""Columns from which the header says how the group works; F12 says it at any width."""

RANKS = {"reader": "you only read", "admin": "you are an admin", "owner": "you are the owner"}
"""What is worth saying of one's own role."""


def short_view(info: GroupInfo) -> Printable:
    return Printable(printable_line(info.view, CHECKSUM_CHARS + 1)[:CHECKSUM_CHARS])


class TopBar(Widget):
    """The open group: name, who is connected, how it is protected, the checksum of its members."""

    info: reactive[GroupInfo | None] = reactive(None)
    verified: reactive[tuple[int, int] | None] = reactive(None)
    """How many of the others were verified, and of how many."""

    def render(self) -> Content:
        width = self.content_size.width
        if self.info is None:
            return Content("zerochat")
        info = self.info
        name = clip(name_of(info.name), max(width - 14, 8))
        gone = "put out" if info.removed_by else "you left" if info.state == "left" else info.state
        parts = [
            f"{info.connected}/{max(info.members - 1, 0)} connected" if info.state == "active" else gone,
        ]
        whole = info.completeness
        if whole is not None and not whole.complete:
            count = sum(gap.missing for gap in whole.gaps)
            parts.append(f"{count} missing" if count else "members missing")
        if info.state == "active" and info.role in RANKS:
            parts.append(RANKS[info.role])
        if self.outer_size.width >= DETAILS_FROM:
            if self.verified is not None:
                parts.append(f"{self.verified[0]}/{self.verified[1]} verified")
            parts += [
                " · ".join(printable_line(each, 20) for each in (info.keys, info.path, info.accountability)),
                *([f"view {short_view(info)}"] if info.state != "left" else []),
                *([f"complete {clock_of(whole.at)}"] if whole is not None and whole.complete and whole.at else []),
            ]
        while parts and cells(name) + 2 + cells(" · ".join(parts)) > width:
            parts.pop()
        return Content.assemble((name, "bold"), ("  " + " · ".join(parts), "$text-muted"))


class Banner(Static):
    """What needs attention, in a sentence; takes no room while there is nothing."""

    def tell(self, sentence: Printable, *, trouble: bool) -> None:
        self.set_class(bool(sentence), "-shown")
        self.set_class(trouble, "-trouble")
        self.update(Content(sentence))


class Notice(Banner):
    """Somebody waits for an answer; a click is one way to it."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.call_next(self.screen.run_action, "requests")


class StatusLine(Widget):
    """Who I am here, what waits elsewhere, and the keys that lead on."""

    HINTS = ("F1 help", "F2 members", "F3 invite", "^K switch", "^P palette", "^Q quit")

    me: reactive[str] = reactive("")
    """A printable nick."""
    elsewhere: reactive[int] = reactive(0)
    asking: reactive[int] = reactive(0)
    """How many wait to be let into other groups."""
    joining: reactive[str] = reactive("")
    """A printable sentence on a join of ours that is under way."""
    flash: reactive[str] = reactive("")
    """A printable sentence that stands here for some seconds."""
    trouble: reactive[bool] = reactive(False)
    """Whether the sentence says what went wrong."""

    def render(self) -> Content:
        width = self.content_size.width
        if self.flash:
            return Content(clip(self.flash, width)).stylize("$text-error" if self.trouble else "$text-accent")
        left = f"[{clip(self.me, 20)}]" if self.me else ""
        if self.elsewhere:
            left += f"  {self.elsewhere} unread elsewhere (Alt+A)"
        if self.asking:
            left += f"  ?{self.asking} to let in elsewhere" + ("" if self.elsewhere else " (Alt+A)")
        if self.joining:
            left += f"  {clip(self.joining, max(width - cells(left) - 10, 24))}"
        hints = list(self.HINTS)
        while hints and cells(left) + 2 + len("  ".join(hints)) > width:
            hints.pop(-2 if len(hints) > 1 else -1)
        right = "  ".join(hints)
        gap = max(width - cells(left) - len(right), 1)
        return Content.assemble((left, "bold"), " " * gap, (right, "$text-muted"))
