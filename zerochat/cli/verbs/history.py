"""Verbs tail and history: print the events of a group, live or from the log."""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.event_text import EventText
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import earlier_history, find_group
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, history_source
from zerochat.cli.output import Output, narrate
from zerochat.cli.tail_output import DRAIN_S, TailOutput
from zerochat.cli.value_types import count
from zerochat.rpc import Event, GroupInfo

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "tail",
        "print a group's events as they arrive",
        "Print the newest events of a group, then each new one, until Ctrl+C. As JSON it also prints, with a `type`\n"
        "of their own: edits, deletions and reactions (message_changed), missing messages (gap), late ones\n"
        "(late_event), a log without gaps (complete), and equivocation of an author (fork). With --consumer it starts\n"
        "after the last event that was printed under this name, and reconnects if the agent is restarted.",
        """
zerochat tail hikers
zerochat tail ops -n 0 --format jsonl | jq --unbuffered -r .body.text
zerochat tail ops -n 0 --format jsonl | jq 'select(.type == "gap")'
zerochat tail ops --since 1042 --format jsonl
zerochat tail ops --consumer alerts --format jsonl | ./alerts
""",
        run=tail,
    )
    group_argument(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="accepted for familiarity; tail always follows")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-n", dest="count", type=count, metavar="N", help="start with the newest N events (default: 10)")
    start.add_argument("--since", type=count, metavar="SEQ", help="start after the event with this `seq`")
    start.add_argument("--consumer", metavar="NAME", help="start after the last event that was printed under this name")
    parser = add_verb(
        verbs,
        "history",
        "print a group's events",
        "Print the newest events of a group, oldest first, in the order that every member sees. With --file it reads\n"
        "an export, without a profile.",
        """
zerochat history hikers
zerochat history hikers -n 500
zerochat history hikers --unread
zerochat history ops --all --format jsonl >ops.jsonl
zerochat history --file hikers.jsonl
""",
        run=history,
    )
    history_source(parser)
    much = parser.add_mutually_exclusive_group()
    much.add_argument("-n", dest="count", type=count, metavar="N", help="the newest N events (default: 50)")
    much.add_argument("--all", action="store_true", help="all events")
    much.add_argument("--unread", action="store_true", help="from the first unread message (`zerochat read` marks it)")
    parser.add_argument("--ids", action="store_true", help="start each line with a prefix of the event's id")


TAIL_EVENTS = 10
HISTORY_EVENTS = 50
PAGE_EVENTS = 200


def tail(options: Options, out: Output) -> ExitCode:
    if options.consumer is not None:
        from zerochat.cli.durable_tail import follow

        return follow(options, out)
    with attached(options) as agent:
        client, printed, shown = agent.client, TailOutput(out, options.group), set[str]()
        # Subscribe first, so that no event is lost between the log and the subscription.
        client.subscribe([options.group], options.since)
        if options.since is None and (count := TAIL_EVENTS if options.count is None else options.count):
            for event in reversed(list(_newest(client, options.group, count))):
                shown.add(event.id)
                printed.show_event(event)
        if agent.own:
            narrate("No agent was running; a temporary one receives until you press Ctrl+C.")
        printed.begin(find_group(client.list_groups(), options.group))
        # After the removal, events that have already arrived are still printed.
        while (news := client.next_notification(DRAIN_S if printed.left else None)) is not None:
            if not isinstance(news.params, Event):
                printed.show(news.params)
            elif news.params.id not in shown:
                printed.show_event(news.params)
        return printed.end(find_group(client.list_groups(), options.group))


def history(options: Options, out: Output) -> ExitCode:
    count = None if options.all else HISTORY_EVENTS if options.count is None else options.count
    info: GroupInfo | None = None
    if options.path is not None:
        from zerochat.cli.verbs.audit import events_of

        events = events_of(options.path, count)
    else:
        with attached(options) as agent:
            info = find_group(agent.client.list_groups(), options.group)
            newest = _newest(agent.client, options.group, None if options.unread else count)
            if options.unread:
                newest = takewhile(_is_unread(info), newest)
            events = list(newest)
        events.reverse()
    text = EventText(ids=options.ids)
    out.data_list(events, (line for event in events for line in text.lines(event)))
    if options.unread and not events:
        narrate("No unread messages.")
    beginning = info is not None and not options.unread and (count is None or len(events) < count)
    if info is not None and beginning and not out.jsonl and (why := earlier_history(info)):
        narrate(f"{why[0].upper()}{why[1:]}.")
    return ExitCode.OK


def _is_unread(info: GroupInfo) -> Callable[[Event], bool]:
    """Whether an event is at or after the first unread message."""
    first = info.first_unread
    return lambda event: first is not None and (event.lamport, event.author.did, event.id) >= tuple(first)


def _newest(client: "Client", group: str, count: int | None) -> Iterator[Event]:
    """The newest `count` events (None: all), newest first, a page at a time."""
    before: str | None = None
    while count is None or count > 0:
        page = client.get_history(group, limit=PAGE_EVENTS if count is None else min(count, PAGE_EVENTS), before=before)
        yield from reversed(page.events)
        if not page.more or not page.events:
            return
        before = page.events[0].id
        if count is not None:
            count -= len(page.events)
