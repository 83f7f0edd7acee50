"""What a request handler gets: the call, its decoded parameters, the core's state and the agent's services."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from zerochat import rpc
from zerochat.agent.api.backup_copies import BackupCopies
from zerochat.agent.api.delivery_waits import DeliveryWaits
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.api.subscriptions.hub import Subscriptions
from zerochat.agent.files.handlers import FileHandlers
from zerochat.agent.link_counters import LinkCounters
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.views.current_messages import MaterialisedMessages
from zerochat.agent.views.display_names import DisplayNames
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.members import member_infos
from zerochat.agent.views.unread import UnreadMessages
from zerochat.errors import LocalError
from zerochat.group.inputs import Command
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent, Group

if TYPE_CHECKING:
    from zerochat.agent.nearby.switch import Nearby

P = TypeVar("P", bound=Struct)

TYPING_SENT_S: Final = 4.0
READ_SENT_S: Final = 2.0
TYPING_RECEIVED_S: Final = 1.0
"""Per member and group. A sender that follows the protocol repeats it every four seconds."""
RATE_WINDOW_S: Final = 10.0
RATE_KEYS_MAX: Final = 4_096
"""With more keys than this at once, further ones are refused."""


class BadRequest(LocalError):
    """Invalid request: {why}."""


class AgentStopping(LocalError):
    """The agent is stopping and accepts no new commands. Try again when it runs again (`zerochat agent`)."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Literal["never", "later", "now"]] = "later"


class NoNearby(LocalError):
    """This agent has no network on which to look for members."""


class RateLimit(Struct):
    """Limits typing indicators and read receipts: at most one per key and interval."""

    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def allows(self, every_s: float, now: float, *key: str) -> bool:
        """Whether the interval of this key has passed; it then starts again. `now`: seconds on the monotonic clock."""
        if now - self._last.get(key, -RATE_WINDOW_S) < every_s:
            return False
        if key not in self._last and len(self._last) >= RATE_KEYS_MAX:
            self._last = {known: at for known, at in self._last.items() if now - at < RATE_WINDOW_S}
            if len(self._last) >= RATE_KEYS_MAX:
                return False
        self._last[key] = now
        return True


@dataclass
class Services:
    """The components of the agent that request handlers use. Owned by the agent thread."""

    server: ControlServer
    journal: Journal
    status: Callable[[Agent], rpc.Status]
    """The status without groups and joins."""
    shorten: Callable[[str, int], str]
    """Serve an invitation under a short link until a time (UTC seconds); empty where no HTTP server runs."""
    paths: ProfilePaths | None
    """None only in tests and simulations."""
    messages: MaterialisedMessages
    subscriptions: Subscriptions
    files: FileHandlers
    waits: DeliveryWaits
    unread: UnreadMessages
    backups: BackupCopies
    telemetry: Callable[[str, Struct], Struct] | None = None
    """Serves the methods of telemetry; None: nothing is recorded."""
    review_disputes: Callable[[str], None] = lambda group: None
    """Review the disputes of this group soon."""
    reload: Callable[[], None] = lambda: None
    """Read the settings again."""
    nearby: "Nearby | None" = None
    """None only in tests and simulations."""
    counters: LinkCounters = dataclass_field(default_factory=LinkCounters)
    indicators: RateLimit = dataclass_field(default_factory=RateLimit)
    joins: dict[str, rpc.JoinStatus] = dataclass_field(default_factory=dict)
    """The last status of each join, by its id."""
    draft_owners: dict[str, int] = dataclass_field(default_factory=dict)
    """The clients that write drafts, by the name that they chose: their connections."""
    draining: bool = False
    """The agent is stopping: commands are refused."""
    stopped: bool = False
    """A client has requested the stop."""
    owner: str = ""
    """The client that has started the agent for itself; empty: none."""
    _names: dict[str, DisplayNames] = dataclass_field(default_factory=dict)
    """By group: its display names in the last state."""

    def require_nearby(self) -> "Nearby":
        """Raises NoNearby."""
        if self.nearby is None:
            raise NoNearby
        return self.nearby

    def names(self, group: Group) -> DisplayNames:
        """The display names of members and former members, by DID."""
        known = self._names.get(group.id)
        if known is None or not known.is_of(group):
            known = self._names[group.id] = DisplayNames(group)
        return known

    def forget_names(self, groups: Mapping[str, Group]) -> None:
        """Drop the names of groups that are gone."""
        self._names = {group: names for group, names in self._names.items() if group in groups}

    def group_info(self, agent: Agent, group: Group) -> rpc.GroupInfo:
        state = self.unread.state(agent.groups, group)
        return group_info(agent, group, self.messages.topic(group), state, self.names(group))

    def members(self, agent: Agent, group: Group, dids: Iterable[str]) -> list[rpc.MemberInfo]:
        """These members, in this order."""
        announced = {did: one.announcement for did, one in self.messages.announced(group).items()}
        verdicts: Mapping[str, list[str]] = {}
        if group.mode.signs:
            from zerochat.agent.disputes import handlers

            verdicts = handlers.convictions(self.journal, group)
        infos = member_infos(agent, group, announced, verdicts, dids)
        return infos if self.nearby is None else self.nearby.marked(group, infos)

    def tlog_info(self, group: Group) -> rpc.TlogInfo:
        from zerochat.agent.views import tlog_status

        return tlog_status.log_info(self.journal, group, self.names(group))


@dataclass(slots=True)
class Context(Generic[P]):
    """One request."""

    services: Services
    call: Call
    agent: Agent
    params: P

    @property
    def group(self) -> Group:
        """The group of the parameter `group`. Raises UnknownGroup or AmbiguousGroup."""
        return find_group(self.agent, self.params.group)  # type: ignore[attr-defined]


Reply: TypeAlias = Command | Struct | list[Any] | None
"""A command for the core; or the result; None: the answer comes later."""
Handler: TypeAlias = Callable[[Context[Any]], Reply]
