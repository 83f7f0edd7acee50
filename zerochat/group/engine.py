"""The heart: `step(agent, stimulus, moment) -> (agent, effects)`.

Pure: no clock, no dice, no disk, no wire. The same function runs behind the sockets of `agent/`, in the simulator and
in the tests. Whatever a peer sends, it returns: a message that is refused leaves the agent exactly as it was and is
counted; a command that cannot be done is answered with its error.
"""

from collections.abc import Mapping
from typing import ClassVar, assert_never

from zerochat.didcomm import PACKERS
from zerochat.didcomm.packer import Packer
from zerochat.errors import (
    LocalError,
    Refused,
    RemoteError,
    Retry,
)
from zerochat.group import clock_changes, commands, dispatch
from zerochat.group.effects import (
    Answer,
    Effect,
    Measure,
    Refuse,
)
from zerochat.group.event_log import log
from zerochat.group.external import connections, mediators
from zerochat.group.files import download, upload
from zerochat.group.inputs import (
    Ask,
    ClockSet,
    Compared,
    Fetched,
    FileFailed,
    FilesFound,
    FileWhole,
    LinkDown,
    LinkUp,
    LookedUp,
    Mailed,
    Moment,
    PartsRead,
    PartsStored,
    PostFailed,
    Recalled,
    Received,
    Started,
    Stimulus,
    TimerFired,
    TurnOver,
    WebDown,
    WebUp,
)
from zerochat.group.joining import invitations, joiner, member_connections, requests
from zerochat.group.links import mediator_mail, pairing, peers, rate_limits
from zerochat.group.links.contact import Reach
from zerochat.group.membership import leave
from zerochat.group.state import Agent
from zerochat.group.sync import (
    acknowledgements,
    backfill,
    corroboration,
    fork_detection,
    history_requests,
    pull_requests,
    relay,
    stale_profile,
)
from zerochat.group.tlog import dispatch as hearing_log
from zerochat.group.tlog import operator, timers
from zerochat.group.transaction import Turn


class NotPossible(LocalError):
    """The group does not allow this as it is now: {why}."""


class NotYet(LocalError):
    """{sentence}"""

    retry: ClassVar[Retry] = "later"


def step(
    agent: Agent, stimulus: Stimulus, moment: Moment, packers: Mapping[str, Packer] = PACKERS
) -> tuple[Agent, list[Effect]]:
    """Advance the agent by one stimulus. Never raises for anything that a peer or a person can cause.

    `packers` are the kinds of envelopes that there are; each group has picked one.
    """
    if isinstance(stimulus, TurnOver) and not any(group.fresh for group in agent.groups.values()):
        return agent, []  # as nearly every turn ends
    turn = Turn(agent, moment, packers)
    try:
        match stimulus:  # the usual ones first
            case Received(link, envelope, handle):
                dispatch.receive(turn, link, envelope, handle)
            case TimerFired(key):
                _timer(turn, key)
            case TurnOver():
                for name, group in agent.groups.items():
                    if group.fresh:
                        log.publish(turn, name)
            case Ask(ticket, command):
                turn.say(Answer(ticket, commands.obey(turn, command)))
            case Started(pair, queue, server_key, web, hidden, cover, restored, anew):
                # One key is for all our groups: whoever cannot be dialled tells it to nobody, and stays unrecognised.
                reach = Reach(b"", None, None) if hidden else Reach(server_key, pair, queue)
                for name in turn.agent.groups if restored else ():
                    stale_profile.begin(turn, name)
                clock_changes.started(turn, anew)
                turn.change(file_rules=stimulus.files, sharing=stimulus.sharing, rotation=stimulus.rotation)
                _start(turn, reach, web)
                if cover:
                    turn.timer("cover", "", acknowledgements.cover_delay(turn))
            case ClockSet(by_ms):
                clock_changes.was_set(turn, by_ms)
            case LinkUp(link):
                _link(turn, link, up=True)
            case LinkDown(link):
                _link(turn, link, up=False)
            case Recalled(group, member, records, messages):
                if group in agent.groups:
                    acknowledgements.recalled(turn, group, member, records, messages)
            case Fetched():
                history_requests.fetched(turn, stimulus)
            case Compared():
                fork_detection.compared(turn, stimulus)
            case PartsRead():
                upload.read(turn, stimulus)
            case PartsStored(group, file, upto):
                if group in agent.groups:
                    download.stored(turn, group, file, upto)
            case FileWhole(group, file):
                if group in agent.groups:
                    download.whole(turn, group, file)
            case FileFailed(group, file, why):
                if group in agent.groups:
                    download.failed(turn, group, file, why)
            case LookedUp():
                hearing_log.looked_up(turn, stimulus)
            case FilesFound(there):
                download.found_all(turn, there)
            case Mailed(envelope, handle):
                dispatch.hear_mail(turn, envelope, handle)
            case PostFailed(uri):
                if mediator_mail.failed(turn, uri):
                    _try_elsewhere(turn, uri)
            case WebUp(uri):
                turn.change(web_up=turn.agent.web_up | {uri})
                mediators.web_up(turn, uri)
            case WebDown(uri):
                turn.change(web_up=turn.agent.web_up - {uri})
                mediators.web_down(turn, uri)
            case _:
                assert_never(stimulus)
        if turn.agent.leap != agent.leap:
            clock_changes.settle(turn)
        mediators.settle(turn)
    except RemoteError as error:
        if isinstance(stimulus, Ask):
            return agent, [Refuse(stimulus.ticket, _refusal(error))]
        refused = Turn(agent, moment, packers)
        if isinstance(stimulus, Received) and (found := dispatch.whose(agent, stimulus.link)) is not None:
            rate_limits.spend(refused, *found, len(stimulus.envelope))
        elif (
            isinstance(stimulus, Received)
            and (knock := agent.calls.get(stimulus.link, stimulus.link)) in agent.invitations
        ):
            rate_limits.spend_knock(refused, knock, len(stimulus.envelope))
        return refused.agent, [Measure("dropped", error.code)]
    except LocalError as error:
        assert isinstance(stimulus, Ask)
        return agent, [Refuse(stimulus.ticket, error)]
    return turn.agent, turn.effects


def _refusal(error: RemoteError) -> LocalError:
    """Why we may not do what we would refuse others, too; but without the words that are about others."""
    if isinstance(error, stale_profile.NotKnown):
        return NotYet(sentence=error.sentence())
    return NotPossible(why=error.fields.get("why", error.sentence().removesuffix(".")))


# --- inputs ---------------------------------------------------------------------------------------------------------


def _start(turn: Turn, reach: Reach, web: tuple[str, ...]) -> None:
    """The sockets are there: let everybody in who may, and dial everybody whom we know."""
    turn.change(reach=reach, web=web, up=frozenset(), web_up=frozenset(), faults={}, awaited={}, questions={}, calls={})
    for name, one in list(turn.agent.connections.items()):
        connections.await_answer(turn, name)
        if one.mediation is not None:
            mediators.begin(turn, name)
    for name, group in turn.agent.groups.items():
        if group.state == "left":
            continue
        for member in sorted(group.peers):
            peers.dial(turn, name, member)
            pairing.ask_again(turn, name, member)
            if member in group.view.former:
                peers.part(turn, name, member)
            elif (
                mediator_mail.by_mail(turn, name, member) and mediator_mail.reach_of_member(group, member).pair is None
            ):
                acknowledgements.send_sync(turn, name, member)  # no link will come up and have us say it
        pull_requests.forget(turn, name)
        turn.timer("gossip", name, acknowledgements.RETRY_MS)
        turn.timer("repair", name, acknowledgements.RETRY_MS)
        relay.soon(turn, name)
        turn.timer("need", name, acknowledgements.RETRY_MS)
        turn.timer("history", name, acknowledgements.RETRY_MS)
        corroboration.soon(turn, name)
        if any(one.state == "getting" for one in group.files.values()):
            turn.timer(
                "file", name, acknowledgements.RETRY_MS
            )  # `FilesFound` is lost where the disk is full at the start
        if group.view.ledger:
            turn.timer("log", name, acknowledgements.RETRY_MS)
        if group.regain:
            turn.timer("regain", name, 1)
        if group.agree_by:
            turn.timer("agree", name, group.agree_by - turn.now)
        if group.requests:
            turn.timer("requests", name, 1)
        if group.owed:
            turn.timer("acknowledge", name, acknowledgements.QUIET_MS)
        for member in group.peers:
            pairing.greet_soon(turn, name, member)
        if group.state == "leaving":
            turn.timer("leave", name, leave.LEAVE_MS_MAX)
    for link in list(turn.agent.invitations):
        invitations.admit_knock(turn, link)
    for link in list(turn.agent.joins):
        joiner.resume(turn, link)


def _try_again(turn: Turn, uri: str) -> None:
    """A URI that did not take what we posted may do so now: say to whoever is reached there what it lacks."""
    for name, group in turn.agent.groups.items():
        if group.state == "left":
            continue
        for member in list(group.peers):
            way = mediator_mail.way_to(turn, name, member)
            if way is not None and way.uri == uri and mediator_mail.by_mail(turn, name, member):
                peers.mail_up(turn, name, member)
        leave.settle(turn, name)


def _try_elsewhere(turn: Turn, uri: str) -> None:
    """A URI does not take what we post: whoever is reached over another mediator too gets what it lacks that way."""
    for name, group in turn.agent.groups.items():
        if group.state == "left":
            continue
        for member in list(group.peers):
            if mediator_mail.by_mail(turn, name, member) and any(
                way.uri == uri for way in mediator_mail.reach_of_member(group, member).mail
            ):
                peers.mail_up(turn, name, member)


def _link(turn: Turn, link: bytes, up: bool) -> None:
    agent = turn.agent
    if up == (link in agent.up):
        return
    turn.change(up=agent.up | {link} if up else agent.up - {link})
    if link in agent.joins:
        if up:
            joiner.link_up(turn, link)
        return
    found = dispatch.whose(agent, link)
    if found is not None:
        name, member = found
        (peers.link_up if up else peers.link_down)(turn, name, member)
        if up:
            relay.soon(turn, name)
        member_connections.progress_all(turn, name)


def _timer(turn: Turn, key: str) -> None:
    """A timer that was set in an earlier turn; what it was for may be gone by now."""
    kind, _, rest = key.partition(" ")
    name, *more = rest.split(" ")
    match kind:
        case "web":
            _try_again(turn, name)
            return
        case "cover":
            acknowledgements.cover(turn)
            return
        case "mediator":
            mediators.poll(turn, name)
            return
        case "offer":
            connections.expire(turn, name)
            return
        case "call":
            invitations.hang_up(turn, bytes.fromhex(name))
            return
    if kind in ("invitation", "join", "seated"):
        link = bytes.fromhex(name)
        if kind == "invitation":
            invitations.expire(turn, link)
        elif kind == "join":
            joiner.knock(turn, link)
        else:
            member_connections.progress(turn, link, final=True)
        return
    group = turn.agent.groups.get(name)
    if group is None or group.state == "left":
        return
    match kind:
        case "acknowledge":
            acknowledgements.acknowledge(turn, name)
        case "repair":
            acknowledgements.repair(turn, name)
        case "relay":
            relay.ask(turn, name, int(more[0]))
        case "log":
            timers.go(turn, name)
        case "place":
            operator.place(turn, name)
        case "view":
            acknowledgements.compare_views(turn, name)
        case "gossip":
            acknowledgements.gossip(turn, name)
        case "need":
            history_requests.seek(turn, name)
        case "history":
            backfill.fetch(turn, name)
        case "tips":
            fork_detection.tell(turn, name, more[0])
        case "compare":
            fork_detection.fetch(turn, name, more[0])
        case "file":
            download.seek(turn, name)
        case "busy":
            download.again(turn, name, more[0])
        case "told":
            download.tell_again(turn, name, more[0], int(more[1]))
        case "second":
            corroboration.seek(turn, name)
        case "regain":
            stale_profile.seek(turn, name)
        case "meet":
            pairing.ask_again(turn, name, more[0])
        case "greet":
            pairing.greet(turn, name, more[0])
        case "listen":
            pairing.listen(turn, name, more[0], int(more[1]), bool(more[2:]))
        case "farewell":
            peers.farewell(turn, name, more[0], *map(int, more[1:]))
        case "agree":
            member_connections.progress_all(turn, name)
        case "requests":
            requests.expire(turn, name)
        case "leave":
            leave.settle(turn, name, final=True)
        case _:
            raise Refused(why=f"an unknown timer {kind}")
