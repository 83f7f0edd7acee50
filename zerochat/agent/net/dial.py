"""The dialled half of a link: our DEALER to the peer's ROUTER, and our XSUB to its XPUB, each kept alive.

libzmq reconnects by itself after an ordinary loss, but gives up for ever, without a sign on the socket, when the peer
refuses our key (we came a moment before it admitted us) or when a byte was flipped on the way. So each socket has a
monitor, and after a failed handshake this module dials again itself, with a growing and bounded delay.

An XSUB, and not a SUB, because a SUB looks for a message that matches until it finds none at all: a peer that publishes
fast enough what we have not asked for would keep the agent thread there for ever.
"""

import random
from collections import Counter
from contextlib import suppress

import zmq

from zerochat.agent.net import cut, sockets
from zerochat.group.effects import Dial

REDIAL_S = 0.1
"""The first delay after a failed handshake: a joiner that came too early is let in within one or two tries."""
REDIAL_S_MAX = 10.0
NUDGE_S = 1.0
"""A peer who dials us is there, so we dial it at once; but not more often than this, whatever it does."""
ZOMBIE_S = 15.0
"""When libzmq has neither connected nor said that it tries, for this long beyond its own next try, we dial again."""
GREETING_RETRY_S = 0.005

KINDS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)


class Line:
    """One dialled socket. `up` is True from a finished handshake (and sent hello) until the connection is lost."""

    def __init__(
        self,
        context: sockets.Context,
        dial: Dial,
        counts: Counter[str],
        now: float,
        *,
        queues: tuple[bytes, ...] = (),
        socks: str | None = None,
    ) -> None:
        """A DEALER to `dial.pair`, or, given queues, an XSUB for them at `dial.queue_at`.

        Endpoints hold literal addresses: a host name that does not resolve would freeze every socket of the context.
        """
        endpoint = dial.queue_at if queues else dial.pair
        assert endpoint is not None
        self.up = False
        self.queues = queues
        self.connection: cut.Connection | None = None
        self._address = endpoint.tcp
        self._counts = counts
        self._failures = 0
        self._greet_at: float | None = None
        self._hung = False
        self._redial_at = self._dialled_at = now
        self.socket = context.socket(zmq.XSUB if queues else zmq.DEALER)
        sockets.harden(self.socket, proxied=socks is not None)
        sockets.introduce(self.socket, dial.client_secret, dial.server_key, ipv6=":" in endpoint.host, socks=socks)
        self.monitor = sockets.Monitor(context, self.socket, KINDS)
        for queue in queues:
            self.socket.send(b"\1" + queue)
        self._connect(now)

    def observe(self, now: float) -> None:
        """Take in what has happened to the socket."""
        for event in self.monitor.events():
            if self._hung:
                continue  # the end of an attempt that we have given up
            match event.kind:
                case zmq.EVENT_CONNECTED:
                    self.connection = cut.notice(event.value, now)
                    if self.connection is not None:
                        self.connection.user = self._address
                    self._redial_at = now + ZOMBIE_S
                case zmq.EVENT_CONNECT_RETRIED:
                    self._redial_at = now + event.value / 1000 + ZOMBIE_S
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._failures = 0
                    self._redial_at = float("inf")
                    self._greet(now)
                case zmq.EVENT_DISCONNECTED if self.connection is not None and self.connection.condemned:
                    self._lost()
                    self._hang()
                    self._redial_at = now + REDIAL_S_MAX
                case zmq.EVENT_DISCONNECTED:
                    self._lost()
                    self._redial_at = min(self._redial_at, now + ZOMBIE_S)
                case _:
                    self._counts["dial.handshake_failed"] += 1
                    self._lost()
                    self._hang()
                    self._failures += 1
                    delay = min(REDIAL_S_MAX, REDIAL_S * 2.0 ** min(self._failures - 1, 16))
                    self._redial_at = now + delay * random.uniform(0.5, 1.0)  # noqa: S311  # only to spread the load

    def tend(self, now: float) -> None:
        """Do what is due: greet, or dial again."""
        if self._greet_at is not None and now >= self._greet_at:
            self._greet(now)
        if now >= self._redial_at:
            self._counts["dial.redialled"] += 1
            if not self._hung:
                self._hang()
            self._connect(now)

    def due(self) -> float:
        """When `tend` has something to do next."""
        return self._redial_at if self._greet_at is None else min(self._greet_at, self._redial_at)

    def nudge(self, now: float) -> None:
        """The peer has shown that it is there: do not wait for the next try."""
        if not self.up and self.connection is None and now - self._dialled_at >= NUDGE_S:
            self._redial_at = now

    def close(self) -> None:
        self.up = False
        self.monitor.close()
        self.socket.close()

    def _greet(self, now: float) -> None:
        """Say hello: the peer's ROUTER can answer only whom it has heard. A subscription is its own hello."""
        self._greet_at = None
        if not self.queues:
            # Reading EVENTS makes libzmq take in the new connection; `send` alone may put that off.
            self.socket.get(zmq.EVENTS)
            try:
                self.socket.send(b"", zmq.NOBLOCK)
            except zmq.Again:
                self._greet_at = now + GREETING_RETRY_S
                return
        self.up = True

    def _lost(self) -> None:
        self.up = False
        self.connection = None
        self._greet_at = None

    def _connect(self, now: float) -> None:
        self.socket.connect(self._address)
        self._hung = False
        self._dialled_at = now
        self._redial_at = now + ZOMBIE_S

    def _hang(self) -> None:
        """Give this attempt up. libzmq may have forgotten the endpoint by itself."""
        with suppress(zmq.ZMQError):
            self.socket.disconnect(self._address)
        self._hung = True
