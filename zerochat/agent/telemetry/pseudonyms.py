"""Pseudonyms for exports: keyed BLAKE2b-64 of group ids and DIDs.

Without the key a name can neither be recovered nor guessed. A single export uses a random key that is forgotten
afterwards. In a shared study, members derive the key from a study passphrase (Argon2id), so that their exports use the
same pseudonyms for the same members; the passphrase allows guessing names, which the members know anyway.
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
PASSPHRASE_WORDS: Final = 8
"""Of 2048: 88 bits."""
_SALT: Final = b"zerochat/study/1"
_PASSES, _MEMORY_BYTES = 2, 16 * 1024 * 1024


class BadStudyPassphrase(LocalError):
    """Not a study passphrase: {why}. `zerochat telemetry passphrase` makes one to share with the other members."""

    exit_code: ClassVar[int] = 2


def new_passphrase() -> str:
    """A random study passphrase."""
    words = dictionary()
    return " ".join(words[int.from_bytes(os.urandom(2), "big") % len(words)] for _ in range(PASSPHRASE_WORDS))


def read_passphrase(text: str) -> Sequence[str]:
    """The words of a passphrase, each given by its first four letters or more. Raises BadStudyPassphrase, which does
    not name the wrong words."""
    known = {word[:PREFIX_CHARS]: word for word in dictionary()}
    given = text.lower().replace(",", " ").replace("-", " ").split()
    if len(given) != PASSPHRASE_WORDS:
        raise BadStudyPassphrase(why=f"it has {len(given)} words instead of {PASSPHRASE_WORDS}")
    found = [known.get(word[:PREFIX_CHARS], "") for word in given]
    if not all(word and word.startswith(prefix) for word, prefix in zip(found, given, strict=True)):
        raise BadStudyPassphrase(why="a word is not in the word list")
    return found


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Pseudonyms under one key."""

    key: bytes = field(repr=False)
    shared: bool
    _numbers: dict[tuple[str, str, str], int] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def single(cls) -> "Pseudonyms":
        """Under a random key that is never stored."""
        return cls(os.urandom(KEY_BYTES), shared=False)

    @classmethod
    def from_passphrase(cls, text: str) -> "Pseudonyms":
        """Under the key of a study passphrase. Raises BadStudyPassphrase."""
        words = " ".join(read_passphrase(text)).encode()
        return cls(argon2id.kdf(KEY_BYTES, words, _SALT, _PASSES, _MEMORY_BYTES), shared=True)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that identify the key and reveal nothing else of it."""
        return blake2b(b"", key=self.key, digest_size=8, person=b"zc-study-mark").hexdigest()

    def group(self, group: str) -> int:
        return self._number("group", group, "")

    def member(self, group: str, did: str) -> int:
        """A member of one group; the same user has another pseudonym in another group."""
        return self._number("member", group, did)

    def view(self, group: int, checksum: int) -> int:
        """A view checksum. `group`: the group's pseudonym."""
        return self._number("view", str(group), str(checksum))

    def random_number(self, number: int) -> int:
        """Replacement of a random id: 48 bits."""
        return self._number("random", str(number), "") & (1 << 48) - 1

    def _number(self, kind: str, group: str, name: str) -> int:
        known = self._numbers.get((kind, group, name))
        if known is None:
            text, person = f"{group}\0{name}".encode(), f"zc-{kind}".encode()
            digest = blake2b(text, key=self.key, digest_size=8, person=person).digest()
            known = self._numbers[kind, group, name] = int.from_bytes(digest, "big", signed=True)
        return known
