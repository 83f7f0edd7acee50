"""The cases of one profile's groups in its journal: what was accused of in their logs, what we have answered, and what
came of it.

What everybody has of a case stands in the log, and goes there after a while; here is what one of the two keeps of it
(`docket`), which defences were made, so that none is made twice, and the verdicts that we have worked out ourselves.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct

from zerochat.evidence.judge import FORKED, TURNED_BACK, UPHELD

CASES_SCHEMA: Final = """
CREATE TABLE cases (
    group_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    origin TEXT NOT NULL,
    accuser TEXT NOT NULL,
    accused TEXT NOT NULL,
    accept TEXT NOT NULL,
    message TEXT NOT NULL,
    docket BLOB NOT NULL,
    filed INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    told TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, digest)
) STRICT, WITHOUT ROWID;
CREATE TABLE answers (
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
    place INTEGER NOT NULL,
    PRIMARY KEY (group_id, origin)
) STRICT, WITHOUT ROWID;
"""
_TABLES: Final = ("cases", "answers", "cases_read")
_BEGIN: Final = """
INSERT INTO cases VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, '', '', ?10)
ON CONFLICT (group_id, digest) DO UPDATE SET filed = max(cases.filed, excluded.filed),
    accused = iif(cases.accused = '', excluded.accused, cases.accused),
    docket = iif(length(cases.docket) = 0, excluded.docket, cases.docket)
"""
_COLUMNS: Final = "digest, origin, accuser, accused, accept, message, docket, at, filed, verdict, told"
_GUILTY: Final = ", ".join(f"'{one}'" for one in (UPHELD, FORKED, TURNED_BACK))
MADE, POSTED, REFUSED = "made", "posted", "refused"
"""What has become of an answer: it is kept here, the core has it, or it does not go into the log."""


class KeptCase(Struct, frozen=True):
    """An accusation, and what is known of it."""

    digest: str
    """Of the accusation; of two messages that convict their author, of both (`disputes/verdicts.py`)."""
    origin: str
    """The log in which it stands; empty: it needs none."""
    accuser: str
    accused: str
    """Empty: nobody has shown it yet to whoever is neither of the two."""
    accept: str
    """The digest of the answer with which the subscription began that it is about."""
    message: str
    """base64url of SHA-256 over the message that came."""
    docket: bytes
    """What it is about (`disputes/case_files.py`), where we are one of the two; else empty."""
    at: int
    """When it was made, or came here, UTC ms."""
    filed: int = 0
    """When the log had it at the latest, UTC ms; 0: it is not there."""
    verdict: str = ""
    """What came of it, as we have worked it out; empty: it is open."""
    told: str = ""
    """The verdict that we have told the group."""


class Answer(Struct, frozen=True):
    """A defence of ours."""

    ground: str
    blob: bytes
    """As it is posted."""
    state: str
    """MADE, POSTED or REFUSED."""


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
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608  # those above

    # --- cases ------------------------------------------------------------------------------------------------------

    def begin(self, group: str, one: KeptCase) -> None:
        """Keep a case, once; who is accused of what, and when it was filed, as soon as that is known."""
        place = one.digest, one.origin, one.accuser, one.accused, one.accept, one.message, one.docket
        self._write(_BEGIN, (group, *place, one.filed, one.at))

    def decided(self, group: str, digest: str, verdict: str, accused: str) -> None:
        """Note what has come of a case, and against whom it was."""
        self._write(
            "UPDATE cases SET verdict = ?, accused = ? WHERE group_id = ? AND digest = ?",
            (verdict, accused, group, digest),
        )

    def told(self, group: str, digest: str, verdict: str) -> None:
        """Note that we have told the group this verdict."""
        self._write("UPDATE cases SET told = ? WHERE group_id = ? AND digest = ?", (verdict, group, digest))

    def all(self, group: str) -> list[KeptCase]:
        """Of a group, the oldest first."""
        return self._found("WHERE group_id = ? ORDER BY at, digest", (group,))

    def open(self, group: str) -> list[KeptCase]:
        """Those of which nothing has come yet, or of which we have not told the group what."""
        return self._found("WHERE group_id = ? AND (verdict = '' OR verdict <> told) ORDER BY at, digest", (group,))

    def guilty(self, group: str) -> list[KeptCase]:
        """Those in which somebody was found guilty."""
        return self._found(f"WHERE group_id = ? AND verdict IN ({_GUILTY}) ORDER BY at, digest", (group,))

    def one(self, group: str, digest: str) -> KeptCase | None:
        return next(iter(self._found("WHERE group_id = ? AND digest = ?", (group, digest))), None)

    def about(self, group: str, accept: str, message: str) -> list[KeptCase]:
        """Those about this message that came, and this subscription."""
        return self._found("WHERE group_id = ? AND accept = ? AND message = ?", (group, accept, message))

    def _found(self, where: str, bindings: tuple[str, ...]) -> list[KeptCase]:
        with self._faults():
            rows: Any = self._db.execute(f"SELECT {_COLUMNS} FROM cases {where}", bindings).fetchall()  # noqa: S608
        return [KeptCase(*row) for row in rows]

    # --- answers ----------------------------------------------------------------------------------------------------

    def answers(self, group: str, digest: str) -> list[Answer]:
        """Our defences against an accusation."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT ground, blob, state FROM answers WHERE group_id = ? AND digest = ? ORDER BY ground",
                (group, digest),
            ).fetchall()
        return [Answer(*row) for row in rows]

    def answer(self, group: str, digest: str, one: Answer) -> None:
        """Keep one, or what has become of it: of each ground there is one."""
        self._write(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", (group, digest, one.ground, one.blob, one.state)
        )

    # --- how far a log was looked through ---------------------------------------------------------------------------

    def read(self, group: str, origin: str) -> int:
        """How many entries of a log have been looked through for accusations."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT place FROM cases_read WHERE group_id = ? AND origin = ?", (group, origin)
            ).fetchall()
        return int(rows[0][0]) if rows else 0

    def note_read(self, group: str, origin: str, place: int) -> None:
        self._write("INSERT OR REPLACE INTO cases_read VALUES (?, ?, ?)", (group, origin, place))

    def _write(self, statement: str, bindings: tuple[Any, ...]) -> None:
        with self._transaction():
            self._db.execute(statement, bindings)
