"""Key succession: a member signs over its stream to a new key, at one place of the stream.

SUPRA's members update their public key on the chain. Here the statement names the last signature under the old key:
the next message follows it under the new one. That orders the two keys without a clock or a log: a statement that is
backdated contradicts a message under the old key, and both together are a fork.

Both keys sign: the old one hands over, the new one proves that it is held and consents. Proofs made before stay valid,
because messages are verified with the key of their place.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from zerochat.crypto.encoding import b64url, b64url_bytes, did_key, did_key_bytes, strict_json
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify
from zerochat.crypto.structs import Did
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX, Hash, SignedStatement
from zerochat.evidence.messages import BEFORE, PUBLISHER, parse_data

SUCCESSIONS_MAX: Final = 64
"""Keys of one member, one after the other."""
CONSENT: Final = b"zerochat/succession/1\n"
_Signature = Annotated[str, msgspec.Meta(pattern="^([A-Za-z0-9_-]{86})?$")]


class Succession(SignedStatement, frozen=True, tag="succession", tag_field="type", kw_only=True):
    """From the message after `head` on, the stream's messages are signed with the successor's key."""

    signer = "author"

    topic: Hash
    """The group."""
    author: Did
    successor: Did
    head: _Signature
    """The last signature under the author's key, base64url; empty: there is none in this stream."""
    consent: _Signature = ""

    def check(self) -> None:
        """Verify both signatures. Raises Unauthentic."""
        super().check()
        if self.author == self.successor or not self.consent:
            raise Unauthentic()
        ed25519_verify(did_key_bytes(self.successor), self._consented(), b64url_bytes(self.consent))

    def _consented(self) -> bytes:
        return CONSENT + msgspec.structs.replace(self, sig="", consent="").serialize()

    def consented(self, seed: bytes) -> "Succession":
        return msgspec.structs.replace(self, consent=b64url(ed25519_sign(seed, self._consented())))


def succeed(seed: bytes, successor: bytes, topic: str, head: bytes, now_ms: int) -> Succession:
    """The statement, signed with both seeds. `head`: the last signature of the stream, or empty."""
    statement = Succession(
        time=now_ms,
        topic=topic,
        author=did_key(ed25519_public(seed)),
        successor=did_key(ed25519_public(successor)),
        head=b64url(head),
    )
    return statement.consented(successor).signed(seed)


def parse_succession(encoded: bytes) -> Succession:
    """Decode and verify a statement. Raises Malformed or Unauthentic."""
    try:
        found = msgspec.convert(strict_json(encoded, STATEMENT_BYTES_MAX), Succession)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"a succession of another form ({error})") from None
    found.check()
    return found


def current_key(first: str, topic: str, statements: Iterable[Succession]) -> str:
    """The did:key of the member that began with the key `first`, after these statements in their order. Raises
    Unauthentic unless each hands over the key before it, to one that was not the member's before; Malformed for more
    than SUCCESSIONS_MAX."""
    keys = [first]
    for statement in statements:
        statement.check()
        if (statement.author, statement.topic) != (keys[-1], topic) or statement.successor in keys:
            raise Unauthentic()
        keys.append(statement.successor)
        if len(keys) > 1 + SUCCESSIONS_MAX:
            raise Malformed(why="too many successions")
    return keys[-1]


def is_superseded(statement: Succession, encoded: bytes) -> bool:
    """Whether a data message is the old key's at the place where the new one takes over: it has no effect,
    even if a thief of the old key signs it. Raises Malformed or Unauthentic."""
    parse_data(encoded)
    old = encoded[PUBLISHER] == did_key_bytes(statement.author)
    return old and bool(statement.head) and encoded[BEFORE] == b64url_bytes(statement.head)
