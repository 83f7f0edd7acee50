"""A first look at every file: how many bytes, their SHA-256, and its end, which says what a Parquet file has.

This is for files on the machine that does all the work: Spark needs longer to begin with a file than this for all of
it, and here it is done while Spark starts. Files that are elsewhere are looked at where they are, by Spark
(`pipeline/read.py`).
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TypeAlias

from analytics.errors import NothingToRead
from analytics.results import MANIFEST, files_below, local

MANIFEST_BYTES_MAX = 4 * 2**20
FILE_BYTES_MAX = 2**27
"""A profile keeps half of that by default, of thirty days, and a file has one day of one kind."""
TAIL_BYTES, TAIL_BYTES_MAX = 16 * 2**10, 4 * 2**20
"""How much of a file's end is looked at for its footer: of all, and then of those whose footer is longer."""
CHUNK_BYTES, CHUNK_ROWS = 2**20, 2**16
"""How much of a file is in memory at a time, where we open it."""
HERE = "file:"
"""How a path of this machine begins."""
TOO_LARGE = "has more than {most} B"
NO_NAME = "has a name that is no text"


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to know of a file before it is read: `end` are its last bytes, or all of a manifest."""

    path: str
    size: int
    sha256: str
    end: bytes


def footer_bytes(end: bytes) -> int:
    """The length of a footer with the two words that follow it, as the file itself says."""
    return int.from_bytes(end[-8:-4], "little") + 8 if len(end) >= 8 and end.endswith(b"PAR1") else 0


Looks: TypeAlias = tuple[dict[str, Look], dict[str, str]]
"""A look at each file, by its path; and of files that nothing is to be known of, why."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A look through a folder that is under way."""

    folder: Path
    looks: "Future[Looks]"


@contextmanager
def looking_ahead(place: str) -> Iterator[Ahead | None]:
    """Look through a folder of this machine while something else is done; nothing for a place that is elsewhere."""
    folder = local(place)
    if folder is None:
        yield None
        return
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (as Hadoop makes a path whole, not following links)
    pool = ThreadPoolExecutor(1)
    stop = Event()
    try:
        yield Ahead(folder, pool.submit(look_through, folder, stop))
    finally:
        stop.set()
        pool.shutdown()


def look_through(folder: Path, stop: Event | None = None) -> Looks:
    """All files below a folder; after `stop`, fewer. Raises NothingToRead when there is none."""
    seen: dict[str, Look] = {}
    unseen: dict[str, str] = {}
    try:
        folder.stat()
        paths = list(files_below(folder))
    except OSError as error:
        raise NothingToRead(place=str(folder), why=_reason(error)) from error
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, found in zip(paths, pool.map(_look, paths), strict=True):
            if stop is not None and stop.is_set():
                pool.shutdown(cancel_futures=True)
                break
            if isinstance(found, Look):
                seen[found.path] = found
            elif found:
                unseen[HERE + os.fsencode(path).decode(errors="replace")] = found
    return seen, unseen


def _look(path: Path) -> Look | str:
    """A look at one file; or why there is none, which is empty for what holds nothing that could be read."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return NO_NAME
    try:
        if not path.is_file():
            return ""  # a device, a pipe, a link to nowhere
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > FILE_BYTES_MAX:
                return TOO_LARGE.format(most=FILE_BYTES_MAX)
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
            wanted = MANIFEST_BYTES_MAX
            if path.name != MANIFEST:
                file.seek(max(size - 8, 0))
                wanted = footer_bytes(file.read(8))
                wanted = wanted if wanted <= TAIL_BYTES_MAX else TAIL_BYTES
            file.seek(max(size - wanted, 0))
            return Look(f"{HERE}{path}", size, digest.hexdigest(), file.read(wanted))
    except OSError as error:
        return f"cannot be read: {_reason(error)}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def observers(path: str, most: int) -> set[int | None]:
    """Whom the rows of a file on this machine are of, up to some more than `most`. Raises ArrowException, OSError."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: set[int | None] = set()
    with pq.ParquetFile(path.removeprefix(HERE)) as file:
        for rows in file.iter_batches(CHUNK_ROWS, columns=["observer"], use_threads=False):
            found.update(pc.unique(rows.column(0)).to_pylist())
            if len(found) > most:
                break
    return found
