"""Verbs ping, features and rotate: DIDComm Trust Ping, Discover Features and DID rotation with one peer."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from zerochat.agent.api.client_protocol import AgentError
from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import connection_name, find_connection, name_of, problem_sentence, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, timeout_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.value_types import interval, positive
from zerochat.rpc import FeaturesNotification, PendingReply, PongNotification, ProblemNotification
from zerochat.terminal_text import printable_key, printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "ping",
        "check whether a peer answers",
        "Ping a member or a connection (Trust Ping). Prints the round-trip time, the encryption, the keys that the\n"
        "answer authenticates, and the route. Exits with 5 if an answer is missing.",
        """
zerochat ping bob
zerochat ping hikers/bob --count 5 --timeout 2
zerochat ping bob --format jsonl | jq -r .their_key
""",
        run=ping,
    )
    _peer_argument(parser)
    parser.add_argument("-c", "--count", type=positive, default=1, metavar="N", help="number of pings (default: 1)")
    timeout_option(parser, 10.0, "seconds to wait for each answer (default: 10)")
    parser = add_verb(
        verbs,
        "features",
        "list the protocols that a peer supports",
        "Ask a member or a connection for its protocols (Discover Features). A peer need not disclose all of them.\n"
        "Exits with 5 if there is no answer.",
        """
zerochat features bob
zerochat features bob "https://didcomm.org/*"
zerochat features bob --format jsonl | jq -r .id
""",
        run=features,
    )
    _peer_argument(parser)
    parser.add_argument(
        "match", nargs="?", default="*", metavar="MATCH", help="protocol URI, with * as a wildcard (default: *)"
    )
    timeout_option(parser, 10.0, "seconds to wait for the answer (default: 10)")
    parser = add_verb(
        verbs,
        "rotate",
        "rotate your DID and keys towards a peer",
        "Create new keys for the relationship with one peer, and drop the old ones once the peer has used the new\n"
        "ones. Nothing else changes, and no other peer is informed. With --every, again at that interval while an\n"
        "agent runs: keys that are stolen later open no earlier envelopes to you.",
        """
zerochat rotate bob
zerochat rotate hikers/bob --every 7d
zerochat rotate hikers/bob --every never
""",
        run=rotate,
    )
    _peer_argument(parser)
    parser.add_argument(
        "--every",
        dest="every_s",
        type=interval,
        metavar="TIME",
        help="rotate now and then again at this interval (1h to 366d); never: end that, and do not rotate now",
    )


def _peer_argument(parser: Parser) -> None:
    parser.add_argument(
        "peer", metavar="PEER", help="name or key of a member, name or id of a connection, or GROUP/NAME"
    )
    parser.takes_id = True


PAUSE_S = 1.0
"""Pause between two pings."""
POLL_S = 0.25
"""Retry interval while a temporary agent is still connecting to the peer."""
ROUTES = {"direct": "direct", "mediator": "via mediator", "web": "via web"}
_News = TypeVar("_News", bound=Struct)


def ping(options: Options, out: Output) -> ExitCode:
    times: list[int] = []
    wanted = options.count or 1
    with attached(options) as agent:
        agent.client.subscribe()
        known: tuple[str, ...] = ()
        for number in range(1, wanted + 1):
            if number > 1:
                time.sleep(PAUSE_S)
            deadline = time.monotonic() + options.timeout_s
            thread = _request(agent, deadline, partial(agent.client.call, "ping_peer", peer=options.peer))
            pong = _await_answer(agent.client, PongNotification, thread, deadline)
            if pong is None:
                narrate(f"No answer from {name_of(options.peer)} within {options.timeout_s:g} s.")
                continue
            times.append(pong.rtt_ms)
            proof = (pong.envelope, pong.their_key, pong.my_key)
            out.data(pong, _pong_lines(pong, number, proof != known))
            known = proof
    if wanted > 1:
        range_ = f", {min(times)} to {max(times)} ms" if times else ""
        narrate(f"{wanted} sent, {len(times)} answered{range_}.")
    return ExitCode.OK if len(times) == wanted else ExitCode.TIMEOUT


def _pong_lines(pong: PongNotification, number: int, changed: bool) -> list[str]:
    """One line per answer, followed by the authenticated keys if they have changed."""
    lines = [f"{name_of(pong.peer)}: seq={number} time={pong.rtt_ms} ms, {ROUTES[pong.channel]}"]
    if changed:
        proof = [
            ("  envelope", printable_line(pong.envelope)),
            ("  their key", printable_key(pong.their_key)),
            ("  my key", printable_key(pong.my_key)),
        ]
        lines += table(proof)
    return lines


def features(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        agent.client.subscribe()
        deadline = time.monotonic() + options.timeout_s
        request = partial(agent.client.call, "query_features", peer=options.peer, match=options.match)
        thread = _request(agent, deadline, request)
        found = _await_answer(agent.client, FeaturesNotification, thread, deadline)
    if found is None:
        narrate(f"No answer from {name_of(options.peer)} within {options.timeout_s:g} s.")
        return ExitCode.TIMEOUT
    rows = [(printable_line(one.type), printable_line(one.id)) for one in found.features]
    out.data_list(found.features, table(rows) if rows else ())
    if not rows:
        narrate(f"{name_of(found.peer)} discloses no matching protocol.")
    return ExitCode.OK


def rotate(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        agent.client.call("rotate_did", peer=options.peer, every_s=options.every_s)
        one = find_connection(agent.client.call("list_connections"), options.peer)
    out.data({"peer": options.peer}, ())
    who = name_of(options.peer) if one is None else connection_name(one)
    if options.every_s == 0:
        narrate(f"Your DID towards {who} is rotated on request only.")
        return ExitCode.OK
    narrate(f"You have a new DID towards {who}. The old one is dropped once {who} has used the new one.")
    if options.every_s:
        narrate("It is rotated again at that interval, while an agent runs.")
    return ExitCode.OK


def _request(agent: "Attached", deadline: float, request: Callable[[], PendingReply]) -> str:
    """Send a request and return its thread id. A temporary agent gets the time until the deadline to connect."""
    while True:
        try:
            return request().thread
        except AgentError as error:
            left = deadline - time.monotonic()
            if not agent.own or error.code != "NotConnected" or left <= 0:
                raise
            agent.client.next_notification(min(left, POLL_S))


def _await_answer(client: "Client", shape: type[_News], thread: str, deadline: float) -> _News | None:
    """The answer with this thread id; None on timeout."""
    while True:
        news = client.next_notification(max(deadline - time.monotonic(), 0.0))
        if news is None:
            return None
        if isinstance(news.params, ProblemNotification):
            narrate(problem_sentence(news.params))
        elif isinstance(news.params, shape) and getattr(news.params, "thread", None) == thread:
            return news.params
