"""The last few answers to a question, for what is asked again and again about the same things."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LATEST_MAX = 16

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class Latest(Generic[K, A]):
    """By what they are about. Agents in several threads may ask the same one."""

    def __init__(self) -> None:
        self._answers: dict[K, A] = {}

    def answer(self, about: K, ask: Callable[[], A]) -> A:
        """What `ask` gives, or has given about this. No answer is None."""
        found = self._answers.pop(about, None)
        if found is None:
            found = ask()
        self._answers[about] = found
        if len(self._answers) > LATEST_MAX:
            longest_ago, *_ = list(self._answers)  # at once: another thread may change them meanwhile
            self._answers.pop(longest_ago, None)
        return found
