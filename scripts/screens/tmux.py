"""A program in tmux: type into it, and read its screen.

Its own server with its own socket and default settings; a user's tmux is never touched.
"""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from zerochat.errors import LocalError

SHOWS_S_MAX = 60.0
STILL_S = 0.45
"""A screen that has not changed for this long is complete."""

ESCAPE_S = 0.3
"""A key within this time after Escape is read as Alt with that key."""

_numbers = count()


class NoTmux(LocalError):
    """The tour needs tmux, which is not installed here."""


class Screen:
    """One program in a window of `columns` x `lines` cells, until it is closed."""

    def __init__(
        self, folder: Path, command: Sequence[str], environment: Mapping[str, str], columns: int, lines: int
    ) -> None:
        if shutil.which("tmux") is None:
            raise NoTmux
        self.folder = folder
        self._socket = folder / f"tmux-{next(_numbers)}"  # one that ends may still hold its own
        settings = folder / "tmux.conf"
        settings.write_text(
            "set -g status off\nset -s escape-time 0\nset -g default-terminal tmux-256color\nset -g remain-on-exit on\n"
        )
        self._environment = {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "TERM": "tmux-256color",
            **environment,
        }
        line = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in self._environment.items()), *command])
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("-f", str(settings), "new-session", "-d", "-s", "tour", *size, f"exec {line}")
        self.resize(columns, lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-S", str(self._socket), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, timeout=30)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-t", "tour", "-x", str(columns), "-y", str(lines))

    def foreground(self) -> int:
        """The process group that has the terminal: the id of the program that a shell has started."""
        shell = self._tmux("display-message", "-p", "-t", "tour", "#{pane_pid}").strip()
        done = subprocess.run(["ps", "-o", "tpgid=", "-p", shell], capture_output=True, text=True, check=True)
        return int(done.stdout)

    def write(self, text: str) -> None:
        """Write to the terminal, as another program does."""
        Path(self._tmux("display-message", "-p", "-t", "tour", "#{pane_tty}").strip()).write_text(text)

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: `Enter`, `C-k`, `M-u`, `F3`."""
        for key in keys:
            self._tmux("send-keys", "-t", "tour", key)
            if key == "Escape":
                time.sleep(ESCAPE_S)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-t", "tour", "-l", text)

    def text(self, *, colours: bool = False) -> str:
        """The screen, a line each; `colours`: with escape sequences."""
        return self._tmux("capture-pane", "-t", "tour", "-p", *(["-e", "-N"] if colours else []))

    def gone(self, sign: str) -> None:
        """Wait until a text is not on the screen."""
        deadline = time.monotonic() + SHOWS_S_MAX
        while sign in self.text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sign!r} stays on the screen")
            time.sleep(0.1)

    def shows(self, sign: str = "", *, columns: int = 0) -> None:
        """Wait for a text, if one is given, and until the screen is stable. `columns`: the text must end a cell before
        this column, as text at the right edge does after a resize."""
        deadline, last, since = time.monotonic() + SHOWS_S_MAX, "", time.monotonic()
        while True:
            if (now := self.text()) != last:
                last, since = now, time.monotonic()
            elif sign in now and columns in (0, _end(now, sign) + 1) and time.monotonic() - since > STILL_S:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sign!r} did not come onto the screen, which shows:\n{now}")
            time.sleep(0.1)


def _end(screen: str, sign: str) -> int:
    line = next(each for each in screen.splitlines() if sign in each)
    return line.index(sign) + len(sign)
