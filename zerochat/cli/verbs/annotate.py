"""Verbs react, edit, delete, topic, pin and pins: annotations of messages; topic and pins of a group."""

from typing import TYPE_CHECKING

from zerochat.cli.agent_access import attached
from zerochat.cli.event_text import EventText, message_name
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import find_group
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, message_argument, yes_option
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import NotConfirmed, confirmed
from zerochat.cli.verbs.send import report_delivery, text_to_send
from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import no_topic_sentence
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.attach import Attached
    from zerochat.rpc import Sent


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "react",
        "react to a message with an emoji",
        "React to a message with an emoji, or withdraw the reaction with --off. All members see who has reacted.\n"
        "Prints the id of the event.",
        """
zerochat react hikers last:bob 👍
zerochat react hikers Yk3v 👍 --off
""",
        run=react,
    )
    message_argument(parser)
    parser.add_argument("emoji", metavar="EMOJI", help="one emoji or other symbol")
    parser.add_argument("--off", action="store_true", help="withdraw the reaction")
    parser = add_verb(
        verbs,
        "edit",
        "edit one of your messages",
        "Replace the text of one of your messages with that of -m, or standard input. Members see the new text and\n"
        "that it was edited. The old text stays in everyone's log and in the JSON of `history`. Prints the id of the\n"
        "event.",
        """
zerochat edit hikers last -m "At nine, by the bridge."
zerochat history hikers --ids
zerochat edit hikers Yk3v <corrected.txt
""",
        run=edit,
    )
    parser.stray_hint = ". Put the text in quotes after -m."
    message_argument(parser)
    parser.add_argument("-m", "--message", metavar="TEXT", help="the text (default, or with -: read standard input)")
    parser = add_verb(
        verbs,
        "delete",
        "delete one of your messages",
        "Ask all members' clients to hide one of your messages. This cannot be undone, and it does not erase copies:\n"
        "the message stays in the logs and exports, and in modified clients. Asks for confirmation. Prints the id of\n"
        "the event.",
        """
zerochat delete hikers last
zerochat delete hikers Yk3v --yes
""",
        run=delete,
    )
    message_argument(parser)
    yes_option(parser)
    _add_topic(verbs)
    _add_pins(verbs)


def _add_topic(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "topic",
        "show or set the topic of a group",
        "Print the topic of a group, or set it to TEXT; an empty TEXT removes it. All writers can set it; in groups\n"
        "with admins, only the owner and the admins.",
        """
zerochat topic hikers
zerochat topic hikers "Sunday: up to the hut"
zerochat topic hikers ""
""",
        run=topic,
    )
    group_argument(parser)
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the topic, one line, in quotes")


def _add_pins(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "pin",
        "pin a message for all members, or unpin it",
        "Pin a message for all members of a group, or unpin it with --off; a group has at most 20 pins. Who may set\n"
        "the topic may pin. Prints the id of the event.",
        """
zerochat pin hikers last:bob
zerochat pin hikers Yk3v --off
""",
        run=pin,
    )
    message_argument(parser)
    parser.add_argument("--off", action="store_true", help="unpin it")
    parser = add_verb(
        verbs,
        "pins",
        "list the pinned messages of a group",
        "Print the pinned messages of a group, the last pinned first.",
        """
zerochat pins hikers
""",
        run=pins,
    )
    group_argument(parser)


def react(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        sent = agent.client.react(options.group, options.event, options.emoji, on=not options.off)
        return _print_sent(agent, sent, out)


def edit(options: Options, out: Output) -> ExitCode:
    text = text_to_send(options.message, options.verb)
    with attached(options) as agent:
        return _print_sent(agent, agent.client.edit_message(options.group, options.event, text), out)


def delete(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        event = options.event
        if not options.yes:
            report = agent.client.get_delivery(options.group, options.event)
            event = report.id  # delete exactly the message that was confirmed
            shown = message_name(report.event) if report.event is not None else printable_line(event)
            possible = report.event is None or (report.event.self and not report.event.deleted)  # else it is refused
            unasked = NotConfirmed(doing="Deleting a message in", group=printable_line(options.group))
            if possible and not confirmed(f"Delete {shown}? {group_rules.DELETE}", unasked):
                narrate("Nothing was changed.")
                return ExitCode.REFUSED
        return _print_sent(agent, agent.client.delete_message(options.group, event), out)


def topic(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        if options.text is not None:
            return _print_sent(agent, agent.client.set_topic(options.group, options.text), out)
        group = find_group(agent.client.list_groups(), options.group)
    shown = [printable_line(group.topic)] if group.topic else []
    out.data({"group": group.id, "name": group.name, "topic": group.topic}, shown)
    if not group.topic:
        narrate(no_topic_sentence(group.history_start))
    return ExitCode.OK


def pin(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        event = agent.client.get_delivery(options.group, options.event).id
        return _print_sent(agent, agent.client.pin_message(options.group, event, not options.off), out)


def pins(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.list_pins(options.group)
    text = EventText()
    out.data_list(found, [line for event in found for line in text.lines(event)])
    if not found:
        narrate("No message is pinned.")
    return ExitCode.OK


def _print_sent(agent: "Attached", sent: "Sent", out: Output) -> ExitCode:
    out.report(sent, [sent.id])
    return report_delivery(agent, sent)
