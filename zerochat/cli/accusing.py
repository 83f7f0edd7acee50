"""The verbs about cases: accuse, cases, case. Judging one, which needs nothing but the file, is in `evidence.py`."""

from zerochat.agent.schema import CaseInfo
from zerochat.cli.agents import attached
from zerochat.cli.evidence import written
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import ID_CHARS, Output, name_of, narrate, near_time, table
from zerochat.cli.parser import Options
from zerochat.terminal import printable_line

OUTCOME_CELLS_MAX = 24
"""Of what others say, whatever that is."""
STATES = {"waiting": "not in the log yet", "over": "over, and something to judge by is missing here"}


def accuse(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        begun = agent.client.accuse(options.group, options.member or "")
    out.data(begun, [f"{begun.id[:ID_CHARS]}  {line(begun)}"])
    narrate(
        "The accusation goes into the group's log as soon as its witnesses answer; `zerochat cases "
        f"{options.group}` shows what comes of it."
    )
    return ExitCode.OK


def cases(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.cases(options.group)
    out.data_list(found, table([(one.id[:ID_CHARS], line(one), outcome(one)) for one in found]) if found else [])
    if not found:
        narrate("Nobody is accused of anything here.")
    return ExitCode.OK


def case(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        text = agent.client.case(options.group, options.event)
    with written(options.path or "-") as file:
        file.write(text)
    if options.path != "-":
        out.data({"path": options.path, "bytes": len(text)}, [str(options.path)])
    narrate("`zerochat judge FILE` says what comes of it, on any machine.")
    return ExitCode.OK


def line(one: CaseInfo) -> str:
    """Who accuses whom."""
    by = "you" if one.mine == "accuser" else name_of(one.accuser.nick)
    against = "you" if one.mine == "accused" else name_of(one.accused.nick) if one.accused is not None else "somebody"
    if one.verdict in ("forked", "turned back"):
        return f"{by} {'show' if by == 'you' else 'shows'} two messages of {against}"
    return f"{by} {'accuse' if by == 'you' else 'accuses'} {against}"


def outcome(one: CaseInfo) -> str:
    """What has become of it."""
    if one.verdict:
        others = [told for told in one.told if told.agrees is False]
        beside = (
            f"; {name_of(others[0].by.nick)} says: {printable_line(others[0].outcome, OUTCOME_CELLS_MAX)}"
            if others
            else ""
        )
        return one.verdict + beside
    answered = f", answered ({', '.join(one.answers)})" if one.answers else ""
    if one.state == "open" and one.until:
        return f"open until {near_time(one.until)}{answered}"
    return STATES.get(one.state, one.state) + answered
