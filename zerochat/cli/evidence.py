"""The verbs about evidence: proof, evidence, verify-proof, judge. The last two need nothing but the file."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from zerochat.agent.proofs.proof_file import Written, add, counted, new_file, place_of
from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import EventText, Output, name_of, narrate, near_time, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError, RemoteError
from zerochat.evidence.case import CASE_BYTES_MAX, parse_case
from zerochat.evidence.judge import OPEN, UPHELD
from zerochat.evidence.judge import judge as judged
from zerochat.evidence.proof import LINE_BYTES_MAX, Proven, check_proof
from zerochat.group.event_log.event import POST, Event
from zerochat.group.signed_streams.reader import events_in
from zerochat.presentation import proofs, tlog
from zerochat.rpc import LogInfo, ProofLines
from zerochat.terminal_text import printable

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client

PROOF_BEGINS, CASE_BEGINS = (b'{"author":', b'{"zproof":'), b'{"counts":'
"""What `zerochat proof` writes and what `zerochat case` writes, for whoever takes the one for the other."""
LIMITS = (
    "It names keys: whose they are, you have to know from elsewhere. "
    "Times are those of the signers' own clocks. Who is not named here may have it all the same. Whoever has asked to "
    "hear the author anew since may lack something from before that."
)


class NotAProof(LocalError):
    """{path} proves nothing: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class NotACase(LocalError):
    """{path} cannot be read as a case: {why}."""


class ACase(LocalError):
    """{path} is a case, and no proof: `zerochat judge {file}` says what comes of it."""


class AProof(LocalError):
    """{path} is a proof, and no case: `zerochat verify-proof {file}` says what it shows."""


class HalfTheTerms(LocalError):
    """Who keeps the log is said with its operator and its witnesses: `--operator NAME --witness NAME` and two more."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class CannotRead(LocalError):
    """{path} cannot be read: {why}."""


# --- making ---------------------------------------------------------------------------------------------------------


def proof(options: Options, out: Output) -> ExitCode:
    wanted = options.path
    what = f"{options.group}-{options.event or options.member or 'all'}"
    path = "-" if wanted == "-" else str(place_of(Path(wanted or "."), what))
    made = Written(Path(path))
    with attached(options) as agent:
        pages = _pages(agent.client, options)
        first = next(pages)  # what is refused leaves no file
        with written(path) as file:
            add(made, file, chain([first], pages))
    if wanted != "-":
        told: dict[str, object] = {
            "path": path,
            "messages": made.messages,
            "signers": made.signers,
            "left_out": made.left_out,
        }
        out.data(told, [path])
    narrate(counted(made.messages, made.signers))
    if made.left_out:
        narrate(f"{made.left_out:,} more have acknowledged it, and cannot be shown to have it from this alone.")
    narrate("Whoever has the file can show it to anybody.")
    return ExitCode.OK


@contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """A new file for its owner alone, whole or not at all; `-`: standard output."""
    if path != "-":
        with new_file(Path(path)) as file:
            yield file
        return
    yield sys.stdout.buffer
    sys.stdout.flush()


def _pages(client: "Client", options: Options) -> Iterator[ProofLines]:
    page = client.proof(options.group, options.event, options.member or "")
    yield page
    while page.last is not None:
        page = client.proof(options.group, "", options.member or "", page.last)
        yield page


def evidence(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        found = agent.client.evidence(options.group, options.event)
    if found.message is not None:
        lines = EventText(remarks=True).lines(found.message.event)[:3]
        rows = [(name_of(one.nick), proofs.grade_of(one, near_time)) for one in found.message.members]
        sentences = proofs.of_message(found.message, name_of, near_time)
        out.data(found, [*lines, *(["", *table(rows)] if rows else []), "", *sentences])
        return ExitCode.OK
    me = found.streams[0].did if found.streams else ""
    streams = [
        (name_of(one.nick) + " (you)" * (one.did == me), said) for one, said in proofs.of_streams(found, near_time)
    ]
    first, *rest = proofs.of_group(found)
    parts = [[first], table(streams) if streams else [], _log_lines(found.log) if found.log else [], rest]
    out.data(found, [line for part in parts if part for line in ("", *part)][1:])
    return ExitCode.OK


def log(options: Options, out: Output) -> ExitCode:
    witnesses, operator = options.witnesses or [], options.operator
    if (operator is None) != (not witnesses):
        raise HalfTheTerms
    with attached(options) as agent:
        if operator is None:
            found = agent.client.group_log(options.group)
        else:
            found = agent.client.terms(options.group, operator, witnesses)
    out.data(found, _log_lines(found))
    return ExitCode.INTEGRITY if found.state == "split" else ExitCode.OK


def _log_lines(found: LogInfo) -> list[str]:
    facts = table(tlog.facts(found, name_of, near_time))
    return [*facts, *([""] if facts else []), *tlog.sentences(found, name_of)]


# --- checking -------------------------------------------------------------------------------------------------------


def verify_proof(options: Options, out: Output) -> ExitCode:
    path = options.path or "-"
    try:
        with _opened(path) as file:
            lines = _lines(file)
            first = next(lines, b"")
            if first.startswith(CASE_BEGINS):
                raise ACase(path=_called(path), file=path)
            proven = check_proof(chain([first], lines))
        events = _events(proven)
    except RemoteError as error:
        raise NotAProof(path=_called(path), why=_why(error)) from None
    about = proven.head
    facts = [("author", about.author), ("group", about.group)]
    if about.event:
        event = next((one for one in events if one.id == about.event), None)
        if event is None:
            raise NotAProof(path=_called(path), why="the message that it is about is not in it")
        said, *more = printable(_text(event)).split("\n")
        facts += [("said", said), *(("", line) for line in more)]  # else its author could write what looks like a fact
        facts += [("when", f"{_when(event.time)}, by the author's clock")]
    else:
        facts += [("messages", f"{proven.messages:,}, none left out between the first and the last")]
        facts += [("first", _when(proven.first)), ("last", _when(proven.last))]
    signers = sorted(proven.signers.values(), key=lambda one: one.at)
    facts += [("signed for by", f"{one.member}, {_when(one.at)}") for one in signers]
    if not signers:
        facts.append(("signed for by", "nobody that it names"))
    told: dict[str, object] = {
        "author": about.author,
        "group": about.group,
        "event": about.event,
        "messages": proven.messages,
        "first": proven.first,
        "last": proven.last,
        "events": [{"id": one.id, "type": one.type, "time": one.time, "body": one.body} for one in events],
        "signers": [{"member": one.member, "at": one.at, "since": one.since} for one in signers],
    }
    out.data(told, table(facts))
    narrate(LIMITS)
    return ExitCode.OK


def _why(error: RemoteError) -> str:
    """What is wrong with a proof, for somebody who was given it."""
    why = str(error.fields.get("why", "a signature or a key in it is not right"))
    if why == "not strict JSON":
        return "it was not written by `zerochat proof`, or it is not whole"
    return why


def _events(proven: Proven) -> list[Event]:
    """What stands in the messages whose key is there."""
    about = proven.head
    return [event for message, key in proven.opened for event in events_in(key, message, about.group, about.author)]


def _text(event: Event) -> str:
    text = event.body.get("text") if event.type == POST else None
    return text if isinstance(text, str) else f"({event.type})"


def _when(ms: int) -> str:
    """A time in UTC milliseconds, to the second: a file that goes elsewhere means the same there."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX + 2):
        yield line.rstrip(b"\n")


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise CannotRead(path=path, why=(error.strerror or "it is not there").lower()) from None


def _called(path: str) -> str:
    return "What came on standard input" if path == "-" else path


# --- judging --------------------------------------------------------------------------------------------------------


def judge(options: Options, out: Output) -> ExitCode:
    path = options.path or "-"
    with _opened(path) as file:
        written = file.read(CASE_BYTES_MAX + 2)
    try:
        case = parse_case(written.rstrip(b"\n"))
    except RemoteError as error:
        if written.startswith(PROOF_BEGINS):
            raise AProof(path=_called(path), file=path) from None
        raise NotACase(path=_called(path), why=error.fields.get("why", "it has another form")) from None
    found = judged(case)
    verdict = ", ".join([*([found.delivery] if found.delivery else []), *found.guilty]) or "nothing is shown"
    rows = [(one.rule, "holds" if one.holds else "does not hold", one.sentence) for one in found.findings]
    findings = [{"rule": one.rule, "holds": one.holds, "sentence": one.sentence} for one in found.findings]
    told: dict[str, object] = {"delivery": found.delivery, "guilty": found.guilty, "findings": findings}
    out.data(told, [*table(rows), f"verdict: {verdict}"])
    if found.delivery == UPHELD or found.guilty:
        return ExitCode.INTEGRITY
    return ExitCode.TIMEOUT if found.delivery == OPEN else ExitCode.OK
