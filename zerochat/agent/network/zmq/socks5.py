"""Through a SOCKS5 proxy (RFC 1928), such as Tor's: a connection without authentication to a literal address."""

from ipaddress import ip_address

from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import Malformed, Refused

_ADDRESS_BYTES = {1: 4, 4: 16}


class Detour:
    """What is said to the proxy before the connection is as good as one to the endpoint itself."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.outgoing = bytearray(b"\5\1\0")  # version 5, one method: none
        kind = 4 if ":" in endpoint.host else 1
        self._request = bytes((5, 1, 0, kind)) + ip_address(endpoint.host).packed + endpoint.port.to_bytes(2)
        self._heard = bytearray()

    def feed(self, data: bytes) -> bytes | None:
        """Take in what was read. What is behind the last answer is already the endpoint's and is given back; None
        while there is no last answer. Raises Malformed or Refused."""
        self._heard += data
        if self._request:
            if len(self._heard) < 2:
                return None
            if self._heard[:2] != b"\5\0":
                raise Refused(why="a proxy that wants to know who we are, or is none")
            self.outgoing += self._request
            self._request = b""
            del self._heard[:2]
        if len(self._heard) < 5:
            return None
        version, reply, _, kind, first = self._heard[:5]
        if version != 5 or reply != 0:
            raise Refused(why="the proxy does not reach that address")
        size = 1 + first if kind == 3 else _ADDRESS_BYTES.get(kind)
        if size is None:
            raise Malformed(why="an answer of a proxy with an unknown kind of address")
        end = 4 + size + 2
        return bytes(self._heard[end:]) if len(self._heard) >= end else None
