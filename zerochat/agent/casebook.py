"""The cases of one profile in its journal: whom we have accused, and who has accused us of what.

A case itself stands in its group's log; here is what one of the two keeps of it, and which grounds were said to it, so
that none is said twice. What others tell of a case is in their events, and nothing of it is kept here.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct

CASES_SCHEMA: Final = """
CREATE TABLE cases (
    group_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    accept TEXT NOT NULL,
    message TEXT NOT NULL,
    origin TEXT NOT NULL,
    accuser TEXT NOT NULL,
    accused TEXT NOT NULL,
    docket BLOB NOT NULL,
    answers TEXT NOT NULL DEFAULT '',
    told TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, digest)
) STRICT, WITHOUT ROWID;
"""
_OPEN = "INSERT OR IGNORE INTO cases VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '', ?)"
_COLUMNS = "digest, origin, accuser, accused, docket, answers, told, at"


class Kept(Struct, frozen=True):
    """A case between us and somebody else."""

    digest: str
    """Of the accusation."""
    origin: str
    """The log in which it stands."""
    accuser: str
    accused: str
    docket: bytes
    """What it is about (`cases/dockets.py`)."""
    answers: str
    """The grounds that we have posted against it, with a space behind each."""
    told: str
    """The verdict that we have told the group; empty: none yet."""
    at: int
    """When it was made, or came here, UTC ms."""


class Casebook:
    """The part of a journal that keeps them. One thread at a time uses it; raises what every method of it may."""

    def __init__(
        self,
        connection: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db, self._faults, self._transaction = connection, faults, transaction

    def forget(self, group: str) -> None:
        """Within a turn's transaction."""
        self._db.execute("DELETE FROM cases WHERE group_id = ?", (group,))

    def begin(self, group: str, one: Kept, accept: str, message: str) -> None:
        """Keep a case, once. `accept`, `message`: as the accusation names them."""
        place = group, one.digest, accept, message, one.origin, one.accuser, one.accused
        with self._transaction():
            self._db.execute(_OPEN, (*place, one.docket, one.at))

    def answered(self, group: str, digest: str, ground: str) -> None:
        """Note that we have posted this ground."""
        self._change("answers = answers || ? || ' '", group, digest, ground)

    def told(self, group: str, digest: str, verdict: str) -> None:
        """Note that we have told the group this verdict."""
        self._change("told = ?", group, digest, verdict)

    def _change(self, what: str, group: str, digest: str, value: str) -> None:
        with self._transaction():
            self._db.execute(
                f"UPDATE cases SET {what} WHERE group_id = ? AND digest = ?",  # noqa: S608  # one of the two above
                (value, group, digest),
            )

    def all(self, group: str) -> list[Kept]:
        """Of a group, the oldest first."""
        return self._found("WHERE group_id = ? ORDER BY at, digest", (group,))

    def one(self, group: str, digest: str) -> Kept | None:
        return next(iter(self._found("WHERE group_id = ? AND digest = ?", (group, digest))), None)

    def about(self, group: str, accept: str, message: str) -> list[Kept]:
        """Those about this message that came, and this subscription."""
        return self._found("WHERE group_id = ? AND accept = ? AND message = ?", (group, accept, message))

    def _found(self, where: str, bindings: tuple[str, ...]) -> list[Kept]:
        with self._faults():
            rows: Any = self._db.execute(f"SELECT {_COLUMNS} FROM cases {where}", bindings).fetchall()  # noqa: S608
        return [Kept(*row) for row in rows]
