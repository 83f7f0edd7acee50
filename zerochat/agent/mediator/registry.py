"""Which names a DID goes by in forwards, and whether its messages wait at the mediator or go on to its own address.

A sender may name a recipient by its DID (a did:peer:4 in either form), by one of its key ids, or (in v1) by a bare
verkey. Each of them has one spelling here, under which it is looked up.
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
"""Keys of each use under which a DID is known besides."""
SCHEMES = ("http://", "https://", "ws://", "wss://")


def canonical(name: str) -> str:
    """The one spelling of a name in a forward or an update. Raises Malformed."""
    return short_form(as_did(name).partition("#")[0])


def key_names(document: Document) -> tuple[str, ...]:
    """The keys of a DID as did:key, for those who name a key."""
    methods = (*document.authentication[:KEY_NAMES_MAX], *document.agreement[:KEY_NAMES_MAX])
    return tuple(dict.fromkeys(did_key_of(method.key) for method in methods))


def ways(did: str, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    """The routes by which a DID is reached over HTTP or WebSocket, the preferred ones first; there may be none."""
    try:
        return _ways(resolve(did), resolve)
    except RemoteError:
        return ()


def _ways(document: Document, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    found: list[Route] = []
    for route in routes(document):
        try:
            found += [way for way in deliverables(route, resolve) if way.uri.lower().startswith(SCHEMES)]
        except RemoteError:
            continue
    return tuple(found)


def goes_on(document: Document, own: frozenset[str], resolve: Callable[[str], Document]) -> bool:
    """Whether what comes for this DID is to be sent on: it has an address, and the way there is not through us.

    `own`: the DID, the keys and the URIs of this mediator. A DID without any address, or one of whose routes leads
    here, belongs to somebody who fetches; and on a route through several mediators the last one is whom it fetches
    from.
    """
    found = _ways(document, resolve)
    if any(way.uri in own or way.uri.rstrip("/") in own for way in found):
        return False
    for route in routes(document):
        named = (route.uri, route.uri.rstrip("/"), *(key.partition("#")[0] for key in route.routing_keys))
        if not own.isdisjoint(named):
            return False
    return bool(found)


def own_secrets(identity: Identity) -> dict[str, SecretKey]:
    """A mediator's own secrets by the DIDs that have them, and by the verkey that v1 knows us by."""
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
