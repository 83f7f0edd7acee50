"""DID Exchange in DIDComm v2 messages (Aries RFC 0023): two strangers exchange pairwise DIDs.

    requester                                   responder
      | -- request, from a new DID, pthid -------> |   to the DID of an invitation or a contact, which is public
      | <-- response, from a new DID, from_prior - |   `from_prior` signs the public DID over to the new one
      | -- complete -----------------------------> |

The public DID receives the request only; the first answer rotates it away, so no conversation uses a widely known DID.
Authorisation and handling of repeated messages are the group's (`group/`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from zerochat.didcomm.did import Identity, resolve
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.errors import Refused

PROTOCOL = "https://didcomm.org/didexchange/1.1/"
REQUEST, RESPONSE, COMPLETE = PROTOCOL + "request", PROTOCOL + "response", PROTOCOL + "complete"


def request(
    mine: Identity, recipient: str, pthid: str, body: Mapping[str, Any], random: Callable[[int], bytes]
) -> Message:
    """A request from our new DID to `recipient`; `pthid` names the authorising invitation or group."""
    name = new_id(random)
    return Message(type=REQUEST, id=name, body=dict(body), from_=mine.did, to=(recipient,), thid=name, pthid=pthid)


def response(
    to: Message, mine: Identity, prior: Prior, body: Mapping[str, Any], now_s: int, random: Callable[[int], bytes]
) -> Message:
    """The response: from our new DID, to which the public DID of the request (`prior`) is rotated."""
    return Message(
        type=RESPONSE,
        id=new_id(random),
        body=dict(body),
        from_=mine.did,
        to=(to.from_ or "",),
        thid=to.thid or to.id,
        pthid=to.pthid,
        from_prior=from_prior(prior, mine.did, now_s),
    )


def check_response(message: Message, recipient: str, sender: str) -> None:
    """Raise RemoteError unless `recipient`, the public DID of the request, signed its rotation to the response's
    sender."""
    if message.from_prior is None:
        raise Refused(why="a response that does not rotate the invitation's DID away")
    verify_from_prior(message.from_prior, resolve(recipient), sender)


def complete(thid: str, pthid: str | None, random: Callable[[int], bytes]) -> Message:
    """The requester's confirmation of the response."""
    return Message(type=COMPLETE, id=new_id(random), body={}, thid=thid, pthid=pthid)
