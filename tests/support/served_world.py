"""Request handlers over a simulated group."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import cli_harness
from tests.support.audited_logs import kept
from tests.support.handler_offices import RecordingServer
from tests.support.parted_world import Parted
from zerochat.agent.api.request_handlers import RequestHandlers
from zerochat.agent.api.server import decode_call
from zerochat.rpc import METHODS, Request

agent, run, home = cli_harness.agent, cli_harness.run, cli_harness.home


class Ears(RecordingServer):
    """A client that always has room for more."""

    def backlog(self, client: int) -> int:
        return 0


class Served:
    """A node of a world with its journal and request handlers."""

    def __init__(self, tmp_path: Path, world: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.name = world, name
        self.journal = kept(tmp_path, world, name)
        self.server = Ears()
        self.handlers = RequestHandlers(self.server, self.journal, lambda agent: None)  # type: ignore[arg-type, return-value]
        clock = type("Clock", (), {"time": staticmethod(lambda: world.now / 1000)})
        monkeypatch.setattr("zerochat.agent.views.delivery.time", clock)
        self._number = 0

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        request = Request(method=method, id=self._number, params=params, jsonrpc="2.0")
        self.handlers.handle(decode_call(1, request), self.world.nodes[self.name].agent)
        if self._number in self.server.refusals:
            raise self.server.refusals[self._number]
        return msgspec.json.decode(msgspec.json.encode(self.server.answers[self._number]), type=METHODS[method][1])


@pytest.fixture
def world() -> Parted:
    return Parted(4)
