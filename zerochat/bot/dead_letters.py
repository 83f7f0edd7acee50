"""Dead-letter queue: events whose handlers failed for good, and their redelivery on request."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot.connection import Connection
from zerochat.bot.events import Event, event_from
from zerochat.bot.handlers import Call, Handler
from zerochat.bot.store import DeadLetter, Store
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import Item
from zerochat.terminal_text import printable

POLL_S: Final = 2.0
"""Poll interval for retry requests, seconds."""


class EventRefuted(LocalError):
    """The event was relayed by another member, and its author has denied it."""


class DeadLetterQueue:
    """The dead letters of one run."""

    def __init__(self, store: Store, connection: Connection, now: Callable[[], float], log: logging.Logger) -> None:
        """`now`: UTC, seconds."""
        self._store, self._connection, self._now, self._log = store, connection, now, log
        self._listed = f"zerochat --profile {connection.profile} bot dead-letters --bot {connection.consumer}"
        """The command that lists them."""

    def add(self, event: Event, handler: str, error: str, attempts: int) -> None:
        if self._store.path is not None:
            self._log.error("%s could not handle %s: it is now a dead letter (`%s`)", handler, event.id, self._listed)
        body = "" if event.author.did else json.dumps({"seq": event.seq, "body": dict(event.body)}, default=str)
        self._store.add_dead_letter(
            DeadLetter(0, event.id, event.group.id, event.type, handler, printable(error), attempts, self._now(), body)
        )

    async def run_redelivery(
        self, handlers: Sequence[Handler], attempt: Callable[[Handler, Call], Awaitable[bool]]
    ) -> None:
        """Retry dead letters on request, until cancelled. `attempt` returns whether the handler succeeded, and adds a
        new dead letter if not."""
        await self._connection.connected.wait()
        by_name = {one.name: one for one in handlers}
        while True:
            for letter in self._store.dead_letters(retry_only=True):
                handler = by_name.get(letter.handler)
                try:
                    event = await self._event(letter)
                    call = handler.match(event) if handler is not None else None
                except (AgentError, EventRefuted) as error:
                    self._store.add_dead_letter(replace(letter, error=f"{error.code}: {error.sentence()}"))
                    continue
                if handler is None or call is None:
                    self._store.add_dead_letter(replace(letter, error=f"{letter.handler} no longer handles it"))
                else:
                    if await attempt(handler, call):
                        self._store.delete_dead_letters(letter.id)
                    self._store.clear_starts(letter.event)
            await asyncio.sleep(POLL_S)

    async def _event(self, letter: DeadLetter) -> Event:
        """The event of a dead letter: read from the log in its current state, or restored from the stored body."""
        if not letter.body:
            return await event_in_log(self._connection, letter.group, letter.event)
        kept = json.loads(letter.body)
        item = Item(
            seq=kept["seq"],
            type=letter.type,
            group=letter.group,
            id=letter.event,
            body=kept["body"],
            received_at="1970-01-01T00:00:00Z",
        )
        return event_from(item, await self._connection.group(letter.group), self._connection.api)


async def event_in_log(connection: Connection, group: str, event: str) -> Event:
    """An event in its current state in the log. Raises EventRefuted, and AgentError if the id is unknown."""
    here = await connection.group(group)
    page = await connection.request("get_history", {"group": group, "around": event, "limit": 1})
    found = next((one for one in page.events if one.id == event), None)
    if found is None:  # its position is known, but it is hidden
        raise EventRefuted
    return event_from(found, here, connection.api, connection.known.bots.get(group, ()))
