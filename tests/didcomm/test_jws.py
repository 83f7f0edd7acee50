"""Signed messages, tokens and attachment signatures: writing, reading, refusals."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat.crypto import keys
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json
from zerochat.crypto.keys import PublicKey, SecretKey, new_secret, public_jwk, public_of
from zerochat.didcomm.jws import (
    HEADER_BYTES_MAX,
    SIGNATURES_MAX,
    SIGNED_BYTES_MAX,
    check_token,
    read_token,
    sign,
    sign_compact,
    sign_detached,
    verify,
    verify_detached,
)
from zerochat.errors import Malformed, RemoteError, Unauthentic

Json = dict[str, Any]
PLAIN = b'{"id":"1","type":"https://example.org/chat/1.0/post"}'


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


KIDS = {
    "did:example:alice#1": new_secret("Ed25519", dice(1)),
    "did:example:alice#2": new_secret("P-256", dice(2)),
    "did:example:alice#3": new_secret("secp256k1", dice(3)),
}
ALGORITHMS = dict(zip(KIDS, ("EdDSA", "ES256", "ES256K"), strict=True))
KID = "did:example:alice#1"


def key_of(kid: str) -> PublicKey:
    if kid not in KIDS:
        raise Unauthentic()
    return public_of(KIDS[kid])


@pytest.mark.parametrize("flattened", [False, True])
@pytest.mark.parametrize("kid", KIDS)
def test_signed_message_yields_its_signer(kid: str, flattened: bool) -> None:
    data = sign(PLAIN, [(kid, KIDS[kid])], flattened=flattened)
    signed = verify(data, key_of)
    assert (signed.plain, signed.kids) == (PLAIN, (kid,))
    assert "plain" not in repr(signed)
    tree = json.loads(data)
    assert list(tree) == (["payload", "protected", "signature", "header"] if flattened else ["payload", "signatures"])
    [signature] = [tree] if flattened else tree["signatures"]
    assert signature["header"] == {"kid": kid}
    assert len(b64url_bytes(signature["signature"])) == 64
    assert json.loads(b64url_bytes(signature["protected"])) == {
        "typ": "application/didcomm-signed+json",
        "alg": ALGORITHMS[kid],
    }


def test_uninteresting_signers_are_ignored() -> None:
    data = sign(PLAIN, list(KIDS.items()))
    assert verify(data, key_of).kids == tuple(KIDS)
    assert verify(data, lambda kid: key_of(kid) if kid.endswith("2") else None).kids == ("did:example:alice#2",)
    with pytest.raises(Unauthentic):
        verify(data, lambda _: None)
    tree = json.loads(data)
    tree["signatures"][0]["signature"] = tree["signatures"][1]["signature"]
    with pytest.raises(Unauthentic):
        verify(json.dumps(tree).encode(), key_of)
    assert verify(json.dumps(tree).encode(), lambda kid: None if kid == KID else key_of(kid)).kids == tuple(KIDS)[1:]
    for signers, flattened in (([], False), (list(KIDS.items()), True), ([(KID, KIDS[KID])] * 17, False)):
        with pytest.raises(ValueError, match="signers"):
            sign(PLAIN, signers, flattened=flattened)


@pytest.mark.parametrize("kid", KIDS)
def test_every_flipped_byte_and_every_cut_is_refused(kid: str) -> None:
    data = sign(PLAIN, [(kid, KIDS[kid])])
    for at in range(len(data)):
        for mask in (0x01, 0x20, 0x80):
            with pytest.raises(RemoteError):
                verify(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :], key_of)
        with pytest.raises(Malformed):
            verify(data[:at], key_of)
    for surplus in (b"}", b"\0", data):
        with pytest.raises(Malformed):
            verify(data + surplus, key_of)


def test_a_signature_is_invalid_for_any_other_key() -> None:
    data = sign(PLAIN, [(KID, KIDS[KID])])
    for other in (*KIDS.values(), new_secret("Ed25519", dice(4)), new_secret("P-384", dice(4))):
        if other != KIDS[KID]:
            with pytest.raises(Unauthentic):
                verify(data, lambda _, other=other: public_of(other))
    with pytest.raises(Malformed, match="who is did"):
        verify(data, lambda kid: (_ for _ in ()).throw(Malformed(why=f"who is {kid}")))


# --- other implementations ------------------------------------------------------------------------------------------


@dataclass
class Foreign:
    """A signed message by an implementation that deviates from or breaks RFC 7515, but signs correctly."""

    protected: Json | None = None
    """Changes to the protected header; None removes."""
    header: Json | None = None
    outer: Json | None = None
    entry: Json | None = None
    flat: bool = False
    count: int = 1
    keep_null: bool = False
    text: str = ""
    """Text put at the end of the protected header's object."""
    key: SecretKey = KIDS[KID]
    pad: bool = False

    def data(self) -> bytes:
        header: Json = {"typ": "JWM", "alg": "EdDSA"} | (self.protected or {})
        if not self.keep_null:
            header = {name: value for name, value in header.items() if value is not None}
        protected = b64url((json.dumps(header)[:-1] + self.text + "}").encode())
        payload = b64url(PLAIN)
        if self.pad:
            protected, payload = (text + "=" * (-len(text) % 4) for text in (protected, payload))
        value = keys.sign(self.key, f"{protected}.{payload}".encode())
        loose = {"kid": KID} if self.header is None else self.header
        entry: Json = {"protected": protected, "header": loose, "signature": b64url(value)} | (self.entry or {})
        tree = entry if self.flat else {"signatures": [entry] * self.count}
        return json.dumps({"payload": payload} | tree | (self.outer or {})).encode()


@pytest.mark.parametrize(
    "foreign",
    [
        Foreign(),
        Foreign(flat=True),
        Foreign(protected={"typ": None}),
        Foreign(protected={"typ": "didcomm-signed+json"}),
        Foreign(protected={"kid": KID}, header={}),
        Foreign(protected={"kid": KID}, entry={"header": None}),
        Foreign(protected={"kid": KID}),
        Foreign(protected={"kid": None, "crit": None, "b64": None}, keep_null=True),
        Foreign(header={"kid": KID, "note": "unknown headers are ignored", "alg": None}),
        Foreign(outer={"comment": 1, "header": None, "signature": None}),
        Foreign(protected={"jwk": public_jwk(public_of(new_secret("Ed25519", dice(9)))), "jku": "https://e.org"}),
        Foreign(pad=True),
    ],
    ids=str,
)
def test_signatures_of_other_implementations_are_verified(foreign: Foreign) -> None:
    assert verify(foreign.data(), key_of).kids == (KID,)


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (Foreign(protected={"alg": "none"}), "not supported"),
        (Foreign(protected={"alg": None}), "not supported"),
        (Foreign(protected={"alg": "HS256"}), "not supported"),
        (Foreign(protected={"alg": "ES384"}), "not supported"),
        (Foreign(protected={"alg": "eddsa"}), "not supported"),
        (Foreign(protected={"alg": ["EdDSA"]}), "not supported"),
        (Foreign(protected={"b64": False, "crit": ["b64"]}), "not supported"),
        (Foreign(protected={"b64": True}), "not supported"),
        (Foreign(protected={"crit": ["exp"]}), "not supported"),
        (Foreign(protected={"crit": []}), "not supported"),
        (Foreign(protected={"typ": "application/didcomm-plain+json"}), "media type"),
        (Foreign(protected={"typ": "JWT"}), "media type"),
        (Foreign(protected={"alg": None}, header={"kid": KID, "alg": "EdDSA"}), "unprotected"),
        (Foreign(header={"kid": KID, "alg": "EdDSA"}), "unprotected"),
        (Foreign(header={"kid": KID, "crit": ["x"]}), "unprotected"),
        (Foreign(protected={"note": 1}, header={"kid": KID, "note": 1}), "duplicate"),
        (Foreign(protected={"kid": "did:example:alice#2"}), "two key ids"),
        (Foreign(header={}), "no kid"),
        (Foreign(header={"kid": 1}), "no kid"),
        (Foreign(header={"kid": KID}, entry={"header": "x"}), "not an object"),
        (Foreign(entry={"protected": None}), "no protected"),
        (Foreign(entry={"protected": b64url(b"[]")}), "not an object"),
        (Foreign(entry={"signature": None}), "no signature"),
        (Foreign(entry={"signature": 7}), "no signature"),
        (Foreign(outer={"payload": None}), "no payload"),
        (Foreign(outer={"payload": {"id": "1"}}), "no payload"),
        (Foreign(outer={"payload": "e30\n"}), "base64url"),
        (Foreign(outer={"payload": "+/+/"}), "base64url"),
        (Foreign(outer={"signatures": []}), "no signatures"),
        (Foreign(outer={"signatures": {}}), "no signatures"),
        (Foreign(outer={"signatures": ["x"]}), "not an object"),
        (Foreign(outer={"signature": "AA"}), "at once"),
        (Foreign(outer={"header": {"kid": KID}}), "at once"),
        (Foreign(count=2), "duplicate signer"),
        (Foreign(count=SIGNATURES_MAX + 1), "too many"),
        (Foreign(text=',"alg":"EdDSA"'), "strict JSON"),
        (Foreign(text=',"x":' + "[" * 64 + "]" * 64), "nested"),
        (Foreign(text=',"x":"' + "x" * HEADER_BYTES_MAX + '"'), "more than"),
        (Foreign(outer={"x": "x" * SIGNED_BYTES_MAX}), "more than"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_ambiguous_signed_messages_are_refused(foreign: Foreign, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        verify(foreign.data(), key_of)


def test_erratum_a_key_id_with_a_space_in_its_name_is_ignored() -> None:
    """Appendix A.2 prints `"kid "`: copies of it name no key."""
    with pytest.raises(Malformed, match="no kid"):
        verify(Foreign(header={"kid ": KID}).data(), key_of)


def test_a_signature_has_one_form() -> None:
    """Not DER, not cut, not longer, and not with other bits where base64 has none."""
    for kid, secret in KIDS.items():
        tree = json.loads(sign(PLAIN, [(kid, secret)], flattened=True))
        value = b64url_bytes(tree["signature"])
        r, s = value[:32], value[32:]
        der = bytes([0x30, 68, 2, 32]) + r + bytes([2, 32]) + s
        for wrong in (der, value[:-1], value + b"\0", b"", bytes(64), r + bytes(32), bytes(32) + s, s + r):
            with pytest.raises(Unauthentic):
                verify(json.dumps(tree | {"signature": b64url(wrong)}).encode(), key_of)
        last = {"A": "B", "Q": "R", "g": "h", "w": "x"}[tree["signature"][-1]]
        with pytest.raises(Malformed):
            verify(json.dumps(tree | {"signature": tree["signature"][:-1] + last}).encode(), key_of)


def test_too_much_is_refused_when_written() -> None:
    with pytest.raises(Malformed, match="more than"):
        sign(bytes(SIGNED_BYTES_MAX), [(KID, KIDS[KID])])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(noise=st.binary(max_size=200) | st.recursive(st.none() | st.text(max_size=5), st.lists).map(compact_json))
def test_noise_is_malformed(noise: bytes) -> None:
    with pytest.raises(Malformed):
        verify(noise, key_of)
    with pytest.raises(Malformed):
        read_token(noise.decode("latin-1"))


# --- attachments and tokens -----------------------------------------------------------------------------------------


def test_an_attachment_is_signed_without_being_repeated() -> None:
    jws = sign_detached(b"content", [(KID, KIDS[KID])])
    assert set(jws) == {"protected", "signature", "header"}
    assert verify_detached(jws, b"content", key_of) == (KID,)
    several = sign_detached(b"content", list(KIDS.items()))
    assert verify_detached(several, b"content", key_of) == tuple(KIDS)
    assert verify_detached(jws | {"payload": None}, b"content", key_of) == (KID,)
    with pytest.raises(Unauthentic):
        verify_detached(jws, b"contents", key_of)
    with pytest.raises(Malformed, match="with a payload"):
        verify_detached(jws | {"payload": b64url(b"content")}, b"content", key_of)
    foreign = Foreign(protected={"typ": None, "kid": "did:key:z6Mk", "jwk": {}}, header={"kid": "did:key:z6Mk"})
    tree = json.loads(foreign.data())["signatures"][0]
    assert verify_detached(tree, PLAIN, lambda _: public_of(KIDS[KID])) == ("did:key:z6Mk",)


@pytest.mark.parametrize("secret", KIDS.values(), ids=ALGORITHMS.values())
def test_a_token_has_one_spelling(secret: SecretKey) -> None:
    text = sign_compact({"typ": "JWT", "kid": "k"}, {"iss": "x"}, secret)
    token = read_token(text)
    check_token(token, public_of(secret))
    assert token.header == {"typ": "JWT", "kid": "k", "alg": keys.ALGORITHM_OF[secret.kind]}
    assert (token.payload, token.signature.kid) == (b'{"iss":"x"}', "k")
    with pytest.raises(Unauthentic):
        check_token(token, public_of(new_secret(secret.kind, dice(8))))
    head, payload, value = text.split(".")
    for wrong in (text + "=", text + "==", text + ".", f"{head}.{payload}", f"{head}.{payload}=.{value}", f".{text}"):
        with pytest.raises(Malformed):
            read_token(wrong)
