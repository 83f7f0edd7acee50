"""Transport: CURVE sockets that carry envelopes between agents, used by the one thread that made them.

Two sockets are bound. The *pair* socket (ROUTER) receives messages for one peer, the *queue* socket (XPUB) publishes
messages for many; ZAP authenticates the clients of both (`zap.py`). To each peer that we dial there is a DEALER, and an
XSUB for its queues for us (`dialer.py`, `links.py`). A ROUTER can only send to peers that it has received from, so the
dialling side sends a hello, an empty frame, right after the handshake; hellos end here.

An inbound connection is identified by the CURVE key that it has proved, never by its routing id: libzmq adds the key to
every message as `User-Id`, and each time it is looked up among the admitted keys.

Only `poll` blocks. What cannot be sent at once is dropped and counted; the log retransmits it. An inbound peer that
sends more than the agent reads is cut (`flood_guard.py`) and may reconnect; a dialled one is throttled by TCP. A link
with too many refused envelopes is banned for a while (`bans.py`).
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from types import MappingProxyType
from typing import TypeAlias, assert_never

import zmq
from msgspec.structs import replace
from zmq.utils import z85

from zerochat.agent.network.descriptors import WakeupPipe, raise_file_limit
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.bans import Bans
from zerochat.agent.network.zmq.dialer import DialedConnection
from zerochat.agent.network.zmq.flood_guard import FloodGuard
from zerochat.agent.network.zmq.links import LinkReason, LinkTable
from zerochat.agent.network.zmq.listener import Listener, PairListener, PortTaken, QueueListener
from zerochat.agent.network.zmq.multiplexing import (
    HEADER_BYTES,
    MULTIPLEX_S,
    EarlyMessage,
    EarlyMessages,
    claimed_key,
    open_header,
)
from zerochat.agent.network.zmq.poller import Poller
from zerochat.agent.network.zmq.tcp_control import Connection, bytes_acked, wire_bytes
from zerochat.agent.network.zmq.zap import Admission, ZapAuthenticator
from zerochat.closing import Closing
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import RemoteError
from zerochat.group.effects import AllowClient, Dial, Disconnect, Publish, Reply, RevokeClient, SendEnvelope
from zerochat.group.inputs import IoInput, Received
from zerochat.limits import MEMBERS_MAX

QUEUE_BYTES = 32
"""Size of a queue's name. Fixed and short: a process with a 200 kB topic in a SUB crashes when it closes the socket."""
MEMBER_CONNECTIONS_MAX = 4
"""Connections of one member's key to the pair socket; beyond that the oldest is cut. One is in use, a second may be
left over from a lost network; more are a copied device or a flood."""
GUEST_CONNECTIONS_MAX = MEMBERS_MAX
"""Connections of all invitation keys: the holders of one invitation share a key, and everybody in a room may scan a
code at the same time. Beyond that the oldest of the invitation with the most is cut, so that a flood on one invitation
does not block the joiners of another."""
UNACKED_BYTES_MAX = 256 * 1024
"""Unacknowledged bytes of a joiner's connection; further answers are dropped, and joiners retry."""
INPUTS_MAX = 256
"""Inputs of one `poll`: one batch for the core, one transaction for the journal."""
POLL_BYTES_MAX = 8 * 1024 * 1024
"""Bytes that one poll reads, so that large envelopes do not pile up between the sockets and the core."""

NetworkEffect: TypeAlias = AllowClient | RevokeClient | Dial | Disconnect | SendEnvelope | Reply | Publish


def _bind(listener: Listener, port: int, *, fallback: bool) -> int:
    try:
        return listener.bind(port)
    except PortTaken:
        if not fallback:
            raise
        return listener.bind(0)


class Transport(Closing):
    """The sockets of one agent.

    `perform` applies one effect at once; `poll` waits and returns inputs. `counts` counts what was dropped, refused or
    cut, by reason.
    """

    def __init__(
        self,
        server_secret: bytes,
        listen_host: str,
        pair_port: int,
        queue_port: int,
        *,
        socks: str | None = None,
        multiplexing: bool = False,
    ) -> None:
        """`server_secret`: the CURVE secret key of both bound sockets, 32 bytes. `listen_host`: a literal address of
        this machine, or 0.0.0.0, or :: (IPv4 and IPv6). Port 0 means any. `socks`: "address:port" of a SOCKS5 proxy for
        all dialled connections. `multiplexing`: allow it (`multiplexing.py`), because all peers know our endpoint;
        never with `socks`. Raises OldLibzmq.
        """
        raise_file_limit()
        self.counts: Counter[str] = Counter()
        self.server_key = socket_options.public_key(server_secret)
        self._thread = threading.get_ident()
        self._ports = (pair_port, queue_port)
        self._context = socket_options.new_context()
        self._zap = ZapAuthenticator(self._context, self.counts)
        common = (self._context, self._zap, self.counts, server_secret, listen_host)
        self._pair = PairListener(*common, proxied=socks is not None)
        self._queue = QueueListener(*common, proxied=socks is not None)
        self._poller = Poller()
        self._admitted: dict[str, Admission] = {}
        """By client key in Z85. ZAP gets those whose links are not banned."""
        self._bans = Bans()
        self._secret = server_secret
        self._early = EarlyMessages()
        self._inputs: deque[IoInput] = deque()
        self.links = LinkTable(
            self._poller,
            self.counts,
            self._inputs,
            self._bans,
            socks=socks,
            multiplexing=multiplexing and socks is None,
            read_dialed=self._read_dialed,
            cut_inbound=self._cut,
        )
        self._by_routing: dict[bytes, Connection] = {}
        """Inbound connections by routing id of the pair socket."""
        self._polls = 0
        """Number of poll rounds so far."""
        self._wakeup = WakeupPipe()
        self._flood_guard = FloodGuard((self._pair, self._queue), self.counts, self._wakeup.wake)
        self._closed = False

    @property
    def accepts_connections(self) -> bool:
        """False when the ZAP thread has ended: no client can connect. Existing connections continue."""
        return self._zap.is_alive()

    @property
    def banned_links(self) -> int:
        """Number of links that are banned now."""
        return len(self._bans)

    def bind(self, fallback: tuple[bool, bool] = (False, False)) -> tuple[int, int]:
        """Start listening; the ports of pair and queue. `fallback`: whether any free port replaces a taken one.

        Raises CannotListen or PortTaken; then it can only be closed.
        """
        self._zap.start()
        listeners = zip((self._pair, self._queue), self._ports, fallback, strict=True)
        pair, queue = (_bind(listener, port, fallback=may) for listener, port, may in listeners)
        self._poller.add_socket(self._pair.socket, self._read_pair)
        self._poller.add_monitor(self._pair.monitor, self._pair.observe)
        self._poller.add_socket(self._queue.socket, self._queue.read)
        self._poller.add_monitor(self._queue.monitor, self._queue.observe)
        self._poller.add_wakeup(self._wakeup.fileno(), self._wakeup.drain)
        self._flood_guard.start()
        return pair, queue

    def stop_listening(self) -> None:
        """Accept no more connections."""
        self._pair.unbind()
        self._queue.unbind()

    def close(self) -> None:
        """Close everything; what was just sent has `LINGER_MS` to leave. Does not hang."""
        if self._closed:
            return
        self._closed = True
        self._flood_guard.end()
        self.links.close()
        self._poller.close()
        self._pair.close()
        self._queue.close()
        self._wakeup.close()
        if self._zap.stop():
            self._context.destroy(socket_options.LINGER_MS)

    def perform(self, effect: NetworkEffect) -> None:
        """Apply it, or drop and count it. Never blocks; raises nothing for the peer's or the network's behaviour."""
        assert threading.get_ident() == self._thread, "a libzmq socket belongs to one thread"
        match effect:
            case SendEnvelope(link, envelope):
                self._send_envelope(link, envelope)
            case Publish(queue, envelope, links):
                self._publish(queue, envelope, links)
            case Reply(handle, envelope):
                self._reply(handle, envelope)
            case AllowClient():
                self._allow(effect)
            case RevokeClient(client_key):
                self._revoke(client_key)
            case Dial():
                self.links.dial(effect)
            case Disconnect(link):
                self.links.hang_up(link)
            case _:
                assert_never(effect)

    def flush(self) -> None:
        """Send the buffers of the dialled connections, as far as the kernel takes them. `poll` does it too."""
        self.links.flush()

    def strike(self, link: bytes, weight: float = 1) -> bool:
        """Count a refused envelope of this link; True when that was one too many, and the link is now banned."""
        if not self._bans.strike(link, time.monotonic(), weight):
            return False
        self.counts["banned"] += 1
        self._publish_admissions()
        for user, admission in self._admitted.items():
            if admission.link == link:
                self._cut_key(user, "cut.banned")
        if link in self.links.by_name:
            self.links.close_dialed(self.links.by_name[link])
            self.links.update(link)
        return True

    def reason(self, link: bytes) -> LinkReason:
        """Why a link is up or down."""
        return self.links.reason(link)

    def watch(self, fd: int, read: bool = True, write: bool = False) -> None:
        """Make `poll` return a foreign descriptor when it is ready; a second call changes what for."""
        self._poller.watch(fd, read=read, write=write)

    def unwatch(self, fd: int) -> None:
        """Forget a foreign descriptor, before it is closed. An unknown one is ignored."""
        self._poller.unwatch(fd)

    def poll(
        self, timeout_ms: int, inputs_max: int = INPUTS_MAX, bytes_max: int = POLL_BYTES_MAX
    ) -> tuple[list[IoInput], list[int]]:
        """Wait for inputs or `timeout_ms`; the inputs, and the watched descriptors that are ready.

        At most `inputs_max` inputs, of about `bytes_max` bytes; the rest wait in the sockets, and there the senders
        wait. With 0, inputs are neither read nor waited for.
        """
        assert threading.get_ident() == self._thread, "a libzmq socket belongs to one thread"
        now = time.monotonic()
        until = now + timeout_ms / 1000
        while True:
            fds = self._poll_once(now, until, inputs_max, bytes_max)
            now = time.monotonic()
            if fds or self._inputs or now >= until:
                most = min(inputs_max, len(self._inputs))
                return [self._inputs.popleft() for _ in range(most)], fds

    def _poll_once(self, now: float, until: float, inputs_max: int, bytes_max: int) -> list[int]:
        self._polls += 1
        self.flush()
        idle = not self._inputs and not self._poller.pending
        fds = self._poller.wait(max(0, min(until, self._due()) - now) if idle else 0)
        self._poller.read(max(0, inputs_max - len(self._inputs)), bytes_max)
        while self._pair.gone:
            self._detach(self._pair.gone.popleft())
        self._queue.gone.clear()
        now = time.monotonic()
        for listener, reader in ((self._pair, self._read_pair), (self._queue, self._queue.read)):
            if self._poller.is_dry(reader):
                listener.dry_at = now
        if now >= self._due():
            self._run_timers(now)
        return fds

    def _due(self) -> float:
        return min(self.links.due, self._bans.due)

    def _run_timers(self, now: float) -> None:
        for link in self._bans.lift_expired(now):
            self._publish_admissions()
            if link in self.links.by_name:
                self.links.open_connections(self.links.by_name[link])
        self.links.run_timers(now)

    # --- receiving --------------------------------------------------------------------------------------------------

    def _read_pair(self) -> int:
        frames, size = socket_options.receive(self._pair.socket)
        routing, envelope = frames[0].bytes, frames[1]
        user = str(envelope["User-Id"])
        connection = self._by_routing.get(routing)
        if connection is None or connection.user != user:
            connection = self._authenticate(routing, user, int(envelope.get(zmq.SRCFD)))
        if connection is not None:
            connection.message_read(size - wire_bytes(len(routing)))
        admission = self._zap.admitted.get(user)
        if admission is None:
            # The handshake was before the revocation, and this is the connection's first message.
            self.counts["refused.revoked"] += 1
            if connection is not None:
                self._cut(connection, "cut.revoked")
        elif len(frames) == 3 and len(envelope) == HEADER_BYTES:
            self._receive_multiplexed(EarlyMessage(user, envelope.bytes, frames[2].bytes))
        elif len(envelope) or len(frames) != 2:
            self._receive(frames[1:], Received(admission.link, envelope.bytes, routing))
        return size

    def _receive_multiplexed(self, message: EarlyMessage) -> None:
        """A message for another link of the peer. It has no handle: answers do not go over this connection. A forged
        header is a strike against the carrying link."""
        admitted = self._zap.admitted
        carrier, admission = admitted.get(message.carrier), admitted.get(_user(claimed_key(message.header)))
        until = time.monotonic() + MULTIPLEX_S
        if admission is None and carrier and carrier.queues and self._early.keep(replace(message, until=until)):
            self.counts["multiplexed.early"] += 1
            return
        if admission is None or carrier is None or not (admission.queues and carrier.queues):
            self.counts["refused.multiplexed"] += 1
            return
        try:
            open_header(message.header, self._secret, z85.decode(message.carrier))
        except RemoteError:
            self.counts["refused.multiplexed"] += 1
            self.strike(carrier.link)
        else:
            self._receive([message.envelope], Received(admission.link, message.envelope))

    def _read_dialed(self, connection: DialedConnection) -> int:
        try:
            frames, size = connection.receive(time.monotonic())
        finally:
            # A host that has answered is pinged sooner than its timeout would have been.
            self.links.note_activity(connection)
        if frames is not None:
            if connection.queues and frames.pop(0) not in connection.queues:
                frames = []
            envelope = frames[-1] if frames else b""
            name, queued = self.links.dialed[connection], bool(connection.queues)
            self._receive(frames, Received(name, envelope, from_queue=queued, host=connection.server_key))
        return size

    def _receive(self, frames: Sequence[object], received: Received) -> None:
        """Queue an input, if the message is exactly one envelope."""
        if len(frames) == 1 and 0 < len(received.envelope) <= ENVELOPE_BYTES_MAX:
            self._inputs.append(received)
        else:
            self.counts["dropped.shape"] += 1

    # --- inbound connections ----------------------------------------------------------------------------------------

    def _authenticate(self, routing: bytes, user: str, fd: int) -> Connection | None:
        """The connection of a routing id that is new, or was taken over by another key."""
        former = self._by_routing.pop(routing, None)
        connection = self._pair.authenticate(fd, user, routing)
        for stale in (former, connection):
            if stale is not None:
                self._detach(stale)
        admission = self._zap.admitted.get(user)
        if connection is not None:
            connection.routing = routing
            self._by_routing[routing] = connection
            if admission is not None:
                self.links.attach(connection, admission.link)
                for extra in self._excess(connection):
                    self._cut(extra, "cut.extra")
        return connection

    def _excess(self, connection: Connection) -> list[Connection]:
        """The connections to cut because of this new one."""
        if not connection.guest:
            return self._pair.of(connection.user)[:-MEMBER_CONNECTIONS_MAX]
        guests = self._pair.guests()
        too_many = sum(map(len, guests.values())) > GUEST_CONNECTIONS_MAX
        return max(guests.values(), key=len)[:1] if too_many else []

    def _detach(self, connection: Connection) -> None:
        """This connection has ended, or does not belong to its former link."""
        if self._by_routing.get(connection.routing) is connection:
            del self._by_routing[connection.routing]
        self.links.detach(connection)

    def _cut(self, connection: Connection, reason: str) -> None:
        self.counts[reason] += 1
        self._pair.cut(connection)
        self._detach(connection)

    # --- admission --------------------------------------------------------------------------------------------------

    def _allow(self, client: AllowClient) -> None:
        assert len(client.client_key) == 32 and all(len(queue) == QUEUE_BYTES for queue in client.queues)
        user = _user(client.client_key)
        admission = Admission(client.link, client.queues, client.guest)
        former = self._admitted.get(user)
        if former == admission:
            return
        self._admitted[user] = admission
        self._publish_admissions()
        for early in self._early.take(client.client_key, time.monotonic()):
            self._receive_multiplexed(early)
        if former is None:
            return
        if admission.link in self._bans:
            self._cut_key(user, "cut.banned")
            return
        for connection in self._pair.of(user):
            self._detach(connection)
            if connection.routing:
                self._by_routing[connection.routing] = connection
                self.links.attach(connection, client.link)
        # XPUB cannot unsubscribe a single connection; a cut subscriber reconnects and subscribes to the new queues.
        self._cut_subscribers(user, "cut.moved")

    def _revoke(self, client_key: bytes) -> None:
        user = _user(client_key)
        if self._admitted.pop(user, None) is not None:
            self._publish_admissions()
            self._cut_key(user, "cut.revoked")

    def _publish_admissions(self) -> None:
        """Give ZAP the admitted keys whose links are not banned, for the handshakes from now on."""
        self._zap.admit(
            MappingProxyType(
                {user: admission for user, admission in self._admitted.items() if admission.link not in self._bans}
            )
        )

    def _cut_key(self, user: str, reason: str) -> None:
        """Cut every connection of a key."""
        for connection in self._pair.of(user):
            self._cut(connection, reason)
        self._cut_subscribers(user, reason)

    def _cut_subscribers(self, user: str, reason: str) -> None:
        for connection in self._queue.of(user):
            self.counts[reason] += 1
            self._queue.cut(connection)

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send_envelope(self, name: bytes, envelope: bytes) -> None:
        link = self.links.by_name.get(name)
        if link is None or not link.state.is_up:
            self.counts["dropped.down"] += 1
            return
        if not self._fits(envelope):
            return
        now = time.monotonic()
        if self.links.send_dialed(link, envelope, now):
            return
        for connection in reversed(link.inbound.copy()):
            if self._send_inbound(connection, envelope):
                return
        if not self.links.send_multiplexed(name, envelope, now):
            self.counts["dropped.full"] += 1

    def _reply(self, handle: bytes, envelope: bytes) -> None:
        connection = self._by_routing.get(handle)
        if connection is None:
            self.counts["dropped.down"] += 1
        elif self._fits(envelope) and not self._send_inbound(connection, envelope):
            self.counts["dropped.full"] += 1

    def _send_inbound(self, connection: Connection, envelope: bytes) -> bool:
        if connection.guest and self._is_backlogged(connection):
            self.counts["dropped.unread"] += 1
            return False
        self._poller.touched(self._read_pair)
        try:
            sent = socket_options.send(self._pair.socket, [connection.routing, envelope])
        except zmq.ZMQError:
            self._detach(connection)  # ROUTER_MANDATORY: EHOSTUNREACH
            return False
        connection.sent_bytes += wire_bytes(len(envelope)) if sent else 0
        return sent

    def _is_backlogged(self, connection: Connection) -> bool:
        """Whether a joiner has left too much unread. Checked once per poll, so that a welcome, which may have
        megabytes, is sent whole or not at all."""
        if connection.backlogged[0] != self._polls:
            acked = bytes_acked(connection)
            connection.backlogged = self._polls, acked is not None and connection.unacked(acked) > UNACKED_BYTES_MAX
        return connection.backlogged[1]

    def _publish(self, queue: bytes, envelope: bytes, links: tuple[bytes, ...]) -> None:
        assert len(queue) == QUEUE_BYTES
        unsubscribed = [link for link in links if not self._queue.has_subscriber(queue, link)]
        for link in unsubscribed:
            # The subscription is under way, or the peer cannot dial us and has only the link that we opened.
            self._send_envelope(link, envelope)
        if (not links or len(unsubscribed) < len(links)) and self._fits(envelope):
            self._poller.touched(self._queue.read)
            if not socket_options.send(self._queue.socket, [queue, envelope]):
                self.counts["dropped.full"] += 1

    def _fits(self, envelope: bytes) -> bool:
        if 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            return True
        self.counts["dropped.size"] += 1
        return False


def _user(client_key: bytes) -> str:
    """A CURVE client key as libzmq and ZAP name it: in Z85."""
    return z85.encode(client_key).decode()
