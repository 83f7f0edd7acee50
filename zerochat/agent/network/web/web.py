"""`Web`: DIDComm over HTTP(S) and WebSocket, as its owner sees it: one thread, the agent's or a mediator's.

Nothing here blocks but `start` and `stop`. Everything that the owner has handed over and that is not settled yet is
counted on this side, without a lock: it comes off the count when `take` gives the news of it. So `send` knows at once
whether there is room.
"""

import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import Struct

from zerochat.agent.network.addresses import BadAddress, parse_listen
from zerochat.agent.network.web.event_loop import parse_proxy
from zerochat.agent.network.web.events import (
    ENCRYPTED,
    Arrived,
    Closed,
    Delivered,
    Failed,
    Lapsed,
    News,
    Note,
    Opened,
    Parcel,
    Pushed,
    Settled,
)
from zerochat.agent.network.web.inbox import Inbox
from zerochat.agent.network.web.limits import Limits
from zerochat.agent.network.web.tls import client_context, server_context
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.agent.network.web.thread import Engine

START_S_MAX = 15.0
STOP_S_MAX = 3.0
NEWS_MAX = 256
"""What one `take` gives at most: one bite for the owner, one transaction for its journal."""
NEWS_BYTES_MAX = 8 * 1024 * 1024


class CannotListenForWeb(LocalError):
    """Cannot listen for HTTP at {address}: {why}. Choose another port, or an address of this machine."""

    exit_code: ClassVar[int] = 6


class WebFailed(LocalError):
    """The part that talks HTTP did not start: {why}. Start again; if that does not help, reinstall zerochat."""

    exit_code: ClassVar[int] = 6


class Account(Struct):
    """What the owner has handed over for one URI, or for one partner, and is not settled."""

    messages: int = 0
    bytes: int = 0
    given: int = 0
    """Of a partner: how many envelopes `take` has given that the owner has not accepted."""
    once: bool = False
    """A POST: it is over with the owner's first word."""


class Web:
    """The web transport of one agent or mediator.

    Envelopes come and go by handle or by URI. What arrives has to be accepted (`accept`, `answer`, `refuse`) within
    `Limits.accept_s`, and better after it has been written to disk: its sender is told then, and not before.
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
        only_public: bool = False,
    ) -> None:
        """`listen`: HOST or HOST:PORT, a literal address, any port if none is given; None: only go out.

        `tls`: paths of a PEM certificate chain and its key, for https and wss. `socks`: "ADDRESS:PORT" of a SOCKS5
        proxy for everything that goes out, names included. `ca_file`: authorities to trust besides the system's.
        `only_public`: dial no address that is good in one house or one machine only.
        `wake` is called in another thread when there is something to take, and must not block. Raises BadAddress,
        BadCertificate, BadProxy.
        """
        self.limits = limits or Limits()
        self._listen: tuple[str, int] | None = None
        if listen is not None:
            host, port, second = parse_listen(listen)
            if second:
                raise BadAddress(text=listen, why="HTTP needs one port, not two")
            self._listen = host, port
        self._server_tls = server_context(*tls) if tls is not None else None
        self._client_tls = client_context(ca_file)
        self._proxy = parse_proxy(socks) if socks is not None else None
        self._only_public = only_public
        self._wake = wake
        self._inbox = Inbox(wake, self.limits)
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._serial = 0
        self._sent: dict[int, tuple[Account, str, int, int]] = {}
        """By serial: where it is counted, the URI (empty for a push), its size, and the owner's ticket."""
        self._uris: dict[str, Account] = {}
        self._partners: dict[int, Account] = {}
        self._held: set[str] = set()
        self._total = 0
        self._own: list[News] = []
        """News that needed no thread."""

    @property
    def counts(self) -> Counter[str]:
        """How often something was refused, cut or lost, by `web.*` name."""
        return self._inbox.counts

    @property
    def alive(self) -> bool:
        """False before `start`, after `stop`, and when the thread has died."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> list[str]:
        """Start the thread; give the URI that it listens at, if any. Raises CannotListenForWeb, WebFailed."""
        assert self._engine is None, "started twice"
        from zerochat.agent.network.web.thread import Engine, Plan

        self._engine = Engine(
            Plan(self._listen, self._server_tls, self._client_tls, self._proxy, self.limits, self._only_public),
            self._inbox,
        )
        self._thread = threading.Thread(target=self._engine.run, name="zerochat-web", daemon=True)
        self._thread.start()
        try:
            port = self._engine.ready.result(START_S_MAX)
        except OSError as error:
            self._thread.join(STOP_S_MAX)
            if self._listen is None or isinstance(error, TimeoutError):
                raise WebFailed(why=type(error).__name__) from error
            address = ":".join(map(str, self._listen))
            raise CannotListenForWeb(address=address, why=(error.strerror or str(error)).lower()) from error
        except Exception as error:
            self._thread.join(STOP_S_MAX)
            raise WebFailed(why=type(error).__name__) from error
        if self._listen is None:
            return []
        host = f"[{self._listen[0]}]" if ":" in self._listen[0] else self._listen[0]
        return [f"{'https' if self._server_tls is not None else 'http'}://{host}:{port}"]

    def stop(self) -> None:
        """End every connection and the thread, within STOP_S_MAX. `take` gives what is left, and then nothing more."""
        if self._engine is not None and self._thread is not None:
            self._do(self._engine.end)
            self._thread.join(STOP_S_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- going out --------------------------------------------------------------------------------------------------

    def send(self, uri: str, envelope: bytes, media_type: str, ticket: int, *, return_route: bool = False) -> bool:
        """Send to an http(s) or ws(s) URI; Delivered or Failed follows, once. Names may stand in it.

        False, and no news, when too much waits for this URI already, or altogether. What is sent to one URI arrives in
        order. `return_route`: the envelope asks for an answer on the same connection (it comes as an Arrived). A
        WebSocket carries no media type.
        """
        if not 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            return self._refuse(ticket, "size")
        if uri.partition(":")[0].lower() not in {"http", "https", "ws", "wss"}:
            return self._refuse(ticket, "uri")
        account = self._uris.get(uri) or Account()
        if self._total + len(envelope) > self.limits.outbox_bytes or not self._charge(account, len(envelope)):
            return False
        self._uris[uri] = account
        self._total += len(envelope)
        self._serial += 1
        self._sent[self._serial] = (account, uri, len(envelope), ticket)
        parcel = Parcel(self._serial, uri, envelope, media_type, return_route)
        if self._engine is None or not self._do(self._engine.send, parcel):
            failed = self._note(Settled(self._serial, "stopped"))
            assert failed is not None
            self._own.append(failed)
        return True

    def hold(self, uri: str) -> bool:
        """Keep a session to this ws(s) URI, whatever happens, until `release`: Opened and Closed say how it goes.

        False when too many are held, or it is no such URI.
        """
        if uri.partition(":")[0].lower() not in {"ws", "wss"}:
            return False
        if uri not in self._held and len(self._held) >= self.limits.holds:
            return False
        if self._engine is None or not self._do(self._engine.hold, uri):
            return False
        self._held.add(uri)
        return True

    def release(self, uri: str) -> None:
        """Let the session go: it ends when nobody has used it for some seconds, or with `cut`."""
        self._held.discard(uri)
        if self._engine is not None:
            self._do(self._engine.release, uri)

    # --- coming in --------------------------------------------------------------------------------------------------

    def take(self) -> list[News]:
        """What has happened since the last call, oldest first; at most NEWS_MAX, and then `wake` is called again."""
        self._inbox.rung = False
        news, self._own = self._own, []
        messages = size = 0
        notes = self._inbox.notes
        while notes and len(news) < NEWS_MAX and size < NEWS_BYTES_MAX:
            note = notes.popleft()
            if isinstance(note, Arrived):
                messages += 1
                size += len(note.envelope)
            item = self._note(note)
            if item is not None:
                news.append(item)
        if messages and self._engine is not None:
            self._do(self._engine.taken, messages, size)
        if notes:
            self._inbox.rung = True
            self._wake()
        elif self._engine is not None and not self.alive:
            news += [item for serial in list(self._sent) if (item := self._note(Settled(serial, "stopped")))]
        return news

    def accept(self, handle: int) -> None:
        """Everything that `take` has given with this handle is safe here: its sender may forget it.

        A POST gets 202; a session's next pong is on its way. For a handle that is no longer open it does nothing.
        """
        account = self._partners.get(handle)
        if account is None or self._engine is None:
            return
        self._do(self._engine.accept, handle, account.given)
        account.given = 0
        if account.once:
            del self._partners[handle]

    def refuse(self, handle: int) -> None:
        """It cannot be kept: a POST gets 503, a session ends. The sender tries again, or elsewhere."""
        if self._partners.pop(handle, None) is not None and self._engine is not None:
            self._do(self._engine.refuse, handle)

    cut = refuse
    """End a session, for another reason."""

    def answer(self, handle: int, envelope: bytes, media_type: str = ENCRYPTED, ticket: int | None = None) -> bool:
        """Send on this very connection: as the body of a POST's response (200, which also accepts it), or as the next
        message of a session, which has to be accepted besides.

        False when it is gone, or too much waits in the session. With a ticket, Delivered or Failed follows for a
        session; a POST's sender never says whether it has got its response.
        """
        account = self._partners.get(handle)
        if account is None or self._engine is None or not 0 < len(envelope) <= ENVELOPE_BYTES_MAX:
            return False
        if account.once:
            del self._partners[handle]
            return self._do(self._engine.push, handle, Parcel(0, "", envelope, media_type, False))
        if not self._charge(account, len(envelope)):
            return False
        serial = 0
        if ticket is not None:
            self._serial += 1
            serial = self._serial
            self._sent[serial] = (account, "", 0, ticket)
        return self._do(self._engine.push, handle, Parcel(serial, "", envelope, media_type, False))

    # --- short links ------------------------------------------------------------------------------------------------

    def publish_invitation(self, oobid: str, url: str, expires_s: float, uses: int | None = None) -> None:
        """Let `GET /?_oobid=ID` (any path) lead to this `_oob` URL, for so many seconds from now and so many times.

        `oobid`: at least 128 bits of randomness, URL-safe, at most 128 characters.
        """
        if self._engine is not None:
            self._do(self._engine.publish, oobid, url, expires_s, uses)

    def withdraw(self, oobid: str) -> None:
        if self._engine is not None:
            self._do(self._engine.withdraw, oobid)

    # --- the books --------------------------------------------------------------------------------------------------

    def _do(self, work: Callable[..., object], *arguments: object) -> bool:
        assert self._engine is not None
        return self._engine.do(work, *arguments)

    def _charge(self, account: Account, size: int) -> bool:
        if account.messages >= self.limits.queue_messages or account.bytes + size > self.limits.queue_bytes:
            return False
        account.messages += 1
        account.bytes += size
        return True

    def _refuse(self, ticket: int, why: str) -> bool:
        self._own.append(Failed(ticket, why))
        self._wake()
        return True

    def _note(self, note: Note) -> News | None:
        """Enter this in the books; give what the owner should hear of it."""
        match note:
            case Settled(serial, why):
                return self._settled(serial, why)
            case Pushed(handle, size):
                account = self._partners.get(handle)
                if account is not None:
                    account.messages -= 1
                    account.bytes -= size
                return None
            case Lapsed(handle):
                self._partners.pop(handle, None)
                return None
            case Arrived(handle=handle, way=way):
                if way != "reply":
                    self._partners.setdefault(handle, Account(once=way == "post")).given += 1
            case Opened(handle):
                self._partners[handle] = Account()
            case Closed(handle):
                self._partners.pop(handle, None)
        return note

    def _settled(self, serial: int, why: str | None) -> News | None:
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
        return Delivered(ticket) if why is None else Failed(ticket, why)
