"""The desk where faces are served: requests become commands to the core or questions to the log, and news go out.

Every subscriber has a cursor into the log and is fed from there alone, at its own pace; so an event that is read back
after a restart and one that has just come take the same road, in the same order, once. Waiting is kept here too: the
core knows nothing of who waits for what.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as copied
from functools import partial
from typing import ClassVar

from msgspec import json
from msgspec.structs import replace

from zerochat.agent import delivery, drafts, finding, invitations, ledger, plain, report, roster, schema, speech, wishes
from zerochat.agent.backup import copy_beside
from zerochat.agent.control import ControlServer, read_params
from zerochat.agent.files import clerk, shown
from zerochat.agent.files.room import FileRoom
from zerochat.agent.journal import Journal, Row
from zerochat.agent.pages import page_of
from zerochat.agent.schema import Request
from zerochat.agent.stamp import timestamp
from zerochat.agent.standings import Fed, Standings
from zerochat.errors import LocalError, NotAMember, Overloaded, UnknownGroup
from zerochat.group import notices
from zerochat.group.contact import knock_link
from zerochat.group.effects import (
    Answer,
    Asked,
    Changed,
    Connected,
    DropFile,
    FileChanged,
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
from zerochat.group.stimuli import Ask, ChangeRole, Command, ImportEvents, SendPost, VerifyMember

FEED_BACKLOG_MAX = 256 * 1024
"""A subscriber that has this much unread is fed no further until it reads."""
FEED_ROWS = 100
"""Events that a subscriber is fed at once."""
EVENTS_BYTES_MAX = 960 * 1024
"""Of a page of history as it is told: it is one line of the control socket."""
FILE_NEWS_S = 0.25
"""How far apart it is told how files get on."""
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
    files: FileRoom | None = None
    """None: nothing can be done with files."""
    _tickets: dict[int, tuple[int, Request, Command]] = field(default_factory=dict)
    _next_ticket: int = 1
    _subscribers: dict[int, _Subscriber] = field(default_factory=dict)
    _waits: list[_Wait] = field(default_factory=list)
    _names: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    _joins: dict[str, schema.JoinStatus] = field(default_factory=dict)
    """What was last told of each join, by its id."""
    _filed: list[Ask] = field(default_factory=list)
    _moved: dict[tuple[str, str], None] = field(default_factory=dict)
    """The files of which there is news, by group and id."""
    _moved_at: float = 0.0
    stopping: bool = False
    log: Standings = field(init=False)
    """The journal, with messages as they stand now."""

    def __post_init__(self) -> None:
        self.log = Standings(self.journal)

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
        return self._ticketed(client, request, command)

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
            case (
                schema.SendParams()
                | schema.EditParams()
                | schema.DeleteParams()
                | schema.ReactParams()
                | schema.TopicParams()
            ):
                return speech.command_of(self.log, find_group(agent, params.group), params)
            case (
                schema.AttachParams()
                | schema.FileParams()
                | schema.SaveParams()
                | schema.PictureParams()
                | schema.FilesParams()
            ):
                return self._serve_files(client, request, agent, params)
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
            case schema.SearchParams():
                self.server.respond(client, request.id, finding.search(self.journal, agent, params))
            case schema.SubscribeParams():
                self._subscribe(client, params, agent)
                self.server.respond(client, request.id, schema.NoParams())
            case schema.GroupParams(wanted) if request.method == "members":
                self.server.respond(client, request.id, report.member_infos(agent, find_group(agent, wanted)))
            case schema.GroupParams(wanted) if request.method == "invitations":
                self.server.respond(client, request.id, invitations.open_invitations(agent, find_group(agent, wanted)))
            case schema.GroupParams(wanted) if request.method == "requests":
                self.server.respond(client, request.id, report.requests(find_group(agent, wanted)))
            case schema.WordsParams(wanted, member, said):
                group = find_group(agent, wanted)
                words = roster.words_info(group, wishes.other_member(group, member), said)
                self.server.respond(client, request.id, words)
            case schema.Draft(wanted, text):
                drafts.keep(self.journal, find_group(agent, wanted).id, text)
                self.server.respond(client, request.id, schema.NoParams())
            case schema.DraftsParams(after):
                self.server.respond(client, request.id, drafts.page(self.journal, agent.groups, after))
            case schema.NoParams():
                self._serve_plain(client, request, agent)
            case schema.PeerParams(peer) if request.method == "letters":
                self.server.respond(client, request.id, report.letters(agent, find_connection(agent, peer)))
            case _:
                return wishes.command_of(request.method, params, agent, int(time.time()))
        return None

    def _serve_files(
        self,
        client: int,
        request: Request,
        agent: Agent,
        params: schema.AttachParams | schema.FileParams | schema.SaveParams | schema.PictureParams | schema.FilesParams,
    ) -> Command | None:
        """What is wanted with files; what takes long comes back by `take_filed`."""
        group = find_group(agent, params.group)
        match params:
            case schema.FilesParams(_, after):
                self.server.respond(client, request.id, shown.page(group, after, self._labels(group)))
            case schema.FileParams(_, wanted):
                return clerk.wish(self.journal, group, request.method, wanted)
            case schema.SaveParams() if self.files is not None:
                clerk.save_file(self.files, self.journal, group, params, partial(self._file_done, client, request))
            case schema.PictureParams() if self.files is not None:
                clerk.show_picture(self.files, self.journal, group, params, partial(self._file_done, client, request))
            case schema.AttachParams() if self.files is not None:
                wish = schema.SendParams(group.id, params.text, params.reply_to, params.action)
                command = speech.command_of(self.log, group, wish)
                assert isinstance(command, SendPost)
                then = partial(self._file_done, client, request, command=command)
                clerk.attach(self.files, agent, group, params, then)
        return None

    def _file_done(self, client: int, request: Request, result: object, command: SendPost | None = None) -> None:
        """Something that took long is over."""
        if isinstance(result, LocalError):
            self.server.refuse_error(client, request.id, result)
        elif command is None:
            self.server.respond(client, request.id, result)
        else:
            assert isinstance(result, tuple)
            self._filed.append(self._ticketed(client, request, copied(command, files=result)))

    def _unsent(self, command: Command, agent: Agent) -> None:
        """A message was not said, so what was taken in for it goes."""
        if isinstance(command, SendPost) and command.files and self.files is not None:
            kept = agent.groups[command.group].files if command.group in agent.groups else {}
            for file in command.files:
                if file.id not in kept or kept[file.id].state == "offered":
                    self.files.perform(DropFile(command.group, file.id))

    def take_filed(self) -> list[Ask]:
        """The messages whose files are here now."""
        filed, self._filed = self._filed, []
        return filed

    def _ticketed(self, client: int, request: Request, command: Command) -> Ask:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._tickets[ticket] = (client, request, command)
        return Ask(ticket, command)

    def _serve_plain(self, client: int, request: Request, agent: Agent) -> None:
        match request.method:
            case "status":
                joins = report.joins(agent, self._joins)
                self.server.respond(client, request.id, replace(self.status(agent), joins=joins))
            case "groups":
                groups = [self.group_info(agent, group) for group in agent.groups.values()]
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
            self._unsent(command, agent)
            self.server.refuse_error(client, request.id, _why(effect.error, command, agent))
        else:
            try:
                result = self._result(effect, request, command, agent)
            except KeyError:  # what it was about is gone again
                self.server.refuse_error(client, request.id, Undone())
            else:
                self.server.respond(client, request.id, result)

    def fail(self, ask: Ask, error: LocalError, agent: Agent) -> None:
        """A command could not be carried out, for a reason that the core knows nothing of."""
        if ask.ticket in self._tickets:
            client, request, command = self._tickets.pop(ask.ticket)
            self._unsent(command, agent)
            self.server.refuse_error(client, request.id, error)

    def _result(self, answer: Answer, request: Request, command: Command, agent: Agent) -> object:
        match answer.result:
            case GroupCreated(group) | Left(group):
                return self.group_info(agent, agent.groups[group])
            case InvitationCreated(group, invitation):
                made = agent.invitations[knock_link(invitation.id)]
                short = self.lend(invitation.url(), invitation.expires)
                return report.invitation_info(group, invitation, made.uses, short, made.role, made.history)
            case Voted(group, member, votes, needed):
                return replace(roster.vote(agent.groups[group], member), votes=votes, needed=needed)
            case Changed(group):
                return self._changed(command, agent, agent.groups[group])
            case JoinStarted(join):
                return schema.JoinStatus(join=join, phase="dialling", text="Looking for whoever invited you…")
            case JoinEnded(join):
                return report.ended(agent, join)
            case Forgotten():
                return schema.NoParams()
            case FileChanged(group, key):
                found = agent.groups[group]
                return shown.file_info(found, found.files[key].file, found.files[key], self._labels(found))
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

    def _changed(self, command: Command, agent: Agent, group: Group) -> object:
        """What a face gets to see of what it has changed."""
        if isinstance(command, ChangeRole | VerifyMember):
            wanted = command.member or group.me
            return next(one for one in report.member_infos(agent, group) if one.did == wanted)
        return self.group_info(agent, group)

    def group_info(self, agent: Agent, group: Group) -> schema.GroupInfo:
        return report.group_info(agent, group, self.log.topic(group))

    # --- the log ----------------------------------------------------------------------------------------------------

    def _history(self, group: Group, params: schema.HistoryParams) -> schema.History:
        page = page_of(self.journal, group.id, params)
        events = self.log.events(group, page.rows, self._labels(group))
        if len(events) > 1 and sum(len(json.encode(event)) for event in events) > EVENTS_BYTES_MAX:
            return self._history(group, replace(params, limit=len(events) // 2))
        return schema.History(events, more=page.more, newer=page.newer)

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
        told = delivery.report(agent, group, row, held, names, self.log.event(group, row, names))
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
        deadlines = [wait.deadline for wait in left]
        if self._moved and now >= self._moved_at:
            self._moved_at = now + FILE_NEWS_S
            self._tell_files(agent)
        elif self._moved:
            deadlines.append(self._moved_at)
        return min(deadlines, default=None)

    def _tell_files(self, agent: Agent) -> None:
        """How the files stand of which there is news."""
        moved, self._moved = self._moved, {}
        for name, key in moved:
            group = agent.groups.get(name)
            one = group.files.get(key) if group is not None else None
            if group is None or one is None:
                continue
            clients = [c for c, sub in self._subscribers.items() if sub.groups is None or name in sub.groups]
            file = shown.attachment(group, one.file, one, self._labels(group))
            self.server.notify(clients, "file", schema.FileNews(name, one.event, file))

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
                fed = self._fed(agent, rows)
            except LocalError:  # the status says why; they get no further, and everybody else does
                continue
            for one in fed:
                self._feed_one(one, subscribers)
            for subscriber in subscribers.values():
                subscriber.cursor = rows[-1].seq if rows else cursor
            more = more or len(rows) == FEED_ROWS
        return more

    def _fed(self, agent: Agent, rows: Iterable[Row]) -> list[Fed]:
        """Rows of the log in the order of delivery, each with what there is to tell of it."""
        by_group: dict[str, list[Row]] = {}
        for row in rows:
            by_group.setdefault(row.group, []).append(row)
        here = ((agent.groups[name], found) for name, found in by_group.items() if name in agent.groups)
        told = (one for group, found in here for one in self.log.feed(group, found, self._labels(group)))
        return sorted(told, key=lambda one: one.row.seq)

    def _feed_one(self, one: Fed, subscribers: Mapping[int, _Subscriber]) -> None:
        wanted = {c: sub for c, sub in subscribers.items() if sub.groups is None or one.row.group in sub.groups}
        for row, event in ((one.row, one.event), *one.amended):
            for replayed in (False, True):
                clients = [client for client, sub in wanted.items() if (row.seq <= sub.replayed_to) is replayed]
                if clients and event is not None:
                    self._tell_event(clients, row is one.row, replace(event, replayed=replayed))

    def _tell_event(self, clients: list[int], new: bool, event: schema.Event) -> None:
        """An event of the log, or (not `new`) a message as it stands now."""
        if not new:
            self.server.notify(clients, "amended", schema.Amended(event))
            return
        self.server.notify(clients, "event", event)
        if event.late and not event.replayed:
            self.server.notify(clients, "late", report.late(event))

    def tell(self, news: Iterable[notices.Notice], agent: Agent) -> None:
        """Pass the core's notices on to whoever subscribed."""
        here = {"", *agent.groups}  # but for what was forgotten since
        news = list(news)
        self._moved |= {(one.group, one.file): None for one in news if isinstance(one, notices.FileMoved)}
        told_anyway = (notices.JoinProgress, notices.ViewChanged)
        news = [one for one in news if isinstance(one, told_anyway) or getattr(one, "group", "") in here]
        self._names = {group: names for group, names in self._names.items() if group in here}
        told = [item for notice in news if (item := report.news(notice, agent, self._labels)) is not None]
        self._joins |= {item.join: item for _, _, item in told if isinstance(item, schema.JoinStatus)}
        known = {one.id for one in agent.joins.values()}
        self._joins = {join: status for join, status in self._joins.items() if join in known}
        subscribers = self._subscribers.items()
        for method, group, params in (*told, *self._amended(news, agent)):
            clients = [client for client, one in subscribers if one.groups is None or not group or group in one.groups]
            self.server.notify(clients, method, params)

    def _amended(self, news: Iterable[notices.Notice], agent: Agent) -> Iterator[tuple[str, str, schema.Amended]]:
        """The messages that stand otherwise, because what was said about them is confirmed, or was never said."""
        for notice in news if self._subscribers else ():
            if isinstance(notice, notices.Confirmed | notices.Refuted):
                group = agent.groups[notice.group]
                with suppress(LocalError):  # the status says why
                    for event in self.log.settled(group, notice, self._labels(group)):
                        yield "amended", group.id, schema.Amended(event)


def _why(error: LocalError, command: Command, agent: Agent) -> LocalError:
    """Why we are no longer in a group, where others have seen to that."""
    wanted = getattr(command, "group", "")
    if not isinstance(error, NotAMember) or not wanted:
        return error
    group = find_group(agent, wanted)
    if not group.removed_by:
        return error
    return PutOut(sentence=plain.put_out(group.name, plain.removers_of(report.group_info(agent, group))))
