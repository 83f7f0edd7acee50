"""Crash log: log files and tracebacks without message texts, names or keys.

The text of an exception may contain data of a peer or the user. So only its class and the stack are logged.
"""

import io
import json
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import gmtime
from traceback import StackSummary, extract_tb
from types import TracebackType
from typing import Final, Literal, TextIO, TypeAlias

CAUSES_MAX = 8
LOG_BYTES_MAX: Final = 1 << 20
"""Size of one log file."""
LOGS_KEPT: Final = 2
"""Rotated log files that are kept."""
TRACEBACK: Final = "Traceback (most recent call last):"
FAILURES: Final = ("zerochat: ", "usage: ", TRACEBACK)
"""How messages of failures begin; others are warnings and hints."""
LogFormat: TypeAlias = Literal["text", "json"]


def redacted_traceback(error: BaseException) -> str:
    """The traceback of an exception and its causes, latest first, without exception texts."""
    lines: list[str] = []
    one: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if one is None:
            break
        # Without columns, for whose markers Python 3.11 parses the line; that fails if a finaliser parses meanwhile.
        frames = [
            (frame.filename, frame.lineno or 0, frame.name, frame.line) for frame in extract_tb(one.__traceback__)
        ]
        lines += [f"{type(one).__module__}.{type(one).__qualname__}\n", *StackSummary.from_list(frames).format()]
        one = one.__cause__ or one.__context__
    return "".join(lines).rstrip("\n")


class contained:
    """An internal error in the block is logged and ends here. `what`: what the block does, as in "while sending"."""

    __slots__ = ("_log", "_what")

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what = log, what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._log.error("internal error while %s", self._what, exc_info=error)
        return True


class RedactingFormatter(logging.Formatter):
    """Formats log lines without exception texts, with times in UTC: a long-running process has an old time zone."""

    converter = staticmethod(gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return redacted_traceback(ei[1]) if ei[1] is not None else ""


class RedactingJsonFormatter(RedactingFormatter):
    """The same as JSON Lines in ASCII.

    `at`: UTC. `level`: debug, info, warning, error. `message`: the line. `kind`: the message template, to group by.
    `fault`: class and stack of an exception.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "kind": str(getattr(record, "kind", record.msg)),
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["fault"] = {"class": f"{type(error).__module__}.{type(error).__qualname__}", "trace": _frames(error)}
        return json.dumps(line, ensure_ascii=True, separators=(",", ":"))


class JsonStream(io.TextIOBase):
    """A stream that turns all text that is written to it into lines as of `RedactingJsonFormatter`: messages of the
    program, and warnings and tracebacks of the interpreter and of libraries. A text ends with its newline, and a
    traceback with its exception, whose text is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._unfinished = defaultdict[int, str](str)
        """By thread."""

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        held = self._unfinished.pop(thread, "") + text
        if held.endswith("\n") and not _lacks_exception(held):
            if message := held.strip("\n"):
                self._put(message)
        elif held:
            self._unfinished[thread] = held
        return len(text)

    def report(self, message: str, error: BaseException) -> None:
        """Write a fault as one line."""
        self._put(message, error)

    def _put(self, message: str, error: BaseException | None = None) -> None:
        level = logging.ERROR if error is not None or message.startswith(FAILURES) else logging.WARNING
        fault = (type(error), error, error.__traceback__) if error is not None else None
        record = logging.LogRecord("", level, "", 0, "%s", (_without_exception_text(message),), fault)
        record.kind = "standard error"
        self.stream.write(RedactingJsonFormatter().format(record) + "\n")

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()


def _lacks_exception(text: str) -> bool:
    """Whether this is the beginning of a traceback, whose last line is not indented."""
    last = text.removesuffix("\n").rpartition("\n")[2]
    return text.startswith(TRACEBACK) and (last.startswith((TRACEBACK, " ")))


def _without_exception_text(message: str) -> str:
    """A message with the class of the exception alone in the place of the end of its traceback."""
    before, header, trace = message.partition(TRACEBACK)
    if not header:
        return message
    lines = trace.split("\n")
    end = next((index for index, line in enumerate(lines[1:], 1) if not line.startswith(" ")), len(lines))
    return "\n".join(
        [before + header + lines[0], *lines[1:end], *(line.partition(":")[0] for line in lines[end : end + 1])]
    )


def report_fault(error: BaseException) -> None:
    """Print an exception that no code has caught, without its text: the system may keep the output in a log."""
    message = "zerochat: internal error (please report it)"
    if isinstance(sys.stderr, JsonStream):
        sys.stderr.report(message, error)
    else:
        print(f"{message}\n{redacted_traceback(error)}", file=sys.stderr)


def _frames(error: BaseException) -> list[str]:
    return redacted_traceback(error).split("\n")


def handlers(path: Path, format_: LogFormat | None) -> Iterator[logging.Handler]:
    """The handlers of an agent's log: a file, and standard error if a `format_` is given; both in this format."""
    line = (
        RedactingJsonFormatter() if format_ == "json" else RedactingFormatter("%(asctime)s %(levelname)s %(message)s")
    )
    if logging.lastResort is not None:  # it prints what libraries log
        logging.lastResort.setFormatter(RedactingFormatter())
    both: list[logging.Handler] = [LogFile(path, encoding="utf-8")]
    if format_ is not None and sys.stderr is not None:
        both.append(_StderrHandler(sys.stderr.stream if isinstance(sys.stderr, JsonStream) else sys.stderr))
    for handler in both:
        handler.setFormatter(line)
        yield handler


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Standard error, which may be a closed pipe."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors, as `LogFile` does."""


class LogFile(logging.FileHandler):
    """A rotating log file. When it cannot be written, for example on a full disk, lines are lost silently.

    A full file becomes `agent.log.1`, and that `agent.log.2`. The standard library's rotating handler also imports
    network handlers, which would slow down every start.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator
            if self.stream is None:
                self.stream = self._open()
            if self.stream.tell() + len(line.encode()) > LOG_BYTES_MAX:
                self._rotate()
            self.stream.write(line)
            self.flush()
        except Exception:  # noqa: BLE001  # logging must not disturb the program
            self.handleError(record)

    def _rotate(self) -> None:
        """Rotate: begin a new file, and delete the oldest."""
        if self.stream is not None:
            self.stream.close()
        path = Path(self.baseFilename)
        kept = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, LOGS_KEPT + 1))]
        for older, newer in zip(reversed(kept), reversed(kept[:-1]), strict=False):
            with suppress(OSError):
                newer.replace(older)
        self.stream = self._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors: a message on standard error would mix with the output of a command."""

    def close(self) -> None:
        with suppress(OSError):  # buffered lines may fail
            super().close()
