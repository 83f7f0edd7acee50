"""Safety words: key fingerprints as eight words (88 bits, Argon2id), compared by voice against a man in the middle.

The words are not secret. They authenticate because the two users recognise each other's voice or meet, and because an
attacker cannot find other keys with the same words.

Attacks. A man in the middle presents a key of his own to each side. He may vary both (a fresh Ed25519 key costs
microseconds) and searches for a pair that gives both users the same words:

- Collision: 88 bits need 2**44 tries on each side, 2**45 in total, with negligible memory (van Oorschot and Wiener,
  1999). With one SHA-256 per try, a graphics card needs less than an hour.
- Second preimage, with one side fixed: 2**88 tries, infeasible with any hash.

Therefore every try is memory-hard: Argon2id (RFC 9106) with 16 MiB and two passes moves about 100 MB through memory. At
1 TB/s a card makes 10**4 tries per second, and 2**45 take more than a hundred years. The group and both keys are inputs
of every try, so no work can be reused. Signal's safety numbers use 5200 rounds of SHA-512, which such a card computes a
hundred times as fast; that suffices there, because sixty digits hold 100 bits per key and only second preimages count.
Few users compare sixty digits to the end. Comparing fewer than all eight words is weak: for four, a collision takes
2**23 tries, a quarter of an hour.

One hash takes about 20 ms and 16 MiB. Compute it for the member being verified, not for all members.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from nacl.pwhash import argon2id

from zerochat.crypto.encoding import b64url, canonical_json

WORDS = 8
WORD_BITS = 11
PREFIX_CHARS = 4
"""The first four letters of a word identify it in the dictionary."""

_DOMAIN = "zerochat/words/1"
_SALT = _DOMAIN.encode()
"""Argon2 needs 16 bytes. A constant, because all distinguishing input is in the message."""
_PASSES, _MEMORY_BYTES = 2, 16 * 1024 * 1024
_HASH_BYTES = 16
"""libsodium's minimum; the words use the first 11 bytes."""
_WORDS_CACHED = 256


@cache
def dictionary() -> tuple[str, ...]:
    """2048 English words, sorted: common, three to seven letters, dissimilar in spelling and sound.

    The index of a word is its value: a change of the list changes the words of other versions, and needs a new
    `_DOMAIN`. The file is package data, loaded by Python's import machinery.
    """
    import pkgutil

    data = pkgutil.get_data("zerochat.crypto", "words.txt")
    assert data is not None
    return tuple(data.decode("ascii").split())


def safety_words(context: str, keys: Iterable[bytes | str]) -> tuple[str, ...]:
    """Eight words for a multiset of keys, independent of their order.

    The input is canonical JSON with a type tag per key, so another multiplicity, another split of the same bytes, bytes
    instead of text, or another `context` give other words. Raises Malformed for text that is not Unicode.
    """
    named = sorted(["text", key] if isinstance(key, str) else ["bytes", b64url(key)] for key in keys)
    return _words_for(canonical_json([_DOMAIN, context, named]))


def pair_words(group: str, one: str, other: str) -> tuple[str, ...]:
    """The words of two members of a group: of the group id and both group keys (did:key).

    A group key signs its member's membership events and certifies the pairwise keys, so the words cover them and
    survive rotations. The id is the hash of the genesis event. Display names are not included: they prove nothing.
    """
    assert one != other, "two different members"
    return safety_words(f"pair {group}", (one, other))


def group_words(group: str, members: Iterable[str]) -> tuple[str, ...]:
    """The words of a whole group: of its id and the set of all group keys.

    Equal words mean equal membership, so one member can read them to all others. They change only with the membership:
    the heads of the membership events are excluded, because these also change with names and roles, and the words
    would differ while such an event is still in transit.
    """
    return safety_words(f"group {group}", set(members))


def split_for_reading(words: Sequence[str]) -> str:
    """Two lines of four words: each user reads one line aloud."""
    half = WORDS // 2
    return "\n".join(" ".join(words[start : start + half]) for start in range(0, len(words), half))


def same_words(typed_text: str, words: Sequence[str]) -> bool:
    """Whether the input contains exactly these words in order, in any spacing and capitalisation.

    Four or more letters of a word suffice, because they identify it.
    """
    typed = re.findall(r"[^\W\d_]+", typed_text.casefold())
    return len(typed) == len(words) and all(
        each == word or (len(each) >= PREFIX_CHARS and word.startswith(each))
        for each, word in zip(typed, words, strict=True)
    )


@lru_cache(maxsize=_WORDS_CACHED)
def _words_for(message: bytes) -> tuple[str, ...]:
    digest = argon2id.kdf(_HASH_BYTES, message, _SALT, opslimit=_PASSES, memlimit=_MEMORY_BYTES)
    number = int.from_bytes(digest[: WORDS * WORD_BITS // 8])
    mask = (1 << WORD_BITS) - 1
    return tuple(dictionary()[number >> place * WORD_BITS & mask] for place in reversed(range(WORDS)))
