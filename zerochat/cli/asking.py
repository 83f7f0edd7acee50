"""The verbs that ask one peer something: ping, features, rotate.

A question goes out at once; its answer is news, so whoever asks has subscribed before.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from zerochat.agent.api.client import AgentError
from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, called, find_connection, name_of, narrate, problem_sentence, table
from zerochat.cli.parser import Options
from zerochat.rpc import FeaturesNews, PongNews, ProblemNews, Question
from zerochat.terminal_text import printable_key, printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.api.client import Client

PAUSE_S = 1.0
"""Between two pings of one run."""
LOOK_S = 0.25
"""How often an agent that has only just started tries whether the peer is connected by now."""
WAYS = {"direct": "directly", "mediator": "over a mediator", "web": "over the web"}

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
            thread = _ask(agent, deadline, partial(agent.client.call, "ping", peer=options.peer))
            pong = _answer(agent.client, PongNews, thread, deadline)
            if pong is None:
                narrate(f"No answer from {name_of(options.peer)} within {options.timeout_s:g} s.")
                continue
            times.append(pong.rtt_ms)
            proof = (pong.envelope, pong.their_key, pong.my_key)
            out.data(pong, _pong_lines(pong, number, proof != known))
            known = proof
    if wanted > 1:
        range_ = f", in {min(times)} to {max(times)} ms" if times else ""
        narrate(f"{len(times)} of {wanted} answered{range_}.")
    return ExitCode.OK if len(times) == wanted else ExitCode.TIMEOUT


def _pong_lines(pong: PongNews, number: int, changed: bool) -> list[str]:
    """One line for each answer; what it proves is said again only when it is not as before."""
    lines = [f"{name_of(pong.peer)}: answer {number} in {pong.rtt_ms} ms, {WAYS[pong.way]}"]
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
        asking = partial(agent.client.call, "features", peer=options.peer, match=options.match)
        thread = _ask(agent, deadline, asking)
        found = _answer(agent.client, FeaturesNews, thread, deadline)
    if found is None:
        narrate(f"No answer from {name_of(options.peer)} within {options.timeout_s:g} s.")
        return ExitCode.TIMEOUT
    rows = [(printable_line(one.type), printable_line(one.id)) for one in found.features]
    out.data_list(found.features, table(rows) if rows else ())
    if not rows:
        narrate(f"{name_of(found.peer)} discloses nothing that matches.")
    return ExitCode.OK


def rotate(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        agent.client.call("rotate", peer=options.peer)
        one = find_connection(agent.client.call("connections"), options.peer)
    out.data({"peer": options.peer}, ())
    who = name_of(options.peer) if one is None else called(one)
    narrate(f"You have a new DID towards {who}. The old one is given up when they have used the new one.")
    return ExitCode.OK


def _ask(agent: "Attached", deadline: float, asking: Callable[[], Question]) -> str:
    """Ask, and give the thread of the question. An agent of our own has only just started, so it is given the time
    that the answer is given."""
    while True:
        try:
            return asking().thread
        except AgentError as error:
            left = deadline - time.monotonic()
            if not agent.own or error.code != "NotConnected" or left <= 0:
                raise
            agent.client.next_news(min(left, LOOK_S))


def _answer(client: "Client", shape: type[_News], thread: str, deadline: float) -> _News | None:
    """The answer with this thread; None when it has not come in time."""
    while True:
        news = client.next_news(max(deadline - time.monotonic(), 0.0))
        if news is None:
            return None
        if isinstance(news.item, ProblemNews):
            narrate(problem_sentence(news.item))
        elif isinstance(news.item, shape) and getattr(news.item, "thread", None) == thread:
            return news.item
