"""Layers: allowed nestings, proven identities, uniform failures."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import base58
from zerochat.crypto.keys import SecretKey, new_secret, public_of
from zerochat.didcomm import jws
from zerochat.didcomm.did import Document, Identity, Method, new_peer4, resolve
from zerochat.didcomm.layers import EXTENSION_OF, Layer, MediaType, Opened, media_type_of, open_layers, seal_layers
from zerochat.didcomm.message import Message, dump
from zerochat.didcomm.packer import PACKERS, OwnKey, TheirKey
from zerochat.errors import Malformed, RemoteError, Unauthentic

V1, V2 = PACKERS["didcomm/v1"], PACKERS["didcomm/v2"]
BODY = {"text": "See you at eight?"}


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


ALICE, BOB, CAROL, BOB_TOO = (new_peer4(dice(seed), []) for seed in (1, 2, 3, 4))
EVERYBODY = (ALICE, BOB, CAROL, BOB_TOO)
KNOWN = {person.short: person.did for person in EVERYBODY}


def lookup(did: str) -> Document:
    return resolve(did, KNOWN)


def secrets(*people: Identity) -> Callable[[str], SecretKey | None]:
    own = {person.kid_short: SecretKey("X25519", person.agreement_secret) for person in people}
    own |= {base58(person.signing_public): SecretKey("Ed25519", person.signing_seed) for person in people}
    return own.get


def agreeing(person: Identity) -> OwnKey:
    return V2.own_key(person, person.short)


def signing(person: Identity) -> OwnKey:
    return OwnKey(person.short + "#key-1", SecretKey("Ed25519", person.signing_seed))


def reading(person: Identity) -> TheirKey:
    return V2.their_key(resolve(person.did), person.short)


def message(sender: Identity | None = ALICE, *to: Identity) -> Message:
    own = sender.short if sender else None
    return Message("https://example.org/chat/1.0/post", "1", BODY, from_=own, to=tuple(p.short for p in to or (BOB,)))


def signed(plain: bytes, *signers: Identity) -> bytes:
    keys = [signing(signer) for signer in signers or (ALICE,)]
    return jws.sign(plain, [(key.kid, key.key) for key in keys])


def auth(plain: bytes, sender: Identity = ALICE, to: Identity = BOB) -> bytes:
    return V2.authcrypt(plain, sender=agreeing(sender), recipient=reading(to), random=dice(7))


def anon(plain: bytes, to: Identity = BOB) -> bytes:
    return V2.anoncrypt(plain, recipient=reading(to), random=dice(8))


def open_(data: bytes, *own: Identity, **options: Any) -> Opened:
    return open_layers(data, secret_of=secrets(*own or (BOB,)), resolve=lookup, **options)


CBC = "A256CBC-HS512"
AUTH = Layer("authcrypt", CBC, ALICE.kid_short, BOB.kid_short)
ANON = Layer("anoncrypt", CBC, None, BOB.kid_short)
SIGN = Layer("signed", "EdDSA", ALICE.short + "#key-1", None)
PLAIN = dump(message())


# --- allowed nestings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"sender": agreeing(ALICE), "recipient": reading(BOB)}, (AUTH,)),
        ({"recipient": reading(BOB)}, (ANON,)),
        ({"sender": agreeing(ALICE), "recipient": reading(BOB), "protect_sender": True}, (ANON, AUTH)),
        ({"signer": signing(ALICE), "recipient": reading(BOB)}, (ANON, SIGN)),
        ({"signer": signing(ALICE)}, (SIGN,)),
    ],
    ids=["auth", "anon", "anon(auth)", "anon(sign)", "sign"],
)
def test_opened_message_has_the_proofs_of_its_layers(options: dict[str, Any], layers: tuple[Layer]) -> None:
    opened = open_(seal_layers(message(), random=dice(5), **options))
    assert opened == Opened(
        message(),
        layers,
        sender=ALICE.short if AUTH in layers else None,
        signer=ALICE.short if SIGN in layers else None,
        recipient_kid=None if layers == (SIGN,) else BOB.kid_short,
        addressed=None if layers == (SIGN,) else True,
    )
    named = "sender" in options or "signer" in options
    bare = Message("https://example.org/chat/1.0/post", "1", BODY)
    filled = replace(bare, from_=ALICE.short if named else None, to=(BOB.short,) if "recipient" in options else ())
    assert open_(seal_layers(bare, random=dice(5), **options)).message == filled
    long = replace(message(), from_=ALICE.did, to=(CAROL.did, BOB.did))
    assert open_(seal_layers(long, random=dice(5), **options)).message == long


def test_auth_of_sign_is_read_and_not_written() -> None:
    opened = open_(auth(signed(PLAIN)))
    assert opened.layers == (AUTH, SIGN)
    assert opened.sender == opened.signer == ALICE.short
    with pytest.raises(ValueError, match="not written"):
        seal_layers(message(), sender=agreeing(ALICE), signer=signing(ALICE), recipient=reading(BOB), random=dice(1))


def test_forbidden_example_of_the_spec_is_read_leniently() -> None:
    data = anon(auth(signed(PLAIN)))
    assert open_(data, lenient=True).layers == (ANON, AUTH, SIGN)
    with pytest.raises(Unauthentic):
        open_(data)


def test_plain_is_opened_only_on_request() -> None:
    opened = open_(PLAIN, allow_plain=True)
    assert opened == Opened(message(), ())
    with pytest.raises(Unauthentic):
        open_(PLAIN)
    with pytest.raises(Malformed):
        open_(PLAIN[:-1] + b',"to":"x"}', allow_plain=True)


@pytest.mark.parametrize(
    "data",
    [
        auth(auth(PLAIN)),
        auth(anon(PLAIN)),
        anon(anon(PLAIN)),
        anon(anon(signed(PLAIN))),
        anon(anon(auth(PLAIN))),
        anon(auth(auth(PLAIN))),
        anon(auth(signed(signed(PLAIN)))),
        signed(signed(PLAIN)),
        signed(auth(PLAIN)),
        signed(anon(PLAIN)),
        anon(signed(auth(PLAIN))),
        auth(signed(anon(PLAIN))),
        auth(signed(signed(PLAIN))),
        anon(b"text"),
        auth(b"[]"),
        anon(signed(b"text")),
        auth(b'{"id":"1"}'),
        auth(b'{"id":"1","type":"x","from":"did:example:x\\n"}'),
    ],
    ids=[
        *("auth(auth)", "auth(anon)", "anon(anon)", "anon(anon(sign))", "anon(anon(auth))", "anon(auth(auth))"),
        *("anon(auth(sign(sign)))", "sign(sign)", "sign(auth)", "sign(anon)", "anon(sign(auth))", "auth(sign(anon))"),
        *("auth(sign(sign))", "anon(text)", "auth(list)", "anon(sign(text))", "auth(half)", "auth(wrong)"),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_no_other_layers_are_opened(data: bytes, lenient: bool) -> None:
    with pytest.raises(Unauthentic) as caught:
        open_(data, lenient=lenient, allow_plain=True)
    assert str(caught.value) == str(Unauthentic())


# --- consistency ----------------------------------------------------------------------------------------------------


def test_from_must_be_the_did_that_encrypted_or_signed() -> None:
    for wrong in (None, CAROL):
        plain = dump(message(wrong))
        for data in (auth(plain), anon(auth(plain)), signed(plain), anon(signed(plain)), auth(signed(plain))):
            with pytest.raises(Unauthentic):
                open_(data)
    assert open_(auth(dump(replace(message(), from_=ALICE.did)))).sender == ALICE.short


def test_auth_of_sign_must_have_one_author() -> None:
    for data in (auth(signed(PLAIN), CAROL), auth(signed(dump(message(CAROL)), CAROL)), auth(signed(PLAIN, CAROL))):
        with pytest.raises(Unauthentic):
            open_(data)


def test_signed_inner_message_must_name_the_recipient() -> None:
    """The specification demands both acceptance and refusal (erratum). See `Opened.addressed`."""
    for_carol, for_nobody = dump(message(ALICE, CAROL)), dump(replace(message(), to=()))
    for wrap in (anon, auth):
        assert open_(wrap(dump(message(ALICE, CAROL, BOB)))).addressed is True
        assert open_(wrap(dump(replace(message(), to=(CAROL.did, BOB.did))))).addressed is True
        assert open_(wrap(for_carol)).addressed is False
        assert open_(wrap(for_nobody)).addressed is None
        assert open_(wrap(signed(dump(message(ALICE, CAROL, BOB))))).addressed is True
        for plain in (for_carol, for_nobody):
            with pytest.raises(Unauthentic):
                open_(wrap(signed(plain)))
    assert open_(signed(for_carol)).addressed is None


def test_a_signature_is_made_for_authentication_by_the_sender() -> None:
    """Not with the key for agreement, not by a key that the document does not have; others' signatures do not count."""
    assert open_(signed(PLAIN, CAROL, ALICE)).layers == (SIGN,)
    with pytest.raises(Unauthentic):
        open_(signed(PLAIN, CAROL))
    key = signing(ALICE)
    for kid in (ALICE.kid_short, ALICE.short + "#key-3", ALICE.short, "did:example:alice#key-1"):
        with pytest.raises(Unauthentic):
            open_(jws.sign(PLAIN, [(kid, key.key)]))
    with pytest.raises(Unauthentic):
        open_(jws.sign(PLAIN, [(key.kid, SecretKey("Ed25519", CAROL.signing_seed))]))


def test_keys_must_be_for_agreement_in_their_owners_documents() -> None:
    """A key that signs does not encrypt, neither theirs nor ours, and a retired key of ours opens nothing more."""
    alice, bob = (new_secret("P-256", dice(seed)) for seed in (21, 22))
    a, b = "did:example:a", "did:example:b"
    own, theirs = OwnKey(a + "#1", alice), TheirKey(b + "#1", public_of(bob))
    message_ = Message("https://example.org/chat/1.0/post", "1", from_=a, to=(b,))
    data = V2.authcrypt(dump(message_), sender=own, recipient=theirs, random=dice(1))
    right = {
        a: Document(a, (Method(a + "#1", public_of(alice)),), (), ()),
        b: Document(b, (Method(b + "#1", public_of(bob)),), (), ()),
    }

    def open_with(**documents: Document) -> Opened:
        found = right | {f"did:example:{name}": document for name, document in documents.items()}
        return open_layers(data, secret_of={b + "#1": bob}.get, resolve=found.__getitem__)

    assert open_with().sender == a
    for did, name, key in ((a, "a", alice), (b, "b", bob)):
        method = Method(did + "#1", public_of(key))
        for wrong in (
            Document(did, (), (method,), ()),
            Document(did, (Method(did + "#2", public_of(key)),), (), ()),
            Document(did, (Method(did + "#1", public_of(new_secret("P-256", dice(9)))),), (), ()),
        ):
            with pytest.raises(Unauthentic):
                open_with(**{name: wrong})


def test_both_layers_of_a_protected_sender_share_a_did() -> None:
    assert open_(anon(auth(PLAIN)), BOB, BOB_TOO).recipient_kid == BOB.kid_short
    with pytest.raises(Unauthentic):
        open_(anon(auth(PLAIN), BOB_TOO), BOB, BOB_TOO)


def test_a_did_that_cannot_be_resolved_is_refused_as_sender() -> None:
    with pytest.raises(Unauthentic) as caught:
        open_layers(auth(PLAIN), secret_of=secrets(BOB), resolve=lambda did: resolve(did, {BOB.short: BOB.did}))
    assert isinstance(caught.value.__cause__, Malformed), "whoever debugs sees why"
    with pytest.raises(Unauthentic):
        open_layers(signed(PLAIN), secret_of=secrets(BOB), resolve=resolve)


def test_the_outside_learns_one_thing() -> None:
    """Wrong key, tag, layer and sender are indistinguishable; only an invalid outermost layer differs."""
    tree = json.loads(auth(PLAIN))
    flipped = ("B" if tree["tag"][0] == "A" else "A") + tree["tag"][1:]
    failures = [
        json.dumps(tree | {"tag": flipped}).encode(),
        auth(PLAIN, to=CAROL),
        auth(dump(message(CAROL))),
        anon(b"text"),
        anon(signed(PLAIN, CAROL)),
        signed(PLAIN, CAROL),
        PLAIN,
    ]
    seen = set()
    for data in failures:
        with pytest.raises(Unauthentic) as caught:
            open_(data)
        seen.add((str(caught.value), tuple(caught.value.fields)))
    assert len(seen) == 1
    for data in (b"", b"{}", b"[]", b"text", auth(PLAIN)[:-1], b'{"payload":"e30"}', b'{"ciphertext":"AA"}'):
        with pytest.raises(Malformed):
            open_(data, allow_plain=True)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**6), st.integers(1, 255), st.sampled_from([auth(PLAIN), anon(auth(PLAIN)), signed(PLAIN)]))
def test_a_changed_byte_is_detected(at: int, mask: int, data: bytes) -> None:
    changed = bytearray(data)
    changed[at % len(data)] ^= mask
    with pytest.raises(RemoteError):
        open_(bytes(changed))


# --- version 1 ------------------------------------------------------------------------------------------------------


def test_v1_is_detected_and_has_no_inner_layers() -> None:
    recipient = V1.their_key(resolve(BOB.did), BOB.short)
    plain = V1.dump(message())
    data = V1.authcrypt(plain, sender=V1.own_key(ALICE, ALICE.short), recipient=recipient, random=dice(1))
    opened = open_(data)
    assert (opened.profile, opened.sender, opened.signer) == ("didcomm/v1", ALICE.short, None)
    assert opened.message.body == BODY
    assert [layer.kind for layer in opened.layers] == ["authcrypt"]
    assert opened.recipient_kid == base58(BOB.signing_public)
    opened = open_(V1.anoncrypt(plain, recipient=recipient, random=dice(1)))
    assert (opened.profile, opened.sender, opened.addressed) == ("didcomm/v1", None, None)
    forged = V1.authcrypt(plain, sender=V1.own_key(CAROL, CAROL.short), recipient=recipient, random=dice(1))
    for wrong in (forged, V1.anoncrypt(data, recipient=recipient, random=dice(1)), anon(data)):
        with pytest.raises(Unauthentic):
            open_(wrong)


def test_forgeable_envelopes_prove_no_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 0019 to several recipients; zerochat writes none."""
    recipient = V1.their_key(resolve(BOB.did), BOB.short)
    data = V1.authcrypt(V1.dump(message()), sender=V1.own_key(ALICE, ""), recipient=recipient, random=dice(1))
    unpack = type(V1).unpack
    several = lambda *args, **options: unpack(*args, **options)._replace(forgeable=True)  # noqa: E731
    monkeypatch.setattr(type(V1), "unpack", several)
    opened = open_(data)
    assert opened.forgeable and opened.sender is None


# --- media types ----------------------------------------------------------------------------------------------------


def test_media_types_are_detected_by_content() -> None:
    flattened = jws.sign(PLAIN, [(signing(ALICE).kid, signing(ALICE).key)], flattened=True)
    v1 = V1.anoncrypt(PLAIN, recipient=V1.their_key(resolve(BOB.did), BOB.short), random=dice(1))
    tree = json.loads(anon(PLAIN))
    [recipient] = tree.pop("recipients")
    for data, kind in (
        (PLAIN, MediaType.PLAIN),
        (signed(PLAIN), MediaType.SIGNED),
        (flattened, MediaType.SIGNED),
        (anon(PLAIN), MediaType.ENCRYPTED),
        (json.dumps(tree | recipient).encode(), MediaType.ENCRYPTED),
        (v1, MediaType.ENCRYPTED_V1),
    ):
        assert media_type_of(data) is kind
        assert media_type_of(b" " + data + b"\n") is kind
    for packer in (V1, V2):
        assert packer.media_type in list(MediaType)
    assert set(EXTENSION_OF) == set(MediaType) and set(EXTENSION_OF.values()) == {".dcpm", ".dcsm", ".dcem"}
    for data in (b"", b"1", b"[]", b"{}", b'{"id":"1"}', b'{"id":"1","type":null}', b'{"protected":"e30"}'):
        with pytest.raises(Malformed):
            media_type_of(data)


# --- sealing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "options", "why"),
    [
        (message(), {}, "neither a recipient nor a signer"),
        (message(), {"sender": agreeing(ALICE)}, "neither a recipient nor a signer"),
        (message(), {"protect_sender": True, "recipient": reading(BOB)}, "no sender"),
        (message(CAROL), {"sender": agreeing(ALICE), "recipient": reading(BOB)}, "from another DID"),
        (message(CAROL), {"signer": signing(ALICE)}, "from another DID"),
        (message(ALICE, CAROL), {"sender": agreeing(ALICE), "recipient": reading(BOB)}, "to other DIDs"),
        (message(ALICE, CAROL), {"signer": signing(ALICE), "recipient": reading(BOB)}, "to other DIDs"),
    ],
    ids=["plain", "nobody", "no-sender", "other-sender", "other-signer", "other-reader", "other-signed-reader"],
)
def test_nothing_is_sealed_that_its_reader_would_refuse(wrong: Message, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        seal_layers(wrong, random=dice(1), **options)
