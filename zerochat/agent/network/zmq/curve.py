"""CurveZMQ client (RFC 26): a four-command handshake that authenticates both keys, and authenticated encryption.

An ephemeral key per connection gives forward secrecy; the long-term keys appear only in proofs. The nonces of each side
increase, so messages cannot be replayed, dropped at the front, or reflected. A box that does not open, and a key of low
order, raises Unauthentic.
"""

from collections.abc import Callable

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from zerochat.agent.network.zmq.zmtp import command
from zerochat.errors import Malformed, Unauthentic

WELCOME_BYTES = 16 + 144
"""After the command name: a long nonce, and a box with the host's ephemeral key and its 96-byte cookie."""
MAC_BYTES = 16
MESSAGE = b"\x07MESSAGE"
MESSAGE_BYTES_MIN = len(MESSAGE) + 8 + MAC_BYTES + 1
MORE, COMMAND = 1, 2
"""Flags in a MESSAGE: more frames of this message follow; it is a ZMTP command."""


class Client:
    """Keys and nonces of one connection: HELLO, WELCOME, INITIATE, READY, then MESSAGE in both directions."""

    def __init__(self, server_key: bytes, secret: bytes, random: Callable[[int], bytes]) -> None:
        """`server_key`: the host's long-term public key; `secret`: our long-term secret key; 32 bytes each. `random(n)`
        gives n random bytes. Raises Unauthentic for a server key of low order."""
        self._server_key, self._secret, self._random = server_key, secret, random
        self._short_secret = random(32)
        self._short = bytes(sodium.crypto_scalarmult_base(self._short_secret))
        self._key = _shared(server_key, self._short_secret)
        """Key of the boxes: first our ephemeral key with the host's long-term key, then the two ephemeral keys."""
        self._nonce = 0
        self._peer_nonce = b""
        """Eight bytes, big-endian, so that bytes compare like the numbers."""

    def hello(self) -> bytes:
        """HELLO: our ephemeral key and a proof of possession. The padding prevents amplification by WELCOME."""
        return command(b"HELLO", b"\x01\x00" + bytes(72) + self._short + self._seal(b"CurveZMQHELLO---", bytes(64)))

    def initiate(self, welcome: bytes, about: bytes) -> bytes:
        """INITIATE, given the data of WELCOME: our long-term key with its vouch, and the metadata `about`.

        Raises Malformed or Unauthentic.
        """
        if len(welcome) != WELCOME_BYTES:
            raise Malformed(why="a WELCOME of the wrong length")
        opened = _opened(welcome[16:], b"WELCOME-" + welcome[:16], self._key)
        host_short, cookie = opened[:32], opened[32:]
        self._key = _shared(host_short, self._short_secret)
        long_nonce = self._random(16)
        vouch = sodium.crypto_box_easy_afternm(
            self._short + self._server_key, b"VOUCH---" + long_nonce, _shared(host_short, self._secret)
        )
        proof = bytes(sodium.crypto_scalarmult_base(self._secret)) + long_nonce + vouch
        return command(b"INITIATE", cookie + self._seal(b"CurveZMQINITIATE", proof + about))

    def ready(self, data: bytes) -> bytes:
        """The metadata in the data of READY. Raises Malformed or Unauthentic."""
        if len(data) < 8 + MAC_BYTES:
            raise Malformed(why="a truncated READY")
        self._peer_nonce = data[:8]
        return _opened(data[8:], b"CurveZMQREADY---" + data[:8], self._key)

    def seal(self, flags: int, plain: bytes) -> bytes:
        """An encrypted MESSAGE body."""
        return MESSAGE + self._seal(b"CurveZMQMESSAGEC", bytes((flags,)) + plain)

    def open(self, body: bytes) -> tuple[int, bytes]:
        """Flags and content of a MESSAGE body. Raises Malformed or Unauthentic."""
        if not body.startswith(MESSAGE) or len(body) < MESSAGE_BYTES_MIN:
            raise Malformed(why="not a MESSAGE, or a truncated one")
        nonce = body[8:16]
        if nonce <= self._peer_nonce:
            raise Malformed(why="a nonce that does not increase")
        plain = _opened(body[16:], b"CurveZMQMESSAGES" + nonce, self._key)
        self._peer_nonce = nonce
        return plain[0], plain[1:]

    def _seal(self, prefix: bytes, plain: bytes) -> bytes:
        """A short nonce and a box under it."""
        self._nonce += 1
        short_nonce = self._nonce.to_bytes(8)
        return short_nonce + bytes(sodium.crypto_box_easy_afternm(plain, prefix + short_nonce, self._key))


def _shared(public: bytes, secret: bytes) -> bytes:
    try:
        return bytes(sodium.crypto_box_beforenm(public, secret))
    except (CryptoError, RuntimeError, ValueError):
        raise Unauthentic() from None


def _opened(boxed: bytes, nonce: bytes, key: bytes) -> bytes:
    try:
        return bytes(sodium.crypto_box_open_afternm(boxed, nonce, key))
    except (CryptoError, RuntimeError, ValueError):
        raise Unauthentic() from None
