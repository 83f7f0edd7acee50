"""Typed keys: agreement and signatures only between keys of one curve, one encoding per key."""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import get_args

import pytest

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.encoding import multikey as spell_multikey
from zerochat.crypto.keys import (
    AGREEMENT_KINDS,
    ALGORITHM_OF,
    SIGNING_KINDS,
    KeyKind,
    KeyUse,
    PublicKey,
    SecretKey,
    agree,
    agree_once,
    agree_static,
    checked,
    ed25519_to_x25519,
    ed25519_to_x25519_secret,
    jwk_public,
    jwk_secret,
    multikey,
    multikey_known,
    multikey_public,
    new_secret,
    once,
    public_jwk,
    public_of,
    sign,
    verify,
)
from zerochat.errors import Malformed, Unauthentic

KINDS: tuple[KeyKind, ...] = ("X25519", "Ed25519", "P-256", "P-384", "P-521", "secp256k1")
SIZE = {"X25519": 32, "Ed25519": 32, "P-256": 32, "P-384": 48, "P-521": 66, "secp256k1": 32}
MULTIKEY = {
    "X25519": "z6LS",
    "Ed25519": "z6Mk",
    "P-256": "zDn",
    "P-384": "z82L",
    "P-521": "z2J9",
    "secp256k1": "zQ3s",
}
dice = random.Random(7).randbytes


@pytest.fixture(params=KINDS)
def secret(request: pytest.FixtureRequest) -> SecretKey:
    return new_secret(request.param, dice)


def test_a_new_key_depends_on_the_random_source_and_stays_hidden(secret: SecretKey) -> None:
    assert len(secret.data) == SIZE[secret.kind]
    assert new_secret(secret.kind, random.Random(1).randbytes) == new_secret(secret.kind, random.Random(1).randbytes)
    assert secret.data.hex() not in repr(secret) and repr(secret.data) not in repr(secret)


def test_scalars_out_of_their_range_are_thrown_again() -> None:
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    throws: Iterator[int] = iter((0, order, order + 1, 2**256 - 1, order - 1))
    assert new_secret("P-256", lambda size: next(throws).to_bytes(size, "big")).data == (order - 1).to_bytes(32, "big")
    top = bytes([0xFF]) + bytes(65)
    assert new_secret("P-521", lambda _: top).data == bytes([1]) + bytes(65)


@pytest.mark.parametrize("kind", AGREEMENT_KINDS)
def test_both_ends_agree_in_every_way(kind: KeyKind) -> None:
    mine, theirs = new_secret(kind, dice), new_secret(kind, dice)
    shared = agree(mine, public_of(theirs))
    assert len(shared) == SIZE[kind]
    assert shared == agree_once(theirs, public_of(mine)) == agree_static(theirs, public_of(mine))
    public, agree_with = once(mine)
    assert public == public_of(mine) and agree_with(public_of(theirs)) == shared


@pytest.mark.parametrize("way", [agree, agree_once, agree_static])
def test_only_keys_of_one_curve_agree(way: Callable[[SecretKey, PublicKey], bytes]) -> None:
    secrets = {kind: new_secret(kind, dice) for kind in KINDS}
    for kind, mine in secrets.items():
        for other, theirs in secrets.items():
            if kind != other or kind not in AGREEMENT_KINDS:
                with pytest.raises(Unauthentic):
                    way(mine, public_of(theirs))


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_keys_are_refused(kind: KeyKind) -> None:
    good = public_of(new_secret(kind, dice))
    assert checked(good) == good
    bad = [good.data[:-1], good.data + b"\0", b"", bytes(len(good.data))]
    if len(good.data) % 2:
        bad += [b"\4" + good.data[1:], good.data[:1] + b"\xff" * (len(good.data) - 1), b"\0"]
    for data in bad:
        with pytest.raises(Malformed):
            checked(PublicKey(kind, data))
        if kind in AGREEMENT_KINDS:
            for way in (agree, agree_once, agree_static):
                with pytest.raises((Malformed, Unauthentic)):
                    way(new_secret(kind, dice), PublicKey(kind, data))
        if kind in SIGNING_KINDS:
            with pytest.raises((Malformed, Unauthentic)):
                verify(PublicKey(kind, data), b"text", bytes(64))


@pytest.mark.parametrize("kind", SIGNING_KINDS)
def test_only_the_signed_message_verifies(kind: KeyKind) -> None:
    secret = new_secret(kind, dice)
    public, signature = public_of(secret), sign(secret, b"text")
    assert len(signature) == 64 and kind in ALGORITHM_OF
    verify(public, b"text", signature)
    assert sign(secret, b"text") == signature, "signatures tell nothing about the dice"
    for bad in (b"", signature[:-1], signature + b"\0", bytes(64), b"\xff" * 64, signature[32:] + signature[:32]):
        with pytest.raises(Unauthentic):
            verify(public, b"text", bad)
    for at in range(64):
        with pytest.raises(Unauthentic):
            verify(public, b"text", signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :])
    with pytest.raises(Unauthentic):
        verify(public, b"texT", signature)
    with pytest.raises(Unauthentic):
        verify(public_of(new_secret(kind, dice)), b"text", signature)
    for other in KINDS:
        if other != kind:
            with pytest.raises(Unauthentic):
                verify(public_of(new_secret(other, dice)), b"text", signature)


def test_es256k_signatures_have_the_low_s_and_either_is_valid() -> None:
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    secret = new_secret("secp256k1", random.Random(1).randbytes)
    for number in range(32):
        text = number.to_bytes(2, "big")
        signature = sign(secret, text)
        s = int.from_bytes(signature[32:], "big")
        assert 0 < s <= order // 2
        verify(public_of(secret), text, signature)
        verify(public_of(secret), text, signature[:32] + (order - s).to_bytes(32, "big"))


@pytest.mark.parametrize(
    ("members", "uses"),
    [
        ({}, {"sig", "enc"}),
        ({"use": None, "key_ops": None}, {"sig", "enc"}),
        ({"use": "sig"}, {"sig"}),
        ({"use": "enc"}, {"enc"}),
        ({"use": "other"}, set()),
        ({"key_ops": ["verify"]}, {"sig"}),
        ({"key_ops": ["encrypt", "decrypt"]}, {"enc"}),
        ({"key_ops": ["deriveBits", "verify"]}, {"sig", "enc"}),
        ({"key_ops": [7, "other"]}, set()),
        ({"use": "sig", "key_ops": ["deriveKey"]}, set()),
    ],
)
def test_use_and_key_ops_of_a_jwk_count(members: dict[str, object], uses: set[str]) -> None:
    jwk = public_jwk(public_of(new_secret("P-256", dice))) | members
    for use in get_args(KeyUse):
        with contextlib.nullcontext() if use in uses else pytest.raises(Malformed, match="another use"):
            jwk_public(jwk, use)
    for wrong in ({"use": 7}, {"use": ["sig"]}, {"key_ops": "verify"}, {"key_ops": {}}):
        with pytest.raises(Malformed):
            jwk_public(jwk | wrong, "sig")


def test_ecdsa_of_rfc6979_appendix_a_2_5() -> None:
    secret = SecretKey("P-256", bytes.fromhex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721"))
    assert sign(secret, b"sample").hex().upper() == (
        "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"
        "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"
    )


def test_a_jwk_is_its_key(secret: SecretKey) -> None:
    public = public_of(secret)
    jwk = public_jwk(public)
    assert jwk["kty"] == ("OKP" if secret.kind in ("X25519", "Ed25519") else "EC") and jwk["crv"] == secret.kind
    assert jwk_public(jwk | {"kid": "x", "use": "enc", "d": None}) == public
    assert jwk_secret(jwk | {"d": b64url(secret.data)}) == secret
    with pytest.raises(Malformed, match="its secret"):
        jwk_public(jwk | {"d": b64url(secret.data)})
    with pytest.raises(Malformed, match="public half"):
        jwk_secret(jwk | {"d": b64url(new_secret(secret.kind, dice).data)})
    changes: list[dict[str, object]] = [
        {"kty": "RSA"},
        {"kty": None},
        {"crv": "P-192"},
        {"crv": ["P-256"]},
        {"x": None},
        {"x": 7},
        {"x": jwk["x"] + "AAAA"},
        {"x": ""},
        {"x": jwk["x"] + "="[: len(jwk["x"]) % 4 == 0] + "\n"},
    ]
    if "y" in jwk:
        changes += ({"y": None}, {"y": jwk["x"]}, {"y": b64url(b"\0" + b64url_bytes(jwk["y"]))})
    for change in changes:
        with pytest.raises(Malformed):
            jwk_public(jwk | change)
    for d in (
        None,
        "",
        b64url(bytes(SIZE[secret.kind] + 1)),
        *([b64url(bytes(SIZE[secret.kind]))] if "y" in jwk else []),
    ):
        with pytest.raises(Malformed):
            jwk_secret(jwk | {"d": d})


def test_coordinates_may_lack_their_leading_zeros() -> None:
    """RFC 7518 requires the leading zeros (6.2.1.2); Authlib and its users omit them."""
    for seed in range(2000):
        public = public_of(new_secret("P-256", random.Random(seed).randbytes))
        if public.data[1] == 0:
            break
    else:
        raise AssertionError("one key in 256 begins with a zero")
    jwk = public_jwk(public)
    x = b64url_bytes(jwk["x"])
    assert len(x) == 32 and jwk_public(jwk | {"x": b64url(x.lstrip(b"\0"))}) == public
    with pytest.raises(Malformed):
        jwk_public(jwk | {"x": b64url(b"\0" + x)})
    okp = public_jwk(PublicKey("X25519", x))
    with pytest.raises(Malformed):
        jwk_public(okp | {"x": b64url(x.lstrip(b"\0"))})


def test_a_multikey_is_its_key(secret: SecretKey) -> None:
    public = public_of(secret)
    text = multikey(public)
    assert text.startswith(MULTIKEY[secret.kind])
    assert multikey_public(text) == multikey_known(text) == public
    for bad in (text[1:], "u" + text[1:], "z" + text, text[:-1], text + "1", "", "z"):
        with pytest.raises(Malformed):
            multikey_public(bad)


def test_multikeys_of_unknown_kinds_can_be_passed_over() -> None:
    rsa = spell_multikey(b"\x85\x24", bytes(270))
    assert multikey_known(rsa) is None
    with pytest.raises(Malformed, match="unsupported"):
        multikey_public(rsa)
    for codec in (b"\x80\x24", b"\xe7\x01"):
        with pytest.raises(Malformed):
            multikey_known(spell_multikey(codec, b"\2" + b"\xff" * 32))
        with pytest.raises(Malformed):
            multikey_known(spell_multikey(codec, b"\4" + bytes(64)))


def test_signing_keys_become_matching_agreement_keys() -> None:
    seed = new_secret("Ed25519", dice)
    assert public_of(ed25519_to_x25519_secret(seed)) == ed25519_to_x25519(public_of(seed))
