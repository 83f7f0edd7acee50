"""The Concat KDF as JOSE's key agreements use it: ECDH-ES, and ECDH-1PU, which binds the content's tag.

NIST SP 800-56A section 5.8.1 with SHA-256, RFC 7518 section 4.6.2, draft-madden-jose-ecdh-1pu-04 section 2.3. One round
gives the 32 bytes of a key-encryption key, and no more is ever asked for.
"""

from zerochat.crypto.primitives import sha256

KEK_BITS = 256


def other_info(algorithm: str, apu: bytes, apv: bytes, bits: int = KEK_BITS) -> bytes:
    """The OtherInfo (RFC 7518, section 4.6.2), up to where ECDH-1PU appends the tag."""
    head = algorithm.encode()
    return b"".join((_size(head), head, _size(apu), apu, _size(apv), apv, bits.to_bytes(4, "big")))


def concat_kdf(secret: bytes, info: bytes, tag: bytes | None = None) -> bytes:
    """32 bytes from the secret that was agreed on. ECDH-1PU with key wrapping binds the content's tag."""
    suffix = b"" if tag is None else _size(tag) + tag
    return sha256(b"\0\0\0\1" + secret + info + suffix)


def _size(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big")
