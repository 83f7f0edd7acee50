"""Progress display of file transfers and backups on standard error."""

import sys
from collections.abc import Callable

from zerochat.cli.output import narrate
from zerochat.presentation.files import file_line
from zerochat.rpc import Attachment

POLL_S = 1.0
"""Seconds to wait for a notification before the deadline is checked."""


class Progress:
    """Progress of transfers: in a terminal one line that is redrawn; otherwise only the result."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self._live = sys.stderr.isatty()
        self._write = write or sys.stderr.write
        self._shown = ""

    def show(self, file: Attachment, mine: bool = False) -> None:
        self.line(file_line(file, mine))

    def line(self, text: str) -> None:
        if self._live and text != self._shown:
            self._write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = text

    def clear(self) -> None:
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = ""

    def end(self, file: Attachment, mine: bool = False) -> None:
        self.clear()
        narrate(file_line(file, mine))
