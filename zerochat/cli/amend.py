"""The verbs for what becomes of a message (react, edit, delete), and for what a group is about (topic)."""

import sys
from typing import TYPE_CHECKING

from zerochat.cli.agents import attached
from zerochat.cli.confirm import NotConfirmed, agreed
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, find_group, message_name, narrate
from zerochat.cli.parser import Options
from zerochat.cli.talk import hand_over, text_to_send
from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import no_topic
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.rpc import Sent


def react(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        sent = agent.client.react(options.group, options.event, options.emoji, on=not options.off)
        return _told(agent, sent, out)


def edit(options: Options, out: Output) -> ExitCode:
    text = text_to_send(options.message, options.verb)
    with attached(options) as agent:
        return _told(agent, agent.client.edit(options.group, options.event, text), out)


def delete(options: Options, out: Output) -> ExitCode:
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise NotConfirmed(doing="Deleting a message in", group=options.group)
    with attached(options) as agent:
        event = options.event
        if not options.yes:
            meant = agent.client.delivery(options.group, options.event)
            event = meant.id  # nothing else is deleted than what was asked about
            shown = message_name(meant.event) if meant.event is not None else printable_line(event)
            if not agreed(f"Delete {shown}? {group_rules.DELETE}"):
                narrate("Nothing was changed.")
                return ExitCode.REFUSED
        return _told(agent, agent.client.delete(options.group, event), out)


def topic(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        if options.text is not None:
            return _told(agent, agent.client.topic(options.group, options.text), out)
        group = find_group(agent.client.groups(), options.group)
    shown = [printable_line(group.topic)] if group.topic else []
    out.data({"group": group.id, "name": group.name, "topic": group.topic}, shown)
    if not group.topic:
        narrate(no_topic(group.beginning))
    return ExitCode.OK


def _told(agent: "Attached", sent: "Sent", out: Output) -> ExitCode:
    out.data(sent, [sent.id])
    return hand_over(agent, sent)
