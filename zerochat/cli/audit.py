"""The verbs about a group's whole log: audit, export, import; and reading one from a file."""

import io
import os
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from zerochat.agent.archive.audit import Audit, Break, Verdict
from zerochat.cli.agents import attached
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, find_group, name_of, narrate, table
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.rpc import Event, Ledger, LogRow
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.agent.archive.log_file import ArchiveBroken, Header

_T = TypeVar("_T")
PROGRESS_EVENTS, PROGRESS_S = 5_000, 0.25
"""From how many events on it is said how far it is, and how often."""
AGAIN_MAX = 2
"""A running agent may settle, meanwhile, whose word something is; then the log is read again."""
PAGE_EVENTS, PAGE_BYTES = 256, 384 * 1024
"""Of a file, what is handed to the agent at once: in base64 that stays within one line of the control socket."""
WHYS = {
    "apart": "nothing that is here of its author's chain joins on to it",
    "causes": "a membership event that it rests on is not here",
    "stranger": "its author is no member, or was none any more",
    "own": "it says that you have said it, and that you know best",
    "contradiction": "something else is here in its place, or is named there",
    "invalid": "it is not as it must be",
    "doubted": "the file contradicts itself in what its author has said",
}
"""Why something out of a file is not taken."""
DOUBTS = ("contradiction", "invalid", "doubted")
REST = "the rest of the journal: the agent reads it once a day, and `zerochat doctor` where none runs"
READABLE = "It is not encrypted: whoever can read the file can read everything that was said there."


class NotOurGroup(LocalError):
    """{path} has the log of a group that this profile is not in: {group}. `zerochat history --file` shows it."""


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
        status = client.status()
    code = _say(verdict, ledger, out, "as the agent has it", REST)
    if not status.damaged:
        return code
    narrate(status.warning)
    return ExitCode.INTEGRITY


def _same(before: Ledger, after: Ledger) -> bool:
    """Whether nothing has come or was settled meanwhile."""
    return before == replace(after, latest=before.latest)


def _check(ledger: Ledger, rows: Iterable[LogRow]) -> Verdict:
    found = Audit(ledger)
    for row in _watched(rows, ledger.events):
        found.take(row)
    return found.verdict()


def _watched(rows: Iterable[_T], total: int) -> Iterator[_T]:
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


def _say(verdict: Verdict, ledger: Ledger, out: Output, where: str, unread: str = "") -> ExitCode:
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
    if unread:
        facts.append(("not read", unread))
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
    from zerochat.agent.archive import log_file as archive

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
    """Write a new file, whole or not at all; it is on disk when this returns."""
    from zerochat.agent.archive import log_file as archive
    from zerochat.agent.storage.database import fault_of_disk

    file = archive.create(path)
    try:
        with file:  # what it has still in its buffer may be what the disk has no room for
            count = archive.write(header, _watched(client.log(header.ledger), header.ledger.events), file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise fault_of_disk(error, path) from error
        raise
    return count


def import_(options: Options, out: Output) -> ExitCode:
    path = options.path or "-"
    with _rereadable(path) as file, attached(options) as agent:
        from zerochat.agent.archive import log_file as archive

        ledger = archive.read(Path(path), file)[0].ledger
        if ledger.group not in (one.id for one in agent.client.groups()):
            raise NotOurGroup(path=path, group=f"{name_of(ledger.name)} ({printable_line(ledger.group)})")
        source = _Source(path, file)
        verdict = _check(ledger, (row for _, row in source.rows()))
        doubted = {one.author for one in verdict.breaks if one.id}
        found: Counter[str] = Counter()
        if verdict.more:
            found["doubted"] = verdict.events  # too much of it to tell what is beyond doubt
        else:
            rows = _watched(source.rows(), ledger.events)
            apart = _feed(agent.client, ledger.group, rows, doubted, found)
            _feed(agent.client, ledger.group, _watched(source.back(apart), len(apart)), doubted, found, back=True)
    return _say_imported(path, verdict, source.broken, found, out, {one.author: one.nick for one in ledger.heights})


class _Source:
    """A file whose rows are read more than once, up to where it is damaged."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path, self._file = Path(path), file
        self.broken: ArchiveBroken | None = None

    def rows(self) -> Iterator[tuple[int, LogRow]]:
        """The rows, and at which byte of the file each begins."""
        from zerochat.agent.archive import log_file as archive

        self._file.seek(0)
        _, rows = archive.read(self._path, self._file)
        at = self._file.tell()
        try:
            for row in rows:
                yield at, row
                at = self._file.tell()
        except archive.ArchiveBroken as error:
            self.broken = error

    def back(self, places: "array[int]") -> Iterator[tuple[int, LogRow]]:
        """The rows at these places, the last one first."""
        from zerochat.agent.archive import log_file as archive

        return ((at, archive.row_at(self._file, at)) for at in reversed(places))


def _feed(
    client: "Client",
    group: str,
    rows: Iterable[tuple[int, LogRow]],
    doubted: set[str],
    found: Counter[str],
    *,
    back: bool = False,
) -> "array[int]":
    """Hand the rows to the agent page by page, but for those of authors who are `doubted`, and count in `found` what
    has become of them. The places of those that do not join on to what is above them are given back, to be tried from
    the other side."""
    apart = array("q")
    page: list[tuple[int, LogRow]] = []

    def turn_over() -> None:
        outcomes = client.import_page(group, [row.record for _, row in page], back=back).outcomes
        for (at, _), outcome in zip(page, outcomes, strict=True):
            if outcome == "apart" and not back:
                apart.append(at)
            else:
                found[outcome] += 1
        page.clear()

    size = 0
    for at, row in rows:
        if row.author in doubted:
            found["doubted"] += 1
            continue
        if page and (len(page) == PAGE_EVENTS or size + len(row.record) > PAGE_BYTES):
            turn_over()
            size = 0
        page.append((at, row))
        size += len(row.record)
    if page:
        turn_over()
    return apart


def _say_imported(
    path: str,
    verdict: Verdict,
    broken: "ArchiveBroken | None",
    found: Counter[str],
    out: Output,
    nicks: dict[str, str],
) -> ExitCode:
    whys = {why: found[why] for why in WHYS if found[why]}
    refused = sum(whys.values())
    facts = [("group", f"{name_of(verdict.name)} ({printable_line(verdict.group)})"), ("new", f"{found['new']:,}")]
    facts += [("known", f"{found['known']:,}"), ("refused", f"{refused:,}")]
    told = {"new": found["new"], "known": found["known"], "refused": refused, "why": whys}
    data = {"path": path, "group": verdict.group, **told, "sound": verdict.sound and broken is None}
    out.data(data, [*table(facts), *(f"{count:,} refused: {WHYS[why]}." for why, count in whys.items())])
    if broken is not None:
        narrate(broken.sentence())
    for one in verdict.breaks:
        narrate(f"In the file: {_sentence(one, nicks)}")
    if found["new"]:
        narrate("What is new counts as handed over by you, until its authors confirm it.")
    sound = broken is None and verdict.sound and not any(found[why] for why in DOUBTS)
    return ExitCode.OK if sound else ExitCode.INTEGRITY


def _file_name(group: str) -> str:
    """A group's name as that of a file in this folder."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in printable_line(group, 48))
    return kept.strip("-") or "history"


@contextmanager
def _archive(path: str) -> Iterator[tuple["Header", Iterator[LogRow]]]:
    from zerochat.agent.archive import log_file as archive

    with _opened(path) as file:
        yield archive.read(Path(path), file)


@contextmanager
def _rereadable(path: str) -> Iterator[IO[bytes]]:
    """A file that can be read again; what comes on standard input is kept in memory, for it may have been encrypted."""
    with _opened(path) as file:
        yield io.BytesIO(file.read()) if path == "-" else file


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


def events_of(path: str, count: int | None) -> list[Event]:
    """The newest `count` events (None: all) in a file, oldest first."""
    from zerochat.agent.archive import log_file as archive
    from zerochat.group.event_log.event import CONTROL, DELETE, EDIT, REACT

    control: list[LogRow] = []
    remarks: list[LogRow] = []
    last: deque[LogRow] = deque(maxlen=count)
    with _archive(path) as (header, rows):
        for row in rows:
            last.append(row)
            if row.type in CONTROL:
                control.append(row)
            elif row.type in (DELETE, EDIT, REACT):
                remarks.append(row)
    return list(archive.events(Path(path), header.ledger, last, control, remarks))
