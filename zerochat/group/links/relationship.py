"""One pair of parties: two DIDs made for each other, the envelopes between them, and how either DID is replaced.

In a group the parties are two members; outside of one they are this agent and somebody else's (`outside/`). Either
side may rotate its DID at any time (DIDComm v2.1, "DID Rotation"): until the peer has addressed the new one, every
message carries the old one's word for it, and the old one can still be written to. What a peer's old DID says after its
rotation is not heard.
"""

from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Document, Identity, resolve, same_did, short_form
from zerochat.didcomm.layers import open_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Packer
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.group.wire.padding import pad


class Handover(Veiled, frozen=True):
    """A rotation of our own that the peer has not shown to know yet."""

    VEILED = ("jwt",)

    old: Identity
    jwt: str
    """The old DID's word for the new one (`from_prior`)."""


class Relationship(Struct, frozen=True):
    """The two DIDs of one pair of parties, and how far their exchange has come."""

    member: str
    mine: Identity
    theirs: str
    """The peer's DID, the long form of a did:peer:4; empty while its answer is awaited, or after it has ended this."""
    thid: str
    """The thread of the DID exchange: the id of its request."""
    asked: str
    """The DID of the invitation or contact that the request went to."""
    requester: bool
    greeted: bool = False
    """True once a message to our own DID has come: the peer has our long form, and the short one will do."""
    handover: Handover | None = None
    rotated: int = 0
    """When the peer last rotated its DID by its own word, UTC seconds; 0: never."""
    issued: int = 0
    """When we last rotated ours, by the clock as it was then: the peer takes no word for newer that says less."""

    @property
    def established(self) -> bool:
        return bool(self.theirs)


def check_peer(did: str) -> None:
    """Raise Malformed unless a DID has the keys that a relationship needs: X25519, and Ed25519 to sign a rotation."""
    document = resolve(did)
    agreement = any(method.key.kind == "X25519" for method in document.agreement)
    if not agreement or not any(method.key.kind == "Ed25519" for method in document.authentication):
        raise Malformed(why="a DID without the keys that are needed to talk")


# --- writing --------------------------------------------------------------------------------------------------------


def pack(
    relationship: Relationship,
    message: Message,
    packer: Packer,
    random: Callable[[int], bytes],
    *,
    named: bool = True,
) -> bytes:
    """The authcrypt envelope of a message from us to the peer, with `from` and `to` filled in.

    Not `named`: for agents that know each other by their keys alone, as those of DIDComm v1 do.
    """
    mine = relationship.mine
    sender = mine.short if relationship.greeted else mine.did
    recipient = short_form(relationship.theirs)
    word = relationship.handover.jwt if relationship.handover else message.from_prior
    if named:
        message = message.addressed(sender, (recipient,), word)
    return packer.authcrypt(
        pad(packer.dump(message)),
        sender=packer.own_key(mine, sender),
        recipient=packer.their_key(resolve(relationship.theirs), recipient),
        random=random,
    )


def rotate(relationship: Relationship, new: Identity, now_s: int) -> Relationship:
    """The same relationship under a new DID of ours. Raises Refused while the peer does not know the last one yet."""
    if relationship.handover is not None:
        raise Refused(why="the last rotation is not known to the peer yet")
    old, issued = relationship.mine, max(now_s, relationship.issued)
    word = from_prior(Prior(old.short, old.kid_signing_short, old.signing_seed), new.did, issued)
    return replace(relationship, mine=new, greeted=False, handover=Handover(old, word), issued=issued)


def farewell(
    relationship: Relationship, message: Message, packer: Packer, random: Callable[[int], bytes], now_s: int
) -> bytes:
    """The envelope that ends the relationship: our DID is rotated to nothing, so the message has no sender."""
    mine = relationship.mine
    issued = max(now_s, relationship.issued)
    word = from_prior(Prior(mine.short, mine.kid_signing_short, mine.signing_seed), None, issued)
    recipient = short_form(relationship.theirs)
    plain = pad(packer.dump(message.addressed(None, (recipient,), word)))
    key = packer.their_key(resolve(relationship.theirs), recipient)
    return packer.anoncrypt(plain, recipient=key, random=random)


# --- reading --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def own_keys(packer: Packer, identity: Identity) -> dict[str, SecretKey]:
    """The keys of one of our DIDs by every name that an envelope may give them."""
    keys = (packer.own_key(identity, did) for did in (identity.short, identity.did))
    return {key.kid: key.key for key in keys}


def unpack(
    relationship: Relationship, envelope: bytes, packer: Packer, *, layered: bool = False
) -> tuple[Relationship, Message]:
    """The message in an envelope from the peer to us, and the relationship as it is after it.

    `layered`: every protection that DIDComm v2 knows will do (`layers.py`), as agents of other makers write them;
    otherwise there is one, authcrypt. Raises Malformed or Unauthentic. When the message ends the relationship, `theirs`
    is empty afterwards.
    """
    if not relationship.established:
        raise Unauthentic()
    current = own_keys(packer, relationship.mine)
    older = own_keys(packer, relationship.handover.old) if relationship.handover else {}

    def document_of(did: str) -> Document:
        return resolve(relationship.theirs if same_did(did, relationship.theirs) else did)

    def public_of(kid: str) -> PublicKey:
        return document_of(kid.partition("#")[0]).agreement_key(kid)

    def secret_of(kid: str) -> SecretKey | None:
        return current.get(kid) or older.get(kid)

    unpacked = packer.unpack(envelope, secret_of=secret_of, public_of=public_of)
    if unpacked.forgeable:
        raise Unauthentic()
    if unpacked.kind == "authcrypt":
        message = packer.parse(unpacked.plain)
        sender: str | None = packer.check_sender(message, unpacked, document_of)
    elif layered:
        ours = [relationship.mine.did] + ([relationship.handover.old.did] if relationship.handover else [])
        known = {short_form(did): did for did in ours}
        opened = open_layers(
            envelope, secret_of=secret_of, resolve=lambda did: document_of(known.get(short_form(did), did))
        )
        message, sender = opened.message, opened.sender or opened.signer
    else:
        message, sender = packer.parse(unpacked.plain), None
    if sender is None:
        return _ended(relationship, message), message
    if message.from_ is None and sender.startswith("did:key:"):
        sender = _owner(relationship.theirs, sender)
    if not same_did(sender, relationship.theirs):
        relationship = _rotated(relationship, message, sender)
    if unpacked.recipient_kid in current and not (relationship.greeted and relationship.handover is None):
        relationship = replace(relationship, greeted=True, handover=None)
    return relationship, message


def _owner(theirs: str, verkey: str) -> str:
    """Who has sent a v1 message that names nobody: the peer, if it was with one of its keys. Raises Unauthentic."""
    key = PublicKey("Ed25519", did_key_bytes(verkey))
    if key not in [method.key for method in resolve(theirs).authentication]:
        raise Unauthentic()
    return theirs


def _rotated(relationship: Relationship, message: Message, sender: str) -> Relationship:
    """A message under a DID that is not the peer's: it must bring the word of the one that is."""
    if message.from_prior is None:
        raise Unauthentic()
    rotation = verify_from_prior(message.from_prior, resolve(relationship.theirs), sender)
    if rotation.issued < relationship.rotated:
        raise Unauthentic()
    check_peer(sender)
    return replace(relationship, theirs=sender, rotated=rotation.issued)


def _ended(relationship: Relationship, message: Message) -> Relationship:
    """A message without a sender can only be the peer's word that it gives up its DID for nothing."""
    if message.from_prior is None or message.from_ is not None:
        raise Unauthentic()
    rotation = verify_from_prior(message.from_prior, resolve(relationship.theirs), None)
    if rotation.issued < relationship.rotated:
        raise Unauthentic()
    return replace(relationship, theirs="", rotated=rotation.issued)
