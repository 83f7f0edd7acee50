"""History files: a group's event log as JSON Lines, verifiable and readable without the group.

The first line is the header: {"zerochat": "history", "v": 1, "exported_at", "summary"}; every other line is a row with
its record as an object: {"seq", "id", "author", "position", "lamport", "type", "received", "record"} and, if set,
"late", "history" and "relayed_by". Rows are in total order. An event's id hashes the canonical form of its record, so
the object form loses nothing.

The file is not encrypted: everyone who can read it can read all messages.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from zerochat.agent.storage.journal import Row
from zerochat.agent.views import current_messages
from zerochat.agent.views.events import load_record
from zerochat.agent.views.members import display_names
from zerochat.crypto.encoding import INTEGER_MAX, Count
from zerochat.errors import LocalError, RemoteError
from zerochat.group.event_log.event import foreign_event
from zerochat.group.membership import check_all, resolve_view
from zerochat.group.messages.bodies import target_of
from zerochat.group.state import Group, Profile
from zerochat.rpc import Delivery, Event, LogRow, LogSummary

VERSION = 1
SUFFIX = ".jsonl"
LINE_BYTES_MAX = 256 * 1024
"""A record has at most 96 KiB."""
HEADER_BYTES_MAX = 4 << 20


class NotAnArchive(LocalError):
    """{path} is not a history file written by `zerochat export`: {why}."""


class ArchiveBroken(LocalError):
    """{path} is damaged: line {line} {why}. Export it again from a profile that has the group."""

    exit_code: ClassVar[int] = 7


class NewerArchive(LocalError):
    """{path} has format {found}, and this version of zerochat reads formats up to {known}. Use a newer version."""


class NoFolder(LocalError):
    """The folder {folder} does not exist. Create it, or choose another one."""


class FileThere(LocalError):
    """{path} exists already, and was not overwritten. Choose another name."""


class Unexportable(LocalError):
    """The log contains an invalid record ({event}), so nothing was exported. `zerochat audit` shows details."""

    exit_code: ClassVar[int] = 7


class _Mark(Struct, frozen=True):
    """The beginning of the first line, common to all versions."""

    zerochat: str
    v: Count


class Header(Struct, frozen=True, kw_only=True):
    """The first line."""

    zerochat: Literal["history"] = "history"
    v: int = VERSION
    exported_at: str
    summary: LogSummary
    """The exporter's own summary of the log; `me` and `nick` are the exporter."""


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    seq: Count
    id: str
    author: str
    position: Count
    lamport: Count
    type: str
    received: Count
    late: bool = False
    history: bool = False
    relayed_by: str = ""
    record: Raw


_SAME = tuple(name for name in _Line.__struct_fields__ if name != "record")
"""The fields that a line and a row share."""
_encoder = msgspec.json.Encoder()
_marks = msgspec.json.Decoder(_Mark)
_headers = msgspec.json.Decoder(Header)
_lines = msgspec.json.Decoder(_Line)


# --- writing --------------------------------------------------------------------------------------------------------


def create(path: Path) -> IO[bytes]:
    """A new file with mode 0600. Raises FileThere or NoFolder."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")
    except FileExistsError:
        raise FileThere(path=path) from None
    except (FileNotFoundError, NotADirectoryError):
        raise NoFolder(folder=path.parent) from None


def write(header: Header, rows: Iterable[LogRow], file: IO[bytes]) -> int:
    """Write the header and the rows; the number of rows. Raises Unexportable."""
    file.write(_encoder.encode(header) + b"\n")
    return write_rows(rows, file)


def write_rows(rows: Iterable[LogRow], file: IO[bytes]) -> int:
    """Write rows after the header; their number. Raises Unexportable."""
    count = 0
    for row in rows:
        file.write(_encoder.encode(_line(row)) + b"\n")
        count += 1
    return count


def _line(row: LogRow) -> _Line:
    try:
        msgspec.json.decode(row.record, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise Unexportable(event=row.id) from None
    if b"\n" in row.record:
        raise Unexportable(event=row.id)
    return _Line(**{name: getattr(row, name) for name in _SAME}, record=Raw(row.record))


# --- reading --------------------------------------------------------------------------------------------------------


def read(path: Path, file: IO[bytes]) -> tuple[Header, Iterator[LogRow]]:
    """The header and an iterator over the rows. `path` is used in errors only. Raises NotAnArchive or NewerArchive; the
    iterator raises ArchiveBroken."""
    first = file.readline(HEADER_BYTES_MAX)
    try:
        mark = _marks.decode(first)
        if mark.zerochat == "history" and mark.v > VERSION:
            raise NewerArchive(path=path, found=mark.v, known=VERSION)
        header = _headers.decode(first)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise NotAnArchive(path=path, why="its first line is not a valid header") from None
    summary = header.summary
    numbers = [number for one in summary.chains for number in (one.seq, one.first, one.confirmed)]
    if not all(0 <= number <= INTEGER_MAX for number in (summary.events, summary.refuted, summary.latest, *numbers)):
        raise NotAnArchive(path=path, why="a number in its first line is out of range")
    return header, _rows(path, file)


def _rows(path: Path, file: IO[bytes]) -> Iterator[LogRow]:
    number = 1
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if not line.endswith(b"\n"):
            raise ArchiveBroken(path=path, line=number, why="is incomplete")
        try:
            yield _row(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise ArchiveBroken(path=path, line=number, why="is not a valid row") from None


def row_at(file: IO[bytes], at: int) -> LogRow:
    """The row whose line begins at this byte offset, as found by an earlier read."""
    file.seek(at)
    return _row(file.readline(LINE_BYTES_MAX))


def _row(line: bytes) -> LogRow:
    row = _lines.decode(line)
    return LogRow(**{name: getattr(row, name) for name in _SAME}, record=bytes(row.record))


def events(
    path: Path,
    summary: LogSummary,
    rows: Iterable[LogRow],
    control: Iterable[LogRow],
    annotations: Iterable[LogRow] = (),
) -> Iterator[Event]:
    """The rows as events of the API. `control`: all membership events of the file, for the members' names;
    `annotations`: all annotations, which are applied to their messages. Raises NotAnArchive if the membership events
    are inconsistent."""
    try:
        found = check_all(foreign_event(row.record) for row in control)
        view = resolve_view(found)
    except RemoteError:
        raise NotAnArchive(path=path, why="its membership events are inconsistent") from None
    # A group with only its members: enough for reading.
    nobody = cast(Any, None)
    group = Group(summary.group, summary.name, Profile(view.keys), "left", summary.me, b"", nobody, found, view, 0)
    names = display_names(group)
    shown = [_kept(row, summary.group) for row in rows]
    for event in current_messages.materialise(group, shown, [_kept(row, summary.group) for row in annotations], names):
        # Delivery states are not part of the file.
        yield replace(event, delivery=Delivery(0, 0))


def _kept(row: LogRow, group: str) -> Row:
    """A row as stored in a journal; its target is taken from its record."""
    kept = Row(**{name: getattr(row, name) for name in row.__struct_fields__}, group=group)
    return replace(kept, target=target_of(load_record(kept)))
