"""The JWE packer: writing, reading other implementations, refusals."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from zerochat.crypto.content_encryption import CONTENTS
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.keys import (
    AGREEMENT_KINDS,
    KeyKind,
    PublicKey,
    SecretKey,
    agree_once,
    new_secret,
    public_jwk,
    public_of,
)
from zerochat.crypto.primitives import concat_kdf, key_wrap, other_info, sha256
from zerochat.didcomm import jwe_parser
from zerochat.didcomm.did import Document, Method, new_peer4
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.jwe_parser import RECIPIENTS_MAX
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.packer import OwnKey, TheirKey, Unpacked, check_addressing
from zerochat.errors import Malformed, Unauthentic

BODY = b'{"text":"See you at eight?"}'
PACKER = JwePacker()


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


ALICE, BOB = new_peer4(dice(1), []), new_peer4(dice(2), [])


@pytest.fixture(autouse=True)
def nothing_familiar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins as a process does, without remembered envelopes."""
    monkeypatch.setattr(jwe_parser, "_TEMPLATES", {})


# --- JWE: other implementations -------------------------------------------------------------------------------------

Json = dict[str, Any]
ALICE_KID = "did:example:alice#1"
BOB_1, BOB_2 = "did:example:bob#1", "did:example:bob#2"


def secret(kid: str, curve: KeyKind = "X25519") -> SecretKey:
    """The same secret for the same key id."""
    return new_secret(curve, random.Random(kid).randbytes)


def public(kid: str, curve: KeyKind = "X25519") -> PublicKey:
    return public_of(secret(kid, curve))


EPHEMERAL = secret("ephemeral")
EPK = public_jwk(public("ephemeral"))


@dataclass
class Foreign:
    """An envelope to Bob by an implementation that deviates in form or breaks the RFCs, but encrypts correctly."""

    alg: str = "ECDH-1PU+A256KW"
    enc: str = "A256CBC-HS512"
    curve: KeyKind = "X25519"
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
            header["epk"] = public_jwk(public("ephemeral", self.curve))
        if self.alg == "ECDH-1PU+A256KW":
            header |= {"skid": self.apu.decode(), "apu": b64url(self.apu)}
        header |= self.extra or {}
        if not self.keep_null:
            header = {name: value for name, value in header.items() if value is not None}
        protected = b64url((json.dumps(header)[:-1] + self.extra_text + "}").encode())
        content = CONTENTS[self.enc]
        key, iv = dice(14)(content.key), dice(15)(content.iv)
        aad = protected.encode() + (b"" if self.aad is None else b"." + self.aad.encode())
        ciphertext, tag = content.seal(key, iv, self.plain, aad)
        recipients = []
        for kid in self.kids:
            theirs = public(kid, self.curve)
            agreed = agree_once(secret("ephemeral", self.curve), theirs)
            info = other_info(self.alg, self.apu if "1PU" in self.alg else b"", apv)
            if "1PU" in self.alg:
                kek = concat_kdf(agreed + agree_once(secret(ALICE_KID, self.curve), theirs), info, tag)
            else:
                kek = concat_kdf(agreed, info)
            entry = {"header": {"kid": kid} | (self.per_recipient or {}), "encrypted_key": b64url(key_wrap(kek, key))}
            recipients.append(entry)
        tree: Json = {"protected": protected, "iv": b64url(iv), "ciphertext": b64url(ciphertext), "tag": b64url(tag)}
        tree |= recipients[0] if self.flat else {"recipients": recipients}
        if self.aad is not None:
            tree["aad"] = self.aad
        return json.dumps(tree | (self.outer or {})).encode()


def open_as(envelope: bytes, kid: str = BOB_1, curve: KeyKind = "X25519") -> Unpacked:
    return PACKER.unpack(
        envelope, secret_of={kid: secret(kid, curve)}.get, public_of=lambda sender: public(sender, curve)
    )


ES: Json = {"alg": "ECDH-ES+A256KW"}
P256 = public_jwk(public("ephemeral", "P-256"))


@pytest.mark.parametrize(
    "foreign",
    [
        *(Foreign(curve=curve) for curve in AGREEMENT_KINDS),
        *(Foreign(**ES, curve=curve, enc=enc) for curve in AGREEMENT_KINDS for enc in CONTENTS),
        Foreign(curve="P-256", epk=False, per_recipient={"epk": public_jwk(public("ephemeral", "P-256"))}),
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
def test_jwe_reads_other_implementations(foreign: Foreign) -> None:
    for kid in {*foreign.kids} & {BOB_1, BOB_2}:
        unpacked = open_as(foreign.envelope(), kid, foreign.curve)
        authcrypt, anoncrypt = (
            Unpacked(BODY, "authcrypt", ALICE_KID, kid, foreign.enc),
            Unpacked(BODY, "anoncrypt", None, kid, foreign.enc),
        )
        assert unpacked == (authcrypt if "1PU" in foreign.alg else anoncrypt)


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
        (Foreign(extra={"skid": "did:example:carol#1"}), "two senders"),
        (Foreign(extra={"apu": None}), "no apu"),
        (Foreign(extra={"apu": b64url(b"\xff")}), "apu is not a key id"),
        (Foreign(extra={"apu": b64url(ALICE_KID.encode()) + "===="}), "base64url"),
        (Foreign(**ES, extra={"skid": ALICE_KID}), "names its sender"),
        (Foreign(extra={"apv": None}), "no apv"),
        (Foreign(extra={"apv": b64url(sha256(BOB_2.encode()))}), "apv does not name"),
        (Foreign(extra={"apv": b64url(BOB_1.encode())}), "apv does not name"),
        (Foreign(epk=False), "exactly one ephemeral"),
        (Foreign(per_recipient={"epk": EPK}), "exactly one ephemeral"),
        (Foreign(extra={"epk": EPK | {"crv": "P-256"}}), "unsupported type"),
        (Foreign(extra={"epk": EPK | {"kty": "EC"}}), "unsupported type"),
        (Foreign(extra={"epk": EPK | {"d": EPK["x"]}}), "together with its secret"),
        (Foreign(extra={"epk": EPK | {"crv": "Ed25519"}}), "type that cannot agree"),
        (Foreign(extra={"epk": public_jwk(public("x", "secp256k1"))}), "type that cannot agree"),
        (Foreign(extra={"epk": P256 | {"y": P256["x"]}}), "not on its curve"),
        (Foreign(extra={"epk": P256 | {"crv": "P-384"}}), "not on its curve"),
        (Foreign(extra={"epk": public_jwk(public("x", "P-384")) | {"crv": "P-256"}}), "wrong length"),
        (Foreign(extra={"epk": P256 | {"y": None}}), "without y"),
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
def test_jwe_refuses_ambiguous_envelopes(foreign: Foreign, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        open_as(foreign.envelope())


def test_jwe_refuses_members_twice() -> None:
    envelope = Foreign().envelope()
    for member in (b'"iv": "AAAA"', b'"protected": "e30"', b'"recipients": []', b'"\\u0069v": "AAAA"'):
        with pytest.raises(Malformed, match="strict JSON"):
            open_as(envelope[:-1] + b"," + member + b"}")


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
                open_as(json.dumps(tree | {name: variant}).encode())
    assert changed


def test_jwe_failures_are_indistinguishable() -> None:
    """A wrong wrapped key, a wrong tag, a wrong IV and a key that is not ours look alike to the sender."""
    tree = json.loads(Foreign().envelope())
    seen = set()
    for name in ("iv", "ciphertext", "tag"):
        flipped = ("B" if tree[name][0] == "A" else "A") + tree[name][1:]
        with pytest.raises(Unauthentic) as caught:
            open_as(json.dumps(tree | {name: flipped}).encode())
        seen.add(str(caught.value))
    tree["recipients"][0]["encrypted_key"] = b64url(bytes(72))
    with pytest.raises(Unauthentic) as caught:
        open_as(json.dumps(tree).encode())
    seen.add(str(caught.value))
    with pytest.raises(Unauthentic) as caught:
        open_as(Foreign().envelope(), "did:example:bob#9")
    seen.add(str(caught.value))
    assert len(seen) == 1


def test_jwe_agrees_with_keys_of_one_curve_only() -> None:
    envelope = Foreign(curve="P-256").envelope()
    for theirs, ours in (("P-256", "X25519"), ("X25519", "P-256"), ("P-256", "P-384"), ("P-384", "P-256")):
        with pytest.raises(Unauthentic):
            PACKER.unpack(
                envelope,
                secret_of=lambda kid, curve=ours: secret(kid, curve),
                public_of=lambda kid, curve=theirs: public(kid, curve),
            )


def test_jwe_refuses_points_off_the_curve() -> None:
    off = PublicKey("P-256", b"\2" + b"\xff" * 32)
    for nobody in (off, PublicKey("X25519", bytes(32)), PublicKey("P-256", bytes(33))):
        with pytest.raises((Malformed, Unauthentic)):
            PACKER.anoncrypt(BODY, recipient=TheirKey(BOB_1, nobody), random=dice(0))
        with pytest.raises((Malformed, Unauthentic)):
            PACKER.unpack(
                Foreign(curve=nobody.kind).envelope(),
                secret_of=lambda kid, curve=nobody.kind: secret(kid, curve),
                public_of=lambda _, key=nobody: key,
            )


def test_unknown_senders_are_refused_by_the_caller() -> None:
    def unknown(kid: str) -> PublicKey:
        raise Malformed(why="who is " + kid)

    with pytest.raises(Malformed, match="who is did:example:alice#1"):
        PACKER.unpack(Foreign().envelope(), secret_of=secret, public_of=unknown)


# --- writing --------------------------------------------------------------------------------------------------------


def protected(envelope: bytes) -> Json:
    header: Json = json.loads(b64url_bytes(json.loads(envelope)["protected"]))
    return header


def test_jwe_of_ours_is_written_as_the_specification_has_it() -> None:
    sender, recipient = OwnKey(ALICE_KID, secret(ALICE_KID)), TheirKey(BOB_1, public(BOB_1))
    envelope = PACKER.authcrypt(BODY, sender=sender, recipient=recipient, random=dice(0))
    tree = json.loads(envelope)
    assert list(tree) == ["protected", "recipients", "iv", "ciphertext", "tag"]
    [entry] = tree["recipients"]
    assert entry.keys() == {"header", "encrypted_key"} and entry["header"] == {"kid": BOB_1}
    header = protected(envelope)
    assert header.pop("epk").keys() == {"kty", "crv", "x"}
    assert header == {
        "typ": "application/didcomm-encrypted+json",
        "alg": "ECDH-1PU+A256KW",
        "enc": "A256CBC-HS512",
        "skid": ALICE_KID,
        "apu": b64url(ALICE_KID.encode()),
        "apv": b64url(sha256(BOB_1.encode())),
    }
    anonymous = protected(PACKER.anoncrypt(BODY, recipient=recipient, random=dice(0)))
    assert anonymous.keys() == {"typ", "alg", "enc", "apv", "epk"}
    assert (anonymous["alg"], anonymous["enc"]) == ("ECDH-ES+A256KW", "A256CBC-HS512")


@pytest.mark.parametrize("curve", AGREEMENT_KINDS)
@pytest.mark.parametrize("sender", [ALICE_KID, None])
def test_every_recipient_opens_a_shared_envelope(curve: KeyKind, sender: str | None) -> None:
    kids = ["did:example:bob#b", "did:example:bob#a", 'did:example:bob#"c"', "did:example:bob#é"]
    recipients = [TheirKey(kid, public(kid, curve)) for kid in kids]
    own = OwnKey(sender, secret(sender, curve)) if sender else None
    for enc in CONTENTS if sender is None else ("A256CBC-HS512",):
        envelope = PACKER.seal_many(BODY, recipients, sender=own, enc=enc, random=dice(0))
        assert protected(envelope)["epk"]["crv"] == curve
        assert [entry["header"]["kid"] for entry in json.loads(envelope)["recipients"]] == sorted(kids)
        for kid in kids:
            unpacked = open_as(envelope, kid, curve)
            assert (unpacked.plain, unpacked.sender_kid, unpacked.recipient_kid) == (BODY, sender, kid)
            assert unpacked.enc == enc


def test_only_keys_of_one_did_and_one_curve_share_an_envelope() -> None:
    bob, more = TheirKey(BOB_1, public(BOB_1)), TheirKey(BOB_2, public(BOB_2))
    for recipients in (
        [],
        [bob, bob],
        [bob, TheirKey("did:example:carol#1", public("did:example:carol#1"))],
        [bob, TheirKey(BOB_2, public(BOB_2, "P-256"))],
        [TheirKey(f"did:example:bob#{n}", bob.key) for n in range(RECIPIENTS_MAX + 1)],
    ):
        with pytest.raises(Malformed):
            PACKER.seal_many(BODY, recipients, sender=None, random=dice(0))
    for enc in ("A256GCM", "XC20P"):
        with pytest.raises(AssertionError):
            PACKER.seal_many(BODY, [bob, more], sender=OwnKey(ALICE_KID, secret(ALICE_KID)), enc=enc, random=dice(0))


def test_a_key_of_the_own_curve_is_preferred() -> None:
    p256, x25519 = Method(BOB_1, public(BOB_1, "P-256")), Method(BOB_2, public(BOB_2))
    document = Document("did:example:bob", (p256, x25519), (), ())
    assert PACKER.their_key(document, document.did) == TheirKey(BOB_2, x25519.key)
    assert PACKER.their_key(replace(document, agreement=(p256,)), "did:example:b") == TheirKey(
        "did:example:b#1", p256.key
    )
    with pytest.raises(Malformed):
        PACKER.their_key(replace(document, agreement=()), document.did)


# --- reading by likeness --------------------------------------------------------------------------------------------


def outcome(read: Callable[[bytes], jwe_parser.Envelope], envelope: bytes) -> object:
    try:
        return read(envelope)._replace(from_template=False)
    except Malformed as error:
        return str(error)


def changed(envelope: bytes, mutate: Callable[[str], str], **more: object) -> bytes:
    """The envelope with another protected header, of which nothing but the text is made anew."""
    tree = json.loads(envelope)
    header = b64url_bytes(tree["protected"]).decode()
    return json.dumps(tree | {"protected": b64url(mutate(header).encode())} | more, separators=(",", ":")).encode()


@pytest.mark.slow
def test_template_and_general_parser_agree() -> None:
    """Every byte of a familiar envelope changed, removed and doubled: both ways of reading find the same."""
    sender, recipient = OwnKey(ALICE_KID, secret(ALICE_KID)), TheirKey(BOB_1, public(BOB_1))
    for enc, own in (("A256CBC-HS512", sender), ("A256GCM", None), ("XC20P", None)):
        envelopes = [
            PACKER.seal_many(dice(size)(size), [recipient], sender=own, enc=enc, random=dice(size)) for size in range(4)
        ]
        open_as(envelopes[0])
        for envelope in envelopes:
            assert jwe_parser.read(envelope).from_template
        likes = 0
        for envelope in envelopes[1:]:
            for at in range(len(envelope)):
                head, byte, rest = envelope[:at], envelope[at], envelope[at + 1 :]
                others = (bytes([byte ^ 1]), bytes([byte ^ 0x20]), b"", bytes([byte, byte]), b"A", b"=", b'"', b" ")
                for other in others:
                    variant = head + other + rest
                    assert outcome(jwe_parser.read, variant) == outcome(jwe_parser._read_general, variant)
                    familiar = jwe_parser._read_by_template(variant)
                    likes += familiar is not None
        assert likes > 500, "the comparison is worth nothing when nothing is familiar"


def test_only_headers_ending_with_epk_are_cached() -> None:
    envelope = PACKER.anoncrypt(BODY, recipient=TheirKey(BOB_1, public(BOB_1)), random=dice(0))
    x = protected(envelope)["epk"]["x"]
    escaped = f"\\u{ord(x[0]):04x}{x[1:]}"
    for mutate in (
        lambda text: text.replace('"epk"', '"later":{},"epk"').replace("}}", '},"z":{"x":"' + x + '"}}'),
        lambda text: text.replace('"x":"', '"kid":"k","x":"').replace('"}}', '","y":"' + x + '"}}'),
        lambda text: text.replace(x, escaped),
        lambda text: text + " ",
        lambda text: text[:-1] + " }",
        lambda text: text.replace('"}}', '"},"later":1}'),
    ):
        variant = changed(envelope, mutate)
        general = jwe_parser._read_general(variant)
        jwe_parser.cache_template(variant, general)
        assert not jwe_parser._TEMPLATES
    for variant in (
        changed(envelope, lambda text: text, aad=b64url(b"more")),
        changed(envelope, lambda text: text).replace(b'{"kid"', b'{ "kid"'),
        envelope.replace(b'{"protected":', b'{ "protected":'),
    ):
        jwe_parser.cache_template(variant, jwe_parser._read_general(variant))
        assert not jwe_parser._TEMPLATES
    same = changed(envelope, lambda text: text.replace('{"typ"', '{ "comment":["\u00e9",{}],"typ"'))
    jwe_parser.cache_template(same, jwe_parser._read_general(same))
    assert len(jwe_parser._TEMPLATES) == 1 and jwe_parser.read(same).from_template


def test_template_cache_is_bounded_and_authenticated() -> None:
    envelope = Foreign(outer={"tag": b64url(bytes(32))}).envelope()
    with pytest.raises(Unauthentic):
        open_as(envelope)
    assert not jwe_parser._TEMPLATES
    opened = 0
    for n in range(jwe_parser.TEMPLATES_MAX + 10):
        kid = f"did:example:bob#{n}"
        envelope = PACKER.anoncrypt(b"", recipient=TheirKey(kid, public(BOB_1)), random=dice(n))
        jwe_parser.cache_template(envelope, jwe_parser._read_general(envelope))
        opened += 1
    assert 0 < len(jwe_parser._TEMPLATES) <= jwe_parser.TEMPLATES_MAX < opened
    jwe_parser._TEMPLATES.clear()
    long = "did:example:bob#" + "x" * jwe_parser.TEMPLATE_CHARS_MAX
    own = OwnKey(long, secret(long))
    envelope = PACKER.authcrypt(b"", sender=own, recipient=TheirKey(BOB_1, public(BOB_1)), random=dice(0))
    assert open_as(envelope).sender_kid == long
    assert not jwe_parser._TEMPLATES


# --- the sender -----------------------------------------------------------------------------------------------------


def test_from_must_be_the_did_whose_key_encrypted() -> None:
    message = Message("https://example.org/chat/1.0/post", "1")
    by_alice = Unpacked(b"", "authcrypt", ALICE.kid_short, BOB.kid_short, "A256CBC-HS512")
    for sender in (ALICE.did, ALICE.short):
        check_addressing(replace(message, from_=sender), by_alice)
        check_addressing(replace(message, from_=sender), by_alice._replace(sender_kid=ALICE.kid_long))
    for other in (None, BOB.did, ALICE.short[:-1], "did:example:alice"):
        with pytest.raises(Unauthentic):
            check_addressing(replace(message, from_=other), by_alice)
    with pytest.raises(Malformed):
        check_addressing(replace(message, from_=ALICE.short + ":" + BOB.did.partition(":z")[2]), by_alice)
    check_addressing(message, Unpacked(b"", "anoncrypt", None, BOB.kid_short, "XC20P"))
