"""Reads the tables written by a run, without Spark."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from analytics.errors import NestedFolders, NoResults, NoSpark

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


def short_id(pseudonym: int) -> str:
    """The first six of a pseudonym's sixteen hexadecimal digits."""
    return f"{pseudonym & (2**64 - 1):016x}"[:6]


@dataclass(slots=True)
class Results:
    """`read` returns a gold table by name; `quality` is the quality report."""

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
"""Every folder with this file is an export."""


def local_path(place: str) -> Path | None:
    """A local path; None for a URL that only Hadoop can open."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place)


def walk_files(folder: Path) -> Iterator[Path]:
    """The data files below a local folder, each folder once, linked folders last. For a file, the file itself.
    Unreadable folders count as empty; raises OSError if that is the first one."""
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
    """Whether Spark ignores the name: temporary files and metadata."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def check_disjoint(place: str, out: str) -> None:
    """Raises NestedFolders if one folder contains the other, or both are the same."""
    one, other = (
        f"{place.rstrip('/') if folder is None else str(folder.resolve()).rstrip('/')}/"
        for place, folder in ((place, local_path(place)), (out, local_path(out)))
    )
    if one.startswith(other) or other.startswith(one):
        raise NestedFolders(place=place, out=out)


def _missing_reason(folder: Path) -> str:
    if not folder.exists():
        return "the folder does not exist"
    inside = next((each for each in sorted(folder.glob("*/run.json"))), None)
    return "no run has finished there" if inside is None else f"they are in its subfolder {inside.parent.name}/"


def open_results(place: str) -> Results:
    """The results in a local folder. Raises NoResults, NoSpark."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise NoSpark(why=f"the package {error.name} is missing") from error
    folder = local_path(place)
    if folder is None:
        raise NoResults(place=place, why="reports need local results; copy them to this machine")
    try:
        state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        quality = json.loads((folder / "quality.json").read_text(encoding="utf-8"))
        whole = state["whole"]
    except FileNotFoundError as error:
        raise NoResults(place=place, why=_missing_reason(folder)) from error
    except OSError as error:
        raise NoResults(place=place, why=(error.strerror or "it cannot be read").lower()) from error
    except (ValueError, KeyError, TypeError) as error:
        raise NoResults(place=place, why="its run.json or quality.json is invalid") from error
    if whole is not True:
        raise NoResults(place=place, why="the last run was interrupted; run the same command again to continue")

    def read(name: str) -> "pa.Table":
        try:
            files = sorted((folder / "gold" / name).glob("*.parquet"))
            return pa.concat_tables([pq.read_table(file) for file in files])
        except (OSError, pa.ArrowException, ValueError) as error:
            raise NoResults(place=place, why=f"its table {name} cannot be read") from error

    return Results(place, quality, read)
