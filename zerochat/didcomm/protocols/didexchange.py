"""DID Exchange 1.0 and 1.1 in DIDComm v1 (Aries RFC 0023): requester and responder state machines.

    requester                                                        responder
    |  request: did (, did_doc~attach)   to a key of the invitation ->  |
    request-sent                                                        request-received
    |  <- response: did, did_rotate~attach or did_doc~attach            |  signed by a key of the invitation
    completed                                                           response-sent
    |  complete ->                                                      |
    completed                                                           completed

A problem report leads from any state to `abandoned`; a message out of order is refused and changes nothing. The
responder rotates to a new DID in its answer, proven by a signature of a key from the invitation. 1.1 signs the new DID
(`did_rotate~attach`), 1.0 a document (`did_doc~attach`). The document of a self-contained DID takes precedence over an
attachment; an attached document counts only for did:sov, often without prefix, if the DID is derived from one of its
keys, and for did:peer:1, if the DID is its hash.

The envelope's sender key must belong to the DID in the message; this is checked here, because v1 envelopes name no
DIDs. In v2, groups exchange DIDs with `exchange.py`.

Specified in: Aries RFC 0023.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import SHA2_256, base58, compact_json, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import sha256
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import AUTHENTICATION_FRAGMENT, DID_CHARS_MAX, Document, pin, read_document, same_did
from zerochat.didcomm.did import resolve as resolve_did
from zerochat.didcomm.message import Message, new_id, same_id, same_type
from zerochat.didcomm.protocols.bodies import Name, Text, read_body
from zerochat.didcomm.protocols.problem import Report, is_problem, problem_v1, read_problem
from zerochat.didcomm.protocols.signed_attachment import CONTENT_BYTES_MAX, read_signed, signed_attachment
from zerochat.didcomm.uri import parse_type
from zerochat.errors import Malformed, Refused, Unauthentic

Version = Literal["1.0", "1.1"]
PROTOCOLS: Mapping[Version, str] = {
    "1.0": "https://didcomm.org/didexchange/1.0",
    "1.1": "https://didcomm.org/didexchange/1.1",
}
REQUEST, RESPONSE, COMPLETE = (f"{PROTOCOLS['1.1']}/{name}" for name in ("request", "response", "complete"))

Reason = Literal[
    "request_not_accepted",
    "request_processing_error",
    "response_not_accepted",
    "response_processing_error",
    "complete_not_accepted",
]

_SELF_CONTAINED: Final = ("did:peer:4", "did:peer:2", "did:peer:0", "did:key:")
_SOV: Final = "did:sov:"
_HASHED: Final = "did:peer:1"
_NYM_BYTES: Final = 16
"""A did:sov is the first half of its first Ed25519 key."""


class Party(Struct, frozen=True):
    """The peer as stated by its message."""

    did: str
    """The DID, with the did:sov prefix added if it was missing."""
    document: Document
    verkeys: tuple[PublicKey, ...]
    """Ed25519 authentication keys, accepted as sender keys. Keys in services prove nothing."""
    label: str = ""
    """The peer's label."""
    stored: str = ""
    """The DID to store: pinned where its document has come beside it."""


class Requester(Struct, frozen=True):
    """An exchange that we requested."""

    version: Version
    thid: str
    pthid: str | None
    """Id of the invitation, or the requested DID."""
    did: str
    """Our DID."""
    signers: tuple[PublicKey, ...]
    """Keys of the invitation."""
    invited_by: str | None = None
    """DID of the invitation, if any."""
    state: Literal["request-sent", "completed", "abandoned"] = "request-sent"
    peer: Party | None = None
    problem: Report | None = None


class Responder(Redacted, frozen=True):
    """An exchange that a peer requested."""

    REDACTED = ("request",)

    version: Version
    request: Message
    peer: Party
    state: Literal["request-received", "response-sent", "completed", "abandoned"] = "request-received"
    did: str | None = None
    """Our DID, once we responded."""
    problem: Report | None = None


_Did = Annotated[str, msgspec.Meta(min_length=1, max_length=DID_CHARS_MAX)]


class _RequestBody(msgspec.Struct, frozen=True):
    did: _Did
    label: Name | None = None
    goal_code: Name | None = None
    goal: Text | None = None
    document: dict[str, Any] | None = msgspec.field(name="did_doc~attach", default=None)


class _ResponseBody(msgspec.Struct, frozen=True):
    did: _Did
    document: dict[str, Any] | None = msgspec.field(name="did_doc~attach", default=None)
    rotation: dict[str, Any] | None = msgspec.field(name="did_rotate~attach", default=None)


def service_v1(uri: str, routing_keys: Sequence[str] = (), priority: int = 0) -> dict[str, Any]:
    """The service of our DID for v1 agents (RFC 0067); its key is the signing key."""
    return {
        "id": f"#didcomm-{priority}",
        "type": "did-communication",
        "priority": priority,
        "recipientKeys": [AUTHENTICATION_FRAGMENT],
        "routingKeys": list(routing_keys),
        "serviceEndpoint": uri,
    }


# --- the requester --------------------------------------------------------------------------------------------------


def request(
    did: str,
    label: str,
    signers: Sequence[PublicKey],
    random: Callable[[int], bytes],
    *,
    pthid: str | None,
    invited_by: str | None = None,
    version: Version = "1.1",
    goal_code: str | None = None,
    goal: str | None = None,
    attached: tuple[Mapping[str, Any], SecretKey] | None = None,
) -> tuple[Requester, Message]:
    """Request an exchange from our new DID `did`.

    `signers`: the invitation's keys; `pthid`: its id. `attached`: the DID's document and its signing key, for peers
    that cannot resolve the DID.
    """
    name = new_id(random)
    goals = {"goal_code": goal_code, "goal": goal}
    body: dict[str, Any] = {"label": label, "did": did} | {key: text for key, text in goals.items() if text is not None}
    if attached is not None:
        body["did_doc~attach"] = signed_attachment(compact_json(attached[0]), attached[1], "application/json")
    message = Message(type=f"{PROTOCOLS[version]}/request", id=name, thid=name, pthid=pthid, body=body)
    return Requester(version, name, pthid, did, tuple(signers), invited_by), message


def receive_response(
    exchange: Requester,
    message: Message,
    sender: PublicKey,
    random: Callable[[int], bytes],
    resolve: Callable[[str], Document] = resolve_did,
) -> tuple[Requester, Message]:
    """Process the response; return the new state and the complete message.

    `sender`: the key proven by the envelope. Raises RemoteError; the exchange is then unchanged.
    """
    _expect(message, RESPONSE, exchange.thid, exchange.pthid)
    if exchange.state != "request-sent":
        raise Refused(why="a response out of order")
    body = read_body(message, _ResponseBody)
    peer = _party(body.did, body.document, exchange.signers, "", resolve)
    if not body.did.startswith(_SELF_CONTAINED):
        pass
    elif body.rotation is not None:
        _check_rotation(body.rotation, peer.did, exchange.signers)
    elif body.document is not None:
        _signed_document(body.document, peer.did, exchange.signers)
    elif exchange.invited_by is None or not same_did(exchange.invited_by, peer.did):
        raise Refused(why="a response from a new DID that is not signed by a key of the invitation")
    _check_sender(peer, sender)
    done = Message(
        type=f"{PROTOCOLS[exchange.version]}/complete", id=new_id(random), thid=exchange.thid, pthid=exchange.pthid
    )
    return replace(exchange, state="completed", peer=peer), done


def _check_rotation(tree: dict[str, Any], did: str, signers: Sequence[PublicKey]) -> None:
    """Raise RemoteError unless the invitation's keys signed this DID."""
    signed = read_signed(tree)
    if not all(signer in signers for signer in signed.signers):
        raise Unauthentic()
    if len(signed.content) > DID_CHARS_MAX or not signed.content.isascii():
        raise Malformed(why="did_rotate~attach: not a DID")
    if not same_did(signed.content.decode(), did):
        raise Unauthentic()


# --- the responder --------------------------------------------------------------------------------------------------


def receive_request(
    message: Message, invitation: str, sender: PublicKey, resolve: Callable[[str], Document] = resolve_did
) -> Responder:
    """Process a request for the invitation with this id; `sender`: the key proven by the envelope.

    Raises RemoteError. The caller checks the invitation's validity and the authorisation.
    """
    _expect(message, REQUEST, message.thread, invitation)
    if message.pthid is None:
        raise Refused(why="a request that answers no invitation")
    body = read_body(message, _RequestBody)
    peer = _party(body.did, body.document, None, body.label or "", resolve)
    _check_sender(peer, sender)
    return Responder("1.1" if parse_type(message.type).minor else "1.0", message, peer)


def respond(
    exchange: Responder,
    did: str,
    signer: SecretKey,
    random: Callable[[int], bytes],
    document: Mapping[str, Any] | None = None,
) -> tuple[Responder, Message]:
    """Respond from our new DID `did`, signed by the invitation's key `signer`.

    `document`: the DID's document, for peers that cannot resolve the DID.
    """
    assert exchange.state in ("request-received", "response-sent")
    body: dict[str, Any] = {"did": did, "did_rotate~attach": signed_attachment(did.encode(), signer, "text/string")}
    if document is not None:
        body["did_doc~attach"] = signed_attachment(compact_json(document), signer, "application/json")
    message = Message(
        type=f"{PROTOCOLS[exchange.version]}/response",
        id=new_id(random),
        thid=exchange.request.thread,
        pthid=exchange.request.pthid,
        body=body,
    )
    return replace(exchange, state="response-sent", did=did), message


def receive_complete(exchange: Responder, message: Message, sender: PublicKey) -> Responder:
    """Process the complete message; idempotent. Raises RemoteError."""
    _expect(message, COMPLETE, exchange.request.thread, exchange.request.pthid)
    _check_sender(exchange.peer, sender)
    if exchange.state not in ("response-sent", "completed"):
        raise Refused(why="a completion out of order")
    return replace(exchange, state="completed")


# --- problems -------------------------------------------------------------------------------------------------------


def decline(about: Message, reason: Reason, text: str, random: Callable[[int], bytes]) -> Message:
    """A problem report that abandons the exchange because of this message."""
    version = PROTOCOLS["1.1" if parse_type(about.type).minor else "1.0"]
    return problem_v1(reason, about, text, random, kind=f"{version}/problem_report")


def receive_problem(exchange: Requester, message: Message) -> Requester:
    """Process the responder's problem report, specific or general. Raises RemoteError.

    Before the response no peer key is known, so knowledge of the request's id suffices: only the invitation's keys
    could read the request.
    """
    return replace(exchange, state="abandoned", problem=_problem(message, exchange.thid, exchange.state))


def receive_problem_from(exchange: Responder, message: Message, sender: PublicKey) -> Responder:
    """Process the requester's problem report. Raises RemoteError."""
    _check_sender(exchange.peer, sender)
    return replace(exchange, state="abandoned", problem=_problem(message, exchange.request.thread, exchange.state))


def _problem(message: Message, thid: str, state: str) -> Report:
    if not is_problem(message):
        raise Refused(why="a message of another protocol")
    report = read_problem(message)
    if report.thread is None or not same_id(report.thread, thid):
        raise Refused(why="a problem report about something else")
    if state in ("completed", "abandoned"):
        raise Refused(why="a problem report out of order")
    return report


# --- checks of both sides -------------------------------------------------------------------------------------------


def _expect(message: Message, kind: str, thid: str, pthid: str | None) -> None:
    if not same_type(message.type, kind):
        raise Refused(why="a message of another kind")
    if not same_id(message.thread, thid):
        raise Refused(why="a message of another exchange")
    if message.pthid is not None and (pthid is None or not same_id(message.pthid, pthid)):
        raise Refused(why="a message that answers another invitation")


def _check_sender(peer: Party, sender: PublicKey) -> None:
    if sender not in peer.verkeys:
        raise Unauthentic()


def _party(
    did: str,
    attachment: dict[str, Any] | None,
    signers: Sequence[PublicKey] | None,
    label: str,
    resolve: Callable[[str], Document],
) -> Party:
    """The peer of a DID. For did:sov and did:peer:1 the attached document counts, signed by `signers` (None: by its own
    keys)."""
    stored = did
    if did.startswith(_SELF_CONTAINED):
        document = resolve(did)
    else:
        nym = did.removeprefix(_SOV)
        if ":" in nym and not did.startswith(_HASHED):
            raise Refused(why="a DID of an unsupported method")
        if attachment is None:
            raise Refused(why="a DID that is not self-contained, without a document")
        did = did if did.startswith(_HASHED) else _SOV + nym
        document = _signed_document(attachment, did, signers)
        content = read_signed(attachment).content
        if did.startswith(_HASHED):
            _check_hash(did, content)
        elif nym not in {base58(key.data[:_NYM_BYTES]) for key in _signing_keys(document)}:
            raise Refused(why="a DID that is not named after a key of its document")
        stored = pin(did, _with_id(content, did))
    verkeys = _signing_keys(document)
    if not verkeys:
        raise Refused(why="a DID without a signing key for DIDComm v1")
    return Party(did, document, verkeys, label, stored)


def _with_id(content: bytes, did: str) -> bytes:
    tree = strict_json(content, CONTENT_BYTES_MAX)
    assert isinstance(tree, dict)
    return compact_json({**tree, "id": did})


def _check_hash(did: str, content: bytes) -> None:
    """Raise Refused unless a did:peer:1 is the hash of this document, with or without its `id` (the genesis version has
    none, and implementations differ)."""
    tree = strict_json(content, CONTENT_BYTES_MAX)
    genesis = {name: value for name, value in tree.items() if name != "id"} if isinstance(tree, dict) else {}
    names = {_HASHED + "z" + base58(SHA2_256 + sha256(text)) for text in (content, compact_json(genesis))}
    if did not in names:
        raise Refused(why="a DID that is not the hash of its document")


def _signing_keys(document: Document) -> tuple[PublicKey, ...]:
    return tuple(method.key for method in document.authentication if method.key.kind == "Ed25519")


def _signed_document(tree: dict[str, Any], did: str, signers: Sequence[PublicKey] | None) -> Document:
    """The verified attached document of this DID."""
    signed = read_signed(tree)
    content = strict_json(signed.content, CONTENT_BYTES_MAX)
    if not isinstance(content, dict) or not isinstance(owner := content.get("id"), str):
        raise Malformed(why="did_doc~attach: not a DID document")
    if not same_did(owner if owner.startswith("did:") else _SOV + owner, did):
        raise Refused(why="did_doc~attach: a document of another DID")
    document = read_document(did, content)
    allowed = _signing_keys(document) if signers is None else signers
    if not all(signer in allowed for signer in signed.signers):
        raise Unauthentic()
    return document
