"""Canonical encodings, and primitives that refuse invalid input."""

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nacl import bindings as sodium

from zerochat.crypto import content_encryption
from zerochat.crypto.content_encryption import CONTENTS, Content
from zerochat.crypto.encoding import (
    BASE41,
    BASE45,
    ED25519,
    X25519,
    b64url,
    b64url_bytes,
    base45,
    base45_bytes,
    base58,
    base58_bytes,
    canonical_json,
    compact_msgpack,
    did_key,
    did_key_bytes,
    multikey,
    multikey_bytes,
    strict_json,
    strict_msgpack,
)
from zerochat.crypto.nacl_boxes import (
    BOX_NONCE_BYTES,
    SEAL_BYTES,
    box,
    box_open,
    chacha20_poly1305_open,
    chacha20_poly1305_seal,
    seal,
    seal_open,
)
from zerochat.crypto.primitives import (
    blake2b_keyed,
    check_x25519_public,
    ed25519_public,
    ed25519_sign,
    ed25519_to_x25519_public,
    ed25519_to_x25519_secret,
    ed25519_verify,
    hkdf_sha256,
    key_unwrap,
    key_wrap,
    x25519,
    x25519_public,
    x25519_static,
)
from zerochat.errors import Malformed, Unauthentic

dice = random.Random(25519).randbytes

LOW_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]
"""The points of small order on Curve25519 and their other spellings (https://cr.yp.to/ecdh.html, "validate")."""


# --- encodings ------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300))
def test_every_encoding_round_trips(data: bytes) -> None:
    assert b64url_bytes(b64url(data)) == data
    assert base58_bytes(base58(data), len(data)) == data
    for alphabet in (BASE45, BASE41):
        assert base45_bytes(base45(data, alphabet), alphabet) == data


@given(st.text(alphabet=st.sampled_from("AQgwBC019az-_+/=. \né"), max_size=9))
@example("AA=")
@example("A===")
@example("AA==")
@example("=")
def test_base64url_has_one_spelling(text: str) -> None:
    try:
        data = b64url_bytes(text)
    except Malformed:
        return
    assert text in (b64url(data), b64url(data) + "=" * (-len(b64url(data)) % 4))


@pytest.mark.parametrize(
    "text", ["A", "AB", "QUJ", "QQ=", "QQ===", "Q+", "Q/", "QQ\n", " QQ", "Q.Q", "QQ==QQ", "QÄ", "\udc80Q"]
)
def test_base64url_refuses(text: str) -> None:
    with pytest.raises(Malformed):
        b64url_bytes(text)


@pytest.mark.parametrize("text", ["0", "O", "I", "l", "a b", "é", "z\n"])
def test_base58_refuses(text: str) -> None:
    with pytest.raises(Malformed):
        base58_bytes(text, 100)


def test_base58_checks_the_length_before_decoding() -> None:
    assert base58_bytes("1" * 8, 8) == bytes(8)
    for text in ("1" * 9, "z" * 12, "z" * 10_000_000):
        with pytest.raises(Malformed):
            base58_bytes(text, 8)


@pytest.mark.parametrize(
    ("text", "data"),
    [("BB8", b"AB"), ("%69 VD92EX0", b"Hello!!"), ("UJCLQE7W581", b"base-45"), ("QED8WEX0", b"ietf!"), ("", b"")],
)
def test_base45_of_rfc9285_section_4(text: str, data: bytes) -> None:
    assert base45(data) == text
    assert base45_bytes(text) == data


@pytest.mark.parametrize("text", ["A", "ABCD", "GGW", ":::", "::", "aaa", "A_B", "\n00"])
def test_base45_refuses(text: str) -> None:
    with pytest.raises(Malformed):
        base45_bytes(text)


def test_base41_is_as_short_and_survives_shells() -> None:
    assert set(BASE41) == set(BASE45) - set(" $%*")
    assert base45_bytes(base45(b"\xff\xff", BASE41), BASE41) == b"\xff\xff"
    assert len(base45(bytes(94), BASE41)) == len(base45(bytes(94)))


def test_did_keys_round_trip_and_no_other_text_is_accepted() -> None:
    public = ed25519_public(dice(32))
    did = did_key(public)
    assert len(did) == 56
    assert did_key_bytes(did) == public
    wrong = [
        did[:-1],
        did + "1",
        did + "#",
        did.replace("did:key:z", "did:key:u"),
        did.replace("did:key", "did:KEY"),
        "did:key:" + multikey(X25519, public),
        "did:key:" + multikey(ED25519, public[:31]),
        "did:key:z",
        "",
    ]
    for text in wrong:
        with pytest.raises(Malformed):
            did_key_bytes(text)
    assert multikey_bytes(multikey(b"\x12\x00", bytes(33))) == (b"\x12\x00", bytes(33))


# --- JSON -----------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(codec="ascii")), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(json_values)
def test_canonical_json_is_json_with_one_spelling(value: object) -> None:
    text = canonical_json(value)
    assert strict_json(text, 10**6) == value
    assert canonical_json(json.loads(json.dumps(value, indent=2))) == text
    assert json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() == text


@pytest.mark.parametrize(
    "character", [*map(chr, range(0x21)), '"', "\\", "/", "\x7f", "\x80", "\u2028", "\ufeff", "\U0010ffff"]
)
def test_canonical_json_escapes_like_the_scheme(character: str) -> None:
    assert canonical_json([character]) == json.dumps([character], ensure_ascii=False).encode()


@pytest.mark.parametrize("value", [1.0, float("nan"), 2**53, -(2**53), {"é": 1}, {1: 2}, {"a": {1, 2}}, b"", "\ud800"])
def test_canonical_json_refuses_ambiguous_values(value: object) -> None:
    with pytest.raises(Malformed):
        canonical_json([value])


def test_canonical_json_refuses_cycles() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(Malformed):
        canonical_json(endless)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":1,"\\u0061":2}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"[-1e999]",
        b'"\\ud800"',
        b'"\\uDC00\\ud800"',
        b'["\\ud83d","\\ude00"]',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'"a\nb"',
        b"'a'",
        b"[1,]",
        b"{} {}",
        b"01",
        b"9" * 5000,
    ],
)
def test_strict_json_refuses(text: bytes) -> None:
    with pytest.raises(Malformed):
        strict_json(text, 10_000)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=8,
    ),
    st.booleans(),
)
@example({"a": 1e22, "b": 2**70, "c": -0.0, "d": "\x7f\u2028/"}, True)
def test_strict_json_reads_every_spelling_alike(value: object, escaped: bool) -> None:
    compact = json.dumps(value, ensure_ascii=escaped, separators=(",", ":")).encode(errors="replace")
    spaced = json.dumps(value, ensure_ascii=escaped, indent=1).encode(errors="replace")
    assert repr(strict_json(compact, 10**6)) == repr(strict_json(spaced, 10**6)) == repr(json.loads(compact))
    with pytest.raises(Malformed):
        strict_json(b'{"a":' + compact + b',"a":' + compact + b"}", 10**6)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(_values)
def test_strict_msgpack_round_trip(value: object) -> None:
    assert strict_msgpack(compact_msgpack(value), 10**6) == value


@given(st.binary(max_size=60))
@example(b"\x82\xa1a\x01\xa1a\x01")  # a member twice
@example(b"\xcc\x01")  # a longer form
@example(b"\x01\x02")  # more than one value
@example(b"\x81\x80\x01")  # a map as a name
@example(b"\xdf\xff\xff\xff\xff")  # more than there is
@example(b"\xc7\x0c\xff" + b"\xff" * 12)  # a time that is none
def test_strict_msgpack_takes_one_spelling_or_refuses(data: bytes) -> None:
    try:
        value = strict_msgpack(data, 100)
    except Malformed:
        return
    assert compact_msgpack(value) == data


@pytest.mark.parametrize("data", [b"\x91" * 50_000 + b"\xc0", b"\xdd\x00\x01\x11\x70" + b"\x80" * 70_000, b"\xa1a" * 6])
def test_strict_msgpack_refuses_deep_wide_or_long_input(data: bytes) -> None:
    with pytest.raises(Malformed):
        strict_msgpack(data, 10 if len(data) < 100 else 10**6)


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u1000", "\U0001f600", "\n"])
def test_strict_msgpack_takes_the_longest_post_in_every_script(letter: str) -> None:
    text = letter * (64 * 1024 // len(letter.encode()))
    assert strict_msgpack(compact_msgpack({"text": text}), 10**6) == {"text": text}


def test_strict_json_takes_real_pairs_and_escaped_backslashes() -> None:
    assert strict_json(b'["\\ud83d\\ude00","\\\\ud800"]', 100) == ["\U0001f600", "\\ud800"]


def test_strict_json_counts_bytes_and_depth_before_it_parses() -> None:
    for depth, text in ((64, b"[" * 64 + b"]" * 64), (3, b'{"a":[{"b":"]]]"}]}'), (1, b"[" + b'"[[[",' * 99 + b"0]")):
        assert strict_json(text, len(text), depth) is not None
        with pytest.raises(Malformed, match="deep"):
            strict_json(text, len(text), depth - 1)
        with pytest.raises(Malformed, match="bytes"):
            strict_json(text, len(text) - 1, depth)
    for bomb in (b"[" * 200_000, b'{"a":' * 100_000, b'"\\"' + b"[" * 100_000, b"[[]," * 50_000):
        with pytest.raises(Malformed):
            strict_json(bomb, 10**6)


# --- primitives -----------------------------------------------------------------------------------------------------


def test_x25519_agrees_from_both_sides() -> None:
    mine, theirs = dice(32), dice(32)
    shared = x25519(mine, x25519_public(theirs))
    assert shared == x25519(theirs, x25519_public(mine)) == x25519_static(mine, x25519_public(theirs))


@pytest.mark.parametrize("agree", [x25519, x25519_static])
def test_x25519_refuses_low_order_points(agree: Callable[[bytes, bytes], bytes]) -> None:
    for point in LOW_ORDER:
        for spelling in (point, point[:31] + bytes([point[31] | 0x80])):
            with pytest.raises(Unauthentic):
                agree(dice(32), spelling)
            with pytest.raises(Malformed):
                check_x25519_public(spelling)
    for length in (0, 31, 33):
        with pytest.raises(Malformed):
            agree(dice(32), bytes(length))
    check_x25519_public(x25519_public(dice(32)))


def test_ed25519_verifies_only_the_signed_message() -> None:
    seed = dice(32)
    public, signature = ed25519_public(seed), ed25519_sign(seed, b"text")
    ed25519_verify(public, b"text", signature)
    for bad in (
        (public, b"texT", signature),
        (ed25519_public(dice(32)), b"text", signature),
        (public, b"text", signature[:-1]),
        (public, b"text", signature + b"\0"),
        (public, b"ext", signature + b"t"),
        (public[:-1], b"text", signature),
        (bytes(32), b"text", bytes(64)),
        *((public, b"text", signature[:i] + bytes([signature[i] ^ 1]) + signature[i + 1 :]) for i in range(64)),
    ):
        with pytest.raises(Unauthentic):
            ed25519_verify(*bad)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 1000])
@pytest.mark.parametrize("length", [16, 32, 64])
def test_a_keyed_hash_is_that_of_libsodium(size: int, length: int) -> None:
    key, text, purpose = dice(32), dice(size), b"purpose"
    padded = purpose.ljust(16, b"\0")
    expected = sodium.crypto_generichash_blake2b_salt_personal(text, length, key, bytes(16), padded)
    assert blake2b_keyed(key, purpose, text, length) == expected
    others = [blake2b_keyed(dice(32), purpose, text, length), blake2b_keyed(key, b"purposes", text, length)]
    assert expected not in others


def test_ed25519_keys_become_matching_x25519_keys() -> None:
    seed = dice(32)
    assert x25519_public(ed25519_to_x25519_secret(seed)) == ed25519_to_x25519_public(ed25519_public(seed))
    for bad in (bytes(32), bytes([1]) + bytes(31), b"\xff" * 32, bytes(31), b"\2" + bytes(31)):
        with pytest.raises(Malformed):
            ed25519_to_x25519_public(bad)


@pytest.mark.parametrize(
    ("ikm", "salt", "info", "okm"),
    [
        (
            b"\x0b" * 22,
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            b"\x0b" * 22,
            b"",
            b"",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ],
)
def test_hkdf_of_rfc5869_appendix_a(ikm: bytes, salt: bytes, info: bytes, okm: str) -> None:
    assert hkdf_sha256(ikm, info, len(okm) // 2, salt).hex() == okm


@pytest.mark.parametrize("content", CONTENTS.values(), ids=lambda content: content.name)
def test_a_changed_bit_never_opens(content: Content) -> None:
    key, iv = dice(content.key), dice(content.iv)
    for size in (0, 5, 15, 16, 17, 1000):
        plain = dice(size)
        ciphertext, tag = content.seal(key, iv, plain, b"aad")
        assert len(tag) == content.tag
        assert content.open(key, iv, ciphertext, tag, b"aad") == plain
    plain = b"plain"
    ciphertext, tag = content.seal(key, iv, plain, b"aad")
    parts = {"key": key, "iv": iv, "ciphertext": ciphertext, "tag": tag, "aad": b"aad"}

    def open_with(**changes: bytes) -> bytes:
        return content.open(*(parts | changes).values())

    assert open_with() == plain
    for name, part in parts.items():
        for at in range(len(part) if name != "key" else 32):
            with pytest.raises(Unauthentic):
                open_with(**{name: part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]})
    for name in ("key", "iv", "tag"):
        for length in (0, len(parts[name]) - 1, len(parts[name]) + 1):
            with pytest.raises(Malformed):
                open_with(**{name: bytes(length)})


def test_a_changed_bit_of_a_wrapped_key_never_opens() -> None:
    key, kek = dice(64), dice(32)
    wrapped = key_wrap(kek, key)
    assert key_unwrap(kek, wrapped) == key
    for at in range(len(wrapped)):
        with pytest.raises(Unauthentic):
            key_unwrap(kek, wrapped[:at] + bytes([wrapped[at] ^ 0x80]) + wrapped[at + 1 :])
    for length in (0, 8, 16, 23):
        with pytest.raises(Unauthentic):
            key_unwrap(kek, bytes(length))


def test_authentic_but_misshapen_padding_is_refused() -> None:
    key, iv = dice(64), dice(16)
    for ciphertext in (b"", bytes(15), bytes(16), bytes(32)):
        tag = content_encryption._cbc_tag(key, iv, ciphertext, b"")
        with pytest.raises(Unauthentic):
            content_encryption.cbc_hs512_open(key, iv, ciphertext, tag, b"")


# --- boxes ----------------------------------------------------------------------------------------------------------


def test_boxes_are_libsodiums_own() -> None:
    """Our implementation and libsodium open each other's boxes."""
    mine, theirs, ephemeral, nonce = dice(32), dice(32), dice(32), dice(BOX_NONCE_BYTES)
    my_public, their_public = x25519_public(mine), x25519_public(theirs)
    for size in (0, 1, 32, 44, 1000):
        message = dice(size)
        boxed = box(message, nonce, their_public, mine)
        assert boxed == sodium.crypto_box(message, nonce, their_public, mine)
        assert box_open(boxed, nonce, my_public, theirs) == message
        sealed = seal(message, their_public, ephemeral)
        assert len(sealed) == size + SEAL_BYTES
        assert sodium.crypto_box_seal_open(sealed, their_public, theirs) == message
        assert seal_open(sealed, their_public, theirs) == message
        assert seal_open(sodium.crypto_box_seal(message, their_public), their_public, theirs) == message


def test_a_changed_bit_never_opens_a_box() -> None:
    mine, theirs, nonce = dice(32), dice(32), dice(BOX_NONCE_BYTES)
    my_public, their_public = x25519_public(mine), x25519_public(theirs)
    boxed, sealed = box(b"text", nonce, their_public, mine), seal(b"text", their_public, dice(32))
    aead = chacha20_poly1305_seal(mine, nonce[:12], b"text", b"aad")
    opens: list[tuple[bytes, Callable[[bytes], bytes]]] = [
        (boxed, lambda text: box_open(text, nonce, my_public, theirs)),
        (sealed, lambda text: seal_open(text, their_public, theirs)),
        (aead, lambda text: chacha20_poly1305_open(mine, nonce[:12], text, b"aad")),
    ]
    for text, open_ in opens:
        assert open_(text) == b"text"
        for at in range(len(text)):
            for bad in (text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :], text[:at]):
                with pytest.raises(Unauthentic):
                    open_(bad)
    with pytest.raises(Unauthentic):
        box_open(boxed, dice(BOX_NONCE_BYTES), my_public, theirs)
    with pytest.raises(Unauthentic):
        box_open(boxed, nonce, their_public, theirs)
    for size in (0, 23, 25):
        with pytest.raises(Malformed):
            box_open(boxed, bytes(size), my_public, theirs)
    for size in (0, 11, 24):
        with pytest.raises(Malformed):
            chacha20_poly1305_open(mine, bytes(size), aead, b"aad")


def test_boxes_with_low_order_keys_are_refused() -> None:
    for point in LOW_ORDER:
        with pytest.raises(Unauthentic):
            box(b"text", dice(BOX_NONCE_BYTES), point, dice(32))
        with pytest.raises(Unauthentic):
            box_open(bytes(50), dice(BOX_NONCE_BYTES), point, dice(32))
        with pytest.raises(Unauthentic):
            seal(b"text", point, dice(32))
        with pytest.raises(Unauthentic):
            seal_open(point + bytes(40), x25519_public(bytes(32)), bytes(32))
