"""What a member of a ring group keeps of items that it routes (`dcgka/routing.py`)."""

from msgspec import Struct, field

from zerochat.group.composite import Composite


class RoutedAuthor(Struct, frozen=True):
    """Which items of one author have come: an anti-replay window (RFC 4303, section 3.4.3)."""

    floor: int = 0
    """Items from up to this time, by the author's clock, count as replays, UTC ms."""
    recent: tuple[int, ...] = ()
    """The times of its latest items."""


class Routed(Composite, frozen=True):
    """The items of a ring group."""

    sent_at: int = 0
    """The time in our last item: each has a greater one, UTC ms."""
    waiting: tuple[bytes, ...] = ()
    """Items of others that go on with the next bundles."""
    authors: dict[str, RoutedAuthor] = field(default_factory=dict)
