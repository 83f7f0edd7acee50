"""Published vectors of DIDComm's encryption and key derivation, named like their sources."""

import json
from collections.abc import Mapping

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.vectors import Json, cases, load
from zerochat.crypto.content_encryption import CBC_HS512, CONTENTS
from zerochat.crypto.encoding import b64url, b64url_bytes, strict_json
from zerochat.crypto.keys import SecretKey, agree, agree_once, agree_static, jwk_public, jwk_secret, public_of
from zerochat.crypto.primitives import concat_kdf, key_unwrap, key_wrap, other_info, x25519
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.message import parse
from zerochat.didcomm.packer import Unpacked, check_addressing, envelope_kind
from zerochat.errors import Malformed, Unauthentic

pytestmark = pytest.mark.conformance

# --- key derivation of ECDH-1PU and ECDH-ES -------------------------------------------------------------------------


def test_concat_kdf_of_ecdh_1pu_and_rfc7518() -> None:
    """Direct agreement on P-256: with key wrapping the derivation is the same, for another algorithm's name."""
    tree = load("kdf_ecdh_1pu_appendixA_and_rfc7518_C.json")
    case = tree["ecdh_1pu_draft04_appendix_A"]
    sender, recipient, ephemeral = (
        jwk_secret(case[name]) for name in ("sender_static", "recipient_static", "ephemeral")
    )
    ze, zs = agree_once(ephemeral, public_of(recipient)), agree_static(sender, public_of(recipient))
    assert (ze.hex(), zs.hex()) == (case["Ze"], case["Zs"])
    assert (ze, zs) == (agree(recipient, public_of(ephemeral)), agree(recipient, public_of(sender)))
    info = other_info(case["enc"], case["apu"].encode(), case["apv"].encode())
    assert concat_kdf(ze + zs, info).hex() == case["derived_key_hex"]
    case = tree["rfc7518_appendix_C"]
    info = other_info(case["enc"], case["apu"].encode(), case["apv"].encode(), bits=128)
    ze = agree(jwk_secret(case["recipient"]), public_of(jwk_secret(case["ephemeral"])))
    assert b64url(concat_kdf(ze, info)[:16]) == case["derived_key_b64u"]


def test_ecdh_1pu_draft04_appendix_b() -> None:
    """draft-madden-jose-ecdh-1pu-04, Appendix B: X25519, two recipients, ECDH-1PU+A128KW with A256CBC-HS512."""
    alice, ephemeral = "i9KuFhSzEBsiv3PKVL5115OCdsqQai5nj_Flzfkw5jU", "x8EVZH4Fwk673_mUujnliJoSrLz0zYzzCWp5GUX2fc8"
    protected = (
        "eyJhbGciOiJFQ0RILTFQVStBMTI4S1ciLCJlbmMiOiJBMjU2Q0JDLUhTNTEyIiwiYXB1IjoiUVd4cFkyVSIsImFwdiI6IlFtOWlJR0Z1WkNC"
        "RGFHRnliR2xsIiwiZXBrIjp7Imt0eSI6Ik9LUCIsImNydiI6IlgyNTUxOSIsIngiOiJrOW9mX2NwQWFqeTBwb1c1Z2FpeFhHczluSGt3ZzFB"
        "RnFVQUZhMzlkeUJjIn19"
    )
    key = bytes(range(0xFF, 0xBF, -1))
    ciphertext, tag = CBC_HS512.seal(key, bytes(range(16)), b"Three is a magic number.", protected.encode())
    assert b64url(ciphertext) == "Az2IWsISEMDJvyc5XRL-3-d-RgNBOGolCsxFFoUXFYw"
    assert b64url(tag) == "HLb4fTlm8spGmij3RyOs2gJ4DpHM4hhVRwdF_hGb3WQ"
    info = other_info("ECDH-1PU+A128KW", b"Alice", b"Bob and Charlie", bits=128)
    for name, public, kek, wrapped in (
        (
            "Bob",
            "BT7aR0ItXfeDAldeeOlXL_wXqp-j5FltT0vRSG16kRw",
            "df4c37a0668306a11e3d6b0074b5d8df",
            "pOMVA9_PtoRe7xXW1139NzzN1UhiFoio8lGto9cf0t8PyU-sjNXH8-LIRLycq8CHJQbDwvQeU1cSl55cQ0hGezJu2N9IY0QN",
        ),
        (
            "Charlie",
            "q-LsvU772uV_2sPJhfAIq-3vnKNVefNoIlvyvg1hrnE",
            "57d8126f1b7ec4ccb0584dac03cb27cc",
            "56GVudgRLIMEElQ7DpXsijJVRSWUSDNdbWkdV3g0GUNq6hcT_GkxwnxlPIWrTXCqRpVKQC8fe4z3PQ2YH2afvjQ28aiCTWFE",
        ),
    ):
        ze, zs = (x25519(b64url_bytes(secret), b64url_bytes(public)) for secret in (ephemeral, alice))
        derived = concat_kdf(ze + zs, info, tag)[:16]
        assert derived.hex() == kek, name
        assert b64url(key_wrap(derived, key)) == wrapped, name


def test_rfc8037_appendix_a_6_and_rfc7520_section_5_5() -> None:
    """Direct agreement, on X25519 and on P-256, down to the content or to the content's key."""
    case = load("jose_cookbook_subset.json")["rfc8037_ecdh_es_x25519"]
    tree, recipient = case["output"]["json"], jwk_secret(case["input"]["key"])
    epk = jwk_public(json.loads(b64url_bytes(tree["protected"]))["epk"])
    key = concat_kdf(agree(recipient, epk), other_info("A128GCM", b"", b"", bits=128))[:16]
    sealed = b64url_bytes(tree["ciphertext"]) + b64url_bytes(tree["tag"])
    plain = AESGCM(key).decrypt(b64url_bytes(tree["iv"]), sealed, tree["protected"].encode())
    assert plain.decode() == case["input"]["plaintext"]
    case = load("jose_cookbook_subset.json")["rfc7520_5_5_ecdh_es_a128cbc_hs256"]
    recipient, epk = jwk_secret(case["input"]["key"]), public_of(jwk_secret(case["encrypting_key"]["epk"]))
    assert (
        b64url(concat_kdf(agree(recipient, epk), other_info("A128CBC-HS256", b"", b"")))
        == (case["encrypting_key"]["cek"])
    )


def test_wycheproof_json_web_encryption() -> None:
    """Compact form, which is not a DIDComm envelope; the primitives are ours where supported."""
    opened, refused, others = 0, 0, set()
    for group in load("wycheproof/json_web_encryption_test.json")["testGroups"]:
        for test in group["tests"]:
            with pytest.raises(Malformed):
                envelope_kind(test["jwe"].encode())
            try:
                plain = open_compact(test["jwe"], group["private"])
            except (Malformed, Unauthentic):
                assert test["result"] == "invalid", test["tcId"]
                refused += 1
            except KeyError as name:
                others.add(str(name))
            else:
                assert (plain.hex(), test["result"]) == (test["pt"], "valid"), test["tcId"]
                opened += 1
    assert opened >= 4 and refused >= 10
    assert not others & {"A256KW", "ECDH-ES+A256KW", "A256CBC-HS512", "A256GCM"}


def open_compact(jwe: str, private: Json) -> bytes:
    """The plaintext; KeyError for an algorithm that is not DIDComm's or that of its drafts."""
    if jwe.count(".") != 4:
        raise Malformed(why="not the compact form")
    protected, wrapped, iv, ciphertext, tag = jwe.split(".")
    header = strict_json(b64url_bytes(protected), 10_000)
    assert isinstance(header, dict)
    content = CONTENTS[header["enc"]]
    bits = {"A256KW": 256, "ECDH-ES+A256KW": 256, "ECDH-ES+A128KW": 128}[header["alg"]]
    if header["alg"] == "A256KW":
        kek = b64url_bytes(private["k"])
    else:
        agreed = agree(jwk_secret(private), jwk_public(header["epk"]))
        kek = concat_kdf(agreed, other_info(header["alg"], b"", b"", bits))[: bits // 8]
    key = key_unwrap(kek, b64url_bytes(wrapped))
    return content.open(key, b64url_bytes(iv), b64url_bytes(ciphertext), b64url_bytes(tag), protected.encode())


# --- DIDComm messages -----------------------------------------------------------------------------------------------


def secret_keys(*lists: Json) -> dict[str, SecretKey]:
    """The keys of JWK lists by key id, as the published files have them; those that cannot be read are for signing."""
    return {jwk["kid"].strip(): jwk_secret(jwk) for jwks in lists for jwk in jwks}


def open_for_each(packed: Json, keys: Mapping[str, SecretKey]) -> list[Unpacked]:
    """The envelope opened by each of its recipients, with that recipient's keys only."""
    opened, envelope = [], json.dumps(packed).encode()
    assert envelope_kind(envelope) == "didcomm/v2"
    for recipient in packed["recipients"]:
        kid = recipient["header"]["kid"]
        for _ in range(2):  # the second time by its likeness to the first, where there is one
            opened.append(
                JwePacker().unpack(
                    envelope, secret_of={kid: keys[kid]}.get, public_of=lambda sender: public_of(keys[sender])
                )
            )
            assert opened[-1].recipient_kid == kid
    assert len(opened) == 2 * len(packed["recipients"]) > 0
    return opened


def refuse_signed(packed: Json) -> None:
    """A JWS is no envelope; `test_vectors_jws.py` has its turn with them."""
    with pytest.raises(Malformed):
        envelope_kind(json.dumps(packed).encode())
    with pytest.raises(Malformed):
        JwePacker().unpack(
            json.dumps(packed).encode(), secret_of=lambda _: SECRET, public_of=lambda _: public_of(SECRET)
        )


SECRET = SecretKey("X25519", bytes(32))


def open_layers(packed: Json, layers: Json, keys: Mapping[str, SecretKey]) -> set[bytes]:
    """The innermost layer for every path through the recipients; every layer matches the vector."""
    if not layers or layers[0]["layer"] != "encrypted":
        refuse_signed(packed)
        return {b64url_bytes(packed["payload"])}
    inside = set()
    for unpacked in open_for_each(packed, keys):
        assert (unpacked.sender_kid, unpacked.enc) == (layers[0]["skid"], layers[0]["enc"])
        assert unpacked.kind == ("authcrypt" if layers[0]["skid"] else "anoncrypt")
        assert keys[unpacked.recipient_kid].kind == layers[0]["crv"]
        if len(layers) == 1:
            check_addressing(parse(unpacked.plain), unpacked)
            inside.add(unpacked.plain)
        else:
            inside |= open_layers(json.loads(unpacked.plain), layers[1:], keys)
    return inside


@pytest.mark.parametrize("case", cases("didcomm_v2_spec_appendix.json", "cases"))
def test_didcomm_v2_spec_appendix_c(case: Json) -> None:
    tree = load("didcomm_v2_spec_appendix.json")
    keys = secret_keys(tree["sender_secrets"], tree["recipient_secrets"])
    [plain] = open_layers(case["packed"], case["expect"]["layers"], keys)
    assert json.loads(plain) == case["expect"]["plaintext"]


@pytest.mark.parametrize("case", cases("didcomm_v2_generated_by_third_party_libs.json", "cases"))
def test_didcomm_v2_by_third_party_libraries(case: Json) -> None:
    keys = secret_keys(load("didcomm_v2_generated_by_third_party_libs.json")["keys_private_jwk"])
    if case["alg"].startswith("sig "):
        refuse_signed(case["packed"])
        return
    for unpacked in open_for_each(case["packed"], keys):
        assert keys[unpacked.recipient_kid].kind == case["crv"]
        if case["alg"] == "ES(1PU(EdDSA))":
            assert unpacked.kind == "anoncrypt"
            for inner in open_for_each(json.loads(unpacked.plain), keys):
                assert inner.kind == "authcrypt"
                assert json.loads(b64url_bytes(json.loads(inner.plain)["payload"]))["body"] == case["expect_body"]
            continue
        assert unpacked.enc == case["enc"]
        assert (unpacked.sender_kid is not None) == ("1PU" in case["alg"])
        message = parse(unpacked.plain)
        check_addressing(message, unpacked)
        assert message.body == case["expect_body"]


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "encrypted"))
def test_sicpa_rust_encrypted(case: Json) -> None:
    tree = load("didcomm_v2_spec_appendix.json")
    keys = secret_keys(tree["sender_secrets"], tree["recipient_secrets"])
    if case["expect"].get("error"):
        with pytest.raises((Malformed, Unauthentic)):
            open_for_each(case["packed"], keys)
    else:
        [plain] = open_layers(case["packed"], case["expect"]["layers"], keys)
        assert json.loads(plain) == case["expect"]["plaintext"]


def test_vectors_of_rfc0019_are_refused_as_v2() -> None:
    refused = 0
    for case in load("rfc0019_pack.json")["cases"]:
        raw = case.get("packed_raw") or json.dumps(case["packed"])
        with pytest.raises(Malformed):
            JwePacker().unpack(raw.encode(), secret_of=lambda _: SECRET, public_of=lambda _: public_of(SECRET))
        refused += 1
    assert refused > 20
