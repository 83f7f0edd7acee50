"""Input lines from a terminal with readline or libedit, or from a pipe.

There is no prompt, so that output never has to redraw one; output waits while the user is typing a line.
"""

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Protocol

LINE_BYTES_MAX = 256 * 1024
"""Maximum length of a line; messages are much shorter."""
PASTE_S = 0.05
"""Lines that arrive within this time of the previous one were pasted."""
PASTED_LINES_MAX = 2_000
"""Maximum number of pasted lines that are combined to one text."""


class TooLong(Exception):
    """The line is too long; it was skipped."""


class NotText(Exception):
    """The line is not UTF-8; it was skipped."""


class Lines(Protocol):
    """A source of input lines.

    `next` returns the lines that arrived together, without line ends; None at the end of the input. After TooLong or
    NotText it can be called again.
    """

    terminal: bool

    def next(self) -> list[str] | None: ...

    def begun(self) -> str:
        """The text of the unfinished line."""
        ...

    def put(self, text: str) -> None:
        """Start the next line with this text."""
        ...


@contextmanager
def input_lines(completions: Callable[[str, str], list[str]]) -> Iterator[Lines]:
    """The lines of standard input. `completions`: completions for the line typed so far and its last word."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        with _readline(completions) as typed:
            yield typed
    else:
        yield Piped(sys.stdin.buffer if sys.stdin is not None else None)


class Piped:
    """Lines from a pipe or file."""

    terminal = False

    def __init__(self, source: BinaryIO | None) -> None:
        self._source = source

    def next(self) -> list[str] | None:
        raw = self._source.readline(LINE_BYTES_MAX + 1) if self._source is not None else b""
        if not raw:
            return None
        if len(raw) > LINE_BYTES_MAX:
            while raw and not raw.endswith(b"\n") and self._source is not None:
                raw = self._source.readline(LINE_BYTES_MAX)
            raise TooLong
        try:
            return [raw.removesuffix(b"\n").removesuffix(b"\r").decode()]
        except UnicodeDecodeError:
            raise NotText from None

    def begun(self) -> str:
        return ""

    def put(self, text: str) -> None:
        """Ignored: a pipe has no line editor."""


class Typed:
    """Lines typed at a terminal."""

    terminal = True

    def __init__(self, buffer: Callable[[], str], insert: Callable[[str], None]) -> None:
        self._buffer = buffer
        self._insert = insert
        self._editing = False
        self._last_text = ""
        """Last known text of the edited line: the line editor clears it before a closed terminal is noticed."""

    def next(self) -> list[str] | None:
        lines: list[str] = []
        while not lines or (len(lines) < PASTED_LINES_MAX and _more()):
            # Stays set when a signal or a closed terminal ends this, so that the unfinished line becomes the draft.
            self._editing, self._last_text = True, ""
            try:
                line = input()
            except EOFError:
                if _closed():
                    self._last_text = "\n".join([*lines, self._last_text])
                    return None
                self._editing = False
                return lines or None
            except UnicodeDecodeError:
                self._editing = False
                raise NotText from None
            if _closed():  # some line editors return the unfinished line
                self._last_text = "\n".join([*lines, line])
                return None
            lines.append(line)
            self._editing = False
            self._insert("")
        if any(len(line) > LINE_BYTES_MAX for line in lines):
            raise TooLong
        return lines

    def begun(self) -> str:
        if not self._editing:
            return ""
        typed = self._buffer()
        if typed or not _closed():
            self._last_text = typed
        return self._last_text

    def put(self, text: str) -> None:
        self._insert(text)


def _closed() -> bool:
    """Whether the terminal has closed."""
    poll = select.poll()
    poll.register(sys.stdin, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def _more() -> bool:
    """Whether another line is already available."""
    ready, _, _ = select.select([sys.stdin], [], [], PASTE_S)
    return bool(ready)


@contextmanager
def _readline(completions: Callable[[str, str], list[str]]) -> Iterator[Typed]:
    """Typed lines with readline, if it is available."""
    try:
        import readline
    except ImportError:
        yield Typed(lambda: "", lambda text: None)
        return
    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        nonlocal found
        if number == 0:
            found = completions(readline.get_line_buffer()[: readline.get_endidx()], word)
        return found[number] if number < len(found) else None

    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    if "libedit" in (readline.__doc__ or ""):
        readline.parse_and_bind("bind ^I rl_complete")
    else:
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind("set enable-bracketed-paste off")  # it prints control sequences
        readline.parse_and_bind("set bell-style none")
    first = ""

    def insert(text: str) -> None:
        nonlocal first
        first = text

    def begin() -> None:
        if first:
            with suppress(Exception):  # readline would swallow the exception and the line
                readline.insert_text(first)

    readline.set_auto_history(True)
    readline.set_startup_hook(begin)
    try:
        yield Typed(readline.get_line_buffer, insert)
    finally:
        readline.set_startup_hook(None)
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        readline.clear_history()  # messages are stored only in the journal
