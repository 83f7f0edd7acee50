"""Parses Out-of-Band invitations of other implementations, from links or JSON.

    ?_oob=    2.0, a DIDComm v2 plaintext: `from` is a DID                     (DIDComm v2.1, "Out Of Band Messages")
    ?_oob=    0.1, the draft of that, written partly as v1                     (DIDComm draft of December 2020)
    ?oob=     1.0 and 1.1, a v1 plaintext: `services`, `handshake_protocols`   (Aries RFC 0434)
    ?_oobid=  a short link, from which the invitation has to be fetched        (both)
    ?c_i=     an invitation of the older protocols (RFC 0160): recognised, and refused

All become one value. An invitation 2.0 may be signed by its inviter ("Tamper Resistance"): then its signature must be
valid. An invitation comes over an open channel and proves nothing else: the owner of its keys is proven by an answer
only. Nothing is fetched here.

zerochat's group invitations are in `didcomm/invitation.py`. The `why` of a refusal is a clause about the pasted text.
"""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url_bytes, strict_json
from zerochat.crypto.keys import PublicKey
from zerochat.crypto.structs import Redacted
from zerochat.didcomm import jws
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import DID_CHARS_MAX, Document, Service
from zerochat.didcomm.did import resolve as resolve_did
from zerochat.didcomm.layers import is_signed, open_layers
from zerochat.didcomm.message import ID_CHARS_MAX, Message, parse
from zerochat.didcomm.protocols.bodies import Name, Text, read_attachment, read_body, read_tree
from zerochat.didcomm.service import Route, routes, verkey
from zerochat.didcomm.uri import TYPE_CHARS_MAX, MessageType, parse_protocol, parse_type
from zerochat.didcomm.v1 import parse_v1
from zerochat.errors import Malformed, Refused, RemoteError

PROTOCOL: Final = "https://didcomm.org/out-of-band/2.0"
PROTOCOL_V1: Final = "https://didcomm.org/out-of-band/1.1"
INVITATION, INVITATION_V1 = PROTOCOL + "/invitation", PROTOCOL_V1 + "/invitation"

LINK_CHARS_MAX = 64 * 1024
"""Some invitations contain a whole credential offer with images."""
SHORT_LINK_CHARS_MAX = 2048
SERVICES_MAX = 16
REQUESTS_MAX = 16
PROTOCOLS_MAX = 16


class Inviter(Struct, frozen=True):
    """An inviter: a DID, or (v1) an inline route with keys."""

    did: str | None = None
    route: Route | None = None


class OutOfBand(Redacted, frozen=True):
    """A parsed invitation of any version."""

    REDACTED = ("id",)

    id: str
    """Parent thread (`pthid`) of answers."""
    version: tuple[int, int]
    inviters: tuple[Inviter, ...]
    """By preference, at least one."""
    label: str | None = None
    goal_code: str | None = None
    goal: str | None = None
    accept: tuple[str, ...] = ()
    """Media type profiles by preference; empty: not stated."""
    handshake_protocols: tuple[str, ...] = ()
    """v1: Protocol Identifier URIs of connection protocols, by preference."""
    requests: tuple[Attachment, ...] = ()
    """Messages to answer one of, by preference."""
    expires_time: int | None = None
    """UTC seconds."""
    signed: bool = False
    """Whether the inviter's DID has signed it (2.0 only), so that no third party has changed it."""


class ShortLink(Struct, frozen=True):
    """A link to an invitation, to be fetched with HTTP GET."""

    url: str


# --- links ----------------------------------------------------------------------------------------------------------

_INVISIBLE = re.compile("[\\s\u00ad\u200b-\u200f\u2060\ufeff]+")
_LINK = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):[!-~]*")
_PERCENT = re.compile(r"%(3[dD]|2[bB]|2[fF])")
_OLDER: Final = "it is an invitation of the Connections protocol (RFC 0160), which zerochat does not support"
_DAMAGED: Final = "it is cut off or damaged"
_NAMES = ("_oob", "oob", "_oobid", "c_i", "d_m")


def read_invitation(text: str) -> OutOfBand | ShortLink:
    """Parse a pasted link or JSON.

    White space, and angle brackets or quotes around it, are ignored. Raises Malformed for damaged input or no
    invitation, Refused for an unsupported one.
    """
    if len(text) > LINK_CHARS_MAX:
        raise Malformed(why=f"it has more than {LINK_CHARS_MAX} characters")
    if text.lstrip()[:1] == "{":
        return read_json(text.encode(errors="surrogatepass"))
    bare = _INVISIBLE.sub("", text).strip("<>\"'`")
    link = _LINK.fullmatch(bare)
    if link is None:
        raise Malformed(why="it is not a link" if bare else "there is nothing in it")
    found = [part.partition("=") for part in bare.partition("?")[2].partition("#")[0].split("&")]
    known = [(name, value) for name, _, value in found if name in _NAMES]
    if not known:
        raise Malformed(why="there is no invitation in the link")
    if len(known) > 1:
        raise Malformed(why="there is more than one invitation in the link")
    name, value = known[0]
    if name == "_oobid":
        return _short_link(bare, link[1])
    tree = _plaintext(value)
    if name == "c_i":
        raise Refused(why=_OLDER)
    return read_json(tree)


def _short_link(bare: str, scheme: str) -> ShortLink:
    if scheme.lower() not in ("https", "http") or len(bare) > SHORT_LINK_CHARS_MAX:
        raise Refused(why="the short link is not an http or https link")
    return ShortLink(bare)


def _plaintext(value: str) -> bytes:
    """Implementations differ in alphabet and padding, and some percent-encode needlessly."""
    text = _PERCENT.sub(lambda match: chr(int(match[1], 16)), value).replace("+", "-").replace("/", "_")
    try:
        return b64url_bytes(text.rstrip("."))
    except Malformed:
        raise Malformed(why=_DAMAGED) from None


# --- messages -------------------------------------------------------------------------------------------------------


class _Body(msgspec.Struct, frozen=True):
    goal_code: Name | None = None
    goal: Text | None = None
    accept: Annotated[list[Name], msgspec.Meta(max_length=PROTOCOLS_MAX)] | None = None
    label: Name | None = None


class _BodyV1(_Body, frozen=True):
    services: Annotated[list[dict[str, Any] | Text], msgspec.Meta(max_length=SERVICES_MAX)] | None = None
    handshake_protocols: Annotated[list[Text], msgspec.Meta(max_length=PROTOCOLS_MAX)] | None = None
    requests: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=REQUESTS_MAX)] | None = msgspec.field(
        name="requests~attach", default=None
    )


def read_json(data: bytes) -> OutOfBand:
    """Parse an invitation message of either format, signed or not. Raises Malformed, and Refused like
    `read_invitation`."""
    if len(data) <= LINK_CHARS_MAX and is_signed(data):
        return replace(_read_plain(_verified(data)), signed=True)
    return _read_plain(data)


def _verified(data: bytes) -> bytes:
    """The plaintext of a message that its `from` has signed. Raises Refused."""
    try:
        signed = jws.read(data)
        open_layers(data, secret_of=lambda kid: None, resolve=resolve_did)
    except RemoteError:
        raise Refused(why="its signature is not that of its sender; it may have been changed") from None
    return signed.payload


def _read_plain(data: bytes) -> OutOfBand:
    try:
        tree = strict_json(data, LINK_CHARS_MAX)
    except Malformed:
        raise Malformed(why=_DAMAGED) from None
    if not isinstance(tree, dict):
        raise Malformed(why="it does not contain a message")
    kind = tree.get("@type", tree.get("type"))
    if not isinstance(kind, str) or len(kind) > TYPE_CHARS_MAX:
        raise Malformed(why="it has no message type")
    version = _version(kind)
    if version.protocol == "connections" or (version.protocol == "didexchange" and version.name == "invitation"):
        raise Refused(why=_OLDER)
    if version.protocol != "outofband" or version.name != "invitation":
        raise Refused(why="it is a message, but not an invitation")
    if version.major == 2:
        return _read_v2(parse(data), version)
    if version.major == 1:
        return _read_v1(parse_v1(data), version)
    if version.major == 0:
        return _read_draft(tree, version)
    raise Refused(
        why=f"it is an invitation of version {version.major}, which this version of zerochat does not support"
    )


def _version(kind: str) -> MessageType:
    """The draft has a placeholder as version, which some implementations kept."""
    try:
        return parse_type(kind.replace("/%VER/", "/0.1/"))
    except Malformed:
        raise Malformed(why="it has no message type") from None


def _read_v2(message: Message, version: MessageType) -> OutOfBand:
    body = read_body(message, _Body)
    if message.from_ is None:
        raise Malformed(why="the invitation does not say who it is from")
    return OutOfBand(
        id=message.id,
        version=(version.major, version.minor),
        inviters=(Inviter(did=message.from_),),
        label=body.label,
        goal_code=body.goal_code,
        goal=body.goal,
        accept=tuple(body.accept or ()),
        requests=message.attachments,
        expires_time=message.expires_time,
    )


def _read_v1(message: Message, version: MessageType) -> OutOfBand:
    body = read_body(message, _BodyV1)
    if not body.handshake_protocols and not body.requests:
        raise Malformed(why="the invitation contains neither a handshake protocol nor a request")
    if not body.services:
        raise Malformed(why="the invitation does not say who it is from")
    inviters = tuple(inviter for service in body.services if (inviter := _inviter(service)) is not None)
    if not inviters:
        raise Refused(why="the invitation contains no supported address of its sender")
    return OutOfBand(
        id=message.id,
        version=(version.major, version.minor),
        inviters=inviters,
        label=body.label,
        goal_code=body.goal_code,
        goal=body.goal,
        accept=tuple(body.accept or ()),
        handshake_protocols=tuple(body.handshake_protocols or ()),
        requests=tuple(read_attachment(entry) for entry in body.requests or ()),
        expires_time=message.expires_time,
    )


def _inviter(service: dict[str, Any] | str) -> Inviter | None:
    """A service of a v1 invitation; None: unusable."""
    if isinstance(service, str):
        return Inviter(did=service) if service.startswith("did:") else None
    kind = service.get("type") or "did-communication"
    if kind not in ("did-communication", "IndyAgent"):
        return None
    properties = MappingProxyType({name: value for name, value in service.items() if value is not None})
    found = routes(Document("did:key:", (), (), (Service("#inline", kind, properties),)))
    return Inviter(route=found[0]) if found else None


def _read_draft(tree: dict[str, Any], version: MessageType) -> OutOfBand:
    """The draft shows the message as v2 and as v1, and its `request~attach` inside and beside the body."""
    inside = tree.get("body")
    members = {**tree, **(inside if isinstance(inside, dict) else {})}
    name, did = tree.get("id", tree.get("@id")), tree.get("from")
    if not isinstance(name, str) or not 0 < len(name) <= ID_CHARS_MAX:
        raise Malformed(why="the invitation has no id")
    if not isinstance(did, str) or not did.startswith("did:") or len(did) > DID_CHARS_MAX:
        raise Malformed(why="the invitation does not say who it is from")
    fields = {name: members.get(name, members.get(name.replace("_", "-"))) for name in ("goal_code", "goal", "accept")}
    requests = {"requests~attach": members.get("request~attach", members.get("requests~attach"))}
    body = read_tree({**fields, **requests}, _BodyV1, "invitation")
    return OutOfBand(
        id=name,
        version=(version.major, version.minor),
        inviters=(Inviter(did=did),),
        goal_code=body.goal_code,
        goal=body.goal,
        accept=tuple(body.accept or ()),
        requests=tuple(read_attachment(entry) for entry in body.requests or ()),
    )


# --- answering ------------------------------------------------------------------------------------------------------


def ways(inviter: Inviter, resolve: Callable[[str], Document]) -> tuple[Route, ...]:
    """The routes to an inviter by preference. Raises Malformed for an unsupported DID."""
    if inviter.route is not None:
        return (inviter.route,)
    assert inviter.did is not None
    return routes(resolve(inviter.did))


def signers(inviter: Inviter, resolve: Callable[[str], Document]) -> tuple[PublicKey, ...]:
    """The invitation's Ed25519 keys; in v1 the sender signs its new DID with one of them. Raises Malformed."""
    if inviter.route is not None:
        return tuple(verkey(key) for key in inviter.route.recipient_keys)
    assert inviter.did is not None
    methods = resolve(inviter.did).authentication
    return tuple(method.key for method in methods if method.key.kind == "Ed25519")


def handshake(invitation: OutOfBand) -> str | None:
    """The version of the first supported handshake protocol (DID Exchange).

    None for an invitation without a connection: its requests are answered directly. Raises Refused if only unsupported
    protocols are offered.
    """
    if not invitation.handshake_protocols:
        return None
    for offered in invitation.handshake_protocols:
        try:
            theirs = parse_protocol(offered)
        except Malformed:
            continue
        if (theirs.protocol, theirs.major) == ("didexchange", 1):
            return f"1.{min(theirs.minor, 1)}"
    raise Refused(why="the invitation offers no handshake protocol that zerochat supports (DID Exchange)")
