"""The desk where faces are served: requests become commands to the core or questions to the log, and news go out.

Who follows the log or reads it by name is told in `stream/`. Waiting is kept here: the core knows nothing of who waits
for what.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from msgspec import Struct, json
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api import command_adapter, post_adapter
from zerochat.agent.api.delivery_waits import Waits
from zerochat.agent.api.ephemeral_rate import READ_SENT_S, TYPING_HEARD_S, TYPING_SENT_S, Pace
from zerochat.agent.api.server import ControlServer, read_params
from zerochat.agent.api.subscriptions.hub import Stream
from zerochat.agent.api.subscriptions.live import FEED_ROWS
from zerochat.agent.api.subscriptions.store import Notes
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.files import view
from zerochat.agent.files.handlers import Counter
from zerochat.agent.files.worker import FileRoom
from zerochat.agent.storage import drafts
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.storage.paths import Places
from zerochat.agent.views import core_state, delivery, event_pages, invitations
from zerochat.agent.views import members as roster
from zerochat.agent.views.current_messages import Standings
from zerochat.agent.views.history_pages import page_of
from zerochat.errors import AmbiguousGroup, InternalFault, LocalError, NotAMember
from zerochat.group import notifications
from zerochat.group.effects import (
    Answer,
    Asked,
    Changed,
    Connected,
    Effect,
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
    Shared,
    Voted,
)
from zerochat.group.inputs import Ask, ChangeRole, Command, ImportEvents, SetTerms, ShareRead, ShareTyping, VerifyMember
from zerochat.group.links.contact import knock_link
from zerochat.group.lookup import find_connection, find_group
from zerochat.group.state import Agent, Group
from zerochat.presentation import group_rules
from zerochat.rpc import Request

EVENTS_BYTES_MAX = 960 * 1024
"""Of a page of history as it is told: it is one line of the control socket."""
FEATURES = ("consumers", "keys", "retry")
"""What `hello` says that there is besides the methods."""


class Undone(LocalError):
    """It was done, and another command in the same moment has undone it."""


class NoTelemetry(LocalError):
    """This agent records nothing, whatever it is asked."""


class AgentStopping(LocalError):
    """The agent is about to end and does nothing new any more. Try again when it runs again (`zerochat agent`)."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Literal["never", "later", "now"]] = "later"


class PutOut(LocalError):
    """{sentence}"""

    exit_code: ClassVar[int] = 8


@dataclass(slots=True)
class Desk:
    """What the faces have asked for and not yet got. Owned by the agent thread."""

    server: ControlServer
    journal: Journal
    status: Callable[[Agent], rpc.Status]
    lend: Callable[[str, int], str] = lambda url, expires: ""
    """Serve an invitation under a short link until a time (UTC seconds); empty where nobody could ask for it."""
    files: FileRoom | None = None
    """None: nothing can be done with files."""
    places: Places | None = None
    """None: there are no settings."""
    telemetry: Callable[[str, Struct], Struct] | None = None
    """Answers what is asked about it; None: there is none."""
    heed: Callable[[str], None] = lambda group: None
    """Have the counsel look at this group's cases soon."""
    reload: Callable[[], None] = lambda: None
    """Have the settings read again."""
    _tickets: dict[int, tuple[int, Request, Command]] = field(default_factory=dict)
    _next_ticket: int = 1
    _names: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    _joins: dict[str, rpc.JoinStatus] = field(default_factory=dict)
    """What was last told of each join, by its id."""
    stopping: bool = False
    ending: bool = False
    """Nothing new is done any more (`begin_to_stop`)."""
    log: Standings = field(init=False)
    """The journal, with messages as they stand now."""
    stream: Stream = field(init=False)
    """Who is told what is new."""
    _waits: Waits = field(init=False)
    _files: Counter = field(init=False)
    _pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self.log = Standings(self.journal)
        self.stream = Stream(self.server, self.journal, self.log, self._labels, lambda: int(time.time() * 1000))
        self._waits = Waits(self.server, self.journal, self._labels)
        known = (self.server, self.journal, self.files, self.log, self.stream, self._labels)
        self._files = Counter(*known, self._ticketed, self._refuse)

    # --- requests ---------------------------------------------------------------------------------------------------

    def take(self, client: int, request: Request, agent: Agent) -> Ask | None:
        """Serve a request at once, or turn it into a command for the core."""
        try:
            command = self._serve(client, request, agent)
            if self.ending and command is not None:
                raise AgentStopping
        except LocalError as error:
            self._refuse(client, request, _told_apart(error, agent))
            return None
        except Exception:
            self.stream.keys.refused(request, InternalFault(what=request.method))
            raise
        if command is None:
            return None
        return self._ticketed(client, request, command)

    def _serve(self, client: int, request: Request, agent: Agent) -> Command | None:
        params = read_params(request)
        match params:
            case rpc.HelloParams():
                status = self.status(agent)
                if params.protocol != rpc.PROTOCOL:
                    raise command_adapter.BadRequest(
                        why=f"this agent speaks version {rpc.PROTOCOL} of the protocol, not {params.protocol}"
                    )
                hello = rpc.Hello(
                    protocol=rpc.PROTOCOL,
                    version=status.version,
                    profile=status.profile,
                    nick=status.nick,
                    methods=list(rpc.METHODS),
                    features=list(FEATURES),
                )
                self.server.respond(client, request.id, hello)
            case rpc.SendParams() | rpc.EditParams() | rpc.DeleteParams() | rpc.ReactParams() | rpc.TopicParams():
                group = find_group(agent, params.group)
                if self.stream.keys.claim(client, request, group.id, params):
                    return post_adapter.command_of(self.log, group, params)
            case rpc.AttachParams() | rpc.FileParams() | rpc.SaveParams() | rpc.PictureParams() | rpc.FilesParams():
                if self.ending and isinstance(params, rpc.AttachParams):
                    raise AgentStopping
                return self._files.serve(client, request, agent, find_group(agent, params.group), params)
            case rpc.AnnounceParams():
                said = post_adapter.announcement(self.log, find_group(agent, params.group), params)
                if not isinstance(said, rpc.Announced):
                    return said
                self.server.respond(client, request.id, said)
            case rpc.WaitParams():
                self._waits.add(client, request.id, agent, params, time.monotonic())
                self.review(agent)
            case rpc.EventParams(wanted, event):
                self.server.respond(client, request.id, self._about(request.method, agent, wanted, event))
            case rpc.RowsParams():
                page = event_pages.rows(self.journal, find_group(agent, params.group), params)
                self.server.respond(client, request.id, page)
            case rpc.ProofParams():
                from zerochat.agent.proofs import builder  # hardly anybody asks for one

                self.server.respond(
                    client, request.id, builder.proof(self.journal, find_group(agent, params.group), params)
                )
            case rpc.AccuseParams() | rpc.CaseParams():
                self.server.respond(client, request.id, self._case(find_group(agent, params.group), agent, params))
            case rpc.GroupParams(wanted) if request.method == "cases":
                from zerochat.agent.disputes.handlers import infos

                self.server.respond(client, request.id, infos(self.journal, find_group(agent, wanted)))
            case rpc.GroupParams(wanted) if request.method == "log":
                self.server.respond(client, request.id, self._log_info(find_group(agent, wanted)))
            case rpc.EvidenceParams(wanted, event):
                from zerochat.agent.proofs import signatures

                group = find_group(agent, wanted)
                about = self._reported(agent, group, event) if event else None
                found = signatures.evidence(self.journal, group, self._labels(group), about)
                self.server.respond(client, request.id, found)
            case rpc.GroupParams(wanted) if request.method == "ledger":
                self.server.respond(client, request.id, event_pages.ledger(self.journal, find_group(agent, wanted)))
            case rpc.SetParams():
                from zerochat.agent.settings import (
                    handlers,  # like all that hardly anybody asks for: not before it is wanted
                )

                changed = handlers.change(self.places, params)
                if handlers.holds_at_once(changed.name):
                    self.reload()
                self.server.respond(client, request.id, changed)
            case _ if request.method.startswith("telemetry"):
                if self.telemetry is None:
                    raise NoTelemetry
                self.server.respond(client, request.id, self.telemetry(request.method, params))
            case rpc.HistoryParams():
                self.server.respond(client, request.id, self._history(find_group(agent, params.group), params))
            case rpc.SearchParams():
                from zerochat.agent.views import search

                self.server.respond(client, request.id, search.search(self.journal, agent, params))
            case rpc.SubscribeParams():
                self.server.respond(client, request.id, self.stream.subscribe(client, params, agent))
            case rpc.AckParams(consumer, seq):
                self.stream.consumers.ack(client, request.id, consumer, seq)
            case rpc.ConsumerParams(consumer):
                self.stream.consumers.forget(consumer)
                self.server.respond(client, request.id, rpc.NoParams())
            case rpc.ReadParams(wanted, upto):
                group = find_group(agent, wanted)
                if agent.sharing.read_receipts and self._may_share(group, "read", READ_SENT_S):
                    return ShareRead(group.id, upto)
                self.server.respond(client, request.id, rpc.Shared())
            case rpc.GroupParams(wanted) if request.method == "typing":
                group = find_group(agent, wanted)
                if agent.sharing.typing and self._may_share(group, "typing", TYPING_SENT_S):
                    return ShareTyping(group.id)
                self.server.respond(client, request.id, rpc.Shared())
            case rpc.GroupParams(wanted) if request.method == "members":
                self.server.respond(client, request.id, self._members(agent, find_group(agent, wanted)))
            case rpc.GroupParams(wanted) if request.method == "invitations":
                self.server.respond(client, request.id, invitations.open_invitations(agent, find_group(agent, wanted)))
            case rpc.GroupParams(wanted) if request.method == "requests":
                self.server.respond(client, request.id, core_state.requests(find_group(agent, wanted)))
            case rpc.WordsParams(wanted, member, said):
                group = find_group(agent, wanted)
                words = roster.words_info(group, command_adapter.other_member(group, member), said)
                self.server.respond(client, request.id, words)
            case rpc.Draft(wanted, text):
                drafts.keep(self.journal, find_group(agent, wanted).id, text)
                self.server.respond(client, request.id, rpc.NoParams())
            case rpc.DraftsParams(after):
                self.server.respond(client, request.id, drafts.page(self.journal, agent.groups, after))
            case rpc.NoParams():
                self._serve_plain(client, request, agent)
            case rpc.PeerParams(peer) if request.method == "letters":
                self.server.respond(client, request.id, core_state.letters(agent, find_connection(agent, peer)))
            case _:
                return command_adapter.command_of(request.method, params, agent, int(time.time()))
        return None

    def _case(self, group: Group, agent: Agent, params: rpc.AccuseParams | rpc.CaseParams) -> Struct:
        from zerochat.agent.disputes import handlers

        if isinstance(params, rpc.CaseParams):
            return handlers.part(self.journal, group, params)
        if self.ending:
            raise AgentStopping
        begun = handlers.begin(self.journal, group, params, int(time.time() * 1000) - agent.leap)
        self.heed(group.id)
        return begun

    def _refuse(self, client: int, request: Request, error: LocalError) -> None:
        self.server.refuse_error(client, request.id, error)
        self.stream.keys.refused(request, error)

    def _ticketed(self, client: int, request: Request, command: Command) -> Ask:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._tickets[ticket] = (client, request, command)
        return Ask(ticket, command)

    def _serve_plain(self, client: int, request: Request, agent: Agent) -> None:
        match request.method:
            case "status":
                joins = core_state.joins(agent, self._joins)
                self.server.respond(client, request.id, replace(self.status(agent), joins=joins))
            case "groups":
                groups = [self.group_info(agent, group) for group in agent.groups.values()]
                self.server.respond(client, request.id, groups)
            case "connections":
                connections = [core_state.connection_info(agent, one) for one in agent.connections.values()]
                self.server.respond(client, request.id, connections)
            case "consumers":
                self.server.respond(client, request.id, self.stream.consumers.infos())
            case "settings":
                from zerochat.agent.settings import handlers

                self.server.respond(client, request.id, handlers.settings(self.places))
            case "backup":
                from zerochat.agent.storage.backup import copy_beside

                self.server.respond(client, request.id, rpc.Copied(str(copy_beside(self.journal))))
            case "reload":
                self.reload()
                self.server.respond(client, request.id, rpc.NoParams())
            case "stop":
                self.server.respond(client, request.id, rpc.NoParams())
                self.stopping = True

    def _may_share(self, group: Group, kind: str, every_s: float) -> bool:
        """Whether it is time to tell something in passing again. A bot does not."""
        said = self.log.announced(group).get(group.me)
        bot = said is not None and said.what.bot
        return not bot and not self.ending and self._pace.allows(every_s, time.monotonic(), kind, group.id)

    # --- a turn -----------------------------------------------------------------------------------------------------

    def gather(self, effects: Iterable[Effect], before: Agent, after: Agent) -> Notes:
        """What a turn has to say of the stream, to be written with it. Raises what the journal raises."""
        answered = [
            (self._tickets[one.ticket][1], partial(self._said, one, after))
            for one in effects
            if isinstance(one, Answer) and isinstance(one.result, Posted) and one.ticket in self._tickets
        ]
        return self.stream.gather(effects, before, after, answered)

    def _said(self, answer: Answer, agent: Agent) -> object:
        """What is answered; None where that is gone again."""
        _, request, command = self._tickets[answer.ticket]
        with suppress(KeyError):
            return self._result(answer, request, command, agent)
        return None

    def settle(self, effect: Answer | Refuse, agent: Agent) -> None:
        """The core has answered a command."""
        client, request, command = self._tickets.pop(effect.ticket)
        if isinstance(effect, Refuse):
            self._files.unsent(command, agent)
            self._refuse(client, request, _why(effect.error, command, agent))
        else:
            try:
                result = self._result(effect, request, command, agent)
            except KeyError:  # what it was about is gone again
                self._refuse(client, request, Undone())
            else:
                self.server.respond(client, request.id, result)
                self.stream.keys.settled(request, result)

    def fail(self, ask: Ask, error: LocalError, agent: Agent) -> None:
        """A command could not be carried out, for a reason that the core knows nothing of."""
        if ask.ticket in self._tickets:
            client, request, command = self._tickets.pop(ask.ticket)
            self._files.unsent(command, agent)
            self._refuse(client, request, error)

    def _result(self, answer: Answer, request: Request, command: Command, agent: Agent) -> object:
        match answer.result:
            case GroupCreated(group) | Left(group):
                return self.group_info(agent, agent.groups[group])
            case InvitationCreated(group, invitation):
                made = agent.invitations[knock_link(invitation.id)]
                short = self.lend(invitation.url(), invitation.expires)
                return core_state.invitation_info(group, invitation, made.uses, short, made.role, made.history)
            case Voted(group, member, votes, needed):
                return replace(roster.vote(agent.groups[group], member), votes=votes, needed=needed)
            case Changed(group):
                return self._changed(command, agent, agent.groups[group])
            case JoinStarted(join):
                return rpc.JoinStatus(join=join, phase="dialling", text="Looking for whoever invited you…")
            case JoinEnded(join):
                return core_state.ended(agent, join)
            case Forgotten():
                return rpc.NoParams()
            case FileChanged(group, key):
                found = agent.groups[group]
                return view.file_info(found, found.files[key].file, found.files[key], self._labels(found))
            case Imported(group, outcomes):
                assert isinstance(command, ImportEvents)
                return event_pages.imported(self.journal, group, command.records, outcomes)
            case Shared(members):
                return rpc.Shared(members)
            case Posted(group, event) if request.method == "announce":
                return rpc.Announced(group, event)
            case Posted(group, event, seq, lamport):
                meant = delivery.audience(agent.groups[group], agent.groups[group].me, seq, lamport)
                return rpc.Sent(group, event, lamport, seq, len(meant))
            case Asked(thread):
                return rpc.ToldInfo(thread) if request.method == "tell" else rpc.Question(thread)
            case Connected(name) if request.method == "connect":
                return core_state.connection_info(agent, agent.connections[name])
            case Connected():
                return rpc.NoParams()
            case Offered(name, url, expires):
                ends = timestamp(expires * 1000)
                return rpc.OfferInfo(url=url, expires_at=ends, connection=name, short=self.lend(url, expires))

    def _changed(self, command: Command, agent: Agent, group: Group) -> object:
        """What a face gets to see of what it has changed."""
        if isinstance(command, SetTerms):
            return self._log_info(group)
        if isinstance(command, ChangeRole | VerifyMember):
            wanted = command.member or group.me
            return next(one for one in self._members(agent, group) if one.did == wanted)
        return self.group_info(agent, group)

    def _log_info(self, group: Group) -> rpc.LogInfo:
        from zerochat.agent.views import tlog_status

        return tlog_status.log_info(self.journal, group, self._labels(group))

    def _members(self, agent: Agent, group: Group) -> list[rpc.MemberInfo]:
        said = {did: one.what for did, one in self.log.announced(group).items()}
        return core_state.member_infos(agent, group, said, self._guilty(group))

    def _guilty(self, group: Group) -> dict[str, list[str]]:
        if not group.mode.signs:
            return {}
        from zerochat.agent.disputes import handlers

        return handlers.guilty(self.journal, group)

    def group_info(self, agent: Agent, group: Group) -> rpc.GroupInfo:
        return core_state.group_info(agent, group, self.log.topic(group))

    # --- the log ----------------------------------------------------------------------------------------------------

    def _history(self, group: Group, params: rpc.HistoryParams) -> rpc.History:
        page = page_of(self.journal, group.id, params)
        events = self.log.events(group, page.rows, self._labels(group))
        if len(events) > 1 and sum(len(json.encode(event)) for event in events) > EVENTS_BYTES_MAX:
            return self._history(group, replace(params, limit=len(events) // 2))
        return rpc.History(events, more=page.more, newer=page.newer)

    def _labels(self, group: Group) -> dict[str, str]:
        known = self._names.get(group.id)
        if known is None or known[0] != group.view.checksum:
            known = self._names[group.id] = (group.view.checksum, core_state.labels(group))
        return known[1]

    def _about(self, method: str, agent: Agent, wanted: str, event: str) -> rpc.DeliveryReport | rpc.Fate:
        """Who has one event, or all that is known of it."""
        group = find_group(agent, wanted)
        row, told = self._reported(agent, group, event)
        if method != "why":
            return told
        held = self.journal.receipts_of(group.id, row.author, row.position)
        return delivery.fate(group, row, held, self._labels(group), told)

    def _reported(self, agent: Agent, group: Group, event: str) -> tuple[Row, rpc.DeliveryReport]:
        """An event that is meant, and who has it, with their signatures."""
        row, names = event_pages.find_row(self.journal, group, event), self._labels(group)
        held = self.journal.receipts_of(group.id, row.author, row.position)
        told = delivery.report(agent, group, row, held, names, self.log.event(group, row, names))
        if group.mode.signs and not told.signed:
            from zerochat.agent.proofs import signatures  # most groups have none

            told = signatures.with_signatures(self.journal, group, row, told)
        return row, told

    # --- waiting ----------------------------------------------------------------------------------------------------

    def take_filed(self) -> list[Ask]:
        """The messages whose files are here now."""
        return self._files.take_filed()

    def review(self, agent: Agent) -> float | None:
        """Answer every wait that is over, and tell how files get on; when to look again, on the monotonic clock."""
        now = time.monotonic()
        deadlines = (self._waits.review(agent, now), self._files.review(agent, now))
        return min((one for one in deadlines if one is not None), default=None)

    # --- news -------------------------------------------------------------------------------------------------------

    def begin_to_stop(self, within_s: float) -> None:
        """Do nothing new from now on, and tell every face that the agent ends within so many seconds. What is asked is
        still answered, and whoever waits for something may still get it."""
        self.ending = True
        self.server.notify(self.server.clients, "stopping", rpc.Stopping(within_s))

    def since(self, agent: Agent, seq: int) -> tuple[int, list[rpc.Event]]:
        """What was delivered after this local seq, as much as is fed at once, and up to which seq that goes."""
        rows = self.journal.by_seq(seq, FEED_ROWS)
        fed = self.stream.followers.fed(agent, rows)
        return (rows[-1].seq if rows else seq), [one.event for one in fed if one.event is not None]

    def feed(self, agent: Agent) -> bool:
        """Tell everybody what is new, as much as each can take. True: there is more for somebody."""
        return self.stream.feed(agent)

    def tell(self, news: Iterable[notifications.Notice], agent: Agent) -> None:
        """Pass the core's notices on to whoever subscribed."""
        here = {"", *agent.groups}  # but for what was forgotten since
        news = list(news)
        self._files.note(news)
        told_anyway = (notifications.JoinProgress, notifications.ViewChanged)
        news = [one for one in news if isinstance(one, told_anyway) or getattr(one, "group", "") in here]
        news = [one for one in news if not isinstance(one, notifications.Typing) or self._is_new(one)]
        news = [one for one in news if not isinstance(one, notifications.Recounted) or self._says(one)]
        self._names = {group: names for group, names in self._names.items() if group in here}
        told = [item for notice in news if (item := core_state.news(notice, agent, self._labels)) is not None]
        self._joins |= {item.join: item for _, _, item in told if isinstance(item, rpc.JoinStatus)}
        known = {one.id for one in agent.joins.values()}
        self._joins = {join: status for join, status in self._joins.items() if join in known}
        for method, group, params in (*told, *self._amended(news, agent)):
            self.server.notify(self.stream.listeners(method, group), method, params)

    def _is_new(self, typing: notifications.Typing) -> bool:
        """Whether the faces have not been told of it just now."""
        return self._pace.allows(TYPING_HEARD_S, time.monotonic(), "heard", typing.group, typing.member)

    def _says(self, recounted: notifications.Recounted) -> bool:
        """Whether anything stands there that people are shown."""
        with suppress(LocalError):  # the status says why
            return self.log.says(recounted)
        return False

    def _amended(self, news: Iterable[notifications.Notice], agent: Agent) -> Iterator[tuple[str, str, rpc.Amended]]:
        """The messages that stand otherwise, because they, or what was said about them, are confirmed, were never said,
        or count otherwise."""
        for notice in news if self.stream.listeners("amended", "") else ():
            if isinstance(notice, notifications.Confirmed | notifications.Refuted | notifications.Recounted):
                group = agent.groups[notice.group]
                with suppress(LocalError):  # the status says why
                    for event in self.log.settled(group, notice, self._labels(group)):
                        yield "amended", group.id, rpc.Amended(event)


def _told_apart(error: LocalError, agent: Agent) -> LocalError:
    """Where a name is several groups', with their ids."""
    if not isinstance(error, AmbiguousGroup):
        return error
    wanted = str(error.fields["group"])
    named = [one for one in agent.groups.values() if one.name == wanted]
    meant = [one.id for one in named if one.state != "left"] or [one.id for one in named]
    return AmbiguousGroup(group=wanted, ids=meant or [name for name in agent.groups if name.startswith(wanted)])


def _why(error: LocalError, command: Command, agent: Agent) -> LocalError:
    """Why we are no longer in a group, where others have seen to that."""
    error = _told_apart(error, agent)
    wanted = getattr(command, "group", "")
    if not isinstance(error, NotAMember) or not wanted:
        return error
    group = find_group(agent, wanted)
    if not group.removed_by:
        return error
    return PutOut(
        sentence=group_rules.put_out(group.name, group_rules.removers_of(core_state.group_info(agent, group)))
    )
