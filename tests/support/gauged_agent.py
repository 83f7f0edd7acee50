"""An agent that reports the memory that it holds: `python tests/support/gauged_agent.py REPORT agent …`.

At SIGUSR2 it collects garbage and writes to the file REPORT how many bytes are in use: what libraries have allocated
(`mallinfo2`), and Python's small objects. Both leave out what the allocators keep for later. Linux with glibc 2.33.
"""

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType

SMALL_BYTES = 64
"""About the mean size of Python's small objects, of which only the number is known."""


class Mallinfo2(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def held_bytes() -> int:
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo2
    gc.collect()
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd + SMALL_BYTES * sys.getallocatedblocks())


def report_to(path: Path) -> None:
    """Write such a report at each signal."""

    def report(signum: int, frame: FrameType | None) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(str(held_bytes()))
        os.replace(fresh, path)  # noqa: PTH105

    signal.signal(signal.SIGUSR2, report)


if __name__ == "__main__":
    from zerochat.cli import main

    report_to(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
