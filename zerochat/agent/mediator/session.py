"""A connection to a mediator, as far as its logic needs to know: what may go back over it, and what is under way."""

from msgspec import Struct, field

from zerochat.agent.mediator.tables import Recipient


class Session(Struct):
    """One WebSocket, or one POST that waits for its response."""

    handle: int
    stays: bool
    """Whether more than one message can go back: a WebSocket."""
    returns: bool = False
    """Whether answers may go back at all (`return_route`)."""
    begun: float = 0.0
    """When, by a clock that only goes forward, in seconds."""
    is_known: bool = False
    """Whether a recipient has been heard over it."""
    recipient: Recipient | None = None
    """Whom messages are pushed to as they come: live mode."""
    after: int = 0
    """The number of the last message that needs no pushing any more."""
    under_way: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What was delivered over it and not acknowledged: size, and when (UTC seconds), by message id."""

    @property
    def bytes_under_way(self) -> int:
        return sum(size for size, _ in self.under_way.values())
