"""Envelopes of the DID exchange: to a public DID, from a DID that its owner does not know yet."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm.did import Identity, peer3_of, resolve, resolve_pinned, short_form
from zerochat.didcomm.layers import open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.errors import Unauthentic
from zerochat.group.inputs import StepContext
from zerochat.group.links.relationship import check_peer, own_key, own_keys
from zerochat.group.wire.padding import pad


class OpenedMessage(Struct, frozen=True):
    """An authentic message of a DID exchange, its sender, and our DID that it was sent to."""

    message: Message
    sender: str
    """The sender's DID, in the long form."""
    recipient: Identity


def pack_first(
    identity: Identity, public_did: str, message: Message, packer: Packer, context: StepContext, *, named: bool = True
) -> bytes:
    """The authcrypt envelope of a message from our new DID, in its long form, to the public DID `public_did`, in its
    short form.

    `named` as in `relationship.pack`.
    """
    recipient = short_form(public_did)
    theirs = packer.their_key(resolve_pinned(public_did), recipient)
    return packer.authcrypt(
        pad(packer.dump(replace(message, from_=identity.did, to=(recipient,)) if named else message)),
        sender=own_key(packer, identity, identity.did, theirs),
        recipient=theirs,
        random=context.random,
    )


def open_first(
    identities: Iterable[Identity], envelope: bytes, packer: Packer, *, layered: bool = False
) -> OpenedMessage:
    """Open an envelope to one of our DIDs from a self-certifying long-form DID; `layered` as in `relationship.unpack`.
    Raises Malformed or Unauthentic."""
    identities = tuple(identities)
    owners = {kid: (identity, key) for identity in identities for kid, key in own_keys(packer, identity).items()}

    def public_of(kid: str) -> PublicKey:
        return resolve(kid.partition("#")[0]).agreement_key(kid)

    def secret_of(kid: str) -> SecretKey | None:
        return owners[kid][1] if kid in owners else None

    if layered:
        known = {name: one.did for one in identities for name in (one.short, peer3_of(one.did))}
        opened = open_layers(
            envelope, secret_of=secret_of, resolve=lambda did: resolve(known.get(short_form(did), did))
        )
        proven = opened.sender or opened.signer
        if proven is None or opened.recipient_kid is None or opened.forgeable:
            raise Unauthentic()
        check_peer(proven, external=True)
        return OpenedMessage(opened.message, proven, owners[opened.recipient_kid][0])
    unpacked = packer.unpack(envelope, secret_of=secret_of, public_of=public_of)
    if unpacked.kind != "authcrypt" or unpacked.forgeable:
        raise Unauthentic()
    message = packer.parse(unpacked.plain)
    sender = packer.check_sender(message, unpacked, resolve)
    check_peer(sender)
    return OpenedMessage(message, sender, owners[unpacked.recipient_kid][0])
