"""Bronze: exports as they came. Finds them, checks every file against its manifest and its footer, and reads the rest.

Nothing that is wrong stops a run, and nothing is left out in silence: each file that is not used is named with the
reason.
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

from analytics.looks import FILE_BYTES_MAX, MANIFEST_BYTES_MAX, Ahead, Look, footer_bytes
from analytics.pipeline.looking import look_through
from analytics.pipeline.schema import FORMAT, KINDS, KINDS_ADDED, VERSION_KEY, VERSIONS, arrow_types, struct
from analytics.pipeline.store import exactly
from analytics.results import MANIFEST
from analytics.session import first_words

UNPACKED_BYTES_MAX = 2**31
ROWS_MAX = 2**24
ROW_GROUPS_MAX = 2**12
"""Of one file: its rows, what it comes to when it is unpacked, and in how many parts it has them."""
CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
"""What Spark unpacks everywhere, without a library that somebody would have to bring."""
DAY_US = 86_400_000_000
KNOWN = f"{', '.join(map(str, VERSIONS[:-1]))} and {VERSIONS[-1]}"
PATH = re.compile(r"([a-z]{1,20})/date=(\d{4}-\d{2}-\d{2})/[A-Za-z0-9_-][A-Za-z0-9._-]{0,80}\.parquet", re.ASCII)
"""Where a manifest's files are: in a folder for each kind and day. What else it may name is not for us to open."""
WHY_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Aside:
    """A file, or a whole export, that is not used, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of an export, as its manifest tells it."""

    path: str
    kind: str
    rows: int
    size: int
    sha256: str
    day_us: int
    """When its day begins, since 1970."""


@dataclass(slots=True)
class Export:
    """One export as its manifest tells it; `holes` are the days (µs since 1970) of deliveries that were set aside."""

    place: str
    version: int
    """Of its schema."""
    software: str
    together: bool
    study: str
    observer: int
    from_us: int
    to_us: int
    time_unit_us: int
    files: list[Listed] = field(default_factory=list)
    holes: list[int] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Listed]:
        """Its files with facts of this kind."""
        return (file for file in self.files if file.kind == kind)


@dataclass(slots=True)
class Bronze:
    """What can be used of everything below a folder, and what cannot."""

    place: str
    exports: list[Export] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)
    overlapping: set[str] = field(default_factory=set)
    """Places of exports of which another one may tell the same rows (`quality.overlapping`)."""
    observers: dict[str, frozenset[int]] = field(default_factory=dict)
    """Whom the rows of a file are of, by its path, where the look at it has told (`looks.Look`)."""

    def files(self, kind: str) -> Iterator[Listed]:
        for export in self.exports:
            yield from export.of(kind)

    def rows(self, kind: str) -> int:
        return sum(file.rows for file in self.files(kind))

    def read(self, spark: SparkSession, kind: str) -> DataFrame:
        """All rows of a kind of facts, with the schema that is declared for it; what several exports tell, once."""
        rest, twice = (
            [
                file.path
                for export in self.exports
                if (export.place in self.overlapping) is several
                for file in export.of(kind)
            ]
            for several in (False, True)
        )
        table = read_files(spark, kind, rest)
        return table.unionByName(_told_once(spark, kind, twice)) if twice else table

    def leave_out(self, places: Mapping[str, str]) -> None:
        """Set whole exports aside, by their places, with the reason for each."""
        self.aside += [Aside(one.place, places[one.place]) for one in self.exports if one.place in places]
        self.exports = [one for one in self.exports if one.place not in places]

    def fingerprint(self) -> str:
        """The same for the same files with the same content, whatever their order."""
        told = sorted(
            (export.study, export.observer, export.from_us, export.to_us, file.kind, file.sha256, file.path)
            for export in self.exports
            for file in export.files
        )
        return hashlib.sha256(
            json.dumps([told, sorted((one.path, one.why) for one in self.aside)]).encode()
        ).hexdigest()

    def listing(self) -> pa.Table:
        """The table of files: what each is, where it comes from, and whether it is used (`why` is empty)."""
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
        others = [(one.path, "", 0, 0, "", "", "", 0, loaded, one.why) for one in self.aside]
        types = dict.fromkeys(names, pa.string()) | {
            "rows": pa.int64(),
            "bytes": pa.int64(),
            "schema_version": pa.int32(),
        }
        schema = pa.schema([(name, types[name]) for name in names])
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in [*used, *others]], schema=schema)


def read_files(spark: SparkSession, kind: str, paths: Sequence[str]) -> DataFrame:
    """The rows of these files; an empty table where there are none."""
    if not paths:
        return spark.createDataFrame([], struct(kind))
    names = [column.name for column in KINDS[kind]]
    return with_path(spark, kind, paths).select(*names)


def with_path(spark: SparkSession, kind: str, paths: Sequence[str]) -> DataFrame:
    """The same rows, each with its file as `whence`, in words of Spark's own (`plain_path`)."""
    table = spark.read.schema(struct(kind)).parquet(*map(exactly, paths))
    return table.select("*", f.col("_metadata.file_path").alias("whence"))


def _told_once(spark: SparkSession, kind: str, paths: Sequence[str]) -> DataFrame:
    """The rows of files that may tell the same: each as often as that file has it that has it most often. What is there
    twice in one file has happened twice."""
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
    """After Spark has failed: exports that cannot be read to the end, by their places, with the reason; none where
    something else has failed.

    A file that is what its manifest says, and yet has pages that nobody can read, was made so: no disk has done that.
    Looking for such at the beginning would be another reading of everything, so it is looked for when it has hurt.
    """
    broken: dict[str, str] = {}
    for kind in KINDS:
        files = {file.path: export.place for export in found.exports for file in export.of(kind)}
        while files:
            bad = _first_bad(spark, kind, list(files))
            if bad is None:
                break
            path, why = bad
            place = files[path]
            broken.setdefault(place, f"cannot be read to its end: {path.removeprefix(place)[1:]}: {why}")
            files = {path: other for path, other in files.items() if other != place}
    return broken


def _first_bad(spark: SparkSession, kind: str, paths: list[str]) -> tuple[str, str] | None:
    """The first of these files that cannot be read to its end, and why, by halves."""
    try:
        read_files(spark, kind, paths).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError) as error:
        if len(paths) == 1:
            return paths[0], _plain(first_words(error))
        middle = len(paths) // 2
        return _first_bad(spark, kind, paths[:middle]) or _first_bad(spark, kind, paths[middle:])
    return None


def bronze(spark: SparkSession, place: str, ahead: Ahead | None = None) -> Bronze:
    """Look through a folder, if that is not done (`ahead`). Raises NothingToRead when there is no such folder."""
    seen, unseen = look_through(spark, place, ahead)
    found = Bronze(place)
    found.observers = {one.path: one.observers for one in seen.values() if one.observers is not None}
    _take_manifests(seen, unseen, found)
    for export in found.exports:
        _check_files(export, seen, found)
    found.exports.sort(key=lambda export: export.place)
    found.aside.sort(key=lambda one: (one.path, one.why))
    return found


def _plain(text: str) -> str:
    """What somebody else has chosen, as it can stand in a reason: short, of one line, and of characters that there
    are."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:WHY_CHARS_MAX])


# --- manifests --------------------------------------------------------------------------------------------------------


def _take_manifests(seen: Mapping[str, Look], unseen: Mapping[str, str], found: Bronze) -> None:
    """Fill `found` with the exports whose manifests can be used, and with the files that they name."""
    manifests = sorted(path for path in seen if path.rpartition("/")[2] == MANIFEST)
    claimed = set(manifests)
    refused = []
    for path in manifests:
        folder = path.rpartition("/")[0]
        try:
            if seen[path].size > MANIFEST_BYTES_MAX:
                raise _Wrong("is too large for a manifest")
            export = _export_of(folder, seen[path].end)
        except _Wrong as wrong:
            found.aside.append(Aside(path, str(wrong)))
            refused.append(f"{folder}/")
            continue
        kept = []
        for file in export.files:
            if file.path in claimed:
                found.aside.append(Aside(path, f"names {_plain(file.path[-200:])}, which is spoken for"))
            elif file.path not in seen:
                why = unseen.get(file.path, "is named by its manifest, and is not there")
                _set_aside(found, export, file, why)
            elif seen[file.path].size != file.size:
                size = seen[file.path].size
                _set_aside(found, export, file, f"has {size} B where its manifest says {file.size} B")
            else:
                kept.append(file)
            claimed.add(file.path)
        export.files = kept
        found.exports.append(export)
    found.aside += [Aside(path, unseen[path]) for path in unseen.keys() - claimed]
    for path in seen.keys() - claimed:
        whole = any(path.startswith(folder) for folder in refused)
        found.aside.append(
            Aside(path, "belongs to an export that is set aside" if whole else "is named by no manifest")
        )


def _set_aside(found: Bronze, export: Export, file: Listed, why: str) -> None:
    """Name a file that is not used, and remember on which day this observer's deliveries are not known."""
    found.aside.append(Aside(file.path, why))
    if file.kind == "recv":
        export.holes.append(file.day_us)


class _Wrong(Exception):
    """Why a manifest or a footer cannot be used."""


def _export_of(folder: str, content: bytes) -> Export:
    """A manifest, checked. Raises _Wrong."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Wrong("is no JSON") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise _Wrong("is no manifest of zerochat's telemetry")
    version = told.get("schema_version")
    if type(version) is not int or version not in VERSIONS:
        named = _plain(str(version)[:40]) if isinstance(version, str | int) else "none"
        raise _Wrong(f"has schema version {named}, and {KNOWN} are those that are known")
    try:
        together = {"alone": False, "together": True}[told["study"]]
        begin = datetime.fromisoformat(told["from"]).replace(tzinfo=UTC)
        end = datetime.fromisoformat(told["to"]).replace(tzinfo=UTC) + timedelta(days=1)
        exported = datetime.fromisoformat(told["exported_at"])
        if together and exported.tzinfo is not None:
            end = min(end, exported)
        observer, unit = int(told["observer"]), int(told["time_unit_us"])
        study, software = _words(told["study_fingerprint"], 64), _words(told.get("software", ""), 80)
        files = [_file_of(folder, one, version) for one in told["files"]]
        times = (int(begin.timestamp()) * 1_000_000, int(end.timestamp() * 1_000_000))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise _Wrong(f"is not as a manifest is: {type(error).__name__} {_plain(str(error)[:80])}") from error
    if not -(2**63) <= observer < 2**63 or not 1 <= unit <= DAY_US:
        raise _Wrong("is not as a manifest is: a number is out of its range")
    return Export(folder, version, software, together, study, observer, *times, unit, files)


def _file_of(folder: str, told: dict[str, Any], version: int) -> Listed:
    """A file as the manifest tells it. Raises KeyError, TypeError, ValueError."""
    path, kind, sha256 = told["path"], told["kind"], told["sha256"]
    if kind not in KINDS or KINDS_ADDED.get(kind, 1) > version:
        raise ValueError("an unknown kind of facts")
    if not isinstance(sha256, str) or not re.fullmatch("[0-9A-Fa-f]{64}", sha256):
        raise ValueError("a SHA-256 that is none")
    said = PATH.fullmatch(path)
    if said is None or said[1] != kind:
        raise ValueError("a path that leads elsewhere, or is none of an export's")
    day = datetime.fromisoformat(said[2]).replace(tzinfo=UTC)
    rows, size = _number(told["rows"], ROWS_MAX), _number(told["bytes"], FILE_BYTES_MAX)
    return Listed(f"{folder}/{path}", kind, rows, size, sha256.lower(), int(day.timestamp()) * 1_000_000)


def _number(told: object, most: int) -> int:
    if type(told) is not int or not 0 <= told <= most:
        raise ValueError(f"a number of rows or bytes that is none, or more than {most}")
    return told


def _words(told: object, most: int) -> str:
    """A text that is shown as it is. Raises ValueError for one that is none, or would do something to a terminal."""
    if not isinstance(told, str) or not told.isprintable() or len(told) > most:
        raise ValueError("a text that is none")
    return told


# --- files ------------------------------------------------------------------------------------------------------------


def _check_files(export: Export, seen: dict[str, Look], found: Bronze) -> None:
    """Set aside what is not what its manifest says (by SHA-256), or has other columns than are declared."""
    kept = []
    for file in export.files:
        try:
            if seen[file.path].sha256 != file.sha256:
                raise _Wrong("is not the file that its manifest names: its SHA-256 is another")
            _check_footer(file, export.version, seen[file.path].end)
        except _Wrong as wrong:
            _set_aside(found, export, file, str(wrong))
        else:
            kept.append(file)
    export.files = kept


def _check_footer(file: Listed, wanted_version: int, end: bytes) -> None:
    """Raises _Wrong when this is no Parquet file, or one of another schema than its manifest's version has."""
    if not 8 < footer_bytes(end) <= len(end):
        raise _Wrong("is no Parquet file, or not whole")
    try:
        footer = pq.ParquetFile(io.BytesIO(end))
        about, schema = footer.metadata, footer.schema_arrow
        rows, said = about.num_rows, about.metadata or {}
        columns = [(column.name, _type_name(column.type)) for column in schema]
        if about.num_row_groups > ROW_GROUPS_MAX:
            raise _Wrong(f"has more than {ROW_GROUPS_MAX} parts")
        parts = [about.row_group(number) for number in range(about.num_row_groups)]
        cells = [part.column(number) for part in parts for number in range(part.num_columns)]
        paths = [footer.schema.column(number).path for number in range(about.num_columns)]
        if [cell.path_in_schema for cell in cells] != paths * len(parts):
            # Some readers go by the places of columns, and some by their names.
            raise _Wrong("has a foreign schema: its parts have other columns than its schema")
        codecs = {cell.compression for cell in cells}
        unpacked = [cell.total_uncompressed_size for cell in cells]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _Wrong("is no Parquet file, or not whole") from error
    version = said.get(VERSION_KEY, b"none")
    if version != str(wanted_version).encode():
        raise _Wrong(
            f"has schema version {_plain(version[:40].decode(errors='replace'))} where its manifest says "
            f"{wanted_version}"
        )
    there = dict(columns)
    if len(there) < len(columns):
        # Of two columns of one name, engines take different ones, or refuse both.
        raise _Wrong("has a foreign schema: it has two columns of one name")
    wanted = arrow_types(file.kind, wanted_version)
    lacking = sorted(wanted.keys() - there.keys())
    further = sorted(there.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & there.keys() if wanted[name] != there[name])
    for what, names in (("lacks", lacking), ("has in excess", further), ("has with another type", other)):
        if names:
            raise _Wrong(f"has a foreign schema: it {what} {_plain(', '.join(names))}")
    if rows != file.rows or rows != sum(part.num_rows for part in parts):
        raise _Wrong(f"has {rows} rows where its manifest says {file.rows}")
    if sum(unpacked) > UNPACKED_BYTES_MAX or min(unpacked, default=0) < 0:
        raise _Wrong(f"has more than {UNPACKED_BYTES_MAX} B when it is unpacked")
    if codecs - CODECS:
        raise _Wrong(f"is compressed in a way that is not read here: {', '.join(sorted(codecs - CODECS))}")


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    return str(kind)
