"""ZAP authenticator (ZeroMQ RFC 27): admits or refuses the client key of every CURVE handshake.

libzmq sends one request per handshake to `inproc://zeromq.zap.01`. Every bound socket sets `ZAP_ENFORCE_DOMAIN`
(`socket_options.py`), so without an answer no client connects: if this thread dies, the sockets stay closed. pyzmq's
own authenticators are not used, because one exception in their callback ends them permanently.

The authenticator has its own thread, so that a busy agent does not delay handshakes, and a ROUTER in place of the usual
REP, because a REP that misses one answer blocks forever. The threads share one immutable mapping, replaced as a whole.

Status codes:

- 200 for an admitted key. libzmq then adds the key (Z85) as `User-Id` to every message of the connection.
  Unauthenticated clients cannot delay this answer: they share no token bucket with admitted keys.
- 400 for any other key, and for a while for an admitted key that has sent more than the agent reads (`flood_guard.py`).
  The connection is closed at once; our client dials again (`dialer.py`). The answer does not reveal whether the key was
  known. An unknown key waits `EARLY_S` first: a joiner may connect before we receive its admission, and another attempt
  would cost it three and a half round trips.
- 300 for an unknown key from an address prefix with too many refusals. libzmq sends nothing and lets the handshake time
  out, so an address that tries many keys gets no answers.
"""

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

from zerochat.agent.network.addresses import source_prefix

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
ZAP_DOMAIN = b"zerochat"
"""RFC 27 leaves the name to the application. It must not be empty: libzmq enforces only a named domain."""

REFUSALS_MAX = 20
"""Token bucket size per address prefix: refusals in a burst before answers stop."""
REFUSALS_PER_S = 2.0
ADDRESSES_MAX = 1024
"""Address prefixes with a bucket; the least recently refused one is dropped first."""
EARLY_S = 0.5
"""How long an unknown key waits for its admission. The handshake takes two and a half round trips, so this fits into
`socket_options.HANDSHAKE_MS` for round trips of up to 600 ms; with longer ones the client times out and dials again."""
EARLY_MAX, EARLY_PER_PREFIX_MAX = 256, 32
"""Waiting handshakes, in total and per address prefix; further ones are refused at once. An attacker with many keys can
fill these places; then no client waits."""
STOP_TIMEOUT_S = 2.0


class Admission(Struct, frozen=True):
    """What a client key is admitted for."""

    link: bytes
    queues: tuple[bytes, ...]
    guest: bool = False
    """The key belongs to an invitation, not to a member (`Admit.guest`)."""


class ZapRequest(Struct, frozen=True):
    """One handshake to decide."""

    requester: bytes
    request: bytes
    prefix: str
    """`source_prefix` of the client's address."""
    user: str
    """The client key in Z85, which the client has proved; empty: not CURVE."""
    until: float = 0.0
    """End of the wait for an admission; seconds, monotonic; 0: not waiting."""


class RefusalBuckets:
    """A token bucket of refusals for each address prefix, refilled with time."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, prefix: str, now: float) -> bool:
        """Count one refusal; False when the bucket is empty. `now` in seconds."""
        tokens, then = self._buckets.pop(prefix, (float(REFUSALS_MAX), now))
        tokens = min(REFUSALS_MAX, tokens + (now - then) * REFUSALS_PER_S)
        allowed = tokens >= 1
        self._buckets[prefix] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)
        return allowed


class ZapAuthenticator(threading.Thread):
    """Answers ZAP requests until `stop()`. One per context, made before any socket binds. `admit` and `stop` belong to
    the thread that made it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], counts: Counter[str]) -> None:
        """`counts` gets `zap.*`. Only this thread writes these names, so they need no lock."""
        super().__init__(name="zerochat-zap", daemon=True)
        self.admitted: Mapping[str, Admission] = MappingProxyType({})
        """Admission by client key in Z85 (`admit`)."""
        self.suspended: dict[str, float] = {}
        """Admitted keys that are refused until a time; seconds, monotonic."""
        self._counts = counts
        self._refusals = RefusalBuckets()
        self._early: list[ZapRequest] = []
        """Waiting handshakes, oldest first. Only this thread changes it."""
        self._stopping = self._wakeup_sent = False
        wakeup = f"inproc://zap-wakeup-{id(self)}"
        self._requests = context.socket(zmq.ROUTER)
        self._wakeup = context.socket(zmq.PAIR)
        self._waker = context.socket(zmq.PAIR)
        for socket in (self._requests, self._wakeup, self._waker):
            socket.linger = 0
        self._wakeup.bind(wakeup)
        self._waker.connect(wakeup)
        self._requests.bind(ZAP_ENDPOINT)

    def admit(self, admitted: Mapping[str, Admission]) -> None:
        """Replace the admitted keys. The mapping must not change afterwards."""
        self.admitted = admitted
        # `run` decides every early request once more before it waits, so a request cannot slip between the two.
        if self._early:
            self._wake()

    def stop(self) -> bool:
        """End the thread; from then on no client connects. False: it has not ended within `STOP_TIMEOUT_S`."""
        self._stopping = True
        if self.ident is None:
            self._requests.close()
            self._wakeup.close()
        elif self.is_alive():
            self._wake()
            self.join(STOP_TIMEOUT_S)
        self._waker.close()
        return not self.is_alive()

    def _wake(self) -> None:
        if self._wakeup_sent:
            return
        self._wakeup_sent = True
        try:
            self._waker.send(b"", zmq.NOBLOCK)
        except zmq.ZMQError:
            self._counts["zap.wakeup_failed"] += 1

    # --- its own thread -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve. A failure in one request costs that request only; a broken socket ends the thread."""
        poller = zmq.Poller()
        poller.register(self._requests, zmq.POLLIN)
        poller.register(self._wakeup, zmq.POLLIN)
        try:
            while not self._stopping:
                ready = dict(poller.poll(self._timeout_ms()))
                if self._wakeup in ready:
                    self._wakeup_sent = False
                    self._wakeup.recv()
                if self._requests in ready:
                    self._guarded(self._serve)
                if self._early:
                    self._decide_early()
        except zmq.ZMQError:
            self._counts["zap.died"] += 1
        finally:
            self._requests.close()
            self._wakeup.close()

    def _timeout_ms(self) -> int | None:
        return max(0, int((self._early[0].until - time.monotonic()) * 1000) + 1) if self._early else None

    def _guarded(self, work: Callable[[], bool]) -> bool:
        """The result of `work`; True when it raised: the request is given up."""
        try:
            return work()
        except Exception:  # noqa: BLE001
            # No narrower class: a failure in one request must not end the thread for all others.
            self._counts["zap.failed"] += 1
            return True

    def _serve(self) -> bool:
        """RFC 27: [requester, "", version, request id, domain, address, identity, mechanism, credentials...]."""
        frames = self._requests.recv_multipart(zmq.NOBLOCK)
        if len(frames) < 8 or frames[1] or frames[2] != ZAP_VERSION:
            self._counts["zap.malformed"] += 1
            return True
        requester, _, _, request, domain, address, _, mechanism, *credentials = frames
        curve = domain == ZAP_DOMAIN and mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32
        user = z85.encode(credentials[0]).decode() if curve else ""
        handshake = ZapRequest(requester, request, source_prefix(address.decode("ascii", "replace")), user)
        if not self._decide(handshake):
            if self._may_wait(handshake.prefix):
                self._early.append(replace(handshake, until=time.monotonic() + EARLY_S))
            else:
                self._refuse(handshake)
        return True

    def _may_wait(self, prefix: str) -> bool:
        waiting = sum(each.prefix == prefix for each in self._early)
        return len(self._early) < EARLY_MAX and waiting < EARLY_PER_PREFIX_MAX

    def _decide_early(self) -> None:
        """Answer the waiting handshakes that are admitted by now, or have waited long enough."""
        self._early = [each for each in self._early if not self._guarded(partial(self._decide, each))]

    def _decide(self, handshake: ZapRequest) -> bool:
        """Answer this handshake if its outcome is known; False: it may still be admitted."""
        known = handshake.user in self.admitted
        if known and not self._is_suspended(handshake.user):
            self._answer(handshake, b"200")
            self._counts["zap.early"] += handshake.until > 0
        elif known or not handshake.user or 0 < handshake.until <= time.monotonic():
            self._refuse(handshake)
        else:
            return False
        return True

    def _is_suspended(self, user: str) -> bool:
        if self.suspended.get(user, 0.0) > time.monotonic():
            return True
        self.suspended.pop(user, None)
        return False

    def _refuse(self, handshake: ZapRequest) -> None:
        allowed = self._refusals.take(handshake.prefix, time.monotonic())
        self._answer(handshake, b"400" if allowed else b"300")

    def _answer(self, handshake: ZapRequest, status: bytes) -> None:
        self._counts["zap.admitted" if status == b"200" else "zap.refused"] += 1
        user = handshake.user.encode() if status == b"200" else b""
        reply = [handshake.requester, b"", ZAP_VERSION, handshake.request, status, b"", user, b""]
        self._requests.send_multipart(reply, zmq.NOBLOCK)
