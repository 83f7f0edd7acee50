"""What a bot is, for whoever runs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zerochat import rpc
from zerochat.bot.events import Event
from zerochat.bot.handlers import Handler, Start, Timer


@dataclass(frozen=True, slots=True)
class Plan:
    """A bot as its decorators have made it."""

    consumer: str
    groups: Sequence[str] | None
    handlers: Sequence[Handler]
    timers: Sequence[Timer]
    starts: Sequence[Start]
    retries_s: Sequence[float]
    credit: int
    from_start: bool
    announced: Sequence[rpc.AnnouncedCommand]
    arguments: Callable[[Handler | Timer | Start, Event | None], tuple[object, ...]]
    """What a handler is given first: the event, or a view of it that blocks."""
