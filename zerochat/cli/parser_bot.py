"""The grammar of the verb bot."""

import argparse
import re

from zerochat.cli.grammar import Parser, Verbs, add_verb, positive
from zerochat.cli.parser_bot_units import add_bot_units

EXAMPLES = ("ping", "ci", "reminder", "relay")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def add_bot(verbs: "Verbs[Parser]") -> None:
    """Declare the verb bot, with its actions."""
    bot = add_verb(
        verbs,
        "bot",
        "write, try and run a bot; see what it could not handle",
        "A bot is a Python file in which `from zerochat import Bot` makes one. It never loses an event: what it has\n"
        "not handled comes again. `zerochat bot new` writes one of ten lines to begin with, with its test.",
        """
zerochat bot new greeter
zerochat bot run greeter.py --console
zerochat bot run greeter.py --reload
zerochat bot dead
zerochat bot retry 7
zerochat bot retire --bot greeter
zerochat bot unit greeter
""",
    )
    actions = bot.add_subparsers(dest="bot_action", metavar="ACTION", title="actions", required=True)
    _new(actions)
    _run(actions)
    _dead(actions)
    _retry(actions)
    _retire(actions)
    add_bot_units(actions)


def _new(actions: "Verbs[Parser]") -> None:
    new = add_verb(
        actions,
        "new",
        "write a bot of ten lines, and its test",
        "Write NAME.py and test_NAME.py into this folder; what is there already stays as it is. With --example it is\n"
        "a copy of one of the bots that come with zerochat: `ping` says who hears it, `ci` tells how builds went,\n"
        "`reminder` reminds of things, `relay` relays what a command prints.",
        """
zerochat bot new greeter
zerochat bot new builds --example ci
""",
    )
    new.add_argument("name", type=_name, metavar="NAME", help="what it is called: a-z, 0-9 and _")
    new.add_argument("--example", choices=EXAMPLES, metavar="|".join(EXAMPLES), help="a copy of this one")


def _run(actions: "Verbs[Parser]") -> None:
    run = add_verb(
        actions,
        "run",
        "run a bot until Ctrl+C or SIGTERM",
        "Run the bot in a file until Ctrl+C or SIGTERM; then what it is at is finished first, and the exit code is 0.\n"
        "It attaches to the profile's agent, or is the agent meanwhile. --console: try it without any group; each\n"
        "line that you type is a message. --reload: run it anew whenever a Python file in its folder changes.",
        """
zerochat bot run greeter.py
zerochat --profile ci bot run bots.py:nightly
zerochat bot run greeter.py --console
zerochat bot run greeter.py --reload
""",
    )
    run.add_argument("path", metavar="FILE[:NAME]", help="its file; and which bot in it, where there are several")
    how = run.add_mutually_exclusive_group()
    how.add_argument("--console", action="store_true", help="try it here: nothing is sent, and nothing is kept")
    how.add_argument("--reload", action="store_true", help="run it anew when its files change")


def _dead(actions: "Verbs[Parser]") -> None:
    dead = add_verb(
        actions,
        "dead",
        "list what a bot could not handle",
        "List the dead letters of a bot: events whose handler has failed again and again, with what it has raised.\n"
        "What was said is not kept there: `zerochat history` has it.",
        """
zerochat bot dead
zerochat bot dead --bot ci --format jsonl | jq .error
zerochat bot dead --forget 7
""",
    )
    _whose(dead)
    dead.add_argument("--forget", dest="letter", type=_letter, metavar="ID|all", help="throw this one away, or all")


def _retry(actions: "Verbs[Parser]") -> None:
    retry = add_verb(
        actions,
        "retry",
        "have a bot try again what it could not handle",
        "Have a bot try dead letters again: as soon as it runs, or at once where it does.",
        """
zerochat bot retry 7
zerochat bot retry all --bot ci
""",
    )
    retry.add_argument("letter", type=_letter, metavar="ID|all", help="which one, as `zerochat bot dead` shows, or all")
    _whose(retry)


def _retire(actions: "Verbs[Parser]") -> None:
    retire = add_verb(
        actions,
        "retire",
        "end a bot for good: nobody takes you for one any more",
        "End a bot for good, which does not run any more. What it has announced is taken back in every group, so that\n"
        "nobody takes you for a bot, or completes its commands. How far it has come is forgotten, and so is all that\n"
        "it has kept: its values (`bot.kv`), its dead letters and what it had still to do.",
        """
zerochat bot retire --bot greeter
zerochat --profile ci bot retire --format jsonl
""",
    )
    _whose(retire)


def _whose(parser: Parser) -> None:
    parser.add_argument("--bot", dest="name", default="bot", metavar="NAME", help="the bot's name (default: bot)")


def _letter(text: str) -> int:
    """0 for all of them."""
    return 0 if text == "all" else positive(text)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not up to 40 of a-z, 0-9 and _, beginning with a letter")
    return text
