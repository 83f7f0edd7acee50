"""The verbs about evidence: proof, verify-proof, judge. The last two need nothing but the file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, ClassVar

from zerochat.agent.schema import ProofLines
from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError, RemoteError
from zerochat.evidence.case import CASE_BYTES_MAX, parse_case
from zerochat.evidence.judge import OPEN, UPHELD
from zerochat.evidence.judge import judge as judged
from zerochat.evidence.proof import LINE_BYTES_MAX, Proven, check_proof
from zerochat.group.event import POST, Event
from zerochat.group.streams.reading import events_in

LIMITS = (
    "Times are those of the signers' own clocks. Who is not named here may have it all the same. Whoever has asked to "
    "hear the author anew since may lack something from before that."
)


class NotAProof(LocalError):
    """{path} proves nothing: {why}."""

    exit_code: ClassVar[int] = ExitCode.INTEGRITY


class NotACase(LocalError):
    """{path} cannot be read as a case: {why}."""


class CannotRead(LocalError):
    """{path} cannot be read: {why}."""


# --- making ---------------------------------------------------------------------------------------------------------


def counted(messages: int, signers: int) -> str:
    """What is in a proof, as a sentence."""
    what, they = ("1 signed message", "it") if messages == 1 else (f"{messages:,} signed messages", "them")
    who = "1 member who has signed" if signers == 1 else f"{signers:,} members who have signed"
    return f"{what}, and {who} to have {they}."


def proof(options: Options, out: Output) -> ExitCode:
    with attached(options) as agent:
        page = agent.client.proof(options.group, options.event, options.member or "")
        with written(options.path or "-") as file:
            messages, signers, left_out = _write(page, file)
            while page.last is not None:
                page = agent.client.proof(options.group, "", options.member or "", page.last)
                more = _write(page, file)
                messages, signers, left_out = messages + more[0], signers + more[1], more[2]
    told: dict[str, object] = {"path": options.path, "messages": messages, "signers": signers, "left_out": left_out}
    if options.path != "-":
        out.data(told, [str(options.path)])
    narrate(counted(messages, signers))
    if left_out:
        narrate(f"{left_out:,} more have acknowledged it, and cannot be shown to have it from this alone.")
    narrate("Whoever has the file can show it to anybody.")
    return ExitCode.OK


def _write(page: ProofLines, file: IO[bytes]) -> tuple[int, int, int]:
    for line in page.lines:
        file.write(line.encode())
    acks = sum(line.startswith('{"ack"') for line in page.lines)
    return sum(line.startswith('{"message"') for line in page.lines), acks, page.left_out


@contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """A new file for its owner alone, whole or not at all."""
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    from zerochat.agent import archive
    from zerochat.agent.database import fault_of_disk

    file = archive.create(Path(path))
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        Path(path).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise fault_of_disk(error, Path(path)) from None
        raise


# --- checking -------------------------------------------------------------------------------------------------------


def verify_proof(options: Options, out: Output) -> ExitCode:
    path = options.path or "-"
    try:
        with _opened(path) as file:
            proven = check_proof(_lines(file))
        events = _events(proven)
    except RemoteError as error:
        raise NotAProof(path=path, why=error.fields.get("why", "a signature or a key in it is not right")) from None
    about = proven.head
    facts = [("author", about.author), ("group", about.group)]
    if about.event:
        event = next((one for one in events if one.id == about.event), None)
        if event is None:
            raise NotAProof(path=path, why="the message that it is about is not in it")
        facts += [("said", _text(event)), ("when", f"{_when(event.time)}, by the author's clock")]
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


# --- judging --------------------------------------------------------------------------------------------------------


def judge(options: Options, out: Output) -> ExitCode:
    path = options.path or "-"
    with _opened(path) as file:
        written = file.read(CASE_BYTES_MAX + 2)
    try:
        case = parse_case(written.rstrip(b"\n"))
    except RemoteError as error:
        raise NotACase(path=path, why=error.fields.get("why", "it has another form")) from None
    found = judged(case)
    verdict = ", ".join([*([found.delivery] if found.delivery else []), *found.guilty]) or "nothing is shown"
    rows = [(one.rule, "holds" if one.holds else "does not hold", one.sentence) for one in found.findings]
    findings = [{"rule": one.rule, "holds": one.holds, "sentence": one.sentence} for one in found.findings]
    told: dict[str, object] = {"delivery": found.delivery, "guilty": found.guilty, "findings": findings}
    out.data(told, [*table(rows), f"verdict: {verdict}"])
    if found.delivery == UPHELD or found.guilty:
        return ExitCode.INTEGRITY
    return ExitCode.TIMEOUT if found.delivery == OPEN else ExitCode.OK
