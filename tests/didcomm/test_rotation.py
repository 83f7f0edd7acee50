"""DID rotation: valid and invalid hand-overs."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from zerochat.crypto.encoding import b64url, compact_json, did_key
from zerochat.crypto.keys import ALGORITHM_OF, SecretKey, new_secret, public_of
from zerochat.crypto.primitives import ed25519_sign
from zerochat.didcomm.did import Document, Method, new_peer4, resolve
from zerochat.didcomm.jws import sign_compact
from zerochat.didcomm.rotation import Prior, Rotation, from_prior, prior_did, verify_from_prior
from zerochat.errors import Malformed, RemoteError, Unauthentic

Json = dict[str, Any]
NOW_S = 1_750_000_000


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


ALICE, BOB, CAROL = (new_peer4(dice(seed), []) for seed in (1, 2, 3))
PRIOR = Prior(BOB.did, BOB.kid_signing, BOB.signing_seed)


def test_a_rotation_verifies_for_exactly_its_two_dids() -> None:
    jwt = from_prior(PRIOR, CAROL.did, NOW_S)
    for new in (CAROL.did, CAROL.short):
        assert verify_from_prior(jwt, resolve(BOB.did), new) == Rotation(NOW_S, CAROL.did)
    for old, other in ((BOB, ALICE.did), (ALICE, CAROL.did), (BOB, None)):
        with pytest.raises(Unauthentic):
            verify_from_prior(jwt, resolve(old.did), other)
    assert prior_did(jwt) == BOB.did
    assert PRIOR.seed.hex() not in repr(PRIOR) and repr(PRIOR.seed) not in repr(PRIOR)


def test_a_rotation_to_nothing_ends_the_relationship() -> None:
    jwt = from_prior(PRIOR, None, NOW_S)
    assert verify_from_prior(jwt, resolve(BOB.did), None) == Rotation(NOW_S, None)
    assert prior_did(jwt) == BOB.did
    for new in (CAROL.did, BOB.did):
        with pytest.raises(Unauthentic):
            verify_from_prior(jwt, resolve(BOB.did), new)
    with pytest.raises(Unauthentic):
        verify_from_prior(jwt, resolve(ALICE.did), None)


@pytest.mark.parametrize("kind", ALGORITHM_OF)
def test_every_kind_of_key_that_signs_may_hand_over(kind: Any) -> None:
    old, kid = "did:example:old", "did:example:old#1"
    secret, other = new_secret(kind, dice(5)), new_secret(kind, dice(6))
    document = Document(old, (), (Method(kid, public_of(secret)), Method(old + "#2", public_of(other))), ())
    jwt = from_prior(Prior(old, kid, secret.data, kind), "did:example:new", NOW_S)
    assert verify_from_prior(jwt, document, "did:example:new") == Rotation(NOW_S, "did:example:new")
    for wrong in (
        from_prior(Prior(old, old + "#2", secret.data, kind), "did:example:new", NOW_S),
        from_prior(Prior(old, old + "#3", secret.data, kind), "did:example:new", NOW_S),
    ):
        with pytest.raises(RemoteError):
            verify_from_prior(wrong, document, "did:example:new")


def test_a_key_for_agreement_may_not_hand_over() -> None:
    """Only authentication keys of the prior DID's document."""
    secret = new_secret("P-256", dice(5))
    document = Document("did:example:old", (Method("did:example:old#1", public_of(secret)),), (), ())
    jwt = from_prior(Prior("did:example:old", "did:example:old#1", secret.data, "P-256"), "did:example:new", NOW_S)
    with pytest.raises(RemoteError):
        verify_from_prior(jwt, document, "did:example:new")


def test_every_changed_character_of_a_rotation_is_refused() -> None:
    did = did_key(BOB.signing_public)
    document = resolve(did)
    jwt = from_prior(Prior(did, document.authentication[0].kid, BOB.signing_seed), "did:example:new", NOW_S)
    assert verify_from_prior(jwt, document, "did:example:new").issued == NOW_S
    for at in range(len(jwt)):
        for other in "AB-.=":
            if jwt[at] != other:
                with pytest.raises(RemoteError):
                    verify_from_prior(jwt[:at] + other + jwt[at + 1 :], document, "did:example:new")
        with pytest.raises(RemoteError):
            verify_from_prior(jwt[:at], document, "did:example:new")


HEADER: Json = {"typ": "JWT", "kid": BOB.kid_signing}
PAYLOAD: Json = {"iss": BOB.did, "sub": CAROL.did, "iat": NOW_S}


def signed(header: Json, payload: Json) -> str:
    return sign_compact(HEADER | header, PAYLOAD | payload, SecretKey("Ed25519", BOB.signing_seed))


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({}, {}),
        ({"typ": None}, {}),
        ({"crv": "Ed25519"}, {"aud": "x", "exp": 1, "nbf": 2**40, "jti": "x"}),
        ({"crv": "P-256"}, {}),
        ({"kid": BOB.short + "#key-1"}, {"iss": BOB.short, "sub": CAROL.short}),
    ],
)
def test_rotations_of_others_are_read(header: Json, payload: Json) -> None:
    assert verify_from_prior(signed(header, payload), resolve(BOB.did), CAROL.did).issued == NOW_S


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({"typ": "JWS"}, {}),
        ({"typ": "JWM"}, {}),
        ({"crit": ["b64"]}, {}),
        ({"b64": False}, {}),
        ({"kid": None}, {}),
        ({"kid": 7}, {}),
        ({"kid": BOB.kid_long}, {}),
        ({"kid": CAROL.kid_signing}, {}),
        ({"kid": BOB.did}, {}),
        ({"kid": "#key-1"}, {}),
        ({}, {"iss": None}),
        ({}, {"iss": BOB.did + "#key-1"}),
        ({}, {"sub": CAROL.did + "#key-1"}),
        ({}, {"sub": None}),
        ({}, {"sub": ""}),
        ({}, {"sub": [CAROL.did]}),
        ({}, {"sub": BOB.short}),
        ({}, {"iss": CAROL.did}),
        ({}, {"iat": None}),
        ({}, {"iat": True}),
        ({}, {"iat": 1.5}),
        ({}, {"iat": -1}),
        ({}, {"iat": 2**53}),
        ({}, {"iat": "1750000000"}),
    ],
)
def test_rotations_that_make_no_sense_are_refused(header: Json, payload: Json) -> None:
    with pytest.raises((Malformed, Unauthentic)):
        verify_from_prior(signed(header, payload), resolve(BOB.did), CAROL.did)


@pytest.mark.parametrize("algorithm", ["none", "ES256", "HS256", "eddsa", None, ["EdDSA"]])
def test_rotation_signature_matches_its_header(algorithm: object) -> None:
    header = b64url(compact_json(HEADER | {"alg": algorithm}))
    text = header + "." + b64url(compact_json(PAYLOAD))
    for value in (ed25519_sign(BOB.signing_seed, text.encode()), b""):
        with pytest.raises((Malformed, Unauthentic)):
            verify_from_prior(text + "." + b64url(value), resolve(BOB.did), CAROL.did)


def test_a_prior_did_is_a_did_and_not_a_key() -> None:
    with pytest.raises(Malformed, match="iss"):
        prior_did(signed({}, {"iss": BOB.kid_signing}))


def test_a_did_cannot_hand_over_to_itself() -> None:
    for new in (BOB.did, BOB.short):
        with pytest.raises(Malformed, match="two DIDs"):
            verify_from_prior(from_prior(PRIOR, new, NOW_S), resolve(BOB.did), BOB.did)


@pytest.mark.parametrize("jwt", ["", "..", "a.b", "a.b.c", "W10.W10.AA", "e30.e30.", "x" * 100_000, "é.é.é"])
def test_rotations_that_are_no_jwt_are_refused(jwt: str) -> None:
    for look_at in (prior_did, lambda text: verify_from_prior(text, resolve(BOB.did), CAROL.did)):
        with pytest.raises(Malformed):
            look_at(jwt)
