"""The member dialog: safety words, facts, and keys for the permitted actions."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from zerochat.presentation import group_rules, mediation
from zerochat.rpc import AnnouncedCommand, GroupInfo, MemberInfo
from zerochat.terminal_text import printable_line
from zerochat.tui.dialogs.dialog import Dialog, HangingText, rows
from zerochat.tui.dialogs.help import key_text
from zerochat.tui.dialogs.requests import word_lines
from zerochat.tui.style.text import CONVICTED, Names, age_of, clock_text, name_of

INSTRUCTIONS = "Read all eight words to each other on a call."
USAGE_CELLS_MAX, ROLE_CELLS_MAX = 48, 16
TRUST = {
    "verified": "yes",
    "unverified": "no",
    "changed": "KEY CHANGED: you verified another key under this name",
}
HINTS = {
    "member.type": "words",
    "member.sight": "verify",
    "member.unmark": "unverify",
    "member.reader": "reader",
    "member.writer": "writer",
    "member.admin": "admin",
    "member.owner": "owner",
    "member.dismiss": "dismiss",
    "member.remove": "remove",
}
"""The actions in short, by action id: all that can apply at once fit into one line of 72 cells."""
ROLES = {
    "reader": "reader, cannot post",
    "writer": "writer",
    "admin": "admin",
    "owner": "owner",
}


class MemberDialog(Dialog[None]):
    """`now` returns the current member, None after it left; `act` runs an action; `doubt` returns a warning about its
    name, or empty."""

    BINDING_GROUP_TITLE = "Member dialog"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "act('type')", "Type the words that the member sees", id="member.type"),
        Binding("V", "act('sight')", "Mark as verified", id="member.sight"),
        Binding("u", "act('unmark')", "Remove the verification", id="member.unmark"),
        Binding("r", "act('reader')", "Make a reader", id="member.reader"),
        Binding("w", "act('writer')", "Make a writer", id="member.writer"),
        Binding("a", "act('admin')", "Make an admin", id="member.admin"),
        Binding("o", "act('owner')", "Hand over the group", id="member.owner"),
        Binding("d", "act('dismiss')", "Dismiss the warning", id="member.dismiss"),
        Binding("x", "act('remove')", "Remove, or vote to remove", id="member.remove"),
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
        name_warning: Callable[[], str] = str,
    ) -> None:
        super().__init__()
        self._names = names
        self._name_warning = name_warning
        self._now = now
        self._group = group
        self._act = act
        self._words: Sequence[str] | None = None
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._title = Static(classes="title")
        self._body = HangingText(classes="body")
        self._keys = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self._title
            with VerticalScroll():
                yield self._body
            yield self._keys

    def on_mount(self) -> None:
        self.refresh_content()

    def set_words(self, words: Sequence[str]) -> None:
        self._words = words
        self.refresh_content()

    def refresh_content(self) -> None:
        """Draw the current member."""
        member = self._now()
        if member is None:
            self._body.update(Content("No longer a member of this group."))
            self._keys.update(Content("Esc closes"))
            return
        self._title.update(Content(self._names.label(member.did)))
        parts = [self._comparison(), Content("")] if member.connection != "self" else []
        entries = facts(member, self._group(), self._names)
        if name_warning := self._name_warning():
            entries.insert(0, ("≈ name", f"{name_warning}: compare the end of the key"))
        self._body.update(Content("\n").join([*parts, rows(entries, 12)]))
        keys = [f"{key_text(each.key)} {HINTS[str(each.id)]}" for each in self._possible(member)]
        self._keys.update(Content("  ".join([*keys, "Esc closes"])))

    def _comparison(self) -> Content:
        lines: Sequence[str] = ["…", ""] if self._words is None else word_lines(list(self._words))
        return Content("\n").join([*(Content.styled(line, "bold") for line in lines), Content(INSTRUCTIONS)])

    def _possible(self, member: MemberInfo) -> list[Binding]:
        """The bindings that apply to this member now."""
        return [each for each in self.BINDINGS if isinstance(each, Binding) and self._applies(each.action, member)]

    def _applies(self, action: str, member: MemberInfo) -> bool:
        group = self._group()
        if action == "act('dismiss')":
            about = any(warning.member == member.did for warning in group.warnings)
            return about or (member.disputed and any(not warning.member for warning in group.warnings))
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
    """Whether an action applies to this member; `within`: whether we are a member of the group."""
    if not action.startswith("act("):
        return False
    what = action.removeprefix("act('").removesuffix("')")
    if what in ("type", "sight"):
        return within and member.connection != "self" and member.trust != "verified"
    if what == "unmark":
        return member.trust == "verified"
    return what in member.allowed_actions


def _bot_command(command: AnnouncedCommand) -> str:
    """Usage and help of a bot command."""
    usage = printable_line(f"!{command.name} {command.usage}".rstrip(), USAGE_CELLS_MAX)
    role = f" (for {printable_line(command.role, ROLE_CELLS_MAX)})" if command.role else ""
    return f"{usage}{role}" + (f": {printable_line(command.help)}" if command.help else "")


def facts(member: MemberInfo, group: GroupInfo, names: Names) -> list[tuple[str, str]]:
    agrees = {True: "same as yours", False: "different from yours", None: "not received yet"}[member.view_matches]
    mine = member.connection == "self"
    connection: str = member.connection
    if member.via == "mediator":  # the mediator stores messages whether the member is online or not
        connection = "via a mediator" if member.connection == "connected" else f"{member.connection}, via a mediator"
    if member.nearby:
        connection += ", nearby: on a network of this machine"
    if member.connection == "indirect":
        connection = "none; its messages come over other members"
    if member.no_mediator:
        connection = f"unreachable: {mediation.NO_MEDIATOR}"
    vote = next((entry for entry in group.votes if entry.did == member.did), None)
    found = [("verified", TRUST.get(member.trust, "no"))] if not mine else []
    if member.forked:
        found.append(("histories", "signed TWO: compare with other members over another channel"))
    if conviction := group_rules.conviction(member):
        found.append((f"{CONVICTED} convicted", f"{conviction} (proven by its own signatures and the group's log)"))
    if not member.arrived:
        out = "; x removes it" if "remove" in member.allowed_actions else ""
        found.append(("arrived", f"NEVER, since you admitted it{out}"))
    found.append(("role", ROLES.get(member.role, name_of(member.role))))
    if vote is not None:
        mine_too = ", including yours" if vote.voted else ""
        found.append(("removal", f"{group_rules.vote_count(vote)}{mine_too}"))
    return [
        *found,
        *([("connection", "you" if mine else connection)] if group.state != "left" else []),
        ("last seen", f"{clock_text(member.last_seen)}, {age_of(member.last_seen)}" if member.last_seen else "-"),
        *([("member list", agrees)] if group.state != "left" else []),
        ("joined", clock_text(member.joined_at)),
        ("admitted by", names.label(member.added_by) if member.added_by else "-"),
        *([("history", "keeps it for new members")] if member.keeps_history else []),
        ("bot", "yes (self-declared)" if member.bot else "no"),
        *(("commands" if at == 0 else "", _bot_command(command)) for at, command in enumerate(member.commands)),
        ("key", printable_line(member.did)),
    ]
