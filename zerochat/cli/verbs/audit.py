"""Verbs audit, export and import: verify, write and read the log of a group."""

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

from zerochat.cli.agent_access import attached
from zerochat.cli.evidence_files import open_file
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.formatting import amount, find_group, name_of, table
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb, group_argument, history_source
from zerochat.cli.output import Output, narrate
from zerochat.errors import LocalError
from zerochat.presentation.history_rules import NOT_ENCRYPTED
from zerochat.rpc import Event, LogRow, LogSummary
from zerochat.terminal_text import printable_line

if TYPE_CHECKING:
    from zerochat.agent.api.client import Client
    from zerochat.agent.archive.audit import AuditReport, Violation
    from zerochat.agent.archive.log_file import ArchiveBroken, Header


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "audit",
        "verify a group's log",
        "Verify a group's log from its first event: every event id, every author's hash chain, every signature, the\n"
        "permission for every membership change, the order, and that the result equals the agent's state. Prints one\n"
        "line per error and exits with 7 if there is any. Works while the agent runs; with --file it verifies an\n"
        "export, without a profile.",
        """
zerochat audit hikers
zerochat audit --file hikers.jsonl
zerochat audit hikers --format jsonl | jq .violations
""",
        run=audit,
    )
    history_source(parser)
    parser = add_verb(
        verbs,
        "export",
        "export a group's log to a file",
        "Write a group's complete log as JSON lines, with all data that is needed to verify it. The file is not\n"
        "encrypted; only your user can read it. `-` writes to standard output. Prints the name of the file.\n"
        "`zerochat history --file FILE` prints it, `zerochat audit --file FILE` verifies it.",
        """
zerochat export hikers
zerochat export hikers --output hikers-2025.jsonl
zerochat export hikers --output - | gpg --symmetric >hikers.gpg
""",
        run=export,
    )
    group_argument(parser)
    parser.add_argument(
        "-o", "--output", dest="path", metavar="FILE", help="the file to create, or - (default: GROUP.jsonl)"
    )
    parser = add_verb(
        verbs,
        "import",
        "import missing events from an export",
        "Import the events that are missing from the local log of a group, from an export that you or another member\n"
        "made. Each event is checked like a relayed one: it must connect to the local log. Unsigned events count as\n"
        "relayed by you until their author confirms them. Can be repeated. Exits with 7 if the file is inconsistent;\n"
        "its valid part is imported. `-` reads standard input.",
        """
zerochat import hikers.jsonl
gpg --decrypt hikers.gpg | zerochat import -
zerochat import hikers.jsonl --format jsonl | jq .refused
""",
        run=import_,
    )
    parser.add_argument("path", metavar="FILE", help="a file written by `zerochat export`, or -")


_T = TypeVar("_T")
PROGRESS_EVENTS, PROGRESS_S = 5_000, 0.25
"""Minimum number of events for a progress display, and its interval."""
RETRIES_MAX = 2
"""A running agent may confirm or refute relayed events during the audit; then the log is read again."""
PAGE_EVENTS, PAGE_BYTES = 256, 384 * 1024
"""Limits of one import request: in base64 it fits one line of the control socket."""
REASONS = {
    "detached": "it does not connect to the local part of its author's chain",
    "missing-causes": "a membership event that it depends on is missing",
    "not-a-member": "its author was not a member",
    "own": "it claims to be yours but is not in your log",
    "contradiction": "it contradicts another event at its position",
    "invalid": "it is malformed",
    "doubted": "the file contains contradictions about its author",
}
"""Why an event of a file is rejected."""
INTEGRITY_REASONS = ("contradiction", "invalid", "doubted")
REST = "the rest of the journal (the agent scans it daily; without one, `zerochat doctor` does)"


class NotOurGroup(LocalError):
    """{path} is the log of a group that this profile is not in: {group}. `zerochat history --file {path}` prints it."""


def audit(options: Options, out: Output) -> ExitCode:
    if options.path is not None:
        with _archive(options.path) as (header, rows):
            verdict = _check(header.summary, rows)
            where = f"exported by {name_of(header.summary.nick)} on {header.exported_at[:10]}"
            return _print_verdict(verdict, header.summary, out, where)
    with attached(options) as agent:
        client = agent.client
        summary = client.get_log_summary(find_group(client.list_groups(), options.group).id)
        verdict = _check(summary, client.event_rows(summary))
        for _ in range(RETRIES_MAX):
            if verdict.sound or _unchanged(summary, now := client.get_log_summary(summary.group)):
                break
            summary, verdict = now, _check(now, client.event_rows(now))
        status = client.get_status()
    code = _print_verdict(verdict, summary, out, "as stored by the agent", REST)
    if not status.damaged:
        return code
    narrate(status.warning)
    return ExitCode.INTEGRITY


def _unchanged(before: LogSummary, after: LogSummary) -> bool:
    """Whether no event was added, confirmed or refuted in between."""
    return before == replace(after, latest=before.latest)


def _check(summary: LogSummary, rows: Iterable[LogRow]) -> "AuditReport":
    from zerochat.agent.archive.audit import Audit

    found = Audit(summary)
    for row in _with_progress(rows, summary.events):
        found.take(row)
    return found.verdict()


def _with_progress(rows: Iterable[_T], total: int) -> Iterator[_T]:
    """The rows, with a progress display in a terminal."""
    shown = total >= PROGRESS_EVENTS and sys.stderr.isatty()
    drawn = time.monotonic()
    for number, row in enumerate(rows):
        if shown and time.monotonic() - drawn >= PROGRESS_S:
            drawn = time.monotonic()
            print(f"\r{number:,} of {total:,} events", end="", file=sys.stderr, flush=True)
        yield row
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print_verdict(verdict: "AuditReport", summary: LogSummary, out: Output, where: str, unread: str = "") -> ExitCode:
    nicks = {height.author: height.nick for height in summary.chains}
    facts = [
        ("group", f"{name_of(verdict.name)} ({printable_line(verdict.group)}), {where}"),
        (
            "events",
            f"{verdict.events:,}: {amount(verdict.posts, 'message')}, {amount(verdict.membership, 'membership event')}",
        ),
        ("authors", f"{verdict.authors:,}; all hash chains verified" if verdict.sound else f"{verdict.authors:,}"),
        ("signatures", f"{verdict.signed:,} {'verified' if verdict.sound else 'checked'}"),
        ("members", f"view {verdict.view}" if verdict.view else "none"),
    ]
    if verdict.unconfirmed:
        relayed = amount(verdict.unconfirmed, "relayed event")
        facts.append(
            (
                "unconfirmed",
                f"{relayed}, not confirmed by {'its author' if verdict.unconfirmed == 1 else 'their authors'}",
            )
        )
    if verdict.late:
        facts.append(("late", f"{verdict.late:,}"))
    if verdict.refuted:
        facts.append(("refuted", f"{verdict.refuted:,}, quarantined: denied by their authors"))
    if unread:
        facts.append(("not checked", unread))
    errors = len(verdict.violations) + verdict.more
    facts.append(("result", "valid" if verdict.sound else f"INVALID: {amount(errors, 'error')}"))
    out.data(verdict, [*table(facts), *(_sentence(one, nicks) for one in verdict.violations)])
    if verdict.more:
        narrate(f"And {verdict.more:,} more.")
    return ExitCode.OK if verdict.sound else ExitCode.INTEGRITY


def _sentence(one: "Violation", nicks: dict[str, str]) -> str:
    who = name_of(nicks.get(one.author, "")) if one.author else ""
    place = f" {one.position}" if one.position else ""
    id_ = f" ({printable_line(one.id[:8])})" if one.id else ""
    return f"{who}{place}{id_}: {one.what}." if who else f"{one.what}."


# --- export and import ------------------------------------------------------------------------------------------------


def export(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.archive import log_file

    with attached(options) as agent:
        client = agent.client
        summary = client.get_log_summary(find_group(client.list_groups(), options.group).id)
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        header = log_file.Header(exported_at=now, summary=summary)
        if options.path == "-":
            log_file.write(header, client.event_rows(summary), sys.stdout.buffer)
            sys.stdout.flush()
            narrate(NOT_ENCRYPTED)
            return ExitCode.OK
        path = Path(options.path or f"{_file_name(summary.name)}.jsonl")
        count = write_export(path, header, client)
    out.data({"path": str(path), "group": summary.group, "events": count}, [str(path)])
    narrate(f"{amount(count, 'event')} of {name_of(summary.name)}. {NOT_ENCRYPTED}")
    return ExitCode.OK


def write_export(path: Path, header: "Header", client: "Client") -> int:
    """Write a new file, completely or not at all, and sync it to disk; the number of events."""
    from zerochat.agent.archive import log_file
    from zerochat.agent.storage.database import disk_error

    file = log_file.create(path)
    try:
        with file:  # flushing the buffer may fail when the disk is full
            count = log_file.write(
                header, _with_progress(client.event_rows(header.summary), header.summary.events), file
            )
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise disk_error(error, path) from error
        raise
    return count


def import_(options: Options, out: Output) -> ExitCode:
    path = options.path or "-"
    with _rereadable(path) as file, attached(options) as agent:
        from zerochat.agent.archive import log_file

        summary = log_file.read(Path(path), file)[0].summary
        if summary.group not in (one.id for one in agent.client.list_groups()):
            raise NotOurGroup(path=path, group=f"{name_of(summary.name)} ({printable_line(summary.group)})")
        source = _Source(path, file)
        verdict = _check(summary, (row for _, row in source.rows()))
        doubted = {one.author for one in verdict.violations if one.id}
        found: Counter[str] = Counter()
        if verdict.more:
            found["doubted"] = verdict.events  # too many violations were found to list all their authors
        else:
            rows = _with_progress(source.rows(), summary.events)
            apart = _import_rows(agent.client, summary.group, rows, doubted, found)
            _import_rows(
                agent.client, summary.group, _with_progress(source.back(apart), len(apart)), doubted, found, back=True
            )
    return _print_import(path, verdict, source.broken, found, out, {one.author: one.nick for one in summary.chains})


class _Source:
    """A file whose rows are read repeatedly, up to the first damage."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path, self._file = Path(path), file
        self.broken: ArchiveBroken | None = None

    def rows(self) -> Iterator[tuple[int, LogRow]]:
        """The rows with their byte offsets."""
        from zerochat.agent.archive import log_file

        self._file.seek(0)
        _, rows = log_file.read(self._path, self._file)
        at = self._file.tell()
        try:
            for row in rows:
                yield at, row
                at = self._file.tell()
        except log_file.ArchiveBroken as error:
            self.broken = error

    def back(self, places: "array[int]") -> Iterator[tuple[int, LogRow]]:
        """The rows at these byte offsets, in reverse order."""
        from zerochat.agent.archive import log_file

        return ((at, log_file.row_at(self._file, at)) for at in reversed(places))


def _import_rows(
    client: "Client",
    group: str,
    rows: Iterable[tuple[int, LogRow]],
    doubted: set[str],
    found: Counter[str],
    *,
    back: bool = False,
) -> "array[int]":
    """Import the rows page by page, except those of `doubted` authors, and count the outcomes in `found`. Returns the
    byte offsets of rows that do not connect to earlier ones; they are imported backwards in a second pass."""
    apart = array("q")
    page: list[tuple[int, LogRow]] = []

    def submit() -> None:
        outcomes = client.import_events(group, [row.record for _, row in page], back=back).outcomes
        for (at, _), outcome in zip(page, outcomes, strict=True):
            if outcome == "detached" and not back:
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
            submit()
            size = 0
        page.append((at, row))
        size += len(row.record)
    if page:
        submit()
    return apart


def _print_import(
    path: str,
    verdict: "AuditReport",
    broken: "ArchiveBroken | None",
    found: Counter[str],
    out: Output,
    nicks: dict[str, str],
) -> ExitCode:
    whys = {why: found[why] for why in REASONS if found[why]}
    refused = sum(whys.values())
    facts = [("group", f"{name_of(verdict.name)} ({printable_line(verdict.group)})"), ("new", f"{found['new']:,}")]
    facts += [("known", f"{found['known']:,}"), ("refused", f"{refused:,}")]
    counts = {"new": found["new"], "known": found["known"], "refused": refused, "why": whys}
    data = {"path": path, "group": verdict.group, **counts, "sound": verdict.sound and broken is None}
    out.data(data, [*table(facts), *(f"{count:,} refused: {REASONS[why]}." for why, count in whys.items())])
    if broken is not None:
        narrate(broken.sentence())
    for one in verdict.violations:
        narrate(f"File: {_sentence(one, nicks)}")
    if found["new"]:
        narrate("New events count as relayed by you until their authors confirm them.")
    sound = broken is None and verdict.sound and not any(found[why] for why in INTEGRITY_REASONS)
    return ExitCode.OK if sound else ExitCode.INTEGRITY


def _file_name(group: str) -> str:
    """The name of a group as a file name."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in printable_line(group, 48))
    return kept.strip("-") or "history"


@contextmanager
def _archive(path: str) -> Iterator[tuple["Header", Iterator[LogRow]]]:
    from zerochat.agent.archive import log_file

    with open_file(path) as file:
        yield log_file.read(Path(path), file)


@contextmanager
def _rereadable(path: str) -> Iterator[IO[bytes]]:
    """A seekable file; standard input is kept in memory, not on disk, as its source may be encrypted."""
    with open_file(path) as file:
        yield io.BytesIO(file.read()) if path == "-" else file


def events_of(path: str, count: int | None) -> list[Event]:
    """The newest `count` events (None: all) in a file, oldest first."""
    from zerochat.agent.archive import log_file
    from zerochat.group.event_log.event import CONTROL, DELETE, EDIT, REACT

    control: list[LogRow] = []
    annotations: list[LogRow] = []
    last: deque[LogRow] = deque(maxlen=count)
    with _archive(path) as (header, rows):
        for row in rows:
            last.append(row)
            if row.type in CONTROL:
                control.append(row)
            elif row.type in (DELETE, EDIT, REACT):
                annotations.append(row)
    return list(log_file.events(Path(path), header.summary, last, control, annotations))
