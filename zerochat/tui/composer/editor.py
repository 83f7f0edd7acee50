"""Editing the draft in an external editor, through a temporary file.

The file is in a private folder, in memory where the system offers that; afterwards the folder is overwritten and
removed. No shell is involved.
"""

import os
import shlex
import shutil
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from zerochat.errors import LocalError
from zerochat.terminal_text import printable_line
from zerochat.tui.composer.paste import erase, write_temporary
from zerochat.tui.state.conversation import TEXT_CHARS_MAX

FALLBACK_EDITORS = ("sensible-editor", "editor", "nano", "vi")
"""Used when neither VISUAL nor EDITOR is set."""
BYTES_MAX = 4 * TEXT_CHARS_MAX


class NoEditor(LocalError):
    """No editor found; your draft is unchanged. Set VISUAL or EDITOR to the command of your editor."""


class EditorFailed(LocalError):
    """{editor} {why}. Your draft is unchanged."""


class EditedTextTooLong(LocalError):
    """The text is too long for a draft. It is saved in {path}; your draft is unchanged."""


def command() -> list[str]:
    """The editor command as a list of arguments. Raises NoEditor or EditorFailed."""
    for name in ("VISUAL", "EDITOR"):
        if command_line := os.environ.get(name, "").strip():
            try:
                return shlex.split(command_line)
            except ValueError as error:
                raise EditorFailed(editor=f"${name}", why=f"is not a valid command: {str(error).lower()}") from None
    for usual in FALLBACK_EDITORS:
        if (found := shutil.which(usual)) is not None:
            return [found]
    raise NoEditor


def edit(text: str) -> str:
    """The edited text; blocks until the editor ends. Raises NoEditor, EditorFailed or
    TooMuchWritten."""
    words = command()
    name = printable_line(Path(words[0]).name)
    try:
        path = write_temporary(text, "message.txt")
    except OSError as error:
        raise EditorFailed(editor=name, why=f"cannot get a temporary file: {(error.strerror or '').lower()}") from error
    kept = False
    try:
        try:
            with _terminal_for_editor():
                code = subprocess.run([*words, str(path)], check=False).returncode
            with path.open("rb") as file:
                new = file.read(BYTES_MAX + 1)
        except OSError as error:
            raise EditorFailed(
                editor=name, why=f"could not be started: {(error.strerror or str(error)).lower()}"
            ) from error
        if code:
            raise EditorFailed(editor=name, why=f"ended with {f'signal {-code}' if code < 0 else f'code {code}'}")
        if len(new) > BYTES_MAX:
            kept = True
            raise EditedTextTooLong(path=path)
        return new.decode(errors="replace").replace("\r\n", "\n").removesuffix("\n")
    finally:
        if not kept:
            erase(path)


@contextmanager
def _terminal_for_editor() -> Iterator[None]:
    """Give Ctrl+C to the editor and turn echo on while it runs."""

    def nothing(number: int, frame: FrameType | None) -> None:
        """Ignore SIGINT here; the editor handles its own."""

    handler = signal.signal(signal.SIGINT, nothing)
    modes = None
    with suppress(termios.error):
        modes = termios.tcgetattr(0)
        termios.tcsetattr(0, termios.TCSANOW, [*modes[:3], modes[3] | termios.ECHO, *modes[4:]])
    try:
        yield
    finally:
        if modes is not None:
            with suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, modes)
        signal.signal(signal.SIGINT, handler)
