"""Published vectors of the primitives and of the encodings, named like their sources."""

import json

import pytest

from tests.support.vectors import Json, load
from zerochat.crypto.content_encryption import CBC_HS512, GCM, XC20P, Content
from zerochat.crypto.encoding import b64url, b64url_bytes, base58, base58_bytes, canonical_json
from zerochat.crypto.keys import (
    KeyKind,
    PublicKey,
    agree,
    agree_once,
    checked,
    jwk_public,
    jwk_secret,
    multikey,
    multikey_public,
    public_jwk,
    public_of,
    verify,
)
from zerochat.crypto.nacl_boxes import chacha20_poly1305_open, chacha20_poly1305_seal
from zerochat.crypto.primitives import (
    ed25519_sign,
    ed25519_verify,
    key_unwrap,
    key_wrap,
    x25519,
)
from zerochat.errors import Malformed, Unauthentic

pytestmark = pytest.mark.conformance

# --- primitives -----------------------------------------------------------------------------------------------------


def test_ietf_primitives() -> None:
    tree = load("ietf_primitives.json")
    for case in tree["x25519_rfc7748"]:
        scalar, point = bytes.fromhex(case["scalar"]), bytes.fromhex(case["u"])
        assert x25519(scalar, point).hex() == case["out"]
    box = {name: bytes.fromhex(value) for name, value in tree["xchacha20poly1305_draft_A_3_1"].items()}
    assert XC20P.open(box["key"], box["nonce"], box["ciphertext"], box["tag"], box["aad"]) == box["plaintext"]
    assert XC20P.seal(box["key"], box["nonce"], box["plaintext"], box["aad"]) == (box["ciphertext"], box["tag"])
    box = {name: bytes.fromhex(value) for name, value in tree["a256cbc_hs512_rfc7518_B_3"].items()}
    sealed = CBC_HS512.seal(box["key"], box["iv"], box["plaintext"], box["aad"])
    assert b"".join(sealed) == box["ciphertext_and_tag"]
    box = {name: bytes.fromhex(value) for name, value in tree["aes256_kw_rfc3394_4_6"].items()}
    assert key_wrap(box["kek"], box["key"]) == box["wrapped"]
    assert key_unwrap(box["kek"], box["wrapped"]) == box["key"]


def wycheproof(name: str) -> list[tuple[Json, Json]]:
    groups = load(f"wycheproof/{name}_test.json")["testGroups"]
    return [(group, test) for group in groups for test in group["tests"]]


def test_wycheproof_x25519() -> None:
    """`acceptable` is the twist and odd spellings, which RFC 7748 takes, and a zero result, which we refuse."""
    for _, test in wycheproof("x25519"):
        secret, public = bytes.fromhex(test["private"]), bytes.fromhex(test["public"])
        if test["shared"] == "00" * 32:
            with pytest.raises(Unauthentic):
                x25519(secret, public)
        else:
            assert x25519(secret, public).hex() == test["shared"], test["tcId"]


def test_wycheproof_ed25519() -> None:
    for group, test in wycheproof("ed25519"):
        public = bytes.fromhex(group["publicKey"]["pk"])
        message, signature = bytes.fromhex(test["msg"]), bytes.fromhex(test["sig"])
        if test["result"] == "valid":
            ed25519_verify(public, message, signature)
        else:
            with pytest.raises(Unauthentic):
                ed25519_verify(public, message, signature)


def test_wycheproof_aes_key_wrap() -> None:
    for _, test in wycheproof("aes_wrap"):
        kek, key, wrapped = (bytes.fromhex(test[name]) for name in ("key", "msg", "ct"))
        if test["result"] != "valid":
            assert test["result"] == "invalid" or len(key) == 8, "RFC 3394 starts at two blocks: one is ours to refuse"
            with pytest.raises(Unauthentic):
                key_unwrap(kek, wrapped)
        else:
            assert key_unwrap(kek, wrapped) == key


@pytest.mark.parametrize(
    ("name", "content"), [("a256cbc_hs512", CBC_HS512), ("aes_gcm", GCM), ("xchacha20_poly1305", XC20P)]
)
def test_wycheproof_content_encryption(name: str, content: Content) -> None:
    for _, test in wycheproof(name):
        key, iv, ct, tag, aad = (bytes.fromhex(test[part]) for part in ("key", "iv", "ct", "tag", "aad"))
        if test["result"] == "valid":
            plain = bytes.fromhex(test["msg"])
            assert content.open(key, iv, ct, tag, aad) == plain, test["tcId"]
            assert content.seal(key, iv, plain, aad) == (ct, tag), test["tcId"]
        else:
            with pytest.raises((Unauthentic, Malformed)):
                content.open(key, iv, ct, tag, aad)


def test_wycheproof_chacha20_poly1305() -> None:
    for _, test in wycheproof("chacha20_poly1305"):
        key, iv, ct, tag, aad = (bytes.fromhex(test[part]) for part in ("key", "iv", "ct", "tag", "aad"))
        if test["result"] == "valid":
            plain = bytes.fromhex(test["msg"])
            assert chacha20_poly1305_open(key, iv, ct + tag, aad) == plain, test["tcId"]
            assert chacha20_poly1305_seal(key, iv, plain, aad) == ct + tag, test["tcId"]
        else:
            with pytest.raises((Unauthentic, Malformed)):
                chacha20_poly1305_open(key, iv, ct + tag, aad)


@pytest.mark.slow
@pytest.mark.parametrize(("curve", "size"), [("secp256r1", 32), ("secp384r1", 48), ("secp521r1", 66)])
def test_wycheproof_ecdh(curve: str, size: int) -> None:
    """Keys as JWKs: off the curve, of another curve, and at every edge of the arithmetic."""
    for _, test in wycheproof(f"ecdh_{curve}_webcrypto"):
        secret = jwk_secret(test["private"])
        if test["result"] == "valid":
            public = jwk_public(test["public"])
            assert public_jwk(public) == {name: test["public"][name] for name in ("kty", "crv", "x", "y")}
            assert multikey_public(multikey(public)) == checked(public) == public
            shared = agree(secret, public)
            assert shared.hex() == agree_once(secret, public).hex() == test["shared"], test["tcId"]
            assert len(shared) == size
        else:
            with pytest.raises((Malformed, Unauthentic)):
                agree(secret, jwk_public(test["public"]))


@pytest.mark.parametrize(("curve", "kind"), [("secp256r1", "P-256"), ("secp256k1", "secp256k1")])
def test_wycheproof_ecdsa(curve: str, kind: KeyKind) -> None:
    for group, test in wycheproof(f"ecdsa_{curve}_sha256_p1363"):
        point = bytes.fromhex(group["publicKey"]["uncompressed"])
        public = PublicKey(kind, bytes([2 + point[-1] % 2]) + point[1:33])
        if "publicKeyJwk" in group:
            assert jwk_public(group["publicKeyJwk"]) == public
        message, signature = bytes.fromhex(test["msg"]), bytes.fromhex(test["sig"])
        if test["result"] == "valid":
            verify(public, message, signature)
        else:
            with pytest.raises(Unauthentic):
                verify(public, message, signature)


def test_rfc8037_eddsa() -> None:
    case = load("jose_cookbook_subset.json")["rfc8037_eddsa_jws"]
    key, signing = case["input"]["key"], case["signing"]
    signature = ed25519_sign(b64url_bytes(key["d"]), signing["sig-input"].encode())
    assert b64url(signature) == signing["sig"]
    ed25519_verify(b64url_bytes(key["x"]), signing["sig-input"].encode(), signature)


def test_wycheproof_json_web_key() -> None:
    """The elliptic curve keys of all key sets; one has a wrong curve label."""
    refused = []
    for group in load("wycheproof/json_web_key_test.json")["testGroups"]:
        for jwk in group["private"]["keys"]:
            if jwk["kty"] != "EC":
                with pytest.raises(Malformed):
                    jwk_public(jwk)
                continue
            try:
                assert key_of(jwk).kind == "P-256"
            except Malformed:
                refused.append(group["comment"])
    assert refused == ["wrong_curve"]


def key_of(jwk: Json) -> PublicKey:
    return public_of(jwk_secret(jwk)) if "d" in jwk else jwk_public(jwk)


# --- encodings ------------------------------------------------------------------------------------------------------


def test_multibase() -> None:
    for case in load("multibase.json")["cases"].values():
        data = case["decoded"].replace("\\x00", "\0").encode()
        encodings = case["encodings"]
        assert "z" + base58(data) == encodings["base58btc"]
        assert base58_bytes(encodings["base58btc"][1:], 20) == data
        assert "u" + b64url(data) == encodings["base64url"]
        assert b64url_bytes(encodings["base64urlpad"][1:]) == data


@pytest.mark.parametrize("name", ["arrays.json", "structures.json", "values.json"])
def test_jcs(name: str) -> None:
    """We canonicalise the subset without floats: such values are refused."""
    case = load("jcs.json")["cases"][name]
    tree = json.loads(case["input"])
    if name == "structures.json":
        tree["1"]["\n"] = int(tree["1"]["\n"])
    if name == "values.json":
        with pytest.raises(Malformed):
            canonical_json(tree)
        numbers = case["output"].split('"numbers":')[1].split("]")[0] + "]"
        case = {"output": case["output"].replace(numbers, "[]")}
        tree["numbers"] = []
    assert canonical_json(tree) == case["output"].encode()
