"""The verbs for what is said: send, tail, history."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import (
    EventText,
    Output,
    delivery_lines,
    earlier,
    find_group,
    name_of,
    narrate,
    near_time,
    put_out_sentence,
    quoted,
)
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.presentation import delivery
from zerochat.rpc import (
    Amended,
    CompleteNews,
    ConfirmedNews,
    DiffersNews,
    DisagreementNews,
    EarlierNews,
    Event,
    ForkNews,
    GapNews,
    GroupInfo,
    LateNews,
    RecountedNews,
    RefutedNews,
    RemovedNews,
    RequestNews,
    Stopping,
)
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.agent.api.client import Client
    from zerochat.rpc import Sent

TEXT_BYTES_MAX = 256 * 1024
"""Read from standard input before we say that it is too long; the agent's own limit is lower, and says so better."""
OWN_AGENT_S_MAX = 5.0
"""How long an agent that lives only for one `send` tries to hand the message over."""
LAST_S = 0.5
"""How long `tail` listens on when there is nothing more to come."""
TAIL_EVENTS = 10
HISTORY_EVENTS = 50
PAGE_EVENTS = 200
ALONE = "You are the only member so far, so nobody else will read this: `zerochat invite` brings somebody."


class NothingToSend(LocalError):
    """There is nothing to send. Give the text on the command line (`zerochat {verb} --help`), or on standard input."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NotText(LocalError):
    """What came on {source} is not UTF-8 text, so nothing was sent."""


class TooMuchText(LocalError):
    """More than {limit} bytes came on standard input, so nothing was sent. Split it."""


def send(options: Options, out: Output) -> ExitCode:
    if options.files:
        return _send_files(options, out, options.files)
    text = text_to_send(options.message, options.verb)
    with attached(options) as agent:
        sent = agent.client.send(
            options.group, text, reply_to=options.reply, action=options.me, key=options.message_key
        )
        _said_before(sent)
        if options.wait is not None:
            return _wait(agent.client, sent, options.wait, options.timeout_s, out)
        out.data(sent, [sent.id])
        return hand_over(agent, sent)


def _send_files(options: Options, out: Output, paths: list[str]) -> ExitCode:
    """A message with files: whoever wants to have them gets them from an agent that runs."""
    from zerochat.cli.files import given, whole_paths

    text = "" if options.message is None else text_to_send(options.message, options.verb)
    with attached(options) as agent:
        client = agent.client
        client.subscribe([options.group])
        sent = client.attach(
            options.group,
            whole_paths(paths),
            text,
            reply_to=options.reply,
            action=options.me,
            key=options.message_key,
        )
        _said_before(sent)
        if options.wait is not None:
            deadline = time.monotonic() + options.timeout_s
            code = _wait(client, sent, options.wait, options.timeout_s, out)
            return code if given(client, sent, options.wait, deadline) else ExitCode.TIMEOUT
        out.data(sent, [sent.id])
        code = hand_over(agent, sent)
        if agent.own and sent.of and not given(client, sent, -1, time.monotonic() + OWN_AGENT_S_MAX):
            narrate("Whoever does not have all of it yet gets it when an agent of yours runs: `zerochat agent`.")
    return code


def _said_before(sent: "Sent") -> None:
    if sent.again:
        narrate("This was sent before under the same key, and is not sent again.")


def text_to_send(message: str | None, verb: str) -> str:
    """The text of the command line; None or "-": standard input, to its end. Raises NothingToSend, NotText or
    TooMuchText."""
    if message not in (None, "-"):
        text, source = message, "the command line"
    elif sys.stdin is None or (message is None and sys.stdin.isatty()):
        raise NothingToSend(verb=verb)
    else:
        raw = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
        if len(raw) > TEXT_BYTES_MAX:
            raise TooMuchText(limit=TEXT_BYTES_MAX)
        text, source = raw.decode(errors="surrogateescape").removesuffix("\n"), "standard input"
    if not text.strip():
        raise NothingToSend(verb=verb)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotText(source=source) from None
    return text


def _wait(client: "Client", sent: "Sent", wanted: int, timeout_s: float, out: Output) -> ExitCode:
    """Wait for `wanted` acknowledgements (-1: all) and print who has it."""
    beyond = wanted > sent.of
    if sent.of == 0:
        narrate(ALONE)
    elif beyond:
        narrate(f"There are only {sent.of} other members, so {wanted} can never have it; waiting for all of them.")
    report = client.wait(sent.group, sent.id, count=-1 if beyond else wanted, timeout_s=timeout_s)
    out.data(report, delivery_lines(report))
    if report.complete and not beyond:
        return ExitCode.OK
    if report.delivered < report.of:
        narrate("The others get it as soon as an agent of yours and theirs are connected.")
    return ExitCode.TIMEOUT


def hand_over(agent: "Attached", sent: "Sent") -> ExitCode:
    """Say whether the message is on its way; an agent of our own stays for a moment, so that it gets there."""
    if sent.of == 0:
        narrate(ALONE)
        return ExitCode.OK
    if agent.own:
        report = agent.client.wait(sent.group, sent.id, timeout_s=OWN_AGENT_S_MAX)
        if report.complete:
            narrate(f"Delivered to {f'all {report.of} other members' if report.of > 1 else 'the other member'}.")
            return ExitCode.OK
        narrate(
            f"Delivered to {report.delivered} of {report.of}. The rest is queued, and goes out when an agent runs:"
            " `zerochat agent`, or the chat."
        )
        return ExitCode.OK if report.delivered else ExitCode.UNREACHABLE
    if any(group.id == sent.group and group.connected for group in agent.client.groups()):
        return ExitCode.OK
    narrate(f"Queued: none of the {sent.of} other members is connected now. It goes out when one is.")
    return ExitCode.UNREACHABLE


def tail(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        client, text, shown = agent.client, EventText(), set[str]()
        # Subscribe first, so that nothing falls between the past and the present.
        client.subscribe([options.group], options.since)
        if options.since is None and (count := TAIL_EVENTS if options.count is None else options.count):
            for event in reversed(list(_newest(client, options.group, count))):
                shown.add(event.id)
                out.data(event, text.lines(event))
        if agent.own:
            narrate("No agent was running, so this one receives until you end it with Ctrl+C.")
        gone = find_group(client.groups(), options.group).removed_by is not None
        # What has come before the end is still to be heard.
        while (news := client.next_news(LAST_S if gone else None)) is not None:
            match news.item:
                case Amended(event):
                    text.remember(event)
                    if out.jsonl:
                        out.data({"type": "amended", "group": event.group, "id": event.id, "event": event}, ())
                case Stopping(within_s=seconds):
                    if out.jsonl:
                        out.data({"type": "stopping", "within_s": seconds}, ())
                    narrate("The agent has been told to end.")
                case Event() if news.item.id not in shown:
                    out.data(news.item, text.lines(news.item))
                case RemovedNews():
                    gone = True
                case RequestNews(nick=nick, state="asked"):
                    command = f"`zerochat requests {quoted(options.group)}`"
                    narrate(f"{name_of(nick)} asks to be let in: {command} says more.")
                case DisagreementNews():
                    narrate(f"Careful: {printable_line(news.item.text)}")
                case (
                    GapNews()
                    | LateNews()
                    | ForkNews()
                    | CompleteNews()
                    | ConfirmedNews()
                    | RefutedNews()
                    | RecountedNews()
                    | DiffersNews()
                    | EarlierNews() as told
                ):
                    if out.jsonl:
                        out.data(told, ())
                    elif not isinstance(told, LateNews):  # its line says so
                        narrate(delivery.news(told, name_of, near_time))
        info = find_group(client.groups(), options.group)
    narrate(put_out_sentence(info))
    return ExitCode.REMOVED


def history(options: Options, out: Output) -> ExitCode:
    count = None if options.all else HISTORY_EVENTS if options.count is None else options.count
    info: GroupInfo | None = None
    if options.path is not None:
        from zerochat.cli.audit import events_of

        events = events_of(options.path, count)
    else:
        with attached(options) as agent:
            events = list(_newest(agent.client, options.group, count))
            info = find_group(agent.client.groups(), options.group)
        events.reverse()
    text = EventText(ids=options.ids)
    out.data_list(events, (line for event in events for line in text.lines(event)))
    beginning = info is not None and (count is None or len(events) < count)
    if info is not None and beginning and not out.jsonl and (why := earlier(info)):
        narrate(f"{why[0].upper()}{why[1:]}.")
    return ExitCode.OK


def _newest(client: "Client", group: str, count: int | None) -> Iterator[Event]:
    """The newest `count` events (None: all), newest first, a page at a time."""
    before: str | None = None
    while count is None or count > 0:
        page = client.history(group, limit=PAGE_EVENTS if count is None else min(count, PAGE_EVENTS), before=before)
        yield from reversed(page.events)
        if not page.more or not page.events:
            return
        before = page.events[0].id
        if count is not None:
            count -= len(page.events)
