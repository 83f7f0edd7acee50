"""Interoperable DIDComm protocols: message types, constructors, parsers and standard answers.

Pure functions from messages to values or messages. Addressing (`to`, `from`) and timeouts are the caller's; invalid
messages raise RemoteError.
"""

from collections.abc import Callable

from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols import ack, features, ping, problem
from zerochat.didcomm.protocols.features import Features

STANDARD = Features(
    protocols=(
        (ping.PROTOCOL, ("sender", "receiver")),
        (ping.PROTOCOL_V1, ("sender", "receiver")),
        (features.PROTOCOL, ("requester", "responder")),
        (features.PROTOCOL_V1, ("requester", "responder")),
        (problem.PROTOCOL, ("notifier", "notified")),
        (ack.EMPTY_PROTOCOL, ("sender", "receiver")),
    )
)
"""Protocols of `standard_answer`; every relationship may know them, because they can be probed."""


def standard_answer(
    message: Message, *, disclosed: Features, random: Callable[[int], bytes], profile: Profile = "didcomm/v2"
) -> Message | None:
    """The standard answer to a ping, a feature query or an empty message; None: no answer.

    `disclosed`: features that this sender may know; `profile`: that of the received envelope. Raises Malformed. Call
    once per message, and only for proven senders.
    """
    reply = None
    if ping.is_ping(message):
        reply = ping.answer(message, random)
    elif features.is_query(message):
        reply = features.answer(message, disclosed, random, profile)
    elif not ack.is_empty(message):
        return None
    owed = ack.acks_to_send(message)
    if reply is None and owed:
        return ack.pure_ack(message, owed, random, profile)
    return None if reply is None else ack.with_ack(reply, owed)
