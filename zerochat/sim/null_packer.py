"""A stand-in for encryption in simulations, so that thousands of histories fit into a minute."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from struct import pack
from typing import ClassVar

from zerochat.crypto.keys import PublicKey, SecretKey, public_of
from zerochat.didcomm import message as plaintext
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, OwnKey, TheirKey, Unpacked
from zerochat.errors import Malformed, Unauthentic


class TransparentPacker(JwePacker):
    """A stand-in for encryption in simulations: the same refusals, and no secrecy at all.

    An envelope is the key ids of its sender (none in anoncrypt) and recipient and a proof, a line each, then the text.
    The proof binds it to both keys and to its content, so a changed byte or a foreign key is refused as it would be.
    """

    name: ClassVar[str] = "simulated/transparent"

    def parse(self, plain: bytes) -> Message:
        return _parsed(plain)

    def authcrypt(self, plain: bytes, *, sender: OwnKey, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        return _transparent(sender.kid, _public(sender.key), recipient, plain)

    def anoncrypt(self, plain: bytes, *, recipient: TheirKey, random: Callable[[int], bytes], enc: str = "") -> bytes:
        return _transparent("", b"", recipient, plain)

    def unpack(
        self,
        envelope: bytes,
        *,
        secret_of: Callable[[str], SecretKey | None],
        public_of: Callable[[str], PublicKey],
    ) -> Unpacked:
        try:
            first, second, proof, plain = envelope.split(b"\n", 3)
            sender, recipient = first.decode(), second.decode()
        except ValueError as error:
            raise Malformed(why=str(error)) from None
        if len(envelope) > ENVELOPE_BYTES_MAX:
            raise Malformed(why="an envelope that is too long")
        secret = secret_of(recipient)
        theirs = public_of(sender).data if sender else b""
        if secret is None or proof != _proof(first, theirs, second, _public(secret), plain):
            raise Unauthentic()
        return Unpacked(plain, "authcrypt" if sender else "anoncrypt", sender or None, recipient, "none")


def _transparent(kid: str, sender: bytes, recipient: TheirKey, plain: bytes) -> bytes:
    first, second = kid.encode(), recipient.kid.encode()
    return b"\n".join((first, second, _proof(first, sender, second, recipient.key.data, plain), plain))


_parsed = lru_cache(maxsize=256)(plaintext.parse)
"""Frames come twice, and whatever an adversary hears is overheard besides; nobody changes a message."""


@lru_cache(maxsize=4096)
def _public_of(secret: bytes) -> bytes:
    return public_of(SecretKey("X25519", secret)).data


def _public(secret: SecretKey) -> bytes:
    return _public_of(secret.data)


def _proof(*parts: bytes) -> bytes:
    lengths = pack(f">{len(parts)}I", *map(len, parts))
    return hashlib.sha256(lengths + b"".join(parts)).hexdigest()[:32].encode()
