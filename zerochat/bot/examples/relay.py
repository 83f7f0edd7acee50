"""Sends the output of a command to a group, in batches of lines, then its exit code. Then the bot ends.

    RELAY_GROUP=ops RELAY_COMMAND="make deploy" python relay.py

Environment: RELAY_GROUP, the group (`ops`); RELAY_COMMAND, the command, run without a shell.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

from zerochat import Bot

GROUP = os.environ.get("RELAY_GROUP", "ops")
COMMAND = shlex.split(os.environ.get("RELAY_COMMAND", "uptime"))
EVERY_S = 2.0
LINES_MAX, CHARS_MAX = 30, 400
bot = Bot(name="relay")


async def output_of(command: list[str]) -> AsyncIterator[str]:
    """The output of a command line by line, then its exit code."""
    out, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=both, limit=1 << 20)
    assert process.stdout is not None
    async for line in process.stdout:
        yield line.decode(errors="replace").rstrip()
    code = await process.wait()
    yield f"{'✅' if code == 0 else '❌'} {Path(command[0]).name} exited with code {code}."


async def relay(lines: AsyncIterator[str], group: str) -> None:
    """Send these lines to a group, those of two seconds in one message."""
    waiting: list[str] = []

    async def collect() -> None:
        async for line in lines:
            waiting.append(line if len(line) <= CHARS_MAX else line[: CHARS_MAX - 1] + "…")
            while len(waiting) >= LINES_MAX:  # back-pressure: the command waits until these are sent
                await asyncio.sleep(EVERY_S / 10)

    collecting = asyncio.create_task(collect())
    while not collecting.done() or waiting:
        await asyncio.wait([collecting], timeout=EVERY_S)
        if waiting:
            text, waiting[:] = "\n".join(waiting), []
            await bot.send(group, text or "(an empty line)")
    collecting.result()


@bot.on_start
async def begin() -> None:
    await relay(output_of(COMMAND), GROUP)
    bot.stop()


if __name__ == "__main__":
    bot.run()
