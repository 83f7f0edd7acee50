"""The nearby thread: announces, hears, and holds sessions; its owner gives it hosts and takes what it found.

A listener accepts from each address `SESSIONS_PER_MINUTE` sessions a minute and `SESSIONS_MAX` at a time in all, of
`SESSION_S` each, and none from a global address that was not heard. A dialled session reaches only hosts on the same
network (SO_DONTROUTE): a forged source address makes no agent knock elsewhere.
"""

import asyncio
import ipaddress
import os
import random
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from zerochat.agent.nearby import announcement
from zerochat.agent.nearby.announcement import Announcement
from zerochat.agent.nearby.discovery import ANNOUNCE_JITTER, ANNOUNCE_S, EXPIRES_S, Announcer, Announcers
from zerochat.agent.nearby.multicast import MulticastSockets
from zerochat.agent.nearby.networks import Network, networks
from zerochat.agent.nearby.session import (
    KEY_BYTES,
    OFFER_BYTES_MAX,
    SEAL_BYTES,
    WHEREABOUTS_BYTES,
    Ports,
    Role,
    Session,
    Whereabouts,
)
from zerochat.agent.network.addresses import source_prefix
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import Malformed, RemoteError

SESSION_S: Final = 5.0
SESSIONS_MAX: Final = 16
SESSIONS_PER_MINUTE: Final = 12
"""From one address: an agent opens one at each change of its hosts or its key."""
SOURCES_MAX: Final = 1_024
TICK_S: Final = 0.5
SCAN_S: Final = 10.0
"""Interfaces are looked up so often: a laptop wakes up in another network."""
DAY_S: Final = 86_400
UNANNOUNCED_S: Final = 300.0
"""A host whose announcements do not come through counts as nearby for so long after a session."""
PLACES_MAX: Final = 4
"""Addresses of one host: IPv4 and IPv6, on two networks."""
ANSWER_S: Final = 0.5
"""Who hears a new announcer announces itself within this time, not more often than each `ANSWER_EVERY_S`."""
ANSWER_EVERY_S: Final = 1.0
LENGTH_BYTES: Final = 2
STOP_S_MAX: Final = 2.0


class Place(Struct, frozen=True):
    """Where a host is on this network."""

    address: str
    """The address that has proved the host's server key; an IPv6 link-local one has its zone."""
    ports: Ports


class Found(Struct, frozen=True):
    """The places of a host have changed."""

    host: bytes
    places: tuple[Place, ...]
    """At most `PLACES_MAX`; empty: it is no longer nearby."""


class NearbyThread:
    """Started by its owner, which calls `set_hosts`, `take` and `stop` from its own thread."""

    def __init__(
        self, ports: Ports, hosts: Mapping[bytes, bytes], allowed: Callable[[Network], bool], wake: Callable[[], None]
    ) -> None:
        """`ports`: of our sockets. `hosts`: the tokens of known hosts by server key (`session.token`). `allowed`:
        whether to announce on a network. `wake`: called when `take` has something new."""
        self.counts: Counter[str] = Counter()
        self._ports, self._hosts, self._allowed, self._wake = ports, dict(hosts), allowed, wake
        self._events: deque[Found] = deque()
        self._heard = Announcers()
        self._found: dict[bytes, dict[Place, float]] = {}
        """By host: its places, and until when each is believed."""
        self._open: dict[str, MulticastSockets] = {}
        """By network id."""
        self._sources: dict[str, list[float]] = {}
        """When each address has opened sessions in the last minute."""
        self._sessions = 0
        self._secret, self._key, self._day = b"", b"", -1
        self._port = {socket.AF_INET: 0, socket.AF_INET6: 0}
        self._announce_at = self._announced_at = self._scan_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="zerochat-nearby", daemon=True)

    # --- from the owner's thread ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(STOP_S_MAX)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def networks(self) -> list[Network]:
        """Those on which we announce."""
        return [one.network for one in list(self._open.values())]

    @property
    def announcers(self) -> int:
        """The keys that are heard now, known or not."""
        return len(self._heard)

    def set_hosts(self, hosts: Mapping[bytes, bytes]) -> None:
        """Know other hosts from now on."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set_hosts, dict(hosts))

    def take(self) -> list[Found]:
        """The news since the last call."""
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.set_exception_handler(self._fault)
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:  # noqa: BLE001  # the agent goes on without it, and `status` says so
            self.counts["nearby.died"] += 1
        finally:
            self._wake()

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self.counts["nearby.fault"] += 1

    async def _serve(self) -> None:
        servers = [one for family in (socket.AF_INET, socket.AF_INET6) if (one := await self._listen(family))]
        try:
            while not self._end.is_set():
                self._tick(time.monotonic())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._end.wait(), TICK_S)
        finally:
            for server in servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for sockets in self._open.values():
                self._close(sockets)

    async def _listen(self, family: socket.AddressFamily) -> asyncio.Server | None:
        """Accept sessions at any port; None: the machine has no such addresses."""
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 0))  # noqa: S104  # networks come and go
        except OSError:
            return None
        self._port[family] = listener.getsockname()[1]
        return await asyncio.start_server(self._accepted, sock=listener, backlog=SESSIONS_MAX, limit=OFFER_BYTES_MAX)

    def _tick(self, now: float) -> None:
        day = int(time.time()) // DAY_S
        if now >= self._scan_at:
            self._scan_at = now + SCAN_S
            self._scan()
        if day != self._day:
            self._new_key(day)
        self._expire(now)
        while self._sessions < SESSIONS_MAX and (due := self._heard.take_due(now)) is not None:
            self._spawn(self._dial(due))
        if now >= self._announce_at:
            self._announced_at = now
            self._announce_at = now + ANNOUNCE_S * random.uniform(1 - ANNOUNCE_JITTER, 1 + ANNOUNCE_JITTER)  # noqa: S311
            for sockets in self._open.values():
                self._announce(sockets)

    def _announce(self, sockets: MulticastSockets) -> None:
        for family, port in self._port.items():
            if port:
                self.counts["nearby.announced"] += sockets.send(Announcement(port, self._key).encode(), family)

    def _new_key(self, day: int) -> None:
        """A new key for a new day or network. What was found stays: the hosts are still there."""
        self._day, self._secret = day, os.urandom(KEY_BYTES)
        self._key = x25519_public(self._secret)
        self._heard.clear()

    def _scan(self) -> None:
        """Join the allowed networks, and leave those that are gone."""
        present = {one.id: one for one in networks() if self._allowed(one)}
        gone = [id_ for id_, sockets in self._open.items() if present.get(id_) != sockets.network]
        new = [one for id_, one in present.items() if id_ not in self._open or id_ in gone]
        for id_ in gone:
            self._close(self._open.pop(id_))
        for network in new:
            sockets = self._open[network.id] = MulticastSockets(network)
            for receiver in sockets.receivers:
                self._loop.add_reader(receiver, self._hear, sockets, receiver)
        if gone or new:
            self._new_key(self._day)
            self._announce_at = 0.0

    def _close(self, sockets: MulticastSockets) -> None:
        for receiver in sockets.receivers:
            self._loop.remove_reader(receiver)
        sockets.close()

    def _hear(self, sockets: MulticastSockets, receiver: socket.socket) -> None:
        now = time.monotonic()
        for packet, source in sockets.receive(receiver):
            try:
                heard = announcement.decode(packet)
            except Malformed:
                self.counts["nearby.malformed"] += 1
                continue
            if heard.key == self._key:
                continue
            known = len(self._heard)
            if not self._heard.hear(source, heard, self._key, now):
                self.counts["nearby.no_room"] += 1
            elif len(self._heard) > known:
                soon = max(now + random.uniform(0, ANSWER_S), self._announced_at + ANSWER_EVERY_S)  # noqa: S311
                self._announce_at = min(self._announce_at, soon)

    def _set_hosts(self, hosts: dict[bytes, bytes]) -> None:
        new = hosts.keys() - self._hosts.keys()
        self._hosts = hosts
        for host in self._found.keys() - hosts.keys():
            del self._found[host]
            self._tell(host)
        if new:
            self._heard.start_anew(time.monotonic())

    def _expire(self, now: float) -> None:
        self._heard.expire(now)
        heard = {(one.host, one.address): one.heard_at + EXPIRES_S for one in self._heard.all if one.host}
        for host, places in list(self._found.items()):
            ends = {place: heard.get((host, place.address), until) for place, until in places.items()}
            believed = {place: until for place, until in ends.items() if until >= now}
            self._found[host] = believed
            if not believed:
                del self._found[host]
            if len(believed) < len(places):
                self._tell(host)

    def _tell(self, host: bytes) -> None:
        self._events.append(Found(host, tuple(self._found.get(host, ()))))
        self._wake()

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, announcer: Announcer) -> None:
        self._sessions += 1
        self.counts["nearby.dialled"] += 1
        hosts = self._hosts
        session = Session(Role.DIALER, announcer.announcement.key, hosts, os.urandom)
        try:
            async with asyncio.timeout(SESSION_S):
                reader, writer = await self._connect(announcer.address, announcer.announcement.port)
                found = await self._hold(session, reader, writer, announcer.address)
            if found is None and hosts is not self._hosts:
                self._heard.failed(announcer, time.monotonic())  # it may be one of the new hosts
            else:
                self._heard.ended(announcer, None if found is None else found[0])
        except (OSError, EOFError, RemoteError, asyncio.LimitOverrunError):
            self.counts["nearby.failed"] += 1
            self._heard.failed(announcer, time.monotonic())
        finally:
            self._sessions -= 1

    async def _connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = _connection(address)
        try:
            await self._loop.sock_connect(connection, (address, port))
            return await asyncio.open_connection(sock=connection, limit=OFFER_BYTES_MAX)
        except BaseException:
            connection.close()
            raise

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        address = peer[0] if len(peer) < 4 or not peer[3] or "%" in peer[0] else f"{peer[0]}%{peer[3]}"
        is_here = self._heard.knows(address) or not ipaddress.ip_address(peer[0].partition("%")[0]).is_global
        if not is_here or self._sessions >= SESSIONS_MAX or not self._may_open(source_prefix(peer[0])):
            self.counts["nearby.refused"] += 1
            writer.close()
            return
        self._sessions += 1
        session = Session(Role.LISTENER, self._key, self._hosts, os.urandom, secret=self._secret)
        try:
            async with asyncio.timeout(SESSION_S):
                found = await self._hold(session, reader, writer, address)
            if found is not None:
                self._heard.accepted(address, found[1], found[0])
        except (OSError, EOFError, RemoteError, asyncio.LimitOverrunError):
            self.counts["nearby.failed"] += 1
        finally:
            self._sessions -= 1

    def _may_open(self, source: str) -> bool:
        """Whether this address may open another session now."""
        now = time.monotonic()
        if source not in self._sources and len(self._sources) >= SOURCES_MAX:
            self._sources = {one: times for one, times in self._sources.items() if now - times[-1] < 60}
            if len(self._sources) >= SOURCES_MAX:
                return False
        times = self._sources[source] = [at for at in self._sources.get(source, []) if now - at < 60]
        if len(times) >= SESSIONS_PER_MINUTE:
            return False
        times.append(now)
        return True

    async def _hold(
        self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> tuple[bytes, bytes] | None:
        """The server key of the other side and the key that it announces; None: we do not know each other."""
        try:
            writer.write(session.hello)
            session.receive_hello(await reader.readexactly(KEY_BYTES))
            _write(writer, session.offer())
            host = session.receive_offer(await _read(reader, OFFER_BYTES_MAX))
            if host is None:
                return None
            _write(writer, session.whereabouts(Whereabouts(self._ports, self._key)))
            theirs = session.receive_whereabouts(await _read(reader, WHEREABOUTS_BYTES + SEAL_BYTES))
            await writer.drain()
        finally:
            writer.close()
        self._find(host, Place(address, theirs.ports))
        return host, theirs.key

    def _find(self, host: bytes, place: Place) -> None:
        """This place comes first, and takes that of an older one at its address."""
        now = time.monotonic()
        known = {one: until for one, until in self._found.get(host, {}).items() if one.address != place.address}
        before = tuple(self._found.get(host, ()))
        self._found[host] = {place: now + UNANNOUNCED_S, **dict(list(known.items())[: PLACES_MAX - 1])}
        if tuple(self._found[host]) != before:
            self._tell(host)


def _connection(address: str) -> socket.socket:
    """A socket that reaches only hosts on a network of this machine."""
    new = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    new.setblocking(False)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
    return new


def _write(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(LENGTH_BYTES, "big") + message)


async def _read(reader: asyncio.StreamReader, size_max: int) -> bytes:
    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    if size > size_max:
        raise Malformed(why="a message that is too long")
    return await reader.readexactly(size)
