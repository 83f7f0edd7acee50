"""While somebody's file is read, its `bot.run()` is only noted: whoever reads the file runs the bot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerochat.bot.bot import Bot

_held: "list[list[Bot]]" = []


def held_back(bot: "Bot") -> bool:
    """Whether this bot is not to run now."""
    if _held:
        _held[-1].append(bot)
    return bool(_held)


@contextmanager
def holding_back() -> "Iterator[list[Bot]]":
    """The bots that wanted to run within the block."""
    found: list[Bot] = []
    _held.append(found)
    try:
        yield found
    finally:
        _held.pop()
