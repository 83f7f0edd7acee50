"""Journals on a full disk: simulated by a file system layer, or real.

`python -m tests.support.full_journal FOLDER TIMES` does the latter, for a folder on a small disk.
"""

import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import apsw

from tests.support.power_cut_journal import KEY, Deed, Restart, content, deeds, do, made
from zerochat.agent.storage.journal import DiskFull, Journal
from zerochat.group.state import Agent

ENDLESS: Final = 1 << 30
FOLD_PAGES: Final = 20
"""How long a write-ahead log gets here."""


class Narrow(apsw.VFS):
    """A file system whose write-ahead logs have room for so many more writes, and then for none until it is told
    otherwise. (What fails in a checkpoint SQLite passes over, and tries again later; apsw would raise it.)"""

    def __init__(self) -> None:
        super().__init__("narrow", "")
        self.vfs = "multipleciphers-narrow"
        self.room = self.written = 0

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _Narrow(self, name, flags)


class _Narrow(apsw.VFSFile):
    def __init__(self, disk: Narrow, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._counts = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._counts and self._disk.written >= self._disk.room:
            raise apsw.FullError
        self._disk.written += self._counts
        super().xWrite(data, offset)


def lived(path: Path, disk: Narrow, work: Sequence[Deed], room: int) -> tuple[list[int], int]:
    """What a journal has in it after each of these deeds, and how many of them had to be done again, because there was
    no room at first."""
    disk.room = ENDLESS
    made(path)
    journal, contents, again = opened(path, disk.vfs), [], 0
    disk.written, disk.room = 0, room
    for number, deed in enumerate(work):
        if isinstance(deed, Restart):
            with suppress(DiskFull):  # the write-ahead log stays, and is as good
                journal.close()
            disk.room = ENDLESS if disk.written >= disk.room else disk.room
            journal = opened(path, disk.vfs)
        for last in (False, False, True):
            before = content(journal)
            try:
                do(journal, deed, number)
                break
            except (DiskFull, apsw.FullError):
                again += 1
                assert content(journal) == before, "nothing of it is there"
                disk.room = ENDLESS if last else disk.room
        else:
            do(journal, deed, number)
        contents.append(content(journal))
    journal.check()
    journal.close()
    return contents, again


def fill_up(folder: Path, times: int) -> int:
    """On a small disk, so many journals: whatever they are asked to do finds no room now and then. How often."""
    dice, refused = random.Random(6), 0
    for _ in range(times):
        work, path, ballast = deeds(dice, 16), folder / "journal.db", folder / "ballast"
        made(path)
        journal = opened(path)
        for number, deed in enumerate(work):
            if isinstance(deed, Restart):
                journal.close()
                journal = opened(path)
            before = content(journal)
            leave_pages(ballast, dice.randrange(12))
            try:
                do(journal, deed, number)
            except DiskFull:
                refused += 1
                assert content(journal) == before, "nothing of it is there"
                if dice.random() < 0.5:
                    journal.close()
                    journal = opened(path)
                    assert content(journal) == before
                ballast.unlink()
                do(journal, deed, number)
        journal.check()
        after = content(journal)
        journal.close()
        with Journal.open(path, KEY) as journal:
            journal.check()
            assert content(journal) == after
        for each in folder.glob("*"):
            if each.is_file():
                each.unlink()
    return refused


def leave_pages(ballast: Path, pages: int) -> None:
    """Take all the room on a disk, but for so many pages."""
    with ballast.open("wb") as file:
        room = os.fstatvfs(file.fileno())
        if (size := (room.f_bavail - pages) * room.f_frsize) > 0:
            os.posix_fallocate(file.fileno(), 0, size)


def opened(path: Path, vfs: str | None = None) -> Journal:
    journal = Journal.open(path, KEY, vfs=vfs)
    journal._db.pragma("wal_autocheckpoint", FOLD_PAGES)
    journal.load(Agent)
    return journal


if __name__ == "__main__":
    print(fill_up(Path(sys.argv[1]), int(sys.argv[2])))
