"""The client side of the control protocol without I/O: requests to bytes, bytes to replies and notifications."""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from zerochat.errors import LocalError
from zerochat.rpc import LINE_BYTES_MAX, METHODS, NOTIFICATIONS


class AgentUnclear(LocalError):
    """Cannot read the agent's answer: {why}. The agent may be a different version of zerochat: restart it."""

    exit_code: ClassVar[int] = 6


NOT_UNICODE_CHARS_MAX = 64


class NotUnicode(LocalError):
    """Nothing was done: {text} is no text in the encoding of this terminal. Check the locale, or write it in UTF-8."""

    exit_code: ClassVar[int] = 2


class AgentError(LocalError):
    """{message}"""

    def __init__(
        self, code: str, message: str, number: int, exit_code: int = 1, data: Mapping[str, object] | None = None
    ) -> None:
        """`code`: the stable name of the error. `number`: the JSON-RPC error number. `data`: further details."""
        super().__init__(message=message)
        self._code = code
        self.number = number
        self.data = dict(data or {})
        retry, after = self.data.get("retry"), self.data.get("retry_after_s")
        # Set by the agent for this error, not by the class.
        self.exit_code = exit_code  # type: ignore[misc]
        self.retry = retry if retry in ("later", "now") else "never"  # type: ignore[misc]
        self.retry_after_s = after if isinstance(after, int) else 0  # type: ignore[misc]

    @property
    def code(self) -> str:
        return self._code

    @property
    def details(self) -> dict[str, str | int]:
        given = {name: value for name, value in self.data.items() if isinstance(value, str | int)}
        return {**given, **super().details}


class Reply(Struct, frozen=True):
    """The answer to a request: the decoded result, or the error."""

    id: int
    method: str
    result: object | AgentError


class Notification(Struct, frozen=True):
    """A notification; `params` has the type of `rpc.NOTIFICATIONS[method]`."""

    method: str
    params: Struct


class _Error(Struct, frozen=True):
    code: int
    message: str
    data: dict[str, Any] | None = None


class _Line(Struct, frozen=True):
    id: int | str | UnsetType | None = UNSET
    method: str = ""
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: _Error | None = None


_lines = msgspec.json.Decoder(_Line)


@cache
def _result_decoder(method: str) -> "msgspec.json.Decoder[object]":
    return msgspec.json.Decoder(cast(type[object], METHODS[method][1]))


@cache
def _notification_decoder(method: str) -> msgspec.json.Decoder[Struct]:
    return msgspec.json.Decoder(NOTIFICATIONS[method])


class ClientProtocol:
    """Encodes requests and decodes what the agent sends."""

    def __init__(self) -> None:
        self._pending: dict[int, str] = {}
        self._next_id = 1
        self._received = bytearray()
        self._scanned = 0

    def request(self, method: str, params: dict[str, object]) -> tuple[int, bytes]:
        """The id of the `Reply`, and the line to send. Raises NotUnicode."""
        request_id = self._next_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        try:
            line = msgspec.json.encode(message) + b"\n"
        except UnicodeEncodeError as error:
            raise NotUnicode(text=error.object[:NOT_UNICODE_CHARS_MAX]) from None
        self._next_id += 1
        self._pending[request_id] = method
        return request_id, line

    def receive(self, data: bytes) -> list[Reply | Notification]:
        """The replies and notifications that `data` completes. Unknown notifications are skipped.

        Raises AgentUnclear for a line that violates the protocol.
        """
        self._received += data
        if self._received.find(b"\n", self._scanned) < 0:
            self._scanned = len(self._received)
            if self._scanned > LINE_BYTES_MAX:
                raise AgentUnclear(why="a line is too long")
            return []
        *lines, rest = bytes(self._received).split(b"\n")
        self._received = bytearray(rest)
        self._scanned = len(rest)
        return [message for line in lines if line and (message := self._decode(line)) is not None]

    def _decode(self, line: bytes) -> Reply | Notification | None:
        try:
            line_ = _lines.decode(line)
            if line_.method:
                if line_.method not in NOTIFICATIONS or line_.params is UNSET:
                    return None
                return Notification(line_.method, _notification_decoder(line_.method).decode(line_.params))
            if line_.error is not None:
                return self._error_reply(line_.id, line_.error)
            if not isinstance(line_.id, int) or line_.id not in self._pending or line_.result is UNSET:
                return None
            method = self._pending.pop(line_.id)
            return Reply(line_.id, method, _result_decoder(method).decode(line_.result))
        except (ValueError, RecursionError) as error:
            raise AgentUnclear(why=error) from error

    def _error_reply(self, request_id: int | str | UnsetType | None, error: _Error) -> Reply | None:
        data = error.data or {}
        code, exit_code = data.get("code"), data.get("exit_code")
        refusal = AgentError(
            code if isinstance(code, str) else "AgentError",
            error.message,
            error.code,
            exit_code if isinstance(exit_code, int) else 1,
            data,
        )
        if request_id is None:
            raise refusal  # concerns the connection, not one request
        method = self._pending.pop(request_id, None) if isinstance(request_id, int) else None
        return Reply(cast(int, request_id), method, refusal) if method is not None else None
