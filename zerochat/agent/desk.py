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

from zerochat.agent import (
    delivery,
    drafts,
    invitations,
    ledger,
    plain,
    report,
    roster,
    schema,
    speech,
    wishes,
)
from zerochat.agent.control import ControlServer, read_params
from zerochat.agent.files import shown
from zerochat.agent.files.counter import Counter
from zerochat.agent.files.room import FileRoom
from zerochat.agent.journal import Journal, Row
from zerochat.agent.pace import READ_SENT_S, TYPING_HEARD_S, TYPING_SENT_S, Pace
from zerochat.agent.pages import page_of
from zerochat.agent.places import Places
from zerochat.agent.schema import Request
from zerochat.agent.stamp import timestamp
from zerochat.agent.standings import Standings
from zerochat.agent.stream.followers import FEED_ROWS
from zerochat.agent.stream.store import Notes
from zerochat.agent.stream.stream import Stream
from zerochat.agent.waits import Waits
from zerochat.errors import AmbiguousGroup, InternalFault, LocalError, NotAMember
from zerochat.group import notices
from zerochat.group.contact import knock_link
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
from zerochat.group.find import find_connection, find_group
from zerochat.group.state import Agent, Group
from zerochat.group.stimuli import (
    Ask,
    ChangeRole,
    Command,
    ImportEvents,
    SetTerms,
    ShareRead,
    ShareTyping,
    VerifyMember,
)

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
    status: Callable[[Agent], schema.Status]
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
    _joins: dict[str, schema.JoinStatus] = field(default_factory=dict)
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
            case schema.HelloParams():
                status = self.status(agent)
                if params.protocol != schema.PROTOCOL:
                    raise wishes.BadRequest(
                        why=f"this agent speaks version {schema.PROTOCOL} of the protocol, not {params.protocol}"
                    )
                hello = schema.Hello(
                    protocol=schema.PROTOCOL,
                    version=status.version,
                    profile=status.profile,
                    nick=status.nick,
                    methods=list(schema.METHODS),
                    features=list(FEATURES),
                )
                self.server.respond(client, request.id, hello)
            case (
                schema.SendParams()
                | schema.EditParams()
                | schema.DeleteParams()
                | schema.ReactParams()
                | schema.TopicParams()
            ):
                group = find_group(agent, params.group)
                if self.stream.keys.claim(client, request, group.id, params):
                    return speech.command_of(self.log, group, params)
            case (
                schema.AttachParams()
                | schema.FileParams()
                | schema.SaveParams()
                | schema.PictureParams()
                | schema.FilesParams()
            ):
                if self.ending and isinstance(params, schema.AttachParams):
                    raise AgentStopping
                return self._files.serve(client, request, agent, find_group(agent, params.group), params)
            case schema.AnnounceParams():
                said = speech.announcement(self.log, find_group(agent, params.group), params)
                if not isinstance(said, schema.Announced):
                    return said
                self.server.respond(client, request.id, said)
            case schema.WaitParams():
                self._waits.add(client, request.id, agent, params, time.monotonic())
                self.review(agent)
            case schema.EventParams(wanted, event):
                self.server.respond(client, request.id, self._about(request.method, agent, wanted, event))
            case schema.RowsParams():
                page = ledger.rows(self.journal, find_group(agent, params.group), params)
                self.server.respond(client, request.id, page)
            case schema.ProofParams():
                from zerochat.agent import proofs  # hardly anybody asks for one

                self.server.respond(
                    client, request.id, proofs.proof(self.journal, find_group(agent, params.group), params)
                )
            case schema.AccuseParams() | schema.CaseParams():
                self.server.respond(client, request.id, self._case(find_group(agent, params.group), agent, params))
            case schema.GroupParams(wanted) if request.method == "cases":
                from zerochat.agent.cases.shown import infos

                self.server.respond(client, request.id, infos(self.journal, find_group(agent, wanted)))
            case schema.GroupParams(wanted) if request.method == "log":
                self.server.respond(client, request.id, self._log_info(find_group(agent, wanted)))
            case schema.EvidenceParams(wanted, event):
                from zerochat.agent import signatures

                group = find_group(agent, wanted)
                about = self._reported(agent, group, event) if event else None
                found = signatures.evidence(self.journal, group, self._labels(group), about)
                self.server.respond(client, request.id, found)
            case schema.GroupParams(wanted) if request.method == "ledger":
                self.server.respond(client, request.id, ledger.ledger(self.journal, find_group(agent, wanted)))
            case schema.SetParams():
                from zerochat.agent import tuning  # like all that hardly anybody asks for: not before it is wanted

                changed = tuning.change(self.places, params)
                if tuning.holds_at_once(changed.name):
                    self.reload()
                self.server.respond(client, request.id, changed)
            case _ if request.method.startswith("telemetry"):
                if self.telemetry is None:
                    raise NoTelemetry
                self.server.respond(client, request.id, self.telemetry(request.method, params))
            case schema.HistoryParams():
                self.server.respond(client, request.id, self._history(find_group(agent, params.group), params))
            case schema.SearchParams():
                from zerochat.agent import finding

                self.server.respond(client, request.id, finding.search(self.journal, agent, params))
            case schema.SubscribeParams():
                self.server.respond(client, request.id, self.stream.subscribe(client, params, agent))
            case schema.AckParams(consumer, seq):
                self.stream.consumers.ack(client, request.id, consumer, seq)
            case schema.ConsumerParams(consumer):
                self.stream.consumers.forget(consumer)
                self.server.respond(client, request.id, schema.NoParams())
            case schema.ReadParams(wanted, upto):
                group = find_group(agent, wanted)
                if agent.sharing.read_receipts and self._may_share(group, "read", READ_SENT_S):
                    return ShareRead(group.id, upto)
                self.server.respond(client, request.id, schema.Shared())
            case schema.GroupParams(wanted) if request.method == "typing":
                group = find_group(agent, wanted)
                if agent.sharing.typing and self._may_share(group, "typing", TYPING_SENT_S):
                    return ShareTyping(group.id)
                self.server.respond(client, request.id, schema.Shared())
            case schema.GroupParams(wanted) if request.method == "members":
                self.server.respond(client, request.id, self._members(agent, find_group(agent, wanted)))
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

    def _case(self, group: Group, agent: Agent, params: schema.AccuseParams | schema.CaseParams) -> Struct:
        from zerochat.agent.cases import shown

        if isinstance(params, schema.CaseParams):
            return shown.part(self.journal, group, params)
        if self.ending:
            raise AgentStopping
        begun = shown.begin(self.journal, group, params, int(time.time() * 1000) - agent.leap)
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
                joins = report.joins(agent, self._joins)
                self.server.respond(client, request.id, replace(self.status(agent), joins=joins))
            case "groups":
                groups = [self.group_info(agent, group) for group in agent.groups.values()]
                self.server.respond(client, request.id, groups)
            case "connections":
                connections = [report.connection_info(agent, one) for one in agent.connections.values()]
                self.server.respond(client, request.id, connections)
            case "consumers":
                self.server.respond(client, request.id, self.stream.consumers.infos())
            case "settings":
                from zerochat.agent import tuning

                self.server.respond(client, request.id, tuning.settings(self.places))
            case "backup":
                from zerochat.agent.backup import copy_beside

                self.server.respond(client, request.id, schema.Copied(str(copy_beside(self.journal))))
            case "reload":
                self.reload()
                self.server.respond(client, request.id, schema.NoParams())
            case "stop":
                self.server.respond(client, request.id, schema.NoParams())
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
            case Shared(members):
                return schema.Shared(members)
            case Posted(group, event) if request.method == "announce":
                return schema.Announced(group, event)
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
        if isinstance(command, SetTerms):
            return self._log_info(group)
        if isinstance(command, ChangeRole | VerifyMember):
            wanted = command.member or group.me
            return next(one for one in self._members(agent, group) if one.did == wanted)
        return self.group_info(agent, group)

    def _log_info(self, group: Group) -> schema.LogInfo:
        from zerochat.agent import loginfo

        return loginfo.log_info(self.journal, group, self._labels(group))

    def _members(self, agent: Agent, group: Group) -> list[schema.MemberInfo]:
        said = {did: one.what for did, one in self.log.announced(group).items()}
        return report.member_infos(agent, group, said, self._guilty(group))

    def _guilty(self, group: Group) -> dict[str, list[str]]:
        if not group.mode.signs:
            return {}
        from zerochat.agent.cases import shown

        return shown.guilty(self.journal, group)

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
        row, told = self._reported(agent, group, event)
        if method != "why":
            return told
        held = self.journal.receipts_of(group.id, row.author, row.position)
        return delivery.fate(group, row, held, self._labels(group), told)

    def _reported(self, agent: Agent, group: Group, event: str) -> tuple[Row, schema.DeliveryReport]:
        """An event that is meant, and who has it, with their signatures."""
        row, names = ledger.find_row(self.journal, group, event), self._labels(group)
        held = self.journal.receipts_of(group.id, row.author, row.position)
        told = delivery.report(agent, group, row, held, names, self.log.event(group, row, names))
        if group.mode.signs and not told.signed:
            from zerochat.agent import signatures  # most groups have none

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
        self.server.notify(self.server.clients, "stopping", schema.Stopping(within_s))

    def since(self, agent: Agent, seq: int) -> tuple[int, list[schema.Event]]:
        """What was delivered after this local seq, as much as is fed at once, and up to which seq that goes."""
        rows = self.journal.by_seq(seq, FEED_ROWS)
        fed = self.stream.followers.fed(agent, rows)
        return (rows[-1].seq if rows else seq), [one.event for one in fed if one.event is not None]

    def feed(self, agent: Agent) -> bool:
        """Tell everybody what is new, as much as each can take. True: there is more for somebody."""
        return self.stream.feed(agent)

    def tell(self, news: Iterable[notices.Notice], agent: Agent) -> None:
        """Pass the core's notices on to whoever subscribed."""
        here = {"", *agent.groups}  # but for what was forgotten since
        news = list(news)
        self._files.note(news)
        told_anyway = (notices.JoinProgress, notices.ViewChanged)
        news = [one for one in news if isinstance(one, told_anyway) or getattr(one, "group", "") in here]
        news = [one for one in news if not isinstance(one, notices.Typing) or self._is_new(one)]
        news = [one for one in news if not isinstance(one, notices.Recounted) or self._says(one)]
        self._names = {group: names for group, names in self._names.items() if group in here}
        told = [item for notice in news if (item := report.news(notice, agent, self._labels)) is not None]
        self._joins |= {item.join: item for _, _, item in told if isinstance(item, schema.JoinStatus)}
        known = {one.id for one in agent.joins.values()}
        self._joins = {join: status for join, status in self._joins.items() if join in known}
        for method, group, params in (*told, *self._amended(news, agent)):
            self.server.notify(self.stream.listeners(method, group), method, params)

    def _is_new(self, typing: notices.Typing) -> bool:
        """Whether the faces have not been told of it just now."""
        return self._pace.allows(TYPING_HEARD_S, time.monotonic(), "heard", typing.group, typing.member)

    def _says(self, recounted: notices.Recounted) -> bool:
        """Whether anything stands there that people are shown."""
        with suppress(LocalError):  # the status says why
            return self.log.says(recounted)
        return False

    def _amended(self, news: Iterable[notices.Notice], agent: Agent) -> Iterator[tuple[str, str, schema.Amended]]:
        """The messages that stand otherwise, because they, or what was said about them, are confirmed, were never said,
        or count otherwise."""
        for notice in news if self.stream.listeners("amended", "") else ():
            if isinstance(notice, notices.Confirmed | notices.Refuted | notices.Recounted):
                group = agent.groups[notice.group]
                with suppress(LocalError):  # the status says why
                    for event in self.log.settled(group, notice, self._labels(group)):
                        yield "amended", group.id, schema.Amended(event)


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
    return PutOut(sentence=plain.put_out(group.name, plain.removers_of(report.group_info(agent, group))))
