"""Bronze: finds exports, validates every file against its manifest and footer, reads the rest.

Invalid input never stops a run: each skipped file is listed with the reason.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.file_scan import FILE_BYTES_MAX, MANIFEST_BYTES_MAX, BackgroundScan, FileScan, footer_bytes
from analytics.pipeline.scan import scan_exports
from analytics.pipeline.schema import FORMAT, KINDS, VERSION, VERSION_KEY, arrow_types, struct
from analytics.pipeline.store import escape_glob
from analytics.results import MANIFEST
from analytics.session import first_line

UNPACKED_BYTES_MAX = 2**31
ROWS_MAX = 2**24
ROW_GROUPS_MAX = 2**12
"""Limits of one file: rows, decompressed size, row groups."""
CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
"""Codecs that Spark supports everywhere."""
DAY_US = 86_400_000_000
PATH = re.compile(r"([a-z]{1,20})/date=(\d{4}-\d{2}-\d{2})/[A-Za-z0-9_-][A-Za-z0-9._-]{0,80}\.parquet", re.ASCII)
"""Paths of a manifest's files: a folder per kind and day. Other paths are not opened."""
WHY_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file or export that is not used, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file of an export, as listed in its manifest."""

    path: str
    kind: str
    rows: int
    size: int
    sha256: str
    day_us: int
    """Start of its day, µs since 1970."""


@dataclass(slots=True)
class Export:
    """An export, as described by its manifest; `missing_days`: days (µs since 1970) whose receipts were rejected."""

    place: str
    version: int
    """Schema version."""
    software: str
    shared: bool
    study: str
    observer: int
    from_us: int
    to_us: int
    time_unit_us: int
    files: list[ExportFile] = field(default_factory=list)
    missing_days: list[int] = field(default_factory=list)

    def of_kind(self, kind: str) -> Iterator[ExportFile]:
        """Its files of this record kind."""
        return (file for file in self.files if file.kind == kind)


@dataclass(slots=True)
class Bronze:
    """The usable and the rejected input below a folder."""

    place: str
    exports: list[Export] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    overlapping: set[str] = field(default_factory=set)
    """Places of exports that may share rows with another one (`quality.overlapping`)."""
    observers: dict[str, frozenset[int]] = field(default_factory=dict)
    """Observers of a file's rows by path, if the scan found them (`file_scan.FileScan`)."""

    def files(self, kind: str) -> Iterator[ExportFile]:
        for export in self.exports:
            yield from export.of_kind(kind)

    def rows(self, kind: str) -> int:
        return sum(file.rows for file in self.files(kind))

    def read(self, spark: SparkSession, kind: str) -> DataFrame:
        """All rows of a record kind with the declared schema; rows of several exports only once."""
        rest, twice = (
            [
                file.path
                for export in self.exports
                if (export.place in self.overlapping) is several
                for file in export.of_kind(kind)
            ]
            for several in (False, True)
        )
        table = read_files(spark, kind, rest)
        return table.unionByName(_deduplicated(spark, kind, twice)) if twice else table

    def reject(self, places: Mapping[str, str]) -> None:
        """Reject whole exports by place, with the reasons."""
        self.rejected += [Rejected(one.place, places[one.place]) for one in self.exports if one.place in places]
        self.exports = [one for one in self.exports if one.place not in places]

    def fingerprint(self) -> str:
        """A hash that is equal for the same files with the same content, in any order."""
        told = sorted(
            (export.study, export.observer, export.from_us, export.to_us, file.kind, file.sha256, file.path)
            for export in self.exports
            for file in export.files
        )
        return hashlib.sha256(
            json.dumps([told, sorted((one.path, one.why) for one in self.rejected)]).encode()
        ).hexdigest()

    def listing(self) -> pa.Table:
        """The table of files: description, origin, and whether it is used (`why` is empty)."""
        loaded = datetime.now(UTC).replace(microsecond=0).isoformat()
        used = [
            (
                file.path,
                file.kind,
                file.rows,
                file.size,
                file.sha256,
                export.place,
                export.study,
                export.version,
                loaded,
                "",
            )
            for export in self.exports
            for file in export.files
        ]
        names = ["path", "kind", "rows", "bytes", "sha256", "export", "study", "schema_version", "loaded_at", "why"]
        others = [(one.path, "", 0, 0, "", "", "", 0, loaded, one.why) for one in self.rejected]
        types = dict.fromkeys(names, pa.string()) | {
            "rows": pa.int64(),
            "bytes": pa.int64(),
            "schema_version": pa.int32(),
        }
        schema = pa.schema([(name, types[name]) for name in names])
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in [*used, *others]], schema=schema)


def read_files(spark: SparkSession, kind: str, paths: Sequence[str]) -> DataFrame:
    """The rows of these files; an empty table if there are none."""
    if not paths:
        return spark.createDataFrame([], struct(kind))
    names = [column.name for column in KINDS[kind]]
    return with_path(spark, kind, paths).select(*names)


def with_path(spark: SparkSession, kind: str, paths: Sequence[str]) -> DataFrame:
    """The same rows with their file as `whence`, in Spark's notation (`decode_path`)."""
    table = spark.read.schema(struct(kind)).parquet(*map(escape_glob, paths))
    return table.select("*", f.col("_metadata.file_path").alias("whence"))


def _deduplicated(spark: SparkSession, kind: str, paths: Sequence[str]) -> DataFrame:
    """The rows of files that may share rows: each as often as in the file that has it most often. Duplicates within one
    file are real."""
    names = [column.name for column in KINDS[kind]]
    return (
        with_path(spark, kind, paths)
        .groupBy(*names, "whence")
        .agg(f.count(f.lit(1)).cast("int").alias("times"))
        .groupBy(*names)
        .agg(f.max("times").alias("times"))
        .withColumn("times", f.explode(f.sequence(f.lit(1), f.col("times"))))
        .select(*names)
    )


def unreadable(spark: SparkSession, found: Bronze) -> dict[str, str]:
    """After a failure of Spark: exports that cannot be read completely, by place, with the reason; none if something
    else failed.

    A file that matches its manifest and still has unreadable pages was made so. Checking for that in advance would read
    everything twice.
    """
    broken: dict[str, str] = {}
    for kind in KINDS:
        files = {file.path: export.place for export in found.exports for file in export.of_kind(kind)}
        while files:
            bad = _first_unreadable(spark, kind, list(files))
            if bad is None:
                break
            path, why = bad
            place = files[path]
            broken.setdefault(place, f"cannot be read to its end: {path.removeprefix(place)[1:]}: {why}")
            files = {path: other for path, other in files.items() if other != place}
    return broken


def _first_unreadable(spark: SparkSession, kind: str, paths: list[str]) -> tuple[str, str] | None:
    """The first of these files that cannot be read completely, and why, by bisection."""
    try:
        read_files(spark, kind, paths).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError) as error:
        if len(paths) == 1:
            return paths[0], _printable(first_line(error))
        middle = len(paths) // 2
        return _first_unreadable(spark, kind, paths[:middle]) or _first_unreadable(spark, kind, paths[middle:])
    return None


def scan_bronze(spark: SparkSession, place: str, ahead: BackgroundScan | None = None) -> Bronze:
    """Scan a folder, unless that is done (`ahead`). Raises InputUnreadable if there is no such folder."""
    seen, unseen = scan_exports(spark, place, ahead)
    found = Bronze(place)
    found.observers = {one.path: one.observers for one in seen.values() if one.observers is not None}
    _read_manifests(seen, unseen, found)
    for export in found.exports:
        _check_files(export, seen, found)
    found.exports.sort(key=lambda export: export.place)
    found.rejected.sort(key=lambda one: (one.path, one.why))
    return found


def _printable(text: str) -> str:
    """Text of others as part of a reason: short, one line, printable."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:WHY_CHARS_MAX])


# --- manifests --------------------------------------------------------------------------------------------------------


def _read_manifests(seen: Mapping[str, FileScan], unseen: Mapping[str, str], found: Bronze) -> None:
    """Fill `found` with the exports that have a valid manifest, and their files."""
    manifests = sorted(path for path in seen if path.rpartition("/")[2] == MANIFEST)
    claimed = set(manifests)
    refused = []
    for path in manifests:
        folder = path.rpartition("/")[0]
        try:
            if seen[path].size > MANIFEST_BYTES_MAX:
                raise _Invalid("is too large for a manifest")
            export = _parse_manifest(folder, seen[path].end)
        except _Invalid as wrong:
            found.rejected.append(Rejected(path, str(wrong)))
            refused.append(f"{folder}/")
            continue
        kept = []
        for file in export.files:
            if file.path in claimed:
                found.rejected.append(
                    Rejected(path, f"names {_printable(file.path[-200:])}, which another manifest lists")
                )
            elif file.path not in seen:
                why = unseen.get(file.path, "is listed in its manifest but missing")
                _reject_file(found, export, file, why)
            elif seen[file.path].size != file.size:
                size = seen[file.path].size
                _reject_file(found, export, file, f"has {size} bytes, but its manifest says {file.size}")
            else:
                kept.append(file)
            claimed.add(file.path)
        export.files = kept
        found.exports.append(export)
    found.rejected += [Rejected(path, unseen[path]) for path in unseen.keys() - claimed]
    for path in seen.keys() - claimed:
        whole = any(path.startswith(folder) for folder in refused)
        found.rejected.append(Rejected(path, "belongs to a rejected export" if whole else "is in no manifest"))


def _reject_file(found: Bronze, export: Export, file: ExportFile, why: str) -> None:
    """Reject a file, and record the day if it has receipts."""
    found.rejected.append(Rejected(file.path, why))
    if file.kind == "recv":
        export.missing_days.append(file.day_us)


class _Invalid(Exception):
    """Why a manifest or footer is invalid."""


def _parse_manifest(folder: str, content: bytes) -> Export:
    """A validated manifest. Raises _Invalid."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Invalid("is not JSON") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise _Invalid("is not a telemetry manifest")
    version = told.get("schema_version")
    if type(version) is not int or version != VERSION:
        named = _printable(str(version)[:40]) if isinstance(version, str | int) else "none"
        raise _Invalid(f"has schema version {named}; the supported version is {VERSION}")
    try:
        together = {"single": False, "shared": True}[told["study"]]
        begin = datetime.fromisoformat(told["from"]).replace(tzinfo=UTC)
        end = datetime.fromisoformat(told["to"]).replace(tzinfo=UTC) + timedelta(days=1)
        exported = datetime.fromisoformat(told["exported_at"])
        if together and exported.tzinfo is not None:
            end = min(end, exported)
        observer, unit = int(told["observer"]), int(told["time_unit_us"])
        study, software = _parse_text(told["study_fingerprint"], 64), _parse_text(told.get("software", ""), 80)
        files = [_parse_file(folder, one) for one in told["files"]]
        times = (int(begin.timestamp()) * 1_000_000, int(end.timestamp() * 1_000_000))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise _Invalid(f"is an invalid manifest: {type(error).__name__} {_printable(str(error)[:80])}") from error
    if not -(2**63) <= observer < 2**63 or not 1 <= unit <= DAY_US:
        raise _Invalid("is an invalid manifest: a number is out of range")
    return Export(folder, version, software, together, study, observer, *times, unit, files)


def _parse_file(folder: str, told: dict[str, Any]) -> ExportFile:
    """A file entry of a manifest. Raises KeyError, TypeError, ValueError."""
    path, kind, sha256 = told["path"], told["kind"], told["sha256"]
    if kind not in KINDS:
        raise ValueError("an unknown record kind")
    if not isinstance(sha256, str) or not re.fullmatch("[0-9A-Fa-f]{64}", sha256):
        raise ValueError("an invalid SHA-256")
    said = PATH.fullmatch(path)
    if said is None or said[1] != kind:
        raise ValueError("an invalid path")
    day = datetime.fromisoformat(said[2]).replace(tzinfo=UTC)
    rows, size = _parse_number(told["rows"], ROWS_MAX), _parse_number(told["bytes"], FILE_BYTES_MAX)
    return ExportFile(f"{folder}/{path}", kind, rows, size, sha256.lower(), int(day.timestamp()) * 1_000_000)


def _parse_number(told: object, most: int) -> int:
    if type(told) is not int or not 0 <= told <= most:
        raise ValueError(f"an invalid number of rows or bytes, or more than {most}")
    return told


def _parse_text(told: object, most: int) -> str:
    """A text that is safe to print. Raises ValueError."""
    if not isinstance(told, str) or not told.isprintable() or len(told) > most:
        raise ValueError("an invalid text")
    return told


# --- files ------------------------------------------------------------------------------------------------------------


def _check_files(export: Export, seen: dict[str, FileScan], found: Bronze) -> None:
    """Reject files with another SHA-256 or schema than declared."""
    kept = []
    for file in export.files:
        try:
            if seen[file.path].sha256 != file.sha256:
                raise _Invalid("has another SHA-256 than in its manifest")
            _check_footer(file, export.version, seen[file.path].end)
        except _Invalid as wrong:
            _reject_file(found, export, file, str(wrong))
        else:
            kept.append(file)
    export.files = kept


def _check_footer(file: ExportFile, wanted_version: int, end: bytes) -> None:
    """Raises _Invalid unless this is a Parquet file with the schema of its manifest's version."""
    if not 8 < footer_bytes(end) <= len(end):
        raise _Invalid("is not a complete Parquet file")
    try:
        footer = pq.ParquetFile(io.BytesIO(end))
        about, schema = footer.metadata, footer.schema_arrow
        rows, said = about.num_rows, about.metadata or {}
        columns = [(column.name, _type_name(column.type)) for column in schema]
        if about.num_row_groups > ROW_GROUPS_MAX:
            raise _Invalid(f"has more than {ROW_GROUPS_MAX} row groups")
        parts = [about.row_group(number) for number in range(about.num_row_groups)]
        cells = [part.column(number) for part in parts for number in range(part.num_columns)]
        paths = [footer.schema.column(number).path for number in range(about.num_columns)]
        if [cell.path_in_schema for cell in cells] != paths * len(parts):
            # Some readers use column positions, others names.
            raise _Invalid("has another schema: its row groups differ from it")
        codecs = {cell.compression for cell in cells}
        unpacked = [cell.total_uncompressed_size for cell in cells]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _Invalid("is not a complete Parquet file") from error
    version = said.get(VERSION_KEY, b"none")
    if version != str(wanted_version).encode():
        raise _Invalid(
            f"has schema version {_printable(version[:40].decode(errors='replace'))}, but its manifest says "
            f"{wanted_version}"
        )
    there = dict(columns)
    if len(there) < len(columns):
        # With duplicate column names, engines choose different columns or refuse.
        raise _Invalid("has another schema: it has duplicate columns")
    wanted = arrow_types(file.kind)
    lacking = sorted(wanted.keys() - there.keys())
    further = sorted(there.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & there.keys() if wanted[name] != there[name])
    for what, names in (("lacks", lacking), ("has additional", further), ("has another type of", other)):
        if names:
            raise _Invalid(f"has another schema: it {what} {_printable(', '.join(names))}")
    if rows != file.rows or rows != sum(part.num_rows for part in parts):
        raise _Invalid(f"has {rows} rows, but its manifest says {file.rows}")
    if sum(unpacked) > UNPACKED_BYTES_MAX or min(unpacked, default=0) < 0:
        raise _Invalid(f"is larger than {UNPACKED_BYTES_MAX} bytes decompressed")
    if codecs - CODECS:
        raise _Invalid(f"uses an unsupported codec: {', '.join(sorted(codecs - CODECS))}")


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    return str(kind)
