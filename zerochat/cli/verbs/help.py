"""Verbs help and man: pages of the user's manual, and the man page."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import ClassVar

from zerochat.cli.command_tree import command_tree
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output
from zerochat.errors import LocalError
from zerochat.terminal_text import printable

_BULLET = re.compile(r" *(?:[-*]|[0-9]+[.]) ")


class NoSuchTopic(LocalError):
    """There is no manual page {topic}.{hint} `zerochat help` lists the pages."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "help",
        "show a page of the manual",
        "Show a page of the manual, in your pager ($ZEROCHAT_PAGER or $PAGER) if standard output is a terminal.\n"
        "Without a topic, list the pages. For the options of a command, use `zerochat COMMAND --help`.",
        """
zerochat help
zerochat help getting-started
""",
        run=help,
    )
    parser.add_argument("topic", nargs="?", default="", metavar="TOPIC", help="name of a page, or of a command")
    add_verb(
        verbs,
        "man",
        "print the man page",
        "Print the man page, generated from the help of all commands, for man(1).",
        """
zerochat man | man -l -
zerochat man >~/.local/share/man/man1/zerochat.1
""",
        run=man,
    )


def help(options: Options, out: Output) -> ExitCode:
    from zerochat.cli.parser import VERBS, grammar
    from zerochat.manual import read_page, topics

    known = topics()
    topic = options.topic.lower()
    if not topic:
        rows: list[dict[str, object]] = [{"topic": name, "title": title} for name, title in known.items()]
        lines = ["Pages of the manual; read one with `zerochat help TOPIC`:", ""]
        out.data_list(rows, [*lines, *table([(f"  {name}", title) for name, title in known.items()])])
        return ExitCode.OK
    if topic in known:
        text = read_page(topic)
        if out.jsonl:
            out.data({"topic": topic, "title": known[topic], "text": text}, ())
        else:
            _page(text, out)
        return ExitCode.OK
    if any(topic in verbs for verbs in VERBS.values()) and not topic.startswith("_"):
        grammar(topic).parse_args([topic, "--help"])
    from difflib import get_close_matches

    nearest = get_close_matches(topic, known, n=1)
    raise NoSuchTopic(topic=ascii(topic[:32]), hint=f" Did you mean `{nearest[0]}`?" if nearest else "")


def _page(text: str, out: Output) -> None:
    """Print a page through the terminal sanitiser; in a terminal through the pager, as git does."""
    lines = [printable(line) for line in text.rstrip("\n").split("\n")]
    if not sys.stdout.isatty():
        for line in lines:
            out.exactly(line)
        return
    lines = [printable(line) for line in wrapped(lines, shutil.get_terminal_size().columns)]
    import pydoc
    import shlex
    import subprocess

    command = os.environ.get("ZEROCHAT_PAGER", os.environ.get("PAGER", "less"))
    if command in ("", "cat"):
        pydoc.plainpager("\n".join(lines) + "\n")
        return
    environment = {"LESS": "FRX", **os.environ}  # quit if it fits one screen, keep the screen, show colours
    try:
        pager = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, env=environment, text=True)
    except (OSError, ValueError):
        for line in lines:
            out.exactly(line)
        return
    with suppress(BrokenPipeError):
        pager.communicate("\n".join(lines) + "\n")


def wrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    """The lines of a page, with its paragraphs and list items filled for this width; code and tables as they are."""
    code, held = False, ""
    for line in lines:
        fence = line.startswith("```")
        fixed = code or fence or not line or line.startswith(("|", "#"))
        code ^= fence
        if fixed or _BULLET.match(line):
            yield from _filled(held, width)
            held = ""
        if fixed:
            yield line
        else:
            held = f"{held} {line.strip()}" if held else line
    yield from _filled(held, width)


def _filled(paragraph: str, width: int) -> list[str]:
    begin = _BULLET.match(paragraph)
    indent = " " * (begin.end() if begin else 0)
    return textwrap.wrap(paragraph, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def man(options: Options, out: Output) -> ExitCode:
    from zerochat.cli.man_page import man_page
    from zerochat.cli.parser import grammar

    out.exactly(man_page(command_tree(grammar())).rstrip("\n"))
    return ExitCode.OK
