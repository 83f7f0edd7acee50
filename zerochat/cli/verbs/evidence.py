"""Verbs proof, evidence, tlog and verify-proof: signed proofs of messages, and the transparency log."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from zerochat.cli.agent_access import attached
from zerochat.cli.event_text import EventText
from zerochat.cli.evidence_files import CASE_BEGINS, create_file, display_name, invalid_reason, open_file
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import name_of, near_time, table
from zerochat.cli.grammar import MESSAGE_HELP, Options, Parser, Verbs, add_verb, group_argument
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError, RemoteError
from zerochat.presentation import proofs, tlog
from zerochat.rpc import ProofLines, TlogInfo
from zerochat.terminal_text import printable

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.evidence.proof import ProofResult
    from zerochat.group.event_log.event import Event


def add(verbs: "Verbs[Parser]") -> None:
    _add_proof(verbs)
    parser = add_verb(
        verbs,
        "evidence",
        "show what can be proven in a group, or about a message",
        "Show whose signatures are available, who has signed for the receipt of your messages, and what that proves;\n"
        "with MSG, for one message.",
        """
zerochat evidence hikers
zerochat evidence hikers last
zerochat evidence hikers last:bob --format json | jq .message.members
""",
        run=evidence,
    )
    parser.takes_id = True
    group_argument(parser)
    parser.add_argument("event", nargs="?", default="", metavar="MSG", help="a message, as for `zerochat proof`")
    parser = add_verb(
        verbs,
        "tlog",
        "show the transparency log of an accountable group",
        "Show the operator, the witnesses and the size of the group's transparency log, and your messages that are\n"
        "not in it yet. With --operator and --witness, appoint new ones: the owner and the admins can appoint any\n"
        "members; in groups without admins the witnesses are the longest-standing members. Replacement is automatic\n"
        "when one of them is gone. Only groups created with --kind accountable have a transparency log. Exits with 7\n"
        "if the operator has presented two different logs.",
        """
zerochat tlog council
zerochat tlog council --format json | jq .waiting
zerochat tlog council --operator bob --witness alice --witness bob --witness carol
""",
        run=show_tlog,
    )
    group_argument(parser)
    parser.add_argument("--operator", metavar="NAME", default=None, help="the new operator, who orders the entries")
    parser.add_argument(
        "--witness", dest="witnesses", action="append", metavar="NAME", default=None, help="a new witness (repeatable)"
    )
    parser = add_verb(
        verbs,
        "verify-proof",
        "verify a proof file",
        "Verify a file written by `zerochat proof`, and print what it proves and what it does not. Needs only the\n"
        "file: no profile, no agent, no network. Exits with 7 if the proof is invalid.",
        """
zerochat verify-proof message.zproof
zerochat verify-proof - <message.zproof
zerochat verify-proof message.zproof --format jsonl | jq .signers
""",
        run=verify_proof,
    )
    parser.add_argument("path", metavar="FILE", help="a file written by `zerochat proof`, or -")


def _add_proof(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "proof",
        "write a proof of a message to a file",
        "Write a file that proves a message to a third party: its author, its text and, if it is yours, which members\n"
        "have signed for its receipt. With --history it proves that no message of yours (or of --by) is left out,\n"
        "without revealing their texts. Only groups of the kinds signed and accountable have proofs. In private\n"
        "groups each message carries a signature, which `zerochat export` writes; in all other groups messages can\n"
        "be denied. Anyone who has the file can use it.",
        """
zerochat proof hikers last
zerochat proof hikers last --output message.zproof
zerochat proof hikers Yk3v --output - | zerochat verify-proof -
zerochat proof hikers --history --output all.zproof
zerochat proof hikers --history --by bob --output bob.zproof
""",
        run=proof,
    )
    parser.takes_id = True
    group_argument(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("event", nargs="?", default="", metavar="MSG", help=MESSAGE_HELP)
    what.add_argument("--history", action="store_true", help="prove that no message is left out")
    parser.add_argument(
        "--by", dest="member", default="", metavar="NAME", help="with --history: messages of this member"
    )
    parser.add_argument(
        "-o",
        "--output",
        dest="path",
        metavar="FILE",
        help="the file to create, or -; existing files are not overwritten (default: a new name in this folder)",
    )


LIMITS = (
    "The proof names keys; verify elsewhere whose they are. Times are from the signers' own clocks. Members who are not"
    " listed may still have the message. A signer who re-subscribed to the author may lack earlier messages."
)


class NotAProof(LocalError):
    """{path} is not a valid proof: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class IsACase(LocalError):
    """{path} is a case file, not a proof: use `zerochat judge {file}`."""


class OperatorWithoutWitnesses(LocalError):
    """--operator and --witness belong together: give one operator and at least three witnesses."""

    exit_code: ClassVar[int] = ExitCode.USAGE


# --- making a proof ---------------------------------------------------------------------------------------------------


def proof(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.proofs.proof_file import Written, counted, place_of
    from zerochat.agent.proofs.proof_file import add as add_lines

    wanted = options.path
    what = f"{options.group}-{options.event or options.member or 'all'}"
    path = "-" if wanted == "-" else str(place_of(Path(wanted or "."), what))
    made = Written(Path(path))
    with attached(options) as agent:
        pages = _pages(agent.client, options)
        first = next(pages)  # a refused request creates no file
        with create_file(path) as file:
            add_lines(made, file, chain([first], pages))
    if wanted != "-":
        result: dict[str, object] = {
            "path": path,
            "messages": made.messages,
            "signers": made.signers,
            "left_out": made.left_out,
        }
        out.data(result, [path])
    narrate(counted(made.messages, made.signers))
    if made.left_out:
        narrate(f"{made.left_out:,} more members have acknowledged it, but this proof cannot show it.")
    narrate("Anyone who has the file can use it as a proof.")
    return ExitCode.OK


def _pages(client: "Client", options: Options) -> Iterator[ProofLines]:
    page = client.get_proof(options.group, options.event, options.member or "")
    yield page
    while page.last is not None:
        page = client.get_proof(options.group, "", options.member or "", page.last)
        yield page


def evidence(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.get_evidence(options.group, options.event)
    if found.message is not None:
        lines = EventText(annotations=True).lines(found.message.event)[:3]
        rows = [(name_of(one.nick), proofs.grade_of(one, near_time)) for one in found.message.members]
        sentences = proofs.of_message(found.message, name_of, near_time)
        out.data(found, [*lines, *(["", *table(rows)] if rows else []), "", *sentences])
        return ExitCode.OK
    me = found.streams[0].did if found.streams else ""
    streams = [
        (name_of(one.nick) + " (you)" * (one.did == me), state) for one, state in proofs.of_streams(found, near_time)
    ]
    first, *rest = proofs.of_group(found)
    parts = [[first], table(streams) if streams else [], _tlog_lines(found.log) if found.log else [], rest]
    out.data(found, [line for part in parts if part for line in ("", *part)][1:])
    return ExitCode.OK


def show_tlog(options: Options, out: Output) -> ExitCode:
    witnesses, operator = options.witnesses or [], options.operator
    if (operator is None) != (not witnesses):
        raise OperatorWithoutWitnesses
    with attached(options) as agent:
        if operator is None:
            found = agent.client.get_tlog(options.group)
        else:
            found = agent.client.set_tlog_terms(options.group, operator, witnesses)
    out.data(found, _tlog_lines(found))
    return ExitCode.INTEGRITY if found.state == "split" else ExitCode.OK


def _tlog_lines(found: TlogInfo) -> list[str]:
    facts = table(tlog.facts(found, name_of, near_time))
    return [*facts, *([""] if facts else []), *tlog.sentences(found, name_of)]


# --- verifying --------------------------------------------------------------------------------------------------------


def verify_proof(options: Options, out: Output) -> ExitCode:
    from zerochat.evidence.proof import check_proof

    path = options.path or "-"
    try:
        with open_file(path) as file:
            lines = _lines(file)
            first = next(lines, b"")
            if first.startswith(CASE_BEGINS):
                raise IsACase(path=display_name(path), file=path)
            proven = check_proof(chain([first], lines))
        events = _events(proven)
    except RemoteError as error:
        raise NotAProof(path=display_name(path), why=invalid_reason(error, "proof")) from None
    about = proven.head
    facts = [("author", about.author), ("group", about.group)]
    facts += [("succeeded by", f"{one.successor}, {_when(one.time)}") for one in proven.successions]
    if about.event:
        event = next((one for one in events if one.id == about.event), None)
        if event is None:
            raise NotAProof(path=display_name(path), why="it does not contain the message")
        text, *more = printable(_text(event)).split("\n")
        facts += [("text", text), *(("", line) for line in more)]  # indented, so that a text cannot imitate a fact
        facts += [("time", f"{_when(event.time)}, by the author's clock")]
    else:
        facts += [("messages", f"{proven.messages:,}, complete from the first to the last")]
        facts += [("first", _when(proven.first)), ("last", _when(proven.last))]
    signers = sorted(proven.signers.values(), key=lambda one: one.at)
    facts += [("received by", f"{one.member}, {_when(one.at)}") for one in signers]
    if not signers:
        facts.append(("received by", "no signatures"))
    result: dict[str, object] = {
        "author": about.author,
        "successors": [one.successor for one in proven.successions],
        "group": about.group,
        "event": about.event,
        "messages": proven.messages,
        "first": proven.first,
        "last": proven.last,
        "events": [{"id": one.id, "type": one.type, "time": one.time, "body": one.body} for one in events],
        "signers": [{"member": one.member, "at": one.at, "since": one.subscribed_at} for one in signers],
    }
    out.data(result, table(facts))
    narrate(LIMITS)
    return ExitCode.OK


def _events(proven: "ProofResult") -> "list[Event]":
    """The events of the messages whose keys are disclosed."""
    from zerochat.crypto.encoding import did_key
    from zerochat.group.signed_streams.messages import events_in

    group = proven.head.group
    return [
        event for message, key in proven.opened for event in events_in(key, message, group, did_key(message.publisher))
    ]


def _text(event: "Event") -> str:
    from zerochat.group.event_log.event import POST

    text = event.body.get("text") if event.type == POST else None
    return text if isinstance(text, str) else f"({event.type})"


def _when(ms: int) -> str:
    """A time given in UTC ms as text in UTC, independent of the local time zone."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    from zerochat.evidence.proof import LINE_BYTES_MAX

    while line := file.readline(LINE_BYTES_MAX + 2):
        yield line.rstrip(b"\n")
