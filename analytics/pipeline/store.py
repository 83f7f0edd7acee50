"""Files of a run, wherever they are: paths go to Hadoop as they come, and a folder and an object store look alike."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from analytics.errors import CannotWrite

GLOB = "\\{}[]*?,"
"""What Hadoop would take for a pattern in a path that somebody has named so."""


def exactly(path: str) -> str:
    """A path that means itself, also where Hadoop expects patterns."""
    return "".join(f"\\{char}" if char in GLOB else char for char in path)


SLASHES = "^([A-Za-z0-9.+-]+):/+"


def one_form(path: str) -> str:
    """A path as another part of Spark writes it: `file:///x` and `file:/x` are one."""
    return re.sub(SLASHES, r"\1:/", path)


def plain_path(whence: str) -> str:
    """A file's path as we have it, from how `read.with_path` has it."""
    return one_form(unquote(whence))


class Store:
    """The folder that a run writes: tables as Parquet, by layer and name, and a few files of text.

    Layout: LAYER/NAME/*.parquet, run.json, quality.json.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark = spark
        self.place = place.rstrip("/") or "/"
        self._hadoop = spark._jvm.org.apache.hadoop
        path = self._path("")
        self._files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        self.place = str(self._files.makeQualified(path).toString())
        # Parquet has checksums of its own, and run.json may be looked at with an editor: no file beside every file.
        self._files.setWriteChecksum(False)

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.place}/{name}" if name else self.place)

    def table(self, layer: str, name: str) -> DataFrame:
        return self._spark.read.parquet(exactly(f"{self.place}/{layer}/{name}"))

    def has_table(self, layer: str, name: str) -> bool:
        """Whether it is there, and whole."""
        return bool(self._files.exists(self._path(f"{layer}/{name}/_SUCCESS")))

    def write(self, layer: str, name: str, table: DataFrame, files: int = 1) -> DataFrame:
        """Write a table in place of the one before, and give what is there now. `files` 0: as many as there are."""
        place = f"{self.place}/{layer}/{name}"
        (table.coalesce(files) if files else table).write.mode("overwrite").parquet(place)
        return self._spark.read.schema(table.schema).parquet(exactly(place))

    def is_empty(self) -> bool:
        """Whether there is nothing, or only what a run has left that was killed while it wrote its first words."""
        if not self._files.exists(self._path("")):
            return True
        names = {file.getPath().getName() for file in self._files.listStatus(self._path(""))}
        return names <= {_beside("run.json")}

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What was written under this name; None where nothing was, or not by us. Where a writer was killed when what
        was there had gone, and what it had written had no name yet, that is it."""
        return next((said for each in (name, _beside(name)) if (said := self._read(each)) is not None), None)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        try:
            said = json.loads(text)
        except ValueError:
            return None
        return said if isinstance(said, dict) else None

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Whole or not at all: it is written beside, and then takes the place of what was there."""
        beside, path = self._path(_beside(name)), self._path(name)
        stream = self._files.create(beside, True)
        try:
            stream.write(bytearray(json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"))
        finally:
            stream.close()
        if self._files.getUri().getScheme() == "file":
            Path(beside.toUri().getPath()).replace(path.toUri().getPath())
            return
        # Hadoop gives no file a name that is taken. Until it has it, `read_json` finds it beside.
        self._files.delete(path, False)
        if not self._files.rename(beside, path):
            raise CannotWrite(place=f"{self.place}/{name}", why="what was written beside it cannot be renamed")


def _beside(name: str) -> str:
    return f"_{name}.new"
