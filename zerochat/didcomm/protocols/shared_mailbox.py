"""Shared mailboxes: a mediator takes one envelope for all of its recipients in a group (UPSYCLE's proxies).

    member                                  mediator                       members that it serves
      | -- keep: shared key, mailbox, proof -> |                               |
      | <- kept: the shared keys ------------- |                               |
    any member
      | -- forward to the shared key, proof -> |  -- into each mailbox ------> |

A shared mailbox is a did:key whose secret the members of a group derive from one that they share, for one mediator
(`shared_seed`). A recipient that proves possession has what comes to the shared key put into one of its own mailboxes;
`keep` names all of its shared keys, so one message serves changes and recovery from lost ones. The key tells a mediator
neither the group nor its members, only which of its mailboxes belong together, and two mediators have different ones.

A forward to a shared key needs a signature by that key over the envelope, so only members can post, though the sender
stays anonymous. The envelope is encrypted to the shared key, with randomness that follows from its content and the
secret (convergent encryption): what several members post is the same envelope, and the mediator stores it once.

This is an extension of Coordinate Mediation.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes, did_key, did_key_bytes
from zerochat.crypto.primitives import blake2b_keyed, ed25519_public, ed25519_sign, ed25519_verify, sha256
from zerochat.didcomm.did import DID_CHARS_MAX, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols.bodies import read_body
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed

PROTOCOL: Final = "https://zerochat.org/shared-mailbox/1.0"
Kind: TypeAlias = Literal["keep", "kept"]
_TYPES: Final[dict[Kind, str]] = {"keep": f"{PROTOCOL}/keep", "kept": f"{PROTOCOL}/kept"}

SHARES_MAX: Final = 64
"""Shared keys of one recipient."""
KEY_CHARS_MAX: Final = 64
"""A did:key of Ed25519 has 56."""
PROOF_CHARS: Final = 86
"""A signature in base64url."""


class Share(Struct, frozen=True):
    """A shared key, and the recipient's own mailbox that gets what comes to it."""

    key: str
    """did:key of Ed25519."""
    mailbox: str
    """A DID that the recipient has registered."""
    proof: str
    """The signature by the shared key, base64url (`share`)."""


_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_CHARS_MAX)]


class _Share(Struct, frozen=True):
    key: _Key
    mailbox: Annotated[str, msgspec.Meta(min_length=1, max_length=DID_CHARS_MAX)]
    proof: Annotated[str, msgspec.Meta(min_length=PROOF_CHARS, max_length=PROOF_CHARS)]


class _Keep(Struct, frozen=True):
    shares: Annotated[list[_Share], msgspec.Meta(max_length=SHARES_MAX)]


class _Kept(Struct, frozen=True):
    keys: Annotated[list[_Key], msgspec.Meta(max_length=SHARES_MAX)]


# --- keys and proofs ------------------------------------------------------------------------------------------------


def shared_seed(secret: bytes, mediator: str) -> bytes:
    """The seed (32 bytes) of the Ed25519 key of a shared mailbox at the mediator with this DID. `secret`: 32 bytes that
    the members of a group share."""
    return blake2b_keyed(secret, b"zerochat/share", short_form(mediator).encode())


def key_of(seed: bytes) -> str:
    """The shared key with this seed, a did:key."""
    return did_key(ed25519_public(seed, erasable=True))


def share(seed: bytes, mailbox: str, recipient: str, mediator: str) -> Share:
    """A share with its proof, which is bound to the recipient and the mediator: a copy is useless to others."""
    key = key_of(seed)
    statement = _share_statement(key, mailbox, recipient, mediator)
    return Share(key, mailbox, b64url(ed25519_sign(seed, statement, erasable=True)))


def check_share(claim: Share, recipient: str, mediator: str) -> None:
    """Raise Unauthentic unless the shared key has signed this share of this recipient, or Malformed."""
    statement = _share_statement(claim.key, claim.mailbox, recipient, mediator)
    ed25519_verify(did_key_bytes(claim.key), statement, b64url_bytes(claim.proof))


def sign_post(seed: bytes, envelope: bytes) -> str:
    """The proof of a forward of this envelope to the shared key, base64url."""
    return b64url(ed25519_sign(seed, _post_statement(envelope), erasable=True))


def check_post(key: str, proof: str, envelope: bytes) -> None:
    """Raise Unauthentic unless the shared key has signed this envelope, or Malformed."""
    ed25519_verify(did_key_bytes(key), _post_statement(envelope), b64url_bytes(proof))


def convergent(seed: bytes, content: bytes) -> Callable[[int], bytes]:
    """The random bytes with which this content is encrypted to the shared key: unpredictable without the seed, and the
    same for all who have it."""
    root, count = blake2b_keyed(seed, b"zerochat/sealing", sha256(content)), 0

    def random(length: int) -> bytes:
        nonlocal count
        drawn = b""
        while len(drawn) < length:
            drawn += blake2b_keyed(root, b"zerochat/draws", count.to_bytes(8, "big"))
            count += 1
        return drawn[:length]

    return random


def _share_statement(key: str, mailbox: str, recipient: str, mediator: str) -> bytes:
    names = (key, mailbox, short_form(recipient), short_form(mediator))
    return "\n".join(("zerochat shared mailbox 1", *names)).encode()


def _post_statement(envelope: bytes) -> bytes:
    return b"zerochat shared mailbox post 1\n" + sha256(envelope)


# --- messages -------------------------------------------------------------------------------------------------------


def kind_of(message: Message) -> Kind | None:
    """The kind of a message; None: another protocol."""
    return next((kind for kind, uri in _TYPES.items() if same_type(message.type, uri)), None)


def keep(shares: Sequence[Share], random: Callable[[int], bytes]) -> Message:
    """Keep these shares of the sender, at most SHARES_MAX, and no others."""
    rows = [{"key": one.key, "mailbox": one.mailbox, "proof": one.proof} for one in shares]
    return Message(type=_TYPES["keep"], id=new_id(random), body={"shares": rows}, return_route="all")


def kept(incoming: Message, keys: Sequence[str], random: Callable[[int], bytes]) -> Message:
    """The answer: the shared keys that are kept."""
    return Message(type=_TYPES["kept"], id=new_id(random), body={"keys": list(keys)}, thid=incoming.thread)


def read_keep(message: Message) -> tuple[Share, ...]:
    """The shares, unchecked. Raises Malformed, also for two of one key."""
    rows = read_body(message, _Keep).shares
    if len({row.key for row in rows}) < len(rows):
        raise Malformed(why="shared mailbox: one key twice")
    return tuple(Share(row.key, row.mailbox, row.proof) for row in rows)


def read_kept(message: Message) -> frozenset[str]:
    """Raises Malformed."""
    return frozenset(read_body(message, _Kept).keys)
