"""Trust ping 2.0 and 1.0: tests reachability and keys in both directions.

A response takes the usual route to its sender, and is sent to proven senders only.

Specified in: DIDComm v2.1, "Trust Ping Protocol 2.0"; Aries RFC 0048 (1.0).
"""

from collections.abc import Callable
from typing import Final

import msgspec

from zerochat.didcomm.message import Message, new_id, same_id, same_type
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols.bodies import read_body

PROTOCOL: Final = "https://didcomm.org/trust-ping/2.0"
PROTOCOL_V1: Final = "https://didcomm.org/trust_ping/1.0"
PING, PING_RESPONSE = PROTOCOL + "/ping", PROTOCOL + "/ping-response"
PING_V1, PING_RESPONSE_V1 = PROTOCOL_V1 + "/ping", PROTOCOL_V1 + "/ping_response"


class _PingBody(msgspec.Struct, frozen=True):
    response_requested: bool | None = None


def ping(random: Callable[[int], bytes], profile: Profile = "didcomm/v2", response_requested: bool = True) -> Message:
    """A ping in the version of the envelope's profile."""
    kind = PING if profile == "didcomm/v2" else PING_V1
    return Message(type=kind, id=new_id(random), body={"response_requested": response_requested})


def is_ping(message: Message) -> bool:
    return same_type(message.type, PING) or same_type(message.type, PING_V1)


def is_response(message: Message, to: str | None = None) -> bool:
    """Whether a message is a ping response, to the ping with id `to` if given."""
    if not same_type(message.type, PING_RESPONSE) and not same_type(message.type, PING_RESPONSE_V1):
        return False
    return to is None or (message.thid is not None and same_id(message.thid, to))


def answer(message: Message, random: Callable[[int], bytes]) -> Message | None:
    """The response to a ping in its version; None: not requested. Raises Malformed."""
    if read_body(message, _PingBody).response_requested is False:
        return None
    kind = PING_RESPONSE if same_type(message.type, PING) else PING_RESPONSE_V1
    return Message(type=kind, id=new_id(random), thid=message.thread)
