"""Poller: one selector for all sockets, with fair round-robin reads.

zmq's own poller asks each socket in turn, which takes longer the more there are, and a group of 256 has more than five
hundred. Each libzmq socket has a descriptor that becomes readable on news, so one selector (epoll on Linux, kqueue on
macOS) waits for all of them, for dialled connections (`dialer.py`) and for foreign descriptors.

libzmq's descriptor is edge-triggered: any use of the socket, even sending, may consume the signal. So a socket stays in
the ready set until a read has found it empty.
"""

import selectors
from collections.abc import Callable
from typing import TypeAlias

import zmq

from zerochat.agent.network.zmq.socket_options import Monitor, Socket

SLICE = 16
"""Messages read from one socket before it is the next one's turn."""

MessageReader: TypeAlias = Callable[[], int]
"""Reads one message from one socket and returns its size in bytes; raises `zmq.Again` or BlockingIOError when there is
none."""


class Poller:
    """The selector, and the sockets that may have unread messages."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._foreign: set[int] = set()
        self._ready: dict[MessageReader, None] = {}
        """An ordered set: read from its front, then moved to its end."""

    @property
    def pending(self) -> bool:
        """Whether messages may be waiting, so that the caller must not sleep."""
        return bool(self._ready)

    def add_socket(self, socket: Socket, reader: MessageReader) -> None:
        """Read this socket with `reader`, starting now, as it may have messages already."""
        self._selector.register(descriptor(socket), selectors.EVENT_READ, (reader, None))
        self._ready[reader] = None

    def add_monitor(self, monitor: Monitor, observe: Callable[[], None]) -> None:
        """Call `observe` whenever this monitor has events, and once now: a pipe that was never read does not signal."""
        self._selector.register(descriptor(monitor.socket), selectors.EVENT_READ, (None, observe))
        observe()

    def add_wakeup(self, fd: int, drain: Callable[[], None]) -> None:
        """Call `drain` whenever this descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, (None, drain))

    def add_dialed(self, fd: int, reader: MessageReader, writable: Callable[[], None]) -> None:
        """Call `writable` when this connecting socket can be written to.

        The kernel may have reused the number of a foreign descriptor that was closed and not yet forgotten.
        """
        self.unwatch(fd)
        self._selector.register(fd, selectors.EVENT_WRITE, (reader, writable))

    def set_writing(self, fd: int, *, write: bool) -> None:
        """Read a dialled socket from now on, and wait until it is writable as well if `write`."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        self._selector.modify(fd, events, self._selector.get_key(fd).data)

    def remove_dialed(self, fd: int, reader: MessageReader) -> None:
        """Forget a dialled socket, before it is closed."""
        self._selector.unregister(fd)
        self._ready.pop(reader, None)

    def touched(self, reader: MessageReader) -> None:
        """The socket of `reader` was used, so its signal may be consumed."""
        self._ready[reader] = None

    def is_dry(self, reader: MessageReader) -> bool:
        """Whether the socket of `reader` was read until it was empty."""
        return reader not in self._ready

    def watch(self, fd: int, *, read: bool, write: bool) -> None:
        """Report a foreign descriptor when it is ready; a second call changes what for."""
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
        """Wait for events, run the callbacks of monitors and writable sockets; the foreign descriptors that are
        ready."""
        fds = []
        for key, events in self._selector.select(seconds):
            match key.data:
                case (None, callback):
                    callback()
                case (reader, writable):
                    if writable is not None and events & selectors.EVENT_WRITE:
                        writable()
                    if events & selectors.EVENT_READ:
                        self._ready[reader] = None
                case _:
                    fds.append(key.fd)
        return fds

    def read(self, messages: int, size: int) -> None:
        """Read slice by slice, round-robin, until all sockets are empty or so many messages or bytes are read."""
        while self._ready and messages > 0 and size > 0:
            reader = next(iter(self._ready))
            try:
                for _ in range(min(SLICE, messages)):
                    messages -= 1
                    size -= reader()
                    if size <= 0:
                        break
                self._ready[reader] = self._ready.pop(reader, None)
            except (zmq.Again, BlockingIOError):
                self._ready.pop(reader, None)

    def close(self) -> None:
        self._selector.close()


def descriptor(socket: Socket) -> int:
    """The descriptor that becomes readable when libzmq has news for this socket (ZMQ_FD)."""
    fd = socket.get(zmq.FD)
    assert isinstance(fd, int)
    return fd
