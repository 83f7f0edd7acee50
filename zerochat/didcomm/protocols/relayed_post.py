"""Relayed posts: a mediator posts envelopes for its recipient, whose address their receivers then do not see.

    recipient                          mediator                        receiver
      | -- post: URI, envelope --------> |  -- POST, the envelope -----> |
      |                                  | <- status, perhaps an answer  |
      | <- posted: the answer, or why -- |

The requests are authenticated, so the mediator charges them to its recipient; a `forward` is anonymous. The mediator
learns the address of the receiver and the size of the envelope, which is encrypted for others. It stores nothing: the
sender learns the result, and repeats what has failed.

This is an extension of Coordinate Mediation.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from zerochat.crypto.encoding import strict_json
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.attachment import Attachment, attachment_bytes
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, new_id
from zerochat.didcomm.protocols.bodies import Name, read_body
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed

PROTOCOL: Final = "https://zerochat.org/relayed-post/1.0"
Kind: TypeAlias = Literal["post", "posted"]
_TYPES: Final[dict[Kind, str]] = {"post": f"{PROTOCOL}/post", "posted": f"{PROTOCOL}/posted"}
URI_CHARS_MAX: Final = 512
BUSY: Final = "busy"
"""The result of a post that the mediator has not tried: it has too many of this recipient."""


class PostRequest(Redacted, frozen=True):
    """An envelope to post to an http(s) URI, at no address nearer than `nearest`."""

    REDACTED = ("envelope",)

    uri: str
    envelope: bytes
    media_type: str
    nearest: AddressKind


class PostResult(Redacted, frozen=True):
    """What came of a post: why it has failed (empty: it has not), and the answer to it, if there was one."""

    REDACTED = ("answer",)

    why: str = ""
    answer: bytes = b""


class _Post(Struct):
    uri: str
    media_type: Name
    nearest: int = 0


class _Posted(Struct):
    why: Name = ""


def kind_of(message: Message) -> Kind | None:
    """The kind of a message; None: another protocol."""
    return next((kind for kind, uri in _TYPES.items() if same_type(message.type, uri)), None)


def post(wanted: PostRequest, random: Callable[[int], bytes]) -> Message:
    """The request. Raises Malformed for an envelope that is no JSON, or that is too long to be wrapped once more."""
    body = {"uri": wanted.uri, "media_type": wanted.media_type, "nearest": int(wanted.nearest)}
    inside = (_attached(wanted.envelope),)
    return Message(type=_TYPES["post"], id=new_id(random), body=body, attachments=inside, return_route="all")


def posted(incoming: Message, result: PostResult, random: Callable[[int], bytes]) -> Message:
    """The answer to a request."""
    inside = (_attached(result.answer),) if result.answer else ()
    body = {"why": result.why} if result.why else {}
    return Message(type=_TYPES["posted"], id=new_id(random), body=body, attachments=inside, thid=incoming.thread)


def _attached(envelope: bytes) -> Attachment:
    """As JSON: base64 in an envelope, which is base64 itself, would take a third more."""
    return Attachment(json=strict_json(envelope, MESSAGE_BYTES_MAX))


def read_post(message: Message) -> PostRequest:
    """Raises Malformed for an address that no member may announce either: with a query, a fragment or a password."""
    body = read_body(message, _Post)
    uri = body.uri
    if len(uri) > URI_CHARS_MAX or not uri.lower().startswith(("http://", "https://")):
        raise Malformed(why="relayed post: no http address")
    if not (uri.isascii() and uri.isprintable()) or any(mark in uri for mark in "?#@ "):
        raise Malformed(why="relayed post: an address with a query, a fragment or a password")
    try:
        nearest = AddressKind(body.nearest)
    except ValueError:
        raise Malformed(why="relayed post: an unknown kind of address") from None
    return PostRequest(uri, _envelope(message), body.media_type, nearest)


def read_posted(message: Message) -> PostResult:
    """Raises Malformed."""
    return PostResult(read_body(message, _Posted).why, _envelope(message) if message.attachments else b"")


def _envelope(message: Message) -> bytes:
    if len(message.attachments) != 1:
        raise Malformed(why="relayed post: not one envelope")
    return attachment_bytes(message.attachments[0])
