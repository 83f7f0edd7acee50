"""Limits against loops between bots: a rate limit on what a bot sends, and a limit on chains of answers among bots."""

import asyncio
from collections.abc import Callable
from typing import Final

from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot.connection import Connection
from zerochat.bot.dead_letters import EventRefuted, event_in_log
from zerochat.bot.events import Message
from zerochat.bot.schedule import RateLimit

HOPS_MAX: Final = 8
"""A message of a bot is not handled if it ends a chain of so many answers by bots."""
SEND_RATE: Final = "20/min"
"""Default of `Bot(send_rate=…)` for a bot that receives messages of other bots."""


async def ends_bot_chain(connection: Connection, message: Message) -> bool:
    """Whether a message ends a chain of HOPS_MAX answers by bots."""
    hops, last = 0, message
    while last.author.bot:
        hops += 1
        if hops >= HOPS_MAX:
            return True
        if not last.reply_to:
            break
        try:
            found = await event_in_log(connection, last.group.id, last.reply_to)
        except (AgentError, EventRefuted):
            break
        if not isinstance(found, Message):
            break
        last = found
    return False


class SendLimit:
    """Delays messages that a bot sends to a group above a rate."""

    def __init__(self, rate: str, now: Callable[[], float]) -> None:
        """`now`: seconds on a steady clock. Raises ValueError."""
        self._limit, self._now, self._count = RateLimit.parse(rate), now, 0

    async def wait(self, group: str) -> None:
        """Wait until another message may be sent to the group."""
        self._count += 1
        number = str(self._count)
        while (wait_s := self._limit.acquire(group, number, self._now())) > 0:
            await asyncio.sleep(wait_s)
