"""A bell that any thread may ring, and whose descriptor wakes the one that waits."""

import socket
from contextlib import suppress


class Bell:
    """Two ends of a socket, of which neither ever blocks."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)

    def fileno(self) -> int:
        """Readable while it rings."""
        return self._ear.fileno()

    def ring(self) -> None:
        """From any thread, also after the end."""
        with suppress(OSError):
            self._bell.send(b"!")  # full is as good as rung

    def silence(self) -> None:
        """Ring no more, until the next time."""
        with suppress(BlockingIOError):
            self._ear.recv(4096)

    def close(self) -> None:
        self._ear.close()
        self._bell.close()
