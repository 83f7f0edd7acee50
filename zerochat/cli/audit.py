"""The verbs about a group's whole log: audit, export; and reading one from a file."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec.structs import replace

from zerochat.agent.audit import Audit, Break, Verdict
from zerochat.agent.schema import Event, Ledger, LogRow
from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, find_group, name_of, narrate, table
from zerochat.cli.parser import Options
from zerochat.terminal import printable_line

if TYPE_CHECKING:
    from zerochat.agent.archive import Header
    from zerochat.agent.client import Client

PROGRESS_EVENTS, PROGRESS_S = 5_000, 0.25
"""From how many events on it is said how far it is, and how often."""
AGAIN_MAX = 2
"""A running agent may settle, meanwhile, whose word something is; then the log is read again."""
READABLE = "It is not encrypted: whoever can read the file can read everything that was said there."


def audit(options: Options, out: Output) -> ExitCode:
    if options.path is not None:
        with _archive(options.path) as (header, rows):
            verdict = _check(header.ledger, rows)
            where = f"exported by {name_of(header.ledger.nick)} on {header.exported_at[:10]}"
            return _say(verdict, header.ledger, out, where)
    with attached(options) as agent:
        client = agent.client
        ledger = client.ledger(find_group(client.groups(), options.group).id)
        verdict = _check(ledger, client.log(ledger))
        for _ in range(AGAIN_MAX):
            if verdict.sound or _same(ledger, now := client.ledger(ledger.group)):
                break
            ledger, verdict = now, _check(now, client.log(now))
    return _say(verdict, ledger, out, "as the agent has it")


def _same(before: Ledger, after: Ledger) -> bool:
    """Whether nothing has come or was settled meanwhile."""
    return before == replace(after, latest=before.latest)


def _check(ledger: Ledger, rows: Iterable[LogRow]) -> Verdict:
    found = Audit(ledger)
    for row in _watched(rows, ledger.events):
        found.take(row)
    return found.verdict()


def _watched(rows: Iterable[LogRow], total: int) -> Iterator[LogRow]:
    """The rows, while a person at a terminal sees how far it is."""
    shown = total >= PROGRESS_EVENTS and sys.stderr is not None and sys.stderr.isatty()
    said = time.monotonic()
    for number, row in enumerate(rows):
        if shown and time.monotonic() - said >= PROGRESS_S:
            said = time.monotonic()
            print(f"\r{number:,} of {total:,} events", end="", file=sys.stderr, flush=True)
        yield row
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _say(verdict: Verdict, ledger: Ledger, out: Output, where: str) -> ExitCode:
    nicks = {height.author: height.nick for height in ledger.heights}
    facts = [
        ("group", f"{name_of(verdict.name)} ({printable_line(verdict.group)}), {where}"),
        ("events", f"{verdict.events:,}: {verdict.posts:,} messages, {verdict.membership:,} about the members"),
        ("authors", f"{verdict.authors:,}; every chain was followed from hash to hash"),
        ("signatures", f"{verdict.signed:,} checked"),
        ("members", f"view {verdict.view}" if verdict.view else "they come to nothing"),
    ]
    if verdict.vouched:
        facts.append(("vouched", f"{verdict.vouched:,}, which their authors have not confirmed yet"))
    if verdict.late:
        facts.append(("late", f"{verdict.late:,}"))
    if verdict.refuted:
        facts.append(("refuted", f"{verdict.refuted:,}, kept apart: their authors have never said them"))
    result = "sound" if verdict.sound else f"NOT SOUND: {len(verdict.breaks) + verdict.more:,} breaks"
    facts.append(("result", result))
    out.data(verdict, [*table(facts), *(_sentence(one, nicks) for one in verdict.breaks)])
    if verdict.more:
        narrate(f"And {verdict.more:,} more.")
    return ExitCode.OK if verdict.sound else ExitCode.INTEGRITY


def _sentence(one: Break, nicks: dict[str, str]) -> str:
    who = name_of(nicks.get(one.author, "")) if one.author else ""
    place = f" {one.position}" if one.position else ""
    id_ = f" ({printable_line(one.id[:8])})" if one.id else ""
    return f"{who}{place}{id_}: {one.what}." if who else f"{one.what}."


# --- files ----------------------------------------------------------------------------------------------------------


def export(options: Options, out: Output) -> ExitCode:
    from zerochat.agent import archive

    with attached(options) as agent:
        client = agent.client
        ledger = client.ledger(find_group(client.groups(), options.group).id)
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        header = archive.Header(exported_at=now, ledger=ledger)
        if options.path == "-":
            archive.write(header, client.log(ledger), sys.stdout.buffer)
            sys.stdout.flush()
            narrate(READABLE)
            return ExitCode.OK
        path = Path(options.path or f"{_file_name(ledger.name)}.jsonl")
        count = _to_file(path, header, client)
    out.data({"path": str(path), "group": ledger.group, "events": count}, [str(path)])
    narrate(f"{count:,} events of {name_of(ledger.name)}. {READABLE}")
    return ExitCode.OK


def _to_file(path: Path, header: "Header", client: "Client") -> int:
    """Write a new file, whole or not at all."""
    from zerochat.agent import archive

    with archive.create(path) as file:
        try:
            return archive.write(header, _watched(client.log(header.ledger), header.ledger.events), file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _file_name(group: str) -> str:
    """A group's name as that of a file in this folder."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in printable_line(group, 48))
    return kept.strip("-") or "history"


@contextmanager
def _archive(path: str) -> Iterator[tuple["Header", Iterator[LogRow]]]:
    from zerochat.agent import archive

    with _opened(path) as file:
        yield archive.read(Path(path), file)


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


def events_of(path: str, count: int | None) -> list[Event]:
    """The newest `count` events (None: all) in a file, oldest first."""
    from zerochat.agent import archive
    from zerochat.group.event import CONTROL

    control: list[LogRow] = []
    last: deque[LogRow] = deque(maxlen=count)
    with _archive(path) as (header, rows):
        for row in rows:
            last.append(row)
            if row.type in CONTROL:
                control.append(row)
    return list(archive.events(Path(path), header.ledger, last, control))
