"""Relationships: two pairwise DIDs, the envelopes between them, and DID rotation.

In a group the parties are two members; outside of one they are this agent and another agent (`external/`). Either side
may rotate its DID at any time (DIDComm v2.1, "DID Rotation"): until the peer has addressed the new DID, every message
carries the old one's signed `from_prior`, and the old one still receives. Messages from a peer's old DID after its
rotation are rejected.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key_bytes
from zerochat.crypto.keys import AGREEMENT_KINDS, SIGNING_KINDS, PublicKey, SecretKey, public_of
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import (
    SECOND_AGREEMENT_FRAGMENT,
    Document,
    Identity,
    key_names,
    peer3_of,
    resolve,
    resolve_pinned,
    same_did,
    short_form,
)
from zerochat.didcomm.layers import is_signed, open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import OwnKey, Packer, TheirKey
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.group.wire.padding import pad


class PendingRotation(Redacted, frozen=True):
    """A rotation of our own DID that the peer has not acknowledged yet."""

    REDACTED = ("jwt",)

    old: Identity
    jwt: str
    """The old DID's signature on the new one (`from_prior`)."""
    thread: str = ""
    """v1: the thread of the message that announced it (`didcomm/protocols/rotate.py`), which the peer acknowledges."""


class RelationshipState(StrEnum):
    """The states of a relationship, which follow from its fields.

    REQUESTED -> ESTABLISHED (response) -> ROTATING (own rotation) -> ESTABLISHED (acknowledged); each -> ENDED
    """

    REQUESTED = "requested"
    ESTABLISHED = "established"
    ROTATING = "rotating"
    """Established; our last rotation is not acknowledged yet."""
    ENDED = "ended"
    """The peer has rotated its DID to nothing."""


class Relationship(Struct, frozen=True):
    """The two DIDs of one pair of parties, and the state of their exchange."""

    member: str
    mine: Identity
    theirs: str
    """The peer's DID, the long form of a did:peer:4; empty before the response, and after the end."""
    thid: str
    """The thread of the DID exchange: the id of its request."""
    invited_by: str
    """The DID of the invitation or contact that the request went to."""
    requester: bool
    acknowledged: bool = False
    """True once a message to our own DID has come: the peer has our long form, so the short form suffices."""
    rotation: PendingRotation | None = None
    peer_rotated_at: int = 0
    """The time of the peer's last rotation by its own statement, UTC seconds; 0: never."""
    rotated_at: int = 0
    """The time of our last rotation, by the clock as it was then: the peer rejects a statement with an earlier time."""
    prior: str = ""
    """v1: the DID that the peer has announced to replace, which it uses until our acknowledgement has come."""

    @property
    def state(self) -> RelationshipState:
        if not self.theirs:
            return RelationshipState.ENDED if self.peer_rotated_at else RelationshipState.REQUESTED
        return RelationshipState.ESTABLISHED if self.rotation is None else RelationshipState.ROTATING

    @property
    def established(self) -> bool:
        """Whether it is ESTABLISHED or ROTATING; checked for every message and member, so it must be fast."""
        return bool(self.theirs)


def check_peer(did: str, *, external: bool = False) -> None:
    """Raise Malformed unless a DID has the keys of a relationship: to agree on keys, and to sign a rotation.

    In groups these are X25519 and Ed25519. Agents of other vendors (`external`) may use any kind that DIDComm has.
    """
    document = resolve_pinned(did)
    agreement, signing = (AGREEMENT_KINDS, SIGNING_KINDS) if external else (("X25519",), ("Ed25519",))
    if not any(method.key.kind in agreement for method in document.agreement) or not any(
        method.key.kind in signing for method in document.authentication
    ):
        raise Malformed(why="a DID without the required keys")


def own_key(packer: Packer, identity: Identity, did: str, theirs: TheirKey) -> OwnKey:
    """Our key of the peer's curve, named under `did`; our usual one if we have none of it."""
    second = identity.second_agreement
    if second is not None and second.kind == theirs.key.kind:
        return OwnKey(did + SECOND_AGREEMENT_FRAGMENT, second)
    return packer.own_key(identity, did)


# --- sending --------------------------------------------------------------------------------------------------------


def pack(
    relationship: Relationship,
    message: Message,
    packer: Packer,
    random: Callable[[int], bytes],
    *,
    named: bool = True,
) -> bytes:
    """The authcrypt envelope of a message from us to the peer, with `from` and `to` filled in.

    Not `named`: for agents that know each other by their keys alone, as in DIDComm v1.
    """
    mine = relationship.mine
    sender = mine.short if relationship.acknowledged else mine.did
    recipient = short_form(relationship.theirs)
    word = relationship.rotation.jwt if relationship.rotation else message.from_prior
    if named:
        message = message.addressed(sender, (recipient,), word)
    theirs = packer.their_key(resolve_pinned(relationship.theirs), recipient)
    return packer.authcrypt(
        pad(packer.dump(message)), sender=own_key(packer, mine, sender, theirs), recipient=theirs, random=random
    )


def rotate(relationship: Relationship, new: Identity, now_s: int) -> Relationship:
    """The same relationship with a new DID of ours. Raises Refused while the last rotation is pending."""
    if relationship.state is RelationshipState.ROTATING:
        raise Refused(why="the last rotation is still pending")
    old, issued = relationship.mine, max(now_s, relationship.rotated_at)
    word = from_prior(Prior(old.short, old.kid_signing_short, old.signing_seed), new.did, issued)
    return replace(relationship, mine=new, acknowledged=False, rotation=PendingRotation(old, word), rotated_at=issued)


def pack_end(
    relationship: Relationship, message: Message, packer: Packer, random: Callable[[int], bytes], now_s: int
) -> bytes:
    """The envelope that ends the relationship: our DID is rotated to nothing, so the message has no sender."""
    mine = relationship.mine
    issued = max(now_s, relationship.rotated_at)
    word = from_prior(Prior(mine.short, mine.kid_signing_short, mine.signing_seed), None, issued)
    recipient = short_form(relationship.theirs)
    plain = pad(packer.dump(message.addressed(None, (recipient,), word)))
    key = packer.their_key(resolve_pinned(relationship.theirs), recipient)
    return packer.anoncrypt(plain, recipient=key, random=random)


# --- receiving ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def own_keys(packer: Packer, identity: Identity) -> dict[str, SecretKey]:
    """The keys of one of our DIDs by every key id that an envelope may use."""
    dids = (identity.short, identity.did)
    keys = {key.kid: key.key for key in (packer.own_key(identity, did) for did in dids)}
    if identity.second_agreement is not None:
        keys |= {did + SECOND_AGREEMENT_FRAGMENT: identity.second_agreement for did in dids}
    if identity.did.startswith("did:peer:2"):
        keys |= {name: key for kid, key in keys.items() for name in key_names(kid, public_of(key))}
    return keys


def unpack(
    relationship: Relationship, envelope: bytes, packer: Packer, *, layered: bool = False
) -> tuple[Relationship, Message]:
    """The message in an envelope from the peer to us, and the relationship after it.

    `layered`: accept every protection of DIDComm v2 (`layers.py`), as agents of other vendors use them; otherwise only
    authcrypt. Raises Malformed or Unauthentic. When the message ends the relationship, `theirs` is empty afterwards.
    """
    if not relationship.established:
        raise Unauthentic()
    current = own_keys(packer, relationship.mine)
    older = own_keys(packer, relationship.rotation.old) if relationship.rotation else {}

    def document_of(did: str) -> Document:
        theirs = relationship.theirs
        return resolve_pinned(theirs) if same_did(did, theirs) else resolve(did)

    def their_public(kid: str) -> PublicKey:
        return document_of(kid.partition("#")[0]).agreement_key(kid)

    def secret_of(kid: str) -> SecretKey | None:
        return current.get(kid) or older.get(kid)

    unpacked = packer.unpack(envelope, secret_of=secret_of, public_of=their_public)
    if unpacked.forgeable:
        raise Unauthentic()
    if unpacked.kind == "authcrypt" and not (layered and is_signed(unpacked.plain)):
        message = packer.parse(unpacked.plain)
        sender: str | None = packer.check_sender(message, unpacked, document_of)
    elif layered:
        ours = [relationship.mine.did] + ([relationship.rotation.old.did] if relationship.rotation else [])
        known = {name: did for did in ours for name in (short_form(did), peer3_of(did))}
        opened = open_layers(
            envelope, secret_of=secret_of, resolve=lambda did: document_of(known.get(short_form(did), did))
        )
        message, sender = opened.message, opened.sender or opened.signer
    else:
        message, sender = packer.parse(unpacked.plain), None
    if sender is None:
        return _apply_end(relationship, message), message
    if message.from_ is None and sender.startswith("did:key:"):
        sender = _v1_sender(relationship, sender)
    if same_did(sender, relationship.theirs):
        relationship = replace(relationship, prior="") if relationship.prior else relationship
    elif not relationship.prior or not same_did(sender, relationship.prior):
        relationship = _apply_rotation(relationship, message, sender, external=layered)
    if unpacked.recipient_kid in current and not (relationship.acknowledged and relationship.rotation is None):
        relationship = replace(relationship, acknowledged=True, rotation=None)
    return relationship, message


def _v1_sender(relationship: Relationship, verkey: str) -> str:
    """The DID of a v1 message without `from`: the peer's, or its prior one, whose key was used. Raises Unauthentic."""
    key = PublicKey("Ed25519", did_key_bytes(verkey))
    for did in (relationship.theirs, relationship.prior):
        if did and key in [method.key for method in resolve_pinned(did).authentication]:
            return did
    raise Unauthentic()


def _apply_rotation(relationship: Relationship, message: Message, sender: str, *, external: bool) -> Relationship:
    """A message under another DID than the peer's must carry the peer's signed rotation."""
    if message.from_prior is None:
        raise Unauthentic()
    rotation = verify_from_prior(message.from_prior, resolve_pinned(relationship.theirs), sender)
    if rotation.issued < relationship.peer_rotated_at:
        raise Unauthentic()
    check_peer(sender, external=external)
    return replace(relationship, theirs=sender, peer_rotated_at=rotation.issued)


def _apply_end(relationship: Relationship, message: Message) -> Relationship:
    """A message without a sender must be the peer's rotation to nothing."""
    if message.from_prior is None or message.from_ is not None:
        raise Unauthentic()
    rotation = verify_from_prior(message.from_prior, resolve_pinned(relationship.theirs), None)
    if rotation.issued < relationship.peer_rotated_at:
        raise Unauthentic()
    return replace(relationship, theirs="", peer_rotated_at=rotation.issued)
