"""Member contacts: the DID at which members first reach a member, its routes, and its signed statements.

A contact serves the group as an invitation serves outsiders: a DID document with endpoints, made for one group. Every
member that uses it gets a pairwise DID in return, so the contact itself never carries a conversation.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes, canonical_json, did_key_bytes
from zerochat.crypto.primitives import (
    ed25519_public,
    ed25519_sign,
    ed25519_to_x25519_public,
    ed25519_to_x25519_secret,
    ed25519_verify,
    hkdf_sha256,
    sha256,
)
from zerochat.didcomm.did import Document, Identity, new_peer4, resolve
from zerochat.didcomm.endpoint import Endpoint
from zerochat.didcomm.invitation import ACCEPT, WEB_SCHEMES
from zerochat.didcomm.service import Route, routes
from zerochat.errors import Malformed

CONTACT_CHARS_MAX = 3584
"""A did:peer:4 with two services has about 1100 characters, and a third more than the length of its mediator routes."""
URI_CHARS_MAX = 256
DIDCOMM = "DIDCommMessaging"


ROUTES_MAX = 4
"""Mediators of one member: further ones in case the first is unavailable."""
ROUTING_KEYS_MAX = 8
ROUTES_CHARS_MAX = 1536
"""URIs and keys of all announced routes: they have to fit a contact, and an invitation that is pasted. A chain of two
mediators, where the second one's DID contains the first one's, has about 1200."""
_URI = re.compile(r"[A-Za-z]+://[!-~]+")


class Reach(Struct, frozen=True):
    """Where an agent is reached: its two bound sockets with the CURVE public key of both (32 bytes), and its mediator
    routes."""

    server_key: bytes
    """Empty if no socket is bound that others could dial."""
    pair: Endpoint | None
    """None: it cannot be dialled, it only dials out."""
    queue: Endpoint | None
    routes: tuple[Route, ...] = ()
    """The routes over mediators, the preferred one first."""
    shared: tuple[str, ...] = ()
    """By route: the update whose exported secret the agent shares a mailbox there by (`shared_mailboxes.py`); empty: it
    shares none."""


def new_identity(random: Callable[[int], bytes], reach: Reach, envelope: str) -> Identity:
    """A fresh did:peer:4 whose document names our endpoints and our kind of envelopes."""
    services: list[dict[str, object]] = []
    accept, server_key = [ACCEPT.get(envelope, envelope)], b64url(reach.server_key)
    if reach.pair and reach.queue:
        pair = {"uri": str(reach.pair), "accept": accept}
        services += [
            {"id": "#pair", "type": DIDCOMM, "serviceEndpoint": pair, "serverKey": server_key},
            {"id": "#queue", "type": "ZeroMQQueue", "serviceEndpoint": str(reach.queue)},
        ]
    if reach.routes:
        endpoints = [
            {"uri": route.uri, "accept": accept, "routingKeys": list(route.routing_keys)} for route in reach.routes
        ]
        known = {"serverKey": server_key} if reach.server_key else {}
        services.append({"id": "#mail", "type": DIDCOMM, "serviceEndpoint": endpoints, **known})
    return new_peer4(random, services)


def reach_of(document: Document) -> Reach:
    """The endpoints in a peer's DID document. Raises Malformed."""
    pair = queue = None
    server_key = b""
    for service in document.services:
        key = service.properties.get("serverKey")
        if isinstance(key, str):
            server_key = b64url_bytes(key)
        match service.type, service.properties.get("serviceEndpoint"):
            case "DIDCommMessaging", {"uri": str(uri)} if uri.startswith(("zmq+tcp:", "tcp:")):
                pair = Endpoint.parse(uri)
            case "ZeroMQQueue", str(uri):
                queue = Endpoint.parse(uri)
    for kind, found in (("X25519", document.agreement), ("Ed25519", document.authentication)):
        if not any(method.key.kind == kind for method in found):
            raise Malformed(why="a DID document without the required keys")
    mail = tuple(check_route(route) for route in routes(document) if route.uri.startswith(WEB_SCHEMES))
    if (pair is None) != (queue is None) or (pair is not None and len(server_key) != 32) or len(mail) > ROUTES_MAX:
        raise Malformed(why="a DID document without usable endpoints")
    return Reach(server_key, pair, queue, mail)


@lru_cache(maxsize=4096)
def reach_of_did(did: str) -> Reach:
    """The endpoints of a DID that contains its own document. Raises Malformed."""
    return reach_of(resolve(did))


def check_route(route: Route) -> Route:
    """A web route with its routing keys. Raises Malformed for an unusable one, so that the peer that announces it gets
    the error, and not every later sender."""
    if len(route.uri) > URI_CHARS_MAX or not route.uri.startswith(WEB_SCHEMES) or not _URI.fullmatch(route.uri):
        raise Malformed(why="a route that does not begin with a web address")
    if any(mark in route.uri for mark in "?#@"):
        raise Malformed(why="a route with a query, a fragment or a password")
    if not 0 < len(route.routing_keys) <= ROUTING_KEYS_MAX:
        raise Malformed(why="a route without a key that could prove it, or with too many")
    for name in route.routing_keys:
        document = resolve(name.partition("#")[0])
        if "#" in name:
            document.agreement_key(name)
        elif not document.agreement:
            raise Malformed(why="a route over a DID without an encryption key")
    return Route(route.uri, route.routing_keys, (), "final")


def mailbox_seed(seed: bytes, number: int) -> bytes:
    """The seed of the Ed25519 mailbox key under which a mediator stores envelopes for this member of this group;
    `number` counts the member's mailboxes in the group (`mailboxes.py`).

    Derived from the member's own seed. The mediator sees no other key of ours: it stores envelopes for a mailbox, and
    sender and recipient are inside a further envelope.
    """
    return hkdf_sha256(seed, b"zerochat/mailbox/1/%d" % number)


def transport_seed(seed: bytes) -> bytes:
    """The seed of the key with which this member of this group opens its connections; derived from its own seed."""
    return hkdf_sha256(seed, b"zerochat/transport/1")


@lru_cache(maxsize=256)
def transport_secret(seed: bytes) -> bytes:
    """The transport key as a CURVE secret key."""
    return ed25519_to_x25519_secret(transport_seed(seed))


def transport_public(seed: bytes) -> str:
    """The Ed25519 public key of the transport seed, as membership events state it (base64url, 43 characters)."""
    return b64url(ed25519_public(transport_seed(seed)))


def client_key(transport: str) -> bytes:
    """The CURVE public key (32 bytes) of a stated transport key: the same point as an X25519 key (RFC 7748's map; RFC
    0019 also uses one key pair for signatures and key agreement). Raises Malformed."""
    return ed25519_to_x25519_public(b64url_bytes(transport))


def _possession_bytes(group: str, member: str) -> bytes:
    return canonical_json(["zerochat/transport/1", group, member])


def sign_possession(seed: bytes, group: str, member: str) -> str:
    """Proof of possession: the transport key's signature that it belongs to this member in this group (base64url,
    Ed25519), so that a member cannot claim another's key. `seed` is that of the member's group key; `group` is empty in
    the group's genesis."""
    return b64url(ed25519_sign(transport_seed(seed), _possession_bytes(group, member)))


def check_possession(signature: str, transport: str, group: str, member: str) -> None:
    """Raise Unauthentic unless the transport key has signed that it is this member's; Malformed for an invalid key."""
    client_key(transport)
    ed25519_verify(b64url_bytes(transport), _possession_bytes(group, member), b64url_bytes(signature))


# --- the two statements that a member's group key makes about its other keys ----------------------------------------


def _consent_bytes(group: str, adder: str, member: str, label: str, contact: str, role: str, transport: str) -> bytes:
    return canonical_json(["zerochat/consent/2", group, adder, member, label, contact, role, transport])


def sign_consent(
    seed: bytes, group: str, adder: str, member: str, label: str, contact: str, role: str, transport: str
) -> str:
    """The joiner's consent that `adder` adds it with this name, contact, role and transport key (base64url, Ed25519).

    So a key cannot be added against its owner's will, by another member, or with other keys. Consent does not expire:
    it adds this key once, since a former member's key is never added again (`membership.may_add`), and only by that
    adder. A joiner that cancels before its admission may still be admitted; it then signs a leave event
    (`joining/cancellation.py`) or never connects.
    """
    return b64url(ed25519_sign(seed, _consent_bytes(group, adder, member, label, contact, role, transport)))


def check_consent(
    signature: str, group: str, adder: str, member: str, label: str, contact: str, role: str, transport: str
) -> None:
    """Raise Unauthentic unless the member itself has signed this consent."""
    message = _consent_bytes(group, adder, member, label, contact, role, transport)
    ed25519_verify(did_key_bytes(member), message, b64url_bytes(signature))


def _proof_bytes(group: str, mine: str, asked: str, reader: str) -> bytes:
    return canonical_json(["zerochat/contact/1", group, mine, asked, reader])


def sign_proof(seed: bytes, group: str, mine: str, asked: str, reader: str) -> str:
    """A member's signature that the DID `mine` is its own, in an exchange begun at the DID `asked` (base64url,
    Ed25519).

    It is bound to the member `reader`: contacts can be copied, and a copied proof must be useless.
    """
    return b64url(ed25519_sign(seed, _proof_bytes(group, mine, asked, reader)))


def check_proof(signature: str, member: str, group: str, theirs: str, asked: str, reader: str) -> None:
    """Raise Unauthentic unless `member` has signed for `reader` that `theirs` is its DID."""
    ed25519_verify(did_key_bytes(member), _proof_bytes(group, theirs, asked, reader), b64url_bytes(signature))


def _voucher_bytes(group: str, invitation: str, joiner: str) -> bytes:
    return canonical_json(["zerochat/voucher/1", group, invitation, joiner])


def sign_voucher(seed: bytes, group: str, invitation: str, joiner: str) -> str:
    """A member's signature, by its key in `group`, that it is this joiner under this invitation, named by its DID
    (base64url, Ed25519): a private conversation admits that member alone, even if the link has leaked."""
    return b64url(ed25519_sign(seed, _voucher_bytes(group, invitation, joiner)))


def check_voucher(signature: str, member: str, group: str, invitation: str, joiner: str) -> None:
    """Raise Unauthentic unless `member` of `group` has signed that it is this joiner."""
    ed25519_verify(did_key_bytes(member), _voucher_bytes(group, invitation, joiner), b64url_bytes(signature))


def _founder_bytes(group: str, member: str, conversation: str) -> bytes:
    return canonical_json(["zerochat/founder/1", group, member, conversation])


def sign_founder(seed: bytes, group: str, member: str, conversation: str) -> str:
    """A founder's signature, by its new key in a private conversation, that it is this member of `group` (base64url,
    Ed25519): a member cannot pass off another one's group as its own conversation."""
    return b64url(ed25519_sign(seed, _founder_bytes(group, member, conversation)))


def check_founder(signature: str, founder: str, group: str, member: str, conversation: str) -> None:
    """Raise Unauthentic unless the founder of the conversation has signed that it is `member` of `group`."""
    ed25519_verify(did_key_bytes(founder), _founder_bytes(group, member, conversation), b64url_bytes(signature))


# --- names of connections -------------------------------------------------------------------------------------------


def member_link(group: str, one: str, other: str) -> bytes:
    """The 16-byte name of the link between two members, the same at both ends."""
    first, second = sorted((one, other))
    return sha256(canonical_json(["zerochat/link/1", group, first, second]))[:16]


def join_link(invitation_id: bytes) -> bytes:
    """The 16-byte name of the connection on which an invitation is answered."""
    return sha256(b"zerochat/join-link/1\n" + invitation_id)[:16]


def joiner_link(invitation_id: bytes, joiner: str) -> bytes:
    """The 16-byte name of the connection on which an inviter has dialled a joiner."""
    return sha256(b"zerochat/joiner-link/1\n" + invitation_id + joiner.encode())[:16]
