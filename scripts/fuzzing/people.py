"""The people in the seeds, and everything that is made for them: always the same, because their dice are."""

from collections.abc import Callable
from random import Random

from zerochat.crypto.keys import KeyKind, PublicKey, SecretKey, new_secret, public_of
from zerochat.didcomm.did import Document, Identity, new_peer2, new_peer4, resolve
from zerochat.didcomm.packer import OwnKey, TheirKey
from zerochat.errors import Unauthentic

Dice = Callable[[int], bytes]


def dice(name: str) -> Dice:
    return Random(name).randbytes


SERVICES: list[dict[str, object]] = [
    {
        "id": "#pair",
        "type": "DIDCommMessaging",
        "serviceEndpoint": {
            "uri": "zmq+tcp://192.0.2.7:5000",
            "accept": ["didcomm/v2", "didcomm/aip2;env=rfc19"],
            "routingKeys": ["did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc"],
        },
    },
    {"id": "#mail", "type": "DIDCommMessaging", "serviceEndpoint": [{"uri": "https://example.com/in"}]},
]
ALICE, BOB, MEDIATOR = (new_peer4(dice(name), SERVICES[:1]) for name in ("alice", "bob", "mediator"))
INVITER = new_peer2(dice("inviter"), [{"type": "DIDCommMessaging", "serviceEndpoint": {"uri": "https://example.com/"}}])
EVERYBODY: tuple[Identity, ...] = (ALICE, BOB, MEDIATOR)
LONG = {person.short: person.did for person in EVERYBODY}


def known(did: str) -> Document:
    return resolve(did, LONG)


KEYS: dict[KeyKind, SecretKey] = {
    kind: new_secret(kind, dice(kind)) for kind in ("X25519", "Ed25519", "P-256", "P-384", "P-521", "secp256k1")
}
"""One key of each kind. As key ids, `did:example:bob#kind` is ours and `did:example:alice#kind` the sender's."""


def own(person: str, kind: KeyKind) -> OwnKey:
    return OwnKey(f"did:example:{person}#{kind}", KEYS[kind])


def theirs(person: str, kind: KeyKind, number: int = 0) -> TheirKey:
    return TheirKey(f"did:example:{person}#{kind}" + f"-{number}" * (number > 0), public_of(KEYS[kind]))


def secret_of(kid: str) -> SecretKey | None:
    return _named(kid, "did:example:bob")


def public_key_of(kid: str) -> PublicKey:
    secret = _named(kid, "did:example:alice")
    if secret is None:
        raise Unauthentic()
    return public_of(secret)


def _named(kid: str, person: str) -> SecretKey | None:
    owner, _, name = kid.partition("#")
    return next((key for kind, key in KEYS.items() if kind == name and owner == person), None)
