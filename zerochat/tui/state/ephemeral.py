"""Typing indicators and read reports. Own reports are sent only where the settings share them."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

from zerochat.rpc import EphemeralResult, GroupParams, ReadReceiptParams, Status, TypingNotification
from zerochat.terminal_text import Printable
from zerochat.tui.state.agent_link import AgentError, AgentLink
from zerochat.tui.state.conversation import Conversation

TYPING_S: Final = 6.0
"""Lifetime of a typing indicator."""
TYPING_EVERY_S: Final = 4.5
"""Minimum interval of own typing reports, as enforced by the agent."""
READ_AFTER_S: Final = 2.5
"""Delay before a read report, and minimum interval between two."""
NAMED_MAX: Final = 2
TYPISTS_MAX: Final = 64
"""Maximum typing members of all groups; more are ignored."""


class SetTimer(Protocol):
    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


def typing_sentence(names: Sequence[Printable]) -> Printable:
    """As in "alice, bob and 2 others are typing…"; empty: none."""
    if not names:
        return Printable("")
    more = len(names) - NAMED_MAX
    if more > 0:
        who = f"{', '.join(names[:NAMED_MAX])} and {more} {'other' if more == 1 else 'others'}"
    else:
        who = " and ".join(names)
    return Printable(f"{who} {'is' if len(names) == 1 else 'are'} typing…")


class EphemeralState:
    """The typing and read state of all conversations."""

    def __init__(self, link: AgentLink, later: SetTimer, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._link, self._later, self._start = link, later, start
        self.shares: frozenset[str] = frozenset()
        """What the settings share: "typing", "read"."""
        self._typing_until: dict[tuple[str, str], float] = {}
        """Monotonic end of a typing indicator, by group and member."""
        self._typing_reported: dict[str, float] = {}
        self._read_reported: dict[str, int] = {}
        self._waiting = False

    # --- other members ---------------------------------------------------------------------------------------------

    def typing_received(self, notification: TypingNotification) -> bool:
        """A member is typing; False: ignored."""
        key, now = (notification.group, notification.member), monotonic()
        self._typing_until = {each: until for each, until in self._typing_until.items() if until > now}
        if key not in self._typing_until and len(self._typing_until) >= TYPISTS_MAX:
            return False
        self._typing_until[key] = now + TYPING_S
        return True

    def typing_ended(self, group: str, members: Sequence[str]) -> None:
        """These members posted, so they stopped typing."""
        for member in members:
            self._typing_until.pop((group, member), None)

    def typing_text(self, conversation: Conversation) -> Printable:
        """Who is typing in the conversation, as a sentence; empty: none."""
        now, group = monotonic(), conversation.info.id
        here = [member for (of, member), until in self._typing_until.items() if of == group and until > now]
        return typing_sentence([conversation.names.label(member) for member in here])

    # --- own reports -----------------------------------------------------------------------------------------------

    def set_shared(self, status: Status) -> None:
        self.shares = frozenset(status.shares)

    def report_typing(self, group: str, text: str) -> None:
        """Report typing, except of commands."""
        if "typing" not in self.shares or not text.strip() or not _is_post(text):
            return
        now = monotonic()
        if now - self._typing_reported.get(group, -TYPING_EVERY_S) >= TYPING_EVERY_S:
            self._typing_reported[group] = now
            self._start(self._request("send_typing", GroupParams(group)))

    def message_sent(self, group: str) -> None:
        """A message was sent: the next typing is reported at once."""
        self._typing_reported.pop(group, None)

    def schedule_read_report(self, look: Callable[[], Conversation | None]) -> None:
        """Schedule a read report. `look` returns the visible conversation, now and after the delay."""
        if "read" in self.shares and not self._waiting and self._unreported(look()):
            self._waiting = True
            self._later(READ_AFTER_S, lambda: self._report_read(look))

    def _unreported(self, conversation: Conversation | None) -> int:
        """The read position not reported yet; 0: none."""
        upto = conversation.seen_upto if conversation is not None else 0
        return upto if conversation is not None and upto > self._read_reported.get(conversation.info.id, 0) else 0

    def _report_read(self, look: Callable[[], Conversation | None]) -> None:
        self._waiting = False
        conversation = look()
        upto = self._unreported(conversation)
        if conversation is not None and upto and "read" in self.shares:
            self._read_reported[conversation.info.id] = upto
            self._start(self._request("send_read_receipt", ReadReceiptParams(conversation.info.id, upto)))

    async def _request(self, method: str, params: GroupParams | ReadReceiptParams) -> None:
        with suppress(AgentError):  # ephemeral: a lost report does not matter
            await self._link.request(method, params, EphemeralResult)


def _is_post(text: str) -> bool:
    """Whether the line will be sent to the group: a text, or a command that posts one, like `/me`."""
    if not text.startswith("/"):
        return True
    from zerochat.slash_commands import named  # not needed before the first frame

    info = named(text.partition(" ")[0].removeprefix("/"))
    return info is not None and info.post is not None
