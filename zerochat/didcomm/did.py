"""DIDs: making a did:peer:4, and reading did:peer:4, did:peer:2 and did:key.

All three carry their document inside, so nothing is ever looked up anywhere. A did:peer:4 has two spellings: the long
form holds the document, the short form its hash. They are one identity (`same_did`), and the long form must be kept as
it came, because the hash is over its encoded text.

Specified in: did:peer (decentralized-identity/peer-did-method-spec, numalgo 2 and 4), did:key (w3c-ccg).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from zerochat.crypto.encoding import (
    ED25519,
    JSON,
    SHA2_256,
    X25519,
    b64url_bytes,
    base58,
    base58_bytes,
    compact_json,
    multikey,
    multikey_bytes,
    strict_json,
)
from zerochat.crypto.primitives import (
    check_x25519_public,
    ed25519_public,
    ed25519_to_x25519_public,
    sha256,
    x25519_public,
)
from zerochat.errors import Malformed

DID_CHARS_MAX = 4096
"""A did:peer:4 with two keys and two services has about 900 characters; this leaves room for other people's."""
KEYS_MAX = 16
SERVICES_MAX = 16
DOCUMENTS_CACHED = 512
"""More than one agent has peers; and if all of them were hostile, still only some megabytes."""

AUTHENTICATION_FRAGMENT = "#key-1"
AGREEMENT_FRAGMENT = "#key-2"


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a DID document; `properties` are all its members but id and type, as they came."""

    id: str
    type: str
    properties: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Document:
    """What zerochat reads of a DID document: pairs of absolute key id and 32-byte public key, and the services.

    There is at least one X25519 key in `agreement`; keys of other types are left out.
    """

    did: str
    agreement: tuple[tuple[str, bytes], ...]
    authentication: tuple[tuple[str, bytes], ...]
    services: tuple[Service, ...]

    def agreement_key(self, kid: str) -> bytes:
        """The X25519 key that a key id names, in any of its spellings. Raises Malformed."""
        return _named(kid, self.did, self.agreement, X25519)

    def authentication_key(self, kid: str) -> bytes:
        """The Ed25519 key that a key id names, in any of its spellings. Raises Malformed."""
        return _named(kid, self.did, self.authentication, ED25519)


def _named(kid: str, did: str, keys: tuple[tuple[str, bytes], ...], codec: bytes) -> bytes:
    """did:peer:2 is written with four ways of naming keys (peer-did-method-spec, pull request 62); all are read."""
    theirs, _, fragment = kid.partition("#")
    if fragment and same_did(theirs, did):
        for name, public in keys:
            if name.rpartition("#")[2] == fragment:
                return public
        if did.startswith("did:peer:2"):
            for _, public in keys:
                text = multikey(codec, public)
                if fragment in (text, text[1:], text[1:9], text[1:10]):
                    return public
    raise Malformed(why="a key id that its DID document does not have")


@dataclass(frozen=True, slots=True)
class Identity:
    """A did:peer:4 of our own with its secrets: `#key-1` signs (Ed25519), `#key-2` agrees on keys (X25519)."""

    did: str
    """The long form."""
    signing_seed: bytes = field(repr=False)
    agreement_secret: bytes = field(repr=False)

    @property
    def short(self) -> str:
        return short_form(self.did)

    @property
    def signing_public(self) -> bytes:
        return ed25519_public(self.signing_seed)

    @property
    def agreement_public(self) -> bytes:
        return x25519_public(self.agreement_secret)

    @property
    def agreement_fragment(self) -> str:
        return AGREEMENT_FRAGMENT

    @property
    def kid_long(self) -> str:
        """The id of the X25519 key, with the long form: for the first message to somebody."""
        return self.did + AGREEMENT_FRAGMENT

    @property
    def kid_short(self) -> str:
        """The id of the X25519 key, with the short form: for everybody who has the long one."""
        return self.short + AGREEMENT_FRAGMENT

    @property
    def kid_signing(self) -> str:
        return self.did + AUTHENTICATION_FRAGMENT


def new_peer4(random: Callable[[int], bytes], services: Sequence[Mapping[str, object]]) -> Identity:
    """A fresh did:peer:4 with an Ed25519 key, an X25519 key and these services (as they stand in a DID document)."""
    seed, secret = random(32), random(32)
    document = {
        "verificationMethod": [
            {
                "id": AUTHENTICATION_FRAGMENT,
                "type": "Multikey",
                "publicKeyMultibase": multikey(ED25519, ed25519_public(seed)),
            },
            {
                "id": AGREEMENT_FRAGMENT,
                "type": "Multikey",
                "publicKeyMultibase": multikey(X25519, x25519_public(secret)),
            },
        ],
        "authentication": [AUTHENTICATION_FRAGMENT],
        "keyAgreement": [AGREEMENT_FRAGMENT],
        "service": [dict(service) for service in services],
    }
    identity = Identity(peer4(compact_json(document)), seed, secret)
    resolve(identity.did)
    return identity


# --- identity -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=DOCUMENTS_CACHED)
def short_form(did: str) -> str:
    """The short form of a did:peer:4, and any other DID unchanged.

    Raises Malformed for a long form that is not the one of its hash: it would pass for somebody else.
    """
    if len(did) > DID_CHARS_MAX or not did.isascii():
        raise Malformed(why="a DID that is too long, or not ASCII")
    if not did.startswith("did:peer:4"):
        return did
    digest, colon, encoded = did[len("did:peer:4") :].partition(":")
    if colon and digest != _peer4_hash(encoded):
        raise Malformed(why="a did:peer:4 whose hash is not that of its document")
    return "did:peer:4" + digest


def same_did(one: str, other: str) -> bool:
    """Whether two DIDs are one identity: the same text, or the long and the short form of one did:peer:4."""
    return one == other or short_form(one) == short_form(other)


def _peer4_hash(encoded: str) -> str:
    return "z" + base58(SHA2_256 + sha256(encoded.encode()))


def peer4(document: bytes) -> str:
    """The long form of the did:peer:4 of a DID document, which is hashed as the bytes that it is."""
    encoded = "z" + base58(JSON + document)
    return f"did:peer:4{_peer4_hash(encoded)}:{encoded}"


# --- reading --------------------------------------------------------------------------------------------------------


def resolve(did: str, known: Mapping[str, str] | None = None) -> Document:
    """The document of a DID. Raises Malformed.

    The short form of a did:peer:4 is looked up in `known`, which has the long forms by the short ones.
    """
    if known is not None and did in known:
        long = known[did]
        if short_form(long) != did:
            raise Malformed(why="a long form that belongs to another DID")
        did = long
    return _resolve(did)


@lru_cache(maxsize=DOCUMENTS_CACHED)
def _resolve(did: str) -> Document:
    if len(did) > DID_CHARS_MAX or not did.isascii():
        raise Malformed(why="a DID that is too long, or not ASCII")
    if did.startswith("did:peer:4"):
        document = _resolve_peer4(did)
    elif did.startswith("did:peer:2."):
        document = _resolve_peer2(did)
    elif did.startswith("did:key:"):
        document = _resolve_key(did)
    else:
        raise Malformed(why="a DID of a method that cannot be read here")
    if not document.agreement:
        raise Malformed(why="a DID document without an X25519 key")
    return document


def _resolve_key(did: str) -> Document:
    text = did[len("did:key:") :]
    codec, public = multikey_bytes(text)
    if codec == X25519:
        check_x25519_public(public)
        return Document(did, ((f"{did}#{text}", public),), (), ())
    if codec != ED25519:
        raise Malformed(why="a did:key of a type that cannot be read here")
    agreement = ed25519_to_x25519_public(public)
    return Document(did, ((f"{did}#{multikey(X25519, agreement)}", agreement),), ((f"{did}#{text}", public),), ())


def _resolve_peer4(did: str) -> Document:
    encoded = did[len(short_form(did)) + 1 :]
    if not encoded.startswith("z"):
        raise Malformed(why="the short form of a did:peer:4 whose long form is not known")
    data = base58_bytes(encoded[1:], DID_CHARS_MAX)
    if not data.startswith(JSON):
        raise Malformed(why="a did:peer:4 that does not hold JSON")
    tree = strict_json(data[len(JSON) :], DID_CHARS_MAX)
    if not isinstance(tree, dict):
        raise Malformed(why="a DID document that is not an object")
    listed = _objects(tree, "verificationMethod", KEYS_MAX)
    methods = {_text(method, "id"): method for method in listed}
    if len(methods) != len(listed):
        raise Malformed(why="a DID document with two keys of one name")
    return Document(
        did,
        _peer4_keys(did, tree, "keyAgreement", methods, X25519),
        _peer4_keys(did, tree, "authentication", methods, ED25519),
        tuple(_service(service) for service in _objects(tree, "service", SERVICES_MAX)),
    )


def _peer4_keys(
    did: str, tree: dict[str, object], use: str, methods: dict[str, dict[str, object]], codec: bytes
) -> tuple[tuple[str, bytes], ...]:
    """The keys for one use, which stand there themselves or by reference."""
    keys = []
    for entry in _list(tree, use, KEYS_MAX):
        method = methods.get(entry) if isinstance(entry, str) else entry
        if not isinstance(method, dict):
            raise Malformed(why="a DID document that refers to a key it does not have")
        name = _text(method, "id")
        if not name.startswith("#"):
            raise Malformed(why="a did:peer:4 with a key id that is not relative")
        if isinstance(method.get("publicKeyMultibase"), str):
            found, public = multikey_bytes(_text(method, "publicKeyMultibase"))
            if found == codec:
                keys.append((did + name, _checked(codec, public)))
    return tuple(keys)


def _resolve_peer2(did: str) -> Document:
    keys: dict[str, list[tuple[str, bytes]]] = {"E": [], "V": []}
    services: list[Service] = []
    count = 0
    for element in did[len("did:peer:2.") :].split("."):
        purpose, value = element[:1], element[1:]
        if purpose == "S":
            services += _peer2_services(value, len(services))
        elif purpose in "VEAID" and purpose:
            count += 1
            codec, public = multikey_bytes(value)
            if codec == {"E": X25519, "V": ED25519}.get(purpose):
                keys[purpose].append((f"{did}#key-{count}", _checked(codec, public)))
        else:
            raise Malformed(why="a did:peer:2 with an unknown purpose")
        if count > KEYS_MAX or len(services) > SERVICES_MAX:
            raise Malformed(why="a did:peer:2 with too many parts")
    return Document(did, tuple(keys["E"]), tuple(keys["V"]), tuple(services))


_SHORT_NAMES = {"t": "type", "s": "serviceEndpoint", "r": "routingKeys", "a": "accept"}


def _peer2_services(value: str, before: int) -> list[Service]:
    """The service of one element, or the several ones that older writers put into one."""
    tree = _expand(strict_json(b64url_bytes(value), DID_CHARS_MAX))
    services = []
    for number, service in enumerate(tree if isinstance(tree, list) else [tree], before):
        if not isinstance(service, dict):
            raise Malformed(why="a service that is not an object")
        if service.get("type") == "dm":
            service["type"] = "DIDCommMessaging"
        services.append(_service({"id": f"#service-{number}" if number else "#service", **service}))
    return services


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


def _service(tree: dict[str, object]) -> Service:
    properties = {name: member for name, member in tree.items() if name not in ("id", "type")}
    return Service(_text(tree, "id"), _text(tree, "type"), MappingProxyType(properties))


def _checked(codec: bytes, public: bytes) -> bytes:
    """A key that can do no harm when it is used later: both kinds have points that agree with everybody."""
    if codec == X25519:
        check_x25519_public(public)
    else:
        ed25519_to_x25519_public(public)
    return public


def _text(tree: dict[str, object], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"a DID document without {name} where it belongs")
    return value


def _list(tree: dict[str, object], name: str, size_max: int) -> list[object]:
    value = tree.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > size_max:
        raise Malformed(why=f"a DID document with a {name} that is no list, or too long")
    return value


def _objects(tree: dict[str, object], name: str, size_max: int) -> list[dict[str, object]]:
    items = _list(tree, name, size_max)
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) != len(items):
        raise Malformed(why=f"a DID document with a {name} that holds no objects")
    return objects
