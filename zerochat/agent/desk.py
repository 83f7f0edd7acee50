"""The desk where faces are served: requests become commands to the core or questions to the log, and news go out.

Every subscriber has a cursor into the log and is fed from there alone, at its own pace; so an event that is read back
after a restart and one that has just come take the same road, in the same order, once. Waiting is kept here too: the
core knows nothing of who waits for what.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from zerochat.agent import delivery, ledger, plain, report, roster, schema, wishes
from zerochat.agent.backup import copy_beside
from zerochat.agent.control import ControlServer, read_params
from zerochat.agent.journal import Journal, Row
from zerochat.agent.schema import Request
from zerochat.agent.stamp import timestamp
from zerochat.errors import LocalError, NotAMember, Overloaded, UnknownGroup
from zerochat.group import notices
from zerochat.group.contact import knock_link
from zerochat.group.effects import (
    Answer,
    Asked,
    Changed,
    Connected,
    Forgotten,
    GroupCreated,
    Imported,
    InvitationCreated,
    JoinEnded,
    JoinStarted,
    Left,
    Offered,
    Posted,
    Refuse,
    Voted,
)
from zerochat.group.find import find_connection, find_group
from zerochat.group.state import Agent, Group
from zerochat.group.stimuli import Ask, ChangeRole, Command, ImportEvents, VerifyMember

PAGE_EVENTS_MAX = 500
PAGE_BYTES_MAX = 512 * 1024
"""A page of history stays within one line of the control socket, JSON escapes included."""
FEED_BACKLOG_MAX = 256 * 1024
"""A subscriber that has this much unread is fed no further until it reads."""
FEED_ROWS = 100
"""Events that a subscriber is fed at once."""
WAITS_MAX = 1024
WAIT_S_MAX = 24 * 3600.0


class Undone(LocalError):
    """It was done, and another command in the same moment has undone it."""


class PutOut(LocalError):
    """{sentence}"""

    exit_code: ClassVar[int] = 8


@dataclass(slots=True)
class _Subscriber:
    cursor: int
    groups: frozenset[str] | None
    replayed_to: int
    """What has this local seq or a lower one was there before the subscription."""


@dataclass(slots=True)
class _Wait:
    client: int
    request: object
    group: str
    row: Row
    count: int
    deadline: float


@dataclass(slots=True)
class Desk:
    """What the faces have asked for and not yet got. Owned by the agent thread."""

    server: ControlServer
    journal: Journal
    status: Callable[[Agent], schema.Status]
    lend: Callable[[str, int], str] = lambda url, expires: ""
    """Serve an invitation under a short link until a time (UTC seconds); empty where nobody could ask for it."""
    _tickets: dict[int, tuple[int, Request, Command]] = field(default_factory=dict)
    _next_ticket: int = 1
    _subscribers: dict[int, _Subscriber] = field(default_factory=dict)
    _waits: list[_Wait] = field(default_factory=list)
    _names: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    _joins: dict[str, schema.JoinStatus] = field(default_factory=dict)
    """What was last told of each join, by its id."""
    stopping: bool = False

    # --- requests ---------------------------------------------------------------------------------------------------

    def take(self, client: int, request: Request, agent: Agent) -> Ask | None:
        """Serve a request at once, or turn it into a command for the core."""
        try:
            command = self._serve(client, request, agent)
        except LocalError as error:
            self.server.refuse_error(client, request.id, error)
            return None
        if command is None:
            return None
        ticket = self._next_ticket
        self._next_ticket += 1
        self._tickets[ticket] = (client, request, command)
        return Ask(ticket, command)

    def _serve(self, client: int, request: Request, agent: Agent) -> Command | None:
        params = read_params(request)
        match params:
            case schema.HelloParams():
                status = self.status(agent)
                if params.protocol != schema.PROTOCOL:
                    raise wishes.BadRequest(
                        why=f"this agent speaks version {schema.PROTOCOL} of the protocol, not {params.protocol}"
                    )
                hello = schema.Hello(
                    protocol=schema.PROTOCOL, version=status.version, profile=status.profile, nick=status.nick
                )
                self.server.respond(client, request.id, hello)
            case schema.WaitParams():
                self._await(client, request, agent, params)
            case schema.EventParams(wanted, event):
                self.server.respond(client, request.id, self._about(request.method, agent, wanted, event))
            case schema.RowsParams():
                page = ledger.rows(self.journal, find_group(agent, params.group), params)
                self.server.respond(client, request.id, page)
            case schema.GroupParams(wanted) if request.method == "ledger":
                self.server.respond(client, request.id, ledger.ledger(self.journal, find_group(agent, wanted)))
            case schema.HistoryParams():
                self.server.respond(client, request.id, self._history(find_group(agent, params.group), params))
            case schema.SubscribeParams():
                self._subscribe(client, params, agent)
                self.server.respond(client, request.id, schema.NoParams())
            case schema.GroupParams(wanted) if request.method == "members":
                self.server.respond(client, request.id, report.member_infos(agent, find_group(agent, wanted)))
            case schema.GroupParams(wanted) if request.method == "requests":
                self.server.respond(client, request.id, report.requests(find_group(agent, wanted)))
            case schema.WordsParams(wanted, member, said):
                group = find_group(agent, wanted)
                words = roster.words_info(group, wishes.other_member(group, member), said)
                self.server.respond(client, request.id, words)
            case schema.NoParams():
                self._serve_plain(client, request, agent)
            case schema.PeerParams(peer) if request.method == "letters":
                self.server.respond(client, request.id, report.letters(agent, find_connection(agent, peer)))
            case _:
                return wishes.command_of(request.method, params, agent, int(time.time()))
        return None

    def _serve_plain(self, client: int, request: Request, agent: Agent) -> None:
        match request.method:
            case "status":
                joins = report.joins(agent, self._joins)
                self.server.respond(client, request.id, replace(self.status(agent), joins=joins))
            case "groups":
                groups = [report.group_info(agent, group) for group in agent.groups.values()]
                self.server.respond(client, request.id, groups)
            case "connections":
                connections = [report.connection_info(agent, one) for one in agent.connections.values()]
                self.server.respond(client, request.id, connections)
            case "backup":
                self.server.respond(client, request.id, schema.Copied(str(copy_beside(self.journal))))
            case "stop":
                self.server.respond(client, request.id, schema.NoParams())
                self.stopping = True

    def settle(self, effect: Answer | Refuse, agent: Agent) -> None:
        """The core has answered a command."""
        client, request, command = self._tickets.pop(effect.ticket)
        if isinstance(effect, Refuse):
            self.server.refuse_error(client, request.id, _why(effect.error, command, agent))
        else:
            try:
                result = self._result(effect, request, command, agent)
            except KeyError:  # what it was about is gone again
                self.server.refuse_error(client, request.id, Undone())
            else:
                self.server.respond(client, request.id, result)

    def fail(self, ask: Ask, error: LocalError) -> None:
        """A command could not be carried out, for a reason that the core knows nothing of."""
        if ask.ticket in self._tickets:
            client, request, _ = self._tickets.pop(ask.ticket)
            self.server.refuse_error(client, request.id, error)

    def _result(self, answer: Answer, request: Request, command: Command, agent: Agent) -> object:
        match answer.result:
            case GroupCreated(group) | Left(group):
                return report.group_info(agent, agent.groups[group])
            case InvitationCreated(group, invitation):
                made = agent.invitations[knock_link(invitation.id)]
                short = self.lend(invitation.url(), invitation.expires)
                return report.invitation_info(group, invitation, made.uses, short, made.role, made.history)
            case Voted(group, member, votes, needed):
                return replace(roster.vote(agent.groups[group], member), votes=votes, needed=needed)
            case Changed(group):
                return _changed(command, agent, agent.groups[group])
            case JoinStarted(join):
                return schema.JoinStatus(join=join, phase="dialling", text="Looking for whoever invited you…")
            case JoinEnded(join):
                return report.ended(agent, join)
            case Forgotten():
                return schema.NoParams()
            case Imported(group, outcomes):
                assert isinstance(command, ImportEvents)
                return ledger.imported(self.journal, group, command.records, outcomes)
            case Posted(group, event, seq, lamport):
                meant = delivery.audience(agent.groups[group], agent.groups[group].me, seq, lamport)
                return schema.Sent(group, event, lamport, seq, len(meant))
            case Asked(thread):
                return schema.ToldInfo(thread) if request.method == "tell" else schema.Question(thread)
            case Connected(name) if request.method == "connect":
                return report.connection_info(agent, agent.connections[name])
            case Connected():
                return schema.NoParams()
            case Offered(name, url, expires):
                ends = timestamp(expires * 1000)
                return schema.OfferInfo(url=url, expires_at=ends, connection=name, short=self.lend(url, expires))

    # --- the log ----------------------------------------------------------------------------------------------------

    def _history(self, group: Group, params: schema.HistoryParams) -> schema.History:
        limit = max(1, min(params.limit, PAGE_EVENTS_MAX))
        rows = self.journal.history(group.id, limit + 1, params.before)
        page: list[Row] = []
        size = 0
        for row in reversed(rows[-limit:]):
            size += len(row.record)
            if page and size > PAGE_BYTES_MAX:
                break
            page.append(row)
        names = self._labels(group)
        events = [report.event(group, row, replayed=True, names=names) for row in reversed(page)]
        return schema.History(events, more=len(rows) > len(page))

    def _labels(self, group: Group) -> dict[str, str]:
        known = self._names.get(group.id)
        if known is None or known[0] != group.view.checksum:
            known = self._names[group.id] = (group.view.checksum, report.labels(group))
        return known[1]

    def _about(self, method: str, agent: Agent, wanted: str, event: str) -> schema.DeliveryReport | schema.Fate:
        """Who has one event, or all that is known of it."""
        group = find_group(agent, wanted)
        row = ledger.find_row(self.journal, group, event)
        names, held = self._labels(group), self.journal.receipts_of(group.id, row.author, row.position)
        told = delivery.report(agent, group, row, held, names, report.event(group, row, replayed=True, names=names))
        return delivery.fate(group, row, held, names, told) if method == "why" else told

    def _await(self, client: int, request: Request, agent: Agent, params: schema.WaitParams) -> None:
        group = find_group(agent, params.group)
        row = ledger.find_row(self.journal, group, params.id)
        if len(self._waits) >= WAITS_MAX:
            raise Overloaded(what="The number of waiting requests", limit=WAITS_MAX)
        seconds = max(0.0, min(params.timeout_s, WAIT_S_MAX))
        self._waits.append(_Wait(client, request.id, group.id, row, params.count, time.monotonic() + seconds))
        self.review(agent)

    def review(self, agent: Agent) -> float | None:
        """Answer every wait that is over; the next deadline of those that are not, on the monotonic clock."""
        now, left = time.monotonic(), []
        for wait in self._waits:
            if (group := agent.groups.get(wait.group)) is None:  # it was forgotten
                self.server.refuse_error(wait.client, wait.request, UnknownGroup(group=wait.group))  # type: ignore[arg-type]
                continue
            outcome = delivery.waited_for(group, wait.row, self._labels(group), wait.count)
            if outcome.complete or now >= wait.deadline:
                self.server.respond(wait.client, wait.request, outcome)  # type: ignore[arg-type]
            elif wait.client in self.server.clients:
                left.append(wait)
        self._waits = left
        return min((wait.deadline for wait in left), default=None)

    # --- news -------------------------------------------------------------------------------------------------------

    def _subscribe(self, client: int, params: schema.SubscribeParams, agent: Agent) -> None:
        groups = None
        if params.groups is not None:
            groups = frozenset(find_group(agent, wanted).id for wanted in params.groups)
        latest = self.journal.latest()
        since = latest if params.since is None else params.since
        self._subscribers[client] = _Subscriber(since, groups, latest)

    def feed(self, agent: Agent) -> bool:
        """Give every subscriber what is new in the log, as much as it can take. True: there is more for somebody."""
        here, more = self.server.clients, False
        self._subscribers = {client: one for client, one in self._subscribers.items() if client in here}
        by_cursor: dict[int, dict[int, _Subscriber]] = {}  # those who are equally far are told together
        for client, subscriber in self._subscribers.items():
            if self.server.backlog(client) <= FEED_BACKLOG_MAX:
                by_cursor.setdefault(subscriber.cursor, {})[client] = subscriber
        for cursor, subscribers in by_cursor.items():
            try:
                rows = self.journal.by_seq(cursor, FEED_ROWS)
            except LocalError:  # the status says why; they get no further, and everybody else does
                continue
            for row in rows:
                if not row.history and (group := agent.groups.get(row.group)) is not None:
                    self._feed_one(group, row, subscribers)
            for subscriber in subscribers.values():
                subscriber.cursor = rows[-1].seq if rows else cursor
            more = more or len(rows) == FEED_ROWS
        return more

    def _feed_one(self, group: Group, row: Row, subscribers: Mapping[int, _Subscriber]) -> None:
        wanted = {c: one for c, one in subscribers.items() if one.groups is None or row.group in one.groups}
        for replayed in (False, True):
            clients = [client for client, one in wanted.items() if (row.seq <= one.replayed_to) is replayed]
            if clients:
                event = report.event(group, row, replayed, self._labels(group))
                self.server.notify(clients, "event", event)
                if event.late and not replayed:
                    self.server.notify(clients, "late", report.late(event))

    def tell(self, news: Iterable[notices.Notice], agent: Agent) -> None:
        """Pass the core's notices on to whoever subscribed."""
        here = {"", *agent.groups}  # but for what was forgotten since
        told_anyway = (notices.JoinProgress, notices.ViewChanged)
        news = [one for one in news if isinstance(one, told_anyway) or getattr(one, "group", "") in here]
        self._names = {group: names for group, names in self._names.items() if group in here}
        told = [item for notice in news if (item := report.news(notice, agent, self._labels)) is not None]
        self._joins |= {item.join: item for _, _, item in told if isinstance(item, schema.JoinStatus)}
        known = {one.id for one in agent.joins.values()}
        self._joins = {join: status for join, status in self._joins.items() if join in known}
        subscribers = self._subscribers.items()
        for method, group, params in told:
            clients = [client for client, one in subscribers if one.groups is None or not group or group in one.groups]
            self.server.notify(clients, method, params)


def _changed(command: Command, agent: Agent, group: Group) -> object:
    """What a face gets to see of what it has changed."""
    if isinstance(command, ChangeRole | VerifyMember):
        wanted = command.member or group.me
        return next(one for one in report.member_infos(agent, group) if one.did == wanted)
    return report.group_info(agent, group)


def _why(error: LocalError, command: Command, agent: Agent) -> LocalError:
    """Why we are no longer in a group, where others have seen to that."""
    wanted = getattr(command, "group", "")
    if not isinstance(error, NotAMember) or not wanted:
        return error
    group = find_group(agent, wanted)
    if not group.removed_by:
        return error
    return PutOut(sentence=plain.put_out(group.name, plain.removers_of(report.group_info(agent, group))))
