"""Top bar, banners and status line."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len as cells
from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from zerochat.presentation import group_kinds, group_rules, keep_rules, private
from zerochat.rpc import GroupInfo
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.state.conversations import Conversations
from zerochat.tui.state.hints import names_text
from zerochat.tui.style.text import clip, clock_of, name_of, titled, with_suffix

FLASH_S = 6.0
"""Display time of a brief message."""
CHECKSUM_CHARS = 8
"""Characters of the view's checksum, enough to compare by eye or voice."""

TOPIC_CELLS_MIN = 16
"""Width reserved for the topic."""
DETAILS_FROM = 100
"""Minimum columns for the group's modes in the top bar."""
VERIFIED_FROM = 80
"""Minimum columns for the number of verified members; warnings are shown at any width."""
NAME_CELLS_MIN = 8
"""Minimum width of a group's name."""
LOGS = {"unkept": "not accountable yet", "stalled": "log stalled", "split": "conflicting logs"}
"""Short texts of the states of a transparency log."""

WHERE_CELLS = 60
"""Width that the rest of the status line needs beside the names of unread conversations."""
WHERE_NAME_CELLS, NUMBERED = 12, 9
"""Width of such a name; number of conversations with an Alt+digit key."""

RANKS = {"reader": "read-only", "admin": "you are an admin", "owner": "you are the owner"}
"""Texts of my own role; writer is the default and not shown."""


def short_view(info: GroupInfo) -> Printable:
    return Printable(printable_line(info.view, CHECKSUM_CHARS + 1)[:CHECKSUM_CHARS])


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact in the top bar: `forms`, longest first. A `warning` is always shown."""

    forms: tuple[str, ...]
    warning: bool = False


def fitting(facts: Sequence[Fact], room: int) -> list[tuple[str, bool]]:
    """(text, is warning) of the facts that fit, each in its longest form. Later facts are dropped first, warnings
    never."""
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
    """The open group: name, topic, connections, completeness, verification, modes, view checksum."""

    info: reactive[GroupInfo | None] = reactive(None)
    disambiguator: reactive[str] = reactive("")
    """First letters of the id, where another group has the same name."""
    verified: reactive[tuple[int, int] | None] = reactive(None)
    """(verified, total) of the other members; None: there are none."""
    changed: reactive[int] = reactive(0)
    """Number of members whose key differs from the verified one."""

    def render(self) -> Content:
        width = self.content_size.width
        if self.info is None:
            return Content("zerochat")
        facts = self._facts(self.info)
        warnings = fitting([fact for fact in facts if fact.warning], 0)
        reserved = max(sum(cells(text) + 3 for text, _ in warnings) + 2, 14)
        name = with_suffix(titled(self.info), self.disambiguator, max(width - reserved, NAME_CELLS_MIN))
        topic = printable_line(self.info.topic)
        wanted = min(cells(topic), max(width // 3, TOPIC_CELLS_MIN)) + 2 if topic else 0
        fitted = fitting(facts, width - cells(name) - wanted - 2)
        parts: list[str | tuple[str, str]] = []
        for text, warning in fitted:
            parts += [
                (" · " if parts else "  ", "$text-muted"),
                (text, "bold $text-warning" if warning else "$text-muted"),
            ]
        left = width - cells(name) - sum(cells(part[0]) for part in parts) - 2
        shown = f"  {clip(topic, left)}" if topic and left > 1 else ""
        return Content.assemble((name, "bold"), shown, *parts)

    def _facts(self, info: GroupInfo) -> list[Fact]:
        """The facts about the group, most important first."""
        if info.state != "active":
            return [
                Fact(("you were removed" if info.removed_by else "you left" if info.state == "left" else info.state,))
            ]
        columns, whole = self.outer_size.width, info.completeness
        waits = info.private is not None and info.private.state != "joined"
        facts = [Fact((private.state_text(info, name_of) if waits else group_rules.connected(info),))]
        if whole is not None and not whole.complete:
            count = sum(gap.missing for gap in whole.gaps)
            short = f"{count} missing" if count else "members missing"
            held = any(gap.state == "held" for gap in whole.gaps)
            facts.append(Fact((*([f"{short} (daily quota)"] if held else []), short), warning=True))
        if self.changed:
            entry = "1 key changed" if self.changed == 1 else f"{self.changed} keys changed"
            facts.append(Fact((f"! {entry}", f"! {self.changed} changed"), warning=True))
        if info.keep:
            text = keep_rules.short_text(info)
            facts.append(Fact((f"messages {text}", text)))
        if info.tlog in LOGS:
            facts.append(Fact((LOGS[info.tlog],), warning=info.tlog != "unkept"))
        if info.role in RANKS:
            facts.append(Fact((RANKS[info.role],)))
        if whole is not None and whole.complete and whole.at:
            others = [member.nick for member in whole.members if member.present and not member.missing]
            at, with_ = clock_of(whole.at), names_text(others, whole.current)
            long = [f"complete with {with_} as of {at}"] if with_ and columns >= DETAILS_FROM else []
            facts.append(Fact((*long, f"complete {at}")))
        if columns >= VERIFIED_FROM and self.verified is not None:
            facts.append(Fact((f"{self.verified[0]}/{self.verified[1]} verified",)))
        if columns >= DETAILS_FROM:
            facts.append(Fact((" · ".join(printable_line(text, 30) for text in group_kinds.short_texts(info)),)))
            facts.append(Fact((f"view {short_view(info)}",)))
        return facts


class Banner(Static):
    """A one-sentence bar, hidden while empty."""

    def show_text(self, sentence: Printable, *, trouble: bool) -> None:
        self.set_class(bool(sentence), "-shown")
        self.set_class(trouble, "-trouble")
        content = Content(sentence)
        if not content.is_same(self.content if isinstance(self.content, Content) else Content("")):
            self.update(content)  # triggers a layout of the whole screen


class JoinRequestNotice(Banner):
    """The notice about join requests; a click opens them."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.call_next(self.screen.run_action, "requests")


class StatusLine(Widget):
    """My name, unread messages elsewhere, and key hints; or a brief message."""

    HINTS = ("F1 help", "F2 members", "F3 invite", "^K switch", "^P palette", "^Q quit")

    hints: reactive[tuple[str, ...]] = reactive(HINTS)
    """Key hints with the user's keys."""
    unread_key: reactive[str] = reactive("Alt+A")
    """The key that leads to unread messages elsewhere."""
    keys: reactive[tuple[str, ...]] = reactive(())
    """Key hints of the selected message; the last one leads back and is dropped last."""
    me: reactive[str] = reactive("")
    """My printable name in the open group."""
    mode: reactive[str] = reactive("")
    """The mode of the composer; empty: there is only one."""
    elsewhere: reactive[int] = reactive(0)
    activity: reactive[tuple[str, ...]] = reactive(())
    """Other conversations with unread messages, from `activity`."""
    mentions: reactive[int] = reactive(0)
    """Unread mentions elsewhere."""
    join_requests: reactive[int] = reactive(0)
    """Join requests for other groups."""
    invitations: reactive[int] = reactive(0)
    """Private invitations by members of other groups."""
    typing: reactive[str] = reactive("")
    """Who is typing, a printable sentence."""
    joining: reactive[str] = reactive("")
    """The running join, a printable sentence."""
    flash: reactive[str] = reactive("")
    """A brief message, a printable sentence."""
    trouble: reactive[bool] = reactive(False)
    """Whether the brief message is an error."""

    def fit_flash(self) -> None:
        """Take as many lines as the brief message needs: it covers nothing."""
        width = self.content_size.width
        self.set_class("\n" in self.flash or 0 < width < cells(self._lead) + cells(self.flash), "-tall")

    @property
    def _lead(self) -> str:
        """The mode of the composer, which stands before everything else."""
        return f"{self.mode} " if self.mode else ""

    def watch_mode(self) -> None:
        self.fit_flash()

    def on_resize(self) -> None:
        self.fit_flash()

    def render(self) -> Content:
        width = self.content_size.width
        if self.flash:
            text = self.flash if self.has_class("-tall") else clip(self.flash, width - cells(self._lead))
            return Content.assemble((self._lead, "bold"), (text, "$text-error" if self.trouble else "$text-accent"))
        if self.keys:
            return Content.assemble(("Message  ", "bold"), "  ".join(fitting_hints(self.keys, width - 9)))
        left = self._lead + (f"[{clip(self.me, 20)}]" if self.me else "")
        if self.elsewhere or self.mentions:
            called = f"@{self.mentions}, " if self.mentions else ""
            left += f"  {called}{self.elsewhere} unread elsewhere{self._where(width - cells(left))} ({self.unread_key})"
        if self.join_requests:
            plural = "s" * (self.join_requests != 1)
            way = "" if self.elsewhere else f" ({self.unread_key})"
            left += f"  ?{self.join_requests} join request{plural} elsewhere{way}"
        if self.invitations:
            plural = "s" * (self.invitations != 1)
            way = "" if self.elsewhere or self.join_requests else f" ({self.unread_key})"
            left += f"  ?{self.invitations} private invitation{plural} elsewhere{way}"
        if self.joining:
            left += f"  {clip(self.joining, max(width - cells(left) - 10, 24))}"
        if self.typing:
            left += f"  {clip(self.typing, max(width - cells(left) - 10, 24))}"
        right = "  ".join(fitting_hints(self.hints, width - cells(left) - 2))
        gap = max(width - cells(left) - len(right), 1)
        return Content.assemble((left, "bold"), " " * gap, (right, "$text-muted"))

    def _where(self, room: int) -> str:
        """The names of unread conversations that fit."""
        shown: list[str] = []
        for name in self.activity:
            if cells(", ".join([*shown, name])) > room - WHERE_CELLS:
                return f": {', '.join(shown)}, …" if shown else ""
            shown.append(name)
        return f": {', '.join(shown)}" if shown else ""


def fitting_hints(hints: Sequence[str], room: int) -> list[str]:
    """The hints that fit; the last one is dropped last."""
    kept = list(hints)
    while kept and cells("  ".join(kept)) > room:
        kept.pop(-2 if len(kept) > 1 else -1)
    return kept


def activity(conversations: Conversations) -> tuple[str, ...]:
    """As in "2 work 14", "4 hikers @1 3": unread messages of the other conversations, those with mentions first."""
    found = [
        (not each.mentions, number, each)
        for number, (id, each) in enumerate(conversations.by_id.items(), 1)
        if (each.unread or each.mentions) and id != conversations.open_id
    ]
    shown = []
    for _, number, each in sorted(found, key=lambda entry: entry[:2]):
        digit = f"{number} " if number <= NUMBERED else ""
        called = f"@{each.mentions} " if each.mentions else ""
        shown.append(f"{digit}{each.labelled(WHERE_NAME_CELLS)} {called}{each.unread}")
    return tuple(shown)
