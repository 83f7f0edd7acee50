"""secp256k1 signature suite, verifiable by contracts with `ecrecover`.

A key is an Ethereum address after twelve zero bytes. A signature is deterministic ECDSA (RFC 6979) over SHA-256 in the
compact form of EIP-2098: r, then the lower s with the parity of r's point in its free bit. Without the parity, a signer
could choose a key for which one signature is valid for two messages; signatures identify messages.
"""

from functools import lru_cache
from typing import Final

from eth_keys import keys
from eth_keys.exceptions import BadSignature, ValidationError

from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.suite import Suite, SuiteName

ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_PARITY: Final = 1 << 255
KEYS_CACHED = 256


class _Secp256k1:
    name: SuiteName = "secp256k1"

    def public(self, seed: bytes) -> bytes:
        """Raises Malformed for an invalid seed (probability 2**-127)."""
        return _address(seed)

    def sign(self, seed: bytes, message: bytes) -> bytes:
        parity, r, s = keys.PrivateKey(seed).sign_msg_hash(sha256(message)).vrs
        if s > ORDER // 2:
            s, parity = ORDER - s, 1 - parity
        return bytes(r.to_bytes(32, "big") + (s | parity * _PARITY).to_bytes(32, "big"))

    def verify(self, key: bytes, message: bytes, signature: bytes) -> None:
        if len(key) != 32 or len(signature) != 64:
            raise Unauthentic()
        r, with_parity = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        parity, s = divmod(with_parity, _PARITY)
        if not (0 < r < ORDER and 0 < s <= ORDER // 2):
            raise Unauthentic()
        try:
            signer = keys.Signature(vrs=(parity, r, s)).recover_public_key_from_msg_hash(sha256(message))
        except (BadSignature, ValidationError, ValueError):
            raise Unauthentic() from None
        if bytes(12) + signer.to_canonical_address() != key:
            raise Unauthentic()


@lru_cache(maxsize=KEYS_CACHED)
def _address(seed: bytes) -> bytes:
    if len(seed) != 32 or not 0 < int.from_bytes(seed, "big") < ORDER:
        raise Malformed(why="a seed that is not a secp256k1 key")
    return bytes(12) + bytes(keys.PrivateKey(seed).public_key.to_canonical_address())


SECP256K1: Final[Suite] = _Secp256k1()
