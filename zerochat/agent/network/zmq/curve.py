"""The client's end of CurveZMQ (RFC 26): four commands that prove both keys, and the boxes of all that follows.

A new short key for each connection gives forward secrecy; the long keys appear only in proofs. Every nonce of one side
is greater than the one before, so nothing can be repeated, left out at the front, or turned round. Whatever does not
open, and a key of low order, with which anybody could open it, raises Unauthentic.
"""

from collections.abc import Callable

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from zerochat.agent.network.zmq.zmtp import command
from zerochat.errors import Malformed, Unauthentic

WELCOME_BYTES = 16 + 144
"""After its name: a long nonce, and a box with the host's short key and its cookie of 96 bytes."""
MAC_BYTES = 16
MESSAGE = b"\x07MESSAGE"
MESSAGE_BYTES_MIN = len(MESSAGE) + 8 + MAC_BYTES + 1
MORE, COMMAND = 1, 2
"""Flags in a MESSAGE: another frame of the same message follows; it is a command of ZMTP, not a message."""


class Client:
    """One connection's keys and nonces, in the order HELLO, WELCOME, INITIATE, READY, then MESSAGE both ways."""

    def __init__(self, server_key: bytes, secret: bytes, random: Callable[[int], bytes]) -> None:
        """`server_key`: the host's long public key; `secret`: our long secret key; 32 bytes both. `random(n)` gives n
        random bytes. Raises Unauthentic for a server key of low order."""
        self._server_key, self._secret, self._random = server_key, secret, random
        self._short_secret = random(32)
        self._short = bytes(sodium.crypto_scalarmult_base(self._short_secret))
        self._key = _shared(server_key, self._short_secret)
        """The key of the boxes: first between our short key and the host's long one, then between the short ones."""
        self._nonce = 0
        self._peer_nonce = b""
        """Eight bytes, of which the greater number is also the greater string."""

    def hello(self) -> bytes:
        """HELLO: our short key, and a box that proves it to be ours. The padding makes WELCOME the shorter one."""
        return command(b"HELLO", b"\x01\x00" + bytes(72) + self._short + self._seal(b"CurveZMQHELLO---", bytes(64)))

    def initiate(self, welcome: bytes, about: bytes) -> bytes:
        """INITIATE, in answer to what followed WELCOME's name: our long key, vouched for, and the metadata `about`.

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
        """The metadata in what followed READY's name. Raises Malformed or Unauthentic."""
        if len(data) < 8 + MAC_BYTES:
            raise Malformed(why="a READY that is too short")
        self._peer_nonce = data[:8]
        return _opened(data[8:], b"CurveZMQREADY---" + data[:8], self._key)

    def seal(self, flags: int, plain: bytes) -> bytes:
        """The body of a MESSAGE."""
        return MESSAGE + self._seal(b"CurveZMQMESSAGEC", bytes((flags,)) + plain)

    def open(self, body: bytes) -> tuple[int, bytes]:
        """The flags and the content of a MESSAGE. Raises Malformed or Unauthentic."""
        if not body.startswith(MESSAGE) or len(body) < MESSAGE_BYTES_MIN:
            raise Malformed(why="neither a MESSAGE nor as long as one")
        nonce = body[8:16]
        if nonce <= self._peer_nonce:
            raise Malformed(why="a nonce that is not greater than the one before")
        plain = _opened(body[16:], b"CurveZMQMESSAGES" + nonce, self._key)
        self._peer_nonce = nonce
        return plain[0], plain[1:]

    def _seal(self, prefix: bytes, plain: bytes) -> bytes:
        """A short nonce and the box under it."""
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
