"""Member names for completion, found by bisection of their folded forms."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import overload

from zerochat.presentation.search_text import fold

OFFERED_MAX = 64
"""Names offered for one beginning. Of more, the last one in order is among them, so that all share no longer beginning
than these."""
LAST = "\U0010ffff"


class NameList(Sequence[str]):
    """Names in the order in which few of them are offered. The index is built when it is first used."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return self._names[at]

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _folded(self) -> list[tuple[str, int]]:
        """The folded names with their indices, sorted."""
        return sorted((fold(name), at) for at, name in enumerate(self._names))

    def starting(self, typed: str) -> list[str]:
        """The names that start with `typed`, in any case and with or without accents; in their order, or by name where
        there are more than are offered."""
        wanted = fold(typed)
        start, end = bisect_left(self._folded, (wanted, -1)), bisect_left(self._folded, (wanted + LAST, -1))
        if end - start > OFFERED_MAX:
            found = [*self._folded[start : start + OFFERED_MAX - 1], self._folded[end - 1]]
            return [self._names[at] for _, at in found]
        return [self._names[at] for at in sorted(at for _, at in self._folded[start:end])]

    def heading(self, typed: str) -> list[str]:
        """The names with which `typed` starts, each followed by a space there."""
        found = []
        for end, char in enumerate(typed):
            head = (fold(typed[:end]), -1)
            at = bisect_left(self._folded, head) if char == " " else len(self._folded)
            while at < len(self._folded) and self._folded[at][0] == head[0]:
                found.append(self._names[self._folded[at][1]])
                at += 1
        return found


def indexed(names: Sequence[str]) -> NameList:
    """The names with an index."""
    return names if isinstance(names, NameList) else NameList(names)
