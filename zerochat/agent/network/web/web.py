"""`Web`: the owner's side of DIDComm over HTTP(S) and WebSocket, used by one thread of an agent or mediator.

Only `start` and `stop` block. Envelopes handed over and not settled yet are counted on this side, without a lock, until
`take` returns their result. So `send` knows at once whether there is room.
"""

import errno
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.network.addresses import BadAddress, parse_listen
from zerochat.agent.network.port_holder import port_holder
from zerochat.agent.network.web.event_loop import parse_proxy
from zerochat.agent.network.web.event_queue import EventQueue
from zerochat.agent.network.web.events import (
    ENCRYPTED,
    Arrived,
    Closed,
    Delivered,
    Failed,
    Flushed,
    Opened,
    OutboundEnvelope,
    PostTimedOut,
    SendFinished,
    ThreadEvent,
    WebEvent,
)
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.tls import client_context, server_context
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.agent.network.web.thread import WebThread

START_S_MAX = 15.0
STOP_S_MAX = 3.0
EVENTS_MAX = 256
"""Events of one `take`: one batch for the owner, one transaction for its journal."""
EVENTS_BYTES_MAX = 8 * 1024 * 1024


class CannotListenForWeb(LocalError):
    """Cannot listen for HTTP on {address}: {why}. Choose another port, or an address of this machine."""

    exit_code: ClassVar[int] = 6


class WebFailed(LocalError):
    """The HTTP service did not start: {why}. Start zerochat again; if that does not help, reinstall it."""

    exit_code: ClassVar[int] = 6


class QueueUsage(Struct):
    """The unsettled envelopes of one URI or one reply channel."""

    messages: int = 0
    bytes: int = 0
    given: int = 0
    """Of a channel: envelopes that `take` has returned and the owner has not accepted."""
    once: bool = False
    """Whether it is a POST, which has one response."""


class Web:
    """The web transport of one agent or mediator.

    Envelopes are addressed by handle or URI. An envelope that has arrived must be accepted (`accept`, `answer`,
    `refuse`) within `Limits.accept_s`, after it was written to disk: only then does its sender get a confirmation.
    """

    def __init__(
        self,
        listen: str | None,
        *,
        tls: tuple[str, str] | None = None,
        socks: str | None = None,
        ca_file: str | None = None,
        wake: Callable[[], None],
        limits: Limits | None = None,
    ) -> None:
        """`listen`: HOST or HOST:PORT, a literal address, any port if none is given; None: outgoing connections only.

        `tls`: paths of a PEM certificate chain and its key, for https and wss. `socks`: "ADDRESS:PORT" of a SOCKS5
        proxy for all outgoing connections, including name resolution. `ca_file`: CAs to trust in addition to the
        system's. `wake` is called in another thread when there are events to take, and must not block. Raises
        BadAddress, BadCertificate, BadProxy.
        """
        self.limits = limits or Limits()
        self._listen: tuple[str, int] | None = None
        if listen is not None:
            host, port, second = parse_listen(listen)
            if second:
                raise BadAddress(text=listen, why="HTTP uses one port, not two")
            self._listen = host, port
        self._server_tls = server_context(*tls) if tls is not None else None
        self._client_tls = client_context(ca_file)
        self._proxy = parse_proxy(socks) if socks is not None else None
        self._wake = wake
        self._events = EventQueue(wake, self.limits)
        self._web_thread: WebThread | None = None
        self._thread: threading.Thread | None = None
        self._serial = 0
        self._sent: dict[int, tuple[QueueUsage, str, int, int]] = {}
        """By serial: its usage record, the URI (empty: sent on a channel), its size, and the owner's ticket."""
        self._uris: dict[str, QueueUsage] = {}
        self._channels: dict[int, QueueUsage] = {}
        self._held: set[str] = set()
        self._total = 0
        self._own: list[WebEvent] = []
        """WebEvent that needed no thread."""

    @property
    def counts(self) -> Counter[str]:
        """Counters `web.*` of what was refused, cut or lost."""
        return self._events.counts

    @property
    def alive(self) -> bool:
        """False before `start`, after `stop`, and when the thread has died."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> list[str]:
        """Start the thread; the URI that it listens on, if any. Raises CannotListenForWeb or WebFailed."""
        assert self._web_thread is None, "started twice"
        from zerochat.agent.network.web.thread import WebConfig, WebThread

        self._web_thread = WebThread(
            WebConfig(self._listen, self._server_tls, self._client_tls, self._proxy, self.limits),
            self._events,
        )
        self._thread = threading.Thread(target=self._web_thread.run, name="zerochat-web", daemon=True)
        self._thread.start()
        try:
            port = self._web_thread.ready.result(START_S_MAX)
        except OSError as error:
            self._thread.join(STOP_S_MAX)
            if self._listen is None or isinstance(error, TimeoutError):
                raise WebFailed(why=type(error).__name__) from error
            host, number = self._listen
            taken = error.errno == errno.EADDRINUSE
            why = f"{port_holder(number)} uses this port" if taken else (error.strerror or str(error)).lower()
            address = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
            raise CannotListenForWeb(address=address, why=why) from error
        except Exception as error:
            self._thread.join(STOP_S_MAX)
            raise WebFailed(why=type(error).__name__) from error
        if self._listen is None:
            return []
        host = f"[{self._listen[0]}]" if ":" in self._listen[0] else self._listen[0]
        return [f"{'https' if self._server_tls is not None else 'http'}://{host}:{port}"]

    def stop(self) -> None:
        """Close every connection and end the thread, within STOP_S_MAX. `take` still returns the remaining events."""
        if self._web_thread is not None and self._thread is not None:
            self._do(self._web_thread.end)
            self._thread.join(STOP_S_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- going out --------------------------------------------------------------------------------------------------

    def send(
        self,
        uri: str,
        envelope: bytes,
        media_type: str,
        ticket: int,
        *,
        return_route: bool = False,
        nearest: AddressKind = AddressKind.LOOPBACK,
    ) -> bool:
        """Send to an http(s) or ws(s) URI, which may have a host name; exactly one Delivered or Failed follows.

        False, without an event, when the send queue of this URI, or the total, is full. Envelopes to one URI arrive in
        order. `return_route`: the envelope requests an answer on the same connection (it comes as Arrived). `nearest`:
        the nearest kind of address that may be dialled for it. A WebSocket carries no media type.
        """
        if not 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            return self._refuse(ticket, "size")
        if uri.partition(":")[0].lower() not in {"http", "https", "ws", "wss"}:
            return self._refuse(ticket, "uri")
        account = self._uris.get(uri) or QueueUsage()
        if self._total + len(envelope) > self.limits.outbox_bytes or not self._charge(account, len(envelope)):
            return False
        self._uris[uri] = account
        self._total += len(envelope)
        self._serial += 1
        self._sent[self._serial] = (account, uri, len(envelope), ticket)
        outbound = OutboundEnvelope(self._serial, uri, envelope, media_type, return_route, nearest)
        if self._web_thread is None or not self._do(self._web_thread.send, outbound):
            failed = self._note(SendFinished(self._serial, "stopped"))
            assert failed is not None
            self._own.append(failed)
        return True

    def hold(self, uri: str) -> bool:
        """Keep a session to this ws(s) URI, with reconnection, until `release`; Opened and Closed report its state.

        False: too many are held, or the URI is invalid.
        """
        if uri.partition(":")[0].lower() not in {"ws", "wss"}:
            return False
        if uri not in self._held and len(self._held) >= self.limits.holds:
            return False
        if self._web_thread is None or not self._do(self._web_thread.hold, uri):
            return False
        self._held.add(uri)
        return True

    def release(self, uri: str) -> None:
        """Hold the session no longer: it ends when idle for some seconds, or with `cut`."""
        self._held.discard(uri)
        if self._web_thread is not None:
            self._do(self._web_thread.release, uri)

    # --- coming in --------------------------------------------------------------------------------------------------

    def take(self) -> list[WebEvent]:
        """The events since the last call, oldest first; after EVENTS_MAX of them `wake` is called again."""
        self._events.woken = False
        events, self._own = self._own, []
        messages = size = 0
        pending = self._events.pending
        while pending and len(events) < EVENTS_MAX and size < EVENTS_BYTES_MAX:
            note = pending.popleft()
            if isinstance(note, Arrived):
                messages += 1
                size += len(note.envelope)
            item = self._note(note)
            if item is not None:
                events.append(item)
        if messages and self._web_thread is not None:
            self._do(self._web_thread.taken, messages, size)
        if pending:
            self._events.woken = True
            self._wake()
        elif self._web_thread is not None and not self.alive:
            events += [item for serial in list(self._sent) if (item := self._note(SendFinished(serial, "stopped")))]
        return events

    def accept(self, handle: int) -> None:
        """Confirm all envelopes that `take` has returned with this handle: they are stored.

        A POST gets 202; a session its next pong. A closed handle is ignored.
        """
        account = self._channels.get(handle)
        if account is None or self._web_thread is None:
            return
        self._do(self._web_thread.accept, handle, account.given)
        account.given = 0
        if account.once:
            del self._channels[handle]

    def refuse(self, handle: int) -> None:
        """Refuse: a POST gets 503, a session is closed. The sender retries, perhaps elsewhere."""
        if self._channels.pop(handle, None) is not None and self._web_thread is not None:
            self._do(self._web_thread.refuse, handle)

    def keep(self, handle: int) -> None:
        """Keep an inbound session: it is not evicted when connections are full. A closed handle is ignored."""
        if handle in self._channels and self._web_thread is not None:
            self._do(self._web_thread.keep, handle)

    cut = refuse
    """Close a session, for another reason."""

    def answer(self, handle: int, envelope: bytes, media_type: str = ENCRYPTED, ticket: int | None = None) -> bool:
        """Send on this connection: as the response to a POST (200, which also accepts it), or as the next message of a
        session, which must be accepted separately.

        False: it is closed, or the session's send queue is full. With a ticket, Delivered or Failed follows for a
        session; the response to a POST is not confirmed.
        """
        account = self._channels.get(handle)
        if account is None or self._web_thread is None or not 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            return False
        if account.once:
            del self._channels[handle]
            return self._do(self._web_thread.push, handle, OutboundEnvelope(0, "", envelope, media_type, False))
        if not self._charge(account, len(envelope)):
            return False
        serial = 0
        if ticket is not None:
            self._serial += 1
            serial = self._serial
            self._sent[serial] = (account, "", 0, ticket)
        return self._do(self._web_thread.push, handle, OutboundEnvelope(serial, "", envelope, media_type, False))

    # --- short links ------------------------------------------------------------------------------------------------

    def publish_invitation(self, oobid: str, url: str, expires_s: float, uses: int | None = None) -> None:
        """Serve this `_oob` URL at `GET /?_oobid=ID` (any path), for so many seconds and so many uses.

        `oobid`: at least 128 bits of randomness, URL-safe, at most 128 characters.
        """
        if self._web_thread is not None:
            self._do(self._web_thread.publish, oobid, url, expires_s, uses)

    def publish_document(self, oobid: str, document: bytes, expires_s: float) -> None:
        """Serve this JSON document at `GET /?_oobid=ID` for so many seconds: a sealed invitation."""
        if self._web_thread is not None:
            self._do(self._web_thread.publish_document, oobid, document, expires_s)

    def withdraw(self, oobid: str) -> None:
        if self._web_thread is not None:
            self._do(self._web_thread.withdraw, oobid)

    # --- accounting -------------------------------------------------------------------------------------------------

    def _do(self, work: Callable[..., object], *arguments: object) -> bool:
        assert self._web_thread is not None
        return self._web_thread.do(work, *arguments)

    def _charge(self, account: QueueUsage, size: int) -> bool:
        if account.messages >= self.limits.queue_messages or account.bytes + size > self.limits.queue_bytes:
            return False
        account.messages += 1
        account.bytes += size
        return True

    def _refuse(self, ticket: int, why: str) -> bool:
        self._own.append(Failed(ticket, why))
        self._wake()
        return True

    def _note(self, note: ThreadEvent) -> WebEvent | None:
        """Count a thread event; the event for the owner, if any."""
        match note:
            case SendFinished(serial, why, retry_after_s):
                return self._settled(serial, why, retry_after_s)
            case Flushed(handle, size):
                account = self._channels.get(handle)
                if account is not None:
                    account.messages -= 1
                    account.bytes -= size
                return None
            case PostTimedOut(handle):
                self._channels.pop(handle, None)
                return None
            case Arrived(handle=handle, way=way):
                if way == "reply":
                    sent = self._sent.get(note.ticket)
                    return replace(note, ticket=0 if sent is None else sent[3])
                self._channels.setdefault(handle, QueueUsage(once=way == "post")).given += 1
            case Opened(handle):
                self._channels[handle] = QueueUsage()
            case Closed(handle):
                self._channels.pop(handle, None)
        return note

    def _settled(self, serial: int, why: str | None, retry_after_s: int) -> WebEvent | None:
        entry = self._sent.pop(serial, None)
        if entry is None:
            return None
        account, uri, size, ticket = entry
        if uri:
            account.messages -= 1
            account.bytes -= size
            self._total -= size
            if not account.messages:
                self._uris.pop(uri, None)
        return Delivered(ticket) if why is None else Failed(ticket, why, retry_after_s)
