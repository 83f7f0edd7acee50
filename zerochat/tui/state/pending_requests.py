"""The questions that the chat has asked single peers, until they are answered.

A question is answered by the agent at once with its thread, and by the peer later, in news with that thread. The news
may be looked at first, so an answer that nobody waits for yet is kept for a moment.
"""

from collections.abc import Callable
from typing import TypeAlias

from zerochat.rpc import ConnectionNews, FeaturesNews, PongNews, ProblemNews, RotatedNews, ToldNews

Answer: TypeAlias = PongNews | FeaturesNews
PeerNews: TypeAlias = Answer | RotatedNews | ConnectionNews | ToldNews | ProblemNews
"""Everything that single peers cause to be told."""

KEPT_MAX = 16
"""Answers that nobody waits for: most are another face's."""


class Answers:
    """The questions that have been asked and not answered, by thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[Answer], None]] = {}
        self._kept: dict[str, Answer] = {}
        self.rotating: set[str] = set()
        """The members (GROUP/DID) towards whom our DID was replaced here, and who do not know it yet."""

    def expect(self, thread: str, show: Callable[[Answer], None]) -> None:
        if (answer := self._kept.pop(thread, None)) is not None:
            show(answer)
        else:
            self._waiting[thread] = show

    def give_up(self, thread: str) -> bool:
        """Stop waiting; True when there was no answer."""
        return self._waiting.pop(thread, None) is not None

    def came(self, answer: Answer) -> None:
        if (show := self._waiting.pop(answer.thread, None)) is not None:
            show(answer)
            return
        self._kept[answer.thread] = answer
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
