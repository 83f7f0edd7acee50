"""What a fault of our own leaves behind: where in the program it was, and nobody's words.

An exception may say what a peer or the person has said, or a name, or a key, because that is what it has stumbled over.
So its class is written down, and the way there, and not what it says.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from traceback import format_tb
from types import TracebackType
from typing import Final, Literal, TypeAlias

CAUSES_MAX = 8
LOG_BYTES_MAX: Final = 1 << 20
"""Of one log file."""
LOGS_KEPT: Final = 2
"""Older ones."""
LogFormat: TypeAlias = Literal["text", "json"]


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


class DiscreetJson(Discreet):
    """The same lines for a program: one JSON object each, in ASCII.

    `at`: UTC. `level`: debug, info, warning, error. `message`: the line. `kind`: the line without what changes from one
    to the next, to group by. `fault`, of a fault of our own: the class of it, and the way there.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "kind": str(record.msg),
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["fault"] = {"class": f"{type(error).__module__}.{type(error).__qualname__}", "trace": _frames(error)}
        return json.dumps(line, ensure_ascii=True, separators=(",", ":"))


def _frames(error: BaseException) -> list[str]:
    return without_words(error).split("\n")


def handlers(path: Path, format_: LogFormat | None) -> Iterator[logging.Handler]:
    """What writes an agent's log: a file; with a `format_` standard error too, both in this format."""
    line = DiscreetJson() if format_ == "json" else Discreet("%(asctime)s %(levelname)s %(message)s")
    both: list[logging.Handler] = [LogFile(path, encoding="utf-8")]
    if format_ is not None and sys.stderr is not None:
        both.append(_Aloud(sys.stderr))
    for handler in both:
        handler.setFormatter(line)
        yield handler


class _Aloud(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Standard error, which may be a pipe that nobody reads any more."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Not a word, as with `LogFile`."""


class LogFile(logging.FileHandler):
    """A log that nobody has to read to use the program: where it cannot be written, on a full disk say, its lines are
    lost, and nothing else is disturbed by that.

    When it is full it becomes `agent.log.1`, and that `agent.log.2`. The standard library's handler that does so loads
    what sends logs over networks too, and every start would wait for that.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator
            if self.stream is None:
                self.stream = self._open()
            if self.stream.tell() + len(line.encode()) > LOG_BYTES_MAX:
                self._turn()
            self.stream.write(line)
            self.flush()
        except Exception:  # noqa: BLE001  # whatever it was, nobody is disturbed
            self.handleError(record)

    def _turn(self) -> None:
        """Begin a new file; the oldest one goes."""
        if self.stream is not None:
            self.stream.close()
        path = Path(self.baseFilename)
        kept = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, LOGS_KEPT + 1))]
        for older, newer in zip(reversed(kept), reversed(kept[:-1]), strict=False):
            with suppress(OSError):
                newer.replace(older)
        self.stream = self._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Not a word: what is printed here would stand in the middle of a verb's answer."""

    def close(self) -> None:
        with suppress(OSError):  # what was still in the buffer
            super().close()
