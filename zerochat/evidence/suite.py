"""By which signatures a stream goes: one key, one message, one signature to name it.

A suite has keys of 32 bytes and signatures of 64, so that the messages have the same form under each. The one here is
what everybody has; the one that a contract can check (`zerochat/contract`) is secp256k1, and needs packages of its own.
"""

from typing import Final, Literal, Protocol, TypeAlias

from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify

SuiteName: TypeAlias = Literal["ed25519", "secp256k1"]


class Suite(Protocol):
    """Signatures that nobody else can make another spelling of: they are what names a message."""

    name: SuiteName

    def public(self, seed: bytes) -> bytes:
        """What stands in a message for the key of this seed; 32 bytes each."""
        ...

    def sign(self, seed: bytes, message: bytes) -> bytes:
        """64 bytes, the same at every time."""
        ...

    def verify(self, key: bytes, message: bytes, signature: bytes) -> None:
        """Raise Unauthentic unless this is the signature of the message by the key."""
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
"""Strict, as libsodium has it: it takes one spelling of a signature only, and no key of small order."""
