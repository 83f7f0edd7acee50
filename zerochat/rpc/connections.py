"""External connections, their messages, and questions to one peer."""

from typing import Literal

from msgspec import Struct

Channel = Literal["direct", "mediator", "web"]
ConnectionState = Literal["offered", "requested", "established", "ended"]
ConnectionMessageStatus = Literal["waiting", "delivered", "received", "failed"]
Mediation = Literal["requested", "granted", "denied"]


class ConnectionMessage(Struct, frozen=True):
    """A message to (`mine`) or from an external connection."""

    id: str
    at: str
    mine: bool
    text: str
    status: ConnectionMessageStatus | None = None
    """Of an own message: whether the peer's endpoint has accepted it (`delivered`), its agent has acknowledged it
    (`received`), or it was given up."""
    attachments: list[str] = []
    """What the sender calls the attachments; they are not kept."""


class ConnectionInfo(Struct, frozen=True, kw_only=True):
    """A relationship outside of groups: with a mediator or another DIDComm agent."""

    id: str
    label: str
    state: ConnectionState
    envelope: str
    did: str
    """The peer's DID in short form; empty until it has answered."""
    my_did: str
    mediator: Mediation | None = None
    """The state of mediation; null: not requested."""
    reachable: bool | None = None
    """Whether the mediator can be reached now; null: it is not our mediator."""
    begun_at: str
    rotates_every_s: int = 0
    """The interval at which my DID towards it is replaced; 0: on request only."""


class ConnectionOffer(Struct, frozen=True, kw_only=True):
    """An Out-of-Band invitation to an external connection, for one agent."""

    url: str
    """The Out-of-Band link."""
    expires_at: str
    connection: str
    """The id of the future connection."""
    short: str = ""
    """As in `InvitationInfo`."""


class PendingReply(Struct, frozen=True):
    """A question was sent to a peer. The answer is a notification with this `thread`."""

    thread: str


class SentConnectionMessage(Struct, frozen=True):
    id: str
    """The id of the sent message."""


class PongNotification(Struct, frozen=True, kw_only=True):
    """A peer has answered a ping."""

    thread: str
    peer: str
    """Its label."""
    rtt_ms: int
    envelope: str
    """The envelope format of the answer and its protection."""
    their_key: str
    """The key id of the authenticated sender."""
    my_key: str
    """The key id of the recipient."""
    channel: Channel
    """How the peer is reached: by a link, through a mediator, or over HTTP."""


class FeatureInfo(Struct, frozen=True):
    """`type`: `protocol`, `goal-code` or `header`."""

    type: str
    id: str


class FeaturesNotification(Struct, frozen=True):
    """The features that a peer discloses; it need not disclose all."""

    thread: str
    peer: str
    features: list[FeatureInfo]


class ConnectionNotification(Struct, frozen=True, kw_only=True):
    """A connection was established or has ended, or its mediation was granted or denied."""

    connection: str
    text: str
    """One sentence for the user, with the peer's label."""
    label: str = ""
    state: ConnectionState = "ended"
    mediator: Mediation | None = None


class ConnectionMessageNotification(Struct, frozen=True):
    """A basic message from an external connection."""

    connection: str
    label: str
    text: str
    attachments: list[str] = []
    """As in `ConnectionMessage`."""


class MessageSettledNotification(Struct, frozen=True):
    """The endpoint of a connection has accepted a message (`delivered`), its agent has acknowledged it (`received`), or
    it was given up (`failed`)."""

    connection: str
    label: str
    id: str
    status: ConnectionMessageStatus


class ProblemNotification(Struct, frozen=True):
    """A problem report from a peer."""

    peer: str
    code: str
    comment: str


class PeerParams(Struct, frozen=True):
    peer: str


class RotateParams(Struct, frozen=True):
    """`every_s`: rotate again at this interval, 1 hour to 366 days; 0: neither now nor later; null: now only."""

    peer: str
    every_s: int | None = None


class QueryFeaturesParams(Struct, frozen=True):
    """`match`: the URI of a protocol, or a prefix followed by `*`."""

    peer: str
    match: str = "*"


class SendConnectionMessageParams(Struct, frozen=True):
    peer: str
    text: str


class OpenConnectionParams(Struct, frozen=True):
    """`invitation`: an Out-of-Band link of any version, or its JSON. `name`: the local name of the connection.
    `mediate`: request mediation. `documents`: the documents of the did:web in the invitation, as JSON, by DID."""

    invitation: str
    name: str = ""
    mediate: bool = False
    documents: dict[str, str] = {}


class OfferConnectionParams(Struct, frozen=True):
    """`name`: the local name of the connection; empty: what the peer says. `curve`: X25519, P-256, P-384 or P-521; one
    other than X25519 is published beside it, for agents without X25519 (DIDComm v2 only). `signed`: sign the invitation
    (DIDComm v2 only), so that a third party cannot change it unseen. `message`: a text that the link carries."""

    envelope: str = "didcomm/v2"
    expires_s: int = 24 * 3600
    name: str = ""
    curve: str = "X25519"
    signed: bool = False
    message: str = ""
