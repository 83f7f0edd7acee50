"""The grammar of `zerochat bot unit` and `zerochat bot container`."""

import argparse
import re

from zerochat.cli.grammar import Parser, Verbs, add_verb

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_bot_units(actions: "Verbs[Parser]") -> None:
    """Declare the actions unit and container."""
    unit = add_verb(
        actions,
        "unit",
        "print a unit for systemd that runs a bot",
        "Print a unit for systemd that runs a bot as a service of yours. It attaches to the profile's agent where one\n"
        "runs (`zerochat agent --print-unit`), and takes one along where none does. Nothing is installed.",
        """
zerochat bot unit deploys >~/.config/systemd/user/deploys.service
zerochat --profile ci bot unit deploys --app ~/bots/deploys.py
""",
    )
    _named(unit)
    container = add_verb(
        actions,
        "container",
        "print a file to build a container from, that runs a bot",
        "Print a file to build a container from, that runs a bot as a user without rights, keeps the profile in a\n"
        "volume, and answers health checks. Nothing is built.",
        """
zerochat bot container deploys >Containerfile
zerochat bot container deploys --app ~/bots/deploys.py >Containerfile
zerochat bot container relay --agent >Containerfile
""",
    )
    _named(container)
    container.add_argument("--agent", dest="agent_alone", action="store_true", help="without a bot: an agent alone")


def _named(parser: Parser) -> None:
    parser.add_argument("name", type=_name, metavar="NAME", help="what the bot is called")
    parser.add_argument("--app", dest="path", metavar="FILE", help="its file (default: NAME.py, here)")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("it must be up to 64 letters, digits, dots, dashes and underscores")
    return text
