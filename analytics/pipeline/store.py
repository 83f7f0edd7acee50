"""Files of a run on any Hadoop file system: local folder or object store."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from analytics.errors import CannotWrite

GLOB = "\\{}[]*?,"
"""Characters that Hadoop interprets as a pattern."""


def escape_glob(path: str) -> str:
    """The path with pattern characters escaped."""
    return "".join(f"\\{char}" if char in GLOB else char for char in path)


SLASHES = "^([A-Za-z0-9.+-]+):/+"


def normalise_path(path: str) -> str:
    """One notation for a path: Spark writes both `file:///x` and `file:/x`."""
    return re.sub(SLASHES, r"\1:/", path)


def decode_path(whence: str) -> str:
    """A file's path from the notation of `read.with_path`."""
    return normalise_path(unquote(whence))


class Store:
    """The output folder: tables as Parquet, and JSON files.

    Layout: LAYER/NAME/*.parquet, run.json, quality.json.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark = spark
        self.place = place.rstrip("/") or "/"
        self._hadoop = spark._jvm.org.apache.hadoop
        path = self._path("")
        self._files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        self.place = str(self._files.makeQualified(path).toString())
        # Parquet has its own checksums, and run.json may be edited: write no checksum files.
        self._files.setWriteChecksum(False)

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.place}/{name}" if name else self.place)

    def table(self, layer: str, name: str) -> DataFrame:
        return self._spark.read.parquet(escape_glob(f"{self.place}/{layer}/{name}"))

    def has_table(self, layer: str, name: str) -> bool:
        """Whether the table is complete."""
        return bool(self._files.exists(self._path(f"{layer}/{name}/_SUCCESS")))

    def write(self, layer: str, name: str, table: DataFrame, files: int = 1) -> DataFrame:
        """Replace a table and return it. `files` 0: keep the partitions."""
        place = f"{self.place}/{layer}/{name}"
        (table.coalesce(files) if files else table).write.mode("overwrite").parquet(place)
        return self._spark.read.schema(table.schema).parquet(escape_glob(place))

    def is_empty(self) -> bool:
        """Whether the folder is empty, except for the rest of a run killed at its start."""
        if not self._files.exists(self._path("")):
            return True
        names = {file.getPath().getName() for file in self._files.listStatus(self._path(""))}
        return names <= {_temporary("run.json")}

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The JSON object under this name, or under its temporary name if a writer was killed between delete and
        rename; None otherwise."""
        return next((said for each in (name, _temporary(name)) if (said := self._read(each)) is not None), None)

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
        """Write atomically: to a temporary file that replaces the target."""
        beside, path = self._path(_temporary(name)), self._path(name)
        stream = self._files.create(beside, True)
        try:
            stream.write(bytearray(json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"))
        finally:
            stream.close()
        if self._files.getUri().getScheme() == "file":
            Path(beside.toUri().getPath()).replace(path.toUri().getPath())
            return
        # Hadoop does not overwrite on rename. Until the rename, `read_json` uses the temporary file.
        self._files.delete(path, False)
        if not self._files.rename(beside, path):
            raise CannotWrite(place=f"{self.place}/{name}", why="its temporary file cannot be renamed")


def _temporary(name: str) -> str:
    return f"_{name}.new"
