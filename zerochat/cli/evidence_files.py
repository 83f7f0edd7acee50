"""Proof and case files: opening them, creating them, and telling one from the other."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from zerochat.errors import LocalError, RemoteError

PROOF_BEGINS, CASE_BEGINS = (b'{"author":', b'{"zproof":'), b'{"equivocations":'
"""First bytes of proof files and of case files, to recognise a file of the other kind."""


class CannotRead(LocalError):
    """{path} cannot be read: {why}."""


@contextmanager
def create_file(path: str) -> Iterator[IO[bytes]]:
    """A new private file, written completely or not at all; `-`: standard output."""
    if path != "-":
        from zerochat.agent.proofs.proof_file import new_file

        with new_file(Path(path)) as file:
            yield file
        return
    yield sys.stdout.buffer
    sys.stdout.flush()


@contextmanager
def open_file(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise CannotRead(path=path, why=(error.strerror or "no such file").lower()) from None


def invalid_reason(error: RemoteError, writer: str) -> str:
    """Why a file is invalid; `writer`: the verb that writes such files."""
    from zerochat.crypto.encoding import NOT_JSON

    why = str(error.fields.get("why", "a signature or key is invalid"))
    return f"it was not written by `zerochat {writer}`, or it is truncated" if why == NOT_JSON else why


def display_name(path: str) -> str:
    return "Standard input" if path == "-" else path
