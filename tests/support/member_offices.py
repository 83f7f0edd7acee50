"""Request handlers of several members of one simulated group."""

from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.support.handler_offices import RecordingServer
from tests.support.ruled_world import Ruled
from zerochat import rpc
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import decode_call
from zerochat.agent.storage.journal import Row
from zerochat.agent.views.events import event_view
from zerochat.group.membership import Policy


class Journal:
    """One without events, for requests about members."""

    revision = 0
    stream = SimpleNamespace(consumers={})

    def meta_get(self, key: str) -> bytes | None:
        return None

    def unread_rows(self, group: str, since: int, me: str, limit: int) -> list[Row]:
        return []

    def by_seq(self, since: int, limit: int) -> list[Row]:
        return []

    def last_seq(self) -> int:
        return 0

    def last_announcements(self, group: str, spans: object) -> list[Row]:
        return []

    def last_topics(self, group: str, spans: object) -> list[Row]:
        return []


class Offices(Ruled):
    """A group whose members each have request handlers; `call` sends a request."""

    def __init__(self, members: int = 3, policy: Policy | None = None, keys: str = "pairwise-multi") -> None:
        self.handlers: dict[str, RequestHandlers] = {}
        self.servers: dict[str, RecordingServer] = {}
        self.number = 0
        super().__init__(members, policy, keys)
        for name in self.nodes:
            self.seat(name)

    def seat(self, name: str) -> None:
        self.servers[name] = RecordingServer()
        handlers: Any = RequestHandlers(self.servers[name], Journal(), lambda agent: None)  # type: ignore[arg-type, return-value]
        self.handlers[name] = handlers
        self.call(name, "subscribe")

    def _perform(self, node: Any, effect: Any) -> None:
        super()._perform(node, effect)
        notice = getattr(effect, "notification", None)
        if notice is not None and node.name in self.handlers:
            self.handlers[node.name].notify([notice], node.agent)

    def call(self, who: str, method: str, /, **params: object) -> Any:
        """The result, in its shape; a refusal is raised."""
        self.number += 1
        request = rpc.Request(method=method, id=self.number, params=params, jsonrpc="2.0")
        handlers, server, node = self.handlers[who], self.servers[who], self.nodes[who]
        ask = handlers.handle(decode_call(1, request), node.agent)
        if ask is not None:
            answer: Any = self.run_command(who, ask.command)
            handlers.complete(replace(answer, ticket=ask.ticket), node.agent)
            self.settle()
        if self.number in server.refusals:
            raise server.refusals[self.number]
        return msgspec.json.decode(msgspec.json.encode(server.answers[self.number]), type=rpc.METHODS[method][1])

    def heard_news(self, name: str, method: str) -> list[Any]:
        return [item for _, told, item in self.servers[name].news if told == method]

    def member(self, who: str, whom: str) -> rpc.MemberInfo:
        members: list[rpc.MemberInfo] = self.call(who, "list_members", group="friends")
        return next(one for one in members if one.nick == whom)

    def info(self, who: str) -> rpc.GroupInfo:
        groups: list[rpc.GroupInfo] = self.call(who, "list_groups")
        return groups[0]

    def history(self, who: str) -> list[rpc.Event]:
        group, rows = self.group(who), self.nodes[who].log
        ordered = sorted(rows, key=lambda row: (row.lamport, row.author, row.id))
        return [
            event_view(
                group,
                Row(
                    n, row.group, row.id, row.author, row.seq, row.lamport, row.type, row.record, row.received, row.late
                ),
                replayed=True,
            )
            for n, row in enumerate(ordered, 1)
        ]
