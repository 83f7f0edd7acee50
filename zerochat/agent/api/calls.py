"""Decodes lines of the control protocol: each is a request, a notification of the client, or a batch of them."""

from typing import ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from zerochat.rpc import (
    BATCH_MAX,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LINE_BYTES_MAX,
    METHOD_NOT_FOUND,
    METHODS,
    PARSE_ERROR,
    Request,
)

INTEGER_END = 1 << 63
ID_CHARS_MAX = 128
"""The id of a request is echoed, so it must leave room for the answer."""
ID_NUMBER_END = 1 << 53
"""JSON readers round larger numbers, which makes them useless as ids."""
RESERVED_BYTES = 512
"""Room that each unanswered request of a batch keeps in the line for an error."""

RequestId: TypeAlias = int | str | UnsetType | None
"""As in `Request.id`; unset: nothing is answered."""


class Batch:
    """The answers to a batch, which are sent together in one line, in the order in which they are ready."""

    def __init__(self, size: int) -> None:
        """`size`: the number of requests that are answered."""
        self.waiting = size
        self._answers: list[bytes] = []
        self._bytes_left = LINE_BYTES_MAX - RESERVED_BYTES

    def has_room(self, answer: bytes) -> bool:
        """Whether this answer and errors for all others fit the line."""
        return len(answer) <= max(self._bytes_left - (self.waiting - 1) * RESERVED_BYTES, RESERVED_BYTES)

    def add(self, answer: bytes) -> None:
        self._answers.append(answer)
        self._bytes_left -= len(answer) + 1
        self.waiting -= 1

    def line(self) -> bytes:
        return b"[" + b",".join(self._answers) + b"]\n"


class Call(Struct, frozen=True, eq=False):
    """A valid request: its client, id, method and decoded parameters. Each call is distinct (`eq=False`)."""

    client: int
    id: RequestId
    method: str
    params: Struct
    batch: Batch | None = None


class BadCall(Struct, frozen=True):
    """A request that is refused before it reaches a handler. `id` is echoed where it could be read."""

    id: RequestId
    code: int
    why: str


def decode_call(client: int, request: Request) -> Call:
    """The call with decoded parameters. Raises ValidationError."""
    params_type = METHODS[request.method][0]
    params = msgspec.convert({} if request.params is UNSET else request.params, params_type)
    _check_numbers(params)
    return Call(client, request.id, request.method, params)


def _check_numbers(params: Struct) -> None:
    """Raises ValidationError where a number does not fit the journal's 64 bits."""
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if isinstance(value, int) and not -INTEGER_END <= value < INTEGER_END:
            raise msgspec.ValidationError(f"Expected a number of 64 bits - at `$.{name}`")
        if isinstance(value, Struct):
            _check_numbers(value)


class CallDecoder:
    """Decodes what one server receives."""

    not_json: ClassVar = BadCall(None, PARSE_ERROR, "This line is not JSON.")

    def __init__(self) -> None:
        self._request = msgspec.json.Decoder(Request)
        self._members = msgspec.json.Decoder(list[Raw])
        self._any = msgspec.json.Decoder()

    def decode(self, client: int, line: bytes) -> tuple[list[Call | BadCall], bool]:
        """The requests of a line, and whether it is a batch."""
        if not line.lstrip().startswith(b"["):
            return [self._decode_one(client, line)], False
        try:
            members = self._members.decode(line)
        except (ValueError, RecursionError):
            return [self.not_json], False
        if not 0 < len(members) <= BATCH_MAX:
            why = f"A batch has 1 to {BATCH_MAX} requests."
            return [BadCall(None, INVALID_REQUEST, why)], False
        return [self._decode_one(client, bytes(member)) for member in members], True

    def _decode_one(self, client: int, text: bytes) -> Call | BadCall:
        try:
            request = self._request.decode(text)
        except msgspec.ValidationError as error:
            return self._invalid(text, error)
        except (ValueError, RecursionError):
            return self.not_json
        if not _is_echoed(request.id):
            return BadCall(None, INVALID_REQUEST, "This id is too long.")
        if request.jsonrpc != "2.0":
            answered = None if request.id is UNSET else request.id
            return BadCall(answered, INVALID_REQUEST, 'A request needs "jsonrpc": "2.0".')
        if request.method not in METHODS:
            return BadCall(request.id, METHOD_NOT_FOUND, "Unknown method.")
        try:
            return decode_call(client, request)
        except (msgspec.ValidationError, RecursionError) as error:
            return BadCall(request.id, INVALID_PARAMS, f"The params do not fit {request.method}: {error}.")

    def _invalid(self, text: bytes, error: msgspec.ValidationError) -> BadCall:
        """The refusal of JSON that is no request, with its id where it has a usable one."""
        try:
            found = self._any.decode(text)
        except (ValueError, RecursionError):
            return self.not_json
        request_id = found.get("id") if isinstance(found, dict) else None
        usable = type(request_id) in (int, str) and _is_echoed(request_id)
        return BadCall(request_id if usable else None, INVALID_REQUEST, f"Invalid request: {error}.")


def _is_echoed(request_id: RequestId) -> bool:
    if isinstance(request_id, int):
        return abs(request_id) < ID_NUMBER_END
    return not isinstance(request_id, str) or len(request_id) <= ID_CHARS_MAX
