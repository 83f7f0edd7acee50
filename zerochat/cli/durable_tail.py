"""`tail --consumer`: prints each item of a durable consumer once it is stored, acknowledges it, and reconnects."""

import time
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from zerochat.cli.agent_access import attached
from zerochat.cli.event_text import EventText
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError
from zerochat.rpc import ConsumerTakenNotification, Event, Item, OverflowNotification

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
BATCH: Final = 64
"""Items that are printed before they are acknowledged, if more are waiting."""


class Replaced(LocalError):
    """Another program has taken over the consumer {consumer}, and receives its events now."""


def follow(options: Options, out: Output) -> NoReturn:
    """Print items until Ctrl+C. Raises LocalError if a reconnection cannot help."""
    text, tries, known = EventText(), 0, False
    while True:
        try:
            with attached(options) as agent:
                agent.client.subscribe([options.group], consumer=options.consumer)
                tries, known = 0, True
                _print_items(agent.client, str(options.consumer), text, out)
        except LocalError as error:
            if error.retry != "later" or not known:
                raise
            if not tries:
                narrate(f"{error.sentence()} Connecting again.")
        time.sleep(BACKOFF_S[min(tries, len(BACKOFF_S) - 1)])
        tries += 1


def _print_items(client: "Client", consumer: str, text: EventText, out: Output) -> NoReturn:
    """Acknowledge what is printed: at a crash in between, it is printed again."""
    printed, upto = 0, 0
    while True:
        news = client.next_notification(0.0 if printed and printed < BATCH else None) if printed < BATCH else None
        if news is None:
            client.acknowledge(consumer, upto)
            printed = 0
            continue
        match news.params:
            case Item() as item:
                event = _event(item)
                out.data(item, text.lines(event) if event is not None else ())
                printed, upto = printed + 1, item.seq
            case ConsumerTakenNotification():
                raise Replaced(consumer=consumer)
            case OverflowNotification(unread=unread, left=left):
                narrate(f"{unread} notifications are unread; after {left} more the oldest is lost.")


def _event(item: Item) -> Event | None:
    """The event of the log; None: the item is a notification."""
    if item.author is None or item.delivery is None:
        return None
    names = {one.name for one in msgspec.structs.fields(Event)}
    return Event(**{name: value for name, value in msgspec.structs.asdict(item).items() if name in names})
