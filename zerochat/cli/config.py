"""The verb config: the settings as they hold, what is wrong with them, and a file to begin with."""

import os

from zerochat.cli.agents import places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate, table
from zerochat.cli.parser import Options
from zerochat.terminal_text import printable_line


def config(options: Options, out: Output) -> ExitCode:
    home = places_of(options)
    match options.config_action:
        case "path":
            if out.jsonl:
                out.data({"path": str(home.config)}, ())
            else:
                out.exactly(str(home.config))
        case "check":
            return _check(options, out)
        case "init":
            from zerochat.agent.settings.config_writer import write_commented

            write_commented(home)
            out.data({"path": str(home.config)}, [str(home.config)])
        case _:
            return _show(options, out)
    return ExitCode.OK


def _check(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.settings.options import complaints, said_by_variables

    home = places_of(options)
    said, variables = complaints(home, os.environ), said_by_variables(os.environ)
    if out.jsonl:
        out.data({"path": str(home.config), "wrong": said}, ())
    else:
        out.data({}, [printable_line(each) for each in said])
    if said:
        return ExitCode.USAGE
    none = "There is no settings file." if variables else "There is no settings file: all defaults hold."
    narrate(f"{'Nothing is wrong.' if home.config.exists() else none} {variables}".rstrip())
    return ExitCode.OK


def _show(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.settings.options import complaints, shown

    home = places_of(options)
    found = list(shown(home, os.environ))
    if out.jsonl:
        for name, value, source in found:
            out.data({"name": name, "value": value, "source": source}, ())
    else:
        out.data({}, table([(printable_line(name), printable_line(value), source) for name, value, source in found]))
    if wrong := complaints(home, os.environ):
        narrate(f"{len(wrong)} of what is said cannot be used: `zerochat config check` tells more.")
    return ExitCode.OK
