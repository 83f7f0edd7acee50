"""DID Exchange: how two strangers come to hold one DID each for the other (Aries RFC 0023, in DIDComm v2 messages).

    requester                                   responder
      | -- request, from a new DID, pthid -------> |   to the DID of an invitation or a contact, which is public
      | <-- response, from a new DID, from_prior - |   `from_prior` signs the public DID over to the new one
      | -- complete -----------------------------> |

The public DID carries nothing but the request: it is rotated away by the first answer, so what many people may have
seen never names a conversation. Who may ask, and what a repeated message means, is for the group to say (`group/`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from zerochat.didcomm.did import Identity, resolve
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.errors import Refused

PROTOCOL = "https://didcomm.org/didexchange/1.1/"
REQUEST, RESPONSE, COMPLETE = PROTOCOL + "request", PROTOCOL + "response", PROTOCOL + "complete"


def request(mine: Identity, asked: str, pthid: str, body: Mapping[str, Any], random: Callable[[int], bytes]) -> Message:
    """A request from our new DID to the DID `asked`; `pthid` names the invitation (or group) that allows it."""
    name = new_id(random)
    return Message(type=REQUEST, id=name, body=dict(body), from_=mine.did, to=(asked,), thid=name, pthid=pthid)


def response(
    to: Message, mine: Identity, prior: Prior, body: Mapping[str, Any], now_s: int, random: Callable[[int], bytes]
) -> Message:
    """The answer to a request: from our new DID, to which the public DID that was asked (`prior`) is rotated."""
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


def check_response(message: Message, asked: str, sender: str) -> None:
    """Raise RemoteError unless the public DID `asked` has itself signed its rotation to the sender of this response."""
    if message.from_prior is None:
        raise Refused(why="a response that does not rotate the invitation's DID away")
    verify_from_prior(message.from_prior, resolve(asked), sender)


def complete(thid: str, pthid: str | None, random: Callable[[int], bytes]) -> Message:
    """The requester's last word: the response has come."""
    return Message(type=COMPLETE, id=new_id(random), body={}, thid=thid, pthid=pthid)
