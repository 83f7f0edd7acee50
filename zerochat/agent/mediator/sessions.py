"""Client connections of a mediator, and its admission policy."""

import hmac
from collections.abc import Mapping

from msgspec import Struct, field

from zerochat.agent.mediator.tables import Recipient
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols import pickup


class Session(Struct):
    """A client connection: a WebSocket, or a POST that waits for its response."""

    handle: int
    stays: bool
    """Whether it is a WebSocket, which can carry several answers."""
    returns: bool = False
    """Whether answers may be returned (`return_route`)."""
    begun: float = 0.0
    """Start; seconds, monotonic."""
    owner: int = 0
    """The recipient that has been authenticated on it; 0: none."""
    is_kept: bool = False
    """Whether the connection is kept for that recipient."""
    profile: Profile = "didcomm/v2"
    """The envelope format of its last message."""
    recipient: Recipient | None = None
    """The recipient in live mode, to which messages are pushed."""
    live: tuple[Profile, pickup.Version] = ("didcomm/v2", "3.0")
    """How they are pushed: as live mode was turned on."""
    after: int = 0
    """The number of the last message that was pushed."""
    in_flight: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Delivered and unacknowledged messages by id: size, and time of delivery (UTC seconds)."""

    def may_answer(self, message: Message) -> bool:
        """Whether the answer to a message may be returned on this connection."""
        return self.returns or message.return_route in ("all", "thread")

    @property
    def bytes_in_flight(self) -> int:
        return sum(size for size, _ in self.in_flight.values())


class Policy(Redacted, frozen=True):
    """Which recipients are admitted, and where their short links are served."""

    REDACTED = ("invitations",)

    invitations: Mapping[str, int]
    """By the id of an invitation of the mediator, which a holder names as the parent thread, the recipients that it
    admits at once. The seat of a deleted recipient is free again."""
    is_open: bool = False
    """Whether every request is granted."""
    page: str = ""
    """The page of short links; empty: joiners cannot reach this mediator, because it is behind another one."""

    def invitation_of(self, asked: Message) -> str:
        """The id of the invitation that a request shows; empty: none."""
        shown = (asked.pthid or "").encode()
        return next((one for one in self.invitations if hmac.compare_digest(shown, one.encode())), "")
