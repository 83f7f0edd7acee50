"""DID Exchange in DIDComm v1 with other agents, and its signed attachments."""

import base64
import contextlib
import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes, base58, compact_json
from zerochat.crypto.keys import PublicKey, SecretKey, new_secret, public_of, sign
from zerochat.didcomm.did import Identity, did_key_of, new_peer2, new_peer4
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import didexchange, exchange
from zerochat.didcomm.protocols.didexchange import Requester, Responder
from zerochat.didcomm.protocols.problem import problem_v1
from zerochat.didcomm.protocols.signed_attachment import CONTENT_BYTES_MAX, read_signed, signed_attachment
from zerochat.didcomm.rotation import Prior
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic

URI = "https://agent.example/inbox"
PTHID = "69212a3a-d068-4f9d-a2dd-4741bca89af3"


def dice(seed: int = 1):
    return random.Random(seed).randbytes


def secret(seed: int) -> SecretKey:
    return new_secret("Ed25519", dice(seed))


def key_of(identity: Identity) -> PublicKey:
    return PublicKey("Ed25519", identity.signing_public)


def wire(message: Message) -> Message:
    """The message after a DIDComm v1 round trip."""
    return parse_v1(dump_v1(message))


ANN, BEN = (new_peer4(dice(seed), [didexchange.service_v1(URI)]) for seed in (11, 12))
INVITATION_KEY = secret(13)
STRANGER = secret(14)


def asked(version: Any = "1.1", did: str = ANN.did, **more: Any) -> tuple[Requester, Message]:
    return didexchange.request(did, "Ann", [public_of(INVITATION_KEY)], dice(2), pthid=PTHID, version=version, **more)


def answered(request: Message, did: str = BEN.did, signer: SecretKey = INVITATION_KEY, **more: Any) -> Message:
    responder = didexchange.receive_request(wire(request), PTHID, key_of(ANN))
    return wire(didexchange.respond(responder, did, signer, dice(3), **more)[1])


# --- both sides together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("make", [new_peer2, new_peer4])
def test_an_exchange_from_end_to_end(version, make):
    ann, ben = make(dice(4), [didexchange.service_v1(URI)]), make(dice(5), [])
    requester, request = asked(version, ann.did, goal_code="chat", goal="To chat")
    assert request.type == f"https://didcomm.org/didexchange/{version}/request" and request.thid == request.id
    responder = didexchange.receive_request(wire(request), PTHID, key_of(ann))
    assert (responder.peer.did, responder.peer.label, responder.version) == (ann.did, "Ann", version)
    responder, response = didexchange.respond(responder, ben.did, INVITATION_KEY, dice(6))
    assert (response.thid, response.pthid) == (request.id, PTHID) and f"/{version}/" in response.type
    requester, complete = didexchange.receive_response(requester, wire(response), key_of(ben), dice(7))
    assert (requester.state, requester.peer.did) == ("completed", ben.did)
    assert (complete.thid, complete.pthid) == (request.id, PTHID) and f"/{version}/" in complete.type
    responder = didexchange.receive_complete(responder, wire(complete), key_of(ann))
    assert responder.state == "completed"
    assert didexchange.receive_complete(responder, wire(complete), key_of(ann)) == responder


def test_a_later_minor_version_is_answered_in_ours():
    request = replace(asked()[1], type="https://didcomm.org/didexchange/1.4/request")
    assert didexchange.receive_request(wire(request), PTHID, key_of(ANN)).version == "1.1"


def test_a_did_of_the_invitation_that_stays_needs_no_signature():
    requester, request = asked(invited_by=BEN.short)
    bare = replace(answered(request), body={"did": BEN.did})
    done, _ = didexchange.receive_response(requester, bare, key_of(BEN), dice())
    assert done.peer.did == BEN.did
    with pytest.raises(Refused, match="not signed by a key of the invitation"):
        didexchange.receive_response(replace(requester, invited_by=None), bare, key_of(BEN), dice())


def test_document_may_be_attached_for_did_sov_agents():
    document = {"id": BEN.did, "authentication": []}
    requester, request = asked(attached=({"id": ANN.did}, SecretKey("Ed25519", ANN.signing_seed)))
    response = answered(request, document=document)
    attached = read_signed(response.body["did_doc~attach"])
    assert json.loads(attached.content) == document and attached.signers == (public_of(INVITATION_KEY),)
    response.body.pop("did_rotate~attach")
    assert didexchange.receive_response(requester, response, key_of(BEN), dice())[0].state == "completed"


# --- agents of the old kind: a DID without a method, and its document attached --------------------------------------


def old_document(key: PublicKey, nym: str | None = None) -> dict[str, Any]:
    """As Indy's agents write it: keys under `publicKey`, references to them in objects, keys in base58."""
    did = "did:sov:" + (nym or base58(key.data[:16]))
    method = {"id": did + "#1", "type": "Ed25519VerificationKey2018", "controller": did}
    service = {"id": did + ";indy", "type": "IndyAgent", "priority": 0, "recipientKeys": [base58(key.data)]}
    return {
        "@context": "https://w3id.org/did/v1",
        "id": did,
        "publicKey": [{**method, "publicKeyBase58": base58(key.data)}],
        "authentication": [{"type": "Ed25519SignatureAuthentication2018", "publicKey": did + "#1"}],
        "service": [{**service, "routingKeys": [], "serviceEndpoint": URI}],
    }


def old_request(signer: SecretKey, document: dict[str, Any], did: str | None = None) -> Message:
    attached = signed_attachment(json.dumps(document).encode(), signer, "application/json")
    body = {"label": "Old", "did": did or document["id"].removeprefix("did:sov:"), "did_doc~attach": attached}
    return Message(type="did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/didexchange/1.0/request", id="r1", pthid=PTHID, body=body)


@pytest.mark.parametrize("qualified", [False, True])
def test_an_old_did_with_its_document(qualified):
    key = public_of(STRANGER)
    document = old_document(key)
    responder = didexchange.receive_request(
        wire(old_request(STRANGER, document, document["id"] if qualified else None)), PTHID, key
    )
    assert responder.peer.did == document["id"] and responder.peer.verkeys == (key,)
    assert responder.peer.document.services[0].properties["serviceEndpoint"] == URI


def test_an_old_did_in_a_response_is_signed_by_the_invitation():
    requester, request = asked("1.0")
    key = public_of(STRANGER)
    body = old_request(INVITATION_KEY, old_document(key)).body
    response = Message(type=didexchange.RESPONSE, id="x", thid=request.id, body=body)
    done, _ = didexchange.receive_response(requester, wire(response), key, dice())
    assert done.peer.verkeys == (key,)
    forged = replace(response, body=old_request(STRANGER, old_document(key)).body)
    with pytest.raises(Unauthentic):
        didexchange.receive_response(requester, wire(forged), key, dice())


def test_did_sov_cannot_be_impersonated():
    key = public_of(STRANGER)
    with pytest.raises(Refused, match="not named after"):
        didexchange.receive_request(wire(old_request(STRANGER, old_document(key, "W" * 22))), PTHID, key)
    with pytest.raises(Refused, match="another DID"):
        didexchange.receive_request(wire(old_request(STRANGER, old_document(key), "W" * 22)), PTHID, key)
    with pytest.raises(Unauthentic):
        didexchange.receive_request(wire(old_request(INVITATION_KEY, old_document(key))), PTHID, key)


def test_attached_document_cannot_override_a_did():
    key = public_of(STRANGER)
    request = old_request(STRANGER, {**old_document(key), "id": ANN.did}, ANN.did)
    with pytest.raises(Unauthentic):
        didexchange.receive_request(wire(request), PTHID, key)
    assert didexchange.receive_request(wire(request), PTHID, key_of(ANN)).peer.verkeys == (key_of(ANN),)


@pytest.mark.parametrize("did", ["did:web:example.com", "did:sov:LjgpST2rjsoxYegQDRm7EL", "LjgpST2rjsoxYegQDRm7EL"])
def test_a_did_that_would_have_to_be_looked_up_is_refused(did):
    with pytest.raises(Refused):
        didexchange.receive_request(wire(asked(did=did)[1]), PTHID, key_of(ANN))


# --- impostors ------------------------------------------------------------------------------------------------------


def test_the_key_of_the_envelope_must_be_the_dids():
    requester, request = asked()
    with pytest.raises(Unauthentic):
        didexchange.receive_request(wire(request), PTHID, public_of(STRANGER))
    with pytest.raises(Unauthentic):
        didexchange.receive_response(requester, answered(request), public_of(STRANGER), dice())
    responder = didexchange.receive_request(wire(request), PTHID, key_of(ANN))
    responder, response = didexchange.respond(responder, BEN.did, INVITATION_KEY, dice())
    complete = didexchange.receive_response(requester, wire(response), key_of(BEN), dice())[1]
    with pytest.raises(Unauthentic):
        didexchange.receive_complete(responder, wire(complete), public_of(STRANGER))


def test_only_a_key_of_the_invitation_hands_over():
    requester, request = asked()
    with pytest.raises(Unauthentic):
        didexchange.receive_response(requester, answered(request, signer=STRANGER), key_of(BEN), dice())
    for_another = answered(request, did=ANN.did).body["did_rotate~attach"]
    mixed = replace(answered(request), body={"did": BEN.did, "did_rotate~attach": for_another})
    with pytest.raises(Unauthentic):
        didexchange.receive_response(requester, mixed, key_of(BEN), dice())


@pytest.mark.parametrize(
    "change",
    [
        {"thid": "another"},
        {"thid": None},
        {"pthid": "another"},
        {"type": didexchange.COMPLETE},
        {"type": "https://didcomm.org/didexchange/2.0/response"},
    ],
)
def test_a_response_of_another_exchange_is_refused(change):
    requester, request = asked()
    with pytest.raises(Refused):
        didexchange.receive_response(requester, replace(answered(request), **change), key_of(BEN), dice())


def test_a_request_must_answer_this_invitation():
    for change in ({"pthid": None}, {"pthid": "another"}):
        with pytest.raises(Refused):
            didexchange.receive_request(replace(asked()[1], **change), PTHID, key_of(ANN))


def test_messages_out_of_sequence_are_refused():
    requester, request = asked()
    response = answered(request)
    completed, complete = didexchange.receive_response(requester, response, key_of(BEN), dice())
    with pytest.raises(Refused):
        didexchange.receive_response(completed, response, key_of(BEN), dice())
    early = didexchange.receive_request(wire(request), PTHID, key_of(ANN))
    with pytest.raises(Refused):
        didexchange.receive_complete(early, wire(complete), key_of(ANN))


# --- problems -------------------------------------------------------------------------------------------------------


def test_a_refusal_ends_it():
    requester, request = asked("1.0")
    report = wire(didexchange.decline(wire(request), "request_not_accepted", "Full.", dice()))
    assert report.type == "https://didcomm.org/didexchange/1.0/problem_report"
    ended = didexchange.receive_problem(requester, report)
    assert ended.state == "abandoned" and (ended.problem.code, ended.problem.text) == ("request_not_accepted", "Full.")
    with pytest.raises(Refused):
        didexchange.receive_response(ended, answered(request), key_of(BEN), dice())
    with pytest.raises(Refused):
        didexchange.receive_problem(requester, replace(report, thid="another"))
    with pytest.raises(Refused):
        didexchange.receive_problem(requester, request)


def test_only_the_requester_refuses_an_answer():
    _, request = asked()
    responder = didexchange.receive_request(wire(request), PTHID, key_of(ANN))
    responder, response = didexchange.respond(responder, BEN.did, INVITATION_KEY, dice())
    report = wire(problem_v1("response_not_accepted", wire(response), "No.", dice()))
    with pytest.raises(Unauthentic):
        didexchange.receive_problem_from(responder, report, public_of(STRANGER))
    ended: Responder = didexchange.receive_problem_from(responder, report, key_of(ANN))
    assert ended.state == "abandoned" and ended.problem.code == "response_not_accepted"


# --- signed attachments ---------------------------------------------------------------------------------------------


def signed(content: bytes = b"did:example:1", key: SecretKey = INVITATION_KEY) -> dict[str, Any]:
    return copy.deepcopy(signed_attachment(content, key, "text/string"))


def jws(protected: dict[str, Any], content: bytes, key: SecretKey, **header: Any) -> dict[str, Any]:
    text = b64url(compact_json(protected))
    signature = sign(key, f"{text}.{b64url(content)}".encode())
    return {"protected": text, "signature": b64url(signature), **({"header": header} if header else {})}


def test_signed_attachment_suits_other_agents():
    content = "ÿ>?~ and a name".encode()
    tree = signed(content)
    assert base64.b64decode(tree["data"]["base64"], validate=True) == content and "+" in tree["data"]["base64"]
    header = json.loads(b64url_bytes(tree["data"]["jws"]["protected"]))
    kid = did_key_of(public_of(INVITATION_KEY))
    assert header["alg"] == "EdDSA" and header["jwk"].keys() == {"kty", "crv", "x", "kid"}
    assert header["jwk"]["kid"] == tree["data"]["jws"]["header"]["kid"] == kid
    assert read_signed(tree).content == content and read_signed(tree).signers == (public_of(INVITATION_KEY),)


def test_other_writers_spellings_are_read():
    content, key = b"\xff\xfe>?", INVITATION_KEY
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64url(public_of(key).data)}
    did = did_key_of(public_of(key))
    kinds = [
        jws({"alg": "EdDSA", "jwk": jwk}, content, key),
        jws({"alg": "EdDSA", "jwk": jwk}, content, key, kid=f"{did}#{did[8:]}"),
        jws({"alg": "EdDSA", "kid": did}, content, key),
        jws({"alg": "EdDSA"}, content, key, kid=did),
        {"signatures": [jws({"alg": "EdDSA", "jwk": jwk}, content, key, kid=did)]},
        {
            "signatures": [
                jws({"alg": "EdDSA"}, content, one, kid=did_key_of(public_of(one))) for one in (key, STRANGER)
            ]
        },
    ]
    for encoded in (
        base64.b64encode(content),
        base64.urlsafe_b64encode(content),
        base64.b64encode(content).rstrip(b"="),
    ):
        for kind in kinds:
            found = read_signed({"@id": "x", "mime-type": "y", "data": {"base64": encoded.decode(), "jws": kind}})
            assert found.content == content and found.signers[0] == public_of(key)


UUID = "b1a7bd0c-8b7f-4a0f-9c27-b2ab5a3c2f0e"
"""A key id of a key store, as credo-ts 0.6 writes it."""


@pytest.mark.parametrize("where", ["jwk", "header", "protected"])
def test_key_ids_are_opaque_beside_a_jwk(where):
    key = public_of(INVITATION_KEY)
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64url(key.data)}
    protected = {
        "alg": "EdDSA",
        "jwk": {**jwk, "kid": UUID} if where == "jwk" else jwk,
        **({"kid": UUID} if where == "protected" else {}),
    }
    header = {"kid": UUID} if where == "header" else {"kid": did_key_of(key)} if where == "jwk" else {}
    for signer, error in ((INVITATION_KEY, None), (STRANGER, Unauthentic)):
        tree = {"data": {"base64": b64url(b"x"), "jws": jws(protected, b"x", signer, **header)}}
        with pytest.raises(error) if error else contextlib.nullcontext():
            assert read_signed(tree).signers == (key,)


@pytest.mark.parametrize("times", [None, 1, 2])
@pytest.mark.parametrize("signer", [INVITATION_KEY, STRANGER], ids=["invitation", "stranger"])
def test_a_response_like_those_of_credo(signer, times):
    """It signs once for each service of its invitation: with several endpoints, the same signature again."""
    requester, request = asked()
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64url(public_of(signer).data), "kid": UUID}
    content = BEN.did.encode()
    signature = jws({"alg": "EdDSA", "jwk": jwk}, content, signer)
    signatures = signature if times is None else {"signatures": [signature] * times}
    rotation = {"data": {"base64": b64url(content), "jws": signatures}}
    response = replace(answered(request), body={"did": BEN.did, "did_rotate~attach": rotation})
    if signer is STRANGER:
        with pytest.raises(Unauthentic):
            didexchange.receive_response(requester, response, key_of(BEN), dice())
    else:
        assert didexchange.receive_response(requester, response, key_of(BEN), dice())[0].peer.did == BEN.did


def test_a_signature_that_names_two_signers_is_refused():
    other = did_key_of(public_of(STRANGER))
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": b64url(public_of(INVITATION_KEY).data)}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"jwk": jwk}, {"kid": other}),
        ({"jwk": {**jwk, "kid": other}}, {}),
        ({"jwk": jwk, "kid": other}, {}),
        ({"kid": UUID}, {}),
        ({"jwk": {**jwk, "kid": 7}}, {}),
        ({}, {}),
        ({}, {"kid": "did:sov:LjgpST2rjsoxYegQDRm7EL#keys-4"}),
        ({"jwk": {**jwk, "crv": "X25519"}}, {}),
        ({"jwk": {**jwk, "use": "enc"}}, {}),
        ({"jwk": {**jwk, "d": jwk["x"]}}, {}),
    ]
    for protected, header in cases:
        tree = signed(b"x")
        tree["data"]["jws"] = jws({"alg": "EdDSA", **protected}, b"x", INVITATION_KEY, **header)
        with pytest.raises(Malformed):
            read_signed(tree)


def test_one_wrong_signature_among_right_ones_is_refused():
    kids = [did_key_of(public_of(key)) for key in (INVITATION_KEY, STRANGER)]
    right, wrong = (
        jws({"alg": "EdDSA"}, b"x", INVITATION_KEY, kid=kids[0]),
        jws({"alg": "EdDSA"}, b"y", STRANGER, kid=kids[1]),
    )
    with pytest.raises(Unauthentic):
        read_signed({"data": {"base64": b64url(b"x"), "jws": {"signatures": [right, wrong]}}})


@pytest.mark.parametrize("path", [("base64",), ("jws", "signature"), ("jws", "protected"), ("jws",)])
def test_a_changed_or_missing_part_is_refused(path):
    tree = signed(b"did:example:12")
    *parents, last = path
    inner = tree["data"]
    for name in parents:
        inner = inner[name]
    if last == "jws":
        del inner[last]
    else:
        inner[last] = ("B" if inner[last][0] != "B" else "A") + inner[last][1:]
    with pytest.raises(RemoteError):
        read_signed(tree)


def test_unsigned_and_huge_contents_are_refused():
    with pytest.raises(Refused):
        read_signed({"data": {"json": {}, "jws": signed()["data"]["jws"]}})
    with pytest.raises(Malformed):
        read_signed(signed(bytes(CONTENT_BYTES_MAX + 3)))
    for algorithm in ("none", "HS256", "ES256"):
        tree = signed(b"x")
        tree["data"]["jws"] = jws({"alg": algorithm}, b"x", STRANGER, kid=did_key_of(public_of(STRANGER)))
        with pytest.raises(RemoteError):
            read_signed(tree)


JUNK = st.recursive(
    st.sampled_from([None, True, 7, "", "x", ANN.did, "did:sov:x", did_key_of(public_of(STRANGER)), b64url(b"{}")]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["data", "base64", "jws", "json", "header", "kid", "protected"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["did", "label", "did_doc~attach", "did_rotate~attach"]), JUNK, max_size=4))
def test_any_body_is_read_or_refused(change):
    requester, request = asked()
    responder = didexchange.receive_request(request, PTHID, key_of(ANN))
    response = didexchange.respond(responder, BEN.did, INVITATION_KEY, dice())[1]
    with contextlib.suppress(RemoteError):
        didexchange.receive_request(replace(request, body={**request.body, **change}), PTHID, key_of(ANN))
    with contextlib.suppress(RemoteError):
        didexchange.receive_response(
            requester, replace(response, body={**response.body, **change}), key_of(BEN), dice()
        )


# --- the exchange in v2, as groups do it ----------------------------------------------------------------------------


def test_in_v2_the_response_rotates_the_public_did_away():
    public, mine, theirs = (new_peer4(dice(seed), []) for seed in (21, 22, 23))
    request = exchange.request(theirs, public.did, PTHID, {"a": 1}, dice())
    prior = Prior(public.did, public.kid_signing, public.signing_seed)
    response = exchange.response(request, mine, prior, {}, 1769850300, dice())
    exchange.check_response(response, public.did, mine.did)
    assert (response.thid, response.pthid, response.to) == (request.id, PTHID, (theirs.did,))
    with pytest.raises(Unauthentic):
        exchange.check_response(response, public.did, theirs.did)
    with pytest.raises(Refused):
        exchange.check_response(replace(response, from_prior=None), public.did, mine.did)
    assert exchange.complete(request.id, PTHID, dice()).thid == request.id
