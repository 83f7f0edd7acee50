"""A member's contact: the DID under which the others of its group first reach it, and what that DID says.

A contact is to the group what an invitation is to the world: a DID document with endpoints, made for this one group.
Every member who uses it gets a DID of its own in return, so the contact itself never carries a conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_to_x25519_public, ed25519_verify, sha256
from zerochat.didcomm.did import Document, Identity, new_peer4
from zerochat.didcomm.invitation import Endpoint
from zerochat.errors import Malformed

CONTACT_CHARS_MAX = 2048
"""A did:peer:4 with two services has about 900 characters."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where an agent is reached: its two bound sockets and the CURVE public key of both (32 bytes)."""

    pair: Endpoint
    queue: Endpoint
    server_key: bytes


def new_identity(random: Callable[[int], bytes], reach: Reach) -> Identity:
    """A fresh did:peer:4 whose document says where we are reached."""
    pair = {
        "id": "#pair",
        "type": "DIDCommMessaging",
        "serviceEndpoint": {"uri": str(reach.pair), "accept": ["didcomm/v2"]},
        "serverKey": b64url(reach.server_key),
    }
    queue = {"id": "#queue", "type": "ZeroMQQueue", "serviceEndpoint": str(reach.queue)}
    return new_peer4(random, [pair, queue])


def reach_of(document: Document) -> Reach:
    """What a peer's DID document says about where it is reached. Raises Malformed."""
    pair = queue = server_key = None
    for service in document.services:
        match service.type, service.properties.get("serviceEndpoint"):
            case "DIDCommMessaging", {"uri": str(uri)}:
                pair = Endpoint.parse(uri)
                key = service.properties.get("serverKey")
                if isinstance(key, str):
                    server_key = b64url_bytes(key)
            case "ZeroMQQueue", str(uri):
                queue = Endpoint.parse(uri)
    if pair is None or queue is None or server_key is None or len(server_key) != 32:
        raise Malformed(why="a DID document that does not say where its owner is reached")
    return Reach(pair, queue, server_key)


# --- the two statements that a member's group key makes about its other keys ----------------------------------------


def _consent_bytes(group: str, adder: str, member: str, label: str, contact: str) -> bytes:
    return canonical_json(["zerochat/consent/1", group, adder, member, label, contact])


def sign_consent(seed: bytes, group: str, adder: str, member: str, label: str, contact: str) -> str:
    """The newcomer's own word that it lets `adder` bring it in, under this name and contact (base64url, Ed25519).

    So nobody can be added against their will, by somebody else, or with other keys.
    """
    return b64url(ed25519_sign(seed, _consent_bytes(group, adder, member, label, contact)))


def check_consent(signature: str, group: str, adder: str, member: str, label: str, contact: str) -> None:
    """Raise Unauthentic unless the member itself has signed this consent."""
    message = _consent_bytes(group, adder, member, label, contact)
    ed25519_verify(did_key_bytes(member), message, b64url_bytes(signature))


def _proof_bytes(group: str, mine: str, asked: str, reader: str) -> bytes:
    return canonical_json(["zerochat/contact/1", group, mine, asked, reader])


def sign_proof(seed: bytes, group: str, mine: str, asked: str, reader: str) -> str:
    """A member's word that the DID `mine` is its own, in an exchange begun at the DID `asked` (base64url, Ed25519).

    It is meant for the member `reader` alone: contacts can be copied, and a copy must lead nowhere.
    """
    return b64url(ed25519_sign(seed, _proof_bytes(group, mine, asked, reader)))


def check_proof(signature: str, member: str, group: str, theirs: str, asked: str, reader: str) -> None:
    """Raise Unauthentic unless `member` has signed for `reader` that `theirs` is its DID."""
    ed25519_verify(did_key_bytes(member), _proof_bytes(group, theirs, asked, reader), b64url_bytes(signature))


def transport_key(member: str) -> bytes:
    """The CURVE public key with which a member dials the others: its group key, as an X25519 key.

    Derived and not stated, so that nobody can claim somebody else's: whoever connects with it has proved that it holds
    the member's own key. (The map is RFC 7748's; signing and agreeing with one pair is what RFC 0019 does too.)
    """
    return ed25519_to_x25519_public(did_key_bytes(member))


# --- names of connections -------------------------------------------------------------------------------------------


def member_link(group: str, one: str, other: str) -> bytes:
    """The 16-byte name of the link between two members, the same at both ends."""
    first, second = sorted((one, other))
    return sha256(canonical_json(["zerochat/link/1", group, first, second]))[:16]


def knock_link(invitation_id: bytes) -> bytes:
    """The 16-byte name of the connection on which an invitation is answered."""
    return sha256(b"zerochat/knock/1\n" + invitation_id)[:16]
