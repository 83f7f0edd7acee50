"""Fast stand-ins for cryptography: a packer without encryption, and cached signature verification."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from struct import pack
from typing import ClassVar

from zerochat.crypto import primitives
from zerochat.crypto.keys import PublicKey, SecretKey, public_of
from zerochat.didcomm.did import resolver
from zerochat.didcomm.did.document import Document
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.message import Message, parse
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, OwnKey, TheirKey, Unpacked
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.event_log.event import load_event

PAIRS_MAX = 65_536
"""Cached keys and DID documents of some kilobytes each: more than 200 members have, who use a DID of their own for each
other."""


class TransparentPacker(JwePacker):
    """A packer without secrecy that rejects what real ones reject.

    An envelope is the key ids of its sender (none in anoncrypt) and recipient and a proof, one line each, then the
    text. The proof covers both keys and the content, so a changed byte or a wrong key is rejected.
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


_parsed = lru_cache(maxsize=256)(parse)
"""Frames arrive twice, and adversaries decrypt them again; messages are immutable."""


@lru_cache(maxsize=PAIRS_MAX)
def _public_of(secret: bytes) -> bytes:
    return public_of(SecretKey("X25519", secret)).data


def _public(secret: SecretKey) -> bytes:
    return _public_of(secret.data)


def _proof(*parts: bytes) -> bytes:
    lengths = pack(f">{len(parts)}I", *map(len, parts))
    return hashlib.sha256(lengths + b"".join(parts)).hexdigest()[:32].encode()


# --- cached verification ----------------------------------------------------------------------------------------------

VERIFIED_MAX = 8192
"""Cached signed texts of some hundred bytes: more than one run has."""
RECORDS_MAX = 4096
"""Cached records of some hundred bytes: more than one run has."""

event_of = lru_cache(RECORDS_MAX)(load_event)
"""The event of a log record; every check reads all records of all members."""


@contextmanager
def cached_signatures() -> Iterator[None]:
    """Cache successful signature verifications, and the documents of all members' DIDs, within the block.

    All members live in one process and verify the same signatures. The cache key is everything that a verification
    depends on; failures are not cached.
    """
    before, document = primitives.open_signed, resolver.common_document
    primitives.open_signed, resolver.common_document = _opened_before(before), _document_before(document)
    try:
        yield
    finally:
        primitives.open_signed, resolver.common_document = before, document


@lru_cache(1)
def _document_before(read: Callable[[str], Document]) -> Callable[[str], Document]:
    return lru_cache(PAIRS_MAX)(read)


@lru_cache(1)
def _opened_before(open_signed: Callable[[bytes, bytes], bytes]) -> Callable[[bytes, bytes], bytes]:
    return lru_cache(VERIFIED_MAX)(open_signed)
