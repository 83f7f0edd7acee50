"""2SM, two-party secure messaging (Weidner et al. 2021): a pairwise channel that heals with every round trip.

Each message replaces the recipient's key (its secret half travels in the message) and offers a fresh key of the sender
for the answer. So messages of one direction are opened exactly once and in order, which the caller provides. First
messages may cross. Each is encrypted with HPKE (`hpke.py`) to the key that its header names:

    0                  the one-time pre-key that the recipient offered to this sender
    1 | id (4)         the recipient's last-resort pre-key (`prekeys.py`)
    2                  the key that the sender's previous message gave to the recipient
    3 | index (4)      the key that the recipient offered with this number

    message  =  header | HPKE(given secret (32) | offered public (32) | index (4) | content)

Authentication is the caller's: messages travel in signed events.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from zerochat.crypto import hpke
from zerochat.crypto.prekeys import ID_BYTES, HeldPreKey, prekey_id, secret_of
from zerochat.crypto.primitives import check_x25519_public, x25519_public
from zerochat.crypto.structs import Redacted
from zerochat.errors import Malformed, Refused, Unauthentic

KEY_BYTES: Final = 32
OWN_MAX: Final = 32
"""Offered keys that wait for an answer. A peer that stays silent for longer gets the last one again."""
OVERHEAD_BYTES: Final = 1 + ID_BYTES + hpke.SEAL_BYTES + 2 * KEY_BYTES + 4
"""How much longer a message is than its content at most, in bytes."""

_ONE_TIME, _LAST_RESORT, _GIVEN, _OFFERED = 0, 1, 2, 3
_HEADER_BYTES = {_ONE_TIME: 1, _LAST_RESORT: 1 + ID_BYTES, _GIVEN: 1, _OFFERED: 5}
_BODY_BYTES = 2 * KEY_BYTES + 4


class Channel(Redacted, frozen=True):
    """One side of a channel with one peer."""

    REDACTED = ("given", "offered", "own")

    own: tuple[tuple[int, bytes], ...] = ()
    """The secrets of keys that we offered, by number, oldest first."""
    index: int = 0
    """The number of the key that we offered last."""
    given: bytes = b""
    """The secret that the peer gave us in its last message; empty: none yet."""
    peer: bytes = b""
    """The public key that our next message is encrypted to; empty: none yet."""
    header: bytes = b""
    """The header of our next message, which names that key."""
    offered: bytes = b""
    """The secret of the one-time pre-key for the peer's first message; empty: none, or used."""


class Opened(Redacted, frozen=True):
    """A received message."""

    REDACTED = ("plain", "key")

    channel: Channel
    plain: bytes
    key: bytes
    """The AEAD key, which opens this message alone: the evidence of a complaint."""


def met(offered: bytes, peer: bytes, channel: Channel | None = None) -> Channel:
    """A channel after an exchange of one-time pre-keys: our secret, the peer's public key. Raises Malformed.

    A channel that has sent or received already keeps its key for sending.
    """
    check_x25519_public(peer)
    if channel is None or not channel.peer:
        return Channel(peer=peer, header=bytes([_ONE_TIME]), offered=offered)
    return replace(channel, offered=offered)


def reached(prekey: bytes, channel: Channel | None = None) -> Channel:
    """A channel whose next message is encrypted to the peer's last-resort pre-key. Raises Malformed.

    `channel`: what is left of a channel that the peer has reset: the keys that we offered still open its messages.
    """
    check_x25519_public(prekey)
    header = bytes([_LAST_RESORT]) + prekey_id(prekey)
    return replace(channel or Channel(), peer=prekey, header=header, given=b"")


def send(channel: Channel, context: bytes, plain: bytes, random: Callable[[int], bytes]) -> tuple[Channel, bytes]:
    """The channel after a message, and the message. `context` is bound into it. Raises Refused without any key of the
    peer."""
    if not channel.peer:
        raise Refused(why="no key of this peer")
    own, index = channel.own, channel.index
    if len(own) < OWN_MAX:
        index += 1
        own = (*own, (index, random(KEY_BYTES)))
    given = random(KEY_BYTES)
    body = given + x25519_public(own[-1][1]) + index.to_bytes(4, "big") + plain
    sealed = hpke.seal(channel.peer, context + channel.header, body, random(KEY_BYTES))
    after = replace(channel, own=own, index=index, peer=x25519_public(given), header=bytes([_GIVEN]))
    return after, channel.header + sealed


def receive(channel: Channel, context: bytes, message: bytes, held: tuple[HeldPreKey, ...] = ()) -> Opened:
    """Open the peer's next message and erase the key that opened it. `held`: our last-resort pre-keys.

    Raises Unauthentic, Malformed, or Refused for a key that we no longer have.
    """
    size = _HEADER_BYTES.get(message[0]) if message else None
    if size is None or len(message) < size + hpke.SEAL_BYTES + _BODY_BYTES:
        raise Malformed(why="a pairwise message of the wrong length")
    header, sealed = message[:size], message[size:]
    key = hpke.aead_key(_secret(channel, header, held), context + header, sealed)
    plain = hpke.open_with(key, sealed)
    given, offered, index = plain[:KEY_BYTES], plain[KEY_BYTES : 2 * KEY_BYTES], plain[2 * KEY_BYTES : _BODY_BYTES]
    try:
        check_x25519_public(offered)
    except Malformed:
        raise Unauthentic() from None
    answered = int.from_bytes(header[1:], "big") if header[0] == _OFFERED else 0
    after = replace(
        channel,
        own=tuple(one for one in channel.own if one[0] > answered),
        given=given,
        peer=offered,
        header=bytes([_OFFERED]) + index,
        offered=channel.offered if header[0] == _LAST_RESORT else b"",
    )
    return Opened(after, plain[_BODY_BYTES:], key)


def is_to(message: bytes, prekey: bytes) -> bool:
    """Whether a message is encrypted to this last-resort pre-key, by the id in its header."""
    return message[: 1 + ID_BYTES] == bytes([_LAST_RESORT]) + prekey_id(prekey)


def body_of(message: bytes, key: bytes) -> bytes:
    """The content of a message by its AEAD key. Raises Unauthentic or Malformed."""
    size = _HEADER_BYTES.get(message[0]) if message else None
    if size is None:
        raise Malformed(why="a pairwise message of an unknown kind")
    return hpke.open_with(key, message[size:])[_BODY_BYTES:]


def _secret(channel: Channel, header: bytes, held: tuple[HeldPreKey, ...]) -> bytes:
    match header[0]:
        case 0:
            secret: bytes | None = channel.offered
        case 1:
            secret = secret_of(held, header[1:])
        case 2:
            secret = channel.given
        case _:
            number = int.from_bytes(header[1:], "big")
            secret = next((one for at, one in channel.own if at == number), None)
    if not secret:
        raise Refused(why="a pairwise message to a key that we no longer have")
    return secret
