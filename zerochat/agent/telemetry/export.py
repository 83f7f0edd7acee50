"""Telemetry export: pseudonymised Parquet files by kind and day, with a manifest.

An export is written into a staging folder, which is renamed when everything is on disk (atomic publication). Files are
written one at a time, so open files and memory are bounded. Parquet needs pyarrow, from the extra `analytics`.
"""

import fcntl
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import file_digest
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct, field

from zerochat.agent.storage.database import sync_folder
from zerochat.agent.telemetry.pseudonyms import Pseudonyms
from zerochat.agent.telemetry.schema import (
    KINDS,
    SCHEMA_VERSION,
    Column,
    Record,
    Span,
    View,
    columns,
    name_numbers,
    time_field,
)
from zerochat.errors import LocalError
from zerochat.version import __version__

FORMAT: Final = "zerochat-telemetry"
MANIFEST: Final = "manifest.json"
VERSION_KEY: Final = "zerochat_schema_version"
SECOND_US: Final = 1_000_000
FILE_ROWS, MEMORY_ROWS = 100_000, 150_000
"""Maximum rows of one file, and of all buffered files together."""
ZSTD_LEVEL: Final = 3
_UNFINISHED: Final = ".zerochat-unfinished"


class NoParquet(LocalError):
    """An export needs pyarrow, which is not installed. Install it into zerochat's environment: `pip install
    pyarrow`."""


class ExportExists(LocalError):
    """{path} already exists. Give the path of a new folder."""

    exit_code: ClassVar[int] = 2


class NothingRecorded(LocalError):
    """There are no telemetry records {of_it}. `zerochat telemetry status` shows how many there are, and from when."""


class CannotExport(LocalError):
    """Cannot write an export to {path}: {why}. Nothing was left there."""


class Subject(Struct, frozen=True):
    """What a name number stands for."""

    group: str
    did: str
    """Empty: the group itself."""


class Selection(Struct, frozen=True):
    """Filter of an export."""

    since_us: int = 0
    groups: frozenset[str] | None = None
    """Group ids; None: all."""


class ExportSummary(Struct):
    """Result of an export."""

    manifest: dict[str, Any]
    rows: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    """Records left out because their group was forgotten."""


Row = dict[str, Any]
"""One row of an export: values by column."""
Put = Callable[[str, str, Row], object]
"""Receives the kind, the day and the row."""


class RowWriter:
    """Filters records, replaces names by pseudonyms and passes rows to `put`."""

    def __init__(self, names: Mapping[int, Subject], pseudonyms: Pseudonyms, selection: Selection, put: Put) -> None:
        self._names, self._pseudonyms, self._selection, self._put = names, pseudonyms, selection, put
        self._unit_us = 1 if pseudonyms.shared else SECOND_US
        self._views: dict[int, View] = {}
        """The last view of each group before the start of the selection."""
        self._begun = False
        self._days: set[str] = set()
        self.summary = ExportSummary({})

    def write(self, rows: Iterable[Record]) -> None:
        """Process records, oldest first."""
        for row in rows:
            at_us = getattr(row, time_field(type(row)))
            if at_us < self._selection.since_us:
                if isinstance(row, View):
                    self._views[row.group] = row
                continue
            if not self._begun:
                self._begin()
            self._write_record(row)

    def finish(self, software: str = f"zerochat {__version__}") -> ExportSummary:
        """The summary, with a manifest that lacks its files. Raises NothingRecorded."""
        if not self._days:
            some = self._selection.since_us or self._selection.groups is not None
            raise NothingRecorded(of_it="for this time and these groups" if some else "yet")
        own = next((one.did for one in self._names.values() if not one.group), "")
        together = self._pseudonyms.shared
        now = datetime.now(UTC)
        self.summary.manifest |= {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "software": software,
            "study": "shared" if together else "single",
            "study_fingerprint": self._pseudonyms.fingerprint,
            "observer": str(self._pseudonyms.member("", own)),
            "exported_at": now.isoformat(timespec="seconds") if together else now.date().isoformat(),
            "from": min(self._days),
            "to": max(self._days),
            "time_unit_us": self._unit_us,
            "files": [],
            "rows": {kind: self.summary.rows[kind] for kind in KINDS if self.summary.rows[kind]},
        }
        return self.summary

    def _begin(self) -> None:
        """Write the views at the start of the selection."""
        self._begun = True
        for one in self._views.values():
            self._write_record(msgspec.structs.replace(one, t_us=self._selection.since_us))

    def _write_record(self, fact: Record) -> None:
        kind = type(fact)
        if isinstance(fact, Span) and fact.t_from_us < self._selection.since_us:
            fact = msgspec.structs.replace(fact, t_from_us=self._selection.since_us)
        if any(number not in self._names for number in name_numbers([fact])):
            self.summary.skipped += 1
            return
        group = self._names[fact.group].group if "group" in kind.__struct_fields__ and fact.group else None  # type: ignore[union-attr]
        if group is None:
            group = self._names[fact.observer].group or None if fact.observer else None
        if self._selection.groups is not None and group not in self._selection.groups and not isinstance(fact, Span):
            return
        row = {column.name: self._value(fact, column) for column in columns(kind)}
        day = datetime.fromtimestamp(row[time_field(kind)] / SECOND_US, UTC).date().isoformat()
        name = kind.__name__.lower()
        self._days.add(day)
        self.summary.rows[name] += 1
        self._put(name, day, row)

    def _value(self, fact: Record, column: Column) -> Any:
        value = getattr(fact, column.name)
        match column.role:
            case "name":
                return self._pseudonym(value)
            case "names":
                return sorted(map(self._pseudonym, value))
            case "random":
                return self._pseudonyms.random_number(value)
            case "digest":
                assert isinstance(fact, View)
                return self._pseudonyms.view(self._pseudonym(fact.group), value)
        if column.is_time:
            return value - value % self._unit_us
        return value

    def _pseudonym(self, number: int) -> int:
        if not number:
            return 0
        name = self._names[number]
        return self._pseudonyms.member(name.group, name.did) if name.did else self._pseudonyms.group(name.group)


# --- files ------------------------------------------------------------------------------------------------------------


class PartitionWriter:
    """Buffers rows by kind and day and writes full files. `write` receives a path in the export, the kind and rows."""

    def __init__(self, write: Callable[[str, str, list[Row]], None]) -> None:
        self._write = write
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._waiting = 0
        self._parts: Counter[tuple[str, str]] = Counter()
        self.files: list[dict[str, Any]] = []
        """Manifest entries of the written files."""

    def put(self, kind: str, day: str, row: Row) -> str:
        """Buffer a row; return the path of its file."""
        key = kind, day
        path = self._path(key)
        rows = self._rows.setdefault(key, [])
        rows.append(row)
        self._waiting += 1
        if len(rows) >= FILE_ROWS:
            self._close(key)
        elif self._waiting >= MEMORY_ROWS:
            self._close(max(self._rows, key=lambda one: len(self._rows[one])))
        return path

    def close(self) -> list[dict[str, Any]]:
        """Write the remaining files; return the manifest entries."""
        for key in list(self._rows):
            self._close(key)
        return sorted(self.files, key=lambda one: one["path"])

    def _path(self, key: tuple[str, str]) -> str:
        return f"{key[0]}/date={key[1]}/part-{self._parts[key]:05}.parquet"

    def _close(self, key: tuple[str, str]) -> None:
        path, rows = self._path(key), self._rows.pop(key)
        self._parts[key] += 1
        self._waiting -= len(rows)
        self._write(path, key[0], rows)
        self.files.append({"path": path, "kind": key[0], "rows": len(rows)})


class _ParquetWriter:
    """Writes the Parquet files of one export into a folder. Raises NoParquet."""

    def __init__(self, folder: Path) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise NoParquet from error
        self._folder, self._arrow, self._parquet = folder, pyarrow, pyarrow.parquet

    def write(self, path: str, kind: str, rows: list[Row]) -> None:
        place = self._folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        table = self._arrow.Table.from_pylist(rows, schema=self._schema(kind))
        self._parquet.write_table(table, place, compression="zstd", compression_level=ZSTD_LEVEL)

    def file_entry(self, one: dict[str, Any]) -> dict[str, Any]:
        """Complete a manifest entry with size and SHA-256; the file is synced to disk."""
        path = self._folder / one["path"]
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        return {**one, "bytes": path.stat().st_size, "sha256": digest}

    def _schema(self, kind: str) -> Any:
        arrow = self._arrow
        types = {"int64": arrow.int64(), "int32": arrow.int32(), "bool": arrow.bool_(), "string": arrow.string()}
        types["list<int64>"] = arrow.list_(arrow.int64())
        fields = [arrow.field(one.name, types[one.type], nullable=one.optional) for one in columns(KINDS[kind])]
        return arrow.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


def export(
    out: Path,
    batches: Iterable[Sequence[Record]],
    names: Mapping[int, Subject],
    pseudonyms: Pseudonyms,
    selection: Selection,
) -> ExportSummary:
    """Write an export into the new folder `out`. Raises NoParquet, ExportExists, NothingRecorded or CannotExport; then
    `out` does not exist."""
    if os.path.lexists(out):
        raise ExportExists(path=out)
    try:
        with _staging_folder(out) as folder:
            parquet = _ParquetWriter(folder)
            partitions = PartitionWriter(parquet.write)
            writer = RowWriter(names, pseudonyms, selection, partitions.put)
            for rows in batches:
                writer.write(rows)
            summary = writer.finish()
            summary.manifest["files"] = [parquet.file_entry(one) for one in partitions.close()]
            manifest = folder / MANIFEST
            with manifest.open("xb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(summary.manifest), indent=1) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            for each in (*(one for one in folder.rglob("*") if one.is_dir()), folder):
                sync_folder(each)
            if os.path.lexists(out):
                raise ExportExists(path=out)
            folder.rename(out)
        sync_folder(out.parent)
    except OSError as error:
        raise CannotExport(path=out, why=(error.strerror or str(error)).lower()) from error
    return summary


@contextmanager
def _staging_folder(out: Path) -> Iterator[Path]:
    """A staging folder beside `out`, deleted with the parents made for it unless it was renamed. Staging folders of
    killed exports are deleted too."""
    made = [above for above in out.parents if not above.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f".{out.name}.*{_UNFINISHED}"):
            with suppress(OSError), _locked(left):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=_UNFINISHED, dir=out.parent))
        try:
            with _locked(folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        with suppress(OSError):
            for above in made:
                above.rmdir()  # fails when it is not empty, as after the rename


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder. Raises OSError when it is locked already."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def dry_run(
    show: Callable[[str, Row], None],
    batches: Iterable[Sequence[Record]],
    names: Mapping[int, Subject],
    pseudonyms: Pseudonyms,
    selection: Selection,
) -> ExportSummary:
    """Pass every row of an export and the path of its file to `show`; return the summary, whose manifest lacks file
    sizes and hashes. Needs no pyarrow."""
    partitions = PartitionWriter(lambda path, kind, rows: None)
    writer = RowWriter(names, pseudonyms, selection, lambda kind, day, row: show(partitions.put(kind, day, row), row))
    writer.write(chain.from_iterable(batches))
    summary = writer.finish()
    summary.manifest["files"] = partitions.close()
    return summary
