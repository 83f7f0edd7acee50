"""Message Pickup 1.0 to 4.0: a recipient fetches queued messages from its mediator in batches.

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

The versions differ in names and units (`VOCABULARIES`); each may come in either envelope format. 4.0 answers with an
empty delivery where the others have a status. 1.0 has no acknowledgement and no live mode: what is delivered is
deleted, so it arrives at most once. Its `noop` is answered with the next envelope itself.

Specified in: Aries RFC 0212 (1.0), RFC 0685 (2.0); https://didcomm.org/messagepickup/3.0 and /message-pickup/4.0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, compact_json, strict_json
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.attachment import ATTACHMENTS_MAX, Attachment, attachment_bytes
from zerochat.didcomm.iso8601 import iso_seconds, iso_time
from zerochat.didcomm.message import ID_CHARS_MAX, MESSAGE_BYTES_MAX, Message, dump, new_id, parse
from zerochat.didcomm.protocols.routing import NEXT_CHARS_MAX
from zerochat.didcomm.uri import same_type
from zerochat.didcomm.v1 import TIME_CHARS_MAX, dump_v1
from zerochat.errors import Malformed

Version: TypeAlias = Literal["1.0", "2.0", "3.0", "4.0"]
Kind: TypeAlias = Literal[
    "status-request",
    "status",
    "delivery-request",
    "delivery",
    "messages-received",
    "live-delivery-change",
    "list-request",
    "list",
    "noop",
]


class Vocabulary(Struct, frozen=True):
    """The names and units of one version."""

    protocol: str
    types: Mapping[Kind, str]
    recipient: str = "recipient_did"
    """The member that limits a request to one recipient."""
    limit: str = "limit"
    bytes: str = "total_bytes"
    newest: str = "newest_received_time"
    oldest: str = "oldest_received_time"
    waited: str = "longest_waited_seconds"
    """Members of a status; empty: there is none."""
    clock: Literal["iso", "s", "ms"] = "s"
    """The form of times."""


_SINCE_2: Final[dict[Kind, str]] = {
    "status-request": "status-request",
    "status": "status",
    "delivery-request": "delivery-request",
    "delivery": "delivery",
    "messages-received": "messages-received",
    "live-delivery-change": "live-delivery-change",
}
_FIRST: Final[dict[Kind, str]] = {
    "status-request": "status-request",
    "status": "status",
    "delivery-request": "batch-pickup",
    "delivery": "batch",
    "list-request": "list-pickup",
    "list": "list-response",
    "noop": "noop",
}
_BASE: Final = "https://didcomm.org/messagepickup/"
VOCABULARIES: Final[dict[Version, Vocabulary]] = {
    "1.0": Vocabulary(
        _BASE + "1.0", _FIRST, "", "batch_size", "total_size", "last_added_time", "", "duration_waited", "iso"
    ),
    "2.0": Vocabulary(_BASE + "2.0", _SINCE_2, "recipient_key", clock="iso"),
    "3.0": Vocabulary(_BASE + "3.0", _SINCE_2),
    "4.0": Vocabulary(
        "https://didcomm.org/message-pickup/4.0", _SINCE_2, limit="message_count_limit", waited="", clock="ms"
    ),
}
VERSIONS: Final = tuple(VOCABULARIES)
PROTOCOL: Final = VOCABULARIES["3.0"].protocol
_TYPES: Final = {
    (version, kind): f"{vocabulary.protocol}/{name}"
    for version, vocabulary in VOCABULARIES.items()
    for kind, name in vocabulary.types.items()
}
_BATCH: Final = "messages~attach"
"""1.0: the member of a batch with the envelopes."""

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


def wire_of(message: Message) -> tuple[Version, Kind] | None:
    """Version and kind of a message; None: another protocol."""
    return next((key for key, uri in _TYPES.items() if same_type(message.type, uri)), None)


def version_of(message: Message) -> Version:
    """Raises Malformed for a message of another protocol."""
    found = wire_of(message)
    if found is None:
        raise Malformed(why="pickup: a message of another protocol")
    return found[0]


def kind_of(message: Message) -> Kind | None:
    """Which message of the protocol it is; None: none of them."""
    found = wire_of(message)
    return None if found is None else found[1]


# --- the recipient's messages ---------------------------------------------------------------------------------------


def status_request(random: Callable[[int], bytes], did: str | None = None, *, version: Version = "3.0") -> Message:
    return _asking(version, "status-request", {VOCABULARIES[version].recipient: did}, random)


def delivery_request(
    random: Callable[[int], bytes], limit: int = DELIVERY_MAX, did: str | None = None, *, version: Version = "3.0"
) -> Message:
    vocabulary = VOCABULARIES[version]
    return _asking(version, "delivery-request", {vocabulary.limit: limit, vocabulary.recipient: did}, random)


def messages_received(ids: Sequence[str], random: Callable[[int], bytes], *, version: Version = "3.0") -> Message:
    """Acknowledge stored messages, at most RECEIVED_MAX."""
    assert 0 < len(ids) <= RECEIVED_MAX
    return _asking(version, "messages-received", {"message_id_list": list(ids)}, random)


def live_delivery_change(live: bool, random: Callable[[int], bytes], *, version: Version = "3.0") -> Message:
    return _asking(version, "live-delivery-change", {"live_delivery": live}, random)


def list_request(ids: Sequence[str], random: Callable[[int], bytes]) -> Message:
    """1.0: request the messages with these ids, at most DELIVERY_MAX."""
    return _asking("1.0", "list-request", {"message_ids": list(ids)}, random)


def noop(random: Callable[[int], bytes]) -> Message:
    """1.0: request the next envelope on this connection."""
    return _asking("1.0", "noop", {}, random)


def _asking(version: Version, kind: Kind, body: dict[str, Any], random: Callable[[int], bytes]) -> Message:
    present = {name: value for name, value in body.items() if name and value is not None}
    return Message(type=_TYPES[version, kind], id=new_id(random), body=present, return_route="all")


# --- the mediator's messages ----------------------------------------------------------------------------------------


def status(incoming: Message, waiting: Waiting, now_s: int, random: Callable[[int], bytes]) -> Message:
    """The answer to a request, in its version."""
    version = version_of(incoming)
    vocabulary = VOCABULARIES[version]
    body: dict[str, Any] = {
        vocabulary.recipient: waiting.did,
        "message_count": waiting.count,
        vocabulary.waited: None if waiting.oldest is None else max(now_s - waiting.oldest, 0),
        vocabulary.newest: _time(vocabulary, waiting.newest),
        vocabulary.oldest: _time(vocabulary, waiting.oldest),
        vocabulary.bytes: waiting.bytes,
        "live_delivery": None if version == "1.0" else waiting.live,
    }
    present = {name: value for name, value in body.items() if name and value is not None}
    return Message(type=_TYPES[version, "status"], id=new_id(random), body=present, thid=incoming.thread)


def _time(vocabulary: Vocabulary, seconds: int | None) -> int | str | None:
    if seconds is None or vocabulary.clock == "s":
        return seconds
    return iso_time(seconds) if vocabulary.clock == "iso" else seconds * 1000


def delivery(
    parcels: Sequence[Parcel],
    random: Callable[[int], bytes],
    *,
    thid: str | None = None,
    did: str | None = None,
    version: Version = "3.0",
    kind: Literal["delivery", "list"] = "delivery",
) -> Message:
    """A delivery of at most DELIVERY_MAX envelopes with DELIVERY_BYTES_MAX in total (`delivery_size`).

    Envelopes are base64url, as in the protocol; one that would be too long is JSON, and so are all in 1.0.
    """
    assert len(parcels) <= DELIVERY_MAX
    body: dict[str, Any] = {} if did is None else {VOCABULARIES[version].recipient: did}
    if version == "1.0":
        # RFC 0212 has `@id`, credo-ts `id`; each reads its own only.
        body = {_BATCH: [{"@id": parcel.id, "id": parcel.id, "message": _json(parcel)} for parcel in parcels]}
        parcels = ()
    return Message(
        type=_TYPES[version, kind],
        id=new_id(random),
        body=body,
        thid=thid,
        attachments=tuple(_attachment(parcel) for parcel in parcels),
    )


def _json(parcel: Parcel) -> Any:
    return strict_json(parcel.envelope, ENVELOPE_BYTES_KEPT)


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


def is_deliverable(message: Message) -> bool:
    """Whether a delivery is not too long as a message."""
    try:
        return len(dump_v1(replace(message, thid=message.id))) <= MESSAGE_BYTES_MAX - 1024
    except Malformed:
        return False


def _fits_base64(envelope: bytes) -> bool:
    return len(envelope) * 4 // 3 + 256 <= DELIVERY_BYTES_MAX


def _attachment(parcel: Parcel) -> Attachment:
    if _fits_base64(parcel.envelope):
        return Attachment(id=parcel.id, base64=b64url(parcel.envelope))
    return Attachment(id=parcel.id, json=_json(parcel))


# --- reading --------------------------------------------------------------------------------------------------------


class _Received(msgspec.Struct):
    message_id_list: list[str]


class _Wanted(msgspec.Struct):
    message_ids: list[str]


class _LiveChange(msgspec.Struct):
    live_delivery: bool


class _BatchItem(msgspec.Struct):
    message: dict[str, Any]
    id: str = msgspec.field(name="@id", default="")
    name: str = msgspec.field(name="id", default="")
    """As credo-ts calls it."""


class _Batch(msgspec.Struct):
    items: list[_BatchItem] = msgspec.field(name=_BATCH)


def read_status_request(message: Message) -> str | None:
    """The DID that the request is limited to; None: all. Raises Malformed."""
    return _did(_member(message, _vocabulary(message, "status-request").recipient))


def read_delivery_request(message: Message) -> Wanted:
    """Raises Malformed."""
    vocabulary = _vocabulary(message, "delivery-request")
    limit = message.body.get(vocabulary.limit)
    if type(limit) is not int or limit < 1:
        raise Malformed(why="pickup: a limit that is no number, or below 1")
    return Wanted(min(limit, DELIVERY_MAX), _did(_member(message, vocabulary.recipient)))


def read_received(message: Message) -> tuple[str, ...]:
    """Raises Malformed."""
    _vocabulary(message, "messages-received")
    return _ids(_convert(message.body, _Received).message_id_list, RECEIVED_MAX)


def read_list_request(message: Message) -> tuple[str, ...]:
    """The ids of the requested messages. Raises Malformed."""
    _vocabulary(message, "list-request")
    return _ids(_convert(message.body, _Wanted).message_ids, DELIVERY_MAX)


def read_live_change(message: Message) -> bool:
    """Raises Malformed."""
    _vocabulary(message, "live-delivery-change")
    return _convert(message.body, _LiveChange).live_delivery


def read_status(message: Message) -> Waiting:
    """What is not required and invalid counts as absent. Raises Malformed."""
    vocabulary, body = _vocabulary(message, "status"), message.body
    count = body.get("message_count")
    if type(count) is not int or count < 0:
        raise Malformed(why="pickup: a count that is no number, or negative")
    size, live = body.get(vocabulary.bytes), body.get("live_delivery")
    return Waiting(
        count,
        size if type(size) is int else None,
        _seconds(vocabulary, body.get(vocabulary.oldest)),
        _seconds(vocabulary, body.get(vocabulary.newest)),
        live if isinstance(live, bool) else None,
        _did(_member(message, vocabulary.recipient)),
    )


def read_delivery(message: Message) -> tuple[Parcel, ...]:
    """The envelopes of a delivery, not examined. Raises Malformed."""
    found = wire_of(message)
    if found is None or found[1] not in ("delivery", "list"):
        raise Malformed(why="pickup: another message than delivery")
    if found[0] == "1.0":
        items = _convert(message.body, _Batch).items
        parcels = [Parcel(item.id or item.name, compact_json(item.message)) for item in items[: DELIVERY_MAX + 1]]
        if len(parcels) > DELIVERY_MAX or any(not 0 < len(parcel.id) <= ID_CHARS_MAX for parcel in parcels):
            raise Malformed(why="pickup: too many messages, or one without id, or with one that is too long")
        return tuple(parcels)
    parcels = []
    for attachment in message.attachments:
        if attachment.id is None or (attachment.base64 is None and attachment.json is None):
            raise Malformed(why="pickup: a delivery without id or envelope")
        parcels.append(Parcel(attachment.id, attachment_bytes(attachment)))
    return tuple(parcels)


def _seconds(vocabulary: Vocabulary, value: object) -> int | None:
    if vocabulary.clock == "iso":
        return iso_seconds(value) if isinstance(value, str) and len(value) <= TIME_CHARS_MAX else None
    if type(value) is not int:
        return None
    return value // 1000 if vocabulary.clock == "ms" else value


def _ids(ids: list[str], count_max: int) -> tuple[str, ...]:
    if len(ids) > count_max or any(len(each) > ID_CHARS_MAX for each in ids):
        raise Malformed(why="pickup: too many ids, or one that is too long")
    return tuple(ids)


def _member(message: Message, name: str) -> str | None:
    value = message.body.get(name) if name else None
    if value is not None and not isinstance(value, str):
        raise Malformed(why=f"pickup: a {name} that is no text")
    return value


def _did(text: str | None) -> str | None:
    if text is not None and (not 0 < len(text) <= NEXT_CHARS_MAX or not text.isascii()):
        raise Malformed(why="pickup: an invalid DID")
    return text


_T = TypeVar("_T")


def _vocabulary(message: Message, kind: Kind) -> Vocabulary:
    found = wire_of(message)
    if found is None or found[1] != kind:
        raise Malformed(why=f"pickup: another message than {kind}")
    return VOCABULARIES[found[0]]


def _convert(tree: object, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"pickup: {error}") from None
