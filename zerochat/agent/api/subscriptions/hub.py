"""Subscriptions as the request handlers use them: live subscribers, consumers and idempotency keys."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zerochat import rpc
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.api.subscriptions.consumers import Consumers
from zerochat.agent.api.subscriptions.idempotency import IdempotencyKeys
from zerochat.agent.api.subscriptions.live import LiveSubscribers
from zerochat.agent.api.subscriptions.notifications import durable_notifications
from zerochat.agent.api.subscriptions.store import DurableNotification, SubscriptionRecords
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.current_messages import MaterialisedMessages
from zerochat.errors import LocalError
from zerochat.group.effects import Effect, Notify
from zerochat.group.state import Agent, Group


@dataclass(slots=True)
class Subscriptions:
    """A batch calls `prepare_commit`, commits the records, then calls `committed` or `rolled_back`."""

    server: ControlServer
    journal: Journal
    messages: MaterialisedMessages
    names: Callable[[Group], Mapping[str, str]]
    """The display names of a group, by DID."""
    clock: Callable[[], int]
    """UTC milliseconds."""
    keys: IdempotencyKeys = field(init=False)
    live: LiveSubscribers = field(init=False)
    consumers: Consumers = field(init=False)
    _laggards: dict[str, str] = field(default_factory=dict)
    """By large group: a member that had least of our chain."""

    def __post_init__(self) -> None:
        self.keys = IdempotencyKeys(self.server, self.journal, self.clock)
        self.live = LiveSubscribers(self.server, self.journal, self.messages, self.names)
        self.consumers = Consumers(self.server, self.journal, self.live.entries, self.clock)

    def subscribe(self, client: int, params: rpc.SubscribeParams, agent: Agent) -> rpc.Subscribed:
        if params.consumer is None:
            self.consumers.leave(client)
            return self.live.subscribe(client, params, agent)
        subscribed = self.consumers.subscribe(client, params.consumer, params, agent)
        self.live.leave(client)
        return subscribed

    # --- one batch --------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether there is something to write although the core has no input."""
        return self.consumers.pending

    def prepare_commit(
        self,
        effects: Iterable[Effect],
        before: Agent,
        after: Agent,
        answered: Iterable[tuple[Call, Callable[[], object]]],
    ) -> SubscriptionRecords:
        """What the commit writes: from the effects, the core's state before and after the batch, and the calls that it
        answers, each with a function that makes the result. Raises what the journal raises."""
        found: Sequence[DurableNotification] = ()
        if self.journal.stream.consumers:
            changes = [effect.notification for effect in effects if isinstance(effect, Notify)]
            now = self.clock()
            found = durable_notifications(changes, before, after, self.names, now, self._laggards) if changes else ()
        answers = self.keys.records(answered)
        consumers = self.consumers.records(writing=bool(found or answers))
        return SubscriptionRecords(tuple(found), consumers, tuple(answers))

    def committed(self, records: SubscriptionRecords) -> None:
        """The records are on disk."""
        self.consumers.committed(records.consumers)

    def rolled_back(self, error: LocalError) -> None:
        """The batch could not be committed."""
        self._laggards.clear()
        self.consumers.rolled_back(error)

    # --- delivery ---------------------------------------------------------------------------------------------------

    def feed(self, agent: Agent) -> bool:
        """Send each subscriber its next events, as far as its backlog and credit allow. True: there is more."""
        more = self.live.feed(agent)
        return self.consumers.feed(agent) or more

    def listeners(self, method: str, group: str) -> list[int]:
        """The clients that subscribe to this notification of a group (empty: of no group)."""
        return [*self.live.listeners(method, group), *self.consumers.listeners(method, group)]
