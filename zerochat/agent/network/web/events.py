"""What the web thread tells its owner: plain values, in the order in which things happened.

A *session* is a WebSocket connection, whoever has dialled it. A *handle* names a session, or one POST that still waits
for its response; no number is ever used twice.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.redacted import Veiled

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
SIGNED = "application/didcomm-signed+json"
REPLY_TYPES = ENVELOPE_TYPES | {SIGNED}
"""What may come back: a mediator's held receipt is signed and no secret."""


class Arrived(Veiled, frozen=True):
    """An envelope from somebody. It says who sent it; the connection does not.

    Until the owner says `accept`, `answer` or `refuse` for the handle, its sender has no word that it was received.
    `way` is "post" (somebody's POST to us), "session", or "reply" (the body of a response to our own POST; there is
    nothing to accept then, and the handle is 0). `uri` is what we had called, or None when we were called.
    """

    VEILED = ("envelope",)

    handle: int
    envelope: bytes
    media_type: str
    way: Literal["post", "session", "reply"]
    uri: str | None


class Delivered(Struct, frozen=True):
    """The peer's listener has the envelope: it answered 2xx, or it answered a ping that followed it."""

    ticket: int


class Failed(Struct, frozen=True):
    """The envelope was not delivered, or nobody knows whether it was. Sending it again is the owner's decision.

    `why` is one of: "uri" (not one that can be called), "size", "name" (not found), "unreachable", "tls", "timeout",
    "lost" (the connection ended), "busy" (too many are open here), "redirect" (one that we do not follow), "status 415"
    and the like, "stopped".
    """

    ticket: int
    why: str


class Opened(Struct, frozen=True):
    """A session is there; `uri` is what we dialled, None when the peer has."""

    handle: int
    uri: str | None


class Closed(Struct, frozen=True):
    """A session is gone; a held one is dialled again by itself."""

    handle: int
    uri: str | None


News: TypeAlias = Arrived | Delivered | Failed | Opened | Closed


# --- between the two threads only ------------------------------------------------------------------------------------


class Parcel(Veiled, frozen=True):
    """One envelope on its way out. `serial` is the owner's own count of what it handed over."""

    VEILED = ("envelope",)

    serial: int
    uri: str
    envelope: bytes
    media_type: str
    return_route: bool


class Settled(Struct, frozen=True):
    """This parcel has been delivered, or has failed for this reason."""

    serial: int
    why: str | None


class Pushed(Struct, frozen=True):
    """This many bytes of what was pushed to a session have left its queue."""

    handle: int
    size: int


class Lapsed(Struct, frozen=True):
    """A POST got its response before the owner said anything."""

    handle: int


Note: TypeAlias = Arrived | Opened | Closed | Settled | Pushed | Lapsed
"""What the thread writes; `Web.take` makes News of it."""
