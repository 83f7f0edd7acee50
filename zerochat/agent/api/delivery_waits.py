"""Requests that wait until enough members have an event. The core knows nothing of them."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from zerochat import rpc
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import delivery, event_pages
from zerochat.agent.views.delivery_counts import has
from zerochat.errors import Overloaded, UnknownGroup
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent, Group

WAITS_MAX: Final = 1024
WAIT_S_MAX: Final = 24 * 3600.0


class Wait(Struct):
    """A request that is answered when enough members have an event."""

    call: Call
    group: str
    row: Row
    count: int
    """The number of members that must have it; -1: all."""
    deadline: float
    """Seconds on the monotonic clock."""
    seen: Group | None = None
    """The state of the group in which the condition was found not to hold."""
    lacking: str = ""
    """A member that lacked the event then. While it does, not all have it."""

    def holds(self, group: Group) -> bool:
        """Whether enough members have the event. Nothing is counted while the group is unchanged, or while a wait for
        all members knows one that lacks it."""
        if self.seen is group:
            return False
        row = self.row
        is_pending = self.lacking in group.view.members and not has(group, self.lacking, row.author, row.position)
        if not (self.count < 0 and is_pending):
            found = delivery.recipients(group, row)
            if found.suffices(self.count):
                return True
            self.lacking = found.dids[0] if found.lacking else ""
        self.seen = group
        return False


class DeliveryWaits(Struct):
    """The requests that wait for delivery."""

    server: ControlServer
    journal: Journal
    names: Callable[[Group], Mapping[str, str]]
    """The display names of a group, by DID."""
    open: list[Wait] = field(default_factory=list)

    def add(self, call: Call, agent: Agent, params: rpc.WaitParams, now: float) -> None:
        """Raises Overloaded, or as `find_group` and `find_row` do. `now`: seconds on the monotonic clock."""
        group = find_group(agent, params.group)
        row = event_pages.find_row(self.journal, group, params.id)
        if len(self.open) >= WAITS_MAX:
            raise Overloaded(what="The number of waiting requests", limit=WAITS_MAX)
        seconds = max(0.0, min(params.timeout_s, WAIT_S_MAX))
        self.open.append(Wait(call, group.id, row, params.count, now + seconds))

    def review(self, agent: Agent, now: float) -> float | None:
        """Answer the requests whose condition holds or whose deadline has passed; the next deadline."""
        left = []
        for wait in self.open:
            if (group := agent.groups.get(wait.group)) is None:  # the group was forgotten
                self.server.refuse_error(wait.call, UnknownGroup(group=wait.group))
                continue
            if wait.holds(group) or now >= wait.deadline:
                self.server.respond(wait.call, delivery.progress(group, wait.row, self.names(group), wait.count))
            elif wait.call.client in self.server.clients:
                left.append(wait)
        self.open = left
        return min((wait.deadline for wait in left), default=None)
