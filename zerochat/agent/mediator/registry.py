"""Names of a DID in forwards, and whether its messages are stored or relayed.

A sender may name a recipient by its DID (a did:peer:4 in either form), by one of its key ids, or (in v1) by a bare
verkey. Each name has one canonical form for look-ups.
"""

from collections.abc import Callable

from zerochat.crypto.keys import PublicKey, SecretKey, ed25519_to_x25519
from zerochat.crypto.primitives import ed25519_to_x25519_secret
from zerochat.didcomm.did import Document, Identity, did_key_of, short_form
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols.routing import as_did
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.errors import RemoteError

KEY_NAMES_MAX = 4
"""Keys of each kind under which a DID is registered, in addition to its name."""
SCHEMES = ("http://", "https://", "ws://", "wss://")


def canonical(name: str) -> str:
    """The canonical form of a name in a forward or an update. Raises Malformed."""
    return short_form(as_did(name).partition("#")[0])


def key_names(document: Document) -> tuple[str, ...]:
    """The keys of a DID as did:key names."""
    methods = (*document.authentication[:KEY_NAMES_MAX], *document.agreement[:KEY_NAMES_MAX])
    return tuple(dict.fromkeys(did_key_of(method.key) for method in methods))


def deliverable_routes(did: str, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    """The HTTP and WebSocket routes to a DID, preferred ones first; possibly empty."""
    try:
        return _routes_of(resolve(did), resolve)
    except RemoteError:
        return ()


def _routes_of(document: Document, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    found: list[Route] = []
    for route in routes(document):
        try:
            found += [way for way in deliverables(route, resolve) if way.uri.lower().startswith(SCHEMES)]
        except RemoteError:
            continue
    return tuple(found)


def is_relayed(document: Document, own: frozenset[str], resolve: Callable[[str], Document]) -> bool:
    """Whether messages for this DID are relayed: it has an address, and no route to it leads through us.

    `own`: the DID, keys and URIs of this mediator. A DID without address, or with a route through us, belongs to a
    recipient that fetches; of several mediators on a route it fetches from the last one.
    """
    found = _routes_of(document, resolve)
    if any(way.uri in own or way.uri.rstrip("/") in own for way in found):
        return False
    for route in routes(document):
        named = (route.uri, route.uri.rstrip("/"), *(key.partition("#")[0] for key in route.routing_keys))
        if not own.isdisjoint(named):
            return False
    return bool(found)


def own_secrets(identity: Identity) -> dict[str, SecretKey]:
    """The mediator's secrets by DID, and by its verkey for v1."""
    verkey = PublicKey("Ed25519", identity.signing_public)
    twin = SecretKey("X25519", ed25519_to_x25519_secret(identity.signing_seed))
    agreement = SecretKey("X25519", identity.agreement_secret)
    v1 = PACKERS["didcomm/v1"].own_key(identity, identity.did)
    return {
        identity.did: agreement,
        did_key_of(PublicKey("X25519", identity.agreement_public)): agreement,
        did_key_of(verkey): twin,
        did_key_of(ed25519_to_x25519(verkey)): twin,
        v1.kid: v1.key,
    }
