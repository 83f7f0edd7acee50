"""Verbs delivery and why: the delivery state of one message."""

from collections.abc import Sequence

from zerochat.cli.agent_access import attached
from zerochat.cli.event_text import EventText
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import local_time, name_of, near_time, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, message_argument
from zerochat.cli.output import Output, narrate
from zerochat.cli.paging import page_limit, page_options
from zerochat.presentation import delivery as presentation
from zerochat.rpc import DeliveryReport, MemberDelivery
from zerochat.terminal_text import printable_line


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "delivery",
        "show who has received a message",
        "Show which members have received a message, when, and how that is known. queued: will be sent when there is\n"
        "a route; sent: not acknowledged yet; stored: the same, and the member's mediator has confirmed that it\n"
        "stores the message; over your daily quota there (`held` in JSON): the member accepts it as room comes back.\n"
        "Members that lack it come first. WORD: only members whose name contains it.",
        """
zerochat delivery hikers last
zerochat delivery hikers last ann
zerochat delivery hikers last --all
zerochat delivery hikers Yk3v
zerochat delivery hikers last --format jsonl | jq '.members[].state'
""",
        run=delivery,
    )
    message_argument(parser)
    parser.add_argument("text", metavar="WORD", nargs="?", help="a part of the name")
    page_options(parser, "recipients")
    parser = add_verb(
        verbs,
        "why",
        "explain the state of a message",
        "Explain the state of a message in sentences: author and time, whether the author has confirmed it, its\n"
        "position in the author's chain, missing events before it, who has received it, and why others have not.\n"
        "Exits with 7 if the local data is inconsistent.",
        """
zerochat why hikers last
zerochat why hikers last:bob
zerochat why hikers Yk3v --format jsonl
""",
        run=why,
    )
    message_argument(parser)


def delivery(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        report = agent.client.get_delivery(
            options.group, options.event, query=options.text or "", limit=page_limit(options)
        )
        nicks = {one.did: one.nick for one in agent.client.list_members(options.group)} if not out.jsonl else {}
    out.data(report, [*_message_lines(report), _count(report), *delivery_table(report.members, nicks)])
    if report.next:
        narrate(f"{presentation.not_listed(report)} For the others: --all, --limit N, or a WORD.")
    return ExitCode.OK


def why(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.get_message_status(options.group, options.event)
        nicks = {one.did: one.nick for one in agent.client.list_members(options.group)} if not out.jsonl else {}
    nicks |= {one.did: one.nick for one in (*found.report.members, *found.former_members)}
    out.data(found, [*_message_lines(found.report), *presentation.status_sentences(found, nicks, name_of, near_time)])
    if found.provenance == "refuted" or found.forked or found.differs:
        narrate("The local data is inconsistent. Compare with the other members.")
        return ExitCode.INTEGRITY
    return ExitCode.OK


def delivery_table(members: Sequence[MemberDelivery], nicks: dict[str, str]) -> list[str]:
    """The delivery table: state, time and source per member, and when each was last seen."""
    rows = [("NAME", "STATE", "SINCE", "VIA", "LAST SEEN", "")]
    for one in members:
        if one.connection == "self":
            rows.append((f"{name_of(one.nick)} (you)", "here", local_time(one.at) if one.at else "-", "-", "-", ""))
            continue
        notes = [note] if (note := presentation.obstacle_note(one)) and not one.delivered else []
        notes += [f"stored until {local_time(one.stored_until)}"] if one.stored_until else []
        notes += [f"{one.tries} retransmission{'s' * (one.tries != 1)}"] if one.tries else []
        notes += [f"next {local_time(one.next_try)}"] if one.next_try and (one.tries or one.state == "held") else []
        rows.append(
            (
                name_of(one.nick),
                (
                    "delivered"
                    if one.delivered
                    else "stored"
                    if one.state == "stored"
                    else presentation.STATES[one.state]
                )
                + ", signed" * one.signed,
                local_time(one.at) if one.at else "-",
                presentation.route_of(one, nicks, name_of) or "-",
                local_time(one.last_seen) if one.last_seen else "never",
                ", ".join(notes),
            )
        )
    return table(rows) if members else []


def _count(report: DeliveryReport) -> str:
    if not report.of:
        return "no other recipients"
    return f"delivered to {report.delivered} of {report.of}"


def _message_lines(report: DeliveryReport) -> list[str]:
    """The message, its id, and whether it is signed."""
    lines = EventText(annotations=True).lines(report.event) if report.event is not None else []
    return [
        *lines[:3],
        *(["    …"] if len(lines) > 3 else []),
        f"id {printable_line(report.id)}",
        *(["signed by its author"] * report.signed),
        "",
    ]
