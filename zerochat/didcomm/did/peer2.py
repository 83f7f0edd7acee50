"""did:peer:2: keys and services inline in the DID; the shortest form with an endpoint.

A key that cannot be right is refused with its DID: its owner would use it, and get answers without it. Keys of kinds
that are not known here are left out.

Implementations differ in key ids (see `Document.agreement_key`) and service encodings (endpoint as object or text, one
or several services per element); all are accepted.

Specified in: did:peer (decentralized-identity/peer-did-method-spec, numalgo 2).
"""

from collections.abc import Mapping, Sequence

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, multikey_bytes, strict_json
from zerochat.crypto.keys import AGREEMENT_KINDS, PublicKey, checked, is_public_codec, multikey
from zerochat.didcomm.did.document import (
    KEYS_MAX,
    MULTIKEY_CHARS_MAX,
    SERVICES_MAX,
    VERIFYING_KINDS,
    Document,
    Method,
    Service,
    known_key,
    read_services,
)
from zerochat.didcomm.did.forms import DID_CHARS_MAX
from zerochat.errors import Malformed

PREFIX = "did:peer:2."

_SHORT_NAMES = {"t": "type", "s": "serviceEndpoint", "r": "routingKeys", "a": "accept"}
_ABBREVIATIONS = {name: short for short, name in _SHORT_NAMES.items()}
_KINDS = {"E": AGREEMENT_KINDS, "V": VERIFYING_KINDS}
_PURPOSES = ("V", "E", "A", "I", "D")


# --- writing --------------------------------------------------------------------------------------------------------


def peer2(
    authentication: Sequence[PublicKey], agreement: Sequence[PublicKey], services: Sequence[Mapping[str, object]]
) -> str:
    """The did:peer:2 of these keys and services (as in a DID document), in this order.

    The keys become `#key-1`, `#key-2` and so on, signing keys first. Service members may not be named t, s, r or a,
    which are abbreviations.
    """
    elements = ["V" + multikey(key) for key in authentication] + ["E" + multikey(key) for key in agreement]
    elements += ["S" + b64url(compact_json(_abbreviate(service))) for service in services]
    return PREFIX + ".".join(elements)


def _abbreviate(tree: object) -> object:
    if isinstance(tree, (list, tuple)):
        return [_abbreviate(item) for item in tree]
    if not isinstance(tree, Mapping):
        return tree
    assert not tree.keys() & _SHORT_NAMES.keys()
    short = {_ABBREVIATIONS.get(name, name): _abbreviate(member) for name, member in tree.items()}
    return short | {"t": "dm"} if short.get("t") == "DIDCommMessaging" else short


# --- reading --------------------------------------------------------------------------------------------------------


def resolve_peer2(did: str) -> Document:
    """The document of a did:peer:2. Raises Malformed."""
    keys: dict[str, list[Method]] = {"E": [], "V": []}
    services: list[Service] = []
    count = 0
    for element in did[len(PREFIX) :].split("."):
        purpose, value = element[:1], element[1:]
        if purpose == "S":
            services += _services(value, len(services))
        elif purpose in _PURPOSES:
            count += 1
            key = _key(purpose, value)
            if key is not None and purpose in keys:
                keys[purpose].append(Method(f"{did}#key-{count}", key))
        else:
            raise Malformed(why="a did:peer:2 with an unknown purpose")
        if count > KEYS_MAX or len(services) > SERVICES_MAX:
            raise Malformed(why="a did:peer:2 with too many parts")
    return Document(did, tuple(keys["E"]), tuple(keys["V"]), tuple(services))


def _key(purpose: str, value: str) -> PublicKey | None:
    """The checked key of an element; None for a kind of public key that is not known here. Raises Malformed."""
    if not value.startswith("z"):
        raise Malformed(why="a did:peer:2 with a key in an unknown base")
    key = known_key(value)
    if key is None:
        if len(value) <= MULTIKEY_CHARS_MAX and not is_public_codec(multikey_bytes(value)[0]):
            raise Malformed(why="a did:peer:2 with a key of no known kind")
        return None
    if key.kind not in _KINDS.get(purpose, (key.kind,)):
        raise Malformed(why="a did:peer:2 with a key of the wrong kind for its purpose")
    return checked(key)


def _services(value: str, before: int) -> tuple[Service, ...]:
    """The service of one element, or the several ones that older implementations put into one."""
    tree = _expand(strict_json(b64url_bytes(value), DID_CHARS_MAX))
    services = []
    for number, service in enumerate(tree if isinstance(tree, list) else [tree], before):
        if not isinstance(service, dict):
            raise Malformed(why="a service that is not an object")
        if service.get("type") == "dm":
            service["type"] = "DIDCommMessaging"
        services.append({"id": f"#service-{number}" if number else "#service", **service})
    return read_services(services)


def _expand(tree: object) -> object:
    """A service with its abbreviated names written out, at every level (did:peer:2, "Service Encoding")."""
    if isinstance(tree, list):
        return [_expand(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    expanded = {_SHORT_NAMES.get(name, name): _expand(member) for name, member in tree.items()}
    if len(expanded) != len(tree):
        raise Malformed(why="a service with a name both in full and abbreviated")
    return expanded
