"""Copying: with a tool of this machine where there is a display, else with a sequence that the terminal may obey.

What was really done is told. A tool that ends well has the text; of the sequence (OSC 52) nobody ever hears whether the
terminal took it, and many do not. Over SSH the clipboard of this machine is not the person's, so there it is the
sequence at once. Inside tmux it goes out twice: as it is, for a tmux that takes it itself (`set-clipboard on`), and
wrapped, for one that lets it through (`allow-passthrough on`).
"""

import asyncio
import os
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from zerochat.terminal_text import Printable, printable
from zerochat.tui.host.programs import end

if TYPE_CHECKING:
    from textual.app import App

TOOL_S_MAX = 2.0
"""A tool that has not taken the text by then (a display that does not answer) is given up."""
TEXT_CHARS_MAX = 1 << 18
REMOTE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")

Way = Sequence[str]
"""A program with its arguments; the text goes to its input."""


def ways(environ: Mapping[str, str], platform: str, find: Callable[[str], str | None] = which) -> list[Way]:
    """The tools that reach the person's clipboard from here, the best first."""
    if any(environ.get(name) for name in REMOTE):
        return []
    wanted: list[Way] = []
    if platform == "darwin":
        wanted.append(["pbcopy"])
    if environ.get("WAYLAND_DISPLAY"):
        wanted.append(["wl-copy", "--type", "text/plain;charset=utf-8"])
    if environ.get("DISPLAY"):
        wanted += [["xclip", "-selection", "clipboard", "-in"], ["xsel", "--clipboard", "--input"]]
    found = ((find(way[0]), way) for way in wanted)
    return [[path, *way[1:]] for path, way in found if path is not None]


def osc_52(text: str, environ: Mapping[str, str]) -> str:
    """What asks a terminal to take `text` into its clipboard."""
    plain = f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07"
    if not environ.get("TMUX"):
        return plain
    wrapped = plain.replace("\x1b", "\x1b\x1b")
    return f"{plain}\x1bPtmux;{wrapped}\x1b\\"


async def run_tool(way: Way, text: str) -> bool:
    """Give `text` to a tool, without a shell; whether it has taken it."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *way, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(TOOL_S_MAX):
            await process.communicate(text.encode())
    except TimeoutError:
        return False
    finally:
        await end(process)
    return process.returncode == 0


def clean(text: str) -> str:
    """A peer's text for a clipboard, from which it may go into a shell: what a terminal would obey is made visible, and
    tabs stay tabs."""
    pieces = text.split("\t")
    return "\t".join(printable(piece, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX) for piece in pieces)


async def copy(
    app: "App[Any]",
    text: str,
    what: str,
    *,
    environ: Mapping[str, str] | None = None,
    tool: Callable[[Way, str], Awaitable[bool]] = run_tool,
) -> Printable:
    """Copy `text`, which is `what`, and answer with a sentence on what was done."""
    environ = os.environ if environ is None else environ
    app._clipboard = text  # what Ctrl+V puts in here, whatever becomes of the rest
    for way in ways(environ, sys.platform):
        if await tool(way, text):
            return Printable(f"{what} copied ({Path(way[0]).name}).")
    if app._driver is None:
        return Printable(f"{what} copied for Ctrl+V in here; this terminal cannot be told.")
    app._driver.write(osc_52(text, environ))
    return Printable(f"{what} sent to the terminal (OSC 52), which may ignore it.")
