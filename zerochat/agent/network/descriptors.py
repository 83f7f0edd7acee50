"""File descriptors of this process: the limit on open files, and a wake-up pipe between threads."""

import socket
import sys
from contextlib import suppress
from typing import ClassVar, Final

from zerochat.errors import LocalError

FILES_MAX: Final = 65_536
MACOS_FILES_MAX: Final = 10_240
"""OPEN_MAX of macOS, which it enforces whatever the hard limit is."""


FILES_MIN: Final = 96
"""Below it, libzmq may end the process in the middle of its work: an agent without any connection needs about 40."""


class TooFewFiles(LocalError):
    """This process may have only {limit} files open, and an agent needs {least}. Raise the limit: `ulimit -n 1024`, or
    LimitNOFILE= in the service."""

    exit_code: ClassVar[int] = 6


def raise_file_limit() -> None:
    """Raise the soft limit of open files, often 1,024 or 256, as far as allowed: a group of 256 needs about 1,100.
    Raises TooFewFiles."""
    _raise_file_limit()
    if (limit := file_limit()) < FILES_MIN:
        raise TooFewFiles(limit=limit, least=FILES_MIN)


def _raise_file_limit() -> None:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for files in (FILES_MAX, MACOS_FILES_MAX):
        target = files if hard == resource.RLIM_INFINITY else min(files, hard)
        if soft == resource.RLIM_INFINITY or soft >= target:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            return
        except (ValueError, OSError):
            continue


def file_limit() -> int:
    """The number of files that this process may have open."""
    if sys.platform == "win32":
        return FILES_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else soft


class WakeupPipe:
    """A socket pair: any thread writes to it, and the thread that waits on its descriptor wakes up. Never blocks."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to wait on; readable after `wake`."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Make the descriptor readable. Callable from any thread, and after `close`."""
        with suppress(OSError):
            self._writer.send(b"!")  # a full pipe wakes the reader as well

    def drain(self) -> None:
        """Make the descriptor unreadable until the next `wake`."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
