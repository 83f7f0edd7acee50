"""DID documents: extracts keys for key agreement and authentication, and services.

Accepts relative and absolute key ids, embedded and referenced keys, and three key encodings. Unusable keys (of unknown
kinds, for another use, or of other DIDs) are ignored; contradictions are refused, because two readers could interpret
them differently.

Specified in: DID Core 1.0, section 5; Multikey (W3C Controlled Identifiers 1.0, section 2.2.2); JsonWebKey2020; the
suites Ed25519VerificationKey2018/2020 and X25519KeyAgreementKey2019/2020.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec import Struct

from zerochat.crypto.encoding import base58_bytes
from zerochat.crypto.keys import (
    AGREEMENT_KINDS,
    KeyKind,
    KeyUse,
    PublicKey,
    checked,
    jwk_permits,
    jwk_public,
    multikey,
    multikey_known,
)
from zerochat.didcomm.did.forms import peer3_of, same_did
from zerochat.errors import Malformed

KEYS_MAX = 16
"""Keys per use. Each key costs a point check of up to 100 µs."""
SERVICES_MAX = 16
VERIFYING_KINDS: tuple[KeyKind, ...] = ("Ed25519", "P-256", "P-384", "P-521", "secp256k1")
"""Kinds of signing keys; `jws.py` decides which signatures are supported."""

_KIND_OF_TYPE: dict[str, KeyKind] = {
    "Ed25519VerificationKey2018": "Ed25519",
    "X25519KeyAgreementKey2019": "X25519",
    "EcdsaSecp256k1VerificationKey2019": "secp256k1",
    "P256Key2021": "P-256",
    "P384Key2021": "P-384",
    "P521Key2021": "P-521",
}
"""Types whose base58 text is the bare key; all others state the kind themselves."""
_KEY_BYTES_MAX = 67
"""A compressed point of P-521."""
MULTIKEY_CHARS_MAX = 128
"""A P-521 key has 96; longer keys are of unknown kinds and slow to decode."""
_KEY_SPELLINGS = ("publicKeyMultibase", "publicKeyJwk", "publicKeyBase58")


class Method(Struct, frozen=True):
    """A verification method with its absolute id."""

    kid: str
    key: PublicKey


class Service(Struct, frozen=True):
    """A service of a DID document; `properties`: its members except id and type, unmodified."""

    id: str
    type: str
    properties: Mapping[str, object]


class Document(Struct, frozen=True):
    """The usable parts of a DID document, in its order; each may be empty."""

    did: str
    agreement: tuple[Method, ...]
    """Keys to encrypt to: X25519, P-256, P-384, P-521."""
    authentication: tuple[Method, ...]
    """Keys to verify with: Ed25519, P-256, P-384, P-521, secp256k1."""
    services: tuple[Service, ...]

    def agreement_key(self, kid: str) -> PublicKey:
        """The key agreement key of a key id, in any of its spellings. Raises Malformed."""
        return _named(kid, self.did, self.agreement).key

    def authentication_key(self, kid: str) -> PublicKey:
        """The authentication key of a key id, in any of its spellings. Raises Malformed."""
        return _named(kid, self.did, self.authentication).key


def _named(kid: str, did: str, methods: tuple[Method, ...]) -> Method:
    """did:peer:2 has four conventions for key ids (peer-did-method-spec, pull request 62); all are accepted."""
    theirs, mark, fragment = kid.partition("#")
    if fragment and same_did(theirs, did):
        for method in methods:
            if method.kid.endswith(mark + fragment):
                return method
        if did.startswith(("did:peer:0", "did:peer:2")):
            for method in methods:
                if fragment in _fragments(method.key):
                    return method
    raise Malformed(why="a key id that its DID document does not have")


def key_names(kid: str, key: PublicKey) -> tuple[str, ...]:
    """The other key ids of a key of a did:peer:2, in every convention, and under its did:peer:3."""
    did, _, fragment = kid.partition("#")
    if not fragment:
        return ()
    names = (fragment, *_fragments(key))
    return tuple(f"{each}#{name}" for each in (did, peer3_of(did)) for name in names)


def _fragments(key: PublicKey) -> tuple[str, ...]:
    """Those that implementations of did:peer:2 make of the key itself."""
    text = multikey(key)
    return text, text[1:], text[1:9], text[1:10]


# --- reading --------------------------------------------------------------------------------------------------------


def read_document(did: str, tree: object) -> Document:
    """Decode the document of a DID from JSON. Raises Malformed.

    The document's own `id` is ignored: the caller knows the DID, or verifies a signature. The section `publicKey` and
    the references from `authentication` to it follow Aries RFC 0067.
    """
    if not isinstance(tree, dict):
        raise Malformed(why="a DID document that is not an object")
    listed = _objects(tree, "verificationMethod", KEYS_MAX) + _objects(tree, "publicKey", KEYS_MAX)
    methods: dict[str, dict[str, object]] = {}
    for method in listed:
        kid = _absolute(did, _text(method, "id"))
        if kid in methods:
            raise Malformed(why="a DID document with two keys of one name")
        if kid is not None:
            methods[kid] = method
    return Document(
        did,
        _methods(did, tree, "keyAgreement", methods, AGREEMENT_KINDS),
        _methods(did, tree, "authentication", methods, VERIFYING_KINDS),
        read_services(_objects(tree, "service", SERVICES_MAX)),
    )


def read_services(trees: list[dict[str, object]]) -> tuple[Service, ...]:
    """The services of a document; a service with several types yields several. Raises Malformed."""
    services = []
    for tree in trees:
        properties = MappingProxyType({name: member for name, member in tree.items() if name not in ("id", "type")})
        kinds = tree.get("type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if not isinstance(kind, str):
                raise Malformed(why="a service without a type")
            services.append(Service(_text(tree, "id"), kind, properties))
    if len(services) > SERVICES_MAX:
        raise Malformed(why="a DID document with too many services")
    return tuple(services)


def known_key(text: str) -> PublicKey | None:
    """The unchecked key of a multikey; None for unknown kinds or bases. Raises Malformed."""
    return multikey_known(text) if text.startswith("z") and len(text) <= MULTIKEY_CHARS_MAX else None


def _absolute(did: str, name: str) -> str | None:
    """The absolute key id, in the form of the resolved DID; None for a key of another DID."""
    owner, _, fragment = name.partition("#")
    if owner and not same_did(owner, did):
        return None
    if not fragment or "#" in fragment:
        raise Malformed(why="a key id without one fragment")
    return f"{did}#{fragment}"


def _methods(
    did: str, tree: dict[str, object], use: str, methods: dict[str, dict[str, object]], kinds: Collection[KeyKind]
) -> tuple[Method, ...]:
    """The embedded and referenced keys of one use."""
    found: dict[str, Method] = {}
    for entry in _list(tree, use, KEYS_MAX):
        if isinstance(entry, dict) and "id" not in entry:
            entry = entry.get("publicKey")
        name = _text(entry, "id") if isinstance(entry, dict) else entry
        if not isinstance(name, str):
            raise Malformed(why="a DID document with an invalid key reference")
        kid = _absolute(did, name)
        if kid is None:
            continue
        method = methods.setdefault(kid, entry) if isinstance(entry, dict) else methods.get(kid)
        if method is None:
            raise Malformed(why="a DID document that refers to a key it does not have")
        if isinstance(entry, dict) and method != entry:
            raise Malformed(why="a DID document with two keys of one name")
        key = _key(method, "enc" if use == "keyAgreement" else "sig")
        if key is not None and key.kind in kinds:
            found[kid] = Method(kid, checked(key))
    return tuple(found.values())


def _key(method: dict[str, object], use: KeyUse) -> PublicKey | None:
    """The key of a verification method; None for an unknown kind or encoding, or for another use."""
    spellings = [name for name in _KEY_SPELLINGS if method.get(name) is not None]
    if len(spellings) > 1:
        raise Malformed(why="a key in two encodings")
    match method:
        case {"publicKeyMultibase": str(text)}:
            return known_key(text)
        case {"publicKeyJwk": dict(jwk)} if jwk.get("crv") in (*AGREEMENT_KINDS, *VERIFYING_KINDS):
            return jwk_public(jwk) if jwk_permits(jwk, use) else None
        case {"publicKeyBase58": str(text), "type": str(kind)} if kind in _KIND_OF_TYPE:
            return PublicKey(_KIND_OF_TYPE[kind], base58_bytes(text, _KEY_BYTES_MAX))
    return None


def _text(tree: dict[str, object], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"a DID document with a missing {name}")
    return value


def _list(tree: dict[str, object], name: str, size_max: int) -> list[object]:
    value = tree.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > size_max:
        raise Malformed(why=f"a DID document with a {name} that is not a list, or too long")
    return value


def _objects(tree: dict[str, object], name: str, size_max: int) -> list[dict[str, object]]:
    items = _list(tree, name, size_max)
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) != len(items):
        raise Malformed(why=f"a DID document with a {name} with items that are not objects")
    return objects
