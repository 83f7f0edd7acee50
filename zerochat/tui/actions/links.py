"""Opening https links after confirmation; the opener gets the link as one argument, without a shell.

Without a display the link is copied instead.
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
from zerochat.tui.chat_view import ChatView
from zerochat.tui.host import clipboard

LINKS_MAX = 20
LINK_CHARS_MAX = 2_048
"""A length that every browser accepts."""
OPENER_S_MAX = 3.0
"""An opener that still runs after this many seconds counts as successful."""


def link_fault(link: str) -> str:
    """Why a link is refused, as a sentence; empty: it is accepted."""
    if not link.startswith("https://"):
        return "Only https links can be opened."
    if len(link) > LINK_CHARS_MAX:
        return f"The link is too long: {len(link):,} characters."
    if printable(link) != link or any(char.isspace() for char in link):
        return "This link contains characters that cannot be displayed, so it was not opened."
    if "\\" in link:  # browsers read it as a slash: the visible host may not be the real one
        return "This link contains a backslash, so it was not opened."
    try:
        host = urlsplit(link).hostname
    except ValueError:
        host = None
    return "" if host else "This is not a valid link."


def host_of(link: str) -> str:
    """The host in its ASCII (IDNA) form."""
    parts = urlsplit(link)
    host = parts.hostname or ""
    try:
        plain = host.encode("idna").decode()
    except UnicodeError:
        plain = ascii(host)[1:-1]
    return plain


def link_warning(link: str) -> str:
    """A warning about the real host of a deceptive link; empty: none needed."""
    parts = urlsplit(link)
    host = host_of(link)
    if parts.username is not None:
        return f" The part before the @ is not the address: the link leads to {host}."
    return f" It leads to {host}." if host != (parts.hostname or "") or "xn--" in host else ""


def open_links(chat: ChatView, links: Sequence[str]) -> None:
    """Confirm and open a link; with several, choose one first."""
    if len(links) == 1:
        _confirm(chat, links[0])
        return
    from zerochat.tui.dialogs.menu import MenuDialog

    def chosen(number: str | None) -> None:
        if number is not None:
            _confirm(chat, links[int(number)])

    entries = [(str(number), Content(printable_line(link))) for number, link in enumerate(links)]
    chat.app.push_screen(MenuDialog(Printable("Open which link?"), entries), chosen)


def _confirm(chat: ChatView, link: str) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if fault := link_fault(link):
        chat.report_error(Printable(fault))
        return

    async def follow() -> None:
        command = opener(os.environ, sys.platform)
        if command is not None and await run_opener([*command, link]):
            chat.flash(Printable("Opened in your browser."))
            return
        copied = await clipboard.copy(chat.app, link, "The link")
        chat.report(Printable(f"No program here could open it. {copied}"))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(follow())

    question = Printable(f"Open this link in the browser?{printable_line(link_warning(link))}\n\n{printable(link)}")
    chat.app.push_screen(ConfirmDialog(question, "Open", "Cancel"), answered)


def opener(environ: Mapping[str, str], platform: str) -> list[str] | None:
    """The command that opens links on the local display; None: no display or no such program."""
    if any(environ.get(name) for name in clipboard.REMOTE):
        return None
    if platform == "darwin":
        found = which("open")
    else:
        shown = environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
        found = which("xdg-open") if shown else None
    return None if found is None else [found]


async def run_opener(command: Sequence[str]) -> bool:
    """Start the opener; returns False when it fails at once."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except OSError:
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(OPENER_S_MAX):
            return await process.wait() == 0
    return True
