"""Bare sockets on the hosts of a line: the time of ZeroMQ, CURVE and TCP alone."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import zmq

from benchmarks.wide.line import Host

MESSAGE_BYTES, TOPIC_BYTES = 773, 37
"""A message of the thesis' size, and the name of its queue with its separator."""
_QUEUE = b"t" * (TOPIC_BYTES - 1)


class Bare:
    """One XPUB socket and a SUB socket of each subscriber, over CURVE; a context that closes them."""

    def __init__(self, publisher: Host, subscribers: Sequence[Host]) -> None:
        self._publisher, self._subscribers = publisher, subscribers
        self._contexts = ExitStack()
        self._subs: list[zmq.Socket[bytes]] = []

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self)
            self._connect()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._contexts.close()

    def _connect(self) -> None:
        server_public, server_secret = zmq.curve_keypair()
        pub = self._pub = self._publisher.call(self._context(self._publisher).socket, zmq.XPUB)
        pub.curve_secretkey, pub.curve_publickey, pub.curve_server = server_secret, server_public, True
        pub.xpub_verbose = True  # reported for each subscriber, although all have the same topic
        pub.sndhwm = 0  # a burst of any length is queued
        pub.rcvtimeo = 10_000
        port = self._publisher.call(pub.bind_to_random_port, f"tcp://{self._publisher.address}")
        for host in self._subscribers:
            sub = host.call(self._context(host).socket, zmq.SUB)
            sub.curve_publickey, sub.curve_secretkey = zmq.curve_keypair()
            sub.curve_serverkey = server_public
            sub.rcvhwm = 0
            sub.rcvtimeo = 10_000
            sub.subscribe(_QUEUE)
            sub.connect(f"tcp://{self._publisher.address}:{port}")
            self._subs.append(sub)
        for _ in self._subs:
            pub.recv()

    def _context(self, host: Host) -> "zmq.Context[zmq.Socket[bytes]]":
        """A context whose threads are on this host: a ZeroMQ context stays on the host of its first socket."""
        make: Callable[[], zmq.Context[zmq.Socket[bytes]]] = zmq.Context
        context = host.call(make)
        self._contexts.callback(context.destroy, 0)
        return context

    def burst_ms(self, messages: int) -> float:
        """Publish so many messages at once; the time until the last subscriber has the last one."""
        begun = time.monotonic()
        for _ in range(messages):
            self._pub.send(_QUEUE + b" " + bytes(MESSAGE_BYTES))
        for sub in self._subs:
            for _ in range(messages):
                sub.recv()
        return (time.monotonic() - begun) * 1000
