"""The verbs for relationships outside of any group: connect, connections, tell, disconnect, route."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.links import invitation_text, qr_lines
from zerochat.cli.output import (
    PREFIX_MIN,
    Output,
    called,
    find_connection,
    local_time,
    mediation,
    name_of,
    narrate,
    problem_sentence,
    table,
)
from zerochat.cli.parser import Options
from zerochat.cli.talk import text_to_send
from zerochat.errors import LocalError
from zerochat.rpc import ConnectionInfo, LetterInfo, OfferInfo, PongNews, ProblemNews, Question, ToldInfo
from zerochat.terminal_text import printable, printable_key

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

LOOK_S = 0.5
"""How often a connection is looked at while nothing is heard of it."""
HANDED_OVER_S_MAX = 5.0
"""How long an agent that lives only for one `tell` stays, so that the text gets out."""
MEETING_S_MAX = 2.0
"""How long an agent that lives only for one `route` looks for the mediators."""
EXPIRES_S = 86_400


class NotAnInvitation(LocalError):
    """--expires says how long an invitation of yours is good, so it goes with --invite. An invitation that you were
    given ends when its maker has said."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NotConfirmed(LocalError):
    """Ending the connection with {peer} must be confirmed, and there is no terminal to ask: add --yes."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoMediator(LocalError):
    """No mediator of yours is called {peer}. `zerochat route` lists them."""


# --- beginning ------------------------------------------------------------------------------------------------------


def connect(options: Options, out: Output) -> ExitCode:
    if options.invite:
        return _offer(options, out)
    if options.expires_s is not None:
        raise NotAnInvitation
    text = invitation_text(options, "connect")
    with attached(options) as agent:
        one = _begin(agent.client, options, text, lambda one: one.state != "requested")
    if one is None or one.state == "ended":
        narrate("They have ended the connection.")
        return ExitCode.REFUSED
    out.data(one, [one.id])
    if one.state == "established":
        narrate(f"Connected with {called(one)}: `zerochat ping` tries it, `zerochat tell` says something.")
        return ExitCode.OK
    narrate(f"No answer from {called(one)} yet. `zerochat connections` says when there is one.")
    return ExitCode.TIMEOUT


def _begin(
    client: "Client", options: Options, text: str, settled: Callable[[ConnectionInfo], bool], mediate: bool = False
) -> ConnectionInfo | None:
    """Accept an invitation, and wait until the connection is as it should be or the time is up; None: it has ended."""
    client.subscribe()
    deadline = time.monotonic() + options.timeout_s
    one: ConnectionInfo | None = client.call("connect", invitation=text, name=options.name or "", mediate=mediate)
    assert one is not None
    name = one.id
    while one is not None and not settled(one) and (left := deadline - time.monotonic()) > 0:
        news = client.next_news(min(left, LOOK_S))
        if news is not None and isinstance(news.item, ProblemNews):
            narrate(problem_sentence(news.item))
        one = next((known for known in _all(client) if known.id == name), None)
    return one


def _all(client: "Client") -> list[ConnectionInfo]:
    found: list[ConnectionInfo] = client.call("connections")
    return found


def _offer(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        offer: OfferInfo = agent.client.call(
            "offer", envelope=options.envelope, expires_s=options.expires_s or EXPIRES_S
        )
        if agent.own:
            narrate("Nobody answers this link until an agent of yours is running: start `zerochat agent`, or the chat.")
    match options.format:
        case "url":
            out.exactly(printable(offer.url))
        case "qr":
            out.data(offer, [offer.url, "", *([offer.short, ""] if offer.short else [])])
            for line in qr_lines(offer.short or offer.url):
                out.exactly(line)
        case _:
            short = [("short", offer.short)] if offer.short else []
            good = f"once, until {local_time(offer.expires_at)}"
            out.data(offer, table([("link", offer.url), *short, ("good", good)]))
    return ExitCode.OK


# --- those that there are -------------------------------------------------------------------------------------------


def connections(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = _all(agent.client)
    rows: list[tuple[str, ...]] = [("NAME", "STATE", "ENVELOPE", "MEDIATOR", "DID", "ID")]
    for one in found:
        did = printable_key(one.did) or "-"
        rows.append((called(one), one.state, one.envelope, one.mediator or "-", did, one.id))
    out.data_list(found, table(rows) if found else ())
    if not found:
        narrate("There are no connections. `zerochat connect` begins one.")
    return ExitCode.OK


def tell(options: Options, out: Output) -> ExitCode:
    text = text_to_send(None if options.text == "-" else options.text, "tell")
    with attached(options) as agent:
        client = agent.client
        client.subscribe()
        told: ToldInfo = client.call("tell", peer=options.peer, text=text)
        out.data(told, [told.id])
        if agent.own and not _answers(client, options.peer):
            narrate(f"{name_of(options.peer)} has not answered, so the text may not have got there.")
            return ExitCode.UNREACHABLE
    return ExitCode.OK


def letters(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found: list[LetterInfo] = agent.client.call("letters", peer=options.peer)
        one = find_connection(_all(agent.client), options.peer)
    lines, them = [], name_of(options.peer) if one is None else called(one)
    for each in found:
        first, *more = printable(each.text).splitlines() or [""]
        who = "you" if each.mine else them
        lines += [f"{local_time(each.at)}  {who}: {first}", *(f"{'':18}{line}" for line in more)]
    out.data_list(found, lines)
    if not found:
        narrate(f"Nothing has been said to or by {them} yet.")
    return ExitCode.OK


def _answers(client: "Client", peer: str) -> bool:
    """Whether a ping behind the text is answered: an agent of our own must not end before both are out."""
    question: Question = client.call("ping", peer=peer)
    deadline = time.monotonic() + HANDED_OVER_S_MAX
    while (news := client.next_news(max(deadline - time.monotonic(), 0.0))) is not None:
        if isinstance(news.item, PongNews) and news.item.thread == question.thread:
            return True
    return False


def disconnect(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(peer=options.peer)
    with attached(options) as agent:
        one = find_connection(_all(agent.client), options.peer)
        who = name_of(options.peer) if one is None else called(one)
        if not options.yes and not _confirmed(who):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        agent.client.call("disconnect", peer=options.peer)
    out.data({"peer": options.peer}, ())
    narrate(f"The connection with {who} has ended.")
    return ExitCode.OK


def _confirmed(who: str) -> bool:
    question = f"End the connection with {who}? Beginning again needs a new invitation. [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --- mediators ------------------------------------------------------------------------------------------------------


def route(options: Options, out: Output) -> ExitCode:
    match options.route_action:
        case "add":
            return _add(options, out)
        case "drop":
            return _drop(options, out)
    with attached(options) as agent:
        found = _mediators(agent.client, MEETING_S_MAX if agent.own else 0.0)
    out.data_list(found, _mediator_lines(found) if found else ())
    if not found:
        narrate("Nobody takes in what is for you while you are away. `zerochat route add` asks a mediator to.")
    return ExitCode.OK


def _mediators(client: "Client", patience_s: float) -> list[ConnectionInfo]:
    """The mediators, as soon as all of them are reached or the time for that is up."""
    client.subscribe()
    deadline = time.monotonic() + patience_s
    while True:
        found = [one for one in _all(client) if one.mediator]
        left = deadline - time.monotonic()
        if left <= 0 or all(one.reachable is not False for one in found):
            return found
        client.next_news(min(left, LOOK_S))


def _mediator_lines(found: Sequence[ConnectionInfo]) -> list[str]:
    return table([("NAME", "ANSWER", "ID"), *((called(one), mediation(one), one.id) for one in found)])


def _told(client: "Client") -> str:
    """How a sentence about a mediator ends for somebody who is in a group."""
    groups = any(group.state == "active" for group in client.groups())
    return ", and the members of your groups are told so" if groups else ""


def _add(options: Options, out: Output) -> ExitCode:
    text = invitation_text(options, "route add")
    with attached(options) as agent:
        one = _begin(
            agent.client,
            options,
            text,
            lambda one: one.mediator != "asking" or one.state == "ended",
            mediate=True,
        )
        told = _told(agent.client)
    if one is None or one.state == "ended":
        narrate("They have ended the connection.")
        return ExitCode.REFUSED
    out.data(one, [one.id])
    who = called(one)
    if one.mediator == "granted":
        narrate(f"{who} takes in what is for you from now on{told}.")
        return ExitCode.OK
    if one.mediator == "denied":
        narrate(f"{who} does not want to take in what is for you. `zerochat route drop` forgets it.")
        return ExitCode.REFUSED
    narrate(f"No answer from {who} yet. The agent goes on asking; `zerochat route` says when there is an answer.")
    return ExitCode.TIMEOUT


def _drop(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        mediators = [one for one in _all(agent.client) if one.mediator]
        named = [one for one in mediators if options.peer in (one.label, one.id)]
        if not named and len(options.peer) >= PREFIX_MIN:
            named = [one for one in mediators if one.id.startswith(options.peer)]
        if not named:
            raise NoMediator(peer=options.peer)
        # Where two have one name, the agent says what to do.
        agent.client.call("disconnect", peer=named[0].id if len(named) == 1 else options.peer)
        told = _told(agent.client)
    out.data({"peer": options.peer}, ())
    narrate(f"{called(named[0])} takes in nothing for you any more{told}.")
    return ExitCode.OK
