"""Held receipts: a mediator's signed word that it keeps an envelope until whoever it is for fetches it.

    sender                                       mediator
      | -- forward, org.zerochat.receipt --------> |   over HTTP, or on a WebSocket: the answer comes back there
      | <- held (signed): SHA-256, until --------- |   once the envelope is on its disk

That is less than an acknowledgement, which the recipient alone can give: a mediator may lie, may lose what it has, and
throws away what is for somebody of whom it has not heard for months.

DIDComm forbids mediators to acknowledge forwards (Routing 2.0, `please_ack`), because whoever could ask for that would
learn whether somebody is there. So a receipt is given only for a key that its recipient has proven to be its own
(`mediation.is_proven`), as zerochat's mailboxes are, and only for what is kept now for the first time: when it is
fetched, nobody can tell by asking again. For all other names, and whatever else becomes of a forward, the answer is the
same as always. What remains is that whoever knows a mailbox, or once did, can tell whether the mediator still serves it
and has room for its owner; a mailbox is told to a group's members and to whoever holds an invitation.

zerochat asks with whatever it sends to a mailbox, so that nobody can tell by that what somebody has said. A receipt
names the envelope by its hash alone: it says nothing of whom that is for.
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

HELD: Final = "https://zerochat.org/mediation/1.0/held"
BYTES_MAX: Final = 16 * 1024
"""Of a receipt: its largest part is the mediator's DID, which stands in it twice."""
DIGEST_BYTES: Final = 32
TIME_S_MAX: Final = 2**33
"""UTC seconds; the year 2242."""
_BEGIN: Final = b'{"payload":'


class Held(Struct, frozen=True):
    """What a mediator says that it keeps."""

    digest: bytes
    """SHA-256 of the envelope, as it stood in the forward."""
    until: int
    """UTC seconds: it is thrown away then."""


class _Body(msgspec.Struct):
    sha256: str
    until: int


def digest_of(envelope: bytes) -> bytes:
    """By which a receipt names an envelope; 32 bytes."""
    return sha256(envelope)


def receipt(envelope: bytes, until: int, mediator: Identity, random: Callable[[int], bytes]) -> bytes:
    """That the mediator keeps this envelope until then (UTC seconds). Its payload stands first in it (`may_be`)."""
    body = {"sha256": b64url(digest_of(envelope)), "until": until}
    message = Message(type=HELD, id=new_id(random), body=body, from_=mediator.did)
    key = SecretKey("Ed25519", mediator.signing_seed)
    return jws.sign(dump(message), [(mediator.kid_signing, key)], flattened=True)


def may_be(data: bytes) -> bool:
    """Whether this is a held receipt, if it is anything: no envelope begins so."""
    return data.startswith(_BEGIN)


class Claim(Struct, frozen=True):
    """A receipt that has the right shape; nothing of it is trusted yet."""

    held: Held
    mediator: str
    """The DID of whoever is said to have signed it."""
    signed: jws.Jws


def read(data: bytes) -> Claim:
    """A held receipt, not verified. Raises Malformed."""
    if len(data) > BYTES_MAX:
        raise Malformed(why="held: a receipt that is too long")
    signed = jws.read(data)
    message = parse(signed.payload)
    if message.type != HELD or message.from_ is None:
        raise Malformed(why="held: another message, or nobody's")
    try:
        body = msgspec.convert(message.body, _Body)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"held: {error}") from None
    digest = b64url_bytes(body.sha256)
    if len(digest) != DIGEST_BYTES or not 0 <= body.until <= TIME_S_MAX:
        raise Malformed(why="held: a digest or a time that is none")
    return Claim(Held(digest, body.until), message.from_, signed)


def check(claim: Claim, mediator: Document) -> Held:
    """What a receipt says, once it is clear that this mediator has signed it. Raises Malformed, Unauthentic."""
    if not same_did(claim.mediator, mediator.did):
        raise Unauthentic()
    jws.check(claim.signed, mediator.authentication_key)
    return claim.held
