"""A bot's link to a member of a simulated group."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from zerochat.agent.api.client_connection import AgentSilent
from zerochat.agent.api.client_protocol import Notification
from zerochat.bot.agent_link import ANSWER_S_MAX, AgentLinkLost
from zerochat.rpc import METHODS
from zerochat.testing.simulated_group import SimulatedGroup, SimulatedMember


class SimulatedLink:
    """An `AgentLink` whose answers take no time. Requests and results are encoded as JSON and decoded."""

    def __init__(self, world: SimulatedGroup, seat: SimulatedMember) -> None:
        self.profile = seat.nick
        self._world, self._member = world, seat
        self._client: int | None = None

    def now(self) -> float:
        return self._world.now / 1000

    def steady(self) -> float:
        return asyncio.get_running_loop().time()

    async def open(self) -> None:
        await self.close()
        if self._member.off:
            raise AgentLinkLost(why="no agent answers")
        self._client = self._member.server.connect()

    async def call(self, method: str, params: Mapping[str, object], within_s: float = ANSWER_S_MAX) -> Any:
        client = self._connected_client()
        answer = self._member.request(client, method, params)
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(within_s):
                found = await answer
        except TimeoutError:
            raise AgentSilent(method=method, seconds=round(within_s)) from None
        return msgspec.json.decode(msgspec.json.encode(found), type=cast(Any, METHODS[method][1]))

    async def next_notification(self) -> Notification:
        while True:
            client = self._connected_client()
            ear = self._member.server
            if ear.notifications[client]:
                return ear.notifications[client].popleft()
            ear.available[client].clear()
            await ear.available[client].wait()

    @property
    def connected(self) -> bool:
        return self._client is not None and self._client in self._member.server.clients

    def _connected_client(self) -> int:
        if self._client is None or not self.connected:
            raise AgentLinkLost(why="the agent closed it")
        return self._client

    async def close(self) -> None:
        """Disconnect; the agent notices at once."""
        if self._client is not None:
            self._member.server.disconnect(self._client)
            self._client = None
            self._member.pump()
