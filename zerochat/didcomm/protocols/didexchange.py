"""DID Exchange 1.0 and 1.1 in DIDComm v1, with agents of other makers: two state machines that are values.

    requester                                                        responder
    |  request: did (, did_doc~attach)   to a key of the invitation ->  |
    request-sent                                                        request-received
    |  <- response: did, did_rotate~attach or did_doc~attach            |  signed by a key of the invitation
    completed                                                           response-sent
    |  complete ->                                                      |
    completed                                                           completed

A problem report leads from everywhere to `abandoned`, and a message out of turn is refused and changes nothing. Whoever
is asked rotates to a new DID in the answer; that it is theirs shows the signature of a key that was in the invitation.
1.1 signs the new DID (`did_rotate~attach`), 1.0 a document (`did_doc~attach`). A DID that holds its own document is
believed about its keys before any attachment; an attached document counts only for the old kind of DID that has none
(did:sov, often without its prefix), and only if that is named after one of the document's own keys.

The key that an envelope proves must be one of the DID's that its message brings: that is checked here too, because v1
envelopes name no DIDs. In v2 the groups exchange their DIDs by `exchange.py`.

Specified in: Aries RFC 0023.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import base58, compact_json, strict_json
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import AUTHENTICATION_FRAGMENT, DID_CHARS_MAX, Document, read_document, same_did
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
_NYM_BYTES: Final = 16
"""A did:sov is named after the first half of its first Ed25519 key."""


class Party(Struct, frozen=True):
    """The other side, as its message brings it."""

    did: str
    """An old DID has its prefix here, even if it came without."""
    document: Document
    verkeys: tuple[PublicKey, ...]
    """The Ed25519 keys with which it may send: those that may sign. Keys that its services name may be anybody's."""
    label: str = ""
    """What it calls itself."""


class Requester(Struct, frozen=True):
    """An exchange that we have asked for."""

    version: Version
    thid: str
    pthid: str | None
    """The id of the invitation; or what stands for one, the DID that was asked."""
    did: str
    """Ours."""
    signers: tuple[PublicKey, ...]
    """The keys of the invitation."""
    invited_by: str | None = None
    """The DID of the invitation, if it had one."""
    state: Literal["request-sent", "completed", "abandoned"] = "request-sent"
    peer: Party | None = None
    problem: Report | None = None


class Responder(Veiled, frozen=True):
    """An exchange that somebody has asked us for."""

    VEILED = ("request",)

    version: Version
    request: Message
    peer: Party
    state: Literal["request-received", "response-sent", "completed", "abandoned"] = "request-received"
    did: str | None = None
    """Ours, once we have answered."""
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
    """The service that agents of v1 look for in a DID of ours (RFC 0067): its key is the one that signs."""
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
    """Ask for an exchange, from our new DID `did`.

    `signers` are the keys of the invitation, and `pthid` its id. `attached`: the DID's document and the key of it to
    sign that with, for somebody who cannot read the DID itself.
    """
    name = new_id(random)
    said = {"goal_code": goal_code, "goal": goal}
    body: dict[str, Any] = {"label": label, "did": did} | {key: text for key, text in said.items() if text is not None}
    if attached is not None:
        body["did_doc~attach"] = signed_attachment(compact_json(attached[0]), attached[1], "application/json")
    message = Message(type=f"{PROTOCOLS[version]}/request", id=name, thid=name, pthid=pthid, body=body)
    return Requester(version, name, pthid, did, tuple(signers), invited_by), message


def receive_response(
    asked: Requester,
    message: Message,
    sender: PublicKey,
    random: Callable[[int], bytes],
    resolve: Callable[[str], Document] = resolve_did,
) -> tuple[Requester, Message]:
    """Take the answer to our request; what comes of it, and the message that completes the exchange.

    `sender`: the key that the envelope proves. Raises RemoteError, after which the exchange is as it was.
    """
    _expect(message, RESPONSE, asked.thid, asked.pthid)
    if asked.state != "request-sent":
        raise Refused(why="a response out of turn")
    body = read_body(message, _ResponseBody)
    peer = _party(body.did, body.document, asked.signers, "", resolve)
    if not body.did.startswith(_SELF_CONTAINED):
        pass
    elif body.rotation is not None:
        _check_rotation(body.rotation, peer.did, asked.signers)
    elif body.document is not None:
        _signed_document(body.document, peer.did, asked.signers)
    elif asked.invited_by is None or not same_did(asked.invited_by, peer.did):
        raise Refused(why="a response from a new DID that no key of the invitation has signed")
    _check_sender(peer, sender)
    done = Message(type=f"{PROTOCOLS[asked.version]}/complete", id=new_id(random), thid=asked.thid, pthid=asked.pthid)
    return replace(asked, state="completed", peer=peer), done


def _check_rotation(tree: dict[str, Any], did: str, signers: Sequence[PublicKey]) -> None:
    """Raise RemoteError unless keys of the invitation have signed this DID."""
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
    """Take a request that answers the invitation of this id; `sender`: the key that the envelope proves.

    Raises RemoteError. Whether the invitation still stands, and who may come, is for the caller to say.
    """
    _expect(message, REQUEST, message.thread, invitation)
    if message.pthid is None:
        raise Refused(why="a request that answers no invitation")
    body = read_body(message, _RequestBody)
    peer = _party(body.did, body.document, None, body.label or "", resolve)
    _check_sender(peer, sender)
    return Responder("1.1" if parse_type(message.type).minor else "1.0", message, peer)


def respond(
    asked: Responder,
    did: str,
    signer: SecretKey,
    random: Callable[[int], bytes],
    document: Mapping[str, Any] | None = None,
) -> tuple[Responder, Message]:
    """Accept: from our new DID `did`, signed over by the invitation's key `signer`.

    `document`: that of the DID, to attach it for somebody who cannot read the DID itself.
    """
    assert asked.state in ("request-received", "response-sent")
    body: dict[str, Any] = {"did": did, "did_rotate~attach": signed_attachment(did.encode(), signer, "text/string")}
    if document is not None:
        body["did_doc~attach"] = signed_attachment(compact_json(document), signer, "application/json")
    message = Message(
        type=f"{PROTOCOLS[asked.version]}/response",
        id=new_id(random),
        thid=asked.request.thread,
        pthid=asked.request.pthid,
        body=body,
    )
    return replace(asked, state="response-sent", did=did), message


def receive_complete(asked: Responder, message: Message, sender: PublicKey) -> Responder:
    """Take the requester's last word. Raises RemoteError. Once more is no harm."""
    _expect(message, COMPLETE, asked.request.thread, asked.request.pthid)
    _check_sender(asked.peer, sender)
    if asked.state not in ("response-sent", "completed"):
        raise Refused(why="a completion out of turn")
    return replace(asked, state="completed")


# --- problems -------------------------------------------------------------------------------------------------------


def decline(about: Message, reason: Reason, text: str, random: Callable[[int], bytes]) -> Message:
    """Say that we give the exchange up, because of this message."""
    version = PROTOCOLS["1.1" if parse_type(about.type).minor else "1.0"]
    return problem_v1(reason, about, text, random, kind=f"{version}/problem_report")


def receive_problem(asked: Requester, message: Message) -> Requester:
    """Take the other side's refusal, in this protocol's report or a general one. Raises RemoteError.

    Before the response nobody on the other side is known, so whoever knows the id of our request, which only the keys
    of the invitation could read, is believed.
    """
    return replace(asked, state="abandoned", problem=_problem(message, asked.thid, asked.state))


def receive_problem_from(asked: Responder, message: Message, sender: PublicKey) -> Responder:
    """Take the requester's refusal of our answer. Raises RemoteError."""
    _check_sender(asked.peer, sender)
    return replace(asked, state="abandoned", problem=_problem(message, asked.request.thread, asked.state))


def _problem(message: Message, thid: str, state: str) -> Report:
    if not is_problem(message):
        raise Refused(why="a message of another protocol")
    report = read_problem(message)
    if report.thread is None or not same_id(report.thread, thid):
        raise Refused(why="a problem report about something else")
    if state in ("completed", "abandoned"):
        raise Refused(why="a problem report out of turn")
    return report


# --- what both sides check ------------------------------------------------------------------------------------------


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
    """Whose DID it is; from the DID itself, or for an old one from the attached document, which `signers` must have
    signed (None: keys of its own)."""
    if did.startswith(_SELF_CONTAINED):
        document = resolve(did)
    else:
        nym = did.removeprefix(_SOV)
        if ":" in nym:
            raise Refused(why="a DID of a method that cannot be read here")
        if attachment is None:
            raise Refused(why="a DID without a document, of a kind that would have to be looked up")
        did, document = _SOV + nym, _signed_document(attachment, _SOV + nym, signers)
        if nym not in {base58(key.data[:_NYM_BYTES]) for key in _signing_keys(document)}:
            raise Refused(why="a DID that is not named after a key of its document")
    verkeys = _signing_keys(document)
    if not verkeys:
        raise Refused(why="a DID without a key to send with in DIDComm v1")
    return Party(did, document, verkeys, label)


def _signing_keys(document: Document) -> tuple[PublicKey, ...]:
    return tuple(method.key for method in document.authentication if method.key.kind == "Ed25519")


def _signed_document(tree: dict[str, Any], did: str, signers: Sequence[PublicKey] | None) -> Document:
    """The attached document of this DID, after its signatures have been verified."""
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
