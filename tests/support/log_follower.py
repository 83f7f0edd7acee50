"""A real journal with request handlers and a live subscriber, whose log tests write."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.support.journals import KEY
from tests.support.parted_world import Parted
from tests.support.served_world import Ears
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import decode_call
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.event import Event
from zerochat.group.messages.bodies import Content, target_of
from zerochat.group.state import Group
from zerochat.rpc import METHODS, History, Request


class Follower:
    """The journal and request handlers of n0, with a live subscriber; tests write the log."""

    def __init__(self, path: Path) -> None:
        self.world: Any = Parted(3)
        self.group: Group = self.world.group("n0")
        self.agent = self.world.nodes["n0"].agent
        self.n = [self.world.group(name).me for name in ("n0", "n1", "n2")]
        self.journal = Journal.create(path, KEY)
        self.server = Ears()
        self.handlers = RequestHandlers(self.server, self.journal, lambda agent: None)  # type: ignore[arg-type, return-value]
        self.seqs = dict.fromkeys(self.n, 10)
        self.when = self.world.now + 1_000
        self._number = 0
        self.call("subscribe")

    def say(self, who: int, what: Content, **row: Any) -> StoreEvent:
        """A row with this; not in the log yet."""
        author = self.n[who]
        self.seqs[author] += 1
        self.when += 1
        event = Event(
            self.group.id, what.kind, author, self.seqs[author], "p" * 43, (), (), self.when, self.when, what.body
        )
        values = (event.id, author, event.seq, event.lamport, event.type, event.record, self.when, False)
        return replace(StoreEvent(self.group.id, *values, target=target_of(event)), **row)

    def keep(self, *remembered: Any) -> list[tuple[str, Any]]:
        """The notifications of a following client once this is in the log."""
        self.journal.commit(self.agent, remembered)
        self.handlers.messages.note_stored(remembered)
        self.handlers.unread.note_stored(remembered)
        return self.told()

    def told(self) -> list[tuple[str, Any]]:
        while self.handlers.feed(self.agent):
            pass
        news = [(method, item) for _, method, item in self.server.news]
        self.server.news.clear()
        return news

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        request = Request(method=method, id=self._number, params=params, jsonrpc="2.0")
        self.handlers.handle(decode_call(1, request), self.agent)
        if self._number in self.server.refusals:
            raise self.server.refusals[self._number]
        return msgspec.json.decode(msgspec.json.encode(self.server.answers[self._number]), type=METHODS[method][1])

    def history(self, **params: Any) -> History:
        found: History = self.call("get_history", group=self.group.id, **params)
        return found
