"""Events of the web thread for its owner, in order, and messages between the two threads.

A *session* is a WebSocket connection, dialled by either side. A *handle* names a session, or a POST that waits for its
response; handles are never reused.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.structs import Redacted
from zerochat.didcomm.address_kinds import AddressKind

ENCRYPTED = "application/didcomm-encrypted+json"
"""The media type of DIDComm v2.1 ("IANA Media Types"); implied on a WebSocket, which carries none."""
ENVELOPE_TYPES = frozenset(
    {
        ENCRYPTED,
        "didcomm-encrypted+json",  # DIDComm omits the prefix where there is no slash
        "application/didcomm+encrypted",  # one Python implementation
        "application/didcomm-envelope-enc",  # RFC 0044, for RFC 0019 envelopes
        "application/didcomm-enc-env",  # the DIDComm v2 draft, and RFC 0044 before its correction
        "application/ssi-agent-wire",  # RFC 0025, before RFC 0044
        "application/jose",
        "application/jose+json",
    }
)
"""Media types accepted in a POST. The kind of envelope is determined by its content."""
SIGNED = "application/didcomm-signed+json"
REPLY_TYPES = ENVELOPE_TYPES | {SIGNED}
"""Media types accepted in a response: a mediator receipt is signed and not encrypted."""


class Arrived(Redacted, frozen=True):
    """An envelope has arrived. The envelope authenticates its sender; the connection does not.

    Its sender gets no confirmation until the owner calls `accept`, `answer` or `refuse` with the handle. `way` is
    "post" (a POST to us), "session", or "reply" (the response to our own POST; the handle is 0 and nothing is to be
    accepted). `uri` is the URI that we had dialled; None: the peer has dialled us.
    """

    REDACTED = ("envelope",)

    handle: int
    envelope: bytes
    media_type: str
    way: Literal["post", "session", "reply"]
    uri: str | None
    ticket: int = 0
    """Of a reply: the owner's ticket of the POST (between the threads: its serial)."""


class Delivered(Struct, frozen=True):
    """The peer has received the envelope: it answered 2xx, or the ping that followed it."""

    ticket: int


class Failed(Struct, frozen=True):
    """The envelope was not delivered, or its delivery is unknown. The owner decides whether to send it again.

    `why` is one of: "uri" (invalid), "size", "name" (not found), "unreachable", "tls", "timeout", "lost" (the
    connection ended), "busy" (too many connections here), "redirect" (not followed), "status 415" and the like,
    "stopped".
    """

    ticket: int
    why: str
    retry_after_s: int = 0
    """How long the server asks to wait; 0: it does not say."""


OF_ONE_ENVELOPE = frozenset({400, 413, 415, 422})
"""Statuses of a server that rejects one envelope. With any other the rest of its queue would fail, too."""


def http_status(why: str) -> int:
    """The status code in the reason of a failure; 0: it is another reason."""
    kind, _, number = why.partition(" ")
    return int(number) if kind == "status" and number.isdecimal() else 0


class Opened(Struct, frozen=True):
    """A session is open; `uri`: what we dialled; None: the peer has dialled us."""

    handle: int
    uri: str | None


class Closed(Struct, frozen=True):
    """A session has ended; a held one is dialled again automatically."""

    handle: int
    uri: str | None


WebEvent: TypeAlias = Arrived | Delivered | Failed | Opened | Closed


# --- between the two threads only ------------------------------------------------------------------------------------


class OutboundEnvelope(Redacted, frozen=True):
    """An envelope to send. `serial` is the owner's number for it."""

    REDACTED = ("envelope",)

    serial: int
    uri: str
    envelope: bytes
    media_type: str
    return_route: bool
    nearest: AddressKind = AddressKind.LOOPBACK
    """The nearest kind of address that may be dialled for it."""


class SendFinished(Struct, frozen=True):
    """This envelope was delivered (`why` is None) or has failed."""

    serial: int
    why: str | None
    retry_after_s: int = 0


class Flushed(Struct, frozen=True):
    """So many bytes have left the send queue of a session."""

    handle: int
    size: int


class PostTimedOut(Struct, frozen=True):
    """A POST was answered before the owner accepted it."""

    handle: int


ThreadEvent: TypeAlias = Arrived | Opened | Closed | SendFinished | Flushed | PostTimedOut
"""What the thread writes; `Web.take` makes WebEvent of it."""
