"""A look at each file (`analytics/looks.py`): here, where they are on this machine; else by Spark, where they are."""

from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.errors import NothingToRead
from analytics.looks import (
    FILE_BYTES_MAX,
    MANIFEST_BYTES_MAX,
    TAIL_BYTES,
    TAIL_BYTES_MAX,
    TOO_LARGE,
    Ahead,
    Look,
    Looks,
    footer_bytes,
    looking_ahead,
)
from analytics.pipeline.store import exactly, one_form
from analytics.results import MANIFEST
from analytics.session import first_words

TOGETHER_BYTES_MAX = 2**24
"""Larger files are looked at one after the other: Spark holds a file that it looks at in memory several times over."""


def look_through(spark: SparkSession, place: str, ahead: Ahead | None = None) -> Looks:
    """All files below a folder, at which there may be a look already. Raises NothingToRead when there is no folder."""
    try:
        folder = here(spark, place)
    except (PySparkException, Py4JError) as error:
        raise NothingToRead(place=place, why=first_words(error)) from error
    if folder is not None and (ahead is None or ahead.folder != folder):
        with looking_ahead(folder) as ahead:
            found = ahead.result() if ahead is not None else None
    else:
        found = ahead.result() if folder is not None and ahead is not None else None
    return _in_spark(spark, place) if found is None else found


def here(spark: SparkSession, place: str) -> Path | None:
    """A place as a path, where it is on this machine and nothing is done on others; else None."""
    if not spark.sparkContext.master.startswith("local["):
        return None
    path = spark._jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    whole = files.makeQualified(path).toUri()
    return Path(whole.getPath()) if whole.getScheme() == "file" else None


def _in_spark(spark: SparkSession, place: str) -> Looks:
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(exactly(place))
        sizes = {one_form(row["path"]): int(row["length"]) for row in files.select("path", "length").collect()}
        seen = {one.path: one for one in _looks(files, TAIL_BYTES, max(sizes.values(), default=0))}
    except PySparkException as error:
        # Whatever stood in the way, its first line says so.
        raise NothingToRead(place=place, why=first_words(error)) from error
    longer = [one.path for one in seen.values() if TAIL_BYTES < footer_bytes(one.end) <= TAIL_BYTES_MAX]
    if longer:
        files = spark.read.format("binaryFile").load([*map(exactly, longer)])
        seen |= {one.path: one for one in _looks(files, TAIL_BYTES_MAX, max(seen[path].size for path in longer))}
    return seen, dict.fromkeys(sizes.keys() - seen.keys(), TOO_LARGE.format(most=FILE_BYTES_MAX))


def _looks(files: DataFrame, tail: int, largest: int) -> Iterator[Look]:
    """One look at each file that is not too large for one; `largest`: the bytes of the largest."""
    length = f.col("length")
    if largest:
        yield from _looks_at(files.where(length <= TOGETHER_BYTES_MAX), tail)
    if largest > TOGETHER_BYTES_MAX:
        alone = files.where((length > TOGETHER_BYTES_MAX) & (length <= FILE_BYTES_MAX))
        yield from _looks_at(alone.coalesce(1), tail)


def _looks_at(files: DataFrame, tail: int) -> Iterator[Look]:
    wanted = f.when(f.col("path").endswith(f"/{MANIFEST}"), MANIFEST_BYTES_MAX).otherwise(tail)
    begin = f.greatest(f.lit(1), f.length("content") - wanted + 1)
    rows = files.select(
        "path", "length", f.sha2("content", 256).alias("sha256"), f.substring("content", begin, wanted).alias("end")
    ).collect()
    return (Look(one_form(row["path"]), int(row["length"]), row["sha256"], bytes(row["end"])) for row in rows)
