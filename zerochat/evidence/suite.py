"""Signature suites for streams: 32-byte keys, 64-byte unique signatures.

All suites have the same sizes, so messages have the same layout. Ed25519 is the default; secp256k1, which a contract
can verify (`zerochat/contract`), needs extra packages.
"""

from typing import Final, Literal, Protocol, TypeAlias

from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify

SuiteName: TypeAlias = Literal["ed25519", "secp256k1"]


class Suite(Protocol):
    """A signature scheme with strongly unforgeable signatures: a signature identifies its message."""

    name: SuiteName

    def public(self, seed: bytes) -> bytes:
        """The public key (32 bytes) of a seed (32 bytes)."""
        ...

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """The deterministic signature, 64 bytes."""
        ...

    def verify(self, key: bytes, message: bytes, signature: bytes) -> None:
        """Raise Unauthentic for an invalid signature."""
        ...


class _Ed25519:
    name: SuiteName = "ed25519"

    def public(self, seed: bytes) -> bytes:
        return ed25519_public(seed)

    def sign(self, seed: bytes, message: bytes) -> bytes:
        return ed25519_sign(seed, message)

    def verify(self, key: bytes, message: bytes, signature: bytes) -> None:
        ed25519_verify(key, message, signature)


ED25519: Final[Suite] = _Ed25519()
"""Strict verification (libsodium): canonical signatures only, no keys of small order."""
