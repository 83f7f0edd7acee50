"""The stream as the desk has it: who follows it, who reads it by name, and what was asked under a key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zerochat import rpc
from zerochat.agent.api.server import ControlServer
from zerochat.agent.api.subscriptions.consumers import Consumers
from zerochat.agent.api.subscriptions.idempotency import Keys
from zerochat.agent.api.subscriptions.live import Followers
from zerochat.agent.api.subscriptions.notifications import happenings_of
from zerochat.agent.api.subscriptions.store import Happening, Notes
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.current_messages import Standings
from zerochat.errors import LocalError
from zerochat.group.effects import Effect, Notify
from zerochat.group.state import Agent, Group
from zerochat.rpc import Request


@dataclass(slots=True)
class Stream:
    """Owned by the desk. A turn asks it for its `gather`, commits that, and says `kept` or `undone`."""

    server: ControlServer
    journal: Journal
    log: Standings
    labels: Callable[[Group], Mapping[str, str]]
    """What a group's members are called."""
    clock: Callable[[], int]
    """UTC milliseconds."""
    keys: Keys = field(init=False)
    followers: Followers = field(init=False)
    consumers: Consumers = field(init=False)

    def __post_init__(self) -> None:
        self.keys = Keys(self.server, self.journal, self.clock)
        self.followers = Followers(self.server, self.journal, self.log, self.labels)
        self.consumers = Consumers(self.server, self.journal, self.followers.fed, self.clock)

    # --- requests ---------------------------------------------------------------------------------------------------

    def subscribe(self, client: int, params: rpc.SubscribeParams, agent: Agent) -> rpc.Subscribed:
        if params.consumer is None:
            self.consumers.leave(client)
            return self.followers.subscribe(client, params, agent)
        subscribed = self.consumers.subscribe(client, params.consumer, params, agent)
        self.followers.leave(client)
        return subscribed

    # --- a turn -----------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether there is something to write, though nothing else happens."""
        return self.consumers.pending

    def gather(
        self,
        effects: Iterable[Effect],
        before: Agent,
        after: Agent,
        answered: Iterable[tuple[Request, Callable[[], object]]],
    ) -> Notes:
        """What a turn has to say of the stream: its effects, the core's state before and after it, and the requests
        that it answers, each with what makes its answer. Raises what the journal raises."""
        happened: Sequence[Happening] = ()
        if self.journal.stream.consumers:
            told = [effect.notice for effect in effects if isinstance(effect, Notify)]
            happened = happenings_of(told, before, after, self.labels, self.clock()) if told else ()
        keys = self.keys.kept(answered)
        consumers = self.consumers.notes(writing=bool(happened or keys))
        return Notes(tuple(happened), consumers, tuple(keys))

    def kept(self, notes: Notes) -> None:
        """This is on disk."""
        self.consumers.kept(notes.consumers)

    def undone(self, error: LocalError) -> None:
        """The turn could not be committed."""
        self.consumers.undone(error)

    # --- telling ----------------------------------------------------------------------------------------------------

    def feed(self, agent: Agent) -> bool:
        """Tell everybody what is new, as much as each can take. True: there is more for somebody."""
        followed = self.followers.feed(agent)
        return self.consumers.feed(agent) or followed

    def listeners(self, method: str, group: str) -> list[int]:
        """Who wants to hear this kind of news of a group (empty: of none)."""
        return [*self.followers.listeners(method, group), *self.consumers.listeners(method, group)]
