"""Signed streams of a group with sender keys: our own, and the other members'."""

from msgspec import Struct, field

from zerochat.crypto.structs import Redacted
from zerochat.group.composite import Composite


class OwnStream(Redacted, frozen=True):
    """The state of our own signed stream."""

    REDACTED = ("start", "head", "chain")

    alias: bytes
    """Its name, 16 bytes; another one after each restart."""
    start: bytes
    """The predecessor of the first message, 64 bytes."""
    head: bytes
    """The signature of the last message, or `start`."""
    chain: bytes
    """The chain key, from which all later message keys derive."""
    since: int
    """When the chain key was drawn, UTC ms."""
    time: int = 0
    """`T` of the last message."""
    messages: int = 0
    """Messages since the key was drawn."""
    rotation_due: bool = False
    """Enough members have left since then that the key must be rotated."""
    departures: int = 0
    """Members that left or were removed since then."""


class Subscriber(Struct, frozen=True):
    """A member that is subscribed to our stream."""

    request: str
    """The digest of its request."""
    digest: str
    """The digest of our answer."""
    after: int
    """Our events up to this position are not in the stream for it; it gets them separately."""
    accept: str = ""
    """Our answer, until it has confirmed it: retransmitted."""
    acked: int = 0
    """`T` of the last message that it has acknowledged, or that precedes its subscription. The journal knows whether it
    has signed for that message (`StoreAck`)."""
    answered_at: int = 0
    """When we answered, UTC ms."""
    rules: str = ""
    """The digest of the rules by which we may be judged; empty: none."""
    begun: int = 0
    """`T` of the last message of our stream when the subscription began."""
    former: int = 0
    """`T` of the last earlier message that it has acknowledged; equal to `begun`: none, or all."""


class Stream(Redacted, frozen=True):
    """Another member's stream, as far as received."""

    REDACTED = ("head", "chain", "ack", "former")

    alias: bytes
    head: bytes
    """The signature of the last accepted message, which the next one must name."""
    chain: bytes
    accept: str
    """The digest of the answer to our request."""
    accepted_at: int
    """When that was given, by the author's clock."""
    after: int
    """Events after this position of the author's chain come in the stream only."""
    time: int = 0
    """`T` of the last accepted message; 0: none."""
    ack: str = ""
    """Our signed acknowledgement of it, base64url; empty: none."""
    confirmation_due: bool = False
    """The author does not know yet that we have its answer."""
    rules: str = ""
    """The digest of the rules by which its author may be judged; empty: none."""
    received_at: int = 0
    """When the answer came, UTC ms: the time in our confirmation, the same each time."""
    former: str = ""
    """Our signed acknowledgement of the last message under the previous answer; our confirmation contains it, since no
    message under this one can show that we have that."""


class SubscriptionRequest(Struct, frozen=True):
    """Our unanswered request for a member's stream."""

    digest: str
    statement: str
    requested_at: int = 0
    """When we last sent it in answer to an unsubscribed `sync`, or first, UTC ms."""


class EarlyMessage(Redacted, frozen=True):
    """A signed message whose predecessor is missing."""

    REDACTED = ("written",)

    written: bytes


class EarlyMessages(Struct, frozen=True):
    """Early messages of one author. The journal stores each by itself, so one more costs one row."""

    messages: dict[bytes, EarlyMessage] = field(default_factory=dict)
    """By the predecessor's signature."""

    @property
    def written(self) -> list[bytes]:
        """All messages."""
        return [early.written for early in self.messages.values()]

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(map(len, self.written))


class SignedStreams(Composite, frozen=True):
    """All signed streams of a group with sender keys (`group/signed_streams/`)."""

    own: OwnStream | None = None
    """Our own signed stream; None: nothing was posted, or the group's keys do not sign."""
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    """By member: its subscription to our stream."""
    followed: dict[str, Stream] = field(default_factory=dict)
    """By member: its stream."""
    requests: dict[str, SubscriptionRequest] = field(default_factory=dict)
    """By member: our open subscription request."""
    early_messages: dict[str, EarlyMessages] = field(default_factory=dict)
    """By member: signed messages that arrived before their predecessor."""
