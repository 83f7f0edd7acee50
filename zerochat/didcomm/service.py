"""Where a DID document wants its messages delivered: every endpoint as a route, the preferred ones first.

Four generations of service stand in documents side by side. They differ in their names, in what they accept when they
do not say, and in which routing key the outermost wrapping is for; a route says all of it, so that whoever wraps need
not know where it came from. One route is to be used, the others are for when it fails. What is malformed, or would
grow without end, is left out: one bad entry must not make its owner unreachable.

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
"""Of one document; nobody tries more before giving up."""
ROUTING_KEYS_MAX = 8
"""Every one is a wrapping that makes the envelope half as large again."""
RECIPIENT_KEYS_MAX = 8
ACCEPT_MAX = 16
URI_CHARS_MAX = DID_CHARS_MAX
"""A mediator's DID may stand where a URI does; URLs are far shorter."""
KID_CHARS_MAX = DID_CHARS_MAX + 256

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_KID = re.compile(r"[!-~]+")

_PROFILES = {
    "didcomm/v2": frozenset({"didcomm/v2"}),
    "didcomm/v1": frozenset({"didcomm/v1", "didcomm/aip1", "didcomm/aip2;env=rfc19"}),
}
"""What a service's `accept` calls each of our packers."""
_V1 = ("didcomm/aip2;env=rfc19", "didcomm/aip1")
_ACCEPT_UNSAID = {
    "DIDCommMessaging": ("didcomm/v2",),
    "DIDComm": ("didcomm/v2",),
    "did-communication": _V1,
    "IndyAgent": _V1,
}


class Route(Struct, frozen=True):
    """One way to deliver to somebody."""

    uri: str
    """Where to send: a URL, or the DID of a mediator, whose own document says where (see `deliverable`)."""
    routing_keys: tuple[str, ...]
    """Whom to wrap for: key ids (DID URLs) or DIDs as they came, and bare keys of v1 as did:key."""
    accept: tuple[str, ...]
    """Media type profiles in order of preference; as announced, or what such a service means by silence."""
    order: Literal["final", "draft"]
    """Which routing key is the outermost wrapping's: the first ("final"), or the last ("draft", and all of v1)."""
    recipient_keys: tuple[str, ...] = ()
    """For v1: the Ed25519 keys to encrypt to, as did:key."""

    def takes(self, profile: str) -> bool:
        """Whether envelopes of this profile (a packer's name: `didcomm/v2`, `didcomm/v1`) may be sent here."""
        return any(accepted.lower().replace(" ", "") in _PROFILES[profile] for accepted in self.accept)


# --- reading --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def verkey(text: str) -> PublicKey:
    """The Ed25519 key that a v1 message or service names: base58, did:key, or a did:key's key id. Raises Malformed."""
    if text.startswith("did:key:"):
        bare, _, fragment = text[len("did:key:") :].partition("#")
        key = multikey_known(bare)
        if key is None or key.kind != "Ed25519" or fragment not in ("", bare):
            raise Malformed(why="a did:key that is no Ed25519 key")
    else:
        key = PublicKey("Ed25519", base58_bytes(text, 32))
    return checked(key)


def routes(document: Document) -> tuple[Route, ...]:
    """Every usable route of a document, the preferred ones first; it may have none.

    The order is the document's own. Only services that state a `priority` (v1) are in the order of those among
    themselves, the smallest first, in the places where such services stand.
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
    """The endpoints of a service, each as an object with `uri`; what belongs to an endpoint may stand beside it."""
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
    """A recipient key of v1, which stands there itself or refers to a key of its document."""
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
        raise Malformed(why="a service with a list that is none, or too long")
    for item in value:
        if not isinstance(item, str) or len(item) > KID_CHARS_MAX or not _KID.fullmatch(item):
            raise Malformed(why="a service with a list of other things than key ids")
    return tuple(value)


# --- mediators named by their DID -----------------------------------------------------------------------------------


def deliverables(route: Route, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    """The routes that a route comes to, which are itself unless its URI is a DID: then those of that mediator.

    To the mediator itself is wrapped last, so its key comes first (in the draft's order: last), and whatever the
    mediator's own route demands before it. Mediators do not hide behind other mediators' DIDs ("Using a DID as an
    endpoint"): one level is followed. Raises Malformed where that leads nowhere.
    """
    if not route.uri.startswith("did:"):
        return (route,)
    mediator = resolve(route.uri.partition("#")[0])
    keys = [method for method in mediator.agreement if method.key.kind == "X25519"] or list(mediator.agreement)
    ways = [way for way in routes(mediator) if way.takes("didcomm/v2") and not way.uri.startswith("did:")]
    found = [_through(way, keys[0].kid, route) for way in ways] if keys else []
    short = tuple(way for way in found if len(way.routing_keys) <= ROUTING_KEYS_MAX)
    if not short:
        raise Malformed(why="a mediator that does not say how it is reached")
    return short


def deliverable(route: Route, resolve: Callable[[str], Document]) -> Route:
    """The route that comes first among `deliverables`. Raises Malformed."""
    return deliverables(route, resolve)[0]


def _through(way: Route, mediator_kid: str, route: Route) -> Route:
    """A route through a mediator, with the mediator's keys outside the route's own."""
    outside = (*_first_outermost(way), mediator_kid)
    if route.order == "final":
        keys = outside + route.routing_keys
    else:
        keys = route.routing_keys + outside[::-1]
    return replace(route, uri=way.uri, routing_keys=keys)


def _first_outermost(route: Route) -> tuple[str, ...]:
    return route.routing_keys if route.order == "final" else route.routing_keys[::-1]
