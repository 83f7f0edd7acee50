"""The control socket's server: JSON-RPC 2.0 over a Unix socket, one object per line.

The agent thread owns the server and polls its descriptors together with its other sockets: nothing here blocks, and no
client can make it raise. The socket's directory is closed to other users, and the kernel reports who connects. Even so,
a client that sends junk or never reads is answered, bounded and finally disconnected.
"""

import os
import select
import socket
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from zerochat.agent.api.calls import BadCall, Batch, CallDecoder, RequestId
from zerochat.agent.api.calls import Call as Call
from zerochat.agent.api.calls import decode_call as decode_call
from zerochat.closing import Closing
from zerochat.errors import LocalError
from zerochat.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LINE_BYTES_MAX,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REFUSED,
)

CLIENTS_MAX = 64
"""Clients of one profile at a time."""
SEND_BYTES = 1 << 16
"""With this much unsent, a client is sent to before the batch ends."""
BACKLOG_BYTES_MAX = 8 << 20
"""The unsent bytes of a client that does not read: about ten thousand events. With more it is disconnected, and
continues from its cursor when it reconnects."""
READ_BYTES_MAX = 1 << 16
"""Bytes read from one client per batch: a flood from one leaves time for the others."""
ACCEPTS_MAX = 16
"""New clients per batch."""
PATH_BYTES_MAX = 107 if sys.platform == "linux" else 103
"""The size of `sun_path` without its closing zero byte."""

Interest: TypeAlias = tuple[bool, bool]
"""Whether a descriptor is polled for reading, and for writing."""
ERROR_NAMES: Final = {
    PARSE_ERROR: "ParseError",
    INVALID_REQUEST: "InvalidRequest",
    METHOD_NOT_FOUND: "MethodNotFound",
    INVALID_PARAMS: "InvalidParams",
    INTERNAL_ERROR: "InternalError",
}
TOO_LARGE: Final = "The result is too large for one line. Request less."


class SocketPathTooLong(LocalError):
    """The path of the control socket is too long ({size} bytes, at most {limit}): {path}. Set XDG_RUNTIME_DIR or
    ZEROCHAT_HOME to a shorter folder."""

    exit_code: ClassVar[int] = 6


class SocketUnusable(LocalError):
    """The control socket cannot be opened at {path}: {why}."""

    exit_code: ClassVar[int] = 6


class SocketInUse(LocalError):
    """Another program uses the control socket {path} without owning this profile. Stop it, or choose another profile
    (`--profile NAME`)."""

    exit_code: ClassVar[int] = 6


class FolderOpenToOthers(LocalError):
    """Other users can access the folder of the control socket, {path}. Run `chmod 700 {path}`."""

    exit_code: ClassVar[int] = 6


def peer_uid(connection: socket.socket) -> int | None:
    """The user id of the process that connected, from the kernel; None where the system does not report it."""
    system: str = sys.platform
    try:
        if system == "linux":
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=iII"))
            return int(struct.unpack("=iII", credentials)[1])
        if system.startswith(("darwin", "freebsd")):
            # getsockopt(SOL_LOCAL, LOCAL_PEERCRED) fills a struct xucred: version, uid, groups.
            return int(struct.unpack_from("=II", connection.getsockopt(0, 1, 128))[1])
    except (OSError, struct.error):
        pass
    return None


class _Client:
    __slots__ = ("calls", "closing", "ended", "id", "incoming", "outgoing", "scanned", "socket")

    def __init__(self, client_id: int, connection: socket.socket) -> None:
        self.id = client_id
        self.socket = connection
        self.incoming = bytearray()
        self.scanned = 0
        self.outgoing = bytearray()
        self.calls = set[Call]()  # not answered yet
        self.ended = False  # it sends no more, and is disconnected once it has all answers
        self.closing = False  # true: disconnected once everything is sent


class ControlServer(Closing):
    """The listening socket and its clients. Construct it only while holding the profile's lock: it replaces a socket
    file that a dead agent left behind.

    A batch: poll `fds()`, call `ready(fd)` for each ready descriptor, answer each call with `respond` or `refuse` at
    once or in a later batch, and `flush`. Client numbers are never reused.
    """

    def __init__(self, path: Path) -> None:
        """Raises SocketPathTooLong, FolderOpenToOthers, SocketInUse or SocketUnusable."""
        self.path = path
        self._clients: dict[int, _Client] = {}
        self._by_fd: dict[int, _Client] = {}
        self._unsent: dict[int, _Client] = {}
        """The clients with new unsent bytes since the last `flush`."""
        self._closed: set[int] = set()
        self._next_id = 1
        self._encoder = msgspec.json.Encoder()
        self._decoder = CallDecoder()
        self._spare: int | None = None
        size = len(os.fsencode(path))
        if size > PATH_BYTES_MAX:
            raise SocketPathTooLong(path=path, size=size, limit=PATH_BYTES_MAX)
        try:
            self._prepare_folder()
            self._remove_stale_socket()
            self._listener = _listen(path)
            self._inode = path.stat().st_ino
            # Closed for a moment when descriptors run out, so that waiting clients can be rejected.
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SocketUnusable(path=path, why=(error.strerror or str(error)).lower()) from error

    def _prepare_folder(self) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise FolderOpenToOthers(path=folder)

    def _remove_stale_socket(self) -> None:
        try:
            facts = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(facts.st_mode):
            raise SocketUnusable(path=self.path, why="there is a file that is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(self.path))
            except BlockingIOError:
                pass  # its queue is full, so a program is listening
            except OSError:
                self.path.unlink(missing_ok=True)
                return
        raise SocketInUse(path=self.path)

    def close(self) -> None:
        """Send what waits, disconnect all clients and remove the socket file unless it was replaced. Idempotent."""
        for client in list(self._clients.values()):
            self._send(client)
            self._drop(client)
        if self._listener.fileno() >= 0:
            self._listener.close()
            with suppress(OSError):
                if self.path.lstat().st_ino == self._inode:
                    self.path.unlink()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    # --- polling ----------------------------------------------------------------------------------------------------

    @property
    def clients(self) -> frozenset[int]:
        """The connected clients."""
        return frozenset(self._clients)

    def fds(self) -> dict[int, Interest]:
        """The descriptors to poll."""
        wanted = {fd: (not client.ended, bool(client.outgoing)) for fd, client in self._by_fd.items()}
        wanted[self._listener.fileno()] = True, False
        return wanted

    def take_closed(self) -> set[int]:
        """The descriptors closed since the last call: the poller must drop them, because the system reuses numbers."""
        closed, self._closed = self._closed, set()
        return closed

    def backlog(self, client: int) -> int:
        """The unsent bytes of this client."""
        known = self._clients.get(client)
        return len(known.outgoing) if known else 0

    def ready(self, fd: int) -> list[Call]:
        """Serve a ready descriptor; the valid calls that arrived. Invalid lines are answered here."""
        if fd == self._listener.fileno():
            self._accept()
            return []
        client = self._by_fd.get(fd)
        if client is None:
            return []
        self._send(client)
        return self._read(client)

    # --- answers and notifications ----------------------------------------------------------------------------------

    def respond(self, call: Call, result: object) -> None:
        """Answer a call. A client that is gone is no error."""
        self._answer(call, {"result": result})

    def refuse(self, call: Call, code: int, message: str, data: dict[str, str | int]) -> None:
        """Answer a call with an error; `data["code"]` is the stable name for programs."""
        error = {"code": code, "message": message, "data": data}
        self._answer(call, {"error": error})

    def refuse_error(self, call: Call, error: LocalError) -> None:
        """Answer a call with an error of zerochat: its code, exit code and retry hint."""
        self.refuse(call, REFUSED, error.sentence(), error.details)

    def refuse_pending(self, error: LocalError) -> None:
        """Answer all calls that have no answer yet with an error."""
        for client in list(self._clients.values()):
            for call in list(client.calls):
                self.refuse_error(call, error)

    def notify(self, clients: Iterable[int], method: str, params: Struct) -> None:
        """Send a notification (`rpc.NOTIFICATIONS`) to these clients. A client that is gone is no error."""
        line = self._line({"jsonrpc": "2.0", "method": method, "params": params})
        for client in clients:
            if line is not None and client in self._clients:
                self._put(self._clients[client], line)

    def flush(self) -> None:
        """Send what the clients' sockets accept now; the rest is sent when they are ready. Disconnect clients that wait
        for answers and have gone."""
        for client in self._unsent.values():
            self._send(client)
        self._unsent.clear()
        # Their sockets are polled neither for reading nor for writing, so the poller does not report their end.
        for client in [each for each in self._clients.values() if each.ended and not each.outgoing]:
            if _has_hung_up(client.socket):
                self._drop(client)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors (EMFILE, ENFILE): reject the first client rather than be woken without end.
                if self._spare is None:
                    return
                os.close(self._spare)
                with suppress(OSError):
                    self._listener.accept()[0].close()
                try:
                    self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    self._spare = None
                return
            connection.setblocking(False)
            client = _Client(self._next_id, connection)
            self._next_id += 1
            self._clients[client.id] = self._by_fd[connection.fileno()] = client
            if peer_uid(connection) != os.geteuid():
                self._reject(client, "Only the user of this profile can connect.")
            elif len(self._clients) > CLIENTS_MAX:
                self._reject(client, f"Too many clients: at most {CLIENTS_MAX} can connect at a time.")

    def _read(self, client: _Client) -> list[Call]:
        """Read once; the calls in the complete lines."""
        try:
            chunk = client.socket.recv(READ_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            chunk = b""
        if client.closing and chunk:
            return []
        if not chunk:
            return self._end(client)
        client.incoming += chunk
        if client.incoming.find(b"\n", client.scanned) < 0:
            client.scanned = len(client.incoming)
            if client.scanned > LINE_BYTES_MAX:
                self._reject(client, f"A line can have at most {LINE_BYTES_MAX} bytes.")
            return []
        *lines, rest = bytes(client.incoming).split(b"\n")
        client.incoming = bytearray(rest)
        client.scanned = len(rest)
        return [call for line in lines for call in self._decode(client, line)]

    def _end(self, client: _Client) -> list[Call]:
        """The client has closed its sending side, or all of the connection. The calls in its last line."""
        if client.closing or _has_hung_up(client.socket):
            self._drop(client)
            return []
        client.ended = True
        calls = self._decode(client, bytes(client.incoming))
        client.incoming.clear()
        self._close_if_answered(client)
        return calls

    def _close_if_answered(self, client: _Client) -> None:
        if client.ended and not client.calls and client.id in self._clients:
            client.closing = True
            self._send(client)

    def _decode(self, client: _Client, line: bytes) -> list[Call]:
        """The calls in a line; what is no valid request is refused."""
        if client.id not in self._clients or client.closing or not line.strip():
            return []
        if len(line) > LINE_BYTES_MAX:
            self._reject(client, f"A line can have at most {LINE_BYTES_MAX} bytes.")
            return []
        found, together = self._decoder.decode(client.id, line)
        answered = sum(each.id is not UNSET for each in found)
        batch = Batch(answered) if together else None
        calls = [replace(each, batch=batch) if batch else each for each in found if isinstance(each, Call)]
        client.calls.update(call for call in calls if call.id is not UNSET)
        for each in found:
            if isinstance(each, BadCall) and each.id is not UNSET:
                self._send_answer(client, each.id, _error(each.code, each.why), batch)
        return calls

    def _answer(self, call: Call, answer: dict[str, object]) -> None:
        """Answer a call. A notification of the client has no answer."""
        client = self._clients.get(call.client)
        if client is not None and call.id is not UNSET:
            client.calls.discard(call)
            self._send_answer(client, call.id, answer, call.batch)
            self._close_if_answered(client)

    def _send_answer(
        self, client: _Client, request_id: RequestId, answer: dict[str, object], batch: Batch | None = None
    ) -> None:
        """Send an answer, or add it to those of its batch."""
        line = self._line({"jsonrpc": "2.0", "id": request_id, **answer})
        if line is None or not (batch is None or batch.has_room(line)):
            line = self._line({"jsonrpc": "2.0", "id": request_id, **_error(INTERNAL_ERROR, TOO_LARGE)})
            assert line is not None
        if batch is not None:
            batch.add(line[:-1])
            line = b"" if batch.waiting else batch.line()
        if line:
            self._put(client, line)

    def _line(self, message: dict[str, object]) -> bytes | None:
        """The message as a line; None where it is too long."""
        try:
            line = self._encoder.encode(message)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError):
            return None
        return line + b"\n" if len(line) < LINE_BYTES_MAX else None

    def _put(self, client: _Client, line: bytes) -> None:
        if client.closing:
            return
        waiting = len(client.outgoing)
        if not waiting:
            self._unsent[client.id] = client
        client.outgoing += line
        if waiting < SEND_BYTES <= len(client.outgoing):
            self._send(client)
        if len(client.outgoing) > BACKLOG_BYTES_MAX:
            self._drop(client)

    def _reject(self, client: _Client, why: str) -> None:
        self._send_answer(client, None, _error(INVALID_REQUEST, why))
        client.incoming.clear()
        client.closing = True
        self._send(client)

    def _send(self, client: _Client) -> None:
        while client.outgoing and client.id in self._clients:
            try:
                sent = client.socket.send(client.outgoing)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._drop(client)
                return
            del client.outgoing[:sent]
        if client.closing:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.id, None) is not None:
            del self._by_fd[client.socket.fileno()]
            self._closed.add(client.socket.fileno())
            client.socket.close()


def _error(code: int, message: str) -> dict[str, object]:
    """The answer to what is no valid request."""
    return {"error": {"code": code, "message": message, "data": {"code": ERROR_NAMES[code]}}}


def _has_hung_up(connection: socket.socket) -> bool:
    """Whether the other side has closed the whole connection, not only its sending side."""
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(os.fspath(path))
        path.chmod(0o600)  # the folder was closed to other users before the socket existed
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    return listener
