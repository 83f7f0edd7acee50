"""Verbs chat and demo: open the terminal application or the plain chat."""

import argparse
import codecs
import os
import sys
from typing import ClassVar

from zerochat.cli.agent_access import paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, network_options
from zerochat.cli.output import Output, narrate
from zerochat.cli.prompts import passphrase_file
from zerochat.errors import LocalError


class NoTerminal(LocalError):
    """The chat needs a terminal. Use `zerochat chat --plain` without one, and `zerochat send`, `zerochat tail` and
    `zerochat history` in scripts."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class NoUnicodeTerminal(LocalError):
    """The chat needs UTF-8, and the encoding of this terminal is {encoding}. Choose a locale with UTF-8, for example
    `LC_ALL=C.UTF-8 zerochat`, or use `zerochat chat --plain`."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "chat",
        "open the chat in this terminal (the default)",
        "Open the chat in this terminal. It attaches to the profile's agent, or starts one that runs as long as the\n"
        "chat. If there is no profile yet, it helps you to create one.",
        """
zerochat
zerochat --profile work chat hikers
zerochat chat --plain hikers
zerochat chat --listen 0.0.0.0:4242 --advertise 203.0.113.7
zerochat chat --set theme=light --set keymap=vim
""",
        run=chat,
    )
    parser.add_argument("group", nargs="?", default="", metavar="GROUP", help="the group to open first")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="print line by line, for screen readers, simple terminals and pipes (automatic if TERM is `dumb`)",
    )
    parser.add_argument(
        "--set",
        dest="chat_settings",
        type=_setting,
        action="append",
        metavar="NAME=VALUE",
        help="override a setting of the chat for this run, such as theme=light (see `zerochat config show`)",
    )
    network_options(parser)
    add_verb(
        verbs,
        "demo",
        "try zerochat with real agents on this machine, without a network",
        "Run real agents on the loopback interface, in a temporary folder. In a terminal: the chat, in a group with\n"
        "two demo members. Otherwise: a scripted conversation, and a table of which member received which message;\n"
        "the exit code is not 0 if a message is missing.",
        """
zerochat demo
zerochat demo </dev/null
""",
        run=demo,
    )


def _setting(text: str) -> tuple[str, object]:
    from zerochat.agent.settings.config_file import value_of
    from zerochat.agent.settings.options import CHAT, check_value, full_name

    name, _, value = text.partition("=")
    name = full_name(name.strip())
    try:
        check_value(name, value_of(value))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not name.startswith(CHAT):
        raise argparse.ArgumentTypeError(f"{name} is a setting of the agent; set it in the settings file")
    return name, value_of(value)


def chat(options: Options, out: Output) -> int:
    if options.plain or _is_dumb():
        from zerochat.cli.plain_chat import plain_chat

        return plain_chat(options, out)
    if not _on_a_terminal():
        raise NoTerminal
    _check_encoding()
    from zerochat.tui import run_chat

    return run_chat(
        paths_of(options),
        passphrase_file(),
        listen=options.listen,
        advertise=options.advertise,
        group=options.group,
        demo=lambda: demo(options, out),
        overrides=dict(options.chat_settings or ()),
    )


def demo(options: Options, out: Output) -> int:
    if not _on_a_terminal():
        from zerochat.demo import run_script

        return run_script(out.exactly)
    _check_encoding()
    from zerochat.demo import GROUP, Cast
    from zerochat.tui import run_chat

    cast = Cast()
    try:
        narrate("Starting three agents…")
        return run_chat(cast.open(), group=GROUP, tour=False)
    finally:
        cast.close()


def _on_a_terminal() -> bool:
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and sys.stderr.isatty()  # where Textual draws
        and os.environ.get("TERM", "") not in ("", "dumb")
    )


def _check_encoding() -> None:
    """Raises NoUnicodeTerminal."""
    encoding = sys.stderr.encoding  # Textual draws on standard error
    if codecs.lookup(encoding).name != "utf-8":
        raise NoUnicodeTerminal(encoding=encoding)


def _is_dumb() -> bool:
    """Whether this is a terminal without cursor control."""
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return terminal and os.environ.get("TERM", "") in ("", "dumb")
