"""DIDComm v1: plaintext, envelope, and the limits of its authentication."""

import base64
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings as sodium

from zerochat.crypto.encoding import b64url_bytes, base58, compact_json, did_key
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm import rfc0019
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import Identity, new_peer4, resolve
from zerochat.didcomm.iso8601 import SECONDS_MAX, iso_seconds, iso_time
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, TheirKey, Unpacked, envelope_kind
from zerochat.didcomm.rfc0019 import HEADER_BYTES_MAX, RECIPIENTS_MAX, Rfc0019Packer
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import Malformed, RemoteError, Unauthentic

BODY = '{"text":"See you at eight? – naïve 日本語 ✓"}'.encode()
PACKER = Rfc0019Packer()
TYPE = "https://didcomm.org/basicmessage/1.0/message"

Json = Any


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


ALICE, BOB, CAROL = (new_peer4(dice(seed), []) for seed in (1, 2, 3))


def verkey(person: Identity) -> str:
    return base58(person.signing_public)


def their_key(person: Identity) -> TheirKey:
    return PACKER.their_key(resolve(person.did), person.short)


def authcrypt(plain: bytes = BODY, sender: Identity = ALICE, recipient: Identity = BOB, seed: int = 7) -> bytes:
    own = PACKER.own_key(sender, sender.short)
    return PACKER.authcrypt(plain, sender=own, recipient=their_key(recipient), random=dice(seed))


def anoncrypt(plain: bytes = BODY, recipient: Identity = BOB) -> bytes:
    return PACKER.anoncrypt(plain, recipient=their_key(recipient), random=dice(8))


def secrets(*people: Identity) -> Callable[[str], SecretKey | None]:
    return {verkey(person): SecretKey("Ed25519", person.signing_seed) for person in people}.get


def unpack(envelope: bytes, *people: Identity) -> Unpacked:
    return PACKER.unpack(envelope, secret_of=secrets(*people or (BOB,)), public_of=lambda kid: pytest.fail(kid))


def opened(envelope: bytes) -> tuple[Json, Json]:
    """The members of an envelope, and of its header."""
    tree = json.loads(envelope)
    return tree, json.loads(base64.urlsafe_b64decode(tree["protected"]))


def closed(tree: Json, header: Json | bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return json.dumps({**tree, "protected": base64.urlsafe_b64encode(raw).decode()}).encode()


# --- the envelope ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [b"", b"{}", BODY, b"x" * MESSAGE_BYTES_MAX], ids=len)
def test_pack_unpack_round_trip(plain: bytes) -> None:
    unpacked = unpack(authcrypt(plain))
    assert (unpacked.plain, unpacked.kind, unpacked.sender_kid) == (plain, "authcrypt", verkey(ALICE))
    assert (unpacked.recipient_kid, unpacked.forgeable) == (verkey(BOB), False)
    unpacked = unpack(anoncrypt(plain))
    assert (unpacked.plain, unpacked.kind, unpacked.sender_kid) == (plain, "anoncrypt", None)
    assert envelope_kind(authcrypt(plain)) == envelope_kind(anoncrypt(plain)) == "didcomm/v1"


def x_keys(person: Identity) -> tuple[bytes, bytes]:
    pair = person.signing_seed + person.signing_public
    public = sodium.crypto_sign_ed25519_pk_to_curve25519(person.signing_public)
    return public, sodium.crypto_sign_ed25519_sk_to_curve25519(pair)


def test_envelopes_are_those_of_the_rfc() -> None:
    """Opened as RFC 0019, "Unpack Algorithm", has it, with libsodium's own functions, in padded base64url."""
    tree, header = opened(authcrypt())
    assert list(tree) == ["protected", "iv", "ciphertext", "tag"]
    [recipient] = header.pop("recipients")
    assert header == {"enc": "xchacha20poly1305_ietf", "typ": "JWM/1.0", "alg": "Authcrypt"}
    assert recipient["header"]["kid"] == verkey(BOB)
    raw = {name: base64.urlsafe_b64decode(value) for name, value in tree.items()}
    inner = {name: base64.urlsafe_b64decode(recipient["header"][name]) for name in ("sender", "iv")}
    bobs, secret = x_keys(BOB)
    assert sodium.crypto_box_seal_open(inner["sender"], bobs, secret).decode() == verkey(ALICE)
    key = sodium.crypto_box_open(
        base64.urlsafe_b64decode(recipient["encrypted_key"]), inner["iv"], x_keys(ALICE)[0], secret
    )
    aad = tree["protected"].encode()
    sealed = raw["ciphertext"] + raw["tag"]
    assert sodium.crypto_aead_chacha20poly1305_ietf_decrypt(sealed, aad, raw["iv"], key) == BODY

    tree, header = opened(anoncrypt())
    [recipient] = header["recipients"]
    assert header["alg"] == "Anoncrypt" and recipient["header"] == {"kid": verkey(BOB)}
    key = sodium.crypto_box_seal_open(base64.urlsafe_b64decode(recipient["encrypted_key"]), bobs, secret)
    assert len(key) == 32


def test_no_two_envelopes_share_a_key_or_a_sealed_sender() -> None:
    headers = [opened(authcrypt(seed=seed))[1]["recipients"][0] for seed in range(20)]
    for name in ("sender", "iv"):
        assert len({header["header"][name] for header in headers}) == 20
    assert len({header["encrypted_key"] for header in headers}) == 20


def test_only_the_recipient_opens() -> None:
    for envelope in (authcrypt(), anoncrypt()):
        for people in ((ALICE,), (CAROL,), (ALICE, CAROL)):
            with pytest.raises(Unauthentic):
                unpack(envelope, *people)
    mine = SecretKey("Ed25519", CAROL.signing_seed)
    with pytest.raises(Unauthentic):
        PACKER.unpack(authcrypt(), secret_of=lambda kid: mine)
    with pytest.raises(Unauthentic):
        PACKER.unpack(authcrypt(), secret_of=lambda kid: SecretKey("X25519", BOB.agreement_secret))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["authcrypt", "anoncrypt"]), st.randoms(use_true_random=False))
def test_a_changed_character_opens_nothing(kind: str, dice: random.Random) -> None:
    """Anywhere in the header, the nonce, the ciphertext or the tag, and in whatever is sealed into the header."""
    tree, _ = opened(authcrypt() if kind == "authcrypt" else anoncrypt())
    place = dice.choice(["protected", "iv", "ciphertext", "tag"])
    text = tree[place]
    at = dice.randrange(len(text))
    other = dice.choice([c for c in "ABCxyz019-_=!" if c != text[at]])
    with pytest.raises(RemoteError):
        unpack(json.dumps({**tree, place: text[:at] + other + text[at + 1 :]}).encode())


def test_envelopes_of_other_implementations_are_opened() -> None:
    tree, header = opened(authcrypt())
    bare = {name: value.rstrip("=") for name, value in tree.items() if name != "protected"}
    assert unpack(json.dumps({**tree, **bare}).encode()).plain == BODY
    # The tag cut off in the wrong place, by characters instead of bytes (ACA-Py and others).
    sealed = b64url_bytes(tree["ciphertext"]) + b64url_bytes(tree["tag"])
    cut = {"ciphertext": sealed[:13], "tag": sealed[13:]}
    wrong = {name: base64.urlsafe_b64encode(value).decode() for name, value in cut.items()}
    assert unpack(json.dumps({**tree, **wrong}).encode()).plain == BODY
    # Other deviations are in the header, which is additional data: the envelope is encrypted again.
    for change in (
        {"enc": "chacha20poly1305_ietf"},
        {"enc": "xchachapoly1305_ietf"},
        {"alg": "authcrypt"},
        {"alg": "AUTHCRYPT"},
    ):
        assert unpack(resealed(header={**header, **change})).plain == BODY
    anonymous = opened(anoncrypt())[1]
    anonymous["recipients"][0]["header"] |= {"sender": None, "iv": None}
    assert unpack(resealed(header=anonymous, envelope=anoncrypt())).plain == BODY
    spaced = json.dumps(header, indent=2).encode()
    assert unpack(resealed(header=spaced)).plain == BODY


def spelt(envelope: bytes, *, spaced: bool = False, bare: bool = False, order: str = "") -> bytes:
    """The same envelope as other libraries spell it, `order` by the members' first letters. It no longer opens: its
    header is another text."""
    tree, header = opened(envelope)
    recipient = header["recipients"][0]
    recipient["header"] = dict(sorted(recipient["header"].items(), key=lambda member: order.find(member[0][0])))
    separators = (", ", ": ") if spaced else (",", ":")
    tree["protected"] = base64.urlsafe_b64encode(json.dumps(header, separators=separators).encode()).decode()
    tree = {
        name: tree[name].rstrip("=") if bare else tree[name] for name in sorted(tree, key=lambda n: order.find(n[0]))
    }
    return json.dumps(tree, separators=separators).encode()


def variants(text: bytes) -> Iterator[bytes]:
    """Cut off at every place, with something inserted there, and every byte changed in eight ways."""
    inserted = [b"\\n", b"\xc3\xa9", b'"junk', *(bytes([byte]) for byte in b'\n\1\\\x7f\xff "=A,}')]
    for at in range(len(text) + 1):
        head, byte, rest = text[:at], text[at : at + 1], text[at + 1 :]
        yield from (head, *(head + more + byte + rest for more in inserted))
        if byte:
            others = (bytes([byte[0] ^ 1]), bytes([byte[0] ^ 0x20]), b"", byte * 2, b"A", b"=", b'"', b" ")
            yield from (head + other + rest for other in others)


SPELLINGS = {
    "ours": authcrypt(b""),
    "ours, anonymous": anoncrypt(b"a"),
    "with spaces, not padded": spelt(authcrypt(b"ab"), spaced=True, bare=True),
    "ciphertext first": spelt(anoncrypt(b"abc"), bare=True, order="pcit"),
    "sender last": spelt(authcrypt(b"abcd"), order="pkisct"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_fast_path_agrees_with_the_general_parser(name: str) -> None:
    """Every byte of envelope and header changed, and something inserted at every place."""
    envelope = SPELLINGS[name]
    assert rfc0019._usual(envelope) == rfc0019._general(envelope)
    protected = opened(envelope)[0]["protected"].encode()
    headers = variants(b64url_bytes(protected.decode()))
    inside = (envelope.replace(protected, base64.urlsafe_b64encode(header)) for header in headers)
    short = {variant: rfc0019._usual(variant) for variant in (*variants(envelope), *inside)}
    read = [(variant, found) for variant, found in short.items() if found is not None]
    assert len(read) > 200, "the comparison is worth nothing when nothing is usual"
    for variant, found in read:
        assert rfc0019._general(variant) == found, variant


def test_fast_path_refuses_hidden_members() -> None:
    tree, _ = opened(authcrypt(b""))
    del tree["ciphertext"]
    four = compact_json({**tree, "more": "ab"})
    assert unpack(four).plain == b""
    for wrong in (
        four.replace(b"ab", b"a\1"),
        four.replace(b"more", b"mo\n"),
        authcrypt() + b'"junk',
        authcrypt() + b'""',
    ):
        with pytest.raises(Malformed):
            unpack(wrong)


def test_fast_path_leaves_errors_to_the_general_parser() -> None:
    tree, header = opened(authcrypt(b""))
    iv, anonymous = tree["iv"], compact_json(opened(anoncrypt(b""))[1])
    for change in (
        {"tag": base64.urlsafe_b64encode(bytes(15)).decode()},
        {"iv": iv[:12]},
        {"iv": iv[:13] + "A=="},
        {"iv": iv[:12], "ciphertext": iv[12:]},
        {"iv": iv + iv[:4]},
    ):
        assert rfc0019._usual(compact_json({**tree, **change})) is None
    raw = compact_json(header)
    for wrong in (
        raw.replace(b"Authcrypt", b"Anoncrypt"),
        anonymous.replace(b"Anoncrypt", b"Authcrypt"),
        raw.replace(b'"iv"', b'"sender"'),
        raw.replace(b'"sender"', b'"iv"'),
    ):
        protected = base64.urlsafe_b64encode(wrong).decode()
        assert rfc0019._usual(compact_json({**tree, "protected": protected})) is None


def test_fast_path_detects_duplicate_and_critical_members() -> None:
    tree, header = opened(authcrypt(b""))
    envelope, raw = compact_json(tree), compact_json(header)
    inside = [raw.replace(b"{", b"{" + more, 1) for more in (b'"typ":"JWM/1.0",', b'"crit":[],', b'"zip":"DEF",')]
    protected = [
        base64.urlsafe_b64encode(wrong).decode() for wrong in (*inside, raw.replace(b'"kid"', b'"kid":"a","kid"'))
    ]
    outside = [envelope.replace(b"{", b"{" + more, 1) for more in (b'"iv":"",', b'"aad":"",', b'"recipients":[],')]
    for wrong in (*outside, *(compact_json({**tree, "protected": text}) for text in protected)):
        with pytest.raises(Malformed):
            unpack(wrong)


def test_the_shortcut_has_the_limits_of_the_long_way() -> None:
    tree, header = opened(authcrypt(b""))
    kid = HEADER_BYTES_MAX - len(compact_json(header)) + len(verkey(BOB))
    content = (ENVELOPE_BYTES_MAX - len(compact_json(tree))) // 4 * 4
    for more, fits in ((0, True), (4, False)):
        header["recipients"][0]["header"]["kid"] = "z" * (kid + more)
        protected = base64.urlsafe_b64encode(compact_json(header)).decode()
        for change in ({"protected": protected}, {"ciphertext": "A" * (content + more)}):
            envelope = compact_json({**tree, **change})
            assert (rfc0019._usual(envelope) is not None) == fits
            if fits:
                assert rfc0019._usual(envelope) == rfc0019._general(envelope)
            else:
                with pytest.raises(Malformed, match="more than"):
                    rfc0019._general(envelope)


def resealed(header: Json | bytes, plain: bytes = BODY, envelope: bytes | None = None) -> bytes:
    """Our envelope with another header, re-encrypted by Bob, who knows the content encryption key as any recipient
    does."""
    envelope = envelope or authcrypt()
    _, original = opened(envelope)
    [recipient] = original["recipients"]
    bobs, secret = x_keys(BOB)
    boxed = base64.urlsafe_b64decode(recipient["encrypted_key"])
    if original["alg"] == "Authcrypt":
        nonce = base64.urlsafe_b64decode(recipient["header"]["iv"])
        key = sodium.crypto_box_open(boxed, nonce, x_keys(ALICE)[0], secret)
    else:
        key = sodium.crypto_box_seal_open(boxed, bobs, secret)
    return sealed_under(key, header, plain)


def sealed_under(key: bytes, header: Json | bytes, plain: bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    aad = base64.urlsafe_b64encode(raw)
    sealed = sodium.crypto_aead_chacha20poly1305_ietf_encrypt(plain, aad, bytes(12), key)
    parts = {"iv": bytes(12), "ciphertext": sealed[:-16], "tag": sealed[-16:]}
    return closed({name: base64.urlsafe_b64encode(part).decode() for name, part in parts.items()}, raw)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.booleans(), st.booleans(), st.integers(0, 3), st.randoms(use_true_random=False))
def test_fast_path_reads_usual_envelopes(spaced: bool, swapped: bool, changes: int, dice: random.Random) -> None:
    """Envelopes in the usual spellings, with a few characters of header or envelope changed."""
    tree, header = opened(authcrypt() if dice.random() < 0.7 else anoncrypt())
    if swapped:
        inner = header["recipients"][0]["header"]
        header["recipients"][0]["header"] = {name: inner[name] for name in ("kid", "iv", "sender") if name in inner}
    text = json.dumps(header, separators=None if spaced else (",", ":"))
    whole = closed(tree, changed(text, changes, dice).encode()).decode()
    whole = whole if spaced else whole.replace(" ", "")
    envelope = changed(whole, min(changes, 1), dice).encode()
    short = rfc0019._usual(envelope)
    assert short is not None or changes
    if short is not None:
        assert short == rfc0019._general(envelope)


def changed(text: str, times: int, dice: random.Random) -> str:
    for _ in range(times):
        at = dice.randrange(len(text))
        text = text[:at] + dice.choice('"\\ ,:{}[]=aAé') + text[at + dice.randrange(2) :]
    return text


def cut_elsewhere(header: Json, key_end: int, iv_end: int) -> None:
    """The same characters of the boxed key, its nonce and the sender, shared out otherwise."""
    recipient = header["recipients"][0]
    joined = recipient["encrypted_key"] + recipient["header"]["iv"] + recipient["header"]["sender"]
    recipient["encrypted_key"] = joined[:key_end]
    recipient["header"] |= {"iv": joined[key_end:iv_end], "sender": joined[iv_end:]}


WRONG_HEADERS: dict[str, Callable[[Json], object]] = {
    "another typ": lambda h: h.update(typ="JWM/2.0"),
    "no typ": lambda h: h.pop("typ"),
    "another enc": lambda h: h.update(enc="XC20P"),
    "enc not text": lambda h: h.update(enc=["xchacha20poly1305_ietf"]),
    "another alg": lambda h: h.update(alg="Unknown"),
    "alg not text": lambda h: h.update(alg=1),
    "crit": lambda h: h.update(crit=["b64"]),
    "zip": lambda h: h.update(zip="DEF"),
    "no recipients": lambda h: h.update(recipients=[]),
    "recipients not a list": lambda h: h.update(recipients={}),
    "a recipient not an object": lambda h: h.update(recipients=["x"]),
    "a recipient twice": lambda h: h["recipients"].append(h["recipients"][0]),
    "too many recipients": lambda h: h["recipients"].extend(
        {**h["recipients"][0], "header": {**h["recipients"][0]["header"], "kid": str(n)}} for n in range(RECIPIENTS_MAX)
    ),
    "blank kid": lambda h: h["recipients"][0]["header"].update(kid=""),
    "no kid": lambda h: h["recipients"][0]["header"].pop("kid"),
    "sender without iv": lambda h: h["recipients"][0]["header"].pop("iv"),
    "iv without sender": lambda h: h["recipients"][0]["header"].update(sender=None),
    "anonymous with sender": lambda h: h.update(alg="Anoncrypt"),
    "short iv": lambda h: h["recipients"][0]["header"].update(iv="AAAA"),
    "short sender": lambda h: h["recipients"][0]["header"].update(sender="AAAA"),
    "short key": lambda h: h["recipients"][0].update(encrypted_key="AAAA"),
    "iv cut off early": lambda h: cut_elsewhere(h, 64, 92),
    "key and iv cut off early": lambda h: cut_elsewhere(h, 60, 92),
    "iv cut off late": lambda h: cut_elsewhere(h, 64, 100),
}


@pytest.mark.parametrize("name", WRONG_HEADERS)
def test_a_wrong_header_is_refused(name: str) -> None:
    """Each is sealed as it should be, so it is the header that is refused, and not the seal."""
    header = opened(authcrypt())[1]
    assert unpack(resealed(header)).plain == BODY
    WRONG_HEADERS[name](header)
    with pytest.raises(Malformed):
        unpack(resealed(header))


def test_every_text_has_one_reading() -> None:
    tree, header = opened(authcrypt())
    envelope = json.dumps(tree)
    twice = envelope[:-1] + f', "tag": "{tree["tag"]}"}}'
    raw = json.dumps(header).encode()
    for wrong in (
        twice.encode(),
        resealed(raw[:-1] + b',"enc":"xchacha20poly1305_ietf"}'),
        json.dumps({**tree, "recipients": header["recipients"]}).encode(),
        json.dumps({**tree, "tag": tree["tag"] + "="}).encode(),
        json.dumps({**tree, "tag": tree["tag"][:-3] + "B=="}).encode(),
        json.dumps({**tree, "iv": tree["iv"][:-4]}).encode(),
        json.dumps({**tree, "tag": None}).encode(),
        b"[]",
        b"null",
        b"",
        b"\xff",
    ):
        with pytest.raises(Malformed):
            unpack(wrong)


@pytest.mark.parametrize("sealed", [b"z" * 43, b"1" * 32, verkey(ALICE)[:-1].encode() + b"0", bytes(44), b"\xff" * 43])
def test_invalid_sealed_sender_is_unauthentic(sealed: bytes) -> None:
    tree, header = opened(authcrypt())
    box = sodium.crypto_box_seal(sealed, x_keys(BOB)[0])
    header["recipients"][0]["header"]["sender"] = base64.urlsafe_b64encode(box).decode()
    with pytest.raises(Unauthentic):
        unpack(closed(tree, header))


def test_invalid_recipient_keys_are_refused() -> None:
    for key in (
        PublicKey("Ed25519", bytes(32)),
        PublicKey("Ed25519", b"\1"),
        PublicKey("X25519", BOB.agreement_public),
    ):
        with pytest.raises(RemoteError):
            PACKER.anoncrypt(b"{}", recipient=TheirKey("#", key), random=dice(1))
        with pytest.raises(RemoteError):
            PACKER.authcrypt(
                b"{}", sender=PACKER.own_key(ALICE, ALICE.did), recipient=TheirKey("#", key), random=dice(1)
            )
    with pytest.raises(Malformed):
        anoncrypt(b"x" * (MESSAGE_BYTES_MAX + 1))


# --- several recipients ---------------------------------------------------------------------------------------------


def to_several(plain: bytes, key: bytes, *people: Identity) -> tuple[bytes, Json]:
    """An envelope from Alice to several recipients, as some libraries write it, and its header."""
    recipients = []
    for number, person in enumerate(people):
        public, nonce = x_keys(person)[0], bytes([number]) * 24
        parts = {"sender": sodium.crypto_box_seal(verkey(ALICE).encode(), public), "iv": nonce}
        header = {name: base64.urlsafe_b64encode(part).decode() for name, part in parts.items()}
        boxed = sodium.crypto_box(key, nonce, public, x_keys(ALICE)[1])
        encoded = base64.urlsafe_b64encode(boxed).decode()
        recipients.append({"encrypted_key": encoded, "header": {"kid": verkey(person), **header}})
    whole = {"enc": "xchacha20poly1305_ietf", "typ": "JWM/1.0", "alg": "Authcrypt", "recipients": recipients}
    return sealed_under(key, whole, plain), whole


def test_a_recipient_can_forge_multi_recipient_envelopes() -> None:
    """Why zerochat writes to one recipient and marks multi-recipient envelopes (DIDComm v2 binds the content's tag in
    the key derivation instead)."""
    key = b"k" * 32
    genuine, header = to_several(BODY, key, BOB, CAROL)
    assert unpack(genuine, BOB).plain == unpack(genuine, CAROL).plain == BODY
    # Carol opened her box, so she has the key. The header stays as Alice made it.
    forged = sealed_under(key, header, b'{"text":"I owe Carol a thousand"}')
    seen = unpack(forged, BOB)
    assert seen.plain == b'{"text":"I owe Carol a thousand"}' and seen.sender_kid == verkey(ALICE)
    assert seen.forgeable
    message = Message(type=TYPE, id="1", from_=ALICE.did)
    with pytest.raises(Unauthentic):
        PACKER.check_sender(message, seen, resolve)

    # She can even leave herself out, and then nothing shows: the mark is about envelopes, the rule about writers.
    header["recipients"] = header["recipients"][:1]
    stripped = unpack(sealed_under(key, header, b'{"text":"I owe Carol a thousand"}'), BOB)
    assert stripped.sender_kid == verkey(ALICE) and not stripped.forgeable


def test_an_envelope_that_names_two_of_our_keys_is_refused() -> None:
    genuine, _ = to_several(BODY, b"k" * 32, BOB, CAROL)
    with pytest.raises(Unauthentic):
        unpack(genuine, BOB, CAROL)


# --- whose key it is ------------------------------------------------------------------------------------------------


def test_sender_needs_the_key_in_its_document() -> None:
    unpacked = unpack(authcrypt())
    for did in (ALICE.did, ALICE.short):
        message = Message(type=TYPE, id="1", from_=did)
        assert PACKER.check_sender(message, unpacked, lambda did: resolve(did, {ALICE.short: ALICE.did})) == did
    with pytest.raises(Unauthentic):
        PACKER.check_sender(Message(type=TYPE, id="1", from_=CAROL.did), unpacked, resolve)
    nameless = PACKER.check_sender(Message(type=TYPE, id="1"), unpacked, resolve)
    assert nameless == did_key(ALICE.signing_public)
    assert PACKER.check_sender(Message(type=TYPE, id="1", from_=nameless), unpacked, resolve) == nameless
    with pytest.raises(Unauthentic):
        PACKER.check_sender(Message(type=TYPE, id="1", from_=ALICE.did), unpack(anoncrypt()), resolve)


def test_a_document_without_a_verkey_is_not_written_to() -> None:
    x25519_only = "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc"
    with pytest.raises(Malformed):
        PACKER.their_key(resolve(x25519_only), x25519_only)


# --- the plaintext --------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20)
IDS = st.text("abcXYZ019-._~/:", min_size=1, max_size=40)
TIMES = st.none() | st.integers(0, SECONDS_MAX)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
BODY_NAMES = TEXT.filter(lambda name: not name.startswith(("@", "~")))
ATTACHMENTS = st.builds(
    Attachment,
    id=st.none() | st.text("abc-19", min_size=1, max_size=9),
    media_type=st.none() | TEXT,
    format=st.none() | TEXT,
    filename=st.none() | TEXT,
    description=st.none() | TEXT,
    base64=TEXT,
    json=st.none() | st.booleans(),
    links=st.just(("https://example.com/1",)),
    hash=TEXT,
    lastmod_time=TIMES,
    byte_count=st.none() | st.integers(0, 2**53 - 1),
    jws=st.none() | st.just({"signature": "x"}),
)
MESSAGES = st.builds(
    Message,
    type=st.text("abc:/.019", min_size=1, max_size=40),
    id=IDS,
    body=st.dictionaries(BODY_NAMES, JSON_VALUES, max_size=4),
    from_=st.none() | st.sampled_from([ALICE.did, ALICE.short]),
    to=st.lists(st.sampled_from([BOB.short, CAROL.did]), max_size=3).map(tuple),
    thid=st.none() | IDS,
    pthid=st.none() | IDS,
    created_time=TIMES,
    expires_time=TIMES,
    from_prior=st.none() | st.text("ab.", max_size=9),
    attachments=st.lists(ATTACHMENTS, max_size=2).map(tuple),
    please_ack=st.lists(st.just("") | IDS, max_size=3).map(tuple),
    ack=st.lists(IDS, max_size=3).map(tuple),
    lang=st.none() | st.sampled_from(["en", "pt-BR"]),
    accept_lang=st.lists(st.sampled_from(["de", "fr"]), max_size=2).map(tuple),
    return_route=st.sampled_from([None, "none", "all", "thread"]),
    delay_milli=st.none() | st.integers(-(10**6), 10**6),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(MESSAGES)
def test_dump_parse_round_trip(message: Message) -> None:
    assert parse_v1(dump_v1(message)) == message


def test_headers_are_the_decorators_of_the_rfcs() -> None:
    message = Message(
        type=TYPE,
        id="m-1",
        body={"content": "hello", "files~attach": [1]},
        thid="t-1",
        pthid="did:example:123#service",
        created_time=1_548_266_607,
        expires_time=1_548_440_700,
        delay_milli=-5,
        please_ack=("",),
        lang="pt-BR",
        return_route="thread",
        attachments=(Attachment(id="a-1", media_type="text/plain", base64="aGk", lastmod_time=0),),
    )
    assert json.loads(dump_v1(message)) == {
        "@type": TYPE,
        "@id": "m-1",
        "~thread": {"thid": "t-1", "pthid": "did:example:123#service"},
        "~timing": {"out_time": "2019-01-23T18:03:27Z", "expires_time": "2019-01-25T18:25:00Z", "delay_milli": -5},
        "~please_ack": {"on": ["RECEIPT"]},
        "~l10n": {"locale": "pt-BR"},
        "~transport": {"return_route": "thread", "return_route_thread": "t-1"},
        "~attach": [
            {
                "@id": "a-1",
                "mime-type": "text/plain",
                "lastmod_time": "1970-01-01T00:00:00Z",
                "data": {"base64": "aGk"},
            }
        ],
        "content": "hello",
        "files~attach": [1],
    }


def test_other_implementations_are_understood() -> None:
    digest = "1d4db525c5ee4a2d42899040cd3728c0f0945faf9eb668b53d99c002123f1ffa"
    message = parse_v1(
        compact_json(
            {
                "@type": "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/trust_ping/1.0/ping",
                "@id": "518be002-de8e-456e-b3d5-8fe472477a86",
                "~thread": None,
                "~timing": {"out_time": "2018-12-15 04:29:23.5Z", "expires_time": "soon", "stale_time": 5},
                "~please_ack": {},
                "~l10n": {"locale": 7},
                "~transport": [],
                "~unheard-of": {"x": 1},
                "~attach": [{"data": {"sha256": digest, "links": ["s3://bucket/key"]}}],
                "comment": None,
                "comment~l10n": {"de": "Hallo"},
            }
        )
    )
    assert message == Message(
        type="https://didcomm.org/trust_ping/1.0/ping",
        id="518be002-de8e-456e-b3d5-8fe472477a86",
        body={"comment": None, "comment~l10n": {"de": "Hallo"}},
        created_time=1_544_848_163,
        please_ack=("",),
        attachments=(Attachment(links=("s3://bucket/key",), hash="1220" + digest),),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"@id": None},
        {"@type": None},
        {"@id": 5},
        {"@id": ""},
        {"@id": "two words"},
        {"@id": "x" * 257},
        {"@type": "x" * 513},
        {"~thread": "t"},
        {"~thread": {"thid": 5}},
        {"~from": "alice"},
        {"~to": BOB.did},
        {"~to": ["bob"]},
        {"~to": [BOB.did] * 65},
        {"~from_prior": {}},
        {"~attach": [{}]},
        {"~attach": [{"data": {}}]},
        {"~attach": [{"@id": "a", "id": "b", "data": {"base64": ""}}]},
        {"~attach": {}},
    ],
    ids=str,
)
def test_malformed_messages_are_refused(change: dict[str, object]) -> None:
    good = {"@id": "1", "@type": TYPE}
    assert parse_v1(compact_json(good)).id == "1"
    with pytest.raises(Malformed):
        parse_v1(compact_json({**good, **change}))


def test_ambiguous_messages_are_not_written() -> None:
    for body in ({"~thread": {}}, {"@id": "2"}):
        with pytest.raises(Malformed):
            dump_v1(Message(type=TYPE, id="1", body=body))
    with pytest.raises(Malformed):
        dump_v1(Message(type=TYPE, id="1", created_time=SECONDS_MAX + 1))
    with pytest.raises(Malformed):
        dump_v1(Message(type=TYPE, id="1", body={"text": "x" * MESSAGE_BYTES_MAX}))


@given(st.integers(0, SECONDS_MAX))
def test_time_round_trip(seconds: int) -> None:
    assert iso_seconds(iso_time(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-02-29T23:59:59Z", 1_709_251_199),
        ("2024-02-29 23:59:59.999999999Z", 1_709_251_199),
        ("2024-02-29T23:59Z", 1_709_251_140),
        ("2024-02-29T23:59", 1_709_251_140),
        ("2024-03-01T01:29:59+01:30", 1_709_251_199),
        ("2024-02-29T18:29:59-0530", 1_709_251_199),
        ("1970-01-01T00:00:00+00:01", None),
        ("2023-02-29T00:00:00Z", None),
        ("1900-02-29T00:00:00Z", None),
        ("2024-13-01T00:00:00Z", None),
        ("2024-00-01T00:00:00Z", None),
        ("2024-04-31T00:00:00Z", None),
        ("2024-01-01T24:00:00Z", None),
        ("2024-01-01T00:60:00Z", None),
        ("2024-01-01", None),
        ("٢٠٢٤-01-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_times_of_others(text: str, seconds: int | None) -> None:
    assert iso_seconds(text) == seconds
