"""Programs that are started for a person: none of them is left behind."""

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress


async def end(program: Process) -> None:
    """End a program that may still run, and wait for that however often the wait is cancelled: the application cancels
    what goes on when it ends, its loop does so once more, and would close before it has heard of the end. Raises
    CancelledError where that has happened, when the program has ended."""
    cancelled: asyncio.CancelledError | None = None
    while program.returncode is None:
        with suppress(ProcessLookupError):
            program.kill()
        try:
            await program.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
