"""Read markers: up to where the user has read each group, stored in the journal's meta table.

A marker is no event, so the core does not know it. It is deleted with its group.
"""

import msgspec
from msgspec import Struct

from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.tables import READ_PREFIX


class ReadMarker(Struct, frozen=True, array_like=True):
    seq: int = 0
    """The local number up to which everything was read."""
    place: tuple[int, str, str] | None = None
    """The newest of these events in the order of the log: Lamport time, author, id."""


def load_marker(journal: Journal, group: str) -> ReadMarker:
    """The marker of a group (by id)."""
    value = journal.meta_get(READ_PREFIX + group)
    return msgspec.json.decode(value, type=ReadMarker) if value else ReadMarker()


def store_marker(journal: Journal, group: str, marker: ReadMarker) -> None:
    """Store the marker of a group (by id)."""
    journal.meta_set(READ_PREFIX + group, msgspec.json.encode(marker))
