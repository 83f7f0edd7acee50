"""What is told in passing: who is writing here, and, where a person wants that to be told, what is written and read.

The agent decides whether anything leaves; where it says that nothing is told, it is not even asked.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

from zerochat.rpc import GroupParams, ReadParams, Shared, Status, TypingNews
from zerochat.terminal_text import Printable
from zerochat.tui.state.agent_link import AgentError, Link
from zerochat.tui.state.conversation import Conversation

TYPING_S: Final = 6.0
"""Nobody is taken to be writing for longer, unless it is said again."""
TYPING_EVERY_S: Final = 4.5
"""How often it is told that the person here is writing; the agent lets no more through."""
READ_AFTER_S: Final = 2.5
"""So long something was in sight before it is told that it was read; and as long lies between two such words."""
NAMED_MAX: Final = 2
TYPISTS_MAX: Final = 64
"""Members of all groups who are taken to be writing at once; more are passed over."""


class Later(Protocol):
    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


def typing_sentence(names: Sequence[Printable]) -> Printable:
    """As in "alice, bob and 2 others are typing…"; empty: nobody is."""
    if not names:
        return Printable("")
    more = len(names) - NAMED_MAX
    if more > 0:
        who = f"{', '.join(names[:NAMED_MAX])} and {more} {'other' if more == 1 else 'others'}"
    else:
        who = " and ".join(names)
    return Printable(f"{who} {'is' if len(names) == 1 else 'are'} typing…")


class Passing:
    """Of all conversations; one for the chat."""

    def __init__(self, link: Link, later: Later, start: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._link, self._later, self._start = link, later, start
        self.shares: frozenset[str] = frozenset()
        """What is told, as the agent has said."""
        self._until: dict[tuple[str, str], float] = {}
        """By group and member: how long that one is taken to be writing, on a clock that nobody can set."""
        self._typed: dict[str, float] = {}
        self._read: dict[str, int] = {}
        self._waiting = False

    # --- the others ------------------------------------------------------------------------------------------------

    def heard(self, news: TypingNews) -> bool:
        """A member is writing; whether that is taken note of."""
        key, now = (news.group, news.member), monotonic()
        self._until = {each: until for each, until in self._until.items() if until > now}
        if key not in self._until and len(self._until) >= TYPISTS_MAX:
            return False
        self._until[key] = now + TYPING_S
        return True

    def ended(self, group: str, members: Sequence[str]) -> None:
        """These have said something, so they are writing no more."""
        for member in members:
            self._until.pop((group, member), None)

    def typists(self, conversation: Conversation) -> Printable:
        """Who is writing there now, in a sentence; empty: nobody."""
        now, group = monotonic(), conversation.info.id
        here = [member for (of, member), until in self._until.items() if of == group and until > now]
        return typing_sentence([conversation.names.label(member) for member in here])

    # --- the person here -------------------------------------------------------------------------------------------

    def learn(self, status: Status) -> None:
        self.shares = frozenset(status.shares)

    def typed(self, group: str, text: str) -> None:
        """The person has typed something. What begins a command is nobody's business."""
        if "typing" not in self.shares or not text.strip() or (text.startswith("/") and not text.startswith("/me ")):
            return
        now = monotonic()
        if now - self._typed.get(group, -TYPING_EVERY_S) >= TYPING_EVERY_S:
            self._typed[group] = now
            self._start(self._tell("typing", GroupParams(group)))

    def sent(self, group: str) -> None:
        """Something was said there: what is typed next is told at once again."""
        self._typed.pop(group, None)

    def seen(self, look: Callable[[], Conversation | None]) -> None:
        """Something may have been read. `look` gives the conversation that the person sees, then and after a while."""
        if "read" in self.shares and not self._waiting and self._news_of(look()):
            self._waiting = True
            self._later(READ_AFTER_S, lambda: self._tell_read(look))

    def _news_of(self, conversation: Conversation | None) -> int:
        """Up to where it has been read, where that was not told yet; 0: there is nothing to tell."""
        upto = conversation.seen_upto if conversation is not None else 0
        return upto if conversation is not None and upto > self._read.get(conversation.info.id, 0) else 0

    def _tell_read(self, look: Callable[[], Conversation | None]) -> None:
        self._waiting = False
        conversation = look()
        upto = self._news_of(conversation)
        if conversation is not None and upto and "read" in self.shares:
            self._read[conversation.info.id] = upto
            self._start(self._tell("read", ReadParams(conversation.info.id, upto)))

    async def _tell(self, method: str, params: GroupParams | ReadParams) -> None:
        with suppress(AgentError):  # it was said in passing
            await self._link.ask(method, params, Shared)
