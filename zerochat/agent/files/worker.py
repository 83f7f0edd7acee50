"""File worker: two threads for file I/O beside the agent thread.

One thread reads and writes parts in the order of the core's effects; the other runs long jobs: importing, verifying and
saving files. The agent thread takes the results, as inputs for the core or as answers to clients.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self, TypeAlias

from msgspec import Struct

from zerochat.agent.files.blobs import Blobs
from zerochat.agent.storage.database import disk_error
from zerochat.errors import InternalFault, LocalError, Retry, Unauthentic
from zerochat.group.effects import DeleteFileData, ReadParts, StoreParts, VerifyFile
from zerochat.group.inputs import FileFailed, FilesFound, FileVerified, Input, PartsRead, PartsStored

JOBS_MAX: Final = 16
"""Queued jobs of clients."""

FileEffect: TypeAlias = ReadParts | StoreParts | VerifyFile | DeleteFileData


class TooManyFileJobs(LocalError):
    """Too many files are being processed. Try again in a moment."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class Interrupted(LocalError):
    """The agent was stopped before the file was read completely."""


class JobResult(Struct, frozen=True):
    """The result of a client's job: `then` is called with it in the agent thread."""

    then: "Callable[[object], None]"
    result: object
    """The result, or a LocalError."""


class FileWorker:
    """The worker of one profile. A context manager: at its end unfinished jobs are dropped; stored parts are kept."""

    def __init__(
        self, folder: Path, secret: bytes, wake: Callable[[], None], log: logging.Logger | None = None
    ) -> None:
        """`wake` is called from other threads when there are results to take. `log`: for internal errors."""
        self.blobs = Blobs(folder, secret)
        self._wake = wake
        self._log = log or logging.getLogger("zerochat.files")
        self._parts = ThreadPoolExecutor(1, "zerochat-parts")
        self._long = ThreadPoolExecutor(1, "zerochat-files")
        self._jobs: deque[FileEffect | str] = deque()
        """Queue of the parts thread; a string is the id of a group to delete."""
        self._done: deque[Input | JobResult] = deque()
        self._waiting = 0
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Give up what is unfinished, which takes a moment. `take` then has the results of all that was finished.
        Idempotent."""
        self._ending.set()
        self._parts.shutdown(cancel_futures=True)
        self._long.shutdown(cancel_futures=True)

    # --- called by the agent thread -----------------------------------------------------------------------------------

    def files_on_disk(self) -> list[Input]:
        """The files on disk, at a start; empty: the disk cannot be read."""
        try:
            return [FilesFound(tuple(self.blobs.scan()))]
        except OSError:
            return []

    def perform(self, effect: FileEffect) -> None:
        """Queue an effect. Never blocks."""
        if isinstance(effect, VerifyFile):
            self._long.submit(self._finish, effect)
        else:
            self._jobs.append(effect)
            self._parts.submit(self._work)

    def forget(self, group: str) -> None:
        """Delete all files of a group."""
        self._jobs.append(group)
        self._parts.submit(self._work)

    def submit(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        """Queue a client's job. Raises TooManyFileJobs."""
        if self._waiting >= JOBS_MAX:
            raise TooManyFileJobs
        self._waiting += 1
        self._long.submit(self._do, work, then)

    def is_running(self) -> bool:
        return not self._ending.is_set()

    def take(self) -> list[Input]:
        """The inputs since the last call; job results go to their callbacks."""
        inputs: list[Input] = []
        while self._done:
            one = self._done.popleft()
            if isinstance(one, JobResult):
                self._waiting -= 1
                one.then(one.result)
            else:
                inputs.append(one)
        return inputs

    # --- in the other threads -----------------------------------------------------------------------------------------

    def _put(self, one: Input | JobResult) -> None:
        self._done.append(one)
        self._wake()

    def _do(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        result: object
        try:
            result = work()
        except LocalError as error:
            result = error
        except OSError as error:
            result = disk_error(error, Path(error.filename or self.blobs.folder))
        except Exception as error:  # noqa: BLE001  # the client needs an answer, and the thread must go on
            result = self._fault(error)
        self._put(JobResult(then, result))

    def _finish(self, wanted: VerifyFile) -> None:
        group, file = wanted.group, wanted.file
        try:
            whole = self.blobs.finish(group, file, wanted.root, wanted.size, self.is_running)
        except Exception as error:  # noqa: BLE001
            self._put(FileFailed(group, file, self._sentence(error)))
            return
        if self.is_running():
            self._put(FileVerified(group, file) if whole else FileFailed(group, file, ""))

    def _work(self) -> None:
        """Process the queue; consecutive parts of one file are written together."""
        jobs: list[FileEffect | str] = []
        while self._jobs:
            jobs.append(self._jobs.popleft())
        for (kind, *_), run in groupby(jobs, _batch_key):
            if kind is StoreParts:
                self._store([one for one in run if isinstance(one, StoreParts)])
                continue
            for one in run:
                if self._ending.is_set():
                    return
                match one:
                    case ReadParts():
                        self._read(one)
                    case DeleteFileData(group, file):
                        self._try(partial(self.blobs.drop, group, file))
                    case str(group):
                        self._try(partial(self.blobs.forget, group))

    def _store(self, run: list[StoreParts]) -> None:
        """Write parts of one file, in one write per consecutive run."""
        for place in range(1, len(run)):
            if run[place].first != run[place - 1].first + 1:
                self._store(run[:place])
                self._store(run[place:])
                return
        one = run[0]
        try:
            self.blobs.store(one.group, one.file, one.first, [each.data for each in run])
        except Exception as error:  # noqa: BLE001
            self._put(FileFailed(one.group, one.file, self._sentence(error)))
        else:
            self._put(PartsStored(one.group, one.file, run[-1].first + 1))

    def _read(self, one: ReadParts) -> None:
        try:
            parts = self.blobs.read(one.group, one.file, one.size, one.first, one.count)
        except (FileNotFoundError, Unauthentic):
            parts = ()
        except OSError:  # a disk error says nothing about the file: the recipient queries another holder
            return
        except Exception as error:  # noqa: BLE001
            self._fault(error)
            return
        self._put(PartsRead(one.group, one.member, one.file, one.first, parts))

    def _try(self, work: Callable[[], None]) -> None:
        """Delete files; what fails is deleted at the next start."""
        try:
            with suppress(OSError):
                work()
        except Exception as error:  # noqa: BLE001
            self._fault(error)

    def _sentence(self, error: Exception) -> str:
        """The sentence of the error."""
        fault = disk_error(error, self.blobs.folder) if isinstance(error, OSError) else self._fault(error)
        return fault.sentence()

    def _fault(self, error: Exception) -> InternalFault:
        """Log an internal error; the thread continues."""
        self._log.error("internal error in the file worker", exc_info=error)
        return InternalFault(what="files")


def _batch_key(job: FileEffect | str) -> tuple[object, ...]:
    """Equal for jobs that are processed together."""
    return (StoreParts, job.group, job.file) if isinstance(job, StoreParts) else (type(job),)
