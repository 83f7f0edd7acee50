"""The dialog that creates a group: a name and Enter; behind "More…", the rules that it will have for good."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Button, Input, Static

from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import given
from zerochat.rpc import NewParams, PolicyInfo
from zerochat.terminal_text import Printable, printable
from zerochat.tui.composer.composer import LineInput
from zerochat.tui.dialogs.choice import Choice
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.state.agent_link import AgentError

KEYS = {
    "pairwise-multi": "an envelope for each member",
    "pairwise-single": "one envelope for all; its size tells how many",
    "sender-key": "one envelope for all, signed by who says it",
    "accountable": "signed, with a log that members witness",
}
KEYS_ABOUT = {
    "pairwise-multi": "Each message is sealed for every member by itself: whoever watches sees one envelope for each.",
    "pairwise-single": "Each message is sealed once for all, with a key that each gets for itself: cheaper to send.",
    "sender-key": (
        "Each message is sealed and signed once for all. Any member can show what you say to anybody, for good: you"
        " cannot deny it. In the others no message is signed by itself."
    ),
    "accountable": (
        "As before, and what is not acknowledged in time stands in a log that members witness, so that it can be shown"
        " who has withheld what. It takes three members. You cannot deny what you say."
    ),
}
"""A sentence on each, for whoever has to choose."""
QUORUMS = (2, 3, 5)
HISTORIES = ("all", "last:50", "last:500", "none")
KEEPERS = ("0", "3", "5", "10")


def history(rule: str) -> str:
    """What newcomers get of what was said before, in a line."""
    return f"get {given(rule)}".partition(",")[0]


def keepers(count: str) -> str:
    """How many keep the history, in words."""
    return "everybody" if count == "0" else f"the {count} who have been here longest"


class CreateScreen(Over[None]):
    """`create` asks the agent, while the sheet is still open: what is refused is said inside it. `answer` is put in,
    and done, at once."""

    BINDING_GROUP_TITLE = "Creating a group"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f7", "more", "More: who joins, who puts out, roles, keys", id="create.more"),
        Binding("escape", "close", "Close", id="create.close"),
    ]

    def __init__(self, create: Callable[[NewParams], Awaitable[None]], answer: Printable) -> None:
        super().__init__()
        self._create = create
        self._answer = answer
        self._busy = False
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._group_name = LineInput(answer, compact=True, id="answer", select_on_focus=False)
        self._join = Choice("joining", group_rules.JOIN_RULES, lambda value: self._rule(0, join=value), id="rule-join")
        self._roles = Choice(
            "writing", group_rules.ROLE_RULES, lambda value: self._rule(2, roles=value), id="rule-roles"
        )
        self._remove = Choice(
            "putting out", self._ways_out(), lambda value: self._rule(1, remove=value), id="rule-remove"
        )
        self._agreement = Choice(
            "doubts", group_rules.AGREEMENT_RULES, lambda value: self._rule(3, agreement=value), id="rule-agreement"
        )
        self._keys = Choice(
            "keys", (*group_rules.KEYS, "accountable"), lambda value: KEYS.get(value, value), id="rule-keys"
        )
        self._keys_about = Static(Content(KEYS_ABOUT[group_rules.KEYS[0]]), id="keys-about")
        self._history = Choice("newcomers", HISTORIES, history, id="rule-history")
        self._keepers = Choice("kept by", KEEPERS, keepers, id="rule-keepers")
        self._more = Button(Content("More…"), id="more", compact=True)
        self._said = Static(id="ask-said")
        self._hint = Static(classes="hint")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content("Name of the new group"), classes="title")
            yield self._group_name
            yield self._more
            with Vertical(id="rules"):
                yield Static(Content("For good. Arrows choose:"), classes="hint")
                yield from (self._join, self._roles, self._remove, self._agreement, self._keys, self._keys_about)
                yield from (self._history, self._keepers)
            yield self._said
            yield self._hint

    def on_mount(self) -> None:
        self.query_one("#rules").display = False
        self._hint.update(Content("Enter creates it, F7 shows or hides the rules, Esc closes."))
        self._group_name.focus()
        if self._answer:
            self._take()

    # --- the rules -------------------------------------------------------------------------------------------------

    def _ways_out(self) -> list[str]:
        """Who may put somebody out, the usual way first; a quorum with its number."""
        quorums = [f"quorum {number}" for number in QUORUMS]
        return [*quorums, "anyone"] if self._roles.value == "flat" else ["admins", *quorums, "anyone"]

    def _policy(self, **other: str) -> PolicyInfo:
        """The rules as they are chosen; `other` in the place of some."""
        remove, _, quorum = other.get("remove", self._remove.value).partition(" ")
        roles = other.get("roles", self._roles.value)
        return group_rules.settled(
            join=other.get("join", self._join.value),
            remove=None if remove == "admins" and roles == "flat" else remove,
            quorum=int(quorum) if quorum else None,
            roles=roles,
            agreement=other.get("agreement", self._agreement.value),
            history=self._history.value,
            keepers=int(self._keepers.value),
        )

    def _rule(self, number: int, **other: str) -> str:
        """What a rule means when the others are as they are."""
        return group_rules.rules_of(self._policy(**other))[number]

    @on(Choice.Changed)
    def _changed(self) -> None:
        self._remove.offer(self._ways_out())
        self._keys_about.update(Content(KEYS_ABOUT.get(self._keys.value, "")))

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
        """Enter creates from any of the lines."""
        if event.key == "enter" and isinstance(self.focused, Choice):
            event.stop()
            self._take()

    @on(Input.Changed)
    def _typed(self) -> None:
        """What was wrong with the line before is said no more."""
        self._said.update(Content(""))

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
        elif not self._busy:
            self._busy = True
            self._said.update(Content(""))
            self.run_worker(self._do(name))

    async def _do(self, name: str) -> None:
        policy, accountable = self._policy(), self._keys.value == "accountable"
        params = NewParams(
            name,
            keys=group_rules.KINDS["accountable"][0] if accountable else self._keys.value,
            accountability="ledger" if accountable else "acks",
            join=policy.join,
            remove=policy.remove,
            quorum=policy.quorum or None,
            roles=policy.roles,
            agreement=policy.agreement,
            history=policy.history,
            keepers=policy.keepers,
        )
        try:
            await self._create(params)
        except AgentError as error:
            self._busy = False
            self._said.update(Content(printable(str(error))))
            return
        self.dismiss(None)

    def action_close(self) -> None:
        self.dismiss(None)
