"""The sheet about one member: the words to compare first, then the facts, and a key for whatever can be done."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from zerochat.presentation import group_rules
from zerochat.rpc import AnnouncedCommand, GroupInfo, MemberInfo
from zerochat.terminal_text import printable_line
from zerochat.tui.dialogs.dialog import Body, rows
from zerochat.tui.dialogs.help import key_text
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.dialogs.requests import in_lines
from zerochat.tui.style.text import CONVICTED, Names, age_of, clock_text, name_of

HOW = "Read them to each other, all eight, on a call."
USAGE_CELLS_MAX, ROLE_CELLS_MAX = 48, 16
TRUST = {
    "verified": "yes",
    "unverified": "no",
    "changed": "CHANGED: you verified somebody else so named",
}
ROLES = {
    "reader": "reads only",
    "writer": "reads and writes",
    "admin": "admin",
    "owner": "owner, who founded the group",
}


class MemberScreen(Over[None]):
    """`now` answers the member as it is, None when it has gone; `act` does what a key stands for. `doubt` answers what
    is wrong with its name, empty: nothing."""

    BINDING_GROUP_TITLE = "Sheet of a member"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "act('type')", "Type the words that they read to you", id="member.type"),
        Binding("V", "act('sight')", "Mark as compared on sight", id="member.sight"),
        Binding("u", "act('unmark')", "Take the mark back", id="member.unmark"),
        Binding("r", "act('reader')", "Let only read", id="member.reader"),
        Binding("w", "act('writer')", "Let write", id="member.writer"),
        Binding("a", "act('admin')", "Make an admin", id="member.admin"),
        Binding("d", "act('dismiss')", "Dismiss the warning about it", id="member.dismiss"),
        Binding("x", "act('remove')", "Put out, or vote for it", id="member.remove"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="member.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="member.down"),
        Binding("escape,q,enter", "close", "Close", id="member.close"),
    ]

    def __init__(
        self,
        names: Names,
        now: Callable[[], MemberInfo | None],
        group: Callable[[], GroupInfo],
        act: Callable[[str], None],
        doubt: Callable[[], str] = str,
    ) -> None:
        super().__init__()
        self._names = names
        self._doubt = doubt
        self._now = now
        self._group = group
        self._act = act
        self._words: Sequence[str] | None = None
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._title = Static(classes="title")
        self._body = Body(classes="body")
        self._keys = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield self._title
            with VerticalScroll():
                yield self._body
            yield self._keys

    def on_mount(self) -> None:
        self.renew()

    def take_words(self, words: Sequence[str]) -> None:
        self._words = words
        self.renew()

    def renew(self) -> None:
        """Show the member as it is now."""
        member = self._now()
        if member is None:
            self._body.update(Content("No longer a member of this group."))
            self._keys.update(Content("Esc closes"))
            return
        self._title.update(Content(self._names.label(member.did)))
        parts = [self._comparison(), Content("")] if member.connection != "self" else []
        told = facts(member, self._group(), self._names)
        if doubt := self._doubt():
            told.insert(0, ("≈ name", f"{doubt}: compare the end of the key"))
        self._body.update(Content("\n").join([*parts, rows(told, 12)]))
        keys = [f"{key_text(each.key)} {each.description.lower()}" for each in self._possible(member)]
        self._keys.update(Content("   ".join([*keys, "Esc close"])))

    def _comparison(self) -> Content:
        lines: Sequence[str] = ["…", ""] if self._words is None else in_lines(list(self._words))
        return Content("\n").join([*(Content.styled(line, "bold") for line in lines), Content(HOW)])

    def _possible(self, member: MemberInfo) -> list[Binding]:
        """The bindings that do something to this member now."""
        return [each for each in self.BINDINGS if isinstance(each, Binding) and self._applies(each.action, member)]

    def _applies(self, action: str, member: MemberInfo) -> bool:
        group = self._group()
        if action == "act('dismiss')":
            about = any(one.member == member.did for one in group.disagreements)
            return about or (member.disputed and any(not one.member for one in group.disagreements))
        return _applies(action, member, group.state != "left")

    def action_act(self, what: str) -> None:
        member = self._now()
        if member is not None and self._applies(f"act('{what}')", member):
            self._act(what)

    def action_move(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)

    def action_close(self) -> None:
        self.dismiss(None)


def _applies(action: str, member: MemberInfo, within: bool) -> bool:
    """Whether a key does something to this member now; `within`: whether we are in the group."""
    if not action.startswith("act("):
        return False
    what = action.removeprefix("act('").removesuffix("')")
    if what in ("type", "sight"):
        return within and member.connection != "self" and member.trust != "verified"
    if what == "unmark":
        return member.trust == "verified"
    return what in member.may


def _asked(one: AnnouncedCommand) -> str:
    """A command of a bot with what it does."""
    usage = printable_line(f"!{one.name} {one.usage}".rstrip(), USAGE_CELLS_MAX)
    role = f" (for {printable_line(one.role, ROLE_CELLS_MAX)})" if one.role else ""
    return f"{usage}{role}" + (f": {printable_line(one.help)}" if one.help else "")


def facts(member: MemberInfo, group: GroupInfo, names: Names) -> list[tuple[str, str]]:
    agrees = {True: "the same as mine", False: "different from mine", None: "not heard yet"}[member.view_agrees]
    mine = member.connection == "self"
    connection: str = member.connection
    if member.via == "mediator":  # which takes in what is for it, whether it is there or not
        connection = "over a mediator" if member.connection == "connected" else f"{member.connection}, over a mediator"
    vote = next((one for one in group.votes if one.did == member.did), None)
    found = [("verified", TRUST.get(member.trust, "no"))] if not mine else []
    if member.forked:
        found.append(("histories", "has signed TWO: ask the others, by other means, what they see"))
    if said := group_rules.guilt(member):
        found.append((f"{CONVICTED} convicted", f"{said}: by its own signatures, and the group's log"))
    if not member.arrived:
        out = "; x puts it out" if "remove" in member.may else ""
        found.append(("arrived", f"NEVER, since you have let it in{out}"))
    found.append(("role", ROLES.get(member.role, name_of(member.role))))
    if vote is not None:
        mine_too = ", one is yours" if vote.mine else ""
        found.append(("out", f"{group_rules.counted(vote)} for putting it out{mine_too}"))
    return [
        *found,
        *([("connection", "you" if mine else connection)] if group.state != "left" else []),
        ("last heard", f"{clock_text(member.last_heard)}, {age_of(member.last_heard)}" if member.last_heard else "-"),
        *([("its members", agrees)] if group.state != "left" else []),
        ("joined", clock_text(member.joined_at)),
        ("let in by", names.label(member.added_by) if member.added_by else "-"),
        *([("history", "keeps it for newcomers")] if member.keeper else []),
        ("bot", "yes, it says" if member.bot else "no"),
        *(("listens to" if at == 0 else "", _asked(one)) for at, one in enumerate(member.commands)),
        ("key", printable_line(member.did)),
    ]
