"""A session of two agents that have heard each other: encryption without identities, then a private set intersection.

Each side has one secret token for every host that it knows (`token`): the static Diffie-Hellman secret of both hosts'
server keys. It sends a keyed hash of each token, bound to this session and to its role. A hash that it can compute too
shows a host that both know, which is the other side itself: only the two hosts of a token can compute it. Nothing else
is learned, since tokens have 256 bits and cannot be guessed; so no group operation per element is needed, as in the
intersection of sets that can be guessed (Meadows 1986), and 1,000 hosts cost 2 ms.

The number of hosts is padded to a power of two. The handshake is that of Noise NK: ephemeral keys of both sides, and
the announced key, which its owner alone can prove. A relay between two agents has two sessions, and no hash of the one
is valid in the other.

    dialer                            listener
    ephemeral key             ->
                              <-      ephemeral key
    sealed hashes             <->     sealed hashes
    sealed whereabouts        <->     sealed whereabouts    only after a match

This module does no I/O. Source of the idea: UPSYCLE (private discovery of common groups by PSI), with tokens of pairs
in place of groups: a group's former members know its id, and no longer a token that counts.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from zerochat.crypto.content_encryption import xc20p_open, xc20p_seal
from zerochat.crypto.primitives import (
    blake2b_keyed,
    check_length,
    hkdf_sha256,
    sha256,
    x25519,
    x25519_public,
    x25519_static,
)
from zerochat.errors import Malformed

PROTOCOL: Final = b"zerochat/nearby/1"
KEY_BYTES: Final = 32
HASH_BYTES: Final = 16
SEAL_BYTES: Final = 16
HASHES_MIN: Final = 16
HASHES_MAX: Final = 2_048
"""More hosts than the largest group has members. A host that knows more names the first ones only."""
OFFER_BYTES_MAX: Final = HASHES_MAX * HASH_BYTES + SEAL_BYTES
WHEREABOUTS_BYTES: Final = 4 + KEY_BYTES


class Role(Enum):
    """Which side has dialled."""

    DIALER = b"d"
    LISTENER = b"l"

    @property
    def other(self) -> "Role":
        return Role.LISTENER if self is Role.DIALER else Role.DIALER


class Ports(Struct, frozen=True):
    """The TCP ports of a host's two sockets (`network/zmq/transport.py`)."""

    pair: int
    queue: int


class Whereabouts(Struct, frozen=True):
    """What a host says of itself after a match."""

    ports: Ports
    key: bytes
    """The key that it announces, `KEY_BYTES` bytes: the other side may have heard it, and need not dial it as well."""


def token(server_secret: bytes, server_key: bytes) -> bytes:
    """The secret of two hosts, 32 bytes: of our server secret and the other's server key. Both compute the same.

    Raises Unauthentic for a key of low order.
    """
    return hkdf_sha256(x25519_static(server_secret, server_key), PROTOCOL + b" token")


class Session:
    """One session, seen from one side. Call in this order: `hello`, `receive_hello`, `offer`, `receive_offer`; then
    after a match `whereabouts` and `receive_whereabouts`. Each `receive_…` raises Malformed or Unauthentic, which ends
    the session.
    """

    def __init__(
        self,
        role: Role,
        listener: bytes,
        tokens: Mapping[bytes, bytes],
        random: Callable[[int], bytes],
        *,
        secret: bytes = b"",
    ) -> None:
        """`listener`: the announced key of the side that accepts; it has `secret`. `tokens`: by server key."""
        self._role, self._listener, self._secret, self._tokens = role, listener, secret, tokens
        self._random = random
        self._ephemeral = random(KEY_BYTES)
        self._transcript = b""
        self._keys: dict[Role, bytes] = {}
        self._sent = self._received = 0

    @property
    def hello(self) -> bytes:
        """Our ephemeral key, `KEY_BYTES` bytes."""
        return x25519_public(self._ephemeral)

    def receive_hello(self, theirs: bytes) -> None:
        """Agree on the session's keys."""
        ours, is_dialer = self.hello, self._role is Role.DIALER
        shared = x25519(self._ephemeral, theirs)
        proved = x25519(self._ephemeral, self._listener) if is_dialer else x25519(self._secret, theirs)
        both = ours + theirs if is_dialer else theirs + ours
        self._transcript = sha256(PROTOCOL + self._listener + both)
        keys = hkdf_sha256(shared + proved, PROTOCOL + b" keys", 2 * KEY_BYTES, self._transcript)
        self._keys = {Role.DIALER: keys[:KEY_BYTES], Role.LISTENER: keys[KEY_BYTES:]}

    def offer(self) -> bytes:
        """The sealed hashes of our tokens, in random order, padded with random ones to a power of two."""
        hashes = [self._hash(one, self._role) for one in list(self._tokens.values())[:HASHES_MAX]]
        size = max(HASHES_MIN, 1 << (len(hashes) - 1).bit_length()) if hashes else HASHES_MIN
        hashes += [self._random(HASH_BYTES) for _ in range(size - len(hashes))]
        return self._seal(b"".join(sorted(hashes)))

    def receive_offer(self, sealed: bytes) -> bytes | None:
        """The server key of the other side; None: we do not know each other."""
        plain = self._open(sealed)
        if len(plain) % HASH_BYTES or not HASHES_MIN <= len(plain) // HASH_BYTES <= HASHES_MAX:
            raise Malformed(why="a wrong number of hashes")
        theirs = {plain[at : at + HASH_BYTES] for at in range(0, len(plain), HASH_BYTES)}
        found = [host for host, one in self._tokens.items() if self._hash(one, self._role.other) in theirs]
        if len(found) > 1:  # a host has one server key
            raise Malformed(why="the hashes of two hosts")
        return found[0] if found else None

    def whereabouts(self, own: Whereabouts) -> bytes:
        return self._seal(own.ports.pair.to_bytes(2, "big") + own.ports.queue.to_bytes(2, "big") + own.key)

    def receive_whereabouts(self, sealed: bytes) -> Whereabouts:
        plain = self._open(sealed)
        check_length(plain, WHEREABOUTS_BYTES)
        ports = Ports(int.from_bytes(plain[:2], "big"), int.from_bytes(plain[2:4], "big"))
        if not ports.pair or not ports.queue:
            raise Malformed(why="a port 0")
        return Whereabouts(ports, plain[4:])

    # --- inside -----------------------------------------------------------------------------------------------------

    def _hash(self, token_: bytes, role: Role) -> bytes:
        return blake2b_keyed(token_, b"zc nearby " + role.value, self._transcript, HASH_BYTES)

    def _seal(self, plain: bytes) -> bytes:
        nonce = self._sent.to_bytes(24, "big")
        self._sent += 1
        return b"".join(xc20p_seal(self._keys[self._role], nonce, plain, b""))

    def _open(self, sealed: bytes) -> bytes:
        if len(sealed) < SEAL_BYTES:
            raise Malformed(why="a truncated message")
        nonce = self._received.to_bytes(24, "big")
        self._received += 1
        return xc20p_open(self._keys[self._role.other], nonce, sealed[:-SEAL_BYTES], sealed[-SEAL_BYTES:], b"")
