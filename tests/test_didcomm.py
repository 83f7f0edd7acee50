"""DIDs, messages, rotation, and one contract that every packer must keep."""

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as xchacha_encrypt

from zerochat.crypto.encoding import ED25519, SHA2_256, X25519, b64url, base58, compact_json, did_key, multikey
from zerochat.crypto.primitives import (
    cbc_hs512_seal,
    ed25519_public,
    ed25519_sign,
    key_wrap,
    sha256,
    x25519_once,
    x25519_public,
)
from zerochat.didcomm.did import (
    DID_CHARS_MAX,
    KEYS_MAX,
    SERVICES_MAX,
    Identity,
    new_peer4,
    peer4,
    resolve,
    same_did,
    short_form,
)
from zerochat.didcomm.jwe import RECIPIENTS_MAX, JwePacker, concat_kdf, other_info
from zerochat.didcomm.message import (
    ATTACHMENTS_MAX,
    MESSAGE_BYTES_MAX,
    TO_MAX,
    Attachment,
    Message,
    dump,
    new_id,
    parse,
    same_type,
)
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, PACKERS, Packer, Unpacked, check_addressing
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.errors import Malformed, RemoteError, Unauthentic

REFUSED = (Malformed, Unauthentic)
BODY = b'{"text":"See you at eight?"}'


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


SERVICE = {"id": "#pair", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": "zmq+tcp://192.0.2.7:5000"}}
ALICE, BOB, CAROL = (new_peer4(dice(seed), [SERVICE]) for seed in (1, 2, 3))
EVERYBODY = {person.kid_short: person for person in (ALICE, BOB, CAROL)}


def no_secret(kid: str) -> bytes | None:
    return None


def secrets(*people: Identity) -> Callable[[str], bytes | None]:
    return {person.kid_short: person.agreement_secret for person in people}.get


def public_of(kid: str) -> bytes:
    if kid not in EVERYBODY:
        raise Unauthentic()
    return EVERYBODY[kid].agreement_public


# --- the packers' contract ------------------------------------------------------------------------------------------


REAL = {name: packer for name, packer in PACKERS.items() if not name.startswith("simulated/")}


@pytest.fixture(params=sorted(REAL))
def packer(request: pytest.FixtureRequest) -> Packer:
    return REAL[request.param]


@dataclass(frozen=True)
class Seal:
    """One way of sealing for Bob."""

    packer: Packer
    kind: str

    def __call__(self, plain: bytes = BODY, sender: Identity = ALICE, seed: int = 0) -> bytes:
        to: dict[str, Any] = {"recipient_kid": BOB.kid_short, "recipient_public": BOB.agreement_public}
        if self.kind == "anoncrypt":
            return self.packer.anoncrypt(plain, **to, random=dice(seed))
        secret = sender.agreement_secret
        return self.packer.authcrypt(plain, sender_kid=sender.kid_short, sender_secret=secret, **to, random=dice(seed))

    def open(self, envelope: bytes) -> Unpacked:
        return self.packer.unpack(envelope, secret_of=secrets(BOB), public_of=public_of)


@pytest.fixture(params=["authcrypt", "anoncrypt"])
def seal(packer: Packer, request: pytest.FixtureRequest) -> Seal:
    return Seal(packer, request.param)


def test_what_is_sealed_comes_back_with_its_sender(seal: Seal) -> None:
    for size in (0, 1, 15, 16, 17, 100, 1000, MESSAGE_BYTES_MAX):
        plain = dice(size)(size)
        unpacked = seal.open(seal(plain, seed=size))
        assert unpacked.plain == plain
        assert unpacked.kind == seal.kind
        assert unpacked.sender_kid == (ALICE.kid_short if seal.kind == "authcrypt" else None)
        assert unpacked.recipient_kid == BOB.kid_short
        assert "plain" not in repr(unpacked)


def test_the_same_dice_seal_the_same_and_others_never_do(seal: Seal) -> None:
    assert seal(seed=1) == seal(seed=1)
    one, two = (json.loads(seal(seed=seed)) for seed in (1, 2))
    assert all(one[part] != two[part] for part in ("iv", "ciphertext", "tag", "protected"))


def test_a_sealed_text_does_not_show(seal: Seal) -> None:
    envelope = seal()
    assert BODY not in envelope
    assert b64url(BODY)[:20].encode() not in envelope
    if seal.kind == "anoncrypt":
        assert ALICE.short.encode() not in envelope
        assert b64url(ALICE.kid_short.encode()).encode()[:40] not in envelope


def test_every_flipped_byte_is_refused(seal: Seal) -> None:
    envelope = seal()
    for at in range(len(envelope)):
        for mask in (0x01, 0x02, 0x20, 0x80):
            with pytest.raises(REFUSED):
                seal.open(envelope[:at] + bytes([envelope[at] ^ mask]) + envelope[at + 1 :])


def test_every_cut_and_every_surplus_is_refused(seal: Seal) -> None:
    envelope = seal()
    for size in range(len(envelope)):
        with pytest.raises(Malformed):
            seal.open(envelope[:size])
    for surplus in (b"}", b"\0", b"{}", envelope):
        with pytest.raises(Malformed):
            seal.open(envelope + surplus)


def test_only_the_recipient_opens(seal: Seal) -> None:
    envelope, packer = seal(), seal.packer
    tries: list[Callable[[str], bytes | None]] = [no_secret, secrets(ALICE, CAROL), lambda _: CAROL.agreement_secret]
    for secret_of in tries:
        with pytest.raises(Unauthentic):
            packer.unpack(envelope, secret_of=secret_of, public_of=public_of)


def test_only_the_sender_passes_for_the_sender(packer: Packer) -> None:
    seal = Seal(packer, "authcrypt")
    forged = replace(CAROL, did=ALICE.did)
    assert forged.kid_short == ALICE.kid_short
    with pytest.raises(Unauthentic):
        seal.open(seal(sender=forged))
    with pytest.raises(Unauthentic):
        packer.unpack(seal(), secret_of=secrets(BOB), public_of=lambda _: CAROL.agreement_public)


def test_a_sender_nobody_knows_is_the_callers_to_refuse(packer: Packer) -> None:
    def unknown(kid: str) -> bytes:
        raise Malformed(why="who is " + kid)

    with pytest.raises(Malformed, match="who is did:peer:4"):
        packer.unpack(Seal(packer, "authcrypt")(), secret_of=secrets(BOB), public_of=unknown)


def test_low_order_keys_are_refused_on_both_sides(packer: Packer) -> None:
    with pytest.raises(Unauthentic):
        packer.anoncrypt(BODY, recipient_kid=BOB.kid_short, recipient_public=bytes(32), random=dice(0))
    with pytest.raises(Unauthentic):
        packer.unpack(Seal(packer, "authcrypt")(), secret_of=secrets(BOB), public_of=lambda _: bytes(32))


def test_too_much_is_refused_on_both_sides(seal: Seal) -> None:
    with pytest.raises(Malformed, match="more than"):
        seal(bytes(MESSAGE_BYTES_MAX + 1))
    envelope = seal()
    padded = envelope[:-1] + b" " * (ENVELOPE_BYTES_MAX - len(envelope)) + b"}"
    assert len(padded) == ENVELOPE_BYTES_MAX
    assert seal.open(padded).plain == BODY
    with pytest.raises(Malformed, match="more than"):
        seal.open(padded[:-1] + b" }")


@settings(max_examples=200, deadline=None)
@given(noise=st.binary(max_size=200) | st.recursive(st.none() | st.text(max_size=5), st.lists).map(compact_json))
def test_noise_is_malformed(noise: bytes) -> None:
    for packer in REAL.values():
        with pytest.raises(Malformed):
            packer.unpack(noise, secret_of=secrets(BOB), public_of=public_of)


# --- JWE: what other people write -----------------------------------------------------------------------------------

Json = dict[str, Any]
BOB_2 = "did:example:bob#2"
BOB_1 = "did:example:bob#1"
BOB_SECRETS = {BOB_1: dice(11)(32), BOB_2: dice(12)(32)}
EPHEMERAL = dice(13)(32)
EPK = {"kty": "OKP", "crv": "X25519", "x": b64url(x25519_public(EPHEMERAL))}
SIZES = {"A256CBC-HS512": (64, 16), "A256GCM": (32, 12), "XC20P": (32, 24)}
ALICE_KID = ALICE.kid_short


def content(enc: str, key: bytes, iv: bytes, plain: bytes, aad: bytes) -> tuple[bytes, bytes]:
    if enc == "A256CBC-HS512":
        return cbc_hs512_seal(key, iv, plain, aad)
    sealed = AESGCM(key).encrypt(iv, plain, aad) if enc == "A256GCM" else xchacha_encrypt(plain, aad, iv, key)
    return sealed[:-16], sealed[-16:]


@dataclass
class Foreign:
    """An envelope to Bob by somebody who follows the RFCs in their own way, or breaks them but encrypts correctly."""

    alg: str = "ECDH-1PU+A256KW"
    enc: str = "A256CBC-HS512"
    kids: tuple[str, ...] = (BOB_1,)
    extra: Json | None = None
    """Changes to the protected header; None removes."""
    keep_null: bool = False
    outer: Json | None = None
    per_recipient: Json | None = None
    epk: bool = True
    aad: str | None = None
    flat: bool = False
    apu: bytes = ALICE_KID.encode()
    extra_text: str = ""
    """Text put at the end of the protected header's object."""
    plain: bytes = field(default=BODY, repr=False)

    def envelope(self) -> bytes:
        apv = sha256(".".join(sorted(self.kids)).encode())
        header: Json = {"alg": self.alg, "enc": self.enc, "apv": b64url(apv)}
        if self.epk:
            header["epk"] = EPK
        if self.alg == "ECDH-1PU+A256KW":
            header |= {"skid": self.apu.decode(), "apu": b64url(self.apu)}
        header |= self.extra or {}
        if not self.keep_null:
            header = {name: value for name, value in header.items() if value is not None}
        protected = b64url((json.dumps(header)[:-1] + self.extra_text + "}").encode())
        key_size, iv_size = SIZES[self.enc]
        key, iv = dice(14)(key_size), dice(15)(iv_size)
        aad = protected.encode() + (b"" if self.aad is None else b"." + self.aad.encode())
        ciphertext, tag = content(self.enc, key, iv, self.plain, aad)
        recipients = []
        for kid in self.kids:
            public = x25519_public(BOB_SECRETS.get(kid, BOB_SECRETS[BOB_1]))
            secret = x25519_once(EPHEMERAL, public)
            info = other_info(self.alg, self.apu if "1PU" in self.alg else b"", apv)
            if "1PU" in self.alg:
                kek = concat_kdf(secret + x25519_once(ALICE.agreement_secret, public), info, tag)
            else:
                kek = concat_kdf(secret, info)
            entry = {"header": {"kid": kid} | (self.per_recipient or {}), "encrypted_key": b64url(key_wrap(kek, key))}
            recipients.append(entry)
        tree: Json = {"protected": protected, "iv": b64url(iv), "ciphertext": b64url(ciphertext), "tag": b64url(tag)}
        tree |= recipients[0] if self.flat else {"recipients": recipients}
        if self.aad is not None:
            tree["aad"] = self.aad
        return json.dumps(tree | (self.outer or {})).encode()


def open_foreign(envelope: bytes, kid: str = BOB_1) -> Unpacked:
    return JwePacker().unpack(envelope, secret_of={kid: BOB_SECRETS[kid]}.get, public_of=public_of)


ES: Json = {"alg": "ECDH-ES+A256KW"}


@pytest.mark.parametrize(
    "foreign",
    [
        Foreign(),
        Foreign(**ES),
        Foreign(**ES, enc="A256GCM"),
        Foreign(**ES, enc="XC20P"),
        Foreign(kids=(BOB_2, BOB_1)),
        Foreign(**ES, kids=(BOB_2, BOB_1)),
        Foreign(kids=(BOB_1, *(f"did:example:bob#x{n}" for n in range(RECIPIENTS_MAX - 1)))),
        Foreign(epk=False, per_recipient={"epk": EPK}),
        Foreign(epk=False, per_recipient={"epk": EPK}, extra={"epk": None}, keep_null=True),
        Foreign(flat=True),
        Foreign(aad="QUJD"),
        Foreign(extra={"skid": None}),
        Foreign(**ES, extra={"apu": None, "skid": None, "zip": None}, keep_null=True),
        Foreign(outer={"unprotected": None, "header": None, "aad": None, "comment": "unknown members are ignored"}),
        Foreign(extra={"typ": "application/didcomm-encrypted+json", "later": {"alg": "none"}}),
        Foreign(extra={"typ": "didcomm-encrypted+json"}),
        Foreign(extra={"typ": "application/didcomm+encrypted"}),
    ],
    ids=str,
)
def test_jwe_reads_what_others_write(foreign: Foreign) -> None:
    unpacked = open_foreign(foreign.envelope())
    assert unpacked.plain == BODY
    assert unpacked.sender_kid == (ALICE_KID if "1PU" in foreign.alg else None)
    assert unpacked.recipient_kid == BOB_1
    if BOB_2 in foreign.kids:
        assert open_foreign(foreign.envelope(), BOB_2).plain == BODY


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (Foreign(enc="A256GCM"), "not supported"),
        (Foreign(enc="XC20P"), "not supported"),
        (Foreign(extra={"alg": "ECDH-1PU+A128KW"}), "not supported"),
        (Foreign(extra={"alg": "none"}), "not supported"),
        (Foreign(extra={"alg": None}), "no alg"),
        (Foreign(extra={"enc": ["A256CBC-HS512"]}), "no enc"),
        (Foreign(extra={"typ": "application/didcomm-plain+json"}), "not supported"),
        (Foreign(extra={"typ": "JWM/1.0"}), "not supported"),
        (Foreign(extra={"zip": "DEF"}), "not supported"),
        (Foreign(extra={"crit": ["exp"]}), "not supported"),
        (Foreign(extra={"skid": CAROL.kid_short}), "two senders"),
        (Foreign(extra={"apu": None}), "no apu"),
        (Foreign(extra={"apu": b64url(b"\xff")}), "apu is not a key id"),
        (Foreign(extra={"apu": b64url(ALICE_KID.encode()) + "===="}), "base64url"),
        (Foreign(**ES, extra={"skid": ALICE_KID}), "names its sender"),
        (Foreign(extra={"apv": None}), "no apv"),
        (Foreign(extra={"apv": b64url(sha256(BOB_2.encode()))}), "apv does not name"),
        (Foreign(extra={"apv": b64url(BOB_1.encode())}), "apv does not name"),
        (Foreign(epk=False), "exactly one ephemeral"),
        (Foreign(per_recipient={"epk": EPK}), "exactly one ephemeral"),
        (Foreign(extra={"epk": EPK | {"crv": "P-256"}}), "type that is not supported"),
        (Foreign(extra={"epk": EPK | {"kty": "EC"}}), "type that is not supported"),
        (Foreign(extra={"epk": EPK | {"d": EPK["x"]}}), "type that is not supported"),
        (Foreign(extra={"epk": EPK | {"x": EPK["x"][:-4] + "A"}}), "wrong length"),
        (Foreign(extra={"epk": EPK["x"]}), "not an object"),
        (Foreign(extra_text=',"enc":"A256CBC-HS512"'), "strict JSON"),
        (Foreign(extra_text=',"x":' + "[" * 64 + "]" * 64), "nested"),
        (Foreign(kids=(BOB_1, BOB_1)), "recipient twice"),
        (Foreign(kids=(BOB_1, "did:example:carol#1")), "several DIDs"),
        (Foreign(kids=(BOB_1, *(f"did:example:bob#x{n}" for n in range(RECIPIENTS_MAX)))), "too many"),
        (Foreign(per_recipient={"alg": "ECDH-1PU+A256KW"}), "headers of its own"),
        (Foreign(per_recipient={"kid": None}), "no kid"),
        (Foreign(outer={"recipients": []}), "no recipients"),
        (Foreign(outer={"recipients": [[]]}), "not an object"),
        (Foreign(outer={"recipients": "x"}), "no recipients"),
        (Foreign(outer={"encrypted_key": "AAAA"}), "at once"),
        (Foreign(outer={"unprotected": {"alg": "ECDH-1PU+A256KW"}}), "nothing protects"),
        (Foreign(outer={"iv": b64url(bytes(15))}), "wrong length"),
        (Foreign(outer={"tag": b64url(bytes(16))}), "wrong length"),
        (Foreign(outer={"tag": None}), "no tag"),
        (Foreign(outer={"ciphertext": "AAA+"}), "base64url"),
        (Foreign(outer={"ciphertext": 7}), "no ciphertext"),
        (
            Foreign(outer={"recipients": [{"header": {"kid": BOB_1}, "encrypted_key": b64url(bytes(64))}]}),
            "wrapped key",
        ),
        (Foreign(aad="QUJ"), "base64url"),
        (Foreign(plain=bytes(MESSAGE_BYTES_MAX + 1)), "more than 262144 bytes"),
    ],
    ids=str,
)
def test_jwe_refuses_what_is_encrypted_correctly_but_can_be_read_in_two_ways(foreign: Foreign, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        open_foreign(foreign.envelope())


def test_jwe_refuses_members_twice() -> None:
    envelope = Foreign().envelope()
    for member in (b'"iv": "AAAA"', b'"protected": "e30"', b'"recipients": []', b'"\\u0069v": "AAAA"'):
        with pytest.raises(Malformed, match="strict JSON"):
            open_foreign(envelope[:-1] + b"," + member + b"}")


def test_jwe_refuses_base64_that_is_not_canonical() -> None:
    tree = json.loads(Foreign().envelope())
    last = {"A": "B", "Q": "R", "g": "h", "w": "x"}
    changed = 0
    for name in ("protected", "iv", "ciphertext", "tag"):
        value = tree[name]
        variants = [value + "\n", value[:5] + " " + value[5:], value + "!", value + "===="]
        if len(value) % 4 == 2:
            variants.append(value[:-1] + last[value[-1]])
            changed += 1
        for variant in variants:
            with pytest.raises(Malformed):
                open_foreign(json.dumps(tree | {name: variant}).encode())
    assert changed


def test_jwe_tells_nobody_which_step_failed() -> None:
    """A wrong wrapped key, a wrong tag, a wrong IV and a key that is not ours look alike to the sender."""
    tree = json.loads(Foreign().envelope())
    seen = set()
    for name in ("iv", "ciphertext", "tag"):
        flipped = ("B" if tree[name][0] == "A" else "A") + tree[name][1:]
        with pytest.raises(Unauthentic) as caught:
            open_foreign(json.dumps(tree | {name: flipped}).encode())
        seen.add(str(caught.value))
    tree["recipients"][0]["encrypted_key"] = b64url(bytes(72))
    with pytest.raises(Unauthentic) as caught:
        open_foreign(json.dumps(tree).encode())
    seen.add(str(caught.value))
    with pytest.raises(Unauthentic) as caught:
        JwePacker().unpack(Foreign().envelope(), secret_of=no_secret, public_of=public_of)
    seen.add(str(caught.value))
    assert len(seen) == 1


def test_jwe_of_ours_is_written_as_the_specification_has_it() -> None:
    tree = json.loads(Seal(PACKERS["didcomm/v2"], "authcrypt")())
    assert list(tree) == ["protected", "recipients", "iv", "ciphertext", "tag"]
    [recipient] = tree["recipients"]
    assert recipient["header"] == {"kid": BOB.kid_short}
    header = json.loads(base64.urlsafe_b64decode(tree["protected"] + "=="))
    assert header.pop("epk").keys() == {"kty", "crv", "x"}
    assert header == {
        "typ": "application/didcomm-encrypted+json",
        "alg": "ECDH-1PU+A256KW",
        "enc": "A256CBC-HS512",
        "skid": ALICE.kid_short,
        "apu": b64url(ALICE.kid_short.encode()),
        "apv": b64url(sha256(BOB.kid_short.encode())),
    }


def test_from_must_be_the_did_whose_key_encrypted() -> None:
    message = Message("https://example.org/chat/1.0/post", "1")
    by_alice = Unpacked(b"", "authcrypt", ALICE.kid_short, BOB.kid_short)
    for sender in (ALICE.did, ALICE.short):
        check_addressing(replace(message, from_=sender), by_alice)
        check_addressing(replace(message, from_=sender), replace(by_alice, sender_kid=ALICE.kid_long))
    for other in (None, BOB.did, ALICE.short[:-1], "did:example:alice"):
        with pytest.raises(Unauthentic):
            check_addressing(replace(message, from_=other), by_alice)
    with pytest.raises(Malformed):
        check_addressing(replace(message, from_=ALICE.short + ":" + BOB.did.partition(":z")[2]), by_alice)
    check_addressing(message, Unpacked(b"", "anoncrypt", None, BOB.kid_short))


# --- DIDs -----------------------------------------------------------------------------------------------------------


def test_a_new_did_says_what_its_maker_knows() -> None:
    document = resolve(ALICE.did)
    assert document.agreement == ((ALICE.kid_long, ALICE.agreement_public),)
    assert document.authentication == ((ALICE.kid_signing, ALICE.signing_public),)
    [service] = document.services
    assert {"id": service.id, "type": service.type, **service.properties} == SERVICE
    assert resolve(ALICE.short, {ALICE.short: ALICE.did}) == document
    assert same_did(ALICE.did, ALICE.short) and same_did(ALICE.short, ALICE.did)
    assert not same_did(ALICE.did, BOB.did) and not same_did(ALICE.short, BOB.short)
    assert len(ALICE.short) == 57
    assert ALICE.signing_seed.hex() not in repr(ALICE) and repr(ALICE.agreement_secret) not in repr(ALICE)


def test_keys_are_found_by_either_form_of_their_did() -> None:
    document = resolve(ALICE.did)
    for kid in (ALICE.kid_long, ALICE.kid_short):
        assert document.agreement_key(kid) == ALICE.agreement_public
    for kid in (ALICE.kid_signing, ALICE.did, BOB.kid_long, ALICE.short + "#", "#key-2"):
        with pytest.raises(Malformed):
            document.agreement_key(kid)
    assert document.authentication_key(ALICE.short + "#key-1") == ALICE.signing_public


def test_a_long_form_holds_only_what_its_hash_says() -> None:
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


def key(number: int, codec: bytes = X25519, public: bytes | None = None) -> Json:
    public = x25519_public(dice(number)(32)) if public is None else public
    return {"id": f"#{number}", "type": "Multikey", "publicKeyMultibase": multikey(codec, public)}


GOOD: Json = {"verificationMethod": [key(1)], "keyAgreement": ["#1"]}


@pytest.mark.parametrize(
    "document",
    [
        GOOD,
        GOOD | {"authentication": None, "service": None},
        {"keyAgreement": [key(1)]},
        {"verificationMethod": [key(1), key(2, b"\x80\x24", bytes(33))], "keyAgreement": ["#2", "#1"]},
        {"verificationMethod": [key(1), {"id": "#2", "publicKeyJwk": {}}], "keyAgreement": ["#2", "#1"]},
    ],
)
def test_did_documents_of_others_are_read(document: Json) -> None:
    assert [public for _, public in resolve(peer4(compact_json(document))).agreement] == [x25519_public(dice(1)(32))]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        "document",
        {"verificationMethod": [key(1)]},
        GOOD | {"keyAgreement": ["#2"]},
        GOOD | {"keyAgreement": [7]},
        GOOD | {"keyAgreement": "#1"},
        GOOD | {"keyAgreement": {"#1": 1}},
        {"verificationMethod": [key(1, ED25519, ed25519_public(dice(1)(32)))], "keyAgreement": ["#1"]},
        {"verificationMethod": [key(1), key(1)], "keyAgreement": ["#1"]},
        {"verificationMethod": [key(1) | {"id": "did:example:eve#1"}], "keyAgreement": ["did:example:eve#1"]},
        {"verificationMethod": [key(1) | {"id": 1}], "keyAgreement": ["#1"]},
        {"verificationMethod": [key(1, public=bytes(32))], "keyAgreement": ["#1"]},
        {"verificationMethod": [key(1, public=bytes(31))], "keyAgreement": ["#1"]},
        GOOD | {"authentication": [key(2, ED25519, bytes(32))]},
        {"verificationMethod": [key(1) | {"publicKeyMultibase": "zz0"}], "keyAgreement": ["#1"]},
        {"verificationMethod": ["#1"], "keyAgreement": ["#1"]},
        GOOD | {"keyAgreement": ["#1"] * (KEYS_MAX + 1)},
        GOOD | {"service": [SERVICE] * (SERVICES_MAX + 1)},
        GOOD | {"service": [{"id": "#1"}]},
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


def peer2(*services: object, elements: str = "") -> str:
    agreement = multikey(X25519, BOB.agreement_public)
    signing = multikey(ED25519, BOB.signing_public)
    encoded = "".join(".S" + b64url(compact_json(service)) for service in services)
    return f"did:peer:2.V{signing}.E{agreement}{elements}{encoded}"


def test_did_peer_2_is_read_with_every_way_of_naming_keys_and_services() -> None:
    endpoint = {"uri": "zmq+tcp://192.0.2.7:5000", "a": ["didcomm/v2"], "r": []}
    listed = [{"t": "dm", "s": endpoint}, {"t": "other", "s": "x", "id": "#own"}]
    document = resolve(peer2({"t": "dm", "s": endpoint}, listed))
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
    text = multikey(X25519, BOB.agreement_public)
    for fragment in ("key-2", text, text[1:], text[1:9], text[1:10]):
        assert document.agreement_key(f"{document.did}#{fragment}") == BOB.agreement_public
    for fragment in ("", "key-1", "key-3", text[:8], "6LS"):
        with pytest.raises(Malformed):
            document.agreement_key(f"{document.did}#{fragment}")


@pytest.mark.parametrize(
    "did",
    [
        "did:peer:2",
        "did:peer:2.",
        peer2()[:-1],
        peer2(elements="."),
        peer2(elements=".X123"),
        peer2(elements=".Szzz"),
        peer2(elements=".S" + b64url(b"[]") + "=="),
        peer2(elements=".E" + multikey(X25519, bytes(32))),
        peer2(elements=".V" + multikey(ED25519, bytes(32))),
        peer2(elements=".A" + multikey(ED25519, BOB.signing_public) + "0"),
        peer2(elements=(".I" + multikey(ED25519, BOB.signing_public)) * (KEYS_MAX + 1)),
        peer2(*[{"t": "dm", "s": "x"}] * (SERVICES_MAX + 1)),
        peer2({"s": "no type"}),
        peer2({"t": 1}),
        peer2({"t": "dm", "type": "dm"}),
        peer2("text"),
        peer2(["text"]),
        peer2(elements=".S" + b64url(b'{"t":"dm","t":"dm"}')),
        "did:peer:2.V" + multikey(ED25519, BOB.signing_public),
        "did:peer:0" + multikey(ED25519, BOB.signing_public),
        "did:key:" + multikey(X25519, bytes(32)),
        "did:key:" + multikey(ED25519, bytes(32)),
        "did:web:example.org",
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


def test_what_is_wrong_with_a_did_is_said() -> None:
    long = peer4(compact_json(GOOD | {"padding": "x" * DID_CHARS_MAX}))
    for did in (long, "did:example:" + "x" * DID_CHARS_MAX, "did:example:é"):
        for look_at in (resolve, short_form):
            with pytest.raises(Malformed, match="too long, or not ASCII"):
                look_at(did)
    with pytest.raises(Malformed, match="long form is not known"):
        resolve(ALICE.short)
    encoded = "z" + base58(b"\x81\x04" + compact_json(GOOD))
    other = f"did:peer:4z{base58(SHA2_256 + sha256(encoded.encode()))}:{encoded}"
    assert same_did(other, other.rpartition(":")[0])
    with pytest.raises(Malformed, match="does not hold JSON"):
        resolve(other)


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(["did:key:z6Mk", "did:peer:2.E", "did:peer:2.S", "did:peer:4zQm", ""]))
def test_any_text_is_a_did_or_malformed(text: str, prefix: str) -> None:
    for look_at in (resolve, short_form):
        try:
            look_at(prefix + text)
        except Malformed:
            continue


def test_a_did_key_can_be_written_to() -> None:
    did = did_key(BOB.signing_public)
    document = resolve(did)
    assert document.authentication == ((f"{did}#{did[8:]}", BOB.signing_public),)
    assert document.agreement[0][0].startswith(did + "#z6LS")


# --- messages -------------------------------------------------------------------------------------------------------

identifiers = st.text(st.sampled_from("abcXYZ019-._~"), min_size=1, max_size=40)
people = st.sampled_from([ALICE.did, ALICE.short, "did:example:123", "did:key:z6Mk"])
bodies = st.dictionaries(
    st.text(max_size=5), st.text(max_size=20) | st.integers() | st.none() | st.booleans(), max_size=4
)
times = st.none() | st.integers(0, 2**53 - 1)
attachments = st.builds(
    Attachment,
    id=st.none() | st.text(max_size=9),
    media_type=st.none() | st.just("text/plain"),
    filename=st.none() | st.text(max_size=9),
    json=st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    links=st.just(()) | st.just(("https://example.org/",)),
    hash=st.just("zQm"),
)
messages = st.builds(
    Message,
    type=st.just("https://example.org/chat/1.0/post"),
    id=identifiers,
    body=bodies,
    from_=st.none() | people,
    to=st.lists(people, max_size=3).map(tuple),
    thid=st.none() | identifiers,
    pthid=st.none() | identifiers,
    created_time=times,
    expires_time=times,
    from_prior=st.none() | st.just("a.b.c"),
    attachments=st.lists(attachments, max_size=3).map(tuple),
)


@settings(deadline=None)
@given(messages)
def test_every_message_comes_back(message: Message) -> None:
    assert parse(dump(message)) == message
    assert json.loads(dump(message))["typ"] == "application/didcomm-plain+json"


def plain(**changes: Any) -> bytes:
    tree = {"id": "1", "type": "https://example.org/chat/1.0/post", "body": {}} | changes
    return json.dumps({name: value for name, value in tree.items() if value is not ...}).encode()


def test_null_counts_as_absent_and_unknown_headers_do_not_matter() -> None:
    bare = parse(plain(body=...))
    assert bare == Message("https://example.org/chat/1.0/post", "1")
    names = ("typ", "body", "from", "to", "thid", "pthid", "created_time", "expires_time", "from_prior", "attachments")
    assert parse(plain(**dict.fromkeys(names))) == bare
    assert parse(plain(please_ack=[""], lang="de", unknown={"a": [1.5]})) == bare
    assert parse(plain(typ="didcomm-plain+json")) == bare
    assert bare.thread == "1" and replace(bare, thid="2").thread == "2"


@pytest.mark.parametrize("time", ["1516269022", "1516269022.0", 1516269022.5, True, -1, 2**53, [], {}])
def test_a_time_that_is_no_whole_number_of_seconds_counts_as_absent(time: object) -> None:
    message = parse(plain(created_time=time, expires_time=time))
    assert message.created_time is None and message.expires_time is None


@pytest.mark.parametrize(
    "changes",
    [
        {"id": ...},
        {"id": ""},
        {"id": 1},
        {"id": "a b"},
        {"id": "é"},
        {"id": "x\n"},
        {"id": "x" * 257},
        {"type": ...},
        {"type": 7},
        {"type": "x" * 513},
        {"typ": "application/didcomm-encrypted+json"},
        {"typ": ["application/didcomm-plain+json"]},
        {"body": []},
        {"body": "text"},
        {"from": "alice"},
        {"from": 5},
        {"from": ["did:example:alice"]},
        {"from": "did:example:alice#key-1"},
        {"from": "did:example:alice\n"},
        {"from": "did:example:" + "a" * DID_CHARS_MAX},
        {"to": "did:example:bob"},
        {"to": ["did:example:bob#key-1"]},
        {"to": [None]},
        {"to": ["did:example:bob"] * (TO_MAX + 1)},
        {"thid": 5},
        {"thid": ""},
        {"pthid": {"id": "x"}},
        {"from_prior": {}},
        {"from_prior": "x" * 100_000},
        {"attachments": [{"data": {"json": 1}}] * (ATTACHMENTS_MAX + 1)},
        {"attachments": [{"data": {"links": [1], "hash": "zQm"}}]},
        {"attachments": [{"data": {"base64": 1}}]},
    ],
)
def test_messages_that_make_no_sense_are_refused(changes: Json) -> None:
    with pytest.raises(Malformed):
        parse(plain(**changes))


def test_messages_have_a_greatest_size_on_both_sides() -> None:
    small = Message("https://example.org/chat/1.0/post", "1", {"text": ""})
    room = MESSAGE_BYTES_MAX - len(dump(small))
    assert parse(dump(replace(small, body={"text": "x" * room}))).body["text"] == "x" * room
    with pytest.raises(Malformed):
        dump(replace(small, body={"text": "x" * (room + 1)}))
    with pytest.raises(Malformed):
        parse(plain(padding="x" * MESSAGE_BYTES_MAX))
    for bad in (b'{"id":"1","id":"2","type":"t"}', b"\xef\xbb\xbf{}", b"[" * 1000, b"1", b""):
        with pytest.raises(Malformed):
            parse(bad)


def test_new_ids_are_random_uuids() -> None:
    ids = {new_id(dice(seed)) for seed in range(50)}
    assert len(ids) == 50
    assert all(len(name) == 36 and name[14] == "4" and name[19] in "89ab" for name in ids)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("https://didcomm.org/trust-ping/2.0/ping", True),
        ("https://didcomm.org/trust-ping/2.7/ping", True),
        ("https://didcomm.org/Trust_Ping/2/PING", True),
        ("https://didcomm.org/trust-ping/1.0/ping", False),
        ("https://didcomm.org/trust-ping/20.0/ping", False),
        ("https://didcomm.org/trust-ping/2.0/ping-response", False),
        ("https://example.org/trust-ping/2.0/ping", False),
        ("https://didcomm.org/trust-ping/ping", False),
        ("trust-ping/2.0/ping", False),
        ("", False),
    ],
)
def test_message_types_are_compared_as_the_specification_says(other: str, same: bool) -> None:
    assert same_type("https://didcomm.org/trust-ping/2.0/ping", other) is same
    assert same_type(other, "https://didcomm.org/trust-ping/2.0/ping") is same


# --- rotation -------------------------------------------------------------------------------------------------------

PRIOR = Prior(BOB.did, BOB.kid_signing, BOB.signing_seed)
NOW_S = 1_750_000_000


def test_a_rotation_verifies_for_exactly_its_two_dids() -> None:
    jwt = from_prior(PRIOR, CAROL.did, NOW_S)
    for new in (CAROL.did, CAROL.short):
        assert verify_from_prior(jwt, resolve(BOB.did), new) == NOW_S
    for document, new in ((resolve(BOB.did), ALICE.did), (resolve(ALICE.did), CAROL.did)):
        with pytest.raises(Unauthentic):
            verify_from_prior(jwt, document, new)
    assert PRIOR.seed.hex() not in repr(PRIOR) and repr(PRIOR.seed) not in repr(PRIOR)


def test_every_changed_character_of_a_rotation_is_refused() -> None:
    did = did_key(BOB.signing_public)
    jwt = from_prior(Prior(did, resolve(did).authentication[0][0], BOB.signing_seed), "did:example:new", NOW_S)
    document = resolve(did)
    assert verify_from_prior(jwt, document, "did:example:new") == NOW_S
    for at in range(len(jwt)):
        for other in "AB-.=":
            if jwt[at] != other:
                with pytest.raises(RemoteError):
                    verify_from_prior(jwt[:at] + other + jwt[at + 1 :], document, "did:example:new")
        with pytest.raises(RemoteError):
            verify_from_prior(jwt[:at], document, "did:example:new")


def signed_jwt(header: object, payload: object) -> str:
    signed = b64url(compact_json(header)) + "." + b64url(compact_json(payload))
    return signed + "." + b64url(ed25519_sign(BOB.signing_seed, signed.encode()))


HEADER = {"typ": "JWT", "alg": "EdDSA", "kid": BOB.kid_signing}
PAYLOAD = {"iss": BOB.did, "sub": CAROL.did, "iat": NOW_S}


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({}, {}),
        ({"crv": "Ed25519"}, {"aud": "x", "exp": 1, "nbf": 2**40, "jti": "x"}),
        ({"kid": BOB.short + "#key-1"}, {"iss": BOB.short, "sub": CAROL.short}),
    ],
)
def test_rotations_of_others_are_read(header: Json, payload: Json) -> None:
    assert verify_from_prior(signed_jwt(HEADER | header, PAYLOAD | payload), resolve(BOB.did), CAROL.did) == NOW_S


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ({"alg": "none"}, {}),
        ({"alg": "ES256"}, {}),
        ({"typ": "JWS"}, {}),
        ({"crit": ["b64"]}, {}),
        ({"b64": False}, {}),
        ({"kid": None}, {}),
        ({"kid": BOB.kid_long}, {}),
        ({"kid": CAROL.kid_signing}, {}),
        ({"kid": BOB.did}, {}),
        ({}, {"iss": BOB.did + "#key-1"}),
        ({}, {"sub": CAROL.did + "#key-1"}),
        ({}, {"sub": None}),
        ({}, {"sub": BOB.short}),
        ({}, {"iss": CAROL.did}),
        ({}, {"iat": None}),
        ({}, {"iat": True}),
        ({}, {"iat": 1.5}),
        ({}, {"iat": -1}),
        ({}, {"iat": "1750000000"}),
    ],
)
def test_rotations_that_make_no_sense_are_refused(header: Json, payload: Json) -> None:
    with pytest.raises(REFUSED):
        verify_from_prior(signed_jwt(HEADER | header, PAYLOAD | payload), resolve(BOB.did), CAROL.did)


def test_a_did_cannot_hand_over_to_itself() -> None:
    for new in (BOB.did, BOB.short):
        with pytest.raises(Malformed, match="two DIDs"):
            verify_from_prior(from_prior(PRIOR, new, NOW_S), resolve(BOB.did), BOB.did)


@pytest.mark.parametrize("jwt", ["", "..", "a.b", "a.b.c", "W10.W10.AA", "e30.e30.", "x" * 100_000])
def test_rotations_that_are_no_jwt_are_refused(jwt: str) -> None:
    with pytest.raises(Malformed):
        verify_from_prior(jwt, resolve(BOB.did), CAROL.did)
