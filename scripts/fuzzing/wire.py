"""Fuzz targets below the envelopes: ZMTP from a dialled host, and a SOCKS proxy on the way."""

from collections.abc import Iterable, Iterator
from random import Random

from nacl import bindings as sodium

from fuzzing.nodes import Part
from fuzzing.run import Form
from zerochat.agent.network.zmq import curve, multiplexing, zmtp
from zerochat.agent.network.zmq.client_session import ClientSession
from zerochat.agent.network.zmq.socks5 import Socks5Handshake
from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import Malformed


class Zmtp:
    """A greeting and frames, with commands and metadata in them as they are behind their boxes; a proxy's answers."""

    name = "zmtp"
    form: Form = "raw"
    size_max = 4096

    _ENDPOINT = Endpoint("192.0.2.7", 5000)

    def seeds(self) -> list[bytes]:
        about = zmtp.metadata({b"Socket-Type": b"ROUTER", b"Identity": b""})
        said = (zmtp.command(b"READY", about), zmtp.ping(3000) + b"context", zmtp.command(b"PONG"))
        host = zmtp.GREETING + b"".join(zmtp.frame(zmtp.COMMAND, body) for body in said)
        proxy = (b"\5\0\5\0\0\1" + bytes(6), b"\5\0\5\0\0\3\x04tor!\0\0", b"\5\0\5\0\0\4" + bytes(18))
        return [host, *proxy]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        if data[:1] == b"\5":
            rest = Socks5Handshake(self._ENDPOINT).feed(data)
            assert rest is None or data.endswith(rest)
            return rest
        return list(self._heard(data))

    def _heard(self, said: bytes) -> Iterator[object]:
        """Frames of any content, none longer than announced."""
        frames = zmtp.Frames(1024)
        frames.feed(said)
        greeting = frames.take(zmtp.GREETING_BYTES)
        if greeting is None:
            raise Malformed(why="half a greeting")
        zmtp.check_greeting(greeting)
        while found := frames.next():
            assert len(found[1]) <= 1024 and found[1] in said
            yield self._read(found[1])

    def _read(self, body: bytes) -> object:
        name, data = zmtp.split_command(body)
        assert zmtp.command(name, data) == body
        return zmtp.pong(data) if name == b"PING" else zmtp.split_metadata(data)


class Line:
    """The bytes of a dialled host inside its boxes, after its handshake: commands, messages in frames, endless
    frames."""

    name = "line"
    form: Form = "raw"
    size_max = 4096

    def __init__(self) -> None:
        random = Random("line").randbytes
        self._host, self._short = random(32), random(32)
        self._client = random(32)

    def seeds(self) -> list[bytes]:
        """A byte of flags and one of size before each plain text."""
        said = ((0, b"hello"), (2, zmtp.ping(3000) + b"context"), (1, b"a"), (1, bytes(200)), (1, b""), (0, b"end"))
        return [self._written(said), self._written(said[1:2]), self._written(((1, b"frame"),) * 40)]

    def _written(self, said: Iterable[tuple[int, bytes]]) -> bytes:
        return b"".join(bytes((flags, len(plain))) + plain for flags, plain in said)

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        """No more comes out of it than was said, and what is answered is in proportion."""
        session, key = self._met()
        nonce, at, found = 1, 0, list[list[bytes]]()
        while at + 2 <= len(data) and nonce < 50:  # to seal them takes the time that is measured here
            flags, plain = data[at], data[at + 2 : at + 2 + data[at + 1]]
            at += 2 + data[at + 1]
            nonce += 1
            short = nonce.to_bytes(8)
            boxed = sodium.crypto_box_easy_afternm(bytes((flags & 7,)) + plain, b"CurveZMQMESSAGES" + short, key)
            session.feed(zmtp.frame(flags >> 3 & 2, curve.MESSAGE + short + bytes(boxed)))
            while (heard := session.next()) is not None:
                found += [heard[0]] if heard[0] is not None else []
        assert sum(len(part) for message in found for part in message) <= len(data)
        assert len(session.outgoing) <= 2048 + 8 * len(data)
        return found

    def _met(self) -> tuple[ClientSession, bytes]:
        """A session after its handshake, and the key of its boxes."""
        random = Random("session").randbytes
        session = ClientSession(b"DEALER", bytes(sodium.crypto_scalarmult_base(self._host)), self._client, [], random)
        theirs = bytes(session.outgoing[zmtp.GREETING_BYTES + 2 + 6 + 74 :][:32])
        opened = bytes(sodium.crypto_scalarmult_base(self._short)) + bytes(96)
        first = sodium.crypto_box_beforenm(theirs, self._host)
        welcome = bytes(16) + bytes(sodium.crypto_box_easy_afternm(opened, b"WELCOME-" + bytes(16), first))
        key = bytes(sodium.crypto_box_beforenm(theirs, self._short))
        about = zmtp.metadata({b"Socket-Type": b"ROUTER"})
        ready = (
            bytes(7) + b"\1" + bytes(sodium.crypto_box_easy_afternm(about, b"CurveZMQREADY---" + bytes(7) + b"\1", key))
        )
        session.feed(zmtp.GREETING + zmtp.frame(zmtp.COMMAND, zmtp.command(b"WELCOME", welcome)))
        session.next(), session.next()
        session.feed(zmtp.frame(zmtp.COMMAND, zmtp.command(b"READY", ready)))
        session.next()
        assert session.up
        return session, key


class Ride:
    """The header of a message that rides on another link's line, and the message in its envelope."""

    name = "ride"
    form: Form = "raw"
    size_max = 4096

    def __init__(self) -> None:
        random = Random("ride").randbytes
        self._secret, self._carrier, self._rider = random(32), random(32), random(32)

    def seeds(self) -> list[bytes]:
        host = bytes(sodium.crypto_scalarmult_base(self._secret))
        return [multiplexing.make_header(self._rider, host, self._carrier, bytes(24))]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        found = multiplexing.open_header(data, self._secret, self._carrier)
        assert found == data[:32] == bytes(sodium.crypto_scalarmult_base(self._rider))
        return found
