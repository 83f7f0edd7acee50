"""Published messages opened down to the plaintext, rotations, and foreign signatures."""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.support.vectors import Json, cases, load
from zerochat.crypto.encoding import b64url_bytes, compact_json
from zerochat.crypto.keys import AGREEMENT_KINDS, SecretKey, agree, jwk_permits, jwk_public, jwk_secret, public_of
from zerochat.crypto.primitives import concat_kdf, key_unwrap
from zerochat.didcomm import jws
from zerochat.didcomm.attachment import attachment_bytes
from zerochat.didcomm.did import Document, Method, read_document
from zerochat.didcomm.jwe_parser import read
from zerochat.didcomm.layers import MediaType, Opened, media_type_of, open_layers
from zerochat.didcomm.message import parse
from zerochat.didcomm.rotation import Rotation, prior_did, verify_from_prior
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed, RemoteError, Unauthentic

pytestmark = pytest.mark.conformance

ALICE, BOB = "did:example:alice", "did:example:bob"


# --- keys and documents ---------------------------------------------------------------------------------------------


def secrets_of(jwks: Json) -> dict[str, SecretKey]:
    return {jwk["kid"]: jwk_secret(jwk) for jwk in jwks}


def document_of(did: str, secrets: Mapping[str, SecretKey], signing: Callable[[str], bool]) -> Document:
    """A DID document of secret keys, with uses according to their names."""
    methods = [Method(kid, public_of(secret)) for kid, secret in secrets.items() if kid.startswith(did + "#")]
    agreement = [m for m in methods if m.key.kind in AGREEMENT_KINDS and not signing(m.kid)]
    return Document(did, tuple(agreement), tuple(m for m in methods if signing(m.kid)), ())


def kids_of(packed: Json) -> list[str]:
    """The recipients' key ids; a placeholder for unencrypted messages."""
    return [recipient["header"]["kid"] for recipient in packed.get("recipients", ())] or [BOB]


def open_for_each(
    packed: Json, secrets: Mapping[str, SecretKey], documents: Mapping[str, Document], lenient: bool
) -> list[Opened]:
    """A message opened by each of its recipients, with that recipient's keys only."""

    def resolve(did: str) -> Document:
        if did not in documents:
            raise Malformed(why="a DID that nobody here has")
        return documents[did]

    data = json.dumps(packed).encode()
    return [
        open_layers(data, secret_of={kid: secrets.get(kid)}.get, resolve=resolve, lenient=lenient)
        for kid in kids_of(packed)
    ]


# --- the specification's own ----------------------------------------------------------------------------------------


def appendix() -> tuple[dict[str, SecretKey], dict[str, Document]]:
    """Appendices A and B: the secret keys, and the documents as they are printed there."""
    tree = load("didcomm_v2_spec_appendix.json")
    documents = {
        did: read_document(did, tree[name]) for did, name in ((ALICE, "sender_diddoc"), (BOB, "recipient_diddoc"))
    }
    return secrets_of(tree["sender_secrets"]) | secrets_of(tree["recipient_secrets"]), documents


@pytest.mark.parametrize("case", cases("didcomm_v2_spec_appendix.json", "cases"))
def test_didcomm_v2_spec_appendix_c(case: Json) -> None:
    """Three signed and six encrypted messages; the last is anon(auth(sign)), which the specification itself forbids."""
    secrets, documents = appendix()
    expected = case["expect"]["layers"]
    forbidden = len(expected) == 3
    assert forbidden == (case["id"] == "didcomm-v2.1-C.3-6")
    if forbidden:
        with pytest.raises(Unauthentic):
            open_for_each(case["packed"], secrets, documents, lenient=False)
    for opened in open_for_each(case["packed"], secrets, documents, lenient=forbidden):
        assert opened.message == parse(compact_json(case["expect"]["plaintext"]))
        assert opened.message.body == {"messagespecificattribute": "and its value"}
        assert len(opened.layers) == len(expected)
        for layer, want in zip(opened.layers, expected, strict=True):
            assert layer.sender_kid == (want["kid"] if want["layer"] == "signed" else want["skid"])
            assert layer.algorithm == (want["alg"] if want["layer"] == "signed" else want["enc"])
            assert (layer.kind == "signed") == (want["layer"] == "signed")
            if layer.recipient_kid is not None:
                assert secrets[layer.recipient_kid].kind == want["crv"]
        kinds = [layer.kind for layer in opened.layers]
        assert opened.signer == (ALICE if "signed" in kinds else None)
        assert opened.sender == (ALICE if "authcrypt" in kinds else None)
        assert opened.addressed is (None if kinds == ["signed"] else True)


@pytest.mark.parametrize("case", cases("didcomm_v2_spec_appendix.json", "cases"))
def test_appendix_c_is_refused_with_unauthorised_keys(case: Json) -> None:
    """The same messages, with documents in which the keys have changed their use, and without Alice's."""
    secrets, documents = appendix()
    for did, document in documents.items():
        swapped = Document(did, document.authentication, document.agreement, ())
        anonymous = all(layer.get("skid") is None and layer["layer"] != "signed" for layer in case["expect"]["layers"])
        if (did == ALICE and anonymous) or (did == BOB and "recipients" not in case["packed"]):
            continue
        for others in (documents | {did: swapped}, {other: documents[other] for other in documents if other != did}):
            with pytest.raises(Unauthentic):
                open_for_each(case["packed"], secrets, others, lenient=True)


def test_erratum_printed_plaintext_differs_from_packed() -> None:
    """C.1 has https and no typ; the content of C.2 and C.3 has http and a typ."""
    tree = load("didcomm_v2_spec_appendix.json")
    printed = tree["plaintext_C1"]
    parse(compact_json(printed))
    for case in tree["cases"]:
        packed = case["expect"]["plaintext"]
        assert "typ" in packed and "typ" not in printed
        assert not same_type(printed["type"], packed["type"])
        assert printed == {name: value for name, value in packed.items() if name != "typ"} | {"type": printed["type"]}


def test_erratum_two_examples_have_other_curves() -> None:
    """C.3-5 is called P-521 and is P-256; C.3-6 is called X25519 and is P-521, inside as well."""
    found = {case["id"][-3:]: json.loads(b64url_bytes(case["packed"]["protected"])) for case in encrypted_cases()}
    assert found["3-5"]["epk"]["crv"] == "P-256"
    assert (found["3-6"]["epk"]["crv"], found["3-6"]["enc"]) == ("P-521", "XC20P")


def encrypted_cases() -> list[Json]:
    return [case for case in load("didcomm_v2_spec_appendix.json")["cases"] if "recipients" in case["packed"]]


def test_erratum_the_tag_is_part_of_the_key_for_ecdh_1pu_alone() -> None:
    """The text repeats the sentence about the tag for ECDH-ES, where following it opens nothing."""
    secrets, _ = appendix()
    seen = 0
    for case in encrypted_cases():
        jwe = read(json.dumps(case["packed"]).encode())
        for recipient in jwe.recipients:
            if jwe.sender_kid is None:
                shared = agree(secrets[recipient.kid], recipient.ephemeral)
                key_unwrap(concat_kdf(shared, jwe.info), recipient.wrapped)
                with pytest.raises(Unauthentic):
                    key_unwrap(concat_kdf(shared, jwe.info, jwe.tag), recipient.wrapped)
                seen += 1
    assert seen > 5


# --- other people's libraries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("didcomm_v2_generated_by_third_party_libs.json", "cases"))
def test_didcomm_v2_by_third_party_libraries(case: Json) -> None:
    secrets = secrets_of(load("didcomm_v2_generated_by_third_party_libs.json")["keys_private_jwk"])
    documents = {did: document_of(did, secrets, lambda kid: "#sig-" in kid) for did in (ALICE, BOB)}
    nested = case["alg"] == "ES(1PU(EdDSA))"
    for opened in open_for_each(case["packed"], secrets, documents, lenient=nested):
        assert opened.message.body == case["expect_body"]
        assert opened.sender == (ALICE if "1PU" in case["alg"] else None)
        assert opened.signer == (ALICE if nested or case["alg"].startswith("sig ") else None)
    if nested:
        with pytest.raises(Unauthentic):
            open_for_each(case["packed"], secrets, documents, lenient=False)


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "encrypted"))
def test_sicpa_rust_encrypted(case: Json) -> None:
    secrets, documents = appendix()
    if case["expect"].get("error"):
        with pytest.raises(RemoteError):
            open_for_each(case["packed"], secrets, documents, lenient=False)
    else:
        for opened in open_for_each(case["packed"], secrets, documents, lenient=False):
            assert opened.message == parse(compact_json(case["expect"]["plaintext"]))


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "plaintext_cases"))
def test_sicpa_rust_plaintexts(case: Json) -> None:
    """Defects inside `from_prior` show at verification, not at parsing.

    Version 2.0 required a body, 2.1 does not."""
    data = case["raw"].encode()
    valid = case["expect_valid"] is True or case["id"] == "INVALID_PLAINTEXT_MSG_NO_BODY"
    if not valid and "FROM_PRIOR" not in case["id"]:
        with pytest.raises(Malformed):
            parse(data)
        return
    message, tree = parse(data), json.loads(data)
    assert media_type_of(data) is MediaType.PLAIN
    assert (message.id, message.type, message.from_) == (tree["id"], tree["type"], tree.get("from"))
    assert (message.to, message.body) == (tuple(tree.get("to", ())), tree.get("body", {}))
    for attachment, entry in zip(message.attachments, tree.get("attachments", ()), strict=True):
        found = entry["data"]
        assert attachment.id == entry["id"]
        assert (attachment.links, attachment.hash) == (tuple(found.get("links", ())), found.get("hash"))
        assert (attachment.base64, attachment.json) == (found.get("base64"), found.get("json"))
        if attachment.json is not None:
            assert json.loads(attachment_bytes(attachment)) == found["json"]
    if message.from_prior and not valid:
        with pytest.raises(RemoteError):
            verify_from_prior(message.from_prior, charlie(), message.from_)
    elif message.from_prior:
        assert verify_from_prior(message.from_prior, charlie(), message.from_) == Rotation(123456, ALICE)


def charlie() -> Document:
    secrets = secrets_of(load("sicpa_rust_plaintext_from_prior.json")["charlie_secrets"])
    return document_of("did:example:charlie", secrets, lambda kid: kid.endswith("#key-1"))


@pytest.mark.parametrize("case", cases("sicpa_rust_plaintext_from_prior.json", "from_prior_jwt"))
def test_sicpa_rust_from_prior(case: Json) -> None:
    """The second negative one differs from the valid one in unused bits of base64 alone."""
    if case["expect"]["valid"]:
        payload = case["expect"]["payload"]
        assert verify_from_prior(case["jwt"], charlie(), ALICE) == Rotation(payload["iat"], payload["sub"])
        assert prior_did(case["jwt"]) == payload["iss"]
        with pytest.raises(Unauthentic):
            verify_from_prior(case["jwt"], charlie(), BOB)
    else:
        with pytest.raises(RemoteError):
            verify_from_prior(case["jwt"], charlie(), ALICE)


# --- signatures alone -----------------------------------------------------------------------------------------------


def test_rfc8037_eddsa() -> None:
    """The example in three forms; the JSON ones have no key id, which DIDComm demands."""
    case = load("jose_cookbook_subset.json")["rfc8037_eddsa_jws"]
    key, output = jwk_secret(case["input"]["key"]), case["output"]
    token = jws.read_token(output["compact"])
    jws.check_token(token, public_of(key))
    assert (token.payload.decode(), token.header) == (case["input"]["payload"], {"alg": "EdDSA"})
    again = jws.sign_detached(token.payload, [("kid", key)])
    assert again["protected"] == case["signing"]["protected_b64u"]
    assert again["signature"] == case["signing"]["sig"]
    for tree in (output["json"], output["json_flat"]):
        with pytest.raises(Malformed, match="no kid"):
            jws.verify(json.dumps(tree).encode(), lambda _: public_of(key))
        for entry in tree.get("signatures", [tree]):
            entry["header"] = {"kid": "kid"}
        signed = jws.verify(json.dumps(tree).encode(), lambda _: public_of(key))
        assert (signed.plain, signed.kids) == (token.payload, ("kid",))


@pytest.mark.parametrize("name", ["rfc7520_4_3_es512_jws", "rfc7520_4_5_detached"])
def test_rfc7520_signatures_of_kinds_that_didcomm_does_not_have(name: str) -> None:
    """ES512 and HS256: right, and refused."""
    output = load("jose_cookbook_subset.json")[name]["output"]
    with pytest.raises(Malformed, match="not supported"):
        jws.read_token(output["compact"])
    for form in ("json", "json_flat"):
        if form in output:
            data = json.dumps({"payload": "e30"} | output[form]).encode()
            with pytest.raises(Malformed, match="not supported"):
                jws.verify(data, lambda _: public_of(SecretKey("Ed25519", bytes(32))))


WRONG_USE = ("rejectWrongUse", "rejectWrongKeyOps")


def test_wycheproof_json_web_signature() -> None:
    """Tokens with keys of every kind. Of those that DIDComm signs with, only ES256 occurs, and all of its are wrong.

    Valid ones of other kinds (HMAC, RSA, ES512) are refused as such; so is whatever attacks with them.
    """
    refused: dict[str, int] = {}
    for group in load("wycheproof/json_web_signature_test.json")["testGroups"]:
        jwk = group.get("public", group["private"])
        key = jwk_public({name: value for name, value in jwk.items() if name != "d"}) if jwk["kty"] == "EC" else None
        for test in group["tests"]:
            if (test["result"] == "valid" and jwk["kty"] != "oct") or test["comment"] in WRONG_USE:
                assert jwk_permits(jwk, "sig") == (test["result"] == "valid"), test["tcId"]
            text = test["jws"] if isinstance(test["jws"], str) else json.dumps(test["jws"])
            assert key is None or test["result"] == "invalid" or key.kind == "P-521", test["tcId"]
            with pytest.raises(RemoteError) as caught:
                jws.check_token(jws.read_token(text), key or public_of(SecretKey("Ed25519", bytes(32))))
            with pytest.raises(Malformed):
                jws.verify(text.encode(), lambda _: public_of(SecretKey("Ed25519", bytes(32))))
            why = "Unauthentic" if caught.type is Unauthentic else str(caught.value.fields["why"])
            refused[why] = refused.get(why, 0) + 1
    assert refused["Unauthentic"] >= 10, "signatures of the right kind that are wrong"
    assert refused["jws: a signature algorithm that is not supported"] > 100
