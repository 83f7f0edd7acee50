"""Envelopes of the first contact: to a DID that is public, from one that nobody knows yet."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from zerochat.didcomm.did import Identity, resolve, same_did
from zerochat.didcomm.message import Message, dump, parse
from zerochat.didcomm.packer import check_addressing
from zerochat.errors import Unauthentic
from zerochat.group.turn import Turn


@dataclass(frozen=True, slots=True)
class Opened:
    """An authentic message of a DID exchange: who sent it, and which of our DIDs it was sent to."""

    message: Message
    sender: str
    """The sender's DID, in the long form."""
    recipient: str


@dataclass(frozen=True, slots=True)
class Key:
    """One of our key agreement keys by the DID that it belongs to."""

    did: str
    fragment: str
    secret: bytes


def key_of(identity: Identity) -> Key:
    return Key(identity.did, identity.agreement_fragment, identity.agreement_secret)


def pack_to(mine: Identity, asked: str, message: Message, turn: Turn) -> bytes:
    """The authcrypt envelope of a message from our new DID, in its long form, to the public DID `asked`."""
    kid, public = resolve(asked).agreement[0]
    return turn.packer.authcrypt(
        dump(replace(message, from_=mine.did, to=(asked,))),
        sender_kid=mine.did + mine.agreement_fragment,
        sender_secret=mine.agreement_secret,
        recipient_kid=kid,
        recipient_public=public,
        random=turn.moment.random,
    )


def open_first(keys: Iterable[Key], envelope: bytes, turn: Turn) -> Opened:
    """Open an envelope to one of our DIDs from a DID that says all about itself. Raises Malformed or Unauthentic."""
    candidates = list(keys)

    def owner(kid: str) -> Key | None:
        did, _, fragment = kid.partition("#")
        return next((k for k in candidates if "#" + fragment == k.fragment and same_did(did, k.did)), None)

    def secret_of(kid: str) -> bytes | None:
        key = owner(kid)
        return key.secret if key else None

    def public_of(kid: str) -> bytes:
        did, _, fragment = kid.partition("#")
        for name, public in resolve(did).agreement:
            if name.rpartition("#")[2] == fragment:
                return public
        raise Unauthentic()

    unpacked = turn.packer.unpack(envelope, secret_of=secret_of, public_of=public_of)
    recipient = owner(unpacked.recipient_kid)
    if unpacked.kind != "authcrypt" or unpacked.sender_kid is None or recipient is None:
        raise Unauthentic()
    message = parse(unpacked.plain)
    check_addressing(message, unpacked)
    return Opened(message, unpacked.sender_kid.partition("#")[0], recipient.did)
