"""The tables that a run has written, for those who only look: read without starting Spark."""

import json
import os
from collections import deque
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


def local(place: str) -> Path | None:
    """A path on this machine; None for a place that only Hadoop knows how to reach."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place)


def files_below(folder: Path) -> Iterator[Path]:
    """What is below a folder of this machine, of which Spark would take it for data; each folder once, and those that
    are there by links after those that are there. Of what is no folder, itself. A folder that cannot be read has
    nothing in it; raises OSError where that is the first one."""
    if not folder.is_dir():
        yield folder
        return
    been: set[tuple[int, int]] = set()
    here, linked = deque([folder]), deque[Path]()
    while here or linked:
        at = (here or linked).popleft()
        try:
            told = at.stat()
            if (told.st_dev, told.st_ino) in been:
                continue
            been.add((told.st_dev, told.st_ino))
            with os.scandir(at) as entries:
                found = sorted(entries, key=_name)
        except OSError:
            if at == folder:
                raise
            continue
        for entry in found:
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                here.append(at / entry.name)
            elif entry.is_symlink() and (at / entry.name).is_dir():
                linked.append(at / entry.name)
            else:
                yield at / entry.name


def _name(entry: "os.DirEntry[str]") -> str:
    return entry.name


def is_hidden(name: str) -> bool:
    """Whether Spark passes over it: what is being written, and what others keep beside."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def apart(place: str, out: str) -> None:
    """Raises InsideEachOther where one of two folders lies in the other, or both are one."""
    one, other = (
        f"{place.rstrip('/') if folder is None else str(folder.resolve()).rstrip('/')}/"
        for place, folder in ((place, local(place)), (out, local(out)))
    )
    if one.startswith(other) or other.startswith(one):
        raise InsideEachOther(place=place, out=out)


def _what_is_there_instead(folder: Path) -> str:
    if not folder.exists():
        return "there is no such folder"
    inside = next((each for each in sorted(folder.glob("*/run.json"))), None)
    return "no run has ended there" if inside is None else f"they are in {inside.parent.name}/ in it"


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
    except FileNotFoundError as error:
        raise NoResults(place=place, why=_what_is_there_instead(folder)) from error
    except OSError as error:
        raise NoResults(place=place, why=(error.strerror or "it cannot be read").lower()) from error
    except (ValueError, KeyError, TypeError) as error:
        raise NoResults(place=place, why="its run.json or quality.json is none of ours") from error
    if whole is not True:
        raise NoResults(place=place, why="the last run was interrupted; the same command again goes on with it")

    def read(name: str) -> "pa.Table":
        try:
            files = sorted((folder / "gold" / name).glob("*.parquet"))
            return pa.concat_tables([pq.read_table(file) for file in files])
        except (OSError, pa.ArrowException, ValueError) as error:
            raise NoResults(place=place, why=f"its table {name} cannot be read") from error

    return Results(place, quality, read)
