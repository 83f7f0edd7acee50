"""The grammar of the command line: every verb with its options, its help and its examples.

Nothing here does anything, and nothing heavy is imported: `zerochat VERB --help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence

from zerochat import __version__
from zerochat.cli.exits import ExitCode
from zerochat.cli.grammar import (
    FORMATS,
    Options,
    Parser,
    Verbs,
    add_verb,
    common,
    count,
    group_argument,
    positive,
    timeout_option,
)
from zerochat.cli.parser_amend import add_amend
from zerochat.cli.parser_bot import add_bot
from zerochat.cli.parser_config import add_config
from zerochat.cli.parser_didcomm import add_didcomm
from zerochat.cli.parser_files import add_files
from zerochat.cli.parser_groups import INVITATION_FORMATS, add_groups
from zerochat.cli.parser_keeping import add_keeping
from zerochat.cli.parser_log import add_log, history_source
from zerochat.cli.parser_mediator import add_mediator
from zerochat.cli.parser_members import add_members
from zerochat.cli.parser_operating import add_operating, agent_options, status_options
from zerochat.cli.parser_peers import add_peers
from zerochat.cli.parser_rpc import add_rpc
from zerochat.cli.parser_sim import add_sim
from zerochat.cli.parser_telemetry import add_telemetry

__all__ = ["INVITATION_FORMATS", "PLACES", "Options", "grammar", "parse"]

PLACES = ("config", "data", "state", "cache", "log", "socket", "lock", "key")


def grammar() -> Parser:
    """The whole grammar, for what is made from it: completions and the man page."""
    return _parser()


def parse(argv: Sequence[str] | None = None) -> Options:
    """Read the command line (None: the process's own). Raises SystemExit for --help, --version and mistakes."""
    given = list(sys.argv[1:] if argv is None else argv)
    # Whoever opens the chat looks at an empty screen until it is there, and the other verbs take as long as a frame.
    return _parser(faces_alone=given[:1] in ([], ["chat"])).parse_args(given, namespace=Options())


def _parser(*, faces_alone: bool = False) -> Parser:
    """`faces_alone`: with nothing but the verbs that open a screen, for a line that is known to mean one of them."""
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
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zerochat {__version__}")
    common(parser, FORMATS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    own = (_faces, _profile, add_config, add_keeping, add_groups, add_members, _talk, add_amend, add_files, add_log)
    others = (*own, add_peers, add_mediator, add_didcomm, add_sim, add_bot, add_operating, add_rpc, add_telemetry)
    for add in own[:1] if faces_alone else others:
        add(verbs)
    return parser


# --- the verbs, by family -------------------------------------------------------------------------------------------


def _faces(verbs: "Verbs[Parser]") -> None:
    chat = add_verb(
        verbs,
        "chat",
        "open the chat in this terminal (the default)",
        "Open the chat in this terminal. It attaches to the profile's agent, or starts one that lives as long as the\n"
        "chat. Without a profile it helps to make one.",
        """
zerochat
zerochat --profile work chat hikers
zerochat chat --plain hikers
zerochat chat --listen 0.0.0.0:4242 --advertise 203.0.113.7
zerochat chat --set theme=light --set keymap=vim
""",
    )
    chat.add_argument("group", nargs="?", default="", metavar="GROUP", help="the group to begin with")
    chat.add_argument(
        "--plain",
        action="store_true",
        help="line by line, for screen readers, simple terminals and pipes (so it is where TERM is `dumb`)",
    )
    chat.add_argument(
        "--set",
        dest="said",
        type=_said,
        action="append",
        metavar="NAME=VALUE",
        help="a setting of the chat for this one run, such as theme=light (`zerochat config show` lists them)",
    )
    _network(chat)
    add_verb(
        verbs,
        "demo",
        "see it work: real agents on this machine, no network needed",
        "Real agents on the loopback interface, in a folder that is removed afterwards. In a terminal: the chat, in a\n"
        "group with a small cast. Otherwise: a scripted conversation as text, and a table of who received what; the\n"
        "exit code is not 0 when a single message is missing.",
        """
zerochat demo
zerochat demo </dev/null
""",
    )


def _profile(verbs: "Verbs[Parser]") -> None:
    init = add_verb(
        verbs,
        "init",
        "make a profile",
        "Make a profile: its keys, its encrypted journal, and the name that others see. Prints its folder.",
        """
zerochat init --name alice
zerochat --profile work init --name "Alice B." --passphrase
ZEROCHAT_PASSPHRASE_FILE=~/.secret zerochat init --name ci
""",
    )
    init.add_argument(
        "--name", required=True, metavar="NAME", help="what others will call you, unless a join says else"
    )
    lock = init.add_mutually_exclusive_group()
    lock.add_argument(
        "--passphrase",
        action="store_true",
        help="ask for a passphrase that locks the profile (it is never taken from the command line)",
    )
    lock.add_argument("--keyring", action="store_true", help="keep the profile's key in the system's keyring")
    agent = add_verb(
        verbs,
        "agent",
        "run the profile's agent in the foreground",
        "Run the profile's agent until Ctrl+C or SIGTERM: it keeps the connections, answers invitations, and receives\n"
        "for you. Prints one line when it is ready, and ends with 0 when it was told to end: then it takes nothing\n"
        "new, and sends what waits, for at most agent.drain seconds; told twice, it ends at once. SIGHUP has it read\n"
        "the settings again, and it says which hold from now on. systemd is told when it is ready. Unless\n"
        "told otherwise it listens on all addresses of this machine, at ports that stay the same from start to start.\n"
        "What --listen and --advertise say holds for later starts too, also of the chat and of each verb, until they\n"
        "say something else (a new --listen takes the place of both). But where the settings file says one of them,\n"
        "that holds, and these are for one run: `zerochat locate config` says where that is.",
        """
zerochat agent
zerochat agent --listen 0.0.0.0:4242:4243 --advertise 203.0.113.7
zerochat agent --format jsonl >ready.json &
zerochat agent --log-format json
zerochat agent --print-unit >~/.config/systemd/user/zerochat.service
""",
    )
    _network(agent)
    agent_options(agent)
    status = add_verb(
        verbs,
        "status",
        "say what the agent is doing",
        "The profile's agent, where peers reach it, and its groups. Ends with 6 when no agent is running.",
        """
zerochat status
zerochat status --format json | jq .groups[].name
zerochat status --check >/dev/null || echo "look after it"
""",
        ("text", "jsonl", "json"),
    )
    status_options(status)
    locate = add_verb(
        verbs,
        "locate",
        "print where things are kept",
        "Print where a profile keeps its things. Needs no agent, and makes nothing.",
        """
zerochat locate
tail -f "$(zerochat locate log)"
""",
    )
    locate.add_argument("place", nargs="?", choices=PLACES, metavar="|".join(PLACES), help="just this one")


def _talk(verbs: "Verbs[Parser]") -> None:
    send = add_verb(
        verbs,
        "send",
        "send a message to a group",
        "Send a message: the text of -m, or standard input. Prints the message's id, or with --wait who has it.\n"
        "A message is on disk before this returns; who is away gets it later, as soon as an agent of yours and of\n"
        "theirs are connected.",
        """
zerochat send hikers -m "At eight, by the bridge."
git log -1 --oneline | zerochat send ops
zerochat send hikers --file photo.jpg --file map.pdf -m "Our way"
zerochat send hikers --reply last:bob -m "I'll be there."
zerochat send ops -m "deployed" --wait all --timeout 60
zerochat send ops -m "deployed" --wait 2 --format jsonl | jq .members
zerochat send ops --key "build-$BUILD" --wait any <report.txt
""",
    )
    send.stray_hint = ". The text goes behind -m, in quotes."
    group_argument(send)
    send.add_argument(
        "-m", "--message", metavar="TEXT", help="the text (otherwise, or with -, standard input is read to its end)"
    )
    send.add_argument(
        "--reply",
        metavar="MSG",
        help="which message it answers: its id, the first letters of that (four or more), or last:NAME; one that begins"
        " with a hyphen as --reply=-ID",
    )
    send.add_argument(
        "--file",
        dest="files",
        action="append",
        metavar="PATH",
        help="a file that goes with it (up to 8 times); then -m may be left out, and --wait waits until they have it",
    )
    send.add_argument("--me", action="store_true", help="the text says what you do: --me -m waves")
    send.add_argument(
        "--wait",
        type=_how_many,
        metavar="any|all|N",
        help="wait until any, all or N other members have acknowledged it, and print who has",
    )
    send.add_argument(
        "--key",
        dest="message_key",
        type=_key,
        metavar="KEY",
        help="a name of yours for this message: whoever sends with the same one again within 30 days, after a failure"
        " say, gets the id of the first, and nothing is sent twice",
    )
    timeout_option(send, 30.0, "how long --wait waits (default: 30); then the exit code is 5")
    tail = add_verb(
        verbs,
        "tail",
        "print a group's events as they come",
        "Print the newest events of a group, then every further one as it is delivered, until Ctrl+C. As JSON it also\n"
        "says, with a `type` of their own, how a message stands that was edited, deleted or reacted to (amended),\n"
        "when something is known to be missing (gap), has come late (late), nothing is missing any more (complete),\n"
        "and when an author has said two things in one place (fork).",
        """
zerochat tail hikers
zerochat tail ops -n 0 --format jsonl | jq --unbuffered -r .body.text
zerochat tail ops -n 0 --format jsonl | jq 'select(.type == "gap")'
zerochat tail ops --since 1042 --format jsonl
""",
    )
    group_argument(tail)
    tail.add_argument(
        "-f", "--follow", action="store_true", help="go on with what comes, which it does anyway (history does not)"
    )
    start = tail.add_mutually_exclusive_group()
    start.add_argument("-n", dest="count", type=count, metavar="N", help="begin with the newest N events (default: 10)")
    start.add_argument("--since", type=count, metavar="SEQ", help="begin with what was delivered after this `seq`")
    history = add_verb(
        verbs,
        "history",
        "print a group's events",
        "Print the newest events of a group, oldest first, in the order that every member sees. With --file it reads\n"
        "what `zerochat export` has written, without any profile.",
        """
zerochat history hikers
zerochat history hikers -n 500
zerochat history ops --all --format jsonl >ops.jsonl
zerochat history --file hikers.jsonl
""",
    )
    history_source(history)
    much = history.add_mutually_exclusive_group()
    much.add_argument("-n", dest="count", type=count, metavar="N", help="the newest N events (default: 50)")
    much.add_argument("--all", action="store_true", help="all of them")
    history.add_argument("--ids", action="store_true", help="begin each line with the first letters of the event's id")
    _search(verbs)


def _search(verbs: "Verbs[Parser]") -> None:
    search = add_verb(
        verbs,
        "search",
        "find what was said",
        "Find messages by their words, the newest first, in all groups, or in the one that the first word names.\n"
        'A word also finds longer ones that begin with it, whatever its case and accents; "words in quotes" are\n'
        "found as they stand, one behind the other. All of it has to be in a message. from:NAME, in:GROUP,\n"
        "after:DATE and before:DATE may stand among the words. A DATE is 2026-03-01, 2026-03-01T18:00, 18:00,\n"
        "today, yesterday, or 12h, 7d, 2w ago. What was edited is found by what it says now.",
        """
zerochat search bridge
zerochat search hikers bridge eight
zerochat search '"by the bridge"' from:alice after:2026-03-01
zerochat search --from me --after 7d --limit 200
zerochat search deploy --format jsonl | jq -r '[.group, .id, .text] | @tsv'
""",
    )
    search.add_argument("words_sought", nargs="*", metavar="WORDS", help="[GROUP] and what to find in it")
    search.add_argument("--from", dest="author", metavar="NAME", help="only what this member has said; `me`: you")
    search.add_argument("--after", metavar="DATE", help="only from this day or time on")
    search.add_argument("--before", metavar="DATE", help="only earlier than this day or time")
    search.add_argument("--limit", type=positive, metavar="N", help="at most the newest N (default: 20)")
    search.add_argument("--ids", action="store_true", help="begin each line with the first letters of the message's id")


def _network(parser: Parser) -> None:
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


def _listened(text: str) -> str:
    from zerochat.agent.address import BadAddress, parse_listen

    try:
        parse_listen(text)
    except BadAddress as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: {error.fields['why']}") from None
    return text


def _advertised(text: str) -> str:
    from zerochat.agent.settings import advertise_address

    try:
        return advertise_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: {error}") from None


def _said(text: str) -> tuple[str, object]:
    from zerochat.agent.config import value_of
    from zerochat.agent.options import check_value, full_name
    from zerochat.agent.settings import FACE

    name, _, value = text.partition("=")
    name = full_name(name.strip())
    try:
        check_value(name, value_of(value))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not name.startswith(FACE):
        raise argparse.ArgumentTypeError(f"{name} is for the agent, which may be running already: it goes in the file")
    return name, value_of(value)


def _key(text: str) -> str:
    if not (0 < len(text) <= 128 and text.isascii() and text.isprintable()):
        raise argparse.ArgumentTypeError("it must be 1 to 128 printable ASCII characters")
    return text


def _how_many(text: str) -> int:
    """`any` as 1, `all` as -1 (as `schema.WaitParams` has it), or the number."""
    if text in ("any", "all"):
        return {"any": 1, "all": -1}[text]
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither any nor all nor a number")
    return positive(text)
