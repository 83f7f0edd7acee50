"""One wait for all sockets: whichever has something to say is read, and all of them in turn.

Asking each socket in turn, as zmq's own poller does, takes longer the more there are, and a group of 256 has more than
five hundred. Each libzmq socket has a descriptor that becomes readable when there is news for it, so one selector
(epoll on Linux, kqueue on macOS) waits for all, for our own lines (`dial.py`), and for foreign descriptors too.

libzmq's descriptor tells only of *new* news: whoever uses the socket, if only to send, may have taken it in. So a
socket that may have something is remembered until a read has found it dry.
"""

import selectors
from collections.abc import Callable
from typing import TypeAlias

import zmq

from zerochat.agent.network.zmq.socket_options import Monitor, Socket

SLICE = 16
"""Messages read from one socket before the next has its turn."""

Ear: TypeAlias = Callable[[], int]
"""Reads one message from one socket and gives its size in bytes; raises `zmq.Again`, or BlockingIOError, when there is
none."""


class Ears:
    """The selector, and what is known to be waiting behind it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._foreign: set[int] = set()
        self._ready: dict[Ear, None] = {}
        """A set that keeps its order: first come, first heard, and then to the end of the row."""

    @property
    def pending(self) -> bool:
        """True when something may be waiting to be read, so that it is no time to sleep."""
        return bool(self._ready)

    def open(self, socket: Socket, ear: Ear) -> None:
        """Read this socket with `ear` from now on, and at once, as it may have news already."""
        self._selector.register(descriptor(socket), selectors.EVENT_READ, (ear, None))
        self._ready[ear] = None

    def attend(self, monitor: Monitor, observe: Callable[[], None]) -> None:
        """Call `observe` whenever this monitor has events, and now: a pipe that was never read gives no signal."""
        self._selector.register(descriptor(monitor.socket), selectors.EVENT_READ, (None, observe))
        observe()

    def heed(self, fd: int, answer: Callable[[], None]) -> None:
        """Call `answer` whenever this descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, (None, answer))

    def open_line(self, fd: int, ear: Ear, observe: Callable[[], None]) -> None:
        """Call `observe` when this socket, which is just connecting, can be written to.

        Its number may be that of a foreign descriptor that was closed in this turn and has not been forgotten yet.
        """
        self.unwatch(fd)
        self._selector.register(fd, selectors.EVENT_WRITE, (ear, observe))

    def turn_line(self, fd: int, *, write: bool) -> None:
        """From now on read this socket with its ear, and call `observe` when it can be written to if `write`."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        self._selector.modify(fd, events, self._selector.get_key(fd).data)

    def shut_line(self, fd: int, ear: Ear) -> None:
        """Forget a line's socket, before it is closed."""
        self._selector.unregister(fd)
        self._ready.pop(ear, None)

    def touched(self, ear: Ear) -> None:
        """The socket behind `ear` has been used."""
        self._ready[ear] = None

    def is_dry(self, ear: Ear) -> bool:
        """Whether all that there was behind `ear` has been read."""
        return ear not in self._ready

    def watch(self, fd: int, *, read: bool, write: bool) -> None:
        """Have `wait` tell of a foreign descriptor; calling it again changes for what."""
        events = (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0)
        if not events:
            self.unwatch(fd)
        elif fd in self._foreign:
            self._selector.modify(fd, events)
        else:
            self._selector.register(fd, events)
            self._foreign.add(fd)

    def unwatch(self, fd: int) -> None:
        """Forget a foreign descriptor, before it is closed. An unknown one is ignored."""
        if fd in self._foreign:
            self._foreign.discard(fd)
            self._selector.unregister(fd)

    def wait(self, seconds: float) -> list[int]:
        """Wait for news; take in what monitors have to say, and give the foreign descriptors that are ready."""
        fds = []
        for key, events in self._selector.select(seconds):
            match key.data:
                case (None, observe):
                    observe()
                case (ear, observe):
                    if observe is not None and events & selectors.EVENT_WRITE:
                        observe()
                    if events & selectors.EVENT_READ:
                        self._ready[ear] = None
                case _:
                    fds.append(key.fd)
        return fds

    def read(self, messages: int, room: int) -> None:
        """Read slice by slice, round and round, until all are dry or so many messages or bytes have been read."""
        while self._ready and messages > 0 and room > 0:
            ear = next(iter(self._ready))
            try:
                for _ in range(min(SLICE, messages)):
                    messages -= 1
                    room -= ear()
                    if room <= 0:
                        break
                self._ready[ear] = self._ready.pop(ear, None)
            except (zmq.Again, BlockingIOError):
                self._ready.pop(ear, None)

    def close(self) -> None:
        self._selector.close()


def descriptor(socket: Socket) -> int:
    """What becomes readable when libzmq has news for this socket (ZMQ_FD)."""
    fd = socket.get(zmq.FD)
    assert isinstance(fd, int)
    return fd
