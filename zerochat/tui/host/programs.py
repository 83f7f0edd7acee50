"""Running a child process with input and a timeout; it never outlives its caller."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress


async def run_program(words: Sequence[str], text: bytes, timeout_s: float) -> int:
    """Run a program without a shell, with `text` on stdin; returns its exit code. Raises OSError, ValueError or
    TimeoutError."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    try:
        async with asyncio.timeout(timeout_s):
            with suppress(ConnectionError):
                await process.communicate(text)
    finally:
        await terminate(process)
    return process.returncode or 0


async def terminate(process: Process) -> None:
    """Kill a process and wait for it, even when the wait is cancelled: application and event loop cancel running
    tasks at shutdown, and the loop would close before the process is reaped. Re-raises CancelledError afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        try:
            await process.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
