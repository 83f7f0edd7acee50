"""Scans export files before Spark starts: size, SHA-256, Parquet footer, observers of the rows.

For files on a single machine: Spark takes longer to start than this takes for all files. The scan is a child process
(`python -m analytics.file_scan FOLDER`) with a memory limit, so a hostile file can end no more than that; then Spark
does the scan, as it does for files elsewhere (`pipeline/scan.py`).
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

from analytics.results import MANIFEST, walk_files

MANIFEST_BYTES_MAX = 4 * 2**20
FILE_BYTES_MAX = 2**27
"""Size limit: a file has one kind and day, and a profile's default limit for thirty days is half of this."""
TAIL_BYTES, TAIL_BYTES_MAX = 16 * 2**10, 4 * 2**20
"""Bytes read from a file's end for its footer: for all files, and for those with a longer footer."""
ENDS_BYTES_MAX = 2**28
"""Limit for all footers together; hundreds of thousands of files have less."""
CHUNK_BYTES, CHUNK_ROWS = 2**20, 2**16
"""Amount of a file in memory at a time."""
MEMORY_BYTES_MAX = 2**31
"""Address space limit: a page's header may claim any decompressed size."""
OBSERVERS_MAX = 1_000
NICE = 10
"""Java starts in parallel and must not wait."""
LOCAL_PREFIX = "file:"
"""Scheme of local paths."""
TOO_LARGE = "is larger than {most} bytes"
NO_NAME = "has an undecodable name"
NO_FILE = "is not a regular file"


@dataclass(frozen=True, slots=True)
class FileScan:
    """Properties of a file, known before its rows are read. `end`: its last bytes, or a whole manifest."""

    path: str
    size: int
    sha256: str
    end: bytes
    observers: frozenset[int] | None = None
    """Observers of its rows (at most OBSERVERS_MAX + 1); None: unknown."""


Scans: TypeAlias = tuple[dict[str, FileScan], dict[str, str]]
"""Scans by path; and for files without one, the reason by path."""


def footer_bytes(end: bytes) -> int:
    """Length of the footer including its two trailing words, as the file states it."""
    return int.from_bytes(end[-8:-4], "little") + 8 if len(end) >= 8 and end.endswith(b"PAR1") else 0


# --- parent process ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackgroundScan:
    """A running or finished scan of a folder."""

    folder: Path
    _process: "subprocess.Popen[bytes]"
    _out: IO[bytes]

    def result(self) -> Scans | None:
        """Wait for the result; None if the scan failed."""
        if self._process.wait() != 0:
            return None
        seen: dict[str, FileScan] = {}
        unseen: dict[str, str] = {}
        self._out.seek(0)
        for line in self._out:
            path, why, size, sha256, end, observers = json.loads(line)
            if why:
                unseen[path] = why
            else:
                whose = None if observers is None else frozenset(observers)
                seen[path] = FileScan(path, size, sha256, base64.b64decode(end), whose)
        return seen, unseen


@contextmanager
def background_scan(folder: Path | None) -> Iterator[BackgroundScan | None]:
    """Scan a local folder in a child process within the block; None for a folder elsewhere."""
    if folder is None:
        yield None
        return
    whole = os.path.abspath(folder)  # noqa: PTH100 (as Hadoop makes a path whole, not following links)
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "analytics.file_scan", whole],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield BackgroundScan(Path(whole), process, out)
        finally:
            process.kill()
            process.wait()


# --- child process ----------------------------------------------------------------------------------------------------


def main(folder: str) -> int:
    import pyarrow as pa

    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    with suppress(AttributeError, OSError):
        os.nice(NICE)
    # Other memory pools reserve address space per processor.
    pa.set_memory_pool(pa.system_memory_pool())
    Path(folder).stat()  # raises; Spark then reports the missing folder
    room = ENDS_BYTES_MAX
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, found in _scans(pool, Path(folder)):
            told: list[Any] = [os.fsencode(f"{LOCAL_PREFIX}{path}").decode(errors="backslashreplace")]
            if isinstance(found, FileScan):
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


def _scans(pool: ThreadPoolExecutor, folder: Path) -> Iterator[tuple[Path, FileScan | str]]:
    paths = list(walk_files(folder))
    yield from zip(paths, pool.map(_scan_file, paths), strict=True)


def _scan_file(path: Path) -> FileScan | str:
    """The scan of a file, or the reason why there is none."""
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
            # No more than its stated size: some system files are endless.
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
        return FileScan(
            f"{LOCAL_PREFIX}{path}", size, digest.hexdigest(), end, observers(path) if footer_bytes(end) else None
        )
    except OSError as error:
        return f"cannot be read: {(error.strerror or str(error)).lower()}"


def observers(path: Path) -> frozenset[int] | None:
    """Observers of the rows of a Parquet file (`FileScan.observers`)."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: set[int] = set()
    try:
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(CHUNK_ROWS, columns=["observer"], use_threads=False):
                for one in pc.unique(rows.column(0)).to_pylist():
                    if one:  # 0 means none, and null is invalid
                        found.add(int(one))
                    if len(found) > OBSERVERS_MAX:
                        return frozenset(found)
    except Exception:  # noqa: BLE001  # a hostile file may raise anything; Spark will report it
        return None
    return frozenset(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
