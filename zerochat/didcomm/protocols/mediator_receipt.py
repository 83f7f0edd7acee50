"""Mediator receipts: a mediator's signed statement that it stores an envelope for its recipient.

    sender                                       mediator
      | -- forward, org.zerochat.receipt --------> |   over HTTP, or on a WebSocket: the answer comes back there
      | <- receipt (signed): SHA-256, until ------ |   once the envelope is on its disk

A receipt is weaker than an acknowledgement by the recipient: a mediator may lie, lose data, delete mail of a recipient
that was offline for months, or evict it from a full mailbox.

DIDComm forbids mediators to acknowledge forwards (Routing 2.0, `please_ack`), because that reveals the recipient's
presence. Therefore a receipt is given only for a mailbox key with proven ownership (`mediation.is_proven`), and only
for an envelope stored for the first time: asking again after delivery reveals nothing. All other cases get the usual
answer. What a sender that knows a mailbox can still learn: whether the mediator serves it. A full mailbox evicts its
oldest envelope and is answered like any other, so receipts reveal nothing about other mailboxes of the same recipient.
Mailboxes are known to a group's members and to holders of an invitation.

zerochat requests a receipt for every envelope to a mailbox, so the request does not mark user messages. A receipt names
the envelope by its hash and not the recipient.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.keys import SecretKey
from zerochat.crypto.primitives import sha256
from zerochat.didcomm import jws
from zerochat.didcomm.did import Document, Identity, same_did
from zerochat.didcomm.message import Message, dump, new_id, parse
from zerochat.errors import Malformed, Unauthentic

RECEIPT: Final = "https://zerochat.org/mediation/1.0/receipt"
BYTES_MAX: Final = 16 * 1024
"""Size of a receipt; it contains the mediator's DID twice."""
DIGEST_BYTES: Final = 32
TIME_S_MAX: Final = 2**33
"""UTC seconds; the year 2242."""
_BEGIN: Final = b'{"payload":'


class Receipt(Struct, frozen=True):
    """Content of a mediator receipt."""

    digest: bytes
    """SHA-256 of the envelope as in the forward."""
    until: int
    """UTC seconds; the envelope is deleted then."""


class _Body(msgspec.Struct):
    sha256: str
    until: int


def envelope_digest(envelope: bytes) -> bytes:
    """SHA-256 of an envelope, 32 bytes."""
    return sha256(envelope)


def sign_receipt(envelope: bytes, until: int, mediator: Identity, random: Callable[[int], bytes]) -> bytes:
    """Sign a receipt for an envelope stored until `until` (UTC seconds). Its payload is its first member
    (`is_receipt`)."""
    body = {"sha256": b64url(envelope_digest(envelope)), "until": until}
    message = Message(type=RECEIPT, id=new_id(random), body=body, from_=mediator.did)
    key = SecretKey("Ed25519", mediator.signing_seed)
    return jws.sign(dump(message), [(mediator.kid_signing, key)], flattened=True)


def is_receipt(data: bytes) -> bool:
    """Whether the data is a receipt rather than an envelope, by its first bytes."""
    return data.startswith(_BEGIN)


class UnverifiedReceipt(Struct, frozen=True):
    """A well-formed receipt, unverified."""

    receipt: Receipt
    mediator: str
    """The claimed signer."""
    signed: jws.Jws


def read(data: bytes) -> UnverifiedReceipt:
    """Parse a receipt without verifying it. Raises Malformed."""
    if len(data) > BYTES_MAX:
        raise Malformed(why="receipt: too long")
    signed = jws.read(data)
    message = parse(signed.payload)
    if message.type != RECEIPT or message.from_ is None:
        raise Malformed(why="receipt: another message, or without sender")
    try:
        body = msgspec.convert(message.body, _Body)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"receipt: {error}") from None
    digest = b64url_bytes(body.sha256)
    if len(digest) != DIGEST_BYTES or not 0 <= body.until <= TIME_S_MAX:
        raise Malformed(why="receipt: an invalid digest or time")
    return UnverifiedReceipt(Receipt(digest, body.until), message.from_, signed)


def check(claim: UnverifiedReceipt, mediator: Document) -> Receipt:
    """The content of a receipt after verifying the mediator's signature. Raises Malformed, Unauthentic."""
    if not same_did(claim.mediator, mediator.did):
        raise Unauthentic()
    jws.check(claim.signed, mediator.authentication_key)
    return claim.receipt
