"""The verbs about one message: delivery, why."""

from collections.abc import Sequence

from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import EventText, Output, local_time, name_of, narrate, near_time, table
from zerochat.cli.parser import Options
from zerochat.presentation import delivery as telling
from zerochat.rpc import DeliveryReport, MemberDelivery
from zerochat.terminal_text import printable_line

ID_CHARS = 8
"""Of an id, in a line for people: enough to find the event by."""


def delivery(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        report = agent.client.delivery(options.group, options.event)
        nicks = {one.did: one.nick for one in agent.client.members(options.group)} if not out.jsonl else {}
    out.data(report, [*_shown(report), *delivery_table(report.members, nicks), _count(report)])
    return ExitCode.OK


def why(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.why(options.group, options.event)
        nicks = {one.did: one.nick for one in agent.client.members(options.group)} if not out.jsonl else {}
    nicks |= {one.did: one.nick for one in (*found.report.members, *found.gone)}
    out.data(found, [*_shown(found.report), *telling.sentences(found, nicks, name_of, near_time)])
    if found.word == "refuted" or found.forked or found.differs:
        narrate("What is here contradicts itself: ask the others what they see.")
        return ExitCode.INTEGRITY
    return ExitCode.OK


def delivery_table(members: Sequence[MemberDelivery], nicks: dict[str, str]) -> list[str]:
    """Who has an event, since when and how that is known, and who was last heard from when."""
    rows = [("NAME", "STATE", "SINCE", "OVER", "LAST HEARD", "")]
    for one in members:
        if one.connection == "self":
            rows.append((f"{name_of(one.nick)} (you)", "here", local_time(one.at) if one.at else "-", "-", "-", ""))
            continue
        notes = [f"held until {local_time(one.held_until)}"] if one.held_until else []
        notes += [f"repeated {one.tries}x"] if one.tries else []
        notes += [f"next {local_time(one.next_try)}"] if one.tries and one.next_try else []
        rows.append(
            (
                name_of(one.nick),
                ("delivered" if one.delivered else "held" if one.held_until else telling.STATES[one.state])
                + ", signed" * one.signed,
                local_time(one.at) if one.at else "-",
                telling.way_of(one, nicks, name_of) or "-",
                local_time(one.last_heard) if one.last_heard else "never",
                ", ".join(notes),
            )
        )
    return table(rows) if members else []


def _count(report: DeliveryReport) -> str:
    if not report.of:
        return "it is for nobody else"
    return f"delivered to {report.delivered} of {report.of}"


def _shown(report: DeliveryReport) -> list[str]:
    """The message itself, its id, and whether it is signed."""
    lines = EventText(remarks=True).lines(report.event) if report.event is not None else []
    return [
        *lines[:3],
        *(["    …"] if len(lines) > 3 else []),
        f"id {printable_line(report.id)}",
        *(["signed by its author"] * report.signed),
        "",
    ]
