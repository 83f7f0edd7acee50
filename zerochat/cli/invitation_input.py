"""Invitations as input: from the command line, a pipe, a prompt, a picture or a short link; and their QR codes."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import ClassVar

from zerochat.agent.storage.paths import user_path
from zerochat.cli.agent_access import paths_of
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options
from zerochat.cli.output import narrate
from zerochat.errors import LocalError
from zerochat.qr import qr_ansi, qr_half_blocks
from zerochat.terminal_text import cells

INVITATION_BYTES_MAX = 64 * 1024
"""Limit of the input. Our invitations have less than 2 kB, but others may contain a credential offer."""


class NoInvitation(LocalError):
    """No invitation given. Paste it, or use a pipe: `zerochat {verb} - <file`."""

    exit_code: ClassVar[int] = ExitCode.USAGE


def invitation_text(options: Options, verb: str) -> str:
    """The invitation from the argument, the prompt or the pipe; a short link is resolved. Raises LocalError."""
    from zerochat.agent.invitations import resolving
    from zerochat.agent.invitations.pasted_text import only_invitation, read_for_group, read_pasted

    image = getattr(options, "image", None)  # an option of `join`
    given = _from_image(image) if image is not None else _given(options, verb)
    text = only_invitation(given)
    if resolving.is_short(text):
        narrate("Resolving the short link…")
        text = resolving.resolve(paths_of(options), text, mediates=verb == "route add")
    if not paths_of(options).data.is_dir():  # an invalid invitation is reported before a missing profile
        now_s = int(time.time())
        _ = read_for_group(text, now_s) if verb == "join" else read_pasted(text, now_s)
    return text


def _from_image(path: str) -> str:
    """The text of the QR code in an image file."""

    from zerochat.agent.invitations.qr_pictures import read_code

    return read_code(user_path(path))


def _given(options: Options, verb: str) -> str:
    given = options.invitation
    if given is not None and given != "-":
        if not options.in_chat:
            narrate(
                f"Note: other users of this machine can see the command line; `zerochat {verb} -` reads standard input."
            )
        text = given
    elif given is None and sys.stdin is not None and sys.stdin.isatty():
        print("Paste the invitation and press Enter: ", end="", file=sys.stderr, flush=True)
        text = sys.stdin.readline(INVITATION_BYTES_MAX)
    else:
        text = "" if sys.stdin is None else sys.stdin.buffer.read(INVITATION_BYTES_MAX).decode(errors="replace")
    text = text.encode(errors="replace").decode().strip()
    if not text:
        raise NoInvitation(verb=tuple(verb.split()))
    return text


# --- QR codes ---------------------------------------------------------------------------------------------------------


def qr_lines(text: str) -> Sequence[str]:
    """A QR code as lines to print unchanged; empty, with a message, if the text or the window is too small for it."""
    try:
        rows = qr_half_blocks(text)
    except ValueError:
        narrate("The link is too long for a QR code.")
        return ()
    columns, lines = cells(rows[0]), len(rows) + 1
    if sys.stdout.isatty():
        terminal = shutil.get_terminal_size()
        if terminal.columns < columns or terminal.lines < lines:
            narrate(f"The QR code needs a terminal of at least {columns}x{lines}.")
            return ()
    return qr_ansi(text).split("\n")
