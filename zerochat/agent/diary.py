"""What a fault of our own leaves behind: where in the program it was, and nobody's words.

An exception may say what a peer or the person has said, or a name, or a key, because that is what it has stumbled over.
So its class is written down, and the way there, and not what it says.
"""

import logging
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from traceback import format_tb
from types import TracebackType

CAUSES_MAX = 8


def without_words(error: BaseException) -> str:
    """The traceback of an exception and of those that it came from, the last one first."""
    lines: list[str] = []
    one: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if one is None:
            break
        lines += [f"{type(one).__module__}.{type(one).__qualname__}\n", *format_tb(one.__traceback__)]
        one = one.__cause__ or one.__context__
    return "".join(lines).rstrip("\n")


class Discreet(logging.Formatter):
    """Lines for a log that strangers may read."""

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return without_words(ei[1]) if ei[1] is not None else ""


class LogFile(RotatingFileHandler):
    """A log that nobody has to read to use the program: where it cannot be written, on a full disk say, its lines are
    lost, and nothing else is disturbed by that."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Not a word: what is printed here would stand in the middle of a verb's answer."""

    def close(self) -> None:
        with suppress(OSError):  # what was still in the buffer
            super().close()
