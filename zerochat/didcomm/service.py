"""Delivery routes of a DID document's services, by preference.

Four generations of service types coexist. They differ in member names, default `accept` and the order of routing keys;
a `Route` normalises these. One route is used, others are fallbacks. Malformed or oversized entries are skipped: one bad
entry must not make its owner unreachable.

Specified in: DIDComm v2.1, "Service Endpoint"; the DIDComm draft of December 2020, "DID Document Service"; Aries RFC
0067 (did-communication), RFC 0360 (did:key in recipientKeys).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import base58_bytes
from zerochat.crypto.keys import PublicKey, checked, multikey_known
from zerochat.didcomm.did import DID_CHARS_MAX, Document, Service, did_key_of
from zerochat.errors import Malformed

ROUTES_MAX = 16
"""Routes of one document."""
ROUTING_KEYS_MAX = 8
"""Each is a layer that makes the envelope half as large again."""
RECIPIENT_KEYS_MAX = 8
ACCEPT_MAX = 16
URI_CHARS_MAX = DID_CHARS_MAX
"""A mediator's DID may be used as URI."""
KID_CHARS_MAX = DID_CHARS_MAX + 256

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_KID = re.compile(r"[!-~]+")

_PROFILES = {
    "didcomm/v2": frozenset({"didcomm/v2"}),
    "didcomm/v1": frozenset({"didcomm/v1", "didcomm/aip1", "didcomm/aip2;env=rfc19"}),
}
"""Names of each packer in a service's `accept`."""
_V1 = ("didcomm/aip2;env=rfc19", "didcomm/aip1")
_ACCEPT_UNSAID = {
    "DIDCommMessaging": ("didcomm/v2",),
    "DIDComm": ("didcomm/v2",),
    "did-communication": _V1,
    "IndyAgent": _V1,
}


class Route(Struct, frozen=True):
    """A delivery route."""

    uri: str
    """A URL, or the DID of a mediator, whose document has the address (see `deliverable`)."""
    routing_keys: tuple[str, ...]
    """Keys to wrap for: key ids (DID URLs) or DIDs as received, and bare v1 keys as did:key."""
    accept: tuple[str, ...]
    """Media type profiles by preference; defaults of the service type if not stated."""
    order: Literal["final", "draft"]
    """Which routing key is the outermost layer: the first ("final"), or the last ("draft", and v1)."""
    recipient_keys: tuple[str, ...] = ()
    """v1: Ed25519 keys to encrypt to, as did:key."""

    def takes(self, profile: str) -> bool:
        """Whether the route accepts a profile (a packer's name: `didcomm/v2`, `didcomm/v1`)."""
        return any(accepted.lower().replace(" ", "") in _PROFILES[profile] for accepted in self.accept)


# --- reading --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def verkey(text: str) -> PublicKey:
    """The Ed25519 key of a v1 key name: base58, did:key, or a did:key's key id. Raises Malformed."""
    if text.startswith("did:key:"):
        bare, _, fragment = text[len("did:key:") :].partition("#")
        key = multikey_known(bare)
        if key is None or key.kind != "Ed25519" or fragment not in ("", bare):
            raise Malformed(why="a did:key that is not Ed25519")
    else:
        key = PublicKey("Ed25519", base58_bytes(text, 32))
    return checked(key)


def routes(document: Document) -> tuple[Route, ...]:
    """The usable routes of a document by preference; may be empty.

    In document order. Services with a `priority` (v1) are sorted among themselves, smallest first, in the positions of
    such services.
    """
    known = [service for service in document.services if service.type in _ACCEPT_UNSAID]
    ranked = iter(sorted((service for service in known if _priority(service) is not None), key=_rank))
    ordered = [service if _priority(service) is None else next(ranked) for service in known]
    found = []
    for service in ordered:
        for endpoint in _endpoints(service):
            try:
                found.append(_route(document, service, endpoint))
            except Malformed:
                continue
    return tuple(found[:ROUTES_MAX])


def _priority(service: Service) -> int | None:
    priority = service.properties.get("priority")
    return priority if type(priority) is int else None


def _rank(service: Service) -> int:
    return _priority(service) or 0


def _endpoints(service: Service) -> Iterator[Mapping[str, object]]:
    """The endpoints of a service as objects with `uri`; members of an endpoint may also be members of the service."""
    value = service.properties.get("serviceEndpoint")
    beside = {name: service.properties.get(name) for name in ("routingKeys", "accept")}
    for endpoint in (value if isinstance(value, list) else [value])[:ROUTES_MAX]:
        if isinstance(endpoint, str):
            yield {**beside, "uri": endpoint}
        elif isinstance(endpoint, dict):
            yield {**beside, **{name: member for name, member in endpoint.items() if member is not None}}


def _route(document: Document, service: Service, endpoint: Mapping[str, object]) -> Route:
    uri = endpoint.get("uri")
    if not isinstance(uri, str) or len(uri) > URI_CHARS_MAX or not _URI.fullmatch(uri):
        raise Malformed(why="an endpoint that is no URI")
    routing = _strings(endpoint.get("routingKeys"), ROUTING_KEYS_MAX)
    recipients = _strings(service.properties.get("recipientKeys"), RECIPIENT_KEYS_MAX)
    accept = _strings(endpoint.get("accept"), ACCEPT_MAX)
    if service.type == "DIDCommMessaging":
        return Route(uri, routing, accept or _ACCEPT_UNSAID[service.type], "final")
    if service.type != "DIDComm" and not recipients:
        raise Malformed(why="a service of v1 without a key to encrypt to")
    unsaid = _V1 if recipients else _ACCEPT_UNSAID[service.type]
    return Route(
        uri,
        tuple(key if key.startswith("did:") else _did_key(key) for key in routing),
        accept or unsaid,
        "draft",
        tuple(_recipient(document, key) for key in recipients),
    )


def _did_key(text: str) -> str:
    return did_key_of(verkey(text))


def _recipient(document: Document, text: str) -> str:
    """A v1 recipient key, literal or a reference to a key of the document."""
    if text.startswith("did:key:") or "#" not in text:
        return _did_key(text)
    key = document.authentication_key(document.did + text if text.startswith("#") else text)
    if key.kind != "Ed25519":
        raise Malformed(why="a recipient key that is not Ed25519")
    return did_key_of(key)


def _strings(value: object, size_max: int) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > size_max:
        raise Malformed(why="a service with an invalid or too long list")
    for item in value:
        if not isinstance(item, str) or len(item) > KID_CHARS_MAX or not _KID.fullmatch(item):
            raise Malformed(why="a service with an invalid key id")
    return tuple(value)


# --- mediators named by their DID -----------------------------------------------------------------------------------


def deliverables(route: Route, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    """Resolve a route whose URI is a DID to routes through that mediator; any other route is returned as it is.

    The mediator's key is an additional outer layer, outside of the route's own keys, and the mediator's own routing
    keys are outside of that. Only one level is followed ("Using a DID as an endpoint"). Raises Malformed if no address
    is found.
    """
    if not route.uri.startswith("did:"):
        return (route,)
    mediator = resolve(route.uri.partition("#")[0])
    keys = [method for method in mediator.agreement if method.key.kind == "X25519"] or list(mediator.agreement)
    ways = [way for way in routes(mediator) if way.takes("didcomm/v2") and not way.uri.startswith("did:")]
    found = [_through(way, keys[0].kid, route) for way in ways] if keys else []
    short = tuple(way for way in found if len(way.routing_keys) <= ROUTING_KEYS_MAX)
    if not short:
        raise Malformed(why="a mediator without an address")
    return short


def deliverable(route: Route, resolve: Callable[[str], Document]) -> Route:
    """The first of `deliverables`. Raises Malformed."""
    return deliverables(route, resolve)[0]


def _through(way: Route, mediator_kid: str, route: Route) -> Route:
    """A route through a mediator, with the mediator's keys as outer layers."""
    outside = (*_first_outermost(way), mediator_kid)
    if route.order == "final":
        keys = outside + route.routing_keys
    else:
        keys = route.routing_keys + outside[::-1]
    return replace(route, uri=way.uri, routing_keys=keys)


def _first_outermost(route: Route) -> tuple[str, ...]:
    return route.routing_keys if route.order == "final" else route.routing_keys[::-1]
