"""Numbers in the place of names.

A pseudonym is 8 bytes of BLAKE2b under a key: whoever has not the key can neither find the name nor try names. Alone,
the key is made for one export and forgotten. Together, members agree on a phrase of words and get the same key of it,
so that their exports speak of the same people by the same numbers; whoever has the phrase can try names, and knows the
members' anyway.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import ClassVar, Final

from nacl.pwhash import argon2id

from zerochat.crypto.safety_words import PREFIX_CHARS, dictionary
from zerochat.errors import LocalError

KEY_BYTES: Final = 32
PHRASE_WORDS: Final = 8
"""Of 2048: 88 bits."""
_SALT: Final = b"zerochat/study/1"
_PASSES, _MEMORY_BYTES = 2, 16 * 1024 * 1024


class BadPhrase(LocalError):
    """This is no study phrase: {why}. `zerochat telemetry words` makes one that members can agree on."""

    exit_code: ClassVar[int] = 2


def new_phrase() -> str:
    """A phrase for a study, drawn by lot."""
    words = dictionary()
    return " ".join(words[int.from_bytes(os.urandom(2), "big") % len(words)] for _ in range(PHRASE_WORDS))


def read_phrase(text: str) -> Sequence[str]:
    """The words of a phrase; four letters of each are enough. Raises BadPhrase, which does not say which words."""
    known = {word[:PREFIX_CHARS]: word for word in dictionary()}
    given = text.lower().replace(",", " ").replace("-", " ").split()
    if len(given) != PHRASE_WORDS:
        raise BadPhrase(why=f"it has {len(given)} words and not {PHRASE_WORDS}")
    found = [known.get(word[:PREFIX_CHARS], "") for word in given]
    if not all(word and word.startswith(said) for word, said in zip(found, given, strict=True)):
        raise BadPhrase(why="a word of it is in no list of ours")
    return found


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """The numbers under one key."""

    key: bytes = field(repr=False)
    together: bool
    _numbers: dict[tuple[str, str, str], int] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def alone(cls) -> "Pseudonyms":
        """Under a key that nobody gets to know."""
        return cls(os.urandom(KEY_BYTES), together=False)

    @classmethod
    def of_phrase(cls, text: str) -> "Pseudonyms":
        """Under the key of a phrase that members have agreed on. Raises BadPhrase."""
        words = " ".join(read_phrase(text)).encode()
        return cls(argon2id.kdf(KEY_BYTES, words, _SALT, _PASSES, _MEMORY_BYTES), together=True)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that tell which exports have the same key, and nothing else of it."""
        return blake2b(b"", key=self.key, digest_size=8, person=b"zc-study-mark").hexdigest()

    def group(self, group: str) -> int:
        return self._number("group", group, "")

    def member(self, group: str, did: str) -> int:
        """Of a member as it is known in one group: nobody has the same number in two."""
        return self._number("member", group, did)

    def view(self, group: int, checksum: int) -> int:
        """Of a class of views; `group`: the pseudonym."""
        return self._number("view", str(group), str(checksum))

    def lot(self, number: int) -> int:
        """In the place of a number that was drawn by lot: 48 bits."""
        return self._number("lot", str(number), "") & (1 << 48) - 1

    def _number(self, kind: str, group: str, name: str) -> int:
        known = self._numbers.get((kind, group, name))
        if known is None:
            text, person = f"{group}\0{name}".encode(), f"zc-{kind}".encode()
            digest = blake2b(text, key=self.key, digest_size=8, person=person).digest()
            known = self._numbers[kind, group, name] = int.from_bytes(digest, "big", signed=True)
        return known
