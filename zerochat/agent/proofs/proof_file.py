"""Writing a proof into a file, for every face: a new one, for its owner alone, whole or not at all."""

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
"""Of a message's id, in the name of a file."""


class Written(Struct):
    """What a file has become."""

    path: Path
    messages: int = 0
    signers: int = 0
    """Members whose signature is in it that they have what it is about."""
    left_out: int = 0
    """Members who have acknowledged it, and cannot be shown to have it."""


def place_of(path: Path, what: str) -> Path:
    """Where a proof goes that somebody wants at `path`: into a folder under a name for `what` it is about, made of
    letters that every disk takes."""
    if not path.is_dir():
        return path
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in printable_line(what, 40))
    return path / f"{name.strip('-') or 'proof'}{SUFFIX}"


def write_proof(path: Path, pages: Iterable[ProofLines]) -> Written:
    """Write the pages of a proof as they come, and say what is in it. Raises FileThere, and what a disk does."""
    written = Written(path)
    with new_file(path) as file:
        add(written, file, pages)
    return written


def add(written: Written, file: IO[bytes], pages: Iterable[ProofLines]) -> None:
    """Write the pages, and count."""
    for page in pages:
        for line in page.lines:
            file.write(line.encode())
        written.messages += sum(line.startswith('{"message"') for line in page.lines)
        written.signers += sum(line.startswith('{"ack"') for line in page.lines)
        written.left_out = page.left_out


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only its owner can read; it is gone again where what is done with it fails. Raises as
    `archive.create`, and what a disk does."""
    from zerochat.agent.archive import log_file as archive
    from zerochat.agent.storage.database import fault_of_disk

    try:
        file = archive.create(path)
    except OSError as error:
        raise fault_of_disk(error, path) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise fault_of_disk(error, path) from None
        raise


def counted(messages: int, signers: int) -> str:
    """What is in a proof, as a sentence."""
    what, they = ("1 signed message", "it") if messages == 1 else (f"{messages:,} signed messages", "them")
    who = "1 member who has signed" if signers == 1 else f"{signers:,} members who have signed"
    return f"{what}, and {who} to have {they}."
