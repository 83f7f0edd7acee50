"""Riding: the first messages of a new link go over a line that stands already.

A connection takes three and a half round trips before it carries anything (`session.py`). But an agent has one endpoint
and one server key in all of its groups, so whoever joins another group finds members in it to whom it has a line. Until
its new line has come up, and for a few seconds at the most, it sends what is for the new link over that one, behind a
header that says so. Only sending is riding: whoever answers does so on a line of its own, or rides in its turn.

The header names the riding link's client key, and holds a box from that key to the host's server key with the client
key that the carrying connection has proved. So it takes the riding secret to make one, it means nothing to another
host, and a copy of it is of no use on anybody else's connection. Whoever has a host's server secret could make one for
that host, where CURVE itself would not fall; but what it then says is in envelopes, and they prove their sender.

To ride shows the host that two members are one agent. It knows that already from the endpoint and the server key that
both have told; so an agent that tells them to nobody, because it only dials out or is behind Tor, does not ride.
"""

import os
from collections import OrderedDict

from msgspec import Struct

from zerochat.agent.network.zmq.dialer import Line
from zerochat.crypto.nacl_boxes import BOX_NONCE_BYTES, KEY_BYTES, MAC_BYTES, box, box_open
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.effects import Dial

RIDE_S = 5.0
"""How long a link may ride after it was dialled: longer than its own line takes to come up, if it does."""
EARLY_MAX, EARLY_BYTES_MAX = 64, 8 * 1024
"""Carriers of whom something is kept that came too early, and its size: a request for an exchange takes 3 KiB."""
LABEL = b"zerochat/ride/1\n"
HEADER_BYTES = KEY_BYTES + BOX_NONCE_BYTES + MAC_BYTES + len(LABEL) + KEY_BYTES


def header_of(secret: bytes, server_key: bytes, carrier: bytes, nonce: bytes) -> bytes:
    """What goes before each message of the link with this client secret, to the host with this server key, on a
    connection of the client key `carrier`; 32 bytes each, and 24 of the nonce, which is random. Raises Unauthentic for
    a server key of low order."""
    return x25519_public(secret) + nonce + box(LABEL + carrier, nonce, server_key, secret)


def rider_of(header: bytes) -> bytes:
    """The client key that a header names, 32 bytes. Nothing is proved by that."""
    return header[:KEY_BYTES]


def read_header(header: bytes, server_secret: bytes, carrier: bytes) -> bytes:
    """The client key whose owner has made this header, for this host and for a connection of `carrier`. Raises
    Malformed or Unauthentic."""
    if len(header) != HEADER_BYTES:
        raise Malformed(why="a header of the wrong length")
    if header[KEY_BYTES - 1] >> 7:  # X25519 ignores that bit (RFC 7748, section 5), and a key has one spelling here
        raise Malformed(why="a key in another spelling")
    key, boxed = rider_of(header), header[KEY_BYTES + BOX_NONCE_BYTES :]
    nonce = header[KEY_BYTES : KEY_BYTES + BOX_NONCE_BYTES]
    if box_open(boxed, nonce, key, server_secret) != LABEL + carrier:
        raise Unauthentic()
    return key


class Rider(Struct):
    """A link whose own line has not been up yet."""

    dial: Dial
    until: float
    line: Line | None = None
    """What it has last ridden on, and the header that it has there."""
    header: bytes = b""


class Rides:
    """Which of our links may ride, and on what. Only links between members do either: those that have queues. Every
    `now` is in seconds, monotonic."""

    def __init__(self, *, allowed: bool) -> None:
        """`allowed`: False where nothing is to ride."""
        self._allowed = allowed
        self._riders: dict[bytes, Rider] = {}
        self._hosts: dict[bytes, dict[Line, Dial]] = {}
        """Pair lines that are up, by the server key of their host."""

    @property
    def due(self) -> float:
        """When the next ride is over."""
        return min((rider.until for rider in self._riders.values()), default=float("inf"))

    def begin(self, dial: Dial, now: float) -> None:
        """This link was dialled, and its line is not up yet."""
        if self._allowed and dial.queues:
            self._riders[dial.link] = Rider(dial, now + RIDE_S)

    def end(self, link: bytes) -> None:
        """This link rides no more."""
        self._riders.pop(link, None)

    def over(self, now: float) -> list[bytes]:
        """The links whose time is over; they ride no more."""
        over = [link for link, rider in self._riders.items() if rider.until <= now]
        for link in over:
            del self._riders[link]
        return over

    def offer(self, dial: Dial, line: Line) -> list[bytes]:
        """This pair line is up; gives the links to whom that may matter."""
        if not dial.queues:
            return self.withdraw(dial, line)
        self._hosts.setdefault(dial.server_key, {})[line] = dial
        return self._meant_for(dial)

    def withdraw(self, dial: Dial, line: Line) -> list[bytes]:
        """This pair line is down or closed; gives the links to whom that may matter."""
        hosts = self._hosts.get(dial.server_key, {})
        hosts.pop(line, None)
        if not hosts:
            self._hosts.pop(dial.server_key, None)
        return self._meant_for(dial)

    def way(self, link: bytes) -> tuple[Line, bytes] | None:
        """The line on which this link rides just now, and the header for it."""
        rider = self._riders.get(link)
        if rider is None:
            return None
        for line, carrier in self._hosts.get(rider.dial.server_key, {}).items():
            if carrier.pair == rider.dial.pair:
                if rider.line is not line:
                    ours, nonce = x25519_public(carrier.client_secret), os.urandom(BOX_NONCE_BYTES)
                    rider.header = header_of(rider.dial.client_secret, carrier.server_key, ours, nonce)
                    rider.line = line
                return line, rider.header
        return None

    def _meant_for(self, dial: Dial) -> list[bytes]:
        return [link for link, rider in self._riders.items() if rider.dial.server_key == dial.server_key]


class Early(Struct, frozen=True):
    """What has come riding, and whose client key (Z85) the connection has proved."""

    carrier: str
    header: bytes
    envelope: bytes
    until: float = 0.0


class Waiting:
    """What came riding with a key that is not admitted yet, the last of each carrier.

    A newcomer hears from whoever lets it in as soon as the members do, and its first words to them may win that race.
    Dialling, it would wait at the door (`zap.py`) or dial again; whoever rides has nobody to tell it.
    """

    def __init__(self) -> None:
        self._early: OrderedDict[str, Early] = OrderedDict()

    def keep(self, early: Early) -> bool:
        """False where it is too large."""
        if len(early.envelope) > EARLY_BYTES_MAX:
            return False
        self._early.pop(early.carrier, None)
        self._early[early.carrier] = early
        if len(self._early) > EARLY_MAX:
            self._early.popitem(last=False)
        return True

    def take(self, key: bytes, now: float) -> list[Early]:
        """What waits for this client key to be admitted."""
        mine = [early for early in self._early.values() if rider_of(early.header) == key]
        for early in mine:
            del self._early[early.carrier]
        return [early for early in mine if early.until > now]
