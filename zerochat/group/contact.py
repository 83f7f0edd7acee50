"""A member's contact: the DID under which the others of its group first reach it, and what that DID says.

A contact is to the group what an invitation is to the world: a DID document with endpoints, made for this one group.
Every member who uses it gets a DID of its own in return, so the contact itself never carries a conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
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


def _consent_bytes(group: str, member: str, label: str, client_key: str, contact: str) -> bytes:
    return canonical_json(["zerochat/consent/1", group, member, label, client_key, contact])


def sign_consent(seed: bytes, group: str, member: str, label: str, client_key: str, contact: str) -> str:
    """The newcomer's own word that it joins this group under this name and with these keys (base64url, Ed25519).

    So nobody can be added against their will, and the adder cannot swap the keys of whom it adds.
    """
    return b64url(ed25519_sign(seed, _consent_bytes(group, member, label, client_key, contact)))


def check_consent(signature: str, group: str, member: str, label: str, client_key: str, contact: str) -> None:
    """Raise Unauthentic unless the member itself has signed this consent."""
    message = _consent_bytes(group, member, label, client_key, contact)
    ed25519_verify(did_key_bytes(member), message, b64url_bytes(signature))


def _proof_bytes(group: str, mine: str, contact: str) -> bytes:
    return canonical_json(["zerochat/contact/1", group, mine, contact])


def sign_proof(seed: bytes, group: str, mine: str, contact: str) -> str:
    """A member's word that the DID `mine` is its own for the member whose contact this is (base64url, Ed25519)."""
    return b64url(ed25519_sign(seed, _proof_bytes(group, mine, contact)))


def check_proof(signature: str, member: str, group: str, theirs: str, contact: str) -> None:
    """Raise Unauthentic unless `member` has signed that `theirs` is its DID towards `contact`."""
    ed25519_verify(did_key_bytes(member), _proof_bytes(group, theirs, contact), b64url_bytes(signature))


# --- names of connections -------------------------------------------------------------------------------------------


def member_link(group: str, one: str, other: str) -> bytes:
    """The 16-byte name of the link between two members, the same at both ends."""
    first, second = sorted((one, other))
    return sha256(canonical_json(["zerochat/link/1", group, first, second]))[:16]


def knock_link(invitation_id: bytes) -> bytes:
    """The 16-byte name of the connection on which an invitation is answered."""
    return sha256(b"zerochat/knock/1\n" + invitation_id)[:16]
