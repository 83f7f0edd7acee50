"""How a handler's failure is told in the log."""

import traceback
from pathlib import Path

from zerochat.terminal_text import printable

_OURS = Path(__file__).parent


def told(error: Exception) -> str:
    """A traceback, from where it is no longer ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return printable("".join(traceback.format_exception(type(error), error, trace)).rstrip())


def _is_ours(file: str) -> bool:
    return Path(file).parent == _OURS
