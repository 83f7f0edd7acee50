"""Who waits at the desk until members have a message. The core knows nothing of who waits for what."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from zerochat import rpc
from zerochat.agent.api.server import ControlServer, RequestId
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import delivery, event_pages
from zerochat.errors import Overloaded, UnknownGroup
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent, Group

WAITS_MAX: Final = 1024
WAIT_S_MAX: Final = 24 * 3600.0


class Wait(Struct, frozen=True):
    """One request that is not answered yet."""

    client: int
    request: RequestId
    group: str
    row: Row
    count: int
    """How many members have to have it; -1: all."""
    deadline: float


class Waits(Struct):
    """Owned by the desk. Moments and deadlines are seconds on the monotonic clock."""

    server: ControlServer
    journal: Journal
    labels: Callable[[Group], Mapping[str, str]]
    """What a group's members are called."""
    open: list[Wait] = field(default_factory=list)

    def add(self, client: int, request: RequestId, agent: Agent, params: rpc.WaitParams, now: float) -> None:
        """Raises Overloaded, or as `find_group` and `find_row` do."""
        group = find_group(agent, params.group)
        row = event_pages.find_row(self.journal, group, params.id)
        if len(self.open) >= WAITS_MAX:
            raise Overloaded(what="The number of waiting requests", limit=WAITS_MAX)
        seconds = max(0.0, min(params.timeout_s, WAIT_S_MAX))
        self.open.append(Wait(client, request, group.id, row, params.count, now + seconds))

    def review(self, agent: Agent, now: float) -> float | None:
        """Answer every wait that is over; the next deadline of those that are not."""
        left = []
        for wait in self.open:
            if (group := agent.groups.get(wait.group)) is None:  # it was forgotten
                self.server.refuse_error(wait.client, wait.request, UnknownGroup(group=wait.group))
                continue
            outcome = delivery.waited_for(group, wait.row, self.labels(group), wait.count)
            if outcome.complete or now >= wait.deadline:
                self.server.respond(wait.client, wait.request, outcome)
            elif wait.client in self.server.clients:
                left.append(wait)
        self.open = left
        return min((wait.deadline for wait in left), default=None)
