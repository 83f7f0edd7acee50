"""What is fuzzed below the envelopes: what a host that we have dialled says in ZMTP, and a proxy on the way to it."""

from collections.abc import Iterator
from random import Random

from fuzzing.nodes import Part
from zerochat.agent.net import zmtp
from zerochat.agent.net.socks import Detour
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import Malformed, RemoteError


class Zmtp:
    """A greeting and frames, with commands and metadata in them as they are behind their boxes; or a proxy's answers.
    The bytes are written as base64url, which the rest of the fuzzer can change."""

    name = "zmtp"
    size_max = 4096

    _ENDPOINT = Endpoint("192.0.2.7", 5000)

    def seeds(self) -> list[bytes]:
        about = zmtp.metadata({b"Socket-Type": b"ROUTER", b"Identity": b""})
        said = (zmtp.command(b"READY", about), zmtp.ping(3000) + b"context", zmtp.command(b"PONG"), bytes(300))
        host = zmtp.GREETING + b"".join(zmtp.frame(zmtp.COMMAND, body) for body in said)
        proxy = (b"\5\0\5\0\0\1" + bytes(6), b"\5\0\5\0\0\3\x04tor!\0\0", b"\5\0\5\0\0\4" + bytes(18))
        return [b64url(data).encode() for data in (host, *proxy)]

    def seal(self, tree: Part, dice: Random) -> Part:
        return tree

    def parse(self, data: bytes) -> object:
        said = b64url_bytes(data.decode(errors="surrogateescape"))
        if said[:1] == b"\5":
            rest = Detour(self._ENDPOINT).feed(said)
            assert rest is None or said.endswith(rest)
            return rest
        return list(self._heard(said))

    def _heard(self, said: bytes) -> Iterator[object]:
        """Whatever is in the frames, none of which may be more than was said."""
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
        try:
            name, data = zmtp.split_command(body)
            assert zmtp.command(name, data) == body
            return zmtp.pong(data) if name == b"PING" else zmtp.split_metadata(data)
        except RemoteError:
            return None
