"""Real processes on pseudo-terminals: typing into them, and reading their output."""

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager, suppress

from tests.support.machines import until

LINES, COLUMNS = 30, 100


class Terminal:
    """The person's end of a terminal."""

    def __init__(self, process, main):
        self.process = process
        self._main = main
        self._shown = []
        self._ear, self._bell = socket.socketpair()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with suppress(OSError):  # what Linux says at the end of a terminal
            while self._ear not in select.select([self._main, self._ear], [], [])[0]:
                if not (piece := os.read(self._main, 65_536)):
                    return
                self._shown.append(piece)

    def type(self, text):
        os.write(self._main, text.encode())

    def interrupted(self):
        """Press Ctrl+C; whether it has ended."""
        with suppress(OSError):  # what Linux says once nobody is at the other end
            self.type("\x03")
        return self.process.poll() is not None

    def left(self):
        """Press Ctrl+D until it has ended, and give its exit code: what is pressed while a line is still worked on, the
        kernel makes nothing of."""

        def pressed():
            with suppress(OSError):
                self.type("\x04")
            return self.process.poll() is not None

        until(pressed, "the end")
        return self.ends()

    @property
    def shown(self):
        return b"".join(self._shown).decode(errors="replace")

    def edits_lines(self):
        """Wait until the program edits lines itself; before, the terminal echoes what is typed as well."""
        until(lambda: not termios.tcgetattr(self._main)[3] & termios.ICANON, "a line editor")

    def shows(self, text):
        until(lambda: text in self.shown, f"{text!r}; there is {self.shown[-2000:]!r}, and")

    def ends(self):
        """Its exit code."""
        code = self.process.wait(30)
        self._reader.join(20)
        return code

    def hang_up(self):
        """As a window is closed."""
        self.process.send_signal(signal.SIGHUP)
        self.close()

    def stop_reading(self):
        """The terminal stays open, and its buffer fills up."""
        self._bell.close()
        self._reader.join(20)
        assert not self._reader.is_alive()

    def close(self):
        """Stop reading before the descriptor number is reused."""
        self.stop_reading()
        if self._main >= 0:
            os.close(self._main)
        self._ear.close()
        self._main = -1


@contextmanager
def terminal(machine, *arguments, term="xterm-256color", program=(sys.executable, "-m", "zerochat")):
    """`zerochat` with these arguments (or another program), on the profile of `machine`."""
    main, line = pty.openpty()
    environment = {**machine.environment, "TERM": term, "LINES": str(LINES), "COLUMNS": str(COLUMNS)}
    environment |= {"ZEROCHAT_CHAT__TOUR": "false"}
    process = subprocess.Popen(
        [*program, *arguments],
        env=environment,
        stdin=line,
        stdout=line,
        stderr=line,
        start_new_session=True,
        preexec_fn=lambda: _own(line),
    )
    os.close(line)
    one = Terminal(process, main)
    try:
        yield one
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        one.close()


def _own(line):
    """Make the terminal the controlling terminal, so that the process receives SIGINT and SIGHUP."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests in the background ignores it
    import fcntl
    import termios

    fcntl.ioctl(line, termios.TIOCSCTTY, 0)
