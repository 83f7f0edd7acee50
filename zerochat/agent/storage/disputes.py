"""Dispute cases in the journal: accusations, our defences against them, and our verdicts.

The transparency log has the public part of a case. Stored here are the case file of a party, the defences made so far,
and the verdicts computed by us.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct

from zerochat.evidence.judge import FORKED, TIME_REVERSED, UPHELD

CASES_SCHEMA: Final = """
CREATE TABLE cases (
    group_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    origin TEXT NOT NULL,
    accuser TEXT NOT NULL,
    accused TEXT NOT NULL,
    accept TEXT NOT NULL,
    message TEXT NOT NULL,
    case_file BLOB NOT NULL,
    filed INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    announced TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, digest)
) STRICT, WITHOUT ROWID;
CREATE TABLE defences (
    group_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    ground TEXT NOT NULL,
    blob BLOB NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (group_id, digest, ground)
) STRICT, WITHOUT ROWID;
CREATE TABLE cases_read (
    group_id TEXT NOT NULL,
    origin TEXT NOT NULL,
    entries INTEGER NOT NULL,
    PRIMARY KEY (group_id, origin)
) STRICT, WITHOUT ROWID;
"""
_TABLES: Final = ("cases", "defences", "cases_read")
_BEGIN: Final = """
INSERT INTO cases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, '', '', ?10)
ON CONFLICT (group_id, digest) DO UPDATE SET filed = max(cases.filed, excluded.filed),
    accused = iif(cases.accused = '', excluded.accused, cases.accused),
    case_file = iif(length(cases.case_file) = 0, excluded.case_file, cases.case_file)
"""
_COLUMNS: Final = "digest, origin, accuser, accused, accept, message, case_file, at, filed, verdict, announced"
_GUILTY: Final = ", ".join(f"'{one}'" for one in (UPHELD, FORKED, TIME_REVERSED))
MADE, POSTED, REFUSED = "made", "posted", "refused"
"""States of a defence: stored here, passed to the core, or refused for the log."""


class StoredCase(Struct, frozen=True):
    """An accusation and its state."""

    digest: str
    """Of the accusation; for an equivocation, of both messages (`disputes/verdicts.py`)."""
    origin: str
    """The transparency log that contains it; empty: none needed."""
    accuser: str
    accused: str
    """Empty: not disclosed to third parties yet."""
    accept: str
    """The digest of the acceptance that began the disputed subscription."""
    message: str
    """base64url of SHA-256 over the received message."""
    case_file: bytes
    """The case file (`disputes/case_files.py`), if we are a party; else empty."""
    at: int
    """When it was made or received, UTC ms."""
    filed: int = 0
    """When the log contained it at the latest, UTC ms; 0: not in the log."""
    verdict: str = ""
    """Our verdict; empty: open."""
    announced: str = ""
    """The verdict that we have announced to the group."""


class StoredDefence(Struct, frozen=True):
    """A defence against an accusation of us."""

    ground: str
    blob: bytes
    """As posted to the log."""
    state: str
    """MADE, POSTED or REFUSED."""


class CaseStore:
    """The journal's part for cases. Methods raise what every method of `Journal` may raise."""

    def __init__(
        self,
        connection: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db, self._faults, self._transaction = connection, faults, transaction

    def forget(self, group: str) -> None:
        """Delete a group, within the batch's transaction."""
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608  # those above

    # --- cases ------------------------------------------------------------------------------------------------------

    def add(self, group: str, one: StoredCase) -> None:
        """Store a case; if it is stored already, only add the accused, the case file and the time of filing."""
        place = one.digest, one.origin, one.accuser, one.accused, one.accept, one.message, one.case_file
        self._write(_BEGIN, (group, *place, one.filed, one.at))

    def set_verdict(self, group: str, digest: str, verdict: str, accused: str) -> None:
        """Set our verdict on a case, and the accused."""
        self._write(
            "UPDATE cases SET verdict = ?, accused = ? WHERE group_id = ? AND digest = ?",
            (verdict, accused, group, digest),
        )

    def set_announced(self, group: str, digest: str, verdict: str) -> None:
        """Set the verdict that we have announced."""
        self._write("UPDATE cases SET announced = ? WHERE group_id = ? AND digest = ?", (verdict, group, digest))

    def all_cases(self, group: str) -> list[StoredCase]:
        """All cases of a group, oldest first."""
        return self._found("WHERE group_id = ? ORDER BY at, digest", (group,))

    def open_cases(self, group: str) -> list[StoredCase]:
        """Cases without a verdict, or with an unannounced one."""
        return self._found(
            "WHERE group_id = ? AND (verdict = '' OR verdict <> announced) ORDER BY at, digest", (group,)
        )

    def proven_cases(self, group: str) -> list[StoredCase]:
        """Cases in which the accused was found guilty."""
        return self._found(f"WHERE group_id = ? AND verdict IN ({_GUILTY}) ORDER BY at, digest", (group,))

    def find(self, group: str, digest: str) -> StoredCase | None:
        return next(iter(self._found("WHERE group_id = ? AND digest = ?", (group, digest))), None)

    def cases_about(self, group: str, accept: str, message: str) -> list[StoredCase]:
        """Cases about this received message and this subscription."""
        return self._found("WHERE group_id = ? AND accept = ? AND message = ?", (group, accept, message))

    def _found(self, where: str, bindings: tuple[str, ...]) -> list[StoredCase]:
        with self._faults():
            rows: Any = self._db.execute(f"SELECT {_COLUMNS} FROM cases {where}", bindings).fetchall()  # noqa: S608
        return [StoredCase(*row) for row in rows]

    # --- defences ---------------------------------------------------------------------------------------------------

    def defences(self, group: str, digest: str) -> list[StoredDefence]:
        """Our defences against an accusation."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT ground, blob, state FROM defences WHERE group_id = ? AND digest = ? ORDER BY ground",
                (group, digest),
            ).fetchall()
        return [StoredDefence(*row) for row in rows]

    def put_defence(self, group: str, digest: str, one: StoredDefence) -> None:
        """Store a defence, or its new state: one per ground."""
        self._write(
            "INSERT OR REPLACE INTO defences VALUES (?, ?, ?, ?, ?)", (group, digest, one.ground, one.blob, one.state)
        )

    # --- progress in the transparency log ---------------------------------------------------------------------------

    def entries_read(self, group: str, origin: str) -> int:
        """Number of log entries searched for accusations."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT entries FROM cases_read WHERE group_id = ? AND origin = ?", (group, origin)
            ).fetchall()
        return int(rows[0][0]) if rows else 0

    def set_entries_read(self, group: str, origin: str, place: int) -> None:
        self._write("INSERT OR REPLACE INTO cases_read VALUES (?, ?, ?)", (group, origin, place))

    def _write(self, statement: str, bindings: tuple[Any, ...]) -> None:
        with self._transaction():
            self._db.execute(statement, bindings)
