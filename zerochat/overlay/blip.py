"""BLIP: Bloom filters of subscriptions with bits flipped at random, for similarity under differential privacy.

After Alaggan, Gambs and Kermarrec, "BLIP: Non-interactive Differentially-Private Similarity Computation on Bloom
Filters" (SSS 2012): each bit of the filter is flipped with probability 1 / (1 + e ** (epsilon / k)) before it is shown.
Changed:

- The noise is memoised (as the permanent randomised response of Erlingsson et al., "RAPPOR", CCS 2014): it follows from
  a secret, the epoch, the position and the value of a bit. Noise drawn anew for each exchange averages out, so that a
  peer that asks a hundred times has the filter. After a change of subscriptions only the changed bits have other noise.
- Similarity is the correlation of the bits, not their cosine: it is 0 without common subscriptions, however many bits
  are set, so a factor like trust cannot make up for common interests.

What it does not hide: that bits change when subscriptions do; and an observer of many epochs averages over them, unless
the tags change with them.
"""

from collections.abc import Iterable
from functools import reduce
from math import exp, sqrt
from operator import or_
from struct import Struct
from typing import Final

from zerochat.crypto.primitives import blake2b_keyed, sha256

BITS: Final = 2048
HASHES: Final = 4
EPSILON: Final = 5.0
FLIPPED: Final = 1 / (1 + exp(EPSILON / HASHES))
"""The probability that a bit is flipped, 0.223."""
SET_MIN, SET_MAX = 340, 960
"""Bits set in an honest filter: about 456 without subscriptions, 830 with 200, and six deviations."""
PURPOSE: Final = b"zerochat/blip/1"
_LOT = Struct(">H")
_FLIPPED_BELOW = round(2**16 * FLIPPED)


def bits_of(tag: bytes) -> int:
    """The bits of a topic tag, up to `HASHES` of them; every peer computes the same."""
    found = sha256(PURPOSE + tag)
    return reduce(or_, (1 << int.from_bytes(found[2 * at : 2 * at + 2], "big") % BITS for at in range(HASHES)))


def bloom(tags: Iterable[bytes]) -> int:
    """The true filter, which is never shown."""
    return reduce(or_, map(bits_of, tags), 0)


def blip(tags: Iterable[bytes], secret: bytes, epoch: int) -> int:
    """The filter to show, always the same for these arguments. `secret`: 32 bytes, for this purpose only."""
    true = bloom(tags)
    return true ^ (_flips(secret, epoch, 1) & true) ^ (_flips(secret, epoch, 0) & ~true)


def _flips(secret: bytes, epoch: int, value: int) -> int:
    """Which bits are flipped if they have this value."""
    lots = b"".join(
        blake2b_keyed(secret, PURPOSE, b"%d %d %d" % (epoch, value, block), length=64)
        for block in range(BITS * _LOT.size // 64)
    )
    return int("".join("1" if lot < _FLIPPED_BELOW else "0" for (lot,) in _LOT.iter_unpack(lots)), 2)


def is_plausible(shown: int) -> bool:
    """Whether an honest peer can show this filter: one with all bits would match every topic."""
    return 0 <= shown < 1 << BITS and SET_MIN <= shown.bit_count() <= SET_MAX


def similarity(one: int, other: int) -> float:
    """The correlation of two filters, -1 to 1; 0 if one has no bits, or all.

    With noise on one side only, a quarter of 20 subscriptions in common ranks above none in 97 of 100 cases; with noise
    on both, in 67."""
    here, there = one.bit_count(), other.bit_count()
    spread = here * (BITS - here) * there * (BITS - there)
    return (BITS * (one & other).bit_count() - here * there) / sqrt(spread) if spread > 0 else 0.0


def matches(shown: int, tag: bytes) -> float:
    """The part of a tag's bits that a filter has: 1 for a subscriber without noise."""
    wanted = bits_of(tag)
    return (shown & wanted).bit_count() / wanted.bit_count()
