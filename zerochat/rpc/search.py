"""Looking for what was said, in all groups or in one."""

from msgspec import Struct

from zerochat.rpc.common import Author


class SearchParams(Struct, frozen=True, kw_only=True):
    """What is looked for, as a person types it (`presentation/search_query.py`): words, which may be the beginnings of longer ones,
    "words one behind the other", `from:NAME`, `to:NAME` (who is called by name), `in:GROUP`, `after:DATE` and
    `before:DATE`. All of it has to be so.

    The other fields say the same for programs, and hold besides.
    """

    query: str
    group: str | None = None
    author: str | None = None
    """A name, a DID, or `me`."""
    after: str | None = None
    before: str | None = None
    older_than: str | None = None
    """The id of an event of `group`: only what was said before it."""
    limit: int = 50
    """At most 100."""
    cursor: int | None = None
    """Where the page before has ended (`Found.cursor`)."""


class Hit(Struct, frozen=True, kw_only=True):
    """A message that has all of it."""

    group: str
    id: str
    author: Author
    lamport: int
    sent_at: str
    received_at: str
    self: bool = False
    text: str
    """The piece of the message that is about it, with an ellipsis where something is left out."""
    spans: list[tuple[int, int]]
    """From where to where in `text` (in characters, the second not included) the words stand that were looked for. None
    where only who, where or when was asked."""


class Found(Struct, frozen=True, kw_only=True):
    hits: list[Hit]
    """The newest first."""
    cursor: int | None = None
    """Where to go on; None: there is no more."""
