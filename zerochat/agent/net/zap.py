"""The doorkeeper: decides, for every CURVE handshake on a bound socket, whether that client key may come in.

libzmq asks over ZAP (ZeroMQ RFC 27) on `inproc://zeromq.zap.01`, and asks once for each handshake. Without an answer
nobody gets in, because every bound socket sets `ZAP_ENFORCE_DOMAIN` (`sockets.py`): if this thread dies, the doors stay
shut. pyzmq's own authenticators are not used, because one exception in their callback ends them for good.

It has its own thread so that a busy agent does not delay handshakes, and a ROUTER in place of the usual REP, because a
REP that misses one answer is stuck for ever. The two threads share one thing, an immutable mapping that is replaced
as a whole.

What it answers:

- 200 to an admitted key, with the key (Z85) as `User-Id`, which libzmq then puts on everything that comes in over this
  connection. Nothing that strangers do can delay this answer: they have no bucket in common with admitted keys.
- 400 to any other, and for a while to an admitted one that has sent more than the agent reads (`watch.py`). The
  connection is closed at once, and libzmq's own client would stop dialling for ever; ours dials again (`dial.py`). It
  says no more than "no": whether the key was ever known, or will be, stays here. A joiner who comes a moment too early
  learns at once that it must try again.
- 300 to a stranger whose address has been refused too often. libzmq sends nothing at all to it and lets its handshake
  time out, so an address that tries many keys gets silence.
"""

import ipaddress
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from types import MappingProxyType

import zmq
from msgspec import Struct
from zmq.utils import z85

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
ZAP_DOMAIN = b"zerochat"
"""RFC 27 leaves the name to the application. It must not be empty: libzmq enforces only a named domain."""

REFUSALS_MAX = 20
"""Refusals in one breath before an address meets silence: a joiner who is early, or a house behind one router."""
REFUSALS_PER_S = 2.0
ADDRESSES_MAX = 1024
"""Addresses remembered at once; beyond that the one refused longest ago is forgotten."""
STOP_TIMEOUT_S = 2.0


class Admission(Struct, frozen=True):
    """What one client key is admitted for."""

    link: bytes
    queues: tuple[bytes, ...]
    guest: bool = False
    """It has an invitation, and no more (`Admit.guest`)."""


class Refusals:
    """A token bucket for each address (RFC 4291 /64 for IPv6), refilled with time."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now: float) -> bool:
        """Count one refusal of this address; False when it has used up its share. `now` is in seconds."""
        host = house(address)
        tokens, then = self._buckets.pop(host, (float(REFUSALS_MAX), now))
        tokens = min(REFUSALS_MAX, tokens + (now - then) * REFUSALS_PER_S)
        polite = tokens >= 1
        self._buckets[host] = (tokens - 1 if polite else tokens, now)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)
        return polite


def house(address: str) -> str:
    """The address that one household or host shares: IPv4 whole (also when mapped into IPv6), IPv6 by its /64."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip, 64), strict=False))


class Gatekeeper(threading.Thread):
    """Answers ZAP requests from `admitted`, until `stop()`. One for each context; make it before binding anything.

    `admitted` maps a client key in Z85 to what it is admitted for. Replace the mapping, never change it.
    """

    admitted: Mapping[str, Admission] = MappingProxyType({})

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], counts: Counter[str]) -> None:
        """`counts` gets `zap.*`. Nobody else writes those names, so the thread needs no lock for them."""
        super().__init__(name="zerochat-zap", daemon=True)
        self._counts = counts
        self._refusals = Refusals()
        self.resting: dict[str, float] = {}
        """Admitted keys that are not let in until then; seconds, monotonic."""
        bell = f"inproc://zap-bell-{id(self)}"
        self._door = context.socket(zmq.ROUTER)
        self._bell = context.socket(zmq.PAIR)
        self._ringer = context.socket(zmq.PAIR)
        for socket in (self._door, self._bell, self._ringer):
            socket.linger = 0
        self._bell.bind(bell)
        self._ringer.connect(bell)
        self._door.bind(ZAP_ENDPOINT)

    def stop(self) -> bool:
        """End the thread; from then on nobody gets in. False if it has not ended within `STOP_TIMEOUT_S`."""
        if self.ident is None:
            self._door.close()
            self._bell.close()
        elif self.is_alive():
            try:
                self._ringer.send(b"", zmq.NOBLOCK)
            except zmq.ZMQError:
                self._counts["zap.bell_lost"] += 1
            self.join(STOP_TIMEOUT_S)
        self._ringer.close()
        return not self.is_alive()

    def run(self) -> None:
        """Serve. Whatever goes wrong with one request costs that request; a broken socket ends the thread."""
        poller = zmq.Poller()
        poller.register(self._door, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        try:
            while not any(socket is self._bell for socket, _ in poller.poll()):
                self._serve()
        except zmq.ZMQError:
            self._counts["zap.died"] += 1
        finally:
            self._door.close()
            self._bell.close()

    def _serve(self) -> None:
        try:
            reply = self._reply(self._door.recv_multipart(zmq.NOBLOCK))
            if reply:
                self._door.send_multipart(reply, zmq.NOBLOCK)
        except Exception:  # noqa: BLE001
            # Not a narrower class, because nothing that one request does may end the thread for all others.
            self._counts["zap.failed"] += 1

    def _reply(self, frames: list[bytes]) -> list[bytes]:
        """RFC 27: [requester, "", version, request id, domain, address, identity, mechanism, credentials...]."""
        if len(frames) < 8 or frames[1] or frames[2] != ZAP_VERSION:
            self._counts["zap.malformed"] += 1
            return []
        requester, _, _, request, domain, address, _, mechanism, *credentials = frames
        status, user = b"400", b""
        if domain == ZAP_DOMAIN and mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32:
            key = z85.encode(credentials[0])
            if key.decode() in self.admitted and not self._rests(key.decode()):
                status, user = b"200", key
        if status == b"200":
            self._counts["zap.admitted"] += 1
        else:
            self._counts["zap.refused"] += 1
            if not self._refusals.take(address.decode("ascii", "replace"), time.monotonic()):
                status = b"300"
        return [requester, b"", ZAP_VERSION, request, status, b"", user, b""]

    def _rests(self, user: str) -> bool:
        if self.resting.get(user, 0.0) > time.monotonic():
            return True
        self.resting.pop(user, None)
        return False
