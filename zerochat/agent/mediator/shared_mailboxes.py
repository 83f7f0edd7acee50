"""Shared mailboxes in the store: shared keys, and the DIDs of recipients that get what comes to them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from zerochat.agent.mediator.tables import Registration, registration_of

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sharers (
    key TEXT NOT NULL,
    recipient INTEGER NOT NULL,
    did INTEGER NOT NULL,
    PRIMARY KEY (key, recipient)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sharers_by_recipient ON sharers (recipient);
"""
"""Executed at each start: a file of an older version lacks it."""
_SHARED: Final = """
SELECT dids.recipient, dids.id, long_did, relay, 0 FROM sharers JOIN dids ON dids.id = sharers.did
    AND dids.recipient = sharers.recipient
    WHERE key = ? AND relay = 0 AND EXISTS (SELECT 1 FROM names WHERE names.did = dids.id) ORDER BY dids.recipient
"""


class SharedMailboxes:
    """The shared mailboxes, within the transactions of their store."""

    def __init__(
        self, rows: Callable[[str, Sequence[object]], list[Any]], write: Callable[[str, Sequence[object]], None]
    ) -> None:
        self._rows, self._write = rows, write

    def keep(self, recipient: int, wanted: Mapping[str, int], users_max: int) -> list[str]:
        """Replace the shares of a recipient by these: the number of a DID of its own for each shared key. Returns the
        keys that are kept; of one that `users_max` others share, none is."""
        self.forget(recipient)
        kept = [key for key in wanted if self.users(key) < users_max]
        for key in kept:
            self._write("INSERT INTO sharers VALUES (?, ?, ?)", (key, recipient, wanted[key]))
        return kept

    def users(self, key: str) -> int:
        """Number of recipients that share this key."""
        return int(self._rows("SELECT count(*) FROM sharers WHERE key = ?", (key,))[0][0])

    def of(self, key: str) -> list[Registration]:
        """The registered DIDs that get what comes to a shared key."""
        return [registration_of(row) for row in self._rows(_SHARED, (key,))]

    def forget(self, recipient: int) -> None:
        """A recipient shares nothing any more."""
        self._write("DELETE FROM sharers WHERE recipient = ?", (recipient,))


def shared_digest(key: str, envelope: bytes) -> bytes:
    """By which duplicates of an envelope for a shared key are recognised."""
    return hashlib.sha256(key.encode() + b"\n" + envelope).digest()[:16]
