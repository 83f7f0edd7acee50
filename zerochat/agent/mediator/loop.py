"""The loop around a mediator: wait, hear everything that has come, write it in one transaction, and then answer.

The transaction is what costs time, because it waits for the disk; so while it does, whatever arrives is gathered, and
has the next one together. Nobody hears that something was accepted before it is on the disk. When the disk fails,
nobody hears anything but 503, and all of them repeat.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from math import inf
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.mediator import mixing
from zerochat.agent.mediator.core import Dispatch, Mediator, Outcome
from zerochat.agent.mediator.identity import Standing, is_public, open_store, public_uri, stand, usual_port
from zerochat.agent.mediator.limits import DAY_S, Limits
from zerochat.agent.mediator.mixing import Asked, Mixing, node_of
from zerochat.agent.mediator.protocol_handlers import Policy
from zerochat.agent.mediator.session import Session
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.upstream import Noted, Upstream, live_uri
from zerochat.agent.network.addresses import own_address, parse_listen
from zerochat.agent.network.file_limit import allow_many_files
from zerochat.agent.network.web import Arrived, Closed, Delivered, Failed, News, Opened, Web, WebFailed
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.agent.network.web.limits import Limits as WebLimits
from zerochat.agent.storage.paths import Places
from zerochat.agent.storage.profiles import JournalKey, lock_profile
from zerochat.errors import LocalError, RemoteError

LISTEN: Final = "0.0.0.0"  # noqa: S104  # a mediator is for others
SWEEP_S: Final = 30
REPORT_S: Final = 60
IDLE_S: Final = 1.0
"""The longest wait: signals and clocks are looked at this often."""
SHORT_LINK_S: Final = 3650 * DAY_S
FULL_PAUSE_S: Final = 1.0
"""After a turn that could not be written."""
STRANGER_S: Final = 60.0
"""How long a session stays over which no recipient has been heard: whoever posts need not stay."""


class MediatorFault(LocalError):
    """zerochat itself has a fault here ({what}): what came in just now was not taken, and its senders know that."""


class Wishes(Struct, frozen=True):
    """How somebody wants a mediator to be."""

    listen: str | None = None
    """HOST or HOST:PORT; None: all addresses, at the port of the last start."""
    public_uri: str | None = None
    is_open: bool = False
    new_invitation: bool = False
    mix_with: tuple[str, ...] = ()
    """The invitations of other mediators."""
    behind: str | None = None
    """The invitation of the mediator over which others shall write to this one."""
    noise_chance: float = 0.0
    tls: tuple[str, str] | None = None
    socks: str | None = None
    ca_file: str | None = None


class Service:
    """A running mediator. Make it, `start` it, `serve` until `stop`, all in one thread but the last."""

    def __init__(
        self,
        places: Places,
        key: JournalKey,
        wishes: Wishes,
        *,
        limits: Limits | None = None,
        say: Callable[[str, str, dict[str, object]], None] = lambda event, text, facts: None,
    ) -> None:
        """`say` hears what the operator should know: the kind of event, a sentence, and the facts for programs."""
        self._places, self._key, self._wishes, self._limits, self._say = places, key, wishes, limits or Limits(), say
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._open = ExitStack()
        self._open.callback(self._ear.close)
        self._open.callback(self._bell.close)
        self._stopping = False
        self._sessions: dict[int, Session] = {}
        self._again: list[News] = []
        """What could not be written the last time."""
        self._failing = False
        self._sweep_again = False
        """There may be more to take away than one sweep does."""
        self._next_sweep = 0.0
        self._next_report = time.monotonic() + REPORT_S
        self._reported: dict[str, int] = {}
        self._next_ask = 0.0
        self.standing: Standing
        self.mediator: Mediator
        self._store: Store
        self._web: Web
        self._mixing: Mixing
        self._upstream: Upstream | None = None
        self._upstream_uri = ""

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Own the profile, open the store and the listener. Raises LocalErrors of all three, MediatorMoved and so on;
        then nothing is left open."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        wishes = self._wishes
        if wishes.public_uri is not None:
            public_uri(wishes.public_uri)
        allow_many_files()
        self._open.enter_context(lock_profile(self._places))
        self._store = self._open.enter_context(open_store(self._places, self._key))
        host, port, _ = parse_listen(wishes.listen or LISTEN)
        listen = wishes.listen if port and wishes.listen else f"{_literal(host)}:{usual_port(self._store)}"
        known = self._store.meta_get("uri")
        home = known.decode() if known is not None else wishes.public_uri or f"http://{_literal(own_address(host))}"
        self._web = Web(
            listen,
            tls=wishes.tls,
            socks=wishes.socks,
            ca_file=wishes.ca_file,
            wake=self._ring,
            limits=replace(WebLimits(), quiet_s=inf),  # sessions are looked after here
            only_public=is_public(home),
        )
        [bound] = self._web.start()
        self._open.callback(self._web.stop)
        parts = urlsplit(bound)
        uri = f"{parts.scheme}://{_literal(own_address(host))}:{parts.port}"
        self.standing = stand(
            self._store,
            uri,
            wishes.public_uri,
            parts.port or 0,
            new_invitation=wishes.new_invitation,
            behind=wishes.behind,
        )
        if wishes.public_uri is None and self.standing.uri != uri:
            self._say(
                "address",
                f"Others know this mediator as {self.standing.uri}; it listens at {bound}.",
                {"listen": bound},
            )
        self.mediator = Mediator(
            self._store,
            self.standing.identity,
            policy=Policy(self.standing.invitation, wishes.is_open),
            uris=self.standing.uris,
            random=os.urandom,
            limits=self._limits,
            noise_chance=wishes.noise_chance,
        )
        self._mixing = Mixing(wishes.mix_with, self.standing.identity.did, os.urandom)
        if self.standing.behind:
            node = node_of(self.standing.behind)
            self._upstream = Upstream(node, self.standing.identity, os.urandom)
            self._upstream_uri = live_uri(node)
            self._web.hold(self._upstream_uri)
        self._web.publish_invitation(self.standing.oobid, self.standing.link, SHORT_LINK_S)

    def serve(self) -> None:
        """Until `stop`. Raises WebFailed when the web thread has died."""
        while not self._stopping:
            select.select([self._ear], [], [], self._patience())
            with suppress(BlockingIOError):
                self._ear.recv(4096)
            self._turn()
            if time.monotonic() >= self._next_report:
                self.report()
            if not self._web.alive and not self._stopping:
                raise WebFailed(why="it has ended by itself")

    def report(self) -> None:
        """Say what has been done since the start, if anything was since the last time."""
        self._next_report = time.monotonic() + REPORT_S
        counts = {name: count for name, count in {**self.mediator.counts, **self._web.counts}.items() if count}
        if counts == self._reported:
            return
        self._reported = counts
        total, recipients = self._store.total, self._store.recipients()
        done = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        self._say(
            "counts",
            f"{recipients} recipients, {total.messages} messages waiting ({total.bytes} bytes); so far: {done}",
            {"recipients": recipients, "messages": total.messages, "bytes": total.bytes, "counts": counts},
        )

    def stop(self) -> None:
        """End soon. For any thread, and for signal handlers."""
        self._stopping = True
        self._ring()

    def close(self) -> None:
        """Let go of everything; what was accepted is on disk already."""
        self._open.close()

    def _ring(self) -> None:
        with suppress(OSError):  # full: it will be heard; closed: nobody is left to hear
            self._bell.send(b"!")

    def _patience(self) -> float:
        if self._failing:
            return FULL_PAUSE_S
        next_due = self.mediator.next_due()
        pause = IDLE_S if next_due is None else min(next_due / 1000 - time.time(), IDLE_S)
        if self._sweep_again:
            pause = min(pause, 0.1)
        return max(pause, 0.01) if not self._again else 0.0

    # --- a turn -----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        news = [*self._again, *self._web.take()]
        self._again = []
        now_ms = time.time_ns() // 1_000_000
        before = self.mediator.under_way()
        fetching = None if self._upstream is None else self._upstream.noted()
        try:
            heard, dispatches = self._written(news, now_ms)
        except LocalError as error:
            self._undo(news, before, fetching, error)
            return
        except Exception as error:  # noqa: BLE001  # a fault of ours, which somebody has found: it must cost nobody else
            self.mediator.counts["fault"] += 1
            self._undo(news, before, fetching, MediatorFault(what=type(error).__name__))
            return
        for handle, outcome in heard:
            self._answer(handle, outcome)
        if self._upstream is not None:
            self._talk(self._upstream, news, now_ms // 1000)
        try:
            for push in self.mediator.pushes(now_ms // 1000):
                self._web.answer(push.handle, push.envelope)
        except LocalError as error:  # the disk cannot be read: they will be asked for
            self._say("failing", error.sentence(), {"code": error.code})
        for dispatch in dispatches:
            self._dispatch(dispatch)
        self._mix(news, now_ms // 1000)

    def _written(self, news: list[News], now_ms: int) -> tuple[list[tuple[int, Outcome]], list[Dispatch]]:
        """Everything that happens in one turn of the store, if anything does."""
        next_due = self.mediator.next_due()
        sweeping = self._sweep_again or time.monotonic() >= self._next_sweep
        if not news and not sweeping and (next_due is None or next_due > now_ms):
            return [], []
        heard: list[tuple[int, Outcome]] = []
        with self._store.turn():
            for item in news:
                match item:
                    case Arrived(handle=handle, way="post"):
                        heard.append((handle, self.mediator.hear(item.envelope, Session(handle, False), now_ms)))
                    case Arrived(uri=uri, way="session") if self._upstream is not None and uri == self._upstream_uri:
                        self._fetched(self._upstream, item, now_ms)
                    case Arrived(handle=handle, way="session"):
                        session = self._sessions.setdefault(handle, Session(handle, True, begun=time.monotonic()))
                        heard.append((handle, self.mediator.hear(item.envelope, session, now_ms)))
                    case Delivered(ticket) | Failed(ticket):
                        if ticket > 0:
                            why = item.why if isinstance(item, Failed) else None
                            self.mediator.dispatched(ticket, why, now_ms)
                    case Opened(uri=uri) if self._upstream is not None and uri == self._upstream_uri:
                        self._upstream.opened(now_ms // 1000)
                    case Closed(uri=uri) if self._upstream is not None and uri == self._upstream_uri:
                        self._upstream.closed()
                    case Opened(handle):
                        self._sessions[handle] = Session(handle, True, begun=time.monotonic())
                    case Closed(handle):
                        if (gone := self._sessions.pop(handle, None)) is not None:
                            self.mediator.closed(gone)
            if sweeping:
                self._sweep_again = self.mediator.sweep(now_ms // 1000)
            dispatches = self.mediator.due(now_ms)
        self._failing = False
        if sweeping:
            self._next_sweep = time.monotonic() + SWEEP_S
            self._cut_strangers()
        return heard, dispatches

    def _fetched(self, upstream: Upstream, item: Arrived, now_ms: int) -> None:
        """What the mediator before us has for us is heard like what is posted here, and nobody waits for an answer."""
        with suppress(RemoteError):
            parcels = upstream.heard(*self.mediator.opened(item.envelope))
            for parcel in parcels:
                self.mediator.hear(parcel.envelope, Session(item.handle, False), now_ms)
            upstream.acknowledge(parcels)

    def _cut_strangers(self) -> None:
        """Whoever holds connections and is nobody's recipient takes the places of those who are."""
        old = time.monotonic() - STRANGER_S
        for session in self._sessions.values():
            if not session.is_known and session.begun < old:
                self.mediator.counts["strangers"] += 1
                self._web.cut(session.handle)

    def _undo(self, news: list[News], before: dict[int, int], fetching: Noted | None, error: LocalError) -> None:
        """Nothing of it has happened: whoever posted hears so, and what can be kept in mind is tried again."""
        self.mediator.undo(before)
        if self._upstream is not None:
            self._upstream.undo(fetching)
        for item in news:
            match item:
                case Arrived(handle=handle, way="post" | "session"):
                    self._web.refuse(handle)
                case Delivered() | Failed() | Opened() | Closed():
                    self._again.append(item)
        if not self._failing:
            self._say("failing", error.sentence(), {"code": error.code})
        self._failing = True

    def _answer(self, handle: int, outcome: Outcome) -> None:
        if outcome.answer is not None:
            self._web.answer(handle, outcome.answer, outcome.media_type)
        self._web.accept(handle)

    def _dispatch(self, dispatch: Dispatch) -> None:
        if not self._web.send(dispatch.uri, dispatch.envelope, dispatch.media_type, dispatch.ticket):
            self._again.append(Failed(dispatch.ticket, "queue"))

    def _talk(self, upstream: Upstream, news: list[News], now_s: int) -> None:
        """What came from the mediator before us is written: it hears so, and whatever else it is to hear."""
        for item in news:
            if isinstance(item, Arrived) and item.way == "session" and item.uri == self._upstream_uri:
                self._web.accept(item.handle)
        for message in upstream.due(now_s):
            with suppress(RemoteError):
                envelope = self.mediator.sealed(message, upstream.node.speaks)
                self._web.send(self._upstream_uri, envelope, ENCRYPTED, -1, return_route=True)

    def _mix(self, news: list[News], now_s: int) -> None:
        asked: list[Asked] = []
        for item in news:
            if isinstance(item, Arrived) and item.way == "reply":
                with suppress(RemoteError):
                    asked += self._mixing.heard(*self.mediator.opened(item.envelope))
        if time.monotonic() >= self._next_ask:
            self._next_ask = time.monotonic() + IDLE_S
            asked += self._mixing.due(now_s)
        for each in asked:
            message = mixing.addressed(each, self.standing.identity.did)
            with suppress(RemoteError):
                self._web.send(each.uri, self.mediator.sealed(message, each.did), ENCRYPTED, -1, return_route=True)
        self.mediator.mix_nodes = self._mixing.ready


def _literal(host: str) -> str:
    """An address as it stands in a URI."""
    return f"[{host}]" if ":" in host else host


def with_limits(limits: Limits, **wanted: int | None) -> Limits:
    """The limits with those that somebody has named."""
    return replace(limits, **{name: value for name, value in wanted.items() if value is not None})
