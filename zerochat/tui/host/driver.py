"""The terminal driver: output that never blocks the chat, a lost terminal, resuming, and a stable cell grid.

Textual writes through a queue of 30 entries and waits where it is full. A terminal that does not read, or is gone,
would stop the event loop for ever, and with it signals, input and the end of the program. Here output waits in a
buffer; where it is full frames are dropped, and the screen is drawn anew once the terminal reads again.
"""

import os
import selectors
import signal
import threading
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.message import Message

from zerochat.tui.host.cell_grid import on_grid

BACKLOG_CHARS_MAX = 1 << 19
"""Characters that wait for the terminal: some dozens of frames; above, frames are dropped."""
LAST_WORDS_S = 1.0
"""At the end, how long the terminal may take to read the sequences that restore it."""
POLL_S = 0.1
READ_BYTES = 4_096
ESC = "\x1b"
PASTE_START, PASTE_END = f"{ESC}[200~", f"{ESC}[201~"


class TerminalGone(Message):
    """The terminal was closed."""


class TerminalStale(Message):
    """The terminal shows something else than the last frame: draw everything anew."""


class Output(threading.Thread):
    """Writes to the terminal from a bounded buffer. No method waits, except `stop`, for a bounded time."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(daemon=True, name="terminal-output")
        file.flush()
        self._file = file
        self._waiting: deque[str] = deque()
        self._chars = 0
        self._changed = threading.Condition()
        self._stopped = False
        self.gone = False
        """The terminal was closed."""
        self.dropped = False
        """Frames were dropped since the terminal was last restored."""
        self.on_gone: Callable[[], None] = lambda: None
        """Called in this thread when the terminal is gone."""
        self.on_drained: Callable[[], None] = lambda: None
        """Called in this thread when the terminal has read everything after frames were dropped."""

    def write(self, text: str) -> None:
        with self._changed:
            if self.gone:
                return
            if self._chars + len(text) > BACKLOG_CHARS_MAX:
                self.dropped = True
                return
            self._waiting.append(text)
            self._chars += len(text)
            self._changed.notify()

    def clear(self) -> None:
        """Drop what waits."""
        with self._changed:
            self._waiting.clear()
            self._chars = 0

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def flush(self) -> None:
        """Nothing: the thread writes at once."""

    def run(self) -> None:
        try:
            while (text := self._next()) is not None:
                self._put(text.encode(self._file.encoding, self._file.errors or "strict"))
        except OSError:  # EIO: the terminal is gone
            self.clear()
            self.gone = True
            self.on_gone()

    def _next(self) -> str | None:
        """All that waits; None: the end."""
        while True:
            with self._changed:
                if not self._waiting and not self.dropped:
                    self._changed.wait_for(lambda: self._waiting or self._stopped)
                if self._waiting:
                    text = "".join(self._waiting)
                    self._waiting.clear()
                    self._chars = 0
                    return text
                if self._stopped:
                    return None
                self.dropped = False
            self.on_drained()

    def _put(self, data: bytes) -> None:
        # Not `file.write`: its lock, held while the terminal does not read, would stop the end of the interpreter.
        descriptor, left = self._file.fileno(), memoryview(data)
        while left:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:  # another program made the terminal non-blocking
                with selectors.DefaultSelector() as ready:
                    ready.register(descriptor, selectors.EVENT_WRITE)
                    ready.select(POLL_S)

    def stop(self) -> None:
        """Write what waits, and end. A terminal that does not read is left after LAST_WORDS_S."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self.join(LAST_WORDS_S)


setattr(linux_driver, "WriterThread", Output)  # noqa: B010


class Decoder:
    """Bytes of the terminal as text, without the escape characters in a paste.

    Textual presses such a character, and up to 32 characters after it, as keys: an Enter among them sends. Many
    terminals remove it themselves.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")(errors="replace").decode
        self._pasting = False
        self._mark = ""
        """The part of the next PASTE_START or PASTE_END that has come."""

    def __call__(self, data: bytes) -> str:
        return "".join(map(self._next, self._decode(data)))

    def _next(self, char: str) -> str:
        """What is known with this character: in a paste, what may be its end waits."""
        whole = PASTE_END if self._pasting else PASTE_START
        before, self._mark = self._mark, self._mark + char
        if self._mark == whole:
            self._pasting, self._mark = not self._pasting, ""
            return whole if whole == PASTE_END else char
        if whole.startswith(self._mark):
            return "" if self._pasting else char
        self._mark = ESC if char == ESC else ""
        if not self._pasting:
            return char
        return before.replace(ESC, "") + char.replace(ESC, "")


class TerminalDriver(linux_driver.LinuxDriver):
    """Textual's driver with this output, and with an end of the input."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        signal.signal(signal.SIGCONT, self._on_continued)

    @property
    def _output(self) -> Output | None:
        return cast(Output | None, self._writer_thread)

    def write(self, data: str) -> None:
        if (output := self._output) is not None:
            output.write(on_grid(data))

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if (output := self._output) is not None:
            output.on_gone = lambda: self._report(TerminalGone())
            output.on_drained = lambda: self._report(TerminalStale())

    def stop_application_mode(self) -> None:
        if (output := self._output) is not None and output.dropped:
            output.clear()  # room for the sequences that restore the terminal
        super().stop_application_mode()

    def _on_continued(self, *_: object) -> None:
        """SIGCONT. After SIGTSTP the terminal was restored; after SIGSTOP, which no program can handle, it was not, and
        the shell has changed its modes and written on its screen."""
        if not self._auto_restart or not self._app.is_running:
            return
        with suppress(OSError):
            if os.tcgetpgrp(self.fileno) != os.getpgrp():  # `bg`
                os.kill(os.getpid(), signal.SIGSTOP)
                return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        self.resume_application_mode()
        self._report(TerminalStale())

    def _report(self, message: Message) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self.send_message(message)

    def run_input_thread(self) -> None:
        """Textual's loop would spin at the end of the input, and fail at a byte that is not UTF-8."""
        parser = XTermParser(self._debug)
        decode = Decoder()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(POLL_S):
                    try:
                        data = os.read(self.fileno, READ_BYTES)
                    except OSError:  # EIO: the terminal is gone
                        data = b""
                    if not data:
                        if self.input_tty:
                            self._report(TerminalGone())
                        return
                    if text := decode(data):  # an empty text ends Textual's parser
                        for event in parser.feed(text):
                            self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
