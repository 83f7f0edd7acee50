"""A bot's line to a member of a simulated group."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from zerochat.agent.api.client import AgentSilent, News
from zerochat.bot.agent_link import ANSWER_S_MAX, LineLost
from zerochat.rpc import METHODS
from zerochat.testing.simulated_group import Seat, Stage


class SeatLine:
    """See `zerochat.bot.agent_link.Line`. Every answer takes the desk no time at all, and goes through JSON both ways."""

    def __init__(self, stage: Stage, seat: Seat) -> None:
        self.profile = seat.nick
        self._stage, self._seat = stage, seat
        self._client: int | None = None

    def now(self) -> float:
        return self._stage.now / 1000

    async def open(self) -> None:
        await self.close()
        if self._seat.off:
            raise LineLost(why="no agent answers")
        self._client = self._seat.ear.connect()

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        client = self._there()
        answer = self._seat.ask(client, method, params)
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(within_s):
                found = await answer
        except TimeoutError:
            raise AgentSilent(method=method, seconds=round(within_s)) from None
        return msgspec.json.decode(msgspec.json.encode(found), type=cast(Any, METHODS[method][1]))

    async def news(self) -> News:
        while True:
            client = self._there()
            ear = self._seat.ear
            if ear.news[client]:
                return ear.news[client].popleft()
            ear.rings[client].clear()
            await ear.rings[client].wait()

    def _there(self) -> int:
        if self._client is None or self._client not in self._seat.ear.clients:
            raise LineLost(why="it has hung up")
        return self._client

    async def close(self) -> None:
        """The agent notices at once, as it would where a process ends."""
        if self._client is not None:
            self._seat.ear.hang_up(self._client)
            self._client = None
            self._seat.pump()
