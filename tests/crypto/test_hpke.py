"""HPKE against the implementation of `cryptography`, and a frozen answer."""

import random

import pytest

from zerochat.crypto import hpke
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import Malformed, Unauthentic

SECRET, EPHEMERAL = bytes(range(32)), bytes(range(32, 64))
PUBLIC = x25519_public(SECRET)
SIZES = (0, 1, 32, 100, 5000)


def test_frozen_answer():
    sealed = hpke.seal(PUBLIC, b"context", b"content", EPHEMERAL)
    assert sealed.hex() == (
        "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd1662541a1e01d0fe7fc2d42d7337d7707473e831f6d4b2c415b5"
    )
    assert hpke.seal_open(SECRET, b"context", sealed) == b"content"


@pytest.mark.conformance
@pytest.mark.parametrize("size", SIZES)
def test_agrees_with_cryptography(size):
    library = pytest.importorskip("cryptography.hazmat.primitives.hpke", reason="cryptography has HPKE from 47 on")
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    suite = library.Suite(library.KEM.X25519, library.KDF.HKDF_SHA256, library.AEAD.CHACHA20_POLY1305)
    draw = random.Random(size)
    plain, info = draw.randbytes(size), draw.randbytes(size % 50)
    sealed = hpke.seal(PUBLIC, info, plain, draw.randbytes(32))
    assert len(sealed) == size + hpke.SEAL_BYTES
    assert suite.decrypt(sealed, X25519PrivateKey.from_private_bytes(SECRET), info) == plain
    theirs = suite.encrypt(plain, X25519PublicKey.from_public_bytes(PUBLIC), info)
    assert hpke.seal_open(SECRET, info, theirs) == plain


def test_the_content_key_opens_one_message():
    one, other = (hpke.seal(PUBLIC, b"", b"content", bytes([at]) * 32) for at in (1, 2))
    key = hpke.aead_key(SECRET, b"", one)
    assert hpke.open_with(key, one) == b"content"
    with pytest.raises(Unauthentic):
        hpke.open_with(key, other)
    with pytest.raises(Malformed):
        hpke.open_with(key[:-1], one)


def test_every_bit_counts():
    sealed = hpke.seal(PUBLIC, b"context", b"content", EPHEMERAL)
    for at in range(len(sealed)):
        with pytest.raises(Unauthentic):
            # The highest bit of an X25519 key is ignored by X25519, but not by the key schedule.
            hpke.seal_open(SECRET, b"context", sealed[:at] + bytes([sealed[at] ^ 0x80]) + sealed[at + 1 :])
    with pytest.raises(Unauthentic):
        hpke.seal_open(SECRET, b"contexT", sealed)
    with pytest.raises(Unauthentic):
        hpke.seal_open(EPHEMERAL, b"context", sealed)


def test_short_messages_and_unsafe_keys():
    with pytest.raises(Malformed):
        hpke.seal_open(SECRET, b"", bytes(hpke.SEAL_BYTES - 1))
    with pytest.raises(Unauthentic):
        hpke.seal_open(SECRET, b"", bytes(hpke.SEAL_BYTES))
    with pytest.raises(Unauthentic):
        hpke.seal(bytes(32), b"", b"", EPHEMERAL)
