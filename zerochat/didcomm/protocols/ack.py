"""Acknowledgements: which messages somebody may have acknowledged, and the rules that keep two sides from going on so.

`please_ack` asks in any message, `ack` answers in any message; where nothing else is to be said, an empty message
carries it, or in DIDComm v1 an `ack`. A request obliges to nothing, and is honoured within these rules:

* a pure acknowledgement never asks for one, and is never answered with one;
* a forward's request is not honoured: it would say whether somebody is there;
* a message is acknowledged once, however often it is asked for.

Specified in: DIDComm v2.1, "ACKs"; Aries RFC 0015 (ack) and RFC 0317 (please_ack) for v1.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from zerochat.didcomm.message import ACKS_MAX, Message, new_id, same_type
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols.empty import empty, is_empty

ACK_V1: Final = "https://didcomm.org/notification/1.0/ack"
_FORWARDS: Final = ("https://didcomm.org/routing/2.0/forward", "https://didcomm.org/routing/1.0/forward")


def is_pure_ack(message: Message) -> bool:
    """Whether a message does nothing but acknowledge: an empty one with `ack`, or an `ack` of v1."""
    return (bool(message.ack) and is_empty(message)) or same_type(message.type, ACK_V1)


def acknowledged(message: Message) -> tuple[str, ...]:
    """The ids of messages that a message acknowledges outright. An `ack` of v1 names them by its thread alone."""
    if message.ack or not same_type(message.type, ACK_V1):
        return message.ack
    return () if message.thid is None else (message.thid,)


def is_forward(message: Message) -> bool:
    return any(same_type(message.type, kind) for kind in _FORWARDS)


def owed(message: Message, received: Sequence[str] = (), done: Collection[str] = ()) -> tuple[str, ...]:
    """The ids to acknowledge because a message asks for it, the oldest first; none where the rules forbid it.

    `received`: the ids of earlier messages from the same sender, in the order in which they came; what has not been
    received is not acknowledged. `done`: the ids that have been acknowledged. To honour a request says also that the
    message itself has come, so its own id stands at the end.
    """
    if not message.please_ack or is_pure_ack(message) or is_forward(message):
        return ()
    if message.id in done:
        return ()
    asked = set(message.acks_asked)
    earlier = [name for name in dict.fromkeys(received) if name in asked and name not in done and name != message.id]
    return (*earlier[-(ACKS_MAX - 1) :], message.id)


def with_ack(answer: Message, ids: tuple[str, ...]) -> Message:
    """An answer that also acknowledges these messages; without any, the answer as it is."""
    if not ids:
        return answer
    acknowledging = replace(answer, ack=ids[-ACKS_MAX:])
    return replace(acknowledging, please_ack=()) if is_pure_ack(acknowledging) else acknowledging


def pure_ack(to: Message, ids: tuple[str, ...], random: Callable[[int], bytes], profile: Profile) -> Message:
    """A message that does nothing but acknowledge: in the thread of `to`, the message that asked."""
    if profile == "didcomm/v1":
        return Message(type=ACK_V1, id=new_id(random), thid=to.thread, body={"status": "OK"}, ack=ids[-ACKS_MAX:])
    return with_ack(empty(random, to.thread), ids)
