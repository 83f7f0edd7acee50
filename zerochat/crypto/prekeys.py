"""Pre-keys: X25519 keys for the first message to a peer; one-time ones, and signed last-resort ones (as in X3DH).

Two peers that meet exchange a *one-time* pre-key each (`two_party.Channel.offered`), which is erased once it has opened
a message. A peer that has not been met yet is reached by its *last-resort* pre-key, which is signed, shared by all
senders and so replaced by time: a stolen one opens the first messages of its lifetime.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from zerochat.crypto.primitives import (
    check_x25519_public,
    ed25519_sign,
    ed25519_verify,
    sha256,
    x25519_public,
)
from zerochat.crypto.structs import Redacted
from zerochat.errors import Unauthentic

DAY_MS: Final = 24 * 3_600_000
LIFETIME_MS: Final = 28 * DAY_MS
"""How long senders may use a last-resort pre-key."""
RENEWAL_MS: Final = LIFETIME_MS // 2
"""The age at which its owner publishes the next one."""
MARGIN_MS: Final = 3_600_000
"""How long after its end the owner still opens messages to it: clocks differ, and envelopes travel."""
ID_BYTES: Final = 4
HELD_MAX: Final = 4
"""Last-resort pre-keys that an owner keeps: two by renewal, and two after resets."""

_CONTEXT = b"zerochat/prekey/1\n"


class SignedPreKey(Struct, frozen=True):
    """A last-resort pre-key, signed by its owner's Ed25519 key."""

    public: bytes
    until: int
    """UTC milliseconds; senders do not use it afterwards."""
    signature: bytes

    def check(self, owner: bytes, place: bytes, now: int) -> None:
        """Raise Unauthentic unless `owner` has signed it for `place` (a group) and it is in its lifetime, Malformed for
        a key of low order."""
        check_x25519_public(self.public)
        if not now - MARGIN_MS < self.until <= now + LIFETIME_MS + MARGIN_MS:
            raise Unauthentic()
        ed25519_verify(owner, _signed(place, self.public, self.until), self.signature)


class HeldPreKey(Redacted, frozen=True):
    """The secret of an own last-resort pre-key."""

    REDACTED = ("secret",)

    secret: bytes
    until: int
    """UTC milliseconds."""

    @property
    def id(self) -> bytes:
        return prekey_id(x25519_public(self.secret))

    def signed(self, seed: bytes, place: bytes) -> SignedPreKey:
        """The public form, signed with this Ed25519 seed."""
        public = x25519_public(self.secret)
        return SignedPreKey(public, self.until, ed25519_sign(seed, _signed(place, public, self.until)))


def prekey_id(public: bytes) -> bytes:
    """How a message names the pre-key that it was encrypted to; 4 bytes."""
    return sha256(public)[:ID_BYTES]


def renewed(held: tuple[HeldPreKey, ...], now: int, random: Callable[[int], bytes]) -> tuple[HeldPreKey, ...]:
    """The own last-resort pre-keys, newest first, with a new one where the newest is due; expired ones are erased."""
    left = tuple(one for one in held if now <= one.until + MARGIN_MS)
    if left and now < left[0].until - LIFETIME_MS + RENEWAL_MS:
        return left
    return with_new(left, now, random)


def with_new(held: tuple[HeldPreKey, ...], now: int, random: Callable[[int], bytes]) -> tuple[HeldPreKey, ...]:
    """The own last-resort pre-keys with a new one; the oldest of too many is erased."""
    return (HeldPreKey(random(32), now + LIFETIME_MS), *held)[:HELD_MAX]


def secret_of(held: tuple[HeldPreKey, ...], name: bytes) -> bytes | None:
    """The secret of the own last-resort pre-key with this id."""
    return next((one.secret for one in held if one.id == name), None)


def _signed(place: bytes, public: bytes, until: int) -> bytes:
    return _CONTEXT + sha256(place) + public + until.to_bytes(8, "big")
