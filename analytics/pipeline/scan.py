"""Scans the files of exports (`analytics/file_scan.py`): locally, or with Spark if they are elsewhere."""

from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.errors import InputUnreadable
from analytics.file_scan import (
    FILE_BYTES_MAX,
    MANIFEST_BYTES_MAX,
    TAIL_BYTES,
    TAIL_BYTES_MAX,
    TOO_LARGE,
    BackgroundScan,
    FileScan,
    Scans,
    background_scan,
    footer_bytes,
)
from analytics.pipeline.store import escape_glob, normalise_path
from analytics.results import MANIFEST
from analytics.session import first_line

TOGETHER_BYTES_MAX = 2**24
"""Larger files are scanned one after the other: Spark needs several times their size in memory."""


def scan_exports(spark: SparkSession, place: str, ahead: BackgroundScan | None = None) -> Scans:
    """The scans of all files below a folder; a scan may be running already. Raises InputUnreadable if there is no
    folder."""
    try:
        folder = local_folder(spark, place)
    except (PySparkException, Py4JError) as error:
        raise InputUnreadable(place=place, why=first_line(error)) from error
    if folder is not None and (ahead is None or ahead.folder != folder):
        with background_scan(folder) as ahead:
            found = ahead.result() if ahead is not None else None
    else:
        found = ahead.result() if folder is not None and ahead is not None else None
    return _scan_in_spark(spark, place) if found is None else found


def local_folder(spark: SparkSession, place: str) -> Path | None:
    """The local path if the folder is on this machine and Spark runs locally; otherwise None."""
    if not spark.sparkContext.master.startswith("local["):
        return None
    path = spark._jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    whole = files.makeQualified(path).toUri()
    return Path(whole.getPath()) if whole.getScheme() == "file" else None


def _scan_in_spark(spark: SparkSession, place: str) -> Scans:
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(escape_glob(place))
        sizes = {normalise_path(row["path"]): int(row["length"]) for row in files.select("path", "length").collect()}
        seen = {one.path: one for one in _scans(files, TAIL_BYTES, max(sizes.values(), default=0))}
    except PySparkException as error:
        # The first line states the cause.
        raise InputUnreadable(place=place, why=first_line(error)) from error
    longer = [one.path for one in seen.values() if TAIL_BYTES < footer_bytes(one.end) <= TAIL_BYTES_MAX]
    if longer:
        files = spark.read.format("binaryFile").load([*map(escape_glob, longer)])
        seen |= {one.path: one for one in _scans(files, TAIL_BYTES_MAX, max(seen[path].size for path in longer))}
    return seen, dict.fromkeys(sizes.keys() - seen.keys(), TOO_LARGE.format(most=FILE_BYTES_MAX))


def _scans(files: DataFrame, tail: int, largest: int) -> Iterator[FileScan]:
    """Scans of the files that are not too large; `largest`: size of the largest."""
    length = f.col("length")
    if largest:
        yield from _scan_batch(files.where(length <= TOGETHER_BYTES_MAX), tail)
    if largest > TOGETHER_BYTES_MAX:
        alone = files.where((length > TOGETHER_BYTES_MAX) & (length <= FILE_BYTES_MAX))
        yield from _scan_batch(alone.coalesce(1), tail)


def _scan_batch(files: DataFrame, tail: int) -> Iterator[FileScan]:
    wanted = f.when(f.col("path").endswith(f"/{MANIFEST}"), MANIFEST_BYTES_MAX).otherwise(tail)
    begin = f.greatest(f.lit(1), f.length("content") - wanted + 1)
    rows = files.select(
        "path", "length", f.sha2("content", 256).alias("sha256"), f.substring("content", begin, wanted).alias("end")
    ).collect()
    return (FileScan(normalise_path(row["path"]), int(row["length"]), row["sha256"], bytes(row["end"])) for row in rows)
