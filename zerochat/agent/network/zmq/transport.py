"""The transport: CURVE sockets that carry envelopes between agents, owned by the one thread that made it.

Two sockets are bound. The *pair* socket (ROUTER) takes what goes to one peer, the *queue* socket (XPUB) gives what goes
to many; at both stands the doorkeeper (`zap.py`). To each peer that we dial there is a DEALER, and an XSUB for the
queues that it keeps for us (`dial.py`). A link is as good whichever side has dialled: our DEALER is used while it is
up, and the peer's connection to our ROUTER otherwise; of two who have just met, one dials first (`patience.py`). A
ROUTER knows only whom it has heard, so the dialling side says hello, an empty frame, right after the handshake; hellos
go no further than this file. While its own line is not up yet, a link may send over another one to the same host
(`ride.py`).

Who speaks on an inbound connection is never what the peer says of itself (its routing id), but the CURVE key that it
has proved: libzmq puts it on every message as `User-Id`, and each time it is looked up among the admitted keys.

Nothing here blocks but `poll`. What cannot be sent at once is dropped and counted: the group's log repairs. A peer who
sends more than the agent reads is cut if it has dialled us (`watch.py`), and may come back, and held back if we have
dialled it; one who sends what is refused over and over is shut out for a while (`bans.py`).
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from types import MappingProxyType, TracebackType
from typing import Literal, Self, TypeAlias, assert_never

import zmq
from msgspec import Struct, field
from msgspec.structs import replace
from zmq.utils import z85

from zerochat.agent.network.file_limit import allow_many_files
from zerochat.agent.network.wakeup import Bell
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.bans import Bans
from zerochat.agent.network.zmq.connection_scheduler import FIRST_S, FIRST_S_CROWD, SECOND_S, Patience
from zerochat.agent.network.zmq.dialer import Line
from zerochat.agent.network.zmq.flood_guard import Watch
from zerochat.agent.network.zmq.listener import PairDoor, QueueDoor
from zerochat.agent.network.zmq.multiplexing import HEADER_BYTES, RIDE_S, Early, Rides, Waiting, read_header, rider_of
from zerochat.agent.network.zmq.poller import Ears
from zerochat.agent.network.zmq.tcp_control import Connection, bytes_acked, wire_bytes
from zerochat.agent.network.zmq.zap import Admission, Gatekeeper
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import RemoteError
from zerochat.group.effects import Admit, Dial, Dispatch, Hangup, Publish, Reply, Revoke
from zerochat.group.inputs import Input, LinkDown, LinkUp, Received

QUEUE_BYTES = 32
"""A queue's name. Fixed and short, because a process with a 200 kB topic in a SUB crashes when it closes it."""
CALLERS_MAX = 4
"""Connections that one member's key may hold to the pair socket; beyond that the oldest is cut. One is in use, a second
may be what is left of a lost network, and more than that is a copied device or a flood."""
GUESTS_MAX = 64
"""The same of all who have an invitation and are no members yet: all who hold one have the same key, and everybody in
a room may scan one code at the same moment. Beyond that the oldest of the invitation with the most is cut, so that
nobody who floods one keeps out the guests of another."""
UNREAD_BYTES_MAX = 256 * 1024
"""What may wait for a guest, who has an invitation and is no member yet, that does not read it: answers beyond that are
dropped, and joiners ask again."""
INPUTS_MAX = 256
"""What one `poll` gives at most: one bite for the core, one transaction for the journal."""
TURN_BYTES_MAX = 8 * 1024 * 1024
"""What one turn reads at most, so that large envelopes do not pile up between the sockets and the core."""

NetworkEffect: TypeAlias = Admit | Revoke | Dial | Hangup | Dispatch | Reply | Publish


class Link(Struct):
    """Both halves of one link, and what the core was last told of it."""

    dial: Dial | None = None
    lines: list[Line] = field(default_factory=list)
    """Our DEALER, and our XSUB if there is a queue; empty when we have not dialled."""
    callers: list[Connection] = field(default_factory=list)
    """The peer's connections to our ROUTER, newest last."""
    up: bool = False
    second_at: float = 0.0
    """Until then the peer, which dials us too, goes first."""

    @property
    def pair(self) -> Line | None:
        """Our DEALER, if we have dialled; it comes before the XSUB."""
        return self.lines[0] if self.lines and not self.lines[0].queues else None


class Transport:
    """The sockets of one agent.

    `perform` does one effect at once; `poll` waits, and gives what has come in. `counts` says how often something was
    dropped, refused or cut, and why.
    """

    def __init__(
        self,
        server_secret: bytes,
        listen_host: str,
        pair_port: int,
        queue_port: int,
        *,
        socks: str | None = None,
        rides: bool = False,
    ) -> None:
        """`server_secret`: the CURVE secret key of both bound sockets, 32 bytes. `listen_host`: a literal address of
        this machine, or 0.0.0.0, or :: (both kinds). A port of 0 means any. `socks`: "address:port" of a SOCKS5 proxy
        for everything that we dial. `rides`: our links may ride (`ride.py`), because all to whom we have one are told
        where we are reached; never with `socks`. Raises OldLibzmq (`sockets.py`).
        """
        allow_many_files()
        self.counts: Counter[str] = Counter()
        self.server_key = socket_options.public_key(server_secret)
        self._thread = threading.get_ident()
        self._socks = socks
        self._ports = (pair_port, queue_port)
        self._context = socket_options.new_context()
        self._gatekeeper = Gatekeeper(self._context, self.counts)
        common = (self._context, self._gatekeeper, self.counts, server_secret, listen_host)
        self._pair = PairDoor(*common, proxied=socks is not None)
        self._queue = QueueDoor(*common, proxied=socks is not None)
        self._ears = Ears()
        self._admitted: dict[str, Admission] = {}
        """By client key in Z85, as the core wants it; the gatekeeper's are those of links that are not shut."""
        self._bans = Bans()
        self._secret = server_secret
        self._rides = Rides(allowed=rides and socks is None)
        self._waiting = Waiting()
        self._patience = Patience()
        self._links: dict[bytes, Link] = {}
        self._callers: dict[bytes, Connection] = {}
        """Who is behind each routing id of the pair socket."""
        self._lines: dict[Line, bytes] = {}
        """Everything that we have dialled, with its link."""
        self._unsent: dict[Line, None] = {}
        """Where something waits to be sent with the next turn."""
        self._news: deque[Input] = deque()
        self._due = float("inf")
        """When some line wants to be tended."""
        self._turns = 0
        """How many there have been."""
        self._bell = Bell()
        self._watch = Watch((self._pair, self._queue), self.counts, self._bell.ring)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def gatekeeper_alive(self) -> bool:
        """False when nobody can come in any more. Connections that stand go on."""
        return self._gatekeeper.is_alive()

    @property
    def shut_out(self) -> int:
        """How many links are shut just now."""
        return len(self._bans)

    def bind(self) -> tuple[int, int]:
        """Open both doors; give the ports of pair and queue, which are others than asked for if those were taken.

        Raises CannotListen (`door.py`).
        """
        self._gatekeeper.start()
        ports = self._pair.bind(self._ports[0]), self._queue.bind(self._ports[1])
        self._ears.open(self._pair.socket, self._hear_pair)
        self._ears.attend(self._pair.monitor, self._pair.observe)
        self._ears.open(self._queue.socket, self._queue.hear)
        self._ears.attend(self._queue.monitor, self._queue.observe)
        self._ears.heed(self._bell.fileno(), self._bell.silence)
        self._watch.start()
        return ports

    def close(self) -> None:
        """Close everything; what was just sent has `LINGER_MS` to leave. It does not hang."""
        if self._closed:
            return
        self._closed = True
        self._watch.end()
        for line in self._lines:
            line.close(time.monotonic())
        self._ears.close()
        self._pair.close()
        self._queue.close()
        self._bell.close()
        if self._gatekeeper.stop():
            self._context.destroy(socket_options.LINGER_MS)

    def perform(self, effect: NetworkEffect) -> None:
        """Do it, or drop and count it. Never blocks, and raises nothing for what a peer or the network does."""
        assert threading.get_ident() == self._thread, "a libzmq socket belongs to one thread"
        match effect:
            case Dispatch(link, envelope):
                self._dispatch(link, envelope)
            case Publish(queue, envelope, links):
                self._publish(queue, envelope, links)
            case Reply(handle, envelope):
                self._reply(handle, envelope)
            case Admit():
                self._admit(effect)
            case Revoke(client_key):
                self._revoke(client_key)
            case Dial():
                self._dial(effect)
            case Hangup(link):
                self._hang_up(link)
            case _:
                assert_never(effect)

    def flush(self) -> None:
        """Send what waits in our lines, as far as the network takes it. `poll` does it too."""
        now = time.monotonic()
        for line in self._unsent:
            line.flush(now)
        self._unsent.clear()

    def complain(self, link: bytes, weight: float = 1) -> bool:
        """What came over this link was refused; True when that was once too often, and the link is shut for a while."""
        if not self._bans.strike(link, time.monotonic(), weight):
            return False
        self.counts["banned"] += 1
        self._open_door()
        for user, admission in self._admitted.items():
            if admission.link == link:
                self._throw_out(user, "cut.banned")
        if link in self._links:
            self._drop_lines(self._links[link])
            self._settle(link)
        self._due = min(self._due, self._bans.due)
        return True

    def reason(self, link: bytes) -> Literal["dialled", "accepted", "silent", "closed"]:
        """Why a link is up, or is not."""
        state = self._links.get(link)
        pair = state.pair if state is not None else None
        if state is None or not state.up:
            return "silent" if pair is not None and pair.silent else "closed"
        return "dialled" if not state.callers or (pair is not None and pair.up) else "accepted"

    def watch(self, fd: int, read: bool = True, write: bool = False) -> None:
        """Have `poll` tell when somebody else's descriptor is ready; call it again to change for what."""
        self._ears.watch(fd, read=read, write=write)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor, before it is closed. An unknown one is ignored."""
        self._ears.unwatch(fd)

    def poll(self, timeout_ms: int) -> tuple[list[Input], list[int]]:
        """Wait until something has come in or `timeout_ms` have passed; give inputs and the ready watched descriptors.

        At most `INPUTS_MAX` inputs; the rest comes with the next call, which then does not wait.
        """
        assert threading.get_ident() == self._thread, "a libzmq socket belongs to one thread"
        now = time.monotonic()
        until = now + timeout_ms / 1000
        while True:
            fds = self._turn(now, until)
            now = time.monotonic()
            if fds or self._news or now >= until:
                return [self._news.popleft() for _ in range(min(INPUTS_MAX, len(self._news)))], fds

    # --- one turn ---------------------------------------------------------------------------------------------------

    def _turn(self, now: float, until: float) -> list[int]:
        self._turns += 1
        self.flush()
        patience = 0 if self._news or self._ears.pending else max(0, min(until, self._due) - now)
        fds = self._ears.wait(patience)
        self._ears.read(INPUTS_MAX - len(self._news), TURN_BYTES_MAX)
        while self._pair.gone:
            self._left(self._pair.gone.popleft())
        self._queue.gone.clear()
        now = time.monotonic()
        for door, ear in ((self._pair, self._hear_pair), (self._queue, self._queue.hear)):
            if self._ears.is_dry(ear):
                door.dry_at = now
        if now >= self._due:
            self._tend(now)
        return fds

    def _tend(self, now: float) -> None:
        for link in self._bans.forgive(now):
            self._open_door()
            if link in self._links:
                self._dial_now(self._links[link])
        for link in self._rides.over(now):
            self._settle(link)
        for link in self._patience.over(now):
            if link in self._links and link not in self._bans:
                self._dial_now(self._links[link])
        self._due = min(self._bans.due, self._rides.due, self._patience.due)
        for line in self._lines:
            if now >= line.due():
                line.tend(now)
            self._due = min(self._due, line.due())

    # --- hearing ----------------------------------------------------------------------------------------------------

    def _hear_pair(self) -> int:
        frames, size = socket_options.receive(self._pair.socket)
        routing, envelope = frames[0].bytes, frames[1]
        user = str(envelope["User-Id"])
        caller = self._callers.get(routing)
        if caller is None or caller.user != user:
            caller = self._meet(routing, user, int(envelope.get(zmq.SRCFD)))
        if caller is not None:
            caller.read(size - wire_bytes(len(routing)))
        admission = self._gatekeeper.admitted.get(user)
        if admission is None:
            # It shook hands before its key was revoked, and speaks only now.
            self.counts["refused.revoked"] += 1
            if caller is not None:
                self._dismiss(caller, "cut.revoked")
        elif len(frames) == 3 and len(envelope) == HEADER_BYTES:
            self._hear_rider(Early(user, envelope.bytes, frames[2].bytes))
        elif len(envelope) or len(frames) != 2:
            self._take(frames[1:], Received(admission.link, envelope.bytes, routing))
        return size

    def _hear_rider(self, early: Early) -> None:
        """Something for another link of whoever speaks here. It has no handle: what is said on that link does not go
        back over this one. A forged header is a strike against the link that has carried it."""
        admitted = self._gatekeeper.admitted
        carrier, rider = admitted.get(early.carrier), admitted.get(_user(rider_of(early.header)))
        now = time.monotonic()
        if rider is None and carrier and carrier.queues and self._waiting.keep(replace(early, until=now + RIDE_S)):
            self.counts["early.ride"] += 1
            return
        if rider is None or carrier is None or not (rider.queues and carrier.queues):
            self.counts["refused.ride"] += 1
            return
        try:
            read_header(early.header, self._secret, z85.decode(early.carrier))
        except RemoteError:
            self.counts["refused.ride"] += 1
            self.complain(carrier.link)
        else:
            self._take([early.envelope], Received(rider.link, early.envelope))

    def _hear_line(self, line: Line) -> int:
        try:
            frames, size = line.receive(time.monotonic())
        finally:
            # A host that has answered is asked again sooner than it would have been given up.
            self._due = min(self._due, line.due())
        if frames is not None:
            if line.queues and frames.pop(0) not in line.queues:
                frames = []
            envelope = frames[-1] if frames else b""
            self._take(frames, Received(self._lines[line], envelope, queued=bool(line.queues)))
        return size

    def _take(self, frames: Sequence[object], received: Received) -> None:
        """Pass on what is exactly one envelope."""
        if len(frames) == 1 and 0 < len(received.envelope) <= ENVELOPE_BYTES_MAX:
            self._news.append(received)
        else:
            self.counts["dropped.shape"] += 1

    # --- inbound connections ----------------------------------------------------------------------------------------

    def _meet(self, routing: bytes, user: str, fd: int) -> Connection | None:
        """Learn who is behind a routing id that is new, or that somebody else has taken over."""
        former = self._callers.pop(routing, None)
        caller = self._pair.introduce(fd, user, routing)
        for stale in (former, caller):
            if stale is not None:
                self._left(stale)
        admission = self._gatekeeper.admitted.get(user)
        if caller is not None:
            caller.routing = routing
            self._callers[routing] = caller
            if admission is not None:
                self._settle_in(caller, admission.link)
                for extra in self._too_many(caller):
                    self._dismiss(extra, "cut.extra")
        return caller

    def _too_many(self, caller: Connection) -> list[Connection]:
        """Who has to go because this connection has come."""
        if not caller.guest:
            return self._pair.of(caller.user)[:-CALLERS_MAX]
        guests = self._pair.guests()
        return max(guests.values(), key=len)[:1] if sum(map(len, guests.values())) > GUESTS_MAX else []

    def _settle_in(self, caller: Connection, link: bytes) -> None:
        """Count this connection to a link, and dial back at once if our own half is down."""
        caller.link = link
        state, now = self._links.setdefault(link, Link()), time.monotonic()
        state.callers.append(caller)
        for line in state.lines:
            line.nudge(now)
            self._due = min(self._due, line.due())
        if state.dial is not None and state.pair is None and link not in self._bans:
            state.second_at = now + SECOND_S
            self._patience.forget(link)
            self._dial_now(state)
        self._settle(link)

    def _left(self, caller: Connection) -> None:
        """This connection is gone, or does not belong where it was counted."""
        if self._callers.get(caller.routing) is caller:
            del self._callers[caller.routing]
        link = self._links.get(caller.link)
        if link is not None and caller in link.callers:
            link.callers.remove(caller)
            if link.dial is not None and link.pair is None and not link.callers:
                link.second_at = 0.0  # whoever has gone first is gone
                self._put_off(caller.link, 0.0)
                self._doubt(link)
            self._settle(caller.link)

    def _dismiss(self, caller: Connection, reason: str) -> None:
        self.counts[reason] += 1
        self._pair.cut(caller)
        self._left(caller)

    def _settle_line(self, line: Line) -> None:
        """A line has come up or gone down, or has failed to."""
        self._due = min(self._due, line.due())
        if line not in self._lines:
            return
        link = self._lines[line]
        if line.up and not line.queues:
            self._dial_now(self._links[link])
            return
        if not line.queues:
            self._doubt(self._links[link])
            if line.silent:  # whoever does not answer there is not to be believed here; if it lives, it dials again
                for caller in self._links[link].callers.copy():
                    self._dismiss(caller, "cut.silent")
        self._tell_riders(line)
        self._settle(link)

    def _tell_riders(self, line: Line) -> None:
        """Others may ride on this line from now on, or no more; and its own link need not if it is up."""
        dial = self._links[self._lines[line]].dial
        if line.queues or dial is None:
            return
        if line.up:
            self._rides.end(dial.link)
        for link in (self._rides.offer if line.up else self._rides.withdraw)(dial, line):
            self._settle(link)

    def _doubt(self, state: Link) -> None:
        """A pair connection is lost: ask on what else there is to the same peer, and is seldom asked."""
        now = time.monotonic()
        for line in state.lines if state.pair is None else state.lines[1:]:
            line.doubt(now)
            self._due = min(self._due, line.due())

    def _settle(self, link: bytes) -> None:
        """Tell the core when a link has come up or gone down."""
        state = self._links.get(link)
        if state is None:
            return
        own = bool(state.callers) or (state.pair is not None and state.pair.up)
        up = own or self._rides.way(link) is not None
        if up != state.up:
            state.up = up
            self._news.append(LinkUp(link) if up else LinkDown(link))
        if state.dial is None and not state.callers:
            del self._links[link]

    # --- effects ----------------------------------------------------------------------------------------------------

    def _admit(self, admit: Admit) -> None:
        assert len(admit.client_key) == 32 and all(len(queue) == QUEUE_BYTES for queue in admit.queues)
        user = _user(admit.client_key)
        admission = Admission(admit.link, admit.queues, admit.guest)
        former = self._admitted.get(user)
        if former == admission:
            return
        self._admitted[user] = admission
        self._open_door()
        for early in self._waiting.take(admit.client_key, time.monotonic()):
            self._hear_rider(early)
        if former is None:
            return
        if admission.link in self._bans:
            self._throw_out(user, "cut.banned")
            return
        for caller in self._pair.of(user):
            self._left(caller)
            if caller.routing:
                self._callers[caller.routing] = caller
                self._settle_in(caller, admit.link)
        # XPUB cannot unsubscribe one connection from here; the subscriber comes back by itself, to the new queues.
        self._cut_subscribers(user, "cut.moved")

    def _revoke(self, client_key: bytes) -> None:
        user = _user(client_key)
        if self._admitted.pop(user, None) is not None:
            self._open_door()
            self._throw_out(user, "cut.revoked")

    def _open_door(self) -> None:
        """Let in, from the next handshake on, whom the core wants and nobody who is shut out."""
        self._gatekeeper.admit(
            MappingProxyType(
                {user: admission for user, admission in self._admitted.items() if admission.link not in self._bans}
            )
        )

    def _throw_out(self, user: str, reason: str) -> None:
        """Cut every connection of a key that is not let in any more."""
        for caller in self._pair.of(user):
            self._dismiss(caller, reason)
        self._cut_subscribers(user, reason)

    def _cut_subscribers(self, user: str, reason: str) -> None:
        for connection in self._queue.of(user):
            self.counts[reason] += 1
            self._queue.cut(connection)

    def _dial(self, dial: Dial) -> None:
        state = self._links.setdefault(dial.link, Link())
        if state.dial == dial:
            return
        same_pair = state.dial is not None and (
            replace(state.dial, queue_at=dial.queue_at, queues=dial.queues, second=dial.second) == dial
        )
        self._drop_lines(state, keep=1 if same_pair else 0)
        state.dial, now = dial, time.monotonic()
        self._patience.met(now)
        first_s = FIRST_S_CROWD if self._patience.crowded(now) else FIRST_S
        state.second_at = now + (SECOND_S if state.callers else first_s) if dial.second else 0.0
        self._patience.forget(dial.link)
        if dial.link not in self._bans:
            if state.pair is None or not state.pair.been_up:
                self._rides.begin(dial, now)
                self._due = min(self._due, self._rides.due)
            self._dial_now(state)

    def _dial_now(self, state: Link) -> None:
        """Open the lines that this link is to have: first the one to the peer, and once one of us has reached the other
        the one for its queues. Who is not let in yet, or is not there, is so asked once and not twice; until its queues
        are heard, the peer sends over the link."""
        dial, now = state.dial, time.monotonic()
        if dial is None:
            return
        if state.pair is None and now >= state.second_at:
            self._open(dial, state, 0, ())
        elif state.pair is None:
            self._put_off(dial.link, state.second_at)
        let_in = state.pair.up if state.pair is not None else bool(state.callers)
        wanted = dial.queue_at is not None and bool(dial.queues) and not (state.lines and state.lines[-1].queues)
        if let_in and wanted:
            if self._patience.crowd_is_over(dial.link, now):
                self._open(dial, state, len(state.lines), dial.queues)
            self._due = min(self._due, self._patience.due)
        if state.pair is not None:
            self._tell_riders(state.pair)
        self._settle(dial.link)

    def _open(self, dial: Dial, state: Link, place: int, queues: tuple[bytes, ...]) -> None:
        hear, settle, now = self._hear_line, self._settle_line, time.monotonic()
        line = Line(self._ears, dial, self.counts, now, hear, settle, queues=queues, socks=self._socks)
        state.lines.insert(place, line)
        self._lines[line] = dial.link
        self._due = min(self._due, line.due())

    def _put_off(self, link: bytes, until: float) -> None:
        self._patience.put_off(link, until)
        self._due = min(self._due, until)

    def _hang_up(self, link: bytes) -> None:
        state = self._links.get(link)
        if state is not None:
            self._drop_lines(state)
            state.dial = None
            self._patience.forget(link)
            self._settle(link)

    def _drop_lines(self, state: Link, keep: int = 0) -> None:
        """Close what was dialled, but for the line to the peer where that is to be kept."""
        now, keep = time.monotonic(), keep if state.pair is not None else 0
        for line in state.lines[keep:]:
            self._rides.end(self._lines[line])
            line.close(now)
            self._tell_riders(line)
            del self._lines[line]
        del state.lines[keep:]
        for line in state.lines:
            line.nudge(now)
            self._due = min(self._due, line.due())

    def _dispatch(self, link: bytes, envelope: bytes) -> None:
        state = self._links.get(link)
        if state is None or not state.up:
            self.counts["dropped.down"] += 1
            return
        if not self._fits(envelope):
            return
        if (pair := state.pair) is not None and pair.send(envelope, time.monotonic()):
            self._unsent[pair] = None
            return
        for caller in reversed(state.callers.copy()):
            if self._call_back(caller, envelope):
                return
        way = self._rides.way(link)
        if way is not None and way[0].send(envelope, time.monotonic(), header=way[1]):
            self._unsent[way[0]] = None
            return
        self.counts["dropped.full"] += 1

    def _reply(self, handle: bytes, envelope: bytes) -> None:
        caller = self._callers.get(handle)
        if caller is None:
            self.counts["dropped.down"] += 1
        elif self._fits(envelope) and not self._call_back(caller, envelope):
            self.counts["dropped.full"] += 1

    def _call_back(self, caller: Connection, envelope: bytes) -> bool:
        if caller.guest and self._waits_for(caller):
            self.counts["dropped.unread"] += 1
            return False
        self._ears.touched(self._hear_pair)
        try:
            sent = socket_options.send(self._pair.socket, [caller.routing, envelope])
        except zmq.ZMQError:
            self._left(caller)  # ROUTER_MANDATORY: EHOSTUNREACH
            return False
        caller.given += wire_bytes(len(envelope)) if sent else 0
        return sent

    def _waits_for(self, caller: Connection) -> bool:
        """Whether a guest has left too much unread. It is looked once in a turn, so that a welcome, which may be
        megabytes, goes whole or not at all."""
        if caller.refusing[0] != self._turns:
            acked = bytes_acked(caller)
            caller.refusing = self._turns, acked is not None and caller.waiting(acked) > UNREAD_BYTES_MAX
        return caller.refusing[1]

    def _publish(self, queue: bytes, envelope: bytes, links: tuple[bytes, ...]) -> None:
        assert len(queue) == QUEUE_BYTES
        waiting = [link for link in links if not self._queue.has_subscriber(queue, link)]
        for link in waiting:
            # Its subscription is still on its way, or it cannot dial us and has only the link that it let us open.
            self._dispatch(link, envelope)
        if (not links or len(waiting) < len(links)) and self._fits(envelope):
            self._ears.touched(self._queue.hear)
            if not socket_options.send(self._queue.socket, [queue, envelope]):
                self.counts["dropped.full"] += 1

    def _fits(self, envelope: bytes) -> bool:
        if 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            return True
        self.counts["dropped.size"] += 1
        return False


def _user(client_key: bytes) -> str:
    """A CURVE client key as libzmq and the gatekeeper name it."""
    return z85.encode(client_key).decode()
