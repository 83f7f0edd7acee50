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
  says no more than "no": whether the key was ever known, or will be, stays here. A stranger is let wait for half a
  second before that: a newcomer may be here sooner than the word that it was let in, and another try would cost it
  three and a half round trips.
- 300 to a stranger whose address has been refused too often. libzmq sends nothing at all to it and lets its handshake
  time out, so an address that tries many keys gets silence.
"""

import ipaddress
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import zmq
from msgspec import Struct
from msgspec.structs import replace
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
EARLY_S = 0.5
"""How long a stranger waits for being let in. With two and a half round trips it is within `sockets.HANDSHAKE_MS`
where one of them takes up to 600 ms; whoever is further away, and waits for longer, dials again."""
EARLY_MAX, EARLY_HOME_MAX = 256, 32
"""So many wait at once, and of one address; the others are refused without waiting. Whoever makes keys can take all of
these places: then nobody waits."""
STOP_TIMEOUT_S = 2.0


class Admission(Struct, frozen=True):
    """What one client key is admitted for."""

    link: bytes
    queues: tuple[bytes, ...]
    guest: bool = False
    """It has an invitation, and no more (`Admit.guest`)."""


class Handshake(Struct, frozen=True):
    """What libzmq asks about."""

    requester: bytes
    request: bytes
    home: str
    """Where it comes from (`house`)."""
    user: str
    """The client key in Z85, which it has proved; empty where it does not speak CURVE."""
    until: float = 0.0
    """How long it waits to be let in; seconds, monotonic."""


class Refusals:
    """A token bucket for each address (RFC 4291 /64 for IPv6), refilled with time."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, home: str, now: float) -> bool:
        """Count one refusal of this home (`house`); False when it has used up its share. `now` is in seconds."""
        tokens, then = self._buckets.pop(home, (float(REFUSALS_MAX), now))
        tokens = min(REFUSALS_MAX, tokens + (now - then) * REFUSALS_PER_S)
        polite = tokens >= 1
        self._buckets[home] = (tokens - 1 if polite else tokens, now)
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
    """Answers ZAP requests until `stop()`. One for each context; make it before binding anything. `admit` and `stop`
    belong to the thread that has made it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], counts: Counter[str]) -> None:
        """`counts` gets `zap.*`. Nobody else writes those names, so the thread needs no lock for them."""
        super().__init__(name="zerochat-zap", daemon=True)
        self.admitted: Mapping[str, Admission] = MappingProxyType({})
        """What each client key in Z85 is admitted for (`admit`)."""
        self.resting: dict[str, float] = {}
        """Admitted keys that are not let in until then; seconds, monotonic."""
        self._counts = counts
        self._refusals = Refusals()
        self._early: list[Handshake] = []
        """Strangers who wait, first come first. Only the thread changes it."""
        self._stopping = self._rung = False
        bell = f"inproc://zap-bell-{id(self)}"
        self._door = context.socket(zmq.ROUTER)
        self._bell = context.socket(zmq.PAIR)
        self._ringer = context.socket(zmq.PAIR)
        for socket in (self._door, self._bell, self._ringer):
            socket.linger = 0
        self._bell.bind(bell)
        self._ringer.connect(bell)
        self._door.bind(ZAP_ENDPOINT)

    def admit(self, admitted: Mapping[str, Admission]) -> None:
        """Let in these, from now on, and no others. The mapping is not changed any more."""
        self.admitted = admitted
        # Before it waits, everybody is looked for once more (`run`): so nobody is missed between the two.
        if self._early:
            self._ring()

    def stop(self) -> bool:
        """End the thread; from then on nobody gets in. False if it has not ended within `STOP_TIMEOUT_S`."""
        self._stopping = True
        if self.ident is None:
            self._door.close()
            self._bell.close()
        elif self.is_alive():
            self._ring()
            self.join(STOP_TIMEOUT_S)
        self._ringer.close()
        return not self.is_alive()

    def _ring(self) -> None:
        if self._rung:
            return
        self._rung = True
        try:
            self._ringer.send(b"", zmq.NOBLOCK)
        except zmq.ZMQError:
            self._counts["zap.bell_lost"] += 1

    # --- its own thread -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve. Whatever goes wrong with one request costs that request; a broken socket ends the thread."""
        poller = zmq.Poller()
        poller.register(self._door, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        try:
            while not self._stopping:
                ready = dict(poller.poll(self._patience_ms()))
                if self._bell in ready:
                    self._rung = False
                    self._bell.recv()
                if self._door in ready:
                    self._guarded(self._serve)
                if self._early:
                    self._look_again()
        except zmq.ZMQError:
            self._counts["zap.died"] += 1
        finally:
            self._door.close()
            self._bell.close()

    def _patience_ms(self) -> int | None:
        return max(0, int((self._early[0].until - time.monotonic()) * 1000) + 1) if self._early else None

    def _guarded(self, what: Callable[[], bool]) -> bool:
        """What it gives, or True where it has failed: then that is done with."""
        try:
            return what()
        except Exception:  # noqa: BLE001
            # Not a narrower class, because nothing that one request does may end the thread for all others.
            self._counts["zap.failed"] += 1
            return True

    def _serve(self) -> bool:
        """RFC 27: [requester, "", version, request id, domain, address, identity, mechanism, credentials...]."""
        frames = self._door.recv_multipart(zmq.NOBLOCK)
        if len(frames) < 8 or frames[1] or frames[2] != ZAP_VERSION:
            self._counts["zap.malformed"] += 1
            return True
        requester, _, _, request, domain, address, _, mechanism, *credentials = frames
        curve = domain == ZAP_DOMAIN and mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32
        user = z85.encode(credentials[0]).decode() if curve else ""
        one = Handshake(requester, request, house(address.decode("ascii", "replace")), user)
        if not self._decide(one):
            if self._has_room(one.home):
                self._early.append(replace(one, until=time.monotonic() + EARLY_S))
            else:
                self._refuse(one)
        return True

    def _has_room(self, home: str) -> bool:
        return len(self._early) < EARLY_MAX and sum(one.home == home for one in self._early) < EARLY_HOME_MAX

    def _look_again(self) -> None:
        """Answer those who have waited for long enough, or of whom it is known by now whether they come in."""
        self._early = [one for one in self._early if not self._guarded(partial(self._decide, one))]

    def _decide(self, one: Handshake) -> bool:
        """Answer this one, if it is known whether it comes in; False where it is not."""
        known = one.user in self.admitted
        if known and not self._rests(one.user):
            self._answer(one, b"200")
            self._counts["zap.early"] += one.until > 0
        elif known or not one.user or 0 < one.until <= time.monotonic():
            self._refuse(one)
        else:
            return False
        return True

    def _rests(self, user: str) -> bool:
        if self.resting.get(user, 0.0) > time.monotonic():
            return True
        self.resting.pop(user, None)
        return False

    def _refuse(self, one: Handshake) -> None:
        polite = self._refusals.take(one.home, time.monotonic())
        self._answer(one, b"400" if polite else b"300")

    def _answer(self, one: Handshake, status: bytes) -> None:
        self._counts["zap.admitted" if status == b"200" else "zap.refused"] += 1
        user = one.user.encode() if status == b"200" else b""
        reply = [one.requester, b"", ZAP_VERSION, one.request, status, b"", user, b""]
        self._door.send_multipart(reply, zmq.NOBLOCK)
