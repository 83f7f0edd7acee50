"""What we know of anybody outside of a group, and of ways over the web (`group/outside/`)."""

from typing import Literal

from msgspec import Struct

from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.protocols.didexchange import Requester
from zerochat.didcomm.protocols.mediation_client import Mediated
from zerochat.didcomm.protocols.problem import Breaker
from zerochat.didcomm.service import Route
from zerochat.group.links.relationship import Relationship


class Letter(Veiled, frozen=True):
    """A basic message: a line of text to or from a connection."""

    VEILED = ("text",)

    id: str
    at: int
    """When it was sent, or came, UTC ms."""
    mine: bool
    text: str


class Connection(Struct, frozen=True):
    """A relationship outside of any group: with a mediator, or with an agent that may be somebody else's program."""

    id: str
    label: str
    envelope: str
    relationship: Relationship
    state: Literal["offered", "requested", "established", "ended"]
    pthid: str
    """The id of the invitation that it began with."""
    begun: int
    """UTC ms."""
    route: Route | None = None
    """Where the peer is reached; None: only where it has just written from."""
    exchange: Requester | None = None
    """v1: the DID exchange that we have asked for, until it is answered."""
    mediation: Mediated | None = None
    """What it does for us as our mediator; None: it is none."""
    expires: int = 0
    """When an invitation of ours that nobody has answered is over, UTC ms."""
    breaker: Breaker = Breaker()
    """Problem reports between us: a conversation about errors must end."""
    letters: tuple[Letter, ...] = ()
    """The last basic messages, both ways, oldest first."""


class Fault(Struct, frozen=True):
    """A URI that did not take what we posted."""

    tries: int
    """How often in a row."""
    until: int
    """Leave it alone before this time, UTC ms."""


class Awaited(Struct, frozen=True):
    """Events of ours in an envelope that went to a member's mediator, whose held receipt may come (`custody.py`)."""

    group: str
    me: str
    """Whose chain it is: who left and came back has another one."""
    member: str
    first: int
    upto: int
    """Their positions in that chain."""
    mediator: str
    """The DID of whoever is to say that it keeps it."""
    at: int
    """When it was posted, UTC ms."""


class Whom(Struct, frozen=True):
    """One peer: a member of a group, or a connection."""

    group: str = ""
    member: str = ""
    connection: str = ""


class Question(Struct, frozen=True):
    """Something that we asked a peer, and when (UTC ms)."""

    about: Literal["ping", "features"]
    whom: Whom
    at: int
