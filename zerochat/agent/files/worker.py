"""The room where files are worked on, beside the agent's own thread: a large one must not keep the chat waiting.

One thread reads and writes parts, in the order in which the core wants it; another does what takes long: reading what a
person gives, checking what is whole, saving. What comes of it the agent's thread takes from here, as stimuli for the
core or as answers to faces.
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
from zerochat.agent.storage.database import fault_of_disk
from zerochat.errors import InternalFault, LocalError, Retry, Unauthentic
from zerochat.group.effects import DropFile, FinishFile, ReadParts, StoreParts
from zerochat.group.inputs import FileFailed, FilesFound, FileWhole, PartsRead, PartsStored, Stimulus

LONG_MAX: Final = 16
"""Things that take long and wait for each other."""

FileEffect: TypeAlias = ReadParts | StoreParts | FinishFile | DropFile


class TooMuchAtOnce(LocalError):
    """So many files are being read and saved already. Try again in a moment."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class Done(Struct, frozen=True):
    """What has come of something that a face has asked for: `then` is called with it in the agent's thread."""

    then: "Callable[[object], None]"
    result: object
    """What was asked for, or the LocalError that says why not."""


class FileRoom:
    """One profile's. A context; what is under way when it ends is given up, and what was stored counts."""

    def __init__(
        self, folder: Path, secret: bytes, wake: Callable[[], None], log: logging.Logger | None = None
    ) -> None:
        """`wake` is called from other threads when there is something to take. `log`: for faults of our own."""
        self.blobs = Blobs(folder, secret)
        self._wake = wake
        self._log = log or logging.getLogger("zerochat.files")
        self._parts = ThreadPoolExecutor(1, "zerochat-parts")
        self._long = ThreadPoolExecutor(1, "zerochat-files")
        self._jobs: deque[FileEffect | str] = deque()
        """For the thread of the parts; a text is the id of a group to forget."""
        self._done: deque[Stimulus | Done] = deque()
        self._waiting = 0
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._parts.shutdown(cancel_futures=True)
        self._long.shutdown(cancel_futures=True)

    # --- from the agent's thread --------------------------------------------------------------------------------------

    def found(self) -> list[Stimulus]:
        """What is on disk, at a start; nothing where the disk does not say."""
        try:
            return [FilesFound(tuple(self.blobs.scan()))]
        except OSError:
            return []

    def perform(self, effect: FileEffect) -> None:
        """Have it done. Never blocks."""
        if isinstance(effect, FinishFile):
            self._long.submit(self._finish, effect)
        else:
            self._jobs.append(effect)
            self._parts.submit(self._work)

    def forget(self, group: str) -> None:
        """Remove all files of a group."""
        self._jobs.append(group)
        self._parts.submit(self._work)

    def long(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        """Have something done that a face has asked for. Raises TooMuchAtOnce."""
        if self._waiting >= LONG_MAX:
            raise TooMuchAtOnce
        self._waiting += 1
        self._long.submit(self._do, work, then)

    def going_on(self) -> bool:
        return not self._ending.is_set()

    def take(self) -> list[Stimulus]:
        """What has come of it all since the last time."""
        heard: list[Stimulus] = []
        while self._done:
            one = self._done.popleft()
            if isinstance(one, Done):
                self._waiting -= 1
                one.then(one.result)
            else:
                heard.append(one)
        return heard

    # --- in the other threads -----------------------------------------------------------------------------------------

    def _say(self, one: Stimulus | Done) -> None:
        self._done.append(one)
        self._wake()

    def _do(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        result: object
        try:
            result = work()
        except LocalError as error:
            result = error
        except OSError as error:
            result = fault_of_disk(error, Path(error.filename or self.blobs.folder))
        except Exception as error:  # noqa: BLE001  # whoever has asked waits for an answer, and the others for theirs
            result = self._fault(error)
        self._say(Done(then, result))

    def _finish(self, wanted: FinishFile) -> None:
        group, file = wanted.group, wanted.file
        try:
            whole = self.blobs.finish(group, file, wanted.root, wanted.size, self.going_on)
        except Exception as error:  # noqa: BLE001
            self._say(FileFailed(group, file, self._sentence(error)))
            return
        if self.going_on():
            self._say(FileWhole(group, file) if whole else FileFailed(group, file, ""))

    def _work(self) -> None:
        """All that has come up until now; parts of one file that follow each other reach the disk together."""
        jobs: list[FileEffect | str] = []
        while self._jobs:
            jobs.append(self._jobs.popleft())
        for (kind, *_), run in groupby(jobs, _sort):
            if kind is StoreParts:
                self._store([one for one in run if isinstance(one, StoreParts)])
                continue
            for one in run:
                if self._ending.is_set():
                    return
                match one:
                    case ReadParts():
                        self._read(one)
                    case DropFile(group, file):
                        self._try(partial(self.blobs.drop, group, file))
                    case str(group):
                        self._try(partial(self.blobs.forget, group))

    def _store(self, run: list[StoreParts]) -> None:
        """Parts of one file; where one does not follow the one before it, it begins a write of its own."""
        for place in range(1, len(run)):
            if run[place].first != run[place - 1].first + 1:
                self._store(run[:place])
                self._store(run[place:])
                return
        one = run[0]
        try:
            self.blobs.store(one.group, one.file, one.first, [each.data for each in run])
        except Exception as error:  # noqa: BLE001
            self._say(FileFailed(one.group, one.file, self._sentence(error)))
        else:
            self._say(PartsStored(one.group, one.file, run[-1].first + 1))

    def _read(self, one: ReadParts) -> None:
        try:
            parts = self.blobs.read(one.group, one.file, one.size, one.first, one.count)
        except (FileNotFoundError, Unauthentic):
            parts = ()
        except OSError:  # what the disk cannot do now says nothing of the file: somebody else is asked
            return
        except Exception as error:  # noqa: BLE001
            self._fault(error)
            return
        self._say(PartsRead(one.group, one.member, one.file, one.first, parts))

    def _try(self, work: Callable[[], None]) -> None:
        """What could not be removed now is, at the next start."""
        try:
            with suppress(OSError):
                work()
        except Exception as error:  # noqa: BLE001
            self._fault(error)

    def _sentence(self, error: Exception) -> str:
        """Why a file cannot be kept here."""
        fault = fault_of_disk(error, self.blobs.folder) if isinstance(error, OSError) else self._fault(error)
        return fault.sentence()

    def _fault(self, error: Exception) -> InternalFault:
        """A fault of ours in one of these threads: it is written down, and the next thing is done all the same."""
        self._log.error("a fault while working on a file", exc_info=error)
        return InternalFault(what="files")


def _sort(job: FileEffect | str) -> tuple[object, ...]:
    """The same for those that are done together."""
    return (StoreParts, job.group, job.file) if isinstance(job, StoreParts) else (type(job),)
