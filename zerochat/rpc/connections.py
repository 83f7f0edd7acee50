"""Relationships outside of any group, and what is asked of one peer."""

from typing import Literal

from msgspec import Struct

Way = Literal["direct", "mediator", "web"]
ConnectionState = Literal["offered", "requested", "established", "ended"]
Mediation = Literal["asking", "granted", "denied"]


class LetterInfo(Struct, frozen=True):
    """A line of text to (`mine`) or from a connection; answer of `letters`, which has the last ones, oldest first."""

    id: str
    at: str
    mine: bool
    text: str


class ConnectionInfo(Struct, frozen=True, kw_only=True):
    """A relationship outside of any group: with a mediator, or with an agent that may be somebody else's program."""

    id: str
    label: str
    state: ConnectionState
    envelope: str
    did: str
    """The peer's DID, in its short form; empty while its answer is awaited."""
    my_did: str
    mediator: Mediation | None = None
    """What the peer has said to being our mediator; None: it was not asked."""
    reachable: bool | None = None
    """Whether what it keeps for us can be fetched now; None: it is no mediator of ours."""
    begun_at: str


class OfferInfo(Struct, frozen=True, kw_only=True):
    """An invitation to connect, outside of any group, for one agent of whatever make."""

    url: str
    """The Out-of-Band link."""
    expires_at: str
    connection: str
    """The id of the connection that it becomes."""
    short: str = ""
    """As in `InvitationInfo`."""


class Question(Struct, frozen=True):
    """Something was asked of a peer; its answer comes as news with this `thread`."""

    thread: str


class ToldInfo(Struct, frozen=True):
    id: str
    """The id of the message that was sent."""


class PongNews(Struct, frozen=True, kw_only=True):
    """A peer has answered a ping."""

    thread: str
    peer: str
    """What it is called."""
    rtt_ms: int
    envelope: str
    """The kind of envelope that the answer came in, and how it was protected."""
    their_key: str
    """The key id of the peer that the answer is proven to be from."""
    my_key: str
    """The key id of ours that it was encrypted to."""
    way: Way
    """How the peer is reached: over a link of our own, over a mediator, or at its address on the web."""


class FeatureInfo(Struct, frozen=True):
    """`type`: `protocol`, `goal-code` or `header`; `id`: which one."""

    type: str
    id: str


class FeaturesNews(Struct, frozen=True):
    """What a peer discloses of what it speaks: all of it need not be there."""

    thread: str
    peer: str
    features: list[FeatureInfo]


class ConnectionNews(Struct, frozen=True, kw_only=True):
    """A connection was established, has ended, or its peer has said whether it will be our mediator."""

    connection: str
    text: str
    """One sentence for a person, with the peer's label in it."""
    label: str = ""
    state: ConnectionState = "ended"
    mediator: Mediation | None = None


class ToldNews(Struct, frozen=True):
    """A basic message from a connection."""

    connection: str
    label: str
    text: str


class ProblemNews(Struct, frozen=True):
    """A peer says that something went wrong on its side (a problem report)."""

    peer: str
    code: str
    comment: str


class PeerParams(Struct, frozen=True):
    peer: str


class FeaturesParams(Struct, frozen=True):
    """`match`: a protocol's URI, or the beginning of some with `*` behind it."""

    peer: str
    match: str = "*"


class TellParams(Struct, frozen=True):
    peer: str
    text: str


class ConnectParams(Struct, frozen=True):
    """`invitation`: an Out-of-Band link of any version, or the JSON in one. `name`: what to call the connection here.
    `mediate`: ask that agent to be our mediator."""

    invitation: str
    name: str = ""
    mediate: bool = False


class OfferParams(Struct, frozen=True):
    envelope: str = "didcomm/v2"
    expires_s: int = 24 * 3600
