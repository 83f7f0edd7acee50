"""Own DIDs: key generation, documents and key ids.

Both methods use `#key-1` for the signing key (Ed25519) and `#key-2` for key agreement (X25519). A DID for a peer with
other agreement keys has one of the peer's curve beside it, `#key-3`. A did:peer:4 is for
relationships, because its short form keeps messages small; a did:peer:2 is for invitations, because it is short itself.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from zerochat.crypto import keys
from zerochat.crypto.encoding import ED25519, X25519, compact_json, multikey, strict_json
from zerochat.crypto.keys import KeyKind, PublicKey, SecretKey, new_secret, public_of
from zerochat.crypto.primitives import ed25519_public, x25519_public
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did.document import read_services
from zerochat.didcomm.did.forms import DID_CHARS_MAX, check_size, short_form
from zerochat.didcomm.did.peer2 import peer2
from zerochat.didcomm.did.peer4 import peer4
from zerochat.didcomm.did.resolver import resolve

AUTHENTICATION_FRAGMENT = "#key-1"
AGREEMENT_FRAGMENT = "#key-2"
SECOND_AGREEMENT_FRAGMENT = "#key-3"


class Identity(Redacted, frozen=True):
    """An own did:peer:4 or did:peer:2 with its secrets."""

    REDACTED = ("signing_seed", "agreement_secret")

    did: str
    """The long form."""
    signing_seed: bytes
    """32 bytes, Ed25519."""
    agreement_secret: bytes
    """32 bytes, X25519."""
    second_agreement: SecretKey | None = None
    """A key of another curve."""

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
        """Key id of the X25519 key with the long form, for the first message to a peer."""
        return self.did + AGREEMENT_FRAGMENT

    @property
    def kid_short(self) -> str:
        """Key id of the X25519 key with the short form, for peers that know the long form."""
        return self.short + AGREEMENT_FRAGMENT

    @property
    def kid_signing(self) -> str:
        """Key id of the Ed25519 key with the long form."""
        return self.did + AUTHENTICATION_FRAGMENT

    @property
    def kid_signing_short(self) -> str:
        """Key id of the Ed25519 key with the short form."""
        return self.short + AUTHENTICATION_FRAGMENT


def new_peer4(
    random: Callable[[int], bytes], services: Sequence[Mapping[str, object]], curve: KeyKind = "X25519"
) -> Identity:
    """A fresh did:peer:4 with an Ed25519 key, an X25519 key and these services (as in a DID document); another `curve`:
    with an agreement key of it, too."""
    seed, secret = random(32), random(32)
    second = None if curve == "X25519" else new_secret(curve, random)
    further = [] if second is None else [(SECOND_AGREEMENT_FRAGMENT, keys.multikey(public_of(second)))]
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
            *({"id": name, "type": "Multikey", "publicKeyMultibase": text} for name, text in further),
        ],
        "authentication": [AUTHENTICATION_FRAGMENT],
        "keyAgreement": [AGREEMENT_FRAGMENT, *(name for name, _ in further)],
        "service": [dict(service) for service in services],
    }
    _check_services(compact_json(document["service"]))
    did = peer4(compact_json(document))
    check_size(did)
    return Identity(did, seed, secret, second)


def new_peer2(
    random: Callable[[int], bytes], services: Sequence[Mapping[str, object]], curve: KeyKind = "X25519"
) -> Identity:
    """A fresh did:peer:2 with the keys and services of `new_peer4`."""
    seed, secret = random(32), random(32)
    second = None if curve == "X25519" else new_secret(curve, random)
    agreement = [PublicKey("X25519", x25519_public(secret)), *([] if second is None else [public_of(second)])]
    did = peer2([PublicKey("Ed25519", ed25519_public(seed))], agreement, services)
    resolve(did)  # refuse a DID that peers could not resolve
    return Identity(did, seed, secret, second)


@lru_cache(maxsize=32)
def _check_services(services: bytes) -> None:
    """Refuse services that peers could not decode. Cached, because a joiner creates a DID per member with the same
    services."""
    found: object = strict_json(services, DID_CHARS_MAX)
    assert isinstance(found, list)
    read_services(found)
