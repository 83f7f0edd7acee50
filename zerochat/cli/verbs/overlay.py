"""Verb overlay: the links of a group, and what each has carried."""

from collections.abc import Callable

from zerochat.cli.agent_access import attached
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of, near_time, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument
from zerochat.cli.output import Output, narrate
from zerochat.presentation.files import format_size
from zerochat.presentation.overlay import load, repaired, state, structure
from zerochat.rpc import LinkInfo, OverlayInfo


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "overlay",
        "show a group's connections and what they have carried",
        "List the members that you are linked to: in a large group (`new --kind large`) of more than 24 members your\n"
        "neighbours on the ring, that is successors, predecessors, shortcuts across it, and guests that have chosen\n"
        "you; in any other group all members. For each: envelopes and bytes sent and received, the messages that it\n"
        "was the first to bring, duplicates, and what was missing here until it sent that on request. All is counted\n"
        "since the agent started, without mail over mediators. Messages do not say how many hops they took.",
        """
zerochat overlay club
zerochat overlay club --format json | jq .copies
zerochat overlay club --format json | jq -r '.links[] | select(.connection != "connected") | .nick'
""",
        run=overlay,
    )
    group_argument(parser)


def overlay(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        info = agent.client.get_overlay(options.group)
    out.data(info, [structure(info), load(info, near_time), *(["", *_table(info)] if info.links else [])])
    if agent.own:
        narrate("The agent was started only for this command, so nothing is counted yet; `zerochat agent` keeps one.")
    return ExitCode.OK


def _table(info: OverlayInfo) -> list[str]:
    columns: dict[str, Callable[[LinkInfo], str]] = {
        "MEMBER": lambda one: name_of(one.nick),
        "PLACE": lambda one: one.place,
        "STATE": state,
        "SENT": lambda one: f"{one.sent:,}",
        "BYTES": lambda one: format_size(one.sent_bytes),
        "RECEIVED": lambda one: f"{one.received:,}",
        " BYTES": lambda one: format_size(one.received_bytes),
        "NEW": lambda one: f"{one.brought:,}",
        "DUPLICATES": lambda one: f"{one.duplicates:,}",
        "REPAIRED": lambda one: repaired(one, near_time),
    }
    if not info.forwards:
        columns = {title: text for title, text in columns.items() if title not in ("PLACE", "NEW")}
    head = [title.strip() for title in columns]
    return table([head, *([text(one) for text in columns.values()] for one in info.links)])
