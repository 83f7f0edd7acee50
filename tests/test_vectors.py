"""Published test vectors, named like their sources. The files lie beside the project; see its design folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from zerochat.crypto.encoding import (
    b64url,
    b64url_bytes,
    base58,
    base58_bytes,
    canonical_json,
    compact_json,
    did_key,
    did_key_bytes,
)
from zerochat.crypto.primitives import (
    cbc_hs512_open,
    cbc_hs512_seal,
    ed25519_public,
    ed25519_sign,
    ed25519_to_x25519_secret,
    ed25519_verify,
    gcm_open,
    key_unwrap,
    key_wrap,
    x25519,
    x25519_once,
    x25519_public,
    xc20p_open,
)
from zerochat.didcomm.did import Document, peer4, resolve, same_did, short_form
from zerochat.didcomm.jwe import JwePacker, concat_kdf, other_info
from zerochat.didcomm.message import parse
from zerochat.didcomm.packer import Unpacked, check_addressing
from zerochat.didcomm.rotation import verify_from_prior
from zerochat.errors import Malformed, RemoteError, Unauthentic

pytestmark = pytest.mark.conformance

FOLDER = Path(__file__).parents[2] / "shared" / "vectors"

Json = Any
"""Vectors are trees of every shape, and the tests say at once when one is not as expected."""


def load(name: str) -> Json:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the published vectors are not beside the project (no {name})")
    return json.loads(path.read_bytes())


def cases(name: str, *path: str) -> list[Json]:
    """The cases of a file as parameters, or one parameter that makes its test skip when the file is not there."""
    if not (FOLDER / name).exists():
        reason = f"the published vectors are not beside the project (no {name})"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id=name)]
    tree = load(name)
    for step in path:
        tree = tree[step]
    return [pytest.param(case, id=case["id"]) for case in tree]


# --- primitives -----------------------------------------------------------------------------------------------------


def test_ietf_primitives() -> None:
    tree = load("ietf_primitives.json")
    for case in tree["x25519_rfc7748"]:
        scalar, point = bytes.fromhex(case["scalar"]), bytes.fromhex(case["u"])
        assert x25519(scalar, point).hex() == x25519_once(scalar, point).hex() == case["out"]
    box = {name: bytes.fromhex(value) for name, value in tree["xchacha20poly1305_draft_A_3_1"].items()}
    assert xc20p_open(box["key"], box["nonce"], box["ciphertext"], box["tag"], box["aad"]) == box["plaintext"]
    box = {name: bytes.fromhex(value) for name, value in tree["a256cbc_hs512_rfc7518_B_3"].items()}
    sealed = cbc_hs512_seal(box["key"], box["iv"], box["plaintext"], box["aad"])
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
        for agree in (x25519, x25519_once):
            if test["shared"] == "00" * 32:
                with pytest.raises(Unauthentic):
                    agree(secret, public)
            else:
                assert agree(secret, public).hex() == test["shared"], test["tcId"]


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
    ("name", "open_"), [("a256cbc_hs512", cbc_hs512_open), ("aes_gcm", gcm_open), ("xchacha20_poly1305", xc20p_open)]
)
def test_wycheproof_content_encryption(name: str, open_: Any) -> None:
    for _, test in wycheproof(name):
        key, iv, ct, tag, aad = (bytes.fromhex(test[part]) for part in ("key", "iv", "ct", "tag", "aad"))
        if test["result"] == "valid":
            assert open_(key, iv, ct, tag, aad).hex() == test["msg"], test["tcId"]
        else:
            with pytest.raises((Unauthentic, Malformed)):
                open_(key, iv, ct, tag, aad)


def test_rfc8037_eddsa() -> None:
    case = load("jose_cookbook_subset.json")["rfc8037_eddsa_jws"]
    key, signing = case["input"]["key"], case["signing"]
    signature = ed25519_sign(b64url_bytes(key["d"]), signing["sig-input"].encode())
    assert b64url(signature) == signing["sig"]
    ed25519_verify(b64url_bytes(key["x"]), signing["sig-input"].encode(), signature)


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
    """We canonicalise the subset without floats, so those are taken for what they are or refused."""
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


# --- key derivation of ECDH-1PU and ECDH-ES -------------------------------------------------------------------------


def test_kdf_of_ecdh_1pu_draft04_appendix_a_and_rfc7518_appendix_c() -> None:
    """Direct agreement on P-256: the derivation is the same, the key agreement itself is not ours yet."""
    tree = load("kdf_ecdh_1pu_appendixA_and_rfc7518_C.json")
    case = tree["ecdh_1pu_draft04_appendix_A"]
    info = other_info(case["enc"], case["apu"].encode(), case["apv"].encode())
    secret = bytes.fromhex(case["Ze"] + case["Zs"])
    assert concat_kdf(secret, info).hex() == case["derived_key_hex"]
    case = tree["rfc7518_appendix_C"]
    info = other_info(case["enc"], case["apu"].encode(), case["apv"].encode(), bits=128)
    ze = bytes.fromhex(tree["ecdh_1pu_draft04_appendix_A"]["Ze"])
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
    ciphertext, tag = cbc_hs512_seal(key, bytes(range(16)), b"Three is a magic number.", protected.encode())
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
        ze, zs = (x25519_once(b64url_bytes(secret), b64url_bytes(public)) for secret in (ephemeral, alice))
        derived = concat_kdf(ze + zs, info, tag)[:16]
        assert derived.hex() == kek, name
        assert b64url(key_wrap(derived, key)) == wrapped, name


# --- DIDs -----------------------------------------------------------------------------------------------------------


def key_pair(tree: Json) -> tuple[bytes, bytes]:
    """Public and private key of a published pair, in whichever of the two ways it is written."""
    if "publicKeyJwk" in tree:
        return b64url_bytes(tree["privateKeyJwk"]["x"]), b64url_bytes(tree["privateKeyJwk"]["d"])
    return base58_bytes(tree["publicKeyBase58"], 32), base58_bytes(tree.get("privateKeyBase58", ""), 64)


def test_did_key_ed25519_x25519() -> None:
    for did, case in load("did_key.json")["cases"]["ed25519-x25519"].items():
        seed = bytes.fromhex(case["seed"])
        signing, agreement = case["verificationKeyPair"], case["keyAgreementKeyPair"]
        assert did_key(ed25519_public(seed)) == did
        assert did_key_bytes(did) == key_pair(signing)[0]
        document = resolve(did)
        [(agreement_kid, agreement_public)], [(signing_kid, signing_public)] = (
            document.agreement,
            document.authentication,
        )
        public, secret = key_pair(agreement)
        assert agreement_public == public == x25519_public(secret) == x25519_public(ed25519_to_x25519_secret(seed))
        assert signing_public == ed25519_public(seed)
        assert agreement_kid.endswith(agreement["id"]) and signing_kid.endswith(signing["id"])


def test_did_key_x25519() -> None:
    for did, case in load("did_key.json")["cases"]["x25519"].items():
        tree = case.get("didDocument", case)
        [(kid, public)] = resolve(did).agreement
        assert kid in tree["keyAgreement"] or kid == tree["keyAgreement"][0]["id"]
        method = next(m for m in tree.get("verificationMethod", tree["keyAgreement"]) if m["id"] == kid)
        if "publicKeyBase58" in method:
            assert base58(public) == method["publicKeyBase58"]


@pytest.mark.parametrize("family", ["nist-curves", "secp256k1"])
def test_did_key_of_other_types_is_refused_by_name(family: str) -> None:
    """Not read yet: such a key can neither agree by X25519 nor sign by Ed25519."""
    dids = load("did_key.json")["cases"][family]
    assert dids
    for did in dids:
        with pytest.raises(Malformed, match="type that cannot be read"):
            resolve(did)


def published(tree: Json, did: str) -> Document:
    """A published DID document as we would have read it; the key ids are relative there."""
    keys = {method["id"]: method["publicKeyMultibase"] for method in tree["verificationMethod"]}

    def of(use: str) -> tuple[tuple[str, bytes], ...]:
        return tuple((did + name, base58_bytes(keys[name][1:], 34)[2:]) for name in tree[use])

    return Document(did, of("keyAgreement"), of("authentication"), ())


def test_did_peer_2() -> None:
    [case] = load("did_peer.json")["numalgo2"]
    document, expected = resolve(case["did"]), published(case["document"], case["did"])
    assert (document.agreement, document.authentication) == (expected.agreement, expected.authentication)
    services = [{"id": s.id, "type": s.type, **s.properties} for s in document.services]
    assert services == case["document"]["service"]


def test_did_peer_2_of_numalgo_3() -> None:
    """did:peer:3 itself is not read: it needs a document that has been sent before."""
    [case] = load("did_peer.json")["numalgo3"]
    document = resolve(case["did2"])
    assert [kid.rpartition("#")[2] for kid, _ in document.agreement] == ["key-1"]
    assert [kid.rpartition("#")[2] for kid, _ in document.authentication] == ["key-2", "key-3"]
    assert document.services[0].properties["routingKeys"] == ["did:example:somemediator#somekey"]
    with pytest.raises(Malformed, match="method that cannot be read"):
        resolve(case["did3"])


def test_did_peer_4() -> None:
    [case] = load("did_peer.json")["numalgo4"]
    long, short = case["long_did"], case["short_did"]
    assert peer4(compact_json(case["input_document"])) == long
    assert short_form(long) == short
    assert same_did(long, short)
    document, expected = resolve(long), published(case["long_document"], long)
    assert (document.agreement, document.authentication) == (expected.agreement, expected.authentication)
    assert [{"id": s.id, "type": s.type, **s.properties} for s in document.services] == case["long_document"]["service"]
    assert resolve(short, {short: long}) == document
    with pytest.raises(Malformed):
        resolve(short)


# --- DIDComm messages -----------------------------------------------------------------------------------------------


def x25519_keys(*lists: Json) -> dict[str, dict[str, bytes]]:
    """The X25519 keys of JWK lists by key id, as the published files have them."""
    keys = [jwk for jwks in lists for jwk in jwks if jwk["crv"] == "X25519"]
    return {jwk["kid"]: {name: b64url_bytes(jwk[name]) for name in ("d", "x")} for jwk in keys}


def why_not_ours(packed: Json) -> str:
    """Why the X25519 packer cannot open this envelope, or nothing."""
    if "protected" not in packed:
        return "a JWS: signatures are a packer that does not exist yet"
    header = json.loads(b64url_bytes(packed["protected"]))
    epk = header.get("epk") or packed["recipients"][0]["header"]["epk"]
    return "" if epk["crv"] == "X25519" else f"{epk['crv']}: a packer that does not exist yet"


def open_for_each(packed: Json, keys: dict[str, dict[str, bytes]]) -> list[Unpacked]:
    """The envelope opened by each of its recipients, with nobody else's key."""
    opened = []
    for recipient in packed["recipients"]:
        kid = recipient["header"]["kid"]
        opened.append(
            JwePacker().unpack(
                json.dumps(packed).encode(),
                secret_of={kid: keys[kid]["d"]}.get,
                public_of=lambda sender: keys[sender]["x"],
            )
        )
        assert opened[-1].recipient_kid == kid
    assert len(opened) == len(packed["recipients"]) > 0
    return opened


def skip_or_refuse(packed: Json, keys: dict[str, dict[str, bytes]]) -> None:
    """Skip what is for another packer, after making sure that ours turns it away."""
    if why := why_not_ours(packed):
        with pytest.raises(Malformed):
            JwePacker().unpack(
                json.dumps(packed).encode(), secret_of=lambda _: bytes(32), public_of=lambda _: bytes(32)
            )
        pytest.skip(why)


@pytest.mark.parametrize("case", cases("didcomm_v2_spec_appendix.json", "cases"))
def test_didcomm_v2_spec_appendix_c(case: Json) -> None:
    tree = load("didcomm_v2_spec_appendix.json")
    keys = x25519_keys(tree["sender_secrets"], tree["recipient_secrets"])
    skip_or_refuse(case["packed"], keys)
    [layer] = case["expect"]["layers"]
    for unpacked in open_for_each(case["packed"], keys):
        assert unpacked.sender_kid == layer["skid"]
        assert unpacked.kind == ("authcrypt" if layer["skid"] else "anoncrypt")
        assert json.loads(unpacked.plain) == case["expect"]["plaintext"]
        message = parse(unpacked.plain)
        check_addressing(message, unpacked)
        assert (message.from_, message.to, message.body) == (
            "did:example:alice",
            ("did:example:bob",),
            {"messagespecificattribute": "and its value"},
        )


@pytest.mark.parametrize("case", cases("didcomm_v2_generated_by_third_party_libs.json", "cases"))
def test_didcomm_v2_by_third_party_libraries(case: Json) -> None:
    keys = x25519_keys(load("didcomm_v2_generated_by_third_party_libs.json")["keys_private_jwk"])
    skip_or_refuse(case["packed"], keys)
    for unpacked in open_for_each(case["packed"], keys):
        if case["alg"] == "ES(1PU(EdDSA))":
            for inner in open_for_each(json.loads(unpacked.plain), keys):
                assert inner.kind == "authcrypt"
                assert "signatures" in json.loads(inner.plain)
            continue
        assert unpacked.sender_kid == ("did:example:alice#x25519-alice" if "1PU" in case["alg"] else None)
        message = parse(unpacked.plain)
        check_addressing(message, unpacked)
        assert message.body == case["expect_body"]


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "encrypted"))
def test_sicpa_rust_encrypted(case: Json) -> None:
    skip_or_refuse(case["packed"], {})


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "plaintext_cases"))
def test_sicpa_rust_plaintexts(case: Json) -> None:
    """What is wrong only inside `from_prior` shows when that is verified, not when the message is parsed."""
    valid = case["expect_valid"] is True or case["id"] == "INVALID_PLAINTEXT_MSG_NO_BODY"
    if valid or "FROM_PRIOR" in case["id"]:
        message = parse(case["raw"].encode())
        tree = json.loads(case["raw"])
        assert (message.id, message.type, message.from_) == (tree["id"], tree["type"], tree.get("from"))
        assert len(message.attachments) == len(tree.get("attachments", ()))
        if message.from_prior and not valid:
            with pytest.raises(RemoteError):
                verify_from_prior(message.from_prior, charlie(), "did:example:alice")
    else:
        with pytest.raises(Malformed):
            parse(case["raw"].encode())


def charlie() -> Document:
    secrets = load("sicpa_rust_plaintext_from_prior.json")["charlie_secrets"]
    keys = {jwk["crv"]: (jwk["kid"], b64url_bytes(jwk["x"])) for jwk in secrets}
    return Document("did:example:charlie", (keys["X25519"],), (keys["Ed25519"],), ())


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "from_prior_jwt"))
def test_sicpa_rust_from_prior(case: Json) -> None:
    """The second negative one differs from the valid one in unused bits of base64 alone."""
    if case["expect"]["valid"]:
        assert verify_from_prior(case["jwt"], charlie(), "did:example:alice") == case["expect"]["payload"]["iat"]
    else:
        with pytest.raises(RemoteError):
            verify_from_prior(case["jwt"], charlie(), "did:example:alice")


def test_vectors_of_rfc0019_are_not_taken_for_v2() -> None:
    """The other wire format is a packer that does not exist yet; this one must turn it away."""
    refused = 0
    for case in load("rfc0019_pack.json")["cases"]:
        raw = case.get("packed_raw") or json.dumps(case["packed"])
        with pytest.raises(Malformed):
            JwePacker().unpack(raw.encode(), secret_of=lambda _: bytes(32), public_of=lambda _: bytes(32))
        refused += 1
    assert refused > 20
