"""Acknowledgements (DIDComm v2.1 "ACKs") and the empty message, with rules against loops.

`please_ack` in any message requests, `ack` in any message acknowledges; without other content, an empty message carries
it, or in v1 an `ack` message. Requests are optional and honoured within these rules:

* a pure acknowledgement never requests one and is never acknowledged;
* forwards are not acknowledged, because that would reveal the recipient's presence;
* a message is acknowledged once, regardless of further requests.

Specified in: DIDComm v2.1, "ACKs"; Aries RFC 0015 (ack) and RFC 0317 (please_ack) for v1.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from zerochat.didcomm.message import ACKS_MAX, Message, new_id, same_type
from zerochat.didcomm.packer import Profile

EMPTY_PROTOCOL: Final = "https://didcomm.org/empty/1.0"
EMPTY: Final = EMPTY_PROTOCOL + "/empty"
ACK_V1: Final = "https://didcomm.org/notification/1.0/ack"
_FORWARDS: Final = ("https://didcomm.org/routing/2.0/forward", "https://didcomm.org/routing/1.0/forward")


def empty(random: Callable[[int], bytes], thid: str | None = None) -> Message:
    """An empty message, which carries headers only (acknowledgement, DID rotation, end of a relationship)."""
    return Message(type=EMPTY, id=new_id(random), thid=thid)


def is_empty(message: Message) -> bool:
    return same_type(message.type, EMPTY)


def is_pure_ack(message: Message) -> bool:
    """Whether a message only acknowledges: an empty one with `ack`, or an `ack` of v1."""
    return (bool(message.ack) and is_empty(message)) or same_type(message.type, ACK_V1)


def acknowledged(message: Message) -> tuple[str, ...]:
    """The message ids acknowledged explicitly. A v1 `ack` acknowledges its thread."""
    if message.ack or not same_type(message.type, ACK_V1):
        return message.ack
    return () if message.thid is None else (message.thid,)


def is_forward(message: Message) -> bool:
    return any(same_type(message.type, kind) for kind in _FORWARDS)


def acks_to_send(message: Message, received: Sequence[str] = (), done: Collection[str] = ()) -> tuple[str, ...]:
    """The requested ids to acknowledge, oldest first; empty where the rules forbid it.

    `received`: ids of earlier messages from the same sender, in order; others are not acknowledged. `done`: ids already
    acknowledged. A request also covers the requesting message, whose id comes last.
    """
    if not message.please_ack or is_pure_ack(message) or is_forward(message):
        return ()
    if message.id in done:
        return ()
    requested = set(message.requested_acks)
    earlier = [
        name for name in dict.fromkeys(received) if name in requested and name not in done and name != message.id
    ]
    return (*earlier[-(ACKS_MAX - 1) :], message.id)


def with_ack(answer: Message, ids: tuple[str, ...]) -> Message:
    """The answer with acknowledgements of these ids."""
    if not ids:
        return answer
    acknowledging = replace(answer, ack=ids[-ACKS_MAX:])
    return replace(acknowledging, please_ack=()) if is_pure_ack(acknowledging) else acknowledging


def pure_ack(to: Message, ids: tuple[str, ...], random: Callable[[int], bytes], profile: Profile) -> Message:
    """A pure acknowledgement in the thread of the requesting message `to`."""
    if profile == "didcomm/v1":
        return Message(type=ACK_V1, id=new_id(random), thid=to.thread, body={"status": "OK"}, ack=ids[-ACKS_MAX:])
    return with_ack(empty(random, to.thread), ids)
