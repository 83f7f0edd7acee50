"""Idempotency keys: what was asked under one is done once, however often it is asked.

The key is on disk with what was said under it, in one transaction, so whoever asks again gets the same answer, also
from an agent that was killed before it could answer. While the first request is under way, the same one waits for it.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.server import ControlServer
from zerochat.agent.api.subscriptions.store import Kept
from zerochat.agent.storage.journal import Journal
from zerochat.crypto.primitives import sha256
from zerochat.errors import LocalError, Overloaded
from zerochat.rpc import Request
from zerochat.rpc.subscriptions import KEY_CHARS_MAX

WAITING_MAX: Final = 1_000
"""Requests that wait for others under the same keys."""

Keyed: TypeAlias = (
    rpc.SendParams | rpc.AttachParams | rpc.EditParams | rpc.DeleteParams | rpc.ReactParams | rpc.TopicParams
)


class BadKey(LocalError):
    """An idempotency key has 1 to 128 printable ASCII characters."""

    exit_code: ClassVar[int] = 2


class KeyReused(LocalError):
    """Something else was said under this key before, and nothing was said now. Use another key for another message."""

    facts: ClassVar[tuple[str, ...]] = ("group", "id")


class _Claim(Struct):
    """A request that is under way."""

    group: str
    key: str
    asked: bytes
    request: Request
    """It alone, and no other that looks the same."""
    waiting: list[tuple[int, Request]] = field(default_factory=list)


class Keys(Struct):
    """The requests with a key that have come and are not settled. Owned by the desk."""

    server: ControlServer
    journal: Journal
    clock: Callable[[], int]
    """UTC milliseconds."""
    _claims: dict[tuple[str, str], _Claim] = field(default_factory=dict)
    _requests: dict[int, _Claim] = field(default_factory=dict)
    """By the identity of the request, which the claim keeps alive."""

    def claim(self, client: int, request: Request, group: str, params: Keyed) -> bool:
        """Whether this request is to be carried out; if not, it is answered, or will be with another one.

        Raises BadKey or KeyReused.
        """
        key = params.key
        if key is None:
            return True
        if not 1 <= len(key) <= KEY_CHARS_MAX or not (key.isascii() and key.isprintable()):
            raise BadKey
        asked = _digest(request.method, group, params)
        if (claimed := self._claims.get((group, key))) is not None:
            if claimed.asked != asked:
                raise KeyReused
            if sum(len(one.waiting) for one in self._claims.values()) >= WAITING_MAX:
                raise Overloaded(what="The number of waiting requests", limit=WAITING_MAX)
            claimed.waiting.append((client, request))
            return False
        known = self.journal.stream.key(group, key, self.clock())
        if known is None:
            claim = _Claim(group, key, asked, request)
            self._claims[group, key] = self._requests[id(request)] = claim
            return True
        said = msgspec.json.decode(known[1], type=rpc.Sent)
        if known[0] != asked:
            raise KeyReused(group=said.group, id=said.id)
        self.server.respond(client, request.id, replace(said, again=True))
        return False

    def kept(self, answered: Iterable[tuple[Request, Callable[[], object]]]) -> list[Kept]:
        """What is to be written of the requests that a turn has carried out, each with what makes its answer."""
        found, now = [], self.clock()
        for request, answer in answered:
            if (claim := self._requests.get(id(request))) is not None:
                sent = answer()
                if isinstance(sent, rpc.Sent):
                    said = msgspec.json.encode(sent).decode()
                    found.append(Kept(claim.group, claim.key, now, claim.asked, said))
        return found

    def settled(self, request: Request, result: object) -> None:
        """A request is answered, and so are those that wait for it."""
        for client, waiting in self._release(request):
            again = replace(result, again=True) if isinstance(result, rpc.Sent) else result
            self.server.respond(client, waiting.id, again)

    def refused(self, request: Request, error: LocalError) -> None:
        """A request is refused, and nothing was said; so are those that wait for it."""
        for client, waiting in self._release(request):
            self.server.refuse_error(client, waiting.id, error)

    def _release(self, request: Request) -> list[tuple[int, Request]]:
        claim = self._requests.pop(id(request), None)
        if claim is None:
            return []
        del self._claims[claim.group, claim.key]
        return claim.waiting


def _digest(method: str, group: str, params: Keyed) -> bytes:
    """The same for what asks for the same."""
    plain = msgspec.json.encode([method, replace(params, group=group, key=None)])
    return sha256(plain)
