"""A stand-in for encryption in simulations, so that thousands of histories fit into a minute."""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import msgspec

from zerochat.crypto.encoding import strict_json
from zerochat.crypto.keys import PublicKey, SecretKey, public_of
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, OwnKey, TheirKey, Unpacked
from zerochat.errors import Malformed, Unauthentic


class TransparentPacker(JwePacker):
    """A stand-in for encryption in simulations: the same shape and the same refusals, and no secrecy at all.

    It binds an envelope to both kids and to its content, so a changed byte or a foreign key is refused as it would be.
    """

    name: ClassVar[str] = "simulated/transparent"

    def authcrypt(self, plain: bytes, *, sender: OwnKey, recipient: TheirKey, random: Callable[[int], bytes]) -> bytes:
        return _transparent(sender.kid, _public(sender.key), recipient, plain)

    def anoncrypt(self, plain: bytes, *, recipient: TheirKey, random: Callable[[int], bytes], enc: str = "") -> bytes:
        return _transparent("", None, recipient, plain)

    def unpack(
        self,
        envelope: bytes,
        *,
        secret_of: Callable[[str], SecretKey | None],
        public_of: Callable[[str], PublicKey],
    ) -> Unpacked:
        try:
            tree = strict_json(envelope, ENVELOPE_BYTES_MAX)
            sender, recipient, text, proof = msgspec.convert(tree, tuple[str, str, str, str])
            plain = base64.b64decode(text)
        except ValueError as error:
            raise Malformed(why=str(error)) from None
        secret = secret_of(recipient)
        if secret is None or proof != _proof(sender, sender and public_of(sender), recipient, _public(secret), plain):
            raise Unauthentic()
        return Unpacked(plain, "authcrypt" if sender else "anoncrypt", sender or None, recipient, "none")


def _transparent(kid: str, sender: PublicKey | None, recipient: TheirKey, plain: bytes) -> bytes:
    proof = _proof(kid, sender or "", recipient.kid, recipient.key, plain)
    return json.dumps([kid, recipient.kid, base64.b64encode(plain).decode(), proof]).encode()


_public = lru_cache(4096)(public_of)


def _proof(*parts: str | bytes | PublicKey) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.data if isinstance(part, PublicKey) else part
        raw = data.encode() if isinstance(data, str) else data
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return digest.hexdigest()[:32]
