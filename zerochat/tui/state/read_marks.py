"""Moves the profile's read markers: the first mark at once, further ones at most once per second."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from zerochat.rpc import MarkReadParams, ReadState
from zerochat.tui.state.agent_link import AgentError, AgentLink

EVERY_S: Final = 1.0
END_S_MAX: Final = 2.0
"""Timeout of the final marks."""


class ReadMarks:
    """`upto` returns the local number of the last event that was shown."""

    def __init__(
        self,
        link: AgentLink,
        upto: Callable[[], int | None],
        later: Callable[[float, Callable[[], None]], object],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._link, self._upto, self._later, self._start = link, upto, later, start
        self._due: dict[str, int | None] = {}
        """By group: up to where it was read."""
        self._waiting = False

    def mark(self, group: str) -> None:
        """Everything that was shown in this group is read."""
        self._due[group] = self._upto()
        if not self._waiting:
            self._next()

    def _next(self) -> None:
        self._waiting = bool(self._due)
        if self._waiting:
            self._start(self._send())
            self._later(EVERY_S, self._next)

    async def _send(self) -> None:
        due, self._due = self._due, {}
        for group, upto in due.items():
            with suppress(AgentError):  # the list of groups then shows it as unread again
                await self._link.request("mark_read", MarkReadParams(group, upto), list[ReadState])

    async def mark_all(self) -> None:
        """Everything in all groups is read. Raises AgentError."""
        await self._link.request("mark_read", MarkReadParams(upto=self._upto()), list[ReadState])

    async def send_now(self) -> None:
        """Send what waits, within END_S_MAX seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S_MAX):
                await self._send()
