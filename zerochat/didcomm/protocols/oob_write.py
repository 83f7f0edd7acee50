"""Creates Out-of-Band invitations for agents of other implementations: 2.0 and 1.1.

Parsing is in `oob_read.py`. Includes connection reuse (RFC 0434): answering an invitation with `handshake-reuse` over
an existing connection.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey
from zerochat.didcomm import jws
from zerochat.didcomm.attachment import Attachment, dump_attachment
from zerochat.didcomm.did import did_key_of
from zerochat.didcomm.message import Message, dump, new_id, same_type
from zerochat.didcomm.packer import OwnKey
from zerochat.didcomm.protocols.oob_read import INVITATION, INVITATION_V1, PROTOCOL_V1
from zerochat.didcomm.v1 import dump_v1
from zerochat.errors import Malformed

HANDSHAKES: Final = ("https://didcomm.org/didexchange/1.1", "https://didcomm.org/didexchange/1.0")
ACCEPT_V1: Final = ("didcomm/aip2;env=rfc19", "didcomm/aip1")
REUSE, REUSE_ACCEPTED = PROTOCOL_V1 + "/handshake-reuse", PROTOCOL_V1 + "/handshake-reuse-accepted"


def invitation(
    did: str,
    random: Callable[[int], bytes],
    *,
    goal_code: str | None = None,
    goal: str | None = None,
    accept: Sequence[str] = ("didcomm/v2",),
    expires_time: int | None = None,
    requests: Sequence[Attachment] = (),
) -> Message:
    """An invitation 2.0 from a self-contained DID: a did:peer:2, or the long form of a did:peer:4."""
    goals = {"goal_code": goal_code, "goal": goal}
    return Message(
        type=INVITATION,
        id=new_id(random),
        from_=did,
        body={**{name: text for name, text in goals.items() if text is not None}, "accept": list(accept)},
        expires_time=expires_time,
        attachments=tuple(requests),
    )


def invitation_v1(
    services: Sequence[str | Mapping[str, Any]],
    label: str,
    random: Callable[[int], bytes],
    *,
    goal_code: str | None = None,
    goal: str | None = None,
    accept: Sequence[str] = ACCEPT_V1,
    handshake_protocols: Sequence[str] = HANDSHAKES,
    expires_time: int | None = None,
    requests: Sequence[Attachment] = (),
) -> Message:
    """An invitation 1.1; services are DIDs or inline (`inline_service`), by preference.

    Some agents require goal and goal code together: give both, or none.
    """
    body: dict[str, Any] = {"label": label, "accept": list(accept)}
    if goal_code is not None or goal is not None:
        body |= {"goal_code": goal_code or "", "goal": goal or goal_code}
    if handshake_protocols:
        body["handshake_protocols"] = list(handshake_protocols)
    if requests:
        body["requests~attach"] = [_attachment_v1(request) for request in requests]
    body["services"] = [service if isinstance(service, str) else dict(service) for service in services]
    return Message(type=INVITATION_V1, id=new_id(random), body=body, expires_time=expires_time)


def _attachment_v1(attachment: Attachment) -> dict[str, Any]:
    names = {"id": "@id", "media_type": "mime-type"}
    return {names.get(name, name): value for name, value in dump_attachment(attachment).items()}


def inline_service(uri: str, key: PublicKey, routing_keys: Sequence[str] = ()) -> dict[str, Any]:
    """An inline service for an invitation 1.1: endpoint and Ed25519 key (RFC 0434, "services").

    `routing_keys`: did:keys of mediators, the outermost last.
    """
    service = {"id": "#inline", "type": "did-communication", "recipientKeys": [did_key_of(key)], "serviceEndpoint": uri}
    return {**service, "routingKeys": list(routing_keys)} if routing_keys else service


def link(page: str, message: Message, signer: OwnKey | None = None) -> str:
    """An invitation as a link to a page, which browsers show to users without an agent; version 2 may be signed.

    Padding is omitted in version 2 and written in version 1, as in the specifications' examples.
    """
    mark = "&" if "?" in page else "?"
    if same_type(message.type, INVITATION):
        plain = dump(message)
        data = plain if signer is None else jws.sign(plain, [(signer.kid, signer.key)], flattened=True)
        return f"{page}{mark}_oob={b64url(data)}"
    text = b64url(dump_v1(message))
    return f"{page}{mark}oob={text}{'=' * (-len(text) % 4)}"


def short_link(page: str, oobid: str) -> str:
    """The link to fetch an invitation from; `oobid`: random, unguessable."""
    return f"{page}{'&' if '?' in page else '?'}_oobid={oobid}"


# --- reuse ----------------------------------------------------------------------------------------------------------


def reuse(invitation_id: str, random: Callable[[int], bytes]) -> Message:
    """The answer to an invitation from a connected peer: reuse that connection (RFC 0434, "Reuse")."""
    name = new_id(random)
    return Message(type=REUSE, id=name, thid=name, pthid=invitation_id)


def is_reuse(message: Message) -> bool:
    return same_type(message.type, REUSE)


def reuse_accepted(message: Message, random: Callable[[int], bytes]) -> Message:
    """The answer to `reuse`; the caller has checked that `pthid` is an own invitation. Raises Malformed."""
    if message.pthid is None:
        raise Malformed(why="handshake-reuse: it names no invitation")
    return Message(type=REUSE_ACCEPTED, id=new_id(random), thid=message.thread, pthid=message.pthid)


def is_reuse_accepted(message: Message, to: Message) -> bool:
    """Whether a message accepts our `reuse`."""
    return same_type(message.type, REUSE_ACCEPTED) and (message.thid, message.pthid) == (to.id, to.pthid)
