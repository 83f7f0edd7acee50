"""The verb bot: write one, run one, and see to what one could not handle."""

import asyncio
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.agents import attached, places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, name_of, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.terminal_text import printable, printable_line

if TYPE_CHECKING:
    from zerochat.bot import Bot
    from zerochat.bot.store import Store

ID_CHARS = 8

APP = """\
from zerochat import Bot, Message

bot = Bot(name="{name}")


@bot.command("hello", help="be greeted")
async def hello(m: Message, name: str = "") -> None:
    await m.reply(f"Hello, {{name or m.author}}!")


if __name__ == "__main__":
    bot.run()
"""

TEST = """\
from {name} import bot

from zerochat.testing import Group, run


def test_it_greets_also_over_a_bad_network() -> None:
    async def story() -> None:
        async with Group(members=2, bots=[bot], loss=0.2, reorder=True, seed=1) as group:
            await group.say("alice", "!hello")
            await group.settle()
            assert group.converged()
            assert (await group.texts("bob"))[-1] == "Hello, alice!"

    run(story())
"""


class Exists(LocalError):
    """There is a file {path} already, and it stays as it is. Choose another name."""


class FileFails(LocalError):
    """The file {path} has failed while it was read: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoSuchBot(LocalError):
    """No bot called {name} has run in this profile. Name it with --bot; `Bot(name=…)` in its file says what it is
    called."""


class NoSuchLetter(LocalError):
    """The bot {name} has no dead letter {letter}. `zerochat bot dead --bot {name}` lists them."""


def bot(options: Options, out: Output) -> ExitCode:
    match options.bot_action:
        case "new":
            return _new(options, out)
        case "run":
            return _run(options)
        case "dead":
            return _dead(options, out)
        case "retry":
            return _retry(options, out)
        case "retire":
            return _retire(options, out)
    from zerochat.cli import bot_units

    return {"unit": bot_units.unit, "container": bot_units.container}[options.bot_action](options, out)


def _new(options: Options, out: Output) -> ExitCode:
    name = options.name
    assert name is not None
    if options.example is None:
        files = {Path(f"{name}.py"): APP.format(name=name), Path(f"test_{name}.py"): TEST.format(name=name)}
    else:
        from importlib.resources import files as resources

        source = resources("zerochat.bot.examples").joinpath(f"{options.example}.py").read_text(encoding="utf-8")
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


def _run(options: Options) -> ExitCode:
    from zerochat.bot import launch

    place = options.path or ""
    if options.reload:
        from zerochat.bot.reload import command_of, watch

        launch.place_of(place)  # says at once when there is no such file
        folder = launch.place_of(place)[0].resolve().parent
        watch(command_of(place, options.profile), folder, narrate)
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
        asyncio.run(_try(found))
    else:
        asyncio.run(found.live())
    return ExitCode.OK


async def _try(found: "Bot") -> None:
    """The bot, and a person who types."""
    from zerochat.bot.console import ConsoleLine
    from zerochat.bot.store import Store

    narrate("You are in a group with your bot, and nobody else. Ctrl+D ends it.")
    line = ConsoleLine(found.home_group)
    with Store(None) as store:
        serving = asyncio.create_task(found.serve(line, store=store, signals=True))
        typing = asyncio.create_task(line.type())
        await asyncio.wait([serving, typing], return_when=asyncio.FIRST_COMPLETED)
        while typing.done() and not serving.done() and not (found.idle and line.heard_all):
            await asyncio.sleep(0.01)
        found.stop()
        await serving


def _store(options: Options) -> "Store":
    from zerochat.bot.bot import store_path
    from zerochat.bot.store import Store

    name = options.name or "bot"
    path = store_path(places_of(options), name)
    if not path.exists():
        raise NoSuchBot(name=printable_line(name))
    return Store(path)


def _dead(options: Options, out: Output) -> ExitCode:
    with _store(options) as store:
        if options.letter is not None:
            _found(options, store.forget(options.letter or None))
            return ExitCode.OK
        letters, gone = store.dead(), store.gone()
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
                f"{datetime.fromtimestamp(one.at):%Y-%m-%d %H:%M}",  # noqa: DTZ006  # the person's own clock is meant
                one.handler,
                f"{one.type} {one.event[:ID_CHARS]}",
                name_of(one.error),
            )
            for one in letters
        ]
        out.data_list([], table(rows))
    if not letters:
        narrate("It has handled everything.")
    if gone:
        narrate(f"{gone} older ones have made room for these.")
    return ExitCode.OK


def _retry(options: Options, out: Output) -> ExitCode:
    with _store(options) as store:
        wanted = _found(options, store.want(options.letter or None))
    narrate(f"{wanted} will be tried again as soon as the bot runs, or in a moment where it does.")
    return ExitCode.OK


def _retire(options: Options, out: Output) -> ExitCode:
    from zerochat.bot.bot import store_path

    name = options.name or "bot"
    path, taken_back = store_path(places_of(options), name), []
    with attached(options) as agent:
        client = agent.client
        known = any(one.consumer == name for one in client.call("consumers"))
        if not known and not path.exists():
            raise NoSuchBot(name=printable_line(name))
        if known:
            client.call("forget_consumer", consumer=name)  # refused while it runs
        for group in client.groups():
            own = next((one for one in client.members(group.id) if one.did == group.me), None)
            if group.state == "active" and own is not None and own.bot:
                client.call("announce", group=group.id, bot=False, commands=[])
                taken_back.append(group)
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        file.unlink(missing_ok=True)
    said = [f"You are no bot in {name_of(one.name)} any more." for one in taken_back]
    out.data({"bot": name, "groups": [one.id for one in taken_back]}, said)
    return ExitCode.OK


def _found(options: Options, count: int) -> int:
    if not count and options.letter:
        raise NoSuchLetter(name=options.name, letter=options.letter)
    return count
