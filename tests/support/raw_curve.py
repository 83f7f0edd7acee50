"""Both ends of CURVE (RFC 26) over ZMTP 3.1 (RFC 37) by hand, for messages libzmq never sends."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from nacl import bindings

from zerochat.agent.network.zmq.tcp_control import wire_bytes

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0")


class Raw:
    """A handshaken connection that may send any frame."""

    nonce_prefix: bytes

    def __init__(self, connected: socket.socket):
        self.socket = connected
        self.socket.settimeout(5)
        self.key = b""
        self.nonce = 1

    @contextmanager
    def or_closed(self) -> Iterator[None]:
        """Whoever fails while it shakes hands leaves no connection behind."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def read_command(self) -> bytes:
        (flags,) = self.read(1)
        return self.read(int.from_bytes(self.read(8 if flags & 2 else 1)))

    def seal(self, prefix: bytes, plain: bytes) -> bytes:
        """A short nonce and the box under it."""
        self.nonce += 1
        short = self.nonce.to_bytes(8)
        return short + bindings.crypto_box_afternm(plain, prefix + short, self.key)

    def frame(self, body: bytes, more: bool = False) -> bytes:
        """One message frame, ready to be sent."""
        return framed(0, b"\x07MESSAGE" + self.seal(self.nonce_prefix, bytes([more]) + body))

    def send(self, *frames: bytes) -> None:
        """One message, whole."""
        self.socket.sendall(b"".join(self.frame(body, body is not frames[-1]) for body in frames))

    def push(self, frame: bytes, limit: int) -> int:
        """An endless message of such frames, until the peer ends it or so many bytes have gone; gives how many."""
        pushed = 0
        batch = max(1, 100_000 // wire_bytes(len(frame)))
        try:
            while pushed < limit:
                self.socket.sendall(b"".join(self.frame(frame, True) for _ in range(batch)))
                pushed += batch * wire_bytes(len(frame))
        except OSError:
            pass
        return pushed

    def close(self) -> None:
        self.socket.close()


class RawMember(Raw):
    nonce_prefix = b"CurveZMQMESSAGEC"

    def __init__(self, port: int, secret: bytes, server_key: bytes, kind: bytes, patience_s: float = 5):
        """`kind`: the Socket-Type that it claims to be. `patience_s`: how long it waits for each answer. Raises OSError
        and EOFError."""
        super().__init__(socket.create_connection(("127.0.0.1", port)))
        self.socket.settimeout(patience_s)
        with self.or_closed():
            self._shake_hands(secret, server_key, kind)

    def _shake_hands(self, secret: bytes, server_key: bytes, kind: bytes) -> None:
        short_public, short_secret = bindings.crypto_box_keypair()
        one = (1).to_bytes(8)
        hello = one + bindings.crypto_box(bytes(64), b"CurveZMQHELLO---" + one, server_key, short_secret)
        self.socket.sendall(GREETING + bytes(32))
        self.socket.sendall(framed(4, b"\x05HELLO\x01\x00" + bytes(72) + short_public + hello))
        self.read(64)
        welcome = self.read_command()
        opened = bindings.crypto_box_open(welcome[24:], b"WELCOME-" + welcome[8:24], server_key, short_secret)
        host_short, cookie = opened[:32], opened[32:]
        self.key = bindings.crypto_box_beforenm(host_short, short_secret)
        long_nonce = os.urandom(16)
        vouch = bindings.crypto_box(short_public + server_key, b"VOUCH---" + long_nonce, host_short, secret)
        about = bindings.crypto_scalarmult_base(secret) + long_nonce + vouch + described(kind)
        self.socket.sendall(framed(4, b"\x08INITIATE" + cookie + self.seal(b"CurveZMQINITIATE", about)))
        assert self.read_command().startswith(b"\x05READY")


class RawHost(Raw):
    nonce_prefix = b"CurveZMQMESSAGES"

    def __init__(self, listener: socket.socket, secret: bytes, kind: bytes):
        """Take one connection in, whoever it is."""
        listener.settimeout(20)
        super().__init__(listener.accept()[0])
        with self.or_closed():
            self._shake_hands(secret, kind)

    def _shake_hands(self, secret: bytes, kind: bytes) -> None:
        self.socket.sendall(GREETING + b"\1" + bytes(31))
        self.read(64)
        member_short = self.read_command()[80:112]
        short_public, short_secret = bindings.crypto_box_keypair()
        long_nonce = os.urandom(16)
        welcome = bindings.crypto_box(short_public + bytes(96), b"WELCOME-" + long_nonce, member_short, secret)
        self.socket.sendall(framed(4, b"\x07WELCOME" + long_nonce + welcome))
        self.read_command()
        self.key = bindings.crypto_box_beforenm(member_short, short_secret)
        self.socket.sendall(framed(4, b"\x05READY" + self.seal(b"CurveZMQREADY---", described(kind))))


def framed(flags: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | 2]) + len(body).to_bytes(8) + body


def described(kind: bytes) -> bytes:
    """The metadata of READY and INITIATE."""
    pairs = ((b"Socket-Type", kind), (b"Identity", b""))
    return b"".join(bytes([len(name)]) + name + struct.pack(">I", len(value)) + value for name, value in pairs)
