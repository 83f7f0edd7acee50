"""`tail --consumer`: prints each item of a durable consumer once it is stored, acknowledges it, and reconnects."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from zerochat.agent.api.client import connect
from zerochat.agent.api.client_connection import NoAgent
from zerochat.agent.api.client_protocol import AgentError
from zerochat.cli.agent_access import COMMAND, attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.cli.tail_output import DRAIN_S, TailOutput
from zerochat.errors import LocalError
from zerochat.group.backoff import Backoff
from zerochat.rpc import (
    NOTIFICATIONS,
    ConsumerTakenNotification,
    Event,
    GroupInfo,
    Item,
    OverflowNotification,
)

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

RETRY: Final = Backoff(base_ms=100, ceiling_ms=5_000)
BUSY_S_MAX: Final = 10.0
"""How long another program may still use the consumer: one that was killed, or is ending."""
BATCH: Final = 64
"""Items that are printed before they are acknowledged, if more are waiting."""


class Replaced(LocalError):
    """Another program has taken over the consumer {consumer}, and receives its events now."""


def follow(options: Options, out: Output) -> ExitCode:
    """Print items until Ctrl+C or the end of the membership. Raises LocalError if a reconnection cannot help."""
    printed, tries, known, waits = TailOutput(out, options.group), 0, False, False
    while True:
        try:
            with _opened(options, waits) as (client, lasting):
                _subscribe(client, options)
                tries, known, waits = 0, True, lasting
                return printed.end(_print_items(client, options, printed, out))
        except LocalError as error:
            if error.retry != "later" or error.code == "ConsumerBusy" or not known:
                raise
            if not tries:
                narrate(f"{error.sentence()} Connecting again.")
        time.sleep(RETRY.delay_ms(tries) / 1000)
        tries += 1


@contextmanager
def _opened(options: Options, waits: bool) -> "Iterator[tuple[Client, bool]]":
    """A client, and whether its agent outlives commands. `waits`: it did, so wait for its restart, and start no
    temporary one that would keep it from starting."""
    try:
        found = connect(paths_of(options), COMMAND)
    except NoAgent:
        if waits:
            raise
        found = None
    if found is not None and (waits or not found.owner):
        with found:
            yield found, True
        return
    if found is not None:
        found.close()
    with attached(options) as agent:
        yield agent.client, False


def _subscribe(client: "Client", options: Options) -> None:
    """Raises AgentError where another program goes on using the consumer."""
    deadline, tries = time.monotonic() + BUSY_S_MAX, 0
    while True:
        try:
            client.subscribe([options.group], consumer=options.consumer)
            return
        except AgentError as error:
            if error.code != "ConsumerBusy" or time.monotonic() > deadline:
                raise
            if not tries:
                narrate(f"Another program uses the consumer {options.consumer}; waiting for its end.")
        time.sleep(RETRY.delay_ms(tries) / 1000)
        tries += 1


def _print_items(client: "Client", options: Options, printed: TailOutput, out: Output) -> GroupInfo:
    """Acknowledge what is printed: at a crash in between, it is printed again. Returns the group once this profile has
    left it."""
    unacknowledged, upto = 0, 0
    printed.begin(find_group(client.list_groups(), options.group))
    while True:
        within_s = 0.0 if unacknowledged else DRAIN_S if printed.left else None
        news = client.next_notification(within_s) if unacknowledged < BATCH else None
        if news is None and not unacknowledged:
            return find_group(client.list_groups(), options.group)
        if news is None:
            _acknowledge(client, str(options.consumer), upto)
            unacknowledged = 0
            continue
        match news.params:
            case Item() as item:
                _print_item(item, printed, out)
                unacknowledged, upto = unacknowledged + 1, item.seq
            case ConsumerTakenNotification():
                raise Replaced(consumer=options.consumer)
            case OverflowNotification(unread=unread, left=left):
                narrate(f"{unread} notifications are unread; after {left} more the oldest is lost.")
            case _:
                printed.show(news.params)


def _acknowledge(client: "Client", consumer: str, upto: int) -> None:
    try:
        client.acknowledge(consumer, upto)
    except AgentError as error:
        if error.code != "NeverSent":  # by this agent: it is a new one, and sends these items again
            raise


def _print_item(item: Item, printed: TailOutput, out: Output) -> None:
    if item.author is not None and item.delivery is not None:
        names = {one.name for one in msgspec.structs.fields(Event)}
        fields = {name: value for name, value in msgspec.structs.asdict(item).items() if name in names}
        printed.show_event(Event(**fields), item)
        return
    out.data(item, ())
    if item.type == "dropped":
        narrate(f"{item.body.get('count')} notifications were not read in time and are lost.")
    shape = NOTIFICATIONS.get("gap" if item.type == "gap_filled" else item.type)
    if shape is not None:
        with suppress(msgspec.ValidationError):  # a type that this version does not know
            printed.show(msgspec.convert({"group": item.group, **item.body}, shape), json=False)
