"""Limits against loops between bots: a hop count that ends them, and a rate limit until then."""

import asyncio
from collections.abc import Callable
from typing import Final

from zerochat.bot.schedule import RateLimit

HOPS_LIMIT: Final = 8
"""An event is not handled if so many bots have answered each other up to it."""
SEND_RATE: Final = "20/min"
"""Default of `Bot(send_rate=…)` for a bot that receives messages of other bots."""


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
