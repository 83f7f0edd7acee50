"""Coordinate Mediation 2.0 and 3.0: a recipient asks a mediator to take its messages in, and says for which DIDs.

    recipient                          mediator
      | -- mediate-request --------------> |   pthid: the mediator's invitation, if it came from one
      | <- mediate-grant, routing_did ---- |   or mediate-deny
      | -- keylist-update ---------------> |   these DIDs, from now on or no longer
      | <- keylist-update-response ------- |   what became of each
      | -- keylist-query (page) ---------> |
      | <- keylist ----------------------- |

Version 3.0 is the same under other names (`recipient-update` and so on), and there the grant may name several routing
DIDs. A mediator answers in the version in which it was asked. A recipient has no address, so everything that it sends
asks for the answer on the same connection (`return_route`).

The protocol does not ask whether a DID is the recipient's own, so whoever knows somebody's DID could register it first
and keep its messages from it. zerochat's recipients therefore put a proof into their updates, in a member of its own
that others ignore: a signature by the DID's key, for this recipient at this mediator. A zerochat mediator lets a DID
with a proof take the place of the same DID without one.

Specified in: https://didcomm.org/coordinate-mediation/2.0 and /3.0.
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

Version: TypeAlias = Literal["2.0", "3.0"]
Action: TypeAlias = Literal["add", "remove"]
Result: TypeAlias = Literal["success", "no_change", "client_error", "server_error"]
Kind: TypeAlias = Literal["request", "grant", "deny", "update", "updated", "query", "list"]

VERSIONS: Final[tuple[Version, ...]] = ("2.0", "3.0")
PROTOCOL: Final = "https://didcomm.org/coordinate-mediation/"
_NAMES: Final[dict[Version, dict[Kind, str]]] = {
    "2.0": {
        "request": "mediate-request",
        "grant": "mediate-grant",
        "deny": "mediate-deny",
        "update": "keylist-update",
        "updated": "keylist-update-response",
        "query": "keylist-query",
        "list": "keylist",
    },
    "3.0": {
        "request": "mediate-request",
        "grant": "mediate-grant",
        "deny": "mediate-deny",
        "update": "recipient-update",
        "updated": "recipient-update-response",
        "query": "recipient-query",
        "list": "recipient",
    },
}
_TYPES: Final = {
    (version, kind): f"{PROTOCOL}{version}/{name}" for version in VERSIONS for kind, name in _NAMES[version].items()
}

UPDATES_MAX: Final = 64
"""In one message; a recipient with more DIDs asks several times."""
PAGE_MAX: Final = 64
OFFSET_MAX: Final = 2**31
"""Beyond any list, and within what a database counts with."""
ROUTING_DIDS_MAX: Final = 8
PROOF_CHARS_MAX: Final = 128
"""64 bytes have 86."""
_PROVING_KEYS_MAX: Final = 4
"""Keys of a DID that are tried; each costs up to some 300 microseconds."""

_PROOF = "org.zerochat.proof"
"""A member of an update that only zerochat writes, and that everybody else ignores."""


class Change(Struct, frozen=True):
    """What shall become of a DID (or of a key, as a did:key)."""

    did: str
    action: Action
    proof: str | None = None
    """That it is the recipient's own (`is_proven`)."""


class Changed(Struct, frozen=True):
    """What has become of it."""

    did: str
    action: Action
    result: Result


class Page(Struct, frozen=True):
    """Which part of a list is wanted."""

    offset: int = 0
    limit: int = PAGE_MAX


class Listed(Struct, frozen=True):
    """A part of the list of a recipient's DIDs, and how many follow after it."""

    dids: tuple[str, ...]
    offset: int = 0
    remaining: int = 0


def kind_of(message: Message) -> tuple[Version, Kind] | None:
    """Which message of the protocol it is, in which version; None: none of them."""
    return next((key for key, uri in _TYPES.items() if same_type(message.type, uri)), None)


# --- what the recipient says ----------------------------------------------------------------------------------------


def request(random: Callable[[int], bytes], *, pthid: str | None = None, version: Version = "2.0") -> Message:
    """Ask to be taken in; `pthid` is the id of the mediator's invitation."""
    return _asking(version, "request", {}, random, pthid)


def update(changes: Sequence[Change], random: Callable[[int], bytes], *, version: Version = "2.0") -> Message:
    """Ask for at most UPDATES_MAX changes."""
    assert 0 < len(changes) <= UPDATES_MAX
    rows = [{"recipient_did": each.did, "action": each.action, _PROOF: each.proof} for each in changes]
    body = {"updates": [{name: value for name, value in row.items() if value is not None} for row in rows]}
    return _asking(version, "update", body, random)


def query(random: Callable[[int], bytes], page: Page | None = None, *, version: Version = "2.0") -> Message:
    """Ask which DIDs are known."""
    wanted = page or Page()
    body = {"paginate": {"limit": wanted.limit, "offset": wanted.offset}}
    return _asking(version, "query", body, random)


def _asking(
    version: Version, kind: Kind, body: dict[str, Any], random: Callable[[int], bytes], pthid: str | None = None
) -> Message:
    return Message(type=_TYPES[version, kind], id=new_id(random), body=body, pthid=pthid, return_route="all")


# --- whose a DID is -------------------------------------------------------------------------------------------------


def with_proofs(update: Message, keys: Mapping[str, SecretKey]) -> Message:
    """An update, addressed already, with a proof for each DID that is added and whose signing key is among `keys`.

    What is no update comes back as it is.
    """
    kind = kind_of(update)
    if kind is None or kind[1] != "update" or update.from_ is None or not update.to:
        return update
    rows = []
    for row in update.body["updates"]:
        key = keys.get(row["recipient_did"]) if row["action"] == "add" else None
        if key is None:
            rows.append(row)
        else:
            statement = _statement(row["recipient_did"], update.from_, update.to[0])
            rows.append({**row, _PROOF: b64url(sign(key, statement))})
    return replace(update, body={**update.body, "updates": rows})


def is_proven(change: Change, recipient: str, mediator: str, resolve: Callable[[str], Document]) -> bool:
    """Whether a key for authentication of the DID has signed that it is for this recipient (the DID that the update
    came from) at this mediator. A copy of the proof is of no use to anybody else."""
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


# --- what the mediator says -----------------------------------------------------------------------------------------


def grant(asked: Message, routing_did: str, random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(asked, "request")
    did: object = routing_did if version == "2.0" else [routing_did]
    return _answer(asked, version, "grant", {"routing_did": did}, random)


def deny(asked: Message, random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(asked, "request")
    return _answer(asked, version, "deny", {}, random)


def update_response(asked: Message, changed: Sequence[Changed], random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(asked, "update")
    rows = [{"recipient_did": each.did, "action": each.action, "result": each.result} for each in changed]
    return _answer(asked, version, "updated", {"updated": rows}, random)


def listing(asked: Message, found: Listed, random: Callable[[int], bytes]) -> Message:
    version, _ = _checked_kind(asked, "query")
    body = {
        "keys" if version == "2.0" else "dids": [{"recipient_did": did} for did in found.dids],
        "pagination": {"count": len(found.dids), "offset": found.offset, "remaining": found.remaining},
    }
    return _answer(asked, version, "list", body, random)


def _answer(
    asked: Message, version: Version, kind: Kind, body: dict[str, Any], random: Callable[[int], bytes]
) -> Message:
    return Message(type=_TYPES[version, kind], id=new_id(random), body=body, thid=asked.thread, pthid=asked.pthid)


# --- reading --------------------------------------------------------------------------------------------------------


class _Update(msgspec.Struct):
    recipient_did: str
    action: Action
    proof: str | None = msgspec.field(name=_PROOF, default=None)


class _UpdateBody(msgspec.Struct):
    updates: list[_Update]


class _Updated(msgspec.Struct):
    recipient_did: str
    action: Action
    result: Result


class _UpdatedBody(msgspec.Struct):
    updated: list[_Updated]


class _Paginate(msgspec.Struct):
    limit: int = PAGE_MAX
    offset: int = 0


class _QueryBody(msgspec.Struct):
    paginate: _Paginate | None = None


class _Key(msgspec.Struct):
    recipient_did: str


class _Pagination(msgspec.Struct):
    offset: int = 0
    remaining: int = 0


class _ListBody(msgspec.Struct):
    keys: list[_Key] = []
    dids: list[_Key] = []
    pagination: _Pagination | None = None


class _GrantBody(msgspec.Struct):
    routing_did: str | list[str]


def read_update(message: Message) -> tuple[Change, ...]:
    """Raises Malformed, also for more than UPDATES_MAX changes."""
    _checked_kind(message, "update")
    rows = _checked_list(_convert(message.body, _UpdateBody).updates, UPDATES_MAX)
    if any(row.proof is not None and len(row.proof) > PROOF_CHARS_MAX for row in rows):
        raise Malformed(why="mediation: a proof that is too long")
    return tuple(Change(_did(row.recipient_did), row.action, row.proof) for row in rows)


def read_query(message: Message) -> Page:
    """The page that is wanted, of at most PAGE_MAX DIDs. Raises Malformed."""
    _checked_kind(message, "query")
    wanted = _convert(message.body, _QueryBody).paginate or _Paginate()
    if not 0 <= wanted.offset <= OFFSET_MAX or wanted.limit < 1:
        raise Malformed(why="mediation: a page that cannot be")
    return Page(wanted.offset, min(wanted.limit, PAGE_MAX))


def read_grant(message: Message) -> tuple[str, ...]:
    """The DIDs under which messages for the recipient may be sent to the mediator; one at least. Raises Malformed."""
    _checked_kind(message, "grant")
    found = _convert(message.body, _GrantBody).routing_did
    dids = _checked_list([found] if isinstance(found, str) else found, ROUTING_DIDS_MAX)
    return tuple(_did(did) for did in dids)


def read_update_response(message: Message) -> tuple[Changed, ...]:
    """Raises Malformed."""
    _checked_kind(message, "updated")
    rows = _checked_list(_convert(message.body, _UpdatedBody).updated, UPDATES_MAX)
    return tuple(Changed(_did(row.recipient_did), row.action, row.result) for row in rows)


def read_listing(message: Message) -> Listed:
    """Raises Malformed."""
    _checked_kind(message, "list")
    body = _convert(message.body, _ListBody)
    rows = body.keys or body.dids
    page = body.pagination or _Pagination()
    if len(rows) > 16 * PAGE_MAX or page.offset < 0 or page.remaining < 0:
        raise Malformed(why="mediation: a list that is too long, or cannot be")
    return Listed(tuple(_did(row.recipient_did) for row in rows), page.offset, page.remaining)


def _checked_kind(message: Message, wanted: Kind) -> tuple[Version, Kind]:
    found = kind_of(message)
    if found is None or found[1] != wanted:
        raise Malformed(why=f"mediation: another message than {wanted}")
    return found


def _did(text: str) -> str:
    """A DID, a key id, or a bare verkey of a mediator that speaks so."""
    if not 0 < len(text) <= NEXT_CHARS_MAX or not text.isascii():
        raise Malformed(why="mediation: a DID that is none")
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
