"""Relays JSON-RPC lines between a program and agents: when one ends, the next one gets what it has not answered.

The program sees one connection. `Relay` has no I/O: `take` gets its lines, `answer` those of the agent.
"""

import secrets
from collections.abc import Iterator
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from zerochat.agent.api.attach import KEYED
from zerochat.agent.api.client_protocol import AgentError
from zerochat.cli.exit_codes import ExitCode
from zerochat.errors import LocalError
from zerochat.rpc import INVALID_REQUEST, LINE_BYTES_MAX, PROTOCOL, READING, REFUSED

RequestId: TypeAlias = int | str
OWN_IDS: Final = "zerochat-relay:"
"""The beginning of the ids of the relay's own requests."""


class AnswerLost(LocalError):
    """The agent has ended before it answered {method}, which may have been carried out. Check before you repeat it."""

    exit_code: ClassVar[int] = ExitCode.UNAVAILABLE


class _Message(Struct):
    """A request, a notification or an answer."""

    id: int | str | UnsetType | None = UNSET
    method: str = ""
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class _Place(Struct):
    seq: int = 0
    latest: int = 0
    within_s: float = 1.0


class Pending(Struct, eq=False):
    """A line of the program that has no answer yet."""

    line: bytes
    members: dict[RequestId, _Message]
    """The requests in it that are answered, by id: several in a batch."""
    is_batch: bool = False
    own_key: bool = False
    """The relay has added an idempotency key."""
    sent: bool = False
    """The agent may have received it."""

    def may_repeat(self) -> bool:
        return all(_may_repeat(one, self.own_key) for one in self.members.values())


_message = msgspec.json.Decoder(_Message)
_messages = msgspec.json.Decoder(list[_Message])
_place = msgspec.json.Decoder(_Place)


class Relay:
    """What the program waits for, and what the next agent has to know."""

    def __init__(self) -> None:
        self.pending: list[Pending] = []
        self.stops = False
        """The program has asked the agent to stop: no other one takes its place."""
        self.confirmed = False
        """The agent of this connection has answered."""
        self.ended = False
        """It has reported its end, so that what it has not answered was not carried out."""
        self._hello: Raw | UnsetType = UNSET
        self._subscription: dict[str, Any] | None = None
        self._seq = 0
        """The local number of the last event that the subscription has brought."""

    def take(self, line: bytes, *, adds_keys: bool = False) -> Pending | None:
        """A line of the program on its way to the agent. None: it is too long, so the agent would disconnect."""
        if len(line) > LINE_BYTES_MAX:
            return None
        try:
            is_batch = line.lstrip().startswith(b"[")
            messages = _messages.decode(line) if is_batch else [_message.decode(line)]
        except (ValueError, RecursionError):
            return Pending(line, {})  # the agent refuses it
        members = {one.id: one for one in messages if isinstance(one.id, int | str)}
        self.stops = self.stops or any(one.method == "stop_agent" for one in messages)
        taken = Pending(line, members, is_batch)
        if adds_keys and members and not is_batch:
            taken = _with_key(taken, messages[0])
        if members:
            self.pending.append(taken)
        return taken

    def answer(self, line: bytes) -> bytes:
        """A line of the agent as the program gets it; empty: it is not for the program."""
        try:
            if line.lstrip().startswith(b"["):
                return self._batch_answered(line, _messages.decode(line))
            message = _message.decode(line)
        except (ValueError, RecursionError):
            return line
        if message.method:
            return self._notified(line, message)
        if isinstance(message.id, str) and message.id.startswith(OWN_IDS):
            self._own_answered(message)
            return b""
        found = next((one for one in self.pending if not one.is_batch and message.id in one.members), None)
        if found is None:
            return line
        self.confirmed = True
        if _code(message) == "AgentStopping" and not self.stops:
            found.sent = False  # the next agent gets it
            return b""
        self.pending.remove(found)
        (request,) = found.members.values()
        self._note(request, message)
        return _without_duplicate(line, message) if found.own_key else line

    def begin(self) -> list[bytes]:
        """What a new connection starts with: the program's greeting and subscription. Then come all `pending`."""
        self.confirmed = self.ended = False
        hello = (
            msgspec.json.decode(self._hello)
            if isinstance(self._hello, Raw)
            else {"protocol": PROTOCOL, "client": "rpc"}
        )
        found = [_own("hello", hello)]
        if self._subscription is not None:
            consumer = self._subscription.get("consumer") is not None
            found.append(_own("subscribe", {**self._subscription, "since": None if consumer else self._seq}))
        return found

    def lose(self) -> list[bytes]:
        """The connection has ended: the answers to requests that may have been carried out and cannot be repeated."""
        lost = [one for one in self.pending if one.sent and not self.ended and not one.may_repeat()]
        self.pending = [one for one in self.pending if one not in lost]
        for one in self.pending:
            one.sent = False
        return [line for one in lost for line in _refused(one, None)]

    def fail(self, error: LocalError) -> list[bytes]:
        """No agent answers any more: the answers to all that is pending."""
        failed, self.pending = self.pending, []
        return [line for one in failed for line in _refused(one, error)]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _batch_answered(self, line: bytes, answers: list[_Message]) -> bytes:
        ids = {one.id for one in answers}
        found = next((one for one in self.pending if one.is_batch and not ids.isdisjoint(one.members)), None)
        if found is not None:
            self.confirmed = True
            self.pending.remove(found)
            for one in answers:
                if isinstance(one.id, int | str) and one.id in found.members:
                    self._note(found.members[one.id], one)
        return line

    def _notified(self, line: bytes, message: _Message) -> bytes:
        match message.method:
            case "event":
                self._seq = max(self._seq, _place_of(message.params).seq)
            case "consumer_taken":
                self._subscription = None
            case "stopping":
                self.ended = not _place_of(message.params).within_s
                return line if self.stops else b""
        return line

    def _own_answered(self, answer: _Message) -> None:
        """Raises AgentError where the next agent refuses the program's subscription."""
        self.confirmed = True
        if isinstance(error := answer.error, dict):
            raise AgentError(_code(answer), str(error.get("message")), REFUSED, ExitCode.UNAVAILABLE, error.get("data"))

    def _note(self, request: _Message, answer: _Message) -> None:
        """Remember what the next agent has to know."""
        if answer.result is UNSET:
            return
        if request.method == "hello":
            self._hello = request.params
        elif request.method == "subscribe":
            params = msgspec.json.decode(request.params) if isinstance(request.params, Raw) else {}
            since = params.get("since")
            self._seq = since if isinstance(since, int) else 0
            if since is None:
                self._seq = _place_of(answer.result).latest
            self._subscription = params


def too_long() -> bytes:
    """The answer to a line that is too long."""
    error = {"code": INVALID_REQUEST, "message": f"A line can have at most {LINE_BYTES_MAX} bytes."}
    return _line({"jsonrpc": "2.0", "id": None, "error": {**error, "data": {"code": "InvalidRequest"}}})


def _place_of(params: Raw | UnsetType) -> _Place:
    return _place.decode(params) if isinstance(params, Raw) else _Place()


def _may_repeat(request: _Message, own_key: bool) -> bool:
    if request.method in KEYED:
        return own_key or (isinstance(request.params, Raw) and bool(_object(request.params).get("key")))
    return request.method.startswith(READING)


def _object(params: Raw) -> dict[str, Any]:
    """Empty where the agent refuses them: for example, they are not UTF-8."""
    try:
        found = msgspec.json.decode(params)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _with_key(taken: Pending, request: _Message) -> Pending:
    """The request with an idempotency key, if it takes one and has none."""
    given = _object(request.params) if request.method in KEYED and isinstance(request.params, Raw) else {}
    if not given or given.get("key"):
        return taken
    params = {**given, "key": f"once:{secrets.token_urlsafe(16)}"}
    line = _line({"jsonrpc": "2.0", "id": request.id, "method": request.method, "params": params})
    return Pending(line, taken.members, own_key=True) if len(line) <= LINE_BYTES_MAX else taken


def _without_duplicate(line: bytes, answer: _Message) -> bytes:
    """The answer to a request with a key of the relay: that it was carried out before is not news."""
    if not isinstance(answer.result, Raw) or b'"duplicate":true' not in line:
        return line
    return _line({"jsonrpc": "2.0", "id": answer.id, "result": {**_object(answer.result), "duplicate": False}})


def _code(answer: _Message) -> str:
    data = answer.error.get("data") if isinstance(answer.error, dict) else None
    return str(data.get("code")) if isinstance(data, dict) else ""


def _refused(pending: Pending, error: LocalError | None) -> Iterator[bytes]:
    """The answers to a line; without an error, that its answers are lost."""
    answers = []
    for id, request in pending.members.items():
        why = error or AnswerLost(method=request.method)
        refusal = {"error": {"code": REFUSED, "message": why.sentence(), "data": why.details}}
        # An agent that stops may do so before it answers.
        answers.append({"jsonrpc": "2.0", "id": id, **({"result": {}} if request.method == "stop_agent" else refusal)})
    if pending.is_batch:
        yield _line(answers)
    else:
        yield from map(_line, answers)


def _own(method: str, params: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": f"{OWN_IDS}{method}", "method": method, "params": params})


def _line(message: object) -> bytes:
    return msgspec.json.encode(message) + b"\n"
