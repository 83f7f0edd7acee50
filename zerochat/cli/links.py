"""Invitations as people hand them over: read from the command line, a pipe, the keyboard or behind a short link, and
printed with a QR code where one fits."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import ClassVar

from zerochat.cli.agents import places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import narrate
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.terminal_text import cells, qr_ansi, qr_half_blocks

INVITATION_BYTES_MAX = 64 * 1024
"""Read before we give up. Ours have less than two kilobytes, but others' may hold the offer of a whole credential; a
mail around one should be cut off first."""
SHORT_LINK_MARK = "_oobid="


class NoInvitation(LocalError):
    """No invitation was given. Paste one, or pipe it in: `zerochat {verb} - <file`."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class LinkGone(LocalError):
    """The invitation behind this short link is not there any more: it has expired, or was used. Ask whoever sent it for
    a fresh one."""


class LinkUnanswered(LocalError):
    """This short link cannot be followed now: {why}. Whoever sent it must have an agent running; try again when that is
    so, or ask for the long link."""

    exit_code: ClassVar[int] = ExitCode.UNREACHABLE


class NoInvitationBehind(LocalError):
    """There is no invitation behind this short link: {why}. Ask whoever sent it for a fresh one."""


def invitation_text(options: Options, verb: str) -> str:
    """The invitation that was given, asked for or piped in; a short link is followed first. Raises a LocalError."""
    from zerochat.agent.invitations.parse import only_invitation, read_for_group, read_pasted

    pictured = getattr(options, "image", None)  # only `join` looks at pictures
    given = _pictured(pictured) if pictured is not None else _given(options.invitation, verb)
    text = only_invitation(given)
    text = _behind(options, text) if _is_short(text) else text
    if not places_of(options).data.is_dir():  # What is wrong with it matters more than that there is no profile yet.
        now_s = int(time.time())
        _ = read_for_group(text, now_s) if verb == "join" else read_pasted(text, now_s)
    return text


def _pictured(path: str) -> str:
    """What the QR code in a picture says."""
    from pathlib import Path

    from zerochat.agent.invitations.qr_pictures import read_code

    return read_code(Path(path).expanduser())


def _given(given: str | None, verb: str) -> str:
    if given is not None and given != "-":
        narrate(
            f"(Others on this machine can see a command line while it runs; `zerochat {verb} -` keeps it to yourself.)"
        )
        text = given
    elif given is None and sys.stdin is not None and sys.stdin.isatty():
        print("Paste the invitation and press Enter: ", end="", file=sys.stderr, flush=True)
        text = sys.stdin.readline(INVITATION_BYTES_MAX)
    else:
        text = "" if sys.stdin is None else sys.stdin.buffer.read(INVITATION_BYTES_MAX).decode(errors="replace")
    text = text.encode(errors="replace").decode().strip()
    if not text:
        raise NoInvitation(verb=verb)
    return text


# --- short links ----------------------------------------------------------------------------------------------------


def _is_short(text: str) -> bool:
    return text.lower().startswith(("http://", "https://")) and SHORT_LINK_MARK in text


def _behind(options: Options, link: str) -> str:
    """The invitation behind a short link, fetched with the profile's own settings: through its proxy, or not at all."""
    from zerochat.agent.network.web.short_link_fetch import SENTENCES, NoInvitationThere, fetch_invitation
    from zerochat.agent.settings.reader import load_settings

    settings = load_settings(places_of(options))
    narrate("Fetching the invitation behind the link…")
    fetching = fetch_invitation("".join(link.split()), socks=settings.socks, ca_file=settings.web_authorities)
    try:
        found = fetching.result()
    except NoInvitationThere as error:
        why = str(error.fields["why"])
        if why in ("the answer is 404", "the answer is 410"):
            raise LinkGone from None
        if why in (*SENTENCES.values(), "the connection was lost"):
            raise LinkUnanswered(why=why) from None
        raise NoInvitationBehind(why=why) from None
    return _as_link(found) if found.startswith("{") else found


def _as_link(message: str) -> str:
    """The link that holds this message: the one form that every reader of invitations takes."""
    from zerochat.crypto.encoding import b64url
    from zerochat.didcomm.invitation import URL_PREFIX

    return URL_PREFIX + b64url(message.encode())


# --- QR codes -------------------------------------------------------------------------------------------------------


def qr_lines(text: str) -> Sequence[str]:
    """A QR code as lines to print exactly; none, and a word why, where it fits no code or not into this window."""
    try:
        rows = qr_half_blocks(text)
    except ValueError:
        narrate("This link is too long for a QR code.")
        return ()
    wide, high = cells(rows[0]), len(rows) + 1
    if sys.stdout.isatty():
        window = shutil.get_terminal_size()
        if window.columns < wide or window.lines < high:
            narrate(f"The QR code of this link needs a window of {wide}x{high}.")
            return ()
    return qr_ansi(text).split("\n")
