"""Verb config: shows the effective settings, checks them, and writes a commented settings file."""

import os

from zerochat.cli.agent_access import paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.terminal_text import printable_line


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "config",
        "show or check the settings, or create the settings file",
        "Settings are in one TOML file for all profiles. Precedence: command line, environment variables\n"
        "(ZEROCHAT_NETWORK__HIDDEN=true), the profile's section of the file, the rest of the file. `show` prints the\n"
        "effective settings and their sources, `path` the path of the file, `check` its errors (exit code 2), and\n"
        "`init` creates a file with every setting, its meaning and its default. In the chat, /set changes a setting.",
        """
zerochat config init
zerochat config check
zerochat --profile work config show
ZEROCHAT_CHAT__THEME=light zerochat config show --format jsonl
""",
        run=config,
    )
    parser.add_argument(
        "config_action",
        nargs="?",
        choices=("show", "path", "check", "init"),
        default="show",
        metavar="show|path|check|init",
        help="what to do (default: show)",
    )


def config(options: Options, out: Output) -> ExitCode:
    paths = paths_of(options)
    match options.config_action:
        case "path":
            if out.jsonl:
                out.data({"path": str(paths.config)}, ())
            else:
                out.exactly(str(paths.config))
        case "check":
            return _check(options, out)
        case "init":
            from zerochat.agent.settings.config_writer import write_commented

            write_commented(paths)
            out.data({"path": str(paths.config)}, [str(paths.config)])
        case _:
            return _show(options, out)
    return ExitCode.OK


def _check(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.settings.overview import complaints, said_by_variables

    paths = paths_of(options)
    errors, variables = complaints(paths, os.environ), said_by_variables(os.environ)
    if out.jsonl:
        out.data({"path": str(paths.config), "errors": errors}, ())
    else:
        out.data({}, [printable_line(each) for each in errors])
    if errors:
        return ExitCode.USAGE
    none = "There is no settings file." if variables else "There is no settings file; the defaults apply."
    narrate(f"{'No errors.' if paths.config.exists() else none} {variables}".rstrip())
    return ExitCode.OK


def _show(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.settings.overview import complaints, shown

    paths = paths_of(options)
    found = list(shown(paths, os.environ))
    if out.jsonl:
        for name, value, source in found:
            out.data({"name": name, "value": value, "source": source}, ())
    else:
        out.data({}, table([(printable_line(name), printable_line(value), source) for name, value, source in found]))
    if errors := complaints(paths, os.environ):
        narrate(
            f"{len(errors)} {'setting is' if len(errors) == 1 else 'settings are'} invalid: see `zerochat config "
            f"check`."
        )
    return ExitCode.OK
