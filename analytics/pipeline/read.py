"""Bronze: exports as they came. Finds them, checks every file against its manifest and its footer, and reads the rest.

Nothing that is wrong stops a run, and nothing is left out in silence: each file that is not used is named with the
reason. Checksums are made where the files are, by Spark; of a file's content only its end, which says what is in it,
comes here.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.errors import NothingToRead
from analytics.pipeline.schema import FORMAT, KINDS, VERSION_KEY, VERSIONS, arrow_types, struct
from analytics.pipeline.store import exactly

MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 16 * 2**20
FILE_BYTES_MAX = 2**30
TAIL_BYTES, TAIL_BYTES_MAX = 16 * 2**10, 4 * 2**20
"""How much of a file's end is looked at for its footer: of all, and then of those whose footer is longer."""
DAY_US = 86_400_000_000
KNOWN = " and ".join(map(str, VERSIONS))
DAY = re.compile(r"/date=(\d{4}-\d{2}-\d{2})/")


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


@dataclass(slots=True)
class Bronze:
    """What can be used of everything below a folder, and what cannot."""

    place: str
    exports: list[Export] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)

    def files(self, kind: str) -> Iterator[Listed]:
        for export in self.exports:
            yield from (file for file in export.files if file.kind == kind)

    def rows(self, kind: str) -> int:
        return sum(file.rows for file in self.files(kind))

    def read(self, spark: SparkSession, kind: str) -> DataFrame:
        """All rows of a kind of facts, with the schema that is declared for it."""
        return read_files(spark, kind, [file.path for file in self.files(kind)])

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
    return spark.read.schema(struct(kind)).parquet(*map(exactly, paths)).select(*names)


def bronze(spark: SparkSession, place: str) -> Bronze:
    """Look through a folder. Raises NothingToRead when there is no such folder."""
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(exactly(place))
        names = {one_form(unquote(path)) for path in files.inputFiles()}
        seen = {one.path: one for one in _looks(files, TAIL_BYTES)} if names else {}
    except PySparkException as error:
        # Whatever stood in the way, its first line says so.
        raise NothingToRead(place=place, why=_first_line(error)) from error
    longer = [one.path for one in seen.values() if TAIL_BYTES < _footer_bytes(one.end) <= TAIL_BYTES_MAX]
    if longer:
        files = spark.read.format("binaryFile").load([*map(exactly, longer)])
        seen |= {one.path: one for one in _looks(files, TAIL_BYTES_MAX)}
    found = Bronze(place)
    found.aside += [Aside(path, f"has more than {FILE_BYTES_MAX} B") for path in names - seen.keys()]
    _take_manifests(seen, found)
    for export in found.exports:
        _check_files(export, seen, found)
    found.exports.sort(key=lambda export: export.place)
    found.aside.sort(key=lambda one: (one.path, one.why))
    return found


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to know of a file before it is read: `end` are its last bytes, or all of a manifest."""

    path: str
    size: int
    sha256: str
    end: bytes


def _looks(files: DataFrame, tail: int) -> Iterator[Look]:
    """One look at each file that is not too large for one."""
    wanted = f.when(f.col("path").endswith(f"/{MANIFEST}"), MANIFEST_BYTES_MAX).otherwise(tail)
    begin = f.greatest(f.lit(1), f.length("content") - wanted + 1)
    rows = (
        files.where(f.col("length") <= FILE_BYTES_MAX)
        .select(
            "path", "length", f.sha2("content", 256).alias("sha256"), f.substring("content", begin, wanted).alias("end")
        )
        .collect()
    )
    return (Look(one_form(row["path"]), int(row["length"]), row["sha256"], bytes(row["end"])) for row in rows)


SLASHES = "^([A-Za-z0-9.+-]+):/+"


def one_form(path: str) -> str:
    """A path as another part of Spark writes it: `file:///x` and `file:/x` are one."""
    return re.sub(SLASHES, r"\1:/", path)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


# --- manifests --------------------------------------------------------------------------------------------------------


def _take_manifests(seen: dict[str, Look], found: Bronze) -> None:
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
                found.aside.append(Aside(path, f"names {file.path[-200:]}, which is spoken for"))
            elif file.path not in seen:
                _set_aside(found, export, file, "is named by its manifest, and is not there")
            elif seen[file.path].size != file.size:
                size = seen[file.path].size
                _set_aside(found, export, file, f"has {size} B where its manifest says {file.size} B")
            else:
                kept.append(file)
            claimed.add(file.path)
        export.files = kept
        found.exports.append(export)
    for path in seen.keys() - claimed:
        whole = any(path.startswith(folder) for folder in refused)
        found.aside.append(
            Aside(path, "belongs to an export that is set aside" if whole else "is named by no manifest")
        )


def _set_aside(found: Bronze, export: Export, file: Listed, why: str) -> None:
    """Name a file that is not used, and remember on which day this observer's deliveries are not known."""
    found.aside.append(Aside(file.path, why))
    day = DAY.search(file.path)
    if file.kind == "recv" and day:
        midnight = datetime.fromisoformat(day[1]).replace(tzinfo=UTC)
        export.holes.append(int(midnight.timestamp()) * 1_000_000)


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
    if version not in VERSIONS or type(version) is not int:
        raise _Wrong(f"has schema version {str(version)[:40]}, and {KNOWN} are those that are known")
    try:
        together = {"alone": False, "together": True}[told["study"]]
        begin = datetime.fromisoformat(told["from"]).replace(tzinfo=UTC)
        end = datetime.fromisoformat(told["to"]).replace(tzinfo=UTC) + timedelta(days=1)
        exported = datetime.fromisoformat(told["exported_at"])
        if together and exported.tzinfo is not None:
            end = min(end, exported)
        observer, unit = int(told["observer"]), int(told["time_unit_us"])
        study = str(told["study_fingerprint"])[:64]
        files = [_file_of(folder, one) for one in told["files"]]
        software = str(told.get("software", ""))[:80]
        times = (int(begin.timestamp()) * 1_000_000, int(end.timestamp() * 1_000_000))
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise _Wrong(f"is not as a manifest is: {type(error).__name__} {str(error)[:80]}") from error
    if not -(2**63) <= observer < 2**63 or not 1 <= unit <= DAY_US:
        raise _Wrong("is not as a manifest is: a number is out of its range")
    return Export(folder, version, software, together, study, observer, *times, unit, files)


def _file_of(folder: str, told: dict[str, Any]) -> Listed:
    """A file as the manifest tells it. Raises KeyError, TypeError, ValueError."""
    path, kind, sha256 = told["path"], told["kind"], told["sha256"]
    if not (isinstance(path, str) and isinstance(sha256, str)) or ".." in path.split("/") or path.startswith("/"):
        raise ValueError("a path that leads elsewhere")
    if kind not in KINDS:
        raise ValueError("an unknown kind of facts")
    return Listed(f"{folder}/{path}", kind, int(told["rows"]), int(told["bytes"]), sha256.lower())


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


def _footer_bytes(end: bytes) -> int:
    """The length of a footer with the two words that follow it, as the file itself says."""
    return int.from_bytes(end[-8:-4], "little") + 8 if len(end) >= 8 and end.endswith(b"PAR1") else 0


def _check_footer(file: Listed, wanted_version: int, end: bytes) -> None:
    """Raises _Wrong when this is no Parquet file, or one of another schema than its manifest's version has."""
    if not 8 < _footer_bytes(end) <= len(end):
        raise _Wrong("is no Parquet file, or not whole")
    try:
        footer = pq.ParquetFile(io.BytesIO(end))
        schema, rows, said = footer.schema_arrow, footer.metadata.num_rows, footer.metadata.metadata or {}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _Wrong("is no Parquet file, or not whole") from error
    version = said.get(VERSION_KEY, b"none")
    if version != str(wanted_version).encode():
        raise _Wrong(
            f"has schema version {version[:40].decode(errors='replace')} where its manifest says {wanted_version}"
        )
    there = {column.name: _type_name(column.type) for column in schema}
    wanted = arrow_types(file.kind, wanted_version)
    lacking = sorted(wanted.keys() - there.keys())
    further = sorted(there.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & there.keys() if wanted[name] != there[name])
    for what, names in (("lacks", lacking), ("has in excess", further), ("has with another type", other)):
        if names:
            raise _Wrong(f"has a foreign schema: it {what} {', '.join(names)[:200]}")
    if rows != file.rows:
        raise _Wrong(f"has {rows} rows where its manifest says {file.rows}")


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    return str(kind)
