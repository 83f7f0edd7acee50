"""Message Pickup 3.0: a recipient fetches queued messages from its mediator in batches.

    recipient                          mediator
      | -- status-request --------------> |
      | <- status ----------------------- |
      | -- delivery-request, limit -----> |
      | <- delivery, envelopes ---------- |   or a status, if the queue is empty
      | -- messages-received, ids ------> |   then the mediator deletes them
      | <- status ----------------------- |
      | -- live-delivery-change --------> |   on a persistent connection: immediate delivery
      | <- status, then delivery … ------ |

Unacknowledged deliveries are repeated: a recipient acknowledges after storing a message, and has to tolerate
duplicates. Live delivery uses `delivery` messages, as the text of version 4.0 clarifies.

Specified in: https://didcomm.org/messagepickup/3.0.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, compact_json, strict_json
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.attachment import ATTACHMENTS_MAX, Attachment, attachment_bytes
from zerochat.didcomm.message import ID_CHARS_MAX, MESSAGE_BYTES_MAX, Message, dump, new_id, parse
from zerochat.didcomm.protocols.routing import NEXT_CHARS_MAX
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed

Kind: TypeAlias = Literal[
    "status-request", "status", "delivery-request", "delivery", "messages-received", "live-delivery-change"
]
KINDS: Final[tuple[Kind, ...]] = (
    "status-request",
    "status",
    "delivery-request",
    "delivery",
    "messages-received",
    "live-delivery-change",
)
PROTOCOL: Final = "https://didcomm.org/messagepickup/3.0"
_TYPES: Final = {kind: f"{PROTOCOL}/{kind}" for kind in KINDS}

DELIVERY_MAX: Final = ATTACHMENTS_MAX
"""Envelopes (attachments) in one delivery."""
DELIVERY_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 16 * 1024
"""Total size of a delivery's attachments; the rest is for headers and ids."""
ENVELOPE_BYTES_KEPT: Final = DELIVERY_BYTES_MAX - 1024
"""Larger envelopes could be stored and never be delivered."""
RECEIVED_MAX: Final = 1024
"""Ids in one acknowledgement."""
LIVE_MODE_NOT_SUPPORTED: Final = "e.m.live-mode-not-supported"
"""Problem code for a connection that is not persistent."""


class Waiting(Struct, frozen=True):
    """Queue status of a recipient; times in UTC seconds."""

    count: int
    bytes: int | None = None
    oldest: int | None = None
    newest: int | None = None
    live: bool | None = None
    did: str | None = None
    """The DID that the status is limited to."""


class Parcel(Redacted, frozen=True):
    """A stored envelope with the mediator's id."""

    REDACTED = ("envelope",)

    id: str
    envelope: bytes


class Wanted(Struct, frozen=True):
    limit: int
    did: str | None = None


def kind_of(message: Message) -> Kind | None:
    """Which message of the protocol it is; None: none of them."""
    return next((kind for kind, uri in _TYPES.items() if same_type(message.type, uri)), None)


# --- the recipient's messages ---------------------------------------------------------------------------------------


def status_request(random: Callable[[int], bytes], did: str | None = None) -> Message:
    return _asking("status-request", {} if did is None else {"recipient_did": did}, random)


def delivery_request(random: Callable[[int], bytes], limit: int = DELIVERY_MAX, did: str | None = None) -> Message:
    body: dict[str, Any] = {"limit": limit}
    return _asking("delivery-request", body if did is None else body | {"recipient_did": did}, random)


def messages_received(ids: Sequence[str], random: Callable[[int], bytes]) -> Message:
    """Acknowledge stored messages, at most RECEIVED_MAX."""
    assert 0 < len(ids) <= RECEIVED_MAX
    return _asking("messages-received", {"message_id_list": list(ids)}, random)


def live_delivery_change(live: bool, random: Callable[[int], bytes]) -> Message:
    return _asking("live-delivery-change", {"live_delivery": live}, random)


def _asking(kind: Kind, body: dict[str, Any], random: Callable[[int], bytes]) -> Message:
    return Message(type=_TYPES[kind], id=new_id(random), body=body, return_route="all")


# --- the mediator's messages ----------------------------------------------------------------------------------------


def status(incoming: Message, waiting: Waiting, now_s: int, random: Callable[[int], bytes]) -> Message:
    body: dict[str, Any] = {
        "recipient_did": waiting.did,
        "message_count": waiting.count,
        "longest_waited_seconds": None if waiting.oldest is None else max(now_s - waiting.oldest, 0),
        "newest_received_time": waiting.newest,
        "oldest_received_time": waiting.oldest,
        "total_bytes": waiting.bytes,
        "live_delivery": waiting.live,
    }
    present = {name: value for name, value in body.items() if value is not None}
    return Message(type=_TYPES["status"], id=new_id(random), body=present, thid=incoming.thread)


def delivery(
    parcels: Sequence[Parcel], random: Callable[[int], bytes], *, thid: str | None = None, did: str | None = None
) -> Message:
    """A delivery of at most DELIVERY_MAX envelopes with DELIVERY_BYTES_MAX in total (`delivery_size`).

    Envelopes are base64url, as in the protocol; one that would be too long is JSON.
    """
    assert 0 < len(parcels) <= DELIVERY_MAX
    return Message(
        type=_TYPES["delivery"],
        id=new_id(random),
        body={} if did is None else {"recipient_did": did},
        thid=thid,
        attachments=tuple(_attachment(parcel) for parcel in parcels),
    )


def delivery_size(envelope_bytes: int) -> int:
    """The size of an envelope in a delivery."""
    encoded = envelope_bytes * 4 // 3 + 256
    return encoded if encoded <= DELIVERY_BYTES_MAX else envelope_bytes + 256


def deliverable(envelope: bytes) -> bytes:
    """The form of an envelope to store, such that a delivery of it alone can be encoded and decoded within the same
    limits. Raises Malformed.

    An envelope delivered as JSON may grow when it is encoded again (`1E9` becomes 1000000000.0), and is nested deeper.
    Storing one that cannot be delivered would block all later messages of the recipient.
    """
    if not _fits_base64(envelope):
        envelope = compact_json(strict_json(envelope, ENVELOPE_BYTES_KEPT))
        if len(envelope) > ENVELOPE_BYTES_KEPT:
            raise Malformed(why="pickup: an envelope that is too long for a delivery")
        if not _fits_base64(envelope):
            parse(dump(replace(delivery([Parcel("x", envelope)], bytes), to=("did:example:x",))))
    return envelope


def _fits_base64(envelope: bytes) -> bool:
    return len(envelope) * 4 // 3 + 256 <= DELIVERY_BYTES_MAX


def _attachment(parcel: Parcel) -> Attachment:
    if _fits_base64(parcel.envelope):
        return Attachment(id=parcel.id, base64=b64url(parcel.envelope))
    return Attachment(id=parcel.id, json=strict_json(parcel.envelope, ENVELOPE_BYTES_KEPT))


# --- reading --------------------------------------------------------------------------------------------------------


class _StatusRequest(msgspec.Struct):
    recipient_did: str | None = None


class _DeliveryRequest(msgspec.Struct):
    limit: int
    recipient_did: str | None = None


class _Received(msgspec.Struct):
    message_id_list: list[str]


class _LiveChange(msgspec.Struct):
    live_delivery: bool


class _Status(msgspec.Struct):
    message_count: int
    recipient_did: str | None = None
    total_bytes: int | None = None
    oldest_received_time: int | None = None
    newest_received_time: int | None = None
    live_delivery: bool | None = None


def read_status_request(message: Message) -> str | None:
    """The DID that the request is limited to; None: all. Raises Malformed."""
    return _did(_read(message, "status-request", _StatusRequest).recipient_did)


def read_delivery_request(message: Message) -> Wanted:
    """Raises Malformed."""
    body = _read(message, "delivery-request", _DeliveryRequest)
    if body.limit < 1:
        raise Malformed(why="pickup: a limit below 1")
    return Wanted(min(body.limit, DELIVERY_MAX), _did(body.recipient_did))


def read_received(message: Message) -> tuple[str, ...]:
    """Raises Malformed."""
    ids = _read(message, "messages-received", _Received).message_id_list
    if len(ids) > RECEIVED_MAX or any(len(each) > ID_CHARS_MAX for each in ids):
        raise Malformed(why="pickup: too many ids, or one that is too long")
    return tuple(ids)


def read_live_change(message: Message) -> bool:
    """Raises Malformed."""
    return _read(message, "live-delivery-change", _LiveChange).live_delivery


def read_status(message: Message) -> Waiting:
    """Raises Malformed."""
    body = _read(message, "status", _Status)
    if body.message_count < 0:
        raise Malformed(why="pickup: a negative count")
    return Waiting(
        body.message_count,
        body.total_bytes,
        body.oldest_received_time,
        body.newest_received_time,
        body.live_delivery,
        _did(body.recipient_did),
    )


def read_delivery(message: Message) -> tuple[Parcel, ...]:
    """The envelopes of a delivery, not examined. Raises Malformed."""
    if kind_of(message) != "delivery":
        raise Malformed(why="pickup: another message than delivery")
    parcels = []
    for attachment in message.attachments:
        if attachment.id is None or (attachment.base64 is None and attachment.json is None):
            raise Malformed(why="pickup: a delivery without id or envelope")
        parcels.append(Parcel(attachment.id, attachment_bytes(attachment)))
    return tuple(parcels)


def _did(text: str | None) -> str | None:
    if text is not None and (not 0 < len(text) <= NEXT_CHARS_MAX or not text.isascii()):
        raise Malformed(why="pickup: an invalid DID")
    return text


_T = TypeVar("_T")


def _read(message: Message, kind: Kind, shape: type[_T]) -> _T:
    if not same_type(message.type, _TYPES[kind]):
        raise Malformed(why=f"pickup: another message than {kind}")
    try:
        return msgspec.convert(message.body, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"pickup: {error}") from None
