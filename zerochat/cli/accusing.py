"""The verbs about cases: accuse, cases, case. Judging one, which needs nothing but the file, is in `evidence.py`."""

from zerochat.cli.agents import attached
from zerochat.cli.evidence import written
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import ID_CHARS, Output, name_of, narrate, near_time, table
from zerochat.cli.parser import Options
from zerochat.presentation.disputes import NONE, charge, outcome


def accuse(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        begun = agent.client.accuse(options.group, options.member or "")
    out.data(begun, [f"{begun.id[:ID_CHARS]}  {charge(begun, name_of)}"])
    narrate(
        "The accusation goes into the group's log as soon as its witnesses answer; `zerochat cases "
        f"{options.group}` shows what comes of it."
    )
    return ExitCode.OK


def cases(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.cases(options.group)
    out.data_list(
        found,
        table([(one.id[:ID_CHARS], charge(one, name_of), outcome(one, name_of, near_time)) for one in found])
        if found
        else [],
    )
    if not found:
        narrate(NONE)
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
