"""What the web thread tells its owner: plain values, in the order in which things happened.

A *session* is a WebSocket connection, whoever has dialled it. A *handle* names a session, or one POST that still waits
for its response; no number is ever used twice.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ENCRYPTED = "application/didcomm-encrypted+json"
"""The media type of DIDComm v2.1, "IANA Media Types". A WebSocket conveys none, so there it is taken for granted."""
ENVELOPE_TYPES = frozenset(
    {
        ENCRYPTED,
        "didcomm-encrypted+json",  # DIDComm lets go of the prefix where there is no slash
        "application/didcomm+encrypted",  # what one Python implementation writes
        "application/didcomm-envelope-enc",  # RFC 0044, the envelopes of RFC 0019
        "application/didcomm-enc-env",  # the draft of DIDComm v2, and RFC 0044 before it was corrected
        "application/ssi-agent-wire",  # RFC 0025, before RFC 0044
        "application/jose",
        "application/jose+json",
    }
)
"""What may be posted. Which kind of envelope it is, only its content says."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An envelope from somebody. It says who sent it; the connection does not.

    Until the owner says `accept`, `answer` or `refuse` for the handle, its sender has no word that it was received.
    `way` is "post" (somebody's POST to us), "session", or "reply" (the body of a response to our own POST; there is
    nothing to accept then, and the handle is 0). `uri` is what we had called, or None when we were called.
    """

    handle: int
    envelope: bytes = field(repr=False)
    media_type: str
    way: Literal["post", "session", "reply"]
    uri: str | None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The peer's listener has the envelope: it answered 2xx, or it answered a ping that followed it."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The envelope was not delivered, or nobody knows whether it was. Sending it again is the owner's decision.

    `why` is one of: "uri" (not one that can be called), "size", "name" (not found), "unreachable", "tls", "timeout",
    "lost" (the connection ended), "busy" (too many are open here), "redirect" (one that we do not follow), "status 415"
    and the like, "stopped".
    """

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A session is there; `uri` is what we dialled, None when the peer has."""

    handle: int
    uri: str | None


@dataclass(frozen=True, slots=True)
class Closed:
    """A session is gone; a held one is dialled again by itself."""

    handle: int
    uri: str | None


News: TypeAlias = Arrived | Delivered | Failed | Opened | Closed


# --- between the two threads only ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parcel:
    """One envelope on its way out. `serial` is the owner's own count of what it handed over."""

    serial: int
    uri: str
    envelope: bytes = field(repr=False)
    media_type: str
    return_route: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """This parcel has been delivered, or has failed for this reason."""

    serial: int
    why: str | None


@dataclass(frozen=True, slots=True)
class Pushed:
    """This many bytes of what was pushed to a session have left its queue."""

    handle: int
    size: int


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A POST got its response before the owner said anything."""

    handle: int


Note: TypeAlias = Arrived | Opened | Closed | Settled | Pushed | Lapsed
"""What the thread writes; `Web.take` makes News of it."""
