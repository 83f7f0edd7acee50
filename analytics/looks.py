"""A first look at every file: its bytes, their SHA-256, its end, which says what a Parquet file has, and whose rows.

This is for files on the machine that does all the work: Spark needs longer to begin with a file than this for all of
it, and here it is done while Spark starts. It is a process of its own (`python -m analytics.looks FOLDER`) with a limit
to its memory: what strangers have made ends no more than that, and then Spark looks, as it does at files elsewhere
(`pipeline/looking.py`).
"""

import base64
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

from analytics.results import MANIFEST, files_below

MANIFEST_BYTES_MAX = 4 * 2**20
FILE_BYTES_MAX = 2**27
"""A profile keeps half of that by default, of thirty days, and a file has one day of one kind."""
TAIL_BYTES, TAIL_BYTES_MAX = 16 * 2**10, 4 * 2**20
"""How much of a file's end is looked at for its footer: of all, and then of those whose footer is longer."""
ENDS_BYTES_MAX = 2**28
"""Of all ends together; hundreds of thousands of files have less."""
CHUNK_BYTES, CHUNK_ROWS = 2**20, 2**16
"""How much of a file is in memory at a time."""
MEMORY_BYTES_MAX = 2**31
"""Of addresses: what a page takes when it is unpacked is what its header says, and may be as much as that."""
OBSERVERS_MAX = 1_000
NICE = 10
"""Java starts beside it, and is waited for."""
HERE = "file:"
"""How a path of this machine begins."""
TOO_LARGE = "has more than {most} B"
NO_NAME = "has a name that is no text"
NO_FILE = "is no file"


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to know of a file before its rows are read: `end` are its last bytes, or all of a manifest."""

    path: str
    size: int
    sha256: str
    end: bytes
    observers: frozenset[int] | None = None
    """Whom its rows are of, of more than OBSERVERS_MAX one more; None: that is not known."""


Looks: TypeAlias = tuple[dict[str, Look], dict[str, str]]
"""A look at each file, by its path; and of those at which there is none, why."""


def footer_bytes(end: bytes) -> int:
    """The length of a footer with the two words that follow it, as the file itself says."""
    return int.from_bytes(end[-8:-4], "little") + 8 if len(end) >= 8 and end.endswith(b"PAR1") else 0


# --- for whoever wants to know ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ahead:
    """A look through a folder that is under way, or over."""

    folder: Path
    _process: "subprocess.Popen[bytes]"
    _out: IO[bytes]

    def result(self) -> Looks | None:
        """When it is over; None where it has failed, for whatever reason."""
        if self._process.wait() != 0:
            return None
        seen: dict[str, Look] = {}
        unseen: dict[str, str] = {}
        self._out.seek(0)
        for line in self._out:
            path, why, size, sha256, end, observers = json.loads(line)
            if why:
                unseen[path] = why
            else:
                whose = None if observers is None else frozenset(observers)
                seen[path] = Look(path, size, sha256, base64.b64decode(end), whose)
        return seen, unseen


@contextmanager
def looking_ahead(folder: Path | None) -> Iterator[Ahead | None]:
    """Look through a folder while something else is done; None: there is none on this machine."""
    if folder is None:
        yield None
        return
    whole = os.path.abspath(folder)  # noqa: PTH100 (as Hadoop makes a path whole, not following links)
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "analytics.looks", whole],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Ahead(Path(whole), process, out)
        finally:
            process.kill()
            process.wait()


# --- the process that looks -------------------------------------------------------------------------------------------


def main(folder: str) -> int:
    import pyarrow as pa

    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    with suppress(AttributeError, OSError):
        os.nice(NICE)
    # Of the others each keeps addresses for every processor.
    pa.set_memory_pool(pa.system_memory_pool())
    Path(folder).stat()  # where there is none, Spark says so
    room = ENDS_BYTES_MAX
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, found in _looks(pool, Path(folder)):
            told: list[Any] = [os.fsencode(f"{HERE}{path}").decode(errors="backslashreplace")]
            if isinstance(found, Look):
                room -= len(found.end)
                if room < 0:
                    pool.shutdown(cancel_futures=True)
                    return 1
                observers = None if found.observers is None else sorted(found.observers)
                told += ["", found.size, found.sha256, base64.b64encode(found.end).decode(), observers]
            else:
                told += [found, 0, "", "", None]
            print(json.dumps(told))
    return 0


def _looks(pool: ThreadPoolExecutor, folder: Path) -> Iterator[tuple[Path, Look | str]]:
    paths = list(files_below(folder))
    yield from zip(paths, pool.map(_look, paths), strict=True)


def _look(path: Path) -> Look | str:
    """A look at one file, or why there is none."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return NO_NAME
    try:
        told = path.stat()
        if not stat.S_ISREG(told.st_mode):
            return NO_FILE
        if told.st_size > FILE_BYTES_MAX:
            return TOO_LARGE.format(most=FILE_BYTES_MAX)
        with path.open("rb") as file:
            # No more than it is said to have: some files of the system have no end.
            digest, size = hashlib.sha256(), 0
            while size < told.st_size and (chunk := file.read(min(CHUNK_BYTES, told.st_size - size))):
                digest.update(chunk)
                size += len(chunk)
            wanted = MANIFEST_BYTES_MAX
            if path.name != MANIFEST:
                file.seek(max(size - 8, 0))
                wanted = footer_bytes(file.read(8))
                wanted = wanted if wanted <= TAIL_BYTES_MAX else TAIL_BYTES
            file.seek(max(size - wanted, 0))
            end = file.read(wanted)
        return Look(f"{HERE}{path}", size, digest.hexdigest(), end, observers(path) if footer_bytes(end) else None)
    except OSError as error:
        return f"cannot be read: {(error.strerror or str(error)).lower()}"


def observers(path: Path) -> frozenset[int] | None:
    """Whom the rows of a Parquet file are of (`Look.observers`)."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: set[int] = set()
    try:
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(CHUNK_ROWS, columns=["observer"], use_threads=False):
                for one in pc.unique(rows.column(0)).to_pylist():
                    if one:  # 0 is nobody, and what is null is believed by nobody
                        found.add(int(one))
                    if len(found) > OBSERVERS_MAX:
                        return frozenset(found)
    except Exception:  # noqa: BLE001 - whatever somebody has made of it: Spark will say
        return None
    return frozenset(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
