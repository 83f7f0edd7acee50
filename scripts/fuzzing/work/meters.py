"""Counted work: the same for the same messages on every machine, unlike CPU time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
from msgspec import Struct, field
from nacl import bindings as sodium

from zerochat.crypto import primitives

STEPS_EACH = 50
"""SQLite counts its instructions in steps of so many."""


class Work(Struct):
    """What some messages have cost."""

    messages: int = 0
    received: int = 0
    """Their bytes."""
    cpu_ns: int = 0
    signatures: int = 0
    """Signatures verified."""
    agreements: int = 0
    """X25519 operations that no cache answered."""
    sql: int = 0
    """Instructions of SQLite, in `STEPS_EACH`."""
    written: int = 0
    """Bytes of the pages that were written."""
    sent: int = 0
    """Bytes of envelopes, and of deliveries."""
    notices: int = 0
    """Notifications for clients."""
    refused: int = 0
    """Messages without effect."""

    def add(self, other: "Work") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def since(self, before: "Work") -> "Work":
        return Work(*(getattr(self, name) - getattr(before, name) for name in self.__struct_fields__))

    def copy(self) -> "Work":
        return Work(*(getattr(self, name) for name in self.__struct_fields__))


class Meter(Struct):
    """The work of one machine so far."""

    total: Work = field(default_factory=Work)
    _databases: list[Any] = field(default_factory=list)

    def watch_database(self, database: apsw.Connection) -> None:
        """Count the instructions and the written pages of a database from now on."""
        self._databases.append(database)
        self._pages(database)

        def step() -> bool:
            self.total.sql += 1
            return False

        database.set_progress_handler(step, STEPS_EACH)

    @staticmethod
    def _pages(database: apsw.Connection) -> int:
        return database.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)[0]

    @contextmanager
    def running(self) -> Iterator[None]:
        """The machine works: count what it does."""
        verify, agree, total = primitives.open_signed, sodium.crypto_scalarmult, self.total

        def verified(signed: bytes, key: bytes) -> bytes:
            total.signatures += 1
            return verify(signed, key)

        def agreed(n: bytes, p: bytes) -> bytes:
            total.agreements += 1
            return agree(n, p)

        primitives.open_signed, sodium.crypto_scalarmult = verified, agreed
        begin = time.thread_time_ns()
        try:
            yield
        finally:
            total.cpu_ns += time.thread_time_ns() - begin
            primitives.open_signed, sodium.crypto_scalarmult = verify, agree
            total.written += sum(self._pages(database) for database in self._databases) * 4096
