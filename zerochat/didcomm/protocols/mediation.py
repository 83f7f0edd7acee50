"""Coordinate Mediation 1.0, 2.0 and 3.0: a recipient registers its DIDs, or its keys (1.0), with a mediator.

    recipient                          mediator
      | -- mediate-request --------------> |   pthid: the mediator's invitation, if it came from one
      | <- mediate-grant, routing_did ---- |   or mediate-deny
      | -- keylist-update ---------------> |   add and remove DIDs
      | <- keylist-update-response ------- |   the result of each
      | -- keylist-query (page) ---------> |
      | <- keylist ----------------------- |

The versions differ in names only (`VOCABULARIES`), except for the grant: that of 1.0 has an endpoint and routing keys,
that of 2.0 a routing DID, and that of 3.0 several. Each version may come in either envelope format. A mediator answers
in the version of the request. A recipient has no address, so its messages request answers on the same connection
(`return_route`).

The protocol does not verify ownership of a DID: a third party could register another recipient's DID first and
intercept its messages. zerochat's recipients therefore add a proof to their updates, in an extension member: a
signature by the DID's key over this recipient and this mediator. A zerochat mediator lets a proven registration replace
an unproven one.

Specified in: Aries RFC 0211 (1.0); https://didcomm.org/coordinate-mediation/2.0 and /3.0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.keys import PublicKey, SecretKey, sign, verify
from zerochat.didcomm.did import Document, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols.routing import NEXT_CHARS_MAX
from zerochat.didcomm.uri import same_type
from zerochat.errors import Malformed, RemoteError

Version: TypeAlias = Literal["1.0", "2.0", "3.0"]
Action: TypeAlias = Literal["add", "remove"]
Result: TypeAlias = Literal["success", "no_change", "client_error", "server_error"]
Kind: TypeAlias = Literal["request", "grant", "deny", "update", "updated", "query", "list"]

PROTOCOL: Final = "https://didcomm.org/coordinate-mediation/"


class Vocabulary(Struct, frozen=True):
    """The names of one version."""

    types: Mapping[Kind, str]
    recipient: str
    """The member that names a recipient."""
    listed: str
    """The member with the rows of a list."""


_ASKED: Final[dict[Kind, str]] = {"request": "mediate-request", "grant": "mediate-grant", "deny": "mediate-deny"}
_KEYLIST: Final[dict[Kind, str]] = _ASKED | {
    "update": "keylist-update",
    "updated": "keylist-update-response",
    "query": "keylist-query",
    "list": "keylist",
}
_RECIPIENTS: Final[dict[Kind, str]] = _ASKED | {
    "update": "recipient-update",
    "updated": "recipient-update-response",
    "query": "recipient-query",
    "list": "recipient",
}
VOCABULARIES: Final[dict[Version, Vocabulary]] = {
    "1.0": Vocabulary(_KEYLIST, "recipient_key", "keys"),
    "2.0": Vocabulary(_KEYLIST, "recipient_did", "keys"),
    "3.0": Vocabulary(_RECIPIENTS, "recipient_did", "dids"),
}
VERSIONS: Final = tuple(VOCABULARIES)
_TYPES: Final = {
    (version, kind): f"{PROTOCOL}{version}/{name}"
    for version, vocabulary in VOCABULARIES.items()
    for kind, name in vocabulary.types.items()
}
PROBLEM_V1: Final = PROTOCOL + "1.0/problem-report"
NOT_GRANTED_V1: Final = "mediation_not_granted"
"""A problem report of 1.0 and its code, as ACA-Py has them."""

UPDATES_MAX: Final = 64
"""Updates in one message."""
PAGE_MAX: Final = 64
OFFSET_MAX: Final = 2**31
"""Beyond any list, within a database integer."""
ROUTING_DIDS_MAX: Final = 8
ENDPOINT_CHARS_MAX: Final = 1024
PROOF_CHARS_MAX: Final = 128
"""64 bytes in base64url have 86."""
_PROVING_KEYS_MAX: Final = 4
"""Keys of a DID that are tried, each up to 300 µs."""

_PROOF = "org.zerochat.proof"
"""Extension member of an update."""


class Change(Struct, frozen=True):
    """A requested registration change of a DID (or of a key, as a did:key)."""

    did: str
    action: Action
    proof: str | None = None
    """Proof of ownership (`is_proven`)."""


class Grant(Struct, frozen=True):
    """Where mail for the recipient goes."""

    routing: tuple[str, ...]
    """At least one routing DID; in 1.0 routing keys as did:key or in base58, possibly none."""
    endpoint: str = ""
    """1.0: the mediator's address."""


class Changed(Struct, frozen=True):
    """Result of a change."""

    did: str
    action: Action
    result: Result


class Page(Struct, frozen=True):
    """A requested page of a list."""

    offset: int = 0
    limit: int = PAGE_MAX


class Listed(Struct, frozen=True):
    """A page of a recipient's DIDs; `remaining`: how many follow."""

    dids: tuple[str, ...]
    offset: int = 0
    remaining: int = 0


def kind_of(message: Message) -> tuple[Version, Kind] | None:
    """Version and kind of a message; None: another protocol."""
    return next((key for key, uri in _TYPES.items() if same_type(message.type, uri)), None)


# --- the recipient's messages ---------------------------------------------------------------------------------------


def request(random: Callable[[int], bytes], *, pthid: str | None = None, version: Version = "2.0") -> Message:
    """Request mediation; `pthid`: the id of the mediator's invitation."""
    return _asking(version, "request", {}, random, pthid)


def update(changes: Sequence[Change], random: Callable[[int], bytes], *, version: Version = "2.0") -> Message:
    """Request up to UPDATES_MAX changes."""
    assert 0 < len(changes) <= UPDATES_MAX
    name = VOCABULARIES[version].recipient
    rows = [{name: each.did, "action": each.action, _PROOF: each.proof} for each in changes]
    body = {"updates": [{name: value for name, value in row.items() if value is not None} for row in rows]}
    return _asking(version, "update", body, random)


def query(random: Callable[[int], bytes], page: Page | None = None, *, version: Version = "2.0") -> Message:
    """Query the registered DIDs."""
    page = page or Page()
    body = {"paginate": {"limit": page.limit, "offset": page.offset}}
    return _asking(version, "query", body, random)


def _asking(
    version: Version, kind: Kind, body: dict[str, Any], random: Callable[[int], bytes], pthid: str | None = None
) -> Message:
    return Message(type=_TYPES[version, kind], id=new_id(random), body=body, pthid=pthid, return_route="all")


# --- ownership proofs -----------------------------------------------------------------------------------------------


def with_proofs(update: Message, keys: Mapping[str, SecretKey]) -> Message:
    """Add ownership proofs to an addressed update, for each added DID with a key in `keys`.

    Other messages are returned unchanged.
    """
    kind = kind_of(update)
    if kind is None or kind[1] != "update" or update.from_ is None or not update.to:
        return update
    rows, name = [], VOCABULARIES[kind[0]].recipient
    for row in update.body["updates"]:
        key = keys.get(row[name]) if row["action"] == "add" else None
        if key is None:
            rows.append(row)
        else:
            statement = _statement(row[name], update.from_, update.to[0])
            rows.append({**row, _PROOF: b64url(sign(key, statement))})
    return replace(update, body={**update.body, "updates": rows})


def is_proven(change: Change, recipient: str, mediator: str, resolve: Callable[[str], Document]) -> bool:
    """Whether an authentication key of the DID signed its registration by this recipient (the sender of the update)
    at this mediator. The proof is bound to both, so a copy is useless to others."""
    if change.proof is None or change.action != "add":
        return False
    try:
        signature = b64url_bytes(change.proof)
        statement = _statement(change.did, recipient, mediator)
        methods = resolve(change.did.partition("#")[0]).authentication
    except RemoteError:
        return False
    return any(_has_signed(method.key, statement, signature) for method in methods[:_PROVING_KEYS_MAX])


def _has_signed(key: PublicKey, statement: bytes, signature: bytes) -> bool:
    try:
        verify(key, statement, signature)
    except RemoteError:
        return False
    return True


def _statement(did: str, recipient: str, mediator: str) -> bytes:
    names = (short_form(did.partition("#")[0]), short_form(recipient), short_form(mediator))
    return "\n".join(("zerochat mediation proof 1", *names)).encode()


# --- the mediator's messages ----------------------------------------------------------------------------------------


def grant(incoming: Message, routing_did: str, random: Callable[[int], bytes], at: Grant | None = None) -> Message:
    """Grant mediation over this DID; `at`: the same for 1.0, whose senders know only keys. Raises Malformed for a
    request of 1.0 without it."""
    version, _ = _checked_kind(incoming, "request")
    if version == "1.0" and at is None:
        raise Malformed(why="mediation: a request by key, where only a DID leads")
    body: dict[str, Any] = {"routing_did": routing_did if version == "2.0" else [routing_did]}
    if version == "1.0" and at is not None:
        body = {"endpoint": at.endpoint, "routing_keys": list(at.routing)}
    return _answer(incoming, version, "grant", body, random)


def deny(incoming: Message, random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(incoming, "request")
    return _answer(incoming, version, "deny", {}, random)


def update_response(incoming: Message, changed: Sequence[Changed], random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(incoming, "update")
    name = VOCABULARIES[version].recipient
    rows = [{name: each.did, "action": each.action, "result": each.result} for each in changed]
    return _answer(incoming, version, "updated", {"updated": rows}, random)


def listing(incoming: Message, found: Listed, random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(incoming, "query")
    vocabulary = VOCABULARIES[version]
    body = {
        vocabulary.listed: [{vocabulary.recipient: did} for did in found.dids],
        "pagination": {"count": len(found.dids), "offset": found.offset, "remaining": found.remaining},
    }
    return _answer(incoming, version, "list", body, random)


def _answer(
    incoming: Message, version: Version, kind: Kind, body: dict[str, Any], random: Callable[[int], bytes]
) -> Message:
    return Message(type=_TYPES[version, kind], id=new_id(random), body=body, thid=incoming.thread, pthid=incoming.pthid)


# --- reading --------------------------------------------------------------------------------------------------------


class _Named(msgspec.Struct):
    """A row that names a recipient by DID, or (1.0) by key."""

    recipient_did: str = ""
    recipient_key: str = ""

    @property
    def did(self) -> str:
        return _did(self.recipient_did or self.recipient_key)


class _Update(_Named, kw_only=True):
    action: Action
    proof: str | None = msgspec.field(name=_PROOF, default=None)


class _UpdateBody(msgspec.Struct):
    updates: list[_Update]


class _Updated(_Named, kw_only=True):
    action: Action
    result: Result


class _UpdatedBody(msgspec.Struct):
    updated: list[_Updated]


class _Paginate(msgspec.Struct):
    limit: int = PAGE_MAX
    offset: int = 0


class _QueryBody(msgspec.Struct):
    paginate: _Paginate | None = None


class _Pagination(msgspec.Struct):
    offset: int = 0
    remaining: int = 0


class _ListBody(msgspec.Struct):
    keys: list[_Named] = []
    dids: list[_Named] = []
    pagination: _Pagination | None = None


class _GrantBody(msgspec.Struct):
    routing_did: str | list[str] = []


class _GrantBodyV1(msgspec.Struct):
    endpoint: str
    routing_keys: list[str]


def read_update(message: Message) -> tuple[Change, ...]:
    """Raises Malformed, also for more than UPDATES_MAX changes."""
    _checked_kind(message, "update")
    rows = _checked_list(_convert(message.body, _UpdateBody).updates, UPDATES_MAX)
    if any(row.proof is not None and len(row.proof) > PROOF_CHARS_MAX for row in rows):
        raise Malformed(why="mediation: a proof that is too long")
    return tuple(Change(row.did, row.action, row.proof) for row in rows)


def read_query(message: Message) -> Page:
    """The requested page, limited to PAGE_MAX DIDs; a limit of -1 is none (ACA-Py). Raises Malformed."""
    _checked_kind(message, "query")
    page = _convert(message.body, _QueryBody).paginate or _Paginate()
    if not 0 <= page.offset <= OFFSET_MAX or (page.limit < 1 and page.limit != -1):
        raise Malformed(why="mediation: an invalid page")
    return Page(page.offset, PAGE_MAX if page.limit == -1 else min(page.limit, PAGE_MAX))


def read_grant(message: Message) -> Grant:
    """Raises Malformed."""
    version, _ = _checked_kind(message, "grant")
    if version == "1.0":
        old = _convert(message.body, _GrantBodyV1)
        if not 0 < len(old.endpoint) <= ENDPOINT_CHARS_MAX or len(old.routing_keys) > ROUTING_DIDS_MAX:
            raise Malformed(why="mediation: an invalid endpoint, or too many routing keys")
        return Grant(tuple(_did(key) for key in old.routing_keys), old.endpoint)
    found = _convert(message.body, _GrantBody).routing_did
    dids = _checked_list([found] if isinstance(found, str) else found, ROUTING_DIDS_MAX)
    return Grant(tuple(_did(did) for did in dids))


def read_update_response(message: Message) -> tuple[Changed, ...]:
    """Raises Malformed."""
    _checked_kind(message, "updated")
    rows = _checked_list(_convert(message.body, _UpdatedBody).updated, UPDATES_MAX)
    return tuple(Changed(row.did, row.action, row.result) for row in rows)


def read_listing(message: Message) -> Listed:
    """Raises Malformed."""
    _checked_kind(message, "list")
    body = _convert(message.body, _ListBody)
    rows = body.keys or body.dids
    page = body.pagination or _Pagination()
    if len(rows) > 16 * PAGE_MAX or page.offset < 0 or page.remaining < 0:
        raise Malformed(why="mediation: an invalid or too long list")
    return Listed(tuple(row.did for row in rows), page.offset, page.remaining)


def _checked_kind(message: Message, expected: Kind) -> tuple[Version, Kind]:
    found = kind_of(message)
    if found is None or found[1] != expected:
        raise Malformed(why=f"mediation: another message than {expected}")
    return found


def _did(text: str) -> str:
    """A DID, a key id, or a bare verkey."""
    if not 0 < len(text) <= NEXT_CHARS_MAX or not text.isascii():
        raise Malformed(why="mediation: an invalid DID")
    return text


_T = TypeVar("_T")


def _checked_list(rows: list[_T], size_max: int) -> list[_T]:
    if not 0 < len(rows) <= size_max:
        raise Malformed(why="mediation: an empty list, or one that is too long")
    return rows


def _convert(tree: object, shape: type[_T]) -> _T:
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise Malformed(why=f"mediation: {error}") from None
