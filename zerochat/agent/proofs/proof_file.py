"""Writes proof files atomically, readable by their owner only; shared by all clients."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from zerochat.rpc import ProofLines
from zerochat.terminal_text import printable_line

SUFFIX: Final = ".zproof"
ID_CHARS: Final = 8
"""Characters of a message id in a file name."""


class Written(Struct):
    """Summary of a written proof."""

    path: Path
    messages: int = 0
    signers: int = 0
    """Members with a signed acknowledgement in the proof."""
    left_out: int = 0
    """Members that acknowledged without provable subscription."""


def place_of(path: Path, what: str, suffix: str = SUFFIX) -> Path:
    """The path of a new file: `path`, or in it a portable file name for `what` if `path` is a folder."""
    if not path.is_dir():
        return path
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in printable_line(what, 40))
    return path / f"{name.strip('-') or 'zerochat'}{suffix}"


def write_proof(path: Path, pages: Iterable[ProofLines]) -> Written:
    """Write the pages of a proof; return its summary. Raises FileThere, or a disk error."""
    written = Written(path)
    with new_file(path) as file:
        add(written, file, pages)
    return written


def add(written: Written, file: IO[bytes], pages: Iterable[ProofLines]) -> None:
    """Write pages and update the summary."""
    for page in pages:
        for line in page.lines:
            file.write(line.encode())
        written.messages += sum(line.startswith('{"message"') for line in page.lines)
        written.signers += sum(line.startswith('{"ack"') for line in page.lines)
        written.left_out = page.left_out


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file with mode 0600, deleted again if the block fails. Raises like `log_file.create`, or a disk error."""
    from zerochat.agent.archive import log_file
    from zerochat.agent.storage.database import disk_error

    try:
        file = log_file.create(path)
    except OSError as error:
        raise disk_error(error, path) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise disk_error(error, path) from None
        raise


def counted(messages: int, signers: int) -> str:
    """Content of a proof, as a sentence."""
    what = "1 signed message" if messages == 1 else f"{messages:,} signed messages"
    who = "1 member" if signers == 1 else f"{signers:,} members"
    return f"{what}, with signed acknowledgements by {who}."
