"""SOCKS5 handshake (RFC 1928) without authentication to a literal address, as a bytes-in, bytes-out state machine."""

from ipaddress import ip_address

from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import Malformed, Refused

_ADDRESS_BYTES = {1: 4, 4: 16}


class Socks5Handshake:
    """The exchange with the proxy that precedes the connection to the endpoint. `outgoing`: bytes to send."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.outgoing = bytearray(b"\5\1\0")  # version 5, one method: no authentication
        kind = 4 if ":" in endpoint.host else 1
        self._request = bytes((5, 1, 0, kind)) + ip_address(endpoint.host).packed + endpoint.port.to_bytes(2)
        self._received = bytearray()

    def feed(self, data: bytes) -> bytes | None:
        """Take bytes from the proxy. When the handshake is over, the bytes behind it, which are the endpoint's; else
        None. Raises Malformed or Refused."""
        self._received += data
        if self._request:
            if len(self._received) < 2:
                return None
            if self._received[:2] != b"\5\0":
                raise Refused(why="the proxy requires authentication, or is not a SOCKS5 proxy")
            self.outgoing += self._request
            self._request = b""
            del self._received[:2]
        if len(self._received) < 5:
            return None
        version, reply, _, kind, first = self._received[:5]
        if version != 5 or reply != 0:
            raise Refused(why="the proxy cannot reach the address")
        size = 1 + first if kind == 3 else _ADDRESS_BYTES.get(kind)
        if size is None:
            raise Malformed(why="the proxy answered with an unknown address type")
        end = 4 + size + 2
        return bytes(self._received[end:]) if len(self._received) >= end else None
