"""Link multiplexing: a new link sends its first messages over another link's connection to the same host.

A new connection takes three and a half round trips before it carries messages (`client_session.py`). But an agent has
one endpoint and one server key in all its groups, so a joiner of another group often has a connection to its members
already. Until the new connection is up, at most for `MULTIPLEX_S`, messages for the new link go over the existing one,
behind a header. Only sending is multiplexed: the peer answers over a connection of its own, or multiplexes in turn.

The header names the new link's client key, and holds a box from that key to the host's server key with the client key
that authenticates the carrying connection. So a header requires the link's secret, is valid for one host and one
carrying connection only, and cannot be replayed on another one. A holder of the host's server secret could forge
headers for that host where CURVE itself would not fall; but the envelopes authenticate their senders.

Multiplexing shows the host that two members are one agent. It knows that from the endpoint and the server key; an agent
that discloses neither, because it only dials out or uses Tor, does not multiplex.
"""

import os
from collections import OrderedDict

from msgspec import Struct

from zerochat.agent.network.zmq.dialer import DialedConnection
from zerochat.crypto.nacl_boxes import BOX_NONCE_BYTES, KEY_BYTES, MAC_BYTES, box, box_open
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.effects import Dial

MULTIPLEX_S = 5.0
"""How long after its dial a link may be multiplexed: longer than a connection takes to come up."""
EARLY_MAX, EARLY_BYTES_MAX = 64, 8 * 1024
"""Carriers with an early message, and its size: a relationship request takes 3 KiB."""
LABEL = b"zerochat/multiplex/1\n"
HEADER_BYTES = KEY_BYTES + BOX_NONCE_BYTES + MAC_BYTES + len(LABEL) + KEY_BYTES


def make_header(secret: bytes, server_key: bytes, carrier: bytes, nonce: bytes) -> bytes:
    """The header for messages of the link with this client secret, to the host with this server key, on a connection of
    the client key `carrier`; 32 bytes each, and 24 of the random nonce. Raises Unauthentic for a server key of low
    order."""
    return x25519_public(secret) + nonce + box(LABEL + carrier, nonce, server_key, secret)


def claimed_key(header: bytes) -> bytes:
    """The client key that a header names, 32 bytes; not authenticated."""
    return header[:KEY_BYTES]


def open_header(header: bytes, server_secret: bytes, carrier: bytes) -> bytes:
    """The authenticated client key of a header for this host and for a connection of `carrier`. Raises Malformed or
    Unauthentic."""
    if len(header) != HEADER_BYTES:
        raise Malformed(why="a header of the wrong length")
    if header[KEY_BYTES - 1] >> 7:  # X25519 ignores this bit (RFC 7748, section 5); keys must be canonical here
        raise Malformed(why="a non-canonical key")
    key, boxed = claimed_key(header), header[KEY_BYTES + BOX_NONCE_BYTES :]
    nonce = header[KEY_BYTES : KEY_BYTES + BOX_NONCE_BYTES]
    if box_open(boxed, nonce, key, server_secret) != LABEL + carrier:
        raise Unauthentic()
    return key


class MultiplexedLink(Struct):
    """A link whose own connection has not been up yet."""

    dial: Dial
    until: float
    carrier: DialedConnection | None = None
    """The connection that it has last used, for which `header` was made."""
    header: bytes = b""


class LinkMultiplexer:
    """The multiplexed links and the connections that may carry them. Both are links between members, which have queues.
    Every `now` in seconds, monotonic."""

    def __init__(self, *, allowed: bool) -> None:
        """`allowed`: False disables multiplexing."""
        self._allowed = allowed
        self._links: dict[bytes, MultiplexedLink] = {}
        self._carriers: dict[bytes, dict[DialedConnection, Dial]] = {}
        """Pair connections that are up, by the server key of their host."""

    @property
    def due(self) -> float:
        """When the next link times out."""
        return min((link.until for link in self._links.values()), default=float("inf"))

    def begin(self, dial: Dial, now: float) -> None:
        """Multiplex a link that was just dialled."""
        if self._allowed and dial.queues:
            self._links[dial.link] = MultiplexedLink(dial, now + MULTIPLEX_S)

    def end(self, link: bytes) -> None:
        """Multiplex this link no longer."""
        self._links.pop(link, None)

    def expire(self, now: float) -> list[bytes]:
        """End the links whose time is over; these links."""
        over = [name for name, link in self._links.items() if link.until <= now]
        for name in over:
            del self._links[name]
        return over

    def add_carrier(self, dial: Dial, connection: DialedConnection) -> list[bytes]:
        """This pair connection is up; the links that may use it."""
        if not dial.queues:
            return self.remove_carrier(dial, connection)
        self._carriers.setdefault(dial.server_key, {})[connection] = dial
        return self._links_to(dial)

    def remove_carrier(self, dial: Dial, connection: DialedConnection) -> list[bytes]:
        """This pair connection is down or closed; the links that may have used it."""
        carriers = self._carriers.get(dial.server_key, {})
        carriers.pop(connection, None)
        if not carriers:
            self._carriers.pop(dial.server_key, None)
        return self._links_to(dial)

    def route(self, link: bytes) -> tuple[DialedConnection, bytes] | None:
        """The connection that carries this link now, and its header; None: it is not multiplexed."""
        multiplexed = self._links.get(link)
        if multiplexed is None:
            return None
        for connection, carrier in self._carriers.get(multiplexed.dial.server_key, {}).items():
            if carrier.pair == multiplexed.dial.pair:
                if multiplexed.carrier is not connection:
                    ours, nonce = x25519_public(carrier.client_secret), os.urandom(BOX_NONCE_BYTES)
                    multiplexed.header = make_header(multiplexed.dial.client_secret, carrier.server_key, ours, nonce)
                    multiplexed.carrier = connection
                return connection, multiplexed.header
        return None

    def _links_to(self, dial: Dial) -> list[bytes]:
        return [name for name, link in self._links.items() if link.dial.server_key == dial.server_key]


class EarlyMessage(Struct, frozen=True):
    """A multiplexed message, and the client key (Z85) that authenticates the carrying connection."""

    carrier: str
    header: bytes
    envelope: bytes
    until: float = 0.0


class EarlyMessages:
    """Multiplexed messages for keys that are not admitted yet: the last one of each carrier.

    A joiner learns of its admission from the inviter, as the members do, and its first messages to them may arrive
    before theirs. A dialling joiner would wait for the ZAP answer or dial again; a multiplexed message gets no answer.
    """

    def __init__(self) -> None:
        self._early: OrderedDict[str, EarlyMessage] = OrderedDict()

    def keep(self, early: EarlyMessage) -> bool:
        """Keep this message; False: it is too large."""
        if len(early.envelope) > EARLY_BYTES_MAX:
            return False
        self._early.pop(early.carrier, None)
        self._early[early.carrier] = early
        if len(self._early) > EARLY_MAX:
            self._early.popitem(last=False)
        return True

    def take(self, key: bytes, now: float) -> list[EarlyMessage]:
        """Remove and return the messages of this client key, which is admitted now."""
        mine = [early for early in self._early.values() if claimed_key(early.header) == key]
        for early in mine:
            del self._early[early.carrier]
        return [early for early in mine if early.until > now]
