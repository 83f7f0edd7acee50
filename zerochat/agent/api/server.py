"""The control socket's server: where the faces of a profile ask its agent, and where they hear its news.

One Unix socket, JSON-RPC 2.0, one object a line; `schema/` is the vocabulary. The agent thread owns the server and
polls its descriptors beside its other sockets, so nothing here blocks and nothing here raises because of a client.
Whoever connects is one of this user's own programs (the kernel says so, and the socket's directory is closed to
others); even so, one that sends junk, sends for ever, or never reads is answered, bounded and in the end cut off,
because the agent has other things to do.
"""

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from zerochat.errors import LocalError
from zerochat.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LINE_BYTES_MAX,
    METHOD_NOT_FOUND,
    METHODS,
    PARSE_ERROR,
    REFUSED,
    Request,
)

CLIENTS_MAX = 64
"""Faces of one profile at a time: a person has a few, a machine with bots a dozen."""
SEND_BYTES = 1 << 16
"""When so much waits for a client, it is sent before the turn is over."""
BACKLOG_BYTES_MAX = 8 << 20
"""What waits for a client that does not read: some ten thousand events. Then it is cut off, and resumes from its
cursor when it comes back."""
READ_BYTES_MAX = 1 << 16
"""Read from one client per turn, so that a flood from one leaves time for the others."""
ACCEPTS_MAX = 16
"""New clients per turn."""
INTEGER_END = 1 << 63
ID_CHARS_MAX = 128
"""A request's id is echoed, so it must leave room for the answer."""
PATH_BYTES_MAX = 107 if sys.platform == "linux" else 103
"""What fits `sun_path` with its closing zero byte."""

RequestId: TypeAlias = int | str | UnsetType | None
"""As `Request.id` is declared; of what `ControlServer.ready` returns, none is unset."""


class SocketPathTooLong(LocalError):
    """The path of the control socket has {size} bytes and at most {limit} fit: {path}. Set XDG_RUNTIME_DIR (or
    ZEROCHAT_HOME) to a shorter folder."""

    exit_code: ClassVar[int] = 6


class SocketUnusable(LocalError):
    """The control socket cannot be opened at {path}: {why}."""

    exit_code: ClassVar[int] = 6


class SocketInUse(LocalError):
    """Another program answers at {path}, although it does not hold this profile. Stop it, or choose another profile
    (`--profile NAME`)."""

    exit_code: ClassVar[int] = 6


class FolderOpenToOthers(LocalError):
    """The folder of the control socket is open to other users: {path}. Close it with `chmod 700 {path}`."""

    exit_code: ClassVar[int] = 6


def peer_uid(connection: socket.socket) -> int | None:
    """The user whose program is at the other end, as the kernel saw it when it connected; None: it does not say."""
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


def read_params(request: Request) -> Struct:
    """The typed params of a request that `ControlServer.ready` let through."""
    shape = METHODS[request.method][0]
    params = msgspec.convert({} if request.params is UNSET else request.params, shape)
    _check_numbers(params)
    return params


def _check_numbers(params: Struct) -> None:
    """Whether the disk could hold every number. Raises ValidationError."""
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if isinstance(value, int) and not -INTEGER_END <= value < INTEGER_END:
            raise msgspec.ValidationError(f"Expected a number of 64 bits - at `$.{name}`")
        if isinstance(value, Struct):
            _check_numbers(value)


class _Client:
    __slots__ = ("id", "incoming", "last_words", "outgoing", "scanned", "socket")

    def __init__(self, client_id: int, connection: socket.socket) -> None:
        self.id = client_id
        self.socket = connection
        self.incoming = bytearray()
        self.scanned = 0
        self.outgoing = bytearray()
        self.last_words = False  # true: it goes as soon as it has been told why


class ControlServer:
    """The listening socket and its clients. Construct it only while holding the profile's lock: it takes the place of
    a socket file that a dead agent left behind.

    A turn: poll `fds()`, call `ready(fd)` for each that is, then `respond` or `refuse` every request that came out,
    at once or in any later turn, and `flush`, so that all of a turn reaches a client at once. Clients are known by
    numbers that never come again.
    """

    def __init__(self, path: Path) -> None:
        """Raises SocketPathTooLong, FolderOpenToOthers, SocketInUse or SocketUnusable."""
        self.path = path
        self._clients: dict[int, _Client] = {}
        self._by_fd: dict[int, _Client] = {}
        self._unsent: dict[int, _Client] = {}
        """Who has been told something since the last `flush`, when nothing was waiting."""
        self._closed: set[int] = set()
        self._next_id = 1
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Request)
        self._spare: int | None = None
        size = len(os.fsencode(path))
        if size > PATH_BYTES_MAX:
            raise SocketPathTooLong(path=path, size=size, limit=PATH_BYTES_MAX)
        try:
            self._prepare_folder()
            self._clear_the_place()
            self._listener = _listen(path)
            self._inode = path.stat().st_ino
            # Given up for a moment when descriptors run out, so that waiting clients can be turned away.
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SocketUnusable(path=path, why=(error.strerror or str(error)).lower()) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare_folder(self) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise FolderOpenToOthers(path=folder)

    def _clear_the_place(self) -> None:
        try:
            facts = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(facts.st_mode):
            raise SocketUnusable(path=self.path, why="something that is not a socket is in its place")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(self.path))
            except BlockingIOError:
                pass  # so many wait there that somebody must be alive
            except OSError:
                self.path.unlink(missing_ok=True)
                return
        raise SocketInUse(path=self.path)

    def close(self) -> None:
        """Say goodbye to everybody and remove the socket file, unless somebody else's is there by now. Idempotent."""
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

    # --- what the agent thread polls --------------------------------------------------------------------------------

    @property
    def clients(self) -> frozenset[int]:
        """Who is connected now."""
        return frozenset(self._clients)

    def fds(self) -> dict[int, bool]:
        """Every descriptor to poll for reading; True: also for writing."""
        wanted = {fd: bool(client.outgoing) for fd, client in self._by_fd.items()}
        wanted[self._listener.fileno()] = False
        return wanted

    def take_closed(self) -> set[int]:
        """The descriptors closed since the last call: a poller must forget them, for their numbers come again."""
        closed, self._closed = self._closed, set()
        return closed

    def backlog(self, client: int) -> int:
        """Bytes that wait to be read by this client: whoever has much to tell waits until it is small again."""
        known = self._clients.get(client)
        return len(known.outgoing) if known else 0

    def ready(self, fd: int) -> list[tuple[int, Request]]:
        """Do whatever `fd` is ready for; return the well-formed requests that came, each with its client.

        A request that comes out names a method of `schema.METHODS`, and its params have that method's shape. Every
        other line has been answered here.
        """
        if fd == self._listener.fileno():
            self._accept()
            return []
        client = self._by_fd.get(fd)
        if client is None:
            return []
        self._send(client)
        return [(client.id, request) for request in self._read(client)]

    # --- what the agent says ----------------------------------------------------------------------------------------

    def respond(self, client: int, request_id: RequestId, result: object) -> None:
        """Answer a request with a struct of `schema/`, or a list of them. A client that has gone is no error."""
        self._say(client, {"jsonrpc": "2.0", "id": request_id, "result": result}, request_id)

    def refuse(
        self,
        client: int,
        request_id: RequestId,
        code: int,
        message: str,
        data: dict[str, str | int] | None = None,
    ) -> None:
        """Answer a request with an error; `data.code` is the stable name that programs compare."""
        error: dict[str, object] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self._say(client, {"jsonrpc": "2.0", "id": request_id, "error": error}, request_id)

    def refuse_error(self, client: int, request_id: RequestId, error: LocalError) -> None:
        """Answer a request with what zerochat itself says against it: its name, its exit code, and whether it is any
        use to ask again."""
        data: dict[str, str | int] = {"code": error.code, "exit_code": error.exit_code, "retry": error.retry}
        if error.retry_after_s:
            data["retry_after_s"] = error.retry_after_s
        data |= {name: str(error.fields[name]) for name in error.facts if name in error.fields}
        self.refuse(client, request_id, REFUSED, error.sentence(), data)

    def notify(self, clients: Iterable[int], method: str, params: Struct) -> None:
        """Tell these clients some news (`schema.NEWS`). One that has gone is no error."""
        line = self._line({"jsonrpc": "2.0", "method": method, "params": params})
        for client in clients:
            if line is not None and client in self._clients:
                self._put(self._clients[client], line)

    def flush(self) -> None:
        """Send what waits, as far as the clients take it; what they do not take now goes when `fds` says so."""
        for client in self._unsent.values():
            self._send(client)
        self._unsent.clear()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of descriptors (EMFILE, ENFILE): turn the first in the queue away rather than be woken for ever.
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
                self._dismiss(client, "This agent serves its own user only.")
            elif len(self._clients) > CLIENTS_MAX:
                self._dismiss(client, f"This agent serves {CLIENTS_MAX} programs at a time, and all places are taken.")

    def _read(self, client: _Client) -> Iterable[Request]:
        """One read, and the requests among the whole lines that are there then."""
        try:
            chunk = client.socket.recv(READ_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(client)
            return []
        if client.last_words:
            return []
        client.incoming += chunk
        if client.incoming.find(b"\n", client.scanned) < 0:
            client.scanned = len(client.incoming)
            if client.scanned > LINE_BYTES_MAX:
                self._dismiss(client, f"A line may have {LINE_BYTES_MAX} bytes.")
            return []
        *lines, rest = bytes(client.incoming).split(b"\n")
        client.incoming = bytearray(rest)
        client.scanned = len(rest)
        return [request for line in lines if (request := self._understand(client, line)) is not None]

    def _understand(self, client: _Client, line: bytes) -> Request | None:
        if client.id not in self._clients or client.last_words or not line.strip():
            return None
        if len(line) > LINE_BYTES_MAX:
            self._dismiss(client, f"A line may have {LINE_BYTES_MAX} bytes.")
            return None
        try:
            request = self._decoder.decode(line)
        except msgspec.ValidationError as error:
            self.refuse(client.id, None, INVALID_REQUEST, f"This is no request: {error}.")
            return None
        except (ValueError, RecursionError):
            self.refuse(client.id, None, PARSE_ERROR, "This line is not JSON.")
            return None
        if request.id is UNSET or request.jsonrpc != "2.0":
            why = 'A request has an "id".' if request.id is UNSET else 'A request has "jsonrpc": "2.0".'
            self.refuse(client.id, None, INVALID_REQUEST, why)
            return None
        # A number that does not come back exactly as it went is no use as an id.
        if len(str(request.id)) > ID_CHARS_MAX or (isinstance(request.id, int) and not abs(request.id) < 1 << 53):
            self.refuse(client.id, None, INVALID_REQUEST, "This id is too long.")
            return None
        if request.method not in METHODS:
            self.refuse(client.id, request.id, METHOD_NOT_FOUND, "There is no such method.")
            return None
        try:
            read_params(request)
        except (msgspec.ValidationError, RecursionError) as error:
            self.refuse(client.id, request.id, INVALID_PARAMS, f"The params do not fit {request.method}: {error}.")
            return None
        return request

    def _say(self, client_id: int, message: dict[str, object], request_id: RequestId) -> None:
        client = self._clients.get(client_id)
        if client is None:
            return
        line = self._line(message)
        if line is not None:
            self._put(client, line)
        elif "result" in message:
            self.refuse(client_id, request_id, INTERNAL_ERROR, "The answer does not fit one line. Ask for less.")

    def _line(self, message: dict[str, object]) -> bytes | None:
        """The line that says this, or None when it fits none."""
        try:
            line = self._encoder.encode(message)
        except (ValueError, TypeError, OverflowError, msgspec.MsgspecError):
            return None
        return line + b"\n" if len(line) < LINE_BYTES_MAX else None

    def _put(self, client: _Client, line: bytes) -> None:
        if client.last_words:
            return
        waiting = len(client.outgoing)
        if not waiting:
            self._unsent[client.id] = client
        client.outgoing += line
        if waiting < SEND_BYTES <= len(client.outgoing):
            self._send(client)
        if len(client.outgoing) > BACKLOG_BYTES_MAX:
            self._drop(client)

    def _dismiss(self, client: _Client, why: str) -> None:
        self.refuse(client.id, None, INVALID_REQUEST, why)
        client.incoming.clear()
        client.last_words = True
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
        if client.last_words:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.id, None) is not None:
            del self._by_fd[client.socket.fileno()]
            self._closed.add(client.socket.fileno())
            client.socket.close()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(os.fspath(path))
        path.chmod(0o600)  # the folder has been closed to others since before the socket was there
        listener.listen(CLIENTS_MAX)
    except OSError:
        listener.close()
        raise
    return listener
