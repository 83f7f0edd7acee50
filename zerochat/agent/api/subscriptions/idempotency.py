"""Idempotency keys: a request with a key is carried out once, however often it is sent.

The key is committed together with the event, so a repeated request gets the same result, even from an agent that was
killed before it answered. While the first request is in progress, its repetitions wait for it.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.api.subscriptions.store import StoredAnswer
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, Overloaded
from zerochat.rpc.subscriptions import KEY_CHARS_MAX

WAITING_MAX: Final = 1_000
"""Requests that wait for the first one with the same key."""

KeyedParams: TypeAlias = (
    rpc.SendMessageParams
    | rpc.SendFilesParams
    | rpc.EditMessageParams
    | rpc.DeleteMessageParams
    | rpc.ReactParams
    | rpc.SetTopicParams
    | rpc.PinParams
)


class BadKey(LocalError):
    """An idempotency key has 1 to 128 printable ASCII characters."""

    exit_code: ClassVar[int] = 2


class KeyReused(LocalError):
    """This idempotency key was used for a different request. Nothing was sent; use a new key for each message."""

    facts: ClassVar[tuple[str, ...]] = ("group", "id")


class _Claim(Struct):
    """A key whose first request is in progress."""

    group: str
    key: str
    digest: bytes
    call: Call
    waiting: list[Call] = field(default_factory=list)


class IdempotencyKeys(Struct):
    """The requests with a key that are in progress."""

    server: ControlServer
    journal: Journal
    clock: Callable[[], int]
    """UTC milliseconds."""
    _by_key: dict[tuple[str, str], _Claim] = field(default_factory=dict)
    _by_call: dict[int, _Claim] = field(default_factory=dict)
    """By the identity of the call, which the claim keeps alive."""

    def claim(self, call: Call, group: str, params: KeyedParams) -> bool:
        """Whether to carry out this request. If not, it is answered now, or together with the first one.

        Raises BadKey or KeyReused.
        """
        key = params.key
        if key is None:
            return True
        if not 1 <= len(key) <= KEY_CHARS_MAX or not (key.isascii() and key.isprintable()):
            raise BadKey
        digest = _digest(call.method, group, params)
        if (claimed := self._by_key.get((group, key))) is not None:
            if claimed.digest != digest:
                raise KeyReused
            if sum(len(claim.waiting) for claim in self._by_key.values()) >= WAITING_MAX:
                raise Overloaded(what="The number of waiting requests", limit=WAITING_MAX)
            claimed.waiting.append(call)
            return False
        stored = self.journal.stream.key(group, key, self.clock())
        if stored is None:
            self._by_key[group, key] = self._by_call[id(call)] = _Claim(group, key, digest, call)
            return True
        sent = msgspec.json.decode(stored[1], type=rpc.Sent)
        if stored[0] != digest:
            raise KeyReused(group=sent.group, id=sent.id)
        self.server.respond(call, replace(sent, duplicate=True))
        return False

    def records(self, answered: Iterable[tuple[Call, Callable[[], object]]]) -> list[StoredAnswer]:
        """What to write for the requests that a batch has carried out, each with a function that makes its result."""
        found, now = [], self.clock()
        for call, result in answered:
            if (claim := self._by_call.get(id(call))) is not None:
                sent = result()
                if isinstance(sent, rpc.Sent):
                    answer = msgspec.json.encode(sent).decode()
                    found.append(StoredAnswer(claim.group, claim.key, now, claim.digest, answer))
        return found

    def answered(self, call: Call, result: object) -> None:
        """A request was answered: answer its repetitions."""
        for waiting in self._release(call):
            repeated = replace(result, duplicate=True) if isinstance(result, rpc.Sent) else result
            self.server.respond(waiting, repeated)

    def refused(self, call: Call, error: LocalError) -> None:
        """A request was refused: refuse its repetitions."""
        for waiting in self._release(call):
            self.server.refuse_error(waiting, error)

    def _release(self, call: Call) -> list[Call]:
        claim = self._by_call.pop(id(call), None)
        if claim is None:
            return []
        del self._by_key[claim.group, claim.key]
        return claim.waiting


def _digest(method: str, group: str, params: KeyedParams) -> bytes:
    """Equal for equal requests, whatever names the group and is answered."""
    return sha256(msgspec.json.encode([method, replace(params, group=group, key=None, hops=0)]))
