"""DID Rotate 1.0 (Aries RFC 0794): DID rotation in DIDComm v1, which has no `from_prior`.

    from the old DID:  rotate, to_did  -->
                                       <--  ack or problem report, to the old DID
    from the new DID:  any message     <->       to the new DID
    from the old DID:  hangup          -->       the relationship ends

The message is sent from the old DID, so its envelope is the proof; nothing is signed. The old DID sends and receives
until the ack has come.

Specified in: Aries RFC 0794.
"""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from zerochat.didcomm.did import DID_CHARS_MAX
from zerochat.didcomm.message import Message, new_id, same_type
from zerochat.didcomm.protocols.bodies import read_body
from zerochat.didcomm.protocols.problem import is_problem, problem_v1

PROTOCOL: Final = "https://didcomm.org/did-rotate/1.0"
ROTATE, ACK, HANGUP = PROTOCOL + "/rotate", PROTOCOL + "/ack", PROTOCOL + "/hangup"
PROBLEM = PROTOCOL + "/problem-report"
_METHODS: Final = ("did:peer:", "did:key:")


class _Body(msgspec.Struct, frozen=True):
    to_did: Annotated[str, msgspec.Meta(min_length=1, max_length=DID_CHARS_MAX)]


def rotate(new_did: str, random: Callable[[int], bytes]) -> Message:
    """Announce our new DID (long form)."""
    return Message(type=ROTATE, id=new_id(random), body={"to_did": new_did})


def hangup(random: Callable[[int], bytes]) -> Message:
    """End the relationship."""
    return Message(type=HANGUP, id=new_id(random))


def ack(message: Message, random: Callable[[int], bytes]) -> Message:
    """The acknowledgement of `rotate`, to the old DID."""
    return Message(type=ACK, id=new_id(random), body={"status": "OK"}, thid=message.thread)


def refuse(message: Message, new_did: str, random: Callable[[int], bytes]) -> Message:
    """The problem report about a `rotate` to a DID that cannot be used, to the old DID."""
    code = "e.did.doc_unsupported" if new_did.startswith(_METHODS) else "e.did.method_unsupported"
    report = problem_v1(code, message, "The new DID cannot be used.", random, kind=PROBLEM)
    return replace(report, pthid=message.id, body={**report.body, "problem_items": [{"did": new_did}]})


def is_rotate(message: Message) -> bool:
    return same_type(message.type, ROTATE)


def is_ack(message: Message) -> bool:
    return same_type(message.type, ACK)


def is_refusal(message: Message, thread: str) -> bool:
    """Whether a problem report refuses the `rotate` with this id."""
    return bool(thread) and is_problem(message) and thread in (message.thid, message.pthid)


def is_hangup(message: Message) -> bool:
    return same_type(message.type, HANGUP)


def read_rotate(message: Message) -> str:
    """The new DID. Raises Malformed."""
    return read_body(message, _Body).to_did
