"""Copying to the clipboard: a local tool where there is a display, else the OSC 52 sequence.

The user is shown which method was used, because terminals do not acknowledge OSC 52 and many ignore it. Over SSH the
local clipboard is the wrong one, so OSC 52 is used directly. Inside tmux the sequence is sent twice: plain for
`set-clipboard on`, wrapped for `allow-passthrough on`.
"""

import os
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from zerochat.terminal_text import Printable, printable
from zerochat.tui.host.programs import run_program

if TYPE_CHECKING:
    from textual.app import App

TOOL_S_MAX = 2.0
"""Timeout of a copy tool, for example on a display that does not respond."""
TEXT_CHARS_MAX = 1 << 18
REMOTE = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")

Command = Sequence[str]
"""A program with its arguments; it reads the text from stdin."""


def copy_tools(environ: Mapping[str, str], platform: str, find: Callable[[str], str | None] = which) -> list[Command]:
    """The tools that reach the user's clipboard, best first."""
    if any(environ.get(name) for name in REMOTE):
        return []
    wanted: list[Command] = []
    if platform == "darwin":
        wanted.append(["pbcopy"])
    if environ.get("WAYLAND_DISPLAY"):
        wanted.append(["wl-copy", "--type", "text/plain;charset=utf-8"])
    if environ.get("DISPLAY"):
        wanted += [["xclip", "-selection", "clipboard", "-in"], ["xsel", "--clipboard", "--input"]]
    found = ((find(command[0]), command) for command in wanted)
    return [[path, *command[1:]] for path, command in found if path is not None]


def osc_52(text: str, environ: Mapping[str, str]) -> str:
    """The escape sequence that sets the terminal's clipboard."""
    plain = f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07"
    if not environ.get("TMUX"):
        return plain
    wrapped = plain.replace("\x1b", "\x1b\x1b")
    return f"{plain}\x1bPtmux;{wrapped}\x1b\\"


async def run_tool(command: Command, text: str) -> bool:
    """Run a copy tool; returns whether it succeeded."""
    try:
        return await run_program(command, text.encode(), TOOL_S_MAX) == 0
    except (OSError, TimeoutError):
        return False


def clean(text: str) -> str:
    """A peer's text for the clipboard, from where it may go into a shell: control characters are made visible, tabs
    kept."""
    pieces = text.split("\t")
    return "\t".join(printable(piece, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX) for piece in pieces)


async def copy(
    app: "App[Any]",
    text: str,
    what: str,
    *,
    environ: Mapping[str, str] | None = None,
    tool: Callable[[Command, str], Awaitable[bool]] = run_tool,
) -> Printable:
    """Copy `text`, described as `what`; returns a sentence about the method used."""
    environ = os.environ if environ is None else environ
    app._clipboard = text  # for Ctrl+V inside the application
    for command in copy_tools(environ, sys.platform):
        if await tool(command, text):
            return Printable(f"{what} copied ({Path(command[0]).name}).")
    if app._driver is None:
        return Printable(f"{what} copied for Ctrl+V in zerochat only.")
    app._driver.write(osc_52(text, environ))
    return Printable(f"{what} sent to the terminal (OSC 52); not all terminals support it.")
