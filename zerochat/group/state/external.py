"""External connections, queries to peers, and the state of web endpoints (`group/external/`)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.did import Identity
from zerochat.didcomm.protocols.didexchange import Requester
from zerochat.didcomm.protocols.mediation_client import MediationState
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.didcomm.service import Route
from zerochat.group.links.relationship import Relationship


class BasicMessage(Redacted, frozen=True):
    """A basic message to or from a connection."""

    REDACTED = ("text", "attachments")

    id: str
    at: int
    """When it was sent or received, UTC ms."""
    mine: bool
    text: str
    status: Literal["", "waiting", "delivered", "received", "failed"] = ""
    """Of our own: whether the peer's endpoint has accepted it, and the peer's agent has acknowledged it."""
    attachments: tuple[str, ...] = ()
    """What the sender calls the attachments, which are not kept."""


class InvitedRequest(Redacted, frozen=True):
    """The request in an invitation that our user has accepted (`external/invited_requests.py`)."""

    REDACTED = ("plain",)

    plain: bytes


class OutgoingMessage(Redacted, frozen=True):
    """A message that its recipient's endpoint has not accepted yet (`external/outbox.py`)."""

    REDACTED = ("plain",)

    id: str
    plain: bytes
    since: int
    """When it was submitted, UTC ms."""
    due: int
    """The time of the next try, or when the result of this one is overdue, UTC ms."""
    tries: int = 0
    """Failed ones."""
    posted: bool = False
    """Whether a result is awaited."""


class ConnectionState(StrEnum):
    """The states of an external connection."""

    OFFERED = "offered"
    """Our invitation is unanswered."""
    REQUESTED = "requested"
    """Our answer to an invitation is unanswered."""
    ESTABLISHED = "established"
    ENDED = "ended"


CONNECTION_TRANSITIONS: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.OFFERED: frozenset({ConnectionState.ESTABLISHED}),
    ConnectionState.REQUESTED: frozenset({ConnectionState.ESTABLISHED, ConnectionState.ENDED}),
    ConnectionState.ESTABLISHED: frozenset({ConnectionState.ENDED}),
    ConnectionState.ENDED: frozenset(),
}


class Share(Struct, frozen=True):
    """A shared mailbox at our mediator (`external/mailbox_shares.py`)."""

    group: str
    update: str
    """The update whose exported secret its key derives from."""
    mailbox: int
    """The number of our own mailbox that gets what comes to it."""
    kept: bool = False
    """Whether the mediator has confirmed it."""


class Connection(Struct, frozen=True):
    """A relationship outside of any group: with a mediator, or with an agent of any vendor."""

    id: str
    label: str
    envelope: str
    relationship: Relationship
    state: ConnectionState
    pthid: str
    """The id of the invitation that it began with."""
    begun: int
    """UTC ms."""
    route: Route | None = None
    """The route to the peer; None: only in response to its messages."""
    spare: tuple[Route, ...] = ()
    """Further routes of the invitation that our user has accepted, tried in this order when the first fails."""
    exchange: Requester | None = None
    """v1: the DID exchange under way."""
    mediation: MediationState | None = None
    """Its state as our mediator; None: it is none."""
    request: InvitedRequest | None = None
    """To handle when the connection is established."""
    served_links: frozenset[str] = frozenset()
    """Ids of short links that it may serve for us, as our mediator."""
    shares: tuple[Share, ...] = ()
    """What it was last asked to share for us, as our mediator."""
    shares_asked: str = ""
    """The id of that request while it is unanswered."""
    expires: int = 0
    """When an unanswered invitation of ours expires, UTC ms."""
    breaker: Breaker = Breaker()
    """The limit of problem reports, which prevents loops of errors."""
    messages: tuple[BasicMessage, ...] = ()
    """The last basic messages in both directions, oldest first."""
    outbox: dict[str, OutgoingMessage] = field(default_factory=dict)
    """What waits to be sent, by id, oldest first. The journal stores each by itself."""
    credit: int = 0
    """The bytes of answers that may go to hosts that the peer has named itself."""

    @property
    def head(self) -> OutgoingMessage | None:
        """The message that is sent next."""
        return next(iter(self.outbox.values()), None)

    def moved_to(self, state: ConnectionState, **fields: Any) -> Self:
        """The connection in this state, with these fields changed."""
        assert state is self.state or state in CONNECTION_TRANSITIONS[self.state], f"{self.state} -> {state}"
        return replace(self, state=state, **fields)


class WebSession(Struct, frozen=True):
    """The WebSockets of a peer to us that may be used for what we send (`external/sessions.py`), by handle."""

    handle: int = 0
    """0: none."""
    pending: int = 0
    """Another one that awaits the answer to our ping; 0: none."""
    thread: str = ""
    """The id of that ping."""


class EndpointFailure(Struct, frozen=True):
    """A URI that failed to accept a post."""

    tries: int
    """Consecutive failures."""
    until: int
    """Do not use it before this time, UTC ms."""


class MailedBytes(Struct, frozen=True):
    """The bytes in a leaky bucket, as of the time `at` (UTC ms)."""

    bytes: int = 0
    at: int = 0

    def decayed(self, now: int, per_s: int) -> "MailedBytes":
        """The bucket now (UTC ms), which leaks so many bytes a second."""
        return MailedBytes(max(0, self.bytes - max(0, now - self.at) * per_s // 1000), now)


class MediatorProof(Struct, frozen=True):
    """A mediator has proved that an address is its own (`links/mediator_proof.py`)."""

    until: int
    """When the proof ends, UTC ms; in the past: the address has failed since, or has not answered again."""
    bytes: int
    """The bytes that may still be posted there under this proof."""
    mailed: MailedBytes = MailedBytes()
    """What was posted there."""


class HeldEnvelope(Redacted, frozen=True):
    """An envelope that waits until the address of a route has proved itself."""

    REDACTED = ("envelope",)

    recipient: str
    """The DID that it is for."""
    envelope: bytes


class MediatorProbe(Struct, frozen=True):
    """An open probe of a mediator's address."""

    way: str
    """The address and the mediator, as the name of their proof."""
    route: Route
    mine: Identity
    """Our DID for this probe alone."""
    thread: str
    sent_at: int
    """UTC ms."""
    nearest: AddressKind
    """The nearest kind of address that may be dialled."""
    held: tuple[HeldEnvelope, ...] = ()


class ProbeRecord(Struct, frozen=True):
    """The mail for one peer: the token bucket of unproved bytes, the backoff of its probes, and what was posted."""

    room: int
    """The bytes left at the time `at` (UTC ms)."""
    at: int
    tries: int = 0
    """Probes since the last proof."""
    until: int = 0
    """Do not probe before this time, UTC ms."""
    open: MediatorProbe | None = None
    mailed: MailedBytes = MailedBytes()
    """What was posted for this peer to proved addresses."""
    credit: int = 0
    """The bytes that may go to addresses that have never proved themselves, at the time `at`."""


class RelayedPost(Struct, frozen=True):
    """A post that a mediator of ours makes for us (`external/relayed_posts.py`)."""

    uri: str
    connection: str
    """The mediator."""
    at: int
    """When it was requested, UTC ms."""
    reference: str = ""
    """That of the `WebPost`."""


class AwaitedReceipt(Struct, frozen=True):
    """Our events in an envelope to a member's mediator, whose receipt may come (`mediator_receipts.py`)."""

    group: str
    me: str
    """The author of the chain: a member that left and returned has another one."""
    member: str
    first: int
    upto: int
    """Their positions in that chain."""
    mediator: str
    """The DID of the mediator."""
    at: int
    """When it was posted, UTC ms."""


class PeerRef(Struct, frozen=True):
    """One peer: a member of a group, or a connection."""

    group: str = ""
    member: str = ""
    connection: str = ""


class RotationSchedule(Struct, frozen=True):
    """Our DID towards a peer is replaced at intervals (`did_rotation.py`)."""

    peer: PeerRef
    every_ms: int
    since: int
    """When it was replaced last, UTC ms."""


class PeerQuery(Struct, frozen=True):
    """A query to a peer, and its time (UTC ms)."""

    kind: Literal["ping", "features"]
    peer: PeerRef
    at: int
