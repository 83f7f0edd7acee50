"""The lines around the conversation: what group this is, what needs attention, and what is going on elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from zerochat.presentation import group_rules
from zerochat.rpc import GroupInfo
from zerochat.terminal_text import Printable, cells, printable_line
from zerochat.tui.state.conversation import Conversations
from zerochat.tui.state.hints import somebody
from zerochat.tui.style.text import clip, clock_of, marked, name_of

SAID_S = 6.0
"""How long a word on what has just been done stands there."""
CHECKSUM_CHARS = 8
"""Of the view's checksum: enough to compare by eye or by voice."""

TOPIC_CELLS_MIN = 16
"""Cells that a topic gets before anything else about the group."""
DETAILS_FROM = 100
"""Columns from which the header says how the group works; F12 says it at any width."""
VERIFIED_FROM = 80
"""Columns from which it says how many of the others were verified; below that, only who is not whom you verified."""
NAME_CELLS_MIN = 8
"""Of a group's name, whatever else there is to say."""
KEYS = {
    "pairwise-multi": "sealed for each",
    "pairwise-single": "sealed once for all",
    "sender-key": "sealed once for all, and signed",
}
PATHS = {"mesh": "peer to peer"}
ACCOUNTS = {"acks": "receipts", "ledger": "log with witnesses"}
LOGS = {"unkept": "not accountable yet", "stalled": "log stands still", "split": "two logs"}
"""How a group works, in a word or three; what this version does not know stands there as it is called."""

WHERE_CELLS = 60
"""Cells that the rest of the status line needs beside the names of the conversations with something unread."""
WHERE_NAME_CELLS, NUMBERED = 12, 9
"""How much of such a name is shown; and how many conversations have a key of their own."""

RANKS = {"reader": "you only read", "admin": "you are an admin", "owner": "you are the owner"}
"""What is worth saying of one's own role."""


def short_view(info: GroupInfo) -> Printable:
    return Printable(printable_line(info.view, CHECKSUM_CHARS + 1)[:CHECKSUM_CHARS])


@dataclass(frozen=True, slots=True)
class Fact:
    """Something to say of the open group: `forms`, the longest first. A `warning` is said however narrow it is."""

    forms: tuple[str, ...]
    warning: bool = False


def fitting(facts: Sequence[Fact], room: int) -> list[tuple[str, bool]]:
    """As many facts as there is room for, each as long as it can be, and whether it is a warning; in their order. The
    later ones go first, and warnings never."""
    kept = list(facts)
    shown = [fact.forms[-1] for fact in kept]

    def width() -> int:
        return sum(map(cells, shown)) + 3 * max(len(shown) - 1, 0)

    while width() > room and (minor := [at for at, fact in enumerate(kept) if not fact.warning]):
        del kept[minor[-1]], shown[minor[-1]]
    for at, fact in enumerate(kept):
        for form in fact.forms:
            short, shown[at] = shown[at], form
            if width() <= room:
                break
            shown[at] = short
    return [(text, fact.warning) for text, fact in zip(shown, kept, strict=True)]


class TopBar(Widget):
    """The open group: name, topic, who is connected, what is missing or that nothing is, who was verified, how it
    is protected, the checksum of its members."""

    info: reactive[GroupInfo | None] = reactive(None)
    apart: reactive[str] = reactive("")
    """The first letters of its id, where another group has the same name."""
    verified: reactive[tuple[int, int] | None] = reactive(None)
    """How many of the others were verified, and of how many; None: there are no others."""
    changed: reactive[int] = reactive(0)
    """How many are not whom the person verified under their names."""

    def render(self) -> Content:
        width = self.content_size.width
        if self.info is None:
            return Content("zerochat")
        facts = self._facts(self.info)
        warnings = fitting([fact for fact in facts if fact.warning], 0)
        reserved = max(sum(cells(text) + 3 for text, _ in warnings) + 2, 14)
        name = marked(name_of(self.info.name), self.apart, max(width - reserved, NAME_CELLS_MIN))
        topic = printable_line(self.info.topic)
        wanted = min(cells(topic), max(width // 3, TOPIC_CELLS_MIN)) + 2 if topic else 0
        said = fitting(facts, width - cells(name) - wanted - 2)
        parts: list[str | tuple[str, str]] = []
        for text, warning in said:
            parts += [
                (" · " if parts else "  ", "$text-muted"),
                (text, "bold $text-warning" if warning else "$text-muted"),
            ]
        left = width - cells(name) - sum(cells(part[0]) for part in parts) - 2
        shown = f"  {clip(topic, left)}" if topic and left > 1 else ""
        return Content.assemble((name, "bold"), shown, *parts)

    def _facts(self, info: GroupInfo) -> list[Fact]:
        """What there is to say, the most important first, warnings where they belong."""
        if info.state != "active":
            return [Fact(("put out" if info.removed_by else "you left" if info.state == "left" else info.state,))]
        columns, whole = self.outer_size.width, info.completeness
        facts = [Fact((group_rules.connected(info),))]
        if whole is not None and not whole.complete:
            count = sum(gap.missing for gap in whole.gaps)
            facts.append(Fact((f"{count} missing" if count else "members missing",), warning=True))
        if self.changed:
            one = "1 is not whom you verified" if self.changed == 1 else f"{self.changed} are not whom you verified"
            facts.append(Fact((f"! {one}", f"! {self.changed} changed"), warning=True))
        if info.log in LOGS:
            facts.append(Fact((LOGS[info.log],), warning=info.log != "unkept"))
        if info.role in RANKS:
            facts.append(Fact((RANKS[info.role],)))
        if whole is not None and whole.complete and whole.at:
            others = [one.nick for one in whole.members if one.present and not one.missing]
            at = clock_of(whole.at)
            long = [f"complete with {somebody(others)} as of {at}"] if others and columns >= DETAILS_FROM else []
            facts.append(Fact((*long, f"complete {at}")))
        if columns >= VERIFIED_FROM and self.verified is not None:
            facts.append(Fact((f"{self.verified[0]}/{self.verified[1]} verified",)))
        if columns >= DETAILS_FROM:
            kinds = ((KEYS, info.keys), (PATHS, info.path), (ACCOUNTS, info.accountability))
            facts.append(Fact((" · ".join(words.get(kind) or printable_line(kind, 20) for words, kind in kinds),)))
            facts.append(Fact((f"view {short_view(info)}",)))
        return facts


class Banner(Static):
    """What needs attention, in a sentence; takes no room while there is nothing."""

    def tell(self, sentence: Printable, *, trouble: bool) -> None:
        self.set_class(bool(sentence), "-shown")
        self.set_class(trouble, "-trouble")
        content = Content(sentence)
        if not content.is_same(self.content if isinstance(self.content, Content) else Content("")):
            self.update(content)  # which lays the whole screen out anew


class Notice(Banner):
    """Somebody waits for an answer; a click is one way to it."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.call_next(self.screen.run_action, "requests")


class StatusLine(Widget):
    """Who I am here, what waits elsewhere, and the keys that lead on."""

    HINTS = ("F1 help", "F2 members", "F3 invite", "^K switch", "^P palette", "^Q quit")

    hints: reactive[tuple[str, ...]] = reactive(HINTS)
    """What is hinted at, with the keys that the person has chosen."""
    keys: reactive[tuple[str, ...]] = reactive(())
    """What can be done with the message that is selected; the last one leads back, and is the last to go."""
    me: reactive[str] = reactive("")
    """A printable nick."""
    elsewhere: reactive[int] = reactive(0)
    activity: reactive[tuple[str, ...]] = reactive(())
    """Which other conversations have something unread, as `activity` has them; printable."""
    called: reactive[int] = reactive(0)
    """How many of what is unread elsewhere call me by name."""
    asking: reactive[int] = reactive(0)
    """How many wait to be let into other groups."""
    typing: reactive[str] = reactive("")
    """A printable sentence on who is writing here."""
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
        if self.keys:
            return Content.assemble(("Message  ", "bold"), "  ".join(fitting_hints(self.keys, width - 9)))
        left = f"[{clip(self.me, 20)}]" if self.me else ""
        if self.elsewhere:
            called = f"@{self.called}, " if self.called else ""
            left += f"  {called}{self.elsewhere} unread elsewhere{self._where(width - cells(left))} (Alt+A)"
        if self.asking:
            left += f"  ?{self.asking} to let in elsewhere" + ("" if self.elsewhere else " (Alt+A)")
        if self.joining:
            left += f"  {clip(self.joining, max(width - cells(left) - 10, 24))}"
        if self.typing:
            left += f"  {clip(self.typing, max(width - cells(left) - 10, 24))}"
        right = "  ".join(fitting_hints(self.hints, width - cells(left) - 2))
        gap = max(width - cells(left) - len(right), 1)
        return Content.assemble((left, "bold"), " " * gap, (right, "$text-muted"))

    def _where(self, room: int) -> str:
        """The conversations that something is unread in, as many as leave room for the rest."""
        shown: list[str] = []
        for one in self.activity:
            if cells(", ".join([*shown, one])) > room - WHERE_CELLS:
                return f": {', '.join(shown)}, …" if shown else ""
            shown.append(one)
        return f": {', '.join(shown)}" if shown else ""


def fitting_hints(hints: Sequence[str], room: int) -> list[str]:
    """As many as there is room for; the last one stays the longest."""
    kept = list(hints)
    while kept and cells("  ".join(kept)) > room:
        kept.pop(-2 if len(kept) > 1 else -1)
    return kept


def activity(conversations: Conversations) -> tuple[str, ...]:
    """As in "2 work 14", "4 hikers @1 3": what is unread in the conversations that are not open, mentions first."""
    found = [
        (not each.mentions, number, each)
        for number, (id, each) in enumerate(conversations.by_id.items(), 1)
        if each.unread and id != conversations.open_id
    ]
    shown = []
    for _, number, each in sorted(found, key=lambda one: one[:2]):
        digit = f"{number} " if number <= NUMBERED else ""
        called = f"@{each.mentions} " if each.mentions else ""
        shown.append(f"{digit}{each.labelled(WHERE_NAME_CELLS)} {called}{each.unread}")
    return tuple(shown)
