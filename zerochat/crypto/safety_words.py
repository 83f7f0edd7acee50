"""Words that two people read to each other to find out whether they mean the same keys.

Nothing secret is in them: they may be said over any telephone. They prove something because the two know each other's
voice, or stand face to face, and because an attacker cannot make other keys with the same words.

What the attacker can try. Whoever stands between Alice and Bob shows each of them a key of his own, so he chooses one
key on either side, as many as he likes (a new Ed25519 key costs him microseconds), and looks for two that give both
people the same words.

- A collision: two lists that he may both vary. Eight words are 88 bits, so he needs some 2**44 tries on either side,
  2**45 in all; that this takes hardly any memory is old (van Oorschot and Wiener, 1999). With one plain SHA-256 a try,
  a single graphics card would be through within an hour.
- A second preimage, where one side is fixed, takes 2**88 tries: out of the question with any hash.

So each try is made dear. Argon2id (RFC 9106) with 16 MiB and two passes moves some 100 MB through memory, which no
special hardware does much cheaper than ours: at 1 TB/s a card makes 10**4 tries in a second, and 2**45 take it more
than a hundred years. That is a price and not an impossibility, but it buys one lie to one pair of people in one group:
the group and both keys are in every try, so nothing of it can be kept for others. The iterated SHA-512 of Signal's
safety numbers (5200 rounds) needs no memory, and such a card would try it a hundred times as often; Signal can afford
it because its sixty digits hold 100 bits for each key apart, so that only second preimages count there. Few people read
sixty digits to the end, though. Less than all eight words is worth little: of four, a collision takes 2**23 tries, a
quarter of an hour.

The hash needs some 20 ms and 16 MiB. It is meant for the one member whose words somebody looks at, not for all at once.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from nacl.pwhash import argon2id

from zerochat.crypto.encoding import b64url, canonical_json

WORDS = 8
WORD_BITS = 11
PREFIX_CHARS = 4
"""No two words of the dictionary begin with the same four letters, so that four letters of a word are the word."""

_DOMAIN = "zerochat/words/1"
_SALT = _DOMAIN.encode()
"""Argon2 wants 16 bytes. They are the same for all, because what tells one hash from another is in what is hashed."""
_PASSES, _MEMORY_BYTES = 2, 16 * 1024 * 1024
_HASH_BYTES = 16
"""The shortest that libsodium gives; the words take the first 11."""
_WORDS_CACHED = 256


@cache
def dictionary() -> tuple[str, ...]:
    """2048 English words, sorted: common, three to seven letters, none near another in writing or alike in sound.

    The file is a part of the package's code, and is read the way in which Python reads the code. A word's place is its
    meaning: whoever changes a line changes what other versions read aloud, and must change `_DOMAIN` too.
    """
    import pkgutil

    data = pkgutil.get_data("zerochat.crypto", "words.txt")
    assert data is not None
    return tuple(data.decode("ascii").split())


def safety_words(context: str, keys: Iterable[bytes | str]) -> tuple[str, ...]:
    """Eight words for these keys, in whatever order they come.

    Other keys, another number of keys (also of one and the same), the same bytes cut elsewhere, bytes in the place of
    text, and another `context` all give other words: what is hashed is canonical JSON, with a name for each kind.
    Raises Malformed for text that is not Unicode.
    """
    named = sorted(["text", key] if isinstance(key, str) else ["bytes", b64url(key)] for key in keys)
    return _words_for(canonical_json([_DOMAIN, context, named]))


def pair_words(group: str, one: str, other: str) -> tuple[str, ...]:
    """The words of two members of a group: of its id and of both members' group keys (did:key).

    A group key signs what its member does to the group and vouches for every key that the two use towards each other,
    so it stands for all of them, and the words outlive every rotation. The id is the hash of how the group began. Names
    are not in it: each may know the other by what they like, and a name proves nothing.
    """
    assert one != other, "nobody compares words with themselves"
    return safety_words(f"pair {group}", (one, other))


def group_words(group: str, members: Iterable[str]) -> tuple[str, ...]:
    """The words of a whole group: of its id and all its members' group keys, each counted once.

    Equal words mean equal members, so they can be read to everybody in a room. They change when somebody comes or goes,
    and at no other time: the heads of the membership events stay out, which also move with a new name or role, and
    would make people see different words, and fear the worst, while an event is still on its way.
    """
    return safety_words(f"group {group}", set(members))


def split_for_reading(words: Sequence[str]) -> str:
    """Two lines of four, as one reads them to another: a line, and then the other says theirs."""
    half = WORDS // 2
    return "\n".join(" ".join(words[start : start + half]) for start in range(0, len(words), half))


def same_words(said: str, words: Sequence[str]) -> bool:
    """Whether somebody typed these words: all, in this order, however spaced, separated and capitalised.

    Four letters or more of a word are enough. They name it alone, so nothing is given away.
    """
    typed = re.findall(r"[^\W\d_]+", said.casefold())
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
