"""A program in a pseudo-terminal, observed from the far side: its output and when it came."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence

QUIET_S = 0.12
"""Nothing, or next to nothing, has been written for so long: it is waiting."""
SETTLE_S_MAX = 60.0
BLINK_BYTES = 200
"""The output of a blinking cursor in that time."""


class NotPainted(SystemExit):
    """An expected output has not come. The first argument is the full text; `briefly` is for a table."""

    def __init__(self, command: Sequence[str], what: str, within_s: float) -> None:
        super().__init__(f"{' '.join(command)} did not paint {what} within {within_s:.0f} s")
        self.briefly = f"not painted in {within_s:.0f} s"


class Terminal:
    """Of some size, with a program in it until it is closed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, columns: int, lines: int) -> None:
        self.command = list(command)
        self.child, self.master = pty.fork()
        if self.child == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
                os.execvpe(self.command[0], self.command, dict(environment))
            finally:
                os._exit(127)

    def write(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def signal_user(self) -> None:
        os.kill(self.child, signal.SIGUSR1)

    def drain(self, seconds: float) -> bytes:
        """The output within this time; returns at once when there is any."""
        if not select.select([self.master], [], [], seconds)[0]:
            return b""
        try:
            return os.read(self.master, 1 << 20)
        except OSError:  # Linux reports that the other side is closed
            raise SystemExit(f"{' '.join(self.command)} has ended") from None

    def settle(self, quiet_s: float = QUIET_S) -> None:
        """Read until it is waiting."""
        deadline, since, size = time.monotonic() + SETTLE_S_MAX, time.monotonic(), 0
        while time.monotonic() < deadline and time.monotonic() - since < quiet_s:
            size += len(self.drain(quiet_s / 4))
            if size > BLINK_BYTES:
                since, size = time.monotonic(), 0

    def until(self, deed: Callable[[], None], text: str = "", *, size: int = 0, within_s: float = 120.0) -> float:
        """Milliseconds from a deed until this text was written, or so many bytes were. Raises NotPainted."""
        wanted, seen, count = text.encode(), b"", 0
        start = time.perf_counter()
        deed()
        while True:
            left = start + within_s - time.perf_counter()
            if left <= 0:
                raise NotPainted(self.command, repr(text or size), within_s)
            new = self.drain(left)
            seen, count = (seen + new)[-(1 << 20) :], count + len(new)
            if (wanted and wanted in seen) or (not wanted and count >= size):
                return (time.perf_counter() - start) * 1000

    def close(self) -> None:
        """End it politely, and read its last output, so that a full terminal does not block it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGTERM)
        deadline = time.monotonic() + 3
        while os.waitpid(self.child, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self.child, signal.SIGKILL)
                os.waitpid(self.child, 0)
                break
            with contextlib.suppress(SystemExit):
                self.drain(0.01)
        os.close(self.master)
