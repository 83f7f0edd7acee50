"""The tables that a run has written, for those who only look: read without starting Spark."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from analytics.errors import InsideEachOther, NoResults, NoSpark

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


def tag(pseudonym: int) -> str:
    """A pseudonym, short enough to be read: the first six of its sixteen hexadecimal digits."""
    return f"{pseudonym & (2**64 - 1):016x}"[:6]


@dataclass(slots=True)
class Results:
    """`read` gives a gold table by its name; `quality` is the quality report."""

    place: str
    quality: Row
    read: "Callable[[str], pa.Table]"
    _kept: "dict[str, pa.Table]" = field(default_factory=dict)

    def table(self, name: str) -> "pa.Table":
        if name not in self._kept:
            self._kept[name] = self.read(name)
        return self._kept[name]

    def rows(self, name: str) -> list[Row]:
        """All rows of a small table."""
        return list(self.table(name).to_pylist())


MANIFEST = "manifest.json"
"""Whatever folder has one is an export."""


HIDDEN = (".", "_")
"""How names begin that Spark passes over: what is being written, and what others keep beside."""


def local(place: str) -> Path | None:
    """A path on this machine; None for a place that only Hadoop knows how to reach."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place)


def files_below(folder: Path) -> Iterator[Path]:
    """What is below a folder of this machine, through links to other folders too, as Spark goes; each folder once.
    What is hidden is passed over, as Spark does. Of what is no folder, itself. Raises OSError for a folder that cannot
    be read."""
    if not folder.is_dir():
        yield folder
    been: set[Path] = set()
    for at, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = Path(at).resolve()
        if real in been:
            folders.clear()
            continue
        been.add(real)
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        yield from (Path(at, name) for name in names if not name.startswith(HIDDEN))


def _raise(error: OSError) -> None:
    raise error


def apart(place: str, out: str) -> None:
    """Raises InsideEachOther where one of two folders lies in the other, or both are one."""
    one, other = (
        f"{place.rstrip('/') if folder is None else str(folder.resolve()).rstrip('/')}/"
        for place, folder in ((place, local(place)), (out, local(out)))
    )
    if one.startswith(other) or other.startswith(one):
        raise InsideEachOther(place=place, out=out)


def open_results(place: str) -> Results:
    """What a run has written into a folder of this machine. Raises NoResults, NoSpark."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise NoSpark(why=f"there is no package {error.name}") from error
    folder = local(place)
    if folder is None:
        raise NoResults(place=place, why="reports are made of results on this machine; copy them here")
    try:
        state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        quality = json.loads((folder / "quality.json").read_text(encoding="utf-8"))
        whole = state["whole"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoResults(place=place, why=f"no run has ended there ({type(error).__name__})") from error
    if whole is not True:
        raise NoResults(place=place, why="the last run was interrupted; the same command again goes on with it")

    def read(name: str) -> "pa.Table":
        try:
            files = sorted((folder / "gold" / name).glob("*.parquet"))
            return pa.concat_tables([pq.read_table(file) for file in files])
        except (OSError, pa.ArrowException, ValueError) as error:
            raise NoResults(place=place, why=f"its table {name} cannot be read") from error

    return Results(place, quality, read)
