"""DIDs: creation, parsing of other implementations, refusals."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat.crypto import encoding
from zerochat.crypto.encoding import ED25519, SHA2_256, X25519, b64url, base58, compact_json, did_key
from zerochat.crypto.keys import (
    AGREEMENT_KINDS,
    KeyKind,
    PublicKey,
    ed25519_to_x25519,
    multikey,
    new_secret,
    public_jwk,
    public_of,
)
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.did import (
    DID_CHARS_MAX,
    KEYS_MAX,
    SERVICES_MAX,
    Method,
    did_key_of,
    new_peer2,
    new_peer4,
    peer2,
    peer4,
    read_document,
    resolve,
    resolver,
    same_did,
    short_form,
)
from zerochat.errors import Malformed

Json = dict[str, Any]


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


SERVICE = {"id": "#pair", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": "zmq+tcp://192.0.2.7:5000"}}
ALICE, BOB = (new_peer4(dice(seed), [SERVICE]) for seed in (1, 2))
KINDS: tuple[KeyKind, ...] = ("X25519", "Ed25519", "P-256", "P-384", "P-521", "secp256k1")
KEYS = {kind: public_of(new_secret(kind, dice(number))) for number, kind in enumerate(KINDS)}
VERIFYING = tuple(kind for kind in KINDS if kind != "X25519")


# --- our own --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [new_peer4, new_peer2])
def test_new_did_resolves_to_its_keys(make: Any) -> None:
    mine = make(dice(7), [SERVICE])
    document = resolve(mine.did)
    assert document.agreement == (Method(mine.kid_long, PublicKey("X25519", mine.agreement_public)),)
    assert document.authentication == (Method(mine.kid_signing, PublicKey("Ed25519", mine.signing_public)),)
    [service] = document.services
    assert {"id": service.id, "type": service.type, **service.properties} == SERVICE
    assert document.agreement_key(mine.kid_short).data == mine.agreement_public
    assert mine.signing_seed.hex() not in repr(mine) and repr(mine.agreement_secret) not in repr(mine)


def test_the_two_forms_of_a_did_peer_4_are_one_identity() -> None:
    assert resolve(ALICE.short, {ALICE.short: ALICE.did}) == resolve(ALICE.did)
    assert same_did(ALICE.did, ALICE.short) and same_did(ALICE.short, ALICE.did)
    assert not same_did(ALICE.did, BOB.did) and not same_did(ALICE.short, BOB.short)
    assert len(ALICE.short) == 57


def test_keys_are_found_by_either_form_of_their_did() -> None:
    document = resolve(ALICE.did)
    for kid in (ALICE.kid_long, ALICE.kid_short):
        assert document.agreement_key(kid).data == ALICE.agreement_public
    for kid in (ALICE.kid_signing, ALICE.did, BOB.kid_long, ALICE.short + "#", "#key-2", ALICE.short + "##key-2"):
        with pytest.raises(Malformed):
            document.agreement_key(kid)
    assert document.authentication_key(ALICE.short + "#key-1").data == ALICE.signing_public


def test_long_form_must_match_its_hash() -> None:
    short, long = ALICE.short, ALICE.did
    step = max(1, len(long) // 60)
    wrong = [long[:at] + ("2" if long[at] != "2" else "3") + long[at + 1 :] for at in range(10, len(long), step)]
    wrong += [long[:-1], long + "1", short, short + ":", long.replace(":z", ":u"), short + ":" + BOB.did.split(":")[3]]
    for did in wrong:
        with pytest.raises(Malformed):
            resolve(did)
    for known in ({short: BOB.did}, {short: short}, {short: "did:key:x"}, {}):
        with pytest.raises(Malformed):
            resolve(short, known)


def test_a_did_peer_2_is_written_as_short_as_can_be() -> None:
    """The form of the invitations: signing key, agreement key, service, everything abbreviated that can be."""
    service = {
        "type": "DIDCommMessaging",
        "serviceEndpoint": {"uri": "zmq+tcp://192.0.2.7:5000", "accept": ["didcomm/v2"], "routingKeys": []},
        "serverKey": "AAAA",
    }
    signing, agreement = multikey(KEYS["Ed25519"]), multikey(KEYS["X25519"])
    short = {"t": "dm", "s": {"uri": "zmq+tcp://192.0.2.7:5000", "a": ["didcomm/v2"], "r": []}, "serverKey": "AAAA"}
    did = peer2([KEYS["Ed25519"]], [KEYS["X25519"]], [service])
    assert did == f"did:peer:2.V{signing}.E{agreement}.S{b64url(compact_json(short))}"
    [read] = resolve(did).services
    assert {"type": read.type, **read.properties} == service


def test_a_did_peer_2_holds_keys_of_every_kind() -> None:
    document = resolve(peer2([KEYS[kind] for kind in VERIFYING], [KEYS[kind] for kind in AGREEMENT_KINDS], []))
    assert [method.key.kind for method in document.authentication] == list(VERIFYING)
    assert [method.key.kind for method in document.agreement] == list(AGREEMENT_KINDS)
    kids = [method.kid.rpartition("#")[2] for method in document.authentication + document.agreement]
    assert kids == [f"key-{number}" for number in range(1, 10)]


# --- did:key and did:peer:0 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["did:key:", "did:peer:0"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_did_that_is_a_key(kind: KeyKind, prefix: str) -> None:
    key = KEYS[kind]
    did = prefix + multikey(key)
    document = resolve(did)
    own = Method(f"{did}#{multikey(key)}", key)
    assert document.authentication == ((own,) if kind in VERIFYING else ())
    if kind == "Ed25519":
        twin = ed25519_to_x25519(key)
        assert document.agreement == (Method(f"{did}#{multikey(twin)}", twin),)
    else:
        assert document.agreement == ((own,) if kind in AGREEMENT_KINDS else ())
    if prefix == "did:key:":
        assert did == did_key_of(key)


# --- DID documents of others ----------------------------------------------------------------------------------------


def method(number: int, codec: bytes = X25519, public: bytes | None = None) -> Json:
    public = public_of(new_secret("X25519", dice(number))).data if public is None else public
    return {"id": f"#{number}", "type": "Multikey", "publicKeyMultibase": encoding.multikey(codec, public)}


ONE = public_of(new_secret("X25519", dice(1)))
GOOD: Json = {"verificationMethod": [method(1)], "keyAgreement": ["#1"]}
BASE58_TYPES: dict[KeyKind, str] = {
    "Ed25519": "Ed25519VerificationKey2018",
    "X25519": "X25519KeyAgreementKey2019",
    "secp256k1": "EcdsaSecp256k1VerificationKey2019",
    "P-256": "P256Key2021",
    "P-384": "P384Key2021",
    "P-521": "P521Key2021",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spelling", ["Multikey", "2020", "JsonWebKey2020", "base58"])
@pytest.mark.parametrize("embedded", [True, False])
def test_a_key_is_read_in_every_spelling(kind: KeyKind, spelling: str, embedded: bool) -> None:
    key = KEYS[kind]
    written: Json = {"id": "#k", "controller": "did:example:anybody"}
    if spelling == "JsonWebKey2020":
        written |= {
            "type": spelling,
            "publicKeyJwk": public_jwk(key) | {"kid": "k", "use": "enc" if kind == "X25519" else "sig"},
        }
    elif spelling == "base58":
        written |= {"type": BASE58_TYPES[kind], "publicKeyBase58": base58(key.data)}
    else:
        suite = {"Ed25519": "Ed25519VerificationKey2020", "X25519": "X25519KeyAgreementKey2020"}.get(kind, "Multikey")
        written |= {"type": spelling if spelling == "Multikey" else suite, "publicKeyMultibase": multikey(key)}
    use = "keyAgreement" if kind == "X25519" else "authentication"
    did = peer4(compact_json({use: [written]} if embedded else {"verificationMethod": [written], use: ["#k"]}))
    document = resolve(did)
    [found] = document.agreement if kind == "X25519" else document.authentication
    assert found == Method(did + "#k", key)


@pytest.mark.parametrize(
    ("members", "agreement", "authentication"),
    [({}, 1, 1), ({"use": "enc"}, 1, 0), ({"use": "sig"}, 0, 1), ({"key_ops": ["verify"]}, 0, 1), ({"use": "x"}, 0, 0)],
)
def test_a_jwk_for_another_use_is_ignored(members: Json, agreement: int, authentication: int) -> None:
    jwk = public_jwk(KEYS["P-256"]) | members
    method = {"id": "#1", "type": "JsonWebKey2020", "publicKeyJwk": jwk}
    document = resolve(
        peer4(compact_json({"verificationMethod": [method], "keyAgreement": ["#1"], "authentication": ["#1"]}))
    )
    assert (len(document.agreement), len(document.authentication)) == (agreement, authentication)


@pytest.mark.parametrize(
    "document",
    [
        GOOD,
        GOOD | {"authentication": None, "service": None},
        {"keyAgreement": [method(1)]},
        {"keyAgreement": [method(1), "#1", method(1)]},
        {"verificationMethod": [method(1), method(2, b"\x85\x24", bytes(99))], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [method(1), method(2, b"\x85\x24", bytes(270))], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [method(1), {"id": "#2", "publicKeyJwk": {}}], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [method(1), {"id": "#2", "publicKeyJwk": {"crv": [[]]}}], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [method(1), {"id": "#2", "publicKeyHex": "00"}], "keyAgreement": ["#2", "#1"]},
        {"keyAgreement": [method(1), {"id": "#2", "publicKeyBase58": "x", "type": []}]},
        {"verificationMethod": [method(1), method(2) | {"publicKeyMultibase": "uAAAA"}], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [method(1), method(2, ED25519, KEYS["Ed25519"].data)], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [method(1), method(2) | {"id": "did:key:zX"}], "keyAgreement": ["#1", "did:key:zX"]},
        GOOD | {"keyAgreement": ["did:example:eve#1", "#1"]},
        GOOD | {"id": "did:example:eve", "controller": 1, "alsoKnownAs": {}},
        {"publicKey": [method(1)], "keyAgreement": ["#1"]},
    ],
)
def test_did_documents_of_others_are_read(document: Json) -> None:
    assert [method.key for method in resolve(peer4(compact_json(document))).agreement] == [ONE]


def test_a_document_may_have_no_keys() -> None:
    document = resolve(peer4(b"{}"))
    assert not document.agreement and not document.authentication and not document.services


def test_ids_may_be_absolute() -> None:
    """With the DID in either form; key ids of another DID do not match."""
    for form in (ALICE.did, ALICE.short):
        for reference in ("#1", ALICE.did + "#1", ALICE.short + "#1"):
            tree = {"verificationMethod": [method(1) | {"id": form + "#1"}], "keyAgreement": [reference]}
            assert read_document(ALICE.did, tree).agreement == (Method(ALICE.did + "#1", ONE),)
    tree = {"verificationMethod": [method(1) | {"id": BOB.did + "#1"}], "keyAgreement": [BOB.did + "#1"]}
    document = read_document(ALICE.did, tree)
    assert document.agreement == ()
    for kid in (ALICE.did + "#1", BOB.did + "#1"):
        with pytest.raises(Malformed):
            document.agreement_key(kid)


def test_documents_of_rfc_0067_are_read() -> None:
    did = "did:sov:LjgpST2rjsoxYegQDRm7EL"
    key = {"id": did + "#1", "type": "Ed25519VerificationKey2018", "controller": did}
    tree = {
        "@context": "https://w3id.org/did/v1",
        "id": did,
        "publicKey": [key | {"publicKeyBase58": base58(KEYS["Ed25519"].data)}],
        "authentication": [{"type": "Ed25519SignatureAuthentication2018", "publicKey": did + "#1"}],
        "service": [{"id": did + ";indy", "type": "IndyAgent", "priority": 0, "serviceEndpoint": "http://192.0.2.1/"}],
    }
    document = read_document(did, tree)
    assert document.authentication == (Method(did + "#1", KEYS["Ed25519"]),)
    assert document.services[0].id == did + ";indy"


@pytest.mark.parametrize(
    "document",
    [
        [],
        "document",
        GOOD | {"keyAgreement": ["#2"]},
        GOOD | {"keyAgreement": ["#"]},
        GOOD | {"keyAgreement": ["#1#1"]},
        GOOD | {"keyAgreement": [7]},
        GOOD | {"keyAgreement": [{}]},
        GOOD | {"keyAgreement": "#1"},
        GOOD | {"keyAgreement": {"#1": 1}},
        {"verificationMethod": [method(1), method(1)], "keyAgreement": ["#1"]},
        {"verificationMethod": [method(1)], "publicKey": [method(1)]},
        {"verificationMethod": [method(1)], "keyAgreement": [method(2) | {"id": "#1"}]},
        {"keyAgreement": [method(1)], "authentication": [method(2) | {"id": "#1"}]},
        {"verificationMethod": [method(1) | {"id": 1}], "keyAgreement": ["#1"]},
        {"verificationMethod": [method(1) | {"publicKeyJwk": public_jwk(ONE)}], "keyAgreement": ["#1"]},
        {"verificationMethod": [method(1, public=bytes(32))], "keyAgreement": ["#1"]},
        {"verificationMethod": [method(1, public=bytes(31))], "keyAgreement": ["#1"]},
        {"verificationMethod": [method(1, b"\x80\x24", b"\5" * 33)], "keyAgreement": ["#1"]},
        {"verificationMethod": [method(1, b"\x80\x24", b"\2" + b"\xff" * 32)], "keyAgreement": ["#1"]},
        {"keyAgreement": [{"id": "#1", "publicKeyJwk": public_jwk(KEYS["P-256"]) | {"y": b64url(bytes(32))}}]},
        {"keyAgreement": [{"id": "#1", "publicKeyJwk": public_jwk(ONE) | {"kty": "EC"}}]},
        {"keyAgreement": [{"id": "#1", "type": "X25519KeyAgreementKey2019", "publicKeyBase58": base58(bytes(32))}]},
        {"keyAgreement": [{"id": "#1", "type": "X25519KeyAgreementKey2019", "publicKeyBase58": base58(b"\1" * 33)}]},
        GOOD | {"authentication": [method(2, ED25519, bytes(32))]},
        {"verificationMethod": [method(1) | {"publicKeyMultibase": "zz0"}], "keyAgreement": ["#1"]},
        {"verificationMethod": ["#1"], "keyAgreement": ["#1"]},
        GOOD | {"keyAgreement": ["#1"] * (KEYS_MAX + 1)},
        GOOD | {"service": [SERVICE] * (SERVICES_MAX + 1)},
        GOOD | {"service": [SERVICE | {"type": ["x"] * (SERVICES_MAX + 1)}]},
        GOOD | {"service": [{"id": "#1"}]},
        GOOD | {"service": [{"type": "x"}]},
        GOOD | {"service": [{"id": "#1", "type": [7]}]},
        GOOD | {"service": SERVICE},
        GOOD | {"service": ["x"]},
        GOOD | {"service": [SERVICE | {"padding": "x" * DID_CHARS_MAX}]},
    ],
)
def test_did_documents_that_make_no_sense_are_refused(document: object) -> None:
    with pytest.raises(Malformed):
        resolve(peer4(compact_json(document)))


@pytest.mark.parametrize(
    "text", [b"", b"[", b'{"keyAgreement":[],"keyAgreement":[]}', b"[" * 900, b"\xff", b'{"service":[{"a":1e999}]}']
)
def test_did_documents_that_are_not_strict_json_are_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        resolve(peer4(text))


def test_a_service_of_several_types_counts_as_several() -> None:
    document = resolve(peer4(compact_json({"service": [{"id": "#1", "type": ["LinkedDomains", "DIDComm"], "x": 1}]})))
    assert [(service.id, service.type) for service in document.services] == [("#1", "LinkedDomains"), ("#1", "DIDComm")]


# --- did:peer:2 of others -------------------------------------------------------------------------------------------


def foreign_peer2(*services: object, elements: str = "") -> str:
    agreement, signing = multikey(KEYS["X25519"]), multikey(KEYS["Ed25519"])
    encoded = "".join(".S" + b64url(compact_json(service)) for service in services)
    return f"did:peer:2.V{signing}.E{agreement}{elements}{encoded}"


def test_did_peer_2_accepts_all_key_and_service_forms() -> None:
    endpoint = {"uri": "zmq+tcp://192.0.2.7:5000", "a": ["didcomm/v2"], "r": []}
    listed = [{"t": "dm", "s": endpoint}, {"t": "other", "s": "x", "id": "#own"}]
    document = resolve(foreign_peer2({"t": "dm", "s": endpoint}, listed))
    assert [(service.id, service.type) for service in document.services] == [
        ("#service", "DIDCommMessaging"),
        ("#service-1", "DIDCommMessaging"),
        ("#own", "other"),
    ]
    assert document.services[0].properties["serviceEndpoint"] == {
        "uri": endpoint["uri"],
        "accept": ["didcomm/v2"],
        "routingKeys": [],
    }
    text = multikey(KEYS["X25519"])
    for fragment in ("key-2", text, text[1:], text[1:9], text[1:10]):
        assert document.agreement_key(f"{document.did}#{fragment}") == KEYS["X25519"]
    for fragment in ("", "key-1", "key-3", text[:8], "6LS"):
        with pytest.raises(Malformed):
            document.agreement_key(f"{document.did}#{fragment}")


def test_did_peer_2_counts_the_keys_that_it_cannot_use() -> None:
    unknown = encoding.multikey(b"\x85\x24", bytes(270))
    document = resolve(f"did:peer:2.E{unknown}.V{unknown}.I{unknown}.E{multikey(KEYS['P-384'])}")
    assert document.agreement == (Method(document.did + "#key-4", KEYS["P-384"]),)
    assert document.authentication == ()


@pytest.mark.parametrize(
    "did",
    [
        "did:peer:2",
        "did:peer:2.",
        foreign_peer2(elements="."),
        foreign_peer2(elements=".X123"),
        foreign_peer2(elements=".Szzz"),
        foreign_peer2(elements=".S" + b64url(b"[]") + "=="),
        foreign_peer2(elements=".E" + encoding.multikey(X25519, bytes(32))),
        foreign_peer2(elements=".V" + encoding.multikey(ED25519, bytes(32))),
        foreign_peer2(elements=".A" + multikey(KEYS["Ed25519"]) + "0"),
        foreign_peer2(elements=".E" + "u" + b64url(X25519 + KEYS["X25519"].data)),
        foreign_peer2(elements=".A" + "m" + multikey(KEYS["Ed25519"])[1:]),
        foreign_peer2(elements=".E" + multikey(KEYS["Ed25519"])),
        foreign_peer2(elements=".E" + multikey(KEYS["secp256k1"])),
        foreign_peer2(elements=".V" + multikey(KEYS["X25519"])),
        foreign_peer2(elements=".E" + encoding.multikey(b"\x80\x26", KEYS["X25519"].data)),
        foreign_peer2(elements=".V" + encoding.multikey(b"\x12\x20", KEYS["Ed25519"].data)),
        foreign_peer2(elements=".E" + encoding.multikey(X25519, KEYS["X25519"].data[:31])),
        foreign_peer2(elements=".V" + encoding.multikey(ED25519, KEYS["Ed25519"].data[:31])),
        foreign_peer2(elements=".I" + encoding.multikey(b"\x80\x24", KEYS["P-256"].data[:32])),
        foreign_peer2(elements=".E"),
        foreign_peer2(elements=(".I" + multikey(KEYS["Ed25519"])) * (KEYS_MAX + 1)),
        foreign_peer2(*[{"t": "dm", "s": "x"}] * (SERVICES_MAX + 1)),
        foreign_peer2({"s": "no type"}),
        foreign_peer2({"t": 1}),
        foreign_peer2({"t": "dm", "type": "dm"}),
        foreign_peer2("text"),
        foreign_peer2(["text"]),
        foreign_peer2(elements=".S" + b64url(b'{"t":"dm","t":"dm"}')),
        "did:peer:0",
        "did:peer:0" + multikey(KEYS["Ed25519"])[:-1],
        "did:key:" + multikey(KEYS["P-521"])[:-1],
        "did:key:" + encoding.multikey(X25519, bytes(32)),
        "did:key:" + encoding.multikey(ED25519, bytes(32)),
        "did:key:" + encoding.multikey(b"\x80\x24", b"\2" + b"\xff" * 32),
        "did:key:" + encoding.multikey(b"\x85\x24", bytes(270)),
        "did:key:u" + b64url(ED25519 + KEYS["Ed25519"].data),
        "did:web:example.org",
        "did:peer:3zQmS19jtYDvGtKVrJhQnRFpBQAx3pJ9omx2HpNrcXFuRCz9",
        "did:key:é",
        "did:peer:4\udc80",
        "",
        "did:key:z" + "1" * 5000,
        "did:peer:4z" + "1" * 9000,
    ],
)
def test_dids_that_make_no_sense_are_refused(did: str) -> None:
    with pytest.raises(Malformed):
        resolve(did)


def test_invalid_dids_are_refused_with_the_reason() -> None:
    long = peer4(compact_json(GOOD | {"padding": "x" * DID_CHARS_MAX}))
    for did in (long, "did:example:" + "x" * DID_CHARS_MAX, "did:example:é"):
        for look_at in (resolve, short_form):
            with pytest.raises(Malformed, match="too long, or not ASCII"):
                look_at(did)
    with pytest.raises(Malformed, match="unknown long form"):
        resolve(ALICE.short)
    encoded = "z" + base58(b"\x81\x04" + compact_json(GOOD))
    other = f"did:peer:4z{base58(SHA2_256 + sha256(encoded.encode()))}:{encoded}"
    assert same_did(other, other.rpartition(":")[0])
    with pytest.raises(Malformed, match="is not JSON"):
        resolve(other)


PREFIXES = ["did:key:z6Mk", "did:key:zDn", "did:peer:0z6LS", "did:peer:2.E", "did:peer:2.S", "did:peer:4zQm", ""]


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(PREFIXES))
def test_any_text_is_a_did_or_malformed(text: str, prefix: str) -> None:
    for look_at in (resolve, short_form):
        try:
            look_at(prefix + text)
        except Malformed:
            continue


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["#1", "#2", "did:a#1", multikey(ONE), "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "type", "publicKeyMultibase", "publicKeyJwk", "publicKeyBase58", "crv", "kty", "x", "publicKey"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["verificationMethod", "publicKey", "keyAgreement", "authentication", "service"]), JSON_VALUES
    )
)
def test_any_json_is_a_document_or_malformed(tree: Json) -> None:
    try:
        document = read_document("did:a", tree)
    except Malformed:
        return
    for found in document.agreement:
        assert document.agreement_key(found.kid) == found.key


def test_a_did_key_can_be_written_to() -> None:
    did = did_key(BOB.signing_public)
    document = resolve(did)
    assert document.authentication == (Method(f"{did}#{did[8:]}", PublicKey("Ed25519", BOB.signing_public)),)
    assert document.agreement[0].kid.startswith(did + "#z6LS")


def test_large_documents_are_kept_in_smaller_number() -> None:
    """So that hostile peers cannot make the agent large, neither with many documents nor with large ones."""
    common = resolver._common.cache_info().currsize
    padding = "x" * 1500
    for number in range(resolver.LARGE_DOCUMENTS_CACHED + 1):
        resolve(peer4(compact_json(GOOD | {"padding": padding, "number": number})))
    assert resolver._large.cache_info().currsize == resolver.LARGE_DOCUMENTS_CACHED
    assert resolver._common.cache_info().currsize == common
    assert resolver._common.cache_info().maxsize == resolver.DOCUMENTS_CACHED
