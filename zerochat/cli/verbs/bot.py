"""Verb bot: creates, runs and retires bots, and manages their dead letters."""

import argparse
import re
from pathlib import Path

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import paths_of
from zerochat.cli.bot.new import EXAMPLES, new_bot
from zerochat.cli.bot.profile import list_bots, list_dead_letters, retire_bot, retry_dead_letters, show_status
from zerochat.cli.bot.run import run_bot
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output, narrate
from zerochat.cli.service_files import bot_unit, container
from zerochat.cli.value_types import positive

_MODULE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_UNIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "bot",
        "create, test and run bots",
        "A bot is a Python file that creates a `zerochat.Bot`. It never loses an event: unhandled events are "
        "delivered\n"
        "again. `zerochat bot new` writes a bot of ten lines and its test.",
        """
zerochat bot new greeter
zerochat bot run greeter.py --console
zerochat bot run greeter.py --reload
zerochat bot list
zerochat bot dead-letters
zerochat bot retry 7
zerochat bot retire --bot greeter
zerochat bot unit greeter
""",
    )
    actions = parser.add_subparsers(dest="bot_action", metavar="ACTION", title="actions", required=True)
    _add_new(actions)
    _add_run(actions)
    _add_states(actions)
    _add_dead_letters(actions)
    _add_units(actions)


def _add_new(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "new",
        "write a bot and its test",
        "Write NAME.py and test_NAME.py to this folder; existing files are not overwritten. With --example, copy one\n"
        "of the included bots: `ping` answers pings, `ci` posts build results, `reminder` sends reminders, `relay`\n"
        "posts the output of a command.",
        """
zerochat bot new greeter
zerochat bot new builds --example ci
""",
        run=new_bot,
    )
    parser.add_argument("name", type=_module_name, metavar="NAME", help="name of the bot: a-z, 0-9 and _")
    parser.add_argument("--example", choices=EXAMPLES, metavar="|".join(EXAMPLES), help="copy this example")


def _add_run(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "run",
        "run a bot until Ctrl+C or SIGTERM",
        "Run a bot until Ctrl+C or SIGTERM; it finishes the current event and exits with 0. It attaches to the\n"
        "profile's agent, or runs one itself. --console: test it without a group; each line you type is a message.\n"
        "--reload: restart it when a Python file in its folder changes.",
        """
zerochat bot run greeter.py
zerochat --profile ci bot run bots.py:nightly
zerochat bot run greeter.py --console
zerochat bot run greeter.py --reload
""",
        run=run_bot,
    )
    parser.add_argument("path", metavar="FILE[:NAME]", help="the file, and the bot in it if there are several")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--console", action="store_true", help="test it in this terminal; nothing is sent or stored")
    how.add_argument("--reload", action="store_true", help="restart it when its files change")


def _add_states(actions: "Verbs[Parser]") -> None:
    add_verb(
        actions,
        "list",
        "list the bots of a profile and their lag",
        "List the bots of a profile, and the scripts that read under a consumer name: whether they run, how many\n"
        "events they have not acknowledged, and their dead letters.",
        """
zerochat bot list
zerochat bot list --format jsonl | jq 'select(.behind > 100)'
""",
        run=list_bots,
    )
    parser = add_verb(
        actions,
        "status",
        "show whether a bot runs, and its lag",
        "Show one bot, for people and for health checks. Exits with 1 if it does not run.",
        """
zerochat bot status --bot greeter
zerochat --profile ci bot status --bot ci >/dev/null || echo "the bot is down"
""",
        run=show_status,
    )
    _bot_option(parser)


def _add_dead_letters(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "dead-letters",
        "list the events that a bot could not handle",
        "List the dead letters of a bot: events whose handler has failed repeatedly, with the exception. The message\n"
        "texts are not stored there; see `zerochat history`.",
        """
zerochat bot dead-letters
zerochat bot dead-letters --bot ci --format jsonl | jq .error
zerochat bot dead-letters --delete 7
""",
        run=list_dead_letters,
    )
    _bot_option(parser)
    parser.add_argument("--delete", dest="dead_letter", type=_dead_letter, metavar="ID|all", help="delete one, or all")
    parser = add_verb(
        actions,
        "retry",
        "retry dead letters",
        "Let a bot handle dead letters again: at once if it is running, otherwise at its next start.",
        """
zerochat bot retry 7
zerochat bot retry all --bot ci
""",
        run=retry_dead_letters,
    )
    parser.add_argument("dead_letter", type=_dead_letter, metavar="ID|all", help="id of the dead letter, or all")
    _bot_option(parser)
    parser = add_verb(
        actions,
        "retire",
        "remove a bot and its data",
        "Remove a bot that is not running. Its announcement is withdrawn in every group, so that members no longer\n"
        "complete its commands, or see you as a bot if it was the last one. Its position in the event log, its values\n"
        "(`bot.kv`), its dead letters and its pending tasks are deleted.",
        """
zerochat bot retire --bot greeter
zerochat --profile ci bot retire --format jsonl
""",
        run=retire_bot,
    )
    _bot_option(parser)


def _add_units(actions: "Verbs[Parser]") -> None:
    parser = add_verb(
        actions,
        "unit",
        "print a systemd unit for a bot",
        "Print a systemd user unit that runs a bot. It attaches to the profile's agent (`zerochat agent "
        "--print-unit`)\n"
        "if one is running, and otherwise runs its own. Nothing is installed.",
        """
zerochat bot unit deploys >~/.config/systemd/user/deploys.service
zerochat --profile ci bot unit deploys --app ~/bots/deploys.py
""",
        run=_unit,
    )
    _app_arguments(parser)
    parser = add_verb(
        actions,
        "container",
        "print a Containerfile for a bot",
        "Print a Containerfile that runs a bot as an unprivileged user, keeps the profile in a volume, and has a\n"
        "health check. Nothing is built.",
        """
zerochat bot container deploys >Containerfile
zerochat bot container deploys --app ~/bots/deploys.py >Containerfile
zerochat bot container relay --agent >Containerfile
""",
        run=_container,
    )
    _app_arguments(parser)
    parser.add_argument("--agent", dest="agent_alone", action="store_true", help="run only an agent, without a bot")


def _app_arguments(parser: Parser) -> None:
    parser.add_argument("name", type=_unit_name, metavar="NAME", help="name of the bot")
    parser.add_argument("--app", dest="path", metavar="FILE", help="file of the bot (default: NAME.py in this folder)")


def _bot_option(parser: Parser) -> None:
    parser.add_argument("--bot", dest="name", metavar="NAME", help="name of the bot (default: the only one)")


def _dead_letter(text: str) -> int:
    """The id of a dead letter; 0 for `all`."""
    return 0 if text == "all" else positive(text)


def _module_name(text: str) -> str:
    if not _MODULE_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not up to 40 of a-z, 0-9 and _, beginning with a letter")
    return text


def _unit_name(text: str) -> str:
    if not _UNIT_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("must be up to 64 letters, digits, dots, hyphens and underscores")
    return text


# --- services ---------------------------------------------------------------------------------------------------------


def _unit(options: Options, out: Output) -> ExitCode:
    out.exactly(bot_unit(paths_of(options), options.name or "", _app(options)).rstrip("\n"))
    return ExitCode.OK


def _container(options: Options, out: Output) -> ExitCode:
    app = None if options.agent_alone else _app(options)
    out.exactly(container(options.name or "", app, profile=paths_of(options).profile).rstrip("\n"))
    return ExitCode.OK


def _app(options: Options) -> Path:
    """The bot's file, which need not exist yet."""
    path = user_path(options.path or f"{options.name or ''}.py")
    if not path.exists():
        narrate(f"{path} does not exist yet; create it with `zerochat bot new`.")
    return path
