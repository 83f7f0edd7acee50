"""Opening a link that somebody has written: https alone, the whole of it shown first, and only when the person says so.

The program that opens it gets it as one argument, without a shell. Where there is no display to open it on, it can be
copied instead.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from shutil import which
from urllib.parse import urlsplit

from textual.content import Content

from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.host import clipboard

LINKS_MAX = 20
LINK_CHARS_MAX = 2_048
"""As much as every browser takes."""
OPENER_S_MAX = 3.0
"""An opener that says nothing for so long has a browser in its hands."""


def fault_of(link: str) -> str:
    """Why a link is not opened, as a sentence; empty: it may be."""
    if not link.startswith("https://"):
        return "Only https links are opened."
    if len(link) > LINK_CHARS_MAX:
        return f"The link is too long: {len(link):,} characters."
    if printable(link) != link or any(char.isspace() for char in link):
        return "There are signs in this link that cannot be shown, so it is not opened."
    if "\\" in link:  # which browsers read as a slash, and so lead elsewhere than it seems
        return "There is a backslash in this link, so it is not opened."
    try:
        host = urlsplit(link).hostname
    except ValueError:
        host = None
    return "" if host else "This is no link."


def host_of(link: str) -> str:
    """Where it leads, in the letters that the network knows."""
    parts = urlsplit(link)
    host = parts.hostname or ""
    try:
        plain = host.encode("idna").decode()
    except UnicodeError:
        plain = ascii(host)[1:-1]
    return plain


def warning(link: str) -> str:
    """What to look at twice; empty: nothing."""
    parts = urlsplit(link)
    host = host_of(link)
    if parts.username is not None:
        return f" What stands before the @ is no address: it leads to {host}."
    return f" It leads to {host}." if host != (parts.hostname or "") or "xn--" in host else ""


def offer(chat: Board, links: Sequence[str]) -> None:
    """Ask about a link, or which of several."""
    if len(links) == 1:
        _ask(chat, links[0])
        return
    from zerochat.tui.dialogs.menu import Pick

    def chosen(number: str | None) -> None:
        if number is not None:
            _ask(chat, links[int(number)])

    entries = [(str(number), Content(printable_line(link))) for number, link in enumerate(links)]
    chat.app.push_screen(Pick(Printable("Open which link?"), entries), chosen)


def _ask(chat: Board, link: str) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    if fault := fault_of(link):
        chat.complain(Printable(fault))
        return

    async def follow() -> None:
        way = opener(os.environ, sys.platform)
        if way is not None and await run_opener([*way, link]):
            chat.flash(Printable("Opened in your browser."))
            return
        copied = await clipboard.copy(chat.app, link, "The link")
        chat.tell(Printable(f"Nothing here could open it. {copied}"))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(follow())

    question = Printable(f"Open this link in the browser?{printable_line(warning(link))}\n\n{printable(link)}")
    chat.app.push_screen(Confirm(question, "Open", "No"), answered)


def opener(environ: Mapping[str, str], platform: str) -> list[str] | None:
    """The program that opens links on the person's screen; None: there is no screen here, or no such program."""
    if any(environ.get(name) for name in clipboard.REMOTE):
        return None
    if platform == "darwin":
        found = which("open")
    else:
        shown = environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
        found = which("xdg-open") if shown else None
    return None if found is None else [found]


async def run_opener(way: Sequence[str]) -> bool:
    """Start it; whether it did not fail at once."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *way, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except OSError:
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(OPENER_S_MAX):
            return await process.wait() == 0
    return True
