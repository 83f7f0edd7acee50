"""Dead letters: what no handler could be made to handle is kept, and tried again when somebody wants it."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from zerochat.agent.api.client import AgentError
from zerochat.bot.connection import Connection
from zerochat.bot.events import Event, event_of
from zerochat.bot.handlers import Call, Handler
from zerochat.bot.store import DeadLetter, Store
from zerochat.errors import LocalError
from zerochat.rpc.subscriptions import Item
from zerochat.terminal_text import printable

LOOK_S: Final = 2.0
"""How often it is looked whether somebody wants a dead letter to be tried again."""


class Refuted(LocalError):
    """What another member had handed over was never said, its author says by now."""


class Letters:
    """Those of one run."""

    def __init__(self, store: Store, connection: Connection, now: Callable[[], float], log: logging.Logger) -> None:
        """`now`: UTC seconds."""
        self._store, self._connection, self._now, self._log = store, connection, now, log

    def bury(self, event: Event, handler: str, error: str, attempts: int) -> None:
        self._log.error("%s has not handled %s: it is a dead letter now (`zerochat bot dead`)", handler, event.id)
        body = "" if event.author.did else json.dumps({"seq": event.seq, "body": dict(event.body)}, default=str)
        self._store.bury(
            DeadLetter(0, event.id, event.group.id, event.type, handler, printable(error), attempts, self._now(), body)
        )

    async def revive(self, handlers: Sequence[Handler], attempt: Callable[[Handler, Call], Awaitable[bool]]) -> None:
        """Try the dead letters again that somebody wants to be tried again. `attempt` says whether that went well, and
        keeps a new one where it did not."""
        await self._connection.connected.wait()
        by_name = {one.name: one for one in handlers}
        while True:
            for letter in self._store.dead(again=True):
                handler = by_name.get(letter.handler)
                try:
                    event = await self._event(letter)
                    call = handler.match(event) if handler is not None else None
                except (AgentError, Refuted) as error:
                    self._store.bury(replace(letter, error=f"{error.code}: {error.sentence()}"))
                    continue
                if handler is None or call is None:
                    self._store.bury(replace(letter, error=f"{letter.handler} is no handler of it any more"))
                elif await attempt(handler, call):
                    self._store.forget(letter.id)
            await asyncio.sleep(LOOK_S)

    async def _event(self, letter: DeadLetter) -> Event:
        """What a dead letter is about: an event out of the log as it stands now, or what was kept of a happening."""
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
        return event_of(item, await self._connection.group(letter.group), self._connection.voice)


async def event_in_log(connection: Connection, group: str, event: str) -> Event:
    """An event as it stands in the log now. Raises Refuted, and AgentError, also where there is none of this id."""
    here = await connection.group(group)
    page = await connection.ask("history", {"group": group, "around": event, "limit": 1})
    found = next((one for one in page.events if one.id == event), None)
    if found is None:  # its place is known, and it is not shown there
        raise Refuted
    return event_of(found, here, connection.voice, connection.known.bots.get(group, ()))
