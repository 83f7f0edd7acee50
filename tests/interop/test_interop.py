"""Envelopes and signatures in both directions with other implementations.

They run in an environment of their own behind tests/interop/oracle.py; ZEROCHAT_INTEROP_PYTHON names its Python, else
scripts/interop makes it. One test per cell of the matrix; unsupported features are skipped with a reason. Nested
layers are in test_interop_layers.py; rotations, DIDs and routes in test_interop_messages.py.
"""

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.support.other_implementations import (
    ALICE,
    BOB,
    CAROL,
    JWE_PEERS,
    SIGNING_PEERS,
    TEXT,
    Peers,
    bytes_of,
    lacks_jwe,
    oracle,
    plaintext,
    public,
    public_with_id,
    same_message,
    secret,
    secret_with_id,
)
from zerochat.crypto.encoding import b64url, base58
from zerochat.crypto.keys import AGREEMENT_KINDS, ALGORITHM_OF, public_of
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.packer import OwnKey, TheirKey

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    with oracle() as running:
        yield running


# --- JWE ------------------------------------------------------------------------------------------------------------

ENCRYPTIONS = (
    ("ECDH-1PU", "A256CBC-HS512"),
    ("ECDH-ES", "A256CBC-HS512"),
    ("ECDH-ES", "A256GCM"),
    ("ECDH-ES", "XC20P"),
)


def jwe_cells(writing: bool) -> list[Any]:
    return [
        pytest.param(peer, agreement, enc, curve, marks=[pytest.mark.skip(reason=reason)] if reason else [])
        for peer, (agreement, enc), curve in product(JWE_PEERS, ENCRYPTIONS, AGREEMENT_KINDS)
        for reason in [lacks_jwe(peer, agreement, enc, curve, writing)]
    ]


def kids(curve: str) -> tuple[str, list[str]]:
    """Alice's key, and two keys of Bob that his document does not name in alphabetic order."""
    return f"{ALICE}#{curve}", [f"{BOB}#{curve}-{name}" for name in ("second", "first")]


@pytest.mark.slow
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

SIGNING_CELLS = list(product(SIGNING_PEERS, ALGORITHM_OF.items()))


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


# --- RFC 0019 -------------------------------------------------------------------------------------------------------

V1_CELLS = list(product(("aries-askar", "didcomm-messaging"), (True, False)))
V1_IDS = [f"{peer}-{'authcrypt' if authentic else 'anoncrypt'}" for peer, authentic in V1_CELLS]


def v1_key(name: str) -> OwnKey:
    key = secret(name, "Ed25519")
    return OwnKey(base58(public_of(key).data), key)


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
