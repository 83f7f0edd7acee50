"""The dialog that creates a group: its name, and, behind "More…", its permanent rules."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static

from zerochat.presentation import group_kinds, group_rules, keep_rules
from zerochat.presentation.history_rules import rule_text
from zerochat.rpc import CreateGroupParams, PolicyInfo
from zerochat.terminal_text import Printable, printable
from zerochat.tui.composer.composer import LineInput
from zerochat.tui.dialogs.choice import Choice
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.state.agent_link import AgentError

QUORUMS = (2, 3, 5)
HISTORIES = ("all", "last:50", "last:500", "none")
KEEPERS = ("0", "3", "5", "10")
OTHER = "other"
"""The choice of a retention that the user types."""
RULES_HINT = (
    "These rules stay for good. Only older keys can be upgraded later (/upgrade), and each member can keep messages"
    " for a shorter time (/keep). Use the arrow keys:"
)
KEEPS = (keep_rules.FOREVER, "1d", "1w", "30d", "365d", OTHER)


def history_text(rule: str) -> str:
    """The display text of a history rule."""
    return rule_text(rule).partition(",")[0]


def keepers_text(count: str) -> str:
    """The display text of the number of history keepers."""
    return "all members" if count == "0" else f"the {count} longest-standing members"


def keep_text(rule: str) -> str:
    """The display text of a retention rule."""
    if rule == OTHER:
        return "messages disappear after another time, typed below"
    return keep_rules.policy_text(keep_rules.read_keep(rule)).partition(", ")[0]


class CreateDialog(Dialog[None]):
    """`create` calls the agent while the dialog is open, and its error is shown inside. `answer` is filled in and
    submitted at once, with the rules of `kind`."""

    BINDING_GROUP_TITLE = "Creating a group"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f7", "more", "More: joining, posting, removal, kind, history, retention", id="create.more"),
        Binding("escape", "close", "Close", id="create.close"),
    ]

    def __init__(
        self, create: Callable[[CreateGroupParams], Awaitable[None]], answer: Printable, kind: str = group_kinds.DEFAULT
    ) -> None:
        super().__init__()
        self._create = create
        self._answer = answer
        self._busy = False
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._group_name = LineInput(answer, compact=True, id="answer", select_on_focus=False)
        self._join = Choice("joining", group_rules.JOIN_RULES, lambda value: self._rule(0, join=value), id="rule-join")
        self._roles = Choice(
            "posting", group_rules.ROLE_RULES, lambda value: self._rule(2, roles=value), id="rule-roles"
        )
        self._remove = Choice(
            "removal", self._removal_rules(), lambda value: self._rule(1, remove=value), id="rule-remove"
        )
        self._agreement = Choice(
            "conflicts", group_rules.AGREEMENT_RULES, lambda value: self._rule(3, agreement=value), id="rule-agreement"
        )
        self._kind = Choice(
            "kind", tuple(group_kinds.BY_NAME), lambda value: group_kinds.BY_NAME[value].choice, id="rule-kind"
        )
        self._kind.set_reactive(Choice.at, tuple(group_kinds.BY_NAME).index(kind))
        self._kind_about = Static(Content(group_kinds.BY_NAME[kind].sentences), id="kind-description")
        self._history = Choice("history", HISTORIES, history_text, id="rule-history")
        self._keepers = Choice("kept by", KEEPERS, keepers_text, id="rule-keepers")
        self._keep = Choice("retention", KEEPS, keep_text, id="rule-keep")
        self._keep_typed = LineInput(placeholder="such as 12h, 30d or 4w", compact=True, id="keep-typed")
        self._more = Button(Content("More…"), id="more", compact=True)
        self._error_text = Static(id="error-text")
        self._hint = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content("Name of the new group"), classes="title")
            yield self._group_name
            yield self._more
            with VerticalScroll(id="rules", can_focus=False):
                yield Static(Content(RULES_HINT), classes="hint")
                yield from (self._join, self._roles, self._remove, self._agreement, self._kind, self._kind_about)
                yield from (self._history, self._keepers, self._keep, self._keep_typed)
            yield self._error_text
            yield self._hint

    def on_mount(self) -> None:
        self.query_one("#rules").display = self._keep_typed.display = False
        self._hint.update(Content("Enter creates the group, F7 shows or hides the rules, Esc cancels."))
        self._group_name.focus()
        if self._answer:
            self._take()

    # --- the rules -------------------------------------------------------------------------------------------------

    def _removal_rules(self) -> list[str]:
        """The removal rules that fit the roles, the default first."""
        quorums = [f"quorum {number}" for number in QUORUMS]
        return [*quorums, "anyone"] if self._roles.value == "flat" else ["admins", *quorums, "anyone"]

    def _policy(self, **other: str) -> PolicyInfo:
        """The selected rules without the retention, with some replaced by `other`."""
        remove, _, quorum = other.get("remove", self._remove.value).partition(" ")
        roles = other.get("roles", self._roles.value)
        return group_rules.completed_policy(
            join=other.get("join", self._join.value),
            remove=None if remove == "admins" and roles == "flat" else remove,
            quorum=int(quorum) if quorum else None,
            roles=roles,
            agreement=other.get("agreement", self._agreement.value),
            history=self._history.value,
            keepers=int(self._keepers.value),
        )

    def _rule(self, number: int, **other: str) -> str:
        """The text of one rule in the context of the others."""
        return group_rules.policy_sentences(self._policy(**other))[number]

    @on(Choice.Changed)
    def _changed(self) -> None:
        self._remove.set_values(self._removal_rules())
        self._kind_about.update(Content(group_kinds.BY_NAME[self._kind.value].sentences))
        self._keep_typed.display = is_typed = self._keep.value == OTHER
        if is_typed:
            self._keep_typed.call_after_refresh(self._keep_typed.scroll_visible, animate=False)
        self._error_text.update(Content(""))

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        self.action_more()

    def action_more(self) -> None:
        rules = self.query_one("#rules")
        rules.display = not rules.display
        self._more.label = Content("Less" if rules.display else "More…")
        (self._join if rules.display else self._group_name).focus()

    # --- creating --------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Enter creates the group from any line; the arrow key leaves the last one, which is typed."""
        if event.key == "enter" and isinstance(self.focused, Choice):
            event.stop()
            self._take()
        elif event.key == "up" and self.focused is self._keep_typed:
            event.stop()
            self._keep.focus()

    @on(Input.Changed)
    def _typed(self) -> None:
        """Clear the error of the previous input."""
        self._error_text.update(Content(""))

    @on(Input.Submitted)
    def _submit(self) -> None:
        self._take()

    def _take(self) -> None:
        name = self._group_name.value.strip()
        if not name:
            if self.query_one("#rules").display:
                self._group_name.focus()
            else:
                self.dismiss(None)
        elif not self._busy and (keep_ms := self._keep_ms()) is not None:
            self._busy = True
            self._error_text.update(Content(""))
            self.run_worker(self._do(name, keep_ms))

    def _keep_ms(self) -> int | None:
        """The retention, ms; None: what was typed is none, which the dialog says."""
        is_typed = self._keep.value == OTHER
        try:
            return keep_rules.read_keep(self._keep_typed.value.strip() if is_typed else self._keep.value)
        except keep_rules.BadKeep as error:
            self._error_text.update(Content(printable(error.sentence())))
            self._keep_typed.focus()
            return None

    async def _do(self, name: str, keep_ms: int) -> None:
        policy, kind = self._policy(), group_kinds.BY_NAME[self._kind.value]
        params = CreateGroupParams(
            name,
            keys=kind.keys,
            path=kind.path,
            accountability=kind.accountability,
            join=policy.join,
            remove=policy.remove,
            quorum=policy.quorum or None,
            roles=policy.roles,
            agreement=policy.agreement,
            history=policy.history,
            keepers=policy.keepers,
            keep=keep_ms,
        )
        try:
            await self._create(params)
        except AgentError as error:
            self._busy = False
            self._error_text.update(Content(printable(str(error))))
            return
        self.dismiss(None)

    def action_close(self) -> None:
        self.dismiss(None)
