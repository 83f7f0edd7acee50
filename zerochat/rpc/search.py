"""Full-text search in one group or in all groups."""

from msgspec import Struct

from zerochat.rpc.common import Author


class SearchParams(Struct, frozen=True, kw_only=True):
    """A search. Query and fields are combined with AND.

    The query has words (a word matches longer words that start with it), "phrases", `from:NAME`, `to:NAME` (mentioned
    members), `in:GROUP`, `after:DATE` and `before:DATE`. A date without an offset (`2026-03-01T18:00+01:00`) is in the
    agent's time zone.
    """

    query: str
    group: str | None = None
    author: str | None = None
    """A name, a DID, or `me`."""
    after: str | None = None
    before: str | None = None
    older_than: str | None = None
    """The id of an event of `group`: only earlier messages."""
    limit: int = 50
    """At most 100."""
    cursor: int | None = None
    """`Found.cursor` of the previous page."""


class Hit(Struct, frozen=True, kw_only=True):
    """A matching message."""

    group: str
    id: str
    author: Author
    lamport: int
    sent_at: str
    received_at: str
    self: bool = False
    text: str
    """An excerpt of the message."""
    spans: list[tuple[int, int]]
    """The matches in `text` as ranges of characters (end exclusive); empty for a search without words."""


class Found(Struct, frozen=True, kw_only=True):
    hits: list[Hit]
    """Newest first."""
    cursor: int | None = None
    """The cursor of the next page; null: there is none."""
