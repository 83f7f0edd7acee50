"""Envelopes, signatures, rotations and DIDs in both directions with other people's implementations.

They run in an environment of their own behind tests/interop/oracle.py; ZEROCHAT_INTEROP_PYTHON names its Python, else
`scripts/interop` makes it. One cell of the matrix is one test; what a peer does not have is a skip with its reason.
"""

import json
import os
import subprocess
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import interop_environment
from environment import Trouble
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import (
    ALGORITHM_OF,
    KeyKind,
    PublicKey,
    SecretKey,
    multikey,
    new_secret,
    public_jwk,
    public_of,
)
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.did import Document, Service, resolve, short_form
from zerochat.didcomm.did.document import Method
from zerochat.didcomm.did.identity import new_peer2, new_peer4
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.layers import open_layers, seal_layers
from zerochat.didcomm.message import Message, dump, parse
from zerochat.didcomm.packer import OwnKey, TheirKey
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior

pytestmark = pytest.mark.conformance

PYTHON = os.environ.get("ZEROCHAT_INTEROP_PYTHON")  # read now: no such setting reaches a test
ORACLE = Path(__file__).parent / "interop" / "oracle.py"
ALICE, BOB, CAROL = "did:example:alice", "did:example:bob", "did:example:carol"
TEXT = "naïve – 日本語 ✓ 🐘"


class Peers:
    """The oracle's process, and the versions of those who answer in it."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, ORACLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.found: dict[str, dict[str, str]] = self._say({"ask": "peers"})["is"]

    def ask(self, peer: str, function: str, **arguments: object) -> Any:
        """What the peer answers. A test that asks one that is not there is skipped."""
        if missing := self.found[peer].get("missing"):
            pytest.skip(f"{peer} is not in the environment: {missing}")
        reply = self._say({"peer": peer, "ask": function, "with": arguments})
        assert "error" not in reply, f"{peer} {self.found[peer]['version']}: {reply['error']}"
        return reply["is"]

    def refuses(self, peer: str, function: str, **arguments: object) -> bool:
        return "error" in self._say({"peer": peer, "ask": function, "with": arguments})

    def _say(self, question: dict[str, object]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def stop(self) -> None:
        self._process.communicate(timeout=10)


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    if PYTHON is None:
        try:
            python = str(interop_environment.interpreter("interop"))
        except (Trouble, OSError) as error:
            pytest.skip(f"no environment with other people's implementations: {error}")
    else:
        python = PYTHON
    running = Peers(python)
    yield running
    running.stop()


# --- keys -----------------------------------------------------------------------------------------------------------


@cache
def secret(kid: str, kind: KeyKind) -> SecretKey:
    return new_secret(kind, os.urandom)


def public(kid: str, kind: KeyKind) -> PublicKey:
    return public_of(secret(kid, kind))


def public_with_id(kid: str, kind: KeyKind) -> dict[str, str]:
    return {**public_jwk(public(kid, kind)), "kid": kid}


def secret_with_id(kid: str, kind: KeyKind) -> dict[str, str]:
    return {**public_with_id(kid, kind), "d": b64url(secret(kid, kind).data)}


def plaintext(**members: Any) -> bytes:
    return dump(
        Message(id="1f2e", type="https://didcomm.org/basicmessage/2.0/message", body={"content": TEXT}, **members)
    )


def bytes_of(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def same_message(one: bytes, other: bytes) -> bool:
    """Whether two plaintexts are one message: a library may write it anew."""
    return parse(one) == parse(other)


# --- JWE ------------------------------------------------------------------------------------------------------------

ENCRYPTIONS = (
    ("ECDH-1PU", "A256CBC-HS512"),
    ("ECDH-ES", "A256CBC-HS512"),
    ("ECDH-ES", "A256GCM"),
    ("ECDH-ES", "XC20P"),
)
CURVES: tuple[KeyKind, ...] = ("X25519", "P-256", "P-384", "P-521")
JWE_PEERS = ("didcomm", "aries-askar", "joserfc", "jwcrypto", "didcomm-messaging")


def lacks_jwe(peer: str, agreement: str, enc: str, curve: str, writing: bool) -> str | None:
    """Why this cell of the matrix is empty, if it is."""
    if peer == "aries-askar" and curve == "P-521":
        return "aries-askar has no P-521"
    if peer == "jwcrypto" and agreement == "ECDH-1PU":
        return "jwcrypto has no ECDH-1PU"
    if peer == "jwcrypto" and enc == "XC20P":
        return "jwcrypto has no XC20P"
    if peer == "didcomm-messaging" and curve != "X25519":
        return "didcomm-messaging names keys by multikeys, and knows X25519 alone"
    if peer == "didcomm-messaging" and writing and agreement == "ECDH-ES" and enc != "XC20P":
        return "didcomm-messaging writes XC20P alone"
    return None


def jwe_cells(writing: bool) -> list[Any]:
    return [
        pytest.param(peer, agreement, enc, curve, marks=[pytest.mark.skip(reason=reason)] if reason else [])
        for peer, (agreement, enc), curve in product(JWE_PEERS, ENCRYPTIONS, CURVES)
        for reason in [lacks_jwe(peer, agreement, enc, curve, writing)]
    ]


def kids(curve: str) -> tuple[str, list[str]]:
    """Alice's key, and two keys of Bob that his document does not name in alphabetic order."""
    return f"{ALICE}#{curve}", [f"{BOB}#{curve}-{name}" for name in ("second", "first")]


@pytest.mark.parametrize(("peer", "agreement", "enc", "curve"), jwe_cells(writing=False))
def test_they_open_our_envelopes(peers, peer, agreement, enc, curve):
    from_kid, to_kids = kids(curve)
    authentic = agreement == "ECDH-1PU"
    plain = plaintext(from_=ALICE, to=(BOB,))
    envelope = JwePacker().seal_many(
        plain,
        [TheirKey(kid, public(kid, curve)) for kid in to_kids],
        sender=OwnKey(from_kid, secret(from_kid, curve)) if authentic else None,
        random=os.urandom,
        enc=enc,
    )
    sender = public_with_id(from_kid, curve) if authentic else None
    for kid in to_kids:
        opened = peers.ask(peer, "open", envelope=envelope.decode(), secret=secret_with_id(kid, curve), sender=sender)
        assert same_message(bytes_of(opened), plain)


@pytest.mark.parametrize(("peer", "agreement", "enc", "curve"), jwe_cells(writing=True))
def test_we_open_their_envelopes(peers, peer, agreement, enc, curve):
    from_kid, to_kids = kids(curve)
    authentic = agreement == "ECDH-1PU"
    plain = plaintext(from_=ALICE, to=(BOB,))
    envelope = peers.ask(
        peer,
        "seal",
        plain=b64url(plain),
        recipients=[public_with_id(kid, curve) for kid in to_kids],
        sender=secret_with_id(from_kid, curve) if authentic else None,
        enc=enc,
    )
    for kid in to_kids:
        opened = JwePacker().unpack(
            envelope.encode(),
            secret_of=lambda asked, kid=kid: secret(kid, curve) if asked == kid else None,
            public_of=lambda asked: public(asked, curve),
        )
        assert same_message(opened.plain, plain)
        assert (opened.enc, opened.recipient_kid) == (enc, kid)
        assert opened.sender_kid == (from_kid if authentic else None)


# --- JWS ------------------------------------------------------------------------------------------------------------

SIGNING_CELLS = list(product(("didcomm", "joserfc", "jwcrypto"), ALGORITHM_OF.items()))


@pytest.mark.parametrize(("peer", "algorithm"), SIGNING_CELLS)
def test_they_verify_our_signatures(peers, peer, algorithm):
    kind, alg = algorithm
    kid = f"{ALICE}#{kind}"
    plain = plaintext(from_=ALICE)
    data = jws.sign(plain, [(kid, secret(kid, kind))])
    signer = public_with_id(kid, kind)
    assert same_message(bytes_of(peers.ask(peer, "verify", envelope=data.decode(), signer=signer, alg=alg)), plain)
    other = {**public_with_id(f"{BOB}#{kind}", kind), "kid": kid}
    assert peers.refuses(peer, "verify", envelope=data.decode(), signer=other, alg=alg)


@pytest.mark.parametrize(("peer", "algorithm"), SIGNING_CELLS)
def test_we_verify_their_signatures(peers, peer, algorithm):
    kind, alg = algorithm
    kid = f"{ALICE}#{kind}"
    plain = plaintext(from_=ALICE)
    data = peers.ask(peer, "sign", plain=b64url(plain), signer=secret_with_id(kid, kind), alg=alg)
    signed = jws.verify(data.encode(), lambda asked: public(asked, kind))
    assert same_message(signed.plain, plain)
    assert signed.kids == (kid,)


# --- layers, rotation -----------------------------------------------------------------------------------------------

DOCUMENTS = {
    did: Document(
        did,
        (Method(f"{did}#x", public(f"{did}#x", "X25519")),),
        (Method(f"{did}#ed", public(f"{did}#ed", "Ed25519")),),
        (),
    )
    for did in (ALICE, BOB, CAROL)
}
JWK_DOCUMENTS = [
    {
        "did": did,
        "agreement": [public_with_id(f"{did}#x", "X25519")],
        "authentication": [public_with_id(f"{did}#ed", "Ed25519")],
    }
    for did in DOCUMENTS
]
ALICES_SECRETS = [secret_with_id(f"{ALICE}#x", "X25519"), secret_with_id(f"{ALICE}#ed", "Ed25519")]
BOBS_SECRETS = [secret_with_id(f"{BOB}#x", "X25519")]

LAYERS = {
    "sign": {"signed": True},
    "auth": {"authentic": True},
    "anon": {},
    "anon(sign)": {"signed": True, "to_bob": True},
    "anon(auth)": {"authentic": True, "anonymous": True},
}


@pytest.mark.parametrize("kind", ["sign", "auth", "anon(sign)", "anon(auth)"])
def test_they_open_our_layers(peers, kind):
    message = Message(id="1f2e", type="https://didcomm.org/empty/1.0/empty", body={}, from_=ALICE, to=(BOB,), thid="77")
    data = seal_layers(
        message,
        random=os.urandom,
        sender=OwnKey(f"{ALICE}#x", secret(f"{ALICE}#x", "X25519")) if "auth" in kind else None,
        signer=OwnKey(f"{ALICE}#ed", secret(f"{ALICE}#ed", "Ed25519")) if "sign" in kind else None,
        recipient=None if kind == "sign" else TheirKey(f"{BOB}#x", public(f"{BOB}#x", "X25519")),
        protect_sender=kind == "anon(auth)",
    )
    said = peers.ask("didcomm", "read", envelope=data.decode(), documents=JWK_DOCUMENTS, secrets=BOBS_SECRETS)
    assert parse(json.dumps(said["message"]).encode()) == message
    assert said["from"] == (f"{ALICE}#x" if "auth" in kind else None)
    assert said["signed_by"] == (f"{ALICE}#ed" if "sign" in kind else None)
    assert said["anonymous"] == ("anon" in kind)


@pytest.mark.parametrize("kind", ["sign", "auth", "anon(sign)", "anon(auth)", "auth(sign)"])
def test_we_open_their_layers(peers, kind):
    data = peers.ask(
        "didcomm",
        "pack",
        message={"id": "1f2e", "type": "https://didcomm.org/empty/1.0/empty", "body": {}, "from": ALICE, "to": [BOB]},
        documents=JWK_DOCUMENTS,
        secrets=ALICES_SECRETS,
        to=None if kind == "sign" else BOB,
        sender=ALICE if "auth" in kind else None,
        signer=ALICE if "sign" in kind else None,
        protect_sender=kind == "anon(auth)",
    )
    opened = open_layers(
        data.encode(),
        secret_of=lambda kid: secret(kid, "X25519") if kid == f"{BOB}#x" else None,
        resolve=DOCUMENTS.__getitem__,
    )
    assert (opened.message.id, opened.message.from_) == ("1f2e", ALICE)
    assert opened.sender == (ALICE if "auth" in kind else None)
    assert opened.signer == (ALICE if "sign" in kind else None)
    names = {"sign": "signed", "auth": "authcrypt", "anon": "anoncrypt"}
    assert [layer.kind for layer in opened.layers] == [names[name] for name in kind.rstrip(")").split("(")]


def test_they_verify_our_rotation(peers):
    prior = Prior(CAROL, f"{CAROL}#ed", secret(f"{CAROL}#ed", "Ed25519").data)
    message = Message(
        id="1f2e",
        type="https://didcomm.org/empty/1.0/empty",
        body={},
        from_=ALICE,
        to=(BOB,),
        from_prior=from_prior(prior, ALICE, 1_700_000_000),
    )
    data = seal_layers(
        message,
        random=os.urandom,
        sender=OwnKey(f"{ALICE}#x", secret(f"{ALICE}#x", "X25519")),
        recipient=TheirKey(f"{BOB}#x", public(f"{BOB}#x", "X25519")),
    )
    said = peers.ask("didcomm", "read", envelope=data.decode(), documents=JWK_DOCUMENTS, secrets=BOBS_SECRETS)
    assert said["prior"] == f"{CAROL}#ed"
    assert said["message"]["from_prior"] == {"iss": CAROL, "sub": ALICE, "iat": 1_700_000_000}


def test_we_verify_their_rotation(peers):
    rotation = {"iss": CAROL, "sub": ALICE, "iat": 1_700_000_000}
    message = {"id": "1f2e", "type": "https://didcomm.org/empty/1.0/empty", "body": {}, "from": ALICE, "to": [BOB]}
    data = peers.ask(
        "didcomm",
        "pack",
        message={**message, "from_prior": rotation},
        documents=JWK_DOCUMENTS,
        secrets=[*ALICES_SECRETS, secret_with_id(f"{CAROL}#ed", "Ed25519")],
        to=BOB,
        sender=ALICE,
    )
    opened = open_layers(data.encode(), secret_of=lambda kid: secret(kid, "X25519"), resolve=DOCUMENTS.__getitem__)
    assert opened.message.from_prior is not None
    said = verify_from_prior(opened.message.from_prior, DOCUMENTS[CAROL], ALICE)
    assert (said.issued, said.new_did) == (1_700_000_000, ALICE)


# --- RFC 0019 -------------------------------------------------------------------------------------------------------

V1_CELLS = list(product(("aries-askar", "didcomm-messaging"), (True, False)))
V1_IDS = [f"{peer}-{'authcrypt' if authentic else 'anoncrypt'}" for peer, authentic in V1_CELLS]


def v1_key(name: str) -> OwnKey:
    key = secret(name, "Ed25519")
    return OwnKey(PACKERS["didcomm/v1"].their_key(DOCUMENTS[name.partition("#")[0]], "").kid, key)


@pytest.mark.parametrize(("peer", "authentic"), V1_CELLS, ids=V1_IDS)
def test_they_open_our_rfc_0019(peers, peer, authentic):
    packer, alice, bob = PACKERS["didcomm/v1"], v1_key(f"{ALICE}#ed"), v1_key(f"{BOB}#ed")
    recipient, plain = TheirKey(bob.kid, public_of(bob.key)), TEXT.encode()
    if authentic:
        envelope = packer.authcrypt(plain, sender=alice, recipient=recipient, random=os.urandom)
    else:
        envelope = packer.anoncrypt(plain, recipient=recipient, random=os.urandom)
    said = peers.ask(peer, "open_v1", envelope=envelope.decode(), secret=b64url(bob.key.data))
    assert bytes_of(said["plain"]) == plain
    assert said["sender"] == (alice.kid if authentic else None)


@pytest.mark.parametrize(("peer", "authentic"), V1_CELLS, ids=V1_IDS)
@pytest.mark.parametrize("others", [0, 2])
def test_we_open_their_rfc_0019(peers, peer, authentic, others):
    alice, bob, carol = (v1_key(f"{did}#ed") for did in (ALICE, BOB, CAROL))
    envelope = peers.ask(
        peer,
        "seal_v1",
        plain=b64url(TEXT.encode()),
        recipients=[*[alice.kid, carol.kid][:others], bob.kid],
        sender=b64url(alice.key.data) if authentic else None,
    )
    opened = PACKERS["didcomm/v1"].unpack(
        envelope.encode(),
        secret_of=lambda kid: bob.key if kid == bob.kid else None,
        public_of=lambda kid: public(kid, "Ed25519"),
    )
    assert opened.plain == TEXT.encode()
    assert opened.sender_kid == (alice.kid if authentic else None)
    assert opened.forgeable is (others > 0)


# --- DIDs -----------------------------------------------------------------------------------------------------------

ENDPOINT = {"uri": "https://example.com/in", "accept": ["didcomm/v2"], "routingKeys": ["did:key:z6Mk#z6Mk"]}
SERVICE = {"id": "#service", "type": "DIDCommMessaging", "serviceEndpoint": ENDPOINT}


def keys_of(tree: dict[str, Any], did: str) -> dict[str, list[str]]:
    """The key ids and multikeys of a document as the peer has it, by their use."""
    text = {method["id"]: method["publicKeyMultibase"] for method in tree["verificationMethod"]}
    return {use: [did + kid[kid.index("#") :] + " " + text[kid] for kid in tree[use]] for use in USES}


def our_keys(document: Document) -> dict[str, list[str]]:
    lists = (document.authentication, document.agreement)
    return {
        use: [f"{method.kid} {multikey(method.key)}" for method in methods]
        for use, methods in zip(USES, lists, strict=True)
    }


USES = ("authentication", "keyAgreement")


def test_they_resolve_our_did_peer_2(peers):
    did = new_peer2(os.urandom, [SERVICE]).did
    theirs, ours = peers.ask("did-peer-2", "document", did=did), resolve(did)
    assert keys_of(theirs, did) == our_keys(ours)
    assert theirs["service"][0]["serviceEndpoint"] == ENDPOINT == ours.services[0].properties["serviceEndpoint"]


def test_we_resolve_their_did_peer_2(peers):
    signing, agreement = multikey(public("a", "Ed25519")), multikey(public("b", "X25519"))
    did = peers.ask("did-peer-2", "make", signing=signing, agreement=agreement, services=[SERVICE, SERVICE])
    theirs, ours = peers.ask("did-peer-2", "document", did=did), resolve(did)
    assert keys_of(theirs, did) == our_keys(ours)
    assert [service["serviceEndpoint"] for service in theirs["service"]] == [
        service.properties["serviceEndpoint"] for service in ours.services
    ]


def test_they_resolve_our_did_peer_4(peers):
    did = new_peer4(os.urandom, [SERVICE]).did
    theirs, ours = peers.ask("did-peer-4", "document", did=did), resolve(did)
    assert keys_of(theirs["long"], did) == our_keys(ours)
    assert theirs["short"]["id"] == short_form(did)
    assert theirs["long"]["service"][0]["serviceEndpoint"] == ENDPOINT


def test_we_resolve_their_did_peer_4(peers):
    document = {
        "verificationMethod": [
            {"id": "#key-1", "type": "Multikey", "publicKeyMultibase": multikey(public("a", "P-256"))},
            {"id": "#key-2", "type": "Multikey", "publicKeyMultibase": multikey(public("b", "X25519"))},
        ],
        "authentication": ["#key-1"],
        "keyAgreement": ["#key-2"],
        "service": [SERVICE],
    }
    made = peers.ask("did-peer-4", "make", document=document)
    ours = resolve(made["long"])
    assert our_keys(ours) == keys_of(peers.ask("did-peer-4", "document", did=made["long"])["long"], made["long"])
    assert short_form(made["long"]) == made["short"]
    assert ours.services == (Service("#service", "DIDCommMessaging", {"serviceEndpoint": ENDPOINT}),)
