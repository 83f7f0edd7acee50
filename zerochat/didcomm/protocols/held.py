"""Held receipts: a mediator's signed word that it keeps an envelope until whoever it is for fetches it.

    sender                                       mediator
      | -- forward, org.zerochat.held -----------> |   on a connection over which an answer can come back
      | <- held (signed): SHA-256, until --------- |   once the envelope is on its disk

That is less than an acknowledgement, which the recipient alone can give: a mediator may lie, and may lose what it has.

DIDComm forbids mediators to acknowledge forwards (Routing 2.0, `please_ack`), because whoever could ask for that would
learn whether somebody is there. So a receipt is given only for a key that its recipient has proven to be its own
(`mediation.is_proven`), as zerochat's mailboxes are: these are told to nobody but those who may write there. For all
other names, and whatever else becomes of a forward, the answer is the same as always. A receipt names the envelope by
its hash alone: whoever sees it on its way does not learn from it whom the envelope is for.
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
    """That the mediator keeps this envelope until then (UTC seconds)."""
    body = {"sha256": b64url(digest_of(envelope)), "until": until}
    message = Message(type=HELD, id=new_id(random), body=body, from_=mediator.did)
    key = SecretKey("Ed25519", mediator.signing_seed)
    return jws.sign(dump(message), [(mediator.kid_signing, key)], flattened=True)


def may_be(data: bytes) -> bool:
    """Whether this is a receipt, if it is anything: no envelope begins so."""
    return data.startswith(_BEGIN)


def read(data: bytes, mediator_of: Callable[[bytes], Document]) -> Held:
    """A receipt, once it is clear that the mediator which it names has signed it.

    `mediator_of` gives the document of whoever was handed the envelope with this digest, and raises a RemoteError where
    nobody was. Raises Malformed, Unauthentic.
    """
    if len(data) > BYTES_MAX:
        raise Malformed(why="held: a receipt that is too long")
    signed = jws.read(data)
    message = parse(signed.payload)
    if message.type != HELD:
        raise Malformed(why="held: another message")
    try:
        body = msgspec.convert(message.body, _Body)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"held: {error}") from None
    digest = b64url_bytes(body.sha256)
    if len(digest) != 32 or not 0 <= body.until <= TIME_S_MAX:
        raise Malformed(why="held: a digest or a time that is none")
    mediator = mediator_of(digest)
    if message.from_ is None or not same_did(message.from_, mediator.did):
        raise Unauthentic()
    jws.check(signed, mediator.authentication_key)
    return Held(digest, body.until)
