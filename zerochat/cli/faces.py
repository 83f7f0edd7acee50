"""The two verbs that open a screen: chat and demo."""

import os
import sys
from collections.abc import Callable
from typing import ClassVar

from zerochat.cli.agents import passphrase_file, places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate
from zerochat.cli.parser import Options
from zerochat.errors import LocalError


class NoTerminal(LocalError):
    """The chat needs a terminal for its input and all of its output. `zerochat chat --plain` needs none; in scripts use
    `zerochat send`, `zerochat tail` and `zerochat history`; `zerochat --help` lists the rest."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def on_a_terminal() -> bool:
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and sys.stderr.isatty()  # where Textual draws
        and os.environ.get("TERM", "") not in ("", "dumb")
    )


def is_dumb() -> bool:
    """Whether somebody is at a terminal that can show lines, and nothing else."""
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return there and os.environ.get("TERM", "") in ("", "dumb")


def chat(options: Options, out: Output, run_verb: Callable[[Options, Output], int]) -> int:
    """`run_verb` does a verb, as the chat of lines has them for commands."""
    if options.plain or is_dumb():
        from zerochat.cli.plain_chat import plain

        return plain(options, out, run_verb)
    if not on_a_terminal():
        raise NoTerminal
    from zerochat.tui import run_chat

    return run_chat(
        places_of(options),
        passphrase_file(),
        listen=options.listen,
        advertise=options.advertise,
        group=options.group,
        demo=lambda: demo(options, out),
        said=dict(options.said or ()),
    )


def demo(options: Options, out: Output) -> int:
    if not on_a_terminal():
        from zerochat.demo import run_script

        return run_script(out.exactly)
    from zerochat.demo import GROUP, Cast
    from zerochat.tui import run_chat

    cast = Cast()
    try:
        narrate("Three agents are starting, and the cast is taking its places…")
        return run_chat(cast.open(), group=GROUP, tour=False)
    finally:
        cast.close()
