"""The key schedule: from seeds to member secrets, epoch keys and message keys, by keyed BLAKE2b.

    member secret     of a member X: `member_secrets.py`
    update of X       ratchet  =  member secret of X
    X adopts one      ratchet  =  KDF(ratchet, member secret of X)
    exported secret   of an update  =  KDF(seed)
    any event of X    epoch key, ratchet  =  KDF(ratchet, place)
    message           key, next chain key  =  KDF(chain key); the first chain key is the epoch key

Each derivation is one-way, so an erased key stays erased though its successors are known.
"""

from typing import Final

from zerochat.crypto.primitives import blake2b_keyed, sha256
from zerochat.crypto.structs import Redacted

KEY_BYTES: Final = 32
NO_RATCHET: Final = bytes(KEY_BYTES)


class Step(Redacted, frozen=True):
    """The results of one event in its author's key ratchet."""

    REDACTED = ("epoch_key", "ratchet")

    epoch_key: bytes
    ratchet: bytes


def exported(seed: bytes) -> bytes:
    """The secret that a seed has for uses beside messages (`export.py`)."""
    return blake2b_keyed(seed, b"zerochat/export")


def adopted(ratchet: bytes, secret: bytes) -> bytes:
    """The ratchet with a member secret mixed in: unknown to all who lack one of the two."""
    return blake2b_keyed(ratchet, b"zerochat/adopt", secret)


def advanced(ratchet: bytes, place: bytes) -> Step:
    """The epoch key of an event, and the ratchet after it. `place`: the group, the author and its event's number."""
    keys = blake2b_keyed(ratchet, b"zerochat/epoch", place, 2 * KEY_BYTES)
    return Step(keys[:KEY_BYTES], keys[KEY_BYTES:])


def next_message(chain_key: bytes) -> tuple[bytes, bytes]:
    """The key of a message, and the chain key after it."""
    keys = blake2b_keyed(chain_key, b"zerochat/message", length=2 * KEY_BYTES)
    return keys[:KEY_BYTES], keys[KEY_BYTES:]


def commitment(seed: bytes) -> bytes:
    """The hash of a seed in the signed event, which proves it when members were sent different seeds."""
    return sha256(b"zerochat/seed\n" + seed)
