"""Where lines come from: a terminal, whose line can be edited (GNU readline, or what the system has in its place), or
anything else, to its end.

In a terminal there is no prompt, and so nothing that would have to be drawn again below what comes: whoever has typed
nothing is at the beginning of a line, and whoever has is left alone until the line is done.
"""

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Protocol

LINE_BYTES_MAX = 256 * 1024
"""Read of one line before it counts as too long; a message has far less."""
PASTE_S = 0.05
"""Lines that are there so soon behind another were not typed."""
PASTED_LINES_MAX = 2_000
"""Put together as one text; beyond that a terminal is being fed a file."""


class TooLong(Exception):
    """The line was left out."""


class NoText(Exception):
    """The line is no UTF-8, and was left out."""


class Lines(Protocol):
    """`next` gives the lines that came at once, without their ends; None at the end of all. Raises TooLong or NoText,
    after which the next line can be asked for."""

    terminal: bool

    def next(self) -> list[str] | None: ...

    def begun(self) -> str:
        """What has been typed of a line that is not done."""
        ...

    def put(self, text: str) -> None:
        """Begin the next line with this."""
        ...


@contextmanager
def lines_from(words: Callable[[str, str], list[str]]) -> Iterator[Lines]:
    """Of standard input, as it is. `words`: what can take the place of the word that is being typed, the second one, at
    the end of the line, the first one."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        with _edited(words) as typed:
            yield typed
    else:
        yield Piped(sys.stdin.buffer if sys.stdin is not None else None)


class Piped:
    """Lines that nobody is typing."""

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
            raise NoText from None

    def begun(self) -> str:
        return ""

    def put(self, text: str) -> None:
        """Nobody would see it."""


class Typed:
    """Lines of a person at a terminal."""

    terminal = True

    def __init__(self, buffer: Callable[[], str], insert: Callable[[str], None]) -> None:
        self._buffer = buffer
        self._insert = insert
        self._editing = False
        self._seen = ""
        """Of the line that is being edited: what closes the terminal clears it before anybody is told."""

    def next(self) -> list[str] | None:
        lines: list[str] = []
        while not lines or (len(lines) < PASTED_LINES_MAX and _more()):
            # It stays so where a signal ends this, or the terminal is closed: what was begun is still to be kept.
            self._editing, self._seen = True, ""
            try:
                line = input()
            except EOFError:
                if _closed():
                    self._seen = "\n".join([*lines, self._seen])
                    return None
                self._editing = False
                return lines or None
            except UnicodeDecodeError:
                self._editing = False
                raise NoText from None
            if _closed():  # some readlines give what was typed, but nobody has pressed Enter
                self._seen = "\n".join([*lines, line])
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
            self._seen = typed
        return self._seen

    def put(self, text: str) -> None:
        self._insert(text)


def _closed() -> bool:
    """Whether the terminal is gone."""
    poll = select.poll()
    poll.register(sys.stdin, 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def _more() -> bool:
    """Whether the terminal has another line already."""
    ready, _, _ = select.select([sys.stdin], [], [], PASTE_S)
    return bool(ready)


@contextmanager
def _edited(words: Callable[[str, str], list[str]]) -> Iterator[Typed]:
    """With readline where there is one: arrows, history, Tab and its usual keys."""
    try:
        import readline
    except ImportError:
        yield Typed(lambda: "", lambda text: None)
        return
    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        nonlocal found
        if number == 0:
            found = words(readline.get_line_buffer()[: readline.get_endidx()], word)
        return found[number] if number < len(found) else None

    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    if "libedit" in (readline.__doc__ or ""):
        readline.parse_and_bind("bind ^I rl_complete")
    else:
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind("set enable-bracketed-paste off")  # it writes sequences that are no text
        readline.parse_and_bind("set bell-style none")
    first = ""

    def insert(text: str) -> None:
        nonlocal first
        first = text

    def begin() -> None:
        if first:
            with suppress(Exception):  # what this raised would be lost in readline, and the line with it
                readline.insert_text(first)

    readline.set_auto_history(True)
    readline.set_startup_hook(begin)
    try:
        yield Typed(readline.get_line_buffer, insert)
    finally:
        readline.set_startup_hook(None)
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])
        readline.clear_history()  # what was said is in the journal, and nowhere else
