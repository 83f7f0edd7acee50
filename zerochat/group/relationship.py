"""One pair of members in one group: two DIDs made for each other, and the envelopes between them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from zerochat.crypto.primitives import hkdf_sha256, x25519
from zerochat.didcomm.did import Identity, resolve, same_did, short_form
from zerochat.didcomm.message import Message, dump, parse
from zerochat.didcomm.packer import Packer, check_addressing
from zerochat.errors import Unauthentic


@dataclass(frozen=True, slots=True)
class Relationship:
    """The two DIDs of one pair of members in one group, and how far their exchange has come."""

    member: str
    mine: Identity
    theirs: str
    """The peer's did:peer:4, long form; empty while its answer is awaited."""
    thid: str
    """The thread of the DID exchange: the id of its request."""
    asked: str
    """The DID of the invitation or contact that the request went to."""
    requester: bool
    greeted: bool = False
    """True once a message to our own DID has come: the peer has our long form, and the short one will do."""

    @property
    def established(self) -> bool:
        return bool(self.theirs)


def pack(relationship: Relationship, message: Message, packer: Packer, random: Callable[[int], bytes]) -> bytes:
    """The authcrypt envelope of a message from us to the peer, with `from` and `to` filled in."""
    mine = relationship.mine
    sender = mine.short if relationship.greeted else mine.did
    document = resolve(relationship.theirs)
    kid, public = document.agreement[0]
    recipient = short_form(relationship.theirs)
    return packer.authcrypt(
        dump(replace(message, from_=sender, to=(recipient,))),
        sender_kid=sender + mine.agreement_fragment,
        sender_secret=mine.agreement_secret,
        recipient_kid=recipient + "#" + kid.rpartition("#")[2],
        recipient_public=public,
        random=random,
    )


def unpack(relationship: Relationship, envelope: bytes, packer: Packer) -> Message:
    """The message in an envelope from the peer to us. Raises Malformed or Unauthentic."""
    mine = relationship.mine

    def secret_of(kid: str) -> bytes | None:
        did, _, fragment = kid.partition("#")
        mine_too = "#" + fragment == mine.agreement_fragment and same_did(did, mine.did)
        return mine.agreement_secret if mine_too else None

    def public_of(kid: str) -> bytes:
        did, _, fragment = kid.partition("#")
        theirs, public = resolve(relationship.theirs).agreement[0]
        if not same_did(did, relationship.theirs) or fragment != theirs.rpartition("#")[2]:
            raise Unauthentic()
        return public

    if not relationship.established:
        raise Unauthentic()
    unpacked = packer.unpack(envelope, secret_of=secret_of, public_of=public_of)
    if unpacked.kind != "authcrypt":
        raise Unauthentic()
    message = parse(unpacked.plain)
    check_addressing(message, unpacked)
    return message


def queue_of(relationship: Relationship, group: str, publisher: str, subscriber: str) -> bytes:
    """The 32-byte name of the publisher's queue for the subscriber.

    Derived from the pair's static secret: opaque to everybody else, the other members included, and of one length, so
    that no queue's name is a prefix of another's (ZeroMQ subscriptions are prefixes).
    """
    _, public = resolve(relationship.theirs).agreement[0]
    secret = x25519(relationship.mine.agreement_secret, public)
    return hkdf_sha256(secret, f"zerochat/queue/1\n{group}\n{publisher}\n{subscriber}".encode())
