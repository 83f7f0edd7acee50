"""The key event: a signed record of how its author's keys go on, and the direct messages apart from it.

    record   =  [author, number, control heads, adopted updates, messages of the epoch before, commitment, to, wants,
                 root of the direct messages, new pre-key]                                                  MessagePack
    id       =  SHA-256(context | group | record)           signature  =  Ed25519(context | id)

An *update* has a commitment: every other member of the view at its control heads is sent the seed. Any other event
sends the author's ratchet to the members in `to`, if there are any. Direct messages are leaves of a Merkle tree (RFC
6962), so a member needs its own one and a path.
"""

from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_msgpack, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, equal, sha256
from zerochat.crypto.structs import Redacted
from zerochat.errors import Unauthentic
from zerochat.evidence.merkle import Tree, root_of_inclusion

ADOPTS_MAX: Final = 16
"""Updates that one event adopts. Older ones add nothing to the secrecy of the newest."""
TO_MAX: Final = 32
"""Members that one event gives the author's ratchet; for more, an update is smaller."""
WANTS_MAX: Final = 16
"""Members whose ratchets one event asks for."""

_CONTEXT = b"zerochat/key-event/1\n"


class KeyEvent(Struct, frozen=True, dict=True):
    """One event of an author's key ratchet."""

    group: str
    author: str
    number: int
    """Counts the author's key events from 1."""
    control: tuple[str, ...]
    """The heads of the membership events that the author had: they define its view."""
    adopts: tuple[str, ...]
    """The ids of the updates whose secrets the author has mixed into its ratchet, in order."""
    sent: int
    """How many messages the author sent in its epoch before."""
    commitment: bytes
    """Of the seed; empty: this is no update."""
    to: tuple[str, ...]
    """The members that are sent the author's ratchet; empty for an update, which all members are sent."""
    wants: tuple[str, ...]
    """The members whose ratchets the author lacks."""
    root: bytes
    """Of the direct messages; empty: there are none."""
    prekey: bytes
    """The author has lost its channels, which begin anew with this last-resort pre-key; empty: it has not."""
    sig: bytes = b""

    @cached_property
    def record(self) -> bytes:
        """The signed bytes, without the group and the signature."""
        names = [[did_key_bytes(did) for did in dids] for dids in (self.to, self.wants)]
        ids = [[b64url_bytes(one) for one in some] for some in (self.control, self.adopts)]
        author = did_key_bytes(self.author)
        return compact_msgpack([author, self.number, *ids, self.sent, self.commitment, *names, self.root, self.prekey])

    @cached_property
    def id(self) -> str:
        """base64url of the SHA-256 over group and record; 43 characters."""
        return b64url(sha256(_CONTEXT + self.group.encode() + self.record))

    @property
    def is_update(self) -> bool:
        return bool(self.commitment)

    @property
    def place(self) -> bytes:
        """The context of its keys."""
        return place_of(self.group, self.author, self.number)

    def signed(self, seed: bytes) -> "KeyEvent":
        """The same event, signed with this Ed25519 seed."""
        return replace(self, sig=ed25519_sign(seed, _CONTEXT + self.id.encode()))

    def check_signature(self) -> None:
        """Raise Unauthentic unless `sig` is the author's signature."""
        ed25519_verify(did_key_bytes(self.author), _CONTEXT + self.id.encode(), self.sig)


def place_of(group: str, author: str, number: int) -> bytes:
    """The context of the keys of an author's event."""
    return f"{group} {author} {number}".encode()


def pair_context(group: str, sender: str, recipient: str) -> bytes:
    """The context of the direct messages from one member to another."""
    return f"zerochat/2sm {group} {sender} {recipient} ".encode()


class Direct(Struct, frozen=True):
    """A direct message with the proof that its author has signed it."""

    recipient: str
    message: bytes
    index: int
    size: int
    """Of the tree."""
    path: tuple[bytes, ...]

    def check(self, event: KeyEvent) -> None:
        """Raise Unauthentic unless this is a direct message of the event."""
        root = root_of_inclusion(_leaf(self.recipient, self.message), self.index, self.size, self.path)
        if not equal(root, event.root):
            raise Unauthentic()


class Directs(Redacted, frozen=True, dict=True):
    """The direct messages of one event, by recipient in order of their DIDs."""

    REDACTED = ("messages",)

    messages: dict[str, bytes]

    @cached_property
    def _tree(self) -> Tree:
        return Tree(_leaf(did, self.messages[did]) for did in self._order)

    @cached_property
    def _order(self) -> list[str]:
        return sorted(self.messages)

    @property
    def root(self) -> bytes:
        return self._tree.root() if self.messages else b""

    def direct(self, recipient: str) -> Direct | None:
        """The message for this member with its proof."""
        if recipient not in self.messages:
            return None
        index = self._order.index(recipient)
        return Direct(recipient, self.messages[recipient], index, len(self._order), tuple(self._tree.inclusion(index)))


def _leaf(recipient: str, message: bytes) -> bytes:
    return did_key_bytes(recipient) + message
