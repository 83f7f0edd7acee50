"""The verb table and the parser built from it.

A verb is one entry in VERBS and one module `zerochat/cli/verbs/MODULE.py` with a function `add(verbs)`, which declares
the parser and names the function that runs. Only the module of the given verb is imported.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import FORMATS, JSON_FORMATS, Layout, Options, Parser, common_options, has_option
from zerochat.version import __version__

VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "chat": ("chat", "demo"),
    "profile": ("init", "status", "paths"),
    "agent": ("agent",),
    "config": ("config",),
    "backup": ("passphrase", "backup", "restore"),
    "groups": ("new", "info", "leave", "forget", "resume"),
    "keep": ("keep",),
    "upgrade": ("upgrade", "rekey"),
    "invite": ("invite",),
    "join": ("join",),
    "members": ("members", "remove", "role", "transfer", "rename", "ignore"),
    "overlay": ("overlay",),
    "lan": ("lan",),
    "requests": ("requests", "admit", "refuse"),
    "verify": ("verify",),
    "send": ("send",),
    "msg": ("msg",),
    "history": ("tail", "history"),
    "search": ("search", "mentions"),
    "unread": ("read",),
    "annotate": ("react", "edit", "delete", "topic", "pin", "pins"),
    "files": ("files",),
    "delivery": ("delivery", "why"),
    "audit": ("audit", "export", "import"),
    "evidence": ("proof", "evidence", "tlog", "verify-proof"),
    "cases": ("accuse", "cases", "case", "judge"),
    "ping": ("ping", "features", "rotate"),
    "connections": ("connect", "connections", "message", "messages", "disconnect"),
    "route": ("route",),
    "mediator": ("mediator",),
    "didcomm": ("didcomm",),
    "sim": ("sim",),
    "bot": ("bot",),
    "doctor": ("doctor",),
    "completion": ("completion", "__complete"),
    "help": ("help", "man"),
    "rpc": ("rpc",),
    "telemetry": ("telemetry",),
}
"""Module → its verbs, in the order of `--help`."""

_EPILOG = """\
Without a command, zerochat opens the chat.

first steps:
  zerochat demo                 see it work, with nothing to set up
  zerochat init --name Alice    create a profile
  zerochat new hikers           create a group
  zerochat invite hikers        print an invitation link and code
  zerochat join                 paste an invitation
  zerochat help                 list the pages of the manual

Data goes to standard output, everything else to standard error. With --format
json, a failing command ends standard error with a line {"error": {"message",
"code", "exit_code", …}}, where code is a stable name. GROUP is a group's name,
its id, or a prefix of its id. Each profile has one agent. A command that needs
it uses the running one, or else starts one and stops it at its end; `zerochat
status` only shows a running one.

environment:
  ZEROCHAT_PROFILE          the profile, instead of --profile
  ZEROCHAT_HOME             one folder for all files of zerochat
  ZEROCHAT_PASSPHRASE_FILE  a file that contains the passphrase
  ZEROCHAT_SECTION__KEY     overrides a setting of the settings file

exit codes:
"""


def grammar(verb: str = "") -> Parser:
    """The parser with the module of this verb alone; with all modules for an unknown or empty verb."""
    parser = Parser(
        prog="zerochat",
        description="End-to-end encrypted group chat for the terminal, without a server.",
        epilog=_EPILOG + "\n".join(f"  {code.value:>3}  {code.sentence}" for code in ExitCode),
        formatter_class=Layout,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zerochat {__version__}")
    common_options(parser, FORMATS)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands")
    for module in [name for name, known in VERBS.items() if verb in known] or VERBS:
        import_module(f"zerochat.cli.verbs.{module}").add(verbs)
    return parser


def parse(argv: Sequence[str] | None = None) -> Options:
    """The parsed command line (None: the arguments of the process). Raises SystemExit for --help, --version and
    usage errors."""
    given = list(sys.argv[1:] if argv is None else argv)
    Parser.json_errors = has_option(given, "--format", JSON_FORMATS)
    # Declaring all verbs takes as long as a frame of the chat, or a tenth of an agent's start.
    options: Options = grammar(given[0] if given else "chat").parse_args(given, namespace=Options())
    if not hasattr(options, "run"):  # no verb was given
        options.run = import_module("zerochat.cli.verbs.chat").chat
    options.parse_verb = parse
    return options
