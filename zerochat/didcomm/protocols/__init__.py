"""The protocols that agents of all makers share, one file each: message types, constructors, readers, answers.

All of it is pure: a function takes a message and returns a value or another message. Who a message goes to and from
(`to`, `from`) is left to whoever sends it, and so is every limit in time; what a reader cannot make sense of is a
RemoteError.

    bodies            the bodies of messages, into shapes
    ping              trust ping 2.0, 1.0
    empty, ack        the empty message 1.0, and acknowledgements
    features          discover features 2.0, 1.0
    problem           problem report 2.0, 1.0; the circuit breaker
    basic             basic message 2.0, 1.0
    oob, inviting     out of band: reading 2.0, 1.x, 0.1, and writing 2.0, 1.1
    exchange          the exchange of DIDs in v2, as groups do it
    didexchange       the exchange of DIDs in v1 (RFC 0023), with agents of other makers
    signed            signed attachments of v1 (RFC 0017)
    routing, mix      forwards; detours between mediators
    mediation, pickup    what a mediator is asked for, and how messages are fetched from it
    mediated          the recipient's side of both, as a value
"""

from collections.abc import Callable

from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import Profile
from zerochat.didcomm.protocols import ack, empty, features, ping, problem
from zerochat.didcomm.protocols.features import Features

STANDARD = Features(
    protocols=(
        (ping.PROTOCOL, ("sender", "receiver")),
        (ping.PROTOCOL_V1, ("sender", "receiver")),
        (features.PROTOCOL, ("requester", "responder")),
        (features.PROTOCOL_V1, ("requester", "responder")),
        (problem.PROTOCOL, ("notifier", "notified")),
        (empty.PROTOCOL, ()),
    )
)
"""What `standard_answer` speaks: a relationship may know at least this, as it can be found out by trying."""


def standard_answer(
    message: Message, *, disclosed: Features, random: Callable[[int], bytes], profile: Profile = "didcomm/v2"
) -> Message | None:
    """The answer that any agent gives to a ping, a query of features or an empty message; None for no answer.

    `disclosed` is what this sender may know of us, and `profile` that of the envelope, in which the answer goes back.
    Raises Malformed. Only to be asked about messages whose sender is proven, and once for every message.
    """
    reply = None
    if ping.is_ping(message):
        reply = ping.answer(message, random)
    elif features.is_query(message):
        reply = features.answer(message, disclosed, random, profile)
    elif not empty.is_empty(message):
        return None
    owed = ack.owed(message)
    if reply is None and owed:
        return ack.pure_ack(message, owed, random, profile)
    return None if reply is None else ack.with_ack(reply, owed)
