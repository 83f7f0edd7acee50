"""JOSE content encryption for DIDComm: A256CBC-HS512, A256GCM and XC20P.

RFC 7518, section 5, and draft-amringer-jose-chacha. Keys and initialisation vectors are parameters. Opening raises the
same `Unauthentic` for every failure, and `Malformed` for a wrong length, which is public.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from zerochat.crypto.primitives import check_length, equal, hmac_sha512
from zerochat.errors import Unauthentic

_BLOCK = 16
_PADS = [bytes([size]) * size for size in range(_BLOCK + 1)]


def cbc_hs512_seal(key: bytes, iv: bytes, plain: bytes, aad: bytes) -> tuple[bytes, bytes]:
    """A256CBC-HS512 (RFC 7518, section 5.2.5): 64-byte key, 16-byte IV; the ciphertext and its 32-byte tag."""
    encryptor = Cipher(algorithms.AES(key[32:]), modes.CBC(iv)).encryptor()
    ciphertext = encryptor.update(plain + _PADS[_BLOCK - len(plain) % _BLOCK]) + encryptor.finalize()
    return ciphertext, _cbc_tag(key, iv, ciphertext, aad)


def cbc_hs512_open(key: bytes, iv: bytes, ciphertext: bytes, tag: bytes, aad: bytes) -> bytes:
    """The plaintext. The tag is verified before decryption, so there is no padding oracle. Raises Unauthentic."""
    check_length(key, 64)
    check_length(iv, 16)
    check_length(tag, 32)
    if not equal(tag, _cbc_tag(key, iv, ciphertext, aad)) or not ciphertext or len(ciphertext) % _BLOCK:
        raise Unauthentic()
    decryptor = Cipher(algorithms.AES(key[32:]), modes.CBC(iv)).decryptor()
    padded = decryptor.update(ciphertext) + decryptor.finalize()
    pad = padded[-1]
    if not 1 <= pad <= _BLOCK or not padded.endswith(_PADS[pad]):
        raise Unauthentic()
    return padded[:-pad]


def _cbc_tag(key: bytes, iv: bytes, ciphertext: bytes, aad: bytes) -> bytes:
    covered = b"".join((aad, iv, ciphertext, (len(aad) * 8).to_bytes(8, "big")))
    return hmac_sha512(key[:32], covered)[:32]


def gcm_seal(key: bytes, iv: bytes, plain: bytes, aad: bytes) -> tuple[bytes, bytes]:
    """A256GCM: 32-byte key, 12-byte IV; the ciphertext and its 16-byte tag."""
    sealed = AESGCM(key).encrypt(iv, plain, aad)
    return sealed[:-16], sealed[-16:]


def gcm_open(key: bytes, iv: bytes, ciphertext: bytes, tag: bytes, aad: bytes) -> bytes:
    check_length(key, 32)
    check_length(iv, 12)
    check_length(tag, 16)
    try:
        return AESGCM(key).decrypt(iv, ciphertext + tag, aad)
    except InvalidTag:
        raise Unauthentic() from None


def xc20p_seal(key: bytes, iv: bytes, plain: bytes, aad: bytes) -> tuple[bytes, bytes]:
    """XC20P, that is XChaCha20-Poly1305: 32-byte key, 24-byte IV; the ciphertext and its 16-byte tag."""
    sealed = bytes(sodium.crypto_aead_xchacha20poly1305_ietf_encrypt(plain, aad, iv, key))
    return sealed[:-16], sealed[-16:]


def xc20p_open(key: bytes, iv: bytes, ciphertext: bytes, tag: bytes, aad: bytes) -> bytes:
    check_length(key, 32)
    check_length(iv, 24)
    check_length(tag, 16)
    try:
        return bytes(sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext + tag, aad, iv, key))
    except (CryptoError, ValueError):
        raise Unauthentic() from None


class Content(Struct, frozen=True):
    """A content encryption: JOSE name, sizes in bytes, and its functions.

    `seal(key, iv, plain, aad)` returns ciphertext and tag; `open(key, iv, ciphertext, tag, aad)` the plaintext.
    """

    name: str
    key: int
    iv: int
    tag: int
    commits: bool
    """Whether it is key-committing. Without that, one ciphertext can decrypt to different texts for different
    recipients, and an authcrypt proves nothing to them."""
    seal: Callable[[bytes, bytes, bytes, bytes], tuple[bytes, bytes]]
    open: Callable[[bytes, bytes, bytes, bytes, bytes], bytes]


CBC_HS512 = Content("A256CBC-HS512", 64, 16, 32, True, cbc_hs512_seal, cbc_hs512_open)
GCM = Content("A256GCM", 32, 12, 16, False, gcm_seal, gcm_open)
XC20P = Content("XC20P", 32, 24, 16, False, xc20p_seal, xc20p_open)

CONTENTS: Mapping[str, Content] = MappingProxyType({content.name: content for content in (CBC_HS512, GCM, XC20P)})
"""Content encryptions by name."""
