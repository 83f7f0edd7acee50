"""Request handlers over a real core, without sockets."""

from types import SimpleNamespace
from typing import Any

import msgspec

from tests.support.external_pair import Two
from zerochat import rpc
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import decode_call


class RecordingServer:
    """A control server that records answers and notifications."""

    def __init__(self):
        self.clients = {1, 2}
        self.answers, self.refusals, self.news = {}, {}, []

    def respond(self, call, result):
        self.answers[call.id] = result

    def refuse_error(self, call, error):
        self.refusals[call.id] = error

    def notify(self, clients, method, item):
        shape = rpc.NOTIFICATIONS[method]
        for client in clients:
            self.news.append((client, method, msgspec.json.decode(msgspec.json.encode(item), type=shape)))


class Office(Two):
    """Two agents with request handlers; `call` sends a request."""

    def __init__(self, **addresses):
        self.handlers: dict[str, RequestHandlers] = {}
        self.servers: dict[str, Any] = {}
        super().__init__(**addresses)
        for name in self.agents:
            journal: Any = SimpleNamespace(
                last_seq=lambda: 0,
                last_topics=lambda *_: [],
                revision=0,
                meta_get=lambda key: None,
                by_seq=lambda *_: [],
                unread_rows=lambda *_: [],
            )
            self.servers[name] = RecordingServer()
            self.handlers[name] = RequestHandlers(self.servers[name], journal, lambda agent: None)  # type: ignore[arg-type, return-value]
        self.number = 0

    def process(self, name, stimulus):
        answer = super().process(name, stimulus)
        if handlers := self.handlers.get(name):
            if answer is not None:
                handlers.complete(answer, self.agents[name])
            fresh, self.told[name][:] = list(self.told[name]), []  # a step may have others within it
            handlers.notify(fresh, self.agents[name])
        return answer

    def call(self, who, method, connection=1, **params):
        """The result, in its shape; a refusal is raised."""
        self.number += 1
        request = rpc.Request(method=method, id=self.number, params=params, jsonrpc="2.0")
        ask = self.handlers[who].handle(decode_call(connection, request), self.agents[who])
        if ask is not None:
            self.process(who, ask)
        if self.number in self.servers[who].refusals:
            raise self.servers[who].refusals[self.number]
        shape = rpc.METHODS[method][1]
        return msgspec.json.decode(msgspec.json.encode(self.servers[who].answers[self.number]), type=shape)

    def heard(self, name, method):
        return [item for _, told, item in self.servers[name].news if told == method]
