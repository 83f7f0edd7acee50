"""Building blocks of the command-line grammar: the parser class and shared arguments."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeAlias

from zerochat.agent.storage.paths import DEFAULT_PROFILE
from zerochat.cli.combinations import fault_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.value_types import advertised_address, listen_address, seconds_of

if TYPE_CHECKING:
    from zerochat.cli.output import Output

FORMATS = ("text", "jsonl", "json")
"""`json` is an alias of `jsonl`."""
JSON_FORMATS = FORMATS[1:]
ENVELOPES = ("didcomm/v2", "didcomm/v1")
WIDTH = 79
EXPIRES_S = 86_400
"""Default lifetime of an invitation."""
MESSAGE_HELP = (
    "id of a message or a prefix of it (at least 4 characters), `last` for your newest message, or `last:NAME`"
)

_HYPHEN_ID = re.compile("-[A-Za-z0-9_][A-Za-z0-9_-]{2,41}")
"""An id, or a prefix of at least four characters, that begins with a hyphen. One in 64 ids does, and no verb that takes
an id has an option of this form. One id in 4096 begins with two hyphens and needs `--` before it."""
_NO_VALUE = re.compile(r"argument (-[^:/ ]+).*: expected one argument$")
_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$", re.DOTALL)
CHOICES_SHOWN_MAX = 12
"""With more choices, an error names only the nearest one."""
_ID_MARK = "\0"
"""Prefix that hides the hyphen of an id from argparse; no command-line argument can contain it."""


class Options(argparse.Namespace):
    """The parsed command line. Beside the first five, only the attributes of the verb are set."""

    run: "Run"
    """What the verb does."""
    parse_verb: "Callable[[Sequence[str]], Options]"
    """Parses another command line: the plain chat runs verbs."""
    verb: str = "chat"
    profile: str | None = None
    format: str = "text"
    in_chat: bool = False
    """Whether the plain chat runs this verb, whose arguments are on no command line then."""

    name: str | None
    passphrase: bool
    keyring: bool
    listen: str | None = None
    advertise: str | None = None
    group: str = ""
    plain: bool = False
    every_s: int | None
    expires_s: int | None
    uses: int
    invitation: str | None
    message: str | None
    wait: int | None
    timeout_s: float
    since: int | None
    count: int | None
    all: bool
    yes: bool
    cancel: str | None
    dismiss: bool
    path_name: str | None
    config_action: str
    chat_settings: list[tuple[str, object]] | None = None

    event: str
    reply: str | None = None
    me: bool = False
    emoji: str
    off: bool
    path: str | None
    operator: str | None
    witnesses: list[str] | None
    ids: bool

    files: list[str] | None = None
    files_action: str
    file_ref: str
    terms: list[str]
    author: str | None
    before: str | None
    after: str | None
    limit: int | None

    log_format: Literal["text", "json"] | None = None
    print_unit: Literal["user", "system"] | None = None
    agent_alone: bool = False
    check: bool = False
    bar: str | None = None
    unread: bool = False
    checks: list[str]
    shell: str
    candidates: str
    max_behind: int | None = None
    consumer: str | None = None
    message_key: str | None = None
    follow: bool

    rpc_mode: str
    study: bool
    dry_run: bool

    peer: str
    match: str
    text: str | None
    answer: Literal["accept", "decline"] | None = None

    keys: str
    join_rule: str
    removal: str | None
    quorum: int | None
    roles: str
    agreement: str
    history_rule: str | None
    image: str | None
    list_open: bool
    revoke: str | None
    keepers: int
    keep: int
    time: int | None
    read_only: bool
    role: str
    words: str | None
    mark: bool
    unmark: bool
    invite: bool

    example: str | None = None
    dead_letter: int | None = None
    console: bool = False
    reload: bool = False

    file: str
    secrets: str | None = None
    dids: list[str]
    documents: list[str]
    lenient: bool = False
    to: str | None
    sender: str | None
    sign: bool
    anon: bool
    envelope: str
    enc: str | None
    output: str | None = None
    topic: str

    public_uri: str | None
    open_to_all: bool
    new_invitation: bool
    further_invitation: bool
    mix_with: list[str]
    behind: str | None
    noise: float
    certificate: str | None
    key: str | None
    no_passphrase: bool
    recipients: int | None
    messages: int | None
    megabytes: int | None
    keep_s: int | None

    seeds: int | None
    first: int | None
    seed: int | None
    trace: bool
    kind: Literal["episodes", "histories", "byzantine", "accountable", "retention"]
    overlay: bool
    groups: list[str]
    networks: list[str]
    every_network: bool
    large: bool
    nodes: int | None
    members: int | None
    joins: bool
    fan_out: int | None
    dead: float | None
    loss: float | None
    repeat: bool
    jobs: int


Run: TypeAlias = "Callable[[Options, Output], int]"


class Layout(argparse.RawDescriptionHelpFormatter):
    """Help formatter that reads the terminal's width itself.

    argparse asks `shutil` for the width at every argument, which imports Python's compression modules into every verb
    and every agent.
    """

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2, **more})


def _columns() -> int:
    """The width of the terminal, as `shutil.get_terminal_size` returns it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or WIDTH + 1  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # the stream is missing, closed, or no terminal
        return WIDTH + 1


_VALUE_ACTIONS = (argparse._StoreAction, argparse._AppendAction)
"""Actions of options that take a value."""


class Parser(argparse.ArgumentParser):
    """argparse with suggestions in usage errors, and with ids that begin with a hyphen."""

    takes_id = False
    """Whether an argument is the id of a connection or an event."""
    json_errors: ClassVar[bool] = False
    """The command line asks for JSON."""
    stray_hint = ""
    """Advice in the error about surplus arguments."""

    def format_help(self) -> str:
        if self.description:  # wrapping all descriptions would double the time to declare the verbs
            self.description = fill(" ".join(self.description.split()), WIDTH)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        text = _CHOICE.sub(_nearest, message.replace(_ID_MARK, ""))
        if option := _NO_VALUE.match(text):
            text += f" (if it begins with a hyphen: {option[1]}=VALUE)"
        usage = self.format_usage()
        if Parser.json_errors:
            from zerochat.cli.output import print_error

            details = {"code": "UsageError", "exit_code": ExitCode.USAGE.value, "usage": " ".join(usage.split()[1:])}
            print_error(text, details)
            self.exit(ExitCode.USAGE)
        self.exit(
            ExitCode.USAGE, f"{usage}{self.prog}: error: {text}\nTry '{self.prog} --help' for more information.\n"
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help and version like all output: argparse would hide that it cannot be written, or find out too late.
        Raises OutputFailed and BrokenPipeError."""
        from zerochat.cli.output import Output

        if file is sys.stdout:
            Output("text").exactly(message.rstrip("\n"))
        else:
            super()._print_message(message, file)

    def _with_values(self, words: Sequence[str]) -> list[str]:
        """The words, where a value that begins with a hyphen is joined to its option: argparse would take it for
        another option. An option of this verb, whole or abbreviated, stays one, because then the value is missing."""
        known = self._option_string_actions
        options = {
            name for name, action in known.items() if isinstance(action, _VALUE_ACTIONS) and action.nargs is None
        }
        joined: list[str] = []
        for index, word in enumerate(words):
            before = joined[-1] if joined else ""
            if word == "--":
                return [*joined, *words[index:]]
            stem = word.partition("=")[0]
            is_option = stem in known or (stem.startswith("--") and any(name.startswith(stem) for name in known))
            if before in options and word.startswith("-") and word != "-" and not is_option:
                joined[-1] = f"{before}={word}"
            else:
                joined.append(word)
        return joined

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like argparse, but the verb itself rejects unknown arguments, so that the error shows its usage."""
        given = list(sys.argv[1:] if args is None else args)
        given = self._with_values(given)
        if self.takes_id:
            given = [_ID_MARK + word if _HYPHEN_ID.fullmatch(word) else word for word in given]
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self.error("unrecognized arguments: " + " ".join(unknown) + self.stray_hint)
        if fault := fault_of(self, found):
            self.error(fault)
        for name, value in vars(found).items():
            if isinstance(value, str):
                setattr(found, name, value.removeprefix(_ID_MARK))
        return found, unknown


def has_option(words: Sequence[str], flag: str, values: Sequence[str]) -> bool:
    """Whether these arguments contain this option with one of these values, even where others are invalid."""
    joined = {f"{flag}={value}" for value in values}
    return any(word in joined or (before == flag and word in values) for before, word in pairwise(["", *words]))


def _nearest(message: re.Match[str]) -> str:
    """argparse's message about an invalid choice; a long list of choices is replaced by the nearest one."""
    word, known = message[1], [choice.strip().strip("'") for choice in message[2].split(",")]
    if len(known) <= CHOICES_SHOWN_MAX:
        return message[0]
    from difflib import get_close_matches

    likely = get_close_matches(word, [choice for choice in known if not choice.startswith("_")], n=1)
    return f"invalid choice: {word!r}" + (f"; did you mean {likely[0]!r}?" if likely else "")


# --- declaring verbs ------------------------------------------------------------------------------------------------


def common_options(parser: argparse.ArgumentParser, formats: Sequence[str], profile: str = DEFAULT_PROFILE) -> None:
    """Declare --profile and --format, which are valid before and after the verb; unset when absent, so that neither
    place overrides the other. `profile`: the default one, for the help."""
    parser.add_argument(
        "--profile",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help=f"use this profile (default: $ZEROCHAT_PROFILE, or '{profile}')",
    )
    parser.add_argument(
        "--format",
        choices=formats,
        default=argparse.SUPPRESS,
        help="output format (default: text); json and jsonl print one JSON object per line, in ASCII",
    )


Verbs = argparse._SubParsersAction  # private, but the only type that declares add_parser


def add_verb(
    verbs: "Verbs[Parser]",
    name: str,
    summary: str,
    text: str,
    examples: str,
    *,
    run: "Run | None" = None,
    formats: Sequence[str] = FORMATS,
    profile: str = DEFAULT_PROFILE,
) -> Parser:
    """Declare a verb, or an action of one. `run`: its function; None where an action is required. `profile`: its
    default one, for the help."""
    parser = verbs.add_parser(
        name,
        help=summary,
        description=text,
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
        formatter_class=Layout,
        allow_abbrev=False,
    )
    common_options(parser, formats, profile)
    if run is not None:
        parser.set_defaults(run=run)
    return parser


def group_argument(parser: Parser) -> None:
    parser.add_argument("group", metavar="GROUP", help="the name or id of a group, or a prefix of its id")


def message_argument(parser: Parser) -> None:
    """Declare GROUP and MSG."""
    parser.takes_id = True
    group_argument(parser)
    parser.add_argument("event", metavar="MSG", help=f"{MESSAGE_HELP}; `zerochat history GROUP --ids` shows the ids")


def yes_option(parser: Parser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def envelope_option(parser: Parser, use: str) -> None:
    parser.add_argument(
        "--envelope",
        choices=ENVELOPES,
        default=ENVELOPES[0],
        help=f"message format {use}: DIDComm v2, or Aries RFC 0019 for older agents (default: %(default)s)",
    )


def connection_argument(parser: Parser) -> None:
    parser.add_argument("peer", metavar="CONNECTION", help="the name or id of a connection, or a prefix of its id")
    parser.takes_id = True


def member_argument(parser: Parser, default: str = "") -> None:
    """Declare MEMBER; `default`: its default value for the help, empty if it is required."""
    help = "a member's name or key" + (f" (default: {default})" if default else "")
    parser.add_argument("peer", nargs="?" if default else None, metavar="MEMBER", help=help)


def history_source(parser: Parser) -> None:
    """Declare GROUP or --file: the log of a group, from the agent or from an export."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "group", nargs="?", default="", metavar="GROUP", help="the name or id of a group, or a prefix of its id"
    )
    source.add_argument("--file", dest="path", metavar="FILE", help="a file written by `zerochat export`, or -")


def timeout_option(parser: Parser, default: float, text: str) -> None:
    parser.add_argument("--timeout", dest="timeout_s", type=seconds_of, default=default, metavar="S", help=text)


def network_options(parser: Parser) -> None:
    parser.add_argument(
        "--listen",
        type=listen_address,
        metavar="HOST[:PORT[:PORT]]",
        help="listen address, with the ports for pairs and for queues (default: from the settings, else as last time,"
        " else all addresses: 0.0.0.0)",
    )
    parser.add_argument(
        "--advertise",
        type=advertised_address,
        metavar="ADDRESS",
        help="IP address, not a name, at which peers reach this machine (default: from the settings, else as last time,"
        " else detected)",
    )
