"""Mediator service: an event loop with group commits.

The transaction dominates the cost, because it waits for the disk; envelopes that arrive meanwhile share the next one.
An envelope is confirmed only when it is on disk. When the disk fails, senders get 503 and retry.
"""

import os
import select
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from math import inf
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.mediator import mixing
from zerochat.agent.mediator.core import Mediator
from zerochat.agent.mediator.identity import (
    MediatorIdentity,
    last_port,
    load_identity,
    nearest_relay,
    open_store,
    public_uri,
)
from zerochat.agent.mediator.limits import DAY_S, Limits
from zerochat.agent.mediator.mixing import MixPeers, MixRequest, parse_mediator_invitation
from zerochat.agent.mediator.outcomes import UNANSWERED, Dispatch, Outcome
from zerochat.agent.mediator.sessions import Policy, Session
from zerochat.agent.mediator.store import Store
from zerochat.agent.mediator.upstream import Upstream, UpstreamSnapshot, live_uri
from zerochat.agent.network.addresses import own_address, parse_listen, remembered_addresses
from zerochat.agent.network.descriptors import WakeupPipe, raise_file_limit
from zerochat.agent.network.web import Arrived, Closed, Delivered, Failed, Opened, Web, WebEvent, WebFailed
from zerochat.agent.network.web.events import ENCRYPTED
from zerochat.agent.network.web.limits import Limits as WebLimits
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import JournalKey, lock_profile
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.protocols import relayed_post, short_links
from zerochat.errors import LocalError, RemoteError

LISTEN: Final = "0.0.0.0"  # noqa: S104  # a mediator serves others
SWEEP_S: Final = 30
REPORT_S: Final = 60
HEAVIEST_SHOWN: Final = 3
"""Recipients in a report, by the work that they have caused."""
IDLE_S: Final = 1.0
"""Longest wait, after which signals and clocks are checked."""
SHORT_LINK_S: Final = 3650 * DAY_S
FULL_PAUSE_S: Final = 1.0
"""Pause after a failed transaction."""
UNKNOWN_CLIENT_S: Final = 60.0
"""Lifetime of a session without an authenticated recipient: senders need no long session."""


class MediatorFault(LocalError):
    """Internal error in zerochat ({what}). The last messages were not accepted, and their senders will retry."""


class ServiceOptions(Struct, frozen=True):
    """Options of a mediator."""

    listen: str | None = None
    """HOST or HOST:PORT; None: the one given last, or else all addresses; without a port, with that of the last
    start."""
    public_uri: str | None = None
    is_open: bool = False
    new_invitation: bool = False
    """Replace all invitations."""
    further_invitation: bool = False
    """Create one beside the others."""
    uses: int | None = None
    """Recipients that the newest invitation admits; None: as before."""
    mix_with: tuple[str, ...] = ()
    """Invitations of other mediators for detours."""
    behind: str | None = None
    """Invitation of the upstream mediator."""
    noise_chance: float = 0.0
    relay_near: AddressKind = AddressKind.PUBLIC
    """The nearest kind of address that messages are relayed to, where the mediator's own is not as near."""
    tls: tuple[str, str] | None = None
    socks: str | None = None
    ca_file: str | None = None


class Service:
    """A mediator: `start`, then `serve` until `stop`, which is the only method for other threads."""

    def __init__(
        self,
        paths: ProfilePaths,
        key: JournalKey,
        options: ServiceOptions,
        *,
        limits: Limits | None = None,
        notify: Callable[[str, str, dict[str, object]], None] = lambda event, text, facts: None,
    ) -> None:
        """`notify` gets reports for the operator: the kind of event, a sentence, and data for programs."""
        self._paths, self._key, self._options, self._limits, self._notify = (
            paths,
            key,
            options,
            limits or Limits(),
            notify,
        )
        self._wakeup = WakeupPipe()
        self._open = ExitStack()
        self._open.callback(self._wakeup.close)
        self._stopping = False
        self._sessions: dict[int, Session] = {}
        self._retry: list[WebEvent] = []
        """Events of a failed transaction, to process again."""
        self._failing = False
        self._sweep_again = False
        """Whether the last sweep was incomplete."""
        self._next_sweep = 0.0
        self._next_report = time.monotonic() + REPORT_S
        self._reported: dict[str, int] = {}
        self._next_ask = 0.0
        self.identity: MediatorIdentity
        self.mediator: Mediator
        self._store: Store
        self._web: Web
        self._mixing: MixPeers
        self._upstream: Upstream | None = None
        self._upstream_uri = ""

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Lock the profile, open the store and the listener. Raises their LocalErrors, MediatorMoved and others; then
        everything is closed."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        options = self._options
        if options.public_uri is not None:
            public_uri(options.public_uri)
        raise_file_limit()
        self._open.enter_context(lock_profile(self._paths))
        self._store = self._open.enter_context(open_store(self._paths, self._key))
        wanted, _ = remembered_addresses(self._store, options.listen, None)
        host, port, _ = parse_listen(wanted or LISTEN)
        listen = f"{_literal(host)}:{port or last_port(self._store)}"
        known = self._store.meta_get("uri")
        home = known.decode() if known is not None else options.public_uri or f"http://{_literal(own_address(host))}"
        self._nearest = max(options.relay_near, nearest_relay(home))
        self._web = Web(
            listen,
            tls=options.tls,
            socks=options.socks,
            ca_file=options.ca_file,
            wake=self._wakeup.wake,
            limits=replace(WebLimits(), quiet_s=inf),  # this loop limits sessions
        )
        [bound] = self._web.start()
        self._open.callback(self._web.stop)
        parts = urlsplit(bound)
        uri = f"{parts.scheme}://{_literal(own_address(host))}:{parts.port}"
        self.identity = load_identity(
            self._store,
            uri,
            options.public_uri,
            parts.port or 0,
            new_invitation=options.new_invitation,
            further_invitation=options.further_invitation,
            uses=options.uses,
            listen=options.listen,
            behind=options.behind,
        )
        if options.public_uri is None and self.identity.uri != uri:
            self._notify(
                "address",
                f"Advertised address: {self.identity.uri}. Listening on {bound}.",
                {"listen": bound},
            )
        self.mediator = Mediator(
            self._store,
            self.identity.identity,
            policy=self._policy(),
            uris=self.identity.uris,
            random=os.urandom,
            limits=self._limits,
            noise_chance=options.noise_chance,
        )
        self._mixing = MixPeers(options.mix_with, self.identity.identity.did, os.urandom)
        if self.identity.behind:
            node = parse_mediator_invitation(self.identity.behind)
            self._upstream = Upstream(node, self.identity.identity, os.urandom)
            self._upstream_uri = live_uri(node)
            self._web.hold(self._upstream_uri)
        for one in self.identity.invitations:
            self._web.publish_invitation(one.oobid, self.identity.link_of(one), SHORT_LINK_S)
        self._serve_links({oobid: (sealed, expires) for oobid, sealed, expires in self._store.links()})

    def _policy(self) -> Policy:
        own = self.identity
        admitted = {one.id: one.uses for one in own.invitations}
        return Policy(admitted, self._options.is_open, "" if own.behind else own.page)

    def serve(self) -> None:
        """Run until `stop`. Raises WebFailed when the web thread has ended."""
        while not self._stopping:
            select.select([self._wakeup], [], [], self._timeout_s())
            self._wakeup.drain()
            self._process()
            if time.monotonic() >= self._next_report:
                self.report()
            if not self._web.alive and not self._stopping:
                raise WebFailed(why="the web thread has ended")

    def report(self) -> None:
        """Report the counters, if they have changed."""
        self._next_report = time.monotonic() + REPORT_S
        counts = {name: count for name, count in {**self.mediator.counts, **self._web.counts}.items() if count}
        if counts == self._reported:
            return
        self._reported = counts
        total, recipients = self._store.usage.total, self._store.recipients()
        done = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        heaviest = [
            {"recipient": number, "bytes": kept.bytes, "written": work.written, "requests": work.requests}
            for number, kept, work in self._store.usage.heaviest(HEAVIEST_SHOWN)
        ]
        most = "; ".join("recipient {recipient}: {bytes}, {written}, {requests}".format(**row) for row in heaviest)
        self._notify(
            "counts",
            f"{_counted(recipients, 'recipient')}, {_counted(total.messages, 'stored message')} ({total.bytes} bytes)."
            f" Counters: {done}."
            f" Most work since the start (bytes stored, bytes written, requests): {most or 'none'}",
            {
                "recipients": recipients,
                "messages": total.messages,
                "bytes": total.bytes,
                "counts": counts,
                "heaviest": heaviest,
            },
        )

    def stop(self) -> None:
        """Stop soon. Callable from any thread and from signal handlers."""
        self._stopping = True
        self._wakeup.wake()

    def close(self) -> None:
        """Close everything; accepted messages are on disk."""
        self._open.close()

    def _timeout_s(self) -> float:
        if self._failing:
            return FULL_PAUSE_S
        next_due = self.mediator.next_due()
        pause = IDLE_S if next_due is None else min(next_due / 1000 - time.time(), IDLE_S)
        if self._sweep_again:
            pause = min(pause, 0.1)
        return max(pause, 0.01) if not self._retry else 0.0

    # --- one batch --------------------------------------------------------------------------------------------------

    def _process(self) -> None:
        events = [*self._retry, *self._web.take()]
        self._retry = []
        now_ms = time.time_ns() // 1_000_000
        before = self.mediator.in_flight()
        fetching = None if self._upstream is None else self._upstream.snapshot()
        try:
            outcomes, dispatches = self._apply(events, now_ms)
        except LocalError as error:
            self._undo(events, before, fetching, error)
            return
        except Exception as error:  # noqa: BLE001  # an internal error must not end the service
            self.mediator.counts["fault"] += 1
            self._undo(events, before, fetching, MediatorFault(what=type(error).__name__))
            return
        self._serve_links(self.mediator.handlers.links_changed)
        self.mediator.handlers.links_changed.clear()
        for handle, outcome in outcomes:
            self._answer(handle, outcome)
        self._keep_sessions({handle for handle, _ in outcomes})
        if self._upstream is not None:
            self._send_upstream(self._upstream, events, now_ms // 1000)
        try:
            for push in self.mediator.pushes(now_ms // 1000):
                self._web.answer(push.handle, push.envelope)
        except LocalError as error:  # the disk cannot be read: recipients fetch later
            self._notify("failing", error.sentence(), {"code": error.code})
        for dispatch in dispatches:
            self._dispatch(dispatch)
        self._relay_posts(events)
        self._mix(events, now_ms // 1000)

    def _apply(self, events: list[WebEvent], now_ms: int) -> tuple[list[tuple[int, Outcome]], list[Dispatch]]:
        """Process the events in one transaction, if there is anything to do."""
        next_due = self.mediator.next_due()
        sweeping = self._sweep_again or time.monotonic() >= self._next_sweep
        if not events and not sweeping and (next_due is None or next_due > now_ms):
            return [], []
        outcomes: list[tuple[int, Outcome]] = []
        with self._store.transaction():
            for item in events:
                match item:
                    case Arrived(handle=handle, way="post"):
                        outcomes.append((handle, self.mediator.receive(item.envelope, Session(handle, False), now_ms)))
                    case Arrived(uri=uri, way="session") if self._upstream is not None and uri == self._upstream_uri:
                        self._fetched(self._upstream, item, now_ms)
                    case Arrived(handle=handle, way="session"):
                        session = self._sessions.setdefault(handle, Session(handle, True, begun=time.monotonic()))
                        outcomes.append((handle, self.mediator.receive(item.envelope, session, now_ms)))
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
            self._cut_unknown_clients()
        return outcomes, dispatches

    def _fetched(self, upstream: Upstream, item: Arrived, now_ms: int) -> None:
        """Process messages stored by the upstream mediator like posted ones, without answers."""
        with suppress(RemoteError):
            parcels = upstream.receive(*self.mediator.opened(item.envelope))
            for parcel in parcels:
                self.mediator.receive(parcel.envelope, Session(item.handle, False), now_ms)
            upstream.acknowledge(parcels)

    def _keep_sessions(self, handles: set[int]) -> None:
        """Keep the sessions of authenticated recipients, of each the newest ones; cut its older ones."""
        for handle in handles:
            session = self._sessions.get(handle)
            if session is None or not session.owner or session.is_kept:
                continue
            session.is_kept = True
            self._web.keep(handle)
            theirs = [one for one in self._sessions.values() if one.is_kept and one.owner == session.owner]
            for old in sorted(theirs, key=lambda one: one.begun)[: -self.mediator.limits.live]:
                self._web.cut(old.handle)

    def _cut_unknown_clients(self) -> None:
        """Close sessions without an authenticated recipient, which would occupy places of recipients."""
        old = time.monotonic() - UNKNOWN_CLIENT_S
        for session in self._sessions.values():
            if not session.owner and session.begun < old:
                self.mediator.counts["unknown_clients"] += 1
                self._web.cut(session.handle)

    def _undo(
        self, events: list[WebEvent], before: dict[int, int], fetching: UpstreamSnapshot | None, error: LocalError
    ) -> None:
        """The transaction failed: refuse the envelopes, so that their senders retry, and keep the other events."""
        self.mediator.undo(before)
        if self._upstream is not None:
            self._upstream.undo(fetching)
        for item in events:
            match item:
                case Arrived(handle=handle, way="post" | "session"):
                    self._web.refuse(handle)
                case Delivered() | Failed() | Opened() | Closed():
                    self._retry.append(item)
        if not self._failing:
            self._notify("failing", error.sentence(), {"code": error.code})
        self._failing = True

    def _answer(self, handle: int, outcome: Outcome) -> None:
        if outcome.answer is not None:
            self._web.answer(handle, outcome.answer, outcome.media_type)
        self._web.accept(handle)
        if outcome.post is not None:
            self._dispatch(outcome.post)

    def _serve_links(self, changed: Mapping[str, tuple[bytes, int] | None]) -> None:
        """Serve the recipients' short links, and drop those without content."""
        for oobid, link in changed.items():
            if link is None:
                self._web.withdraw(oobid)
            elif (left_s := link[1] - time.time()) > 0:
                self._web.publish_document(oobid, short_links.document(link[0]), left_s)

    def _dispatch(self, dispatch: Dispatch) -> None:
        uri, envelope, media_type, ticket = dispatch.uri, dispatch.envelope, dispatch.media_type, dispatch.ticket
        if not self._web.send(uri, envelope, media_type, ticket, nearest=self._nearest):
            self._retry.append(Failed(dispatch.ticket, "queue"))

    def _relay_posts(self, events: list[WebEvent]) -> None:
        """Send the posts that recipients have requested, and report the results of earlier ones to them."""
        posts = self.mediator.handlers.posts
        for item in events:
            match item:
                case Arrived(way="reply"):
                    posts.answered(item.ticket, item.envelope)
                case Delivered(ticket):
                    self._report_post(ticket, "")
                case Failed(ticket, why):
                    self._report_post(ticket, why)
        for ticket, wanted in posts.take():
            nearest = min(wanted.nearest, self._nearest)
            uri, envelope, media_type = wanted.uri, wanted.envelope, wanted.media_type
            if not self._web.send(uri, envelope, media_type, ticket, return_route=True, nearest=nearest):
                self._report_post(ticket, relayed_post.BUSY)

    def _report_post(self, ticket: int, why: str) -> None:
        if (push := self.mediator.settle_post(ticket, why)) is not None:
            self._web.answer(push.handle, push.envelope)

    def _send_upstream(self, upstream: Upstream, events: list[WebEvent], now_s: int) -> None:
        """Confirm the fetched messages to the upstream mediator, and send it what is due."""
        for item in events:
            if isinstance(item, Arrived) and item.way == "session" and item.uri == self._upstream_uri:
                self._web.accept(item.handle)
        for message in upstream.due(now_s):
            with suppress(RemoteError):
                envelope = self.mediator.sealed(message, upstream.node.speaks)
                self._web.send(self._upstream_uri, envelope, ENCRYPTED, UNANSWERED, return_route=True)

    def _mix(self, events: list[WebEvent], now_s: int) -> None:
        requests: list[MixRequest] = []
        for item in events:
            if isinstance(item, Arrived) and item.way == "reply" and item.ticket == UNANSWERED:
                with suppress(RemoteError):
                    requests += self._mixing.receive(*self.mediator.opened(item.envelope))
        if time.monotonic() >= self._next_ask:
            self._next_ask = time.monotonic() + IDLE_S
            requests += self._mixing.due(now_s)
        for each in requests:
            message = mixing.addressed(each, self.identity.identity.did)
            with suppress(RemoteError):
                self._web.send(
                    each.uri, self.mediator.sealed(message, each.did), ENCRYPTED, UNANSWERED, return_route=True
                )
        self.mediator.mix_nodes = self._mixing.ready


def _literal(host: str) -> str:
    """An address in URI syntax."""
    return f"[{host}]" if ":" in host else host


def with_limits(limits: Limits, **wanted: int | None) -> Limits:
    """The limits with the given ones replaced."""
    return replace(limits, **{name: value for name, value in wanted.items() if value is not None})


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
