"""The grammar of the command line, put together: every verb with its options, its help and its examples.

Nothing here does anything, and nothing heavy is imported: `zerochat VERB --help` answers at once. Each family of verbs
is in a file of its own, `parser_FAMILY.py` with a function `add_FAMILY`.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from zerochat import __version__
from zerochat.cli.exits import ExitCode
from zerochat.cli.grammar import FORMATS, Layout, Options, Parser, common

__all__ = ["FAMILIES", "Options", "grammar", "parse"]

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "faces": ("chat", "demo"),
    "profile": ("init", "agent", "status", "locate"),
    "config": ("config",),
    "keeping": ("passphrase", "backup", "restore"),
    "groups": ("new", "invite", "join", "leave", "forget", "resume", "info"),
    "members": ("members", "requests", "admit", "refuse", "remove", "role", "rename", "verify"),
    "talk": ("send", "tail", "history", "search"),
    "amend": ("react", "edit", "delete", "topic"),
    "files": ("files",),
    "log": ("delivery", "why", "audit", "export", "import"),
    "evidence": ("proof", "evidence", "log", "verify-proof", "accuse", "cases", "case", "judge"),
    "peers": ("ping", "features", "rotate", "connect", "connections", "tell", "letters", "disconnect", "route"),
    "mediator": ("mediator",),
    "didcomm": ("didcomm",),
    "sim": ("sim",),
    "bot": ("bot",),
    "operating": ("doctor", "completion", "__complete", "man"),
    "rpc": ("rpc",),
    "telemetry": ("telemetry",),
}
"""Every verb by its family, as `--help` has them."""


def grammar(verb: str = "") -> Parser:
    """The grammar of this verb's family alone; without a verb, or with a word that is none, the whole."""
    codes = "\n".join(f"  {code.value:>3}  {code.sentence}" for code in ExitCode)
    parser = Parser(
        prog="zerochat",
        description="End-to-end encrypted group chat for the terminal, without a server.",
        epilog=f"""\
without a verb, zerochat opens the chat.

first steps:
  zerochat demo                 see it work, with nothing to set up
  zerochat init --name alice    make a profile
  zerochat new hikers           make a group
  zerochat invite hikers        a link and a code for the next member
  zerochat join                 paste such a link or code

Data goes to standard output, everything else to standard error. GROUP is a
group's name, its id, or the first letters of its id. One agent owns a profile;
every verb talks to it, and starts one for itself when there is none.

environment:
  ZEROCHAT_PROFILE          the profile, instead of --profile
  ZEROCHAT_HOME             one folder for everything that zerochat keeps
  ZEROCHAT_PASSPHRASE_FILE  a file with the passphrase, if nobody can be asked
  ZEROCHAT_SECTION__KEY     a setting, instead of the one in the file

exit codes:
{codes}""",
        formatter_class=Layout,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zerochat {__version__}")
    common(parser, FORMATS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for family in [each for each, known in FAMILIES.items() if verb in known] or FAMILIES:
        getattr(import_module(f"zerochat.cli.parser_{family}"), f"add_{family}")(verbs)
    return parser


def parse(argv: Sequence[str] | None = None) -> Options:
    """Read the command line (None: the process's own). Raises SystemExit for --help, --version and mistakes."""
    given = list(sys.argv[1:] if argv is None else argv)
    # All verbs together take as long as a frame of the chat, or a tenth of an agent's start.
    return grammar(given[0] if given else "chat").parse_args(given, namespace=Options())
