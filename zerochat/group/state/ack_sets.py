"""Aggregated acknowledgements in a group on the ring (`sync/aggregation.py`)."""

from msgspec import field

from zerochat.group.composite import Composite
from zerochat.overlay.ack_sets import AckSets


class AggregatedAcks(Composite, frozen=True):
    """Which members are reported to have which chains."""

    view: str = ""
    """The checksum of the view by whose places the members are counted; empty: nothing was reported yet."""
    sets: dict[str, AckSets] = field(default_factory=dict)
    """By author, of the newest authors only."""
    own: tuple[int, ...] = ()
    """By place: up to where a member is known to have our own chain; below zero, the place in our chain at which it
    joined, and it is known to have nothing. Missing places are zero."""
    due: frozenset[str] = frozenset()
    """The authors of whose chains we have delivered more since the last round."""
    number: int = 0
    """The number of the last change of a set."""
    repeats: int = 0
    """Repetitions since then."""
