"""A group's log in a file, with everything that is needed to check it and to read it where nobody has the group.

JSON Lines. The first line says what it is: {"zerochat": "history", "v": 1, "exported_at", "ledger"}; every other one is
a row, with its record as an object: {"seq", "id", "author", "position", "lamport", "type", "received", "record"} and,
where they are so, "late", "history" and "vouched". The rows stand in the order that every member sees. A record's
canonical form is what its id is the hash of, so nothing is lost by its being an object here.

The file is not encrypted: whoever can read it can read everything in it.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from zerochat.agent.storage.journal import Row
from zerochat.agent.views import core_state, current_messages
from zerochat.crypto.encoding import INTEGER_MAX, Count
from zerochat.errors import LocalError, RemoteError
from zerochat.group.event_log.event import foreign_event
from zerochat.group.membership import check_all, resolve_view
from zerochat.group.messages.bodies import target_of
from zerochat.group.state import Group, Profile
from zerochat.rpc import Delivery, Event, Ledger, LogRow

VERSION = 1
LINE_BYTES_MAX = 256 * 1024
"""A record has at most 96 KiB."""
HEADER_BYTES_MAX = 4 << 20


class NotAnArchive(LocalError):
    """{path} is no history that `zerochat export` has written: {why}."""


class ArchiveBroken(LocalError):
    """{path} is damaged: line {line} {why}. Export it again where the group is."""

    exit_code: ClassVar[int] = 7


class NewerArchive(LocalError):
    """{path} was written by a newer zerochat (its format is {found}, and this one knows {known}). Use the newer
    version."""


class NoFolder(LocalError):
    """There is no folder {folder} to put a file into. Make it first, or choose another place."""


class FileThere(LocalError):
    """{path} is there already, and was left as it is. Give another name."""


class Unexportable(LocalError):
    """The log has a record that is no JSON ({event}), so nothing was written. `zerochat audit` says more."""

    exit_code: ClassVar[int] = 7


class _Mark(Struct, frozen=True):
    """What every version's first line begins with."""

    zerochat: str
    v: Count


class Header(Struct, frozen=True, kw_only=True):
    """The first line."""

    zerochat: Literal["history"] = "history"
    v: int = VERSION
    exported_at: str
    ledger: Ledger
    """What the exporter's state said; `me` and `nick` are the exporter."""


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
    vouched: str = ""
    record: Raw


_SAME = tuple(name for name in _Line.__struct_fields__ if name != "record")
"""What a line has just as a row has it."""
_encoder = msgspec.json.Encoder()
_marks = msgspec.json.Decoder(_Mark)
_headers = msgspec.json.Decoder(Header)
_lines = msgspec.json.Decoder(_Line)


# --- writing --------------------------------------------------------------------------------------------------------


def create(path: Path) -> IO[bytes]:
    """A new file that only its owner can read. Raises FileThere and NoFolder."""
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")
    except FileExistsError:
        raise FileThere(path=path) from None
    except (FileNotFoundError, NotADirectoryError):
        raise NoFolder(folder=path.parent) from None


def write(header: Header, rows: Iterable[LogRow], file: IO[bytes]) -> int:
    """Write everything; how many rows there were. Raises Unexportable."""
    file.write(_encoder.encode(header) + b"\n")
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
    """The header, and the rows one after the other. `path` is only for what is said about it. Raises NotAnArchive or
    NewerArchive; the rows raise ArchiveBroken."""
    first = file.readline(HEADER_BYTES_MAX)
    try:
        mark = _marks.decode(first)
        if mark.zerochat == "history" and mark.v > VERSION:
            raise NewerArchive(path=path, found=mark.v, known=VERSION)
        header = _headers.decode(first)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise NotAnArchive(path=path, why="its first line does not say so") from None
    ledger = header.ledger
    numbers = [number for one in ledger.heights for number in (one.seq, one.first, one.sure)]
    if not all(0 <= number <= INTEGER_MAX for number in (ledger.events, ledger.refuted, ledger.latest, *numbers)):
        raise NotAnArchive(path=path, why="a number in its first line is none that zerochat counts to")
    return header, _rows(path, file)


def _rows(path: Path, file: IO[bytes]) -> Iterator[LogRow]:
    number = 1
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if not line.endswith(b"\n"):
            raise ArchiveBroken(path=path, line=number, why="has no end")
        try:
            yield _row(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise ArchiveBroken(path=path, line=number, why="is no row of a log") from None


def row_at(file: IO[bytes], at: int) -> LogRow:
    """The row whose line begins at this byte, where reading the file has found one."""
    file.seek(at)
    return _row(file.readline(LINE_BYTES_MAX))


def _row(line: bytes) -> LogRow:
    row = _lines.decode(line)
    return LogRow(**{name: getattr(row, name) for name in _SAME}, record=bytes(row.record))


def events(
    path: Path, ledger: Ledger, rows: Iterable[LogRow], control: Iterable[LogRow], remarks: Iterable[LogRow] = ()
) -> Iterator[Event]:
    """Rows as a face shows them. `control`: all of the file's membership events, for the members' names; `remarks`: all
    that is said about messages, which are shown as they stand now. Raises NotAnArchive where the membership events do
    not hang together."""
    try:
        found = check_all(foreign_event(row.record) for row in control)
        view = resolve_view(found)
    except RemoteError:
        raise NotAnArchive(path=path, why="its membership events do not hang together") from None
    # As much of a group as reading needs: its members, and nothing that could do anything.
    nobody = cast(Any, None)
    group = Group(ledger.group, ledger.name, Profile(), "left", ledger.me, b"", nobody, found, view, 0)
    names = core_state.labels(group)
    shown = [_kept(row, ledger.group) for row in rows]
    for event in current_messages.shown(group, shown, [_kept(row, ledger.group) for row in remarks], names):
        # Who has what was another one's business, at another time.
        yield replace(event, delivery=Delivery(0, 0))


def _kept(row: LogRow, group: str) -> Row:
    """As a journal would have it. What it is about stands in its record."""
    kept = Row(**{name: getattr(row, name) for name in row.__struct_fields__}, group=group)
    return replace(kept, target=target_of(core_state.load(kept)))
