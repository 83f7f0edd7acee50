"""Verb bot: creates, runs and retires bots, and manages their dead letters."""

import argparse
import asyncio
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerochat.agent.storage.paths import user_path
from zerochat.cli import bot_state
from zerochat.cli.agent_access import attached, paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import ID_CHARS, name_of, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, positive
from zerochat.cli.output import Output, narrate
from zerochat.cli.service_files import bot_unit, container
from zerochat.errors import LocalError
from zerochat.terminal_text import printable, printable_line

if TYPE_CHECKING:
    from zerochat.bot import Bot
    from zerochat.bot.store import Store
    from zerochat.rpc import ConsumerInfo

EXAMPLES = ("ping", "ci", "reminder", "relay")
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
        run=_new,
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
        run=_run,
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
        run=_list,
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
        run=_status,
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
        run=_dead_letters,
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
        run=_retry,
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
        run=_retire,
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
    parser.add_argument("--bot", dest="name", default="bot", metavar="NAME", help="name of the bot (default: bot)")


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


APP = """\
from zerochat import Bot, Message

bot = Bot(name="{name}")


@bot.command("hello", help="say hello")
async def hello(m: Message, name: str = "") -> None:
    await m.reply(f"Hello, {{name or m.author}}!")


if __name__ == "__main__":
    bot.run()
"""
TEST = """\
from {name} import bot

from zerochat.testing import Group, run


def test_it_greets_over_a_lossy_network() -> None:
    async def scenario() -> None:
        async with Group(members=2, bots=[bot], loss=0.2, reorder=True, seed=1) as group:
            await group.send("alice", "!hello")
            await group.settle()
            assert group.converged()
            assert (await group.texts("bob"))[-1] == "Hello, alice!"

    run(scenario())
"""


class Exists(LocalError):
    """{path} already exists. Choose another name."""


class FileFails(LocalError):
    """Cannot load {path}: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoSuchBot(LocalError):
    """No bot {name} has run in this profile. Give its name, as in `Bot(name=…)`, with --bot."""


class NoSuchDeadLetter(LocalError):
    """The bot {name} has no dead letter {letter}. `zerochat bot dead-letters --bot {name}` lists them."""


def _new(options: Options, out: Output) -> ExitCode:
    name = options.name
    assert name is not None
    if options.example is None:
        files = {Path(f"{name}.py"): APP.format(name=name), Path(f"test_{name}.py"): TEST.format(name=name)}
    else:
        from importlib import resources

        source = resources.files("zerochat.bot.examples").joinpath(f"{options.example}.py").read_text(encoding="utf-8")
        files = {Path(f"{name}.py"): re.sub(r'Bot\(name="\w+"\)', f'Bot(name="{name}")', source)}
    for path in files:
        if path.exists():
            raise Exists(path=path)
    for path, text in files.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    out.data({"files": [str(path) for path in files]}, [str(path) for path in files])
    narrate(f"Try it: `zerochat bot run {name}.py --console`. Run it: `zerochat bot run {name}.py`.")
    return ExitCode.OK


def _run(options: Options, out: Output) -> ExitCode:
    from zerochat.bot import launch

    place = options.path or ""
    if options.reload:
        from zerochat.bot.reload import run_command, run_with_reload

        launch.parse_target(place)  # fails early if there is no such file
        folder = launch.parse_target(place)[0].resolve().parent
        run_with_reload(run_command(place, options.profile), folder, narrate)
    try:
        found = launch.load(place)
    except LocalError:
        raise
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and "zerochat" in trace.tb_frame.f_code.co_filename and trace.tb_next is not None:
            trace = trace.tb_next
        narrate(printable("".join(traceback.format_exception(type(error), error, trace)).rstrip()))
        raise FileFails(path=place, why=f"{type(error).__name__}: {printable_line(str(error))}") from error
    found.profile = options.profile or found.profile
    level = logging.WARNING if options.console else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    if options.console:
        asyncio.run(_console(found))
    else:
        asyncio.run(found.run_until_signal())
    return ExitCode.OK


async def _console(found: "Bot") -> None:
    """Run the bot with the terminal as its only group."""
    from zerochat.bot.console import ConsoleLink
    from zerochat.bot.store import Store

    narrate("You are in a group with only your bot. Press Ctrl+D to quit.")
    line = ConsoleLink(found.default_group)
    with Store(None) as store:
        serving = asyncio.create_task(found.serve(line, store=store, signals=True))
        typing = asyncio.create_task(line.read_input())
        await asyncio.wait([serving, typing], return_when=asyncio.FIRST_COMPLETED)
        while typing.done() and not serving.done() and not (found.idle and line.drained):
            await asyncio.sleep(0.01)
        found.stop()
        await serving


def _states(options: Options) -> list[dict[str, object]]:
    with attached(options) as agent:
        known = {one.consumer: one for one in agent.client.list_consumers()}
    letters = bot_state.dead_letters(paths_of(options))
    return [_state(name, known.get(name), letters.get(name, 0)) for name in sorted({*known, *letters})]


def _state(name: str, one: "ConsumerInfo | None", letters: int) -> dict[str, object]:
    found: dict[str, object] = {"name": name, "state": "never connected", "behind": 0, "dead_letters": letters}
    if one is None:
        return {**found, "unread": 0, "updated": ""}
    return {
        **found,
        "state": bot_state.state_of(one),
        "behind": one.behind,
        "unread": one.unread,
        "updated": one.updated,
    }


def _list(options: Options, out: Output) -> ExitCode:
    found = _states(options)
    keys = ("name", "state", "behind", "dead_letters")
    rows = [tuple(key.replace("_", " ").upper() for key in keys)]
    rows += [tuple(printable_line(str(one[key])) for key in keys) for one in found]
    out.data_list(found, table(rows) if found else ())
    if not found:
        narrate("No bot has run in this profile. `zerochat bot new NAME` writes one.")
    return ExitCode.OK


def _status(options: Options, out: Output) -> ExitCode:
    one = next((each for each in _states(options) if each["name"] == options.name), None)
    if one is None:
        raise NoSuchBot(name=printable_line(options.name or "bot"))
    out.data(one, table([(key.replace("_", " "), printable_line(str(value))) for key, value in one.items()]))
    return ExitCode.REFUSED if one["state"] == "stopped" else ExitCode.OK


def _store(options: Options) -> "Store":
    from zerochat.bot.bot import store_path
    from zerochat.bot.store import Store

    name = options.name or "bot"
    path = store_path(paths_of(options), name)
    if not path.exists():
        raise NoSuchBot(name=printable_line(name))
    return Store(path)


def _dead_letters(options: Options, out: Output) -> ExitCode:
    with _store(options) as store:
        if options.dead_letter is not None:
            _found(options, store.delete_dead_letters(options.dead_letter or None))
            return ExitCode.OK
        letters, gone = store.dead_letters(), store.dead_letters_dropped()
    if out.jsonl:
        out.data_list(
            [
                {
                    "id": one.id,
                    "event": one.event,
                    "group": one.group,
                    "type": one.type,
                    "handler": one.handler,
                    "error": one.error,
                    "attempts": one.attempts,
                    "at": datetime.fromtimestamp(one.at, UTC).isoformat(),
                }
                for one in letters
            ],
            (),
        )
    else:
        rows = [
            (
                str(one.id),
                f"{datetime.fromtimestamp(one.at):%Y-%m-%d %H:%M}",  # noqa: DTZ006  # local time
                one.handler,
                f"{one.type} {one.event[:ID_CHARS]}",
                name_of(one.error),
            )
            for one in letters
        ]
        out.data_list([], table(rows))
    if not letters:
        narrate("There are no dead letters.")
    if gone:
        narrate(f"{gone} older dead letters were dropped.")
    return ExitCode.OK


def _retry(options: Options, out: Output) -> ExitCode:
    with _store(options) as store:
        wanted = _found(options, store.request_retry(options.dead_letter or None))
    narrate(f"{wanted} queued for retry; the bot handles them when it runs.")
    return ExitCode.OK


def _retire(options: Options, out: Output) -> ExitCode:
    from zerochat.bot.bot import store_path

    name = options.name or "bot"
    path = store_path(paths_of(options), name)
    with attached(options) as agent:
        client = agent.client
        known = any(one.consumer == name for one in client.call("list_consumers"))
        if not known and not path.exists():
            raise NoSuchBot(name=printable_line(name))
        if known:
            client.delete_consumer(name)  # refused while it runs
        active = [one for one in client.list_groups() if one.state == "active"]
        withdrawn = [one for one in active if not client.announce_bot(one.id, bot=False, consumer=name).unchanged]
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        file.unlink(missing_ok=True)
    lines = [f"{name} is no longer announced in {name_of(one.name)}." for one in withdrawn]
    out.data({"bot": name, "groups": [one.id for one in withdrawn]}, lines)
    return ExitCode.OK


def _found(options: Options, count: int) -> int:
    if not count and options.dead_letter:
        raise NoSuchDeadLetter(name=options.name, letter=options.dead_letter)
    return count


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
