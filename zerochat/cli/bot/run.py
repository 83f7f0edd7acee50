"""`zerochat bot run`: runs a bot from its file, in its groups or in a console."""

import asyncio
import logging
import sys
import traceback
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError
from zerochat.terminal_text import printable, printable_line

if TYPE_CHECKING:
    from zerochat.bot import Bot


class FileFails(LocalError):
    """Cannot load {path}: {why}."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def run_bot(options: Options, out: Output) -> ExitCode:
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
        serving = asyncio.create_task(found.serve(line, store=store, signals=True, retry=False))
        typing = asyncio.create_task(line.read_input())
        await asyncio.wait([serving, typing], return_when=asyncio.FIRST_COMPLETED)
        while typing.done() and not serving.done() and not (found.idle and line.drained):
            await asyncio.sleep(0.01)
        found.stop()
        await serving
