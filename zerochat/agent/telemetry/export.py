"""Facts as Parquet: a folder for each kind and day, a manifest, and nobody's name.

Everything is written into a folder beside the one that is wanted, and that gets its name when all of it is on disk: an
export is there whole or not at all. Every file is written at once and closed, so that few are open however many days
there are, and little is in memory however many rows. Parquet wants pyarrow, which comes with the extra `analytics`
alone.
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

from zerochat import __version__
from zerochat.agent.storage.database import sync_folder
from zerochat.agent.telemetry.pseudonyms import Pseudonyms
from zerochat.agent.telemetry.schema import (
    KINDS,
    SCHEMA_VERSION,
    Column,
    Fact,
    Span,
    View,
    columns,
    names_in,
    time_field,
)
from zerochat.errors import LocalError

FORMAT: Final = "zerochat-telemetry"
MANIFEST: Final = "manifest.json"
VERSION_KEY: Final = "zerochat_schema_version"
SECOND_US: Final = 1_000_000
FILE_ROWS, MEMORY_ROWS = 100_000, 150_000
"""Rows of one file, and of all those that are not yet written, at the most."""
ZSTD_LEVEL: Final = 3
_UNFINISHED: Final = ".zerochat-unfinished"


class NoParquet(LocalError):
    """An export is written with pyarrow, which is not installed. Install it into zerochat's environment:
    `pip install pyarrow`."""


class ExportThere(LocalError):
    """There is something at {path} already. Name a folder that does not exist."""

    exit_code: ClassVar[int] = 2


class NothingRecorded(LocalError):
    """Nothing is recorded {of_it} that could be exported. `zerochat telemetry status` says how much there is, and from
    when."""


class CannotExport(LocalError):
    """No export can be written to {path}: {why}. Nothing of it was left there."""


class Name(Struct, frozen=True):
    """What a number in a fact stands for."""

    group: str
    did: str
    """Empty: the group itself."""


class Wanted(Struct, frozen=True):
    """What of all that is recorded an export has."""

    since_us: int = 0
    groups: frozenset[str] | None = None
    """Their ids; None: all."""


class Told(Struct):
    """What an export came to."""

    manifest: dict[str, Any]
    rows: Counter[str] = field(default_factory=Counter)
    nameless: int = 0
    """Rows that were left out, because the group that they are about was forgotten."""


Row = dict[str, Any]
"""One row of an export, by column."""
Put = Callable[[str, str, Row], object]
"""Takes a kind, a day and a row."""


class Writer:
    """Replaces names, and gives every row to `put`."""

    def __init__(self, names: Mapping[int, Name], pseudonyms: Pseudonyms, wanted: Wanted, put: Put) -> None:
        self._names, self._pseudonyms, self._wanted, self._put = names, pseudonyms, wanted, put
        self._unit_us = 1 if pseudonyms.together else SECOND_US
        self._views: dict[int, View] = {}
        """By group, the last one from before the time that is wanted."""
        self._began = False
        self._days: set[str] = set()
        self.told = Told({})

    def take(self, rows: Iterable[Fact]) -> None:
        """Facts in the order in which they were recorded."""
        for row in rows:
            at_us = getattr(row, time_field(type(row)))
            if at_us < self._wanted.since_us:
                if isinstance(row, View):
                    self._views[row.group] = row
                continue
            if not self._began:
                self._begin()
            self._one(row)

    def finish(self, software: str = f"zerochat {__version__}") -> Told:
        """What the manifest says, but for the files. Raises NothingRecorded."""
        if not self._days:
            some = self._wanted.since_us or self._wanted.groups is not None
            raise NothingRecorded(of_it="of that time and those groups" if some else "yet")
        own = next((one.did for one in self._names.values() if not one.group), "")
        together = self._pseudonyms.together
        now = datetime.now(UTC)
        self.told.manifest |= {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "software": software,
            "study": "together" if together else "alone",
            "study_fingerprint": self._pseudonyms.fingerprint,
            "observer": str(self._pseudonyms.member("", own)),
            "exported_at": now.isoformat(timespec="seconds") if together else now.date().isoformat(),
            "from": min(self._days),
            "to": max(self._days),
            "time_unit_us": self._unit_us,
            "files": [],
            "rows": {kind: self.told.rows[kind] for kind in KINDS if self.told.rows[kind]},
        }
        return self.told

    def _begin(self) -> None:
        """Who was in each group when the time that is wanted began."""
        self._began = True
        for one in self._views.values():
            self._one(msgspec.structs.replace(one, t_us=self._wanted.since_us))

    def _one(self, fact: Fact) -> None:
        kind = type(fact)
        if isinstance(fact, Span) and fact.t_from_us < self._wanted.since_us:
            fact = msgspec.structs.replace(fact, t_from_us=self._wanted.since_us)
        if any(number not in self._names for number in names_in([fact])):
            self.told.nameless += 1
            return
        group = self._names[fact.group].group if "group" in kind.__struct_fields__ and fact.group else None  # type: ignore[union-attr]
        if group is None:
            group = self._names[fact.observer].group or None if fact.observer else None
        if self._wanted.groups is not None and group not in self._wanted.groups and not isinstance(fact, Span):
            return
        row = {column.name: self._value(fact, column) for column in columns(kind)}
        day = datetime.fromtimestamp(row[time_field(kind)] / SECOND_US, UTC).date().isoformat()
        name = kind.__name__.lower()
        self._days.add(day)
        self.told.rows[name] += 1
        self._put(name, day, row)

    def _value(self, fact: Fact, column: Column) -> Any:
        value = getattr(fact, column.name)
        match column.what:
            case "name":
                return self._pseudonym(value)
            case "names":
                return sorted(map(self._pseudonym, value))
            case "lot":
                return self._pseudonyms.lot(value)
            case "class":
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


class Shelf:
    """Sorts rows into files by kind and day, several where there are many, and has each written when it is full.
    `write`: takes a path in the export, a kind and rows."""

    def __init__(self, write: Callable[[str, str, list[Row]], None]) -> None:
        self._write = write
        self._rows: dict[tuple[str, str], list[Row]] = {}
        self._waiting = 0
        self._parts: Counter[tuple[str, str]] = Counter()
        self.files: list[dict[str, Any]] = []
        """What the manifest says of each that is written."""

    def put(self, kind: str, day: str, row: Row) -> str:
        """Take a row; the file that it will be in."""
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
        """Write what is left; what the manifest says of the files."""
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


class _Parquet:
    """Writes the files of one export into a folder."""

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

    def told(self, one: dict[str, Any]) -> dict[str, Any]:
        """What the manifest says of a file, which is on disk then."""
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
    out: Path, batches: Iterable[Sequence[Fact]], names: Mapping[int, Name], pseudonyms: Pseudonyms, wanted: Wanted
) -> Told:
    """Write an export into a new folder. Raises NoParquet, ExportThere, NothingRecorded or CannotExport; then there is
    nothing at `out`."""
    if os.path.lexists(out):
        raise ExportThere(path=out)
    try:
        with _beside(out) as folder:
            parquet = _Parquet(folder)
            shelf = Shelf(parquet.write)
            writer = Writer(names, pseudonyms, wanted, shelf.put)
            for rows in batches:
                writer.take(rows)
            told = writer.finish()
            told.manifest["files"] = [parquet.told(one) for one in shelf.close()]
            manifest = folder / MANIFEST
            with manifest.open("xb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(told.manifest), indent=1) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            for each in (*(one for one in folder.rglob("*") if one.is_dir()), folder):
                sync_folder(each)
            if os.path.lexists(out):
                raise ExportThere(path=out)
            folder.rename(out)
        sync_folder(out.parent)
    except OSError as error:
        raise CannotExport(path=out, why=(error.strerror or str(error)).lower()) from error
    return told


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A folder beside the one that is wanted, which goes unless it was renamed, with the folders above that had to be
    made for it. Those that were left behind by an export that was killed go too."""
    made = [above for above in out.parents if not above.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f".{out.name}.*{_UNFINISHED}"):
            with suppress(OSError), _held(left):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=_UNFINISHED, dir=out.parent))
        try:
            with _held(folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        with suppress(OSError):
            for above in made:
                above.rmdir()  # fails where something is in it, as after a rename


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Say that a folder is in use. Raises OSError where somebody else has said so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def dry_run(
    say: Callable[[str, Row], None],
    batches: Iterable[Sequence[Fact]],
    names: Mapping[int, Name],
    pseudonyms: Pseudonyms,
    wanted: Wanted,
) -> Told:
    """Say every row that an export would have, with the file that it would be in, and what its manifest would say; of
    the files not how large they are, nor their hashes. Needs no pyarrow."""
    shelf = Shelf(lambda path, kind, rows: None)
    writer = Writer(names, pseudonyms, wanted, lambda kind, day, row: say(shelf.put(kind, day, row), row))
    writer.take(chain.from_iterable(batches))
    told = writer.finish()
    told.manifest["files"] = shelf.close()
    return told
