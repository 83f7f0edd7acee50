"""Command line: parses the arguments, runs one verb and returns its exit code.

Each verb imports what it needs and no more, so that `zerochat send` starts fast enough for scripts.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import errorcode
from typing import TYPE_CHECKING

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import JSON_FORMATS, Options, has_option
from zerochat.cli.parser import parse
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; raised so that every context manager cleans up."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: the arguments of the process) and return its exit code."""
    sys.excepthook = _report_fault
    if argv is None:  # the process is ours
        threading.excepthook = sys.unraisablehook = _report_hidden_fault
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a message stays printable in a poor locale
    if has_option(sys.argv[1:] if argv is None else argv, "--log-format", ("json",)):
        from zerochat.agent.service.crash_log import JsonStream

        sys.stderr = JsonStream(sys.stderr)
    try:
        options = _parsed(argv)
        if options.format in JSON_FORMATS:
            sys.excepthook = _report_fault_as_json
        with _signals():
            return _run(options)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal wrote ^C; the prompt belongs on a new line
        return ExitCode.INTERRUPTED
    except Terminated:
        return ExitCode.TERMINATED


def _parsed(argv: Sequence[str] | None) -> Options:
    """The parsed command line. Raises SystemExit once an error, the help or the version is printed."""
    from zerochat.cli.output import Output, OutputFailed, discard_output

    try:
        return parse(argv)
    except OutputFailed as error:
        Output("text").error(error.sentence(), error.details)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        discard_output(sys.stdout)  # the reader of the pipe has closed it, as `head` does
        raise SystemExit(0) from None


def _open_streams() -> None:
    """Put /dev/null in the place of each standard stream that the caller has closed (`>&-`), so that no socket and no
    file of ours gets its number, and output to it is discarded."""
    while (number := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _report_fault(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    from zerochat.agent.service.crash_log import report_fault

    report_fault(error)


def _report_hidden_fault(args: "threading.ExceptHookArgs | sys.UnraisableHookArgs") -> None:
    """Print what ends a thread or fails in a finaliser in the same way."""
    if args.exc_value is not None:
        _report_fault(args.exc_type, args.exc_value, args.exc_traceback)


def _report_fault_as_json(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    from zerochat.agent.service.crash_log import redacted_traceback
    from zerochat.cli.output import print_error

    details = {"code": "InternalFault", "exit_code": ExitCode.REFUSED.value, "traceback": redacted_traceback(error)}
    print_error("Internal error (please report it).", details)


def _run(options: Options) -> int:
    from zerochat.cli.output import Output, OutputFailed, discard_output, set_hint_profile

    set_hint_profile(options.profile, os.environ.get("ZEROCHAT_PROFILE"))
    out = Output(options.format)
    code: int = ExitCode.OK
    try:
        code = options.run(options, out)
        out.flush()
        if out.failure is not None:
            raise out.failure
    except OutputFailed as error:
        code = code or error.exit_code
        out.error(error.sentence(), {**error.details, "exit_code": int(code)})
        return code
    except LocalError as error:
        out.error(error.sentence(), error.details)
        return error.exit_code
    except BrokenPipeError:
        discard_output(sys.stdout)  # the reader of the pipe has closed it, as `head` does
        return code
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        details = {"code": "OSError", "exit_code": ExitCode.REFUSED.value, "errno": errorcode.get(error.errno or 0, "")}
        out.error(f"{error.strerror or error}{where}", details)
        try:
            sys.stdout.flush()
        except OSError:
            discard_output(sys.stdout)  # Python would write it again at its end, and report that too
        return ExitCode.REFUSED
    out.end(code)
    return code


@contextmanager
def _signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the verb as Ctrl+C does, so that its own agent stops and temporary files go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: "FrameType | None") -> None:
        raise Terminated

    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in handled}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
