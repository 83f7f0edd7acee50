"""Verbs connect, connections, message, messages and disconnect: relationships outside of groups."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import connection_name, find_connection, local_time, name_of, problem_sentence, table
from zerochat.cli.grammar import (
    EXPIRES_S,
    Options,
    Parser,
    Verbs,
    add_verb,
    connection_argument,
    envelope_option,
    timeout_option,
    yes_option,
)
from zerochat.cli.invitation_input import invitation_text, qr_lines
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import NotConfirmed, confirmed
from zerochat.cli.value_types import lifetime
from zerochat.cli.verbs.send import report_stored, text_to_send
from zerochat.errors import LocalError
from zerochat.presentation.external import author_text, text_of
from zerochat.rpc import (
    ConnectionInfo,
    ConnectionMessage,
    ConnectionMessageStatus,
    ConnectionOffer,
    ProblemNotification,
    SentConnectionMessage,
)
from zerochat.terminal_text import printable, printable_key

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

LINK_FORMATS = ("text", "url", "qr", "json", "jsonl")


def add(verbs: "Verbs[Parser]") -> None:
    _add_connect(verbs)
    add_verb(
        verbs,
        "connections",
        "list the connections",
        "List the relationships outside of groups: with mediators and with other DIDComm agents.",
        """
zerochat connections
zerochat connections --format jsonl | jq -r .did
""",
        run=connections,
    )
    parser = add_verb(
        verbs,
        "message",
        "send a text message to a connection",
        "Send a text to a connection (Basic Message): the argument, or standard input. Prints the message's id.\n"
        "If the peer's agent does not accept it within seconds, it is queued, sent again with growing pauses for five\n"
        "days, and the exit code is 3. `messages` shows what became of it. To send to a group, use send.",
        """
zerochat message archive "Keep the second one."
git log -1 --oneline | zerochat message archive -
""",
        run=message,
    )
    connection_argument(parser)
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the text, or - for standard input (the default)")
    parser = add_verb(
        verbs,
        "messages",
        "print the messages to and from a connection",
        "Print the last messages to and from a connection, oldest first; about two hundred are kept.",
        """
zerochat messages archive
zerochat messages archive --format jsonl | jq -r 'select(.mine | not).text'
""",
        run=messages,
    )
    connection_argument(parser)
    parser = add_verb(
        verbs,
        "disconnect",
        "end a connection",
        "End a connection and notify the peer. To connect again you need a new invitation. Asks for confirmation.",
        """
zerochat connections
zerochat disconnect archive
zerochat disconnect archive --yes
""",
        run=disconnect,
    )
    connection_argument(parser)
    yes_option(parser)


def _add_connect(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "connect",
        "connect with a DIDComm agent outside of groups",
        "Connect with any DIDComm agent by an Out-of-Band link, and print the connection's id. Without an argument it\n"
        "prompts for the link; - reads standard input. With --invite, create such a link instead; this needs\n"
        "`network.web` in the settings. To join a group, use join.",
        """
zerochat connect
wl-paste | zerochat connect - --name archive
zerochat connect "https://example.com/?_oobid=5f0e3ffb"
zerochat connect --invite --name archive --expires 1h
zerochat connect --invite --envelope didcomm/v1 --format qr
""",
        formats=LINK_FORMATS,
        run=connect,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("invitation", nargs="?", metavar="LINK", help="the link, or - for standard input")
    source.add_argument("--invite", action="store_true", help="create a link that one agent can use to connect")
    parser.add_argument("--name", metavar="NAME", help="local name for the connection")
    envelope_option(parser, "for --invite")
    parser.add_argument(
        "--curve",
        choices=CURVES,
        default=CURVES[0],
        help="with --invite: a curve for agents that do not have X25519 (default: %(default)s)",
    )
    parser.add_argument(
        "--signed",
        action="store_true",
        help="with --invite: sign the link, so that a change is noticed (v2 only; some agents cannot read it)",
    )
    parser.add_argument(
        "--message",
        metavar="TEXT",
        help="with --invite: a text that the link carries, readable for all who see it; shown once connected",
    )
    parser.add_argument(
        "--expires",
        dest="expires_s",
        type=lifetime,
        metavar="TIME",
        help="with --invite: lifetime, such as 90s, 30m, 24h or 7d (default: 24h)",
    )
    timeout_option(parser, 30.0, "seconds to wait for the connection (default: 30)")


CURVES = ("X25519", "P-256", "P-384", "P-521")
POLL_S = 0.5
"""Poll interval while no notification arrives."""
DELIVERY_S_MAX = 5.0
"""How long a message may take before it counts as queued."""


class ExpiresWithoutInvite(LocalError):
    """--expires requires --invite."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def connect(options: Options, out: Output) -> ExitCode:
    if options.invite:
        return _offer(options, out)
    if options.expires_s is not None:
        raise ExpiresWithoutInvite
    text = invitation_text(options, "connect")
    with attached(options) as agent:
        one = establish(agent.client, options, text, lambda one: one.state != "requested")
    if one is None or one.state == "ended":
        narrate("The peer has ended the connection.")
        return ExitCode.REFUSED
    out.data(one, [one.id])
    if one.state == "established":
        narrate(f"Connected with {connection_name(one)}. Try `zerochat ping`, or `zerochat message` to send a text.")
        return ExitCode.OK
    narrate(f"No answer from {connection_name(one)} yet. Check `zerochat connections` later.")
    return ExitCode.TIMEOUT


def establish(
    client: "Client", options: Options, text: str, settled: Callable[[ConnectionInfo], bool], mediate: bool = False
) -> ConnectionInfo | None:
    """Accept an invitation and wait until `settled` or the timeout; None if the connection has ended."""
    from zerochat.agent.invitations import resolving

    client.subscribe()
    deadline = time.monotonic() + options.timeout_s
    documents = resolving.documents(paths_of(options), text)
    one: ConnectionInfo | None = client.call(
        "open_connection", invitation=text, name=options.name or "", mediate=mediate, documents=documents
    )
    assert one is not None
    name = one.id
    while one is not None and not settled(one) and (left := deadline - time.monotonic()) > 0:
        news = client.next_notification(min(left, POLL_S))
        if news is not None and isinstance(news.params, ProblemNotification):
            narrate(problem_sentence(news.params))
        one = next((known for known in all_connections(client) if known.id == name), None)
    return one


def all_connections(client: "Client") -> list[ConnectionInfo]:
    found: list[ConnectionInfo] = client.call("list_connections")
    return found


def _offer(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        offer: ConnectionOffer = agent.client.call(
            "offer_connection",
            envelope=options.envelope,
            expires_s=options.expires_s or EXPIRES_S,
            name=options.name or "",
            curve=options.curve,
            signed=options.signed,
            message=options.message or "",
        )
        if agent.own:
            narrate("This link works only while your agent runs: start `zerochat agent`, or the chat.")
    match options.format:
        case "url":
            out.exactly(printable(offer.url))
        case "qr":
            out.data(offer, [offer.url, "", *([offer.short, ""] if offer.short else [])])
            for line in qr_lines(offer.short or offer.url):
                out.exactly(line)
        case _:
            short = [("short", offer.short)] if offer.short else []
            valid = f"one use, until {local_time(offer.expires_at)}"
            out.data(offer, table([("link", offer.url), *short, ("valid", valid)]))
    return ExitCode.OK


# --- existing connections -----------------------------------------------------------------------------------------


def connections(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = all_connections(agent.client)
    rows: list[tuple[str, ...]] = [("NAME", "STATE", "ENVELOPE", "MEDIATOR", "DID", "ID")]
    for one in found:
        did = printable_key(one.did) or "-"
        rows.append((connection_name(one), one.state, one.envelope, one.mediator or "-", did, one.id))
    out.data_list(found, table(rows) if found else ())
    if not found:
        narrate("There are no connections. Create one with `zerochat connect`.")
    return ExitCode.OK


def message(options: Options, out: Output) -> ExitCode:
    text = text_to_send(None if options.text == "-" else options.text, "message")
    with attached(options) as agent:
        client = agent.client
        client.subscribe()
        sent: SentConnectionMessage = client.call("send_connection_message", peer=options.peer, text=text)
        out.report(sent, [sent.id])
        try:
            status = _settled(client, options.peer, sent.id)
        except LocalError as error:
            return report_stored(error)
        if status == "failed":
            narrate(f"{name_of(options.peer)} refused the message; it will not be sent again.")
            return ExitCode.REFUSED
        if status == "waiting":
            when = "while an agent runs: start `zerochat agent`, or the chat" if agent.own else "later"
            narrate(f"{name_of(options.peer)} cannot be reached; the message is queued and goes out {when}.")
            return ExitCode.UNREACHABLE
    return ExitCode.OK


def messages(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found: list[ConnectionMessage] = agent.client.call("list_connection_messages", peer=options.peer)
        one = find_connection(all_connections(agent.client), options.peer)
    lines, peer = [], name_of(options.peer) if one is None else connection_name(one)
    for each in found:
        first, *more = printable(text_of(each)).splitlines() or [""]
        who = author_text(each, peer)
        lines += [f"{local_time(each.at)}  {who}: {first}", *(f"{'':18}{line}" for line in more)]
    out.data_list(found, lines)
    if not found:
        narrate(f"No messages to or from {peer} yet.")
    return ExitCode.OK


def _settled(client: "Client", peer: str, message: str) -> ConnectionMessageStatus:
    """The fate of a message: `waiting` if the peer's agent has not accepted it within DELIVERY_S_MAX."""
    deadline = time.monotonic() + DELIVERY_S_MAX
    while True:
        kept: list[ConnectionMessage] = client.call("list_connection_messages", peer=peer)
        status = next((each.status for each in kept if each.mine and each.id == message), None) or "delivered"
        left = deadline - time.monotonic()
        if status != "waiting" or left <= 0:
            return status
        client.next_notification(min(left, POLL_S))


def disconnect(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        one = find_connection(all_connections(agent.client), options.peer)
        who = name_of(options.peer) if one is None else connection_name(one)
        question = f"End the connection with {who}? To connect again you need a new invitation."
        unasked = NotConfirmed(doing="Ending the connection with", group=who)
        if not options.yes and one is not None and not confirmed(question, unasked):
            narrate("Nothing was changed.")
            return ExitCode.REFUSED
        agent.client.call("close_connection", peer=options.peer)
    out.data({"peer": options.peer}, ())
    narrate(f"Ended the connection with {who}.")
    return ExitCode.OK
