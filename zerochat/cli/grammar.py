"""What the grammar of the command line is made of: the options of every verb, how a verb is declared, kinds of values.

Nothing here does anything, and nothing heavy is imported: `zerochat VERB --help` answers at once.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from textwrap import fill
from typing import Any, Literal, NoReturn

from zerochat.cli.exits import ExitCode

FORMATS = ("text", "jsonl", "json")
"""`json` is another name for `jsonl`: whoever wants one piece of data thinks of that."""
ENVELOPES = ("didcomm/v2", "didcomm/v1")
WIDTH = 79
EXPIRES_S_MAX = 30 * 86_400

_HYPHEN_ID = re.compile("-[A-Za-z0-9_][A-Za-z0-9_-]{2,41}")
"""A connection's or an event's id that begins with a hyphen, or four letters of it at least: no verb that takes one has
an option that looks so. One in 64 ids begins with a hyphen; one in 4096 begins with two: it stands behind `--`."""
_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$", re.DOTALL)
CHOICES_SHOWN_MAX = 12
"""Of more than so many, only the nearest is named."""
_ID_MARK = "\0"
"""Hides the hyphen from argparse. Nothing on a command line can contain it."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Options(argparse.Namespace):
    """What was asked for. Only what belongs to the verb is set, beside the first three."""

    verb: str = "chat"
    profile: str | None = None
    format: str = "text"

    name: str | None
    passphrase: bool
    keyring: bool
    listen: str | None = None
    advertise: str | None = None
    group: str = ""
    plain: bool = False
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
    place: str | None
    config_action: str
    said: list[tuple[str, object]] | None = None

    event: str
    reply: str | None = None
    me: bool = False
    emoji: str
    off: bool
    path: str | None
    operator: str | None
    witnesses: list[str] | None
    whole: bool
    ids: bool

    files: list[str] | None = None
    files_action: str
    wanted: str

    words_sought: list[str]
    author: str | None
    before: str | None
    after: str | None
    limit: int | None

    log_format: Literal["text", "json"] | None = None
    print_unit: bool = False
    agent_alone: bool = False
    check: bool = False
    checks: list[str]
    shell: str
    what: str
    message_key: str | None = None
    follow: bool

    rpc_way: str

    telemetry_action: str
    study: bool
    dry_run: bool

    peer: str
    match: str
    text: str | None

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
    read_only: bool
    role: str
    words: str | None
    mark: bool
    unmark: bool
    invite: bool
    route_action: str | None

    bot_action: str
    example: str | None = None
    letter: int | None = None
    console: bool = False
    reload: bool = False

    action: str
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

    public_uri: str | None
    is_open: bool
    new_invitation: bool
    mix_with: list[str]
    behind: str | None
    noise: float
    certificate: str | None
    key: str | None
    in_the_open: bool
    recipients: int | None
    messages: int | None
    megabytes: int | None
    keep_s: int | None

    seeds: int | None
    first: int | None
    seed: int | None
    trace: bool
    kind: Literal["episodes", "histories", "byzantine", "accountable"]
    loss: float | None
    twice: bool
    jobs: int


class Layout(argparse.RawDescriptionHelpFormatter):
    """How help is laid out: as wide as the terminal, with descriptions as they are written.

    argparse would ask `shutil` for that width, at every argument, though no help is wanted; and with it come all of
    Python's compressions, in every verb and every agent.
    """

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2, **more})


def _columns() -> int:
    """As `shutil.get_terminal_size` has it."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or WIDTH + 1  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # there is no such stream, or it is closed, or no terminal
        return WIDTH + 1


class Parser(argparse.ArgumentParser):
    """argparse, with a mistake answered in one sentence and a pointer to the help instead of a page of usage, and with
    ids that begin with a hyphen taken for what they are."""

    takes_id = False
    """Whether a connection's or an event's id is among the arguments."""
    stray_hint = ""
    """What somebody may have meant who has given more than the verb takes."""

    def format_help(self) -> str:
        if self.description:  # Only here: to wrap those of all verbs takes as long as everything else in the grammar.
            self.description = fill(" ".join(self.description.split()), WIDTH)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        text = _CHOICE.sub(_nearest, message.replace(_ID_MARK, ""))
        self.exit(ExitCode.USAGE, f"{self.prog}: {text}\nSee `{self.prog} --help`.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but what nobody knows is refused by the verb whose it is, and not by all of zerochat."""
        given = list(sys.argv[1:] if args is None else args)
        if self.takes_id:
            given = [_ID_MARK + one if _HYPHEN_ID.fullmatch(one) else one for one in given]
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self.error("unrecognized arguments: " + " ".join(unknown) + self.stray_hint)
        for name, value in vars(found).items():
            if isinstance(value, str):
                setattr(found, name, value.removeprefix(_ID_MARK))
        return found, unknown


def _nearest(said: re.Match[str]) -> str:
    """What argparse says of a word that it does not know, without all the words that it knows where they are many."""
    word, known = said[1], [one.strip().strip("'") for one in said[2].split(",")]
    if len(known) <= CHOICES_SHOWN_MAX:
        return said[0]
    from difflib import get_close_matches

    likely = get_close_matches(word, [one for one in known if not one.startswith("_")], n=1)
    return f"invalid choice: {word!r}" + (f"; did you mean {likely[0]}?" if likely else "")


# --- declaring verbs ------------------------------------------------------------------------------------------------


def common(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """The options that stand before or after the verb; left unset when absent, so that neither hides the other."""
    parser.add_argument(
        "--profile",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="which of your profiles (default: $ZEROCHAT_PROFILE, or else 'default')",
    )
    parser.add_argument(
        "--format",
        choices=formats,
        default=argparse.SUPPRESS,
        help="how standard output is written (default: text); jsonl or json: one JSON object a line, in ASCII",
    )


Verbs = argparse._SubParsersAction  # no public name, and the only type that add_parser is declared on


def add_verb(
    verbs: "Verbs[Parser]", name: str, summary: str, text: str, examples: str, formats: Sequence[str] = FORMATS
) -> Parser:
    parser = verbs.add_parser(
        name,
        help=summary,
        description=text,
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
        formatter_class=Layout,
        allow_abbrev=False,
    )
    common(parser, formats)
    return parser


def group_argument(parser: Parser) -> None:
    parser.add_argument("group", metavar="GROUP", help="a group's name, its id, or the first letters of its id")


def message_argument(parser: Parser) -> None:
    """A group, and one message of it."""
    parser.takes_id = True
    group_argument(parser)
    parser.add_argument(
        "event",
        metavar="MSG",
        help="the message's id, its first letters (four or more), `last` for your newest one, or `last:NAME`; `zerochat"
        " history GROUP --ids` shows the ids",
    )


def timeout_option(parser: Parser, default: float, text: str) -> None:
    parser.add_argument("--timeout", dest="timeout_s", type=seconds_of, default=default, metavar="S", help=text)


def network_options(parser: Parser) -> None:
    parser.add_argument(
        "--listen",
        type=_listened,
        metavar="HOST[:PORT[:PORT]]",
        help="the address to accept peers on, and the ports for pairs and for queues (default: the settings', or as"
        " last time, or all addresses of this machine: 0.0.0.0)",
    )
    parser.add_argument(
        "--advertise",
        type=_advertised,
        metavar="ADDRESS",
        help="the IP address, not a name, under which peers reach this machine (default: the settings', or as last"
        " time, or found out)",
    )


# --- values ---------------------------------------------------------------------------------------------------------


def count(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on, of 15 digits at the most")
    return int(text)


def positive(text: str) -> int:
    if text.lstrip("-").isdecimal() and text.startswith("-"):
        raise argparse.ArgumentTypeError("it must be at least 1")
    if not (number := count(text)):
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


def seconds_of(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return seconds


def chance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def history_rule(text: str) -> str:
    """`none`, `all`, `last:50`, `since:7d` as a group has it (`presentation/history_rules.py`)."""
    from zerochat.presentation.history_rules import BadHistory, read_rule

    try:
        return read_rule(text, int(time.time() * 1000))
    except BadHistory as error:
        raise argparse.ArgumentTypeError(error.sentence()) from None


def lifetime(text: str) -> int:
    """`90s`, `30m`, `24h`, `7d` in seconds."""
    number, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not number.isdecimal() or not 0 < int(number[:12]) * unit <= EXPIRES_S_MAX or len(number) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 90s, 30m, 24h or 7d, of at most 30 days")
    return int(number) * unit


def _listened(text: str) -> str:
    from zerochat.agent.network.addresses import BadAddress, parse_listen

    try:
        parse_listen(text)
    except BadAddress as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: {error.fields['why']}") from None
    return text


def _advertised(text: str) -> str:
    from zerochat.agent.settings.reader import advertise_address

    try:
        return advertise_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: {error}") from None
