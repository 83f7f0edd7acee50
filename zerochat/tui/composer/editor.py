"""Writing with the person's own editor: the draft goes into a file for a moment, and what the editor leaves comes back.

The file lies in a folder of its own that only this user may look into, in memory where the system has a place for
that; afterwards it is overwritten and removed, with whatever the editor has put beside it. No shell reads anything.
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
from zerochat.tui.composer.paste import forget, written
from zerochat.tui.state.conversation import TEXT_CHARS_MAX

USUAL = ("sensible-editor", "editor", "nano", "vi")
"""Where neither variable says one."""
BYTES_MAX = 4 * TEXT_CHARS_MAX


class NoEditor(LocalError):
    """There is no editor: set VISUAL or EDITOR to the command that starts yours. Your draft is as it was."""


class EditorFailed(LocalError):
    """{editor} {why}. Your draft is as it was."""


class TooMuchWritten(LocalError):
    """That is more than a draft can hold; it stays in {path}, and your draft is as it was."""


def command() -> list[str]:
    """The program and its arguments. Raises NoEditor or EditorFailed."""
    for name in ("VISUAL", "EDITOR"):
        if said := os.environ.get(name, "").strip():
            try:
                return shlex.split(said)
            except ValueError as error:
                raise EditorFailed(editor=f"${name}", why=f"cannot be read: {str(error).lower()}") from None
    for usual in USUAL:
        if (found := shutil.which(usual)) is not None:
            return [found]
    raise NoEditor


def edited(text: str) -> str:
    """What the person makes of `text`; the terminal is the editor's until it ends. Raises NoEditor, EditorFailed or
    TooMuchWritten."""
    words = command()
    name = printable_line(Path(words[0]).name)
    try:
        path = written(text, "message.txt")
    except OSError as error:
        raise EditorFailed(editor=name, why=f"has no file to write to: {(error.strerror or '').lower()}") from error
    kept = False
    try:
        try:
            with _left_alone():
                code = subprocess.run([*words, str(path)], check=False).returncode
            with path.open("rb") as file:
                new = file.read(BYTES_MAX + 1)
        except OSError as error:
            raise EditorFailed(editor=name, why=f"does not start: {(error.strerror or str(error)).lower()}") from error
        if code:
            raise EditorFailed(editor=name, why=f"ended with {f'signal {-code}' if code < 0 else f'code {code}'}")
        if len(new) > BYTES_MAX:
            kept = True
            raise TooMuchWritten(path=path)
        return new.decode(errors="replace").replace("\r\n", "\n").removesuffix("\n")
    finally:
        if not kept:
            forget(path)


@contextmanager
def _left_alone() -> Iterator[None]:
    """Ctrl+C in the editor is the editor's, and the terminal shows what is typed there, as it does not for the chat."""

    def nothing(number: int, frame: FrameType | None) -> None:
        """In the editor itself it does what it always does."""

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
